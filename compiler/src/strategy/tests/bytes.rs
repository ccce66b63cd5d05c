//! Sums of products of bytes: convolutions and matrix products of 8-bit integers.

use super::families::ints;
use super::{Arg, Case, Net, blocked, check_all, dense, without_vectors};
use crate::codegen::c;
use crate::codegen::testing::runnable_levels_for_bytes;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, BufferSpec, DType};
use crate::ops::nn::{ConvAttrs, MatmulAttrs};
use crate::strategy::Products;
use crate::target::Target;
use crate::tir::{self, PrimExpr, PrimFunc, Stmt};
use std::collections::BTreeSet;

/// Numbers from all over the range of a type, its ends among them.
pub(super) fn bytes(dtype: DType, shape: &[i64], seed: usize) -> Tensor {
    let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let (low, high) = dtype.int_range().unwrap();
    let len: usize = shape.iter().product();
    let number = |i: usize| {
        let mixed = (i.wrapping_mul(2654435761).wrapping_add(seed * 40503)) >> 9;
        match mixed % 19 {
            0 => low,
            1 => high,
            _ => low + (mixed % (high - low + 1) as usize) as i128,
        }
    };
    ints(dtype, &shape, &(0..len).map(number).collect::<Vec<_>>())
}

/// A convolution whose sums are shifted, requantised and so brought back to bytes.
struct Conv {
    x: (DType, Vec<i64>),
    weight: (DType, Vec<i64>),
    attrs: ConvAttrs,
    spec: BufferSpec,
    /// Whether the result is in blocks of channels.
    blocks: bool,
}

impl Conv {
    fn case(&self) -> Case {
        let x = bytes(self.x.0, &self.x.1, 1);
        let weight = bytes(self.weight.0, &self.weight.1, 2);
        let outputs = self.weight.1[0] as usize;
        let bias: Vec<i128> = (0..outputs as i128).map(|channel| channel * 321 - 2000).collect();
        let bias = ints(DType::I32, &[outputs], &bias);
        let scale: Vec<f64> = (0..outputs).map(|i| 0.001 + i as f64 / 65536.0).collect();
        let scale = Tensor::from_floats(DType::F32, &[outputs], scale).unwrap();
        let zero = ints(DType::U8, &[], &[7]);
        let tensors = vec![x, weight, bias, scale, zero];
        let mut net = Net::new();
        let params: Vec<_> = tensors.iter().map(|t| net.b.param("x", t.ty())).collect();
        let attrs = Attrs::from_struct(&self.attrs).unwrap();
        let sums = net.call("nn.conv2d", &params[..2], attrs);
        let sums = net.call("nn.bias_add", &[sums, params[2]], Attrs::new().with("axis", 1));
        let attrs = Attrs::new().with("axis", 1).with("dtype", "uint8");
        let result = net.call("qnn.requantize", &[sums, params[3], params[4]], attrs);
        let shape = net.b.ty(result).as_tensor().unwrap().shape.as_consts().unwrap();
        let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        let spec = if self.blocks { blocked(&shape, &[]) } else { dense(&shape) };
        Case {
            name: format!("{:?} by {:?}, {:?}", self.x, self.weight, self.attrs),
            function: net.finish(result),
            tensors,
            args: [Arg::Input(self.spec.clone())]
                .into_iter()
                .chain(vec![Arg::Constant; 4])
                .collect(),
            results: vec![spec],
        }
    }
}

