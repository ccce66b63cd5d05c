//! Compiles the model into this crate.

fn main() {
    niello_build::compile("models/keywords.onnx");
}
