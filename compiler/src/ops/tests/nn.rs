//! Operators of neural networks against values that ONNX Runtime 1.31 computed for the same inputs.

use super::{call, check, floats, pattern};
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, AvgPoolAttrs, BATCH_NORM, BIAS_ADD, BatchNormAttrs,
    BiasAddAttrs, CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE, DROPOUT, DropoutAttrs,
    GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D, GROUP_NORM, GroupNormAttrs, INSTANCE_NORM,
    InstanceNormAttrs, L2_NORMALIZE, L2NormalizeAttrs, LAYER_NORM, LOG_SOFTMAX, LRN,
    LayerNormAttrs, LrnAttrs, MATMUL, MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MatmulAttrs,
    MaxPoolAttrs, PAD, PadAttrs, PadMode, RMS_NORM, RmsNormAttrs, SOFTMAX, SoftmaxAttrs,
};

#[test]
fn convolutions() {
    check(
        &CONV2D,
        &ConvAttrs {
            strides: vec![1, 1],
            padding: vec![0, 0, 0, 0],
            dilation: vec![1, 1],
            groups: 1,
            ..ConvAttrs::of_rank(2)
        },
        &[pattern(&[1, 2, 4, 4], 0), pattern(&[2, 2, 3, 3], 1)],
        &[1, 2, 2, 2],
        &[2.921875, -1.890625, -2.671875, 5.453125, 2.296875, -5.734375, 0.359375, 5.265625],
    );
    check(
        &CONV2D,
        &ConvAttrs {
            strides: vec![2, 1],
            padding: vec![1, 0, 2, 1],
            dilation: vec![1, 1],
            groups: 1,
            ..ConvAttrs::of_rank(2)
        },
        &[pattern(&[2, 2, 5, 4], 0), pattern(&[2, 2, 3, 2], 1), pattern(&[2], 2)],
        &[2, 2, 3, 4],
        &[
            -0.609375, 1.359375, -2.78125, -2.1875, -3.46875, -1.6875, 1.53125, 0.703125, -0.375,
            0.75, -2.796875, 0.28125, 1.671875, -3.515625, 1.71875, 0.40625, 1.515625, 3.703125,
            -0.9375, -1.171875, -0.953125, 1.28125, 1.359375, 2.34375, 0.515625, -3.265625, 1.9375,
            -3.328125, -2.296875, -3.75, -1.96875, -0.1875, 1.5, -0.609375, 0.515625, -2.28125,
            1.890625, 1.734375, -0.21875, 2.765625, 2.765625, 1.71875, 3.90625, -2.203125,
            0.015625, -0.984375, 1.25, 0.765625,
        ],
    );
    check(
        &CONV2D,
        &ConvAttrs {
            strides: vec![2, 2],
            padding: vec![1, 1, 1, 1],
            dilation: vec![1, 1],
            groups: 4,
            ..ConvAttrs::of_rank(2)
        },
        &[pattern(&[1, 4, 5, 5], 3), pattern(&[4, 1, 3, 3], 1), pattern(&[4], 2)],
        &[1, 4, 3, 3],
        &[
            -1.109375, -0.140625, -1.171875, -1.703125, -4.59375, -0.5625, -2.71875, 1.734375,
            0.421875, 0.984375, -0.703125, 0.625, 1.96875, -2.40625, -0.390625, -1.265625, -2.125,
            -1.65625, 0.25, 0.421875, -0.765625, 1.9375, 0.515625, 1.109375, 2.75, -1.78125,
            -1.890625, -4.390625, 3.59375, -3.546875, 0.71875, -3.734375, -1.453125, -0.015625,
            -0.46875, -0.28125,
        ],
    );
    check(
        &CONV2D,
        &ConvAttrs {
            strides: vec![2, 3],
            padding: vec![0, 1, 1, 0],
            dilation: vec![3, 2],
            groups: 2,
            ..ConvAttrs::of_rank(2)
        },
        &[pattern(&[1, 4, 6, 6], 3), pattern(&[2, 2, 2, 2], 1)],
        &[1, 2, 2, 2],
        &[-1.8125, 2.0625, -0.28125, -1.359375, 2.15625, -0.234375, -0.5, -2.328125],
    );
    check(
        &CONV1D,
        &ConvAttrs {
            strides: vec![2],
            padding: vec![2, 1],
            dilation: vec![2],
            ..ConvAttrs::of_rank(1)
        },
        &[pattern(&[1, 2, 7], 0), pattern(&[2, 2, 3], 1), pattern(&[2], 5)],
        &[1, 2, 3],
        &[1.0625, 0.90625, -0.46875, -1.96875, -0.28125, 1.0625],
    );
    check(
        &CONV3D,
        &ConvAttrs {
            strides: vec![1, 2, 1],
            padding: vec![1, 0, 1, 0, 1, 0],
            ..ConvAttrs::of_rank(3)
        },
        &[pattern(&[1, 1, 2, 3, 3], 0), pattern(&[2, 1, 2, 2, 2], 1)],
        &[1, 2, 2, 2, 3],
        &[
            -2.28125, 2.65625, -2.140625, 0.84375, -1.125, -0.84375, 0.859375, -4.890625, 4.078125,
            -0.84375, 2.109375, -0.625, -1.53125, 2.84375, -2.421875, 0.421875, -1.546875,
            -0.421875, 1.328125, -4.421875, 3.609375, -1.125, 1.3125, -0.8125,
        ],
    );
}

