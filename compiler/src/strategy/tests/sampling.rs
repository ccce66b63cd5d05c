//! Operators that read between elements, or say where they are.

use super::families::{call, floats, ints, resize};
use super::{Case, check_all, sample};
use crate::codegen::testing::runnable_levels;
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ops::elementwise::ReinterpretAttrs;
use crate::ops::nn::{MaxPoolIndicesAttrs, NonMaxSuppressionAttrs, RoiAlignAttrs, RoiAlignMode};
use crate::ops::tensor::{
    CoordinateTransformation, GridCoordinates, GridPadding, GridSampleAttrs, Resize2dAttrs,
    ResizeMethod,
};

#[test]
fn images_by_filters_against_aliasing_about_their_middle_and_of_regions() {
    let mut cases = Vec::new();
    let image = sample(&[1, 2, 9, 7], 1);
    let mut push = |attrs: Resize2dAttrs| {
        cases.push(call("image.resize2d", attrs, &[Some(image.clone())]));
    };
    for method in [ResizeMethod::NearestNeighbor, ResizeMethod::Linear, ResizeMethod::Cubic] {
        push(Resize2dAttrs {
            coordinate_transformation_mode: CoordinateTransformation::HalfPixelSymmetric,
            scale: Some([0.6, 1.4]),
            ..resize([5, 9], method)
        });
        for (size, roi) in [
            ([4, 6], [-0.3, 0.1, 0.7, 1.4]),
            ([1, 3], [0.2, 0.0, 0.4, 1.0]),
            ([9, 7], [0.0, 0.0, 1.0, 1.0]),
        ] {
            push(Resize2dAttrs {
                coordinate_transformation_mode: CoordinateTransformation::TfCropAndResize,
                roi: Some(roi),
                extrapolation_value: 2.5,
                ..resize(size, method)
            });
        }
        for (size, cubic_exclude) in [([4, 3], false), ([2, 14], true), ([9, 1], false)] {
            push(Resize2dAttrs { antialias: true, cubic_exclude, ..resize(size, method) });
        }
    }
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

#[test]
fn columns_of_images_are_picked_in_vectors() {
    let levels = runnable_levels();
    let resized = |shape: &[usize], size: [i64; 2], places: CoordinateTransformation| {
        [ResizeMethod::Linear, ResizeMethod::Cubic].map(|method| {
            let attrs = Resize2dAttrs {
                coordinate_transformation_mode: places,
                cubic_exclude: places == CoordinateTransformation::AlignCorners,
                ..resize(size, method)
            };
            call("image.resize2d", attrs, &[Some(sample(shape, 1))])
        })
    };
    let mut cases: Vec<Case> = [
        resized(&[1, 3, 20, 20], [40, 40], CoordinateTransformation::HalfPixel),
        resized(&[2, 2, 33, 50], [20, 21], CoordinateTransformation::HalfPixel),
        // Every second element has a weight of zero.
        resized(&[1, 2, 18, 18], [18, 36], CoordinateTransformation::Asymmetric),
        resized(&[1, 2, 17, 19], [23, 47], CoordinateTransformation::AlignCorners),
    ]
    .into_iter()
    .flatten()
    .collect();
    cases.iter().for_each(|case| case.misses_nothing(&levels));
    // Rows without room for a vector, and more elements than vectors are picked for.
    cases.extend(resized(&[1, 2, 3, 3], [9, 40], CoordinateTransformation::HalfPixel));
    cases.extend(resized(&[1, 1, 3, 500], [5, 9000], CoordinateTransformation::HalfPixel));
    check_all(&cases, &levels);
}

#[test]
fn elements_at_the_places_of_a_grid() {
    let mut cases = Vec::new();
    // Places inside, at the edges, outside of either end, and one that is no number.
    let numbers: Vec<f64> = (0..40)
        .map(|i| match i {
            7 => f64::NAN,
            8 => 1.0,
            9 => -1.0,
            i => f64::from(i * 37 % 41) / 11.0 - 1.7,
        })
        .collect();
    let grid = floats(DType::F32, &[2, 2, 5, 2], &numbers);
    let volume = floats(DType::F64, &[1, 2, 3, 2, 3], &numbers[..36]);
    // Each pair of choices occurs once: compilers take long over so many places.
    let methods = [ResizeMethod::NearestNeighbor, ResizeMethod::Linear, ResizeMethod::Cubic];
    let places = [GridCoordinates::Edges, GridCoordinates::Corners, GridCoordinates::Pixels];
    let paddings = [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection];
    for (i, coordinates) in places.into_iter().enumerate() {
        for (j, padding) in paddings.into_iter().enumerate() {
            let attrs = GridSampleAttrs { method: methods[(i + j) % 3], padding, coordinates };
            let image = sample(&[2, 3, 4, 5], 1);
            cases.push(call("image.grid_sample", attrs, &[Some(image), Some(grid.clone())]));
        }
        let attrs =
            GridSampleAttrs { method: ResizeMethod::Linear, padding: paddings[i], coordinates };
        let image = sample(&[1, 2, 3, 1, 4], 2);
        cases.push(call("image.grid_sample", attrs, &[Some(image), Some(volume.clone())]));
    }
    let attrs = GridSampleAttrs {
        method: ResizeMethod::NearestNeighbor,
        padding: GridPadding::Zeros,
        coordinates: GridCoordinates::Corners,
    };
    let bytes = ints(DType::I16, &[2, 1, 3], &[5, -3, 8, 1, 2, 3]);
    let line = floats(DType::F32, &[2, 4, 1], &[-1.0, 0.1, 1.0, 3.0, 0.9, -0.2, -0.9, 1.1]);
    cases.push(call("image.grid_sample", attrs, &[Some(bytes), Some(line)]));
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

/// Pixels that a run says, of many channels, which are neighbours in copies.
#[test]
fn channels_are_sampled_in_vectors() {
    let grid: Vec<f64> = (0..2 * 5 * 3 * 2).map(|i| f64::from(i * 7 % 23) / 9.0 - 1.2).collect();
    let grid = floats(DType::F32, &[2, 5, 3, 2], &grid);
    let paddings = [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection];
    let mut cases = Vec::new();
    for (method, padding) in [
        (ResizeMethod::NearestNeighbor, GridPadding::Zeros),
        (ResizeMethod::Cubic, GridPadding::Zeros),
    ]
    .into_iter()
    .chain(paddings.map(|padding| (ResizeMethod::Linear, padding)))
    {
        let attrs = GridSampleAttrs { method, padding, coordinates: GridCoordinates::Edges };
        let image = sample(&[2, 19, 6, 7], 1);
        cases.push(call("image.grid_sample", attrs, &[Some(image), Some(grid.clone())]));
    }
    check_all(&cases, &runnable_levels());
    for case in &cases {
        let loops = case.schedule(&runnable_levels()).0.loops;
        assert!(
            loops.iter().any(|loops| loops.rule == "planes from blocks of channels"),
            "{}: {loops:?}",
            case.name
        );
    }
}

#[test]
fn regions_of_images() {
    let mut cases = Vec::new();
    let image = sample(&[2, 2, 6, 7], 1);
    let rois = [
        [0.5, 0.25, 5.5, 4.75],
        [-3.0, -2.0, 2.0, 3.0],
        [3.0, 3.0, 11.0, 9.5],
        [2.0, 2.0, 2.25, 2.25],
        [4.0, 4.0, 1.0, 1.0],
    ];
    let rois = floats(DType::F32, &[5, 4], rois.as_flattened());
    let batch = ints(DType::I64, &[5], &[0, 1, 1, 0, 1]);
    for mode in [RoiAlignMode::Avg, RoiAlignMode::Max] {
        for aligned in [false, true] {
            for sample_ratio in [0, 3] {
                let attrs = RoiAlignAttrs {
                    pooled_size: [2, 3],
                    spatial_scale: 0.75,
                    sample_ratio,
                    aligned,
                    mode,
                };
                let args = [&image, &rois, &batch].map(|arg| Some(arg.clone()));
                cases.push(call("vision.roi_align", attrs, &args));
            }
        }
    }
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

#[test]
fn places_of_the_greatest_of_windows() {
    let mut cases = Vec::new();
    // Equal elements, of which the first counts.
    let image: Vec<i128> = (0..84).map(|i| i * 7 % 5).collect();
    for column_major in [false, true] {
        for (padding, dilation, ceil_mode) in
            [([0, 0, 0, 0], [1, 1], false), ([1, 2, 1, 0], [2, 1], true)]
        {
            let attrs = MaxPoolIndicesAttrs {
                pool_size: vec![2, 3],
                strides: vec![2, 2],
                padding: padding.to_vec(),
                dilation: dilation.to_vec(),
                ceil_mode,
                column_major,
            };
            let image = ints(DType::U8, &[2, 1, 6, 7], &image);
            cases.push(call("nn.max_pool_indices", attrs.clone(), &[Some(image)]));
            let image = sample(&[1, 2, 6, 7], 3);
            cases.push(call("nn.max_pool_indices", attrs, &[Some(image)]));
        }
    }
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

#[test]
fn bits_as_other_types() {
    let cast =
        |x: Tensor, dtype: DType| call("reinterpret", ReinterpretAttrs { dtype }, &[Some(x)]);
    let numbers = [1.5, -0.0, f64::INFINITY, -3.25, 6e-5];
    let cases = [
        cast(floats(DType::F32, &[5], &numbers), DType::U32),
        cast(floats(DType::F64, &[5], &numbers), DType::I64),
        cast(floats(DType::F16, &[5], &numbers), DType::U16),
        cast(floats(DType::BF16, &[5], &numbers), DType::I16),
        cast(ints(DType::U16, &[3], &[0x3c00, 0xbc00, 0x7c00]), DType::F16),
        cast(ints(DType::I64, &[2], &[0x3ff8_0000_0000_0000, 1 << 62]), DType::F64),
        cast(ints(DType::I8, &[3], &[-1, 0, 127]), DType::U8),
        cast(ints(DType::Bool, &[2], &[1, 0]), DType::U8),
        cast(ints(DType::U8, &[3], &[0, 1, 2]), DType::Bool),
    ];
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

#[test]
fn boxes_are_compared_with_as_many_as_are_found() {
    let count = 90;
    let number = |seed: usize| ((seed * 2_654_435_761) >> 7) % 1000;
    let boxes = |images: usize| {
        let corners = (0..images * count).flat_map(|index| {
            let [x, y] = [0, 1].map(|axis| number(index * 2 + axis) as f64 / 10.0);
            let [width, height] = [2, 3].map(|axis| 4.0 + number(index * 4 + axis) as f64 / 60.0);
            // Either corner may come first.
            if index % 3 == 0 {
                [x + width, y + height, x, y]
            } else {
                [x, y, x + width, y + height]
            }
        });
        floats(DType::F32, &[images, count, 4], &corners.collect::<Vec<_>>())
    };
    let scores = |images: usize, classes: usize| {
        let scores = (0..images * classes * count).map(|index| number(index + 7) as f64 / 1000.0);
        floats(DType::F32, &[images, classes, count], &scores.collect::<Vec<_>>())
    };
    let mut cases = Vec::new();
    for (most, iou_threshold, score_threshold) in [
        (90, 0.9, None),
        (200, 0.3, Some(0.2)),
        (17, 0.5, None),
        (16, 0.0, Some(0.5)),
        (0, 0.5, None),
    ] {
        for center_point_box in [false, true] {
            let attrs = NonMaxSuppressionAttrs {
                max_output_boxes: most,
                iou_threshold,
                score_threshold,
                center_point_box,
            };
            let args = [Some(boxes(2)), Some(scores(2, 3))];
            cases.push(call("vision.non_max_suppression", attrs, &args));
        }
    }
    check_all(&cases, &runnable_levels());
}
