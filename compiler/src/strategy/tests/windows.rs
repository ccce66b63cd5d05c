//! Windows that reach beyond planes, and large ones that are combined axis by axis.

use super::families::{call, floats};
use super::{Arg, Net, blocked, case, check, check_all, conv, conv_attrs, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::ir::{Attrs, DType};
use crate::ops::nn::{AvgPoolAttrs, LrnAttrs, MaxPoolAttrs};
use crate::target::Target;

fn window(size: &[i64], strides: &[i64], padding: &[i64]) -> MaxPoolAttrs {
    MaxPoolAttrs {
        pool_size: size.to_vec(),
        strides: strides.to_vec(),
        padding: padding.to_vec(),
        dilation: vec![1; size.len()],
        ceil_mode: false,
    }
}

#[test]
fn windows_over_planes_have_a_border() {
    for (shape, size, strides, padding) in [
        ([2, 3, 9, 14], [3, 3], [1, 1], [1, 1, 1, 0]),
        ([1, 2, 20, 40], [3, 3], [2, 2], [1, 1, 1, 1]),
        ([1, 5, 12, 80], [3, 5], [1, 1], [1, 2, 1, 0]),
        // Rows shorter than vectors, in blocks of channels.
        ([1, 40, 7, 7], [3, 3], [1, 1], [1, 1, 1, 1]),
        ([2, 16, 9, 3], [3, 3], [2, 1], [1, 0, 1, 2]),
        // Pixels that are further apart, in blocks of channels, and rows with nothing around.
        ([1, 20, 9, 40], [3, 3], [1, 2], [1, 1, 1, 1]),
        ([1, 2, 17, 62], [3, 3], [2, 1], [0, 0, 0, 0]),
        ([1, 2, 9, 77], [3, 3], [1, 1], [0, 0, 0, 1]),
        // Axis by axis.
        ([1, 4, 16, 70], [5, 5], [1, 1], [2, 2, 0, 0]),
        ([1, 20, 13, 13], [9, 9], [1, 1], [4, 4, 4, 4]),
    ] {
        let max = Attrs::from_struct(&window(&size, &strides, &padding)).unwrap();
        let mean = |include: bool| max.clone().with("count_include_pad", include);
        for (op, attrs) in [
            ("nn.max_pool2d", max.clone()),
            ("nn.avg_pool2d", mean(true)),
            ("nn.avg_pool2d", mean(false)),
        ] {
            let mut net = Net::new();
            let x = net.param(&shape);
            let y = net.call(op, &[x], attrs);
            let y = net.plain("nn.relu", &[y]);
            let function = net.finish(y);
            let out: Vec<i64> = [0, 1]
                .into_iter()
                .map(|axis| {
                    let padded = shape[axis + 2] + padding[axis] + padding[axis + 2];
                    (padded - size[axis]) / strides[axis] + 1
                })
                .collect();
            let out = [&shape[..2], &out].concat();
            check(&function, &[Arg::Input(dense(&shape))], &[dense(&out)]);
            check(&function, &[Arg::Input(dense(&shape))], &[blocked(&out, &[])]);
            check(&function, &[Arg::Input(blocked(&shape, &[]))], &[blocked(&out, &[])]);
        }
    }
}

/// Pixels that are further apart, and products of two vectors, want lanes that are channels.
#[test]
fn windows_of_many_channels_with_a_step_are_made_in_blocks() {
    let shape = [1, 16, 9, 40];
    let rules = |strides: [i64; 2]| {
        let mut net = Net::new();
        let x = net.param(&shape);
        let attrs = Attrs::from_struct(&window(&[3, 3], &strides, &[1; 4])).unwrap();
        let y = net.call("nn.max_pool2d", &[x], attrs);
        let function = net.finish(y);
        let out = [1, 16, (9 - 1) / strides[0] + 1, (40 - 1) / strides[1] + 1];
        let case = case(&function, &[Arg::Input(dense(&shape))], &[dense(&out)]);
        let loops = case.schedule(&runnable_levels()).0.loops;
        loops.into_iter().map(|loops| loops.rule).collect::<Vec<_>>()
    };
    let planes = "planes from blocks of channels";
    assert!(rules([1, 2]).contains(&planes));
    assert!(!rules([2, 1]).contains(&planes));
}

#[test]
fn windows_in_blocks_meet_other_planes() {
    let shape = [1, 40, 7, 7];
    let mut net = Net::new();
    let [x, other] = [(); 2].map(|()| net.param(&shape));
    let attrs = Attrs::from_struct(&window(&[3, 3], &[1, 1], &[1; 4])).unwrap();
    let y = net.call("nn.max_pool2d", &[x], attrs);
    let y = net.plain("maximum", &[y, other]);
    let function = net.finish(y);
    check(&function, &[Arg::Input(dense(&shape)), Arg::Input(dense(&shape))], &[dense(&shape)]);
}

#[test]
fn a_nan_is_the_greatest_of_each_window_it_is_in() {
    let mut values: Vec<f64> = (0..2 * 11 * 80).map(|i| f64::from(i * 37 % 101) - 50.0).collect();
    for place in [0, 79, 500, 881, 1759] {
        values[place] = f64::NAN;
    }
    values[300] = f64::NEG_INFINITY;
    let planes = floats(DType::F32, &[1, 2, 11, 80], &values);
    let cubes = floats(DType::F32, &[1, 2, 11, 8, 10], &values);
    let cases = [
        call("nn.max_pool2d", window(&[3, 3], &[1, 1], &[1; 4]), &[Some(planes.clone())]),
        call("nn.max_pool2d", window(&[7, 5], &[1, 1], &[0; 4]), &[Some(planes)]),
        call("nn.max_pool3d", window(&[3, 3, 3], &[1; 3], &[1; 6]), &[Some(cubes)]),
    ];
    check_all(&cases, &runnable_levels());
}

#[test]
fn depthwise_convolutions_of_volumes_are_windows() {
    for (channels, volume, kernel, strides, padding) in [
        // Rows of some vectors, and with nothing around.
        (3, [4, 6, 37], [3, 3, 3], [1, 1, 1], [1, 1, 1, 1, 1, 1]),
        (3, [4, 6, 37], [2, 3, 1], [1, 2, 1], [0, 0, 0, 0, 0, 0]),
        // Blocks of channels, the last one not whole, in rows of two heights.
        (40, [3, 13, 7], [3, 3, 3], [1, 1, 1], [1, 1, 1, 1, 1, 1]),
        (16, [5, 7, 9], [3, 3, 3], [2, 2, 2], [0, 1, 1, 1, 1, 1]),
        // The same in rows of some vectors.
        (20, [3, 5, 37], [3, 3, 3], [1, 1, 2], [1, 1, 1, 1, 1, 1]),
        // Neither.
        (5, [4, 5, 3], [3, 2, 2], [1, 1, 1], [1, 0, 1, 1, 1, 0]),
    ] {
        let shape = [&[2, channels], &volume[..]].concat();
        let weights = [&[channels, 1], &kernel[..]].concat();
        for is_constant in [true, false] {
            let mut net = Net::new();
            let [x, weight] = [&shape, &weights].map(|shape| net.param(shape));
            let attrs = Attrs::new()
                .with("strides", strides.to_vec())
                .with("padding", padding.to_vec())
                .with("dilation", vec![1; 3])
                .with("groups", channels);
            let y = net.call("nn.conv3d", &[x, weight], attrs);
            let y = net.plain("nn.relu", &[y]);
            let function = net.finish(y);
            let out = (0..3).map(|axis| {
                let padded = volume[axis] + padding[axis] + padding[axis + 3];
                (padded - kernel[axis]) / strides[axis] + 1
            });
            let out: Vec<i64> = [2, channels].into_iter().chain(out).collect();
            let weight = if is_constant { Arg::Constant } else { Arg::Input(dense(&weights)) };
            check(&function, &[Arg::Input(dense(&shape)), weight], &[dense(&out)]);
        }
    }
}

#[test]
fn means_of_large_windows_count_what_they_have() {
    let values: Vec<f64> = (0..32 * 9 * 9 * 9).map(|i| f64::from(i * 31 % 64) / 8.0).collect();
    let cubes = floats(DType::F32, &[1, 32, 9, 9, 9], &values);
    let MaxPoolAttrs { pool_size, strides, padding, dilation, ceil_mode } =
        window(&[7, 7, 7], &[1; 3], &[0, 3, 0, 3, 0, 3]);
    let exclusive =
        AvgPoolAttrs { pool_size, strides, padding, dilation, ceil_mode, count_include_pad: false };
    let inclusive = AvgPoolAttrs { count_include_pad: true, ..exclusive.clone() };
    let mean = |attrs| call("nn.avg_pool3d", attrs, &[Some(cubes.clone())]);
    let cases = [mean(exclusive), mean(inclusive)];
    check_all(&cases, &runnable_levels());
}

/// Channels that fill blocks and that do not, more neighbours than channels, and several images.
#[test]
fn neighbours_of_channels_in_blocks_are_summed_in_vectors() {
    let mut cases = Vec::new();
    for (shape, size) in [
        ([2usize, 32, 3, 11], 5),
        ([1, 40, 2, 3], 4),
        ([1, 7, 1, 20], 15),
        ([1, 100, 5, 1], 2),
        ([1, 20, 9, 17], 3),
    ] {
        let attrs = LrnAttrs { size, alpha: 0.5, beta: 0.75, bias: 1.5 };
        let mut case = call("nn.lrn", attrs, &[Some(sample(&shape, size as usize))]);
        let spec = blocked(&shape.map(|extent| extent as i64), &[]);
        case.args = vec![Arg::Input(spec.clone())];
        case.results = vec![spec];
        cases.push(case);
    }
    let levels = runnable_levels();
    cases.iter().for_each(|case| case.misses_nothing(&levels));
    check_all(&cases, &levels);
}

#[test]
fn few_channels_of_an_image_in_blocks_have_rows_as_lanes() {
    let levels = runnable_levels();
    let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
    let wide = [target.with_cpu("x86-64-v4").unwrap()];
    for (outputs, padding) in [(1, [1; 4]), (3, [0; 4]), (2, [0, 2, 1, 0])] {
        let image = [2, 40, 6, 37];
        let mut net = Net::new();
        let (x, w) = (net.param(&image), net.param(&[outputs, 40, 3, 3]));
        let y = net.call("nn.conv2d", &[x, w], conv_attrs(1, padding, 1, 1));
        let y = net.plain("nn.relu", &[y]);
        let [top, left, bottom, right] = padding;
        let result = dense(&[2, outputs, 4 + top + bottom, 35 + left + right]);
        let args = [Arg::Input(blocked(&image, &[])), Arg::Constant];
        let case = case(&net.finish(y), &args, &[result]);
        let loops = case.schedule(&wide).0.loops;
        let rules: Vec<&str> = loops.iter().map(|loops| loops.rule).collect();
        assert!(rules.contains(&"convolution of planes along rows"), "{rules:?}");
        check_all(&[case], &levels);
    }
}

/// Rows side by side share lines of the image: however far these are apart, and whatever number of rows
/// is left.
#[test]
fn rows_of_convolutions_of_planes_share_lines() {
    for (input, kernel, stride, padding, dilation) in [
        ([1, 5, 13, 81], [4, 4], 1, [2; 4], 1),
        ([2, 3, 20, 70], [3, 5], 1, [1, 2, 1, 2], 2),
        ([1, 4, 19, 99], [5, 3], 2, [2, 1, 2, 1], 1),
        ([1, 3, 16, 40], [1, 7], 1, [0, 3, 0, 3], 1),
        // More taps of a column than have code of their own.
        ([1, 2, 30, 50], [13, 2], 1, [6, 1, 6, 0], 1),
        // Less than a vector.
        ([1, 6, 9, 12], [3, 3], 1, [1; 4], 1),
    ] {
        for outputs in [1, 3] {
            let weight = [outputs, input[1], kernel[0], kernel[1]];
            let attrs = conv_attrs(stride, padding, dilation, 1);
            conv(&input, &weight, attrs, dense(&input), dense);
        }
    }
}

/// Taps of a kernel that read the border of an image alone add nothing to sums.
#[test]
fn taps_of_kernels_beyond_the_image_are_left_out() {
    for (input, kernel, stride, padding, dilation) in [
        ([1, 16, 7, 7], [5, 5], 1, [2; 4], 1),
        // An image of one line, and results of the border alone.
        ([1, 24, 1, 20], [5, 3], 1, [2, 1, 2, 1], 1),
        ([1, 16, 2, 9], [3, 3], 1, [5, 1, 4, 1], 1),
        ([2, 16, 9, 6], [3, 3], 2, [1; 4], 1),
        ([1, 40, 6, 9], [4, 2], 1, [5, 0, 3, 1], 2),
        // Taps that are further apart than tiles are wide, and than the image is.
        ([1, 16, 20, 33], [3, 3], 1, [17; 4], 17),
        ([1, 16, 14, 30], [3, 3], 2, [12, 13, 12, 11], 12),
        ([2, 16, 5, 31], [1, 5], 1, [0, 40, 0, 40], 20),
        // Planes.
        ([1, 3, 8, 9], [7, 3], 2, [3, 1, 3, 1], 1),
        ([1, 3, 5, 33], [3, 3], 1, [17, 16, 17, 18], 17),
    ] {
        let attrs = conv_attrs(stride, padding, dilation, 1);
        let weight = [40, input[1], kernel[0], kernel[1]];
        conv(&input, &weight, attrs, dense(&input), |shape| blocked(shape, &[]));
    }
    for (shape, kernel, padding, dilation, bounded) in [
        ([1, 16, 7, 7], [5, 5], [2; 4], 1, "ky"),
        ([1, 16, 4, 33], [1, 3], [0, 16, 0, 16], 16, "kx"),
    ] {
        let mut net = Net::new();
        let x = net.param(&shape);
        let weight = net.param(&[16, 16, kernel[0], kernel[1]]);
        let sums = net.call("nn.conv2d", &[x, weight], conv_attrs(1, padding, dilation, 1));
        let args = [Arg::Input(blocked(&shape, &[])), Arg::Constant];
        let case = case(&net.finish(sums), &args, &[blocked(&shape, &[])]);
        let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        let levels = [target.with_cpu("x86-64-v4").unwrap()];
        let text = case.schedule(&levels).0.signature().to_string();
        assert!(text.contains(&format!("for {bounded} in serial(max(")), "{text}");
    }
}