#[test]
fn max_pools() {
    check(
        &MAX_POOL2D,
        &MaxPoolAttrs {
            strides: vec![2, 2],
            padding: vec![0, 0, 0, 0],
            ..MaxPoolAttrs::of_size(&[2, 2])
        },
        &[pattern(&[1, 2, 4, 4], 0)],
        &[1, 2, 2, 2],
        &[1.0, 1.125, 0.625, 1.25, 1.375, 0.875, 1.125, 0.5],
    );
    check(
        &MAX_POOL2D,
        &MaxPoolAttrs {
            strides: vec![2, 2],
            padding: vec![1, 1, 1, 1],
            ..MaxPoolAttrs::of_size(&[3, 3])
        },
        &[pattern(&[1, 1, 5, 5], 0)],
        &[1, 1, 3, 3],
        &[1.125, 1.125, 0.625, 1.375, 1.375, 0.875, 1.375, 1.375, 1.0],
    );
    check(
        &MAX_POOL2D,
        &MaxPoolAttrs {
            pool_size: vec![2, 3],
            strides: vec![2, 2],
            padding: vec![0, 1, 1, 0],
            dilation: vec![1, 1],
            ceil_mode: true,
        },
        &[pattern(&[1, 1, 5, 6], 0)],
        &[1, 1, 3, 3],
        &[1.125, 1.0, 1.25, 0.875, 0.875, 1.375, 1.0, 0.5, 1.125],
    );
    check(
        &MAX_POOL2D,
        &MaxPoolAttrs {
            pool_size: vec![2, 2],
            strides: vec![1, 2],
            padding: vec![1, 0, 0, 1],
            dilation: vec![2, 3],
            ceil_mode: false,
        },
        &[pattern(&[1, 1, 6, 6], 0)],
        &[1, 1, 5, 2],
        &[1.125, 1.25, 0.125, 0.75, 1.125, 1.25, 1.0, 1.125, 0.0, 0.625],
    );
    check(
        &MAX_POOL1D,
        &MaxPoolAttrs { strides: vec![2], padding: vec![1, 1], ..MaxPoolAttrs::of_size(&[3]) },
        &[pattern(&[1, 2, 7], 0)],
        &[1, 2, 4],
        &[1.0, 1.0, 0.5, 1.125, 0.0, 0.625, 1.25, 0.125],
    );
    check(
        &MAX_POOL3D,
        &MaxPoolAttrs {
            strides: vec![1, 2, 1],
            padding: vec![0, 1, 0, 0, 0, 0],
            ..MaxPoolAttrs::of_size(&[2, 2, 2])
        },
        &[pattern(&[1, 1, 3, 3, 3], 0)],
        &[1, 1, 2, 2, 2],
        &[1.0, 1.25, 1.375, 1.375, 0.875, 1.25, 1.375, 1.375],
    );
    check(
        &GLOBAL_MAX_POOL2D,
        &(),
        &[pattern(&[2, 2, 3, 2], 0)],
        &[2, 2, 1, 1],
        &[1.0, 1.25, 1.375, 0.875],
    );
}

