//! Tests of fusion.

use super::*;
use crate::graph::ScopeKind;
use crate::ir::Type;
use crate::ops::elementwise::CastAttrs;
use crate::ops::nn::{ConvAttrs, MatmulAttrs, MaxPoolAttrs, SoftmaxAttrs};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{
    ArangeAttrs, ConcatenateAttrs, ReshapeAttrs, SplitAttrs, SqueezeAttrs, TakeAttrs, TakeMode,
    TransposeAttrs,
};
use crate::transform::tests::support::{Net, after, after_in, count, show};

fn fused(function: Function) -> String {
    show(&after(&FuseOps, function))
}

fn conv(net: &mut Net, x: ExprId) -> ExprId {
    let channels = net.0.ty(x).as_tensor().unwrap().shape[1].as_const().unwrap();
    let weight = net.tensor(&[channels, channels, 3, 3], 0.5);
    net.op_with(
        "nn.conv2d",
        &[x, weight],
        &ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) },
    )
}

#[test]
fn element_wise_and_injective_operators_are_one_kernel() {
    let mut net = Net::default();
    let x = net.input("x", &[10, 1]);
    let one = net.scalar(1.0);
    let y = net.op("add", &[x, one]);
    let y = net.op("exp", &[y]);
    let y = net.op_with("squeeze", &[y], &SqueezeAttrs { axis: vec![1] });
    let function = after(&FuseOps, net.finish(y));
    assert_eq!(show(&function), "P{squeeze(exp(add(p0, 1)))}(x)");
    let closure = function.iter().find_map(|(_, data)| match &data.expr {
        Expr::Func(closure) => Some(closure.attrs.clone()),
        _ => None,
    });
    assert!(
        closure.is_some_and(|attrs| attrs.flag("Primitive") && !attrs.flag("relay.reshape_only"))
    );
}

#[test]
fn a_convolution_takes_its_epilogue_but_no_other_convolution() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4, 8, 8]);
    let one = net.scalar(1.0);
    let x = net.op("add", &[x, one]);
    let y = conv(&mut net, x);
    let y1 = net.op("add", &[y, one]);
    let y = net.op("add", &[y, y1]);
    let (z2, z3) = (conv(&mut net, y), conv(&mut net, y));
    let z = net.op("add", &[z2, z3]);
    let x = "P{add(p0, 1)}(x)";
    let w = "c(4, 4, 3, 3)";
    let y = format!("P{{add(nn.conv2d(p0, p1), add(nn.conv2d(p0, p1), 1))}}({x}, {w})");
    let function = after(&FuseOps, net.finish(z));
    let text = show(&function);
    // The sum is fused into one of the two convolutions.
    let one_way =
        format!("P{{add(nn.conv2d(p0, p1), p2)}}({y}, {w}, P{{nn.conv2d(p0, p1)}}({y}, {w}))");
    let other =
        format!("P{{add(p0, nn.conv2d(p1, p2))}}(P{{nn.conv2d(p0, p1)}}({y}, {w}), {y}, {w})");
    assert!(text == one_way || text == other, "{text}");
}

