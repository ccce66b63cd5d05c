//! Quantised operators and narrow types, imported, compiled and run: compared with ONNX Runtime
//! 1.31.1 and the interpreter.

use super::{options, run};
use crate::compile::{CompileOptions, Model, Passes};
use crate::executor::{LoadedModel, write_shared_library};
use crate::graph::interp::{Elements, Tensor, Value, evaluate};
use crate::graph::{PrintOptions, print_function};
use crate::ir::{Constant, DType};
use crate::onnx::proto::ModelProto;
use crate::onnx::{ImportOptions, ModelAttr, ModelBuilder, ModelFile, import};

fn ints(dtype: DType, shape: &[usize], values: impl IntoIterator<Item = i128>) -> Constant {
    let tensor = Tensor::from_ints(dtype, shape, values.into_iter().collect());
    tensor.unwrap().to_constant().unwrap()
}

pub(super) fn floats(shape: &[usize], values: &[f64]) -> Constant {
    Tensor::from_floats(DType::F32, shape, values.to_vec()).unwrap().to_constant().unwrap()
}

/// A scalar scale.
fn scale(value: f64) -> Constant {
    floats(&[], &[value])
}

/// A zero point for a whole tensor.
fn zero(value: i128) -> Constant {
    ints(DType::U8, &[], [value])
}

/// Unsigned bytes that look random.
fn u8s(shape: &[usize], seed: i128) -> Constant {
    let count = shape.iter().product::<usize>() as i128;
    ints(DType::U8, shape, (0..count).map(|i| (i * 37 + seed * 11) % 256))
}

/// Signed bytes that look random.
fn i8s(shape: &[usize], seed: i128) -> Constant {
    let count = shape.iter().product::<usize>() as i128;
    ints(DType::I8, shape, (0..count).map(|i| (i * 37 + seed * 11) % 255 - 127))
}

/// The outputs of a model of one node, which must be the same by the interpreter and by native
/// code.
pub(super) fn outputs(
    (domain, op): (&str, &str),
    inputs: &[Constant],
    attrs: &[(&str, ModelAttr)],
    results: &[(DType, &[i64])],
) -> Vec<Constant> {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let out: Vec<String> = (0..results.len()).map(|i| format!("y{i}")).collect();
    let mut builder = ModelBuilder::new(23).opset("com.microsoft", 1);
    for (name, input) in names.iter().zip(inputs) {
        let dims = input.ty().shape.as_consts().unwrap();
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        builder = builder.input(name, input.ty().dtype, &dims);
    }

    let arguments: Vec<&str> = names.iter().map(String::as_str).collect();
    let values: Vec<&str> = out.iter().map(String::as_str).collect();
    builder = builder.node_in(domain, op, &arguments, &values, attrs);
    for (name, (dtype, shape)) in out.iter().zip(results) {
        builder = builder.output(name, *dtype, shape);
    }
    let proto = builder.build();

    let imported = import(&proto, None, &ImportOptions::default());
    let module = imported.unwrap_or_else(|report| panic!("{report}")).module;
    let args: Vec<Value> =
        inputs.iter().map(|input| Tensor::from_constant(input).unwrap().into()).collect();
    let value = evaluate(&module, "main", &args).unwrap();
    let fields = value.as_tuple().map_or_else(|| vec![value.clone()], <[Value]>::to_vec);
    let expected: Vec<Constant> =
        fields.iter().map(|field| field.as_tensor().unwrap().to_constant().unwrap()).collect();

    let model = Model::from_onnx("node", ModelFile { proto, folder: None, store: None });
    let options = CompileOptions { opt_level: 3, ..options() };
    let compiled = run(&model, &options).unwrap_or_else(|report| panic!("{report}")).model;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.so");
    write_shared_library(&compiled, &options.target, &path).unwrap();
    let found = LoadedModel::load(&compiled, &path).unwrap().run(inputs).unwrap();
    assert_eq!(found, expected, "{op}");
    found
}

