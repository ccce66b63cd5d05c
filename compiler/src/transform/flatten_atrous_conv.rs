//! Convolutions of the places that are the same modulo a block.

use super::calls::{call_of, op_of};
use crate::graph::{Call, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::ops::Op;
use crate::ops::nn::{
    BATCH_TO_SPACE_ND, BatchToSpaceAttrs, CONV2D, ConvAttrs, SPACE_TO_BATCH_ND, SpaceToBatchAttrs,
};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Makes `batch_to_space_nd(conv2d(space_to_batch_nd(x), w))` one convolution with dilation.
///
/// TensorFlow writes dilated convolutions so. The blocks must be the same, the convolution one of
/// every place without padding or dilation of its own, and no more may be cropped than is padded.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn flatten_atrous_conv(
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
        if !op.is(&BATCH_TO_SPACE_ND) {
            continue;
        }
        let args = rewriter.args(call);
        let b = rewriter.builder();
        let Some((args, attrs)) = dilated(b, &args, &call.attrs)? else { continue };
        match b.call_optional(Op::new(&CONV2D), args, attrs) {
            Ok(new) if b.ty(new) == old.ty(id) => {
                rewriter.replace(new);
                cx.count("convolutions", 1);
            }
            _ => cx.missed(id, "the convolution with dilation has another result"),
        }
    }
    Ok(rewriter.finish()?)
}

/// Arguments and attributes of the convolution.
fn dilated(
    b: &FunctionBuilder,
    args: &[Option<ExprId>],
    attrs: &Attrs,
) -> Result<Option<(Vec<Option<ExprId>>, Attrs)>> {
    let BatchToSpaceAttrs { block_shape, crops } = attrs.parse()?;
    let &[Some(images)] = args else { return Ok(None) };
    let Some(Call { args, attrs, .. }) = call_of(b, images, &CONV2D) else { return Ok(None) };
    let Some(&Some(phases)) = args.first() else { return Ok(None) };
    let Some(Call { args: space, attrs: blocks, .. }) = call_of(b, phases, &SPACE_TO_BATCH_ND)
    else {
        return Ok(None);
    };
    let SpaceToBatchAttrs { block_shape: before, paddings } = blocks.parse()?;
    // The blocks' axes are those after the first.
    let is_last =
        matches!(attrs.get("data_layout"), Some(crate::ir::AttrValue::Str(l)) if **l == *"NHWC");
    let axes = match (CONV2D.is_plain(attrs), block_shape.as_slice()) {
        (true, [1, _, _]) if crops[0] == [0, 0] && paddings[0] == [0, 0] => 1..3,
        (false, [_, _]) if is_last => 0..2,
        _ => return Ok(None),
    };
    let plain = CONV2D.layouts.iter().fold(attrs.clone(), |attrs, name| attrs.without(name));
    let conv: ConvAttrs = plain.parse()?;
    let alone = conv.strides == [1, 1]
        && conv.dilation == [1, 1]
        && conv.padding.iter().all(|&padding| padding == 0)
        && conv.pad_value == 0;
    if before != block_shape || !alone {
        return Ok(None);
    }
    let side = |side: usize| -> Vec<i64> {
        axes.clone().map(|axis| paddings[axis][side] - crops[axis][side]).collect()
    };
    let padding = [side(0), side(1)].concat();
    if padding.iter().any(|&padding| padding < 0) {
        return Ok(None);
    }
    let dilation = block_shape[axes].to_vec();
    let attrs = attrs.clone().with("dilation", dilation).with("padding", padding);
    let mut args = args.clone();
    args[0] = space.first().copied().flatten();
    Ok(Some((args, attrs)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interp::{Tensor, evaluate};
    use crate::ir::DType;
    use crate::transform::tests::support::{Net, after, count, tensors};

    #[test]
    fn the_convolution_with_dilation_computes_the_same() {
        for crops in [[0, 0], [1, 0], [0, 2], [2, 1]] {
            let mut net = Net::default();
            let x = net.input("x", &[2, 3, 5, 4]);
            let w = net.tensor(&[2, 3, 2, 2], -1.0);
            let block_shape = vec![1, 3, 2];
            let paddings = vec![[0, 0], [2, 2], [2, 2]];
            let attrs = SpaceToBatchAttrs { block_shape: block_shape.clone(), paddings };
            let y = net.op_with("nn.space_to_batch_nd", &[x], &attrs);
            let y = net.op_with("nn.conv2d", &[y, w], &ConvAttrs::of_rank(2));
            let attrs = BatchToSpaceAttrs { block_shape, crops: vec![[0, 0], crops, [1, 1]] };
            let y = net.op_with("nn.batch_to_space_nd", &[y], &attrs);
            let before = net.finish(y);
            let function = after(&FlattenAtrousConv, before.clone());
            assert_eq!(count(&function, "nn.batch_to_space_nd"), 0);
            let values = (0..120).map(|i| (f64::from(i) * 0.37).sin()).collect();
            let x = Tensor::from_floats(DType::F32, &[2, 3, 5, 4], values).unwrap();
            let [expected, found] = [before, function].map(|function| {
                let module = IRModule::from_function(function);
                evaluate(&module, "main", &[x.clone().into()]).unwrap()
            });
            assert_eq!(tensors(&expected), tensors(&found), "{crops:?}");
        }
    }
}
