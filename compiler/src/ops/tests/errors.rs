//! Calls that the type relations refuse, with the messages a user reads; and that no attributes or
//! extents, however hostile, make an operator panic.

use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;

use crate::graph::interp::{Elements, Tensor};
use crate::graph::{FunctionBuilder, TypeError};
use crate::ir::{Attrs, DType, Dim, Shape, TensorType, Type};
use crate::ops::elementwise::{ADD, CLIP, ClipAttrs, EXP, PRELU};
use crate::ops::nn::{
    AVG_POOL2D, AvgPoolAttrs, BATCH_NORM, BIAS_ADD, BatchNormAttrs, BiasAddAttrs, CONV2D,
    ConvAttrs, DENSE, DROPOUT, DropoutAttrs, LRN, LrnAttrs, MATMUL, MAX_POOL2D, MatmulAttrs,
    MaxPoolAttrs, PAD, PadAttrs, PadMode, SOFTMAX, SoftmaxAttrs, Window,
};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs, ReduceAttrs, SUM};
use crate::ops::tensor::{
    BROADCAST_TO, BroadcastToAttrs, CONCATENATE, ConcatenateAttrs, CoordinateTransformation,
    EXPAND_DIMS, ExpandDimsAttrs, FULL, FullAttrs, NearestRounding, ONE_HOT, OneHotAttrs, RESHAPE,
    RESIZE2D, ReshapeAttrs, Resize2dAttrs, ResizeMethod, SPLIT, SQUEEZE, STRIDED_SLICE, SplitAttrs,
    SqueezeAttrs, StridedSliceAttrs, TAKE, TRANSPOSE, TakeAttrs, TakeMode, TransposeAttrs,
};
use crate::ops::{Op, OpDef};

fn infer(op: &'static OpDef, attrs: Attrs, args: &[TensorType]) -> Result<Type, TypeError> {
    let mut b = FunctionBuilder::new();
    let args: Vec<_> = args.iter().map(|ty| b.param("x", ty.clone())).collect();
    let call = b.call(Op::new(op), &args, attrs)?;
    Ok(b.ty(call).clone())
}

fn f32s(dims: &[i64]) -> TensorType {
    TensorType::from_consts(dims, DType::F32)
}

fn symbolic(dims: &[&str]) -> TensorType {
    let dim = |text: &&str| text.parse::<i64>().map_or_else(|_| Dim::symbol(*text), Dim::from);
    TensorType::new(Shape::new(dims.iter().map(dim)), DType::F32)
}

fn dims(extents: &[i64]) -> Vec<Dim> {
    extents.iter().copied().map(Dim::from).collect()
}

