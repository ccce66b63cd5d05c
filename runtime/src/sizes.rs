//! Sizes that each run of a model has of its own: found from the lengths of its tensors.

use crate::SizeError;

/// A size that each run has of its own.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Its name in the model.
    pub name: &'static str,
    /// The least size.
    pub min: usize,
    /// The greatest size.
    pub max: usize,
}

impl RunSize {
    /// The size in a run, of whose inputs these depend on it: each one's name, its length and the
    /// elements for each unit of the size, which are not 0.
    ///
    /// # Errors
    ///
    /// A length is no multiple of a size within bounds, or two do not agree.
    pub fn of(self, inputs: &[(&'static str, usize, usize)]) -> Result<usize, SizeError> {
        let RunSize { name: size, min, max } = self;
        let mut known: Option<(&'static str, usize)> = None;
        for &(tensor, found, unit) in inputs {
            let is = found / unit;
            if found % unit != 0 || is < min || is > max {
                return Err(SizeError::Input { tensor, size, unit, min, max, found });
            }
            match known {
                Some(first) if first.1 != is => {
                    return Err(SizeError::Disagreement { size, first, second: (tensor, is) });
                }
                _ => known = Some((tensor, is)),
            }
        }
        Ok(known.map_or(min, |(_, is)| is))
    }

    /// A size that the caller says.
    ///
    /// # Errors
    ///
    /// It is not within its bounds.
    pub fn check(self, found: usize) -> Result<usize, SizeError> {
        let RunSize { name: size, min, max } = self;
        let fits = (min..=max).contains(&found);
        if fits { Ok(found) } else { Err(SizeError::Size { size, min, max, found }) }
    }
}

/// Checks the length of an input's slice.
///
/// # Errors
///
/// It is another one.
pub fn check_input(tensor: &'static str, found: usize, expected: usize) -> Result<(), SizeError> {
    if found == expected { Ok(()) } else { Err(SizeError::Length { tensor, expected, found }) }
}

/// Checks that two extents, each as an expression of the sizes and what it is, are equal.
///
/// # Errors
///
/// They are not.
pub fn check_equal(
    first: (&'static str, usize),
    second: (&'static str, usize),
) -> Result<(), SizeError> {
    if first.1 == second.1 { Ok(()) } else { Err(SizeError::Unequal { first, second }) }
}

/// Checks the length of an output's slice.
///
/// # Errors
///
/// It is another one.
pub fn check_output(tensor: &'static str, found: usize, expected: usize) -> Result<(), SizeError> {
    if found == expected { Ok(()) } else { Err(SizeError::Output { tensor, expected, found }) }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    const BATCH: RunSize = RunSize { name: "batch", min: 1, max: 4 };

    #[test]
    fn inputs_say_the_size_and_have_to_agree() {
        assert_eq!(BATCH.of(&[("x", 12, 4), ("y", 3, 1)]), Ok(3));
        assert_eq!(BATCH.of(&[("x", 4, 4)]), Ok(1));
        for (inputs, message) in [
            (
                &[("x", 13, 4)][..],
                "input `x` has 13 elements; it takes 4 times `batch`, which is 1 to 4",
            ),
            (&[("x", 0, 4)], "input `x` has 0 elements"),
            (&[("x", 20, 4)], "input `x` has 20 elements"),
            (&[("x", 12, 4), ("y", 2, 1)], "`batch` is 3 in input `x`, but 2 in input `y`"),
        ] {
            let error = BATCH.of(inputs).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn sizes_that_are_given_are_within_bounds_and_lengths_go_with_them() {
        assert_eq!(BATCH.check(4), Ok(4));
        let error = BATCH.check(5).unwrap_err().to_string();
        assert_eq!(error, "`batch` is 1 to 4, but 5 was given");
        assert_eq!(check_input("x", 12, 12), Ok(()));
        let error = check_input("x", 11, 12).unwrap_err().to_string();
        assert_eq!(error, "input `x` has 12 elements, but 11 were given");
    }

    #[test]
    fn extents_that_are_equal_in_the_model_are_equal() {
        assert_eq!(check_equal(("h", 4), ("4 * w", 4)), Ok(()));
        let error = check_equal(("h", 4), ("4 * w", 8)).unwrap_err().to_string();
        assert_eq!(error, "`h` is 4, but `4 * w` is 8; they are equal in the model");
    }

    #[test]
    fn an_output_has_the_length_that_the_inputs_ask_for() {
        assert_eq!(check_output("y", 3, 3), Ok(()));
        let error = check_output("y", 2, 3).unwrap_err().to_string();
        assert_eq!(error, "output `y` has 3 elements, but 2 were given");
    }
}
