//! Tests of both directions through other operators, and of what stops factors.

use super::*;
use crate::ops::nn::{AvgPoolAttrs, ConvAttrs, MaxPoolAttrs, PadAttrs, PadMode};
use crate::transform::BackwardFoldScaleAxis;
use crate::transform::tests::support::{Net, after, count, show};

const DIMS: [i64; 4] = [1, 4, 3, 3];

fn conv(net: &mut Net, x: ExprId) -> ExprId {
    let w = net.tensor(&[4, 4, 1, 1], 0.5);
    net.op_with("nn.conv2d", &[x, w], &ConvAttrs::of_rank(2))
}

fn scaled(net: &mut Net, x: ExprId, first: f32) -> ExprId {
    let s = net.tensor(&[4, 1, 1], first);
    net.op("multiply", &[x, s])
}

/// One operator of each kind that factors go through.
fn between(net: &mut Net, x: ExprId, which: usize) -> ExprId {
    let pad = |fill| PadAttrs {
        pad_width: vec![[0, 0], [0, 0], [1, 1], [0, 2]],
        mode: if fill { PadMode::Constant } else { PadMode::Edge },
    };
    match which {
        0 => net.op("nn.relu", &[x]),
        1 => net.op_with("nn.max_pool2d", &[x], &MaxPoolAttrs::of_size(&[2, 2])),
        2 => net.op_with("nn.avg_pool2d", &[x], &AvgPoolAttrs::of_size(&[2, 2])),
        3 => net.op_with("nn.pad", &[x], &pad(true)),
        4 => net.op_with("nn.pad", &[x], &pad(false)),
        5 => net.op("negative", &[x]),
        6 => net.op("nn.global_avg_pool2d", &[x]),
        7 => net.op("nn.global_max_pool2d", &[x]),
        8 => {
            let b = net.tensor(&[4, 1, 1], 1.0);
            net.op("add", &[b, x])
        }
        9 => {
            let b = net.tensor(&[1, 4, 1, 1], 1.0);
            net.op("subtract", &[b, x])
        }
        10 => {
            let b = net.tensor(&[4], 1.0);
            net.op_with("nn.bias_add", &[x, b], &BiasAddAttrs { axis: 1 })
        }
        _ => net.op_with(
            "nn.leaky_relu",
            &[x],
            &crate::ops::elementwise::LeakyReluAttrs { alpha: 0.5 },
        ),
    }
}

const KINDS: usize = 12;

#[test]
fn factors_go_through_every_operator_that_lets_them() {
    for which in 0..KINDS {
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let y = scaled(&mut net, x, 1.0);
        let y = between(&mut net, y, which);
        let y = conv(&mut net, y);
        let function = after(&ForwardFoldScaleAxis, net.finish(y));
        assert_eq!(count(&function, "multiply"), 0, "forward {which}");
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let y = conv(&mut net, x);
        let y = between(&mut net, y, which);
        let y = scaled(&mut net, y, 1.0);
        let function = after(&BackwardFoldScaleAxis, net.finish(y));
        assert_eq!(count(&function, "multiply"), 0, "backward {which}");
        assert!(after(&BackwardFoldScaleAxis, function.clone()).same(&function));
    }
}

#[test]
fn negative_factors_stop_at_rectifiers_and_maxima() {
    for which in [0, 1, 7, 11] {
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let y = scaled(&mut net, x, -1.0);
        let y = between(&mut net, y, which);
        let y = conv(&mut net, y);
        let y = between(&mut net, y, which);
        let y = scaled(&mut net, y, -1.0);
        let function = net.finish(y);
        assert!(after(&ForwardFoldScaleAxis, function.clone()).same(&function), "{which}");
        assert!(after(&BackwardFoldScaleAxis, function.clone()).same(&function), "{which}");
    }
    // Constants would be divided by zero, but products with weights may be zero.
    let zero_through = |with_sum: bool| {
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let s = net.scalar(0.0);
        let y = net.op("multiply", &[x, s]);
        let y = if with_sum { between(&mut net, y, 8) } else { y };
        let y = conv(&mut net, y);
        count(&after(&ForwardFoldScaleAxis, net.finish(y)), "multiply")
    };
    assert_eq!((zero_through(true), zero_through(false)), (1, 0));
}

#[test]
fn every_reader_of_a_scaled_tensor_takes_its_factors_or_none() {
    let build = |third: Option<&str>| {
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let s = scaled(&mut net, x, 1.0);
        let r = net.op("nn.relu", &[s]);
        let (a, b) = (conv(&mut net, r), conv(&mut net, r));
        let sum = net.op("add", &[a, b]);
        let mut fields = vec![sum];
        fields.extend(third.map(|op| net.op(op, &[r])));
        let result = net.0.tuple(&fields);
        net.finish(result)
    };
    let function = after(&ForwardFoldScaleAxis, build(None));
    assert_eq!(
        show(&function),
        "(add(nn.conv2d(nn.relu(x), c(4, 4, 1, 1)), nn.conv2d(nn.relu(x), c(4, 4, 1, 1))))"
    );
    let function = build(Some("tanh"));
    assert!(after(&ForwardFoldScaleAxis, function.clone()).same(&function));
}

#[test]
fn both_operands_of_a_sum_are_scaled_backward() {
    let build = |shared: bool| {
        let mut net = Net::default();
        let x = net.input("x", &DIMS);
        let (a, b) = (conv(&mut net, x), conv(&mut net, x));
        let a = net.op("nn.relu", &[a]);
        let sum = net.op("add", &[a, b]);
        let y = scaled(&mut net, sum, 1.0);
        let result = if shared { net.0.tuple(&[y, a]) } else { y };
        net.finish(result)
    };
    let function = after(&BackwardFoldScaleAxis, build(false));
    assert_eq!(
        show(&function),
        "add(nn.relu(nn.conv2d(x, c(4, 4, 1, 1))), nn.conv2d(x, c(4, 4, 1, 1)))"
    );
    let function = build(true);
    assert!(after(&BackwardFoldScaleAxis, function.clone()).same(&function));
}

#[test]
fn factors_of_a_chain_are_collected_in_linear_time_on_a_small_stack() {
    let chain = |layer_first: bool| {
        let mut net = Net::default();
        let mut x = net.input("x", &DIMS);
        if layer_first {
            x = conv(&mut net, x);
        }
        let s = net.scalar(1.0);
        for index in 0..50_000 {
            x = net.op("multiply", &[x, s]);
            x = net.op(if index % 2 == 0 { "nn.relu" } else { "negative" }, &[x]);
        }
        x = net.op("multiply", &[x, s]);
        if !layer_first {
            x = conv(&mut net, x);
        }
        net.finish(x)
    };
    let run = move || {
        let cx = PassContext::builder().build().unwrap();
        for (layer_first, pass) in [(false, 0), (true, 1)] {
            let function = chain(layer_first);
            let function = match pass {
                0 => {
                    crate::transform::tests::support::after_in(&ForwardFoldScaleAxis, function, &cx)
                }
                _ => crate::transform::tests::support::after_in(
                    &BackwardFoldScaleAxis,
                    function,
                    &cx,
                ),
            };
            assert_eq!(count(&function, "multiply"), 0, "{layer_first}");
        }
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
}
