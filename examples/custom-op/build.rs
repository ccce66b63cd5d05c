//! Compiles models that have operators of `custom-ops`.

// A crate that nothing names is not linked.
use custom_ops as _;

fn main() {
    niello_build::compile("models/attend.onnx");
    niello_build::compile("models/codes.onnx");
}