#[track_caller]
fn refused<A: Serialize>(op: &'static OpDef, attrs: A, args: &[TensorType], message: &str) {
    let error = infer(op, Attrs::from_struct(&attrs).unwrap(), args).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn data_types_are_checked() {
    let ints = TensorType::from_consts(&[2], DType::I32);
    refused(
        &EXP,
        (),
        std::slice::from_ref(&ints),
        "input `x` must hold floats of at least 16 bits, but it is Tensor[(2), int32]; cast it first",
    );
    refused(
        &ADD,
        (),
        &[f32s(&[2]), ints],
        "inputs `lhs` and `rhs` must have one data type, but they hold float32 and int32; \
         cast one of them",
    );
    let narrow = TensorType::from_consts(&[2], DType::I4);
    refused(
        &ADD,
        (),
        &[narrow.clone(), narrow],
        "input `lhs` must hold integers or floats of at least 8 bits, \
         but it is Tensor[(2), int4]; cast it first",
    );
}

#[test]
fn broadcasting_names_the_extents_that_differ() {
    refused(
        &ADD,
        (),
        &[f32s(&[2, 3]), f32s(&[4])],
        "shapes (2, 3) and (4) do not broadcast: 3 and 4 differ, neither is 1",
    );
    refused(
        &ADD,
        (),
        &[symbolic(&["n", "3"]), symbolic(&["m", "3"])],
        "shapes (n, 3) and (m, 3) do not broadcast: n and m may differ; \
         pin symbolic dimensions to numbers",
    );
    refused(
        &PRELU,
        (),
        &[f32s(&[1, 4, 2, 2]), f32s(&[4])],
        "input `slope` is Tensor[(4), float32], which does not broadcast to input `x`, \
         Tensor[(1, 4, 2, 2), float32]; a slope per channel has the shape (C, 1, 1)",
    );
    refused(
        &BROADCAST_TO,
        BroadcastToAttrs { shape: dims(&[1, 3]) },
        &[f32s(&[2, 3])],
        "input `x`, which is Tensor[(2, 3), float32], does not broadcast to the shape (1, 3)",
    );
}

#[test]
fn convolutions_say_what_does_not_fit() {
    let conv = || ConvAttrs::of_rank(2);
    let (x, weight) = (f32s(&[1, 4, 5, 5]), f32s(&[6, 2, 3, 3]));
    refused(
        &CONV2D,
        conv(),
        &[f32s(&[4, 5, 5]), weight.clone()],
        "input `x` must have 4 dimensions (N, C, H, W), but it is Tensor[(4, 5, 5), float32]",
    );
    refused(
        &CONV2D,
        conv(),
        &[x.clone(), weight.clone()],
        "input `weight`, which is Tensor[(6, 2, 3, 3), float32], takes 2 channels in each of \
         1 groups, but input `x`, which is Tensor[(1, 4, 5, 5), float32], has 4 channels",
    );
    refused(
        &CONV2D,
        ConvAttrs { groups: 2, ..conv() },
        &[x.clone(), f32s(&[5, 2, 3, 3])],
        "the 5 output channels of input `weight`, which is Tensor[(5, 2, 3, 3), float32], \
         cannot be divided into 2 groups",
    );
    refused(
        &CONV2D,
        ConvAttrs { groups: 2, ..conv() },
        &[x.clone(), weight.clone(), f32s(&[5])],
        "input `bias` must be Tensor[(6), float32] because of the output channels of input \
         `weight`, but it is Tensor[(5), float32]",
    );
    refused(
        &CONV2D,
        ConvAttrs { groups: 2, dilation: vec![1, 3], padding: vec![0, 0, 0, 1], ..conv() },
        &[x.clone(), weight.clone()],
        "a kernel that spans 7 elements does not fit into dimension 3 of input `x`, \
         which is Tensor[(1, 4, 5, 5), float32], with padding 0 and 1",
    );
    for (attrs, message) in [
        (
            ConvAttrs { strides: vec![0, 1], ..conv() },
            "attribute `strides` must be at least 1, but it is 0",
        ),
        (
            ConvAttrs { dilation: vec![1, -1], ..conv() },
            "attribute `dilation` must be at least 1, but it is -1",
        ),
        (
            ConvAttrs { padding: vec![0, 0, -2, 0], ..conv() },
            "attribute `padding` must be at least 0, but it is -2",
        ),
    ] {
        refused(&CONV2D, attrs, &[f32s(&[1, 2, 5, 5]), weight.clone()], message);
    }
    refused(
        &CONV2D,
        ConvAttrs { groups: 0, ..conv() },
        &[x, weight],
        "attribute `groups` must be at least 1, but it is 0",
    );
}

#[test]
fn pools_say_what_does_not_fit() {
    let x = f32s(&[1, 1, 3, 3]);
    refused(
        &MAX_POOL2D,
        MaxPoolAttrs::of_size(&[2, 4]),
        std::slice::from_ref(&x),
        "a window that spans 4 elements does not fit into dimension 3 of input `x`, \
         which is Tensor[(1, 1, 3, 3), float32], with padding 0 and 0",
    );
    refused(
        &AVG_POOL2D,
        AvgPoolAttrs { padding: vec![0, 2, 0, 0], ..AvgPoolAttrs::of_size(&[2, 2]) },
        &[x],
        "padding 2 and 0 must be less than the 2 elements that a window spans, \
         or there are windows without elements",
    );
}

#[test]
fn layers_say_what_does_not_fit() {
    refused(
        &DENSE,
        (),
        &[f32s(&[2, 3]), f32s(&[4, 5])],
        "input `weight`, which is Tensor[(4, 5), float32], takes vectors of 5, but the innermost \
         extent of input `x`, which is Tensor[(2, 3), float32], is 3",
    );
    let plain = || MatmulAttrs::default();
    refused(
        &MATMUL,
        plain(),
        &[f32s(&[2, 3]), f32s(&[4, 5])],
        "inputs `a`, Tensor[(2, 3), float32], and `b`, Tensor[(4, 5), float32], \
         cannot be multiplied: the inner extents 3 and 4 differ",
    );
    refused(
        &MATMUL,
        plain(),
        &[f32s(&[]), f32s(&[4])],
        "input `a` must not be a scalar, but it is Tensor[(), float32]",
    );
    refused(
        &MATMUL,
        MatmulAttrs { transpose_b: true, ..plain() },
        &[f32s(&[4]), f32s(&[4])],
        "attribute `transpose_b` has no meaning for a vector: input `b` is Tensor[(4), float32]",
    );
    refused(
        &BATCH_NORM,
        BatchNormAttrs::new(1, 0.0),
        &[f32s(&[2, 3]), f32s(&[3]), f32s(&[2]), f32s(&[3]), f32s(&[3])],
        "input `beta` must be Tensor[(3), float32] because of the channels of input `x`, \
         but it is Tensor[(2), float32]",
    );
    refused(
        &BIAS_ADD,
        BiasAddAttrs { axis: -1 },
        &[f32s(&[2, 3]), f32s(&[2])],
        "input `bias` must be Tensor[(3), float32] because of axis -1 of input `x`, \
         but it is Tensor[(2), float32]",
    );
    refused(
        &SOFTMAX,
        SoftmaxAttrs { axis: 2 },
        &[f32s(&[2, 3])],
        "axis 2 is out of range for input `x`, which is Tensor[(2, 3), float32]",
    );
    refused(
        &DROPOUT,
        DropoutAttrs { rate: f64::NAN },
        &[f32s(&[2])],
        "attribute `rate` must be from 0 to 1, but it is NaN",
    );
    refused(
        &CLIP,
        ClipAttrs { min: Some(f64::NAN), max: None },
        &[f32s(&[2])],
        "attribute `min` is NaN; leave it out for no bound",
    );
    refused(
        &LRN,
        LrnAttrs { size: 0, alpha: 1.0, beta: 1.0, bias: 1.0 },
        &[f32s(&[2, 3])],
        "attribute `size` must be at least 1, but it is 0",
    );
}

#[test]
fn moves_say_what_does_not_fit() {
    let x = || vec![f32s(&[2, 3])];
    refused(
        &RESHAPE,
        ReshapeAttrs { newshape: dims(&[4]) },
        &x(),
        "input `x` is Tensor[(2, 3), float32] and cannot take the shape (4): \
         the numbers of elements 6 and 4 differ",
    );
    refused(
        &RESHAPE,
        ReshapeAttrs { newshape: dims(&[-1, -6]) },
        &x(),
        "the result's dimension 0 would be -1, but a size cannot be negative",
    );
    refused(
        &RESHAPE,
        ReshapeAttrs { newshape: dims(&[6]) },
        &[symbolic(&["n", "3"])],
        "input `x` is Tensor[(n, 3), float32] and cannot take the shape (6): \
         the numbers of elements 3*n and 6 may differ; pin symbolic dimensions to numbers",
    );
    refused(
        &SQUEEZE,
        SqueezeAttrs { axis: vec![1] },
        &x(),
        "axis 1 of input `x`, which is Tensor[(2, 3), float32], cannot be squeezed: \
         its extent is 3, not 1",
    );
    refused(
        &EXPAND_DIMS,
        ExpandDimsAttrs { axis: vec![1, -3] },
        &x(),
        "axis -3 is listed twice in [1, -3]",
    );
    refused(
        &TRANSPOSE,
        TransposeAttrs { axes: vec![1] },
        &x(),
        "axes [1] must list each of the 2 axes of input `x`, which is Tensor[(2, 3), float32]",
    );
    refused(
        &CONCATENATE,
        ConcatenateAttrs { axis: 0 },
        &[f32s(&[2, 3]), f32s(&[2, 4])],
        "input `tensors[1]` is Tensor[(2, 4), float32], which must equal Tensor[(2, 3), float32], \
         the first, in every dimension but dimension 0",
    );
    refused(
        &SPLIT,
        SplitAttrs { axis: 1, sections: vec![1, 1] },
        &x(),
        "attribute `sections` [1, 1] must add up to 3, the extent of axis 1 of input `x`, \
         which is Tensor[(2, 3), float32]",
    );
    refused(
        &STRIDED_SLICE,
        StridedSliceAttrs { begin: vec![0], end: vec![1], strides: vec![0], axes: vec![0] },
        &x(),
        "attribute `strides` [0] has a zero",
    );
    refused(
        &STRIDED_SLICE,
        StridedSliceAttrs { begin: vec![0], end: vec![], strides: vec![1], axes: vec![0] },
        &x(),
        "attributes `begin`, `end`, `strides` and `axes` must have one length, \
         but they have [1, 0, 1, 1]",
    );
    refused(
        &PAD,
        PadAttrs { pad_width: vec![[0, 0], [-2, -2]], mode: PadMode::Constant },
        &x(),
        "attribute `pad_width` [[0, 0], [-2, -2]] removes more than the 3 elements of dimension 1",
    );
    refused(
        &SUM,
        ReduceAttrs { axis: vec![0, -2], keepdims: true },
        &x(),
        "axis -2 is listed twice in [0, -2]",
    );
    refused(
        &ARGMAX,
        ArgReduceAttrs { axis: 1, keepdims: true, select_last_index: false },
        &[f32s(&[2, 0])],
        "axis 1 of input `x`, which is Tensor[(2, 0), float32], is empty and so has no greatest \
         or smallest element",
    );
    refused(
        &FULL,
        FullAttrs { shape: dims(&[i64::MAX, 2]) },
        &[f32s(&[])],
        "the result Tensor[(9223372036854775807, 2), float32] would have more elements than \
         64 bits can count",
    );
}

#[test]
fn evaluation_refuses_results_beyond_its_memory() {
    let scalar = Tensor::from_floats(DType::F32, &[], vec![1.0]).unwrap();
    let attrs = Attrs::from_struct(&FullAttrs { shape: dims(&[1 << 20, 1 << 20]) }).unwrap();
    let error = FULL.evaluate(&attrs, &[Some(&scalar)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the result of `full` is Tensor[(1048576, 1048576), float32]: \
         more than the 268435456 elements that an evaluation may have"
    );
}

/// Numbers at which arithmetic goes wrong, and small ones that let a call through.
fn number() -> impl Strategy<Value = i64> {
    select(vec![
        0,
        1,
        1,
        1,
        2,
        2,
        3,
        -1,
        -2,
        5,
        i64::from(i32::MAX),
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
        i64::MIN + 1,
    ])
}

fn numbers() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), 0..4)
}

