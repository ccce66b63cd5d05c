//! Expressions that simpler ones stand for.

mod activations;
mod arithmetic;
pub(super) mod moves;
mod one_hot;
mod taps;
#[cfg(test)]
mod tests;

use super::calls::op_of;
use crate::analysis::Uses;
use crate::graph::{Call, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, IRModule, TensorType};
use crate::ops::Op;
use crate::pass::{PassContext, Result, function_pass};
use crate::tir::transform::STRICT_MATH;
use crate::transform::InferType;

/// Replaces chains of calls that move or convert elements by one, and drops what changes nothing.
///
/// Of consecutive transposes, changes of layout, reshapes (`squeeze` and `expand_dims` among them), casts that lose
/// nothing in between, concatenations along one axis, and pads with the same elements, one is left,
/// or none where they undo each other. Where channels of a concatenation become the last axis, parts are
/// transposed one by one. `x + 0`, `x - 0`, `x · 1`, `x / 1`, pads and slices of
/// nothing and the like are `x`, `power(x, 2)` is `x · x`. A product of `one_hot` vectors with a
/// constant matrix, which is finite, is its rows. Unless `tir.strict_math` is on, a reduction alone of a
/// transposed tensor is one of the tensor, if that leaves the other axes in their order, `-0 + 0` may be
/// `-0`, roots are taken for powers of ½ and -½ of what is not negative, `nn.gelu` and `nn.hardswish`
/// stand for themselves written out, and convolutions have no outer taps that read padding alone.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn simplify_expr(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let strict = cx.get(&STRICT_MATH);
    let uses = cx.analysis::<Uses>(&function);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, call)) = op_of(old.expr(id)) else { continue };
        let Some(ty) = old.ty(id).as_tensor() else { continue };
        let is_alone = |call: ExprId| uses.of(call).len() == 1;
        let may_round = !strict && ty.dtype.is_float();
        let activation = may_round.then(|| activations::known(&old, id, &is_alone)).flatten();
        let simpler = match (moves::joined_tensors(&old, &uses, id)?, activation) {
            (_, Some((op, attrs, x))) => {
                let x = rewriter.mapped(x);
                Some(rewriter.builder().call(op, &[x], attrs)?)
            }
            (Some(tensors), None) => {
                let tensors: Vec<ExprId> =
                    tensors.into_iter().map(|tensor| rewriter.mapped(tensor)).collect();
                moves::concatenate(rewriter.builder(), &tensors, &call.attrs)?
            }
            (None, None) => {
                let args = rewriter.args(call);
                let first = call.args.first().copied().flatten();
                let reads_alone = first.is_some_and(is_alone);
                let Call { attrs, .. } = call;
                let site = Site { op, args: &args, attrs, ty, reads_alone, strict };
                match moves::turned(&mut rewriter, &uses, id)? {
                    None => simpler(rewriter.builder(), &site)?,
                    turned => turned,
                }
            }
        };
        let Some(simpler) = simpler else { continue };
        // Extents with symbols may be equal and not be known to be.
        if rewriter.builder().ty(simpler) == old.ty(id) {
            rewriter.replace(simpler);
            cx.count("simplified", 1);
        }
    }
    Ok(rewriter.finish()?)
}

/// A call that may have a simpler form, with its arguments in the new function.
struct Site<'a> {
    op: Op,
    args: &'a [Option<ExprId>],
    attrs: &'a Attrs,
    /// The type of the result.
    ty: &'a TensorType,
    /// Whether nothing else reads the first argument.
    reads_alone: bool,
    /// Whether results must be the same to the bit.
    strict: bool,
}

impl Site<'_> {
    fn arg(&self, index: usize) -> Option<ExprId> {
        self.args.get(index).copied().flatten()
    }
}

fn simpler(b: &mut FunctionBuilder, site: &Site<'_>) -> Result<Option<ExprId>> {
    for rule in [moves::simpler, one_hot::simpler, taps::simpler, arithmetic::simpler] {
        if let Some(found) = rule(b, site)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
