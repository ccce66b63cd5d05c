//! Tiles that reach beyond the needed extents.

use super::super::tests::{check, matmul, refusal};
use super::super::{BufferAccess, Schedule};
use crate::ir::{BufferSpec, DType};
use crate::te;
use crate::tir::{BlockRealize, BufferScope, PrimFunc, Stmt};

fn panels(k: i64, n: i64, width: i64) -> BufferSpec {
    BufferSpec::packed(&[k, n], &[(1, width), (0, 1), (1, 1)])
}

fn predicate(func: &PrimFunc, wanted: &str) -> Option<i64> {
    let mut found = None;
    func.body.walk(&mut |stmt| {
        if let Stmt::BlockRealize(block) = stmt
            && let BlockRealize { name, predicate, .. } = &**block
            && name == wanted
        {
            found = predicate.as_int();
        }
    });
    found
}

#[test]
fn the_last_panel_is_whole_and_the_copy_is_not() {
    let func = matmul(6, 20, 5);
    let mut s = Schedule::new(func.clone());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    s.transform_layout(c, BufferAccess::Read(1), &panels(5, 20, 16)).unwrap();
    let loops = s.get_loops(c).unwrap();
    let j = s.split(loops[1], [None, Some(16)]).unwrap();
    s.reorder(&[j[0], loops[0], loops[2], j[1]]).unwrap();
    assert_eq!(predicate(&s.func(), "C"), None);
    s.pad_einsum(c, &[1, 16, 1]).unwrap();
    assert_eq!(predicate(&s.func(), "C"), Some(1));
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    s.reverse_compute_at(d, loops[0]).unwrap();
    assert_eq!(predicate(&s.func(), "D"), None);
    s.vectorize(j[1]).unwrap();
    s.decompose_reduction(c, loops[2]).unwrap();
    check(&func, &s);
}

#[test]
fn loops_grow_with_the_block() {
    let func = matmul(6, 20, 5);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    s.transform_layout(c, BufferAccess::Read(1), &panels(5, 20, 16)).unwrap();
    let rows = BufferSpec::packed(&[6, 5], &[(0, 4), (1, 1), (0, 1)]);
    s.transform_layout(c, BufferAccess::Read(0), &rows).unwrap();
    s.pad_einsum(c, &[4, 16, 1]).unwrap();
    check(&func, &s);
}

#[test]
fn a_reduction_goes_on_in_the_halo() {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [3, 6], DType::U8);
    let b = te.constant("B", [6, 8], DType::I8);
    let k = te.reduce_axis("k", 6);
    let c = te.compute("C", [3, 8], |[i, j]| {
        te::sum(a.at([i, k]).cast(DType::I32) * b.at([k, j]).cast(DType::I32), [k])
    });
    let d = te.compute("D", [3, 8], |[i, j]| c.at([i, j]));
    let func = te.prim_func(&[a, b, d]).unwrap();
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let lanes = BufferSpec::packed(&[3, 6], &[(0, 1), (1, 4), (1, 1)]);
    s.transform_layout(c, BufferAccess::Read(0), &lanes).unwrap();
    let fours = BufferSpec::packed(&[6, 8], &[(0, 4), (1, 1), (0, 1)]);
    s.transform_layout(c, BufferAccess::Read(1), &fours).unwrap();
    assert_eq!(
        refusal(s.pad_einsum(c, &[1, 1, 4])),
        "block `C` must add zero where `vk` is 6 or more: give what it multiplies a halo of 2 \
         after that axis (padding lanes may hold anything)"
    );
    s.transform_layout(c, BufferAccess::Read(1), &fours.with_halo(0, 0, 2)).unwrap();
    s.pad_einsum(c, &[1, 1, 4]).unwrap();
    check(&func, &s);
}

#[test]
fn padding_of_parameters_and_of_unpadded_inputs_is_refused() {
    let func = matmul(6, 20, 5);
    let mut s = Schedule::new(func);
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    assert_eq!(
        refusal(s.pad_einsum(c, &[1, 16, 1])),
        "block `C` would read `B` up to 31 along axis 1, which has elements and padding up to 19; \
         give it padding lanes by transform_layout"
    );
    assert_eq!(
        refusal(s.pad_einsum(d, &[1, 16])),
        "`D` is a parameter, whose size is the caller's; use cache_write first: the copy keeps \
         the condition"
    );
    assert_eq!(
        refusal(s.pad_einsum(c, &[16, 1])),
        "block `C` has 3 variables; there are 2 multiples"
    );
    assert_eq!(refusal(s.pad_einsum(c, &[1, 0, 1])), "a multiple is not positive");
    s.transform_layout(c, BufferAccess::Read(1), &panels(5, 20, 16)).unwrap();
    let loops = s.get_loops(c).unwrap();
    s.split(loops[1], [None, Some(8)]).unwrap();
    assert_eq!(
        refusal(s.pad_einsum(c, &[1, 16, 1])),
        "the loops give `vj` values up to 23, and not up to 31; split its loop by a divisor of \
         the multiple"
    );
    let columns = BufferSpec::packed(&[6, 20], &[(1, 1), (0, 1)]);
    s.transform_layout(c, BufferAccess::Write(0), &columns).unwrap();
    assert_eq!(
        refusal(s.pad_einsum(c, &[1, 8, 1])),
        "`C` has a layout for its size; use transform_layout afterwards"
    );
}

#[test]
fn a_loop_around_other_blocks_does_not_grow() {
    let mut s = Schedule::new(matmul(6, 20, 5));
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let loops = s.get_loops(c).unwrap();
    s.reverse_compute_at(d, loops[0]).unwrap();
    assert_eq!(
        refusal(s.pad_einsum(c, &[4, 1, 1])),
        "loop `i` would have to grow, and block `D` is in it; split the loop by the multiple first"
    );
}
