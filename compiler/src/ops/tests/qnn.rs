//! Quantisation, with values computed by hand.

use super::{call, check, floats};
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ops::qnn::{
    DEQUANTIZE, DEQUANTIZE_MATMUL, DequantizeAttrs, DequantizeMatmulAttrs, QUANTIZE, QuantizeAttrs,
    REQUANTIZE, RequantizeAttrs,
};

fn ints(dtype: DType, shape: &[usize], values: &[i128]) -> Tensor {
    Tensor::from_ints(dtype, shape, values.to_vec()).unwrap()
}

fn to(dtype: DType) -> QuantizeAttrs {
    QuantizeAttrs { axis: 1, block_size: 0, dtype, precision: None, saturate: true }
}

#[test]
fn quotients_are_rounded_to_even_moved_and_cut_off() {
    let x = floats(&[2, 3], &[0.25, 0.75, f64::NAN, -1e30, 1e30, -3.0]);
    let args = [x, floats(&[], &[0.5]), ints(DType::I8, &[], &[10])];
    check(&QUANTIZE, &to(DType::I8), &args, &[2, 3], &[10.0, 12.0, 0.0, -128.0, 127.0, 4.0]);
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0]);
    let args = [x, floats(&[3], &[0.5, 1.0, 0.125])];
    check(&QUANTIZE, &to(DType::I4), &args, &[2, 3], &[2.0, 2.0, 7.0, -2.0, -2.0, -8.0]);
}

#[test]
fn blocks_of_neighbours_have_one_scale() {
    let x = ints(DType::U8, &[2, 5], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let scale = floats(&[2, 3], &[1.0, 10.0, 100.0, 2.0, 20.0, 200.0]);
    let zero = ints(DType::U8, &[2, 3], &[0, 1, 2, 3, 4, 5]);
    let attrs = DequantizeAttrs { axis: -1, block_size: 2, dtype: DType::F32 };
    let expected = [1.0, 2.0, 20.0, 30.0, 300.0, 6.0, 8.0, 80.0, 100.0, 1000.0];
    check(&DEQUANTIZE, &attrs, &[x, scale, zero], &[2, 5], &expected);
}

#[test]
fn products_with_blocks_are_those_of_what_they_stand_for() {
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 0.0, -1.0, 0.5]);
    // In blocks of two: (1 - 1) · 1, (2 - 1) · 1, (3 - 0) · 10 and (4 - 2) · 2, (5 - 2) · 2, (6 - 3) · 20.
    let weight = ints(DType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let scale = floats(&[2, 2], &[1.0, 10.0, 2.0, 20.0]);
    let zero = ints(DType::U8, &[2, 2], &[1, 0, 2, 3]);
    let attrs = DequantizeMatmulAttrs { transpose_b: true, block_size: 2, bits: 8 };
    let expected = [92.0, 196.0, 14.0, 24.0];
    check(&DEQUANTIZE_MATMUL, &attrs, &[x.clone(), weight, scale, zero], &[2, 2], &expected);
    let weight = ints(DType::I8, &[3, 1], &[-1, 2, 3]);
    let attrs = DequantizeMatmulAttrs { transpose_b: false, block_size: 2, bits: 8 };
    let scale = floats(&[2, 1], &[1.0, 10.0]);
    check(&DEQUANTIZE_MATMUL, &attrs, &[x, weight, scale], &[2, 1], &[93.0, 13.0]);
}

#[test]
fn two_neighbours_may_share_a_byte() {
    let x = floats(&[1, 4], &[1.0, 2.0, 3.0, -1.0]);
    // (1 - 1) · 1, (2 - 1) · 1, (15 - 0) · 10, (4 - 0) · 10, and the same twice as large.
    let scale = floats(&[2, 2], &[1.0, 2.0, 10.0, 20.0]);
    let zero = ints(DType::U8, &[2, 2], &[1, 1, 0, 0]);
    let weight = ints(DType::U8, &[2, 2], &[0x21, 0x21, 0x4f, 0x4f]);
    let attrs = DequantizeMatmulAttrs { transpose_b: false, block_size: 2, bits: 4 };
    let args = [x.clone(), weight, scale, zero];
    check(&DEQUANTIZE_MATMUL, &attrs, &args, &[1, 2], &[412.0, 824.0]);
    let scale = floats(&[2, 2], &[1.0, 10.0, 2.0, 20.0]);
    let zero = ints(DType::U8, &[2, 2], &[1, 0, 1, 0]);
    let weight = ints(DType::U8, &[2, 2], &[0x21, 0x4f, 0x21, 0x4f]);
    let attrs = DequantizeMatmulAttrs { transpose_b: true, ..attrs };
    check(&DEQUANTIZE_MATMUL, &attrs, &[x, weight, scale, zero], &[1, 2], &[412.0, 824.0]);
}

