//! Convolutions along three axes, along two.

use super::calls::{call_with, tensor};
use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, Dim, IRModule};
use crate::ops::Op;
use crate::ops::nn::{CONV2D, CONV3D, ConvAttrs, PAD, PadAttrs, PadMode};
use crate::ops::tensor::{
    CONCATENATE, ConcatenateAttrs, RESHAPE, ReshapeAttrs, STRIDED_SLICE, StridedSliceAttrs,
    TRANSPOSE, TransposeAttrs,
};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Most taps along the depth: the images hold the volume as many times.
const MOST_TAPS: i64 = 16;

/// Makes `nn.conv3d` an `nn.conv2d`, which strategies know a schedule for.
///
/// Each place along the depth of the result becomes an image of its own, whose channels are those that
/// all taps along the depth read: for each channel of the volume, one after the other. A kernel that
/// sees one row at a time takes volumes for images as high as they are deep and high.
#[function_pass(opt_level = 1, required = [InferType])]
pub fn conv3d_to_conv2d(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = old.expr(id) else {
            continue;
        };
        let [Some(x), Some(weight), rest @ ..] = args.as_slice() else { continue };
        if !op.is(&CONV3D) || !op.is_plain(attrs) {
            continue;
        }
        let attrs: ConvAttrs = attrs.parse()?;
        let (x, weight) = (rewriter.mapped(*x), rewriter.mapped(*weight));
        let bias = rest.first().copied().flatten().map(|bias| rewriter.mapped(bias));
        let Some(volume) = Volume::of(rewriter.builder(), x, weight, attrs)? else { continue };
        cx.count("convolutions", 1);
        let b = rewriter.builder();
        let result = match volume.has_rows_alone() {
            true => volume.convolution_of_rows(b, x, weight, bias)?,
            false => volume.convolution(b, x, weight, bias)?,
        };
        rewriter.replace(result);
    }
    Ok(rewriter.finish()?)
}

/// A convolution of volumes.
struct Volume {
    /// Extents of the volumes: (N, C, D, H, W).
    extents: [i64; 5],
    /// Extents of the weights: (O, C, D, H, W).
    kernel: [i64; 5],
    /// Extent of the result along the depth.
    depth: i64,
    attrs: ConvAttrs,
}

impl Volume {
    /// `None` for groups of one channel, for extents that are not known, and for more taps than
    /// [`MOST_TAPS`].
    fn of(
        b: &FunctionBuilder,
        x: ExprId,
        weight: ExprId,
        attrs: ConvAttrs,
    ) -> Result<Option<Volume>> {
        let extents = |value| -> Result<Option<[i64; 5]>> {
            let dims: Option<Vec<i64>> =
                tensor(b, value)?.shape.iter().map(Dim::as_const).collect();
            Ok(dims.and_then(|dims| dims.try_into().ok()))
        };
        let (Some(extents), Some(kernel)) = (extents(x)?, extents(weight)?) else {
            return Ok(None);
        };
        let padded = extents[2] + attrs.padding[0] + attrs.padding[3];
        let covered = attrs.dilation[0] * (kernel[2] - 1) + 1;
        let depth = (padded - covered) / attrs.strides[0] + 1;
        let volume = Volume { extents, kernel, depth, attrs };
        let is_depthwise = kernel[1] == 1 && volume.attrs.groups > 1;
        Ok((!is_depthwise && kernel[2] <= MOST_TAPS && padded >= covered).then_some(volume))
    }

    /// Whether a window has one row, and each row of the volumes is in one.
    fn has_rows_alone(&self) -> bool {
        let ConvAttrs { strides, padding, .. } = &self.attrs;
        (0..2).all(|axis| {
            self.kernel[axis + 2] == 1
                && strides[axis] == 1
                && padding[axis] == 0
                && padding[axis + 3] == 0
        })
    }

    fn convolution_of_rows(
        &self,
        b: &mut FunctionBuilder,
        x: ExprId,
        weight: ExprId,
        bias: Option<ExprId>,
    ) -> Result<ExprId> {
        let [batch, channels, depth, height, width] = self.extents;
        let [outputs, of_group, _, _, taps] = self.kernel;
        let images = reshape(b, x, &[batch, channels, depth * height, width])?;
        let weight = reshape(b, weight, &[outputs, of_group, 1, taps])?;
        let images = self.of_images(b, images, weight, bias)?;
        let width = tensor(b, images)?.shape[3].as_const().unwrap_or(0);
        reshape(b, images, &[batch, outputs, depth, height, width])
    }

