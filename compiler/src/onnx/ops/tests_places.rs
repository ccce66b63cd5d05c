//! Tests of operators that find elements at other places. The numbers are ONNX Runtime 1.31.1's, for
//! inputs that are sine waves.

use super::tests_values::Input::{Floats, Longs, Missing, Wave};
use super::tests_values::{assert_close, run};

#[test]
fn resizes_of_any_axes() {
    let attrs = |places: &'static str| {
        [("mode", "linear".into()), ("coordinate_transformation_mode", places.into())]
    };
    let volume = [Wave(&[1, 1, 2, 3, 2], 0.2), Missing, Floats(&[5], &[1.0, 1.0, 1.5, 0.7, 2.0])];
    assert_close(&run(19, "Resize", &volume, &attrs("half_pixel"), &["y"]), RESIZED_VOLUME);
    let channels_last = [Wave(&[1, 2, 3, 2], 0.2), Missing, Missing, Longs(&[4], &[1, 3, 2, 2])];
    let found = run(19, "Resize", &channels_last, &attrs("align_corners"), &["y"]);
    assert_close(&found, RESIZED_CHANNELS_LAST);
}

#[test]
fn regions_that_reach_beyond_an_image() {
    let inputs = [
        Wave(&[1, 1, 4, 4], 0.2),
        Floats(&[8], &[0.0, 0.0, 0.2, -0.2, 1.0, 1.0, 0.9, 0.7]),
        Missing,
        Longs(&[4], &[1, 1, 3, 3]),
    ];
    let attrs = [
        ("mode", "linear".into()),
        ("coordinate_transformation_mode", "tf_crop_and_resize".into()),
        ("extrapolation_value", 7.0f32.into()),
    ];
    assert_close(&run(13, "Resize", &inputs, &attrs, &["y"]), RESIZED_REGION);
}

