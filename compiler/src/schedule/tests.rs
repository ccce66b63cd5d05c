//! What primitives do, and what they refuse to do.

use super::{Schedule, Trace};
use crate::ir::DType;
use crate::target::Target;
use crate::te;
use crate::tir::{BufferScope, PrimFunc, interpret, lower};

pub(super) fn matmul(m: i64, n: i64, k: i64) -> PrimFunc {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [m, k], DType::F32);
    let b = te.constant("B", [k, n], DType::F32);
    let r = te.reduce_axis("k", k);
    let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
    let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
    te.prim_func(&[a, b, d]).unwrap()
}

/// Runs a function on numbers made of their positions.
fn run(func: &PrimFunc) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = func
        .params
        .iter()
        .map(|param| {
            let len = func.buffers[param.buffer].spec.physical_len().unwrap();
            (0..len).flat_map(|i| (((i * 7 + 3) % 23 - 11) as f32).to_le_bytes()).collect()
        })
        .collect();
    interpret(func, &mut args, &[]).unwrap();
    args
}

#[test]
fn a_matrix_product_becomes_register_tiles() {
    let func = matmul(13, 32, 5);
    let expected = run(&func);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let d = s.get_block("D").unwrap();
    let loops = s.get_loops(c).unwrap();
    let [i0, i1] = s.split_even(loops[0], 6).unwrap();
    let j = s.split(loops[1], &[None, Some(2), Some(8)]).unwrap();
    s.reorder(&[j[0], i0, loops[2], i1, j[1], j[2]]).unwrap();
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    s.reverse_compute_at(d, i0).unwrap();
    let out = s.get_loops(d).unwrap();
    let jd = s.split(out[3], &[None, Some(8)]).unwrap();
    for rv in [i1, j[1], out[2], jd[0]] {
        s.unroll(rv).unwrap();
    }
    s.vectorize(j[2]).unwrap();
    s.vectorize(jd[1]).unwrap();
    s.decompose_reduction(c, loops[2]).unwrap();
    assert_eq!(run(&s.func()), expected);
    let target = Target::host().with_cpu("x86-64-v3").unwrap();
    let lowered = lower(s.func(), &target).unwrap();
    assert_eq!(run(&lowered), expected);
    let trace: Trace = s.trace().to_string().parse().unwrap();
    let mut again = Schedule::new(func);
    trace.replay(&mut again).unwrap();
    assert_eq!(again.func().to_string(), s.func().to_string());
}
