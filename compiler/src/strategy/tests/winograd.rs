//! Convolutions by Winograd's algorithm against their reference evaluation, which adds up the same
//! products in `f64`, and against direct convolution.

use super::{Arg, Case, Net, blocked, check_all, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::graph::interp::Tensor;
use crate::graph::{ExprId, Function};
use crate::ir::{Attrs, BufferSpec, DType};
use crate::ops::Op;
use crate::ops::nn::{ConvAttrs, Winograd, WinogradConv2dAttrs};
use crate::schedule::{Schedule, Trace};
use crate::strategy::primitive::primitive;
use crate::strategy::{KernelParam, schedule};
use crate::tir::ParamKind;

/// A convolution in a kernel: extents of image and result, the border, and the algorithm.
#[derive(Clone, Copy)]
struct Conv {
    image: [i64; 4],
    outputs: i64,
    padding: [i64; 4],
    algorithm: Winograd,
}

impl Conv {
    fn result(self) -> [i64; 4] {
        let [batch, _, height, width] = self.image;
        let [top, left, bottom, right] = self.padding;
        [batch, self.outputs, height + top + bottom - 2, width + left + right - 2]
    }

    /// The border that its tiles read.
    fn halo(self) -> [(i64, i64); 2] {
        let [_, _, height, width] = self.image;
        let [_, _, out_height, out_width] = self.result();
        let m = self.algorithm.outputs();
        let after = |extent: i64, out: i64, before: i64| {
            ((out + m - 1) / m * m + 2 - before - extent).max(0)
        };
        let [top, left, ..] = self.padding;
        [(top, after(height, out_height, top)), (left, after(width, out_width, left))]
    }

    /// The kernel with what `finish` does to the sum, and its tensors: image, weights, and one for
    /// each of `others`.
    fn case(
        self,
        others: &[&[i64]],
        args: &[BufferSpec],
        layout: BufferSpec,
        finish: impl FnOnce(&mut Net, ExprId, &[ExprId]) -> ExprId,
    ) -> Case {
        let n = self.algorithm.inputs();
        let (channels, outputs) = (self.image[1], self.outputs);
        let mut net = Net::new();
        let x = net.param(&self.image);
        let weight = net.param(&[n, n, channels, outputs]);
        let params: Vec<ExprId> = others.iter().map(|shape| net.param(shape)).collect();
        let attrs =
            WinogradConv2dAttrs { tile_size: self.algorithm.outputs(), padding: self.padding };
        let name = "nn.contrib_conv2d_winograd_without_weight_transform";
        let sum = net.call(name, &[x, weight], Attrs::from_struct(&attrs).unwrap());
        let result = finish(&mut net, sum, &params);
        let mut tensors = vec![sample(&usizes(&self.image), 1), self.weights()];
        let others = others.iter().enumerate();
        tensors.extend(others.map(|(i, shape)| sample(&usizes(shape), i + 3)));
        let mut kinds = vec![Arg::Input(args[0].clone()), Arg::Constant];
        kinds.extend(args[1..].iter().cloned().map(Arg::Input));
        Case {
            name: format!("{:?} of {:?} to {outputs}", self.algorithm, self.image),
            function: net.finish(result),
            tensors,
            args: kinds,
            results: vec![layout],
        }
    }

    /// Filters so small that results are about as large as the image's elements.
    fn filters(self) -> Vec<f32> {
        let shape = [self.outputs as usize, self.image[1] as usize, 3, 3];
        let values = sample(&shape, 2);
        values.floats().unwrap().iter().map(|&value| value as f32 / 16.0).collect()
    }

    fn weights(self) -> Tensor {
        let n = self.algorithm.inputs() as usize;
        let (outputs, channels) = (self.outputs as usize, self.image[1] as usize);
        let weights = self.algorithm.transform_weights(&self.filters(), [outputs, channels]);
        let values = weights.into_iter().map(f64::from).collect();
        Tensor::from_floats(DType::F32, &[n, n, channels, outputs], values).unwrap()
    }
}

fn usizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&extent| extent as usize).collect()
}

const SAME: [i64; 4] = [1; 4];

