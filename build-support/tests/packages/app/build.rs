//! Two models, of which one has its weights in a file.

use niello_build::{Weights, configure};

fn main() {
    for config in [
        configure("models/double.onnx"),
        configure("models/triple.onnx"),
        configure("models/double.onnx").name("far").weights(Weights::External("far.bin".into())),
    ] {
        config.try_compile_with(handmade::scale).unwrap_or_else(|errors| errors.exit());
    }
}
