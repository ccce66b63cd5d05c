//! Type relations over symbolic extents, values of shapes, and agreement with evaluation.

use proptest::prelude::*;

use super::call;
use crate::graph::interp::Tensor;
use crate::graph::{ExprId, FunctionBuilder};
use crate::ir::{Attrs, Constant, DType, Dim, Shape, TensorType, Type};
use crate::ops::elementwise::{ADD, CAST, CastAttrs, DIVIDE, EQUAL, LESS, MULTIPLY, WHERE};
use crate::ops::nn::{
    CONV2D, ConvAttrs, DENSE, MATMUL, MAX_POOL2D, MatmulAttrs, MaxPoolAttrs, PAD, PadAttrs, PadMode,
};
use crate::ops::reduce::{PROD, ReduceAttrs};
use crate::ops::tensor::{
    CONCATENATE, ConcatenateAttrs, EXPAND_DIMS, ExpandDimsAttrs, NDARRAY_SIZE, ONE_HOT,
    OneHotAttrs, RESHAPE, ReshapeAttrs, SHAPE_OF, STRIDED_SLICE, ShapeOfAttrs, StridedSliceAttrs,
    TAKE, TakeAttrs, TakeMode,
};
use crate::ops::{Op, OpDef};

/// Extents from text: numbers, symbols and expressions.
fn dims(text: &[&str]) -> Vec<Dim> {
    text.iter().map(|dim| dim.parse().unwrap()).collect()
}

fn f32s(text: &[&str]) -> Type {
    TensorType::new(Shape::new(dims(text)), DType::F32).into()
}

/// Checks the type of a call of tensors of floats.
#[track_caller]
fn typed<A: serde::Serialize>(op: &'static OpDef, attrs: A, args: &[&[&str]], expected: &[&str]) {
    let mut b = FunctionBuilder::new();
    let args: Vec<_> = args.iter().map(|arg| b.param("x", f32s(arg))).collect();
    let call = b.call(Op::new(op), &args, Attrs::from_struct(&attrs).unwrap()).unwrap();
    assert_eq!(*b.ty(call), f32s(expected));
}

#[test]
fn symbols_go_through_layers() {
    let conv =
        ConvAttrs { strides: vec![2, 1], padding: vec![1, 1, 1, 1], ..ConvAttrs::of_rank(2) };
    typed(
        &CONV2D,
        conv,
        &[&["n", "3", "h", "w"], &["8", "3", "3", "3"]],
        &["n", "8", "floordiv(h - 1, 2) + 1", "w"],
    );
    let pool = MaxPoolAttrs { strides: vec![2, 2], ..MaxPoolAttrs::of_size(&[2, 2]) };
    typed(&MAX_POOL2D, pool, &[&["n", "3", "2*h", "8"]], &["n", "3", "h", "4"]);
    typed(&DENSE, (), &[&["n", "s", "k"], &["10", "k"]], &["n", "s", "10"]);
    let plain = MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() };
    typed(&MATMUL, plain, &[&["b", "1", "s", "d"], &["h", "t", "d"]], &["b", "h", "s", "t"]);
    typed(&ADD, (), &[&["n", "1", "c"], &["m", "c"]], &["n", "m", "c"]);
    let pad = PadAttrs { pad_width: vec![[1, 2], [-1, 0]], mode: PadMode::Edge };
    typed(&PAD, pad, &[&["n", "m"]], &["n + 3", "m - 1"]);
    let newshape = dims(&["n", "2*m", "3"]);
    typed(&RESHAPE, ReshapeAttrs { newshape }, &[&["6*n", "m"]], &["n", "2*m", "3"]);
}