#[test]
fn qlinear_conv_has_a_scale_for_each_channel_a_bias_groups_and_padding_with_the_zero_point() {
    let inputs = [
        u8s(&[1, 2, 3, 4], 1),
        scale(0.02),
        zero(100),
        i8s(&[4, 1, 2, 2], 2),
        floats(&[4], &[0.01, 0.02, 0.005, 0.03]),
        ints(DType::I8, &[4], [0; 4]),
        scale(0.09),
        zero(120),
        ints(DType::I32, &[4], [100, -200, 300, 50000]),
    ];
    let attrs = [
        ("pads", vec![1i64, 0, 0, 1].into()),
        ("strides", vec![1i64, 2].into()),
        ("group", 2.into()),
    ];
    let shape = [1, 4, 3, 2];
    let found = outputs(("", "QLinearConv"), &inputs, &attrs, &[(DType::U8, &shape)]);
    let expected = [
        126, 122, 146, 110, 95, 101, 96, 101, 71, 232, 144, 99, 129, 117, 111, 134, 118, 112, 255,
        255, 255, 255, 255, 255,
    ];
    assert_eq!(found[0].to_i64_vec().unwrap(), expected);
}

#[test]
fn qlinear_matmul_has_a_scale_and_a_zero_point_for_each_column() {
    let inputs = [
        u8s(&[2, 3], 3),
        scale(0.03),
        zero(7),
        i8s(&[3, 4], 4),
        floats(&[4], &[0.02, 0.03, 0.01, 0.05]),
        ints(DType::I8, &[4], [0, 3, -2, 5]),
        scale(0.5),
        zero(33),
    ];
    let found = outputs(("", "QLinearMatMul"), &inputs, &[], &[(DType::U8, &[2, 4])]);
    assert_eq!(found[0].to_i64_vec().unwrap(), [30, 40, 31, 38, 22, 49, 25, 39]);
}

#[test]
fn integer_products_subtract_their_zero_points() {
    let inputs = [u8s(&[1, 1, 3, 3], 5), u8s(&[2, 1, 2, 2], 6), zero(3), zero(9)];
    let attrs = [("pads", vec![0i64, 1, 0, 0].into())];
    let result = [(DType::I32, &[1, 2, 2, 3][..])];
    let found = outputs(("", "ConvInteger"), &inputs, &attrs, &result);
    let expected =
        [32272, 66283, 82933, 18346, 39689, 56339, 22364, 47947, 67557, 40526, 85529, 105_139];
    assert_eq!(found[0].to_i64_vec().unwrap(), expected);

    let inputs = [u8s(&[3, 2], 7), i8s(&[2, 2], 8), zero(11), ints(DType::I8, &[2], [3, -4])];
    let found = outputs(("", "MatMulInteger"), &inputs, &[], &[(DType::I32, &[3, 2])]);
    assert_eq!(found[0].to_i64_vec().unwrap(), [524, 7960, -216, 13732, -9148, 48]);
}

#[test]
fn quantisation_rounds_halves_to_even_and_stays_in_the_range() {
    let x = floats(&[2, 4], &[-3.0, 0.25, 0.75, 1e9, 1.25, -1.25, 100.0, 7.0]);
    let inputs = [x, floats(&[2], &[0.5, 2.0]), ints(DType::U8, &[2], [3, 250])];
    let attrs = [("axis", 0.into())];
    let found = outputs(("", "QuantizeLinear"), &inputs, &attrs, &[(DType::U8, &[2, 4])]);
    assert_eq!(found[0].to_i64_vec().unwrap(), [0, 3, 5, 255, 251, 249, 255, 254]);

    let x = floats(&[5], &[-1.5, 0.3, 2.25, 0.7, -0.1]);
    let results: [(DType, &[i64]); 3] = [(DType::U8, &[5]), (DType::F32, &[]), (DType::U8, &[])];
    let found = outputs(("", "DynamicQuantizeLinear"), &[x], &[], &results);
    assert_eq!(found[0].to_i64_vec().unwrap(), [0, 122, 255, 150, 95]);
    assert_eq!(found[1].to_f64_vec().unwrap(), [f64::from(3.75f32 / 255.0)]);
    assert_eq!(found[2].to_i64_vec().unwrap(), [102]);
}

