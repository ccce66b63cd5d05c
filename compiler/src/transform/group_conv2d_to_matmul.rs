//! Convolutions of single pixels in groups as matrix products.

use std::collections::BTreeMap;

use super::calls::{call, call_with, extents, op_of};
use crate::graph::{Call, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Constant, DType, Dim, IRModule};
use crate::ops::OpPattern;
use crate::ops::elementwise::ADD;
use crate::ops::nn::{CONV2D, ConvAttrs, MATMUL, MatmulAttrs};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::target::CHANNEL_BLOCK;
use crate::transform::InferType;

/// Fewest output channels of a group: fewer are convolved plane by plane.
const LEAST_CHANNELS: i64 = 8;

/// Makes 1x1 convolutions in groups that are no whole blocks of channels products of matrices.
///
/// Lanes of a convolution are output channels, and those of a group that has no whole blocks are padding
/// in part, or stored one by one; lanes of the product, one for each group, of weights and the pixels of
/// all planes, are pixels. Element-wise operators that follow are computed in the product's shape, so
/// that they can be part of its kernel. Sums are taken in the same order.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn group_conv2d_to_matmul(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    // Products, and what is made of them element by element, before they are reshaped.
    let mut products: BTreeMap<ExprId, ExprId> = BTreeMap::new();
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let (Some((op, call)), Some(ty)) = (op_of(old.expr(id)), old.ty(id).as_tensor()) else {
            continue;
        };
        let product = if let Some(conv) = Conv::of(&old, id)? {
            cx.count("convolutions", 1);
            let image = rewriter.mapped(conv.image);
            let bias = conv.bias.map(|bias| rewriter.mapped(bias));
            conv.product(rewriter.builder(), image, bias)?
        } else if op.definition().pattern == OpPattern::ElemWise || op.is(&ADD) {
            let args: Vec<ExprId> = call.args.iter().flatten().copied().collect();
            let same = |arg: &ExprId| old.ty(*arg).as_tensor().is_some_and(|t| t.shape == ty.shape);
            let Some(first) = args.iter().find_map(|arg| products.get(arg)) else { continue };
            if args.len() != call.args.len() || !args.iter().all(same) {
                continue;
            }
            let shape = tensor_shape(rewriter.builder(), *first);
            let mut operands = Vec::new();
            for arg in &args {
                operands.push(match products.get(arg) {
                    Some(&product) if tensor_shape(rewriter.builder(), product) == shape => product,
                    _ => {
                        let arg = rewriter.mapped(*arg);
                        reshape(rewriter.builder(), arg, shape.clone())?
                    }
                });
            }
            rewriter.builder().call(op, &operands, call.attrs.clone())?
        } else {
            continue;
        };
        let whole = reshape(rewriter.builder(), product, ty.shape.to_vec())?;
        products.insert(id, product);
        rewriter.replace(whole);
    }
    Ok(rewriter.finish()?)
}

fn tensor_shape(b: &FunctionBuilder, id: ExprId) -> Vec<Dim> {
    b.ty(id).as_tensor().map(|ty| ty.shape.to_vec()).unwrap_or_default()
}

fn reshape(b: &mut FunctionBuilder, x: ExprId, newshape: Vec<Dim>) -> Result<ExprId> {
    call_with(b, &RESHAPE, &[x], &ReshapeAttrs { newshape })
}

/// A convolution that is a product.
struct Conv {
    image: ExprId,
    weight: Constant,
    bias: Option<ExprId>,
    batch: i64,
    groups: i64,
    /// Input and output channels of a group.
    channels: [i64; 2],
    pixels: i64,
}

impl Conv {
    fn of(function: &Function, id: ExprId) -> Result<Option<Conv>> {
        let Some((op, Call { args, attrs, .. })) = op_of(function.expr(id)) else {
            return Ok(None);
        };
        if !op.is(&CONV2D) || !op.is_plain(attrs) {
            return Ok(None);
        }
        let ConvAttrs { strides, padding, groups, out_dtype, .. } = attrs.parse()?;
        let (&[Some(image), Some(weight), ref bias @ ..], Some(result)) =
            (&args[..], function.ty(id).as_tensor())
        else {
            return Ok(None);
        };
        let Expr::Constant(weight) = function.expr(weight) else { return Ok(None) };
        let (Some(kernel), Some(result_dims)) = (extents(weight.ty()), extents(result)) else {
            return Ok(None);
        };
        let (&[outputs, inputs, 1, 1], &[batch, _, height, width]) =
            (&kernel[..], &result_dims[..])
        else {
            return Ok(None);
        };
        let is_plain = strides == [1, 1] && padding.iter().all(|&p| p == 0) && out_dtype.is_none();
        let is_f32 = result.dtype == DType::F32 && weight.ty().dtype == DType::F32;
        let channels = [inputs, outputs / groups.max(1)];
        let conv = Conv {
            image,
            weight: weight.clone(),
            bias: bias.first().copied().flatten(),
            batch,
            groups,
            channels,
            pixels: height * width,
        };
        let is_one = is_plain && is_f32 && !weight.is_opaque() && groups > 1;
        Ok((is_one && conv.is_faster()).then_some(conv))
    }

    /// Whether less of the product's vectors is padding than of the convolution's.
    fn is_faster(&self) -> bool {
        let used = |count: i64| {
            count as f64 / ((count + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK * CHANNEL_BLOCK) as f64
        };
        let [inputs, outputs] = self.channels;
        let is_whole = inputs % CHANNEL_BLOCK == 0 && outputs % CHANNEL_BLOCK == 0;
        !is_whole && outputs >= LEAST_CHANNELS && used(self.pixels) > used(outputs)
    }

    /// The product, `(groups, channels, pixels)` for each image.
    fn product(
        &self,
        b: &mut FunctionBuilder,
        image: ExprId,
        bias: Option<ExprId>,
    ) -> Result<ExprId> {
        let [inputs, outputs] = self.channels;
        let images = if self.batch == 1 { vec![] } else { vec![self.batch] };
        let shape = |rest: &[i64]| -> Vec<Dim> {
            images.iter().chain(rest).copied().map(Dim::from).collect()
        };
        let image = reshape(b, image, shape(&[self.groups, inputs, self.pixels]))?;
        let weight = b.constant(self.weight.clone());
        let weight = reshape(b, weight, [self.groups, outputs, inputs].map(Dim::from).to_vec())?;
        let attrs = MatmulAttrs { transpose_a: false, transpose_b: false, out_dtype: None };
        let product = call_with(b, &MATMUL, &[weight, image], &attrs)?;
        let Some(bias) = bias else { return Ok(product) };
        let bias = reshape(b, bias, [self.groups, outputs, 1].map(Dim::from).to_vec())?;
        call(b, &ADD, &[product, bias])
    }
}
