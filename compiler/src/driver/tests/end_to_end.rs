//! From tensor expressions through a schedule to calls.

use niello_runtime::ThreadPool;

use super::targets;
use crate::driver::{NdArray, build};
use crate::ir::DType;
use crate::schedule::{Schedule, ScheduleError};
use crate::te;
use crate::tir::{BufferScope, PrimFunc};

const M: i64 = 49;
const N: i64 = 64;
const K: i64 = 40;

/// `D = max(A · B, 0)`.
fn matmul() -> PrimFunc {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [M, K], DType::F32);
    let b = te.placeholder("B", [K, N], DType::F32);
    let k = te.reduce_axis("k", K);
    let c = te.compute("C", [M, N], |[i, j]| te::sum(a.at([i, k]) * b.at([k, j]), [k]));
    let d = te.compute("D", [M, N], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
    te.prim_func(&[a, b, d]).unwrap()
}

/// Register tiles of at most 6 × 16, columns of tiles in parallel.
fn scheduled() -> Result<PrimFunc, ScheduleError> {
    let mut s = Schedule::new(matmul());
    let (c, d) = (s.get_block("C")?, s.get_block("D")?);
    let loops = s.get_loops(c)?;
    let [i0, i1] = s.split_even(loops[0], 6)?;
    let j = s.split(loops[1], [None, Some(2), Some(8)])?;
    s.reorder(&[j[0], i0, loops[2], i1, j[1], j[2]])?;
    s.set_scope(c, 0, BufferScope::Register)?;
    s.reverse_compute_at(d, i0)?;
    let out = s.get_loops(d)?;
    let jd = s.split(out[3], [None, Some(8)])?;
    for unrolled in [i1, j[1], out[2], jd[0]] {
        s.unroll(unrolled)?;
    }
    s.vectorize(j[2])?;
    s.vectorize(jd[1])?;
    s.decompose_reduction(c, loops[2])?;
    s.parallel(j[0])?;
    Ok(s.into_func())
}

/// Whole numbers, so that sums are exact in any order.
fn numbers(shape: &[i64], seed: i64) -> NdArray {
    let len: i64 = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| ((i * 7 + seed) % 23 - 11) as f32).collect();
    NdArray::from_slice(shape, &values).unwrap()
}

/// The greatest and the least of each row.
fn extremes() -> PrimFunc {
    let mut te = te::Builder::new("extremes");
    let x = te.placeholder("X", [4, 32], DType::F32);
    let (k, l) = (te.reduce_axis("k", 32), te.reduce_axis("l", 32));
    let high = te.compute("High", [4], |[i]| te::max(x.at([i, k]), [k]));
    let low = te.compute("Low", [4], |[i]| te::min(x.at([i, l]), [l]));
    te.prim_func(&[x, high, low]).unwrap()
}

#[test]
fn extremes_keep_a_nan_wherever_it_stands_and_however_rows_are_split() {
    let mut s = Schedule::new(extremes());
    for name in ["High", "Low"] {
        let block = s.get_block(name).unwrap();
        let [_, k] = s.get_loops(block).unwrap()[..] else { panic!("two loops") };
        let [_, lane] = s.split(k, [None, Some(8)]).unwrap();
        s.rfactor(lane, 1).unwrap();
    }
    let split = s.into_func();
    let mut values: Vec<f32> = (0..128).map(|i| (i % 11) as f32).collect();
    // At the front, in the middle and at the end of a row; the last row has none.
    for place in [0, 32 + 13, 64 + 31] {
        values[place] = f32::NAN;
    }
    let x = NdArray::from_slice(&[4, 32], &values).unwrap();
    for target in targets() {
        for func in [extremes(), split.clone()] {
            let module = build([func], &target).unwrap();
            let mut high = NdArray::zeros(DType::F32, &[4]).unwrap();
            let mut low = NdArray::zeros(DType::F32, &[4]).unwrap();
            module.function("extremes").unwrap().call((&x, &mut high, &mut low)).unwrap();
            let (high, low) = (high.as_slice::<f32>().unwrap(), low.as_slice::<f32>().unwrap());
            assert!(high[..3].iter().chain(&low[..3]).all(|value| value.is_nan()), "{target}");
            assert_eq!((high[3], low[3]), (10.0, 0.0), "{target}");
        }
    }
}

#[test]
fn a_scheduled_matrix_product_is_called_from_rust() {
    let (a, b) = (numbers(&[M, K], 3), numbers(&[K, N], 8));
    let (left, right) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
    let (n, depth) = (N as usize, K as usize);
    let row = |i: usize| {
        let element =
            move |j| (0..depth).map(|k| left[i * depth + k] * right[k * n + j]).sum::<f32>();
        (0..n).map(move |j| element(j).max(0.0))
    };
    let expected: Vec<f32> = (0..M as usize).flat_map(row).collect();

    let pool = ThreadPool::new(2);
    let active = pool.activate(2);
    let tiles = scheduled().unwrap();
    for target in targets() {
        for func in [matmul(), tiles.clone()] {
            let module = build([func], &target).unwrap();
            let matmul = module.function("matmul").unwrap();
            let mut d = NdArray::zeros(DType::F32, &[M, N]).unwrap();
            matmul.call((&a, &b, &mut d)).unwrap();
            assert_eq!(d.as_slice::<f32>().unwrap(), expected, "{target}");

            let mut d = NdArray::zeros(DType::F32, &[M, N]).unwrap();
            let call = matmul.bind((&a, &b, &mut d)).unwrap();
            // SAFETY: the parallel loop is the schedule's.
            let mut call = unsafe { call.with_workers(&active) };
            call.run();
            call.finish().unwrap();
            assert_eq!(d.as_slice::<f32>().unwrap(), expected, "{target}, two threads");
        }
    }
}
