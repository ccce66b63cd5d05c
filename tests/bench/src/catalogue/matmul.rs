//! Matrix products with a constant right operand. Both operands and the result are dense for every engine, so that the
//! model is the one operator.

use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::ModelBuilder;

use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Case, Goal, Kernel, Limit, Result, Work};

/// Most elements of a result that are compared: each takes a sum in `f64`.
const COMPARED: usize = 4096;

/// The extents of an `m` by `k` matrix and a constant `k` by `n` one.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
}

impl Product {
    /// A product of `f32` matrices. One row alone is bound by reading the constant.
    pub(super) fn f32(self, name: &str, goal: Goal, threads: &'static [usize]) -> Kernel {
        let limit = if self.m == 1 { Limit::Stream } else { Limit::Fma };
        let case = move || self.case_f32();
        self.kernel(name, limit, [4, 4, 4], goal, threads, Box::new(case))
    }

    /// A product of `u8` and `i8` matrices, summed in `i32`.
    pub(super) fn int8(self, name: &str, goal: Goal, threads: &'static [usize]) -> Kernel {
        let case = move || self.case_int8();
        self.kernel(name, Limit::Int8, [1, 1, 4], goal, threads, Box::new(case))
    }

    fn kernel(
        self,
        name: &str,
        limit: Limit,
        [left, right, result]: [usize; 3],
        goal: Goal,
        threads: &'static [usize],
        case: Box<dyn Fn() -> Result<Case>>,
    ) -> Kernel {
        let Product { m, k, n } = self;
        let flops = 2 * m * k * n;
        let bytes = left * m * k + right * k * n + result * m * n;
        let work = Work { flops: flops as u64, bytes: bytes as u64 };
        Kernel {
            name: name.to_owned(),
            work,
            sums: true,
            limit,
            goal,
            threads,
            case,
            build: Build::Model,
        }
    }

    fn case_f32(self) -> Result<Case> {
        let Product { m, k, n } = self;
        let mut random = Random::new(1);
        let left = random.normals(m * k, 1.0);
        let right = random.normals(k * n, (k as f32).recip().sqrt());
        let constant = |extents: &[usize], values: &[f32]| {
            Constant::from_f32(&dims(extents), values).map_err(|error| error.to_string())
        };
        let model = ModelBuilder::new(13)
            .input("x", DType::F32, &dims(&[m, k]))
            .initializer("w", &constant(&[k, n], &right)?)
            .node("MatMul", &["x", "w"], &["y"], &[])
            .output("y", DType::F32, &dims(&[m, n]));
        let sum = |row: usize, column: usize| {
            let terms = (0..k).map(|i| (left[row * k + i], right[i * n + column]));
            terms.map(|(a, b)| f64::from(a) * f64::from(b)).sum()
        };
        Ok(Case {
            model: model.to_bytes(),
            inputs: vec![constant(&[m, k], &left)?],
            expected: self.expected(sum),
            repeats: 1,
        })
    }

    fn case_int8(self) -> Result<Case> {
        let Product { m, k, n } = self;
        let mut random = Random::new(2);
        let mut bytes = |count| -> Vec<u8> { (0..count).map(|_| random.next() as u8).collect() };
        let (left, right) = (bytes(m * k), bytes(k * n));
        let constant = |extents: &[usize], dtype, bytes: &[u8]| {
            let ty = TensorType::from_consts(&dims(extents), dtype);
            Constant::new(ty, SharedBytes::new(bytes.to_vec())).map_err(|error| error.to_string())
        };
        let model = ModelBuilder::new(13)
            .input("x", DType::U8, &dims(&[m, k]))
            .initializer("w", &constant(&[k, n], DType::I8, &right)?)
            .node("MatMulInteger", &["x", "w"], &["y"], &[])
            .output("y", DType::I32, &dims(&[m, n]));
        let sum = |row: usize, column: usize| {
            let terms = (0..k).map(|i| (left[row * k + i], right[i * n + column] as i8));
            f64::from(terms.map(|(a, b)| i32::from(a) * i32::from(b)).sum::<i32>())
        };
        Ok(Case {
            model: model.to_bytes(),
            inputs: vec![constant(&[m, k], DType::U8, &left)?],
            expected: self.expected(sum),
            repeats: 1,
        })
    }

    /// Elements from all over the result.
    fn expected(self, sum: impl Fn(usize, usize) -> f64) -> Expected {
        let Product { m, n, .. } = self;
        // An odd step that shares no factor with the extents visits every column in turn.
        let step = (m * n / COMPARED).max(1) | 1;
        let places = (0..m * n).step_by(step);
        Expected(places.map(|place| (place, sum(place / n, place % n))).collect())
    }
}
