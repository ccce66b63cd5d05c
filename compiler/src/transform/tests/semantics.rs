//! Random graphs have the same value before and after each pass.

use proptest::prelude::*;

use super::support::{Net, tensors, verifying};
use crate::graph::ExprId;
use crate::graph::interp::{Tensor, Value, evaluate};
use crate::ir::{Constant, DType, Dim, IRModule};
use crate::ops::elementwise::CastAttrs;
use crate::ops::nn::{
    BatchNormAttrs, BiasAddAttrs, ConvAttrs, DropoutAttrs, GroupNormAttrs, InstanceNormAttrs,
    L2NormalizeAttrs, MatmulAttrs, MaxPoolAttrs, PadAttrs, PadMode, RmsNormAttrs,
};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{
    ConcatenateAttrs, ExpandDimsAttrs, ReshapeAttrs, SplitAttrs, SqueezeAttrs, StridedSliceAttrs,
    TransposeAttrs,
};
use crate::pass::{FunctionPass, Pass, PassRef};
use crate::transform::pipeline::{PipelineExtensions, pipeline};
use crate::transform::{
    AlterOpLayout, AnnotateTarget, BackwardFoldScaleAxis, CHANNEL_BLOCK, COMPOSITE_PATTERNS,
    CanonicalizeCast, CombineParallelBatchMatmul, CombineParallelConv2d, CombineParallelDense,
    ConvertLayout, DivToMul, EXTERNAL_TARGETS, FoldScaleAxis, ForwardFoldScaleAxis,
    MIN_BATCH_MATMUL_BRANCHES, MIN_CONV2D_BRANCHES, MIN_DENSE_BRANCHES, MergeCompilerRegions,
    MergeComposite, PartitionGraph,
};

/// Channels of every tensor of the random graphs, which are all (1, 4, 3, 3).
const CHANNELS: i64 = 4;

/// One step: an operator, its operands among the earlier values, and its constants.
#[derive(Clone, Debug)]
struct Step {
    what: u8,
    a: usize,
    b: usize,
    seed: f32,
    bind: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (0u8..35, 0usize..100, 0usize..100, -1.0f32..1.0, any::<bool>())
        .prop_map(|(what, a, b, seed, bind)| Step { what, a, b, seed, bind })
}

/// A vector that differs between channels and stays within 2 of zero.
fn per_channel(net: &mut Net, dims: &[i64], seed: f32) -> ExprId {
    let values: Vec<f32> = (0..CHANNELS).map(|i| seed + i as f32 * 0.3 - 0.5).collect();
    net.0.constant(Constant::from_f32(dims, &values).unwrap())
}

fn positive(net: &mut Net, seed: f32) -> ExprId {
    let values: Vec<f32> = (0..CHANNELS).map(|i| seed.abs() + i as f32 * 0.3 + 0.5).collect();
    net.0.constant(Constant::from_f32(&[CHANNELS], &values).unwrap())
}

fn weights(net: &mut Net, dims: &[i64], seed: f32) -> ExprId {
    let count: i64 = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (seed * 7.0 + i as f32 * 1.7).sin() / 4.0).collect();
    net.0.constant(Constant::from_f32(dims, &values).unwrap())
}

fn reshape(net: &mut Net, x: ExprId, dims: &[i64]) -> ExprId {
    let newshape = dims.iter().map(|&dim| Dim::from(dim)).collect();
    net.op_with("reshape", &[x], &ReshapeAttrs { newshape })
}

/// With so many zeros more behind each line and column.
fn padded_behind(net: &mut Net, x: ExprId, [lines, columns]: [i64; 2]) -> ExprId {
    let pad_width = vec![[0, 0], [0, 0], [0, lines], [0, columns]];
    net.op_with("nn.pad", &[x], &PadAttrs { pad_width, mode: PadMode::Constant })
}

