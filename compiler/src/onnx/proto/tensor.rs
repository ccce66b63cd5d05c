//! Tensors.
//!
//! [`TensorProto`] implements `prost::Message` itself: its elements stay in the bytes of the file,
//! of which a derived implementation would make vectors of numbers, up to eight times as large.

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use super::StringStringEntryProto;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// Not given.
    Undefined = 0,
    /// IEEE 754 binary32.
    Float = 1,
    /// Unsigned 8-bit integer.
    Uint8 = 2,
    /// Signed 8-bit integer.
    Int8 = 3,
    /// Unsigned 16-bit integer.
    Uint16 = 4,
    /// Signed 16-bit integer.
    Int16 = 5,
    /// Signed 32-bit integer.
    Int32 = 6,
    /// Signed 64-bit integer.
    Int64 = 7,
    /// UTF-8 text.
    String = 8,
    /// Boolean.
    Bool = 9,
    /// IEEE 754 binary16.
    Float16 = 10,
    /// IEEE 754 binary64.
    Double = 11,
    /// Unsigned 32-bit integer.
    Uint32 = 12,
    /// Unsigned 64-bit integer.
    Uint64 = 13,
    /// Two binary32: real and imaginary part.
    Complex64 = 14,
    /// Two binary64: real and imaginary part.
    Complex128 = 15,
    /// The upper half of a binary32.
    Bfloat16 = 16,
    /// 8-bit float, 4 exponent bits, no infinities.
    Float8E4m3fn = 17,
    /// 8-bit float, 4 exponent bits, no infinities, no negative zero.
    Float8E4m3fnuz = 18,
    /// 8-bit float, 5 exponent bits.
    Float8E5m2 = 19,
    /// 8-bit float, 5 exponent bits, no infinities, no negative zero.
    Float8E5m2fnuz = 20,
    /// Unsigned 4-bit integer, two to a byte.
    Uint4 = 21,
    /// Signed 4-bit integer, two to a byte.
    Int4 = 22,
    /// 4-bit float, two to a byte.
    Float4E2m1 = 23,
    /// 8-bit power of two.
    Float8E8m0 = 24,
    /// Unsigned 2-bit integer, four to a byte.
    Uint2 = 25,
    /// Signed 2-bit integer, four to a byte.
    Int2 = 26,
    /// 6-bit float, 2 exponent bits.
    Float6E2m3 = 27,
    /// 6-bit float, 3 exponent bits.
    Float6E3m2 = 28,
}

/// Where a tensor's elements are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum DataLocation {
    /// In one of the data fields.
    Default = 0,
    /// In the file that `external_data` names.
    External = 1,
}

/// The values of a packed repeated field, still encoded.
///
/// Writers pack these fields, in one piece. The format allows other encodings, several pieces and
/// single values, so those are read as well.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PackedValues {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Packed(Bytes),
    Single(Vec<u8>),
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Piece::Packed(bytes) => bytes,
            Piece::Single(bytes) => bytes,
        }
    }
}

impl PackedValues {
    /// Values that are encoded already.
    pub fn from_encoded(bytes: Bytes) -> PackedValues {
        let pieces = if bytes.is_empty() { Vec::new() } else { vec![Piece::Packed(bytes)] };
        PackedValues { pieces }
    }

    /// Integers, as varints.
    pub fn from_varints(values: impl IntoIterator<Item = u64>) -> PackedValues {
        let mut bytes = Vec::new();
        for value in values {
            encoding::encode_varint(value, &mut bytes);
        }
        PackedValues::from_encoded(bytes.into())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.encoded_len() == 0
    }