#[test]
fn every_size_of_image_is_covered_by_tiles() {
    let mut cases = Vec::new();
    for algorithm in [Winograd::F2, Winograd::F4] {
        for (image, outputs, padding) in [
            ([1, 16, 8, 8], 32, SAME),
            ([1, 32, 7, 13], 16, SAME),
            ([1, 16, 6, 9], 48, [0; 4]),
            ([2, 16, 5, 4], 16, [2, 0, 1, 2]),
            ([1, 16, 20, 22], 64, SAME),
        ] {
            let conv = Conv { image, outputs, padding, algorithm };
            let image = blocked(&conv.image, &conv.halo());
            let layout = blocked(&conv.result(), &[(1, 1), (0, 2)]);
            cases.push(conv.case(&[], &[image], layout, |_, sum, _| sum));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn what_follows_is_computed_with_the_output() {
    let image = [1, 16, 9, 8];
    let conv = Conv { image, outputs: 32, padding: SAME, algorithm: Winograd::F4 };
    let (blocks, shape) = (blocked(&conv.image, &conv.halo()), conv.result());
    let bias: &[i64] = &[32, 1, 1];
    let specs = [blocks.clone(), dense(bias), blocked(&shape, &[])];
    // A bias, a residual and a function that uses its argument twice.
    let residual = |net: &mut Net, sum: ExprId, others: &[ExprId]| {
        let sum = net.plain("add", &[sum, others[0]]);
        let sum = net.plain("add", &[sum, others[1]]);
        let gate = net.plain("sigmoid", &[sum]);
        net.plain("multiply", &[gate, sum])
    };
    let cases = [
        conv.case(&[bias, &shape], &specs, blocked(&shape, &[]), residual),
        // Layouts without blocks, and an image without a border.
        conv.case(&[bias], &[dense(&image), dense(bias)], dense(&shape), |net, sum, others| {
            let sum = net.plain("add", &[sum, others[0]]);
            net.plain("nn.relu", &[sum])
        }),
    ];
    check_all(&cases, &runnable_levels());
    let (kernel, _) = cases[0].schedule(&runnable_levels());
    // The result may take the residual's place.
    assert_eq!(kernel.signature().inplace, [(4, 3)]);
}

fn direct(conv: Conv) -> Tensor {
    let channels = conv.image[1] as usize;
    let filters = conv.filters().into_iter().map(f64::from).collect();
    let shape = [conv.outputs as usize, channels, 3, 3];
    let filters = Tensor::from_floats(DType::F32, &shape, filters).unwrap();
    let image = sample(&usizes(&conv.image), 1);
    let attrs = ConvAttrs { padding: conv.padding.to_vec(), ..ConvAttrs::of_rank(2) };
    let op = Op::get("nn.conv2d").unwrap();
    let args = [Some(&image), Some(&filters)];
    op.definition().evaluate(&Attrs::from_struct(&attrs).unwrap(), &args).unwrap().remove(0)
}

/// The errors that the documentation of `ApplyWinograd` tells of.
#[test]
fn errors_are_within_what_is_said_of_them() {
    for (algorithm, most) in [(Winograd::F2, 1e-6), (Winograd::F4, 1e-5)] {
        let conv = Conv { image: [1, 64, 12, 12], outputs: 32, padding: SAME, algorithm };
        let image = blocked(&conv.image, &conv.halo());
        let case = conv.case(&[], &[image], blocked(&conv.result(), &[]), |_, sum, _| sum);
        let found = check_all(&[case], &runnable_levels()).remove(0).remove(0);
        let expected = direct(conv);
        let (found, expected) = (found.floats().unwrap(), expected.floats().unwrap());
        let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let error = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error / largest < most, "{algorithm:?}: {}", error / largest);
    }
}

/// Whether a function is scheduled as a whole; else its loops are right, but slow.
fn is_scheduled(function: &Function, specs: &[BufferSpec]) -> bool {
    let primitive = primitive("kernel", function, &crate::ir::Dim::as_const, false).unwrap();
    let params: Vec<KernelParam> = primitive
        .params
        .iter()
        .zip(specs)
        .enumerate()
        .map(|(position, (&stage, spec))| {
            let kind = if position == 1 { ParamKind::Constant } else { ParamKind::Input };
            (stage, kind, spec.clone())
        })
        .collect();
    let result = primitive.results[0];
    let outputs = [(result, dense(primitive.dag.shape(result)))];
    let levels = runnable_levels();
    let kernel = schedule(primitive.dag, &params, &outputs, &levels, &Default::default());
    kernel.scheduled.as_ref().is_some_and(|scheduled| {
        // What was done can be done again.
        for (version, trace) in kernel.versions.iter().zip(&scheduled.traces) {
            let mut again = Schedule::new(scheduled.from.clone());
            trace.to_string().parse::<Trace>().unwrap().replay(&mut again).unwrap();
            assert_eq!(again.func().to_string(), version.to_string());
        }
        scheduled.traces.len() == levels.len()
    })
}

#[test]
fn what_the_pass_makes_is_scheduled() {
    for (size, channels, outputs) in [(56, 64, 64), (13, 48, 192), (7, 32, 80), (4, 16, 16)] {
        let image = [1, channels, size, size];
        for algorithm in [Winograd::F2, Winograd::F4] {
            let conv = Conv { image, outputs, padding: SAME, algorithm };
            let case = conv.case(&[], &[dense(&image)], dense(&conv.result()), |_, sum, _| sum);
            let n = algorithm.inputs();
            let specs = [blocked(&image, &conv.halo()), dense(&[n, n, channels, outputs])];
            assert!(is_scheduled(&case.function, &specs), "{}", case.name);
        }
    }
}
