//! Arrays of any number of dimensions: what built functions are called with.

use std::fmt;

use half::{bf16, f16};

use crate::executor::aligned::AlignedBytes;
use crate::ir::DType;

/// A type of Rust that elements of a [`DType`] have in memory.
pub trait Element: Copy + private::Sealed + 'static {
    /// The data type.
    const DTYPE: DType;
}

mod private {
    /// Keeps [`Element`](super::Element) to the types of this file: their elements hold no
    /// pointers and have no gaps, and all bytes are values of them, but for `bool`.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident,)*) => {
        $(impl private::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements! {
    bool => Bool,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    u8 => U8,
    u16 => U16,
    u32 => U32,
    u64 => U64,
    f16 => F16,
    bf16 => BF16,
    f32 => F32,
    f64 => F64,
}

/// Why there is no such array, or no such view of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrayError {
    /// Several elements share a byte.
    SubByte(DType),
    /// An extent is negative, or the array exceeds the address space.
    BadShape(Vec<i64>, DType),
    /// There are more or fewer elements than the shape has places.
    WrongLength {
        /// The shape.
        shape: Vec<i64>,
        /// Elements that were given.
        found: usize,
    },
    /// The elements are of another type.
    WrongType {
        /// The type that was asked for.
        asked: DType,
        /// The array's.
        found: DType,
    },
    /// A byte of a `bool` array is neither 0 nor 1.
    InvalidBool(u8),
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrayError::SubByte(dtype) => {
                write!(f, "elements of {dtype} share bytes, and an array's do not")
            }
            ArrayError::BadShape(shape, dtype) => {
                write!(f, "no array of {dtype} can have the shape {shape:?}")
            }
            ArrayError::WrongLength { shape, found } => {
                write!(f, "{found} elements were given for an array of shape {shape:?}")
            }
            ArrayError::WrongType { asked, found } => {
                write!(f, "the array has elements of {found}, not of {asked}")
            }
            ArrayError::InvalidBool(byte) => {
                write!(f, "the bool array has the byte {byte}, which is neither 0 nor 1")
            }
        }
    }
}

impl std::error::Error for ArrayError {}

/// A dense row-major array that owns its elements; they begin at a multiple of 64 bytes.
///
/// ```
/// # use niello::driver::NdArray;
/// let mut array = NdArray::from_slice(&[2, 3], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0])?;
/// array.as_mut_slice::<f32>()?[5] = 6.0;
/// assert_eq!(array.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]);
/// # Ok::<(), niello::driver::ArrayError>(())
/// ```
#[derive(Clone)]
pub struct NdArray {
    dtype: DType,
    shape: Vec<i64>,
    memory: AlignedBytes,
}

impl NdArray {
    /// An array of zeros.
    ///
    /// # Errors
    ///
    /// There is no array of that shape and type.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Result<NdArray, ArrayError> {
        let memory = AlignedBytes::zeroed(byte_len(dtype, shape)?);
        Ok(NdArray { dtype, shape: shape.to_vec(), memory })
    }

    /// An array of a copy of `elements`, row-major.
    ///
    /// # Errors
    ///
    /// There are more or fewer elements than the shape has places.
    pub fn from_slice<T: Element>(shape: &[i64], elements: &[T]) -> Result<NdArray, ArrayError> {
        Ok(ArrayView::new(shape, elements)?.to_owned())
    }

    /// An array of a copy of `bytes`, which are elements of `dtype` as in memory.
    ///
    /// # Errors
    ///
    /// There is no array of that shape and type, or the number of bytes is not its.
    pub fn from_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<NdArray, ArrayError> {
        if bytes.len() != byte_len(dtype, shape)? {
            let found = bytes.len() / dtype.bytes().unwrap_or(1);
            return Err(ArrayError::WrongLength { shape: shape.to_vec(), found });
        }
        check_bools(dtype, bytes)?;
        Ok(NdArray { dtype, shape: shape.to_vec(), memory: AlignedBytes::from(bytes) })
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.memory.len() / self.dtype.bytes().unwrap_or(1)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The elements as they are in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// The elements, row-major.
    ///
    /// # Errors
    ///
    /// The elements are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], ArrayError> {
        self.check_type::<T>()?;
        // SAFETY: the memory begins at a multiple of 64 bytes, its bytes are whole elements of `T`,
        // and every element is a value of it: of `bool` that was checked.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len()) })
    }

    /// The elements, row-major, to be changed.
    ///
    /// # Errors
    ///
    /// The elements are of another type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], ArrayError> {
        self.check_type::<T>()?;
        let len = self.len();
        // SAFETY: as above; the array is borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), len) })
    }

    /// A copy of the elements, row-major.
    ///
    /// # Errors
    ///
    /// The elements are of another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, ArrayError> {
        self.as_slice().map(<[T]>::to_vec)
    }

    /// The whole array, to be read.
    pub fn view(&self) -> ArrayView<'_> {
        ArrayView { dtype: self.dtype, shape: &self.shape, bytes: &self.memory }
    }

    /// The whole array, to be written.
    pub fn view_mut(&mut self) -> ArrayViewMut<'_> {
        ArrayViewMut { dtype: self.dtype, shape: &self.shape, bytes: &mut self.memory }
    }

    fn check_type<T: Element>(&self) -> Result<(), ArrayError> {
        if self.dtype != T::DTYPE {
            return Err(ArrayError::WrongType { asked: T::DTYPE, found: self.dtype });
        }
        check_bools(self.dtype, &self.memory)
    }
}

