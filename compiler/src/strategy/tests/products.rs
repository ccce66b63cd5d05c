//! Matrix products and convolutions whose operands are constants or computed.

use super::families::{floats, ints};
use super::{
    Arg, Case, Net, blocked, case, check, check_all, conv, conv_attrs, dense, sample,
    without_vectors,
};
use crate::codegen::testing::runnable_levels;
use crate::ir::{Attrs, DType, Type};
use crate::target::Target;
use crate::tir::{ForKind, Stmt};

#[test]
fn matrix_products_of_any_extents() {
    for (m, k, n) in [(1, 64, 10), (1, 33, 200), (7, 40, 96), (30, 17, 33), (3, 600, 260)] {
        let mut net = Net::new();
        let (x, w, bias) = (net.param(&[m, k]), net.param(&[n, k]), net.param(&[n]));
        let y = net.plain("nn.dense", &[x, w]);
        let y = net.plain("add", &[y, bias]);
        let y = net.plain("tanh", &[y]);
        let function = net.finish(y);
        let x = Arg::Input(dense(&[m, k]));
        check(&function, &[x, Arg::Constant, Arg::Constant], &[dense(&[m, n])]);
    }
}

#[test]
fn what_is_computed_of_products_is_in_vectors_wherever_it_is_stored() {
    // Images whose channels are the first axis of the product: pixels are stored one by one.
    for width in [58, 16, 5] {
        let (shape, out) = ([1, 20, 9, 12], [1, 20, 9, width]);
        let mut net = Net::new();
        let (x, w, other) = (net.param(&shape), net.param(&[12, width]), net.param(&out));
        let plain = Attrs::new().with("transpose_a", false).with("transpose_b", false);
        let y = net.call("nn.matmul", &[x, w], plain);
        let y = net.plain("sigmoid", &[y]);
        let y = net.plain("multiply", &[y, other]);
        let args = [Arg::Input(dense(&shape)), Arg::Constant, Arg::Input(blocked(&out, &[]))];
        check(&net.finish(y), &args, &[blocked(&out, &[(1, 1), (2, 0)])]);
    }
}

/// Checks a product of two tensors, the second of which may be a constant.
fn product([a, b]: [&[i64]; 2], out: &[i64], b_constant: bool, [ta, tb]: [bool; 2]) {
    let mut net = Net::new();
    let (x, y) = (net.param(a), net.param(b));
    let attrs = Attrs::new().with("transpose_a", ta).with("transpose_b", tb);
    let z = net.call("nn.matmul", &[x, y], attrs);
    let function = net.finish(z);
    let second = if b_constant { Arg::Constant } else { Arg::Input(dense(b)) };
    check(&function, &[Arg::Input(dense(a)), second], &[dense(out)]);
}