fn apply(net: &mut Net, values: &[ExprId], constants: &[ExprId], step: &Step) -> ExprId {
    let a = values[step.a % values.len()];
    let b = values[step.b % values.len()];
    let channel = [CHANNELS, 1, 1];
    match step.what {
        0 => net.op("add", &[a, b]),
        1 => net.op("multiply", &[a, b]),
        2 => net.op("nn.relu", &[a]),
        3 => net.op("tanh", &[a]),
        4 => {
            let factor = per_channel(net, &channel, step.seed);
            net.op("multiply", &[factor, a])
        }
        5 => {
            let summand = per_channel(net, &channel, step.seed);
            net.op("add", &[a, summand])
        }
        6 | 7 => {
            let groups = if step.what == 6 { 1 } else { 2 };
            let weight = weights(net, &[CHANNELS, CHANNELS / groups, 3, 3], step.seed);
            let attrs = ConvAttrs { padding: vec![1; 4], groups, ..ConvAttrs::of_rank(2) };
            if step.bind {
                let bias = per_channel(net, &[CHANNELS], step.seed);
                net.op_with("nn.conv2d", &[a, weight, bias], &attrs)
            } else {
                net.op_with("nn.conv2d", &[a, weight], &attrs)
            }
        }
        8 => {
            let gamma = per_channel(net, &[CHANNELS], step.seed);
            let beta = per_channel(net, &[CHANNELS], -step.seed);
            let mean = per_channel(net, &[CHANNELS], step.seed / 2.0);
            let var = positive(net, step.seed);
            let attrs = BatchNormAttrs::new(1, 1e-5);
            let bn = net.op_with("nn.batch_norm", &[a, gamma, beta, mean, var], &attrs);
            net.0.tuple_get(bn, 0).unwrap()
        }
        9 => {
            let dropout = net.op_with("nn.dropout", &[a], &DropoutAttrs { rate: 0.5 });
            net.0.tuple_get(dropout, 0).unwrap()
        }
        10 => {
            let attrs = MaxPoolAttrs {
                pool_size: vec![3, 3],
                strides: vec![1, 1],
                padding: vec![1; 4],
                dilation: vec![1, 1],
                ceil_mode: false,
            };
            net.op_with("nn.max_pool2d", &[a], &attrs)
        }
        11 => {
            let both = net.op_with("concatenate", &[a, b], &ConcatenateAttrs { axis: 1 });
            let attrs = SplitAttrs { axis: 1, sections: vec![CHANNELS, CHANNELS] };
            let parts = net.op_with("split", &[both], &attrs);
            net.0.tuple_get(parts, u32::from(step.bind)).unwrap()
        }
        12 => {
            let sum = net.op_with("mean", &[a], &ReduceAttrs { axis: vec![2, 3], keepdims: true });
            net.op("subtract", &[b, sum])
        }
        13 => net.op_with("transpose", &[a], &TransposeAttrs { axes: vec![0, 1, 3, 2] }),
        14 => {
            let k = constants[step.b % constants.len()];
            let twice = net.op("add", &[k, k]);
            net.op("add", &[a, twice])
        }
        16 | 17 => {
            // Rows of three, and one bias for all or one for each.
            let rows = reshape(net, a, &[CHANNELS * 3, 3]);
            let weight = weights(net, &[3, 3], step.seed);
            let product = if step.what == 16 {
                net.op("nn.dense", &[rows, weight])
            } else {
                let attrs = MatmulAttrs { transpose_b: step.bind, ..MatmulAttrs::default() };
                net.op_with("nn.matmul", &[rows, weight], &attrs)
            };
            let bias = weights(net, if step.bind { &[1] } else { &[3] }, step.seed);
            let sum = net.op("add", &[product, bias]);
            reshape(net, sum, &[1, CHANNELS, 3, 3])
        }
        18 => {
            let weight = weights(net, &[3, 3], step.seed);
            let attrs = MatmulAttrs { transpose_b: step.bind, ..MatmulAttrs::default() };
            net.op_with("nn.matmul", &[a, weight], &attrs)
        }
        19 => {
            let line = reshape(net, a, &[1, CHANNELS, 9]);
            let weight = weights(net, &[CHANNELS, CHANNELS, 3], step.seed);
            let attrs = ConvAttrs { padding: vec![1; 2], ..ConvAttrs::of_rank(1) };
            let line = net.op_with("nn.conv1d", &[line, weight], &attrs);
            let line = net.op("nn.relu", &[line]);
            reshape(net, line, &[1, CHANNELS, 3, 3])
        }
        20 => {
            // As many channels as Winograd's algorithm takes.
            let (into, out) = (
                weights(net, &[16, CHANNELS, 1, 1], 0.1),
                weights(net, &[CHANNELS, 16, 1, 1], 0.2),
            );
            let weight = weights(net, &[16, 16, 3, 3], step.seed);
            let wide = net.op_with("nn.conv2d", &[a, into], &ConvAttrs::of_rank(2));
            let attrs = ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) };
            let wide = net.op_with("nn.conv2d", &[wide, weight], &attrs);
            let wide = net.op("tanh", &[wide]);
            net.op_with("nn.conv2d", &[wide, out], &ConvAttrs::of_rank(2))
        }
        22 => {
            // Twice around, and back.
            let pad_width = vec![[0, 0], [0, 0], [1, 0], [0, 1]];
            let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
            let wide = net.op_with("nn.pad", &[a], &attrs);
            let wide = net.op_with("nn.pad", &[wide], &attrs);
            let slice = StridedSliceAttrs {
                begin: vec![1, 1],
                end: vec![4, 4],
                strides: vec![1, 1],
                axes: vec![2, 3],
            };
            net.op_with("strided_slice", &[wide], &slice)
        }
        23 => {
            let divisor = positive(net, step.seed);
            let divisor = reshape(net, divisor, &channel);
            net.op("divide", &[a, divisor])
        }
        24 => {
            // Branches of one tensor, each with its own bias.
            let branch = |net: &mut Net, seed: f32| {
                let weight = weights(net, &[CHANNELS, CHANNELS, 1, 1], seed);
                let y = net.op_with("nn.conv2d", &[a, weight], &ConvAttrs::of_rank(2));
                let bias = per_channel(net, &channel, seed);
                let y = net.op("add", &[y, bias]);
                if step.bind { net.op("nn.relu", &[y]) } else { net.op("multiply", &[y, b]) }
            };
            let (x, y) = (branch(net, step.seed), branch(net, -step.seed));
            let z = branch(net, step.seed / 2.0);
            let sum = net.op("add", &[x, y]);
            net.op("subtract", &[sum, z])
        }
        25 => {
            let wide = net.op_with("cast", &[a], &CastAttrs::to(DType::F64));
            let back = net.op_with("cast", &[wide], &CastAttrs::to(DType::F32));
            let (two, zero) = (net.scalar(2.0), net.scalar(0.0));
            let square = net.op("power", &[back, two]);
            let square = net.op("add", &[zero, square]);
            let half = net.scalar(0.5);
            net.op("power", &[square, half])
        }
        26 => {
            let turned = net.op_with("transpose", &[a], &TransposeAttrs { axes: vec![0, 2, 3, 1] });
            let wide = net.op_with("expand_dims", &[turned], &ExpandDimsAttrs { axis: vec![0] });
            let back = net.op_with("squeeze", &[wide], &SqueezeAttrs { axis: vec![1] });
            net.op_with("transpose", &[back], &TransposeAttrs { axes: vec![0, 3, 1, 2] })
        }
        27 => {
            let factor = per_channel(net, &channel, step.seed.abs() + 0.6);
            let scaled = net.op("multiply", &[a, factor]);
            let bounded = net.op("nn.relu", &[scaled]);
            let bias = per_channel(net, &channel, step.seed);
            let sum = net.op("add", &[bounded, bias]);
            let pad_width = vec![[0, 0], [0, 0], [1, 1], [1, 1]];
            let padded = net.op_with(
                "nn.pad",
                &[sum],
                &PadAttrs {
                    pad_width,
                    mode: if step.bind { PadMode::Constant } else { PadMode::Edge },
                },
            );
            let weight = weights(net, &[CHANNELS, CHANNELS, 3, 3], step.seed);
            let y = net.op_with("nn.conv2d", &[padded, weight], &ConvAttrs::of_rank(2));
            let y = net.op("nn.relu", &[y]);
            net.op("multiply", &[factor, y])
        }
        15 => {
            let two = net.scalar(f64::from(step.seed));
            let scaled = net.op("multiply", &[a, two]);
            net.op("sigmoid", &[scaled])
        }
        28 | 29 => {
            let gamma = per_channel(net, &[CHANNELS], step.seed);
            let args: &[ExprId] = if step.bind { &[a, gamma, gamma] } else { &[a, gamma] };
            if step.what == 28 {
                let attrs = GroupNormAttrs { num_groups: 2, axis: 1, epsilon: 0.5 };
                net.op_with("nn.group_norm", args, &attrs)
            } else {
                let attrs = InstanceNormAttrs { axis: -3, epsilon: 0.5 };
                net.op_with("nn.instance_norm", args, &attrs)
            }
        }
        30 => {
            let gamma = per_channel(net, &channel, step.seed);
            let attrs = RmsNormAttrs { axis: if step.bind { -1 } else { 1 }, epsilon: 0.5 };
            net.op_with("nn.rms_norm", &[a, gamma], &attrs)
        }
        31 => {
            let axis = if step.bind { vec![-1] } else { vec![1, 2] };
            net.op_with("nn.l2_normalize", &[a], &L2NormalizeAttrs { eps: 0.01, axis })
        }
        32 => {
            // Pixels that are left out, and zeros for them.
            let weight = weights(net, &[CHANNELS, CHANNELS, 1, 1], step.seed);
            let strides = vec![2, if step.bind { 1 } else { 2 }];
            let attrs = ConvAttrs { strides, ..ConvAttrs::of_rank(2) };
            let y = net.op_with("nn.conv2d", &[a, weight], &attrs);
            padded_behind(net, y, [1, if step.bind { 0 } else { 1 }])
        }
        33 => {
            // The pixels of blocks as channels.
            let wide = padded_behind(net, a, [1, 1]);
            let places = [[0, 0], [1, 0], [0, 1], [1, 1]].map(|begin| StridedSliceAttrs {
                begin: begin.to_vec(),
                end: vec![4, 4],
                strides: vec![2, 2],
                axes: vec![2, 3],
            });
            let parts = places.map(|attrs| net.op_with("strided_slice", &[wide], &attrs));
            let channels = net.op_with("concatenate", &parts, &ConcatenateAttrs { axis: 1 });
            let weight = weights(net, &[CHANNELS, 4 * CHANNELS, 3, 3], step.seed);
            let attrs = ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) };
            let y = net.op_with("nn.conv2d", &[channels, weight], &attrs);
            padded_behind(net, y, [1, 1])
        }
        34 => {
            // Channels behind the pixels of two tensors, and back.
            let axis = if step.bind { 1 } else { 2 };
            let both = net.op_with("concatenate", &[a, b], &ConcatenateAttrs { axis });
            let axes = vec![0, 2, 3, 1];
            let last = net.op_with("transpose", &[both], &TransposeAttrs { axes });
            let slice = StridedSliceAttrs {
                begin: vec![0, 0],
                end: vec![3, 4],
                strides: vec![1, 1],
                axes: vec![1, 3],
            };
            let part = net.op_with("strided_slice", &[last], &slice);
            net.op_with("transpose", &[part], &TransposeAttrs { axes: vec![0, 3, 1, 2] })
        }
        _ => {
            let bias = per_channel(net, &[CHANNELS], step.seed);
            net.op_with("nn.bias_add", &[a, bias], &BiasAddAttrs { axis: 1 })
        }
    }
}

