//! ONNX import: the only place that knows ONNX.
