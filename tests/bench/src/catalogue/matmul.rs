//! Matrix products with a constant right operand. Both operands and the result are dense for every engine, so that the
//! model is the one operator.

use niello::driver::BuildTarget;
use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::ModelBuilder;
use niello::schedule::Schedule;
use niello::schedule::library::{Int8Tiles, MatmulTiles, matmul, matmul_int8};
use niello::te;
use niello::tir::PrimExpr;

use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Built, Case, Goal, Kernel, Limit, Result, Setup, Work, said};
use crate::native;

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

    /// The product of `f32` matrices as a tensor expression with the library's schedule.
    pub(super) fn scheduled_f32(self, name: &str, goal: Goal, threads: &'static [usize]) -> Kernel {
        let build = Build::Function(Box::new(move |setup| self.build_f32(setup)));
        Kernel { build, ..self.f32(name, goal, threads) }
    }

    /// The product of `u8` and `i8` matrices as a tensor expression with the library's schedule.
    pub(super) fn scheduled_int8(self, name: &str, goal: Goal) -> Kernel {
        let build = Build::Function(Box::new(move |setup| self.build_int8(setup)));
        Kernel { build, ..self.int8(name, goal, &[1]) }
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
        let (left, right) = self.operands();
        let constant = |extents: &[usize], values: &[f32]| {
            Constant::from_f32(&dims(extents), values).map_err(said)
        };
        let model = ModelBuilder::new(13)
            .input("x", DType::F32, &dims(&[m, k]))
            .initializer("w", &constant(&[k, n], &right)?)
            .node("MatMul", &["x", "w"], &["y"], &[])
            .output("y", DType::F32, &dims(&[m, n]));
        Ok(Case {
            model: model.to_bytes(),
            inputs: vec![constant(&[m, k], &left)?],
            expected: self.expected(self.sum(&left, &right)),
            repeats: 1,
        })
    }

    fn operands(self) -> (Vec<f32>, Vec<f32>) {
        let Product { m, k, n } = self;
        let mut random = Random::new(1);
        let left = random.normals(m * k, 1.0);
        (left, random.normals(k * n, (k as f32).recip().sqrt()))
    }

    /// An element of the result.
    fn sum(self, left: &[f32], right: &[f32]) -> impl Fn(usize, usize) -> f64 {
        let Product { k, n, .. } = self;
        move |row, column| {
            let terms = (0..k).map(|i| (left[row * k + i], right[i * n + column]));
            terms.map(|(a, b)| f64::from(a) * f64::from(b)).sum()
        }
    }

    fn build_f32(self, setup: Setup) -> Result<Built> {
        let Product { m, k, n } = self;
        let (left, right) = self.operands();
        let constant = |extents: &[usize], values: &[f32]| {
            Constant::from_f32(&dims(extents), values).map_err(said)
        };
        let inputs = vec![constant(&[m, k], &left)?, constant(&[k, n], &right)?];
        let [m, k, n] = [m, k, n].map(|extent| extent as i64);
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::F32);
        let b = te.constant("B", [k, n], DType::F32);
        let axis = te.reduce_axis("k", k);
        let c =
            te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, axis]) * b.at([axis, j]), [axis]));
        let mut s = Schedule::new(te.prim_func(&[a, b, c]).map_err(said)?);
        let block = s.get_block("C").map_err(said)?;
        let tiles = MatmulTiles::choose(m, k, n, &BuildTarget::native(setup.backend).machine);
        let loops = matmul(&mut s, block, None, tiles).map_err(said)?;
        if setup.threads > 1 {
            s.parallel(loops.outer).map_err(said)?;
        }
        let expected = self.expected(self.sum(&left, &right));
        native::of_function(s.into_func(), setup, inputs, expected)
    }

    fn build_int8(self, setup: Setup) -> Result<Built> {
        let inputs = self.bytes()?;
        let expected = self.expected(self.sum_of_bytes(&inputs)?);
        let [m, k, n] = [self.m, self.k, self.n].map(|extent| extent as i64);
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::U8);
        let b = te.constant("B", [k, n], DType::I8);
        let axis = te.reduce_axis("k", k);
        let c = te.compute("C", [m, n], |[i, j]| {
            let wide = |element: PrimExpr| element.cast(DType::I32);
            te::sum(wide(a.at([i, axis])) * wide(b.at([axis, j])), [axis])
        });
        let mut s = Schedule::new(te.prim_func(&[a, b, c]).map_err(said)?);
        let block = s.get_block("C").map_err(said)?;
        let tiles = Int8Tiles::choose(&BuildTarget::native(setup.backend).machine);
        let tiles = tiles.ok_or("the processor has no dot products of bytes")?;
        matmul_int8(&mut s, block, tiles).map_err(said)?;
        native::of_function(s.into_func(), setup, inputs.into(), expected)
    }

    /// The operands of a product of bytes.
    fn bytes(self) -> Result<[Constant; 2]> {
        let Product { m, k, n } = self;
        let mut random = Random::new(2);
        let mut matrix = |extents: [usize; 2], dtype| {
            let len = extents[0] * extents[1];
            let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let ty = TensorType::from_consts(&dims(&extents), dtype);
            Constant::new(ty, SharedBytes::new(bytes)).map_err(said)
        };
        Ok([matrix([m, k], DType::U8)?, matrix([k, n], DType::I8)?])
    }

    /// An element of a product of bytes.
    fn sum_of_bytes(self, operands: &[Constant; 2]) -> Result<impl Fn(usize, usize) -> f64> {
        let Product { k, n, .. } = self;
        let elements = |operand: &Constant| {
            operand.to_bytes().map(|bytes| bytes.to_vec()).ok_or("an operand has no elements")
        };
        let (left, right) = (elements(&operands[0])?, elements(&operands[1])?);
        Ok(move |row: usize, column: usize| {
            let terms = (0..k).map(|i| (left[row * k + i], right[i * n + column] as i8));
            f64::from(terms.map(|(a, b)| i32::from(a) * i32::from(b)).sum::<i32>())
        })
    }

    fn case_int8(self) -> Result<Case> {
        let Product { m, k, n } = self;
        let operands = self.bytes()?;
        let expected = self.expected(self.sum_of_bytes(&operands)?);
        let [left, right] = operands;
        let model = ModelBuilder::new(13)
            .input("x", DType::U8, &dims(&[m, k]))
            .initializer("w", &right)
            .node("MatMulInteger", &["x", "w"], &["y"], &[])
            .output("y", DType::I32, &dims(&[m, n]));
        Ok(Case { model: model.to_bytes(), inputs: vec![left], expected, repeats: 1 })
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
