//! Weights as small integers: of 8 bits with a scale for each channel, of 4 bits with one for each
//! block of a column.

use super::range;
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};

/// The greatest magnitude of a weight: the same on both sides, so that the zero point is 0.
const MAX_WEIGHT: f64 = 127.0;

/// The greatest of 4 bits.
const MAX_NIBBLE: f64 = 15.0;

/// Elements of a column that share a scale where weights have 4 bits: of 16, 32, 64 and so on, for
/// which ONNX Runtime has kernels, the one that most exporters take.
pub(super) const BLOCK: usize = 32;

/// Weights in steps of a scale, of which each index along an axis has one.
pub(super) struct Channels {
    pub(super) dims: Vec<u64>,
    /// From -127 to 127.
    pub(super) steps: Vec<i128>,
    pub(super) scales: Vec<f32>,
}

impl Channels {
    /// `None` if the elements are not known.
    pub(super) fn new(weight: &Constant, axis: usize) -> Option<Channels> {
        let values = weight.to_f64_vec()?;
        let dims = weight.ty().shape.as_consts()?;
        let inner: usize = dims.get(axis + 1..)?.iter().map(|&dim| dim as usize).product();
        let channels = dims[axis] as usize;
        let channel = |at: usize| at / inner % channels;
        let mut greatest = vec![0f64; channels];
        for (at, value) in values.iter().enumerate() {
            greatest[channel(at)] = greatest[channel(at)].max(value.abs());
        }
        let scales: Vec<f32> =
            greatest.iter().map(|&most| range::scale(most, MAX_WEIGHT)).collect();
        let steps = values.iter().enumerate().map(|(at, value)| {
            let steps = (value / f64::from(scales[channel(at)])).round_ties_even();
            steps.clamp(-MAX_WEIGHT, MAX_WEIGHT) as i128
        });
        Some(Channels { steps: steps.collect(), dims, scales })
    }

    /// The steps as `int8`.
    pub(super) fn signed(&self) -> Constant {
        ints(&self.dims, DType::I8, self.steps.clone())
    }

    /// The steps as `uint8` with the zero point 128: where activations are `uint8` as well, sums of
    /// two products are exact on machines that add them in 16 bits.
    pub(super) fn unsigned(&self) -> Constant {
        ints(&self.dims, DType::U8, self.steps.iter().map(|step| step + 128).collect())
    }

    /// The same of a matrix with its axes exchanged.
    pub(super) fn transposed(self) -> Channels {
        let (rows, columns) = (self.dims[0] as usize, self.dims[1] as usize);
        let steps = (0..columns * rows).map(|at| self.steps[at % rows * columns + at / rows]);
        Channels { steps: steps.collect(), dims: vec![self.dims[1], self.dims[0]], ..self }
    }
}

/// A matrix in 4 bits, as `MatMulNBits` has it: a row of blocks for each column.
pub(super) struct Nibbles {
    pub(super) k: usize,
    pub(super) n: usize,
    /// Two elements a byte, the first in the low half.
    pub(super) bytes: Constant,
    pub(super) scales: Constant,
    /// Two blocks a byte.
    pub(super) zeros: Constant,
}

impl Nibbles {
    /// A matrix of `(k, n)`, or of `(n, k)` if it is transposed; `None` if its elements are not known.
    pub(super) fn new(weight: &Constant, transposed: bool) -> Option<Nibbles> {
        let values = weight.to_f64_vec()?;
        let &[rows, columns] = &weight.ty().shape.as_consts()?[..] else { return None };
        let (rows, columns) = (rows as usize, columns as usize);
        let (k, n) = if transposed { (columns, rows) } else { (rows, columns) };
        let blocks = k.div_ceil(BLOCK);
        let (mut bytes, mut scales, mut zeros) = (Vec::new(), Vec::new(), Vec::new());
        for column in 0..n {
            let mut row = vec![0u8; blocks.div_ceil(2)];
            for block in 0..blocks {
                let start = block * BLOCK;
                let at = |index: usize| match transposed {
                    true => values[column * k + index],
                    false => values[index * n + column],
                };
                let elements: Vec<f64> = (start..k.min(start + BLOCK)).map(at).collect();
                let most = elements.iter().fold(0f64, |most, &value| most.max(value));
                let least = elements.iter().fold(0f64, |least, &value| least.min(value));
                let scale = range::scale(most - least, MAX_NIBBLE);
                let zero = (-least / f64::from(scale)).round_ties_even().clamp(0.0, MAX_NIBBLE);
                let nibble = |index: usize| {
                    // What is beyond the matrix stands for 0.
                    let value = elements.get(index).copied().unwrap_or(0.0);
                    let steps = (value / f64::from(scale)).round_ties_even() + zero;
                    steps.clamp(0.0, MAX_NIBBLE) as u8
                };
                let pairs = (0..BLOCK / 2).map(|pair| nibble(2 * pair) | nibble(2 * pair + 1) << 4);
                bytes.extend(pairs.map(i128::from));
                row[block / 2] |= (zero as u8) << (4 * (block % 2));
                scales.push(scale);
            }
            zeros.extend(row.into_iter().map(i128::from));
        }
        let shape = [n as u64, blocks as u64];
        Some(Nibbles {
            k,
            n,
            bytes: ints(&[shape[0], shape[1], BLOCK as u64 / 2], DType::U8, bytes),
            scales: Constant::from_f32(&shape.map(|dim| dim as i64), &scales).ok()?,
            zeros: ints(&[shape[0], shape[1].div_ceil(2)], DType::U8, zeros),
        })
    }
}

/// A constant of small integers, as many as the extents say.
pub(super) fn ints(dims: &[u64], dtype: DType, values: Vec<i128>) -> Constant {
    let shape: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
    let tensor = Tensor::from_ints(dtype, &shape, values).expect("as many values as weights");
    tensor.to_constant().expect("the values are within the type")
}
