//! Tensors of the reference interpreter.

use std::fmt;
use std::sync::OnceLock;

use crate::ir::{
    Constant, ConstantError, DType, SharedBytes, TensorType, pack_elements, small_float,
    unpack_elements,
};

/// The elements of a tensor, widened so that one piece of code serves every data type.
#[derive(Clone, PartialEq, Debug)]
pub enum Elements {
    /// Floating-point types; every value is one that the data type can represent.
    Float(Vec<f64>),
    /// Integers and booleans; every value is within the data type's range.
    Int(Vec<i128>),
}

/// A dense row-major tensor.
///
/// A constant's bytes stay as they are until somebody computes with its elements: what only moves
/// weights to other places never has them widened.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    /// Bytes of so many elements, each of whole bytes, if the tensor was made of such.
    bytes: Option<SharedBytes>,
    /// There from the start if there are no bytes.
    elements: OnceLock<Elements>,
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.ty() == other.ty() && self.elements() == other.elements()
    }
}

/// The error of a tensor that could not be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TensorError {
    /// The number of elements is not the product of the extents.
    WrongLength {
        /// The extents.
        shape: Vec<usize>,
        /// The number of elements given.
        found: usize,
    },
    /// The elements are floats and the data type is not, or the other way round.
    DType(DType),
    /// The constant's elements are not known.
    Opaque(TensorType),
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorError::WrongLength { shape, found } => {
                write!(f, "a tensor of shape {shape:?} cannot have {found} elements")
            }
            TensorError::DType(dtype) => {
                write!(f, "the elements given are not ones of the data type {dtype}")
            }
            TensorError::Opaque(ty) => {
                write!(f, "the elements of a constant of type {ty} are not known, only its digest")
            }
        }
    }
}

impl std::error::Error for TensorError {}

/// Rounds to the nearest value of a floating-point type.
pub(crate) fn round_float(value: f64, dtype: DType) -> f64 {
    small_float::float_bits(value, dtype)
        .and_then(|bits| small_float::float_value(bits, dtype))
        .unwrap_or(value)
}

/// Wraps into the range of an integer type, as its arithmetic does.
pub(crate) fn wrap_int(value: i128, dtype: DType) -> i128 {
    match dtype.int_range() {
        None => i128::from(value != 0),
        Some((low, high)) => {
            let span = high - low + 1;
            (value.wrapping_sub(low)).rem_euclid(span) + low
        }
    }
}

/// The codes of elements of at most 8 bits, if the number of bytes is right.
fn codes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Vec<u8>, TensorError> {
    let count = shape.iter().try_fold(1usize, |product, &d| product.checked_mul(d));
    let fits = |count: &usize| dtype.bytes_for(*count as u64) == Some(bytes.len() as u64);
    match count.filter(fits) {
        Some(count) => Ok(unpack_elements(dtype, bytes, count)),
        None => Err(TensorError::WrongLength {
            shape: shape.to_vec(),
            found: bytes.len().saturating_mul(8 / dtype.bits().max(1) as usize),
        }),
    }
}

/// Checks that a tensor of that shape has so many elements.
fn check_length(shape: &[usize], found: usize) -> Result<(), TensorError> {
    let expected = shape.iter().try_fold(1usize, |product, &d| product.checked_mul(d));
    let expected = if shape.contains(&0) { Some(0) } else { expected };
    match expected == Some(found) {
        true => Ok(()),
        false => Err(TensorError::WrongLength { shape: shape.to_vec(), found }),
    }
}