    /// The convolution of images, along the last two axes.
    fn of_images(
        &self,
        b: &mut FunctionBuilder,
        images: ExprId,
        weight: ExprId,
        bias: Option<ExprId>,
    ) -> Result<ExprId> {
        let attrs = Attrs::from_struct(&ConvAttrs {
            strides: self.attrs.strides[1..].to_vec(),
            padding: [&self.attrs.padding[1..3], &self.attrs.padding[4..]].concat(),
            dilation: self.attrs.dilation[1..].to_vec(),
            ..self.attrs.clone()
        })?;
        let args = vec![Some(images), Some(weight), bias];
        Ok(b.call_optional(Op::new(&CONV2D), args, attrs)?)
    }

    fn convolution(
        &self,
        b: &mut FunctionBuilder,
        x: ExprId,
        weight: ExprId,
        bias: Option<ExprId>,
    ) -> Result<ExprId> {
        let [batch, channels, _, height, width] = self.extents;
        let [outputs, of_group, taps, kernel_height, kernel_width] = self.kernel;
        let windows = self.windows(b, x)?;
        let images = transpose(b, windows, &[0, 3, 1, 2, 4, 5])?;
        let images = reshape(b, images, &[batch * self.depth, channels * taps, height, width])?;
        let weight = reshape(b, weight, &[outputs, of_group * taps, kernel_height, kernel_width])?;
        let images = self.of_images(b, images, weight, bias)?;
        let shape = tensor(b, images)?.shape;
        let [height, width] = [2, 3].map(|axis: usize| shape[axis].as_const().unwrap_or(0));
        let volumes = reshape(b, images, &[batch, self.depth, outputs, height, width])?;
        transpose(b, volumes, &[0, 2, 1, 3, 4])
    }

    /// What the taps along the depth read for each place of the result: (N, C, taps, depth, H, W).
    fn windows(&self, b: &mut FunctionBuilder, x: ExprId) -> Result<ExprId> {
        let (before, after) = (self.attrs.padding[0], self.attrs.padding[3]);
        let x = if (before, after) == (0, 0) { x } else { self.padded(b, x, before, after)? };
        let [batch, channels, _, height, width] = self.extents;
        let stride = self.attrs.strides[0];
        let mut windows = Vec::new();
        for tap in 0..self.kernel[2] {
            let begin = tap * self.attrs.dilation[0];
            let slice = StridedSliceAttrs {
                begin: vec![begin],
                end: vec![begin + (self.depth - 1) * stride + 1],
                strides: vec![stride],
                axes: vec![2],
            };
            let window = call_with(b, &STRIDED_SLICE, &[x], &slice)?;
            windows.push(reshape(b, window, &[batch, channels, 1, self.depth, height, width])?);
        }
        match windows[..] {
            [window] => Ok(window),
            _ => call_with(b, &CONCATENATE, &windows, &ConcatenateAttrs { axis: 2 }),
        }
    }

    fn padded(
        &self,
        b: &mut FunctionBuilder,
        x: ExprId,
        before: i64,
        after: i64,
    ) -> Result<ExprId> {
        let mut pad_width = vec![[0, 0]; 5];
        pad_width[2] = [before, after];
        let attrs = Attrs::from_struct(&PadAttrs { pad_width, mode: PadMode::Constant })?;
        let fill = match self.attrs.pad_value {
            0 => None,
            value => Constant::scalar(value as f64, tensor(b, x)?.dtype),
        };
        let fill = fill.map(|fill| b.constant(fill));
        Ok(b.call_optional(Op::new(&PAD), vec![Some(x), fill], attrs)?)
    }
}

fn transpose(b: &mut FunctionBuilder, value: ExprId, axes: &[i64]) -> Result<ExprId> {
    call_with(b, &TRANSPOSE, &[value], &TransposeAttrs { axes: axes.to_vec() })
}

fn reshape(b: &mut FunctionBuilder, value: ExprId, extents: &[i64]) -> Result<ExprId> {
    let newshape = extents.iter().map(|&extent| Dim::from(extent)).collect();
    call_with(b, &RESHAPE, &[value], &ReshapeAttrs { newshape })
}
