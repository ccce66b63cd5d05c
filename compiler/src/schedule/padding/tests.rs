//! Borders separated from the inside.

use super::super::Schedule;
use super::super::tests::{check, matmul, refusal};
use crate::ir::{BufferSpec, DType};
use crate::te;
use crate::tir::{PrimExpr, PrimFunc, Stmt};

/// A row with two zeros before and one after, and a block that doubles its elements.
fn padded() -> PrimFunc {
    let mut te = te::Builder::new("pad");
    let x = te.placeholder("X", [3, 9], DType::F32);
    let p = te.compute("P", [3, 12], |[i, j]| {
        let inside = PrimExpr::from(j).greater_equal(2).and(PrimExpr::from(j).less(11));
        PrimExpr::select(inside, x.at([PrimExpr::from(i), j - 2]), te::f32(0.0))
    });
    let y = te.compute("Y", [3, 12], |[i, j]| p.at([i, j]) * te::f32(2.0));
    te.prim_func(&[x, y]).unwrap()
}

#[test]
fn the_inside_is_copied_without_a_condition() {
    let func = padded();
    let mut s = Schedule::new(func.clone());
    let p = s.get_block("P").unwrap();
    let [i, j] = s.get_loops(p).unwrap()[..] else { panic!("two loops") };
    let fill = s.decompose_padding(p, i).unwrap();
    assert_eq!(s.get_extent(j).unwrap(), 9);
    let lane = *s.get_loops(fill).unwrap().last().unwrap();
    assert_eq!(s.get_extent(lane).unwrap(), 12);
    let mut selects = 0;
    s.func().body.walk_exprs(&mut |expr| {
        selects += usize::from(matches!(expr, PrimExpr::Select { .. }));
    });
    assert_eq!(selects, 0);
    s.vectorize(lane).unwrap();
    check(&func, &s);
}

#[test]
fn loops_that_are_split_keep_a_condition() {
    let func = padded();
    let mut s = Schedule::new(func.clone());
    let p = s.get_block("P").unwrap();
    let [_, j] = s.get_loops(p).unwrap()[..] else { panic!("two loops") };
    let [outer, _] = s.split(j, [None, Some(4)]).unwrap();
    s.decompose_padding(p, outer).unwrap();
    let mut guarded = 0;
    s.func().body.walk(&mut |stmt| {
        if let Stmt::BlockRealize(block) = stmt {
            guarded += usize::from(block.predicate.as_int().is_none());
        }
    });
    assert_eq!(guarded, 1);
    check(&func, &s);
}

#[test]
fn blocks_that_do_not_pad_are_refused() {
    let mut s = Schedule::new(matmul(3, 4, 5));
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let (of_c, of_d) = (s.get_loops(c).unwrap(), s.get_loops(d).unwrap());
    assert_eq!(
        refusal(s.decompose_padding(d, of_d[0])),
        "block `D` does not choose between an element and a constant"
    );
    assert_eq!(refusal(s.decompose_padding(d, of_c[0])), "block `D` is not in loop `i`");

    let mut te = te::Builder::new("triangle");
    let x = te.placeholder("X", [4, 4], DType::F32);
    let y = te.compute("Y", [4, 4], |[i, j]| {
        PrimExpr::select(PrimExpr::from(i).less(j), x.at([i, j]), te::f32(0.0))
    });
    let mut s = Schedule::new(te.prim_func(&[x, y]).unwrap());
    let y = s.get_block("Y").unwrap();
    let loops = s.get_loops(y).unwrap();
    assert_eq!(
        refusal(s.decompose_padding(y, loops[0])),
        "the condition of block `Y` on `vi`, `vj` is not bounds of single variables"
    );
}

/// The padded row, of a parameter whose layout has so many zeros before and after each row.
fn with_halo(before: i64, after: i64) -> Schedule {
    let mut func = padded().into_data();
    let x = func.params[0].buffer;
    func.buffers[x].spec = BufferSpec::dense(&[3, 9]).with_halo(1, before, after);
    Schedule::new(PrimFunc::new(func))
}

#[test]
fn zeros_of_the_layout_are_read_without_a_condition() {
    let mut s = with_halo(2, 1);
    let before = s.func();
    let p = s.get_block("P").unwrap();
    s.read_halo(p).unwrap();
    let mut selects = 0;
    s.func().body.walk_exprs(&mut |expr| {
        selects += usize::from(matches!(expr, PrimExpr::Select { .. }));
    });
    assert_eq!(selects, 0);
    s.compute_inline(p).unwrap();
    check(&before, &s);
}

#[test]
fn a_halo_that_is_too_small_or_no_zeros_is_refused() {
    let message = |mut s: Schedule| {
        let p = s.get_block("P").unwrap();
        refusal(s.read_halo(p))
    };
    let few = message(with_halo(1, 1));
    assert!(few.contains("has 1 and 1 zeros around axis 1; 2 and 1 are read"), "{few}");
    // What is left out is inside of the parameter.
    let mut te = te::Builder::new("mask");
    let x = te.placeholder("X", [9], DType::F32);
    let p = te.compute("P", [9], |[i]| {
        let inside = PrimExpr::from(i).greater_equal(2);
        PrimExpr::select(inside, x.at([i]), te::f32(0.0))
    });
    let mask = message(Schedule::new(te.prim_func(&[x, p]).unwrap()));
    assert!(mask.contains("what is zero along axis 0 is not what is outside"), "{mask}");
    let ones = te.compute("P", [11], |[i]| {
        let inside = PrimExpr::from(i).less(9);
        PrimExpr::select(inside, x.at([i]), te::f32(1.0))
    });
    let ones = message(Schedule::new(te.prim_func(&[x, ones]).unwrap()));
    assert!(ones.contains("does not pad a parameter with zero"), "{ones}");
}
