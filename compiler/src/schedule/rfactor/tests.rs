//! Reductions divided into independent parts.

use super::super::Schedule;
use super::super::tests::{check, matmul, refusal};
use crate::ir::DType;
use crate::te;
use crate::tir::PrimFunc;

/// A reduction of small integers, whose sums are exact in any order.
fn rows(n: i64) -> PrimFunc {
    let mut te = te::Builder::new("rows");
    let x = te.placeholder("X", [3, n], DType::F32);
    let k = te.reduce_axis("k", n);
    let y = te.compute("Y", [3], |[i]| te::sum(x.at([i, k]), [k]));
    te.prim_func(&[x, y]).unwrap()
}

#[test]
fn each_lane_has_a_partial_sum() {
    let func = rows(32);
    let mut s = Schedule::new(func.clone());
    let y = s.get_block("Y").unwrap();
    let [_, k] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    let [_, lane] = s.split(k, [None, Some(8)]).unwrap();
    let parts = s.rfactor(lane, 1).unwrap();
    let lane = *s.get_loops(parts).unwrap().last().unwrap();
    s.vectorize(lane).unwrap();
    assert_eq!(s.get_loops(y).unwrap().len(), 2);
    check(&func, &s);
}

#[test]
fn with_one_loop_each_part_is_one_term() {
    let func = rows(6);
    let mut s = Schedule::new(func.clone());
    let y = s.get_block("Y").unwrap();
    let [_, k] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    s.rfactor(k, 0).unwrap();
    check(&func, &s);
}

#[test]
fn products_of_fused_multiply_adds_are_split_too() {
    let func = matmul(3, 4, 8);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let [.., k] = s.get_loops(c).unwrap()[..] else { panic!("three loops") };
    let [outer, _] = s.split(k, [Some(2), None]).unwrap();
    s.rfactor(outer, 0).unwrap();
    check(&func, &s);
}

#[test]
fn loops_that_are_no_reduction_of_one_block_are_refused() {
    let mut s = Schedule::new(rows(10));
    let y = s.get_block("Y").unwrap();
    let [i, k] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    assert_eq!(refusal(s.rfactor(i, 0)), "block `Y` does not reduce along loop `i` alone");
    assert_eq!(refusal(s.rfactor(k, 2)), "there is no place 2 among 1 axes");
    let [outer, inner] = s.split(k, [None, Some(4)]).unwrap();
    assert_eq!(
        refusal(s.rfactor(inner, 0)),
        "block `Y` runs under a condition on loop `k_0`; split the reduction by a divisor"
    );
    s.unroll(outer).unwrap();
    assert_eq!(
        refusal(s.rfactor(inner, 0)),
        "loop `k_0` is unrolled already; change its kind last"
    );

    let mut s = Schedule::new(rows(8));
    let y = s.get_block("Y").unwrap();
    let [i, k] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    s.decompose_reduction(y, k).unwrap();
    assert_eq!(
        refusal(s.rfactor(k, 0)),
        "loop `i` is around other blocks than `Y`; use rfactor before compute_at"
    );
    assert_eq!(refusal(s.rfactor(i, 0)), "loop `i` is not around one block");
}
