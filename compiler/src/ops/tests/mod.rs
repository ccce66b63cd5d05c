//! Tests of the operators: values, types, errors, and that no operator is left out.
#![allow(
    clippy::cloned_ref_to_slice_refs,
    reason = "arguments are written alike whether there are one or more"
)]

mod documents;
mod elementwise;
mod errors;
mod every_op;
mod indexed;
mod nn;
mod qnn;
mod reduce;
mod relations;
mod tensor;

use serde::Serialize;

use super::{EvalError, OpDef};
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType};

/// A tensor of floats.
fn floats(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_floats(DType::F32, shape, values.to_vec()).unwrap()
}

/// A tensor of floats that look random and are exact: `((37·i + 11·seed + 5) mod 23 - 11) / 8`.
fn pattern(shape: &[usize], seed: usize) -> Tensor {
    let value = |i: usize| (((i * 37 + seed * 11 + 5) % 23) as f64 - 11.0) / 8.0;
    floats(shape, &(0..shape.iter().product()).map(value).collect::<Vec<_>>())
}

/// Evaluates an operator of which all inputs are given.
fn call<A: Serialize>(
    op: &'static OpDef,
    attrs: &A,
    args: &[Tensor],
) -> Result<Vec<Tensor>, EvalError> {
    let args: Vec<Option<&Tensor>> = args.iter().map(Some).collect();
    op.evaluate(&Attrs::from_struct(attrs).unwrap(), &args)
}

/// Checks the shape and the elements of an operator's first result.
fn check<A: Serialize>(
    op: &'static OpDef,
    attrs: &A,
    args: &[Tensor],
    shape: &[usize],
    expected: &[f64],
) {
    let results = call(op, attrs, args).unwrap();
    assert_eq!(results[0].shape(), shape, "{op:?}");
    let found: Vec<f64> = match results[0].elements() {
        Elements::Float(values) => values.clone(),
        Elements::Int(values) => values.iter().map(|&v| v as f64).collect(),
    };
    assert_eq!(found.len(), expected.len(), "{op:?}");
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        // The expected values were computed in single precision and have seven digits.
        let close = found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= 2e-6 + 2e-6 * expected.abs();
        assert!(close, "{op:?}, element {index}: {found} is not {expected}");
    }
}
