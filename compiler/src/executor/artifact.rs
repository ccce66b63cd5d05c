//! What a compilation leaves behind, independent of how it is linked or called.

use std::path::PathBuf;

use niello_runtime::CpuLevel;

use super::{KernelReport, RunTimeAxis, RunTimeSizes, Weights};
use crate::executor::aot::{StoredConstants, UsedWeights};
use crate::ir::DType;

/// One input or output of a compiled model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// The name in the model, unchanged: any string.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The extents, outermost first; dense row-major. Along [`run_time`](Self::run_time) the
    /// greatest.
    pub shape: Vec<u64>,
    /// The axes whose extents depend on sizes of the run.
    pub run_time: Vec<RunTimeAxis>,
    /// For each dimension the symbol it had before it was pinned, if any.
    pub dim_names: Vec<Option<String>>,
}

impl TensorInfo {
    /// A tensor of known extents that have no names.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[u64]) -> TensorInfo {
        let dim_names = vec![None; shape.len()];
        let run_time = Vec::new();
        TensorInfo { name: name.into(), dtype, shape: shape.to_vec(), run_time, dim_names }
    }

    /// What an axis has to do with the sizes of a run, if anything.
    pub fn open(&self, axis: usize) -> Option<&RunTimeAxis> {
        self.run_time.iter().find(|open| open.axis == axis)
    }

    /// Type and shape in the words of the model: `float32 [batch, 3, 8, 8]`.
    pub fn ty_text(&self) -> String {
        let extent = |(axis, extent): (usize, &u64)| match self.open(axis) {
            Some(open) => open.extent.to_string(),
            None => extent.to_string(),
        };
        let extents: Vec<String> = self.shape.iter().enumerate().map(extent).collect();
        format!("{} [{}]", self.dtype, extents.join(", "))
    }
}

/// One relocatable object file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectFile {
    /// Name of the archive member; does not depend on folders.
    pub name: String,
    /// The file's contents.
    pub bytes: Vec<u8>,
}

/// A model compiled to native code.
///
/// The code exports one function, with hidden visibility:
///
/// ```c
/// void <symbol>_run(const struct niello_context *context, const void *const *inputs, void *const *outputs);
/// ```
///
/// `inputs` and `outputs` are in the order of [`inputs`](Self::inputs) and
/// [`outputs`](Self::outputs); each points at a dense row-major tensor aligned to its element. An
/// empty tensor's pointer is never read. If there are [`sizes`](Self::sizes), one more input comes
/// last: an array of them as `int64_t`, each within its bounds, which the code does not check; of
/// each tensor as much is accessed as they say. `niello_context` is `niello_runtime::abi::Context`; its
/// `level` is a place in [`levels`](Self::levels).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledModel {
    /// The model's name: what `include_model!` takes.
    pub name: String,
    /// Prefix of every symbol: `niello_<package>_<version>_<model>_<hash>`.
    pub symbol: String,
    /// Inputs in the model's order.
    pub inputs: Vec<TensorInfo>,
    /// Outputs in the model's order.
    pub outputs: Vec<TensorInfo>,
    /// What the workspace keeps from run to run, under the names of the inputs that they were: zeros
    /// as long as the workspace is.
    pub states: Vec<TensorInfo>,
    /// What each run has a size of its own for.
    pub sizes: RunTimeSizes,
    /// Bytes of the workspace, aligned to 64: arena, then scratch.
    pub workspace_bytes: u64,
    /// Offset in the workspace of a scratch area that all kernels share; 0 where the code hands
    /// each call its own part of the workspace.
    pub scratch_offset: u64,
    /// Bytes of one worker in the shared scratch area, a multiple of 64; 0 if there is none.
    pub scratch_stride: u64,
    /// How many threads the model was compiled for; at least 1.
    pub threads: usize,
    /// Most threads that share a run, and that the workspace has memory for: 1 if there is no loop
    /// whose work is worth sharing.
    pub workers: usize,
    /// The constants as the kernels read them, to be placed at an address aligned to 64.
    pub weights: Weights,
    /// Where each constant is in the weights, for models that share them.
    pub constants: StoredConstants,
    /// The weights of another model that the code reads as well.
    pub other_weights: Option<UsedWeights>,
    /// Multiply-accumulate operations of one inference, in which each loop makes one step.
    pub macs: u64,
    /// What became of each kernel; empty if niello did not make the code.
    pub kernels: KernelReport,
    /// The CPU levels that there is code for, narrowest first: never empty. The first is what every
    /// machine has that the model was compiled for.
    pub levels: Vec<CpuLevel>,
    /// BLAKE3 digest of the model as imported.
    pub digest: [u8; 32],
    /// Name and value of the model's own metadata (producer, domain, description …), in order.
    pub metadata: Vec<(String, String)>,
    /// Files beside the model that hold some of its constants. Whoever keeps the result must make
    /// it anew when one of them changes.
    pub external_data: Vec<PathBuf>,
    /// The code: kernels and the function that calls them in order.
    pub objects: Vec<ObjectFile>,
    /// Functions of other code generators that the objects need: whoever links them provides these.
    pub external_symbols: Vec<String>,
    /// How many functions `<symbol>_call_<n>_run` the code has beside `<symbol>_run`. Each makes
    /// one of the calls: all of them in order do what that function does. None unless a profile was
    /// asked for.
    pub calls: usize,
}