/// ONNX took the mode back with opset 13; exporters write it, and ONNX Runtime knows it, all the same.
#[test]
fn the_nearest_is_found_as_tensorflow_does() {
    let attrs = [
        ("mode", "nearest".into()),
        ("nearest_mode", "floor".into()),
        ("coordinate_transformation_mode", "tf_half_pixel_for_nn".into()),
    ];
    let numbers: Vec<f32> = (0..20u8).map(f32::from).collect();
    let image = || Floats(&[1, 1, 4, 5], &numbers);
    let smaller = [image(), Missing, Floats(&[4], &[1.0, 1.0, 0.5, 0.6])];
    for opset in [11, 13] {
        let found = run(opset, "Resize", &smaller, &attrs, &["y"]);
        assert_eq!(found, [5.0, 7.0, 9.0, 15.0, 17.0, 19.0]);
    }
    let larger = [image(), Missing, Floats(&[4], &[1.0, 1.0, 1.0, 1.5])];
    let found = run(13, "Resize", &larger, &attrs, &["y"]);
    assert_eq!(found[..7], [0.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
}

#[test]
fn a_resize_keeps_an_integer_type() {
    let inputs = [Longs(&[1, 1, 1, 2], &[0, 10]), Missing, Missing, Longs(&[4], &[1, 1, 1, 4])];
    let found = run(13, "Resize", &inputs, &[("mode", "linear".into())], &["y"]);
    assert_eq!(found, [0.0, 2.0, 7.0, 10.0]);
}

#[test]
fn grids_by_the_names_of_each_opset() {
    let grid: Vec<f32> = (0..12).map(|i| (f64::from(i) * 0.7 + 0.4).sin() as f32 * 2.5).collect();
    let inputs = [Wave(&[1, 1, 3, 4], 0.2), Floats(&[1, 2, 3, 2], &grid)];
    let attrs = [
        ("mode", "cubic".into()),
        ("padding_mode", "reflection".into()),
        ("align_corners", 1.into()),
    ];
    assert_close(&run(20, "GridSample", &inputs, &attrs, &["y"]), GRID_REFLECTED);
    let grid: Vec<f32> = (0..8).map(|i| (f64::from(i) * 0.7 + 0.4).sin() as f32 * 1.5).collect();
    let inputs = [Wave(&[1, 2, 3, 4], 0.2), Floats(&[1, 2, 2, 2], &grid)];
    let attrs = [("mode", "bilinear".into()), ("padding_mode", "border".into())];
    assert_close(&run(16, "GridSample", &inputs, &attrs, &["y"]), GRID_16);
}

#[test]
fn regions_with_as_many_samples_as_they_need() {
    let rois = [0.0, 0.0, 7.0, 5.0, 2.0, 1.0, 20.0, 11.0];
    let inputs = [Wave(&[2, 1, 6, 6], 0.2), Floats(&[2, 4], &rois), Longs(&[2], &[1, 0])];
    let attrs = [
        ("output_height", 2.into()),
        ("output_width", 2.into()),
        ("spatial_scale", 0.5f32.into()),
        ("sampling_ratio", 0.into()),
    ];
    assert_close(&run(10, "RoiAlign", &inputs, &attrs, &["y"]), ROIS_10);
    assert_close(&run(16, "RoiAlign", &inputs, &attrs, &["y"]), ROIS_16);
}

#[test]
fn pools_say_where_they_found_elements() {
    let x = [Wave(&[1, 2, 4, 5], 0.2)];
    let attrs = [
        ("kernel_shape", [2i64, 3].into()),
        ("strides", [2i64, 2].into()),
        ("pads", [0i64, 1, 1, 1].into()),
        ("ceil_mode", 1.into()),
    ];
    assert_close(&run(12, "MaxPool", &x, &attrs, &["y", "i"]), POOL_PLACES);
    let attrs = [
        ("kernel_shape", [2i64, 3].into()),
        ("strides", [2i64, 2].into()),
        ("storage_order", 1.into()),
    ];
    assert_close(&run(12, "MaxPool", &x, &attrs, &["y", "i"]), POOL_PLACES_COL);
    let inputs = [Wave(&[1, 1, 2, 2], 0.2), Longs(&[1, 1, 2, 2], &[1, 3, 8, 10])];
    let attrs = [("kernel_shape", [2i64, 2].into()), ("strides", [2i64, 2].into())];
    assert_close(&run(11, "MaxUnpool", &inputs, &attrs, &["y"]), UNPOOLED);
}

#[test]
fn blocks_crops_and_caches() {
    let inputs = [Wave(&[1, 8, 4], 0.2), Longs(&[2], &[4, 3]), Longs(&[2], &[2, 2])];
    let attrs = [("pads", [1i64, 0, 0, 1].into()), ("strides", [2i64, 2].into())];
    assert_close(&run(18, "Col2Im", &inputs, &attrs, &["y"]), COL2IM);
    let inputs = [Wave(&[3, 4], 0.2), Longs(&[2], &[4, 1])];
    assert_close(&run(18, "CenterCropPad", &inputs, &[], &["y"]), CROPPED);
    let inputs = [Wave(&[2, 4, 3], 0.2), Wave(&[2, 2, 3], 0.3), Longs(&[2], &[1, 3])];
    let attrs = [("mode", "circular".into()), ("axis", 1.into())];
    assert_close(&run(24, "TensorScatter", &inputs, &attrs, &["y"]), TSCATTER);
}

#[test]
fn deformed_convolutions_with_groups() {
    let offsets: Vec<f32> =
        (0..64).map(|i| (f64::from(i) * 0.7 + 0.5).sin() as f32 * 1.5).collect();
    let inputs = [
        Wave(&[1, 4, 4, 4], 0.2),
        Wave(&[2, 2, 2, 2], 0.3),
        Floats(&[1, 16, 2, 2], &offsets),
        Wave(&[2], 0.6),
        Wave(&[1, 8, 2, 2], 0.7),
    ];
    let attrs = [
        ("group", 2.into()),
        ("offset_group", 2.into()),
        ("strides", [2i64, 2].into()),
        ("pads", [1i64, 0, 1, 1].into()),
        ("dilations", [2i64, 1].into()),
    ];
    assert_close(&run(19, "DeformConv", &inputs, &attrs, &["y"]), DEFORM);
}

const RESIZED_VOLUME: &[f64] = &[
    0.3702917,
    0.4715351,
    0.6740218,
    0.7752651,
    0.4477106,
    0.3172116,
    0.05621344,
    -0.07428557,
    -0.2384766,
    -0.1671154,
    -0.02439298,
    0.04696821,
    0.3959981,
    0.3775885,
    0.3407693,
    0.3223598,
    -0.847245,
    -0.8057659,
    -0.7228077,
    -0.6813287,
    0.3442856,
    0.4379655,
    0.6253252,
    0.7190051,
];
const RESIZED_CHANNELS_LAST: &[f64] = &[
    0.1986693,
    0.7833269,
    0.14112,
    -0.5298361,
    -0.3764664,
    -0.07124388,
    0.4673939,
    0.2345526,
    -0.9516021,
    -0.9258147,
    0.7936679,
    0.9989414,
];
const RESIZED_REGION: &[f64] =
    &[7.0, 0.03760675, -0.1797394, 7.0, -0.09736089, 0.1970686, 7.0, 0.2074149, -0.1654389];
const GRID_REFLECTED: &[f64] =
    &[-0.7307618, -0.2186285, -0.3481872, -0.956782, -0.2790191, 0.003496211];
const GRID_16: &[f64] =
    &[0.9308429, 0.9989413, 0.8535806, 0.1986693, -0.3371744, -0.5580522, -0.09271825, 0.7343971];
const ROIS_10: &[f64] = &[
    -0.2659519,
    0.3122107,
    -0.02656318,
    -0.4854294,
    -0.06463695,
    0.01807729,
    -0.08577267,
    0.02088244,
];
const ROIS_16: &[f64] = &[
    0.1779827,
    0.6283796,
    -0.4263391,
    -0.4062586,
    -0.08868802,
    0.01901782,
    0.09329967,
    0.01532065,
];
const POOL_PLACES: &[f64] = &[
    0.7833269, 0.9995736, 0.7457052, 0.9989414, 0.9989414, 0.8037844, 0.9980267, 0.8136737,
    0.9968298, 0.7111612, 0.9953511, 0.9953511, 1.0, 2.0, 3.0, 11.0, 11.0, 19.0, 20.0, 28.0, 29.0,
    30.0, 38.0, 38.0,
];
const POOL_PLACES_COL: &[f64] = &[
    0.9995736, 0.9995736, 0.9989414, 0.8037844, 0.9980267, 0.9968298, 0.823333, 0.9953511, 8.0,
    8.0, 6.0, 19.0, 20.0, 37.0, 31.0, 35.0,
];
const UNPOOLED: &[f64] = &[
    0.0, 0.1986693, 0.0, 0.7833269, 0.0, 0.0, 0.0, 0.0, 0.9995736, 0.0, 0.7457052, 0.0, 0.0, 0.0,
    0.0, 0.0,
];
const COL2IM: &[f64] = &[
    -0.4646022, 0.7343971, 0.21512, 0.9995736, -0.9516021, 0.7457052, 0.7936679, -0.5440211,
    0.9989414, 0.0, 0.0, 0.0, -0.9613975, 0.8136737, -0.9125825, 0.2315098, 0.1077536, 0.8037844,
    -0.4345656, 0.7111612, 0.2478342, 0.0, 0.0, 0.0,
];
const CROPPED: &[f64] = &[0.7833269, -0.5298361, 0.21512, 0.0];
const DEFORM: &[f64] =
    &[0.6161401, 0.2080108, 0.8728316, 0.59716, 0.778161, 0.4677714, 1.174338, 0.9649841];
const TSCATTER: &[f64] = &[
    0.1986693, 0.7833269, 0.9995736, 0.2955202, 0.841471, 0.9916648, 0.6754632, 0.04158066,
    -0.6118579, 0.21512, 0.7936679, 0.9989414, 0.3115413, 0.8504366, 0.9893582, -0.956635,
    -0.9193285, -0.4496475, 0.2315098, 0.8037844, 0.9980267, -0.9775301, -0.8834547, -0.3738767,
];
