//! Loading a shared library that was made of a model, and calling it.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;

use niello_runtime::abi::{Body, ParallelFor};
use niello_runtime::{Active, ThreadPool};

use super::dynamic::{DynamicLibrary, symbol_of_process};
use super::shared::{SHARED_CALL, SHARED_PARALLEL, SHARED_WORKSPACE};
use super::{CompiledModel, RunTimeSizes, SHARED_ENTRY, SHARED_LIMIT, TensorInfo};
use crate::diagnostics::Problem;
use crate::ir::{Constant, DType, SharedBytes, TensorType};

type Entry = unsafe extern "C" fn(inputs: *const *const c_void, outputs: *const *mut c_void) -> i32;

type SingleCall = unsafe extern "C" fn(
    number: u32,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
) -> i32;

type Workspace = unsafe extern "C" fn(bytes: *mut usize) -> *const u8;

type SetParallel =
    unsafe extern "C" fn(parallel_for: ParallelFor, pool: *mut c_void, workers: usize);

type Limit = unsafe extern "C" fn(most: u32) -> u32;

/// A model in memory, ready to be called.
#[derive(Debug)]
pub struct LoadedModel {
    code: Code,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    sizes: RunTimeSizes,
    /// Calls that can be made one by one.
    calls: usize,
    /// Most threads that can share a run.
    threads: usize,
    /// Those that do; none if it runs on the calling thread alone.
    pool: Option<ThreadPool>,
    /// One call runs at a time, as all have one workspace: a model may go to another thread, and
    /// cannot be called by two.
    _alone: PhantomData<Cell<()>>,
}

#[derive(Debug)]
enum Code {
    /// The functions of a shared library, and what holds them.
    Library {
        entry: Entry,
        call: Option<SingleCall>,
        /// Beside `call`.
        workspace: Option<Workspace>,
        limit: Limit,
        /// In libraries of models that were compiled for several threads.
        set_parallel: Option<SetParallel>,
        _library: DynamicLibrary,
    },
    /// Objects linked in memory.
    #[cfg(feature = "llvm")]
    Jit(super::jit::JitModel),
}

impl Code {
    /// Opens a shared library; says whether it has functions for single calls and takes threads.
    fn open(path: &Path, has_calls: bool, has_threads: bool) -> Result<Code, Problem> {
        let failed = |what: String| {
            Problem::new(format!("{}: cannot load the library: {what}", path.display()))
        };
        let library = DynamicLibrary::open(path).map_err(failed)?;
        let symbol = library.symbol(SHARED_ENTRY).map_err(failed)?;
        // SAFETY: the library's text defines the function with this signature.
        let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(symbol) };
        let symbol = library.symbol(SHARED_LIMIT).map_err(failed)?;
        // SAFETY: the library's text defines the function with this signature.
        let limit = unsafe { std::mem::transmute::<*mut c_void, Limit>(symbol) };
        let (mut call, mut workspace) = (None, None);
        if has_calls {
            let symbol = library.symbol(SHARED_CALL).map_err(failed)?;
            // SAFETY: the library's text defines the function with this signature.
            call = Some(unsafe { std::mem::transmute::<*mut c_void, SingleCall>(symbol) });
            let symbol = library.symbol(SHARED_WORKSPACE).map_err(failed)?;
            // SAFETY: the library's text defines the function with this signature.
            workspace = Some(unsafe { std::mem::transmute::<*mut c_void, Workspace>(symbol) });
        }
        let mut set_parallel = None;
        if has_threads {
            let symbol = library.symbol(SHARED_PARALLEL).map_err(failed)?;
            // SAFETY: the library's text defines the function with this signature.
            set_parallel = Some(unsafe { std::mem::transmute::<*mut c_void, SetParallel>(symbol) });
        }
        Ok(Code::Library { entry, call, workspace, limit, set_parallel, _library: library })
    }
}

/// Marks memory that must not be accessed.
type Poison = unsafe extern "C" fn(address: *const c_void, bytes: usize);

/// The address sanitizer's function for that, if it is in this process.
fn poison() -> Option<Poison> {
    let symbol = symbol_of_process(c"__asan_poison_memory_region")?;
    // SAFETY: the sanitizer's interface has the function with this signature.
    Some(unsafe { std::mem::transmute::<*mut c_void, Poison>(symbol) })
}

