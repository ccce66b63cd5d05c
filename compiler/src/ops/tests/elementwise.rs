//! Elementwise operators against values that numpy and ONNX Runtime 1.31 computed for the same
//! inputs.
#![expect(clippy::approx_constant, reason = "expected values have the digits that were printed")]

use serde::Serialize;

use super::{call, check, floats, pattern};
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ops::OpDef;
use crate::ops::elementwise::{
    ABS, ACOS, ACOSH, ADD, ASIN, ASINH, ATAN, ATANH, BITWISE_AND, BITWISE_NOT, BITWISE_OR,
    BITWISE_XOR, CAST, CEIL, CELU, CLIP, COS, COSH, CastAttrs, CeluAttrs, ClipAttrs, DIVIDE, ELU,
    EQUAL, ERF, EXP, EluAttrs, FLOOR, FLOOR_MOD, GELU, GREATER, GREATER_EQUAL, GeluApproximation,
    GeluAttrs, HARDSIGMOID, HARDSWISH, HardsigmoidAttrs, ISINF, ISNAN, LEAKY_RELU, LEFT_SHIFT,
    LESS, LESS_EQUAL, LOG, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, LOGICAL_XOR, LeakyReluAttrs,
    MAXIMUM, MINIMUM, MISH, MOD, MULTIPLY, NEGATIVE, NOT_EQUAL, POWER, PRELU, RECIPROCAL, RELU,
    RIGHT_SHIFT, ROUND, RSQRT, SELU, SIGMOID, SIGN, SIN, SINH, SOFTPLUS, SOFTSIGN, SQRT, SUBTRACT,
    SeluAttrs, TAN, TANH, THRESHOLDED_RELU, ThresholdedReluAttrs, WHERE,
};

/// `-0.75, 1, -0.125, -1.25, 0.5, -0.625, 1.125, 0`.
fn x() -> Tensor {
    pattern(&[8], 0)
}

/// `1 + |x|`.
fn pos() -> Tensor {
    x().map(|v| 1.0 + v.abs(), |i| i)
}

/// `x / 2`.
fn unit() -> Tensor {
    x().map(|v| v / 2.0, |i| i)
}

fn unary<A: Serialize>(op: &'static OpDef, attrs: &A, x: Tensor, expected: &[f64]) {
    check(op, attrs, &[x], &[8], expected);
}

fn ints(dtype: DType, values: &[i128]) -> Tensor {
    Tensor::from_ints(dtype, &[values.len()], values.to_vec()).unwrap()
}

/// Checks an operator on vectors of integers or booleans.
fn check_ints(op: &'static OpDef, dtype: DType, args: &[&[i128]], expected: &[i128]) {
    let args: Vec<Tensor> = args.iter().map(|values| ints(dtype, values)).collect();
    assert_eq!(call(op, &(), &args).unwrap(), [ints(dtype, expected)], "{op:?}");
}

