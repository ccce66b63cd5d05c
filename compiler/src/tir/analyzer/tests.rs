//! Simplifications and proofs of typical index expressions.

use super::*;
use crate::ir::BufferSpec;
use crate::tir::BinaryOp;

/// `i` in 0..8, `j` in 0..4 and `k` in 0..16, a size `n`, and a variable `x` of unknown range.
struct Setup {
    analyzer: Analyzer,
    i: PrimExpr,
    j: PrimExpr,
    k: PrimExpr,
    n: PrimExpr,
    x: PrimExpr,
    data: PrimExpr,
    vars: [VarId; 5],
}

fn setup() -> Setup {
    let mut func = PrimFuncData::new("f");
    let n = func.dim("n");
    let vars = ["i", "j", "k", "m", "x"].map(|name| func.index_var(name));
    let buffer = func.input("data", DType::I64, BufferSpec::dense(&[4]));
    let mut analyzer = Analyzer::of(&func);
    analyzer.bind(vars[0], 0, 8);
    analyzer.bind(vars[1], 0, 4);
    analyzer.bind(vars[2], 0, 16);
    let [i, j, k, _, x] = vars.map(|var| func.var_expr(var));
    let data = func.load(buffer, [0]);
    Setup { analyzer, i, j, k, n, x, data, vars }
}

fn v(expr: &PrimExpr) -> PrimExpr {
    expr.clone()
}

/// Checks that two expressions simplify to the same one.
#[track_caller]
fn same(analyzer: &mut Analyzer, expr: PrimExpr, expected: PrimExpr) {
    let (left, right) = (analyzer.simplify(&expr), analyzer.simplify(&expected));
    assert_eq!(left, right, "\n{expr:?}");
}

#[test]
fn sums_are_sorted_and_cancel() {
    let Setup { mut analyzer, i, j, n, .. } = setup();
    let a = &mut analyzer;
    assert_eq!(a.simplify(&(v(&i) - v(&i))), PrimExpr::index(0));
    let sum = a.simplify(&((v(&i) + v(&j) * 8 + 3) * 2 - v(&i) - 10));
    let raw = |op, lhs, rhs| PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) };
    let product = raw(BinaryOp::Mul, v(&j), PrimExpr::index(16));
    let terms = raw(BinaryOp::Add, product, v(&i));
    assert_eq!(sum, raw(BinaryOp::Sub, terms, PrimExpr::index(4)));
    same(a, (v(&i) + 1) * v(&n) - v(&n), v(&n) * v(&i));
    same(a, v(&i).min(v(&j)) - v(&i).min(v(&j)), PrimExpr::index(0));
    // A factor that overflows: unchanged.
    let huge = v(&i) * i64::MAX * 2;
    assert_eq!(a.simplify(&huge), huge);
}

#[test]
fn divisions_are_split_along_blocks() {
    let Setup { mut analyzer, i, j, k, x, .. } = setup();
    let a = &mut analyzer;
    same(a, (v(&i) * 16 + v(&k)).floordiv(16), v(&i));
    same(a, (v(&i) * 16 + v(&k)).floormod(16), v(&k));
    same(a, (v(&i) * 4 + v(&j)).floormod(4), v(&j));
    same(a, (v(&i) * 12 + v(&k) * 4 + v(&j)).floordiv(4), v(&i) * 3 + v(&k));
    same(a, (v(&i) * 8 + v(&j) - 8).floordiv(4), v(&i) * 2 - 2);
    same(a, (v(&i) * 4 + v(&j)).floordiv(8), v(&i).floordiv(2));
    same(a, (v(&i) * 4 + v(&j)).floormod(8), v(&i).floormod(2) * 4 + v(&j));
    // j + 1 may be 4.
    let open = a.simplify(&(v(&i) * 8 + v(&j) + 9).floordiv(4));
    assert!(open.any(&mut |node| matches!(node, PrimExpr::Binary { op: BinaryOp::FloorDiv, .. })));
    same(a, (v(&k) * 17).floordiv(16), v(&k));
    // x may be data, whose products may wrap.
    let wraps = (v(&x) * 2).floordiv(2);
    assert_eq!(a.simplify(&wraps), wraps);
}

