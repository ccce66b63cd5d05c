//! Data types of tensor elements and of scalars.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The type of one element.
///
/// The order of the variants is part of the structural order of the IR; new ones go to the end of
/// their family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DType {
    /// Boolean, stored as one byte that is 0 or 1.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 4-bit integer; two to a byte, the first in the low half.
    I4,
    /// Unsigned 4-bit integer; two to a byte, the first in the low half.
    U4,
    /// Signed 2-bit integer; four to a byte, the first in the low bits.
    I2,
    /// Unsigned 2-bit integer; four to a byte, the first in the low bits.
    U2,
    /// 8-bit float, 4 exponent bits, no infinities.
    F8E4M3FN,
    /// 8-bit float, 4 exponent bits, no infinities, no negative zero.
    F8E4M3FNUZ,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// 8-bit float, 5 exponent bits, no infinities, no negative zero.
    F8E5M2FNUZ,
    /// 8-bit power of two: the scale type of the OCP microscaling formats.
    F8E8M0,
    /// 4-bit float of the OCP microscaling formats; two to a byte.
    F4E2M1,
}

/// Name in text formats and messages, short name, bits.
const TABLE: [(DType, &str, &str, u32); 23] = [
    (DType::Bool, "bool", "bool", 8),
    (DType::I8, "int8", "i8", 8),
    (DType::I16, "int16", "i16", 16),
    (DType::I32, "int32", "i32", 32),
    (DType::I64, "int64", "i64", 64),
    (DType::U8, "uint8", "u8", 8),
    (DType::U16, "uint16", "u16", 16),
    (DType::U32, "uint32", "u32", 32),
    (DType::U64, "uint64", "u64", 64),
    (DType::F16, "float16", "f16", 16),
    (DType::BF16, "bfloat16", "bf16", 16),
    (DType::F32, "float32", "f32", 32),
    (DType::F64, "float64", "f64", 64),
    (DType::I4, "int4", "i4", 4),
    (DType::U4, "uint4", "u4", 4),
    (DType::I2, "int2", "i2", 2),
    (DType::U2, "uint2", "u2", 2),
    (DType::F8E4M3FN, "float8_e4m3fn", "f8e4m3fn", 8),
    (DType::F8E4M3FNUZ, "float8_e4m3fnuz", "f8e4m3fnuz", 8),
    (DType::F8E5M2, "float8_e5m2", "f8e5m2", 8),
    (DType::F8E5M2FNUZ, "float8_e5m2fnuz", "f8e5m2fnuz", 8),
    (DType::F8E8M0, "float8_e8m0", "f8e8m0", 8),
    (DType::F4E2M1, "float4_e2m1", "f4e2m1", 4),
];

impl DType {
    /// Every data type, in the order of their declaration.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    /// Integers of so many bits, 64 if there are none: numbers of lanes beside elements as wide.
    pub(crate) fn counter(bits: u32) -> DType {
        match bits {
            8 => DType::I8,
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        }
    }

    /// Width of one element in bits; a `Bool` takes a whole byte.
    pub fn bits(self) -> u32 {
        TABLE[self as usize].3
    }

    /// The name in text formats, as in TVM: `float32`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The short name, as in Rust: `f32`.
    pub fn short_name(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// Bytes that `elements` densely packed elements take, or `None` beyond `u64`.
    pub fn bytes_for(self, elements: u64) -> Option<u64> {
        let bits = elements.checked_mul(u64::from(self.bits()))?;
        Some(bits.div_ceil(8))
    }

    /// Bytes of one element, if an element starts at a byte.
    pub fn bytes(self) -> Option<usize> {
        (self.bits() >= 8).then(|| self.bits() as usize / 8)
    }

    /// The type in which sums, counts and statistics of elements of this type are computed.
    ///
    /// Floats of 16 bits end at 65,504 or have 8 digits: a count or a sum of squares needs more.
    pub fn accumulator(self) -> DType {
        if matches!(self, DType::F16 | DType::BF16) { DType::F32 } else { self }
    }

    /// Whether this is a floating-point type of any width.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DType::F16
                | DType::BF16
                | DType::F32
                | DType::F64
                | DType::F8E4M3FN
                | DType::F8E4M3FNUZ
                | DType::F8E5M2
                | DType::F8E5M2FNUZ
                | DType::F8E8M0
                | DType::F4E2M1
        )
    }

    /// Whether this is a signed integer type.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2)
    }

    /// Whether this is an unsigned integer type; `Bool` is not.
    pub fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::U4 | DType::U2)
    }

    /// Whether this is an integer type; `Bool` is not.
    pub fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// Whether values are only stored in this type and computed in a wider one.
    pub fn is_storage_only(self) -> bool {
        self.bits() < 8 || (self.is_float() && self.bits() == 8)
    }

    /// Least and greatest value of an integer type.
    pub fn int_range(self) -> Option<(i128, i128)> {
        if self.is_signed_int() {
            let half = 1i128 << (self.bits() - 1);
            Some((-half, half - 1))
        } else if self.is_unsigned_int() {
            Some((0, (1i128 << self.bits()) - 1))
        } else {
            None
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text that was meant to name a data type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDType(pub String);

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a data type", self.0)
    }
}

impl std::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;

    /// Accepts the long and the short name.
    fn from_str(s: &str) -> Result<Self, UnknownDType> {
        TABLE
            .iter()
            .find(|row| row.1 == s || row.2 == s)
            .map(|row| row.0)
            .ok_or_else(|| UnknownDType(s.to_owned()))
    }
}

impl Serialize for DType {
    /// As its name.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_variants_and_names_parse_back() {
        for (index, dtype) in DType::all().enumerate() {
            assert_eq!(dtype as usize, index);
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(dtype.short_name().parse(), Ok(dtype));
        }
        assert!("float".parse::<DType>().is_err());
    }

    #[test]
    fn narrow_elements_share_bytes() {
        assert_eq!(DType::I4.bytes_for(3), Some(2));
        assert_eq!(DType::U2.bytes_for(5), Some(2));
        assert_eq!(DType::F64.bytes_for(u64::MAX), None);
        assert_eq!(DType::I8.int_range(), Some((-128, 127)));
        assert_eq!(DType::U64.int_range(), Some((0, u64::MAX.into())));
    }
}
