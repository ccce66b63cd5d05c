//! Tests of what operators that are decomposed compute. The numbers are ONNX Runtime 1.31.1's, for
//! inputs that are sine waves.

use crate::graph::interp::{Elements, Tensor, Value, evaluate};
use crate::ir::{Constant, DType, SharedBytes, TensorType};
use crate::onnx::{ImportOptions, ModelAttr, ModelBuilder, import};

/// An input of the node under test.
pub(super) enum Input<'a> {
    /// `sin(0.7 i + phase)` for element `i`, of these extents.
    Wave(&'a [i64], f64),
    /// The same, but the first element is infinite.
    Spike(&'a [i64], f64),
    /// A vector of 32-bit integers.
    Ints(&'a [i32]),
    /// 64-bit integers of these extents.
    Longs(&'a [i64], &'a [i64]),
    /// Floats of these extents.
    Floats(&'a [i64], &'a [f32]),
    /// A condition.
    Truth(bool),
    /// Left out.
    Missing,
}
use Input::{Floats, Ints, Longs, Missing, Spike, Truth, Wave};

impl Input<'_> {
    fn constant(&self) -> Option<Constant> {
        match self {
            Wave(dims, phase) | Spike(dims, phase) => {
                let count: i64 = dims.iter().product();
                let wave = (0..count).map(|i| (i as f64 * 0.7 + phase).sin() as f32);
                let mut wave: Vec<f32> = wave.collect();
                if matches!(self, Spike(..)) {
                    wave[0] = f32::INFINITY;
                }
                Some(Constant::from_f32(dims, &wave).unwrap())
            }
            Ints(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let ty = TensorType::from_consts(&[values.len() as i64], DType::I32);
                Some(Constant::new(ty, SharedBytes::new(bytes)).unwrap())
            }
            Longs(dims, values) => Some(Constant::from_i64(dims, values).unwrap()),
            Floats(dims, values) => Some(Constant::from_f32(dims, values).unwrap()),
            Truth(holds) => Constant::scalar(f64::from(u8::from(*holds)), DType::Bool),
            Missing => None,
        }
    }
}

/// The outputs of one node, one after the other.
pub(super) fn run(
    opset: i64,
    op: &str,
    inputs: &[Input<'_>],
    attrs: &[(&str, ModelAttr)],
    outputs: &[&str],
) -> Vec<f64> {
    let mut model = ModelBuilder::new(opset);
    let mut names = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let mut name = String::new();
        if let Some(constant) = input.constant() {
            name = format!("i{index}");
            model = model.initializer(&name, &constant);
        }
        names.push(name);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    model = model.node(op, &names, outputs, attrs);
    for name in outputs.iter().filter(|name| !name.is_empty()) {
        model = model.output::<i64>(name, DType::F32, &[]);
    }
    let mut model = model.build();
    // The types of the outputs are not what these tests are about.
    for output in model.graph.iter_mut().flat_map(|graph| &mut graph.output) {
        output.r#type = None;
    }
    let imported = import(&model, None, &ImportOptions::default());
    let module = imported.unwrap_or_else(|report| panic!("{report}")).module;
    let value = evaluate(&module, "main", &[]).unwrap();
    let fields = value.as_tuple().map_or_else(|| vec![value.clone()], <[Value]>::to_vec);
    let numbers = |field: &Value| match field.as_tensor().unwrap().elements() {
        Elements::Float(values) => values.clone(),
        Elements::Int(values) => values.iter().map(|&value| value as f64).collect(),
    };
    fields.iter().flat_map(numbers).collect()
}

/// Holds results against numbers of seven digits.
#[track_caller]
pub(super) fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 2e-6 * b.abs().max(1.0);
    assert!(found.iter().zip(expected).all(close), "{found:?} for {expected:?}");
}

/// A linear classifier of two columns and the classes `no` and `yes`, and a map of its scores.
fn labelled(encoder: &[(&str, ModelAttr)]) -> ModelBuilder {
    let names = || ModelAttr::from(vec!["no", "yes"]);
    let linear = [
        ("coefficients", vec![1f32, 0.0, 0.0, 1.0].into()),
        ("intercepts", vec![0f32, 0.0].into()),
        ("classlabels_strings", names()),
    ];
    let maps = [("classlabels_strings", names())];
    let mut model = ModelBuilder::new(17)
        .opset("ai.onnx.ml", 3)
        .input("x", DType::F32, &[3, 2])
        .node_in("ai.onnx.ml", "LinearClassifier", &["x"], &["label", "scores"], &linear)
        .node_in("ai.onnx.ml", "ZipMap", &["scores"], &["maps"], &maps)
        .output("label", DType::I64, &[3])
        .output("maps", DType::F32, &[3, 2]);
    if !encoder.is_empty() {
        model = model.node_in("ai.onnx.ml", "LabelEncoder", &["label"], &["code"], encoder);
        model = model.output("code", DType::I64, &[3]);
    }
    model
}

#[test]
fn strings_of_classes_are_positions_and_a_table() {
    let imported = import(&labelled(&[]).build(), None, &ImportOptions::default()).unwrap();
    let labels = |output: &str| (format!("labels:{output}"), r#"["no","yes"]"#.to_owned());
    assert_eq!(imported.info.metadata, [labels("label"), labels("maps")]);
    let x = Constant::from_f32(&[3, 2], &[1.0, 2.0, 2.0, 1.0, 0.0, 0.5]).unwrap();
    let x = Tensor::from_constant(&x).unwrap();
    let value = evaluate(&imported.module, "main", &[x.into()]).unwrap();
    let found = value.as_tuple().unwrap()[0].as_tensor().unwrap().ints().unwrap().to_vec();
    assert_eq!(found, [1, 0, 1]);
}

#[test]
fn operators_on_strings_say_what_to_do() {
    let encoder = [("keys_strings", vec!["no"].into()), ("values_int64s", [1i64].into())];
    let model = labelled(&encoder).build();
    let error = import(&model, None, &ImportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("attribute `keys_strings` means strings"), "{error}");
    assert!(error.contains("encode the strings as numbers before the model"), "{error}");
}

#[test]
fn the_last_window_of_a_pool_of_norms_starts_within_the_elements() {
    let wave = |i: usize| (i as f64 * 0.7 + 0.5).sin();
    let pool = |extent, kernel: i64, stride: i64, pads: [i64; 2]| {
        let attrs = [
            ("kernel_shape", [kernel].into()),
            ("strides", [stride].into()),
            ("pads", pads.into()),
            ("ceil_mode", 1.into()),
        ];
        run(18, "LpPool", &[Wave(&[1, 1, extent], 0.5)], &attrs, &["y"])
    };
    let norm = |range: std::ops::Range<usize>| range.map(|i| wave(i).powi(2)).sum::<f64>().sqrt();
    assert_close(&pool(4, 3, 4, [0, 2]), &[norm(0..3)]);
    assert_close(&pool(5, 1, 3, [0, 0]), &[norm(0..1), norm(3..4)]);
    // One that starts within reaches beyond the end.
    assert_close(&pool(5, 2, 2, [0, 0]), &[norm(0..2), norm(2..4), norm(4..5)]);
}

#[test]
fn lstm_of_two_directions_with_peepholes_a_clip_and_lengths() {
    let inputs = [
        Wave(&[3, 2, 2], 0.1),
        Wave(&[2, 8, 2], 0.2),
        Wave(&[2, 8, 2], 0.3),
        Wave(&[2, 16], 0.4),
        Ints(&[3, 2]),
        Wave(&[2, 2, 2], 0.5),
        Wave(&[2, 2, 2], 0.6),
        Wave(&[2, 6], 0.7),
    ];
    let attrs =
        [("direction", "bidirectional".into()), ("hidden_size", 2.into()), ("clip", 0.8f32.into())];
    let found = run(14, "LSTM", &inputs, &attrs, &["y", "h", "c"]);
    assert_close(&found, LSTM_BOTH);
}

#[test]
fn lstm_of_coupled_gates_with_other_activations() {
    let inputs = [Wave(&[3, 2, 2], 0.1), Wave(&[1, 8, 2], 0.2), Wave(&[1, 8, 2], 0.3)];
    let attrs = [
        ("input_forget", 1.into()),
        ("activations", vec!["HardSigmoid", "Softsign", "Affine"].into()),
        ("activation_alpha", vec![0.3f32, 1.5].into()),
        ("activation_beta", vec![0.4f32, 0.1].into()),
    ];
    let found = run(14, "LSTM", &inputs, &attrs, &["y"]);
    assert_close(&found, LSTM_COUPLED);
}

#[test]
fn gru_with_its_reset_before_and_after_the_product() {
    let inputs = [
        Wave(&[3, 2, 2], 0.1),
        Wave(&[1, 6, 2], 0.2),
        Wave(&[1, 6, 2], 0.3),
        Wave(&[1, 12], 0.4),
        Ints(&[1, 3]),
        Wave(&[1, 2, 2], 0.5),
    ];
    let run = |linear_before_reset: i64| {
        let attrs = [
            ("direction", "reverse".into()),
            ("hidden_size", 2.into()),
            ("linear_before_reset", linear_before_reset.into()),
        ];
        run(14, "GRU", &inputs, &attrs, &["y", "h"])
    };
    assert_close(&run(0), GRU_BEFORE);
    assert_close(&run(1), GRU_AFTER);
}

#[test]
fn rnn_with_an_activation_for_each_direction() {
    let inputs =
        [Wave(&[3, 2, 2], 0.1), Wave(&[2, 2, 2], 0.2), Wave(&[2, 2, 2], 0.3), Wave(&[2, 4], 0.4)];
    let attrs = [
        ("direction", "bidirectional".into()),
        ("activations", vec!["Relu", "LeakyRelu"].into()),
        ("activation_alpha", vec![0.2f32].into()),
    ];
    assert_close(&run(14, "RNN", &inputs, &attrs, &["", "h"]), RNN_STATES);
}

#[test]
fn recurrent_layers_refuse_what_does_not_fit() {
    let message = |weights: &[i64], attrs: &[(&str, ModelAttr)]| {
        let model = ModelBuilder::new(14)
            .input("x", DType::F32, &[3, 2, 2])
            .input("w", DType::F32, weights)
            .input("r", DType::F32, &[1, 8, 2])
            .node("LSTM", &["x", "w", "r"], &["y"], attrs)
            .output::<i64>("y", DType::F32, &[]);
        import(&model.build(), None, &ImportOptions::default()).unwrap_err().to_string()
    };
    assert!(message(&[1, 6, 2], &[]).contains("`W` must have the shape (1, 4 · 2, …), but it is"));
    assert!(
        message(&[1, 8, 2], &[("hidden_size", 3.into())])
            .contains("attribute `hidden_size` is 3, but the recurrent weights have 2")
    );
    assert!(
        message(&[1, 8, 2], &[("activations", vec!["Tanh"].into())])
            .contains("attribute `activations` must have 3 names, but it has 1")
    );
}

/// A transposed convolution by its definition: every input element adds its multiple of the kernel
/// to the whole result, of which `before` and `after` are cut. The first element may be infinite.
fn scattered(
    [taps, stride, dilation]: [i64; 3],
    pads: [i64; 2],
    extra: i64,
    infinite: bool,
) -> Vec<f64> {
    // Four input channels in two groups of two output channels each.
    let (extent, wave) = (3, |i: i64, phase: f64| f64::from((i as f64 * 0.7 + phase).sin() as f32));
    let input = |i: i64| if infinite && i == 0 { f64::INFINITY } else { wave(i, 0.1) };
    let whole = stride * (extent - 1) + extra + dilation * (taps - 1) + 1;
    let mut outputs = Vec::new();
    for output in 0..4 {
        let mut result = vec![wave(output, 0.3); whole as usize];
        for channel in (output / 2 * 2)..(output / 2 * 2 + 2) {
            for (i, tap) in (0..extent).flat_map(|i| (0..taps).map(move |tap| (i, tap))) {
                let weight = wave((channel * 2 + output % 2) * taps + tap, 0.2);
                result[(i * stride + tap * dilation) as usize] +=
                    input(channel * extent + i) * weight;
            }
        }
        outputs.extend_from_slice(&result[pads[0] as usize..(whole - pads[1]) as usize]);
    }
    outputs
}

#[test]
fn transposed_convolutions_are_what_their_definition_says() {
    for kernel @ [taps, stride, dilation] in [
        [1, 1, 1],
        [1, 3, 1],
        [2, 2, 1],
        [2, 5, 1],
        [3, 1, 2],
        [3, 2, 1],
        [3, 2, 3],
        [4, 3, 1],
        [5, 2, 1],
        [3, 4, 2],
        [5, 3, 6],
    ] {
        for (pads, extra) in
            [([0, 0], 0), ([1, 0], 0), ([0, 2], 1), ([1, 1], stride - 1), ([4, 0], 0)]
        {
            if stride * 2 + extra + dilation * (taps - 1) < pads[0] + pads[1] {
                continue;
            }
            let attrs = [
                ("group", 2.into()),
                ("strides", [stride].into()),
                ("dilations", [dilation].into()),
                ("pads", pads.into()),
                ("output_padding", [extra].into()),
            ];
            for x in [Wave(&[1, 4, 3], 0.1), Spike(&[1, 4, 3], 0.1)] {
                let infinite = matches!(x, Spike(..));
                let inputs = [x, Wave(&[4, 2, taps], 0.2), Wave(&[4], 0.3)];
                let found = run(11, "ConvTranspose", &inputs, &attrs, &["y"]);
                assert_close(&found, &scattered(kernel, pads, extra, infinite));
            }
        }
    }
}

/// Strides beyond the kernel leave zeros; those that would divide it into very many parts are refused.
#[test]
fn transposed_convolutions_of_large_strides_are_sparse_or_refused() {
    let inputs = [Wave(&[1, 1, 2], 0.1), Wave(&[1, 1, 1], 0.2)];
    let found = run(11, "ConvTranspose", &inputs, &[("strides", [5000].into())], &["y"]);
    assert_eq!(found.len(), 5001);
    assert!(found[1..5000].iter().all(|&value| value == 0.0) && found[5000] != 0.0);

    let most = 1 << 20;
    for (stride, dilation) in [(most - 1, 1), (most, 3)] {
        let model = ModelBuilder::new(11)
            .input("x", DType::F32, &[1, 1, 1])
            .input("w", DType::F32, &[1, 1, most])
            .node(
                "ConvTranspose",
                &["x", "w"],
                &["y"],
                &[("strides", [stride].into()), ("dilations", [dilation].into())],
            )
            .output::<i64>("y", DType::F32, &[]);
        let report = import(&model.build(), None, &ImportOptions::default()).unwrap_err();
        assert!(report.to_string().contains("into more than 4096 parts"), "{report}");
    }
}

#[test]
fn causal_attention_of_heads_that_share_a_key_sees_the_past() {
    let inputs = [
        Wave(&[1, 4, 2, 2], 0.1),
        Wave(&[1, 2, 2, 2], 0.2),
        Wave(&[1, 2, 2, 3], 0.3),
        Missing,
        Wave(&[1, 2, 1, 2], 0.4),
        Wave(&[1, 2, 1, 3], 0.5),
    ];
    let attrs = [("is_causal", 1.into()), ("softcap", 0.9f32.into()), ("scale", 0.6f32.into())];
    assert_close(&run(23, "Attention", &inputs, &attrs, &["y"]), ATTENTION);
}

#[test]
fn losses_leave_out_what_is_to_be_ignored() {
    let x = |i: usize| (i as f64 * 0.7 + 0.1).sin();
    let weight = |i: usize| (i as f64 * 0.7 + 0.5).sin();
    let inputs = [Wave(&[2, 3], 0.1), Ints(&[2, 0]), Wave(&[3], 0.5)];
    let loss =
        |attrs: &[(&str, ModelAttr)]| run(13, "NegativeLogLikelihoodLoss", &inputs, attrs, &["y"]);
    let (first, second) = (-x(2) * weight(2), -x(3) * weight(0));
    assert_close(&loss(&[("reduction", "none".into())]), &[first, second]);
    assert_close(&loss(&[]), &[(first + second) / (weight(2) + weight(0))]);
    assert_close(&loss(&[("ignore_index", 0.into())]), &[-x(2)]);
}

const LSTM_BOTH: &[f64] = &[
    -0.06906332,
    0.05731301,
    0.1644008,
    -0.05017804,
    -0.0335227,
    -0.4200036,
    -0.181767,
    -0.3413357,
    -0.2350028,
    -0.2695933,
    -0.04841017,
    -0.1549809,
    -0.1462309,
    -0.4110304,
    -0.2530604,
    -0.4137753,
    -0.3221098,
    -0.2977209,
    0.0,
    0.0,
    -0.1140281,
    -0.4465488,
    0.0,
    0.0, // y
    -0.3221098,
    -0.2977209,
    -0.04841017,
    -0.1549809,
    -0.0335227,
    -0.4200036,
    -0.181767,
    -0.3413357, // h
    -0.5060261,
    -0.4617329,
    -0.07027775,
    -0.2285146,
    -0.05653393,
    -0.7272536,
    -0.2698016,
    -0.5422745, // c
];

const LSTM_COUPLED: &[f64] = &[
    0.06399723,
    -0.04768264,
    0.1702739,
    0.0,
    0.1212353,
    -0.0002541242,
    0.2067784,
    -0.5707259,
    0.01582154,
    0.03638908,
    0.2270993,
    -0.003239759,
];

const GRU_BEFORE: &[f64] = &[
    0.5537027,
    0.9281868,
    0.6093404,
    0.03872741,
    0.0,
    0.0,
    0.77798,
    -0.04669259,
    0.0,
    0.0,
    0.8314058,
    0.5417086, // y
    0.5537027,
    0.9281868,
    0.6093404,
    0.03872741, // h
];

const GRU_AFTER: &[f64] = &[
    0.4741362,
    0.8859674,
    0.3877307,
    -0.03590284,
    0.0,
    0.0,
    0.645291,
    -0.132352,
    0.0,
    0.0,
    0.7423482,
    0.5327398, // y
    0.4741362,
    0.8859674,
    0.3877307,
    -0.03590284, // h
];

const RNN_STATES: &[f64] =
    &[6.365377, 7.641125, 6.846101, 9.395258, -0.2624352, -0.3979222, -0.4009731, -0.8231326];

const ATTENTION: &[f64] = &[
    0.3897131,
    0.8878583,
    0.9684299,
    0.4997509,
    0.5682489,
    0.3694907,
    0.3874171,
    0.8867275,
    0.9689962,
    0.4696585,
    0.634043,
    0.5002272,
    -0.3009036,
    -0.5545708,
    -0.5474147,
    0.1144008,
    -0.1805235,
    -0.3905447,
    -0.05124525,
    -0.4332209,
    -0.6114459,
    -0.09730509,
    0.09764799,
    0.2466757,
];

#[test]
fn a_sum_of_exponentials_may_have_infinite_terms() {
    let inf = f32::INFINITY;
    let rows = [inf, 1.0, 2.0, -inf, -inf, -inf, -inf, 1.0, 2.0, f32::NAN, inf, 0.0];
    let x = Floats(&[4, 3], &rows);
    let keepdims = [("keepdims", ModelAttr::Int(0))];
    let found = run(18, "ReduceLogSumExp", &[x, Longs(&[1], &[1])], &keepdims, &["y"]);
    assert_eq!(found[..2], [f64::INFINITY, f64::NEG_INFINITY]);
    assert!((found[2] - 2.313_261_5).abs() < 1e-6 && found[3].is_nan(), "{found:?}");
}

#[test]
fn integers_to_powers_of_floats_are_exact() {
    let base = [46339, 16_777_217, -46337, 3];
    let found = run(15, "Pow", &[Ints(&base), Floats(&[], &[1.0])], &[], &["y"]);
    assert_eq!(found, base.map(f64::from));
    let found = run(15, "Pow", &[Ints(&[46339, 3]), Floats(&[], &[2.0])], &[], &["y"]);
    assert_eq!(found, [2_147_302_921.0, 9.0]);
}

#[test]
fn images_shrink_to_the_next_pixel_in_version_10() {
    // The node test of ONNX 1.5, and an axis that grows beside one that shrinks.
    let x = || Floats(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let nearest = [("mode", ModelAttr::Str("nearest".into()))];
    let scales = Floats(&[4], &[1.0, 1.0, 0.6, 0.6]);
    assert_eq!(run(10, "Resize", &[x(), scales], &nearest, &["y"]), [1.0, 3.0]);
    let scales = Floats(&[4], &[1.0, 1.0, 1.5, 0.6]);
    let grown = run(10, "Resize", &[x(), scales], &nearest, &["y"]);
    assert_eq!(grown, [1.0, 3.0, 1.0, 3.0, 5.0, 7.0]);
}

/// Roots and logarithms of integers are cut off, as conversions of floats are.
#[test]
fn norms_and_logarithms_of_integers_are_integers() {
    let x = [Ints(&[60000, 80000, -1])];
    let keep = [("keepdims", 0.into())];
    assert_close(&run(13, "ReduceL2", &x, &keep, &["y"]), &[100_000.0]);
    assert_close(&run(13, "ReduceLogSum", &x, &keep, &["y"]), &[11.0]);
    assert_close(&run(13, "ReduceLogSumExp", &x, &keep, &["y"]), &[80000.0]);
    assert_close(&run(13, "ReduceSumSquare", &[Ints(&[3, -4])], &keep, &["y"]), &[25.0]);
}
