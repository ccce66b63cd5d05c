//! Calling built functions.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use niello_runtime::Active;
use niello_runtime::abi::Context;

use super::array::{ArrayView, ArrayViewMut, NdArray};
use super::error::{ArgumentProblem, CallError, CallErrorKind};
use super::load::Entry;
use super::module::{Built, Inner};
use crate::executor::aligned::AlignedBytes;
use crate::ir::{BufferSpec, DType};
use crate::tir::ParamKind;

/// An argument of a call.
#[derive(Debug)]
pub enum Arg<'a> {
    /// An array that is only read.
    Read(ArrayView<'a>),
    /// An array that may be written to.
    Write(ArrayViewMut<'a>),
    /// The value of a dimension.
    Int(i64),
}

impl<'a> From<&'a NdArray> for Arg<'a> {
    fn from(array: &'a NdArray) -> Self {
        Arg::Read(array.view())
    }
}

impl<'a> From<&'a mut NdArray> for Arg<'a> {
    fn from(array: &'a mut NdArray) -> Self {
        Arg::Write(array.view_mut())
    }
}

impl<'a> From<ArrayView<'a>> for Arg<'a> {
    fn from(view: ArrayView<'a>) -> Self {
        Arg::Read(view)
    }
}

impl<'a> From<ArrayViewMut<'a>> for Arg<'a> {
    fn from(view: ArrayViewMut<'a>) -> Self {
        Arg::Write(view)
    }
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Arg::Int(value)
    }
}

/// The arguments of a call: a tuple of up to twelve that become an [`Arg`] each, or any number of
/// [`Arg`]s in a vector.
pub trait IntoArgs<'a> {
    /// The arguments, in order.
    fn into_args(self) -> Vec<Arg<'a>>;
}

impl<'a> IntoArgs<'a> for Vec<Arg<'a>> {
    fn into_args(self) -> Vec<Arg<'a>> {
        self
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        tuples!(@ $($name)*);
    };
    (@ $first:ident $($rest:ident)*) => {
        impl<'a, $first: Into<Arg<'a>>, $($rest: Into<Arg<'a>>),*> IntoArgs<'a>
            for ($first, $($rest,)*)
        {
            #[allow(non_snake_case, reason = "the parameters of types name the values, too")]
            fn into_args(self) -> Vec<Arg<'a>> {
                let ($first, $($rest,)*) = self;
                vec![$first.into(), $($rest.into()),*]
            }
        }
        tuples!(@ $($rest)*);
    };
    (@) => {};
}

tuples!(A B C D E F G H I J K L);

/// What a function takes for one of its buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The buffer's name.
    pub name: String,
    /// Whether it is read or written.
    pub kind: ParamKind,
    /// Type of the elements.
    pub dtype: DType,
    /// Shape, which a call's array has, and physical layout, which the code reads. An extent that
    /// is not constant is [`Buffer::SYMBOLIC`](crate::tir::Buffer::SYMBOLIC).
    pub spec: BufferSpec,
    /// All extents as text, by the function's dimensions, if one is not constant.
    pub symbolic: Option<Vec<String>>,
}

/// A function of a [`Module`](super::Module), loaded to be called. It keeps the module's code alive;
/// clones share it.
///
/// Buffers come first, then the dimensions (`PrimFuncData::dims`), as `i64`; those that are an
/// extent of some buffer are taken from the shapes of the arrays, which must agree. Arrays are dense and
/// row-major whatever the layout of the buffer: for another layout, a call packs what it reads, and
/// unpacks what was written.
#[derive(Clone, Debug)]
pub struct Function {
    /// Holds the code.
    module: Arc<Inner>,
    /// Place in the module.
    place: usize,
    entry: Entry,
}

impl Function {
    pub(super) fn new(module: Arc<Inner>, place: usize, entry: Entry) -> Function {
        Function { module, place, entry }
    }

    fn built(&self) -> &Built {
        &self.module.functions[self.place]
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.built().name
    }