#[test]
fn avg_pools() {
    check(
        &AVG_POOL2D,
        &AvgPoolAttrs {
            pool_size: vec![2, 2],
            strides: vec![2, 2],
            padding: vec![0, 0, 0, 0],
            dilation: vec![1, 1],
            ceil_mode: false,
            count_include_pad: false,
        },
        &[pattern(&[1, 1, 4, 4], 0)],
        &[1, 1, 2, 2],
        &[0.03125, -0.0625, -0.34375, 0.28125],
    );
    check(
        &AVG_POOL2D,
        &AvgPoolAttrs {
            pool_size: vec![3, 3],
            strides: vec![2, 2],
            padding: vec![1, 1, 1, 1],
            dilation: vec![1, 1],
            ceil_mode: false,
            count_include_pad: false,
        },
        &[pattern(&[1, 1, 4, 5], 0)],
        &[1, 1, 2, 3],
        &[0.1875, -0.0625, -0.3125, 0.375, 0.125, -0.125],
    );
    check(
        &AVG_POOL2D,
        &AvgPoolAttrs {
            pool_size: vec![3, 3],
            strides: vec![2, 2],
            padding: vec![1, 1, 1, 1],
            dilation: vec![1, 1],
            ceil_mode: false,
            count_include_pad: true,
        },
        &[pattern(&[1, 1, 4, 5], 0)],
        &[1, 1, 2, 3],
        &[0.08333334, -0.04166667, -0.1388889, 0.25, 0.125, -0.08333334],
    );
    check(
        &AVG_POOL2D,
        &AvgPoolAttrs {
            pool_size: vec![3, 3],
            strides: vec![2, 2],
            padding: vec![1, 0, 0, 1],
            dilation: vec![1, 1],
            ceil_mode: true,
            count_include_pad: true,
        },
        &[pattern(&[1, 1, 5, 6], 0)],
        &[1, 1, 3, 3],
        &[
            0.01388889,
            -0.2083333,
            0.06944445,
            -0.04166667,
            -0.05555556,
            0.2222222,
            -0.1041667,
            -0.4375,
            0.02083333,
        ],
    );
    check(
        &AVG_POOL2D,
        &AvgPoolAttrs {
            pool_size: vec![2, 2],
            strides: vec![3, 2],
            padding: vec![0, 0, 0, 1],
            dilation: vec![1, 1],
            ceil_mode: true,
            count_include_pad: false,
        },
        &[pattern(&[1, 1, 6, 4], 0)],
        &[1, 1, 2, 2],
        &[0.03125, -0.0625, 0.1875, 0.09375],
    );
    check(
        &AVG_POOL1D,
        &AvgPoolAttrs {
            pool_size: vec![3],
            strides: vec![2],
            padding: vec![1, 0],
            dilation: vec![1],
            ceil_mode: false,
            count_include_pad: true,
        },
        &[pattern(&[1, 2, 6], 0)],
        &[1, 2, 3],
        &[0.08333334, -0.125, -0.4583333, 0.375, -0.1666667, 0.4583333],
    );
    check(
        &AVG_POOL3D,
        &AvgPoolAttrs {
            pool_size: vec![2, 2, 2],
            strides: vec![1, 1, 2],
            padding: vec![1, 0, 0, 0, 0, 1],
            dilation: vec![1, 1, 1],
            ceil_mode: false,
            count_include_pad: false,
        },
        &[pattern(&[1, 1, 3, 2, 3], 0)],
        &[1, 1, 3, 1, 2],
        &[-0.125, -0.375, 0.09375, -0.15625, 0.171875, 0.28125],
    );
    check(
        &GLOBAL_AVG_POOL2D,
        &(),
        &[pattern(&[2, 2, 3, 2], 0)],
        &[2, 2, 1, 1],
        &[-0.2083333, 0.2291667, 0.1875, -0.3333333],
    );
}