/// Positions belong to whoever computes with them, if that is one kernel.
#[test]
fn a_kernel_computes_positions_itself() {
    let positions = |net: &mut Net| {
        let attrs = ArangeAttrs { start: 2.into(), step: 1, length: 8.into(), dtype: DType::I32 };
        let at = net.op_with("arange", &[], &attrs);
        net.op_with("reshape", &[at], &ReshapeAttrs { newshape: vec![1.into(), 8.into()] })
    };
    let times = |net: &mut Net, y: ExprId, at: ExprId| {
        let at = net.op_with("cast", &[at], &CastAttrs::to(DType::F32));
        net.op("multiply", &[y, at])
    };
    let product = |net: &mut Net, y: ExprId, columns: i64| {
        let w = net.tensor(&[columns, 8], 0.5);
        net.op_with("nn.matmul", &[y, w], &MatmulAttrs::default())
    };
    let mut net = Net::default();
    let x = net.input("x", &[4, 6]);
    let (y, at) = (product(&mut net, x, 6), positions(&mut net));
    let y = times(&mut net, y, at);
    let of_one = "P{multiply(nn.matmul(p0, p1), cast(reshape(arange())))}(x, c(6, 8))";
    assert_eq!(fused(net.finish(y)), of_one);
    let mut net = Net::default();
    let x = net.input("x", &[4, 6]);
    let (y, at) = (product(&mut net, x, 6), positions(&mut net));
    let y = times(&mut net, y, at);
    let y = product(&mut net, y, 8);
    let y = times(&mut net, y, at);
    let text = fused(net.finish(y));
    assert!(text.contains("P{reshape(arange())}()"), "{text}");
}

#[test]
fn a_pooling_stays_alone_and_a_concatenation_takes_injective_operators() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4, 8, 8]);
    let attrs = MaxPoolAttrs {
        pool_size: vec![2, 2],
        strides: vec![2, 2],
        padding: vec![0; 4],
        dilation: vec![1, 1],
        ceil_mode: false,
    };
    let pooled = net.op_with("nn.max_pool2d", &[x], &attrs);
    let turned = net.op_with(
        "transpose",
        &[pooled],
        &crate::ops::tensor::TransposeAttrs { axes: vec![0, 1, 3, 2] },
    );
    let joined = net.op_with("concatenate", &[turned, pooled], &ConcatenateAttrs { axis: 1 });
    let one = net.scalar(1.0);
    let y = net.op("add", &[joined, one]);
    assert_eq!(
        fused(net.finish(y)),
        "P{add(concatenate(transpose(p0), p0), 1)}(P{nn.max_pool2d(p0)}(x))"
    );
}

#[test]
fn kernels_have_at_most_max_depth_operators() {
    let chain = |length: usize| {
        let mut net = Net::default();
        let mut x = net.input("x", &[10]);
        for _ in 0..length {
            x = net.op("exp", &[x]);
        }
        net.finish(x)
    };
    let sizes = |function: &Function| -> Vec<usize> {
        let mut sizes: Vec<usize> = function
            .scopes()
            .filter(|(_, scope)| scope.kind == ScopeKind::Closure)
            .map(|(id, _)| {
                function
                    .iter()
                    .filter(|(_, data)| data.scope == id && data.expr.as_call().is_some())
                    .count()
            })
            .collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&after(&FuseOps, chain(300))), [44, 256]);
    let cx = PassContext::builder().config(&MAX_DEPTH, 10).build().unwrap();
    assert_eq!(sizes(&after_in(&FuseOps, chain(20), &cx)), [10, 10]);

    // Diamonds of eleven operators: two branches of five and their sum.
    let mut net = Net::default();
    let mut x = net.input("x", &[10]);
    for _ in 0..3 {
        let mut branches = [x, x];
        for branch in &mut branches {
            for _ in 0..5 {
                *branch = net.op("exp", &[*branch]);
            }
        }
        x = net.op("add", &branches);
    }
    let cx = PassContext::builder().config(&MAX_DEPTH, 11).build().unwrap();
    assert_eq!(sizes(&after_in(&FuseOps, net.finish(x), &cx)).len(), 3);
}

#[test]
fn constant_tensors_are_arguments_unless_linked() {
    let build = |places: &[i64]| {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let joined = net.op_with("concatenate", &[x, x], &ConcatenateAttrs { axis: 0 });
        let index = net.0.constant(Constant::from_i64(&[places.len() as i64], places).unwrap());
        let y = net.op_with("take", &[joined, index], &TakeAttrs { axis: 0, mode: TakeMode::Fast });
        net.finish(y)
    };
    assert_eq!(fused(build(&[0, 1])), "P{take(concatenate(p0, p0), p1)}(x, c(2))");
    // One of one element is a literal.
    assert_eq!(fused(build(&[0])), "P{take(concatenate(p0, p0), c(1))}(x)");
    let cx = PassContext::builder().config(&LINK_PARAMS, true).build().unwrap();
    let linked = after_in(&FuseOps, build(&[0, 1]), &cx);
    assert_eq!(show(&linked), "P{take(concatenate(p0, p0), c(2))}(x)");
}

