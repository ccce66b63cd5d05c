//! Memory of compilations: weights are the bulk of a model, and are copied only where their numbers
//! change.

mod counting;

use std::fs;

use niello::compile::compile_file;
use niello::executor::{PackageOptions, write_package};
use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::ModelBuilder;
use niello::options::CompileOptions;
use niello::target::Target;

const MIB: usize = 1 << 20;

fn matrix(dtype: DType, dims: &[i64]) -> Constant {
    let ty = TensorType::from_consts(dims, dtype);
    let mut state = 1u32;
    let bytes = (0..ty.bytes().unwrap()).map(|place| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Floats between 2^-7 and 2^-6, either way.
        if dtype == DType::F32 && place % 4 == 3 {
            0x3c | (state >> 31 << 7) as u8
        } else {
            (state >> 24) as u8
        }
    });
    Constant::new(ty, SharedBytes::new(bytes.collect::<Vec<u8>>())).unwrap()
}

/// A product with a matrix of 2048 rows and columns, which `nodes` make of the initializers.
fn product(model: impl FnOnce(ModelBuilder) -> ModelBuilder) -> Vec<u8> {
    model(ModelBuilder::new(13).input("x", DType::F32, &[1, 2048]))
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[1, 2048])
        .to_bytes()
}

#[test]
fn weights_are_in_memory_only_if_their_numbers_change_and_then_once() {
    let dims = [2048, 2048];
    let plain = product(|b| b.initializer("w", &matrix(DType::F32, &dims)));
    let transposed = product(|b| {
        b.initializer("v", &matrix(DType::F32, &dims)).node("Transpose", &["v"], &["w"], &[])
    });
    let quantised = product(|b| {
        b.initializer("v", &matrix(DType::I8, &dims))
            .initializer("s", &matrix(DType::F32, &[2048]))
            .node("DequantizeLinear", &["v", "s"], &["w"], &[("axis", 0i64.into())])
    });
    // Scaled, and transformed for Winograd's algorithm: four times as many as in the model.
    let convolution = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 256, 14, 14])
        .initializer("w", &matrix(DType::F32, &[512, 256, 3, 3]))
        .initializer("s", &matrix(DType::F32, &[512, 1, 1]))
        .node("Conv", &["x", "w"], &["t"], &[("pads", vec![1i64; 4].into())])
        .node("Mul", &["t", "s"], &["y"], &[])
        .output("y", DType::F32, &[1, 512, 14, 14])
        .to_bytes();
    let folder = tempfile::tempdir().unwrap();
    let options = CompileOptions::new(Target::host());
    for (name, bytes, weights, most) in [
        ("plain", plain, 16 * MIB, 8 * MIB),
        ("transposed", transposed, 16 * MIB, 24 * MIB),
        ("quantised", quantised, 16 * MIB, 32 * MIB),
        ("convolution", convolution, 18 * MIB, 54 * MIB),
    ] {
        let path = folder.path().join(format!("{name}.onnx"));
        fs::write(&path, bytes).unwrap();
        let (packed, peak) = counting::with_peak(|| {
            let model = compile_file(&path, &options).unwrap_or_else(|report| panic!("{report}"));
            let options = PackageOptions::for_triple(&Target::host().triple);
            write_package(&model, folder.path(), &options).unwrap();
            model.weights.len()
        });
        assert!(packed >= weights, "{name}: {packed} bytes");
        assert!(peak <= most, "{name}: {peak} bytes for {packed} of weights");
    }
}
