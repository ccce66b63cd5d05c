//! Tensor expressions: what an operator computes, element by element.
//!
//! A [`ComputeDag`] has stages in topological order. A stage is a tensor and the expression of its
//! element at an index; the expression reads elements of earlier stages. How the stages become
//! loops is for a strategy to say, not for them.

mod blocks;
mod builder;
mod dag;
mod packed;
pub mod topi;

pub(crate) use blocks::stage_nest;
#[cfg(test)]
mod tests;

pub use blocks::{TeError, lower_to_blocks};
pub use builder::{Body, Builder, Reduction, Tensor, Var, f32, max, min, prod, sum};
pub use dag::{
    Anchor, AxisLimit, CommReducer, ComputeDag, ConcatPart, ExternStatement, JointReduction,
    ReduceAxis, Stage, StageId, StageKind, combined, identity,
};
pub use packed::{held_as, held_constant, is_packed, pack, packed_len, unpack};
