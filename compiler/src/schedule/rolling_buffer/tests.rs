//! Rows that stay in the buffer for the next iteration.

use super::super::Schedule;
use super::super::tests::{check, refusal};
use crate::ir::DType;
use crate::te;
use crate::tir::{PrimExpr, PrimFunc};

/// A block that computes 10 rows, and one that adds up three of them for each row of its result.
fn stencil() -> PrimFunc {
    let mut te = te::Builder::new("stencil");
    let x = te.placeholder("X", [10, 6], DType::F32);
    let p = te.compute("P", [10, 6], |[i, j]| x.at([i, j]) * te::f32(2.0));
    let y = te.compute("Y", [8, 6], |[i, j]| {
        let row = |offset: i64| p.at([i + offset, PrimExpr::from(j)]);
        row(0) + row(1) + row(2)
    });
    te.prim_func(&[x, y]).unwrap()
}

#[test]
fn an_iteration_computes_one_new_row() {
    let func = stencil();
    let mut s = Schedule::new(func.clone());
    let [p, y] = ["P", "Y"].map(|name| s.get_block(name).unwrap());
    let [i, j] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    s.compute_at(p, i).unwrap();
    s.rolling_buffer(p, 0).unwrap();
    let buffer = s.func().buffers.values().find(|buffer| buffer.name == "P").cloned().unwrap();
    assert_eq!(buffer.shape(), [3, 6]);
    check(&func, &s);
    s.vectorize(j).unwrap();
    check(&func, &s);
    assert_eq!(
        refusal(s.parallel(i)),
        "the iterations of loop `i` depend on each other by the rolling buffer `P`; change the \
         loop before rolling_buffer"
    );
}

#[test]
fn iterations_that_do_not_overlap_are_refused() {
    let mut s = Schedule::new(stencil());
    let [p, y] = ["P", "Y"].map(|name| s.get_block(name).unwrap());
    assert_eq!(
        refusal(s.rolling_buffer(p, 0)),
        "block `P` is in no loop with all that reads `P`; use compute_at before"
    );
    assert_eq!(refusal(s.rolling_buffer(y, 0)), "`Y` is not dense local memory");
    let [i, j] = s.get_loops(y).unwrap()[..] else { panic!("two loops") };
    s.reorder(&[j, i]).unwrap();
    s.compute_at(p, j).unwrap();
    assert_eq!(
        refusal(s.rolling_buffer(p, 0)),
        "an iteration of loop `j` reads 1 of 6 along axis 1 of `P` and the next one begins 1 \
         further: nothing would be kept"
    );
}