#[test]
fn qlinear_sums_and_products_are_of_the_dequantised_values() {
    let inputs = |to: f64| {
        let (a, b) = (u8s(&[2, 3], 9), u8s(&[3], 2));
        [a, scale(0.1), zero(10), b, scale(0.2), zero(100), scale(to), zero(50)]
    };
    let result = [(DType::U8, &[2, 3][..])];
    let found = outputs(("com.microsoft", "QLinearAdd"), &inputs(0.3), &[], &result);
    assert_eq!(found[0].to_i64_vec().unwrap(), [28, 65, 102, 65, 102, 53]);
    let found = outputs(("com.microsoft", "QLinearMul"), &inputs(3.0), &[], &result);
    assert_eq!(found[0].to_i64_vec().unwrap(), [4, 16, 46, 0, 0, 50]);
}

#[test]
fn packed_elements_keep_their_order_through_kernels() {
    for dtype in DType::all().filter(|dtype| dtype.bits() < 8) {
        // An odd number, so that the last byte is not full.
        let codes = (0..15).map(|i| if dtype.is_float() { i % 4 } else { i });
        let x = Tensor::from_elements(dtype, &[3, 5], Elements::Int(codes.collect())).unwrap();
        let x = x.to_constant().unwrap();
        let found = outputs(("", "Transpose"), std::slice::from_ref(&x), &[], &[(dtype, &[5, 3])]);
        let back = outputs(("", "Transpose"), &found, &[], &[(dtype, &[3, 5])]);
        assert_eq!(back, std::slice::from_ref(&x), "{dtype}");

        let to = |dtype: DType| [("to", i64::from(onnx_number(dtype)).into())];
        let floats = outputs(
            ("", "Cast"),
            std::slice::from_ref(&x),
            &to(DType::F32),
            &[(DType::F32, &[3, 5])],
        );
        assert_eq!(floats[0].to_f64_vec().unwrap().len(), 15);
        assert_eq!(outputs(("", "Cast"), &floats, &to(dtype), &[(dtype, &[3, 5])]), [x]);
    }
}

/// The number of a data type in ONNX files.
fn onnx_number(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U4 => 21,
        DType::I4 => 22,
        DType::F4E2M1 => 23,
        DType::U2 => 25,
        DType::I2 => 26,
        other => panic!("no test casts to {other}"),
    }
}

#[test]
fn weights_of_four_bits_have_scales_for_blocks() {
    let codes = (0..24).map(|i| i * 5 % 16 - 8);
    let inputs = [
        ints(DType::I4, &[3, 8], codes.clone()),
        floats(&[3, 2], &[0.5, 1.0, 2.0, 4.0, 0.25, 8.0]),
        ints(DType::I4, &[3, 2], [0, 1, -1, 2, 3, -8]),
    ];
    let attrs = [("axis", 1.into()), ("block_size", 4.into())];
    let found = outputs(("", "DequantizeLinear"), &inputs, &attrs, &[(DType::F32, &[3, 8])]);
    let scales = [0.5, 1.0, 2.0, 4.0, 0.25, 8.0];
    let zeros = [0, 1, -1, 2, 3, -8];
    let expected: Vec<f64> =
        codes.enumerate().map(|(i, code)| (code - zeros[i / 4]) as f64 * scales[i / 4]).collect();
    assert_eq!(found[0].to_f64_vec().unwrap(), expected);
}

#[test]
fn half_precision_sums_are_rounded_once() {
    let ones = vec![1.0; 4096];
    let halves = |shape: &[usize], values: &[f64]| {
        Tensor::from_floats(DType::F16, shape, values.to_vec()).unwrap().to_constant().unwrap()
    };
    let inputs = [halves(&[1, 4096], &ones), halves(&[4096, 1], &ones)];
    let found = outputs(("", "MatMul"), &inputs, &[], &[(DType::F16, &[1, 1])]);
    assert_eq!(found[0].to_f64_vec().unwrap(), [4096.0]);
}

/// The tensors of a value.
fn fields(value: &Value) -> Vec<Constant> {
    let fields = value.as_tuple().map_or_else(|| vec![value.clone()], <[Value]>::to_vec);
    fields.iter().map(|field| field.as_tensor().unwrap().to_constant().unwrap()).collect()
}