#[test]
fn at_level_0_each_operator_is_a_kernel() {
    let mut net = Net::default();
    let x = net.input("x", &[2]);
    let y = net.op("exp", &[x]);
    let y = net.op("nn.relu", &[y]);
    let cx = PassContext::builder().opt_level(0).build().unwrap();
    assert_eq!(show(&after_in(&FuseOps, net.finish(y), &cx)), "P{nn.relu(p0)}(P{exp(p0)}(x))");
}

#[test]
fn scopes_are_fused_by_themselves() {
    let mut net = Net::default();
    let cond = net.0.param("c", Type::tensor(&[], DType::Bool));
    let x = net.input("x", &[2]);
    let before = net.op("exp", &[x]);
    let branch = |net: &mut Net| {
        net.0.open_scope(ScopeKind::Branch);
        let y = net.op("nn.relu", &[before]);
        let y = net.op("exp", &[y]);
        net.0.close_scope(y)
    };
    let (yes, no) = (branch(&mut net), branch(&mut net));
    let choice = net.0.if_else(cond, yes, no).unwrap();
    let function = after(&FuseOps, net.finish(choice));
    let kernels = function.scopes().filter(|(_, scope)| scope.kind == ScopeKind::Closure).count();
    assert_eq!((kernels, count(&function, "exp")), (3, 3));
}

#[test]
fn bound_values_are_not_fused_into_their_users() {
    let mut net = Net::default();
    let x = net.input("x", &[2]);
    let y = net.op("exp", &[x]);
    net.0.bind("y", y);
    let z = net.op("nn.relu", &[y]);
    assert_eq!(fused(net.finish(z)), "P{nn.relu(p0)}(P{exp(p0)}(x))");
}

#[test]
fn tuples_of_results_are_taken_apart_outside_of_kernels() {
    let mut net = Net::default();
    let x = net.input("x", &[4]);
    let x = net.op("exp", &[x]);
    let parts = net.op_with("split", &[x], &SplitAttrs { axis: 0, sections: vec![2, 2] });
    let halves: Vec<ExprId> = (0..2).map(|i| net.0.tuple_get(parts, i).unwrap()).collect();
    let z = net.0.tuple(&[halves[1], halves[0]]);
    assert_eq!(fused(net.finish(z)), "(P{split(exp(p0))}(x).1, P{split(exp(p0))}(x).0)");
}

#[test]
fn kernels_that_only_reshape_are_marked() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4]);
    let y = net.op_with("squeeze", &[x], &SqueezeAttrs { axis: vec![0] });
    let function = after(&FuseOps, net.finish(y));
    assert!(function.iter().any(|(_, data)| matches!(
        &data.expr,
        Expr::Func(closure) if closure.attrs.flag("relay.reshape_only")
    )));
}

#[test]
fn fusing_again_changes_nothing() {
    let mut net = Net::default();
    let x = net.input("x", &[1, 4]);
    let y = net.op("exp", &[x]);
    let function = net.finish(y);
    let once = after(&FuseOps, function.clone());
    assert_eq!(show(&function), "exp(x)");
    assert!(after(&FuseOps, once.clone()).same(&once));
}

#[test]
fn long_chains_and_many_uses_take_linear_time() {
    let mut net = Net::default();
    let mut x = net.input("x", &[2]);
    for _ in 0..20_000 {
        let y = net.op("exp", &[x]);
        x = net.op("add", &[x, y]);
    }
    let function = after(&FuseOps, net.finish(x));
    assert_eq!(count(&function, "add"), 20_000);
}

