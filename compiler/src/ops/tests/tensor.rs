//! Operators that move elements, against values that numpy and ONNX Runtime 1.31 computed for the
//! same inputs.

use super::{call, check, floats, pattern};
use crate::graph::interp::Tensor;
use crate::ir::{DType, Dim};
use crate::ops::tensor::{
    APPEND, ARANGE, AppendAttrs, ArangeAttrs, BROADCAST_TO, BroadcastToAttrs, CONCATENATE,
    ConcatenateAttrs, CoordinateTransformation, EXPAND_DIMS, ExpandDimsAttrs, FULL, FullAttrs,
    NDARRAY_SIZE, NearestRounding, ONE_HOT, OneHotAttrs, RESHAPE, RESIZE2D, ReshapeAttrs,
    Resize2dAttrs, ResizeMethod, SHAPE_OF, SPLIT, SQUEEZE, STRIDED_SLICE, ShapeOfAttrs, SplitAttrs,
    SqueezeAttrs, StridedSliceAttrs, TAKE, TRANSPOSE, TakeAttrs, TakeMode, TransposeAttrs,
};

fn dims(extents: &[i64]) -> Vec<Dim> {
    extents.iter().copied().map(Dim::from).collect()
}

fn ints(shape: &[usize], values: &[i128]) -> Tensor {
    Tensor::from_ints(DType::I64, shape, values.to_vec()).unwrap()
}

fn resize(
    method: ResizeMethod,
    coordinate_transformation_mode: CoordinateTransformation,
    rounding_method: NearestRounding,
    size: [i64; 2],
    scale: Option<[f64; 2]>,
    cubic_exclude: bool,
) -> Resize2dAttrs {
    Resize2dAttrs {
        size: size.map(Dim::from),
        scale,
        method,
        coordinate_transformation_mode,
        rounding_method,
        cubic_alpha: -0.75,
        cubic_exclude,
        antialias: false,
        roi: None,
        extrapolation_value: 0.0,
    }
}

#[test]
fn moves_of_elements() {
    check(
        &TRANSPOSE,
        &TransposeAttrs { axes: vec![2, 0, -2] },
        &[pattern(&[2, 3, 2], 0)],
        &[2, 2, 3],
        &[-0.75, -0.125, 0.5, 1.125, -1.125, -0.5, 1.0, -1.25, -0.625, 0.0, 0.625, 1.25],
    );
    check(
        &BROADCAST_TO,
        &BroadcastToAttrs { shape: dims(&[2, 2, 3]) },
        &[pattern(&[2, 1], 0)],
        &[2, 2, 3],
        &[-0.75, -0.75, -0.75, 1.0, 1.0, 1.0, -0.75, -0.75, -0.75, 1.0, 1.0, 1.0],
    );
    check(
        &CONCATENATE,
        &ConcatenateAttrs { axis: -2 },
        &[pattern(&[2, 1, 2], 0), pattern(&[2, 2, 2], 1)],
        &[2, 3, 2],
        &[-0.75, 1.0, 0.625, -0.5, 1.25, 0.125, -0.125, -1.25, -1.0, 0.75, -0.375, 1.375],
    );
    check(
        &STRIDED_SLICE,
        &StridedSliceAttrs { begin: vec![1], end: vec![i64::MAX], strides: vec![2], axes: vec![1] },
        &[pattern(&[3, 4], 0)],
        &[3, 2],
        &[1.0, -1.25, -0.625, 0.0, 0.625, 1.25],
    );
    check(
        &STRIDED_SLICE,
        &StridedSliceAttrs {
            begin: vec![-1, -1],
            end: vec![-i64::MAX, -5],
            strides: vec![-1, -2],
            axes: vec![0, 1],
        },
        &[pattern(&[3, 4], 0)],
        &[3, 2],
        &[1.25, 0.625, 0.0, -0.625, -1.25, 1.0],
    );
    check(
        &STRIDED_SLICE,
        &StridedSliceAttrs { begin: vec![-3], end: vec![100], strides: vec![1], axes: vec![-1] },
        &[pattern(&[3, 4], 0)],
        &[3, 3],
        &[1.0, -0.125, -1.25, -0.625, 1.125, 0.0, 0.625, -0.5, 1.25],
    );
    check(
        &STRIDED_SLICE,
        &StridedSliceAttrs { begin: vec![1], end: vec![1], strides: vec![1], axes: vec![0] },
        &[pattern(&[3, 4], 0)],
        &[0, 4],
        &[],
    );
}

