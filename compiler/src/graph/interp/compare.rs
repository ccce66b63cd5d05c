//! Comparison of computed with expected values, within tolerances.

use super::{Elements, Tensor};
use crate::ir::{Constant, DType};

/// The allowed distance of a value from the expected one: `atol + rtol × |expected|`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tolerance {
    /// The part relative to the expected value.
    pub rtol: f64,
    /// The absolute part.
    pub atol: f64,
}

/// One row of the table of tolerances.
struct Row {
    dtype: DType,
    /// Greatest relative error of one rounding.
    unit: f64,
    /// Roundings allowed in any result: those of one elementary function, which is a polynomial in
    /// compiled code and the system's function in the interpreter.
    least: f64,
}

/// The floating-point types; all others are exact.
const TABLE: [Row; 4] = [
    Row { dtype: DType::F16, unit: 1.0 / (1u64 << 11) as f64, least: 2.0 },
    Row { dtype: DType::BF16, unit: 1.0 / (1u64 << 8) as f64, least: 2.0 },
    Row { dtype: DType::F32, unit: 1.0 / (1u64 << 24) as f64, least: 16.0 },
    Row { dtype: DType::F64, unit: 1.0 / (1u64 << 53) as f64, least: 16.0 },
];

/// Tolerance of compiled code against the interpreter, whose sums run in another order: relative to
/// the value, and to the largest value of the tensor.
const RELATIVE: [f64; 2] = [1e-3, 1e-5];

/// As [`RELATIVE`], for types of 16 bits, which round after each operator.
const RELATIVE_16_BITS: [f64; 2] = [2e-2, 1e-3];

impl Tolerance {
    /// No difference at all.
    pub const EXACT: Tolerance = Tolerance { rtol: 0.0, atol: 0.0 };

    /// For expected values from elsewhere, such as ONNX test cases, which were rounded in other
    /// places.
    pub const CASES: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-7 };

    /// The same for `bfloat16`: two units in the last place, as ONNX's own runner of its cases allows.
    pub const BF16_CASES: Tolerance = Tolerance { rtol: 1.0 / 64.0, ..Tolerance::CASES };

    /// For two computations of the same value by niello, in which up to `roundings` roundings of
    /// values of magnitude one add up, for example one for each term of a sum.
    pub fn of(dtype: DType, roundings: f64) -> Tolerance {
        let Some(row) = TABLE.iter().find(|row| row.dtype == dtype) else {
            return Tolerance::EXACT;
        };
        let error = row.unit * (row.least + roundings);
        Tolerance { rtol: error, atol: error }
    }

    /// For what compiled code computed, given what the interpreter did.
    pub fn near(expected: &Constant) -> Tolerance {
        Tolerance::near_through(expected, expected.ty().dtype)
    }

    /// The same for what was computed of values of another data type.
    pub fn near_through(expected: &Constant, dtype: DType) -> Tolerance {
        let [rtol, of_largest] = match dtype.bits() {
            ..=16 => RELATIVE_16_BITS,
            _ => RELATIVE,
        };
        let largest = match Tensor::from_constant(expected).as_ref().map(Tensor::elements) {
            Ok(Elements::Float(values)) => {
                let finite = values.iter().filter(|value| value.is_finite());
                finite.fold(0.0, |most, v| v.abs().max(most))
            }
            Ok(Elements::Int(_)) | Err(_) => 0.0,
        };
        Tolerance { rtol, atol: 1e-7 + of_largest * largest }
    }

    /// Whether a value is near enough. NaN equals NaN, and an infinity only itself.
    pub fn accepts(self, found: f64, expected: f64) -> bool {
        if found.is_nan() || expected.is_nan() {
            return found.is_nan() && expected.is_nan();
        }
        found == expected
            || (expected.is_finite()
                && (found - expected).abs() <= self.atol + self.rtol * expected.abs())
    }
}