fn graph(steps: &[Step]) -> IRModule {
    let mut net = Net::default();
    let dims = [1, CHANNELS, 3, 3];
    let mut values = vec![net.input("x", &dims), net.input("y", &dims)];
    let constants =
        vec![weights(&mut net, &dims, 0.3), per_channel(&mut net, &[CHANNELS, 1, 1], 0.1)];
    for (index, step) in steps.iter().enumerate() {
        let value = apply(&mut net, &values, &constants, step);
        if step.bind {
            net.0.bind(&format!("v{index}"), value);
        }
        values.push(value);
    }
    let last = values[values.len() - 1];
    let other = values[values.len() / 2];
    let result = net.0.tuple(&[last, other]);
    IRModule::from_function(net.finish(result))
}

fn inputs() -> Vec<Value> {
    let tensor = |shift: f64| {
        let values = (0..CHANNELS * 9).map(|i| (i as f64 * 0.37 + shift).sin()).collect();
        Value::from(Tensor::from_floats(DType::F32, &[1, 4, 3, 3], values).unwrap())
    };
    vec![tensor(0.0), tensor(1.0)]
}

fn assert_close(before: &Value, after: &Value) -> Result<(), TestCaseError> {
    let (before, after) = (tensors(before), tensors(after));
    prop_assert_eq!(before.len(), after.len());
    for (before, after) in before.into_iter().zip(after) {
        prop_assert_eq!(before.shape(), after.shape());
        for (a, b) in before.floats().unwrap().iter().zip(after.floats().unwrap()) {
            prop_assert!((a - b).abs() <= 1e-3 * a.abs().max(1.0), "{} became {}", a, b);
        }
    }
    Ok(())
}