#[test]
fn functions_of_one_float() {
    unary(&ABS, &(), x(), &[0.75, 1.0, 0.125, 1.25, 0.5, 0.625, 1.125, 0.0]);
    unary(
        &ACOS,
        &(),
        unit(),
        &[1.955193, 1.047198, 1.633337, 2.245928, 1.318116, 1.88862, 0.9733897, 1.570796],
    );
    unary(
        &ACOSH,
        &(),
        pos(),
        &[1.15881, 1.316958, 0.4949329, 1.450575, 0.9624237, 1.066732, 1.386294, 0.0],
    );
    unary(
        &ASIN,
        &(),
        unit(),
        &[-0.3843968, 0.5235987, -0.06254076, -0.6751316, 0.2526803, -0.3178237, 0.5974063, 0.0],
    );
    unary(
        &ASINH,
        &(),
        x(),
        &[-0.6931472, 0.8813736, -0.1246767, -1.047593, 0.4812118, -0.5901437, 0.9670596, 0.0],
    );
    unary(
        &ATAN,
        &(),
        x(),
        &[-0.6435012, 0.7853981, -0.124355, -0.8960554, 0.4636475, -0.5585993, 0.844154, 0.0],
    );
    unary(
        &ATANH,
        &(),
        unit(),
        &[-0.3942287, 0.5493062, -0.06258158, -0.7331685, 0.2554128, -0.3233136, 0.6364828, 0.0],
    );
    unary(&CEIL, &(), x(), &[-0.0, 1.0, -0.0, -1.0, 1.0, -0.0, 2.0, 0.0]);
    unary(
        &COS,
        &(),
        x(),
        &[0.7316889, 0.5403023, 0.9921977, 0.3153224, 0.8775826, 0.8109632, 0.4311765, 1.0],
    );
    unary(
        &COSH,
        &(),
        x(),
        &[1.294683, 1.543081, 1.007823, 1.888424, 1.127626, 1.201754, 1.702435, 1.0],
    );
    unary(
        &ERF,
        &(),
        x(),
        &[-0.7111557, 0.8427008, -0.1403162, -0.9229001, 0.5204999, -0.6232409, 0.8883882, 0.0],
    );
    unary(
        &EXP,
        &(),
        x(),
        &[0.4723665, 2.718282, 0.8824969, 0.2865048, 1.648721, 0.5352615, 3.080217, 1.0],
    );
    unary(&FLOOR, &(), x(), &[-1.0, 1.0, -1.0, -2.0, 0.0, -1.0, 1.0, 0.0]);
    unary(
        &LOG,
        &(),
        pos(),
        &[0.5596158, 0.6931472, 0.117783, 0.8109302, 0.4054651, 0.4855078, 0.7537718, 0.0],
    );
    unary(&NEGATIVE, &(), x(), &[0.75, -1.0, 0.125, 1.25, -0.5, 0.625, -1.125, -0.0]);
    unary(
        &RECIPROCAL,
        &(),
        pos(),
        &[0.5714286, 0.5, 0.8888889, 0.4444444, 0.6666667, 0.6153846, 0.4705882, 1.0],
    );
    unary(&ROUND, &(), x(), &[-1.0, 1.0, -0.0, -1.0, 0.0, -1.0, 1.0, 0.0]);
    unary(
        &SIGMOID,
        &(),
        x(),
        &[0.3208213, 0.7310586, 0.4687906, 0.2227001, 0.6224593, 0.3486452, 0.754915, 0.5],
    );
    unary(&SIGN, &(), x(), &[-1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 0.0]);
    unary(
        &SIN,
        &(),
        x(),
        &[-0.6816387, 0.841471, -0.1246747, -0.9489846, 0.4794255, -0.5850973, 0.9022676, 0.0],
    );
    unary(
        &SINH,
        &(),
        x(),
        &[-0.8223167, 1.175201, -0.1253258, -1.601919, 0.5210953, -0.6664923, 1.377782, 0.0],
    );
    unary(
        &SQRT,
        &(),
        pos(),
        &[1.322876, 1.414214, 1.06066, 1.5, 1.224745, 1.274755, 1.457738, 1.0],
    );
    unary(
        &TAN,
        &(),
        x(),
        &[-0.9315965, 1.557408, -0.1256551, -3.00957, 0.5463025, -0.7214844, 2.092571, 0.0],
    );
    unary(
        &TANH,
        &(),
        x(),
        &[-0.635149, 0.7615942, -0.124353, -0.8482836, 0.4621172, -0.5545997, 0.809301, 0.0],
    );
    unary(
        &RSQRT,
        &(),
        pos(),
        &[0.755929, 0.7071068, 0.9428091, 0.6666667, 0.8164966, 0.7844645, 0.6859944, 1.0],
    );
}

