//! ONNX's `.pb`: a `TensorProto`, as in the test data of models.

use std::fs::File;
use std::io::Read;

use super::buffered;
use crate::ir::Constant;
use crate::onnx::{test_value_from_bytes, test_value_to_bytes};

/// Most bytes of a protobuf message.
const MAX_MESSAGE_BYTES: u64 = (1 << 31) - 1;

/// Reads a file.
pub(super) fn read(file: File) -> Result<Constant, String> {
    let (mut reader, length) = buffered(file)?;
    if length > MAX_MESSAGE_BYTES {
        return Err(format!(
            "the file has {length} bytes, but a protobuf message has at most {MAX_MESSAGE_BYTES}"
        ));
    }
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|error| format!("cannot read the file: {error}"))?;
    match test_value_from_bytes(bytes.into()) {
        Ok(value) => {
            value.into_tensor().map_err(|what| format!("this is {what}, which is not supported"))
        }
        Err(error) => Err(format!("this is no tensor of ONNX, or it is damaged: {error}")),
    }
}

/// A tensor as a file.
pub(super) fn to_bytes(name: &str, tensor: &Constant) -> Result<Vec<u8>, String> {
    let bytes = test_value_to_bytes(tensor, name).ok_or("the elements are not known")?;
    if bytes.len() as u64 > MAX_MESSAGE_BYTES {
        return Err(format!(
            "the tensor takes {} bytes, but a protobuf message has at most {MAX_MESSAGE_BYTES}; \
             let the file's name end in .npy",
            bytes.len()
        ));
    }
    Ok(bytes)
}
