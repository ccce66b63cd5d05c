//! From a scheduled loop function to one that a code generator accepts.

use super::transform::{
    flatten_buffer, lower_intrin, lower_mul_add, remove_no_op, simplify, unroll_loop,
    vectorize_loop,
};
use super::{LowerError, PrimFunc};
use crate::target::Target;

/// Lowers a function for one target: one physical index for each access, explicit vectors no wider
/// than the target's, no unrolled loops left, and only operations that the target has.
pub fn lower(func: PrimFunc, target: &Target) -> Result<PrimFunc, LowerError> {
    let func = flatten_buffer(func)?;
    let func = simplify(func)?;
    let func = vectorize_loop(func, target)?;
    let func = unroll_loop(func)?;
    let func = simplify(func)?;
    let func = lower_mul_add(func, target)?;
    let func = lower_intrin(func, target)?;
    remove_no_op(func)
}