    /// What the function takes for its buffers, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.built().parameters
    }

    /// Names of the dimensions that are passed after the buffers.
    pub fn dims(&self) -> &[String] {
        &self.built().dims
    }

    /// Calls the function once, on this thread.
    ///
    /// A function that accesses an element outside of its buffers, which
    /// [`tir::interpret`](crate::tir::interpret) reports as an error, ends the process by a trap.
    ///
    /// # Errors
    ///
    /// Number, kinds, types or shapes of the arguments are not those of the parameters.
    pub fn call<'a>(&self, args: impl IntoArgs<'a>) -> Result<(), CallError> {
        let mut call = self.bind(args)?;
        call.run();
        call.finish()
    }

    /// Checks arguments and packs those of layouts that are not dense, so that running the call,
    /// any number of times, is nothing but that.
    ///
    /// # Errors
    ///
    /// As of [`call`](Self::call).
    pub fn bind<'a>(&self, args: impl IntoArgs<'a>) -> Result<BoundCall<'a>, CallError> {
        let args = args.into_args();
        let Built { name, parameters, dims, sizes, scratch_bytes, .. } = self.built();
        let error = |kind| CallError { function: name.clone(), kind };
        if args.len() != parameters.len() + dims.len() {
            let buffers = parameters.iter().map(|parameter| &parameter.name);
            let expected = buffers.chain(dims).cloned().collect();
            return Err(error(CallErrorKind::Count { expected, found: args.len() }));
        }
        let mut call = BoundCall {
            function: self.clone(),
            pointers: Vec::with_capacity(parameters.len()),
            dims: Vec::new(),
            packed: Vec::new(),
            context: Context {
                weights: ptr::null(),
                workspace: ptr::null_mut(),
                scratch: ptr::null_mut(),
                scratch_stride: *scratch_bytes,
                parallel_for: None,
                pool: ptr::null_mut(),
                workers: 1,
                level: 0,
            },
            scratch: AlignedBytes::zeroed(0),
            arrays: PhantomData,
        };
        call.set_workers(1);
        let argument = |position, name: &String, problem| {
            error(CallErrorKind::Argument { position, name: name.clone(), problem })
        };
        let names = parameters.iter().map(|parameter| &parameter.name).chain(dims);
        for (position, (arg, name)) in args.iter().zip(names).enumerate() {
            let is_int = matches!(arg, Arg::Int(_));
            match position < parameters.len() {
                true if is_int => {
                    return Err(argument(position, name, ArgumentProblem::NotAnArray));
                }
                false if !is_int => {
                    return Err(argument(position, name, ArgumentProblem::NotAnInteger));
                }
                true | false => {}
            }
            // Larger ones could make indices overflow, of which the proofs know nothing.
            if let Arg::Int(value) = arg
                && !(0..=i64::from(i32::MAX)).contains(value)
            {
                return Err(argument(position, name, ArgumentProblem::Dimension(*value)));
            }
        }
        let bound = sizes.bind(parameters, &args).map_err(error)?;
        call.dims = bound.dims;
        let layouts = parameters.iter().zip(&bound.specs);
        for (position, (arg, (parameter, spec))) in args.into_iter().zip(layouts).enumerate() {
            let spec = spec.as_ref().unwrap_or(&parameter.spec);
            call.push(position, parameter, spec, arg)
                .map_err(|problem| argument(position, &parameter.name, problem))?;
        }
        Ok(call)
    }
}

/// A call whose arguments were checked and packed: see [`Function::bind`].
#[derive(Debug)]
pub struct BoundCall<'a> {
    /// Holds the code.
    function: Function,
    pointers: Vec<*mut c_void>,
    dims: Vec<i64>,
    packed: Vec<Packed<'a>>,
    context: Context,
    scratch: AlignedBytes,
    /// What the pointers point into, and the threads.
    arrays: PhantomData<&'a mut [u8]>,
}

/// A buffer in a layout that is not dense.
#[derive(Debug)]
struct Packed<'a> {
    position: usize,
    memory: AlignedBytes,
    /// Where the elements go after the call, if it writes them.
    dense: Option<&'a mut [u8]>,
}

