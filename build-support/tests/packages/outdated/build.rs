//! A model whose bindings are for another runtime.

fn main() {
    let result = niello_build::configure("model.onnx").try_compile_with(handmade::scale);
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
