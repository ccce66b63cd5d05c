//! Constant tensors.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::small_float::{SmallFloat, decode_e8m0};
use super::{Blake3, DType, Digest, TensorType, digest, unpack_elements};

/// Bytes of a splat that are hashed at a time: a multiple of every element's, and
/// enough for threads to share.
const DIGEST_BLOCK: usize = 4 << 20;

/// Bytes that several constants may share: owned, or mapped from a file.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    offset: usize,
    len: usize,
}

impl SharedBytes {
    /// Shares the bytes of `owner`, which must return the same slice on every call.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> SharedBytes {
        let len = owner.as_ref().len();
        SharedBytes { owner: Arc::new(owner), offset: 0, len }
    }

    /// A part of these bytes, or `None` if it does not lie within them.
    pub fn slice(&self, offset: usize, len: usize) -> Option<SharedBytes> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| SharedBytes {
            owner: self.owner.clone(),
            offset: self.offset + offset,
            len,
        })
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.offset..self.offset + self.len]
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

/// The elements of a constant.
#[derive(Clone, Debug)]
pub enum ConstantData {
    /// One value for all elements: little-endian bytes of one element. Types narrower than a byte
    /// are held in the low bits.
    Splat(Vec<u8>),
    /// Dense row-major elements, little-endian.
    Bytes(SharedBytes),
    /// Text IR named it only by its digest: it is never folded, and code generation refuses it.
    Opaque,
}

#[derive(Debug)]
struct Inner {
    ty: TensorType,
    data: ConstantData,
    digest: OnceLock<Digest>,
}

/// A constant tensor. Cheap to clone; equal if type and digest are equal.
#[derive(Clone, Debug)]
pub struct Constant(Arc<Inner>);

/// Why bytes do not make a constant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConstantError {
    /// A constant needs constant extents and a size that fits the address space.
    NotConstant(TensorType),
    /// The number of bytes is not the type's.
    WrongSize {
        /// The constant's type.
        ty: TensorType,
        /// Bytes the type takes.
        expected: u64,
        /// Bytes that were given.
        found: u64,
    },
}

impl fmt::Display for ConstantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstantError::NotConstant(ty) => {
                write!(f, "a constant cannot have the type {ty}: its size is not known")
            }
            ConstantError::WrongSize { ty, expected, found } => {
                write!(f, "a constant of type {ty} takes {expected} bytes, but {found} were given")
            }
        }
    }
}

impl std::error::Error for ConstantError {}

impl Constant {
    /// A constant from its dense row-major little-endian bytes.
    ///
    /// # Errors
    ///
    /// If the type has symbolic extents or another size in bytes.
    pub fn new(ty: TensorType, bytes: SharedBytes) -> Result<Constant, ConstantError> {
        let expected = ty.bytes().ok_or_else(|| ConstantError::NotConstant(ty.clone()))?;
        if expected != bytes.len() as u64 {
            return Err(ConstantError::WrongSize { ty, expected, found: bytes.len() as u64 });
        }
        Ok(Constant::from_data(ty, ConstantData::Bytes(bytes), OnceLock::new()))
    }

    /// A constant whose elements are all the one given by its little-endian bytes.
    ///
    /// # Errors
    ///
    /// If the type has symbolic extents, or `element` is not one element.
    pub fn splat(ty: TensorType, element: &[u8]) -> Result<Constant, ConstantError> {
        if ty.bytes().is_none() {
            return Err(ConstantError::NotConstant(ty));
        }
        let expected = u64::from(ty.dtype.bits().div_ceil(8));
        if element.len() as u64 != expected {
            return Err(ConstantError::WrongSize { ty, expected, found: element.len() as u64 });
        }
        Ok(Constant::from_data(ty, ConstantData::Splat(element.to_vec()), OnceLock::new()))
    }

    /// A constant known by type and digest alone.
    pub fn opaque(ty: TensorType, digest: Digest) -> Constant {
        Constant::from_data(ty, ConstantData::Opaque, OnceLock::from(digest))
    }

    fn from_data(ty: TensorType, data: ConstantData, digest: OnceLock<Digest>) -> Constant {
        Constant(Arc::new(Inner { ty, data, digest }))
    }