#[test]
fn digits_of_digits_and_adjacent_digits_are_merged() {
    let Setup { mut analyzer, x, i, n, .. } = setup();
    let a = &mut analyzer;
    for by in [4, 7] {
        same(a, v(&x).floordiv(by) * by + v(&x).floormod(by), v(&x));
    }
    same(a, v(&x).floordiv(4).floordiv(3), v(&x).floordiv(12));
    same(a, v(&x).floormod(12).floormod(4), v(&x).floormod(4));
    same(a, v(&x).floormod(16).floordiv(4) * 4 + v(&x).floormod(4), v(&x).floormod(16));
    same(a, v(&x).floordiv(4).floormod(4), v(&x).floormod(16).floordiv(4));
    same(
        a,
        v(&x).floordiv(16) * 16 + v(&x).floormod(16).floordiv(4) * 4 + v(&x).floormod(4),
        v(&x),
    );
    same(a, (v(&n).floordiv(4) + 3).floordiv(2), (v(&n) + 12).floordiv(8));
    // x may be data, so x + 12 may wrap.
    let apart = (v(&x).floordiv(4) + 3).floordiv(2);
    let kept = a.simplify(&apart);
    assert!(kept.any(&mut |node| *node == v(&x).floordiv(4)), "{kept:?}");
    same(a, v(&i).floordiv(8), PrimExpr::index(0));
    same(a, v(&i).floormod(12).floormod(4), v(&i).floormod(4));
}

#[test]
fn minima_and_comparisons_are_decided_by_bounds() {
    let Setup { mut analyzer, i, j, k, n, data, .. } = setup();
    let a = &mut analyzer;
    same(a, v(&i).max(0).min(7), v(&i));
    same(a, (v(&i) * 16 + v(&k)).min(128), v(&i) * 16 + v(&k));
    same(a, v(&n).min(7).min(5), v(&n).min(5));
    same(a, (v(&i) + v(&j)).less(11), PrimExpr::bool(true));
    same(a, (v(&n) + v(&i)).greater_equal(v(&i)), PrimExpr::bool(true));
    same(a, (v(&i) * 2).equal(v(&j) * 4 + 1), PrimExpr::bool(false));
    same(a, (v(&i) * 16 + v(&k)).less(64), v(&i).less(4));
    same(a, (v(&i) * 16 + v(&k)).less_equal(63), v(&i).less_equal(3));
    same(a, (v(&i) * 16 + v(&k)).greater_equal(64), v(&i).greater_equal(4));
    same(a, v(&i).less(4).and(v(&i).less(6)), v(&i).less(4));
    same(a, v(&i).less(6).and(v(&i).less(4)), v(&i).less(4));
    same(a, v(&i).less(6).or(v(&i).less(4)), v(&i).less(6));
    let choice = PrimExpr::select(v(&i).less(4), v(&i).min(5), v(&i).max(2));
    same(a, choice, PrimExpr::select(v(&i).less(4), v(&i), v(&i)));
    // The loaded value may be the greatest number.
    let wraps = v(&data).less(v(&data) + 1);
    assert_eq!(a.simplify(&wraps).as_int(), None);
    let lanes = PrimExpr::ramp(v(&i) * 16, 1, 16).less(PrimExpr::index(128).broadcast_to(16));
    assert!(a.can_prove(&lanes));
}

#[test]
fn facts_hold_in_their_scope() {
    let Setup { mut analyzer, i, j, k, n, x, vars, .. } = setup();
    let a = &mut analyzer;
    let goal = v(&i).less(5);
    assert!(!a.can_prove(&goal));
    a.scope(|a| {
        a.assume(&v(&i).less(5));
        assert!(a.can_prove(&goal));
        assert!(a.can_prove(&(v(&i) * 16 + v(&k)).less(80)));
        assert_eq!(a.const_int_bound(&i), (0, 4));
    });
    assert!(!a.can_prove(&goal));
    a.scope(|a| {
        a.assume(&(v(&i) * 4 + v(&j)).less(10));
        assert!(a.can_prove(&v(&i).less(3)));
        assert_eq!(a.const_int_bound(&(v(&i) * 4 + v(&j))), (0, 9));
        a.assume(&v(&i).equal(1));
        same(a, v(&i) * 8, PrimExpr::index(8));
    });
    // A loop over a size, split by 16.
    a.scope(|a| {
        a.bind(vars[3], 0, (v(&n) + 15).floordiv(16));
        let m = PrimExpr::var(vars[3], DType::I64);
        assert!(a.can_prove(&(v(&m) * 16).less(v(&n))));
        assert!(!a.can_prove(&(v(&m) * 16 + v(&k)).less(v(&n))));
        a.assume(&(v(&m) * 16 + 15).less(v(&n)));
        assert!(a.can_prove(&(v(&m) * 16 + v(&k)).less(v(&n))));
    });
    a.scope(|a| {
        a.assume(&v(&n).floormod(4).equal(2));
        assert_eq!(a.modular_set(&n), Modular::new(4, 2));
        assert_eq!(a.modular_set(&(v(&n) + v(&i) * 4)), Modular::new(4, 2));
        assert!(a.can_prove(&v(&n).floormod(2).equal(0)));
        same(a, (v(&n) + v(&j)).floormod(4), (v(&j) + 2).floormod(4));
        same(a, (v(&n) + 1).floordiv(4), (v(&n) - 2).floordiv(4));
        assert_eq!(a.modular_set(&(v(&x) + 4)), Modular::ALL);
    });
    a.scope(|a| {
        a.assume(&v(&i).greater(5));
        a.assume(&v(&i).less(3));
        assert!(a.is_contradiction());
    });
    assert!(!a.is_contradiction());
}

