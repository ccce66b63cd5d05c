//! A model with a workspace of 64 MiB and an output of 8 MiB.

use niello_build::niello::ir::DType;

fn main() {
    let result = niello_build::configure("big.onnx").try_compile_with(|path, options| {
        let model = handmade::Model {
            inputs: &[("x", DType::U8, &[1])],
            outputs: &[("y", DType::U8, &[8 << 20])],
            workspace_bytes: 64 << 20,
            body: "unsigned char *last = context->workspace + (64u << 20) - 1;
                   *last += *(const unsigned char *)inputs[0];
                   ((unsigned char *)outputs[0])[(8u << 20) - 1] = @FACTOR@ * *last;",
            ..handmade::Model::default()
        };
        handmade::compile(model, path, options)
    });
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