    /// Bytes of the encoded values.
    pub fn encoded_len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.as_slice().len()).sum()
    }

    /// The encoded values in one piece; copied only if they were in several.
    pub fn to_encoded(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [Piece::Packed(bytes)] => bytes.clone(),
            pieces => {
                let mut bytes = Vec::with_capacity(self.encoded_len());
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_slice()));
                bytes.into()
            }
        }
    }

    /// The values of a field of varints; an error takes the place of the first that is malformed.
    pub fn varints(&self) -> impl Iterator<Item = Result<u64, DecodeError>> + '_ {
        self.pieces.iter().flat_map(|piece| {
            let mut rest = piece.as_slice();
            std::iter::from_fn(move || {
                if rest.is_empty() {
                    return None;
                }
                let value = encoding::decode_varint(&mut rest);
                if value.is_err() {
                    rest = &[];
                }
                Some(value)
            })
        })
    }

    fn merge(
        &mut self,
        wire_type: WireType,
        single: WireType,
        buf: &mut impl Buf,
        cx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if wire_type == WireType::LengthDelimited {
            let mut bytes = Bytes::new();
            encoding::bytes::merge(wire_type, &mut bytes, buf, cx)?;
            if !bytes.is_empty() {
                self.pieces.push(Piece::Packed(bytes));
            }
            return Ok(());
        }
        let mut value = [0u8; 8];
        let mut varint = Vec::new();
        let bytes: &[u8] = match single {
            WireType::ThirtyTwoBit => {
                let mut bits = 0u32;
                encoding::fixed32::merge(wire_type, &mut bits, buf, cx)?;
                value[..4].copy_from_slice(&bits.to_le_bytes());
                &value[..4]
            }
            WireType::SixtyFourBit => {
                let mut bits = 0u64;
                encoding::fixed64::merge(wire_type, &mut bits, buf, cx)?;
                value = bits.to_le_bytes();
                &value
            }
            WireType::Varint
            | WireType::LengthDelimited
            | WireType::StartGroup
            | WireType::EndGroup => {
                let mut bits = 0u64;
                encoding::uint64::merge(wire_type, &mut bits, buf, cx)?;
                encoding::encode_varint(bits, &mut varint);
                &varint
            }
        };
        if let Some(Piece::Single(values)) = self.pieces.last_mut() {
            values.extend_from_slice(bytes);
        } else {
            self.pieces.push(Piece::Single(bytes.to_vec()));
        }
        Ok(())
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        if !self.is_empty() {
            encoding::encode_key(tag, WireType::LengthDelimited, buf);
            encoding::encode_varint(self.encoded_len() as u64, buf);
            self.pieces.iter().for_each(|piece| buf.put_slice(piece.as_slice()));
        }
    }

    fn field_len(&self, tag: u32) -> usize {
        let len = self.encoded_len();
        if len == 0 {
            return 0;
        }
        encoding::key_len(tag) + encoding::encoded_len_varint(len as u64) + len
    }
}

/// A dense tensor: an initializer, an attribute, or a file of test data.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TensorProto {
    /// The extents; none for a scalar.
    pub dims: Vec<i64>,
    /// The type of the elements, a [`DataType`].
    pub data_type: Option<i32>,
    /// Whether this is only a part of a tensor, which nothing writes.
    pub has_segment: bool,
    /// Elements of types float and complex64.
    pub float_data: PackedValues,
    /// Elements of integer types of up to 32 bits, booleans, and the bits of narrower floats.
    pub int32_data: PackedValues,
    /// Elements of type string.
    pub string_data: Vec<Bytes>,
    /// Elements of type int64.
    pub int64_data: PackedValues,
    /// The name.
    pub name: Option<String>,
    /// Elements of any type but string, dense, row-major and little-endian.
    pub raw_data: Option<Bytes>,
    /// Elements of types double and complex128.
    pub double_data: PackedValues,
    /// Elements of types uint32 and uint64.
    pub uint64_data: PackedValues,
    /// Description for people.
    pub doc_string: Option<String>,
    /// `location`, `offset`, `length` and `checksum` of elements in another file.
    pub external_data: Vec<StringStringEntryProto>,
    /// Where the elements are, a [`DataLocation`].
    pub data_location: Option<i32>,
    /// Free-form properties.
    pub metadata_props: Vec<StringStringEntryProto>,
}

