//! Two models with the same kernel and other weights.

fn main() {
    niello_build::compile("models/one.onnx");
    niello_build::compile("models/two.onnx");
}
