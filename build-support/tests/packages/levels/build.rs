//! One model with code for several CPU levels, and the same with one version.

fn main() {
    niello_build::compile("models/network.onnx");
    niello_build::configure("models/network.onnx")
        .name("narrow")
        .cpu_levels(["baseline"])
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}