impl TensorProto {
    /// The name, or an empty one.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The type of the elements, if it is one that this version knows.
    pub fn data_type(&self) -> Option<DataType> {
        DataType::try_from(self.data_type.unwrap_or_default()).ok()
    }

    /// Whether the elements are in another file.
    pub fn is_external(&self) -> bool {
        self.data_location == Some(DataLocation::External as i32)
    }
}

impl Message for TensorProto {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        let TensorProto {
            dims,
            data_type,
            has_segment,
            float_data,
            int32_data,
            string_data,
            int64_data,
            name,
            raw_data,
            double_data,
            uint64_data,
            doc_string,
            external_data,
            data_location,
            metadata_props,
        } = self;
        encoding::int64::encode_repeated(1, dims, buf);
        if let Some(data_type) = data_type {
            encoding::int32::encode(2, data_type, buf);
        }
        if *has_segment {
            encoding::bytes::encode(3, &Bytes::new(), buf);
        }
        float_data.encode(4, buf);
        int32_data.encode(5, buf);
        encoding::bytes::encode_repeated(6, string_data, buf);
        int64_data.encode(7, buf);
        if let Some(name) = name {
            encoding::string::encode(8, name, buf);
        }
        if let Some(raw_data) = raw_data {
            encoding::bytes::encode(9, raw_data, buf);
        }
        double_data.encode(10, buf);
        uint64_data.encode(11, buf);
        if let Some(doc_string) = doc_string {
            encoding::string::encode(12, doc_string, buf);
        }
        encoding::message::encode_repeated(13, external_data, buf);
        if let Some(data_location) = data_location {
            encoding::int32::encode(14, data_location, buf);
        }
        encoding::message::encode_repeated(16, metadata_props, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        cx: DecodeContext,
    ) -> Result<(), DecodeError> {
        const VARINT: WireType = WireType::Varint;
        let result = match tag {
            1 => encoding::int64::merge_repeated(wire_type, &mut self.dims, buf, cx),
            2 => encoding::int32::merge(wire_type, self.data_type.get_or_insert(0), buf, cx),
            3 => {
                self.has_segment = true;
                encoding::skip_field(wire_type, tag, buf, cx)
            }
            4 => self.float_data.merge(wire_type, WireType::ThirtyTwoBit, buf, cx),
            5 => self.int32_data.merge(wire_type, VARINT, buf, cx),
            6 => encoding::bytes::merge_repeated(wire_type, &mut self.string_data, buf, cx),
            7 => self.int64_data.merge(wire_type, VARINT, buf, cx),
            8 => encoding::string::merge(wire_type, self.name.get_or_insert_default(), buf, cx),
            9 => encoding::bytes::merge(wire_type, self.raw_data.get_or_insert_default(), buf, cx),
            10 => self.double_data.merge(wire_type, WireType::SixtyFourBit, buf, cx),
            11 => self.uint64_data.merge(wire_type, VARINT, buf, cx),
            12 => {
                encoding::string::merge(wire_type, self.doc_string.get_or_insert_default(), buf, cx)
            }
            13 => encoding::message::merge_repeated(wire_type, &mut self.external_data, buf, cx),
            14 => encoding::int32::merge(wire_type, self.data_location.get_or_insert(0), buf, cx),
            16 => encoding::message::merge_repeated(wire_type, &mut self.metadata_props, buf, cx),
            _ => encoding::skip_field(wire_type, tag, buf, cx),
        };
        result.map_err(|mut error| {
            error.push("TensorProto", field_name(tag));
            error
        })
    }