/// The passes of the pipeline, and those that are only for lists of a caller's.
fn passes() -> Vec<PassRef> {
    let mut passes = pipeline(&PipelineExtensions::new()).unwrap().passes().to_vec();
    passes.extend([
        CanonicalizeCast.into(),
        DivToMul.into(),
        CombineParallelConv2d.into(),
        CombineParallelDense.into(),
        CombineParallelBatchMatmul.into(),
        BackwardFoldScaleAxis.into(),
        ForwardFoldScaleAxis.into(),
        AlterOpLayout.into(),
        channels_last().into(),
    ]);
    passes
}

fn channels_last() -> FunctionPass {
    let pools = ["nn.max_pool2d", "nn.avg_pool2d"];
    let pools = pools.map(|pool| (pool, &["NHWC"] as &[&str]));
    ConvertLayout::to(&[&[("nn.conv2d", &["NHWC"] as &[&str])], &pools[..]].concat()).unwrap()
}

/// A layer, what its argument is multiplied with, and what is done to its result.
#[derive(Clone, Debug)]
struct LayerSteps {
    layer: u8,
    channels: i64,
    biased: bool,
    before: Option<Operand>,
    after: Vec<(u8, Operand)>,
}

/// A constant for a tensor: which of its axes repeat, how many it has not, and what is in it.
#[derive(Clone, Debug)]
struct Operand {
    repeats: [bool; 4],
    missing: usize,
    /// Whether it has an axis more than the tensor.
    extra: bool,
    /// Whether axes of extent one are repeated in the tensor, too.
    grow: bool,
    seed: f32,
}