#[test]
fn products_of_doubles_are_tiles() {
    let mut cases = Vec::new();
    for (m, k, n) in [(1, 64, 10), (1, 33, 200), (7, 40, 96), (30, 17, 33)] {
        for b_constant in [false, true] {
            let mut net = Net::new();
            let [x, w] =
                [[m, k], [k, n]].map(|shape| net.b.param("x", Type::tensor(&shape, DType::F64)));
            let plain = Attrs::new().with("transpose_a", false).with("transpose_b", false);
            let y = net.call("nn.matmul", &[x, w], plain);
            let second = if b_constant { Arg::Constant } else { Arg::Input(dense(&[k, n])) };
            let args = [Arg::Input(dense(&[m, k])), second];
            cases.push(case(&net.finish(y), &args, &[dense(&[m, n])]));
        }
    }
    for case in &cases {
        case.misses_nothing(&runnable_levels());
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn batched_products_and_products_of_inputs() {
    let matmul = |a: &[i64], b: &[i64], out: &[i64], b_constant: bool, tb: bool| {
        product([a, b], out, b_constant, [false, tb]);
    };
    matmul(&[2, 9, 20], &[20, 36], &[2, 9, 36], true, false);
    // Rows along another axis than the last but one.
    matmul(&[33, 1, 20], &[20, 36], &[33, 1, 36], true, false);
    matmul(&[2, 17, 3, 20], &[36, 20], &[2, 17, 3, 36], true, true);
    matmul(&[2, 3, 5, 8], &[2, 3, 8, 21], &[2, 3, 5, 21], false, false);
    matmul(&[4, 6, 8], &[4, 7, 8], &[4, 6, 7], false, true);
    // Matrices that are computed are copied in panels, each once for its rows.
    matmul(&[2, 3, 33, 40], &[2, 3, 40, 48], &[2, 3, 33, 48], false, false);
    matmul(&[3, 20, 17], &[3, 37, 17], &[3, 20, 37], false, true);
    matmul(&[2, 3, 9, 20], &[3, 20, 36], &[2, 3, 9, 36], false, false);
    matmul(&[2, 3, 9, 20], &[2, 1, 36, 20], &[2, 3, 9, 36], false, true);
    matmul(&[9, 20], &[5, 20, 36], &[5, 9, 36], false, false);
    matmul(&[1, 9, 20], &[2, 5, 20, 36], &[2, 5, 9, 36], false, false);
    matmul(&[17, 2, 20], &[20, 36], &[17, 2, 36], false, false);
    matmul(&[2, 1, 20], &[2, 20, 36], &[2, 1, 36], false, false);
    // A few rows: matrices are read where they are, whatever the number of columns.
    matmul(&[4, 20], &[20, 71], &[4, 71], false, false);
    matmul(&[1, 20], &[3, 20, 5], &[3, 1, 5], false, false);
    matmul(&[2, 13, 20], &[2, 20, 200], &[2, 13, 200], false, false);
    // One column, which lies along the sums.
    for is_constant in [false, true] {
        matmul(&[9, 300], &[300, 1], &[9, 1], is_constant, false);
        matmul(&[2, 3, 7, 37], &[1, 37], &[2, 3, 7, 1], is_constant, true);
        matmul(&[5, 64], &[3, 64, 1], &[3, 5, 1], is_constant, false);
        product([&[2, 40, 9], &[40, 1]], &[2, 9, 1], is_constant, [true, false]);
    }
    // Constants with batch axes.
    matmul(&[2, 9, 20], &[2, 20, 36], &[2, 9, 36], true, false);
    matmul(&[9, 20], &[3, 36, 20], &[3, 9, 36], true, true);
    matmul(&[3, 2, 9, 20], &[2, 20, 50], &[3, 2, 9, 50], true, false);
    matmul(&[2, 17, 20], &[1, 20, 36], &[2, 17, 36], true, false);
}

#[test]
fn products_whose_left_operand_is_transposed() {
    product([&[20, 33], &[20, 36]], &[33, 36], true, [true, false]);
    product([&[2, 40, 17], &[2, 40, 24]], &[2, 17, 24], false, [true, false]);
    product([&[20, 9], &[3, 20, 36]], &[3, 9, 36], false, [true, false]);
    product([&[3, 16, 30], &[1, 40, 16]], &[3, 30, 40], false, [true, true]);
    product([&[25, 1], &[25, 70]], &[1, 70], false, [true, false]);
}

#[test]
fn the_last_columns_of_panels_are_stored_in_narrower_vectors() {
    // Two heads of attention: a panel has more lanes than a matrix has columns.
    for columns in [8, 13, 24, 31] {
        let mut net = Net::new();
        let shapes = [&[2, 24, 24][..], &[2, 24, columns], &[24, columns]];
        let [x, y, z] = shapes.map(|shape| net.param(shape));
        let attrs = Attrs::new().with("transpose_a", false).with("transpose_b", false);
        let product = net.call("nn.matmul", &[x, y], attrs);
        let sum = net.plain("add", &[product, z]);
        let function = net.finish(sum);
        let args = shapes.map(|shape| Arg::Input(dense(shape)));
        check(&function, &args, &[dense(&[2, 24, columns])]);
    }
}

/// Many rows by few columns: those of the next tile are asked for, and rows are stored in the order of
/// memory, whole vectors and the rest of a row alike.
#[test]
fn rows_that_stream_by_are_asked_for() {
    let shapes = [&[5, 126, 421][..], &[421, 20]];
    let mut net = Net::new();
    let [x, y] = shapes.map(|shape| net.param(shape));
    let attrs = Attrs::new().with("transpose_a", false).with("transpose_b", false);
    let product = net.call("nn.matmul", &[x, y], attrs);
    let product = net.plain("nn.relu", &[product]);
    let function = net.finish(product);
    let args = [Arg::Input(dense(shapes[0])), Arg::Constant];
    let case = case(&function, &args, &[dense(&[5, 126, 20])]);
    let wide =
        Target::from_triple("x86_64-unknown-linux-gnu").unwrap().with_cpu("x86-64-v4").unwrap();
    let kernel = case.schedule(&[wide]).0;
    let (func, output) = (kernel.signature(), kernel.signature().params[2].buffer);
    let text = func.to_string();
    assert!(text.contains("prefetch x["), "{text}");
    // A tile's only loop over rows that stores has all stores of a row.
    let mut stores = Vec::new();
    func.body.walk(&mut |stmt| {
        let Stmt::For { kind: ForKind::Unrolled, body, .. } = stmt else { return };
        let mut widths = Vec::new();
        body.walk(&mut |stmt| match stmt {
            Stmt::For { kind: ForKind::Vectorized, extent, body, .. } if body.touches(output) => {
                widths.push(extent.as_int());
            }
            _ => {}
        });
        stores.extend(Some(widths).filter(|widths| !widths.is_empty()));
    });
    assert_eq!(stores, [[Some(16), Some(4)]], "{text}");
    check_all(&[case], &runnable_levels());
}

/// Rows that are a multiple of 4 KiB apart share a set of lines of the first cache level, which has eight.
#[test]
fn tiles_have_no_more_rows_than_their_set_has_lines() {
    let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
    let wide = [target.with_cpu("x86-64-v4").unwrap()];
    for (terms, sums) in [(1024, "float32[112]"), (1000, "float32[224]")] {
        let mut net = Net::new();
        let [x, y] = [&[140, terms][..], &[terms, 16]].map(|shape| net.param(shape));
        let attrs = Attrs::new().with("transpose_a", false).with("transpose_b", false);
        let product = net.call("nn.matmul", &[x, y], attrs);
        let args = [Arg::Input(dense(&[140, terms])), Arg::Constant];
        let case = case(&net.finish(product), &args, &[dense(&[140, 16])]);
        let text = case.schedule(&wide).0.signature().to_string();
        assert!(text.contains(&format!("allocate acc: register {sums}")), "{text}");
    }
}

/// Rows that are those of each matrix of a batch, and have no axis for it or one of one element.
#[test]
fn rows_for_all_matrices_stream_by() {
    product([&[384, 384], &[2, 384, 8]], &[2, 384, 8], true, [false; 2]);
    product([&[1, 384, 384], &[2, 384, 8]], &[2, 384, 8], true, [false; 2]);
}

#[test]
fn weights_that_are_computed_are_packed() {
    for (x, w, groups) in [
        ([1, 20, 9, 9], [36, 20, 3, 3], 1),
        ([2, 32, 6, 6], [40, 16, 3, 3], 2),
        ([1, 40, 8, 8], [40, 1, 3, 3], 40),
        ([1, 3, 12, 12], [20, 3, 3, 3], 1),
        ([1, 12, 6, 9], [8, 3, 3, 3], 4),
    ] {
        let mut net = Net::new();
        let (data, weight, slope) = (net.param(&x), net.param(&w), net.param(&[w[0], 1, 1]));
        let y = net.call("nn.conv2d", &[data, weight], conv_attrs(1, [1; 4], 1, groups));
        let y = net.plain("nn.prelu", &[y, slope]);
        let function = net.finish(y);
        let args = [Arg::Input(dense(&x)), Arg::Input(dense(&w)), Arg::Constant];
        let y = [x[0], w[0], x[2], x[3]];
        check(&function, &args, &[dense(&y)]);
        check(&function, &args, &[blocked(&y, &[(1, 1), (0, 0)])]);
    }
}

#[test]
fn groups_of_few_channels_go_along_rows() {
    for (x, w, groups, stride) in [
        ([2, 6, 9, 70], [12, 1, 3, 3], 6, 1),
        ([1, 16, 7, 20], [8, 2, 3, 3], 8, 1),
        ([1, 16, 9, 40], [16, 4, 3, 5], 4, 2),
        ([1, 9, 5, 60], [9, 1, 3, 3], 9, 1),
        ([1, 6, 9, 30], [3, 6, 4, 4], 1, 1),
        ([1, 8, 9, 40], [16, 2, 5, 3], 4, 1),
    ] {
        conv(&x, &w, conv_attrs(stride, [1, 1, 1, 1], 1, groups), dense(&x), dense);
    }
}

#[test]
fn weights_of_fewer_bits_are_widened_in_the_tile() {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16, DType::I8, DType::U8] {
        // Whole blocks of channels and parts of them, planes, and few results, which go along rows.
        for (channels, outputs, kernel, stride) in
            [(32, 48, 1, 1), (20, 37, 3, 1), (16, 32, 3, 2), (3, 24, 5, 2), (9, 3, 3, 1)]
        {
            let in_blocks = channels % 16 == 0;
            let (x, w) = ([1, channels, 11, 13], [outputs, channels, kernel, kernel]);
            let weights = w.map(|extent| extent as usize);
            let least = if dtype == DType::U8 { 150 } else { -50 };
            let number = |i: usize| (i * 37 % 101) as i128 + least;
            let numbers: Vec<i128> = (0..weights.iter().product()).map(number).collect();
            let weight = match dtype.is_float() {
                true => {
                    let halves: Vec<f64> = numbers.iter().map(|&n| n as f64 / 64.0).collect();
                    floats(dtype, &weights, &halves)
                }
                false => ints(dtype, &weights, &numbers),
            };
            let scale = sample(&[outputs as usize, 1, 1], 3);
            let tensors = vec![sample(&x.map(|extent| extent as usize), 1), weight, scale];
            let mut net = Net::new();
            let params: Vec<_> = tensors.iter().map(|t| net.b.param("x", t.ty())).collect();
            let attrs = conv_attrs(stride, [kernel / 2; 4], 1, 1).with("out_dtype", "float32");
            let sums = net.call("nn.conv2d", &params[..2], attrs);
            let scaled = net.plain("multiply", &[sums, params[2]]);
            let y = [1, outputs, (11 - 1) / stride + 1, (13 - 1) / stride + 1];
            let layout = |shape: &[i64]| match in_blocks {
                true => blocked(shape, &[]),
                false => dense(shape),
            };
            cases.push(Case {
                name: format!("{x:?} by {dtype} {w:?}"),
                function: net.finish(scaled),
                tensors,
                args: vec![Arg::Input(layout(&x)), Arg::Constant, Arg::Constant],
                results: vec![layout(&y)],
            });
        }
    }
    check_all(&cases, &runnable_levels());
    check_all(&cases, &[without_vectors()]);
}
