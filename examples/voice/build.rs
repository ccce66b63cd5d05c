//! Compiles the model into this crate.

fn main() {
    niello_build::configure("models/voice.onnx")
        .state("state", "state_out")
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
