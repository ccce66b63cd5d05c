//! The LLVM code generator: loop functions as LLVM IR, compiled in this process.
//!
//! A kernel has the signature that the [C backend](super::c) gives it. Operations are the loop IR's
//! own: its vectors are LLVM vectors, `MulAdd` is `llvm.fma`, and no operation has a fast-math
//! flag. So both backends give the same results, bit for bit, on one CPU level.
//!
//! Every group of kernels is a module of its own in a context of its own, so that objects depend
//! neither on the number of threads nor on what else is compiled.

mod arith;
mod entry;
mod expr;
#[cfg(unix)]
mod isolate;
mod jit;
mod kernel;
mod machine;
mod matrix;
mod memory;
mod shuffle;
mod stmt;
mod wrapper;

#[cfg(unix)]
pub use isolate::compile_isolated;
pub use jit::Jit;
pub use machine::check_target;

use std::sync::{PoisonError, RwLock};

use inkwell::context::Context;

use crate::codegen::{CodegenError, Wrapper};
use crate::executor::ObjectFile;
use crate::executor::aot::Entry;
use crate::parallel;
use crate::target::Target;
use crate::tir::PrimFunc;

/// A lowered kernel and the name of its function.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The function, lowered for the target.
    pub func: PrimFunc,
    /// The name of the function in the object.
    pub symbol: String,
}

/// What becomes one object.
#[derive(Clone, Debug)]
pub struct Source {
    /// The object's name without ending.
    pub name: String,
    /// The kernels in it.
    pub kernels: Vec<Kernel>,
    /// Other functions that call the kernels in it.
    pub wrappers: Vec<Wrapper>,
    /// The function that calls the model's kernels, if it is in here.
    pub entry: Option<Entry>,
    /// Place among the targets of the one whose instructions the code may use.
    pub level: usize,
}

impl Source {
    /// What is in it, for people.
    fn contents(&self) -> String {
        let names: Vec<String> =
            self.kernels.iter().map(|kernel| format!("`{}`", kernel.func.name)).collect();
        match names.as_slice() {
            [] => "the function that calls the kernels".to_owned(),
            [name] => format!("the kernel {name}"),
            names => format!("one of the kernels {}", names.join(", ")),
        }
    }
}

/// What came of a [`Source`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The object.
    pub object: ObjectFile,
    /// The module as LLVM's instruction selection was given it, and its assembly, if asked for.
    pub text: Option<Text>,
}

/// A compiled module for people to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The object's name without ending.
    pub name: String,
    /// LLVM IR after LLVM's passes.
    pub ir: String,
    /// Assembly.
    pub assembly: String,
}

/// The version of LLVM that this process has: `19.1.7`.
pub fn version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

/// Compiles sources with up to `jobs` threads; results come back in the sources' order.
///
/// `targets` differ in their features alone; each source is compiled for the one at its level.
///
/// # Errors
///
/// One for each kernel that cannot be compiled.
pub fn compile(
    sources: &[Source],
    targets: &[Target],
    jobs: usize,
    with_text: bool,
) -> Result<Vec<Compiled>, Vec<CodegenError>> {
    gather(parallel::map(sources, jobs, |source| compile_one(source, targets, with_text)))
}

/// All results, or all errors.
fn gather(
    results: Vec<Result<Compiled, Vec<CodegenError>>>,
) -> Result<Vec<Compiled>, Vec<CodegenError>> {
    let mut compiled = Vec::with_capacity(results.len());
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(one) => compiled.push(one),
            Err(more) => errors.extend(more),
        }
    }
    if errors.is_empty() { Ok(compiled) } else { Err(errors) }
}

/// Compiles sources as [`compile`] does: this system cannot continue a process in a copy of it.
///
/// # Errors
///
/// One problem for each kernel that cannot be compiled.
#[cfg(not(unix))]
pub fn compile_isolated(
    sources: &[Source],
    targets: &[Target],
    jobs: usize,
) -> Result<Vec<Compiled>, crate::diagnostics::Report> {
    compile(sources, targets, jobs, false).map_err(|errors| crate::diagnostics::Report {
        problems: errors.into_iter().map(Into::into).collect(),
    })
}