/// A network of quantised islands as exporters write them: convolutions with a scale for each
/// channel, the second one depthwise, a residual sum, pools, a shuffle of channels and a dense layer.
fn islands(dtype: DType) -> ModelBuilder {
    let zero =
        |value: i128| ints(dtype, &[], [if dtype == DType::I8 { value - 128 } else { value }]);
    let per_channel =
        |n: usize| floats(&[n], &(0..n).map(|i| 0.002 + i as f64 * 1e-4).collect::<Vec<_>>());
    let bias = |n: usize| ints(DType::I32, &[n], (0..n as i128).map(|i| i * 91 - 300));
    let mut builder = ModelBuilder::new(17).input("x", DType::F32, &[1, 3, 9, 8]);
    for (name, constant) in [
        ("s", scale(0.02)),
        ("s2", scale(0.035)),
        ("z", zero(120)),
        ("z0", zero(0)),
        ("w1", i8s(&[20, 3, 3, 3], 3)),
        ("w1s", per_channel(20)),
        ("w1z", ints(DType::I8, &[20], [0; 20])),
        ("w2", i8s(&[20, 1, 3, 3], 5)),
        ("w2s", per_channel(20)),
        ("w3", i8s(&[20, 20, 1, 1], 7)),
        ("w3s", scale(0.003)),
        ("w4", i8s(&[7, 20], 9)),
        ("w4s", scale(0.01)),
        ("b", bias(20)),
        ("bs", scale(6e-5)),
        ("b4", floats(&[7], &[0.5; 7])),
    ] {
        builder = builder.initializer(name, &constant);
    }
    builder = builder.ints("groups", &[1, 2, 10, 9, 8]).ints("image", &[1, 20, 9, 8]);
    let axis0 = [("axis", 0.into())];
    let pads = [("pads", vec![1i64; 4].into())];
    let depthwise = [("pads", vec![1i64; 4].into()), ("group", 20.into())];
    let transposed = [("perm", vec![0i64, 2, 1, 3, 4].into())];
    let flat = [("axis", 1.into())];
    let right = [("transB", 1.into())];
    builder
        .node("QuantizeLinear", &["x", "s", "z"], &["q0"], &[])
        .node("DequantizeLinear", &["q0", "s", "z"], &["d0"], &[])
        .node("DequantizeLinear", &["w1", "w1s", "w1z"], &["dw1"], &axis0)
        .node("DequantizeLinear", &["b", "bs"], &["db"], &[])
        .node("Conv", &["d0", "dw1", "db"], &["c1"], &pads)
        .node("Relu", &["c1"], &["r1"], &[])
        .node("QuantizeLinear", &["r1", "s", "z0"], &["q1"], &[])
        .node("DequantizeLinear", &["q1", "s", "z0"], &["d1"], &[])
        .node("DequantizeLinear", &["w2", "w2s"], &["dw2"], &axis0)
        .node("Conv", &["d1", "dw2"], &["c2"], &depthwise)
        .node("QuantizeLinear", &["c2", "s2", "z"], &["q2"], &[])
        .node("DequantizeLinear", &["q2", "s2", "z"], &["d2"], &[])
        .node("DequantizeLinear", &["w3", "w3s"], &["dw3"], &[])
        .node("Conv", &["d2", "dw3"], &["c3"], &[])
        .node("QuantizeLinear", &["c3", "s2", "z"], &["q3"], &[])
        .node("DequantizeLinear", &["q3", "s2", "z"], &["d3"], &[])
        .node("Add", &["d3", "d2"], &["a3"], &[])
        .node("QuantizeLinear", &["a3", "s2", "z"], &["q4"], &[])
        .node("DequantizeLinear", &["q4", "s2", "z"], &["d4"], &[])
        .node("Reshape", &["d4", "groups"], &["g"], &[])
        .node("Transpose", &["g"], &["t"], &transposed)
        .node("Reshape", &["t", "image"], &["i"], &[])
        .node("QuantizeLinear", &["i", "s2", "z"], &["q5"], &[])
        .node("DequantizeLinear", &["q5", "s2", "z"], &["d5"], &[])
        .node("GlobalAveragePool", &["d5"], &["m"], &[])
        .node("Flatten", &["m"], &["f"], &flat)
        .node("QuantizeLinear", &["f", "s", "z"], &["q6"], &[])
        .node("DequantizeLinear", &["q6", "s", "z"], &["d6"], &[])
        .node("DequantizeLinear", &["w4", "w4s"], &["dw4"], &[])
        .node("Gemm", &["d6", "dw4", "b4"], &["p"], &right)
        .node("QuantizeLinear", &["p", "s", "z"], &["y"], &[])
        .output("y", dtype, &[1, 7])
        .output("q4", dtype, &[1, 20, 9, 8])
}

