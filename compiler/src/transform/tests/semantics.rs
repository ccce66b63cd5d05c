//! Random graphs have the same value before and after each pass.

use proptest::prelude::*;

use super::support::{Net, tensors, verifying};
use crate::graph::ExprId;
use crate::graph::interp::{Tensor, Value, evaluate};
use crate::ir::{Constant, DType, IRModule};
use crate::ops::nn::{BatchNormAttrs, BiasAddAttrs, ConvAttrs, DropoutAttrs, MaxPoolAttrs};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{ConcatenateAttrs, SplitAttrs, TransposeAttrs};
use crate::pass::{Pass, PassRef};
use crate::transform::pipeline::{PipelineExtensions, pipeline};
use crate::transform::{
    Conv1dToConv2d, DeadCodeElimination, EliminateCommonSubexpr, FoldConstant, FoldScaleAxis,
    FuseOps, InferType, OutlinePrimitives, PromoteLowPrecision, RemoveUnusedFunctions,
    SimplifyInference,
};

/// Channels of every tensor of the random graphs, which are all (1, 4, 3, 3).
const CHANNELS: i64 = 4;

/// One step: which operator, on which of the earlier values, with which constants.
#[derive(Clone, Debug)]
struct Step {
    what: u8,
    a: usize,
    b: usize,
    seed: f32,
    bind: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (0u8..17, 0usize..100, 0usize..100, -1.0f32..1.0, any::<bool>())
        .prop_map(|(what, a, b, seed, bind)| Step { what, a, b, seed, bind })
}

/// A vector that differs by channel and stays within 2 of zero.
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
            let attrs = BatchNormAttrs { axis: 1, epsilon: 1e-5 };
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
        15 => {
            let two = net.scalar(f64::from(step.seed));
            let scaled = net.op("multiply", &[a, two]);
            net.op("sigmoid", &[scaled])
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

fn passes() -> Vec<PassRef> {
    vec![
        InferType.into(),
        SimplifyInference.into(),
        PromoteLowPrecision.into(),
        FoldConstant.into(),
        EliminateCommonSubexpr.into(),
        FoldScaleAxis.into(),
        Conv1dToConv2d.into(),
        DeadCodeElimination.into(),
        FuseOps.into(),
        OutlinePrimitives.into(),
        RemoveUnusedFunctions.into(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_pass_keeps_the_value(steps in proptest::collection::vec(step(), 1..14)) {
        let module = graph(&steps);
        let expected = evaluate(&module, "main", &inputs()).unwrap();
        let cx = verifying().build().unwrap();
        for pass in passes() {
            let after = pass.run(module.clone(), &cx).unwrap();
            assert_close(&expected, &evaluate(&after, "main", &inputs()).unwrap())?;
        }
    }

    #[test]
    fn the_pipeline_keeps_the_value_at_every_level(steps in proptest::collection::vec(step(), 1..14), level in 0u8..=4) {
        let module = graph(&steps);
        let expected = evaluate(&module, "main", &inputs()).unwrap();
        let cx = verifying().opt_level(level).build().unwrap();
        let after = pipeline(&PipelineExtensions::new()).unwrap().run(module, &cx).unwrap();
        assert_close(&expected, &evaluate(&after, "main", &inputs()).unwrap())?;
        // P8: a second run changes nothing that can be seen.
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
