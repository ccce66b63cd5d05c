//! A program's functions and entry as a code generator takes them, and the objects made of them.

use std::hash::Hash;

use super::{Entry, KernelFunctions};
use crate::codegen::CodegenError;
use crate::codegen::c::{self, SourceFile};
#[cfg(feature = "llvm")]
use crate::codegen::llvm;
use crate::diagnostics::{Problem, Report};
use crate::executor::{ObjectFile, Program};
use crate::ir::Digest;
use crate::options::{Backend, CompileOptions};
use crate::parallel;
use crate::target::Target;
use crate::tir::PrimFunc;

/// Raised with each change of what a code generator makes of a lowered function, of the parameters
/// of kernels or of the context that they are handed: compiled functions are kept from build to
/// build.
const REVISION: u32 = 3;

/// What turns lowered functions into code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generator {
    backend: Backend,
    /// What the compiler behind it says of itself; nothing if it is not run.
    compiler: String,
}

impl Generator {
    /// The code generator of a compilation's options.
    ///
    /// # Errors
    ///
    /// Code is made by C, and there is no C compiler; or by LLVM, and not for such a target; or the target's floats are
    /// not rounded as those of others.
    pub fn of(options: &CompileOptions) -> Result<Generator, Report> {
        let target = &options.target;
        if target.arch == "x86" && !target.has_feature("sse2") {
            return Err(Problem::new(format!(
                "{} has no SSE2: sums in its registers of 80 bits are not rounded to float32, which \
                 functions such as `exp` depend on",
                target.triple
            ))
            .help("build for i686, whose processors have SSE2")
            .into());
        }
        let compiler = match options.backend {
            Backend::C if !options.without_objects => c::compiler_identity(&options.target)
                .map_err(|error| Problem::new(error.to_string()))?,
            Backend::C => String::new(),
            #[cfg(feature = "llvm")]
            Backend::Llvm => {
                llvm::check_target(&options.target).map_err(Problem::new)?;
                llvm::version()
            }
        };
        Ok(Generator { backend: options.backend, compiler })
    }

    /// A digest of what decides the code of a function, beside the function and its target.
    pub fn digest(&self) -> Digest {
        super::kernels::digest(|hasher| {
            (env!("CARGO_PKG_VERSION"), REVISION, self.backend, &self.compiler).hash(hasher);
        })
    }
}

/// A function of a model, as its generator takes it.
#[derive(Clone, Debug)]
struct Unit {
    func: PrimFunc,
    symbol: String,
    level: usize,
}

/// Everything that objects are made of.
#[derive(Clone, Debug, Default)]
pub struct Code {
    backend: Backend,
    kernels: Vec<Unit>,
    entries: Vec<Entry>,
    /// C of other code generators.
    external: Vec<SourceFile>,
}

/// How many functions were in the kernel cache, and how many were compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheUse {
    /// Those that were found.
    pub hits: usize,
    /// Those that were not.
    pub misses: usize,
}