/// `softmax(q · k · 2) · v`, with the calls of the scores and of the weights.
fn attention(net: &mut Net, rows: i64, axis: i64) -> [ExprId; 3] {
    let [q, k, v] = [("q", [2, rows, 16]), ("k", [2, 16, 24]), ("v", [2, 24, 8])]
        .map(|(name, shape)| net.input(name, &shape));
    let scores = net.op_with("nn.matmul", &[q, k], &MatmulAttrs::default());
    let two = net.scalar(2.0);
    let scores = net.op("multiply", &[scores, two]);
    let weights = net.op_with("nn.softmax", &[scores], &SoftmaxAttrs { axis });
    let mixed = net.op_with("nn.matmul", &[weights, v], &MatmulAttrs::default());
    [scores, weights, net.op("tanh", &[mixed])]
}

#[test]
fn attention_is_one_kernel() {
    let mut net = Net::default();
    let [_, _, y] = attention(&mut net, 20, -1);
    let scores = "multiply(nn.matmul(p0, p1), 2)";
    let expected = format!("P{{tanh(nn.matmul(nn.softmax({scores}), p2))}}(q, k, v)");
    assert_eq!(fused(net.finish(y)), expected);
}

#[test]
fn attention_reads_keys_and_values_in_another_order() {
    let build = |is_read_again: bool| {
        let mut net = Net::default();
        let [q, k, v] = [("q", [20, 2, 16]), ("k", [2, 24, 16]), ("v", [24, 2, 8])]
            .map(|(name, shape)| net.input(name, &shape));
        let mut moved = |x, axes: &[i64]| {
            net.op_with("transpose", &[x], &TransposeAttrs { axes: axes.to_vec() })
        };
        let [q, k, v] = [moved(q, &[1, 0, 2]), moved(k, &[0, 2, 1]), moved(v, &[1, 0, 2])];
        let scores = net.op_with("nn.matmul", &[q, k], &MatmulAttrs::default());
        let weights = net.op_with("nn.softmax", &[scores], &SoftmaxAttrs { axis: -1 });
        let y = net.op_with("nn.matmul", &[weights, v], &MatmulAttrs::default());
        if !is_read_again {
            return fused(net.finish(y));
        }
        let y = net.0.tuple(&[y, v]);
        fused(net.finish(y))
    };
    let [q, v] = ["P{transpose(p0)}(q)", "P{transpose(p0)}(v)"];
    let weights = |q: &str| format!("nn.softmax(nn.matmul({q}, transpose(p0)))");
    let whole = format!("P{{nn.matmul({}, transpose(p1))}}(k, v, {q})", weights("p2"));
    assert_eq!(build(false), whole);
    // What something else reads is stored anyway.
    let with_values = format!("(P{{nn.matmul({}, p2)}}(k, {q}, {v}), {v})", weights("p1"));
    assert_eq!(build(true), with_values);
}

#[test]
fn products_that_are_no_attention_are_kernels_of_their_own() {
    // Few rows, rows that do not add up to one.
    for (rows, axis) in [(3, -1), (24, 1)] {
        let mut net = Net::default();
        let [_, _, y] = attention(&mut net, rows, axis);
        assert!(!fused(net.finish(y)).contains("nn.matmul(nn.softmax"));
    }
    // Scores, and weights, that something else reads.
    for read in [0, 1] {
        let mut net = Net::default();
        let calls = attention(&mut net, 20, -1);
        let other = net.op("exp", &[calls[read]]);
        let other =
            net.op_with("sum", &[other], &ReduceAttrs { axis: vec![0, 1, 2], keepdims: false });
        let y = net.op("add", &[calls[2], other]);
        assert!(!fused(net.finish(y)).contains("nn.matmul(nn.softmax"));
    }
}

