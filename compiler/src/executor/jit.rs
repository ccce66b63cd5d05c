//! A compiled model whose objects are linked in memory.

use std::ffi::c_void;
use std::ptr;

use niello_runtime::abi::Context;
use niello_runtime::{Active, CpuLevel};

use super::CompiledModel;
use super::aligned::AlignedBytes;
use super::aot::call_symbol;
use crate::codegen::llvm::Jit;
use crate::diagnostics::Problem;

type Run = unsafe extern "C" fn(
    ctx: *const Context,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
);

/// Code, weights and workspace of a model.
#[derive(Debug)]
pub(super) struct JitModel {
    run: Run,
    /// Functions that make one call each.
    calls: Vec<Run>,
    weights: AlignedBytes,
    workspace: AlignedBytes,
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
        let function = |symbol: &str| {
            let address = code.address(&format!("{symbol}_run")).map_err(failed)?;
            // SAFETY: compiled models define such functions with this signature.
            Ok(unsafe { std::mem::transmute::<*const c_void, Run>(address) })
        };
        let run = function(&model.symbol)?;
        let calls = (0..model.calls).map(|number| function(&call_symbol(&model.symbol, number)));
        let calls = calls.collect::<Result<_, Problem>>()?;
        let size = |bytes: u64| {
            usize::try_from(bytes).map_err(|_| failed("the workspace is too large".to_owned()))
        };
        let mut weights = AlignedBytes::zeroed(model.weights.len());
        let written = model.weights.write_to(&mut &mut *weights);
        written.map_err(|error| failed(format!("its weights cannot be packed: {error}")))?;
        let bytes = model.workspace_bytes;
        let workspace = AlignedBytes::try_zeroed(size(bytes)?).ok_or_else(|| {
            failed(format!("there is no memory for a workspace of {bytes} bytes"))
        })?;
        let runs = |level: &CpuLevel| *level <= niello_runtime::cpu_level();
        Ok(JitModel {
            run,
            calls,
            weights,
            workspace,
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

    /// The workspace as the last call left it.
    pub(super) fn workspace(&self) -> &[u8] {
        &self.workspace
    }

    /// Runs the model once, or one of the calls it consists of; workers share its loops if there are
    /// some.
    ///
    /// # Safety
    ///
    /// The pointers are the model's inputs and outputs, and no other call runs meanwhile.
    ///
    /// # Panics
    ///
    /// If the model has no such call.
    pub(super) unsafe fn call(
        &self,
        only: Option<usize>,
        workers: Option<&Active<'_>>,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) {
        let run = only.map_or(self.run, |number| self.calls[number]);
        let workspace = self.workspace.as_mut_ptr();
        let pool = workers.map(Active::as_abi);
        let context = Context {
            weights: self.weights.as_mut_ptr(),
            workspace,
            // Inside the workspace, or at its end if there is no scratch memory.
            scratch: workspace.wrapping_add(self.scratch_offset),
            scratch_stride: self.scratch_stride,
            parallel_for: pool.map(|(run, _)| run),
            pool: pool.map_or(ptr::null_mut(), |(_, pool)| pool),
            workers: workers.map_or(1, Active::workers),
            level: self.best.min(self.limit),
        };
        // SAFETY: weights and workspace are the model's; the caller answers for the rest.
        unsafe { run(&raw const context, inputs, outputs) };
    }
}