fn pair() -> impl Strategy<Value = [i64; 2]> {
    [number(), number()]
}

fn quad() -> impl Strategy<Value = [i64; 4]> {
    [number(), number(), number(), number()]
}

/// Infers and, where the extents are small, evaluates; whatever happens but a panic is right.
fn survive<A: Serialize>(op: &'static OpDef, attrs: A, shapes: &[Vec<i64>]) {
    let attrs = Attrs::from_struct(&attrs).unwrap();
    let types: Vec<TensorType> = shapes.iter().map(|shape| f32s(shape)).collect();
    let _ = infer(op, attrs.clone(), &types);
    let tensors: Option<Vec<Tensor>> = shapes
        .iter()
        .map(|shape| {
            let shape: Vec<usize> =
                shape.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
            let len = TensorType::from_consts(
                &shape.iter().map(|&d| d as i64).collect::<Vec<_>>(),
                DType::F32,
            )
            .num_elements()
            .filter(|&len| len <= 4096)?;
            let values = (0..len).map(|i| i as i128 % 3).collect();
            Tensor::from_elements(DType::F32, &shape, Elements::Int(values)).ok()
        })
        .collect();
    if let Some(tensors) = tensors {
        let args: Vec<Option<&Tensor>> = tensors.iter().map(Some).collect();
        let _ = op.evaluate(&attrs, &args);
    }
}

