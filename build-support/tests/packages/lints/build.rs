//! A model with every kind of odd name, and tensors of many kinds.

use niello_build::niello::ir::DType;

fn main() {
    let result = niello_build::configure("odd.onnx").try_compile_with(|path, options| {
        let model = handmade::Model {
            inputs: &[
                ("12", DType::F32, &[2]),
                ("x:0", DType::I64, &[2, 1]),
                ("x_0", DType::Bool, &[3]),
                ("input.1", DType::F64, &[]),
                ("type", DType::U8, &[1, 2]),
                ("self", DType::F16, &[1]),
                ("empty", DType::F32, &[0, 3]),
                ("a`b\u{202e}*/\n</div>[x] \\\"", DType::U4, &[3]),
            ],
            outputs: &[
                ("12", DType::I64, &[2]),
                ("Self", DType::F64, &[]),
                ("crate", DType::F32, &[0]),
                ("fn", DType::Bool, &[3]),
                ("", DType::BF16, &[1]),
                ("x:0", DType::U8, &[2]),
            ],
            metadata: &[("producer", "by \"hand\"\n\u{202e}")],
            weights: Default::default(),
            workspace_bytes: 1_234_560,
            body: "
                const float *twelve = inputs[0]; const int64_t *x = inputs[1];
                const unsigned char *flags = inputs[2]; const double *scalar = inputs[3];
                const unsigned char *type = inputs[4]; const uint16_t *half = inputs[5];
                const unsigned char *packed = inputs[7];
                int64_t *sum = outputs[0]; double *total = outputs[1];
                unsigned char *negated = outputs[3]; uint16_t *brain = outputs[4];
                unsigned char *bytes = outputs[5];
                for (int i = 0; i < 2; i++) sum[i] = x[i] + type[i];
                *total = twelve[0] + twelve[1] + *scalar;
                for (int i = 0; i < 3; i++) negated[i] = !flags[i];
                *brain = *half + @FACTOR@;
                bytes[0] = packed[0]; bytes[1] = packed[1];
                context->workspace[1234559]++;
            ",
        };
        handmade::compile(model, path, options)
    });
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