#[test]
fn convolutions_of_bytes() {
    let mut cases = Vec::new();
    let plain = || ConvAttrs { out_dtype: Some(DType::I32), ..ConvAttrs::of_rank(2) };
    // Channels: whole blocks, part of one, whole fours or not, few; those of the result, too.
    for (inputs, outputs) in [(32, 32), (16, 58), (58, 16), (37, 20), (20, 70), (3, 24), (5, 17)] {
        for (kernel, padding, stride) in [(1, 0, 1), (3, 1, 1), (3, 1, 2)] {
            // Signs and layouts in turn.
            let in_blocks = cases.len() % 2 == 0;
            let (lhs, pad_value) =
                if cases.len() % 3 == 2 { (DType::I8, -3) } else { (DType::U8, 131) };
            let shape = [1, inputs, 9, 11];
            cases.push(Conv {
                x: (lhs, shape.to_vec()),
                weight: (DType::I8, vec![outputs, inputs, kernel, kernel]),
                attrs: ConvAttrs {
                    padding: vec![padding; 4],
                    strides: vec![stride; 2],
                    pad_value: if padding == 1 { pad_value } else { 0 },
                    ..plain()
                },
                spec: if in_blocks { blocked(&shape, &[]) } else { dense(&shape) },
                blocks: in_blocks,
            });
        }
    }
    // A border of zeros, which adds nothing.
    for inputs in [32, 5] {
        let shape = [1, inputs, 6, 7];
        cases.push(Conv {
            x: (DType::U8, shape.to_vec()),
            weight: (DType::I8, vec![24, inputs, 5, 5]),
            attrs: ConvAttrs { padding: vec![2; 4], ..plain() },
            spec: dense(&shape),
            blocks: true,
        });
    }
    // Groups of whole blocks, of parts of one, and of one channel each.
    for (inputs, outputs, groups) in [(64, 32, 2), (24, 48, 2), (20, 20, 20), (48, 48, 48)] {
        for weight in [DType::I8, DType::U8] {
            let shape = [2, inputs, 8, 7];
            cases.push(Conv {
                x: (DType::U8, shape.to_vec()),
                weight: (weight, vec![outputs, inputs / groups, 3, 3]),
                attrs: ConvAttrs {
                    padding: vec![1, 2, 0, 1],
                    dilation: vec![1, 2],
                    groups,
                    pad_value: 9,
                    ..plain()
                },
                spec: blocked(&shape, &[]),
                blocks: true,
            });
        }
    }
    // Four taps of a row at once, for two results or one: of rows that are longer than the pixels that
    // are read, and of rows that are not.
    for (kernel, strides, inputs, width) in [
        ([3, 3], 1, 20, 1),
        ([3, 3], 1, 48, 2),
        ([3, 3], 1, 16, 31),
        ([3, 3], 2, 16, 3),
        ([3, 3], 2, 32, 40),
        ([3, 3], 3, 16, 10),
        ([5, 5], 1, 16, 14),
        ([5, 5], 2, 16, 9),
        ([2, 4], 1, 20, 7),
        ([1, 9], 2, 16, 20),
    ] {
        let shape = [1, inputs, 5, width];
        let pads = [kernel[0] / 2, kernel[1] / 2];
        cases.push(Conv {
            x: (DType::U8, shape.to_vec()),
            weight: (DType::I8, vec![inputs, 1, kernel[0], kernel[1]]),
            attrs: ConvAttrs {
                padding: [pads, pads].concat(),
                strides: vec![1, strides],
                groups: inputs,
                ..plain()
            },
            spec: blocked(&shape, &[]),
            blocks: true,
        });
    }
    // Few channels: four taps of a row at once, rows of any length.
    for (kernel, dilation) in [(2, 1), (4, 1), (5, 1), (7, 1), (3, 2)] {
        cases.push(Conv {
            x: (DType::U8, vec![1, 3, 19, 23]),
            weight: (DType::I8, vec![24, 3, 3, kernel]),
            attrs: ConvAttrs {
                padding: vec![1, 2, 1, 1],
                strides: vec![2, 1],
                dilation: vec![1, dilation],
                pad_value: 77,
                ..plain()
            },
            spec: dense(&[1, 3, 19, 23]),
            blocks: true,
        });
    }
    // The border is in the layout.
    let shape = [1, 32, 14, 14];
    cases.push(Conv {
        x: (DType::U8, shape.to_vec()),
        weight: (DType::I8, vec![64, 32, 3, 3]),
        attrs: ConvAttrs { padding: vec![1; 4], ..plain() },
        spec: blocked(&shape, &[(1, 1), (1, 1)]),
        blocks: true,
    });
    let cases: Vec<Case> = cases.iter().map(Conv::case).collect();
    check_all(&cases, &runnable_levels_for_bytes());
    check_all(&cases, &[without_vectors()]);
}

/// The function for a processor without dot products of bytes.
fn for_avx2(case: &Case) -> PrimFunc {
    let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
    let levels = [target.with_cpu("x86-64-v3").unwrap()];
    case.schedule(&levels).0.versions[0].clone()
}

#[test]
fn weights_are_widened_to_words_once_for_many_tiles() {
    let conv = |width: i64| {
        let shape = vec![1, 40, 2, width];
        let attrs = ConvAttrs { out_dtype: Some(DType::I32), ..ConvAttrs::of_rank(2) };
        Conv {
            spec: blocked(&shape, &[]),
            x: (DType::U8, shape),
            weight: (DType::I8, vec![48, 40, 1, 1]),
            attrs,
            blocks: true,
        }
    };
    let words = |width: i64| {
        let func = for_avx2(&conv(width).case());
        let has_words = func.buffers.values().any(|buffer| buffer.name.starts_with("wide"));
        let mut factors = BTreeSet::new();
        func.body.walk_exprs(&mut |expr| {
            if let PrimExpr::DotAdd { a, .. } = expr {
                factors.insert(a.dtype());
            }
        });
        (has_words, factors)
    };
    assert_eq!(words(20), (true, BTreeSet::from([DType::I16])));
    assert_eq!(words(4), (false, BTreeSet::from([DType::U8])));
    check_all(&[conv(20).case(), conv(4).case()], &runnable_levels_for_bytes());
}