#[test]
fn islands_are_computed_alike_by_the_interpreter_and_by_native_code() {
    for dtype in [DType::U8, DType::I8] {
        let proto = islands(dtype).build();
        let imported = import(&proto, None, &ImportOptions::default());
        let module = imported.unwrap_or_else(|report| panic!("{report}")).module;
        let values: Vec<f64> = (0..216).map(|i| f64::from(i * 37 % 101) / 20.0 - 2.5).collect();
        let input = floats(&[1, 3, 9, 8], &values);
        let args: Vec<Value> = vec![Tensor::from_constant(&input).unwrap().into()];
        let before = fields(&evaluate(&module, "main", &args).unwrap());

        let options = CompileOptions { opt_level: 3, ..options() };
        let passes = Passes::new(&options).unwrap();
        let kernels = passes.run(module).unwrap_or_else(|report| panic!("{report}"));
        let integers = fields(&evaluate(&kernels, "main", &args).unwrap());
        // A convolution and what follows it are one kernel, and none is of floats.
        let convolutions: Vec<String> = (kernels.functions())
            .map(|(_, function)| print_function(function, None, &PrintOptions::default()))
            .filter(|text| text.contains("nn.conv2d"))
            .collect();
        assert_eq!(convolutions.len(), 3, "{dtype}");
        for text in convolutions {
            assert!(
                text.contains("out_dtype=\"int32\"") && text.contains("qnn.requantize"),
                "{text}"
            );
        }
        for (integer, float) in integers.iter().zip(&before) {
            let pairs = integer.to_i64_vec().unwrap().into_iter().zip(float.to_i64_vec().unwrap());
            // A step of one island may be one of the next one, too.
            let apart: Vec<i64> = pairs.map(|(integer, float)| (integer - float).abs()).collect();
            let different = apart.iter().filter(|&&steps| steps > 0).count();
            assert!(apart.iter().all(|&steps| steps <= 3), "{dtype}: {apart:?}");
            assert!(different * 50 <= apart.len().max(50), "{dtype}: {different} differ");
        }

        let model = Model::from_onnx("islands", ModelFile { proto, folder: None, store: None });
        let compiled = run(&model, &options).unwrap_or_else(|report| panic!("{report}")).model;
        for loaded in super::load(&compiled, &options) {
            assert_eq!(loaded.run(std::slice::from_ref(&input)).unwrap(), integers, "{dtype}");
        }
    }
}

/// A product of an input with a matrix of 18,000 and some elements, which is kept as it is.
const ROWS: i64 = 192;
const COLUMNS: i64 = 100;