#[test]
fn ceil_mode_drops_windows_that_start_in_the_padding() {
    let pool = |extent: &str, expected: &str| {
        let attrs = MaxPoolAttrs {
            strides: vec![3, 1],
            padding: vec![0, 0, 1, 0],
            ceil_mode: true,
            ..MaxPoolAttrs::of_size(&[2, 1])
        };
        typed(&MAX_POOL2D, attrs, &[&["1", "1", extent, "1"]], &["1", "1", expected, "1"]);
    };
    // From 3 on a window starts at 3: it has an element of 4, and none of 3.
    pool("3", "1");
    pool("4", "2");
}

#[test]
fn slices_of_symbols_are_clamped() {
    let slice = |begin: i64, end: i64, stride: i64, expected: &[&str]| {
        let attrs = StridedSliceAttrs {
            begin: vec![begin],
            end: vec![end],
            strides: vec![stride],
            axes: vec![-1],
        };
        typed(&STRIDED_SLICE, attrs, &[&["2", "n"]], expected);
    };
    slice(0, i64::MAX, 1, &["2", "n"]);
    slice(0, i32::MAX.into(), 2, &["2", "floordiv(n + 1, 2)"]);
    slice(1, i64::MAX, 1, &["2", "max(n - 1, 0)"]);
    slice(-2, i64::MAX, 1, &["2", "min(n, 2)"]);
    slice(0, 3, 1, &["2", "min(n, 3)"]);
    slice(0, -1, 1, &["2", "max(n - 1, 0)"]);
    slice(-1, i64::MIN, -1, &["2", "n"]);
}

/// A function under construction, whose last expressions are shapes.
struct Builder(FunctionBuilder);

impl Builder {
    fn call<A: serde::Serialize>(
        &mut self,
        op: &'static OpDef,
        attrs: A,
        args: &[ExprId],
    ) -> ExprId {
        self.0.call(Op::new(op), args, Attrs::from_struct(&attrs).unwrap()).unwrap()
    }

    fn ints(&mut self, dims: &[i64], values: &[i64]) -> ExprId {
        self.0.constant(Constant::from_i64(dims, values).unwrap())
    }

    #[track_caller]
    fn has_value(&self, id: ExprId, expected: &[&str]) {
        let value = self.0.data_of(id).shape_value.as_deref();
        assert_eq!(value, Some(&dims(expected)[..]));
    }
}

#[test]
fn shapes_stay_symbolic_from_shape_to_reshape() {
    let mut b = Builder(FunctionBuilder::new());
    let x = b.0.param("x", f32s(&["n", "3", "h"]));
    let shape = b.call(&SHAPE_OF, ShapeOfAttrs { dtype: DType::I64 }, &[x]);
    b.has_value(shape, &["n", "3", "h"]);

    let (first, last) = (b.ints(&[], &[0]), b.ints(&[], &[-1]));
    let take = || TakeAttrs { axis: 0, mode: TakeMode::Fast };
    let n = b.call(&TAKE, take(), &[shape, first]);
    let h = b.call(&TAKE, take(), &[shape, last]);
    b.has_value(n, &["n"]);
    let three = b.ints(&[], &[3]);
    let product = b.call(&MULTIPLY, (), &[three, h]);
    b.has_value(product, &["3*h"]);

    let expand = || ExpandDimsAttrs { axis: vec![0] };
    let (n, product) =
        (b.call(&EXPAND_DIMS, expand(), &[n]), b.call(&EXPAND_DIMS, expand(), &[product]));
    let joined = b.call(&CONCATENATE, ConcatenateAttrs { axis: 0 }, &[n, product]);
    b.has_value(joined, &["n", "3*h"]);

    let newshape = b.0.data_of(joined).shape_value.as_deref().unwrap().to_vec();
    let y = b.call(&RESHAPE, ReshapeAttrs { newshape }, &[x]);
    assert_eq!(*b.0.ty(y), f32s(&["n", "3*h"]));
}