/// Bytes of a word whose state the sanitizer has as one.
const SHADOWED_BYTES: usize = 8;

/// Bytes around each buffer that is handed to the model, to see whether it writes there.
const GUARD_BYTES: usize = 64;

/// What guards and outputs hold before a call.
const GUARD: u8 = 0xa5;

impl LoadedModel {
    /// Loads the shared library `path`, which was made of `model` by
    /// [`write_shared_library`](super::write_shared_library) for this machine. It runs at the level
    /// that [`niello_runtime::cpu_level`] tells, which heeds `NIELLO_CPU_LEVEL`.
    ///
    /// # Errors
    ///
    /// The system cannot load it.
    pub fn load(model: &CompiledModel, path: &Path) -> Result<LoadedModel, Problem> {
        let code = Code::open(path, model.calls > 0, model.workers > 1)?;
        Ok(LoadedModel::new(code, model))
    }

    /// Loads a shared library of which nothing is known but these. Its calls can be made one by one,
    /// it chooses its CPU level and has threads of its own.
    ///
    /// # Errors
    ///
    /// The system cannot load it, or it has no calls that can be made one by one.
    pub(super) fn open(
        path: &Path,
        inputs: Vec<TensorInfo>,
        outputs: Vec<TensorInfo>,
        calls: usize,
    ) -> Result<LoadedModel, Problem> {
        Ok(LoadedModel {
            code: Code::open(path, true, false)?,
            inputs,
            outputs,
            sizes: RunTimeSizes::default(),
            calls,
            threads: 1,
            pool: None,
            _alone: PhantomData,
        })
    }

    /// Links the objects of `model`, which was compiled for this machine, in memory: no linker and
    /// no file is needed.
    ///
    /// # Errors
    ///
    /// LLVM's linker refuses an object.
    #[cfg(feature = "llvm")]
    pub fn jit(model: &CompiledModel) -> Result<LoadedModel, Problem> {
        Ok(LoadedModel::new(Code::Jit(super::jit::JitModel::new(model)?), model))
    }

    /// Code that uses the widest CPU level that the model has and this machine can run, and as many
    /// threads as the model was compiled for.
    fn new(code: Code, model: &CompiledModel) -> LoadedModel {
        let best = niello_runtime::cpu_level();
        let most = model.levels.iter().rposition(|level| *level <= best).unwrap_or(0);
        let (inputs, outputs) = (model.inputs.clone(), model.outputs.clone());
        let (sizes, calls, threads) = (model.sizes.clone(), model.calls, model.workers);
        let mut loaded = LoadedModel {
            code,
            inputs,
            outputs,
            sizes,
            calls,
            threads,
            pool: None,
            _alone: PhantomData,
        };
        loaded.limit_level(most);
        loaded.set_threads(threads);
        loaded
    }

    /// Lets the model use no wider CPU level than the one of that place among its levels. Returns
    /// the place of the level that runs from now on: a narrower one if the machine lacks that.
    pub fn limit_level(&mut self, most: usize) -> usize {
        match &mut self.code {
            Code::Library { limit, .. } => {
                let most = u32::try_from(most).unwrap_or(u32::MAX);
                // SAFETY: the function takes any number; no call runs meanwhile, as it has the
                // library to itself.
                unsafe { limit(most) as usize }
            }
            #[cfg(feature = "llvm")]
            Code::Jit(model) => model.limit_level(most),
        }
    }

    /// Has runs shared by so many threads, the calling one among them, and no more than the model was
    /// compiled for.
    pub fn set_threads(&mut self, threads: usize) {
        let threads = threads.clamp(1, self.threads.max(1));
        if self.pool.as_ref().map_or(1, ThreadPool::workers) == threads {
            return;
        }
        self.pool = (threads > 1).then(|| ThreadPool::new(threads));
    }

    /// Runs the model once. Buffers are aligned to their elements and no more, as callers' are.
    ///
    /// # Errors
    ///
    /// Number, types or shapes of the inputs are not the model's; or the model wrote outside of an
    /// output.
    pub fn run(&self, inputs: &[Constant]) -> Result<Vec<Constant>, Problem> {
        self.run_of(inputs, &[])
    }

