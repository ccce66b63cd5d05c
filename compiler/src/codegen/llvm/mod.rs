//! The LLVM code generator: loop functions as LLVM IR, compiled in this process.
//!
//! A kernel has the signature that the [C backend](super::c) gives it. Operations are the loop IR's
//! own: its vectors are LLVM vectors, `MulAdd` is `llvm.fma`, and no operation has a fast-math flag.
//! So both backends give the same results, bit for bit, on one CPU level.
//!
//! Every group of kernels is a module of its own in a context of its own, so that objects depend
//! neither on the number of threads nor on what else is compiled.

mod arith;
mod expr;
mod kernel;
mod machine;
mod memory;
mod stmt;

use inkwell::context::Context;

use crate::codegen::CodegenError;
use crate::codegen::kernel::Locals;
use crate::executor::ObjectFile;
use crate::executor::aot::parallel;
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

/// Bytes of scratch memory that each worker of a lowered kernel needs.
///
/// # Errors
///
/// A local buffer has no size that can be computed.
pub fn scratch_bytes(func: &PrimFunc) -> Result<u64, CodegenError> {
    let locals = Locals::of(func);
    let locals = locals.map_err(|message| CodegenError { kernel: func.name.clone(), message })?;
    Ok(locals.scratch_bytes)
}

/// Compiles sources with up to `jobs` threads; results come back in the sources' order.
///
/// # Errors
///
/// One for each kernel that cannot be compiled.
pub fn compile(
    sources: &[Source],
    target: &Target,
    jobs: usize,
    with_text: bool,
) -> Result<Vec<Compiled>, Vec<CodegenError>> {
    machine::initialize();
    let results = parallel::map(sources, jobs, |source| compile_one(source, target, with_text));
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

fn compile_one(
    source: &Source,
    target: &Target,
    with_text: bool,
) -> Result<Compiled, Vec<CodegenError>> {
    let whole = |message: String| {
        let kernels: Vec<_> = source.kernels.iter().map(|k| k.func.name.as_str()).collect();
        vec![CodegenError { kernel: kernels.join("`, `"), message }]
    };
    let machine = machine::Machine::new(target).map_err(whole)?;
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
        return Err(errors);
    }
    let refused = |error: inkwell::support::LLVMString| {
        whole(format!("LLVM refuses the generated code: {}", error.to_string()))
    };
    module.verify().map_err(refused)?;
    machine.optimize(&module).map_err(whole)?;
    let ir = with_text.then(|| module.print_to_string().to_string());
    let assembly = match with_text {
        true => Some(machine.assembly(&module.clone()).map_err(whole)?),
        false => None,
    };
    let bytes = machine.object(&module).map_err(whole)?;
    if let Some(message) = reported.take() {
        return Err(whole(format!("LLVM: {message}")));
    }
    let name = source.name.clone();
    let text = ir.zip(assembly).map(|(ir, assembly)| Text { name: name.clone(), ir, assembly });
    Ok(Compiled { object: ObjectFile { name: format!("{name}.o"), bytes }, text })
}
