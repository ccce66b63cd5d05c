//! Constant weights of integer products: signed bytes without a zero point, and their sums.
//!
//! `Σ (x − zx) · w` is `Σ x · w − zx · Σ w`: with the second sum known, the zero point of the
//! activations is part of the bias, and the product itself takes both operands as they are stored.

use crate::ir::{Constant, DType, SharedBytes, TensorType};

/// Weights as `int8` without a zero point.
pub(crate) struct SignedWeights {
    /// The weights.
    pub(crate) weight: Constant,
    /// The sum of the weights of each output channel.
    pub(crate) sums: Vec<i64>,
}

impl SignedWeights {
    /// 8-bit weights less their zero points, of which there are one or as many as output channels;
    /// these run along `axis`. `None` if some difference is no `int8`, or the elements are unknown.
    ///
    /// Weights are the bulk of a model, and build scripts run unoptimised: this is one plain loop.
    pub(crate) fn new(weight: &Constant, zeros: &[i64], axis: usize) -> Option<SignedWeights> {
        let ty = weight.ty();
        let is_signed = match ty.dtype {
            DType::I8 => true,
            DType::U8 => false,
            _ => return None,
        };
        let dims = ty.shape.as_consts()?;
        let dims: Vec<usize> =
            dims.into_iter().map(usize::try_from).collect::<Result<_, _>>().ok()?;
        let (&channels, after) = dims.get(axis..)?.split_first()?;
        let inner: usize = after.iter().product();
        if zeros.len() != 1 && zeros.len() != channels {
            return None;
        }
        let bytes = weight.to_bytes()?;
        let keeps = is_signed && zeros.iter().all(|&zero| zero == 0);
        let mut moved = Vec::with_capacity(if keeps { 0 } else { bytes.len() });
        let mut sums = vec![0i64; channels];
        let (mut channel, mut left) = (0, inner);
        for &byte in bytes.iter() {
            let value = if is_signed { i64::from(byte.cast_signed()) } else { i64::from(byte) };
            let zero = if zeros.len() == 1 { zeros[0] } else { zeros[channel] };
            let value = value - zero;
            sums[channel] += value;
            if !keeps {
                moved.push(i8::try_from(value).ok()?.cast_unsigned());
            }
            left -= 1;
            if left == 0 {
                left = inner;
                channel = if channel + 1 == channels { 0 } else { channel + 1 };
            }
        }
        let weight = if keeps {
            weight.clone()
        } else {
            let ty = TensorType::new(ty.shape.clone(), DType::I8);
            Constant::new(ty, SharedBytes::new(moved)).ok()?
        };
        Some(SignedWeights { weight, sums })
    }

    /// What the sums of products with activations whose zero point is `zero` lack: a vector of
    /// `int32` that takes the bias up. `None` if an element is no `int32`.
    pub(crate) fn bias(&self, zero: i64, bias: Option<&[i64]>) -> Option<Vec<i32>> {
        let mut all = Vec::with_capacity(self.sums.len());
        for (channel, sum) in self.sums.iter().enumerate() {
            let given = bias.map_or(0, |bias| bias[channel]);
            all.push(i32::try_from(given.checked_sub(zero.checked_mul(*sum)?)?).ok()?);
        }
        Some(all)
    }
}

/// A constant of `int32`.
pub(crate) fn int32s(dims: &[i64], values: &[i32]) -> Option<Constant> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    Constant::new(TensorType::from_consts(dims, DType::I32), SharedBytes::new(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, dims: &[i64], values: &[u8]) -> Constant {
        Constant::new(TensorType::from_consts(dims, dtype), SharedBytes::new(values.to_vec()))
            .unwrap()
    }

    #[test]
    fn unsigned_weights_around_128_become_signed_ones() {
        let weight = bytes(DType::U8, &[2, 3], &[0, 128, 255, 127, 129, 130]);
        let signed = SignedWeights::new(&weight, &[128], 0).unwrap();
        assert_eq!(signed.weight.to_i64_vec().unwrap(), [-128, 0, 127, -1, 1, 2]);
        assert_eq!(signed.sums, [-1, 2]);
        assert_eq!(signed.bias(10, Some(&[5, 6])).unwrap(), [15, -14]);
        // Along the other axis, with a zero point for each.
        let signed = SignedWeights::new(&weight, &[127, 128, 128], 1).unwrap();
        assert_eq!(signed.weight.to_i64_vec().unwrap(), [-127, 0, 127, 0, 1, 2]);
        assert_eq!(signed.sums, [-127, 1, 129]);
    }

    #[test]
    fn differences_beyond_a_signed_byte_are_refused() {
        assert!(SignedWeights::new(&bytes(DType::U8, &[1, 2], &[0, 130]), &[0], 0).is_none());
        assert!(SignedWeights::new(&bytes(DType::I8, &[1, 1], &[128]), &[1], 0).is_none());
        assert!(SignedWeights::new(&bytes(DType::I8, &[1, 1], &[128]), &[0, 0], 0).is_none());
        let signed = SignedWeights::new(&bytes(DType::I8, &[1, 1], &[128]), &[0], 0).unwrap();
        assert!(signed.bias(i64::from(i32::MAX), None).is_none());
    }
}
