//! Matrix products with a constant right operand. Both operands and the result are dense for every engine, so that the
//! model is the one operator.

use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::ModelBuilder;
use niello::schedule::{Schedule, ScheduleError};
use niello::te;
use niello::tir::{BufferScope, PrimFunc};

use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Built, Case, Goal, Kernel, Limit, Result, Setup, Work, said};
use crate::native;

/// Most elements of a result that are compared: each takes a sum in `f64`.
const COMPARED: usize = 4096;

/// Rows of a tile: with a panel's registers, 28 sums are as many as leave room for the operands.
const ROWS: i64 = 7;

/// Columns of a panel of a constant: four registers of 512 bits.
const PANEL: usize = 64;

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

    /// The product of `f32` matrices by a schedule with tiles of seven rows.
    pub(super) fn scheduled_1024(name: &str, goal: Goal) -> Kernel {
        let product = Product { m: 1024, k: 1024, n: 1024 };
        let build =
            Build::Function(|setup| Product { m: 1024, k: 1024, n: 1024 }.scheduled(ROWS, setup));
        Kernel { build, ..product.f32(name, goal, &[1]) }
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

    /// The product as a tensor expression with a schedule: tiles of `rows` by [`PANEL`] sums in registers, and the
    /// constant in panels of as many columns, which a network's constants would be brought into by a compiler.
    fn scheduled(self, rows: i64, setup: Setup) -> Result<Built> {
        let Product { m, k, n } = self;
        let panels = n / PANEL;
        let (left, right) = self.operands();
        let mut packed = Vec::with_capacity(right.len());
        for panel in 0..panels {
            for row in right.chunks_exact(n) {
                packed.extend_from_slice(&row[panel * PANEL..][..PANEL]);
            }
        }
        let inputs = vec![
            Constant::from_f32(&dims(&[m, k]), &left).map_err(said)?,
            Constant::from_f32(&dims(&[panels, k, PANEL]), &packed).map_err(said)?,
        ];
        let [m, k, panels, columns] = [m, k, panels, PANEL].map(|extent| extent as i64);
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::F32);
        let b = te.placeholder("B", [panels, k, columns], DType::F32);
        let axis = te.reduce_axis("k", k);
        let sums = te.compute("sums", [m, panels, columns], |[i, p, j]| {
            te::sum(a.at([i, axis]) * b.at([p, axis, j]), [axis])
        });
        let c = te.compute("C", [m, panels, columns], |index| sums.at(index));
        let func = te.prim_func(&[a, b, c]).map_err(said)?;
        let func = register_tiles(func, rows).map_err(said)?;
        native::of_function(func, setup, inputs, self.expected(self.sum(&left, &right)))
    }

    fn case_int8(self) -> Result<Case> {
        let Product { m, k, n } = self;
        let mut random = Random::new(2);
        let mut bytes = |count| -> Vec<u8> { (0..count).map(|_| random.next() as u8).collect() };
        let (left, right) = (bytes(m * k), bytes(k * n));
        let constant = |extents: &[usize], dtype, bytes: &[u8]| {
            let ty = TensorType::from_consts(&dims(extents), dtype);
            Constant::new(ty, SharedBytes::new(bytes.to_vec())).map_err(said)
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

/// Computes a matrix product in tiles of that many rows and a panel's columns, panel by panel.
fn register_tiles(func: PrimFunc, rows: i64) -> std::result::Result<PrimFunc, ScheduleError> {
    let mut s = Schedule::new(func);
    let (sums, result) = (s.get_block("sums")?, s.get_block("C")?);
    let loops = s.get_loops(sums)?;
    let &[i, panel, j, k] = loops.as_slice() else { unreachable!("the block has four axes") };
    let [tile, row] = s.split_even(i, rows)?;
    let columns = s.split(j, [None, Some(16)])?;
    s.reorder(&[panel, tile, k, row, columns[0], columns[1]])?;
    s.set_scope(sums, 0, BufferScope::Register)?;
    s.reverse_compute_at(result, tile)?;
    let out = s.get_loops(result)?;
    let stored = s.split(out[out.len() - 1], [None, Some(16)])?;
    for unrolled in [row, columns[0], out[2], stored[0]] {
        s.unroll(unrolled)?;
    }
    s.vectorize(columns[1])?;
    s.vectorize(stored[1])?;
    s.decompose_reduction(sums, k)?;
    Ok(s.into_func())
}