/// Compiles one source. What LLVM itself reports is told of the kernel it is about.
fn compile_one(
    source: &Source,
    targets: &[Target],
    with_text: bool,
) -> Result<Compiled, Vec<CodegenError>> {
    let Some(target) = targets.get(source.level).or(targets.last()) else {
        return Err(vec![error_of(source, "there is no target to compile it for".to_owned())]);
    };
    let message = match compile_module(source, target, with_text) {
        Ok(compiled) => return Ok(compiled),
        Err(Failed::Kernels(errors)) => return Err(errors),
        Err(Failed::Module(message)) => message,
    };
    // LLVM does not say which function it means.
    let guilty = (source.kernels.iter()).find_map(|kernel| {
        let alone = Source {
            kernels: vec![kernel.clone()],
            wrappers: vec![],
            entry: None,
            ..source.clone()
        };
        match compile_module(&alone, target, false) {
            Err(Failed::Module(message)) => Some(error_of(&alone, message)),
            _ => None,
        }
    });
    Err(vec![guilty.unwrap_or_else(|| error_of(source, message))])
}

fn error_of(source: &Source, message: String) -> CodegenError {
    let kernels: Vec<_> = source.kernels.iter().map(|k| k.func.name.as_str()).collect();
    CodegenError { kernel: kernels.join("`, `"), message }
}

/// Why a module could not be compiled.
enum Failed {
    /// Kernels in it that cannot be generated.
    Kernels(Vec<CodegenError>),
    /// What LLVM says of the whole.
    Module(String),
}

impl From<String> for Failed {
    fn from(message: String) -> Self {
        Failed::Module(message)
    }
}

/// Held for reading where LLVM is at work, and for writing while this process is forked: what a
/// thread of the parent has locked inside LLVM stays locked in the child for ever.
static AT_WORK: RwLock<()> = RwLock::new(());

fn compile_module(source: &Source, target: &Target, with_text: bool) -> Result<Compiled, Failed> {
    // There is nothing to be left in a bad state by a panic.
    let _at_work = AT_WORK.read().unwrap_or_else(PoisonError::into_inner);
    let machine = machine::Machine::new(target)?;
    let context = Context::create();
    let reported = machine::Errors::of(&context);
    let module = context.create_module(&source.name);
    machine.prepare(&module);
    let unit = kernel::Unit::new(&context, &module, target);
    let mut errors = Vec::new();
    for Kernel { func, symbol } in &source.kernels {
        if let Err(error) = kernel::generate(&unit, func, symbol) {
            errors.push(error);
        }
    }
    if !errors.is_empty() {
        return Err(Failed::Kernels(errors));
    }
    for wrapper in &source.wrappers {
        wrapper::generate(&unit, wrapper).map_err(|failure| failure.0)?;
    }
    if let Some(entry) = &source.entry {
        entry::generate(&unit, entry).map_err(|failure| failure.0)?;
    }
    module
        .verify()
        .map_err(|error| format!("LLVM refuses the generated code: {}", error.to_string()))?;
    machine.optimize(&module)?;
    let ir = with_text.then(|| module.print_to_string().to_string());
    // Emission changes a module, so the text is made of a copy.
    let assembly = with_text.then(|| machine.assembly(&module.clone())).transpose()?;
    let bytes = machine.object(&module)?;
    if let Some(message) = reported.take() {
        return Err(Failed::Module(format!("LLVM: {message}")));
    }
    let name = source.name.clone();
    let text = ir.zip(assembly).map(|(ir, assembly)| Text { name: name.clone(), ir, assembly });
    Ok(Compiled { object: ObjectFile { name: format!("{name}.o"), bytes }, text })
}

#[cfg(test)]
mod tests;
