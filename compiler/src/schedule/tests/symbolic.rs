//! Primitives on loops and tensors with symbolic extents: effects and refusals.

use super::refusal;
use crate::ir::{BufferSpec, DType};
use crate::schedule::{BufferAccess, Schedule, TensorIntrin};
use crate::te;
use crate::tir::{BufferScope, PrimExpr, PrimFunc};

/// A matrix product with symbolic extents, and a block that reads each of its elements.
fn matmul() -> PrimFunc {
    let mut te = te::Builder::new("matmul");
    let [m, k, n] = ["m", "k", "n"].map(|name| te.size_var(name));
    let a = te.placeholder("A", [m, k], DType::F32);
    let b = te.placeholder("B", [k, n], DType::F32);
    let r = te.reduce_axis("r", k);
    let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
    let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
    te.prim_func(&[a, b, d]).unwrap()
}

#[test]
fn a_multiple_of_the_factor_needs_no_condition() {
    let mut te = te::Builder::new("add");
    let n = te.size_var("n");
    let x = te.placeholder("X", [n * 8], DType::F32);
    let y = te.compute("Y", [n * 8], |[i]| x.at([i]) + te::f32(1.0));
    let mut s = Schedule::new(te.prim_func(&[x, y]).unwrap());
    let y = s.get_block("Y").unwrap();
    let i = s.get_loops(y).unwrap()[0];
    let [outer, inner] = s.split(i, [None, Some(4)]).unwrap();
    let text = s.func().to_string();
    assert!(text.contains("in serial(n * 2)") && !text.contains("where"), "{text}");
    assert_eq!(s.get_extent(inner).unwrap(), 4);
    let message = refusal(s.get_extent(outer));
    assert!(message.contains("no constant extent"), "{message}");
}

#[test]
fn a_copy_of_a_tile_is_as_large_as_the_tile() {
    let mut s = Schedule::new(matmul());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let copy = s.cache_read(c, 0, BufferScope::Local).unwrap();
    let [i, j] = s.get_loops(d).unwrap()[..] else { unreachable!("two loops") };
    let [i0, _, _, _] = s.tile(i, j, [4, 8]).unwrap();
    s.compute_at(c, i0).unwrap();
    s.compute_at(copy, i0).unwrap();
    let text = s.func().to_string();
    // Four rows, or as many as are left, and all of each row.
    let copy = "    for _0 in serial(4) {
      for _1 in serial(k) {
        block \"A_local\"(v0: spatial(m) = i_0 * 4 + _0, v1: spatial(k) = _1) where i_0 * 4 + _0 < m {
          A_local[v0, v1] = A[v0, v1]
";
    assert!(text.contains(copy), "{text}");
    assert!(
        text.contains("vj: spatial(n) = j, vr: reduce(k) = r) where i_0 * 4 + i < m"),
        "{text}"
    );
}

#[test]
fn primitives_that_need_constant_extents_name_the_symbolic_one() {
    let mut s = Schedule::new(matmul());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let [i, j, k] = s.get_loops(c).unwrap()[..] else { unreachable!("three loops") };
    let pin = "`i` has the extent m, which is not constant";
    for message in [refusal(s.vectorize(i)), refusal(s.unroll(i)), refusal(s.split_even(i, 4))] {
        assert!(message.contains(pin) && message.contains("pin the dimension"), "{message}");
    }
    let message = refusal(s.split(i, [Some(2), Some(4)]));
    assert_eq!(
        message,
        "8 iterations do not cover the m of loop `i`; leave a factor to be computed"
    );
    let layout = BufferSpec::dense(&[4, 4]);
    for message in [
        refusal(s.transform_layout(c, BufferAccess::Read(0), &layout)),
        refusal(s.prefetch(c, BufferAccess::Read(0), k, 1, 3)),
    ] {
        assert!(message.contains("the extents m, k of `A` are not constant"), "{message}");
    }
    for message in [refusal(s.storage_align(c, 0, 0, 16, 1)), refusal(s.rolling_buffer(c, 0))] {
        assert!(message.contains("the extents m, n of `C` are not constant"), "{message}");
    }
    let message = refusal(s.pad_einsum(c, &[4, 4, 1]));
    assert!(message.contains("has the extent m, which is not constant: pin"), "{message}");
    let dot = TensorIntrin::get("dot_u8i8i32_16").unwrap();
    let message = refusal(s.tensorize(j, &dot));
    assert!(message.contains("begins loops of [n, k]"), "{message}");
    let [_, j] = s.get_loops(d).unwrap()[..] else { unreachable!("two loops") };
    assert!(s.parallel(j).is_ok());
}

#[test]
fn padding_of_an_unknown_width_is_refused() {
    let mut te = te::Builder::new("pad");
    let n = te.size_var("n");
    let x = te.placeholder("X", [n], DType::F32);
    let p = te.compute("P", [n + 2], |[i]| {
        let inside = PrimExpr::from(i).greater(0).and(PrimExpr::from(i).less(4));
        PrimExpr::select(inside, x.at([i - 1]), te::f32(0.0))
    });
    let mut s = Schedule::new(te.prim_func(&[x, p]).unwrap());
    let p = s.get_block("P").unwrap();
    let i = s.get_loops(p).unwrap()[0];
    let message = refusal(s.decompose_padding(p, i));
    assert!(message.contains("has the extent n + 2, which is not constant: pin"), "{message}");
}

#[test]
fn constants_have_constant_extents() {
    let mut te = te::Builder::new("scale");
    let n = te.size_var("n");
    let w = te.constant("W", [n], DType::F32);
    let y = te.compute("Y", [n], |[i]| w.at([i]) * te::f32(2.0));
    let error = te.prim_func(&[w, y]).unwrap_err().to_string();
    assert_eq!(error, "the extents of `W` must be constant");
}