impl Operand {
    fn constant(&self, net: &mut Net, dims: &[i64]) -> ExprId {
        let axes = dims.iter().zip(self.repeats.into_iter().cycle());
        let extent = |(&extent, repeats): (&i64, bool)| match extent {
            _ if repeats => 1,
            1 if self.grow => CHANNELS,
            _ => extent,
        };
        let mut shape: Vec<i64> = axes.map(extent).collect();
        shape.drain(..self.missing.min(dims.len()));
        if self.extra {
            shape.insert(0, 1);
        }
        weights(net, &shape, self.seed)
    }
}

fn operand() -> impl Strategy<Value = Operand> {
    let repeats = proptest::array::uniform4(any::<bool>());
    let rarely = || proptest::bool::weighted(0.15);
    (repeats, 0usize..5, rarely(), rarely(), -1.0f32..1.0).prop_map(
        |(repeats, missing, extra, grow, seed)| Operand { repeats, missing, extra, grow, seed },
    )
}

fn layer_steps() -> impl Strategy<Value = LayerSteps> {
    let after = proptest::collection::vec((0u8..5, operand()), 0..5);
    let before = proptest::option::of(operand());
    (0u8..6, prop_oneof![Just(1i64), Just(2), Just(4)], any::<bool>(), before, after).prop_map(
        |(layer, channels, biased, before, after)| LayerSteps {
            layer,
            channels,
            biased,
            before,
            after,
        },
    )
}

