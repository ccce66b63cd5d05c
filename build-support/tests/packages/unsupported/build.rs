//! A model with two operators that do not exist.

fn main() {
    niello_build::compile("unknown.onnx");
}