/// The elements at these offsets, each of `N` bytes.
fn pick_bytes<const N: usize>(bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Vec<u8> {
    let elements = bytes.as_chunks::<N>().0;
    let mut picked = Vec::with_capacity(offsets.size_hint().0 * N);
    offsets.for_each(|at| picked.extend_from_slice(&elements[at]));
    picked
}

/// The elements that dense row-major little-endian bytes stand for.
fn decode(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Elements, TensorError> {
    macro_rules! read {
        ($t:ty, $variant:ident, $wide:ty) => {
            Elements::$variant(
                bytes
                    .chunks_exact(size_of::<$t>())
                    .map(|c| {
                        let c = c.try_into().expect("chunks are of the element's size");
                        <$wide>::from(<$t>::from_le_bytes(c))
                    })
                    .collect(),
            )
        };
    }
    Ok(match dtype {
        DType::Bool => Elements::Int(bytes.iter().map(|&b| i128::from(b != 0)).collect()),
        DType::I8 => read!(i8, Int, i128),
        DType::I16 => read!(i16, Int, i128),
        DType::I32 => read!(i32, Int, i128),
        DType::I64 => read!(i64, Int, i128),
        DType::U8 => read!(u8, Int, i128),
        DType::U16 => read!(u16, Int, i128),
        DType::U32 => read!(u32, Int, i128),
        DType::U64 => read!(u64, Int, i128),
        DType::F16 => read!(half::f16, Float, f64),
        DType::BF16 => read!(half::bf16, Float, f64),
        DType::F32 => read!(f32, Float, f64),
        DType::F64 => read!(f64, Float, f64),
        DType::I4 | DType::U4 | DType::I2 | DType::U2 => Elements::Int(
            codes(dtype, shape, bytes)?
                .into_iter()
                .map(|code| wrap_int(code.into(), dtype))
                .collect(),
        ),
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => Elements::Float(
            codes(dtype, shape, bytes)?
                .into_iter()
                .map(|code| small_float::float_value(code.into(), dtype).unwrap_or(f64::NAN))
                .collect(),
        ),
    })
}

impl Tensor {
    /// A floating-point tensor; each value is rounded to the data type.
    ///
    /// # Errors
    ///
    /// If the length is not the product of the extents, or `dtype` is not a float.
    pub fn from_floats(
        dtype: DType,
        shape: &[usize],
        mut values: Vec<f64>,
    ) -> Result<Tensor, TensorError> {
        if !dtype.is_float() {
            return Err(TensorError::DType(dtype));
        }
        if dtype != DType::F64 {
            for value in &mut values {
                *value = round_float(*value, dtype);
            }
        }
        Tensor::checked(dtype, shape, Elements::Float(values))
    }

    /// An integer or boolean tensor; each value wraps into the data type's range, and becomes 0 or
    /// 1 in a boolean.
    ///
    /// # Errors
    ///
    /// If the length is not the product of the extents, or `dtype` is neither an integer nor a
    /// boolean.
    pub fn from_ints(
        dtype: DType,
        shape: &[usize],
        mut values: Vec<i128>,
    ) -> Result<Tensor, TensorError> {
        if dtype.is_float() {
            return Err(TensorError::DType(dtype));
        }
        for value in &mut values {
            *value = wrap_int(*value, dtype);
        }
        Tensor::checked(dtype, shape, Elements::Int(values))
    }

    /// A tensor of any data type, from either kind of elements: floats
    /// become integers by truncation, as in ONNX `Cast`; out-of-range floats saturate, but wrap in
    /// integers narrower than a byte.
    ///
    /// # Errors
    ///
    /// As [`from_floats`](Self::from_floats) and [`from_ints`](Self::from_ints).
    pub fn from_elements(
        dtype: DType,
        shape: &[usize],
        elements: Elements,
    ) -> Result<Tensor, TensorError> {
        match (dtype.is_float(), elements) {
            (true, Elements::Float(values)) => Tensor::from_floats(dtype, shape, values),
            (true, Elements::Int(values)) => {
                // One rounding to 64 or 32 bits; to fewer by way of 32, as compiled code does.
                let to_float =
                    |v: i128| if dtype == DType::F64 { v as f64 } else { f64::from(v as f32) };
                Tensor::from_floats(dtype, shape, values.into_iter().map(to_float).collect())
            }
            (false, Elements::Int(values)) => Tensor::from_ints(dtype, shape, values),
            (false, Elements::Float(values)) => {
                let to_int = |v: f64| match dtype.int_range() {
                    None => i128::from(v != 0.0),
                    Some(_) if dtype.bits() < 8 => i128::from(v as i32),
                    Some((low, high)) => (v as i128).clamp(low, high),
                };
                Tensor::from_ints(dtype, shape, values.into_iter().map(to_int).collect())
            }
        }
    }

    fn checked(dtype: DType, shape: &[usize], elements: Elements) -> Result<Tensor, TensorError> {
        let found = match &elements {
            Elements::Float(values) => values.len(),
            Elements::Int(values) => values.len(),
        };
        check_length(shape, found)?;
        Ok(Tensor { dtype, shape: shape.to_vec(), bytes: None, elements: elements.into() })
    }

    /// A tensor from the bytes of its elements, each of which takes whole bytes.
    fn of_bytes(dtype: DType, shape: &[usize], bytes: SharedBytes) -> Result<Tensor, TensorError> {
        check_length(shape, bytes.len() / dtype.bytes().unwrap_or(1))?;
        let (shape, elements) = (shape.to_vec(), OnceLock::new());
        Ok(Tensor { dtype, shape, bytes: Some(bytes), elements })
    }

    /// The tensor of a constant.
    ///
    /// # Errors
    ///
    /// If the constant is opaque.
    pub fn from_constant(constant: &Constant) -> Result<Tensor, TensorError> {
        let ty = constant.ty();
        let bytes = constant.to_bytes().ok_or_else(|| TensorError::Opaque(ty.clone()))?;
        let shape: Vec<usize> = ty
            .shape
            .as_consts()
            .and_then(|dims| dims.into_iter().map(|d| usize::try_from(d).ok()).collect())
            .ok_or_else(|| TensorError::Opaque(ty.clone()))?;
        // Other bytes than 0 and 1 become 1 in booleans.
        match ty.dtype.bytes().filter(|_| ty.dtype != DType::Bool) {
            Some(_) => Tensor::of_bytes(ty.dtype, &shape, bytes),
            None => Tensor::from_bytes(ty.dtype, &shape, &bytes),
        }
    }

    /// A tensor from dense row-major little-endian bytes; elements narrower than a byte share
    /// bytes.
    ///
    /// # Errors
    ///
    /// If the number of bytes does not match the shape.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor, TensorError> {
        Tensor::checked(dtype, shape, decode(dtype, shape, bytes)?)
    }

    /// Dense row-major little-endian bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        if let Some(bytes) = &self.bytes {
            return bytes.to_vec();
        }
        macro_rules! write {
            ($values:expr, $t:ty) => {
                $values.iter().flat_map(|&v| (v as $t).to_le_bytes()).collect()
            };
        }
        match self.elements() {
            Elements::Float(values) => match self.dtype {
                DType::F16 => {
                    values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect()
                }
                DType::BF16 => {
                    values.iter().flat_map(|&v| half::bf16::from_f64(v).to_le_bytes()).collect()
                }
                DType::F32 => write!(values, f32),
                DType::F64 => write!(values, f64),
                // Any code of NaN is right here; some types have several.
                dtype => {
                    let code =
                        |v: &f64| small_float::float_bits(*v, dtype).unwrap_or_default() as u8;
                    pack_elements(dtype, &values.iter().map(code).collect::<Vec<u8>>())
                }
            },
            Elements::Int(values) => match self.dtype.bits() {
                2 | 4 => {
                    pack_elements(self.dtype, &values.iter().map(|&v| v as u8).collect::<Vec<u8>>())
                }
                8 => write!(values, u8),
                16 => write!(values, u16),
                32 => write!(values, u32),
                _ => write!(values, u64),
            },
        }
    }

    /// The tensor as a constant.
    ///
    /// # Errors
    ///
    /// If an extent is beyond `i64`.
    pub fn to_constant(&self) -> Result<Constant, ConstantError> {
        let bytes = self.bytes.clone();
        Constant::new(self.ty(), bytes.unwrap_or_else(|| SharedBytes::new(self.to_bytes())))
    }

    /// The data type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The tensor type.
    pub fn ty(&self) -> TensorType {
        let dims: Vec<i64> = self.shape.iter().map(|&d| d as i64).collect();
        TensorType::from_consts(&dims, self.dtype)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match (&self.bytes, self.dtype.bytes()) {
            (Some(bytes), Some(width)) => bytes.len() / width,
            _ => match self.elements() {
                Elements::Float(values) => values.len(),
                Elements::Int(values) => values.len(),
            },
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements.
    pub fn elements(&self) -> &Elements {
        self.elements.get_or_init(|| {
            let decoded = self.bytes.as_ref().map(|bytes| decode(self.dtype, &self.shape, bytes));
            // The number of bytes was checked, and no others are refused.
            decoded.and_then(Result::ok).unwrap_or_else(|| Elements::Float(Vec::new()))
        })
    }

    /// A tensor of that shape and this one's type, of the elements at these offsets.
    ///
    /// # Errors
    ///
    /// If the offsets are not as many as the extents say.
    ///
    /// # Panics
    ///
    /// If there is no element at an offset.
    pub(crate) fn pick(
        &self,
        shape: &[usize],
        offsets: impl Iterator<Item = usize>,
    ) -> Result<Tensor, TensorError> {
        let Some((bytes, width)) = self.bytes.as_ref().zip(self.dtype.bytes()) else {
            let elements = match self.elements() {
                Elements::Float(values) => Elements::Float(offsets.map(|at| values[at]).collect()),
                Elements::Int(values) => Elements::Int(offsets.map(|at| values[at]).collect()),
            };
            return Tensor::checked(self.dtype, shape, elements);
        };
        let picked = match width {
            1 => pick_bytes::<1>(bytes, offsets),
            2 => pick_bytes::<2>(bytes, offsets),
            4 => pick_bytes::<4>(bytes, offsets),
            _ => pick_bytes::<8>(bytes, offsets),
        };
        Tensor::of_bytes(self.dtype, shape, SharedBytes::new(picked))
    }

    /// The elements as floats, if the data type is one.
    pub fn floats(&self) -> Option<&[f64]> {
        if let Elements::Float(values) = self.elements() { Some(values) } else { None }
    }

    /// The elements as integers, if the data type is an integer or boolean.
    pub fn ints(&self) -> Option<&[i128]> {
        if let Elements::Int(values) = self.elements() { Some(values) } else { None }
    }

    /// A tensor of the same type with `float` or `int` applied to each element, then rounded or
    /// wrapped.
    #[must_use]
    pub fn map(&self, float: impl Fn(f64) -> f64, int: impl Fn(i128) -> i128) -> Tensor {
        let elements = match self.elements() {
            Elements::Float(values) => {
                Elements::Float(values.iter().map(|&v| round_float(float(v), self.dtype)).collect())
            }
            Elements::Int(values) => {
                Elements::Int(values.iter().map(|&v| wrap_int(int(v), self.dtype)).collect())
            }
        };
        let (shape, elements) = (self.shape.clone(), elements.into());
        Tensor { dtype: self.dtype, shape, bytes: None, elements }
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    ///
    /// If the shape has another number of elements.
    pub fn reshape(self, shape: &[usize]) -> Result<Tensor, TensorError> {
        check_length(shape, self.len())?;
        Ok(Tensor { shape: shape.to_vec(), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_their_type() {
        let t = Tensor::from_floats(DType::F32, &[1], vec![0.1]).unwrap();
        assert_eq!(t.floats().unwrap()[0], f64::from(0.1f32));
        let t = Tensor::from_ints(DType::I8, &[2], vec![130, -129]).unwrap();
        assert_eq!(t.ints().unwrap(), [-126, 127]);
        let t = Tensor::from_ints(DType::U64, &[1], vec![-1]).unwrap();
        assert_eq!(t.ints().unwrap(), [i128::from(u64::MAX)]);
    }

    #[test]
    fn tensors_survive_conversion_to_bytes_in_every_type() {
        for dtype in DType::all() {
            // Five elements end within a byte in narrow types; types of powers of two have no zero.
            let elements = Elements::Int(vec![0, 1, 1, 0, 1]);
            let t = Tensor::from_elements(dtype, &[5], elements).unwrap();
            assert_eq!(Tensor::from_bytes(dtype, &[5], &t.to_bytes()).unwrap(), t);
            assert_eq!(Tensor::from_constant(&t.to_constant().unwrap()).unwrap(), t);
        }
    }

    #[test]
    fn elements_are_picked_as_bytes_or_as_numbers_alike() {
        for dtype in DType::all() {
            let t = Tensor::from_elements(dtype, &[5], Elements::Int(vec![0, 1, 1, 0, 1])).unwrap();
            let of_bytes = Tensor::from_constant(&t.to_constant().unwrap()).unwrap();
            let picked = |t: &Tensor| t.pick(&[2, 2], [4, 3, 1, 1].into_iter()).unwrap();
            assert_eq!(picked(&of_bytes), picked(&t), "{dtype}");
            assert_eq!(picked(&of_bytes).to_bytes(), picked(&t).to_bytes(), "{dtype}");
            assert!(t.pick(&[3], [0].into_iter()).is_err());
            assert_eq!(of_bytes.len(), 5);
            assert_eq!(of_bytes.reshape(&[5, 1]).unwrap(), t.reshape(&[5, 1]).unwrap());
        }
    }

    #[test]
    fn casts_from_floats_truncate_and_saturate() {
        let t = Tensor::from_elements(DType::U8, &[3], Elements::Float(vec![1.9, -3.0, 999.0]));
        assert_eq!(t.unwrap().ints().unwrap(), [1, 0, 255]);
        let t = Tensor::from_elements(DType::I4, &[3], Elements::Float(vec![1.9, -9.0, 24.0]));
        assert_eq!(t.unwrap().ints().unwrap(), [1, 7, -8]);
    }

    #[test]
    fn casts_from_integers_round_once() {
        // Halfway between two of 32 bits, and a little more, which 64 bits do not hold.
        let value = (1i128 << 62) + (1 << 38) + 1;
        for (dtype, expected) in [
            (DType::F32, (value as f32).into()),
            (DType::F64, value as f64),
            (DType::F16, f64::INFINITY),
        ] {
            let t = Tensor::from_elements(dtype, &[1], Elements::Int(vec![value])).unwrap();
            assert_eq!(t.floats().unwrap(), [expected], "{dtype}");
        }
        assert_eq!(value as f32, ((1i64 << 62) + (1 << 39)) as f32);
    }

    #[test]
    fn lengths_are_checked_without_overflow() {
        assert!(Tensor::from_ints(DType::I8, &[usize::MAX, 2], vec![]).is_err());
        assert!(Tensor::from_ints(DType::I8, &[usize::MAX, 0], vec![]).is_ok());
    }
}
