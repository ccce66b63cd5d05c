//! Compiles the model of the digits example for up to four threads.

fn main() {
    niello_build::configure("../digits/models/digits.onnx")
        .threads(4)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
