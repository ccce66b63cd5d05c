//! Generated inputs of functions, and comparison of outputs.

use niello::graph::Function;
use niello::graph::interp::{Elements, Tensor, Tolerance, Value};
use niello::ir::{DType, TensorType, Type};

/// Elements above which a function is not evaluated on generated inputs: the interpreter is slow.
const MAX_INPUT_ELEMENTS: u64 = 1 << 20;

/// Number of roundings of values of magnitude one that may add up where passes change the order of
/// operations.
const ROUNDINGS: f64 = 1600.0;

/// Inputs for a function's parameters: small numbers of either sign, the same in every run. `None`
/// if a parameter has a symbolic or large type, or is no tensor.
pub fn sample_inputs(function: &Function) -> Option<Vec<Value>> {
    let params = function.func_type().params;
    params.iter().enumerate().map(|(index, ty)| sample(ty, index as u64)).collect()
}

fn sample(ty: &Type, seed: u64) -> Option<Value> {
    let TensorType { shape, dtype } = ty.as_tensor()?;
    let dims = shape.as_consts()?;
    let count = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))?;
    if count > MAX_INPUT_ELEMENTS {
        return None;
    }
    let shape: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
    // A linear congruential generator; its upper bits are random enough to tell elements apart.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as i64
    };
    let elements = match dtype {
        DType::Bool => Elements::Int((0..count).map(|_| i128::from(next() & 1)).collect()),
        dtype if dtype.is_float() => {
            Elements::Float((0..count).map(|_| next() as f64 / f64::from(1 << 22) - 2.0).collect())
        }
        dtype if dtype.is_signed_int() => {
            Elements::Int((0..count).map(|_| i128::from(next() % 7 - 3)).collect())
        }
        _ => Elements::Int((0..count).map(|_| i128::from(next() % 7)).collect()),
    };
    Tensor::from_elements(*dtype, &shape, elements).ok().map(Value::from)
}

/// Whether two values are equal except for rounding.
///
/// # Errors
///
/// The first difference.
pub fn close(expected: &Value, found: &Value) -> Result<(), String> {
    match (expected, found) {
        (Value::Tensor(a), Value::Tensor(b)) => close_tensors(a, b),
        (Value::Tuple(a), Value::Tuple(b)) if a.len() == b.len() => {
            a.iter().zip(b.iter()).enumerate().try_for_each(|(index, (a, b))| {
                close(a, b).map_err(|error| format!("field {index}: {error}"))
            })
        }
        (Value::Function(_), Value::Function(_)) => Ok(()),
        (Value::Tensor(_) | Value::Tuple(_) | Value::Function(_), _) => {
            Err("values of different kinds".to_owned())
        }
    }
}

fn close_tensors(a: &Tensor, b: &Tensor) -> Result<(), String> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Err(format!("expected {}, found {}", a.ty(), b.ty()));
    }
    let differ = |index: usize, a: &dyn std::fmt::Display, b: &dyn std::fmt::Display| {
        Err(format!("element {index}: expected {a}, found {b}"))
    };
    let tolerance = Tolerance::of(a.dtype(), ROUNDINGS);
    match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => {
            match a.iter().zip(b).position(|(a, b)| !tolerance.accepts(*b, *a)) {
                Some(index) => differ(index, &a[index], &b[index]),
                None => Ok(()),
            }
        }
        (Elements::Int(a), Elements::Int(b)) => match a.iter().zip(b).position(|(a, b)| a != b) {
            Some(index) => differ(index, &a[index], &b[index]),
            None => Ok(()),
        },
        (Elements::Float(_) | Elements::Int(_), _) => Err("elements of different kinds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported_and_rounding_is_not() {
        let value = |values: &[f64]| -> Value {
            Tensor::from_floats(DType::F32, &[values.len()], values.to_vec()).unwrap().into()
        };
        assert_eq!(close(&value(&[1.0, f64::NAN]), &value(&[1.00005, f64::NAN])), Ok(()));
        let error = close(&Value::tuple([value(&[1.0])]), &Value::tuple([value(&[1.5])]));
        assert_eq!(error.unwrap_err(), "field 0: element 0: expected 1, found 1.5");
        assert!(close(&value(&[1.0]), &value(&[1.0, 2.0])).is_err());
        assert!(close(&value(&[f64::INFINITY]), &value(&[f64::from(f32::MAX)])).is_err());
    }
}
