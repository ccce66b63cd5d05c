//! Two models with one large matrix, stored once; and one of them by itself.

use niello_build::configure;

fn main() {
    for config in [
        configure("models/prefill.onnx"),
        configure("models/decode.onnx").weights_of("prefill"),
        configure("models/decode.onnx").name("alone"),
    ] {
        config.try_compile().unwrap_or_else(|errors| errors.exit());
    }
}
