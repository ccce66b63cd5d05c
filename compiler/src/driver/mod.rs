//! Building loop functions: from tir to functions that can be called, or to text and objects.
//!
//! [`build`] is TVM's `tvm.build(func, target)`. What is built does not depend on models: a
//! function can come from tensor expressions and a schedule, or from text.
//!
//! ```
//! use niello::driver::NdArray;
//! use niello::tir;
//!
//! let func = tir::parse(
//!     "prim_func @axpy(x: input float32[4], y: input float32[4], z: output float32[4]) {
//!        for i in serial(4) {
//!          z[i] = x[i] * 2.0 + y[i]
//!        }
//!      }",
//! )?;
//! let module = niello::build([func], &"c -mcpu=native".parse()?)?;
//! let axpy = module.function("axpy")?;
//! let x = NdArray::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0])?;
//! let y = NdArray::from_slice(&[4], &[0.5f32; 4])?;
//! let mut z = NdArray::zeros(x.dtype(), x.shape())?;
//! axpy.call((&x, &y, &mut z))?;
//! assert_eq!(z.as_slice::<f32>()?, [2.5, 4.5, 6.5, 8.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod accesses;
mod array;
mod error;
mod function;
mod load;
mod module;
mod sizes;
mod target;

use std::sync::{Arc, OnceLock};

pub use array::{ArrayError, ArrayView, ArrayViewMut, Element, NdArray};
pub use error::{
    ArgumentProblem, BuildError, CallError, CallErrorKind, LoadError, SourceError, WrongExtent,
    WrongType,
};
pub use function::{Arg, BoundCall, Function, IntoArgs, Parameter};
pub use module::{Module, SourceKind};
pub use target::{BuildTarget, BuildTargetError, InterfaceApi};

use crate::codegen::c::{self, LIBM_FUNCTIONS, Names};
#[cfg(feature = "llvm")]
use crate::codegen::llvm;
use crate::codegen::object::MEMORY_FUNCTIONS;
use crate::codegen::{ArrayWrapper, PackedTensor, PackedWrapper, Wrapper};
use crate::codegen::{CodegenError, scratch_bytes};
use crate::executor::ObjectFile;
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::options::Backend;
use crate::tir::{self, PrimFunc};
use module::{Built, Code, Inner};
use sizes::Sizes;

/// What [`build`] takes: loop functions in order, or a module of them.
pub trait IntoFunctions {
    /// The functions; those of a module have the names of its globals.
    ///
    /// # Errors
    ///
    /// A definition of the module is no loop function.
    fn into_functions(self) -> Result<Vec<PrimFunc>, BuildError>;
}

impl<I: IntoIterator<Item = PrimFunc>> IntoFunctions for I {
    fn into_functions(self) -> Result<Vec<PrimFunc>, BuildError> {
        Ok(self.into_iter().collect())
    }
}

impl IntoFunctions for &IRModule {
    fn into_functions(self) -> Result<Vec<PrimFunc>, BuildError> {
        let function = |(global, definition): (&GlobalVar, &Definition)| {
            let Some(func) = definition.as_prim() else {
                return Err(BuildError::NotLoopFunction(global.name().to_owned()));
            };
            let mut func = func.clone();
            if func.name != global.name() {
                func.make_mut().name = global.name().to_owned();
            }
            Ok(func)
        };
        self.iter().map(function).collect()
    }
}

impl IntoFunctions for IRModule {
    fn into_functions(self) -> Result<Vec<PrimFunc>, BuildError> {
        (&self).into_functions()
    }
}

