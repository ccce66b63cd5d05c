//! Operators that are others' special cases, in terms of those.

use super::calls::{along_axis, call, call_with, extents, op_of, tensor};
use crate::graph::{ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Dim, IRModule};
use crate::ops::Op;
use crate::ops::elementwise::{ADD, MULTIPLY};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs, CONV1D, CONV2D, CONV3D, ConvAttrs};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs, STRIDED_SLICE, StridedSliceAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Writes `nn.bias_add` as a sum: `bias_add(x, b)` becomes `add(x, expand_dims(b))`.
///
/// A depthwise convolution of one tap becomes a product of each channel with its weight, and a sum.
/// Passes that know sums and products then need not know these.
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
        let args = rewriter.args(call);
        let b = rewriter.builder();
        let expanded = match args[..] {
            [Some(x), Some(bias)] if op.is(&BIAS_ADD) => Some(bias_add(b, x, bias, &call.attrs)?),
            [Some(x), Some(weight), bias] if is_conv(op) && op.is_plain(&call.attrs) => {
                product_of_channels(b, [x, weight], bias, &call.attrs)?
            }
            _ => None,
        };
        let Some(expanded) = expanded else { continue };
        rewriter.replace(expanded);
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

fn is_conv(op: Op) -> bool {
    [&CONV1D, &CONV2D, &CONV3D].into_iter().any(|conv| op.is(conv))
}

/// A depthwise convolution of one tap as a product.
fn product_of_channels(
    b: &mut FunctionBuilder,
    [x, weight]: [ExprId; 2],
    bias: Option<ExprId>,
    attrs: &Attrs,
) -> Result<Option<ExprId>> {
    let attrs: ConvAttrs = attrs.parse()?;
    let Some(shape) = extents(&tensor(b, weight)?) else { return Ok(None) };
    let channels = attrs.groups;
    let is_one_tap = shape[0] == channels && shape[1..].iter().all(|&extent| extent == 1);
    let is_bare = attrs.padding.iter().all(|&padding| padding == 0) && attrs.out_dtype.is_none();
    if channels == 1 || !is_one_tap || !is_bare {
        return Ok(None);
    }
    let mut kept = x;
    if attrs.strides.iter().any(|&stride| stride != 1) {
        let axes = attrs.strides.len();
        let slice = StridedSliceAttrs {
            begin: vec![0; axes],
            end: vec![i64::MAX; axes],
            strides: attrs.strides,
            axes: (2..).take(axes).collect(),
        };
        kept = call_with(b, &STRIDED_SLICE, &[x], &slice)?;
    }
    let newshape = shape[..shape.len() - 1].iter().map(|&extent| Dim::from(extent)).collect();
    let factors = call_with(b, &RESHAPE, &[weight], &ReshapeAttrs { newshape })?;
    let product = call(b, &MULTIPLY, &[kept, factors])?;
    let Some(bias) = bias else { return Ok(Some(product)) };
    let bias = along_axis(b, bias, 1, shape.len())?;
    Ok(Some(call(b, &ADD, &[product, bias])?))
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
