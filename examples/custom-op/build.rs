//! Compiles a model that has operators of `custom-ops`.

// A crate that nothing names is not linked.
use custom_ops as _;

fn main() {
    niello_build::compile("models/attend.onnx");
}
