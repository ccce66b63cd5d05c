//! Sums, counts and statistics of 16-bit floats, which end at 65,504: imported, compiled and run, and
//! by the interpreter.

use super::quantised::{floats, outputs};
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};
use crate::onnx::ModelAttr;

fn halves(shape: &[usize], values: Vec<f64>) -> Constant {
    Tensor::from_floats(DType::F16, shape, values).unwrap().to_constant().unwrap()
}

/// 300 and -300 in turn, whose squares are beyond the greatest number.
fn alternating(shape: &[usize]) -> Constant {
    let count = shape.iter().product();
    halves(shape, (0..count).map(|i| if i % 2 == 0 { 300.0 } else { -300.0 }).collect())
}

#[track_caller]
fn assert_each(found: &[Constant], expected: impl Fn(usize) -> f64) {
    for (index, found) in found[0].to_f64_vec().unwrap().into_iter().enumerate() {
        let expected = expected(index);
        assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{index}: {found}, {expected}");
    }
}

#[test]
fn means_of_more_elements_than_the_greatest_number() {
    let kernel: [(&str, ModelAttr); 1] = [("kernel_shape", [300, 300].into())];
    for (op, attrs) in
        [("GlobalAveragePool", &[][..]), ("ReduceMean", &[]), ("AveragePool", &kernel)]
    {
        let x = halves(&[1, 1, 300, 300], vec![1.0; 90_000]);
        let found = outputs(("", op), &[x], attrs, &[(DType::F16, &[1, 1, 1, 1])]);
        assert_each(&found, |_| 1.0);
    }
}

#[test]
fn softmax_of_more_elements_than_the_greatest_number() {
    let x = halves(&[1, 70_000], vec![0.0; 70_000]);
    let found = outputs(("", "LogSoftmax"), &[x], &[], &[(DType::F16, &[1, 70_000])]);
    assert_each(&found, |_| -(70_000f64).ln());
}

#[test]
fn squares_beyond_the_greatest_number() {
    let dims: &[i64] = &[1, 2, 4, 4];
    let x = || alternating(&[1, 2, 4, 4]);
    let (ones, zeros) = (halves(&[2], vec![1.0; 2]), halves(&[2], vec![0.0; 2]));
    let sign = |index: usize| if index.is_multiple_of(2) { 1.0 } else { -1.0 };
    let affine = [x(), ones.clone(), zeros.clone()];
    let row = [x(), halves(&[4], vec![1.0; 4]), halves(&[4], vec![0.0; 4])];
    let groups: &[(&str, ModelAttr)] = &[("num_groups", 1.into())];
    for (op, inputs, attrs) in [
        ("InstanceNormalization", &affine[..], &[][..]),
        ("GroupNormalization", &affine, groups),
        ("MeanVarianceNormalization", &affine[..1], &[]),
        ("LayerNormalization", &row, &[]),
        ("RMSNormalization", &row[..2], &[]),
    ] {
        assert_each(&outputs(("", op), inputs, attrs, &[(DType::F16, dims)]), sign);
    }
    let local: &[(&str, ModelAttr)] = &[
        ("size", 1.into()),
        ("alpha", 1.0f32.into()),
        ("beta", 0.5f32.into()),
        ("bias", 0.0f32.into()),
    ];
    assert_each(&outputs(("", "LRN"), &[x()], local, &[(DType::F16, dims)]), sign);
    let found = outputs(("", "LpNormalization"), &[x()], &[], &[(DType::F16, dims)]);
    assert_each(&found, |index| sign(index) / 2.0);

    let found = outputs(("", "ReduceL2"), &[x()], &[], &[(DType::F16, &[1, 1, 1, 1])]);
    assert_each(&found, |_| 300.0 * 32f64.sqrt());
    let found = outputs(("", "GlobalLpPool"), &[x()], &[], &[(DType::F16, &[1, 2, 1, 1])]);
    assert_each(&found, |_| 1200.0);
    let kernel = [("kernel_shape", [2, 2].into())];
    let found = outputs(("", "LpPool"), &[x()], &kernel, &[(DType::F16, &[1, 2, 3, 3])]);
    assert_each(&found, |_| 600.0);
}

#[test]
fn statistics_of_32_bits_are_computed_with_as_they_are() {
    let x = halves(&[1, 1, 1, 2], vec![60_000.0, -20_000.0]);
    let (scale, bias) = (halves(&[1], vec![2.0]), halves(&[1], vec![0.5]));
    let (mean, variance) = (floats(&[1], &[1e5]), floats(&[1], &[1e10]));
    let found = outputs(
        ("", "BatchNormalization"),
        &[x, scale, bias, mean, variance],
        &[],
        &[(DType::F16, &[1, 1, 1, 2])],
    );
    assert_each(&found, |index| [-0.3, -1.9][index]);
}