/// Compares data type, shape and every element. NaN equals NaN.
///
/// # Errors
///
/// The first difference, and the share of elements that differ.
pub fn compare(found: &Constant, expected: &Constant, tolerance: Tolerance) -> Result<(), String> {
    let (found_type, expected_type) = (found.ty(), expected.ty());
    if found_type.dtype != expected_type.dtype {
        return Err(format!(
            "the data type is {}, but {} is expected",
            found_type.dtype, expected_type.dtype
        ));
    }
    if found_type.shape != expected_type.shape {
        return Err(format!(
            "the shape is {}, but {} is expected",
            found_type.shape, expected_type.shape
        ));
    }
    if found == expected {
        return Ok(());
    }
    let (Ok(found), Ok(expected)) = (Tensor::from_constant(found), Tensor::from_constant(expected))
    else {
        // Opaque elements have no value to compare.
        return Err(format!("the bytes of a tensor of {} differ", found_type.dtype));
    };
    let differing: Vec<(usize, String, String)> = match (found.elements(), expected.elements()) {
        (Elements::Float(found), Elements::Float(expected)) => found
            .iter()
            .zip(expected)
            .enumerate()
            .filter(|(_, (found, expected))| !tolerance.accepts(**found, **expected))
            .map(|(i, (found, expected))| (i, format!("{found:?}"), format!("{expected:?}")))
            .collect(),
        (Elements::Int(found), Elements::Int(expected)) => found
            .iter()
            .zip(expected)
            .enumerate()
            .filter(|(_, (found, expected))| {
                found != expected && !tolerance.accepts(**found as f64, **expected as f64)
            })
            .map(|(i, (found, expected))| (i, found.to_string(), expected.to_string()))
            .collect(),
        (Elements::Float(_), Elements::Int(_)) | (Elements::Int(_), Elements::Float(_)) => {
            return Err("floats are compared with integers".to_owned());
        }
    };
    let Some((position, found_value, expected_value)) = differing.first() else { return Ok(()) };
    Err(format!(
        "{} of {} elements differ, the first at {:?}: {found_value}, expected {expected_value} \
         (rtol {}, atol {})",
        differing.len(),
        found.len(),
        index_of(*position, found.shape()),
        tolerance.rtol,
        tolerance.atol
    ))
}

/// The index of an element by its position in row-major order.
fn index_of(position: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = position;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let digit = rest % extent.max(1);
            rest /= extent.max(1);
            digit
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Constant {
        Constant::from_f32(&[values.len() as i64], values).unwrap()
    }

    fn differs(found: &[f32], expected: &[f32]) -> bool {
        compare(&floats(found), &floats(expected), Tolerance::CASES).is_err()
    }

    #[test]
    fn the_tolerance_is_relative_to_the_expected_value() {
        assert!(!differs(&[1000.9], &[1000.0]));
        assert!(differs(&[1001.1], &[1000.0]));
        assert!(!differs(&[0.0], &[9e-8]));
        assert!(differs(&[0.0], &[1.1e-7]));
    }

    #[test]
    fn nan_equals_nan_and_an_infinity_itself() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert!(!differs(&[nan, inf, -inf], &[nan, inf, -inf]));
        assert!(differs(&[nan], &[1.0]));
        assert!(differs(&[1.0], &[nan]));
        assert!(differs(&[inf], &[-inf]));
        assert!(differs(&[f32::MAX], &[inf]));
        assert!(differs(&[inf], &[f32::MAX]));
    }

    #[test]
    fn a_tolerance_grows_with_the_roundings_and_integers_have_none() {
        let [short, long] = [1.0, 1000.0].map(|n| Tolerance::of(DType::F32, n));
        assert!(short.rtol < 2e-6 && long.rtol > 5e-5 && long.rtol < 1e-4);
        assert!(Tolerance::of(DType::F64, 1000.0).rtol < 1e-12);
        assert_eq!(Tolerance::of(DType::I32, 1000.0), Tolerance::EXACT);
        assert_eq!(Tolerance::of(DType::Bool, 1.0), Tolerance::EXACT);
    }

    #[test]
    fn a_difference_names_type_shape_or_place() {
        let tolerance = Tolerance::CASES;
        let found = Constant::from_f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let expected = Constant::from_f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.5, 6.0]).unwrap();
        assert_eq!(
            compare(&found, &expected, tolerance).unwrap_err(),
            "2 of 6 elements differ, the first at [1, 1]: 4.0, expected 4.5 (rtol 0.001, atol 0.0000001)"
        );
        let flat = Constant::from_f32(&[6], &[0.0; 6]).unwrap();
        assert_eq!(
            compare(&flat, &expected, tolerance).unwrap_err(),
            "the shape is (6), but (2, 3) is expected"
        );
        let ints = Constant::from_i64(&[6], &[0; 6]).unwrap();
        assert!(compare(&ints, &flat, tolerance).unwrap_err().contains("int64"));
        let other = Constant::from_i64(&[6], &[0, 0, 0, 0, 0, 1]).unwrap();
        assert!(compare(&ints, &other, tolerance).is_err());
    }

    #[test]
    fn the_tolerance_goes_by_the_largest_value() {
        let large = Constant::from_f32(&[2], &[1000.0, 0.0]).unwrap();
        let near = Tolerance::near(&large);
        assert!((near.atol - 0.0100001).abs() < 1e-9, "{near:?}");
        let found = |value| Constant::from_f32(&[2], &[1000.5, value]).unwrap();
        assert!(compare(&found(0.009), &large, near).is_ok());
        assert!(compare(&found(0.011), &large, near).is_err());
        let halves = Tolerance::near_through(&large, DType::F16);
        assert!(compare(&found(0.9), &large, halves).is_ok());
        assert!(compare(&found(1.1), &large, halves).is_err());
    }
}
