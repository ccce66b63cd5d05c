//! Convolutions of 8-bit integers, each of which reads what the one before it rounded.

use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::{ModelAttr, ModelBuilder};

use super::conv::{Conv, REPEATS};
use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Case, Goal, Kernel, Limit, Result, Work};

/// The zero point of every image, which padding has.
const ZERO: i32 = 128;

/// The greatest magnitude of a weight.
const WEIGHTS: u64 = 16;

impl Conv {
    /// The same convolution of `uint8` by `int8`.
    pub(super) fn int8(self, name: &str, goal: Goal) -> Kernel {
        let elements = self.channels * self.extent.pow(2) + self.weights() + self.result();
        let flops = (2 * self.result() * self.terms()) as u64;
        Kernel {
            name: name.to_owned(),
            work: Work { flops, bytes: elements as u64 },
            sums: true,
            limit: Limit::Int8,
            goal,
            threads: &[1],
            case: Box::new(move || self.case_int8()),
            build: Build::Model,
        }
    }

    /// What sums are multiplied with, so that magnitudes stay about the same along a chain: a power of two, so that
    /// engines that scale in another order round alike.
    fn scale(self) -> f32 {
        let deviation = WEIGHTS as f32 / 3.0f32.sqrt() * (self.terms() as f32).sqrt();
        deviation.recip().log2().round().exp2()
    }

    fn case_int8(self) -> Result<Case> {
        let mut random = Random::new(5);
        let count = self.channels * self.extent.pow(2);
        let image: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
        let range = 2 * WEIGHTS + 1;
        let weights: Vec<i8> = (0..self.weights())
            .map(|_| ((random.next() % range) as i64 - WEIGHTS as i64) as i8)
            .collect();
        let shape = dims(&[1, self.channels, self.extent, self.extent]);
        let constant = |shape: &[i64], dtype, bytes: Vec<u8>| {
            let ty = TensorType::from_consts(shape, dtype);
            Constant::new(ty, SharedBytes::new(bytes)).map_err(|error| error.to_string())
        };
        let by = weights.iter().map(|&weight| weight as u8).collect();
        let filters = dims(&[self.filters, self.channels, self.kernel, self.kernel]);
        let pad = ((self.kernel - 1) / 2) as i64;
        let attrs: [(&str, ModelAttr); 1] = [("pads", [pad; 4].into())];
        let mut model = ModelBuilder::new(13)
            .input("y0", DType::U8, &shape)
            .initializer("w", &constant(&filters, DType::I8, by)?)
            .initializer("one", &constant(&[], DType::F32, 1.0f32.to_le_bytes().to_vec())?)
            .initializer("scale", &constant(&[], DType::F32, self.scale().to_le_bytes().to_vec())?)
            .initializer("middle", &constant(&[], DType::U8, vec![ZERO as u8])?)
            .initializer("zero", &constant(&[], DType::I8, vec![0])?);
        let mut values = image.clone();
        for number in 0..REPEATS {
            let [x, y] = [number, number + 1].map(|number| format!("y{number}"));
            let operands = [&x, "one", "middle", "w", "scale", "zero", "one", "middle"];
            model = model.node("QLinearConv", &operands, &[&y], &attrs);
            values = self.rounded(&values, &weights);
        }
        let last = format!("y{REPEATS}");
        let wide: [(&str, ModelAttr); 1] = [("to", 6i64.into())];
        let model = model.node("Cast", &[&last], &["z"], &wide);
        let model = model.output("z", DType::I32, &shape);
        let inputs = vec![constant(&shape, DType::U8, image)?];
        let expected = Expected::all(values.into_iter().map(f64::from));
        Ok(Case { model: model.to_bytes(), inputs, expected, repeats: REPEATS as u32 })
    }

    /// The convolution of bytes, rounded to bytes.
    fn rounded(self, image: &[u8], weights: &[i8]) -> Vec<u8> {
        let wide: Vec<f64> = image.iter().map(|&x| f64::from(i32::from(x) - ZERO)).collect();
        let layer = [weights.iter().map(|&w| f32::from(w)).collect(), vec![0.0; self.filters]];
        let sums = self.sums(&wide, &layer).into_iter();
        let scale = f64::from(self.scale());
        // Beyond the range, `as` saturates.
        sums.map(|sum| ((sum * scale).round_ties_even() + f64::from(ZERO)) as u8).collect()
    }
}
