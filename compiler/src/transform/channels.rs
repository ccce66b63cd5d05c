//! Arithmetic on constants that have one element for each channel.

use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Constant, DType, Layout, Shape, SharedBytes, TensorType};
use crate::ops::tensor::{LAYOUT_TRANSFORM, LayoutTransformAttrs};

/// The dimensions of a tensor that its channels are along: one, or two if they are in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChannelAxis {
    /// The dimension of channels, or of blocks of them.
    dim: usize,
    /// The dimension within a block, and how many channels that has.
    block: Option<(usize, i64)>,
}

impl ChannelAxis {
    /// Channels that are not in blocks.
    pub(super) fn whole(dim: usize) -> ChannelAxis {
        ChannelAxis { dim, block: None }
    }

    /// Where a layout has an axis; `None` if it has not, or in blocks of blocks.
    pub(super) fn of(layout: &Layout, axis: char) -> Option<ChannelAxis> {
        let mut dims = layout.dims().enumerate().filter(|(_, (letter, _))| *letter == axis);
        let (dim, _) = dims.next()?;
        let block = dims.next().and_then(|(dim, (_, block))| Some((dim, block?)));
        dims.next().is_none().then_some(ChannelAxis { dim, block })
    }

    /// The dimension, if channels are not in blocks.
    pub(super) fn as_whole(self) -> Option<usize> {
        self.block.is_none().then_some(self.dim)
    }

    /// The dimensions, the outer one first.
    pub(super) fn dims(self) -> impl Iterator<Item = usize> {
        [Some(self.dim), self.block.map(|(dim, _)| dim)].into_iter().flatten()
    }

    /// The extent of a dimension of a tensor with so many channels; 1 if these are not along it.
    fn extent(self, dim: usize, channels: i64) -> i64 {
        match self.block {
            Some((inner, block)) if inner == dim => block,
            Some((_, block)) if self.dim == dim => channels / block,
            None if self.dim == dim => channels,
            _ => 1,
        }
    }

    /// The index of a channel along a dimension.
    fn index(self, dim: usize, channel: usize) -> usize {
        match self.block {
            Some((inner, block)) if inner == dim => channel % block as usize,
            Some((_, block)) if self.dim == dim => channel / block as usize,
            None if self.dim == dim => channel,
            _ => 0,
        }
    }
}

/// The elements of a floating-point constant that, broadcast against a tensor of `rank` axes,
/// differs only along `axis`: one for each of `channels`. `None` for other constants.
pub(super) fn per_channel(
    constant: &Constant,
    rank: usize,
    axis: ChannelAxis,
    channels: i64,
) -> Option<Vec<f64>> {
    let shape = constant.ty().shape.as_consts()?;
    // Axes are aligned at the end.
    let missing = rank.checked_sub(shape.len())?;
    let fits = (missing..rank).zip(&shape).all(|(dim, &extent)| {
        extent == 1 || i64::try_from(extent) == Ok(axis.extent(dim, channels))
    });
    if !fits {
        return None;
    }
    let elements = constant.to_f64_vec()?;
    let place = |channel: usize| {
        let along = |place, (dim, &extent): (usize, &u64)| match extent {
            1 => place,
            _ => place * extent as usize + axis.index(dim, channel),
        };
        (missing..rank).zip(&shape).fold(0, along)
    };
    let channels = usize::try_from(channels).ok()?;
    (0..channels).map(|channel| elements.get(place(channel)).copied()).collect()
}

/// The elements of a constant that is a vector of `channels` elements, or of one for all of them.
pub(super) fn of_vector(constant: &Constant, channels: i64) -> Option<Vec<f64>> {
    per_channel(constant, 1, ChannelAxis::whole(0), channels)
}

/// A constant in another layout; `None` if its elements are not known or it does not fit the layouts.
pub(super) fn relaid(constant: &Constant, from: &Layout, to: &Layout) -> Option<Constant> {
    let tensor = Tensor::from_constant(constant).ok()?;
    let (src_layout, dst_layout) = (from.to_string(), to.to_string());
    let attrs = Attrs::from_struct(&LayoutTransformAttrs { src_layout, dst_layout }).ok()?;
    let moved = LAYOUT_TRANSFORM.evaluate(&attrs, &[Some(&tensor)]).ok()?;
    moved.first()?.to_constant().ok()
}