#[test]
fn one_size_among_others_is_marked_by_an_index() {
    let mut b = Builder(FunctionBuilder::new());
    let x = b.0.param("x", f32s(&["n"]));
    let n = b.call(&NDARRAY_SIZE, ShapeOfAttrs { dtype: DType::I64 }, &[x]);
    let one = b.ints(&[], &[1]);
    for (index, expected) in [(1, ["1", "n", "1"]), (-1, ["1", "1", "n"]), (3, ["1"; 3])] {
        let index = b.ints(&[1], &[index]);
        let attrs = OneHotAttrs { depth: Dim::from(3), axis: -1 };
        let repeats = b.call(&ONE_HOT, attrs, &[index, n, one]);
        b.has_value(repeats, &expected);
    }
}

#[test]
fn values_go_through_casts_slices_products_and_division() {
    let mut b = Builder(FunctionBuilder::new());
    let x = b.0.param("x", f32s(&["n", "6", "h", "4"]));
    let shape = b.call(&SHAPE_OF, ShapeOfAttrs { dtype: DType::I64 }, &[x]);
    let narrow = b.call(&CAST, CastAttrs::to(DType::I32), &[shape]);
    b.has_value(narrow, &["n", "6", "h", "4"]);
    let float = b.call(&CAST, CastAttrs::to(DType::F32), &[shape]);
    // Some exporters compute with extents as floats.
    b.has_value(float, &["n", "6", "h", "4"]);
    let four = b.0.constant(Constant::from_f32(&[1], &[4.0]).unwrap());
    let times = b.call(&MULTIPLY, (), &[float, four]);
    b.has_value(times, &["4*n", "24", "4*h", "16"]);
    let exact = b.call(&DIVIDE, (), &[times, four]);
    b.has_value(exact, &["n", "6", "h", "4"]);
    let parts = b.call(&DIVIDE, (), &[float, four]);
    assert_eq!(b.0.data_of(parts).shape_value, None);
    let half = b.call(&CAST, CastAttrs::to(DType::F16), &[shape]);
    assert_eq!(b.0.data_of(half).shape_value, None);

    let tail =
        StridedSliceAttrs { begin: vec![-1], end: vec![0], strides: vec![-1], axes: vec![0] };
    let tail = b.call(&STRIDED_SLICE, tail, &[shape]);
    b.has_value(tail, &["4", "h", "6"]);
    let product = b.call(&PROD, ReduceAttrs { axis: vec![], keepdims: false }, &[tail]);
    b.has_value(product, &["24*h"]);
    let size = b.call(&NDARRAY_SIZE, ShapeOfAttrs { dtype: DType::I64 }, &[x]);
    b.has_value(size, &["24*h*n"]);

    let five = b.ints(&[1], &[-5]);
    let half = b.ints(&[1], &[2]);
    let quotient = b.call(&DIVIDE, (), &[size, half]);
    b.has_value(quotient, &["12*h*n"]);
    // Quotients of what may be negative are rounded towards zero.
    let sum = b.call(&ADD, (), &[tail, five]);
    let quotient = b.call(&DIVIDE, (), &[sum, half]);
    b.has_value(quotient, &["0", "max((h - 5) // 2, 0) - max((5 - h) // 2, 0)", "0"]);
    let quotient = b.call(&DIVIDE, (), &[five, half]);
    b.has_value(quotient, &["-2"]);
}

#[test]
fn comparisons_of_extents_choose_where_facts_decide() {
    let mut b = Builder(FunctionBuilder::new());
    let x = b.0.param("x", f32s(&["n", "6"]));
    let shape = b.call(&SHAPE_OF, ShapeOfAttrs { dtype: DType::I64 }, &[x]);
    let (minus, ones) = (b.ints(&[2], &[-1, 6]), b.ints(&[2], &[1, 1]));
    // How PyTorch exports `expand`: -1 stands for the extent as it is, and no extent is negative.
    let same = b.call(&EQUAL, (), &[shape, minus]);
    b.has_value(same, &["0", "1"]);
    let chosen = b.call(&WHERE, (), &[same, ones, shape]);
    b.has_value(chosen, &["n", "1"]);
    let unknown = b.call(&EQUAL, (), &[shape, ones]);
    assert_eq!(b.0.data_of(unknown).shape_value, None);
    let zero = b.ints(&[], &[0]);
    let less = b.call(&LESS, (), &[shape, zero]);
    b.has_value(less, &["0", "0"]);
}

