//! Random islands of dequantised numbers before and after the pass.

use std::cell::Cell;

use proptest::prelude::*;

use super::FakeQuantizationToInteger;
use crate::graph::interp::{Tensor, Value, evaluate};
use crate::graph::{ExprId, Function};
use crate::ir::{Constant, DType, Dim, IRModule, SharedBytes, TensorType, Type};
use crate::ops::OpDef;
use crate::ops::elementwise::{CastAttrs, ClipAttrs};
use crate::ops::nn::{
    AvgPoolAttrs, CONV2D, ConvAttrs, MATMUL, MatmulAttrs, MaxPoolAttrs, PadAttrs, PadMode,
};
use crate::ops::qnn::weights::int32s;
use crate::ops::qnn::{DequantizeAttrs, QuantizeAttrs, RequantizeAttrs};
use crate::ops::tensor::{ConcatenateAttrs, ReshapeAttrs, TransposeAttrs};
use crate::transform::tests::support::{Net, after, count};

/// Extents of the images.
const IMAGE: [i64; 4] = [1, 4, 5, 5];

/// What is in an island, and its constants.
#[derive(Clone, Debug)]
struct Island {
    steps: Vec<u8>,
    signed: [bool; 3],
    zeros: [i64; 3],
    scale: f32,
    seed: i64,
}

fn island() -> impl Strategy<Value = Island> {
    let steps = proptest::collection::vec(0u8..11, 0..4);
    let zeros = [0i64..256, 0..256, 0..256];
    (steps, any::<[bool; 3]>(), zeros, 0.01f32..0.2, 0i64..1000).prop_map(
        |(steps, signed, zeros, scale, seed)| Island { steps, signed, zeros, scale, seed },
    )
}

impl Island {
    fn dtype(&self, which: usize) -> DType {
        if self.signed[which] { DType::I8 } else { DType::U8 }
    }

    /// A zero point within the range of the type.
    fn zero(&self, net: &mut Net, which: usize) -> ExprId {
        let value = self.zeros[which] - if self.signed[which] { 128 } else { 0 };
        net.0.constant(Constant::scalar(value as f64, self.dtype(which)).unwrap())
    }

    fn dequantized(&self, net: &mut Net, q: ExprId, which: usize, scale: f32) -> ExprId {
        let zero = self.zero(net, which);
        let scale = net.scalar(f64::from(scale));
        let attrs = DequantizeAttrs { axis: 0, block_size: 0, dtype: DType::F32 };
        net.op_with("qnn.dequantize", &[q, scale, zero], &attrs)
    }

    /// Weights that are `int8`, with a scale for each output channel.
    fn weights(&self, net: &mut Net, dims: &[i64], axis: i64) -> ExprId {
        let count: i64 = dims.iter().product();
        let bytes = (0..count).map(|i| ((i * 37 + self.seed * 11) % 251) as u8).collect::<Vec<_>>();
        let ty = TensorType::from_consts(dims, DType::I8);
        let q = net.0.constant(Constant::new(ty, SharedBytes::new(bytes)).unwrap());
        let channels = dims[axis as usize];
        let scales: Vec<f32> = (0..channels).map(|i| 0.002 + i as f32 * 0.001).collect();
        let scale = net.0.constant(Constant::from_f32(&[channels], &scales).unwrap());
        let attrs = DequantizeAttrs { axis, block_size: 0, dtype: DType::F32 };
        net.op_with("qnn.dequantize", &[q, scale], &attrs)
    }