/// Type and shape; elements may be many.
impl fmt::Debug for NdArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NdArray({}{:?})", self.dtype, self.shape)
    }
}

/// A dense row-major array in memory of someone else's, to be read.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    pub(super) dtype: DType,
    pub(super) shape: &'a [i64],
    pub(super) bytes: &'a [u8],
}

impl<'a> ArrayView<'a> {
    /// A slice as an array.
    ///
    /// # Errors
    ///
    /// There are more or fewer elements than the shape has places.
    pub fn new<T: Element>(shape: &'a [i64], elements: &'a [T]) -> Result<Self, ArrayError> {
        check_len::<T>(shape, elements.len())?;
        let len = size_of_val(elements);
        // SAFETY: the elements are in memory as their bytes are, without gaps.
        let bytes = unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), len) };
        Ok(ArrayView { dtype: T::DTYPE, shape, bytes })
    }

    /// An array with a copy of the elements.
    pub fn to_owned(&self) -> NdArray {
        let ArrayView { dtype, shape, bytes } = *self;
        NdArray { dtype, shape: shape.to_vec(), memory: AlignedBytes::from(bytes) }
    }
}

/// A dense row-major array in memory of someone else's, to be written.
#[derive(Debug)]
pub struct ArrayViewMut<'a> {
    pub(super) dtype: DType,
    pub(super) shape: &'a [i64],
    pub(super) bytes: &'a mut [u8],
}

impl<'a> ArrayViewMut<'a> {
    /// A slice as an array.
    ///
    /// # Errors
    ///
    /// There are more or fewer elements than the shape has places.
    pub fn new<T: Element>(shape: &'a [i64], elements: &'a mut [T]) -> Result<Self, ArrayError> {
        check_len::<T>(shape, elements.len())?;
        let len = size_of_val(elements);
        // SAFETY: the elements are in memory as their bytes are, without gaps; only functions that
        // keep them values of their type write there.
        let bytes = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), len) };
        Ok(ArrayViewMut { dtype: T::DTYPE, shape, bytes })
    }
}

/// Bytes of an array.
fn byte_len(dtype: DType, shape: &[i64]) -> Result<usize, ArrayError> {
    let width = dtype.bytes().ok_or(ArrayError::SubByte(dtype))?;
    let extent = |&extent: &i64| usize::try_from(extent).ok();
    let elements = shape.iter().try_fold(1usize, |len, e| len.checked_mul(extent(e)?));
    let bytes = elements.and_then(|len| len.checked_mul(width));
    bytes
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| ArrayError::BadShape(shape.to_vec(), dtype))
}

fn check_len<T: Element>(shape: &[i64], found: usize) -> Result<(), ArrayError> {
    match byte_len(T::DTYPE, shape)? == found * size_of::<T>() {
        true => Ok(()),
        false => Err(ArrayError::WrongLength { shape: shape.to_vec(), found }),
    }
}

/// Checks that all bytes of a `bool` array are values of `bool`.
fn check_bools(dtype: DType, bytes: &[u8]) -> Result<(), ArrayError> {
    match bytes.iter().find(|byte| dtype == DType::Bool && **byte > 1) {
        Some(byte) => Err(ArrayError::InvalidBool(*byte)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back_as_they_were_given() {
        let array = NdArray::from_slice(&[2, 2], &[1i16, -2, 3, i16::MIN]).unwrap();
        assert_eq!((array.dtype(), array.shape(), array.len()), (DType::I16, &[2, 2][..], 4));
        assert_eq!(array.bytes().as_ptr().addr() % 64, 0);
        assert_eq!(array.as_slice::<i16>().unwrap(), [1, -2, 3, i16::MIN]);
        let again = NdArray::from_bytes(DType::I16, &[4], array.bytes()).unwrap();
        assert_eq!(again.to_vec::<i16>(), array.to_vec::<i16>());
        let scalar = NdArray::from_slice(&[], &[f16::ONE]).unwrap();
        assert_eq!(scalar.to_vec::<f16>().unwrap(), [f16::ONE]);
        assert!(NdArray::zeros(DType::F64, &[3, 0]).unwrap().is_empty());
    }

    #[test]
    fn bytes_that_are_no_array_are_refused_with_the_reason() {
        let message = |result: Result<NdArray, ArrayError>| result.unwrap_err().to_string();
        let error = message(NdArray::from_slice(&[2, 2], &[1.0f32]));
        assert_eq!(error, "1 elements were given for an array of shape [2, 2]");
        let error = message(NdArray::zeros(DType::F32, &[2, -1]));
        assert_eq!(error, "no array of float32 can have the shape [2, -1]");
        assert!(NdArray::zeros(DType::F32, &[i64::MAX, 2]).is_err());
        assert!(message(NdArray::zeros(DType::I4, &[2])).contains("share bytes"));
        let error = NdArray::zeros(DType::F32, &[2]).unwrap().as_slice::<i32>().unwrap_err();
        assert_eq!(error.to_string(), "the array has elements of float32, not of int32");
        let error = NdArray::from_bytes(DType::Bool, &[2], &[1, 2]).unwrap_err();
        assert_eq!(error, ArrayError::InvalidBool(2));
        assert!(NdArray::from_bytes(DType::F32, &[2], &[0; 7]).is_err());
    }
}
