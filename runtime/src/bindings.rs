//! What the generated bindings of every model share: the call.

use core::ffi::c_void;

use crate::abi::Context;
use crate::parallel::{Parallel, Team};

/// The function that a compiled model exports.
pub type Entry = unsafe extern "C" fn(
    context: *const Context,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
);

/// How a model divides its workspace.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Where the scratch area begins.
    pub scratch_offset: usize,
    /// Bytes of one worker's scratch area.
    pub scratch_stride: usize,
}

/// Who shares the loops of a run.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// The threads.
    pub executor: &'a dyn Parallel,
    /// Most workers that there is scratch memory for.
    pub most: usize,
}

/// The threads that share the runs of a model of `most` workers unless its caller has others: the
/// pool of the process where there is an operating system, and more than one has something to do.
pub fn executor(most: usize) -> &'static dyn Parallel {
    #[cfg(feature = "std")]
    if most > 1 {
        return crate::ThreadPool::global();
    }
    #[cfg(not(feature = "std"))]
    let _ = most;
    &crate::Serial
}

/// Runs a compiled model once, on the calling thread and those that share its loops. `level` is the
/// place of a CPU level among the model's: see [`version`](crate::cpu::version).
///
/// # Safety
///
/// The machine has that level. `entry`, `weights`, `memory`, the size of `workspace` and how many
/// workers may share a run belong to one model; `weights` and `workspace` are aligned to 64. `inputs` and `outputs` have a pointer
/// for each of its tensors, in its order, aligned to the element and valid for the tensor's bytes
/// for reading or writing; no two outputs overlap, and no output overlaps an input.
pub unsafe fn invoke(
    entry: Entry,
    level: usize,
    weights: *const u8,
    memory: Memory,
    workspace: &mut [u8],
    (inputs, outputs): (&[*const c_void], &[*mut c_void]),
    share: Option<Share<'_>>,
) {
    debug_assert!(memory.scratch_offset <= workspace.len());
    let workspace = workspace.as_mut_ptr();
    let mut context = Context {
        weights,
        workspace,
        scratch: workspace.wrapping_add(memory.scratch_offset),
        scratch_stride: memory.scratch_stride,
        parallel_for: None,
        pool: core::ptr::null_mut(),
        workers: 1,
        level,
    };
    // SAFETY: the caller's promise is what the entry asks for.
    let run = |context: &Context| unsafe { entry(context, inputs.as_ptr(), outputs.as_ptr()) };
    let Some(Share { executor, most }) = share else { return run(&context) };
    let workers = executor.workers().min(most);
    if workers <= 1 || !cfg!(target_has_atomic = "ptr") {
        return run(&context);
    }
    let team = Team { executor, workers };
    let (parallel_for, pool) = team.as_abi();
    (context.parallel_for, context.pool, context.workers) = (Some(parallel_for), pool, workers);
    let mut is_done = false;
    executor.during(workers, &mut || {
        if !core::mem::replace(&mut is_done, true) {
            run(&context);
        }
    });
    if !is_done {
        run(&context);
    }
}

/// Calls the compiled code of a model: [`invoke`] with the function `$run` of the archive `$code`.
///
/// For bindings alone, which a compilation writes together with code, weights and sizes: nothing
/// else may use it, although the call is not marked as unsafe. The keyword stands in this crate, as
/// a crate that forbids unsafe code could not include bindings with it.
#[doc(hidden)]
#[macro_export]
macro_rules! __call_model {
    (
        $code:literal, $run:literal, $level:expr, $weights:expr, $memory:expr, $workspace:expr,
        $inputs:expr, $outputs:expr
    ) => {
        $crate::__call_model! {
            $code, $run, $level, $weights, $memory, $workspace, $inputs, $outputs,
            ::core::option::Option::None
        }
    };
    (
        $code:literal, $run:literal, $level:expr, $weights:expr, $memory:expr, $workspace:expr,
        $inputs:expr, $outputs:expr, $share:expr
    ) => {{
        let (level, weights, memory, workspace) = ($level, $weights, $memory, $workspace);
        let (inputs, outputs): (&[_], &[_]) = ($inputs, $outputs);
        let share = $share;
        // The archive's members are taken as they are needed: a test of a crate that links the
        // model as well would otherwise link them twice.
        #[link(name = $code, kind = "static", modifiers = "-whole-archive")]
        unsafe extern "C" {
            #[link_name = $run]
            fn run(
                context: *const $crate::abi::Context,
                inputs: *const *const ::core::ffi::c_void,
                outputs: *const *mut ::core::ffi::c_void,
            );
        }
        // SAFETY: code, weights and sizes were written together with the bindings by one
        // compilation; the machine has the level; references are valid and aligned, and those to
        // outputs are exclusive; weights and workspace are aligned to 64.
        unsafe {
            $crate::__invoke(run, level, weights, memory, workspace, (inputs, outputs), share)
        }
    }};
}

/// The address of the weights in the archive `$symbol`; for bindings alone, as [`__call_model`].
#[doc(hidden)]
#[macro_export]
macro_rules! __embedded_weights {
    ($symbol:literal, $bytes:expr) => {{
        #[link(name = $symbol, kind = "static", modifiers = "-whole-archive")]
        unsafe extern "C" {
            #[link_name = $symbol]
            static WEIGHTS: [u8; $bytes];
        }
        ::core::ptr::addr_of!(WEIGHTS).cast::<u8>()
    }};
}