    /// The same for a run that has sizes which its inputs do not say, as how much of a growing state
    /// it reads: by their names in the model.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); also if a size is not one of the model's, or out of its bounds.
    pub fn run_of(
        &self,
        inputs: &[Constant],
        sizes: &[(&str, u64)],
    ) -> Result<Vec<Constant>, Problem> {
        let mut call = self.bind(inputs, sizes, Placement::Shifted)?;
        call.run()?;
        call.outputs()
    }

    /// A call of the model on copies of `inputs`, ready to be made many times. Buffers begin at a
    /// multiple of 64 bytes, as large arrays of a program usually do.
    ///
    /// # Errors
    ///
    /// Number, types or shapes of the inputs are not the model's.
    pub fn call(&self, inputs: &[Constant]) -> Result<LoadedCall<'_>, Problem> {
        self.bind(inputs, &[], Placement::Aligned)
    }

    fn bind(
        &self,
        inputs: &[Constant],
        given: &[(&str, u64)],
        placement: Placement,
    ) -> Result<LoadedCall<'_>, Problem> {
        if inputs.len() != self.inputs.len() {
            return Err(Problem::new(format!(
                "the model has {} inputs, but {} were given",
                self.inputs.len(),
                inputs.len()
            )));
        }
        let shapes: Vec<Vec<u64>> =
            inputs.iter().map(|input| input.ty().shape.as_consts().unwrap_or_default()).collect();
        let sizes = match self.sizes.is_empty() {
            true => Vec::new(),
            false => self.sizes.of_run(&self.inputs, &shapes, given)?,
        };
        let type_of =
            |info: &TensorInfo| tensor_type(&self.sizes.shape_of(info, &sizes), info.dtype);
        let mut input_buffers = Vec::with_capacity(inputs.len());
        for (info, input) in self.inputs.iter().zip(inputs) {
            let ty = type_of(info);
            let Some(bytes) = input.to_bytes().filter(|_| *input.ty() == ty) else {
                return Err(Problem::new(format!(
                    "input `{}` is {ty}, but {} was given",
                    info.name,
                    input.ty()
                )));
            };
            let mut buffer = Buffer::new(bytes.len(), info, placement)?;
            buffer.bytes_mut().copy_from_slice(&bytes);
            exchange_order(buffer.bytes_mut(), info.dtype);
            input_buffers.push(buffer);
        }
        let mut output_buffers = Vec::with_capacity(self.outputs.len());
        for info in &self.outputs {
            let bytes = type_of(info).bytes().and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = bytes.ok_or_else(|| {
                Problem::new(format!("output `{}` does not fit in memory", info.name))
            })?;
            output_buffers.push(Buffer::new(bytes, info, placement)?);
        }
        Ok(LoadedCall { model: self, inputs: input_buffers, outputs: output_buffers, sizes })
    }
}

/// Makes of elements in the order of bytes that constants have, little-endian, those that this machine's
/// code takes, or the other way round.
pub(super) fn exchange_order(bytes: &mut [u8], dtype: DType) {
    let size = dtype.bytes().unwrap_or(1);
    if cfg!(target_endian = "big") && size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// A call of a loaded model: its inputs and room for its outputs.
#[derive(Debug)]
pub struct LoadedCall<'a> {
    model: &'a LoadedModel,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// The sizes of the run, which the code takes as one more input. It stores those that it computes.
    sizes: Vec<i64>,
}

