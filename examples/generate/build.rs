//! Compiles the model into this crate.

fn main() {
    niello_build::configure("models/lookup.onnx")
        .dim("past", 0..=4095)
        .dim("seq", 1..=64)
        .state("past.*", "present.*")
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
