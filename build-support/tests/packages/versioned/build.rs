//! A model that differs between the versions of the package.

fn main() {
    let result = niello_build::configure("model.onnx").try_compile_with(handmade::scale);
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