impl LoadedCall<'_> {
    /// Runs the model once, and nothing else.
    ///
    /// # Errors
    ///
    /// The model says that it failed, or has found other sizes than it is made for.
    pub fn run(&mut self) -> Result<(), Problem> {
        self.run_part(None)?;
        self.model.sizes.check_counts(&self.sizes)
    }

    /// Makes one of the calls of kernels that the model consists of. All of them in order are a
    /// run.
    ///
    /// # Errors
    ///
    /// The model was compiled without functions for single calls, or has no such call.
    pub fn run_call(&mut self, number: usize) -> Result<(), Problem> {
        if number >= self.model.calls {
            return Err(Problem::new(format!(
                "call {number} of {} that can be made alone",
                self.model.calls
            )));
        }
        self.run_part(Some(number))
    }

    /// How many calls can be made alone.
    pub(super) fn calls(&self) -> usize {
        self.model.calls
    }

    /// A part of the workspace as the last call left it; `None` if the workspace has no such part,
    /// or the model was compiled without functions for single calls.
    pub(super) fn workspace(&self, part: Range<usize>) -> Option<Vec<u8>> {
        let workspace = match &self.model.code {
            Code::Library { workspace, .. } => {
                let mut bytes = 0;
                // SAFETY: the library has a workspace of as many bytes as it says for as long as it
                // is open, and no call writes to it before the part is copied.
                unsafe { std::slice::from_raw_parts((*workspace)?(&raw mut bytes), bytes) }
            }
            #[cfg(feature = "llvm")]
            Code::Jit(model) => model.workspace(),
        };
        workspace.get(part).map(<[u8]>::to_vec)
    }

    /// The bytes of the input of that position.
    pub(super) fn input(&self, position: usize) -> &[u8] {
        self.inputs[position].bytes()
    }

    /// The bytes of the output of that position, as the last call left them.
    pub(super) fn output(&self, position: usize) -> &[u8] {
        self.outputs[position].bytes()
    }

    fn run_part(&mut self, only: Option<usize>) -> Result<(), Problem> {
        let inputs = self.inputs.iter().map(|buffer| buffer.bytes().as_ptr().cast());
        let inputs: Vec<*const c_void> =
            inputs.chain([self.sizes.as_mut_ptr().cast_const().cast()]).collect();
        let outputs: Vec<*mut c_void> =
            self.outputs.iter_mut().map(|b| b.bytes_mut().as_mut_ptr().cast()).collect();
        let active = self.model.pool.as_ref().map(|pool| pool.activate(pool.workers()));
        let status = match &self.model.code {
            // SAFETY: the pool's function and the workers stay until the call is over. The pointers stand at buffers of the sizes that the model was compiled for,
            // in its order and aligned to their elements, and nothing else uses them meanwhile.
            Code::Library { entry, call, set_parallel, .. } => unsafe {
                if let Some(set_parallel) = set_parallel {
                    let (run, pool) =
                        active.as_ref().map_or((alone as _, null_mut()), Active::as_abi);
                    set_parallel(run, pool, active.as_ref().map_or(1, Active::workers));
                }
                match (only, call) {
                    (Some(number), Some(call)) => {
                        call(number as u32, inputs.as_ptr(), outputs.as_ptr())
                    }
                    _ => entry(inputs.as_ptr(), outputs.as_ptr()),
                }
            },
            #[cfg(feature = "llvm")]
            Code::Jit(model) => {
                // SAFETY: as above.
                unsafe { model.call(only, active.as_ref(), inputs.as_ptr(), outputs.as_ptr()) };
                0
            }
        };
        if status != 0 {
            return Err(Problem::new(format!("the model ended with status {status}")));
        }
        Ok(())
    }

    /// The outputs of the last run.
    ///
    /// # Errors
    ///
    /// The model wrote outside of an output, or into an input's surroundings.
    pub fn outputs(self) -> Result<Vec<Constant>, Problem> {
        let LoadedCall { model, inputs, outputs, sizes } = self;
        for (infos, buffers) in [(&model.inputs, &inputs), (&model.outputs, &outputs)] {
            if let Some((info, _)) = infos.iter().zip(buffers).find(|(_, b)| !b.is_intact()) {
                return Err(Problem::new(format!("the model wrote outside of `{}`", info.name)));
            }
        }
        let constant = |(info, buffer): (&TensorInfo, Buffer)| {
            let ty = tensor_type(&model.sizes.shape_of(info, &sizes), info.dtype);
            // Of a size that the run computes, there is room for the greatest.
            let len = ty.bytes().and_then(|len| usize::try_from(len).ok());
            let bytes = buffer.bytes();
            let mut bytes = len.and_then(|len| bytes.get(..len)).unwrap_or(bytes).to_vec();
            exchange_order(&mut bytes, info.dtype);
            Constant::new(ty, SharedBytes::new(bytes))
                .map_err(|error| Problem::new(error.to_string()))
        };
        model.outputs.iter().zip(outputs).map(constant).collect()
    }
}

/// Runs a loop on the calling thread: a library would start threads of its own.
unsafe extern "C" fn alone(_pool: *mut c_void, body: Body, argument: *mut c_void, count: i64) {
    // SAFETY: kernels may call the bodies of their loops like this.
    unsafe { body(argument, 0, count, 0) }
}

