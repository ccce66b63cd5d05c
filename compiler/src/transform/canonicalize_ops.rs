//! Operators that are others' special cases, in terms of those.

use super::calls::{along_axis, call, op_of, tensor};
use crate::graph::{ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::ops::elementwise::ADD;
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Writes `nn.bias_add` as a sum: `bias_add(x, b)` becomes `add(x, expand_dims(b))`.
///
/// Passes that know sums then need not know it.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn canonicalize_ops(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, call)) = op_of(old.expr(id)) else { continue };
        if !op.is(&BIAS_ADD) {
            continue;
        }
        let &[Some(x), Some(bias)] = rewriter.args(call).as_slice() else { continue };
        let sum = bias_add(rewriter.builder(), x, bias, &call.attrs)?;
        rewriter.replace(sum);
        cx.count("expanded", 1);
    }
    Ok(rewriter.finish()?)
}

/// `nn.bias_add` as a sum.
pub(super) fn bias_add(
    b: &mut FunctionBuilder,
    x: ExprId,
    bias: ExprId,
    attrs: &Attrs,
) -> Result<ExprId> {
    let BiasAddAttrs { axis } = attrs.parse()?;
    let shape = tensor(b, x)?.shape;
    let axis = shape.axis(axis).ok_or("the axis of bias_add is out of range")?;
    let bias = along_axis(b, bias, axis, shape.rank())?;
    call(b, &ADD, &[x, bias])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::support::{Net, after, show};

    #[test]
    fn a_bias_along_the_last_axis_needs_no_other_axes() {
        for (axis, expected) in [(-1, "add(x, b)"), (0, "add(x, expand_dims(b))"), (1, "add(x, b)")]
        {
            let mut net = Net::default();
            let (x, bias) = (net.input("x", &[3, 3]), net.input("b", &[3]));
            let y = net.op_with("nn.bias_add", &[x, bias], &BiasAddAttrs { axis });
            let function = after(&CanonicalizeOps, net.finish(y));
            assert_eq!(show(&function), expected);
            assert!(after(&CanonicalizeOps, function.clone()).same(&function));
        }
    }
}