/// Links the weights in the archive `$symbol`, which the code refers to; for bindings alone, as
/// [`__call_model`].
#[doc(hidden)]
#[macro_export]
macro_rules! __link_weights {
    ($symbol:literal) => {
        #[link(name = $symbol, kind = "static", modifiers = "-whole-archive")]
        unsafe extern "C" {}
    };
}

/// Promises that a struct of output buffers may be all zero bytes; for bindings alone, as
/// [`__call_model`].
#[doc(hidden)]
#[macro_export]
macro_rules! __zeroable {
    ($buffers:ty) => {
        // SAFETY: bindings name a struct of arrays of numbers and of `bool`.
        unsafe impl $crate::__Zeroable for $buffers {}
    };
}

/// Ends a run of a model that was built as a stub.
///
/// # Panics
///
/// Always.
#[cold]
#[track_caller]
pub fn stub(model: &str) -> ! {
    panic!(
        "the model `{model}` was built as a stub, which has no code to run: DOCS_RS or NIELLO_STUB \
         was set when the build script ran"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aligned, Workspace};

    /// `out[i] = in[i] + weights[i] + scratch[0]`, for two elements; counts calls in scratch.
    unsafe extern "C" fn entry(
        context: *const Context,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) {
        // SAFETY: the test hands over a context, one input and one output of two elements.
        unsafe {
            let context = &*context;
            assert_eq!(context.scratch as usize - context.workspace as usize, 64);
            assert_eq!((context.workers, context.scratch_stride), (1, 64));
            assert_eq!(context.level, 2);
            assert!(context.parallel_for.is_none() && context.pool.is_null());
            *context.scratch += 1;
            let (input, output) = ((*inputs).cast::<i32>(), (*outputs).cast::<i32>());
            for index in 0..2 {
                let weight = i32::from(*context.weights.add(index));
                let calls = i32::from(*context.scratch);
                *output.add(index) = *input.add(index) + weight + calls;
            }
        }
    }

    #[test]
    fn the_entry_sees_weights_workspace_and_tensors() {
        let weights = Aligned([10u8, 20]);
        let mut workspace = Workspace::<128>::new();
        let (input, mut output) = ([1i32, 2], [0i32; 2]);
        for calls in 1..=2 {
            let memory = Memory { scratch_offset: 64, scratch_stride: 64 };
            let inputs = [input.as_ptr().cast()];
            let outputs = [output.as_mut_ptr().cast()];
            // SAFETY: this is what `entry` asks for.
            unsafe {
                let (workspace, ()) = workspace.split();
                invoke(entry, 2, weights.0.as_ptr(), memory, workspace, (&inputs, &outputs), None);
            }
            assert_eq!(output, [11 + calls, 22 + calls]);
        }
    }

    /// Adds up how often each of 100 iterations runs, by one loop, and the number of workers.
    unsafe extern "C" fn looping(
        context: *const Context,
        _inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) {
        unsafe extern "C" fn body(counts: *mut c_void, begin: i64, end: i64, worker: usize) {
            assert!(worker < 3);
            for index in begin..end {
                // SAFETY: there are 100 numbers, and no other call has this one.
                unsafe { *counts.cast::<i32>().add(index as usize) += 1 };
            }
        }

        // SAFETY: the test hands over an output of 101 elements.
        unsafe {
            let context = &*context;
            let counts = (*outputs).cast::<i32>();
            match context.parallel_for {
                Some(run) => run(context.pool, body, counts.cast(), 100),
                None => body(counts.cast(), 0, 100, 0),
            }
            *counts.add(100) = context.workers as i32;
        }
    }

    #[test]
    fn a_run_is_shared_by_no_more_workers_than_there_is_memory_for() {
        struct Many;

        impl Parallel for Many {
            fn workers(&self) -> usize {
                8
            }

            fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
                std::thread::scope(|scope| {
                    for _ in 0..times {
                        scope.spawn(task);
                    }
                });
            }

            /// Forgets the run, which has to happen all the same.
            fn during(&self, workers: usize, _inference: &mut dyn FnMut()) {
                assert_eq!(workers, 3);
            }
        }

        let shares: [(Option<&dyn Parallel>, i32); 3] =
            [(None, 1), (Some(&crate::Serial), 1), (Some(&Many), 3)];
        for (executor, workers) in shares {
            let mut output = [0i32; 101];
            let outputs = [output.as_mut_ptr().cast()];
            let memory = Memory { scratch_offset: 0, scratch_stride: 0 };
            let share = executor.map(|executor| Share { executor, most: 3 });
            // SAFETY: this is what `looping` asks for.
            unsafe {
                let weights = core::ptr::null();
                invoke(looping, 0, weights, memory, &mut [], (&[], &outputs), share);
            }
            assert!(output[..100].iter().all(|&count| count == 1), "{output:?}");
            assert_eq!(output[100], workers);
        }
    }

    #[test]
    fn a_stub_says_that_it_is_one() {
        let caught = std::panic::catch_unwind(|| stub("digits")).unwrap_err();
        let message = caught.downcast_ref::<std::string::String>().unwrap();
        assert!(message.starts_with("the model `digits` was built as a stub"), "{message}");
    }
}