#[test]
fn activations() {
    unary(&RELU, &(), x(), &[0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.125, 0.0]);
    unary(
        &HARDSWISH,
        &(),
        x(),
        &[-0.28125, 0.6666667, -0.05989583, -0.3645833, 0.2916667, -0.2473958, 0.7734375, 0.0],
    );
    unary(
        &MISH,
        &(),
        x(),
        &[-0.2764947, 0.8650985, -0.06997991, -0.308414, 0.3752452, -0.2526468, 0.997508, 0.0],
    );
    unary(
        &SOFTPLUS,
        &(),
        x(),
        &[0.386871, 1.313262, 0.6325991, 0.2519291, 0.974077, 0.4287007, 1.40615, 0.6931472],
    );
    unary(
        &SOFTSIGN,
        &(),
        x(),
        &[-0.4285715, 0.5, -0.1111111, -0.5555556, 0.3333333, -0.3846154, 0.5294118, 0.0],
    );
    unary(
        &CELU,
        &CeluAttrs { alpha: 0.5 },
        x(),
        &[-0.3884349, 1.0, -0.1105996, -0.4589575, 0.5, -0.3567476, 1.125, 0.0],
    );
    unary(
        &ELU,
        &EluAttrs { alpha: 0.5 },
        x(),
        &[-0.2638167, 1.0, -0.05875155, -0.3567476, 0.5, -0.2323693, 1.125, 0.0],
    );
    unary(
        &SELU,
        &SeluAttrs { alpha: 1.5, gamma: 2.0 },
        x(),
        &[-1.5829, 2.0, -0.3525093, -2.140486, 1.0, -1.394216, 2.25, 0.0],
    );
    unary(
        &LEAKY_RELU,
        &LeakyReluAttrs { alpha: 0.25 },
        x(),
        &[-0.1875, 1.0, -0.03125, -0.3125, 0.5, -0.15625, 1.125, 0.0],
    );
    unary(
        &THRESHOLDED_RELU,
        &ThresholdedReluAttrs { alpha: 0.5 },
        x(),
        &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.125, 0.0],
    );
    unary(
        &HARDSIGMOID,
        &HardsigmoidAttrs { alpha: 0.75, beta: 0.5 },
        x(),
        &[0.0, 1.0, 0.40625, 0.0, 0.875, 0.03125, 1.0, 0.5],
    );
    unary(
        &GELU,
        &GeluAttrs { approximate: GeluApproximation::None },
        x(),
        &[-0.1699705, 0.8413447, -0.05628272, -0.1320622, 0.3457312, -0.166241, 0.9784186, 0.0],
    );
    unary(
        &GELU,
        &GeluAttrs { approximate: GeluApproximation::Tanh },
        x(),
        &[-0.1700394, 0.841192, -0.0562828, -0.1322858, 0.345714, -0.1662789, 0.9782248, 0.0],
    );
    check(
        &PRELU,
        &(),
        &[pattern(&[2, 2, 3], 0), pattern(&[2, 1], 1)],
        &[2, 2, 3],
        &[-0.46875, 1.0, -0.078125, 0.625, 0.5, 0.3125, 1.125, 0.0, -0.703125, 0.625, 0.25, 1.25],
    );
}

#[test]
fn arithmetic_with_broadcasting() {
    check(
        &ADD,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[-1.75, 0.0, -1.125, 0.0, 1.75, 0.625, -2.25, -0.5, -1.625, -0.5, 1.25, 0.125],
    );
    check(
        &SUBTRACT,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[0.25, 2.0, 0.875, -1.5, 0.25, -0.875, -0.25, 1.5, 0.375, -2.0, -0.25, -1.375],
    );
    check(
        &MULTIPLY,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[0.75, -1.0, 0.125, -0.5625, 0.75, -0.09375, 1.25, -0.5, 0.625, -0.9375, 0.375, -0.46875],
    );
    check(
        &DIVIDE,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[
            0.75, -1.0, 0.125, -1.0, 1.333333, -0.1666667, 1.25, -0.5, 0.625, -1.666667, 0.6666667,
            -0.8333333,
        ],
    );
    check(
        &MAXIMUM,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[-0.75, 1.0, -0.125, 0.75, 1.0, 0.75, -1.0, 0.5, -0.625, 0.75, 0.75, 0.75],
    );
    check(
        &MINIMUM,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[-1.0, -1.0, -1.0, -0.75, 0.75, -0.125, -1.25, -1.0, -1.0, -1.25, 0.5, -0.625],
    );
    check(
        &MOD,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[-0.75, 0.0, -0.125, -0.0, 0.25, -0.125, -0.25, 0.5, -0.625, -0.5, 0.5, -0.625],
    );
    check(
        &FLOOR_MOD,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[-0.75, -0.0, -0.125, 0.0, 0.25, 0.625, -0.25, -0.5, -0.625, 0.25, 0.5, 0.125],
    );
    check(
        &POWER,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[
            -1.333333,
            1.0,
            -8.0,
            f64::NAN,
            1.0,
            f64::NAN,
            -0.8,
            2.0,
            -1.6,
            f64::NAN,
            0.5946035,
            f64::NAN,
        ],
    );
}

