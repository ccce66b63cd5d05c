//! Correctness and exactness of measured kernels.

use niello::ir::{Constant, DType};

/// Elements that an output should have, computed in `f64`: their places and values.
#[derive(Clone, Debug)]
pub(crate) struct Expected(pub(crate) Vec<(usize, f64)>);

/// The errors of an output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Error {
    /// The largest difference, as a share of the largest expected value.
    pub(crate) scaled: f64,
    /// The largest difference in units in the last place of the expected value, rounded to `f32`.
    pub(crate) ulp: f64,
}

/// Beyond this scaled error an output is wrong. Winograd transforms with `f32` stay far below.
const WRONG: f64 = 1e-3;

impl Expected {
    /// Every element, in order.
    pub(crate) fn all(values: impl IntoIterator<Item = f64>) -> Expected {
        Expected(values.into_iter().enumerate().collect())
    }

    /// The error of an output.
    ///
    /// # Errors
    ///
    /// The output lacks an element, or is wrong.
    pub(crate) fn error(&self, output: &Constant) -> Result<Error, String> {
        let found = values(output)?;
        let scale = self.0.iter().fold(0.0f64, |scale, (_, value)| scale.max(value.abs()));
        let mut error = Error { scaled: 0.0, ulp: 0.0 };
        for &(place, expected) in &self.0 {
            let found = found.get(place).ok_or("the output has too few elements")?;
            let difference = (found - expected).abs();
            // A difference that is no number is no error that `max` would keep.
            if difference.is_nan() || difference > WRONG * scale {
                return Err(format!("element {place} is {found}, expected {expected}"));
            }
            if scale > 0.0 {
                error.scaled = error.scaled.max(difference / scale);
            }
            error.ulp = error.ulp.max(difference / ulp(expected));
        }
        Ok(error)
    }
}

/// The distance to the next `f32` at a value.
fn ulp(value: f64) -> f64 {
    let value = (value as f32).abs();
    f64::from(value.next_up()) - f64::from(value)
}

fn values(output: &Constant) -> Result<Vec<f64>, String> {
    let bytes = output.to_bytes().ok_or("the output has no elements")?;
    let words = bytes.as_chunks::<4>().0.iter();
    match output.ty().dtype {
        DType::F32 => Ok(words.map(|word| f64::from(f32::from_le_bytes(*word))).collect()),
        DType::I32 => Ok(words.map(|word| f64::from(i32::from_le_bytes(*word))).collect()),
        other => Err(format!("outputs of type {other} are not compared")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(expected: &[f64], found: &[f32]) -> Result<Error, String> {
        let found = Constant::from_f32(&[found.len() as i64], found).unwrap();
        Expected::all(expected.iter().copied()).error(&found)
    }

    #[test]
    fn errors_are_relative_to_the_largest_value_and_to_the_element() {
        let near = 1.0 + f64::from(f32::EPSILON);
        let found = error(&[4.0, 1.0], &[4.0, near as f32]).unwrap();
        assert_eq!(found, Error { scaled: f64::from(f32::EPSILON) / 4.0, ulp: 1.0 });
        assert_eq!(error(&[0.0], &[0.0]), Ok(Error { scaled: 0.0, ulp: 0.0 }));
    }

    #[test]
    fn wrong_results_are_reported() {
        assert_eq!(
            error(&[4.0, 1.0], &[4.0, 1.1]).unwrap_err(),
            "element 1 is 1.100000023841858, expected 1"
        );
        assert!(error(&[1.0], &[f32::NAN]).is_err());
        assert_eq!(error(&[1.0, 1.0], &[1.0]).unwrap_err(), "the output has too few elements");
    }
}
