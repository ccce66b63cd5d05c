//! Reductions against values that ONNX Runtime 1.31 computed for the same inputs.

use super::{call, check, floats, pattern};
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ops::reduce::{ARGMAX, ARGMIN, ArgReduceAttrs, MAX, MEAN, MIN, PROD, ReduceAttrs, SUM};

#[test]
fn reductions_over_axes() {
    check(
        &SUM,
        &ReduceAttrs { axis: vec![1], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2],
        &[-0.375, -0.875, -0.5, 1.875],
    );
    check(
        &SUM,
        &ReduceAttrs { axis: vec![0, -1], keepdims: true },
        &[pattern(&[2, 3, 2], 0)],
        &[1, 3, 1],
        &[1.375, -1.875, 0.625],
    );
    check(
        &SUM,
        &ReduceAttrs { axis: vec![], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[],
        &[0.125],
    );
    check(
        &MEAN,
        &ReduceAttrs { axis: vec![1], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2],
        &[-0.125, -0.2916667, -0.1666667, 0.625],
    );
    check(
        &MEAN,
        &ReduceAttrs { axis: vec![0, -1], keepdims: true },
        &[pattern(&[2, 3, 2], 0)],
        &[1, 3, 1],
        &[0.34375, -0.46875, 0.15625],
    );
    check(
        &MEAN,
        &ReduceAttrs { axis: vec![], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[],
        &[0.01041667],
    );
    check(
        &PROD,
        &ReduceAttrs { axis: vec![1], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2],
        &[0.046875, 0.78125, 0.6328125, 0.0],
    );
    check(
        &PROD,
        &ReduceAttrs { axis: vec![0, -1], keepdims: true },
        &[pattern(&[2, 3, 2], 0)],
        &[1, 3, 1],
        &[-0.0, -0.1098633, 0.1953125],
    );
    check(
        &PROD,
        &ReduceAttrs { axis: vec![], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[],
        &[0.0],
    );
    check(
        &MAX,
        &ReduceAttrs { axis: vec![1], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2],
        &[0.5, 1.0, 1.125, 1.25],
    );
    check(
        &MAX,
        &ReduceAttrs { axis: vec![0, -1], keepdims: true },
        &[pattern(&[2, 3, 2], 0)],
        &[1, 3, 1],
        &[1.125, 0.625, 1.25],
    );
    check(
        &MAX,
        &ReduceAttrs { axis: vec![], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[],
        &[1.25],
    );
    check(
        &MIN,
        &ReduceAttrs { axis: vec![1], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2],
        &[-0.75, -1.25, -1.125, 0.0],
    );
    check(
        &MIN,
        &ReduceAttrs { axis: vec![0, -1], keepdims: true },
        &[pattern(&[2, 3, 2], 0)],
        &[1, 3, 1],
        &[-0.75, -1.25, -0.625],
    );
    check(
        &MIN,
        &ReduceAttrs { axis: vec![], keepdims: false },
        &[pattern(&[2, 3, 2], 0)],
        &[],
        &[-1.25],
    );
}

#[test]
fn searches_along_an_axis() {
    check(
        &ARGMAX,
        &ArgReduceAttrs { axis: 1, keepdims: true, select_last_index: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 1, 2],
        &[2.0, 0.0, 0.0, 2.0],
    );
    check(
        &ARGMAX,
        &ArgReduceAttrs { axis: -1, keepdims: false, select_last_index: true },
        &[pattern(&[4, 7], 5)],
        &[4],
        &[2.0, 5.0, 3.0, 4.0],
    );
    check(
        &ARGMIN,
        &ArgReduceAttrs { axis: 1, keepdims: true, select_last_index: false },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 1, 2],
        &[0.0, 1.0, 1.0, 0.0],
    );
    check(
        &ARGMIN,
        &ArgReduceAttrs { axis: -1, keepdims: false, select_last_index: true },
        &[pattern(&[4, 7], 5)],
        &[4],
        &[4.0, 2.0, 0.0, 1.0],
    );
    let attrs = |last| ArgReduceAttrs { axis: 0, keepdims: false, select_last_index: last };
    let ties = floats(&[4], &[1.0, 3.0, 3.0, 1.0]);
    check(&ARGMAX, &attrs(false), &[ties.clone()], &[], &[1.0]);
    check(&ARGMAX, &attrs(true), &[ties.clone()], &[], &[2.0]);
    check(&ARGMIN, &attrs(true), &[ties], &[], &[3.0]);
    // As numpy: a NaN is found before any number.
    let nan = floats(&[4], &[1.0, f64::NAN, 3.0, f64::NAN]);
    check(&ARGMAX, &attrs(false), &[nan.clone()], &[], &[1.0]);
    check(&ARGMIN, &attrs(true), &[nan], &[], &[3.0]);
}

#[test]
fn reductions_of_nothing_yield_neutral_elements() {
    let attrs = ReduceAttrs { axis: vec![1], keepdims: false };
    let empty = floats(&[2, 0], &[]);
    check(&SUM, &attrs, &[empty.clone()], &[2], &[0.0, 0.0]);
    check(&PROD, &attrs, &[empty.clone()], &[2], &[1.0, 1.0]);
    check(&MAX, &attrs, &[empty.clone()], &[2], &[f64::NEG_INFINITY; 2]);
    check(&MIN, &attrs, &[empty.clone()], &[2], &[f64::INFINITY; 2]);
    check(&MEAN, &attrs, &[empty], &[2], &[f64::NAN; 2]);
    let empty = Tensor::from_ints(DType::I8, &[1, 0], vec![]).unwrap();
    check(&MAX, &attrs, &[empty.clone()], &[1], &[-128.0]);
    check(&MIN, &attrs, &[empty.clone()], &[1], &[127.0]);
    let error = call(&MEAN, &attrs, &[empty]).unwrap_err();
    assert!(error.to_string().contains("mean of no integers"), "{error}");
}

#[test]
fn integers_wrap_and_means_truncate() {
    let x = Tensor::from_ints(DType::I8, &[3], vec![100, 100, -3]).unwrap();
    let attrs = ReduceAttrs { axis: vec![], keepdims: true };
    check(&SUM, &attrs, &[x.clone()], &[1], &[-59.0]);
    check(&MEAN, &attrs, &[x.clone()], &[1], &[65.0]);
    check(&MAX, &attrs, &[x], &[1], &[100.0]);
}

#[test]
fn extrema_keep_nan() {
    let x = floats(&[3], &[1.0, f64::NAN, 3.0]);
    let attrs = ReduceAttrs { axis: vec![], keepdims: false };
    check(&MAX, &attrs, &[x.clone()], &[], &[f64::NAN]);
    check(&MIN, &attrs, &[x], &[], &[f64::NAN]);
}