/// Weights whose elements for an output and an input, which are along two axes of theirs, are
/// multiplied by the factor of `channel(output, input)`. The product is rounded once, to the weights'
/// data type. `None` if float16 has no such products, or less precise ones.
///
/// Weights are the bulk of a model, and build scripts run unoptimised: this is one plain loop.
pub(super) fn scale_weights(
    weight: &Constant,
    factors: &[f64],
    [output_axis, input_axis]: [usize; 2],
    channel: impl Fn(usize, usize) -> usize,
) -> Option<Constant> {
    let ty = weight.ty().clone();
    let dims: Vec<usize> =
        ty.shape.as_consts()?.into_iter().map(usize::try_from).collect::<Result<_, _>>().ok()?;
    let (first, second) = (output_axis.min(input_axis), output_axis.max(input_axis));
    let (&firsts, &seconds) = (dims.get(first)?, dims.get(second)?);
    let between: usize = dims.get(first + 1..second)?.iter().product();
    let inner: usize = dims.get(second + 1..)?.iter().product();
    let channel_of = |block: usize| {
        let (first, second) = (block / seconds / between % firsts, block % seconds);
        if output_axis < input_axis { channel(first, second) } else { channel(second, first) }
    };
    let mut scaled: Vec<u8> = weight.to_bytes()?.to_vec();
    macro_rules! scale {
        ($t:ty, $product:expr) => {{
            let (elements, _) = scaled.as_chunks_mut::<{ size_of::<$t>() }>();
            let mut start = 0;
            while inner > 0 && start < elements.len() {
                let block = start / inner;
                let factor = *factors.get(channel_of(block))?;
                // An index, because an iterator's calls would take longer than the arithmetic.
                let end = start + inner;
                while start < end {
                    let product: $t = $product(<$t>::from_le_bytes(elements[start]), factor);
                    elements[start] = product.to_le_bytes();
                    start += 1;
                }
            }
        }};
    }
    match ty.dtype {
        DType::F32 => scale!(f32, |w: f32, s: f64| (f64::from(w) * s) as f32),
        DType::F64 => scale!(f64, |w: f64, s: f64| w * s),
        DType::F16 => scale!(half::f16, |w: half::f16, s: f64| half::f16::from_f64(w.to_f64() * s)),
        DType::BF16 => {
            scale!(half::bf16, |w: half::bf16, s: f64| half::bf16::from_f64(w.to_f64() * s))
        }
        _ => return None,
    }
    if ty.dtype == DType::F16 && !has_halves(&weight.to_bytes()?, &scaled) {
        return None;
    }
    Constant::new(ty, SharedBytes::new(scaled)).ok()
}

/// Whether float16 weights are, scaled, as precise as they were: all finite, and the greatest far above the
/// numbers that have fewer bits.
fn has_halves(weights: &[u8], scaled: &[u8]) -> bool {
    let greatest = |bytes: &[u8]| {
        let (halves, _) = bytes.as_chunks::<2>();
        // Without their signs, halves are in the order of their bits.
        halves.iter().map(|half| u16::from_le_bytes(*half) & 0x7fff).max().unwrap_or(0)
    };
    let [before, after] = [weights, scaled].map(greatest);
    let least = half::f16::from_f64(f64::from(half::f16::MIN_POSITIVE) * 32.0).to_bits();
    after < half::f16::INFINITY.to_bits() && after >= before.min(least)
}

/// A floating-point vector, each element rounded to `dtype`.
pub(super) fn vector(elements: &[f64], dtype: DType) -> Option<Constant> {
    of_elements(&Shape::from_consts(&[i64::try_from(elements.len()).ok()?]), elements, dtype)
}

/// A floating-point constant of one element for each channel along `axis`, which repeats along the
/// other axes of a tensor of `rank` axes.
pub(super) fn along(
    elements: &[f64],
    axis: ChannelAxis,
    rank: usize,
    dtype: DType,
) -> Option<Constant> {
    let channels = i64::try_from(elements.len()).ok()?;
    // A block is behind the blocks: elements are in the order of channels.
    let dims: Vec<i64> = (axis.dim..rank).map(|dim| axis.extent(dim, channels)).collect();
    of_elements(&Shape::from_consts(&dims), elements, dtype)
}

