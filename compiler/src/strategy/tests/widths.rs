//! Sums in registers beside values of other widths: every type around reductions and products.

use super::families::{floats, ints};
use super::{Arg, Case, Net, blocked, check_all, conv_attrs, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::graph::ExprId;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, BufferSpec, DType};
use crate::ops::elementwise::CastAttrs;
use crate::ops::reduce::ReduceAttrs;

/// Small numbers, which each type holds.
fn numbers(dtype: DType, shape: &[usize]) -> Tensor {
    let len: usize = shape.iter().product();
    let values = (0..len).map(|i| (i * 37 % 5) as i128);
    if dtype.is_float() {
        floats(dtype, shape, &values.map(|value| value as f64).collect::<Vec<_>>())
    } else {
        ints(dtype, shape, &values.collect::<Vec<_>>())
    }
}

impl Net {
    fn tensor(&mut self, tensor: &Tensor) -> ExprId {
        self.b.param("x", tensor.ty())
    }

    fn cast(&mut self, x: ExprId, to: DType) -> ExprId {
        self.call("cast", &[x], Attrs::from_struct(&CastAttrs::to(to)).unwrap())
    }

    /// A case with dense tensors, all inputs but `constants`.
    fn case(self, name: String, result: ExprId, tensors: Vec<Tensor>, constants: &[usize]) -> Case {
        let shape = |ty: &crate::ir::TensorType| -> Vec<i64> {
            ty.shape.as_consts().unwrap().iter().map(|&extent| extent as i64).collect()
        };
        let layouts: Vec<BufferSpec> =
            tensors.iter().map(|tensor| dense(&shape(&tensor.ty()))).collect();
        let args = (layouts.into_iter().enumerate()).map(|(at, spec)| {
            if constants.contains(&at) { Arg::Constant } else { Arg::Input(spec) }
        });
        let args = args.collect();
        let results = vec![dense(&shape(self.b.ty(result).as_tensor().unwrap()))];
        Case { name, function: self.finish(result), tensors, args, results }
    }
}

#[test]
fn reductions_of_casts_and_casts_of_reductions() {
    let mut cases = Vec::new();
    for dtype in [
        DType::F64,
        DType::I64,
        DType::U64,
        DType::I32,
        DType::F16,
        DType::BF16,
        DType::I16,
        DType::U8,
    ] {
        for (shape, axis) in [(vec![4, 16, 32], 1), (vec![16, 24], 0), (vec![5, 70], 0)] {
            let over = Attrs::from_struct(&ReduceAttrs { axis: vec![axis], keepdims: false });
            let over = over.unwrap();
            let x = numbers(dtype, &shape);
            let mut net = Net::new();
            let input = net.tensor(&x);
            let wide = net.cast(input, DType::F32);
            let sum = net.call("sum", &[wide], over.clone());
            cases.push(net.case(format!("sum of {dtype} {shape:?}"), sum, vec![x], &[]));

            let x = numbers(DType::F32, &shape);
            let mut net = Net::new();
            let input = net.tensor(&x);
            let sum = net.call("sum", &[input], over);
            let sum = net.cast(sum, dtype);
            cases.push(net.case(format!("{dtype} of a sum {shape:?}"), sum, vec![x], &[]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn products_beside_values_of_every_type() {
    let mut cases = Vec::new();
    for dtype in [DType::F64, DType::I64, DType::F16, DType::U8] {
        for (m, k, n) in [(16, 25, 16), (3, 40, 37)] {
            let (a, b, c) = (
                numbers(DType::F32, &[m, k]),
                numbers(DType::F32, &[k, n]),
                numbers(dtype, &[m, n]),
            );
            let attrs = Attrs::new().with("transpose_a", false).with("transpose_b", false);
            let mut net = Net::new();
            let (x, w) = (net.tensor(&a), net.tensor(&b));
            let product = net.call("nn.matmul", &[x, w], attrs.clone());
            let result = net.cast(product, dtype);
            let name = format!("{dtype} of a product {m}x{k}x{n}");
            cases.push(net.case(name, result, vec![a.clone(), b.clone()], &[1]));

            let mut net = Net::new();
            let (x, w, bias) = (net.tensor(&a), net.tensor(&b), net.tensor(&c));
            let product = net.call("nn.matmul", &[x, w], attrs);
            let bias = net.cast(bias, DType::F32);
            let result = net.plain("add", &[product, bias]);
            let name = format!("a product {m}x{k}x{n} and {dtype}");
            cases.push(net.case(name, result, vec![a, b, c], &[1]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn convolutions_beside_values_of_every_type() {
    let mut cases = Vec::new();
    let (x, w) = (sample(&[1, 16, 5, 5], 1), sample(&[20, 16, 3, 3], 2));
    for dtype in [DType::F64, DType::I64, DType::F16, DType::U8] {
        for layout in [dense(&[1, 20, 5, 5]), blocked(&[1, 20, 5, 5], &[])] {
            let residual = numbers(dtype, &[1, 20, 5, 5]);
            let mut net = Net::new();
            let (input, weights) = (net.tensor(&x), net.tensor(&w));
            let y = net.call("nn.conv2d", &[input, weights], conv_attrs(1, [1; 4], 1, 1));
            let bias = net.tensor(&residual);
            let bias = net.cast(bias, DType::F32);
            let y = net.plain("add", &[y, bias]);
            let tensors = vec![x.clone(), w.clone(), residual];
            let mut case = net.case(format!("a convolution and {dtype}"), y, tensors, &[1]);
            case.args[0] = Arg::Input(blocked(&[1, 16, 5, 5], &[(1, 1), (1, 1)]));
            case.args[2] = Arg::Input(layout.clone());
            case.results[0] = layout;
            cases.push(case);
        }
    }
    check_all(&cases, &runnable_levels());
}
