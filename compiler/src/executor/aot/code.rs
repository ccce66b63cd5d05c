//! A program's kernels and entry as a code generator takes them, and the objects made of them.

use super::{Entry, KernelFunctions, c_files, c_kernels};
use crate::codegen::c::{self, KernelSource, SourceFile};
#[cfg(feature = "llvm")]
use crate::codegen::llvm;
use crate::diagnostics::{Problem, Report};
use crate::executor::{ObjectFile, Program};
use crate::options::{Backend, CompileOptions};
use crate::target::Target;

/// The functions of a program before its memory is planned, in their order.
#[derive(Clone, Debug)]
pub enum KernelCode {
    /// Written as C.
    C(Vec<KernelSource>),
    /// As LLVM will be given them, each with the bytes of scratch memory that a worker needs.
    #[cfg(feature = "llvm")]
    Llvm(Vec<(llvm::Kernel, u64)>),
}

impl KernelCode {
    /// Writes the functions of a lowered program for a backend.
    ///
    /// # Errors
    ///
    /// One problem for each kernel that has something that the backend cannot say.
    pub fn of(
        backend: Backend,
        program: &Program,
        functions: &KernelFunctions,
        levels: &[Target],
        jobs: usize,
    ) -> Result<KernelCode, Report> {
        match backend {
            Backend::C => c_kernels(program, functions, levels, jobs).map(KernelCode::C),
            #[cfg(feature = "llvm")]
            Backend::Llvm => {
                let mut report = Report::new();
                let mut kernels = Vec::new();
                for (function, version) in functions.versions(program) {
                    match llvm::scratch_bytes(version) {
                        Ok(bytes) => {
                            let (func, symbol) = (version.clone(), function.symbol.clone());
                            kernels.push((llvm::Kernel { func, symbol }, bytes));
                        }
                        Err(error) => report.push(error.into()),
                    }
                }
                report.into_result(KernelCode::Llvm(kernels))
            }
        }
    }

    /// Bytes of scratch memory that each function needs for a worker.
    pub fn scratch_bytes(&self) -> Vec<u64> {
        match self {
            KernelCode::C(kernels) => kernels.iter().map(|kernel| kernel.scratch_bytes).collect(),
            #[cfg(feature = "llvm")]
            KernelCode::Llvm(kernels) => kernels.iter().map(|(_, bytes)| *bytes).collect(),
        }
    }
}

/// Everything that objects are made of.
#[derive(Clone, Debug)]
pub enum Code {
    /// C files.
    C(Vec<SourceFile>),
    /// Modules for LLVM.
    #[cfg(feature = "llvm")]
    Llvm(Vec<llvm::Source>),
}

/// Nothing, as C.
impl Default for Code {
    fn default() -> Self {
        Code::C(Vec::new())
    }
}

impl Code {
    /// Groups functions into files or modules, level by level, and adds the entry.
    pub fn new(
        kernels: KernelCode,
        entry: Entry,
        functions: &KernelFunctions,
        levels: &[Target],
    ) -> Code {
        match kernels {
            KernelCode::C(kernels) => Code::C(c_files(&entry, functions, levels, &kernels)),
            #[cfg(feature = "llvm")]
            KernelCode::Llvm(kernels) => {
                let kernels = kernels.into_iter().map(|(kernel, _)| kernel).collect();
                Code::Llvm(llvm_sources(entry, functions, levels, kernels))
            }
        }
    }

    /// The C files, if the code is C.
    pub fn c_sources(&self) -> Option<&[SourceFile]> {
        match self {
            Code::C(sources) => Some(sources),
            #[cfg(feature = "llvm")]
            Code::Llvm(_) => None,
        }
    }