/// A floating-point constant of that shape, each element rounded to `dtype`.
pub(super) fn of_elements(shape: &Shape, elements: &[f64], dtype: DType) -> Option<Constant> {
    let mut bytes = Vec::new();
    for &element in elements {
        match dtype {
            DType::F32 => bytes.extend((element as f32).to_le_bytes()),
            DType::F64 => bytes.extend(element.to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f64(element).to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f64(element).to_le_bytes()),
            _ => return None,
        }
    }
    Constant::new(TensorType::new(shape.clone(), dtype), SharedBytes::new(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(dims: &[i64], values: &[f32]) -> Constant {
        Constant::from_f32(dims, values).unwrap()
    }

    #[test]
    fn values_that_differ_along_one_axis_only_are_per_channel() {
        let whole = ChannelAxis::whole;
        let c = constant(&[3, 1, 1], &[1.0, 2.0, 3.0]);
        assert_eq!(per_channel(&c, 4, whole(1), 3), Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(per_channel(&c, 4, whole(2), 3), None);
        assert_eq!(per_channel(&c, 2, whole(0), 3), None);
        assert_eq!(per_channel(&constant(&[], &[5.0]), 4, whole(1), 2), Some(vec![5.0, 5.0]));
        assert_eq!(per_channel(&constant(&[3, 2, 1], &[0.0; 6]), 4, whole(1), 3), None);
    }

    #[test]
    fn channels_in_blocks_are_along_two_dimensions() {
        let axis = |layout: &str| ChannelAxis::of(&layout.parse().unwrap(), 'C');
        let blocked = axis("NCHW2c").unwrap();
        assert_eq!((blocked.dims().collect::<Vec<_>>(), blocked.as_whole()), (vec![1, 4], None));
        assert_eq!(axis("NHWC"), Some(ChannelAxis::whole(3)));
        assert_eq!((axis("NHW"), axis("NCHW4c2c")), (None, None));

        let elements = [1.0, 2.0, 3.0, 4.0];
        let c = along(&elements, blocked, 5, DType::F32).unwrap();
        assert_eq!(c.ty().shape.as_consts(), Some(vec![2, 1, 1, 2]));
        assert_eq!(per_channel(&c, 5, blocked, 4), Some(elements.to_vec()));
        // What is the same for all blocks, or in the whole of one.
        let (inner, outer) = (constant(&[2], &[1.0, 2.0]), constant(&[2, 1, 1, 1], &[1.0, 2.0]));
        assert_eq!(per_channel(&inner, 5, blocked, 4), Some(vec![1.0, 2.0, 1.0, 2.0]));
        assert_eq!(per_channel(&outer, 5, blocked, 4), Some(vec![1.0, 1.0, 2.0, 2.0]));
        assert_eq!(per_channel(&constant(&[4], &[0.0; 4]), 5, blocked, 4), None);
    }

    #[test]
    fn weights_are_scaled_by_output_or_input() {
        let w = constant(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        let by = |channel: fn(usize, usize) -> usize| {
            scale_weights(&w, &[10.0, 100.0], [0, 1], channel).unwrap().to_f64_vec().unwrap()
        };
        assert_eq!(by(|output, _| output), [10.0, 20.0, 300.0, 400.0]);
        assert_eq!(by(|_, input| input), [10.0, 200.0, 30.0, 400.0]);
        assert!(scale_weights(&w, &[1.0], [0, 1], |output, _| output).is_none());
        // Axes in another order, with others between them and before.
        let w = constant(&[2, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let scaled = scale_weights(&w, &[10.0, 100.0], [3, 1], |output, _| output).unwrap();
        let expected = [10.0, 200.0, 30.0, 400.0, 50.0, 600.0, 70.0, 800.0];
        assert_eq!(scaled.to_f64_vec().unwrap(), expected);
        let scaled = scale_weights(&w, &[10.0, 100.0], [3, 1], |_, input| input).unwrap();
        let expected = [10.0, 20.0, 300.0, 400.0, 50.0, 60.0, 700.0, 800.0];
        assert_eq!(scaled.to_f64_vec().unwrap(), expected);
    }

    /// Infinity and numbers of few bits are no weights: the factors stay where they are.
    #[test]
    fn halves_are_scaled_only_if_there_are_such_halves() {
        let scaled = |weights: [f64; 2], factor: f64| {
            let shape = Shape::from_consts(&[2, 1]);
            let w = of_elements(&shape, &weights, DType::F16).unwrap();
            scale_weights(&w, &[factor; 2], [0, 1], |output, _| output)
        };
        let doubled = scaled([10.0, 1e-6], 2.0).unwrap().to_f64_vec().unwrap();
        assert_eq!(doubled[0], 20.0);
        assert!(scaled([10.0, 0.5], 1e4).is_none());
        assert!(scaled([3e-3, -2e-3], 1e-4).is_none());
        assert!(scaled([10.0, 0.5], 0.0).is_none());
        // Weights that have few bits already lose none.
        assert!(scaled([1e-6, 0.0], 1.0).is_some());
    }
}