/// Models that multiply `rows` rows with such a matrix, with the bits that an element of the matrix takes in one.
fn narrow_products(rows: i64) -> Vec<(&'static str, ModelBuilder, i64)> {
    let [k, n] = [ROWS, COLUMNS].map(|extent| extent as usize);
    let scales = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| 0.001 + i as f64 * 37.0 % 89.0 / 1e4).collect();
        floats(shape, &values)
    };
    let nibbles = |shape: &[usize], least: i128| {
        (0..shape.iter().product::<usize>() as i128).map(move |i| i * 37 % 101 % 16 + least)
    };
    let model = || {
        let y = (DType::F32, [rows, COLUMNS]);
        let model = ModelBuilder::new(21).opset("com.microsoft", 1);
        model.input("x", DType::F32, &[rows, ROWS]).output("y", y.0, &y.1)
    };
    let by_column = model()
        .initializer("q", &i8s(&[k, n], 3))
        .initializer("s", &scales(&[n]))
        .node("DequantizeLinear", &["q", "s"], &["w"], &[("axis", 1.into())])
        .node("MatMul", &["x", "w"], &["y"], &[]);
    let by_row = model()
        .initializer("q", &u8s(&[n, k], 5))
        .initializer("s", &scale(0.004))
        .initializer("z", &zero(128))
        .initializer("b", &scales(&[n]))
        .node("DequantizeLinear", &["q", "s", "z"], &["w"], &[])
        .node("Gemm", &["x", "w", "b"], &["y"], &[("transB", 1.into())]);
    let blocks = model()
        .initializer("q", &ints(DType::I4, &[k, n], nibbles(&[k, n], -8)))
        .initializer("s", &scales(&[k / 32, n]))
        .initializer("z", &ints(DType::I4, &[k / 32, n], nibbles(&[k / 32, n], -8)))
        .node(
            "DequantizeLinear",
            &["q", "s", "z"],
            &["w"],
            &[("axis", 0.into()), ("block_size", 32.into())],
        )
        .node("MatMul", &["x", "w"], &["y"], &[]);
    let packed = model()
        .initializer("q", &u8s(&[n, k / 32, 16], 7))
        .initializer("s", &scales(&[n * k / 32]))
        .node_in(
            "com.microsoft",
            "MatMulNBits",
            &["x", "q", "s"],
            &["y"],
            &[
                ("K", ROWS.into()),
                ("N", COLUMNS.into()),
                ("bits", 4.into()),
                ("block_size", 32.into()),
            ],
        );
    let half: Vec<f64> = (0..k * n).map(|i| i as f64 * 37.0 % 101.0 / 64.0 - 0.75).collect();
    let half = Tensor::from_floats(DType::F16, &[k, n], half).unwrap().to_constant().unwrap();
    let halves = ModelBuilder::new(21)
        .input("x", DType::F16, &[rows, ROWS])
        .initializer("w", &half)
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F16, &[rows, COLUMNS]);
    // Where no instruction widens them, that is done while the model is compiled.
    let half_bits = if options().target.has_fp16_conversion() { 16 } else { 32 };
    let widened = model()
        .initializer("h", &half)
        .node("Cast", &["h"], &["w"], &[("to", 1.into())])
        .node("MatMul", &["x", "w"], &["y"], &[]);
    vec![
        ("a scale for each column", by_column, 8),
        ("a scale for all", by_row, 8),
        ("scales for blocks", blocks, 4),
        ("packed by fours", packed, 4),
        ("halves", halves, half_bits),
        ("halves of floats", widened, half_bits),
    ]
}

/// A model of one input, what that is, and what is expected of it.
struct Run {
    model: Model,
    input: Constant,
    expected: Vec<f64>,
}

impl Run {
    fn new(proto: ModelProto, shape: &[usize], dtype: DType) -> Run {
        let imported = import(&proto, None, &ImportOptions::default());
        let module = imported.unwrap_or_else(|report| panic!("{report}")).module;
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| (i * 37 % 101) as f64 / 64.0 - 0.75).collect();
        let input = Tensor::from_floats(dtype, shape, values).unwrap();
        let args: Vec<Value> = vec![input.clone().into()];
        let expected = fields(&evaluate(&module, "main", &args).unwrap())[0].to_f64_vec().unwrap();
        let model = Model::from_onnx("wide", ModelFile { proto, folder: None, store: None });
        Run { model, input: input.to_constant().unwrap(), expected }
    }

    /// The bytes of the weights, and what each backend computes.
    fn compiled(&self, disabled: &[&str]) -> (i64, Vec<Constant>) {
        let disabled_passes = disabled.iter().map(|&name| name.to_owned()).collect();
        let options = CompileOptions { opt_level: 3, disabled_passes, ..options() };
        let compiled = run(&self.model, &options).unwrap_or_else(|report| panic!("{report}"));
        let input = [self.input.clone()];
        let loaded = super::load(&compiled.model, &options);
        let found = loaded.iter().map(|loaded| loaded.run(&input).unwrap()[0].clone());
        (compiled.model.weights.len() as i64, found.collect())
    }

    fn assert_near(&self, found: &[Constant], what: &str) {
        let allowed = if self.input.ty().dtype == DType::F16 { 1e-2 } else { 1e-4 };
        for (index, found) in found.iter().enumerate() {
            for (found, expected) in found.to_f64_vec().unwrap().iter().zip(&self.expected) {
                let near = (found - expected).abs() <= allowed * expected.abs().max(1.0);
                assert!(near, "{what}, backend {index}: {found}, not {expected}");
            }
        }
    }
}