    /// Compiles everything for the options' targets, with as many threads or processes as they
    /// allow.
    ///
    /// # Errors
    ///
    /// There is no C compiler, or something cannot be compiled.
    pub fn compile(
        &self,
        options: &CompileOptions,
        levels: &[Target],
    ) -> Result<Vec<ObjectFile>, Report> {
        match self {
            Code::C(files) => {
                c::compile_c(files, levels, options.jobs, options.code_folder.as_deref())
                    .map_err(|error| Problem::new(error.to_string()).into())
            }
            #[cfg(feature = "llvm")]
            Code::Llvm(sources) => {
                let compiled = match options.isolate {
                    true => llvm::compile_isolated(sources, levels, options.jobs)?,
                    false => llvm::compile(sources, levels, options.jobs, false).map_err(report)?,
                };
                Ok(compiled.into_iter().map(|one| one.object).collect())
            }
        }
    }
}

/// A kind of text that code is compiled by way of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// LLVM IR after LLVM's passes; `.ll`.
    LlvmIr,
    /// Assembly; `.s`.
    Assembly,
}

impl Code {
    /// The code for people to read: names of files and their contents. The same for the same code.
    ///
    /// # Errors
    ///
    /// The backend has no such text, or something cannot be compiled.
    pub fn listing(
        &self,
        listing: Listing,
        options: &CompileOptions,
    ) -> Result<Vec<(String, String)>, Report> {
        let levels = &options.targets();
        match self {
            Code::C(files) => {
                if listing == Listing::LlvmIr {
                    let message = "LLVM IR is what the LLVM backend makes, and code is made by C";
                    return Err(Problem::new(message).help("add --backend llvm").into());
                }
                let assembly = |file: &SourceFile| match c::assembly(file, levels) {
                    Ok(text) => Ok((format!("{}.s", file.name), text)),
                    Err(error) => Err(Problem::new(error.to_string()).into()),
                };
                files.iter().map(assembly).collect()
            }
            #[cfg(feature = "llvm")]
            Code::Llvm(sources) => {
                let compiled =
                    llvm::compile(sources, levels, options.jobs, true).map_err(report)?;
                let text = |text: llvm::Text| match listing {
                    Listing::LlvmIr => (format!("{}.ll", text.name), text.ir),
                    Listing::Assembly => (format!("{}.s", text.name), text.assembly),
                };
                Ok(compiled.into_iter().filter_map(|one| one.text).map(text).collect())
            }
        }
    }
}

#[cfg(feature = "llvm")]
fn report(errors: Vec<crate::codegen::CodegenError>) -> Report {
    Report { problems: errors.into_iter().map(Problem::from).collect() }
}

/// Operations of kernels that make a module full.
///
/// A module costs a few milliseconds before it has anything in it, and this many operations take
/// some 40: small models are one module, large ones keep every core busy.
#[cfg(feature = "llvm")]
const MODULE_OPERATIONS: usize = 4000;

/// The modules of a model: kernels, level by level, then the function that calls them.
#[cfg(feature = "llvm")]
fn llvm_sources(
    entry: Entry,
    functions: &KernelFunctions,
    levels: &[Target],
    kernels: Vec<llvm::Kernel>,
) -> Vec<llvm::Source> {
    let symbol = entry.symbol.clone();
    let mut sources: Vec<llvm::Source> = Vec::new();
    for (level, target) in levels.iter().enumerate() {
        let prefix = super::level_prefix(&symbol, level, target);
        let of_level = functions.functions.iter().zip(&kernels).filter(|(f, _)| f.level == level);
        let (mut number, mut operations) = (0, usize::MAX);
        for (_, kernel) in of_level {
            let own = kernel.operations();
            match sources.last_mut() {
                Some(last) if operations.saturating_add(own) <= MODULE_OPERATIONS => {
                    last.kernels.push(kernel.clone());
                    operations += own;
                }
                _ => {
                    let name = format!("{prefix}_{number}");
                    let kernels = vec![kernel.clone()];
                    sources.push(llvm::Source {
                        name,
                        kernels,
                        wrappers: vec![],
                        entry: None,
                        level,
                    });
                    (number, operations) = (number + 1, own);
                }
            }
        }
    }
    sources.push(llvm::Source {
        name: symbol,
        kernels: vec![],
        wrappers: vec![],
        entry: Some(entry),
        level: 0,
    });
    sources
}