    /// The function, and how many convolutions and products are in it.
    fn build(&self) -> (Function, usize) {
        let mut net = Net::default();
        let inputs = ["x", "y"].map(|name| {
            let which = usize::from(name == "y");
            net.0.param(name, Type::tensor(&IMAGE, self.dtype(which)))
        });
        let mut x = self.dequantized(&mut net, inputs[0], 0, self.scale);
        let mut products = 0;
        for &step in &self.steps {
            // Numbers that are sums already stay floats: one product an island.
            x = match step {
                0 | 1 if products == 0 => {
                    products += 1;
                    let groups = if step == 0 { 1 } else { 4 };
                    let weight = self.weights(&mut net, &[4, 4 / groups, 3, 3], 0);
                    let bias = net.tensor(&[4], 0.5);
                    let attrs = ConvAttrs { padding: vec![1; 4], groups, ..ConvAttrs::of_rank(2) };
                    net.op_with("nn.conv2d", &[x, weight, bias], &attrs)
                }
                2 if products == 0 => {
                    products += 1;
                    let weight = self.weights(&mut net, &[5, 5], 1);
                    let x = net.op_with("nn.matmul", &[x, weight], &MatmulAttrs::default());
                    let bias = net.tensor(&[5], -1.0);
                    net.op("add", &[x, bias])
                }
                3 => net.op("nn.relu", &[x]),
                4 => net.op_with("clip", &[x], &ClipAttrs { min: Some(-0.7), max: Some(6.0) }),
                5 => {
                    let attrs =
                        MaxPoolAttrs { padding: vec![1; 4], ..MaxPoolAttrs::of_size(&[3, 3]) };
                    let attrs = MaxPoolAttrs { strides: vec![1, 1], ..attrs };
                    net.op_with("nn.max_pool2d", &[x], &attrs)
                }
                6 => {
                    let rows = net.op_with(
                        "nn.avg_pool2d",
                        &[x],
                        &AvgPoolAttrs { strides: vec![1, 1], ..AvgPoolAttrs::of_size(&[2, 2]) },
                    );
                    let pad_width = vec![[0, 0], [0, 0], [1, 0], [0, 1]];
                    net.op_with("nn.pad", &[rows], &PadAttrs { pad_width, mode: PadMode::Constant })
                }
                7 => net.op_with("transpose", &[x], &TransposeAttrs { axes: vec![0, 1, 3, 2] }),
                8 => {
                    let newshape = [1, 25, 2, 2].map(Dim::from).to_vec();
                    let moved = net.op_with("reshape", &[x], &ReshapeAttrs { newshape });
                    let newshape = IMAGE.map(Dim::from).to_vec();
                    net.op_with("reshape", &[moved], &ReshapeAttrs { newshape })
                }
                9 => {
                    let y = self.dequantized(&mut net, inputs[1], 1, self.scale * 0.7);
                    let both = net.op_with("concatenate", &[x, y], &ConcatenateAttrs { axis: 2 });
                    let attrs =
                        MaxPoolAttrs { strides: vec![2, 1], ..MaxPoolAttrs::of_size(&[2, 1]) };
                    net.op_with("nn.max_pool2d", &[both], &attrs)
                }
                10 if products == 0 => {
                    products += 1;
                    let y = self.dequantized(&mut net, inputs[1], 1, self.scale * 0.7);
                    let transpose_b = self.seed % 2 == 0;
                    let attrs = MatmulAttrs { transpose_b, ..MatmulAttrs::default() };
                    net.op_with("nn.matmul", &[x, y], &attrs)
                }
                _ => x,
            };
        }
        let (scale, zero) = (net.scalar(f64::from(self.scale) * 1.3), self.zero(&mut net, 2));
        let attrs = QuantizeAttrs {
            axis: 0,
            block_size: 0,
            dtype: self.dtype(2),
            precision: None,
            saturate: true,
        };
        let q = net.op_with("qnn.quantize", &[x, scale, zero], &attrs);
        (net.finish(q), products)
    }

    fn arguments(&self) -> Vec<Value> {
        let shape = IMAGE.map(|extent| extent as usize);
        let image = |which: usize| {
            let low = if self.signed[which] { 128 } else { 0 };
            let values = (0..100)
                .map(|i| (i128::from(i * 73 + self.seed) * (which as i128 + 3)) % 256 - low);
            Tensor::from_ints(self.dtype(which), &shape, values.collect()).unwrap().into()
        };
        vec![image(0), image(1)]
    }
}

fn result(function: &Function, args: &[Value]) -> Vec<i128> {
    let module = IRModule::from_function(function.clone());
    let value = evaluate(&module, "main", args).unwrap();
    value.as_tensor().unwrap().ints().unwrap().to_vec()
}

#[test]
fn random_islands_differ_by_at_most_one_step_and_hardly_ever() {
    let (elements, different) = (Cell::new(0usize), Cell::new(0usize));
    proptest!(ProptestConfig { cases: 400, ..ProptestConfig::default() }, |(island in island())| {
        let (before, products) = island.build();
        let integers = after(&FakeQuantizationToInteger, before.clone());
        let args = island.arguments();
        let (expected, found) = (result(&before, &args), result(&integers, &args));
        elements.set(elements.get() + found.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1, "{found} for {expected}");
            different.set(different.get() + usize::from(found != expected));
        }
        let steps = &island.steps;
        let ends_in_pair = matches!(steps[..], [10] | [10, 3 | 4 | 5 | 7]);
        if products == 1 && matches!(steps.first(), Some(0..=2)) || ends_in_pair {
            // No product of floats is left.
            let floats = integers.iter().filter(|(_, data)| {
                data.expr.is_call_of(&crate::ops::nn::CONV2D)
                    || data.expr.is_call_of(&crate::ops::nn::MATMUL)
            });
            for (_, data) in floats {
                prop_assert_eq!(data.ty.as_tensor().unwrap().dtype, DType::I32);
            }
        }
        if steps.iter().all(|&step| matches!(step, 0..=2)) || ends_in_pair {
            prop_assert_eq!(count(&integers, "qnn.dequantize"), 0);
        }
    });
    let (elements, different) = (elements.get(), different.get());
    assert!(different * 100 < elements, "{different} of {elements} elements differ by one step");
}

