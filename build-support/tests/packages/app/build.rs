//! Models of which one has its weights in a file, and of which some have names that symbols cannot
//! tell apart.

use niello_build::{Weights, configure};

fn main() {
    for config in [
        configure("models/double.onnx"),
        configure("models/triple.onnx"),
        configure("models/double.onnx").name("a-b"),
        configure("models/double.onnx").name("a_b"),
        configure("models/double.onnx").name("日本"),
        configure("models/triple.onnx").name("中国"),
        configure("models/double.onnx").name("far").weights(Weights::External("far.bin".into())),
    ] {
        config.try_compile_with(handmade::scale).unwrap_or_else(|errors| errors.exit());
    }
}