/// The tensor of a layer's steps, whose argument has two rows of four channels.
fn layer_graph(steps: &LayerSteps) -> IRModule {
    let mut net = Net::default();
    let channels = steps.channels;
    let x_dims: &[i64] = match steps.layer {
        0 | 1 => &[2, CHANNELS, 3, 3],
        2 => &[2, CHANNELS, 3],
        _ => &[2, CHANNELS],
    };
    let mut x = net.input("x", x_dims);
    if let Some(factor) = &steps.before {
        let factor =
            Operand { extra: false, grow: false, ..factor.clone() }.constant(&mut net, x_dims);
        x = net.op("multiply", &[x, factor]);
    }
    let bias = weights(&mut net, &[channels], 0.4);
    let with_bias = |args: &[ExprId]| {
        args.iter().copied().chain(steps.biased.then_some(bias)).collect::<Vec<_>>()
    };
    let mut y = match steps.layer {
        0 => {
            let w = weights(&mut net, &[channels, CHANNELS, 1, 1], 0.7);
            net.op_with("nn.conv2d", &with_bias(&[x, w]), &ConvAttrs::of_rank(2))
        }
        1 => {
            let groups = channels.min(2);
            let w = weights(&mut net, &[channels, CHANNELS / groups, 3, 3], 0.7);
            let attrs = ConvAttrs { padding: vec![1; 4], groups, ..ConvAttrs::of_rank(2) };
            net.op_with("nn.conv2d", &with_bias(&[x, w]), &attrs)
        }
        2 => {
            let w = weights(&mut net, &[channels, CHANNELS, 1], 0.7);
            net.op_with("nn.conv1d", &with_bias(&[x, w]), &ConvAttrs::of_rank(1))
        }
        3 => {
            let w = weights(&mut net, &[channels, CHANNELS], 0.7);
            net.op("nn.dense", &[x, w])
        }
        layer => {
            let transpose_b = layer == 5;
            let dims = if transpose_b { [channels, CHANNELS] } else { [CHANNELS, channels] };
            let w = weights(&mut net, &dims, 0.7);
            net.op_with(
                "nn.matmul",
                &[x, w],
                &MatmulAttrs { transpose_b, ..MatmulAttrs::default() },
            )
        }
    };
    for (what, operand) in &steps.after {
        let dims: Vec<i64> =
            net.0.ty(y).as_tensor().unwrap().shape.iter().map(|d| d.as_const().unwrap()).collect();
        if *what == 4 {
            // The axis is an attribute.
            let axis = dims.len() - x_dims.len() + 1;
            let t = weights(&mut net, &dims[axis..=axis], operand.seed);
            y = net.op_with("nn.bias_add", &[y, t], &BiasAddAttrs { axis: axis as i64 });
            continue;
        }
        let c = operand.constant(&mut net, &dims);
        y = match what {
            0 => net.op("add", &[y, c]),
            1 => net.op("multiply", &[c, y]),
            2 => net.op("subtract", &[y, c]),
            _ => net.op("subtract", &[c, y]),
        };
    }
    IRModule::from_function(net.finish(y))
}

