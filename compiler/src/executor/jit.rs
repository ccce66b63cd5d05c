//! A compiled model whose objects are linked in memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr;

use niello_runtime::CpuLevel;
use niello_runtime::abi::Context;

use super::CompiledModel;
use crate::codegen::llvm::Jit;
use crate::diagnostics::Problem;
use crate::ir::BUFFER_ALIGNMENT;

type Run = unsafe extern "C" fn(
    ctx: *const Context,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
);

/// Code, weights and workspace of a model.
#[derive(Debug)]
pub(super) struct JitModel {
    run: Run,
    weights: Aligned,
    workspace: Aligned,
    scratch_offset: usize,
    scratch_stride: usize,
    /// Place of the widest level that the machine has.
    best: usize,
    /// Place of the widest level that may run.
    limit: usize,
    /// Holds the code.
    _code: Jit,
}

impl JitModel {
    /// Links the objects of `model`, which must have been compiled for this machine.
    pub(super) fn new(model: &CompiledModel) -> Result<JitModel, Problem> {
        let failed = |what: String| Problem::new(format!("cannot link the model: {what}"));
        let code = Jit::link(&model.objects).map_err(failed)?;
        let address = code.address(&format!("{}_run", model.symbol)).map_err(failed)?;
        // SAFETY: every compiled model defines the function with this signature.
        let run = unsafe { std::mem::transmute::<*const c_void, Run>(address) };
        let size = |bytes: u64| {
            usize::try_from(bytes).map_err(|_| failed("the workspace is too large".to_owned()))
        };
        let runs = |level: &CpuLevel| *level <= niello_runtime::cpu_level();
        Ok(JitModel {
            run,
            weights: Aligned::new(&model.weights, model.weights.len()),
            workspace: Aligned::new(&[], size(model.workspace_bytes)?),
            scratch_offset: size(model.scratch_offset)?,
            scratch_stride: size(model.scratch_stride)?,
            best: model.levels.iter().rposition(runs).unwrap_or(0),
            limit: usize::MAX,
            _code: code,
        })
    }

    /// See [`LoadedModel::limit_level`](super::LoadedModel::limit_level).
    pub(super) fn limit_level(&mut self, most: usize) -> usize {
        self.limit = most;
        self.best.min(most)
    }

    /// Runs the model once, without a pool.
    ///
    /// # Safety
    ///
    /// The pointers are the model's inputs and outputs, and no other call runs meanwhile.
    pub(super) unsafe fn call(&self, inputs: *const *const c_void, outputs: *const *mut c_void) {
        let workspace = self.workspace.pointer;
        let context = Context {
            weights: self.weights.pointer,
            workspace,
            // Inside the workspace, or at its end if there is no scratch memory.
            scratch: workspace.wrapping_add(self.scratch_offset),
            scratch_stride: self.scratch_stride,
            parallel_for: None,
            pool: ptr::null_mut(),
            workers: 1,
            level: self.best.min(self.limit),
        };
        // SAFETY: weights and workspace are the model's; the caller answers for the rest.
        unsafe { (self.run)(&raw const context, inputs, outputs) };
    }
}

/// Memory that begins at a multiple of 64 and that code writes to.
#[derive(Debug)]
struct Aligned {
    pointer: *mut u8,
    layout: Layout,
}

impl Aligned {
    /// `len` bytes that begin with `contents`; the others are zero.
    fn new(contents: &[u8], len: usize) -> Aligned {
        let layout = Layout::from_size_align(len.max(contents.len()).max(1), BUFFER_ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()));
        // SAFETY: the size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the memory is new and has room for the contents.
        unsafe { ptr::copy_nonoverlapping(contents.as_ptr(), pointer, contents.len()) };
        Aligned { pointer, layout }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout.
        unsafe { dealloc(self.pointer, self.layout) };
    }
}