#[test]
fn normalisations() {
    check(
        &LAYER_NORM,
        &LayerNormAttrs { axis: -1, epsilon: 1e-5 },
        &[pattern(&[2, 2, 4], 0), pattern(&[4], 1), pattern(&[4], 2)],
        &[2, 2, 4],
        &[
            -1.223658,
            0.1126022,
            -0.01756164,
            -1.519112,
            -0.6321815,
            1.554892,
            1.44973,
            -1.423564,
            -1.673794,
            0.572299,
            -1.006752,
            -1.215241,
            -0.6321815,
            1.554892,
            1.44973,
            -1.423564,
        ],
    );
    check(
        &LAYER_NORM,
        &LayerNormAttrs { axis: 1, epsilon: 0.5 },
        &[pattern(&[2, 2, 3], 0), pattern(&[2, 3], 1)],
        &[2, 2, 3],
        &[
            -0.3247403, -0.5795366, 0.09992011, -0.1249001, -0.6794567, -0.2997603, 0.5035032,
            0.1030425, -1.522219, 0.04449563, 0.6557252, 0.6885114,
        ],
    );
    check(
        &INSTANCE_NORM,
        &InstanceNormAttrs { axis: 1, epsilon: 1e-5 },
        &[pattern(&[2, 2, 3], 0), pattern(&[2], 1), pattern(&[2], 2)],
        &[2, 2, 3],
        &[
            -1.558323,
            -0.04781961,
            -1.018857,
            1.421658,
            0.2132557,
            0.990086,
            -0.109539,
            -0.875,
            -1.640461,
            0.759914,
            1.536744,
            0.3283417,
        ],
    );
    check(
        &GROUP_NORM,
        &GroupNormAttrs { num_groups: 2, axis: 1, epsilon: 0.5 },
        &[pattern(&[1, 4, 3], 0), pattern(&[4], 1), pattern(&[4], 2)],
        &[1, 4, 3],
        &[
            -1.19974, -0.1505793, -0.82504, 1.3746, 0.5352716, 1.07484, 0.7570064, -0.5076063,
            -1.772219, -1.330504, -1.456966, -1.260248,
        ],
    );
    check(
        &RMS_NORM,
        &RmsNormAttrs { axis: 1, epsilon: 0.5 },
        &[pattern(&[2, 2, 3], 0), pattern(&[2, 3], 1)],
        &[2, 2, 3],
        &[
            -0.4409223, -0.4703171, -0.1469741, -0.1469741, -0.4703171, -0.4409223, 0.6192921,
            -0.0, -1.238584, 0.06881024, 0.4403855, 0.8257229,
        ],
    );
    check(
        &L2_NORMALIZE,
        &L2NormalizeAttrs { eps: 1e-12, axis: vec![1] },
        &[pattern(&[2, 2, 3], 0)],
        &[2, 2, 3],
        &[
            -0.5144958, 0.8944272, -0.1961161, -0.857493, 0.4472136, -0.9805807, 0.8741572, 0.0,
            -0.6689647, 0.4856429, -1.0, 0.7432942,
        ],
    );
    check(
        &LRN,
        &LrnAttrs { size: 3, alpha: 0.5, beta: 0.75, bias: 1.0 },
        &[pattern(&[1, 5, 1, 2], 0)],
        &[1, 5, 1, 2],
        &[
            -0.7000002, 0.765884, -0.1134481, -0.9258539, 0.4216316, -0.5059296, 0.845471, 0.0,
            -0.8639855, 0.5961231,
        ],
    );
    check(
        &LRN,
        &LrnAttrs { size: 5, alpha: 0.5, beta: 0.75, bias: 2.0 },
        &[pattern(&[1, 6, 1, 1], 3)],
        &[1, 6, 1, 1],
        &[0.2776796, -0.3470995, 0.5990066, 0.0, -0.6038998, 0.3501004],
    );
    check(
        &SOFTMAX,
        &SoftmaxAttrs { axis: 1 },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 3, 2],
        &[
            0.1572676, 0.7678658, 0.2938146, 0.08093246, 0.5489178, 0.1512017, 0.7678658,
            0.1572676, 0.08093246, 0.2938146, 0.1512017, 0.5489178,
        ],
    );
    check(
        &SOFTMAX,
        &SoftmaxAttrs { axis: -1 },
        &[pattern(&[2, 4], 1)],
        &[2, 4],
        &[0.2631975, 0.0854477, 0.4917175, 0.1596373, 0.05161593, 0.2970292, 0.09643126, 0.5549236],
    );
    check(
        &LOG_SOFTMAX,
        &SoftmaxAttrs { axis: 0 },
        &[pattern(&[2, 3], 2)],
        &[2, 3],
        &[-0.474077, -0.474077, -0.474077, -0.974077, -0.974077, -0.974077],
    );
}