#[test]
fn comparisons_with_broadcasting() {
    check(
        &EQUAL,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    );
    check(
        &NOT_EQUAL,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    );
    check(
        &LESS,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0],
    );
    check(
        &LESS_EQUAL,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0],
    );
    check(
        &GREATER,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    );
    check(
        &GREATER_EQUAL,
        &(),
        &[pattern(&[2, 1, 3], 0), pattern(&[2, 1], 4)],
        &[2, 2, 3],
        &[1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    );
    let (a, b) =
        (floats(&[4], &[1.0, 2.0, f64::NAN, 0.0]), floats(&[4], &[1.0, 1.0, f64::NAN, -0.0]));
    check(&EQUAL, &(), &[a.clone(), b.clone()], &[4], &[1.0, 0.0, 0.0, 1.0]);
    check(&NOT_EQUAL, &(), &[a.clone(), b.clone()], &[4], &[0.0, 1.0, 1.0, 0.0]);
    check(&GREATER_EQUAL, &(), &[a, b], &[4], &[1.0, 1.0, 0.0, 1.0]);
    let special = floats(&[3], &[f64::NAN, f64::NEG_INFINITY, 1.0]);
    check(&ISNAN, &(), &[special.clone()], &[3], &[1.0, 0.0, 0.0]);
    check(&ISINF, &(), &[special], &[3], &[0.0, 1.0, 0.0]);
}

#[test]
fn integer_arithmetic_truncates_and_wraps() {
    // The results of numpy, but for shifts by a negative number, which are not defined there.
    let (a, b): (&[i128], &[i128]) = (&[7, -7, 7, -7, 0, 5], &[3, 3, -3, -3, 5, 2]);
    let binary = |op, expected| check_ints(op, DType::I32, &[a, b], expected);
    binary(&DIVIDE, &[2, -2, -2, 2, 0, 2]);
    binary(&MOD, &[1, -1, 1, -1, 0, 1]);
    binary(&FLOOR_MOD, &[1, 2, -2, -1, 0, 1]);
    binary(&BITWISE_AND, &[3, 1, 5, -7, 0, 0]);
    binary(&BITWISE_OR, &[7, -5, -1, -3, 5, 7]);
    binary(&BITWISE_XOR, &[4, -6, -6, 4, 5, 7]);
    let b: &[i128] = &[3, 3, 3, 3, 5, 2];
    check_ints(&LEFT_SHIFT, DType::I32, &[a, b], &[56, -56, 56, -56, 0, 20]);
    check_ints(&RIGHT_SHIFT, DType::I32, &[a, b], &[0, -1, 0, -1, 0, 1]);
    check_ints(&LEFT_SHIFT, DType::U8, &[&[255, 1, 1], &[1, 8, 200]], &[254, 0, 0]);
    check_ints(&BITWISE_NOT, DType::U8, &[&[0, 255, 5]], &[255, 0, 250]);
    check_ints(&ADD, DType::I8, &[&[127, -128], &[1, -1]], &[-128, 127]);
    let max = u64::MAX.into();
    check_ints(&MULTIPLY, DType::U64, &[&[max, max], &[max, 2]], &[1, max - 1]);
    check_ints(&NEGATIVE, DType::I8, &[&[-128, 5]], &[-128, -5]);
    check_ints(&ABS, DType::I8, &[&[-128, -5]], &[-128, 5]);
    let zeros = call(&SIGN, &(), &[floats(&[3], &[-0.0, 0.0, f64::NAN])]).unwrap();
    let zeros = zeros[0].floats().unwrap();
    assert!(zeros[..2].iter().all(|zero| zero.to_bits() == 0) && zeros[2].is_nan());
    check_ints(&SIGN, DType::I64, &[&[-9, 0, 9]], &[-1, 0, 1]);
    check_ints(&RELU, DType::I8, &[&[-9, 0, 9]], &[0, 0, 9]);
    check_ints(
        &POWER,
        DType::I32,
        &[&[2, -3, 0, 2, -1, 3], &[10, 3, 0, -1, -3, 40]],
        &[1024, -27, 1, 0, -1, 689_956_897],
    );
}