impl Code {
    /// The function that runs the model; none in a stub.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.first()
    }

    /// The functions of a lowered program, and those that call them.
    pub fn new(
        backend: Backend,
        program: &Program,
        functions: &KernelFunctions,
        entries: Vec<Entry>,
    ) -> Code {
        let own = functions.versions(program);
        let own = own.filter(|(_, version)| version.external_symbol().is_none());
        let kernels = own.map(|(function, version)| Unit {
            func: version.clone(),
            symbol: function.symbol.clone(),
            level: function.level,
        });
        let external = program.external.iter().filter_map(|code| {
            let text = code.source.clone()?;
            Some(SourceFile { name: code.symbol.clone(), text, level: 0 })
        });
        Code { backend, kernels: kernels.collect(), entries, external: external.collect() }
    }

    /// The C files, each of which can be compiled by itself: one for each function, and one for
    /// each entry. None if the code is not C.
    ///
    /// # Errors
    ///
    /// One problem for each kernel that has something that C, or C for one of the levels, cannot
    /// say.
    pub fn c_files(
        &self,
        levels: &[Target],
        jobs: usize,
    ) -> Result<Option<Vec<SourceFile>>, Report> {
        if self.backend != Backend::C {
            return Ok(None);
        }
        let mut files = c_files(&self.kernels.iter().collect::<Vec<_>>(), levels, jobs)?;
        files.extend(self.entries.iter().map(entry_file));
        files.extend(self.external.iter().cloned());
        Ok(Some(files))
    }

    /// Compiles everything for the options' targets, with as many threads or processes as they
    /// allow, but for the functions that are in the kernel cache. Objects come in the order of the
    /// functions; those of the entries and of other code generators are the last.
    ///
    /// # Errors
    ///
    /// There is no C compiler, or something cannot be compiled.
    pub fn compile(
        &self,
        options: &CompileOptions,
        levels: &[Target],
    ) -> Result<(Vec<ObjectFile>, CacheUse), Report> {
        let cache = options.kernel_cache.as_ref();
        let mut objects: Vec<Option<ObjectFile>> = Vec::with_capacity(self.kernels.len() + 1);
        for unit in &self.kernels {
            let bytes = cache.and_then(|cache| cache.get(&unit.symbol));
            objects
                .push(bytes.map(|bytes| ObjectFile { name: format!("{}.o", unit.symbol), bytes }));
        }
        let absent = objects.iter().zip(&self.kernels).filter(|(object, _)| object.is_none());
        let absent: Vec<&Unit> = absent.map(|(_, unit)| unit).collect();
        let mut compiled = self.compile_units(&absent, options, levels)?.into_iter();
        let used = CacheUse { hits: objects.len() - absent.len(), misses: absent.len() };
        for (slot, unit) in objects.iter_mut().zip(&self.kernels).filter(|(slot, _)| slot.is_none())
        {
            *slot = compiled.next();
            if let (Some(cache), Some(object)) = (cache, &slot) {
                cache.put(&unit.symbol, &object.bytes);
            }
        }
        if let Some(cache) = cache.filter(|_| used.misses > 0) {
            cache.trim();
        }
        let external = compile_c(&self.external, options, levels)?;
        Ok((objects.into_iter().flatten().chain(compiled).chain(external).collect(), used))
    }

    /// Compiles some functions and the entries.
    fn compile_units(
        &self,
        units: &[&Unit],
        options: &CompileOptions,
        levels: &[Target],
    ) -> Result<Vec<ObjectFile>, Report> {
        match self.backend {
            Backend::C => {
                let mut files = c_files(units, levels, options.jobs)?;
                files.extend(self.entries.iter().map(entry_file));
                compile_c(&files, options, levels)
            }
            #[cfg(feature = "llvm")]
            Backend::Llvm => {
                let sources = self.llvm_sources(units);
                let compiled = match options.isolate {
                    true => llvm::compile_isolated(&sources, levels, options.jobs)?,
                    false => {
                        llvm::compile(&sources, levels, options.jobs, false).map_err(report)?
                    }
                };
                Ok(compiled.into_iter().map(|one| one.object).collect())
            }
        }
    }

    /// The modules of some functions and the entries.
    #[cfg(feature = "llvm")]
    fn llvm_sources(&self, units: &[&Unit]) -> Vec<llvm::Source> {
        let of_unit = |unit: &&Unit| llvm::Source {
            name: unit.symbol.clone(),
            kernels: vec![llvm::Kernel { func: unit.func.clone(), symbol: unit.symbol.clone() }],
            wrappers: vec![],
            entry: None,
            level: unit.level,
        };
        let of_entry = |entry: &Entry| llvm::Source {
            name: entry.symbol.clone(),
            kernels: vec![],
            wrappers: vec![],
            entry: Some(entry.clone()),
            level: 0,
        };
        units.iter().map(of_unit).chain(self.entries.iter().map(of_entry)).collect()
    }
}

fn compile_c(
    files: &[SourceFile],
    options: &CompileOptions,
    levels: &[Target],
) -> Result<Vec<ObjectFile>, Report> {
    c::compile_c(files, levels, options.jobs, options.code_folder.as_deref())
        .map_err(|error| Problem::new(error.to_string()).into())
}

/// A file for each function.
fn c_files(units: &[&Unit], levels: &[Target], jobs: usize) -> Result<Vec<SourceFile>, Report> {
    let written = parallel::map(units, jobs, |unit| {
        let Unit { func, symbol, level } = unit;
        let kernel = c::generate(func, symbol, &levels[*level])?;
        let text = c::translation_unit([&kernel], &[]);
        Ok(SourceFile { name: symbol.clone(), text, level: *level })
    });
    let mut report = Report::new();
    let mut files = Vec::with_capacity(units.len() + 1);
    for file in written {
        match file {
            Ok(file) => files.push(file),
            Err(error) => report.push(CodegenError::into(error)),
        }
    }
    report.into_result(files)
}

fn entry_file(entry: &Entry) -> SourceFile {
    SourceFile { name: entry.symbol.clone(), text: entry.c_text(), level: 0 }
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
        match self.backend {
            Backend::C => {
                if listing == Listing::LlvmIr {
                    let message = "LLVM IR is what the LLVM backend makes, and code is made by C";
                    return Err(Problem::new(message).help("add --backend llvm").into());
                }
                let assembly = |file: &SourceFile| match c::assembly(file, levels) {
                    Ok(text) => Ok((format!("{}.s", file.name), text)),
                    Err(error) => Err(Problem::new(error.to_string()).into()),
                };
                let files = self.c_files(levels, options.jobs)?;
                files.unwrap_or_default().iter().map(assembly).collect()
            }
            #[cfg(feature = "llvm")]
            Backend::Llvm => {
                let sources = self.llvm_sources(&self.kernels.iter().collect::<Vec<_>>());
                let compiled =
                    llvm::compile(&sources, levels, options.jobs, true).map_err(report)?;
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
fn report(errors: Vec<CodegenError>) -> Report {
    Report { problems: errors.into_iter().map(Problem::from).collect() }
}
