//! What a compilation leaves behind.

use std::path::PathBuf;

use crate::sharing::ForOthers;

/// What a compilation has left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Artifacts {
    /// The model's name: what `include_model!` takes.
    pub name: String,
    /// The Rust bindings.
    pub bindings: PathBuf,
    /// The static archives that the bindings link.
    pub archives: Vec<PathBuf>,
    /// The weights, if they are external.
    pub weights: Option<PathBuf>,
    /// Files beside the model that hold some of its constants.
    pub external_data: Vec<PathBuf>,
    /// The full report.
    pub log: PathBuf,
    /// Whether the bindings are a stub without code.
    pub stub: bool,
    /// Bytes of memory that the kernels work in.
    pub workspace_bytes: u64,
    /// Bytes of weights, without those of another model.
    pub weight_bytes: u64,
    /// Bytes of another model's weights that the model uses.
    pub shared_weight_bytes: u64,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Multiply-accumulate operations of one run, in which each loop makes one step.
    pub macs: u64,
    /// The weights, as later models of the build script can use them.
    pub(crate) for_others: ForOthers,
}
