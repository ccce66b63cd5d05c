//! One model, which is another one in each version.

fn main() {
    let result = niello_build::configure("model.onnx").try_compile_with(handmade::scale);
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
