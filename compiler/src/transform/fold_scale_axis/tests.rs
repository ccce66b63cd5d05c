//! Tests of both directions on single layers.

use crate::graph::{ExprId, Function};
use crate::ir::Constant;
use crate::ops::nn::{BiasAddAttrs, ConvAttrs, MatmulAttrs};
use crate::pass::PassContext;
use crate::transform::FoldScaleAxis;
use crate::transform::tests::support::{Net, after_in, count, show, verifying};

fn after(pass: &impl crate::pass::PassBody, function: Function) -> Function {
    after_in(pass, function, &verifying().opt_level(3).build().unwrap())
}

fn conv(net: &mut Net, x: ExprId, groups: i64) -> ExprId {
    let w = net.tensor(&[4, 4 / groups, 1, 1], 0.5);
    net.op_with("nn.conv2d", &[x, w], &ConvAttrs { groups, ..ConvAttrs::of_rank(2) })
}

#[test]
fn factors_and_summands_of_the_result_are_folded() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4, 2, 2]);
    let y = conv(&mut net, x, 1);
    let (b, s, t) =
        (net.tensor(&[4, 1, 1], 1.0), net.tensor(&[1, 4, 1, 1], 2.0), net.tensor(&[4], 3.0));
    let y = net.op("add", &[b, y]);
    let y = net.op("multiply", &[y, s]);
    let y = net.op_with("nn.bias_add", &[y, t], &BiasAddAttrs { axis: 1 });
    let two = net.scalar(2.0);
    let y = net.op("subtract", &[y, two]);
    let function = after(&FoldScaleAxis, net.finish(y));
    assert_eq!(show(&function), "nn.conv2d(x, c(4, 4, 1, 1), c(4))");
    // Channel 1: weights 1.5 … · 2.25; bias 1.25 · 2.25 + 3.25 - 2.
    let constants: Vec<Vec<f64>> =
        function.iter().filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec()).collect();
    assert_eq!(constants[0][4], 1.5 * 2.25);
    assert_eq!(constants[1][1], 1.25 * 2.25 + 3.25 - 2.0);
}

#[test]
fn factors_of_the_argument_are_folded_group_by_group() {
    for groups in [1, 2, 4] {
        let mut net = Net::default();
        let x = net.input("x", &[1, 4, 2, 2]);
        let s = net.tensor(&[4, 1, 1], 2.0);
        let scaled = net.op("multiply", &[x, s]);
        let y = conv(&mut net, scaled, groups);
        let function = after(&FoldScaleAxis, net.finish(y));
        assert_eq!(count(&function, "multiply"), 0);
        let weight =
            function.iter().find_map(|(_, data)| data.expr.as_constant()?.to_f64_vec()).unwrap();
        // Output 3 reads its group's first input, which is channel 3 / (4 / groups) · 4 / groups.
        let per_group = 4 / groups as usize;
        let channel = 3 / per_group * per_group;
        let w = 0.5 + ((3 * per_group) % 9) as f64 / 4.0;
        assert_eq!(weight[3 * per_group], w * (2.0 + channel as f64 / 4.0));
    }
}

#[test]
fn dense_layers_and_products_keep_their_bias_outside() {
    for transposed in [None, Some(false), Some(true)] {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let dims = if transposed == Some(false) { [3, 4] } else { [4, 3] };
        let w = net.tensor(&dims, 0.5);
        let a = net.tensor(&[3], 1.0);
        let (s, t) = (net.tensor(&[4], 2.0), net.tensor(&[1, 4], 1.0));
        let x = net.op("multiply", &[x, a]);
        let y = match transposed {
            None => net.op("nn.dense", &[x, w]),
            Some(transpose_b) => {
                let attrs = MatmulAttrs { transpose_b, ..MatmulAttrs::default() };
                net.op_with("nn.matmul", &[x, w], &attrs)
            }
        };
        let y = net.op("add", &[t, y]);
        let y = net.op("multiply", &[y, s]);
        let y = net.op("subtract", &[y, t]);
        let function = after(&FoldScaleAxis, net.finish(y));
        let op = if transposed.is_none() { "nn.dense" } else { "nn.matmul" };
        assert_eq!(show(&function), format!("add({op}(x, c({}, {})), c(4))", dims[0], dims[1]));
        let mut constants: Vec<Vec<f64>> =
            function.iter().filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec()).collect();
        // The weights first.
        constants.sort_by_key(|elements| std::cmp::Reverse(elements.len()));
        // Input 1, output 2.
        let at = if transposed == Some(false) { 4 + 2 } else { 2 * 3 + 1 };
        assert_eq!(constants[0][at], (0.5 + at as f64 / 4.0) * 1.25 * 2.5);
        assert_eq!(constants[1][2], 1.5 * 2.5 - 1.5);
    }
}