/// Where a buffer begins.
#[derive(Clone, Copy)]
enum Placement {
    /// At a multiple of 64 bytes.
    Aligned,
    /// One element after such a multiple, which finds code that relies on more.
    Shifted,
}

fn tensor_type(shape: &[u64], dtype: DType) -> TensorType {
    // A shape beyond `i64` would have been refused by the compiler.
    let dims: Vec<i64> =
        shape.iter().map(|&extent| i64::try_from(extent).unwrap_or(i64::MAX)).collect();
    TensorType::from_consts(&dims, dtype)
}

/// Memory between guards. Where the address sanitizer is in the process, it reports each access to
/// a guard by code that it checks, one that reads as well.
#[derive(Debug)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize, info: &TensorInfo, placement: Placement) -> Result<Buffer, Problem> {
        let poison = poison();
        let shift = match placement {
            Placement::Aligned => 0,
            // The sanitizer knows of the first bytes of a word only whether the last ones are
            // guarded.
            Placement::Shifted if poison.is_some() => SHADOWED_BYTES,
            Placement::Shifted => info.dtype.bytes().unwrap_or(1),
        };
        let too_large =
            || Problem::new(format!("no memory for the {len} bytes of `{}`", info.name));
        let guarded = len.checked_add(3 * GUARD_BYTES).ok_or_else(too_large)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(guarded).map_err(|_| too_large())?;
        memory.resize(guarded, GUARD);
        let start = memory.as_ptr().align_offset(GUARD_BYTES) + GUARD_BYTES + shift;
        let buffer = Buffer { memory, start, len };
        if let Some(poison) = poison {
            let (before, rest) = buffer.memory.split_at(start);
            for guard in [before, &rest[len..]] {
                // SAFETY: the memory is the buffer's own, and this program, which the sanitizer
                // does not check, may still read it. Memory that is freed is no longer marked so.
                unsafe { poison(guard.as_ptr().cast(), guard.len()) };
            }
        }
        Ok(buffer)
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn is_intact(&self) -> bool {
        let (before, rest) = self.memory.split_at(self.start);
        before.iter().chain(&rest[self.len..]).all(|&byte| byte == GUARD)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::env;
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::ir::DType;

    /// The library whose function reads one element, and the element, in a process under the
    /// sanitizer.
    const LIBRARY: &str = "NIELLO_TEST_SANITIZED";
    const ELEMENT: &str = "NIELLO_TEST_ELEMENT";

    /// Runs in a process of its own, started by the test below.
    #[test]
    fn one_element_is_read() {
        let Some(library) = env::var_os(LIBRARY) else { return };
        let library = DynamicLibrary::open(Path::new(&library)).unwrap();
        let at = library.symbol("at").unwrap();
        // SAFETY: the library defines the function with this signature.
        let at = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(*const c_void, i64) -> f32>(at)
        };
        let info = TensorInfo::new("x", DType::F32, &[5]);
        let buffer = Buffer::new(20, &info, Placement::Shifted).unwrap();
        let element: i64 = env::var(ELEMENT).unwrap().parse().unwrap();
        at(buffer.bytes().as_ptr().cast(), element);
    }

    #[test]
    fn a_kernel_that_reads_one_element_beside_an_input_is_caught() {
        let asan = Command::new("gcc").arg("-print-file-name=libasan.so").output();
        let asan = asan.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let Ok(asan) = asan.map_err(drop).and_then(|path| fs::canonicalize(path).map_err(drop))
        else {
            eprintln!("skipped: gcc or its address sanitizer is missing");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("at.c"), folder.path().join("at.so"));
        fs::write(&source, "float at(const float *x, long i) { return x[i]; }\n").unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-fsanitize=address", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source);
        assert!(gcc.status().unwrap().success());
        for (element, is_inside) in [(0, true), (4, true), (5, false), (-1, false)] {
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["executor::library::tests::one_element_is_read", "--exact"]);
            child.env("LD_PRELOAD", &asan).env("ASAN_OPTIONS", "detect_leaks=0");
            child.env(LIBRARY, &library).env(ELEMENT, element.to_string());
            let output = child.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), is_inside, "element {element}: {errors}");
            assert_eq!(
                errors.contains("use-after-poison"),
                !is_inside,
                "element {element}: {errors}"
            );
        }
    }
}
