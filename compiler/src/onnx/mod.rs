//! ONNX import: the only place that knows ONNX.

mod budget;
mod external;
mod import;
mod input_value;
mod load;
mod model_builder;
mod opened;
mod ops;
mod ports;
pub mod proto;
pub mod quantize;
mod summary;
mod tensor;

pub use external::ExternalData;
pub(crate) use external::LFS_POINTER;
pub use import::{
    Attributes, ImportOptions, Imported, MAX_OPSET, MIN_OPSET, ModelInfo, ModelPort, Node,
    NodeError, Outputs, import, static_inputs,
};
pub use input_value::InputValue;
pub use load::{ModelFile, load, load_bytes};
pub use model_builder::{ModelAttr, ModelBuilder, ModelDim};
pub use opened::open_inputs;
pub use ops::{
    ImportFn, OnnxOp, OnnxOpEntry, operator_versions, operators_by_domain, supported_operators,
};
pub use ports::{dim_names, input_names, input_types, output_types, string_port};
pub use summary::{DeclaredDim, DeclaredPort, FileSummary, OperatorUse, ParameterCount, summary};
pub use tensor::{
    TensorError, TestValue, constant_from_onnx, constant_to_onnx, dtype_from_onnx, dtype_to_onnx,
    test_value_from_bytes, test_value_of_type, test_value_to_bytes,
};