#[test]
fn a_layer_with_its_bias_is_left_as_it_is() {
    let mut net = Net::default();
    let x = net.input("x", &[2, 3]);
    let (w, b) = (net.tensor(&[4, 3], 0.5), net.tensor(&[4], 1.0));
    let y = net.op("nn.dense", &[x, w]);
    let y = net.op("add", &[y, b]);
    let function = net.finish(y);
    assert!(after(&FoldScaleAxis, function.clone()).same(&function));
}

#[test]
fn a_bias_of_one_element_is_that_of_every_channel() {
    for (dims, then) in [([1].as_slice(), "multiply"), (&[1, 1], "add"), (&[], "subtract")] {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let (w, b, c) = (net.tensor(&[4, 3], 0.5), net.tensor(dims, 5.0), net.tensor(&[4], 1.0));
        let y = net.op("nn.dense", &[x, w]);
        let y = net.op("add", &[y, b]);
        let y = net.op(then, &[y, c]);
        let function = after(&FoldScaleAxis, net.finish(y));
        assert_eq!(show(&function), "add(nn.dense(x, c(4, 3)), c(4))");
        let bias = function
            .iter()
            .filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec())
            .find(|elements| elements.len() == 4)
            .unwrap();
        let expected = [1.0, 1.25, 1.5, 1.75].map(|c| match then {
            "multiply" => 5.0 * c,
            "add" => 5.0 + c,
            _ => 5.0 - c,
        });
        assert_eq!(bias, expected);
    }
}

#[test]
fn values_with_other_uses_are_not_folded() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4, 2, 2]);
    let y = conv(&mut net, x, 1);
    let s = net.tensor(&[4, 1, 1], 1.0);
    let z = net.op("multiply", &[y, s]);
    let both = net.0.tuple(&[y, z]);
    let function = net.finish(both);
    let cx = PassContext::builder().opt_level(3).remarks(true).build().unwrap();
    assert!(after_in(&FoldScaleAxis, function.clone(), &cx).same(&function));
    assert_eq!(cx.remarks().len(), 1);
    // A factor that is no constant, and one that differs along another axis.
    for dims in [[1, 4, 1, 1], [1, 1, 2, 1]] {
        let mut net = Net::default();
        let x = net.input("x", &[1, 4, 2, 2]);
        let s = if dims[2] == 2 { net.tensor(&dims, 1.0) } else { net.input("s", &dims) };
        let y = conv(&mut net, x, 1);
        let z = net.op("multiply", &[y, s]);
        let function = net.finish(z);
        assert!(after(&FoldScaleAxis, function.clone()).same(&function));
    }
    // A factor that is no number, or infinite.
    for factor in [f32::INFINITY, f32::NAN] {
        let mut net = Net::default();
        let x = net.input("x", &[1, 4, 2, 2]);
        let s = net.0.constant(Constant::from_f32(&[1], &[factor]).unwrap());
        let y = conv(&mut net, x, 1);
        let z = net.op("multiply", &[y, s]);
        let function = net.finish(z);
        assert!(after(&FoldScaleAxis, function.clone()).same(&function));
    }
}
