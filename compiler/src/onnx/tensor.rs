//! Tensors of ONNX files as constants, and back.

use std::fmt;

use prost::Message;
use prost::bytes::Bytes;

use super::external::ExternalData;
use super::proto::{DataType, OptionalProto, SequenceProto, TensorProto, TypeProto, TypeValue};
use crate::ir::{Constant, DType, Shape, SharedBytes, TensorType};

/// Most dimensions that a tensor may have.
///
/// Real models stay below 10. A type holds each extent as an expression of many bytes, and a few
/// bytes of a malformed file could ask for millions of them.
pub(super) const MAX_RANK: usize = 64;

/// Why a tensor of a file is no constant. The message does not name the tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorError(String);

impl TensorError {
    pub(super) fn new(message: impl Into<String>) -> TensorError {
        TensorError(message.into())
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TensorError {}

/// The data type of ONNX's number for it.
///
/// # Errors
///
/// If there is no such number, or niello has no such type.
pub fn dtype_from_onnx(data_type: i32) -> Result<DType, TensorError> {
    let known = DataType::try_from(data_type)
        .map_err(|_| TensorError::new(format!("{data_type} is not a data type of ONNX")))?;
    Ok(match known {
        DataType::Float => DType::F32,
        DataType::Uint8 => DType::U8,
        DataType::Int8 => DType::I8,
        DataType::Uint16 => DType::U16,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Bool => DType::Bool,
        DataType::Float16 => DType::F16,
        DataType::Double => DType::F64,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bfloat16 => DType::BF16,
        DataType::Float8E4m3fn => DType::F8E4M3FN,
        DataType::Float8E4m3fnuz => DType::F8E4M3FNUZ,
        DataType::Float8E5m2 => DType::F8E5M2,
        DataType::Float8E5m2fnuz => DType::F8E5M2FNUZ,
        DataType::Uint4 => DType::U4,
        DataType::Int4 => DType::I4,
        DataType::Float4E2m1 => DType::F4E2M1,
        DataType::Float8E8m0 => DType::F8E8M0,
        DataType::Uint2 => DType::U2,
        DataType::Int2 => DType::I2,
        DataType::Undefined => return Err(TensorError::new("the data type is not given")),
        DataType::String
        | DataType::Complex64
        | DataType::Complex128
        | DataType::Float6E2m3
        | DataType::Float6E3m2 => {
            let name = format!("{known:?}").to_ascii_lowercase();
            return Err(TensorError::new(format!("elements of type {name} are not supported")));
        }
    })
}

/// ONNX's number for a data type.
pub fn dtype_to_onnx(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::Bool,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::I4 => DataType::Int4,
        DType::U4 => DataType::Uint4,
        DType::I2 => DataType::Int2,
        DType::U2 => DataType::Uint2,
        DType::F8E4M3FN => DataType::Float8E4m3fn,
        DType::F8E4M3FNUZ => DataType::Float8E4m3fnuz,
        DType::F8E5M2 => DataType::Float8E5m2,
        DType::F8E5M2FNUZ => DataType::Float8E5m2fnuz,
        DType::F8E8M0 => DataType::Float8E8m0,
        DType::F4E2M1 => DataType::Float4E2m1,
    }
}

/// A tensor of a file as a constant. Raw and external elements are shared, not copied.
///
/// # Errors
///
/// If the elements are not as many as the extents say, are out of range, are in a file that cannot
/// be read, or are of a type without constants.
pub fn constant_from_onnx(
    tensor: &TensorProto,
    external: &mut ExternalData,
) -> Result<Constant, TensorError> {
    if tensor.has_segment {
        return Err(TensorError::new("tensors in segments are not supported"));
    }
    let dtype = dtype_from_onnx(tensor.data_type.unwrap_or_default())?;
    let ty = TensorType::new(shape(&tensor.dims)?, dtype);
    let (Some(elements), Some(expected)) = (ty.num_elements(), ty.bytes()) else {
        return Err(TensorError::new(format!("{ty} is too large")));
    };
    let bytes = if tensor.is_external() {
        external.bytes(&tensor.external_data, expected)?
    } else if let Some(raw) = &tensor.raw_data {
        SharedBytes::new(raw.clone())
    } else {
        typed_elements(tensor, dtype, elements)?
    };
    if bytes.len() as u64 != expected {
        return Err(TensorError::new(format!(
            "{ty} takes {expected} bytes, but the file has {}",
            bytes.len()
        )));
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        // Any other byte than 0 is true; the IR holds exactly 0 or 1.
        let normal: Vec<u8> = bytes.iter().map(|&byte| u8::from(byte != 0)).collect();
        return Constant::new(ty, SharedBytes::new(normal))
            .map_err(|error| TensorError::new(error.to_string()));
    }
    Constant::new(ty, bytes).map_err(|error| TensorError::new(error.to_string()))
}

fn shape(dims: &[i64]) -> Result<Shape, TensorError> {
    if dims.len() > MAX_RANK {
        return Err(TensorError::new(format!(
            "a tensor of {} dimensions is not supported; the most is {MAX_RANK}",
            dims.len()
        )));
    }
    if let Some(dim) = dims.iter().find(|&&dim| dim < 0) {
        return Err(TensorError::new(format!("a dimension of {dim} is negative")));
    }
    Ok(Shape::from_consts(dims))
}

/// The elements in the field for their type, as dense little-endian bytes.
fn typed_elements(
    tensor: &TensorProto,
    dtype: DType,
    elements: u64,
) -> Result<SharedBytes, TensorError> {
    let (field, values) = match dtype {
        // These fields hold the elements as they are; no copy is needed.
        DType::F32 => return Ok(SharedBytes::new(tensor.float_data.to_encoded())),
        DType::F64 => return Ok(SharedBytes::new(tensor.double_data.to_encoded())),
        DType::I64 => ("int64_data", &tensor.int64_data),
        DType::U32 | DType::U64 => ("uint64_data", &tensor.uint64_data),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::U8
        | DType::U16
        | DType::F16
        | DType::BF16
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => ("int32_data", &tensor.int32_data),
    };
    // Elements narrower than a byte are packed: each value of the field is one byte of them.
    let (expected, width) = match dtype.bytes() {
        Some(width) => (elements, width),
        None => (dtype.bytes_for(elements).unwrap_or(u64::MAX), 1),
    };
    // Each value takes at least one byte of the file, so this allocates at most eight times what
    // the file holds, and nothing if the counts differ.
    let found = values.varints().count() as u64;
    if found != expected {
        return Err(TensorError::new(format!(
            "{expected} values are expected in {field}, but the file has {found}"
        )));
    }
    let mut bytes = Vec::with_capacity(values.encoded_len().min(found as usize) * width);
    for value in values.varints() {
        let value = value.map_err(|error| TensorError::new(format!("{field}: {error}")))?;
        if !fits(value, dtype) {
            return Err(TensorError::new(format!(
                "{field} has {}, which is no {dtype}",
                value as i64
            )));
        }
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    Ok(SharedBytes::new(bytes))
}

/// Whether a value of an integer field is one element (or one byte of narrow elements). Signed
/// values are sign-extended to 64 bits. The 8-bit fields tolerate both readings, for writers differ.
fn fits(value: u64, dtype: DType) -> bool {
    let signed = value as i64;
    match dtype {
        DType::I64 | DType::U64 => true,
        DType::U32 => value <= u64::from(u32::MAX),
        DType::I32 => i32::try_from(signed).is_ok(),
        DType::I16 => i16::try_from(signed).is_ok(),
        DType::U16 | DType::F16 | DType::BF16 => u16::try_from(signed).is_ok(),
        DType::I8 => i8::try_from(signed).is_ok(),
        DType::Bool => signed == 0 || signed == 1,
        DType::U8 => u8::try_from(signed).is_ok(),
        DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => (-128..=255).contains(&signed),
        DType::F32 | DType::F64 => false,
    }
}

/// A constant as a tensor of a file, with raw elements. `None` if the constant is opaque.
pub fn constant_to_onnx(constant: &Constant, name: &str) -> Option<TensorProto> {
    let dims = constant.ty().shape.as_consts()?;
    Some(TensorProto {
        dims: dims.into_iter().map(i64::try_from).collect::<Result<_, _>>().ok()?,
        data_type: Some(dtype_to_onnx(constant.ty().dtype) as i32),
        name: (!name.is_empty()).then(|| name.to_owned()),
        raw_data: Some(Bytes::from_owner(constant.to_bytes()?)),
        ..TensorProto::default()
    })
}

/// A value in a file of test data.
#[derive(Clone, PartialEq, Debug)]
pub enum TestValue {
    /// A tensor.
    Tensor(Constant),
    /// A sequence of tensors.
    Sequence(Vec<Constant>),
    /// An optional value that has no element.
    Absent,
    /// A value that niello has no support for, and what it is: a map, strings.
    Unsupported(String),
}

impl TestValue {
    /// The tensor.
    ///
    /// # Errors
    ///
    /// What the value is, if it is no tensor.
    pub fn into_tensor(self) -> Result<Constant, String> {
        match self {
            TestValue::Tensor(tensor) => Ok(tensor),
            TestValue::Sequence(_) => Err("a sequence".to_owned()),
            TestValue::Absent => Err("an optional value without an element".to_owned()),
            TestValue::Unsupported(what) => Err(what),
        }
    }

    /// The tensors that the value is made of: those of a sequence in order.
    ///
    /// # Errors
    ///
    /// What the value is, if niello has no support for it.
    pub fn into_tensors(self) -> Result<Vec<Constant>, String> {
        match self {
            TestValue::Tensor(tensor) => Ok(vec![tensor]),
            TestValue::Sequence(elements) => Ok(elements),
            TestValue::Absent => Ok(Vec::new()),
            TestValue::Unsupported(what) => Err(what),
        }
    }
}

/// Reads a file of test data that holds a value of a type; of an unknown type, as
/// [`test_value_from_bytes`] does.
///
/// # Errors
///
/// If the bytes are malformed, or a tensor's elements do not fit its type.
pub fn test_value_of_type(bytes: Bytes, ty: Option<&TypeProto>) -> Result<TestValue, TensorError> {
    let malformed = |error: prost::DecodeError| TensorError::new(error.to_string());
    let constant = |tensor: &TensorProto| constant_from_onnx(tensor, &mut ExternalData::none());
    let sequence = |sequence: &SequenceProto| {
        let elements = sequence.tensor_values.iter().map(constant);
        elements.collect::<Result<_, _>>().map(TestValue::Sequence)
    };
    match ty.and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(_)) | None => test_value_from_bytes(bytes),
        Some(TypeValue::Sequence(_)) => sequence(&SequenceProto::decode(bytes).map_err(malformed)?),
        Some(TypeValue::Optional(_)) => {
            let optional = OptionalProto::decode(bytes).map_err(malformed)?;
            match (&optional.tensor_value, &optional.sequence_value) {
                (Some(tensor), _) => constant(tensor).map(TestValue::Tensor),
                (None, Some(elements)) => sequence(elements),
                (None, None) => Ok(TestValue::Absent),
            }
        }
        Some(TypeValue::SparseTensor(_)) => {
            Ok(TestValue::Unsupported("a sparse tensor".to_owned()))
        }
        Some(TypeValue::Map(_)) => Ok(TestValue::Unsupported("a map".to_owned())),
    }
}

