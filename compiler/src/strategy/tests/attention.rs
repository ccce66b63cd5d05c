//! Attention: two products with stages of rows between them.

use super::{Arg, Net, case, check, dense};
use crate::codegen::testing::runnable_levels;
use crate::graph::{ExprId, Function};
use crate::ir::{Attrs, Constant, DType};
use crate::tir::Stmt;

fn matmul(net: &mut Net, args: [ExprId; 2], transpose_b: bool) -> ExprId {
    let attrs = Attrs::new().with("transpose_a", false).with("transpose_b", transpose_b);
    net.call("nn.matmul", &args, attrs)
}

/// `softmax(q · k / 4 + mask) · v`, with `k` transposed or not.
fn attention(shapes: [&[i64]; 4], transpose_b: bool) -> (Function, Vec<Arg>) {
    let mut net = Net::new();
    let [q, k, v, mask] = shapes.map(|shape| net.param(shape));
    let scores = matmul(&mut net, [q, k], transpose_b);
    let quarter = net.b.constant(Constant::scalar(0.25, DType::F32).unwrap());
    let scores = net.plain("multiply", &[scores, quarter]);
    let scores = net.plain("add", &[scores, mask]);
    let weights = net.call("nn.softmax", &[scores], Attrs::new().with("axis", -1));
    let mixed = matmul(&mut net, [weights, v], false);
    let function = net.finish(mixed);
    (function, shapes.map(|shape| Arg::Input(dense(shape))).to_vec())
}

#[test]
fn attention_goes_by_blocks_of_rows() {
    for (batch, rows, columns, depth, width) in [
        // Rows that end with whole groups of sums, and others.
        (&[2, 3][..], 29, 64, 16, 32),
        (&[3], 14, 197, 20, 17),
        (&[1, 2], 4, 8, 8, 40),
        (&[2], 40, 256, 24, 64),
        // Rows that lie a power of two apart.
        (&[2], 17, 512, 8, 8),
        (&[], 30, 33, 7, 5),
    ] {
        for transpose_b in [false, true] {
            let of = |last: [i64; 2]| [batch, &last].concat();
            let k = of(if transpose_b { [columns, depth] } else { [depth, columns] });
            let (q, v) = (of([rows, depth]), of([columns, width]));
            let (function, args) = attention([&q, &k, &v, &[rows, columns]], transpose_b);
            check(&function, &args, &[dense(&of([rows, width]))]);
        }
    }
}

#[test]
fn heads_may_share_keys_and_values() {
    let shapes = [&[2, 4, 20, 16][..], &[2, 1, 16, 40], &[1, 4, 40, 24], &[2, 1, 1, 40]];
    let (function, args) = attention(shapes, false);
    check(&function, &args, &[dense(&[2, 4, 20, 24])]);
}

#[test]
fn several_numbers_of_a_row_are_kept_side_by_side() {
    let mut net = Net::new();
    let shapes = [&[2, 20, 16][..], &[2, 16, 64], &[2, 64, 24], &[2, 20, 64]];
    let [q, k, v, mask] = shapes.map(|shape| net.param(shape));
    let scores = matmul(&mut net, [q, k], false);
    let weights = net.call("nn.softmax", &[scores], Attrs::new().with("axis", -1));
    // Computed when that of the scores is there, and read with it.
    let greatest =
        net.call("max", &[mask], Attrs::new().with("axis", vec![2]).with("keepdims", true));
    let weights = net.plain("multiply", &[weights, greatest]);
    let mixed = matmul(&mut net, [weights, v], false);
    let function = net.finish(mixed);
    check(&function, &shapes.map(|shape| Arg::Input(dense(shape))), &[dense(&[2, 20, 24])]);
}

/// Halves, as models of `float16` have them: the products are of `float32`, what is between them is rounded.
#[test]
fn attention_of_halves_goes_by_blocks_of_rows() {
    for dtype in [DType::F16, DType::BF16] {
        for [rows, columns] in [[20, 40], [14, 67]] {
            let mut net = Net::new();
            let shapes = [&[2, rows, 16][..], &[2, 16, columns], &[2, columns, 24]];
            let [q, k, v] = shapes.map(|shape| net.param(shape));
            let cast = |dtype: DType| Attrs::new().with("dtype", dtype.to_string());
            let scores = matmul(&mut net, [q, k], false);
            let scores = net.call("cast", &[scores], cast(dtype));
            let weights = net.call("nn.softmax", &[scores], Attrs::new().with("axis", -1));
            let weights = net.call("cast", &[weights], cast(DType::F32));
            let mixed = matmul(&mut net, [weights, v], false);
            let function = net.finish(mixed);
            let args = shapes.map(|shape| Arg::Input(dense(shape)));
            check(&function, &args, &[dense(&[2, rows, 24])]);
            let levels = runnable_levels();
            let case = case(&function, &args, &[dense(&[2, rows, 24])]);
            let (kernel, _) = case.schedule(&levels[levels.len() - 1..]);
            let rules: Vec<&str> = kernel.loops.iter().map(|loops| loops.rule).collect();
            assert_eq!(rules, ["matrix product", "rows between products", "matrix product"]);
        }
    }
}

#[test]
fn no_kernel_has_all_scores() {
    let (function, args) = attention([&[4, 300, 16], &[4, 16, 300], &[4, 300, 16], &[300]], false);
    let levels = runnable_levels();
    let case = case(&function, &args, &[dense(&[4, 300, 16])]);
    let (kernel, _) = case.schedule(&levels[levels.len() - 1..]);
    let rules: Vec<&str> = kernel.loops.iter().map(|loops| loops.rule).collect();
    assert_eq!(rules, ["matrix product", "rows between products", "matrix product"]);
    let func = kernel.signature();
    let mut largest = 0;
    func.body.walk(&mut |stmt| {
        if let Stmt::Allocate { buffer, .. } = stmt {
            largest = largest.max(func.buffers[*buffer].spec.num_elements().unwrap());
        }
    });
    // The matrices of a head, in panels, or a block of scores.
    assert_eq!(largest, 300 * 16);
}
