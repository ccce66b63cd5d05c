//! What can be wrong with what a caller hands over at run time.

use core::fmt;

/// A tensor does not have the number of elements that the model was compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeError {
    /// The tensor's name in the model.
    pub tensor: &'static str,
    /// Elements it has in the compiled model.
    pub expected: usize,
    /// Elements that were given.
    pub found: usize,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShapeError { tensor, expected, found } = self;
        write!(f, "tensor `{tensor}` has {expected} elements, but {found} were given")
    }
}

impl core::error::Error for ShapeError {}

/// The tensors of a run do not go together, or have a size that the model was not compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SizeError {
    /// An input has a length that no size gives it.
    Input {
        /// The input's name in the model.
        tensor: &'static str,
        /// The name of the size in the model.
        size: &'static str,
        /// Elements of the input for each unit of the size.
        unit: usize,
        /// The least size.
        min: usize,
        /// The greatest size.
        max: usize,
        /// Elements that were given.
        found: usize,
    },
    /// A size is not within its bounds.
    Size {
        /// The name of the size in the model.
        size: &'static str,
        /// The least size.
        min: usize,
        /// The greatest size.
        max: usize,
        /// The size that was given.
        found: usize,
    },
    /// An input has another length than the sizes of the run ask for.
    Length {
        /// The input's name in the model.
        tensor: &'static str,
        /// Elements that it has.
        expected: usize,
        /// Elements that were given.
        found: usize,
    },
    /// Two inputs say that a size is another one.
    Disagreement {
        /// The name of the size in the model.
        size: &'static str,
        /// An input, and the size that it has.
        first: (&'static str, usize),
        /// Another input, and the size that it has.
        second: (&'static str, usize),
    },
    /// Two extents differ that are equal in the model.
    Unequal {
        /// An extent as an expression of the sizes, and what it is.
        first: (&'static str, usize),
        /// The other one, which may be a number.
        second: (&'static str, usize),
    },
    /// An output has another length than the inputs ask for.
    Output {
        /// The output's name in the model.
        tensor: &'static str,
        /// Elements that it has.
        expected: usize,
        /// Elements that were given.
        found: usize,
    },
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::Input { tensor, size, unit, min, max, found } => write!(
                f,
                "input `{tensor}` has {found} elements; it takes {unit} times `{size}`, which is \
                 {min} to {max}"
            ),
            SizeError::Size { size, min, max, found } => {
                write!(f, "`{size}` is {min} to {max}, but {found} was given")
            }
            SizeError::Length { tensor, expected, found } => {
                write!(f, "input `{tensor}` has {expected} elements, but {found} were given")
            }
            SizeError::Disagreement { size, first, second } => write!(
                f,
                "`{size}` is {} in input `{}`, but {} in input `{}`",
                first.1, first.0, second.1, second.0
            ),
            SizeError::Unequal { first, second } if second.0.parse() == Ok(second.1) => {
                write!(f, "`{}` is {}, but the model takes it to be {}", first.0, first.1, second.1)
            }
            SizeError::Unequal { first, second } => write!(
                f,
                "`{}` is {}, but `{}` is {}; they are equal in the model",
                first.0, first.1, second.0, second.1
            ),
            SizeError::Output { tensor, expected, found } => {
                write!(f, "output `{tensor}` has {expected} elements, but {found} were given")
            }
        }
    }
}

impl core::error::Error for SizeError {}

/// Bytes that were handed over as a model's weights are not the ones it was compiled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WeightsError {
    /// They are too few or too many.
    Length {
        /// Bytes that the model's weights have.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// They do not begin at a multiple of 64.
    Alignment {
        /// The address modulo 64.
        offset: usize,
    },
    /// Their checksum is another one: the file is of another model or damaged.
    Checksum {
        /// Checksum of the model's weights.
        expected: u64,
        /// Checksum of the bytes that were given.
        found: u64,
    },
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightsError::Length { expected, found } => {
                write!(f, "the model has {expected} bytes of weights, but {found} were given")
            }
            WeightsError::Alignment { offset } => write!(
                f,
                "weights must begin at a multiple of 64, but these begin {offset} bytes after one; \
                 map the file, or wrap the bytes in `niello_runtime::Aligned`"
            ),
            WeightsError::Checksum { expected, found } => write!(
                f,
                "the weights have the checksum {found:016x}, but the model was compiled with \
                 {expected:016x}; the file is of another build or damaged"
            ),
        }
    }
}

impl core::error::Error for WeightsError {}