#[test]
fn resizing() {
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::NearestNeighbor,
            CoordinateTransformation::Asymmetric,
            NearestRounding::Floor,
            [4, 6],
            Some([2.0, 2.0]),
            false,
        ),
        &[pattern(&[1, 1, 2, 3], 0)],
        &[1, 1, 4, 6],
        &[
            -0.75, -0.75, 1.0, 1.0, -0.125, -0.125, -0.75, -0.75, 1.0, 1.0, -0.125, -0.125, -1.25,
            -1.25, 0.5, 0.5, -0.625, -0.625, -1.25, -1.25, 0.5, 0.5, -0.625, -0.625,
        ],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::NearestNeighbor,
            CoordinateTransformation::HalfPixel,
            NearestRounding::RoundPreferFloor,
            [2, 6],
            None,
            false,
        ),
        &[pattern(&[1, 1, 3, 4], 0)],
        &[1, 1, 2, 6],
        &[-0.75, -0.75, 1.0, -0.125, -0.125, -1.25, -1.125, -1.125, 0.625, -0.5, -0.5, 1.25],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::NearestNeighbor,
            CoordinateTransformation::HalfPixel,
            NearestRounding::RoundPreferCeil,
            [2, 2],
            None,
            false,
        ),
        &[pattern(&[1, 1, 4, 4], 0)],
        &[1, 1, 2, 2],
        &[-0.625, 0.0, -1.0, -0.375],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::NearestNeighbor,
            CoordinateTransformation::AlignCorners,
            NearestRounding::Ceil,
            [5, 2],
            None,
            false,
        ),
        &[pattern(&[1, 1, 3, 3], 0)],
        &[1, 1, 5, 2],
        &[-0.75, -0.125, -1.25, -0.625, -1.25, -0.625, 1.125, -1.125, 1.125, -1.125],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Linear,
            CoordinateTransformation::HalfPixel,
            NearestRounding::Floor,
            [4, 4],
            Some([2.0, 1.5]),
            false,
        ),
        &[pattern(&[1, 1, 2, 3], 0)],
        &[1, 1, 4, 4],
        &[
            -0.75, 0.125, 0.8125001, 0.06250009, -0.875, 0.0, 0.6875, -0.0624999, -1.125, -0.25,
            0.4375, -0.3124999, -1.25, -0.375, 0.3125001, -0.4374999,
        ],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Linear,
            CoordinateTransformation::AlignCorners,
            NearestRounding::Floor,
            [5, 2],
            None,
            false,
        ),
        &[pattern(&[1, 1, 3, 3], 0)],
        &[1, 1, 5, 2],
        &[-0.75, -0.125, -1.0, -0.375, -1.25, -0.625, -0.0625, -0.875, 1.125, -1.125],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Linear,
            CoordinateTransformation::PytorchHalfPixel,
            NearestRounding::Floor,
            [1, 5],
            None,
            false,
        ),
        &[pattern(&[1, 1, 3, 3], 0)],
        &[1, 1, 1, 5],
        &[-0.75, -0.04999995, 1.0, 0.3249998, -0.125],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Linear,
            CoordinateTransformation::Asymmetric,
            NearestRounding::Floor,
            [3, 3],
            Some([1.7, 1.3]),
            false,
        ),
        &[pattern(&[1, 1, 2, 3], 0)],
        &[1, 1, 3, 3],
        &[
            -0.75, 0.5961539, 0.3942307, -1.044118, 0.3020362, 0.1001131, -1.25, 0.09615389,
            -0.1057693,
        ],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Cubic,
            CoordinateTransformation::HalfPixel,
            NearestRounding::Floor,
            [4, 3],
            Some([1.5, 0.8]),
            false,
        ),
        &[pattern(&[1, 1, 3, 4], 0)],
        &[1, 1, 4, 3],
        &[
            -0.6354735,
            0.939569,
            -1.04372,
            0.02586555,
            0.3766937,
            -0.2012997,
            0.2585003,
            -0.07352487,
            0.6492227,
            -0.7287576,
            0.2319557,
            0.5667062,
        ],
    );
    check(
        &RESIZE2D,
        &resize(
            ResizeMethod::Cubic,
            CoordinateTransformation::HalfPixel,
            NearestRounding::Floor,
            [4, 3],
            None,
            true,
        ),
        &[pattern(&[1, 1, 3, 4], 0)],
        &[1, 1, 4, 3],
        &[
            -0.5670107,
            0.7436635,
            -1.223281,
            0.1174148,
            0.4520961,
            -0.426706,
            -0.07120174,
            0.1279113,
            0.6397778,
            -0.972068,
            0.04747137,
            1.067011,
        ],
    );
}