/// Reads a file of test data, `input_0.pb` or `output_0.pb`.
///
/// Such a file does not say whether it holds a tensor, a sequence or an optional value, and these
/// share field numbers. A tensor with the field `segment`, which nothing writes, is one of the
/// other two.
///
/// # Errors
///
/// If the bytes are malformed, or a tensor's elements do not fit its type.
pub fn test_value_from_bytes(bytes: Bytes) -> Result<TestValue, TensorError> {
    const OTHER: &str = "a sequence or an optional value";
    let tensor = match TensorProto::decode(bytes.clone()) {
        Ok(tensor) => tensor,
        // The string field `name` of the others is where a tensor has its dimensions.
        Err(error) if bytes.first() == Some(&0x0A) && error.to_string().contains("dims") => {
            return Ok(TestValue::Unsupported(OTHER.to_owned()));
        }
        Err(error) => return Err(TensorError::new(error.to_string())),
    };
    let has_elements = tensor.raw_data.is_some()
        || tensor.is_external()
        || [&tensor.float_data, &tensor.int32_data, &tensor.int64_data]
            .iter()
            .chain(&[&tensor.double_data, &tensor.uint64_data])
            .any(|values| !values.is_empty());
    let is_scalar_type = !matches!(
        tensor.data_type(),
        Some(DataType::String | DataType::Complex64 | DataType::Complex128)
    );
    if tensor.has_segment || (!has_elements && tensor.dims.is_empty() && is_scalar_type) {
        return Ok(TestValue::Unsupported(OTHER.to_owned()));
    }
    match tensor.data_type() {
        Some(known) if dtype_from_onnx(known as i32).is_err() => {
            let name = format!("{known:?}").to_ascii_lowercase();
            Ok(TestValue::Unsupported(format!("a tensor of type {name}")))
        }
        Some(_) | None => {
            let mut external = ExternalData::none();
            constant_from_onnx(&tensor, &mut external).map(TestValue::Tensor)
        }
    }
}