#[test]
fn batch_norm_yields_the_normalised_tensor_and_its_statistics() {
    let (gamma, beta, mean) = (pattern(&[3], 1), pattern(&[3], 2), pattern(&[3], 3));
    let var = floats(&[3], &[1.5, 1.25, 0.875]);
    let attrs = BatchNormAttrs::new(1, 1e-5);
    let x = pattern(&[2, 3, 2], 0);
    let args = [&x, &gamma, &beta, &mean, &var].map(Clone::clone);
    check(
        &BATCH_NORM,
        &attrs,
        &args,
        &[2, 3, 2],
        &[
            -1.512886,
            -0.6198457,
            0.6513941,
            1.154507,
            -1.085187,
            -2.588522,
            -0.5560571,
            -1.130154,
            1.098606,
            0.3159852,
            -2.421485,
            -0.08296275,
        ],
    );
    let results = call(&BATCH_NORM, &attrs, &args).unwrap();
    assert_eq!(results[1..], [mean, var]);
    // Without them, as with ones for gamma and zeros for beta.
    let plain = BatchNormAttrs { center: false, scale: false, ..attrs.clone() };
    let neutral =
        [&args[0], &floats(&[3], &[1.0; 3]), &floats(&[3], &[0.0; 3]), &args[3], &args[4]];
    let expected = call(&BATCH_NORM, &attrs, &neutral.map(Clone::clone)).unwrap();
    assert_eq!(call(&BATCH_NORM, &plain, &args).unwrap(), expected);
}

#[test]
fn dropout_keeps_everything() {
    let x = pattern(&[2, 2], 0);
    let results = call(&DROPOUT, &DropoutAttrs { rate: 0.5 }, &[x.clone()]).unwrap();
    let mask = Tensor::from_ints(DType::Bool, &[2, 2], vec![1; 4]).unwrap();
    assert_eq!(results, [x, mask]);
}

#[test]
fn matrix_products() {
    check(
        &MATMUL,
        &MatmulAttrs::default(),
        &[pattern(&[2, 3], 0), pattern(&[3, 2], 1)],
        &[2, 2],
        &[0.90625, 0.40625, 0.46875, 0.21875],
    );
    check(
        &MATMUL,
        &MatmulAttrs { transpose_a: true, transpose_b: true, ..MatmulAttrs::default() },
        &[pattern(&[3, 2], 0), pattern(&[4, 3], 1)],
        &[2, 4],
        &[0.21875, 0.40625, 0.234375, 0.421875, 0.46875, 0.90625, -2.25, -1.8125],
    );
    check(
        &MATMUL,
        &MatmulAttrs::default(),
        &[pattern(&[2, 1, 2, 3], 0), pattern(&[3, 3, 2], 1)],
        &[2, 3, 2, 2],
        &[
            0.90625, 0.40625, 0.46875, 0.21875, 0.421875, -1.875, 0.046875, -2.0, 0.296875, 0.875,
            1.421875, 0.8125, 1.828125, -1.40625, -1.484375, 0.5625, -1.40625, 1.828125, 0.734375,
            0.984375, -1.40625, 1.828125, -0.640625, -1.828125,
        ],
    );
    check(
        &MATMUL,
        &MatmulAttrs::default(),
        &[pattern(&[3], 0), pattern(&[2, 3, 2], 1)],
        &[2, 2],
        &[0.90625, 0.40625, 0.421875, -1.875],
    );
    check(
        &MATMUL,
        &MatmulAttrs::default(),
        &[pattern(&[2, 2, 3], 0), pattern(&[3], 1)],
        &[2, 2],
        &[-1.125, -1.8125, -0.703125, 2.203125],
    );
    check(&MATMUL, &MatmulAttrs::default(), &[pattern(&[3], 0), pattern(&[3], 1)], &[], &[-1.125]);
    check(
        &MATMUL,
        &MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() },
        &[pattern(&[2, 2, 3], 0), pattern(&[1, 2, 3], 1)],
        &[2, 2, 2],
        &[-1.125, -1.1875, -1.8125, -1.125, -0.703125, -0.703125, 2.203125, 1.515625],
    );
    check(
        &DENSE,
        &(),
        &[pattern(&[2, 2, 3], 0), pattern(&[4, 3], 1)],
        &[2, 2, 4],
        &[
            -1.125, -1.1875, 1.625, 1.5625, -1.8125, -1.125, 1.0, 1.6875, -0.703125, -0.703125,
            -0.703125, -0.703125, 2.203125, 1.515625, -0.609375, -1.296875,
        ],
    );
    check(
        &BIAS_ADD,
        &BiasAddAttrs { axis: 1 },
        &[pattern(&[2, 3, 2], 0), pattern(&[3], 1)],
        &[2, 3, 2],
        &[-0.125, 1.625, -0.625, -1.75, 1.75, 0.625, 1.75, 0.625, -1.625, 0.125, 0.75, 2.5],
    );
}