    /// A dense constant of `f32` elements.
    ///
    /// # Errors
    ///
    /// If `values` are not as many as the extents say.
    pub fn from_f32(dims: &[i64], values: &[f32]) -> Result<Constant, ConstantError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Constant::new(TensorType::from_consts(dims, DType::F32), SharedBytes::new(bytes))
    }

    /// A dense constant of `i64` elements.
    ///
    /// # Errors
    ///
    /// If `values` are not as many as the extents say.
    pub fn from_i64(dims: &[i64], values: &[i64]) -> Result<Constant, ConstantError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Constant::new(TensorType::from_consts(dims, DType::I64), SharedBytes::new(bytes))
    }

    /// A scalar of any type that holds integers or floats, from the nearest `f64`.
    ///
    /// Returns `None` for types that are only stored (see [`DType::is_storage_only`]).
    pub fn scalar(value: f64, dtype: DType) -> Option<Constant> {
        let element = encode_scalar(value, dtype)?;
        Constant::splat(TensorType::scalar(dtype), &element).ok()
    }

    /// The number that all elements are; `None` if they differ or are not known.
    pub fn uniform(&self) -> Option<f64> {
        let ty = self.ty();
        let element = match self.data() {
            ConstantData::Splat(element) => element.clone(),
            ConstantData::Bytes(bytes) => {
                let mut elements = bytes.chunks_exact(ty.dtype.bytes()?);
                let first = elements.next()?;
                // Weights differ within their first elements.
                elements.all(|element| element == first).then(|| first.to_vec())?
            }
            ConstantData::Opaque => return None,
        };
        let scalar = Constant::splat(TensorType::scalar(ty.dtype), &element).ok()?;
        let value = match scalar.to_f64_vec() {
            Some(floats) => floats.first().copied(),
            None => scalar.to_i64_vec()?.first().map(|&value| value as f64),
        };
        // An integer that a float does not hold is none of those that are asked for.
        value.filter(|value| ty.dtype.is_float() || value.abs() < 9e15)
    }

    /// The type; its extents are constants.
    pub fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    /// The elements.
    pub fn data(&self) -> &ConstantData {
        &self.0.data
    }

    /// Whether the elements are not there, only their digest.
    pub fn is_opaque(&self) -> bool {
        matches!(self.0.data, ConstantData::Opaque)
    }

    /// Bytes of the dense tensor.
    pub fn byte_len(&self) -> u64 {
        self.0.ty.bytes().expect("checked when the constant was made")
    }

    /// Bytes that the elements take as they are held here: those of one element of a splat.
    pub fn stored_len(&self) -> u64 {
        match &self.0.data {
            ConstantData::Splat(element) => element.len() as u64,
            ConstantData::Bytes(bytes) => bytes.len() as u64,
            ConstantData::Opaque => self.byte_len(),
        }
    }

    /// The dense row-major little-endian bytes; a splat is written out. `None` if opaque, or if there
    /// is no memory to write a splat out.
    pub fn to_bytes(&self) -> Option<SharedBytes> {
        match &self.0.data {
            ConstantData::Bytes(bytes) => Some(bytes.clone()),
            ConstantData::Opaque => None,
            ConstantData::Splat(element) => {
                let len = usize::try_from(self.byte_len()).ok()?;
                let pattern = self.pattern_of(element);
                // A shape of a file may ask for any amount of memory.
                Vec::<u8>::new().try_reserve_exact(len).ok()?;
                let mut bytes = pattern.repeat(len / pattern.len());
                if let Some(last) = bytes.last_mut() {
                    *last &= self.mask_of_last_byte();
                }
                Some(SharedBytes::new(bytes))
            }
        }
    }

    /// What the bytes of a splat repeat: an element narrower than a byte fills each byte once per
    /// place that it takes.
    fn pattern_of(&self, element: &[u8]) -> Vec<u8> {
        let bits = self.0.ty.dtype.bits();
        if bits >= 8 {
            return element.to_vec();
        }
        let low = element[0] & ((1u8 << bits) - 1);
        vec![(0..8 / bits).fold(0, |byte, place| byte | (low << (place * bits)))]
    }

    /// The bits of the last byte that elements take.
    fn mask_of_last_byte(&self) -> u8 {
        let elements = self.0.ty.num_elements().unwrap_or(0);
        match elements % 8 * u64::from(self.0.ty.dtype.bits()) % 8 {
            0 => u8::MAX,
            tail => (1u8 << tail) - 1,
        }
    }

    /// The digest of the dense bytes: equal elements have equal digests, splat or not.
    pub fn digest(&self) -> &Digest {
        self.0.digest.get_or_init(|| {
            let element = match &self.0.data {
                ConstantData::Splat(element) => element,
                ConstantData::Bytes(bytes) => return digest(bytes),
                ConstantData::Opaque => unreachable!("an opaque constant is made with its digest"),
            };
            // A splat is never written out as a whole.
            let pattern = self.pattern_of(element);
            let needed = self.byte_len().min(DIGEST_BLOCK as u64) as usize;
            let block = pattern.repeat(needed.div_ceil(pattern.len()));
            let mut hasher = Blake3::new();
            let mut left = self.byte_len().saturating_sub(1);
            while left > 0 {
                let part = left.min(block.len() as u64);
                hasher.update(&block[..part as usize]);
                left -= part;
            }
            if self.byte_len() > 0 {
                let last = pattern.last().copied().unwrap_or_default();
                hasher.update(&[last & self.mask_of_last_byte()]);
            }
            hasher.finalize()
        })
    }

    /// The same numbers, of which none is narrower than a byte: integers of 2 and 4 bits as those of 8.
    /// `None` if the elements are not known, or are floats narrower than a byte.
    pub fn in_bytes(&self) -> Option<Constant> {
        let dtype = match self.ty().dtype {
            DType::I2 | DType::I4 => DType::I8,
            DType::U2 | DType::U4 => DType::U8,
            dtype if dtype.bits() >= 8 => return Some(self.clone()),
            _ => return None,
        };
        let bits = self.ty().dtype.bits();
        let count = usize::try_from(self.ty().num_elements()?).ok()?;
        let mut bytes = unpack_elements(self.ty().dtype, &self.to_bytes()?, count);
        if dtype == DType::I8 {
            for byte in &mut bytes {
                *byte = ((*byte << (8 - bits)).cast_signed() >> (8 - bits)).cast_unsigned();
            }
        }
        Constant::new(TensorType::new(self.ty().shape.clone(), dtype), SharedBytes::new(bytes)).ok()
    }

    /// The elements as integers, for integer or boolean constants. `None` for other types,
    /// an opaque constant, or a `u64` beyond `i64`.
    pub fn to_i64_vec(&self) -> Option<Vec<i64>> {
        let bytes = self.to_bytes()?;
        macro_rules! ints {
            ($t:ty) => {
                bytes
                    .chunks_exact(size_of::<$t>())
                    .map(|c| i64::try_from(<$t>::from_le_bytes(c.try_into().ok()?)).ok())
                    .collect()
            };
        }
        match self.0.ty.dtype {
            DType::Bool | DType::U8 => ints!(u8),
            DType::I8 => ints!(i8),
            DType::I16 => ints!(i16),
            DType::I32 => ints!(i32),
            DType::I64 => ints!(i64),
            DType::U16 => ints!(u16),
            DType::U32 => ints!(u32),
            DType::U64 => ints!(u64),
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let dtype = self.0.ty.dtype;
                let (codes, (low, _)) = (self.codes(&bytes)?, dtype.int_range()?);
                let span = 1i64 << dtype.bits();
                let low = i64::try_from(low).ok()?;
                let value = |code: u8| (i64::from(code) - low).rem_euclid(span) + low;
                Some(codes.into_iter().map(value).collect())
            }
            DType::F16
            | DType::BF16
            | DType::F32
            | DType::F64
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => None,
        }
    }

    /// The elements as floats, for floating-point constants. `None` for other types or an opaque
    /// constant.
    pub fn to_f64_vec(&self) -> Option<Vec<f64>> {
        let bytes = self.to_bytes()?;
        macro_rules! floats {
            ($t:ty, $to:expr) => {
                bytes
                    .chunks_exact(size_of::<$t>())
                    .map(|c| Some($to(<$t>::from_le_bytes(c.try_into().ok()?))))
                    .collect()
            };
        }
        match self.0.ty.dtype {
            DType::F16 => floats!(half::f16, f64::from),
            DType::BF16 => floats!(half::bf16, f64::from),
            DType::F32 => floats!(f32, f64::from),
            DType::F64 => floats!(f64, f64::from),
            DType::F8E8M0 => Some(bytes.iter().map(|&code| decode_e8m0(code)).collect()),
            DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F4E2M1 => {
                let (codes, format) = (self.codes(&bytes)?, SmallFloat::of(self.0.ty.dtype)?);
                Some(codes.into_iter().map(|code| format.decode(code.into())).collect())
            }
            DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::I4
            | DType::U4
            | DType::I2
            | DType::U2 => None,
        }
    }

    /// The codes of elements of at most 8 bits.
    fn codes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let count = usize::try_from(self.0.ty.num_elements()?).ok()?;
        Some(unpack_elements(self.0.ty.dtype, bytes, count))
    }
}