    fn encoded_len(&self) -> usize {
        let text = |tag, text: &Option<String>| {
            text.as_ref().map_or(0, |text| encoding::string::encoded_len(tag, text))
        };
        let int = |tag, int: &Option<i32>| {
            int.as_ref().map_or(0, |int| encoding::int32::encoded_len(tag, int))
        };
        encoding::int64::encoded_len_repeated(1, &self.dims)
            + int(2, &self.data_type)
            + if self.has_segment { encoding::bytes::encoded_len(3, &Bytes::new()) } else { 0 }
            + self.float_data.field_len(4)
            + self.int32_data.field_len(5)
            + encoding::bytes::encoded_len_repeated(6, &self.string_data)
            + self.int64_data.field_len(7)
            + text(8, &self.name)
            + self.raw_data.as_ref().map_or(0, |raw| encoding::bytes::encoded_len(9, raw))
            + self.double_data.field_len(10)
            + self.uint64_data.field_len(11)
            + text(12, &self.doc_string)
            + encoding::message::encoded_len_repeated(13, &self.external_data)
            + int(14, &self.data_location)
            + encoding::message::encoded_len_repeated(16, &self.metadata_props)
    }

    fn clear(&mut self) {
        *self = TensorProto::default();
    }
}

/// The name of a field, for the path in error messages.
fn field_name(tag: u32) -> &'static str {
    match tag {
        1 => "dims",
        2 => "data_type",
        3 => "segment",
        4 => "float_data",
        5 => "int32_data",
        6 => "string_data",
        7 => "int64_data",
        8 => "name",
        9 => "raw_data",
        10 => "double_data",
        11 => "uint64_data",
        12 => "doc_string",
        13 => "external_data",
        14 => "data_location",
        16 => "metadata_props",
        _ => "unknown field",
    }
}

/// A sparse tensor in coordinate form.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SparseTensorProto {
    /// The elements that are not zero.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they are.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// The extents.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_may_be_packed_in_pieces_or_single() {
        // int64_data: packed [1, 300], then single 7, then packed [2].
        let bytes: &[u8] = &[0x3A, 3, 1, 0xAC, 0x02, 0x38, 7, 0x3A, 1, 2];
        let tensor = TensorProto::decode(Bytes::from_static(bytes)).unwrap();
        let values: Vec<_> = tensor.int64_data.varints().map(Result::unwrap).collect();
        assert_eq!(values, [1, 300, 7, 2]);
        // float_data: a single 1.0, which has the wire type of 32 bits.
        let single: &[u8] = &[0x25, 0, 0, 0x80, 0x3F];
        let tensor = TensorProto::decode(Bytes::from_static(single)).unwrap();
        assert_eq!(tensor.float_data.to_encoded()[..], 1f32.to_le_bytes());
    }

    #[test]
    fn a_malformed_varint_ends_the_values_with_an_error() {
        let values = PackedValues::from_encoded(Bytes::from_static(&[5, 0x80]));
        let values: Vec<_> = values.varints().map(|value| value.ok()).collect();
        assert_eq!(values, [Some(5), None]);
    }

    #[test]
    fn every_field_survives_encoding() {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let tensor = TensorProto {
            dims: vec![2, -1, 300],
            data_type: Some(DataType::Float as i32),
            has_segment: true,
            float_data: PackedValues::from_encoded(Bytes::from_static(&[0, 0, 128, 63])),
            int32_data: PackedValues::from_varints([1, u64::MAX]),
            string_data: vec![Bytes::from_static(b"a"), Bytes::new()],
            int64_data: PackedValues::from_varints([300]),
            name: Some("w".to_owned()),
            raw_data: Some(Bytes::from_static(&[9; 200])),
            double_data: PackedValues::from_encoded(Bytes::from_static(&[0; 8])),
            uint64_data: PackedValues::from_varints([7]),
            doc_string: Some("text".to_owned()),
            external_data: vec![entry("location", "w.bin"), entry("offset", "4096")],
            data_location: Some(1),
            metadata_props: vec![entry("k", "v")],
        };
        let bytes = tensor.encode_to_vec();
        assert_eq!(bytes.len(), tensor.encoded_len());
        assert_eq!(TensorProto::decode(Bytes::from(bytes)).unwrap(), tensor);
    }

    #[test]
    fn errors_name_the_field() {
        let error = TensorProto::decode(Bytes::from_static(&[0x4A, 9, 1])).unwrap_err();
        assert!(error.to_string().contains("TensorProto.raw_data"), "{error}");
    }
}
