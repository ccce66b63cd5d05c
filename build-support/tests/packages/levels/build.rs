//! A model with code for several CPU levels, and the same model with code for one.

fn main() {
    niello_build::compile("models/network.onnx");
    niello_build::configure("models/network.onnx")
        .name("narrow")
        .cpu_levels(["baseline"])
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