#[test]
fn the_guard_of_an_even_split_bounds_its_indices() {
    let Setup { mut analyzer, vars, .. } = setup();
    let a = &mut analyzer;
    let [io, ii] = [vars[0], vars[1]];
    a.bind(io, 0, 22);
    a.bind(ii, 0, 6);
    let [io, ii] = [io, ii].map(|var| PrimExpr::var(var, DType::I64));
    // 128 in 22 parts: 18 of 6 and 4 of 5.
    let index = v(&io) * 5 + v(&io).min(18) + v(&ii);
    let guard = v(&io).less(18).or(v(&ii).less(5));
    assert!(!a.can_prove(&v(&index).less(128)));
    a.scope(|a| {
        a.assume(&guard);
        assert!(a.can_prove(&v(&index).less(128)));
        assert!(!a.can_prove(&v(&index).less(127)));
    });
    assert!(a.can_prove(&v(&io).less(18).or(v(&io).greater_equal(18))));
    a.scope(|a| {
        a.assume_not(&v(&io).less(18));
        same(a, v(&index), v(&io) * 5 + v(&ii) + 18);
    });
}

#[test]
fn quotients_and_remainders_of_symbolic_blocks_are_simplified() {
    let Setup { mut analyzer, n, i, vars, .. } = setup();
    let a = &mut analyzer;
    a.bind(vars[3], 0, v(&n));
    let m = PrimExpr::var(vars[3], DType::I64);
    same(a, (v(&i) * v(&n) + v(&m)).floordiv(v(&n)), v(&i));
    same(a, (v(&i) * v(&n) + v(&m)).floormod(v(&n)), v(&m));
    assert!(a.can_prove(&v(&m).less(v(&n))));
    assert!(a.can_prove(&(v(&i) * v(&n) + v(&m)).less(v(&n) * 8)));
}

#[test]
fn vectors_of_indices_split_into_block_and_lane() {
    let Setup { mut analyzer, i, .. } = setup();
    let a = &mut analyzer;
    let at = |base: PrimExpr| PrimExpr::ramp(base, 1, 16);
    same(a, at(v(&i) * 16).floordiv(16), v(&i).broadcast_to(16));
    same(a, at(v(&i) * 16).floormod(16), at(PrimExpr::index(0)));
    // Half a block: the block's number is unknown, but all lanes are in the same block.
    let half = |i: PrimExpr| PrimExpr::ramp(i * 8 + 24, 1, 8);
    same(a, half(v(&i)).floordiv(16), (v(&i) * 8 + 24).floordiv(16).broadcast_to(8));
    same(a, half(v(&i)).floormod(16), PrimExpr::ramp((v(&i) * 8 + 8).floormod(16), 1, 8));
    // A base that may be anywhere in a block.
    let across = PrimExpr::ramp(v(&i) * 4, 1, 8).floordiv(16);
    assert_eq!(a.simplify(&across), across);
    assert_eq!(a.const_int_bound(&at(v(&i) * 16)), (0, 127));
}

#[test]
fn expressions_that_are_no_index_have_bounds() {
    let Setup { mut analyzer, data, .. } = setup();
    let a = &mut analyzer;
    assert_eq!(a.const_int_bound(&data), (i64::MIN, i64::MAX));
    assert_eq!(a.const_int_bound(&v(&data).cast(DType::U8).cast(DType::I64)), (0, 255));
    assert_eq!(a.const_int_bound(&v(&data).floormod(10)), (0, 9));
    let small = v(&data).cast(DType::U8).cast(DType::I64) * 4 + 3;
    same(a, small.floordiv(4), v(&data).cast(DType::U8).cast(DType::I64));
    assert_eq!(a.const_int_bound(&PrimExpr::bool(true)), (1, 1));
}
