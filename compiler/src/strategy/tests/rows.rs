//! Reductions along rows of every length: whole vectors, what is left of one, less than one.

use super::families::{call, floats, ints};
use super::{Arg, Case, Net, case, check_all, dense, sample, without_vectors};
use crate::codegen::testing::runnable_levels;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, DType};
use crate::ops::nn::{LayerNormAttrs, SoftmaxAttrs};
use crate::ops::reduce::{ArgReduceAttrs, ReduceAttrs};
use crate::tir::{ForKind, PrimExpr, Stmt};

/// Around the sizes of vectors, of a few of them, and of rows that are computed side by side.
const LENGTHS: [usize; 12] = [1, 3, 4, 7, 16, 17, 31, 63, 64, 100, 197, 300];

fn over(axis: i64) -> ReduceAttrs {
    ReduceAttrs { axis: vec![axis], keepdims: false }
}

#[test]
fn rows_of_any_length() {
    let mut cases = Vec::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let x = || Some(sample(&[3, length], seed));
        for op in ["nn.softmax", "nn.log_softmax"] {
            cases.push(call(op, SoftmaxAttrs { axis: -1 }, &[x()]));
        }
        let norm = LayerNormAttrs { axis: -1, epsilon: 1e-5 };
        let (gamma, beta) = (sample(&[length], 2), sample(&[length], 3));
        cases.push(call("nn.layer_norm", norm, &[x(), Some(gamma), Some(beta)]));
        for op in ["sum", "mean", "max", "min"] {
            cases.push(call(op, over(-1), &[x()]));
        }
        for op in ["argmax", "argmin"] {
            let attrs = ArgReduceAttrs { axis: -1, keepdims: true, select_last_index: false };
            cases.push(call(op, attrs, &[x()]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn a_nan_is_the_greatest_and_the_least_of_its_row() {
    let mut cases = Vec::new();
    for length in LENGTHS {
        // In each place once, and none in the last row.
        let values: Vec<f64> = (0..(length + 1) * length)
            .map(|i| if i / length == i % length { f64::NAN } else { i as f64 - 40.0 })
            .collect();
        for op in ["max", "min"] {
            let x = floats(DType::F32, &[length + 1, length], &values);
            cases.push(call(op, over(-1), &[Some(x)]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn rows_of_other_types() {
    let mut cases = Vec::new();
    for length in [5usize, 40, 130] {
        let values: Vec<i128> = (0..2 * length).map(|i| (i * 37 % 101) as i128 - 50).collect();
        for dtype in [DType::I8, DType::I32, DType::I64] {
            for op in ["sum", "mean", "max"] {
                cases.push(call(op, over(1), &[Some(ints(dtype, &[2, length], &values))]));
            }
        }
        let values: Vec<f64> = values.iter().map(|&value| value as f64 / 16.0).collect();
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            for op in ["sum", "max"] {
                cases.push(call(op, over(1), &[Some(floats(dtype, &[2, length], &values))]));
            }
        }
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            let x = Some(floats(dtype, &[2, length], &values));
            cases.push(call("nn.softmax", SoftmaxAttrs { axis: 1 }, &[x]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn reductions_over_outer_and_several_axes() {
    let mut cases = Vec::new();
    for shape in [[5, 9, 70], [33, 1, 150], [2, 40, 5], [20, 20, 3]] {
        for axis in [vec![0], vec![1], vec![0, 1], vec![1, 2], vec![0, 2], vec![]] {
            for op in ["sum", "max"] {
                let attrs = ReduceAttrs { axis: axis.clone(), keepdims: true };
                cases.push(call(op, attrs, &[Some(sample(&shape, 4))]));
            }
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn a_row_with_a_nan_is_one_and_its_neighbours_are_not() {
    let (rows, length) = (4, 150);
    for place in [0, 15, 64, 133, 149] {
        let mut values: Vec<f64> = (0..rows * length).map(|i| (i % 13) as f64 / 8.0).collect();
        values[length + place] = f64::NAN;
        let x = || Some(floats(DType::F32, &[rows, length], &values));
        let cases = [
            call("nn.softmax", SoftmaxAttrs { axis: -1 }, &[x()]),
            call("nn.log_softmax", SoftmaxAttrs { axis: -1 }, &[x()]),
            call("max", over(1), &[x()]),
            call("min", over(1), &[x()]),
        ];
        let found = check_all(&cases, &runnable_levels());
        for results in found {
            let floats = results[0].floats().unwrap();
            let width = floats.len() / rows;
            for (i, value) in floats.iter().enumerate() {
                assert_eq!(value.is_nan(), i / width == 1, "element {i} is {value}");
            }
        }
    }
}

/// Sums of numbers that round: which are added to which decides the bits.
#[test]
fn all_levels_add_up_in_the_same_order() {
    let values: Vec<f64> = (0..3 * 203).map(|i| f64::from((0.1 + i as f32).sqrt())).collect();
    let x = || Some(floats(DType::F32, &[3, 203], &values));
    let cases = [call("sum", over(1), &[x()]), call("sum", over(0), &[x()])];
    let levels = runnable_levels();
    let mut expected: Option<Vec<Vec<Tensor>>> = None;
    for level in &levels {
        let found = check_all(&cases, std::slice::from_ref(level));
        match &expected {
            None => expected = Some(found),
            Some(expected) => {
                for (first, other) in expected.iter().zip(&found) {
                    super::identical(first, other, &format!("sum on {:?}", level.cpu));
                }
            }
        }
    }
}

/// Loops over single elements of the body, by their extents.
fn serial_extents(case: &Case) -> Vec<i64> {
    let levels = runnable_levels();
    let (kernel, _) = case.schedule(&levels[levels.len() - 1..]);
    let mut extents = Vec::new();
    kernel.versions[0].body.walk(&mut |stmt| {
        if let Stmt::For { extent, kind: ForKind::Serial, .. } = stmt {
            extents.extend(extent.as_int());
        }
    });
    extents
}

#[test]
fn no_row_is_gone_through_element_by_element() {
    let (rows, length) = (10, 768);
    let x = || Some(sample(&[rows, length], 1));
    let norm = LayerNormAttrs { axis: -1, epsilon: 1e-5 };
    for case in [
        call("nn.softmax", SoftmaxAttrs { axis: -1 }, &[x()]),
        call("nn.layer_norm", norm, &[x(), None, None]),
        call("max", over(1), &[x()]),
        call(
            "argmax",
            ArgReduceAttrs { axis: 1, keepdims: false, select_last_index: false },
            &[x()],
        ),
    ] {
        let extents = serial_extents(&case);
        // One loop over rows, and in it vectors only.
        assert_eq!(extents.iter().filter(|&&n| n == rows as i64).count(), 1, "{}", case.name);
        let vectors = length as i64 / 4;
        assert!(extents.iter().all(|&n| n <= vectors), "{}: {extents:?}", case.name);
    }
}

#[test]
fn exponentials_of_a_softmax_are_computed_once() {
    let case = call("nn.softmax", SoftmaxAttrs { axis: -1 }, &[Some(sample(&[6, 320], 1))]);
    let levels = runnable_levels();
    let (kernel, _) = case.schedule(&levels[levels.len() - 1..]);
    let mut calls = 0;
    kernel.versions[0].body.walk_exprs(&mut |expr| {
        calls += usize::from(matches!(expr, PrimExpr::Call { .. }));
    });
    assert_eq!(calls, 1);
}

/// Those that follow one another are reduced as one, in the same order; a tensor that is read twice
/// keeps its axes.
#[test]
fn axes_that_follow_one_another_are_reduced_together() {
    let shape = [2, 3, 4, 5, 19];
    let mut cases = Vec::new();
    for axes in
        [&[0, 1][..], &[1, 2], &[3, 4], &[0, 1, 2, 3, 4], &[0, 1, 3, 4], &[1, 3], &[2, 3, 4]]
    {
        for op in ["sum", "max"] {
            let attrs = Attrs::new().with("axis", axes.to_vec()).with("keepdims", true);
            let mut net = Net::new();
            let x = net.param(&shape);
            let reduced = net.call(op, &[x], attrs.clone());
            let alone = net.finish(reduced);
            let mut net = Net::new();
            let x = net.param(&shape);
            let reduced = net.call(op, &[x], attrs);
            let distance = net.plain("subtract", &[x, reduced]);
            let both = net.finish(distance);
            let extent = |(axis, &extent): (usize, &i64)| {
                if axes.contains(&(axis as i64)) { 1 } else { extent }
            };
            let out: Vec<i64> = shape.iter().enumerate().map(extent).collect();
            let x = || [Arg::Input(dense(&shape))];
            let alone = case(&alone, &x(), &[dense(&out)]);
            if axes.len() == shape.len() {
                let kernel = alone.schedule(&[without_vectors()]).0;
                let text = kernel.signature().to_string();
                assert!(text.contains("x: input float32[2280]"), "{text}");
            }
            cases.push(alone);
            cases.push(case(&both, &x(), &[dense(&shape)]));
        }
    }
    check_all(&cases, &runnable_levels());
    check_all(&cases, &[without_vectors()]);
}

#[test]
fn axes_of_few_elements_are_one_with_their_neighbours() {
    let levels = runnable_levels();
    let x = |shape: &[usize]| Some(sample(shape, 1));
    let reduce = |axis: &[i64]| ReduceAttrs { axis: axis.to_vec(), keepdims: true };
    let mut cases = Vec::new();
    for (shape, axis) in [(&[2, 5, 3, 7][..], 1), (&[4, 3, 5, 3, 2], 1), (&[3, 2, 4, 5, 3], 2)] {
        for op in ["nn.softmax", "nn.log_softmax"] {
            cases.push(call(op, SoftmaxAttrs { axis }, &[x(shape)]));
        }
        let attrs = ArgReduceAttrs { axis, keepdims: false, select_last_index: true };
        cases.push(call("argmax", attrs, &[x(shape)]));
    }
    for axes in [&[1, 2][..], &[2, 3], &[0, 1], &[1, 2, 3], &[0, 3], &[0], &[2]] {
        cases.push(call("mean", reduce(axes), &[x(&[3, 5, 4, 7])]));
    }
    cases[0].misses_nothing(&levels);
    // What is read of one of two axes alone keeps them apart.
    for factor in [&[3, 7][..], &[3, 1], &[1, 7], &[5, 1, 1], &[5, 3, 7], &[2, 1, 1, 7]] {
        let mut net = Net::new();
        let (a, b) = (net.param(&[2, 5, 3, 7]), net.param(factor));
        let product = net.plain("multiply", &[a, b]);
        let attrs = Attrs::from_struct(&SoftmaxAttrs { axis: 1 }).unwrap();
        let softmax = net.call("nn.softmax", &[product], attrs);
        let difference = net.plain("subtract", &[softmax, b]);
        let args = [&[2, 5, 3, 7], factor].map(|shape| Arg::Input(dense(shape)));
        cases.push(case(&net.finish(difference), &args, &[dense(&[2, 5, 3, 7])]));
    }
    check_all(&cases, &levels);
}