#[test]
fn values_that_leave_their_type_are_not_claimed() {
    let mut b = Builder(FunctionBuilder::new());
    let big = b.ints(&[2], &[i64::MAX, 300]);
    let one = b.ints(&[1], &[1]);
    let sum = b.call(&ADD, (), &[big, one]);
    assert_eq!(b.0.data_of(sum).shape_value, None);
    let narrow = b.call(&CAST, CastAttrs::to(DType::I8), &[big]);
    assert_eq!(b.0.data_of(narrow).shape_value, None);
}

fn extents() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop::sample::select(vec![1usize, 1, 2, 3, 0]), 0..4)
}

proptest! {
    /// Index by index, against the definition of broadcasting.
    #[test]
    fn broadcasting_agrees_with_its_definition(a in extents(), b in extents()) {
        let tensor = |shape: &[usize], start: i128| {
            let len = shape.iter().product::<usize>() as i128;
            Tensor::from_ints(DType::I64, shape, (start..start + len).collect()).unwrap()
        };
        let (x, y) = (tensor(&a, 0), tensor(&b, 1000));
        let rank = a.len().max(b.len());
        let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let (a, b) = (padded(&a), padded(&b));
        let compatible = a.iter().zip(&b).all(|(a, b)| a == b || *a == 1 || *b == 1);
        let result = call(&ADD, &(), &[x.clone(), y.clone()]);
        prop_assert_eq!(result.is_ok(), compatible);
        let Ok(result) = result else { return Ok(()) };

        let shape: Vec<usize> =
            a.iter().zip(&b).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
        prop_assert_eq!(result[0].shape(), &shape[..]);
        let values = result[0].ints().unwrap();
        for (flat, &value) in values.iter().enumerate() {
            let (mut rest, mut at, mut bt, mut a_step, mut b_step) = (flat, 0, 0, 1, 1);
            for axis in (0..rank).rev() {
                let index = rest % shape[axis];
                rest /= shape[axis];
                at += if a[axis] == 1 { 0 } else { index * a_step };
                bt += if b[axis] == 1 { 0 } else { index * b_step };
                a_step *= a[axis];
                b_step *= b[axis];
            }
            prop_assert_eq!(value, x.ints().unwrap()[at] + y.ints().unwrap()[bt]);
        }
    }

    /// The extent of a slice of a symbol is that of the slice once the symbol has its value.
    #[test]
    fn slices_of_symbols_agree_with_slices_of_numbers(
        extent in 0i64..6, begin in -8i64..8, end in -8i64..8,
        stride in prop::sample::select(vec![-3i64, -2, -1, 1, 2, 3]),
        open in any::<bool>(),
    ) {
        let end = match (open, stride > 0) {
            (true, true) => i64::MAX,
            (true, false) => i64::MIN,
            (false, _) => end,
        };
        let infer = |dim: Dim| {
            let attrs = StridedSliceAttrs {
                begin: vec![begin], end: vec![end], strides: vec![stride], axes: vec![0],
            };
            let mut b = FunctionBuilder::new();
            let x = b.param("x", TensorType::new(Shape::new([dim]), DType::F32));
            let y = b.call(Op::new(&STRIDED_SLICE), &[x], Attrs::from_struct(&attrs).unwrap());
            b.ty(y.unwrap()).as_tensor().unwrap().shape[0].clone()
        };
        let symbolic = infer(Dim::symbol("n")).eval(&|_| Some(extent));
        prop_assert_eq!(symbolic.ok(), infer(Dim::from(extent)).as_const());
    }
}
