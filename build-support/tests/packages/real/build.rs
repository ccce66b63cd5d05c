//! Two ONNX models: one with one line, one with a dimension to pin, and to
//! leave open.

fn main() {
    niello_build::compile("models/affine.onnx");
    niello_build::configure("models/dense.onnx")
        .dim("batch", 2)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
    niello_build::configure("models/dense.onnx")
        .name("batches")
        .dim("batch", 1..=3)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
