//! Two ONNX models: one with one line, one with a dimension to pin.

fn main() {
    niello_build::compile("models/affine.onnx");
    niello_build::configure("models/dense.onnx")
        .dim("batch", 2)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
