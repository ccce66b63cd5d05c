//! Sums of products of `float16`.

use super::{Arg, Case, Net, blocked, check_all, conv_attrs, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, BufferSpec, DType};
use crate::pass::PassContext;
use crate::target::Target;
use crate::tir::Lowering;
use crate::tir::transform::FLOAT16_ARITHMETIC;
use crate::tir::{PrimExpr, PrimFunc, interpret};

/// Numbers so small that rounded sums of some hundred products are off by little.
fn halves(shape: &[i64], seed: usize) -> Tensor {
    let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let numbers = sample(&shape, seed);
    let small = numbers.floats().unwrap().iter().map(|number| number / 8.0).collect();
    Tensor::from_floats(DType::F16, &shape, small).unwrap()
}

/// An operator with a bias for each of its columns, and what follows it in one kernel.
fn case(op: &str, attrs: Attrs, shapes: [&[i64]; 3], after: &str, specs: [BufferSpec; 2]) -> Case {
    let tensors: Vec<Tensor> = (1..).zip(shapes).map(|(seed, shape)| halves(shape, seed)).collect();
    let mut net = Net::new();
    let params: Vec<_> = tensors.iter().map(|tensor| net.b.param("x", tensor.ty())).collect();
    let sums = net.call(op, &params[..2], attrs);
    let moved = net.plain("add", &[sums, params[2]]);
    let result = net.plain(after, &[moved]);
    let [x, y] = specs;
    Case {
        name: format!("{op}, {after}"),
        function: net.finish(result),
        tensors,
        args: vec![Arg::Input(x), Arg::Constant, Arg::Constant],
        results: vec![y],
    }
}

fn cases() -> Vec<Case> {
    let conv = |channels: i64, outputs: i64, groups: i64, after: &str, in_blocks: bool| {
        let (x, y) = ([1, channels, 9, 11], [1, outputs, 9, 11]);
        let attrs = conv_attrs(1, [1; 4], 1, groups);
        let spec = |shape: &[i64]| match in_blocks {
            true => blocked(shape, &[(1, 1), (1, 1)]),
            false => dense(shape),
        };
        let shapes = [&x[..], &[outputs, channels / groups, 3, 3], &[outputs, 1, 1]];
        case("nn.conv2d", attrs, shapes, after, [spec(&x), spec(&y)])
    };
    let product = |m: i64, k: i64, n: i64, after: &str| {
        let shapes = [&[m, k][..], &[n, k], &[n]];
        case("nn.dense", Attrs::new(), shapes, after, [dense(&[m, k]), dense(&[m, n])])
    };
    vec![
        conv(16, 48, 1, "nn.relu", true),
        conv(3, 20, 1, "nn.relu", false),
        conv(32, 32, 32, "nn.relu", true),
        conv(24, 16, 4, "sigmoid", false),
        product(19, 40, 37, "nn.relu"),
        product(1, 64, 24, "tanh"),
    ]
}

#[test]
fn halves_are_summed_in_float32_where_there_is_no_arithmetic_of_them() {
    check_all(&cases(), &runnable_levels());
}

/// The code runs on AArch64 alone, so that what it is made of is interpreted.
#[test]
fn halves_are_summed_in_vectors_of_them_where_there_is() {
    let arm = Target::from_triple("aarch64-unknown-linux-gnu").unwrap();
    let levels = ["generic", "aarch64-fp16"].map(|cpu| arm.clone().with_cpu(cpu).unwrap());
    for case in cases() {
        let (kernel, buffers) = case.schedule(&levels);
        let expected = case.expected();
        let expected = expected[0].floats().unwrap();
        for (version, target) in kernel.versions.iter().zip(&levels) {
            let cx = PassContext::builder().config(&FLOAT16_ARITHMETIC, true);
            let cx = cx.target(target.clone()).build().unwrap();
            let lowered = Lowering::new(&cx).unwrap().run(version.clone(), &cx).unwrap();
            let widest = widest_sum(&lowered, DType::F16);
            assert_eq!(widest, target.has_fp16_arithmetic().then_some(8), "{}", case.name);
            let mut buffers = buffers.clone();
            interpret(&lowered, &mut buffers, &[]).unwrap();
            let last = buffers.last().unwrap();
            let dense = case.results[0].unpack(last, DType::F16).unwrap();
            let found = Tensor::from_bytes(DType::F16, case.expected()[0].shape(), &dense).unwrap();
            for (found, expected) in found.floats().unwrap().iter().zip(expected) {
                let error = (found - expected).abs();
                assert!(error <= 4e-3 + 4e-3 * expected.abs(), "{}: {found} {expected}", case.name);
            }
        }
    }
}

/// Lanes of the widest multiply-adds of a type; `None` without any.
fn widest_sum(func: &PrimFunc, dtype: DType) -> Option<u32> {
    let mut widest = None;
    func.body.walk_exprs(&mut |expr| {
        if let PrimExpr::MulAdd { c, .. } = expr
            && c.dtype() == dtype
        {
            widest = widest.max(Some(c.ty().lanes));
        }
    });
    widest
}