/// Sums of products of `int32` that were bytes, less zero points that are known or not.
fn widened(dtypes: [DType; 2], zeros: [Option<i64>; 2], transpose_b: bool) -> Function {
    let mut net = Net::default();
    let shapes = [[2, 6, 9], if transpose_b { [2, 7, 9] } else { [2, 9, 7] }];
    let [a, b] = [0, 1].map(|which| {
        let name = ["a", "b"][which];
        let q = net.0.param(name, Type::tensor(&shapes[which], dtypes[which]));
        let wide = net.op_with("cast", &[q], &CastAttrs::to(DType::I32));
        let zero = match zeros[which] {
            Some(0) => return wide,
            Some(zero) => net.0.constant(Constant::scalar(zero as f64, DType::I32).unwrap()),
            None => net.0.param(["a_zero", "b_zero"][which], Type::tensor(&[], DType::I32)),
        };
        net.op("subtract", &[wide, zero])
    });
    let attrs = MatmulAttrs { transpose_b, ..MatmulAttrs::default() };
    let product = net.op_with("nn.matmul", &[a, b], &attrs);
    net.finish(product)
}

/// Bytes of all values, and integers, for each parameter.
fn bytes_for(function: &Function) -> Vec<Value> {
    let params = function.params().iter().enumerate();
    let value = |(number, &param): (usize, &ExprId)| {
        let ty = function.ty(param).as_tensor().unwrap().clone();
        let shape: Vec<usize> =
            ty.shape.iter().map(|dim| dim.as_const().unwrap() as usize).collect();
        let count = shape.iter().product::<usize>() as i128;
        let low = ty.dtype.int_range().unwrap().0.max(-128);
        let values = (0..count).map(|i| low + (i * 73 + number as i128 * 31) % 256);
        Tensor::from_ints(ty.dtype, &shape, values.collect()).unwrap().into()
    };
    params.map(value).collect()
}

/// How many calls of an operator take an unsigned and a signed byte.
fn byte_sums(function: &Function, op: &'static OpDef) -> usize {
    let of = |&arg: &Option<ExprId>| function.ty(arg.unwrap()).as_tensor().unwrap().dtype;
    let calls = function.iter().filter(|(_, data)| data.expr.is_call_of(op));
    let args = calls.filter_map(|(_, data)| Some(&data.expr.as_call()?.args[..2]));
    args.filter(|args| args.iter().map(of).eq([DType::U8, DType::I8])).count()
}

#[test]
fn products_of_widened_bytes_are_those_of_bytes() {
    let zeros = [Some(0), Some(77), None];
    for dtypes in [[DType::U8, DType::I8], [DType::I8, DType::U8], [DType::I8; 2]] {
        for (a, b) in zeros.iter().flat_map(|a| zeros.iter().map(move |b| (*a, *b))) {
            for transpose_b in [false, true] {
                let before = widened(dtypes, [a, b], transpose_b);
                let bytes = after(&FakeQuantizationToInteger, before.clone());
                let args = bytes_for(&before);
                assert_eq!(result(&before, &args), result(&bytes, &args), "{dtypes:?} {a:?} {b:?}");
                assert_eq!(byte_sums(&bytes, &MATMUL), 1);
            }
        }
    }
}

/// Signed bytes of all values.
fn signed_constant(net: &mut Net, dims: &[i64]) -> ExprId {
    let count = dims.iter().product::<i64>();
    let bytes: Vec<u8> = (0..count).map(|i| (i * 37 % 256) as u8).collect();
    let ty = TensorType::from_consts(dims, DType::I8);
    net.0.constant(Constant::new(ty, SharedBytes::new(bytes)).unwrap())
}

#[test]
fn products_of_signed_bytes_with_constants_are_those_of_unsigned_ones() {
    let out_dtype = Some(DType::I32);
    for transpose_b in [false, true] {
        let mut net = Net::default();
        let x = net.0.param("x", Type::tensor(&[3, 5, 40], DType::I8));
        let dims = if transpose_b { [7, 40] } else { [40, 7] };
        let weight = signed_constant(&mut net, &dims);
        let attrs = MatmulAttrs { transpose_b, out_dtype, ..MatmulAttrs::default() };
        let product = net.op_with("nn.matmul", &[x, weight], &attrs);
        let before = net.finish(product);
        let after = after(&FakeQuantizationToInteger, before.clone());
        let args = bytes_for(&before);
        assert_eq!(result(&before, &args), result(&after, &args));
        assert_eq!(byte_sums(&after, &MATMUL), 1);
    }
}