#[test]
fn matrix_products_of_bytes() {
    let mut cases = Vec::new();
    for (m, k, n) in [(1, 64, 48), (7, 33, 16), (50, 128, 100), (3, 5, 9), (20, 4, 33)] {
        for (lhs, rhs) in [
            (DType::U8, DType::I8),
            (DType::I8, DType::U8),
            (DType::I8, DType::I8),
            (DType::U8, DType::U8),
        ] {
            for transpose_b in [false, true] {
                let matrix = if transpose_b { [n, k] } else { [k, n] };
                let tensors = vec![bytes(lhs, &[2, m, k], 3), bytes(rhs, &matrix, 4)];
                let mut net = Net::new();
                let params: Vec<_> = tensors.iter().map(|t| net.b.param("x", t.ty())).collect();
                let attrs = MatmulAttrs {
                    transpose_b,
                    out_dtype: Some(DType::I32),
                    ..MatmulAttrs::default()
                };
                let result = net.call("nn.matmul", &params, Attrs::from_struct(&attrs).unwrap());
                cases.push(Case {
                    name: format!("{m} x {k} x {n} of {lhs} and {rhs}"),
                    function: net.finish(result),
                    tensors,
                    args: vec![Arg::Input(dense(&[2, m, k])), Arg::Constant],
                    results: vec![dense(&[2, m, n])],
                });
            }
        }
    }
    check_all(&cases, &runnable_levels_for_bytes());
    check_all(&cases, &[without_vectors()]);
}

#[test]
fn computed_matrices_of_bytes_are_copied_four_terms_at_a_time() {
    let mut cases = Vec::new();
    for (m, k, n) in [(7, 33, 16), (50, 128, 100), (4, 3, 9), (20, 4, 53), (9, 22, 2), (5, 18, 130)]
    {
        for (batch, transpose_b, [lhs, rhs]) in [
            (1, false, [DType::U8, DType::I8]),
            (2, false, [DType::I8, DType::U8]),
            (1, true, [DType::I8, DType::U8]),
            (2, true, [DType::U8, DType::I8]),
        ] {
            let matrix = if transpose_b { [n, k] } else { [k, n] };
            let shapes = [vec![2, m, k], [vec![batch], matrix.to_vec()].concat()];
            let [x, y] = shapes.clone();
            let tensors = vec![bytes(lhs, &x, 3), bytes(rhs, &y, 4)];
            let mut net = Net::new();
            let params: Vec<_> = tensors.iter().map(|t| net.b.param("x", t.ty())).collect();
            let out_dtype = Some(DType::I32);
            let attrs = MatmulAttrs { transpose_b, out_dtype, ..MatmulAttrs::default() };
            let result = net.call("nn.matmul", &params, Attrs::from_struct(&attrs).unwrap());
            cases.push(Case {
                name: format!("{m} x {k} x {n}, {batch} matrices, transposed {transpose_b}"),
                function: net.finish(result),
                tensors,
                args: shapes.iter().map(|shape| Arg::Input(dense(shape))).collect(),
                results: vec![dense(&[2, m, n])],
            });
        }
    }
    for case in &cases {
        // Each store to the panels is of all four terms of a column, or of several.
        let func = for_avx2(case);
        let mut stores = 0;
        func.body.walk(&mut |stmt| {
            if let Stmt::Store { buffer, value, .. } = stmt
                && func.buffers[*buffer].name == "panels"
            {
                assert_eq!(value.ty().lanes % 4, 0, "{}", case.name);
                stores += 1;
            }
        });
        assert!(stores > 0, "{}", case.name);
    }
    check_all(&cases, &runnable_levels_for_bytes());
    check_all(&cases, &[without_vectors()]);
}

/// A convolution with a border, of an image in blocks of channels.
fn conv_of_blocks(image: [i64; 4], weight: [i64; 4], attrs: ConvAttrs) -> Case {
    let shape = image.to_vec();
    let attrs = ConvAttrs { out_dtype: Some(DType::I32), ..attrs };
    let spec = blocked(&shape, &[]);
    let x = (DType::U8, shape);
    Conv { x, weight: (DType::I8, weight.to_vec()), attrs, spec, blocks: true }.case()
}

