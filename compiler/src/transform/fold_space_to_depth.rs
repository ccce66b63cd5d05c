//! Blocks of pixels that lie side by side as channels, folded into the convolution of them.

use super::calls::{call_of, extents, op_of};
use crate::graph::{Call, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, IRModule, SharedBytes, TensorType};
use crate::ops::nn::{CONV2D, ConvAttrs};
use crate::ops::tensor::{CONCATENATE, ConcatenateAttrs, STRIDED_SLICE, StridedSliceAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::strategy::MIN_BLOCKED_CHANNELS;
use crate::transform::InferType;

/// Most lines or columns of a block.
const MOST_LINES: i64 = 16;

/// Makes the convolution of an image whose blocks of pixels were made channels one of the image.
///
/// Detectors of the YOLO family begin so (Focus, a reorganisation): of an image of three channels, the
/// pixels of even and odd lines and columns are four images, whose `concatenate` has twelve channels.
/// `conv(concatenate(x[::2, ::2], x[1::2, ::2], …), w, strides=[1, 1])` becomes `conv(x, w, strides=[2, 2])`,
/// with twice as many taps each way, which are as many products. The weights must be constant, all pixels
/// of a block there, and channels few, so that a convolution reads them plane by plane in any case.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn fold_space_to_depth(
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
        if !op.is(&CONV2D) || !op.is_plain(&call.attrs) {
            continue;
        }
        let mut args = rewriter.args(call);
        let &[Some(image), Some(weight), ..] = args.as_slice() else { continue };
        let b = rewriter.builder();
        let mut conv: ConvAttrs = call.attrs.parse()?;
        if conv.groups != 1 || conv.dilation != [1, 1] {
            continue;
        }
        let Some(blocks) = Blocks::of(b, image)? else { continue };
        let Some(weight) = b.expr(weight).as_constant().and_then(|w| blocks.weight(w)) else {
            continue;
        };
        args[0] = Some(blocks.image);
        args[1] = Some(b.constant(weight));
        for (axis, size) in blocks.size.into_iter().enumerate() {
            conv.strides[axis] = conv.strides[axis].saturating_mul(size);
            for side in [axis, axis + 2] {
                conv.padding[side] = conv.padding[side].saturating_mul(size);
            }
        }
        match b.call_optional(op, args, Attrs::from_struct(&conv)?) {
            Ok(new) if b.ty(new) == old.ty(id) => {
                rewriter.replace(new);
                cx.count("convolutions", 1);
            }
            _ => cx.missed(id, "the convolution of the image has another result"),
        }
    }
    Ok(rewriter.finish()?)
}

/// Blocks of pixels as channels.
struct Blocks {
    image: ExprId,
    /// Lines and columns of a block.
    size: [i64; 2],
    /// Channels of the image.
    channels: i64,
    /// The pixel of a block that each so many channels are, in order: its line and column.
    places: Vec<[i64; 2]>,
}

impl Blocks {
    fn of(b: &FunctionBuilder, id: ExprId) -> Result<Option<Blocks>> {
        let Some(Call { args, attrs, .. }) = call_of(b, id, &CONCATENATE) else { return Ok(None) };
        let ConcatenateAttrs { axis } = attrs.parse()?;
        let mut found: Option<Blocks> = None;
        for part in args.iter().flatten() {
            let Some(Pixels { image, first, step }) = Pixels::of(b, *part)? else {
                return Ok(None);
            };
            let places = Vec::new();
            let blocks = found.get_or_insert(Blocks { image, size: step, channels: 0, places });
            if (blocks.image, blocks.size) != (image, step) || blocks.places.contains(&first) {
                return Ok(None);
            }
            blocks.places.push(first);
        }
        Ok(found.and_then(|blocks| {
            let extents = extents(b.ty(blocks.image).as_tensor()?)?;
            let &[_, channels, height, width] = extents.as_slice() else { return None };
            let [lines, columns] = blocks.size;
            let is_whole = i64::try_from(blocks.places.len()) == Ok(lines * columns)
                && height % lines == 0
                && width % columns == 0;
            let is_of_planes = axis.rem_euclid(4) == 1 && channels < MIN_BLOCKED_CHANNELS;
            (is_whole && is_of_planes).then_some(Blocks { channels, ..blocks })
        }))
    }

    /// The weights `(O, places · C, H, W)` as `(O, C, H · lines, W · columns)`.
    fn weight(&self, weight: &Constant) -> Option<Constant> {
        let dims: [i64; 4] = extents(weight.ty())?.try_into().ok()?;
        let bits = weight.ty().dtype.bits();
        let [outputs, _, height, width] = dims;
        let [lines, columns] = self.size;
        if !bits.is_multiple_of(8) {
            return None;
        }
        let bytes = usize::try_from(bits / 8).ok()?;
        let shape = [outputs, self.channels, height * lines, width * columns];
        let from = weight.to_bytes()?;
        let mut to = vec![0; from.len()];
        let mut elements = from.chunks_exact(bytes);
        for o in 0..outputs {
            for [line, column] in &self.places {
                for c in 0..self.channels {
                    for y in (0..height).map(|y| y * lines + line) {
                        for x in (0..width).map(|x| x * columns + column) {
                            let at = ((o * shape[1] + c) * shape[2] + y) * shape[3] + x;
                            let at = usize::try_from(at).ok()? * bytes;
                            to.get_mut(at..at + bytes)?.copy_from_slice(elements.next()?);
                        }
                    }
                }
            }
        }
        let ty = TensorType::from_consts(&shape, weight.ty().dtype);
        Constant::new(ty, SharedBytes::new(to)).ok()
    }
}

/// Pixels at equal distances.
struct Pixels {
    image: ExprId,
    /// Line and column of the first.
    first: [i64; 2],
    /// Lines and columns from one to the next.
    step: [i64; 2],
}

impl Pixels {
    /// What slices take of an image, if they go through all of it.
    fn of(b: &FunctionBuilder, id: ExprId) -> Result<Option<Pixels>> {
        let mut image = id;
        let (mut first, mut step) = ([0, 0], [1, 1]);
        while let Some(Call { args, attrs, .. }) = call_of(b, image, &STRIDED_SLICE) {
            let StridedSliceAttrs { begin, strides, axes, .. } = attrs.parse()?;
            let &[Some(from)] = args.as_slice() else { return Ok(None) };
            for ((&axis, &begin), &stride) in axes.iter().zip(&begin).zip(&strides) {
                let axis = match axis.rem_euclid(4) {
                    2 => 0,
                    3 => 1,
                    _ => return Ok(None),
                };
                if !(1..=MOST_LINES).contains(&stride) || !(0..stride).contains(&begin) {
                    return Ok(None);
                }
                first[axis] = first[axis] * stride + begin;
                step[axis] *= stride;
                if step[axis] > MOST_LINES {
                    return Ok(None);
                }
            }
            image = from;
        }
        let extents = |id| b.ty(id).as_tensor().and_then(extents);
        let (Some(&[_, _, height, width]), Some(&[_, _, h, w])) =
            (extents(id).as_deref(), extents(image).as_deref())
        else {
            return Ok(None);
        };
        let is_each = step != [1, 1] && [height * step[0], width * step[1]] == [h, w];
        Ok(is_each.then_some(Pixels { image, first, step }))
    }
}
