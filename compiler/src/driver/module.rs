//! Built functions: their text, their objects, and the way to call them.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::error::{LoadError, SourceError};
use super::function::{Function, Parameter};
use super::load::Loaded;
use super::sizes::Sizes;
use super::target::BuildTarget;
use crate::codegen::ArrayWrapper;
use crate::codegen::c::{self, CompileError, SourceFile};
#[cfg(feature = "llvm")]
use crate::codegen::llvm;
use crate::executor::ObjectFile;
use crate::tir::PrimFunc;

/// Text that a module can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SourceKind {
    /// The functions in loop IR, lowered for the target.
    Tir,
    /// C.
    C,
    /// LLVM IR after LLVM's passes.
    LlvmIr,
    /// Assembly.
    Asm,
}

/// What a module's objects were made of, but for the functions by which [`Function`] calls.
#[derive(Debug)]
pub(super) enum Code {
    /// C text.
    C(String),
    /// Functions for LLVM.
    #[cfg(feature = "llvm")]
    Llvm(Box<llvm::Source>),
}

/// A function that was built.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) name: String,
    /// As before lowering.
    pub(super) parameters: Vec<Parameter>,
    /// Names of the dimensions that a call passes.
    pub(super) dims: Vec<String>,
    pub(super) sizes: Sizes,
    pub(super) lowered: PrimFunc,
    /// Bytes of scratch memory that a worker needs.
    pub(super) scratch_bytes: usize,
    /// How [`Function`] calls it.
    pub(super) wrapper: ArrayWrapper,
}

/// What a module and its functions share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) target: BuildTarget,
    pub(super) functions: Vec<Built>,
    pub(super) code: Code,
    pub(super) objects: Vec<ObjectFile>,
    /// Set by the first function that is asked for.
    pub(super) loaded: OnceLock<Loaded>,
}

/// Functions that were built by [`build`](super::build). Clones are the same module.
#[derive(Clone, Debug)]
pub struct Module(pub(super) Arc<Inner>);

impl Module {
    /// What the functions were built for.
    pub fn target(&self) -> &BuildTarget {
        &self.0.target
    }

    /// Names of the functions, in order.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.0.functions.iter().map(|function| function.name.as_str())
    }

    /// The functions as text. The same functions and the same target give the same text.
    ///
    /// Of C, LLVM IR and assembly, only what [`Function`] calls in place of the functions is left
    /// out.
    ///
    /// # Errors
    ///
    /// The target's kind makes no such text, or the compiler, which is run for assembly, fails.
    pub fn source(&self, kind: SourceKind) -> Result<String, SourceError> {
        let other = |text| Err(SourceError::Other(text, self.0.target.kind.name()));
        match (kind, &self.0.code) {
            (SourceKind::Tir, _) => {
                let texts = self.0.functions.iter().map(|function| function.lowered.to_string());
                Ok(texts.collect::<Vec<_>>().join("\n"))
            }
            (SourceKind::C, Code::C(text)) => Ok(text.clone()),
            (SourceKind::LlvmIr, Code::C(_)) => other("LLVM IR"),
            (SourceKind::Asm, Code::C(text)) => {
                let file = source_file(text.clone());
                c::assembly(&file, std::slice::from_ref(&self.0.target.machine))
                    .map_err(SourceError::Compile)
            }
            #[cfg(feature = "llvm")]
            (SourceKind::C, Code::Llvm(_)) => other("C"),
            #[cfg(feature = "llvm")]
            (SourceKind::LlvmIr | SourceKind::Asm, Code::Llvm(source)) => {
                let source = std::slice::from_ref(&**source);
                let target = std::slice::from_ref(&self.0.target.machine);
                let compiled =
                    llvm::compile(source, target, 1, true).map_err(SourceError::Codegen)?;
                let texts = compiled.into_iter().filter_map(|one| one.text);
                Ok(texts
                    .map(|text| if kind == SourceKind::Asm { text.assembly } else { text.ir })
                    .collect())
            }
        }
    }

    /// The compiled functions. With `-interface-api=packed`, packed functions are visible; all
    /// functions of the module can be called by other objects of the same library.
    pub fn objects(&self) -> &[ObjectFile] {
        &self.0.objects
    }

    /// Writes a shared library, which is replaced if it exists. It exports the packed functions, if
    /// the target has them, and for each function `f`
    ///
    /// ```c
    /// void f_call(const struct niello_context *ctx, void *const *buffers, const int64_t *dims);
    /// ```
    ///
    /// # Errors
    ///
    /// There is no C compiler, which links, or the file cannot be written.
    pub fn export_library(&self, path: impl AsRef<Path>) -> Result<(), CompileError> {
        c::link_shared(&self.0.objects, &self.0.target.machine, path.as_ref())
    }

    /// A function to be called in this process. The first one that is asked for loads the code.
    ///
    /// # Errors
    ///
    /// There is no function of that name, this machine cannot run the code, or it cannot be linked.
    pub fn function(&self, name: &str) -> Result<Function, LoadError> {
        let Some(place) = self.functions().position(|other| other == name) else {
            let known = self.functions().map(str::to_owned).collect();
            return Err(LoadError::NoSuchFunction(name.to_owned(), known));
        };
        let loaded = match self.0.loaded.get() {
            Some(loaded) => loaded,
            None => {
                let inner = &self.0;
                let wrappers: Vec<_> = inner.functions.iter().map(|f| &f.wrapper).collect();
                let new = Loaded::new(&inner.objects, &wrappers, &inner.target)?;
                // Another thread may have been faster; one of both is dropped.
                inner.loaded.get_or_init(|| new)
            }
        };
        Ok(Function::new(self.0.clone(), place, loaded.entries[place]))
    }
}

/// C text as a file.
pub(super) fn source_file(text: String) -> SourceFile {
    SourceFile { name: "module".to_owned(), text, level: 0 }
}