/// A product of so many rows of bytes with a constant.
fn product(batch: i64, [m, k, n]: [i64; 3]) -> Case {
    let tensors = vec![bytes(DType::U8, &[batch, m, k], 3), bytes(DType::I8, &[k, n], 4)];
    let mut net = Net::new();
    let params: Vec<_> = tensors.iter().map(|t| net.b.param("x", t.ty())).collect();
    let attrs = MatmulAttrs { out_dtype: Some(DType::I32), ..MatmulAttrs::default() };
    let result = net.call("nn.matmul", &params, Attrs::from_struct(&attrs).unwrap());
    Case {
        name: format!("{batch} times {m} x {k} x {n}"),
        function: net.finish(result),
        tensors,
        args: vec![Arg::Input(dense(&[batch, m, k])), Arg::Constant],
        results: vec![dense(&[batch, m, n])],
    }
}

/// The code for AMX, which every machine can write: how many instructions multiply, and how often registers
/// are configured.
fn matrix_code(case: &Case) -> [usize; 2] {
    let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
    let target = target.with_cpu("x86-64-v4-amx").unwrap();
    let func = case.schedule(std::slice::from_ref(&target)).0.versions[0].clone();
    let func = tir::lower(func, &target).unwrap();
    let text = c::generate(&func, "kernel", &target).unwrap();
    let text = c::translation_unit([&text], &[]);
    assert!(text.contains("tdpbusd") != text.contains("vpdpbusd"), "{}: {text}", case.name);
    // Reports count cycles by the same instructions.
    let products = if text.contains("vpdpbusd") { Products::Fours } else { Products::Matrices };
    assert_eq!(Products::of(&func), products, "{}", case.name);
    ["tdpbusd %%tmm", "ldtilecfg"].map(|instruction| text.matches(instruction).count())
}

#[test]
fn sums_of_bytes_are_in_registers_that_are_matrices() {
    let attrs = |padding: i64, stride: i64| ConvAttrs {
        padding: vec![padding; 4],
        strides: vec![stride; 2],
        ..ConvAttrs::of_rank(2)
    };
    let groups = ConvAttrs { groups: 2, ..attrs(1, 1) };
    let shifted = ConvAttrs { pad_value: 131, ..attrs(1, 1) };
    let cases = [
        // Two lines of a tile's pixels; parts of one, of two lengths; one register of columns.
        (conv_of_blocks([1, 32, 6, 14], [64, 32, 3, 3], attrs(1, 1)), [4, 1]),
        (conv_of_blocks([1, 32, 4, 33], [64, 32, 3, 3], attrs(1, 1)), [8, 2]),
        (conv_of_blocks([1, 16, 9, 9], [16, 16, 3, 3], attrs(1, 2)), [3, 1]),
        // Taps that are no row of a register, groups, a border that is not zero, two images.
        (conv_of_blocks([1, 16, 8, 8], [32, 16, 5, 5], attrs(2, 1)), [4, 1]),
        (conv_of_blocks([1, 32, 8, 8], [64, 16, 3, 3], groups), [4, 1]),
        (conv_of_blocks([2, 32, 8, 8], [32, 32, 3, 3], shifted), [4, 1]),
        // Single pixels: of blocks as they are, and of a copy, whose lines are one behind the other.
        (conv_of_blocks([1, 64, 8, 8], [32, 64, 1, 1], attrs(0, 1)), [4, 1]),
        (conv_of_blocks([1, 128, 7, 7], [160, 128, 1, 1], attrs(0, 1)), [8, 2]),
        (conv_of_blocks([1, 96, 9, 9], [512, 96, 1, 1], attrs(0, 2)), [6, 1]),
        // Products of whole registers of terms and of fewer, of one and of several registers of rows.
        (product(1, [64, 128, 64]), [4, 1]),
        (product(2, [9, 52, 32]), [2, 1]),
        (product(1, [39, 80, 100]), [20, 6]),
    ];
    for (case, expected) in &cases {
        assert_eq!(matrix_code(case), *expected, "{}", case.name);
    }
    let cases: Vec<Case> = cases.into_iter().map(|(case, _)| case).collect();
    check_all(&cases, &runnable_levels_for_bytes());
}

/// Few rows, channels that are no blocks, terms of a single step and those that divide into no equal ones are
/// left to dot products.
#[test]
fn other_sums_of_bytes_are_in_vectors() {
    let plain = || ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) };
    for case in [
        conv_of_blocks([1, 24, 8, 8], [32, 24, 3, 3], plain()),
        conv_of_blocks([1, 32, 3, 3], [32, 32, 3, 3], plain()),
        conv_of_blocks([1, 16, 8, 8], [32, 16, 1, 1], ConvAttrs::of_rank(2)),
        product(1, [4, 128, 64]),
        product(1, [64, 4 * 131, 64]),
    ] {
        assert_eq!(matrix_code(&case), [0, 0], "{}", case.name);
    }
}
