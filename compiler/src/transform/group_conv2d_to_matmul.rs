//! Convolutions of single pixels in groups as matrix products.

use std::collections::BTreeMap;

use super::calls::{call, call_with, extents, op_of};
use crate::graph::{Call, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Constant, DType, Dim, IRModule, Shape};
use crate::ops::elementwise::{ADD, DIVIDE, MAXIMUM, MINIMUM, MULTIPLY, SUBTRACT};
use crate::ops::nn::{CONV2D, ConvAttrs, MATMUL, MatmulAttrs};
use crate::ops::qnn::{DEQUANTIZE, QUANTIZE, REQUANTIZE};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs};
use crate::ops::{Op, OpDef, OpPattern};
use crate::pass::{PassContext, Result, function_pass};
use crate::target::CHANNEL_BLOCK;
use crate::transform::InferType;

/// Fewest output channels of a group: fewer are convolved plane by plane.
const LEAST_CHANNELS: i64 = 8;

/// Operators of two tensors of one shape, or of a tensor and a number.
const BINARY_OPS: [&OpDef; 6] = [&ADD, &SUBTRACT, &MULTIPLY, &DIVIDE, &MAXIMUM, &MINIMUM];

/// Operators whose scales go along an axis.
const QNN_OPS: [&OpDef; 3] = [&QUANTIZE, &DEQUANTIZE, &REQUANTIZE];

/// Makes 1x1 convolutions in groups that are no whole blocks of channels products of matrices.
///
/// Lanes of a convolution are output channels, and those of a group that has no whole blocks are padding
/// in part, or stored one by one; lanes of the product, one for each group, of weights and the pixels of
/// all planes, are pixels. Element-wise operators that follow are computed in the product's shape, so
/// that they can be part of its kernel, and so are sums of bytes quantised. Sums are taken in the same
/// order.
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
        } else if let Some(made) = of_product(&mut rewriter, &products, op, call, &ty.shape)? {
            made
        } else {
            continue;
        };
        let whole = reshape(rewriter.builder(), product, ty.shape.to_vec())?;
        products.insert(id, product);
        rewriter.replace(whole);
    }
    Ok(rewriter.finish()?)
}

/// What an operator makes of products, element by element, in their shape.
fn of_product(
    rewriter: &mut Rewriter,
    products: &BTreeMap<ExprId, ExprId>,
    op: Op,
    call: &Call,
    whole: &Shape,
) -> Result<Option<ExprId>> {
    let args: Vec<ExprId> = call.args.iter().flatten().copied().collect();
    // A product that is repeated along an axis has other elements at its places.
    let is_whole =
        |arg: &ExprId| rewriter.old().ty(*arg).as_tensor().is_some_and(|ty| ty.shape == *whole);
    let mut wholes = args.iter().filter(|arg| is_whole(arg));
    let Some(first) = wholes.find_map(|arg| products.get(arg)) else { return Ok(None) };
    let scaled =
        QNN_OPS.iter().any(|def| op.is(def)) && call.attrs.int("block_size").unwrap_or(0) == 0;
    let takes = scaled
        || op.definition().pattern == OpPattern::ElemWise
        || BINARY_OPS.iter().any(|def| op.is(def));
    if !takes || args.len() != call.args.len() {
        return Ok(None);
    }
    let shape = tensor_shape(rewriter.builder(), *first);
    // Image, group, channel and pixel; sums have scales of all channels.
    let [.., groups, channels, _] = shape.as_slice() else { return Ok(None) };
    let by_group = vec![groups.clone(), channels.clone()];
    let mut attrs = call.attrs.clone();
    let mut operands = Vec::new();
    for (position, arg) in args.iter().enumerate() {
        let of_arg = rewriter.old().ty(*arg).as_tensor().map(|ty| ty.shape.clone());
        let Some(of_arg) = of_arg else { return Ok(None) };
        let new = rewriter.mapped(*arg);
        let b = rewriter.builder();
        let is_one = of_arg.iter().all(|dim| dim.as_const() == Some(1));
        operands.push(match products.get(arg) {
            Some(&product) if of_arg == *whole && tensor_shape(b, product) == shape => product,
            _ if of_arg == *whole => reshape(b, new, shape.clone())?,
            _ if is_one && of_arg.rank() == 0 => new,
            _ if is_one => reshape(b, new, Vec::new())?,
            _ if op.is(&REQUANTIZE)
                && position > 0
                && attrs.int("axis") == Some(1)
                && of_arg.rank() == 1 =>
            {
                reshape(b, new, by_group.clone())?
            }
            _ => return Ok(None),
        });
    }
    if scaled {
        attrs = attrs.with("axis", shape.len() as i64 - 3);
    }
    Ok(Some(rewriter.builder().call(op, &operands, attrs)?))
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
    /// The type of sums of bytes.
    out_dtype: Option<DType>,
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
        let is_plain = strides == [1, 1] && padding.iter().all(|&p| p == 0);
        let Some(of_image) = function.ty(image).as_tensor() else { return Ok(None) };
        let is_known = match (of_image.dtype, weight.ty().dtype, result.dtype) {
            (DType::F32, DType::F32, DType::F32) => out_dtype.is_none(),
            (DType::U8, DType::I8, DType::I32) => true,
            _ => false,
        };
        let channels = [inputs, outputs / groups.max(1)];
        let conv = Conv {
            image,
            weight: weight.clone(),
            bias: bias.first().copied().flatten(),
            batch,
            groups,
            channels,
            pixels: height * width,
            out_dtype,
        };
        let is_one = is_plain && is_known && !weight.is_opaque() && groups > 1;
        Ok((is_one && conv.is_faster()).then_some(conv))
    }

    /// Whether less of the product's vectors is padding than of the convolution's.
    fn is_faster(&self) -> bool {
        let used = |count: i64| {
            count as f64 / ((count + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK * CHANNEL_BLOCK) as f64
        };
        let [inputs, outputs] = self.channels;
        let is_whole = inputs % CHANNEL_BLOCK == 0 && outputs % CHANNEL_BLOCK == 0;
        let is_better = match self.out_dtype {
            // Bytes of planes would be multiplied one by one, those of matrices are by fours.
            Some(_) => self.pixels >= CHANNEL_BLOCK,
            None => used(self.pixels) > used(outputs),
        };
        !is_whole && outputs >= LEAST_CHANNELS && is_better
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
        let out_dtype = self.out_dtype;
        let attrs = MatmulAttrs { transpose_a: false, transpose_b: false, out_dtype };
        let product = call_with(b, &MATMUL, &[weight, image], &attrs)?;
        let Some(bias) = bias else { return Ok(product) };
        let bias = reshape(b, bias, [self.groups, outputs, 1].map(Dim::from).to_vec())?;
        call(b, &ADD, &[product, bias])
    }
}