#[test]
fn take_indexes_an_axis() {
    let attrs = |mode| TakeAttrs { axis: 1, mode };
    let x = pattern(&[2, 3, 2], 0);
    check(
        &TAKE,
        &attrs(TakeMode::Fast),
        &[x.clone(), ints(&[2, 2], &[2, -3, 0, -1])],
        &[2, 2, 2, 2],
        &[
            0.5, -0.625, -0.75, 1.0, -0.75, 1.0, 0.5, -0.625, -0.5, 1.25, 1.125, 0.0, 1.125, 0.0,
            -0.5, 1.25,
        ],
    );
    let row = floats(&[1, 3], &[10.0, 20.0, 30.0]);
    let far = ints(&[2], &[-4, 4]);
    check(&TAKE, &attrs(TakeMode::Clip), &[row.clone(), far.clone()], &[1, 2], &[10.0, 30.0]);
    check(&TAKE, &attrs(TakeMode::Wrap), &[row.clone(), far.clone()], &[1, 2], &[30.0, 20.0]);
    let error = call(&TAKE, &attrs(TakeMode::Fast), &[row, far]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "index -4 is out of range for axis 1 of input `x`, which is Tensor[(1, 3), float32]"
    );
}

#[test]
fn one_hot_marks_the_index() {
    check(
        &ONE_HOT,
        &OneHotAttrs { depth: 3.into(), axis: 1 },
        &[ints(&[2, 2], &[1, -1, 0, 5]), floats(&[], &[2.0]), floats(&[], &[0.5])],
        &[2, 3, 2],
        &[0.5, 0.5, 2.0, 0.5, 0.5, 2.0, 2.0, 0.5, 0.5, 0.5, 0.5, 0.5],
    );
}

#[test]
fn splits_are_pieces_in_order() {
    let attrs = SplitAttrs { axis: -1, sections: vec![1, 0, 2] };
    let pieces = call(&SPLIT, &attrs, &[floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    assert_eq!(
        pieces.unwrap(),
        [
            floats(&[2, 1], &[1.0, 4.0]),
            floats(&[2, 0], &[]),
            floats(&[2, 2], &[2.0, 3.0, 5.0, 6.0]),
        ]
    );
}

#[test]
fn shapes_change_and_elements_stay() {
    let x = floats(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let elements = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let reshape = ReshapeAttrs { newshape: dims(&[3, 2]) };
    check(&RESHAPE, &reshape, &[x.clone()], &[3, 2], &elements);
    check(&SQUEEZE, &SqueezeAttrs { axis: vec![-3] }, &[x.clone()], &[2, 3], &elements);
    let expand = ExpandDimsAttrs { axis: vec![-1, 1] };
    check(&EXPAND_DIMS, &expand, &[x], &[1, 1, 2, 3, 1], &elements);
}

#[test]
fn shapes_are_data() {
    let x = pattern(&[2, 0, 3], 0);
    let attrs = ShapeOfAttrs { dtype: DType::I64 };
    assert_eq!(call(&SHAPE_OF, &attrs, &[x.clone()]).unwrap(), [ints(&[3], &[2, 0, 3])]);
    assert_eq!(call(&NDARRAY_SIZE, &attrs, &[x]).unwrap(), [ints(&[], &[0])]);
}

#[test]
fn arange_counts_from_its_start() {
    let attrs = |dtype| ArangeAttrs { start: 3.into(), step: -2, length: 4i64.into(), dtype };
    assert_eq!(call(&ARANGE, &attrs(DType::I64), &[]).unwrap(), [ints(&[4], &[3, 1, -1, -3])]);
    let error = call(&ARANGE, &attrs(DType::F32), &[]).unwrap_err();
    assert!(error.to_string().contains("must be an integer type"), "{error}");
}

#[test]
fn append_puts_elements_behind_those_so_far() {
    let attrs = |length: i64| AppendAttrs { axis: 0, length: length.into() };
    let room = floats(&[4, 2], &[1.0, 2.0, 3.0, 4.0, -1.0, -1.0, -1.0, -1.0]);
    let new = floats(&[1, 2], &[5.0, 6.0]);
    let args = [room, new];
    check(&APPEND, &attrs(3), &args, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check(&APPEND, &attrs(1), &args, &[1, 2], &[5.0, 6.0]);
    for length in [0, 5] {
        let error = call(&APPEND, &attrs(length), &args).unwrap_err().to_string();
        let expected =
            format!("attribute `length` is {length}, but there is room for 4, and `new` has 1");
        assert!(error.contains(&expected), "{error}");
    }
    let other = [args[0].clone(), floats(&[1, 3], &[0.0; 3])];
    let error = call(&APPEND, &attrs(3), &other).unwrap_err().to_string();
    assert!(error.contains("in every dimension but dimension 0"), "{error}");
}

#[test]
fn full_repeats_a_scalar() {
    check(&FULL, &FullAttrs { shape: dims(&[2, 2]) }, &[floats(&[], &[7.0])], &[2, 2], &[7.0; 4]);
}
