//! Arithmetic on constants that have one element for each channel.

use crate::ir::{Constant, DType, Shape, SharedBytes, TensorType};

/// The elements of a floating-point constant that, broadcast against a tensor of `rank` axes,
/// differs only along `axis`: one for each of `channels`. `None` for other constants.
pub(super) fn per_channel(
    constant: &Constant,
    rank: usize,
    axis: usize,
    channels: i64,
) -> Option<Vec<f64>> {
    let shape = constant.ty().shape.as_consts()?;
    let channels = u64::try_from(channels).ok()?;
    // Axes are aligned at the end.
    let missing = rank.checked_sub(shape.len())?;
    let fits = shape
        .iter()
        .enumerate()
        .all(|(index, &extent)| extent == 1 || (index + missing == axis && extent == channels));
    if !fits {
        return None;
    }
    let elements = constant.to_f64_vec()?;
    match elements.as_slice() {
        [same] => Some(vec![*same; usize::try_from(channels).ok()?]),
        _ => Some(elements),
    }
}

/// Weights whose elements for an output and an input, which are along two axes of theirs, are
/// multiplied by the factor of `channel(output, input)`. The product is rounded once, to the weights'
/// data type.
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
    Constant::new(ty, SharedBytes::new(scaled)).ok()
}

/// A floating-point vector, each element rounded to `dtype`.
pub(super) fn vector(elements: &[f64], dtype: DType) -> Option<Constant> {
    of_elements(&Shape::from_consts(&[i64::try_from(elements.len()).ok()?]), elements, dtype)
}

/// A floating-point constant of one element for each place along `axis`, which repeats along the
/// other axes of a tensor of `rank` axes.
pub(super) fn along(elements: &[f64], axis: usize, rank: usize, dtype: DType) -> Option<Constant> {
    let mut dims = vec![1; rank.checked_sub(axis)?];
    *dims.first_mut()? = i64::try_from(elements.len()).ok()?;
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
        let c = constant(&[3, 1, 1], &[1.0, 2.0, 3.0]);
        assert_eq!(per_channel(&c, 4, 1, 3), Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(per_channel(&c, 4, 2, 3), None);
        assert_eq!(per_channel(&c, 2, 0, 3), None);
        assert_eq!(per_channel(&constant(&[], &[5.0]), 4, 1, 2), Some(vec![5.0, 5.0]));
        assert_eq!(per_channel(&constant(&[3, 2, 1], &[0.0; 6]), 4, 1, 3), None);
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
}