/// Lowers functions for a target and compiles them.
///
/// The code accesses nothing outside of its buffers: where that cannot be proved of a function, as
/// of indices that are read from memory, it checks indices when it runs, and traps at the first one
/// outside. A pass that the context adds to the lowering (`tir.add_lower_pass`) must not change what is
/// accessed; with `tir.instrument_bound_checkers` all indices are checked.
///
/// The target's kind `c` needs a C compiler, `llvm` a build of niello with the feature `llvm`. With
/// `-interface-api=packed`, for each function `f` there is one with the signature of TVM's packed
/// functions, [`PackedWrapper`], which has the name `f`; the kernel itself is `f_compute`. A name
/// that C or its library has already gets a number: `exp` is `exp1` there.
///
/// # Errors
///
/// There are no functions, two of one name or something else than loop functions; one is not
/// well-formed, or cannot be lowered or compiled for the target.
pub fn build(functions: impl IntoFunctions, target: &BuildTarget) -> Result<Module, BuildError> {
    let functions = functions.into_functions()?;
    if functions.is_empty() {
        return Err(BuildError::Empty);
    }
    let mut names = Names::default();
    // What the code itself calls, and what its wrappers have in scope.
    for taken in MEMORY_FUNCTIONS.iter().chain(LIBM_FUNCTIONS).chain(&["main", "buffers", "dims"]) {
        names.unique(taken);
    }
    let mut kernels = Vec::new();
    for func in functions {
        if kernels.iter().any(|kernel: &Kernel| kernel.func.name == func.name) {
            return Err(BuildError::Repeated(func.name.clone()));
        }
        tir::verify(&func)
            .map_err(|errors| BuildError::Invalid(tir::print_with_errors(&func, &errors)))?;
        let lowered = accesses::lower(&func, &target.machine)?;
        let name = names.unique(&func.name);
        let symbol = match target.interface_api {
            InterfaceApi::C => name.clone(),
            InterfaceApi::Packed => names.unique(&format!("{name}_compute")),
        };
        let call = names.unique(&format!("{name}_call"));
        kernels.push(Kernel { func, lowered, name, symbol, call });
    }
    // What a worker of each function needs.
    let scratch = all(kernels.iter().map(|kernel| scratch_bytes(&kernel.lowered)))?;
    let scratch: Vec<u64> = scratch.into_iter().map(|bytes| bytes.serial).collect();
    let (code, objects) = match target.kind {
        Backend::C => build_c(&kernels, &scratch, target)?,
        #[cfg(feature = "llvm")]
        Backend::Llvm => build_llvm(&kernels, &scratch, target)?,
    };
    let functions = kernels.into_iter().zip(scratch).map(|(kernel, bytes)| kernel.built(bytes));
    let (functions, target) = (functions.collect(), target.clone());
    let inner = Inner { target, functions, code, objects, loaded: OnceLock::new() };
    Ok(Module(Arc::new(inner)))
}

/// What came of code generation: its text and the objects.
type Generated = (Code, Vec<ObjectFile>);

/// A function and its names.
struct Kernel {
    func: PrimFunc,
    lowered: PrimFunc,
    /// Of the function that others call.
    name: String,
    /// Of the kernel.
    symbol: String,
    /// Of what [`Function`] calls.
    call: String,
}

impl Kernel {
    fn array_wrapper(&self) -> ArrayWrapper {
        ArrayWrapper {
            symbol: self.call.clone(),
            kernel: self.symbol.clone(),
            buffers: self.func.params.len(),
            dims: self.func.dims.len(),
            flush_denormals: self.lowered.flushes_denormals(),
        }
    }

    fn packed_wrapper(&self, scratch_bytes: u64) -> Result<Wrapper, BuildError> {
        let func = &self.func;
        let sizes = Sizes::of(func);
        let tensor = |(position, param): (usize, &tir::Param)| {
            let buffer = &func.buffers[param.buffer];
            let error =
                |why: String| BuildError::Packed(func.name.clone(), buffer.name.clone(), why);
            if buffer.dtype.bytes().is_none() {
                return Err(error(format!("elements of {} share bytes", buffer.dtype)));
            }
            if buffer.spec.offset() != 0 {
                return Err(error("its first element is not where its memory begins".to_owned()));
            }
            Ok(PackedTensor {
                name: buffer.name.clone(),
                dtype: buffer.dtype,
                shape: buffer.spec.physical_shape(),
                strides: buffer.spec.strides(),
                symbolic: sizes.packed_extents(position),
            })
        };
        Ok(Wrapper::Packed(PackedWrapper {
            symbol: self.name.clone(),
            kernel: self.symbol.clone(),
            tensors: func.params.iter().enumerate().map(tensor).collect::<Result<_, _>>()?,
            dims: sizes.packed_dims(),
            reduced: sizes.packed_reduced(),
            scratch_bytes,
            flush_denormals: self.lowered.flushes_denormals(),
        }))
    }

