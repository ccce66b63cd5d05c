//! A cast to a wider type for each of its readers.

use cranelift_entity::SecondaryMap;

use super::calls::op_of;
use crate::analysis::UseCounts;
use crate::graph::{ExprId, Function, Rewriter};
use crate::ir::IRModule;
use crate::ops::OpPattern;
use crate::ops::elementwise::CAST;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Repeats casts to wider types for each reader that works element by element.
///
/// A cast that is fused into each of its readers needs no tensor of the wider type in between.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn canonicalize_cast(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let uses = cx.analysis::<UseCounts>(&function);
    let mut rewriter = Rewriter::new(function);
    // Readers that each cast has had; the first of them keeps the cast that is there.
    let mut readers: SecondaryMap<ExprId, u32> = SecondaryMap::new();
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, reader)) = op_of(old.expr(id)) else { continue };
        if op.pattern > OpPattern::Broadcast {
            continue;
        }
        let mut args = rewriter.args(reader);
        let mut changed = false;
        for (arg, source) in args.iter_mut().zip(&reader.args) {
            let Some(source) = *source else { continue };
            if uses[source] < 2 || !widens(&old, source) {
                continue;
            }
            // A reader that has the same cast twice keeps one of them for both.
            readers[source] += 1;
            if readers[source] == 1 {
                continue;
            }
            let Some((cast, call)) = op_of(old.expr(source)) else { continue };
            let operands = rewriter.args(call);
            *arg = Some(rewriter.builder().call_optional(cast, operands, call.attrs.clone())?);
            changed = true;
        }
        if changed {
            cx.count("casts", 1);
            let new = rewriter.builder().call_optional(op, args, reader.attrs.clone())?;
            rewriter.replace(new);
        }
    }
    Ok(rewriter.finish()?)
}

/// Whether an expression is a cast to a type of more bits.
fn widens(function: &Function, id: ExprId) -> bool {
    let Some((op, call)) = op_of(function.expr(id)) else { return false };
    let bits = |id: ExprId| function.ty(id).as_tensor().map(|ty| ty.dtype.bits());
    let source = call.args.first().copied().flatten();
    op.is(&CAST) && source.is_some_and(|source| bits(source) < bits(id))
}