#[test]
fn undefined_integer_results_are_errors() {
    for (op, a, b) in [(&DIVIDE, 1, 0), (&MOD, 1, 0), (&FLOOR_MOD, 0, 0), (&POWER, 0, -1)] {
        let args = [ints(DType::I64, &[a]), ints(DType::I64, &[b])];
        let error = call(op, &(), &args).unwrap_err();
        assert!(error.to_string().contains("not defined"), "{error}");
    }
}

#[test]
fn logic() {
    let (a, b): (&[i128], &[i128]) = (&[0, 0, 1, 1], &[0, 1, 0, 1]);
    check_ints(&LOGICAL_AND, DType::Bool, &[a, b], &[0, 0, 0, 1]);
    check_ints(&LOGICAL_OR, DType::Bool, &[a, b], &[0, 1, 1, 1]);
    check_ints(&LOGICAL_XOR, DType::Bool, &[a, b], &[0, 1, 1, 0]);
    check_ints(&LOGICAL_NOT, DType::Bool, &[a], &[1, 1, 0, 0]);
}

#[test]
fn extrema_keep_nan() {
    let (a, b) = (floats(&[3], &[f64::NAN, 1.0, 2.0]), floats(&[3], &[0.0, f64::NAN, 3.0]));
    check(&MAXIMUM, &(), &[a.clone(), b.clone()], &[3], &[f64::NAN, f64::NAN, 3.0]);
    check(&MINIMUM, &(), &[a.clone(), b], &[3], &[f64::NAN, f64::NAN, 2.0]);
    check(&RELU, &(), &[a.clone()], &[3], &[f64::NAN, 1.0, 2.0]);
    check(&CLIP, &ClipAttrs { min: Some(1.5), max: None }, &[a], &[3], &[f64::NAN, 1.5, 2.0]);
}

#[test]
fn clip_has_optional_bounds_and_the_upper_one_wins() {
    let both = ClipAttrs { min: Some(-0.5), max: Some(0.75) };
    check(&CLIP, &both, &[x()], &[8], &[-0.5, 0.75, -0.125, -0.5, 0.5, -0.5, 0.75, 0.0]);
    let none = ClipAttrs { min: None, max: None };
    let crossed = ClipAttrs { min: Some(3.0), max: Some(1.0) };
    let bounds = ClipAttrs { min: Some(-1.5), max: Some(1e30) };
    let x = ints(DType::I8, &[-128, -1, 7]);
    assert_eq!(call(&CLIP, &none, &[x.clone()]).unwrap(), [x.clone()]);
    assert_eq!(call(&CLIP, &crossed, &[x.clone()]).unwrap(), [ints(DType::I8, &[1, 1, 1])]);
    assert_eq!(call(&CLIP, &bounds, &[x]).unwrap(), [ints(DType::I8, &[-1, -1, 7])]);
}

#[test]
fn where_broadcasts_all_three() {
    let condition = Tensor::from_ints(DType::Bool, &[2, 1], vec![1, 0]).unwrap();
    let (x, y) = (floats(&[3], &[1.0, 2.0, 3.0]), floats(&[], &[9.0]));
    check(&WHERE, &(), &[condition, x, y], &[2, 3], &[1.0, 2.0, 3.0, 9.0, 9.0, 9.0]);
}

#[test]
fn casts_truncate_saturate_and_round() {
    let x = floats(&[5], &[2.9, -2.9, 300.0, f64::NAN, 0.0]);
    let cast = |x: &Tensor, dtype| call(&CAST, &CastAttrs::to(dtype), &[x.clone()]).unwrap();
    assert_eq!(cast(&x, DType::I8), [ints(DType::I8, &[2, -2, 127, 0, 0])]);
    assert_eq!(cast(&x, DType::U8), [ints(DType::U8, &[2, 0, 255, 0, 0])]);
    assert_eq!(cast(&x, DType::Bool), [ints(DType::Bool, &[1, 1, 1, 1, 0])]);
    assert_eq!(cast(&ints(DType::I32, &[300, -1]), DType::U8), [ints(DType::U8, &[44, 255])]);
    let wide = floats(&[1], &[0.1]);
    let half = Tensor::from_floats(DType::F16, &[1], vec![0.1]).unwrap();
    assert_eq!(cast(&wide, DType::F16), [half]);
}