    fn built(self, scratch_bytes: u64) -> Built {
        let func = &self.func;
        let sizes = Sizes::of(func);
        let parameter = |(position, param): (usize, &tir::Param)| {
            let buffer = &func.buffers[param.buffer];
            Parameter {
                name: buffer.name.clone(),
                kind: param.kind,
                dtype: buffer.dtype,
                spec: buffer.spec.clone(),
                symbolic: sizes.texts(position),
            }
        };
        Built {
            name: func.name.clone(),
            parameters: func.params.iter().enumerate().map(parameter).collect(),
            dims: sizes.passed(),
            sizes,
            wrapper: self.array_wrapper(),
            lowered: self.lowered,
            // Larger memory than the address space is refused when it is allocated.
            scratch_bytes: usize::try_from(scratch_bytes).unwrap_or(usize::MAX),
        }
    }
}

/// The packed functions, if the target has them.
fn packed_wrappers(
    kernels: &[Kernel],
    scratch: &[u64],
    target: &BuildTarget,
) -> Result<Vec<Wrapper>, BuildError> {
    match target.interface_api {
        InterfaceApi::C => Ok(Vec::new()),
        InterfaceApi::Packed => {
            let wrappers = kernels.iter().zip(scratch);
            wrappers.map(|(kernel, &bytes)| kernel.packed_wrapper(bytes)).collect()
        }
    }
}

fn array_wrappers(kernels: &[Kernel]) -> Vec<Wrapper> {
    kernels.iter().map(|kernel| Wrapper::Array(kernel.array_wrapper())).collect()
}

/// All results, or all errors.
fn all<T>(results: impl Iterator<Item = Result<T, CodegenError>>) -> Result<Vec<T>, BuildError> {
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => done.push(one),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(done) } else { Err(BuildError::Codegen(errors)) }
}

fn build_c(
    kernels: &[Kernel],
    scratch: &[u64],
    target: &BuildTarget,
) -> Result<Generated, BuildError> {
    let generate = |kernel: &Kernel| c::generate(&kernel.lowered, &kernel.symbol, &target.machine);
    let sources = all(kernels.iter().map(generate))?;
    let mut wrappers = packed_wrappers(kernels, scratch, target)?;
    let text = c::translation_unit(&sources, &wrappers);
    wrappers.extend(array_wrappers(kernels));
    let whole = c::translation_unit(&sources, &wrappers);
    let machine = std::slice::from_ref(&target.machine);
    let objects = c::compile_c(&[module::source_file(whole)], machine, 1, None)?;
    Ok((Code::C(text), objects))
}

#[cfg(feature = "llvm")]
fn build_llvm(
    kernels: &[Kernel],
    scratch: &[u64],
    target: &BuildTarget,
) -> Result<Generated, BuildError> {
    let named = |kernel: &Kernel| llvm::Kernel {
        func: kernel.lowered.clone(),
        symbol: kernel.symbol.clone(),
    };
    let source = llvm::Source {
        name: "module".to_owned(),
        kernels: kernels.iter().map(named).collect(),
        wrappers: packed_wrappers(kernels, scratch, target)?,
        entry: None,
        level: 0,
    };
    let mut whole = source.clone();
    whole.wrappers.extend(array_wrappers(kernels));
    let machine = std::slice::from_ref(&target.machine);
    let compiled = llvm::compile(&[whole], machine, 1, false).map_err(BuildError::Codegen)?;
    let objects = compiled.into_iter().map(|one| one.object).collect();
    Ok((Code::Llvm(Box::new(source)), objects))
}

#[cfg(test)]
mod tests;
