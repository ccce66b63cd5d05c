//! Layouts chosen by schedules.

use super::super::tests::{check, matmul, refusal};
use super::super::{BufferAccess, Schedule};
use crate::ir::BufferSpec;
use crate::tir::BufferScope;

#[test]
fn a_constant_is_read_in_panels() {
    let func = matmul(5, 32, 7);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let panels = BufferSpec::packed(&[7, 32], &[(1, 16), (0, 1), (1, 1)]);
    s.transform_layout(c, BufferAccess::Read(1), &panels).unwrap();
    let loops = s.get_loops(c).unwrap();
    let j = s.split(loops[1], [None, Some(16)]).unwrap();
    s.reorder(&[j[0], loops[0], loops[2], j[1]]).unwrap();
    s.vectorize(j[1]).unwrap();
    assert_eq!(
        s.trace().steps[1].to_string(),
        r#"transform_layout(b0, "read", 1, "[7, 32]{dims=1:16 0:1 1:1}")"#
    );
    check(&func, &s);
}

#[test]
fn local_memory_and_outputs_are_laid_out() {
    let func = matmul(5, 10, 7);
    let mut s = Schedule::new(func.clone());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    let columns = BufferSpec::packed(&[5, 10], &[(1, 1), (0, 1)]);
    s.transform_layout(c, BufferAccess::Write(0), &columns).unwrap();
    let padded = BufferSpec::packed(&[5, 10], &[(1, 4), (0, 1), (1, 1)]);
    s.transform_layout(d, BufferAccess::Write(0), &padded).unwrap();
    check(&func, &s);
}

#[test]
fn layouts_of_another_shape_or_with_a_halo_are_refused() {
    let mut s = Schedule::new(matmul(4, 8, 4));
    let c = s.get_block("C").unwrap();
    let mut refused = |access, spec| refusal(s.transform_layout(c, access, &spec));
    assert_eq!(
        refused(BufferAccess::Read(0), BufferSpec::dense(&[4, 5])),
        "the layout is one of shape [4, 5], and `A` has [4, 4]; a layout does not change indices"
    );
    assert_eq!(
        refused(BufferAccess::Read(2), BufferSpec::dense(&[4, 8])),
        "block `C` reads 2 buffers; there is no number 2"
    );
    assert_eq!(
        refused(BufferAccess::Write(0), BufferSpec::dense(&[4, 8]).with_halo(0, 1, 0)),
        "nothing sets a halo of `C` to zero, as it is no parameter; let a block write the zeros, \
         as decompose_padding does"
    );
    assert_eq!(
        refused(BufferAccess::Read(1), BufferSpec::packed(&[4, 8], &[(0, 1), (1, 2)])),
        "layout [4, 8]{dims=0:1 1:2}: the steps of axis 1 are [2]; each must divide the one \
         before and the last must be 1"
    );
}

#[test]
fn a_layout_without_the_padding_that_is_read_is_refused() {
    let mut s = Schedule::new(matmul(4, 10, 4));
    let c = s.get_block("C").unwrap();
    let panels = BufferSpec::packed(&[4, 10], &[(1, 8), (0, 1), (1, 1)]);
    s.transform_layout(c, BufferAccess::Read(1), &panels).unwrap();
    s.pad_einsum(c, &[1, 8, 1]).unwrap();
    let dense = BufferSpec::dense(&[4, 10]);
    assert_eq!(
        refusal(s.transform_layout(c, BufferAccess::Read(1), &dense)),
        "block `C` reads `B` from 0 to 15 along axis 1, and the layout has 0 to 9: it needs the \
         halo or padding lanes that were there"
    );
    assert_eq!(
        refusal(s.cache_read(c, 1, BufferScope::Local)),
        "block `C` reads padding of `B`, which a copy would not have; use cache_read before \
         pad_einsum, and transform_layout on the copy"
    );
}

#[test]
fn storage_align_sets_the_stride_of_rows() {
    let func = matmul(5, 10, 7);
    let mut s = Schedule::new(func.clone());
    let [c, d] = ["C", "D"].map(|name| s.get_block(name).unwrap());
    s.storage_align(c, 0, 0, 16, 1).unwrap();
    let buffer = s.func().buffers.values().find(|buffer| buffer.name == "C").cloned().unwrap();
    assert_eq!(buffer.spec.strides(), [17, 1]);
    check(&func, &s);
    assert_eq!(
        refusal(s.storage_align(d, 0, 0, 16, 0)),
        "`D` is a parameter; transform_layout gives it strides"
    );
    assert_eq!(
        refusal(s.storage_align(c, 0, 0, 16, 16)),
        "16 is not a remainder of a division by 16"
    );
    assert_eq!(refusal(s.storage_align(c, 0, 2, 16, 0)), "axis 2 of `C` is missing or has blocks");
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    assert_eq!(refusal(s.storage_align(c, 0, 0, 16, 0)), "`C` is in registers, without strides");
}