proptest! {
    #[test]
    fn hostile_windows_do_not_panic(
        x in quad(), weight in quad(), strides in pair(), padding in quad(), dilation in pair(),
        groups in number(), ceil_mode in any::<bool>(), count_include_pad in any::<bool>(),
    ) {
        let shapes = [x.to_vec(), weight.to_vec()];
        let window = Window::new(&weight[2..], &strides, &padding, &dilation).unwrap();
        survive(&CONV2D, ConvAttrs::new(&window, groups), &shapes);
        survive(&MAX_POOL2D, MaxPoolAttrs::new(&window, ceil_mode), &shapes[..1]);
        let avg = AvgPoolAttrs::new(&window, ceil_mode, count_include_pad);
        survive(&AVG_POOL2D, avg, &shapes[..1]);
        // Lists of any length.
        let conv = ConvAttrs { strides: padding.to_vec(), ..ConvAttrs::new(&window, groups) };
        survive(&CONV2D, conv, &shapes);
        let pool = MaxPoolAttrs { padding: strides.to_vec(), ..MaxPoolAttrs::new(&window, ceil_mode) };
        survive(&MAX_POOL2D, pool, &shapes[..1]);
    }

    #[test]
    fn hostile_moves_do_not_panic(
        x in numbers(), y in numbers(), a in numbers(), b in numbers(), c in numbers(),
        axis in number(), pads in prop::collection::vec(pair(), 0..4), keepdims in any::<bool>(),
        mode in select(vec![PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap]),
    ) {
        let (one, two) = ([x.clone()], [x.clone(), y.clone()]);
        survive(&ADD, (), &two);
        survive(&MATMUL, MatmulAttrs { transpose_a: keepdims, ..MatmulAttrs::default() }, &two);
        survive(&DENSE, (), &two);
        survive(&CONCATENATE, ConcatenateAttrs { axis }, &two);
        survive(&SOFTMAX, SoftmaxAttrs { axis }, &one);
        survive(&LRN, LrnAttrs { size: axis, alpha: 1.0, beta: 1.0, bias: 1.0 }, &one);
        survive(&RESHAPE, ReshapeAttrs { newshape: dims(&y) }, &one);
        survive(&BROADCAST_TO, BroadcastToAttrs { shape: dims(&y) }, &one);
        survive(&FULL, FullAttrs { shape: dims(&y) }, &[vec![]]);
        survive(&SQUEEZE, SqueezeAttrs { axis: a.clone() }, &one);
        survive(&EXPAND_DIMS, ExpandDimsAttrs { axis: a.clone() }, &one);
        survive(&TRANSPOSE, TransposeAttrs { axes: a.clone() }, &one);
        survive(&SUM, ReduceAttrs { axis: a.clone(), keepdims }, &one);
        let search = ArgReduceAttrs { axis, keepdims, select_last_index: keepdims };
        survive(&ARGMAX, search, &one);
        survive(&SPLIT, SplitAttrs { axis, sections: a.clone() }, &one);
        survive(&PAD, PadAttrs { pad_width: pads, mode }, &one);
        let axes = (0..a.len() as i64).collect();
        let slice = StridedSliceAttrs { begin: a, end: b, strides: c, axes };
        survive(&STRIDED_SLICE, slice, &one);
    }

    #[test]
    fn hostile_indices_do_not_panic(
        x in numbers(), indices in numbers(), depth in number(), axis in number(), size in pair(),
        image in quad(), scale in prop::option::of([any::<f64>(), any::<f64>()]),
        mode in select(vec![TakeMode::Fast, TakeMode::Clip, TakeMode::Wrap]),
        method in select(vec![
            ResizeMethod::NearestNeighbor, ResizeMethod::Linear, ResizeMethod::Cubic,
        ]),
    ) {
        let indices = Tensor::from_ints(
            DType::I64, &[indices.len()], indices.into_iter().map(i128::from).collect(),
        ).unwrap();
        let len: i64 = x.iter().fold(1, |len, &d| len.saturating_mul(d));
        if x.iter().all(|&d| d >= 0) && (0..4096).contains(&len) {
            let shape: Vec<usize> = x.iter().map(|&d| d as usize).collect();
            let x = Tensor::from_floats(DType::F32, &shape, vec![1.0; len as usize]).unwrap();
            let attrs = Attrs::from_struct(&TakeAttrs { axis, mode }).unwrap();
            let _ = TAKE.evaluate(&attrs, &[Some(&x), Some(&indices)]);
        }
        let scalar = Tensor::from_floats(DType::F32, &[], vec![1.0]).unwrap();
        let attrs = Attrs::from_struct(&OneHotAttrs { depth: depth.into(), axis }).unwrap();
        let _ = ONE_HOT.evaluate(&attrs, &[Some(&indices), Some(&scalar), Some(&scalar)]);
        let resize = Resize2dAttrs {
            size: size.map(Dim::from),
            scale,
            method,
            coordinate_transformation_mode: CoordinateTransformation::HalfPixel,
            rounding_method: NearestRounding::RoundPreferFloor,
            cubic_alpha: -0.75,
            cubic_exclude: true,
            antialias: true,
            roi: None,
            extrapolation_value: 0.0,
        };
        survive(&RESIZE2D, resize, &[image.to_vec()]);
    }
}