/// A convolution of `dtype` with weights of such a shape that are stored as bytes with scales, or as halves.
fn narrow_convolution(x: &[i64], w: &[i64], dtype: DType, stored: DType) -> ModelBuilder {
    let kernel: Vec<usize> = w.iter().map(|&extent| extent as usize).collect();
    let outputs = kernel[0];
    let y = [&[1, w[0]], &x[2..]].concat();
    let pads: Vec<i64> = w[2..].iter().chain(&w[2..]).map(|&taps| taps / 2).collect();
    let constant = |dtype, shape: &[usize], values: Vec<f64>| {
        Tensor::from_floats(dtype, shape, values).unwrap().to_constant().unwrap()
    };
    let half = (0..kernel.iter().product()).map(|i: usize| (i * 37 % 101) as f64 / 1024.0 - 0.05);
    let bias = constant(dtype, &[outputs], (0..outputs).map(|i| i as f64 / 16.0).collect());
    let model = ModelBuilder::new(21).input("x", dtype, x).output("y", dtype, &y);
    let model = match stored {
        DType::I8 => model
            .initializer("q", &i8s(&kernel, 3))
            .initializer("s", &floats(&[outputs], &vec![0.002; outputs]))
            .node("DequantizeLinear", &["q", "s"], &["w"], &[("axis", 0.into())]),
        _ => model.initializer("h", &constant(stored, &kernel, half.collect())).node(
            "Cast",
            &["h"],
            &["w"],
            &[("to", if dtype == DType::F32 { 1 } else { 10 }.into())],
        ),
    };
    let model = model.initializer("b", &bias);
    model.node("Conv", &["x", "w", "b"], &["y"], &[("pads", pads.into())])
}

#[test]
fn convolutions_read_large_weights_as_they_are_stored() {
    let shapes: [(&[i64], &[i64]); 4] = [
        (&[1, 160, 5, 7], &[128, 160, 1, 1]),
        (&[1, 48, 6, 5], &[64, 48, 3, 3]),
        (&[1, 96, 11], &[80, 96, 3]),
        (&[1, 16, 4, 5, 6], &[48, 16, 3, 3, 3]),
    ];
    let types = [(DType::F32, DType::I8), (DType::F16, DType::F16), (DType::F32, DType::F16)];
    for (x, w) in shapes {
        for (dtype, stored) in types {
            let what = format!("{w:?} of {dtype}, stored as {stored}");
            let image: Vec<usize> = x.iter().map(|&extent| extent as usize).collect();
            let run = Run::new(narrow_convolution(x, w, dtype, stored).build(), &image, dtype);
            let (bytes, found) = run.compiled(&["ApplyWinograd"]);
            // Halves stay where an instruction widens them. Beside weights are a scale and a bias.
            let each = match stored {
                DType::I8 => 1,
                _ if options().target.has_fp16_conversion() => 2,
                _ => 4,
            };
            let most = w.iter().product::<i64>() * each + w[0] * 8 + 4096;
            assert!(bytes <= most, "{what}: {bytes} bytes, not {most}");
            run.assert_near(&found, &what);
            run.assert_near(&run.compiled(&[]).1, &what);
        }
    }
}

#[test]
fn products_read_large_matrices_as_they_are_stored() {
    for rows in [1, 3, 40] {
        for (what, model, bits) in narrow_products(rows) {
            let what = format!("{what}, {rows} rows");
            let proto = model.build();
            let dtype = if what.starts_with("halves,") { DType::F16 } else { DType::F32 };
            let run = Run::new(proto, &[rows as usize, ROWS as usize], dtype);
            let (stored, found) = run.compiled(&[]);
            // Whole panels, a bias, and for each block of 32 a scale and a zero point.
            let most = ROWS * (COLUMNS + 32) * (bits * 9 / 8 + 2) / 8 + 4096;
            assert!(stored <= most, "{what}: {stored} bytes, not {most}");
            run.assert_near(&found, &what);
            // Numbers of blocks are those that they are if the matrix is made while it is compiled.
            let (wide, same) = run.compiled(&["FakeQuantizationToInteger"]);
            if what.starts_with("scales for blocks") || what.starts_with("packed") {
                assert_eq!(found, same, "{what}");
                assert!(wide > stored * 2, "{what}: {wide}");
            }
        }
    }
}