#[test]
fn convolutions_of_signed_bytes_are_those_of_unsigned_ones() {
    // Borders hold a number of their own; two convolutions one after the other are of unsigned bytes
    // in between.
    for (groups, pad_value, has_bias) in [(1, 0, true), (1, -9, false), (4, 5, true)] {
        let mut net = Net::default();
        let x = net.0.param("x", Type::tensor(&[1, 8, 6, 6], DType::I8));
        let conv = |net: &mut Net, x| {
            let weight = signed_constant(net, &[8, 8 / groups, 3, 3]);
            let attrs = ConvAttrs {
                groups,
                pad_value,
                out_dtype: Some(DType::I32),
                padding: vec![1; 4],
                ..ConvAttrs::of_rank(2)
            };
            let bias = int32s(&[8], &[3, -900, 0, 77, 5000, -1, 2, 10]).unwrap();
            let bias = has_bias.then(|| net.0.constant(bias));
            let args: Vec<ExprId> = [x, weight].into_iter().chain(bias).collect();
            net.op_with("nn.conv2d", &args, &attrs)
        };
        let sums = conv(&mut net, x);
        let scale = net.0.constant(Constant::scalar(0.003, DType::F32).unwrap());
        let zero = net.0.constant(Constant::scalar(-9.0, DType::I8).unwrap());
        let attrs = RequantizeAttrs { axis: 1, dtype: DType::I8 };
        let bytes = net.op_with("qnn.requantize", &[sums, scale, zero], &attrs);
        let sums = conv(&mut net, bytes);
        let before = net.finish(sums);
        let after = after(&FakeQuantizationToInteger, before.clone());
        let args = bytes_for(&before);
        assert_eq!(result(&before, &args), result(&after, &args), "{groups} {pad_value}");
        assert_eq!(byte_sums(&after, &CONV2D), 2);
    }
}

#[test]
fn biases_beyond_sums_are_added_to_the_numbers_they_stand_for() {
    let mut net = Net::default();
    let x = net.0.param("x", Type::tensor(&[1, 8, 4, 4], DType::U8));
    let scale = |net: &mut Net, of| net.0.constant(Constant::scalar(of, DType::F32).unwrap());
    let dequantized = |net: &mut Net, q, of| {
        let scale = scale(net, of);
        net.op_with(
            "qnn.dequantize",
            &[q, scale],
            &DequantizeAttrs { axis: 0, block_size: 0, dtype: DType::F32 },
        )
    };
    let image = dequantized(&mut net, x, 0.001);
    let weight = signed_constant(&mut net, &[8, 8, 1, 1]);
    let weight = dequantized(&mut net, weight, 0.001);
    // 2 to the power of 13 is more than 2 to the power of 32 steps of a millionth.
    let bias = net.0.constant(Constant::from_f32(&[8], &[8192.0; 8]).unwrap());
    let sums = net.op_with("nn.conv2d", &[image, weight, bias], &ConvAttrs::of_rank(2));
    let before = net.finish(sums);
    let after = after(&FakeQuantizationToInteger, before.clone());
    assert_eq!(byte_sums(&after, &CONV2D), 1);
    let args = bytes_for(&before);
    let numbers = |function: &Function| {
        let module = IRModule::from_function(function.clone());
        let found = evaluate(&module, "main", &args).unwrap();
        found.as_tensor().unwrap().to_constant().unwrap().to_f64_vec().unwrap()
    };
    let [found, expected] = [&after, &before].map(numbers);
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 0.001, "{off}");
}

#[test]
fn what_is_no_zero_point_of_bytes_is_taken_from_integers() {
    // One with more axes than the bytes, and one that no byte is near.
    for (shape, zero) in [(&[1, 1, 1][..], 3), (&[], 1 << 20)] {
        let mut net = Net::default();
        let [a, b] = ["a", "b"].map(|name| {
            let q = net.0.param(name, Type::tensor(&[5, 5], DType::U8));
            net.op_with("cast", &[q], &CastAttrs::to(DType::I32))
        });
        let ty = TensorType::from_consts(shape, DType::I32);
        let zero = net.0.constant(Constant::splat(ty, &i32::to_le_bytes(zero)).unwrap());
        let less = net.op("subtract", &[a, zero]);
        let product = net.op_with("nn.matmul", &[less, b], &MatmulAttrs::default());
        let before = net.finish(product);
        let after = after(&FakeQuantizationToInteger, before.clone());
        assert_eq!(before.to_string(), after.to_string());
    }
}