/// The bytes of a file of test data that holds a constant. `None` if the constant is opaque.
pub fn test_value_to_bytes(constant: &Constant, name: &str) -> Option<Vec<u8>> {
    Some(constant_to_onnx(constant, name)?.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::proto::PackedValues;
    use super::*;

    fn tensor(dtype: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { dims: dims.to_vec(), data_type: Some(dtype as i32), ..TensorProto::default() }
    }

    fn ints(dtype: DataType, dims: &[i64], values: &[i64]) -> TensorProto {
        let packed = PackedValues::from_varints(values.iter().map(|&value| value as u64));
        let mut tensor = tensor(dtype, dims);
        match dtype {
            DataType::Int64 => tensor.int64_data = packed,
            DataType::Uint32 | DataType::Uint64 => tensor.uint64_data = packed,
            _ => tensor.int32_data = packed,
        }
        tensor
    }

    fn read(tensor: &TensorProto) -> Result<Constant, String> {
        constant_from_onnx(tensor, &mut ExternalData::none()).map_err(|error| error.to_string())
    }

    fn bytes(tensor: &TensorProto) -> Vec<u8> {
        read(tensor).unwrap().to_bytes().unwrap().to_vec()
    }

    #[test]
    fn every_dtype_maps_back() {
        for dtype in DType::all() {
            assert_eq!(dtype_from_onnx(dtype_to_onnx(dtype) as i32), Ok(dtype));
        }
        let error = |number| dtype_from_onnx(number).unwrap_err().to_string();
        assert_eq!(error(8), "elements of type string are not supported");
        assert_eq!(error(0), "the data type is not given");
        assert_eq!(error(99), "99 is not a data type of ONNX");
    }

    #[test]
    fn integer_fields_are_narrowed_to_the_elements() {
        assert_eq!(bytes(&ints(DataType::Int8, &[2], &[-1, 127])), [0xFF, 0x7F]);
        assert_eq!(bytes(&ints(DataType::Bool, &[2], &[1, 0])), [1, 0]);
        // The bits of 1.0 and -2.0 in binary16, and of 1.0 in bfloat16.
        assert_eq!(
            read(&ints(DataType::Float16, &[2], &[0x3C00, 0xC000])).unwrap().to_f64_vec(),
            Some(vec![1.0, -2.0])
        );
        assert_eq!(
            read(&ints(DataType::Bfloat16, &[], &[0x3F80])).unwrap().to_f64_vec(),
            Some(vec![1.0])
        );
        assert_eq!(
            bytes(&ints(DataType::Uint32, &[1], &[4_000_000_000])),
            4_000_000_000u32.to_le_bytes()
        );
        assert_eq!(bytes(&ints(DataType::Uint64, &[1], &[-1])), [0xFF; 8]);
        assert_eq!(bytes(&ints(DataType::Int64, &[1], &[-2])), (-2i64).to_le_bytes());
        // Three 4-bit elements are two values of the field.
        assert_eq!(bytes(&ints(DataType::Uint4, &[3], &[0x21, 0x03])), [0x21, 0x03]);
        assert_eq!(
            read(&ints(DataType::Uint8, &[1], &[256])).unwrap_err(),
            "int32_data has 256, which is no uint8"
        );
    }

    #[test]
    fn raw_elements_are_shared() {
        let raw = Bytes::from(vec![0u8; 8]);
        let tensor = TensorProto { raw_data: Some(raw.clone()), ..tensor(DataType::Float, &[2]) };
        let constant = read(&tensor).unwrap();
        assert_eq!(constant.to_bytes().unwrap().as_ptr(), raw.as_ptr());
        let back = constant_to_onnx(&constant, "x").unwrap();
        assert_eq!((back.dims, back.name.as_deref()), (vec![2], Some("x")));
        assert_eq!(back.raw_data, Some(raw));
    }

    #[test]
    fn sizes_are_checked_before_anything_is_allocated() {
        let raw = |dims: &[i64]| TensorProto {
            raw_data: Some(Bytes::from_static(&[0; 4])),
            ..tensor(DataType::Float, dims)
        };
        assert_eq!(
            read(&raw(&[3])).unwrap_err(),
            "Tensor[(3), float32] takes 12 bytes, but the file has 4"
        );
        assert_eq!(
            read(&raw(&[1 << 40, 1 << 40])).unwrap_err(),
            "Tensor[(1099511627776, 1099511627776), float32] is too large"
        );
        assert_eq!(read(&raw(&[-1])).unwrap_err(), "a dimension of -1 is negative");
        assert_eq!(
            read(&ints(DataType::Int64, &[1 << 40], &[1])).unwrap_err(),
            "1099511627776 values are expected in int64_data, but the file has 1"
        );
        assert_eq!(
            read(&raw(&[1; 65])).unwrap_err(),
            "a tensor of 65 dimensions is not supported; the most is 64"
        );
        assert_eq!(bytes(&tensor(DataType::Float, &[0, 3])), [0u8; 0]);
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let raw = Bytes::from_static(&[0, 2, 255]);
        let tensor = TensorProto { raw_data: Some(raw), ..tensor(DataType::Bool, &[3]) };
        assert_eq!(bytes(&tensor), [0, 1, 1]);
    }

    #[test]
    fn the_type_says_what_test_data_holds() {
        let value = |bytes: Vec<u8>, ty: TypeValue| {
            let ty = TypeProto { value: Some(ty), denotation: None };
            test_value_of_type(bytes.into(), Some(&ty)).unwrap()
        };
        let constant = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
        let tensor = constant_to_onnx(&constant, "").unwrap();
        let elements = SequenceProto { tensor_values: vec![tensor.clone(), tensor.clone()] };
        let sequence = TestValue::Sequence(vec![constant.clone(), constant.clone()]);
        let of_sequence = TypeValue::Sequence(Box::default());
        assert_eq!(value(elements.encode_to_vec(), of_sequence.clone()), sequence);
        assert_eq!(value(Vec::new(), of_sequence), TestValue::Sequence(Vec::new()));
        let optional = |value_of: OptionalProto| {
            value(value_of.encode_to_vec(), TypeValue::Optional(Box::default()))
        };
        let of_tensor = OptionalProto { tensor_value: Some(tensor), sequence_value: None };
        assert_eq!(optional(of_tensor), TestValue::Tensor(constant));
        let of_elements = OptionalProto { tensor_value: None, sequence_value: Some(elements) };
        assert_eq!(optional(of_elements), sequence);
        assert_eq!(optional(OptionalProto::default()), TestValue::Absent);
        let map = value(Vec::new(), TypeValue::Map(Box::default()));
        assert_eq!(map, TestValue::Unsupported("a map".to_owned()));
    }

    #[test]
    fn test_data_may_hold_what_is_not_supported() {
        let value = |bytes: Vec<u8>| test_value_from_bytes(bytes.into());
        let constant = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
        let bytes = test_value_to_bytes(&constant, "y").unwrap();
        assert_eq!(value(bytes), Ok(TestValue::Tensor(constant)));
        let other = Ok(TestValue::Unsupported("a sequence or an optional value".to_owned()));
        // SequenceProto { name: "s", elem_type: 1, tensor_values: [{ dims: [1] }] }, then without
        // name, then without elements.
        assert_eq!(value(vec![0x0A, 1, b's', 0x10, 1, 0x1A, 2, 0x08, 1]), other);
        assert_eq!(value(vec![0x10, 1, 0x1A, 2, 0x08, 1]), other);
        assert_eq!(value(vec![0x10, 1]), other);
        let strings = TensorProto {
            string_data: vec![Bytes::from_static(b"a")],
            ..tensor(DataType::String, &[1])
        };
        assert_eq!(
            value(strings.encode_to_vec()),
            Ok(TestValue::Unsupported("a tensor of type string".to_owned()))
        );
        assert!(value(vec![0xFF]).is_err());
    }
}