impl<'a> BoundCall<'a> {
    /// Takes the argument of a buffer.
    fn push(
        &mut self,
        position: usize,
        parameter: &Parameter,
        spec: &BufferSpec,
        arg: Arg<'a>,
    ) -> Result<(), ArgumentProblem> {
        let Parameter { name: _, kind, dtype, spec: _, symbolic: _ } = parameter;
        let written = *kind == ParamKind::Output;
        let found = match &arg {
            Arg::Read(view) => (view.dtype, view.shape),
            Arg::Write(view) => (view.dtype, view.shape),
            Arg::Int(_) => return Err(ArgumentProblem::NotAnArray),
        };
        if found != (*dtype, spec.shape()) {
            let expected = (*dtype, spec.shape().to_vec());
            return Err(ArgumentProblem::Type { expected, found: (found.0, found.1.to_vec()) });
        }
        let bytes = match arg {
            Arg::Read(_) if written => return Err(ArgumentProblem::ReadOnly),
            Arg::Read(view) if spec.is_dense() => view.bytes.as_ptr().cast_mut(),
            Arg::Write(view) if spec.is_dense() => view.bytes.as_mut_ptr(),
            Arg::Read(view) => {
                let packed = spec.pack(view.bytes, *dtype).map_err(ArgumentProblem::Layout)?;
                self.keep(position, &packed, None)
            }
            Arg::Write(view) => {
                let packed = spec.pack(view.bytes, *dtype).map_err(ArgumentProblem::Layout)?;
                self.keep(position, &packed, written.then_some(view.bytes))
            }
            Arg::Int(_) => return Err(ArgumentProblem::NotAnArray),
        };
        self.pointers.push(bytes.cast());
        Ok(())
    }

    /// Memory for a buffer in its layout; after the call its elements go to `dense`, if it is given.
    fn keep(&mut self, position: usize, packed: &[u8], dense: Option<&'a mut [u8]>) -> *mut u8 {
        let memory = AlignedBytes::from(packed);
        let pointer = memory.as_mut_ptr();
        self.packed.push(Packed { position, memory, dense });
        pointer
    }

    fn set_workers(&mut self, workers: usize) {
        self.scratch = AlignedBytes::zeroed(self.context.scratch_stride.saturating_mul(workers));
        self.context.scratch = self.scratch.as_mut_ptr();
        self.context.workers = workers;
    }

    /// The same call with its parallel loops run by the workers of a pool.
    ///
    /// # Safety
    ///
    /// No two iterations of a parallel loop may access the same element, unless both only read it. A
    /// schedule's `parallel` sees to that; `tir.VerifyMemory` finds many functions that do not.
    pub unsafe fn with_workers(mut self, active: &'a Active<'a>) -> Self {
        self.set_workers(active.workers());
        let (parallel_for, pool) = active.as_abi();
        self.context.parallel_for = Some(parallel_for);
        self.context.pool = pool;
        self
    }

    /// Calls the function. Arrays of dense layouts have its results at once, others after
    /// [`finish`](Self::finish).
    pub fn run(&mut self) {
        // SAFETY: the pointers stand at buffers of the types and physical sizes that the function
        // was built for, which nothing else uses while they are borrowed; there are as many, and
        // as many dimensions, as it has. The context's scratch memory has room for its workers.
        unsafe {
            (self.function.entry)(
                &raw const self.context,
                self.pointers.as_ptr(),
                self.dims.as_ptr(),
            );
        }
    }

    /// Writes what the last run left in layouts that are not dense to the arrays.
    ///
    /// # Errors
    ///
    /// None in practice: a layout that could be packed can be unpacked.
    pub fn finish(self) -> Result<(), CallError> {
        let BoundCall { function, packed, .. } = self;
        for Packed { position, memory, dense } in packed {
            let parameter = function.parameters().get(position);
            let (Some(parameter), Some(dense)) = (parameter, dense) else { continue };
            let elements = parameter.spec.unpack(&memory, parameter.dtype).map_err(|error| {
                let (name, problem) = (parameter.name.clone(), ArgumentProblem::Layout(error));
                let kind = CallErrorKind::Argument { position, name, problem };
                CallError { function: function.name().to_owned(), kind }
            })?;
            dense.copy_from_slice(&elements);
        }
        Ok(())
    }
}
