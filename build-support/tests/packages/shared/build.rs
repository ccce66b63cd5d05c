//! Two models with one large matrix, stored once; and one of them by itself.

use niello_build::configure;

fn main() {
    for config in [
        configure("models/plain.onnx"),
        configure("models/biased.onnx").weights_of("plain"),
        configure("models/biased.onnx").name("alone"),
    ] {
        config.try_compile().unwrap_or_else(|errors| errors.exit());
    }
}