fn layer_inputs(module: &IRModule) -> Vec<Value> {
    let ty = module.function("main").unwrap().func_type();
    let shape: Vec<usize> = ty.params[0]
        .as_tensor()
        .unwrap()
        .shape
        .iter()
        .map(|dim| dim.as_const().unwrap() as usize)
        .collect();
    let count: usize = shape.iter().product();
    let values = (0..count).map(|i| (i as f64 * 0.37).sin()).collect();
    vec![Value::from(Tensor::from_floats(DType::F32, &shape, values).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_pass_keeps_the_value(steps in proptest::collection::vec(step(), 1..14)) {
        let module = graph(&steps);
        let expected = evaluate(&module, "main", &inputs()).unwrap();
        let cx = verifying()
            .opt_level(4)
            .config(&MIN_CONV2D_BRANCHES, 2)
            .config(&MIN_DENSE_BRANCHES, 2)
            .config(&MIN_BATCH_MATMUL_BRANCHES, 2)
            .config(&CHANNEL_BLOCK, 2)
            .build()
            .unwrap();
        for pass in passes() {
            let after = pass.run(module.clone(), &cx).unwrap();
            assert_close(&expected, &evaluate(&after, "main", &inputs()).unwrap())?;
        }
    }

    #[test]
    fn parts_for_other_code_generators_keep_the_value(steps in proptest::collection::vec(step(), 1..14)) {
        let mut module = graph(&steps);
        let expected = evaluate(&module, "main", &inputs()).unwrap();
        let ops = ["add", "multiply", "nn.relu", "tanh", "nn.conv2d"].map(String::from).to_vec();
        let pattern = "nn.relu(add(*, *))".to_owned();
        let cx = verifying()
            .config(&COMPOSITE_PATTERNS, vec![("dsp.add_relu".to_owned(), pattern)])
            .config(&EXTERNAL_TARGETS, vec![("dsp".to_owned(), ops)])
            .build()
            .unwrap();
        let parts: [PassRef; 4] = [
            MergeComposite.into(),
            AnnotateTarget.into(),
            MergeCompilerRegions.into(),
            PartitionGraph.into(),
        ];
        for pass in parts {
            module = pass.run(module, &cx).unwrap();
            assert_close(&expected, &evaluate(&module, "main", &inputs()).unwrap())?;
        }
        let calls = module.to_string().matches("Compiler=\"dsp\"").count();
        prop_assert_eq!(calls, module.len() - 1, "{}", module);
    }

    #[test]
    fn factors_and_summands_of_every_shape_keep_the_value(steps in layer_steps()) {
        let module = layer_graph(&steps);
        let inputs = layer_inputs(&module);
        let expected = evaluate(&module, "main", &inputs).unwrap();
        let cx = verifying().opt_level(3).build().unwrap();
        let folded = FoldScaleAxis.run(module.clone(), &cx).unwrap();
        assert_close(&expected, &evaluate(&folded, "main", &inputs).unwrap())?;
        let after = pipeline(&PipelineExtensions::new()).unwrap().run(module, &cx).unwrap();
        assert_close(&expected, &evaluate(&after, "main", &inputs).unwrap())?;
    }

    #[test]
    fn the_pipeline_keeps_the_value_at_every_level(steps in proptest::collection::vec(step(), 1..14), level in 0u8..=4) {
        let module = graph(&steps);
        let expected = evaluate(&module, "main", &inputs()).unwrap();
        let cx = verifying().opt_level(level).build().unwrap();
        let after = pipeline(&PipelineExtensions::new()).unwrap().run(module, &cx).unwrap();
        assert_close(&expected, &evaluate(&after, "main", &inputs()).unwrap())?;
        // A second run keeps the number of definitions and the values.
        let again = pipeline(&PipelineExtensions::new()).unwrap().run(after.clone(), &cx).unwrap();
        prop_assert_eq!(again.len(), after.len());
        assert_close(&expected, &evaluate(&again, "main", &inputs()).unwrap())?;
    }
}

#[test]
fn long_models_go_through_the_pipeline_on_a_small_stack() {
    let build = || {
        let mut net = Net::default();
        let dims = [1, CHANNELS, 3, 3];
        let mut x = net.input("x", &dims);
        for index in 0..10_000 {
            let skip = x;
            x = net.op("tanh", &[x]);
            let factor = per_channel(&mut net, &[CHANNELS, 1, 1], index as f32);
            x = net.op("multiply", &[x, factor]);
            let half = net.scalar(0.5);
            x = net.op("multiply", &[x, half]);
            x = net.op("add", &[x, skip]);
        }
        IRModule::from_function(net.finish(x))
    };
    let run = move || {
        let cx = verifying().opt_level(4).build().unwrap();
        pipeline(&PipelineExtensions::new()).unwrap().run(build(), &cx).unwrap().len()
    };
    // A quarter of the stack that build scripts' threads have.
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap();
    assert!(thread.join().unwrap() > 1);
}