#[test]
fn integer_products_wrap() {
    let ints = |shape: &[usize], values: &[i128]| {
        Tensor::from_ints(DType::I32, shape, values.to_vec()).unwrap()
    };
    let a = ints(&[1, 2], &[1 << 30, 3]);
    let b = ints(&[2, 1], &[4, 5]);
    let attrs = MatmulAttrs::default();
    assert_eq!(call(&MATMUL, &attrs, &[a.clone(), b]).unwrap(), [ints(&[1, 1], &[15])]);
    assert_eq!(call(&DENSE, &(), &[a, ints(&[1, 2], &[4, 5])]).unwrap(), [ints(&[1, 1], &[15])]);
}

#[test]
fn padding() {
    check(
        &PAD,
        &PadAttrs { pad_width: vec![[1, 0], [0, 2]], mode: PadMode::Constant },
        &[pattern(&[2, 3], 0)],
        &[3, 5],
        &[0.0, 0.0, 0.0, 0.0, 0.0, -0.75, 1.0, -0.125, 0.0, 0.0, -1.25, 0.5, -0.625, 0.0, 0.0],
    );
    check(
        &PAD,
        &PadAttrs { pad_width: vec![[-1, 1], [2, -1]], mode: PadMode::Constant },
        &[pattern(&[2, 3], 0)],
        &[2, 4],
        &[0.0, 0.0, -1.25, 0.5, 0.0, 0.0, 0.0, 0.0],
    );
    check(
        &PAD,
        &PadAttrs { pad_width: vec![[1, 1], [2, 0]], mode: PadMode::Edge },
        &[pattern(&[2, 3], 0)],
        &[4, 5],
        &[
            -0.75, -0.75, -0.75, 1.0, -0.125, -0.75, -0.75, -0.75, 1.0, -0.125, -1.25, -1.25,
            -1.25, 0.5, -0.625, -1.25, -1.25, -1.25, 0.5, -0.625,
        ],
    );
    check(
        &PAD,
        &PadAttrs { pad_width: vec![[1, 0], [3, 2]], mode: PadMode::Reflect },
        &[pattern(&[2, 4], 0)],
        &[3, 9],
        &[
            0.0, 1.125, -0.625, 0.5, -0.625, 1.125, 0.0, 1.125, -0.625, -1.25, -0.125, 1.0, -0.75,
            1.0, -0.125, -1.25, -0.125, 1.0, 0.0, 1.125, -0.625, 0.5, -0.625, 1.125, 0.0, 1.125,
            -0.625,
        ],
    );
    check(
        &PAD,
        &PadAttrs { pad_width: vec![[1, 2], [2, 1]], mode: PadMode::Wrap },
        &[pattern(&[2, 3], 0)],
        &[5, 6],
        &[
            0.5, -0.625, -1.25, 0.5, -0.625, -1.25, 1.0, -0.125, -0.75, 1.0, -0.125, -0.75, 0.5,
            -0.625, -1.25, 0.5, -0.625, -1.25, 1.0, -0.125, -0.75, 1.0, -0.125, -0.75, 0.5, -0.625,
            -1.25, 0.5, -0.625, -1.25,
        ],
    );
    let fill = floats(&[], &[9.0]);
    let attrs = PadAttrs { pad_width: vec![[0, 1]], mode: PadMode::Constant };
    check(&PAD, &attrs, &[floats(&[2], &[1.0, 2.0]), fill], &[3], &[1.0, 2.0, 9.0]);
}

#[test]
fn extents_of_zero_do_no_harm() {
    let empty = |shape: &[usize]| floats(shape, &[]);
    check(&SOFTMAX, &SoftmaxAttrs { axis: 1 }, &[empty(&[1 << 40, 0])], &[1 << 40, 0], &[]);
    check(&DENSE, &(), &[empty(&[2, 0]), empty(&[1, 0])], &[2, 1], &[0.0, 0.0]);
    let attrs = MatmulAttrs::default();
    check(&MATMUL, &attrs, &[empty(&[2, 0]), empty(&[0, 1])], &[2, 1], &[0.0, 0.0]);
    check(&MATMUL, &attrs, &[empty(&[0, 3]), pattern(&[3, 2], 0)], &[0, 2], &[]);
    check(
        &CONV2D,
        &ConvAttrs::of_rank(2),
        &[empty(&[0, 1, 3, 3]), pattern(&[1, 1, 3, 3], 0)],
        &[0, 1, 1, 1],
        &[],
    );
    check(
        &MAX_POOL2D,
        &MaxPoolAttrs::of_size(&[1, 1]),
        &[empty(&[0, 1, 3, 3])],
        &[0, 1, 3, 3],
        &[],
    );
}