/// Little-endian bytes of one element, rounded from `value`; integers saturate.
fn encode_scalar(value: f64, dtype: DType) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::I16 => (value as i16).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::U8 => (value as u8).to_le_bytes().to_vec(),
        DType::U16 => (value as u16).to_le_bytes().to_vec(),
        DType::U32 => (value as u32).to_le_bytes().to_vec(),
        DType::U64 => (value as u64).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => return None,
    })
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.ty == other.0.ty && self.digest() == other.digest())
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.ty.hash(state);
        self.digest().hash(state);
    }
}

impl PartialOrd for Constant {
    fn partial_cmp(&self, other: &Constant) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Constant {
    fn cmp(&self, other: &Constant) -> Ordering {
        (&self.0.ty, self.digest()).cmp(&(&other.0.ty, other.digest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splat_and_written_out_elements_are_equal() {
        let splat = Constant::splat(TensorType::from_consts(&[3], DType::F32), &1f32.to_le_bytes());
        assert_eq!(splat, Constant::from_f32(&[3], &[1.0; 3]));
        assert_ne!(splat, Constant::from_f32(&[3], &[1.0, 1.0, 2.0]));
    }

    #[test]
    fn narrow_splats_fill_whole_bytes_and_leave_no_stray_bits() {
        let ty = TensorType::from_consts(&[3], DType::U4);
        let splat = Constant::splat(ty, &[0xF]).unwrap();
        assert_eq!(splat.to_bytes().unwrap()[..], [0xFF, 0x0F]);
    }

    #[test]
    fn integers_of_four_bits_are_the_same_numbers_in_bytes() {
        for (dtype, wide, numbers) in
            [(DType::I4, DType::I8, [1, -8, 7]), (DType::U4, DType::U8, [1, 8, 15])]
        {
            let ty = TensorType::from_consts(&[3], dtype);
            let codes = numbers.map(|number: i64| number as u8 & 0xF);
            let packed = vec![codes[0] | codes[1] << 4, codes[2]];
            let bytes = Constant::new(ty, SharedBytes::new(packed)).unwrap().in_bytes().unwrap();
            assert_eq!(bytes.ty().dtype, wide);
            assert_eq!(bytes.to_i64_vec().unwrap(), numbers);
        }
    }

    #[test]
    fn a_splat_has_the_digest_of_its_dense_bytes() {
        for (dtype, element) in
            [(DType::F32, vec![1, 2, 3, 4]), (DType::U4, vec![9]), (DType::U2, vec![2])]
        {
            for count in [0, 1, 3, 100_003] {
                let ty = TensorType::from_consts(&[count], dtype);
                let splat = Constant::splat(ty.clone(), &element).unwrap();
                let dense = Constant::new(ty, splat.to_bytes().unwrap()).unwrap();
                assert_eq!(splat.digest(), dense.digest(), "{count} of {dtype}");
            }
        }
    }

    #[test]
    fn a_splat_beyond_memory_is_not_written_out() {
        let ty = TensorType::from_consts(&[1 << 56], DType::F32);
        let splat = Constant::splat(ty, &[0; 4]).unwrap();
        assert_eq!((splat.stored_len(), splat.byte_len()), (4, 1 << 58));
        assert!(splat.to_bytes().is_none());
    }

    #[test]
    fn sizes_must_match() {
        let ty = TensorType::from_consts(&[2], DType::I64);
        let error = Constant::new(ty, SharedBytes::new(vec![0; 15])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a constant of type Tensor[(2), int64] takes 16 bytes, but 15 were given"
        );
    }

    #[test]
    fn slices_stay_within_their_bytes() {
        let bytes = SharedBytes::new(vec![1, 2, 3, 4]);
        let part = bytes.slice(1, 3).unwrap();
        assert_eq!(part[..], [2, 3, 4]);
        assert_eq!(part.slice(1, 1).unwrap()[..], [3]);
        assert!(part.slice(2, 2).is_none());
        assert!(part.slice(usize::MAX, 2).is_none());
    }

    #[test]
    fn integers_are_read_back() {
        let c = Constant::from_i64(&[2], &[-1, 7]).unwrap();
        assert_eq!(c.to_i64_vec(), Some(vec![-1, 7]));
        assert_eq!(c.to_f64_vec(), None);
        let narrow = |dtype, bytes: Vec<u8>| {
            Constant::new(TensorType::from_consts(&[3], dtype), SharedBytes::new(bytes)).unwrap()
        };
        assert_eq!(narrow(DType::I4, vec![0x7f, 8]).to_i64_vec(), Some(vec![-1, 7, -8]));
        assert_eq!(narrow(DType::U2, vec![0b11_01_10]).to_i64_vec(), Some(vec![2, 1, 3]));
        assert_eq!(narrow(DType::F4E2M1, vec![0xf1, 2]).to_f64_vec(), Some(vec![0.5, -6.0, 1.0]));
        assert_eq!(Constant::scalar(300.0, DType::U8).unwrap().to_i64_vec(), Some(vec![255]));
    }
}