#[test]
fn floats_of_eight_bits_saturate_if_they_are_told_to() {
    let args = [floats(&[3], &[1000.0, -9.0, 3.1]), floats(&[], &[0.01])];
    let saturating = to(DType::F8E4M3FN);
    check(&QUANTIZE, &saturating, &args, &[3], &[448.0, -448.0, 320.0]);
    let plain = QuantizeAttrs { saturate: false, ..saturating };
    check(&QUANTIZE, &plain, &args, &[3], &[f64::NAN, f64::NAN, 320.0]);
}

#[test]
fn the_division_is_as_precise_as_it_is_told_to_be() {
    // About 4.502, which is 4.5 in 16 bits.
    let args = [floats(&[1], &[1.5]), floats(&[], &[0.3332]), ints(DType::U8, &[], &[0])];
    check(&QUANTIZE, &to(DType::U8), &args, &[1], &[5.0]);
    let half = QuantizeAttrs { precision: Some(DType::BF16), ..to(DType::U8) };
    check(&QUANTIZE, &half, &args, &[1], &[4.0]);
}

#[test]
fn sums_come_back_with_a_scale_for_each_channel_and_one_zero_point() {
    let sums = ints(DType::I32, &[2, 2], &[1000, -1000, 30, 1 << 30]);
    let args = [sums, floats(&[2], &[0.0125, 0.05]), ints(DType::U8, &[1], &[100])];
    let attrs = RequantizeAttrs { axis: 0, dtype: DType::U8 };
    check(&REQUANTIZE, &attrs, &args, &[2, 2], &[112.0, 88.0, 102.0, 255.0]);
}

#[test]
fn scales_of_two_axes_are_those_of_each_pair_of_indices() {
    let sums = ints(DType::I32, &[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let args = [sums, floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), ints(DType::U8, &[], &[10])];
    let of = |axis| RequantizeAttrs { axis, dtype: DType::U8 };
    let last = [11.0, 14.0, 19.0, 26.0, 15.0, 22.0, 31.0, 42.0];
    check(&REQUANTIZE, &of(1), &args, &[2, 2, 2], &last);
    let first = [11.0, 12.0, 16.0, 18.0, 25.0, 28.0, 38.0, 42.0];
    check(&REQUANTIZE, &of(0), &args, &[2, 2, 2], &first);
    // Not where models have them.
    let sums = floats(&[2, 2, 2], &[0.0; 8]);
    let error = call(&QUANTIZE, &to(DType::U8), &[sums, floats(&[2, 2], &[1.0; 4])]);
    assert!(error.unwrap_err().to_string().contains("input `scale` must be one number or"));
    let error = call(&REQUANTIZE, &of(2), &args).unwrap_err().to_string();
    assert!(error.contains("input `scale` must be one number or"), "{error}");
}

#[test]
fn scales_must_fit_the_axis() {
    let x = floats(&[2, 3], &[0.0; 6]);
    let error = call(&QUANTIZE, &to(DType::U8), &[x.clone(), floats(&[2], &[1.0; 2])]);
    assert!(error.unwrap_err().to_string().contains("input `scale` must be one number or"));
    let zero = ints(DType::I8, &[], &[0]);
    let error = call(&QUANTIZE, &to(DType::U8), &[x.clone(), floats(&[], &[1.0]), zero]);
    assert!(error.unwrap_err().to_string().contains("input `zero_point` must hold uint8"));
    let error = call(&QUANTIZE, &to(DType::I32), &[x, floats(&[], &[1.0])]);
    assert!(error.unwrap_err().to_string().contains("cannot be quantised to int32"));
}