fn count_kernels(function: Function) -> usize {
    let function = after(&FuseOps, function);
    function.scopes().filter(|(_, scope)| scope.kind == ScopeKind::Closure).count()
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))²) + 0.5)`, of rows along the last axis.
fn norm(net: &mut Net, x: ExprId, axis: i64) -> [ExprId; 2] {
    let attrs = ReduceAttrs { axis: vec![axis], keepdims: true };
    let mean = net.op_with("mean", &[x], &attrs);
    let deviation = net.op("subtract", &[x, mean]);
    let squares = net.op("multiply", &[deviation, deviation]);
    let variance = net.op_with("mean", &[squares], &attrs);
    let half = net.scalar(0.5);
    let variance = net.op("add", &[variance, half]);
    let root = net.op("sqrt", &[variance]);
    [deviation, net.op("divide", &[deviation, root])]
}

#[test]
fn a_norm_that_is_written_out_is_one_kernel() {
    let kernels = |shape: &[i64], axis: i64, read_twice: bool| {
        let mut net = Net::default();
        let x = net.input("x", shape);
        let [deviation, mut y] = norm(&mut net, x, axis);
        if read_twice {
            let other =
                net.op_with("sum", &[deviation], &ReduceAttrs { axis: vec![0], keepdims: true });
            y = net.op("add", &[y, other]);
        }
        count_kernels(net.finish(y))
    };
    assert_eq!(kernels(&[4, 20], 1, false), 1);
    assert_eq!(kernels(&[2, 4, 20], -1, false), 1);
    // Columns; rows of few elements; one row; what something else reads.
    assert!(kernels(&[4, 20], 0, false) > 1);
    assert!(kernels(&[4, 3], 1, false) > 1);
    assert!(kernels(&[1, 20], 1, false) > 1);
    assert!(kernels(&[4, 20], 1, true) > 2);
}

#[test]
fn a_softmax_that_is_written_out_is_part_of_attention() {
    let mut net = Net::default();
    let [q, k, v] = [("q", [2, 20, 16]), ("k", [2, 16, 24]), ("v", [2, 24, 8])]
        .map(|(name, shape)| net.input(name, &shape));
    let scores = net.op_with("nn.matmul", &[q, k], &MatmulAttrs::default());
    let attrs = ReduceAttrs { axis: vec![-1], keepdims: true };
    let greatest = net.op_with("max", &[scores], &attrs);
    let shifted = net.op("subtract", &[scores, greatest]);
    let exp = net.op("exp", &[shifted]);
    let sum = net.op_with("sum", &[exp], &attrs);
    let weights = net.op("divide", &[exp, sum]);
    let y = net.op_with("nn.matmul", &[weights, v], &MatmulAttrs::default());
    assert_eq!(count_kernels(net.finish(y)), 1);
}

#[test]
fn a_kernel_has_two_products_at_most() {
    let mut net = Net::default();
    let mut x = net.input("x", &[2, 20, 16]);
    let w = net.tensor(&[16, 16], 0.5);
    for _ in 0..5 {
        let y = net.op_with("nn.matmul", &[x, w], &MatmulAttrs::default());
        x = net.op_with("nn.softmax", &[y], &SoftmaxAttrs { axis: -1 });
    }
    // Products and softmaxes in turn, of which two products and what is between them are one.
    assert_eq!(count_kernels(net.finish(x)), 3 + 3);
}

#[test]
fn weights_that_are_the_matrix_too_are_no_attention() {
    let mut net = Net::default();
    let [q, k] =
        [("q", [2, 20, 16]), ("k", [2, 16, 20])].map(|(name, shape)| net.input(name, &shape));
    let scores = net.op_with("nn.matmul", &[q, k], &MatmulAttrs::default());
    let weights = net.op_with("nn.softmax", &[scores], &SoftmaxAttrs { axis: -1 });
    let y = net.op_with("nn.matmul", &[weights, weights], &MatmulAttrs::default());
    assert_eq!(count_kernels(net.finish(y)), 3);
}
