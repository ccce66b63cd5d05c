//! Quantised tensors: `qnn.quantize`, `qnn.dequantize` and `qnn.requantize`, named as in TVM.
//!
//! A quantised tensor holds small numbers `q` that stand for `(q − zero_point) · scale`. Scale and
//! zero point are arguments, as a model may compute them: one for the whole tensor, one for each
//! index of an axis, or one for each block of neighbours along an axis.
//!
//! There are no convolutions and matrix products of quantised tensors: `nn.conv2d` and `nn.matmul` of
//! 8-bit integers have exact sums of 32 bits (attribute `out_dtype`), to which what zero points
//! contribute is added as a bias, and `qnn.requantize` brings them back. Of floats and a quantised
//! matrix there is `qnn.dequantize_matmul`.

mod product;
pub(crate) mod weights;

pub use product::{DEQUANTIZE_MATMUL, DequantizeMatmulAttrs};

use serde::{Deserialize, Serialize};

use super::compute::{Compute, ComputeError, Stages};
use super::elementwise::{CastAttrs, cast};
use super::eval::{AxisSplit, EvalCx};
use super::relation::{DTypes, is_one};
use super::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor, round_float};
use crate::ir::small_float::SmallFloat;
use crate::ir::{Attrs, DType, Dim, TensorType, Type};
use crate::te::{ComputeDag, StageId};
use crate::tir::{Intrinsic, PrimExpr};

/// Attributes of `qnn.quantize`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizeAttrs {
    /// The axis along which scales differ, counted from either end.
    pub axis: i64,
    /// Neighbours along the axis that have one scale in common; 0 if scales do not differ in blocks.
    pub block_size: i64,
    /// The data type of the result: an integer of at most 16 bits, or a float of at most 8.
    pub dtype: DType,
    /// The data type in which the elements are divided by the scale; the scale's if there is none.
    pub precision: Option<DType>,
    /// Whether what is beyond the greatest 8-bit float becomes that; else infinity or NaN.
    pub saturate: bool,
}

/// Attributes of `qnn.dequantize`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DequantizeAttrs {
    /// The axis along which scales differ, counted from either end.
    pub axis: i64,
    /// Neighbours along the axis that have one scale in common; 0 if scales do not differ in blocks.
    pub block_size: i64,
    /// The data type of the result: a float of at least 16 bits.
    pub dtype: DType,
}

/// Attributes of `qnn.requantize`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequantizeAttrs {
    /// The first axis along which scales differ, counted from either end: there are as many of these
    /// axes as the scales have.
    pub axis: i64,
    /// The data type of the result: an integer of at most 16 bits.
    pub dtype: DType,
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("scale"), Input::optional("zero_point")];

/// `round(x / scale) + zero_point`, halves to even, within the range of the result. Results that are
/// floats are rounded to their type instead.
pub static QUANTIZE: OpDef = OpDef::new(
    "qnn.quantize",
    "quotients with a scale, in a small type",
    INPUTS,
    infer_quantize,
    eval_quantize,
    compute_quantize,
)
.attributes::<QuantizeAttrs>()
.defaults(|| Attrs::new().with("block_size", 0).with("saturate", true))
.pattern(OpPattern::Broadcast);

/// `(x − zero_point) · scale`.
pub static DEQUANTIZE: OpDef = OpDef::new(
    "qnn.dequantize",
    "the numbers that quantised elements stand for",
    INPUTS,
    infer_dequantize,
    eval_dequantize,
    compute_dequantize,
)
.attributes::<DequantizeAttrs>()
.defaults(|| Attrs::new().with("block_size", 0))
.pattern(OpPattern::Broadcast);

/// `round(x · scale) + zero_point`, halves to even, within the range of the result: from the sums of
/// a quantised product to quantised elements. The scale is that of the sums divided by that of the
/// result.
pub static REQUANTIZE: OpDef = OpDef::new(
    "qnn.requantize",
    "products with a scale, in a small integer type",
    INPUTS,
    infer_requantize,
    eval_requantize,
    compute_requantize,
)
.attributes::<RequantizeAttrs>()
.pattern(OpPattern::Broadcast);

/// Checks that there is a scale, or one for each index of at most so many axes side by side or block of
/// an axis, and one zero point or as many, of the given type.
fn check_scales(
    cx: &InferCx<'_>,
    axis: i64,
    most_axes: usize,
    block_size: i64,
    zero_point: DType,
) -> Result<(), TypeError> {
    let x = cx.tensor(0)?;
    let scale = cx.tensor_of(1, DTypes::Float)?;
    let is_single = scale.shape.iter().all(is_one);
    if !is_single || block_size != 0 {
        let axis = cx.axis(0, axis)?;
        let expected: Vec<Dim> = if block_size == 0 {
            let axes = scale.shape.rank().clamp(1, most_axes.min(x.shape.rank() - axis));
            x.shape[axis..axis + axes].to_vec()
        } else {
            ensure!(
                block_size > 0,
                "attribute `block_size` must not be negative, but it is {block_size}"
            );
            let mut dims = x.shape.to_vec();
            dims[axis] = (dims[axis].clone() + (block_size - 1)).floor_div(&Dim::from(block_size));
            dims
        };
        let fits = scale.shape.rank() == expected.len()
            && scale.shape.iter().zip(&expected).all(|(a, b)| cx.same(a, b));
        ensure!(
            fits,
            "input `scale` must be one number or {} for input `x`, which is {x}, axis {axis} and \
             blocks of {block_size}, but it is {scale}",
            TensorType::new(expected.into_iter().collect(), scale.dtype)
        );
    }
    let expected = TensorType::new(scale.shape.clone(), zero_point);
    match cx.optional_tensor(2)? {
        // One zero point does for any number of scales.
        Some(given) if given.shape.iter().all(is_one) => {
            ensure!(
                given.dtype == zero_point,
                "input `zero_point` must hold {zero_point}, but it is {given}"
            );
            Ok(())
        }
        _ => cx.expect_type(2, &expected, "input `scale` and the quantised type"),
    }
}

/// Whether quantised elements may have the type.
fn is_quantised(dtype: DType) -> bool {
    (dtype.is_int() && dtype.bits() <= 16)
        || (dtype.is_float() && dtype.bits() <= 8 && dtype != DType::F8E8M0)
}

fn infer_quantize(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: QuantizeAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Numeric)?;
    ensure!(is_quantised(attrs.dtype), "elements cannot be quantised to {}", attrs.dtype);
    let precision = attrs.precision.unwrap_or(DType::F32);
    ensure!(
        precision.is_float() && !precision.is_storage_only(),
        "attribute `precision` must be a float of at least 16 bits, but it is {precision}"
    );
    check_scales(cx, attrs.axis, 1, attrs.block_size, attrs.dtype)?;
    Ok(TensorType::new(x.shape.clone(), attrs.dtype).into())
}

fn infer_dequantize(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: DequantizeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    ensure!(
        is_quantised(x.dtype) || x.dtype == DType::I32,
        "input `x` must hold quantised elements, but it is {x}"
    );
    ensure!(
        attrs.dtype.is_float() && !attrs.dtype.is_storage_only(),
        "attribute `dtype` must be a float of at least 16 bits, but it is {}",
        attrs.dtype
    );
    check_scales(cx, attrs.axis, 1, attrs.block_size, x.dtype)?;
    Ok(TensorType::new(x.shape.clone(), attrs.dtype).into())
}

fn infer_requantize(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: RequantizeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    ensure!(x.dtype == DType::I32, "input `x` must hold int32, but it is {x}");
    ensure!(
        attrs.dtype.is_int() && is_quantised(attrs.dtype),
        "attribute `dtype` must be an integer of at most 16 bits, but it is {}",
        attrs.dtype
    );
    check_scales(cx, attrs.axis, usize::MAX, 0, attrs.dtype)?;
    Ok(TensorType::new(x.shape.clone(), attrs.dtype).into())
}

/// The zero point at the position of a scale.
fn zero_at<T: Copy>(zeros: Option<&[T]>, position: usize, none: T) -> T {
    match zeros {
        None => none,
        Some(&[single]) => single,
        Some(zeros) => zeros.get(position).copied().unwrap_or(none),
    }
}

/// For each element the position of its scale.
fn scale_positions(
    cx: &EvalCx<'_>,
    axis: i64,
    block_size: i64,
) -> Result<impl Fn(usize) -> usize, EvalError> {
    let (x, scale) = (cx.arg(0)?, cx.arg(1)?);
    let single = scale.len() == 1;
    // The axis of a scalar is of no interest.
    let split = match x.shape() {
        [] => AxisSplit { outer: 1, extent: 1, inner: 1 },
        shape => match crate::ir::normalize_axis(axis, shape.len()) {
            Some(axis) => AxisSplit::new(shape, axis),
            None => AxisSplit::new(shape, 0),
        },
    };
    let AxisSplit { outer: _, mut extent, mut inner } = split;
    if let [_, more @ ..] = scale.shape()
        && block_size == 0
    {
        // Scales of several axes.
        let more: usize = more.iter().product();
        (extent, inner) = (extent * more, inner / more.max(1));
    }
    let block = usize::try_from(block_size).unwrap_or(0);
    Ok(move |element: usize| {
        let (along, after) = (element / inner.max(1) % extent.max(1), element % inner.max(1));
        match (single, block) {
            (true, _) => 0,
            (false, 0) => along,
            (false, block) => {
                let before = element / (inner * extent).max(1);
                (before * extent.div_ceil(block) + along / block) * inner + after
            }
        }
    })
}

/// The elements of a tensor, integers among them, as floats.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.elements() {
        Elements::Float(values) => values.clone(),
        Elements::Int(values) => values.iter().map(|&v| v as f64).collect(),
    }
}

/// The nearest integer, moved by the zero point, within the range of a type; 0 for NaN.
fn to_range(value: f64, zero_point: i128, dtype: DType) -> i128 {
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    if value.is_nan() {
        return 0i128.clamp(low, high);
    }
    (value.round_ties_even() as i128).saturating_add(zero_point).clamp(low, high)
}

fn eval_quantize(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: QuantizeAttrs = cx.attrs()?;
    let position = scale_positions(cx, attrs.axis, attrs.block_size)?;
    let scale = cx.floats(1)?;
    let precision = attrs.precision.unwrap_or(cx.arg(1)?.dtype());
    // In 64 bits, a quotient of shorter floats rounds to them as the exact one would.
    let quotient = |index: usize, x: f64| {
        let scale = round_float(scale[position(index)], precision);
        round_float(round_float(x, precision) / scale, precision)
    };
    let x = numbers(cx.arg(0)?);
    let quotients = x.iter().enumerate().map(|(index, &x)| quotient(index, x));
    if attrs.dtype.is_int() {
        let zeros = cx.optional(2).map(|_| cx.ints(2)).transpose()?;
        let zero = |index| zero_at(zeros, position(index), 0);
        let values =
            quotients.enumerate().map(|(index, q)| to_range(q, zero(index), attrs.dtype)).collect();
        return cx.result(Elements::Int(values));
    }
    let zeros = cx.optional(2).map(|_| cx.floats(2)).transpose()?;
    let limit = SmallFloat::of(attrs.dtype).filter(|_| attrs.saturate).map(SmallFloat::max_value);
    let values = quotients.enumerate().map(|(index, q)| {
        let moved = q + zero_at(zeros, position(index), 0.0);
        limit.map_or(moved, |limit| moved.clamp(-limit, limit))
    });
    cx.result(Elements::Float(values.collect()))
}

fn eval_dequantize(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: DequantizeAttrs = cx.attrs()?;
    let position = scale_positions(cx, attrs.axis, attrs.block_size)?;
    let scale = cx.floats(1)?;
    let zeros = cx.optional(2).map(numbers);
    let computed = computed_in(cx.arg(1)?.dtype());
    let values = numbers(cx.arg(0)?).into_iter().enumerate().map(|(index, x)| {
        let at = position(index);
        let zero = zero_at(zeros.as_deref(), at, 0.0);
        round_float(round_float(x - zero, computed) * scale[at], computed)
    });
    cx.result(Elements::Float(values.collect()))
}

fn eval_requantize(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: RequantizeAttrs = cx.attrs()?;
    let position = scale_positions(cx, attrs.axis, 0)?;
    let scale = cx.floats(1)?;
    let zeros = cx.optional(2).map(|_| cx.ints(2)).transpose()?;
    let computed = computed_in(cx.arg(1)?.dtype());
    let values = cx.ints(0)?.iter().enumerate().map(|(index, &x)| {
        let at = position(index);
        let product = round_float(round_float(x as f64, computed) * scale[at], computed);
        to_range(product, zero_at(zeros, at, 0), attrs.dtype)
    });
    cx.result(Elements::Int(values.collect()))
}

/// The type in which numbers are multiplied with scales of a type.
pub(crate) fn computed_in(scale: DType) -> DType {
    if scale == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Where the scales of elements are.
struct Scales {
    axis: usize,
    /// Elements of one scale along the axis; 0 without blocks.
    block_size: i64,
}

impl Scales {
    fn new(cx: &Compute<'_>, axis: i64, block_size: i64) -> Result<Scales, ComputeError> {
        let (x, scale) = (cx.arg(0)?, cx.arg(1)?);
        let single = cx.dag.shape(scale).iter().all(|&extent| extent == 1);
        // One scale may come without an axis that the tensor has.
        let axis = if single { 0 } else { cx.axis(axis, cx.dag.shape(x).len())? };
        Ok(Scales { axis, block_size })
    }

    /// The scale or zero point of the element at an index.
    fn at(&self, dag: &ComputeDag, stage: StageId, index: &[PrimExpr]) -> PrimExpr {
        let shape = dag.shape(stage);
        if shape.iter().all(|&extent| extent == 1) {
            return dag.at(stage, &vec![PrimExpr::index(0); shape.len()]);
        }
        if self.block_size == 0 {
            return dag.at(stage, &index[self.axis..self.axis + shape.len()]);
        }
        let mut at = index.to_vec();
        at[self.axis] = at[self.axis].clone().floordiv(self.block_size);
        dag.at(stage, &at)
    }
}

/// The nearest integer, moved by the zero point, within the range of the type.
fn expr_to_range(value: PrimExpr, zero: Option<PrimExpr>, dtype: DType, held: DType) -> PrimExpr {
    let wide = value.dtype();
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let nearest = PrimExpr::call(Intrinsic::Round, value);
    // Numbers near the range are exact in floats, and others are cut off on the right side.
    let moved = match zero {
        Some(zero) => nearest + zero.cast(wide),
        None => nearest,
    };
    if dtype == held {
        // Conversions to integers end at the type's range.
        return moved.cast(held);
    }
    let bound = |value: i128| PrimExpr::float(value as f64, wide);
    // The operand is on the right: a NaN passes, and becomes zero.
    bound(high).min(bound(low).max(moved)).cast(held)
}

fn compute_quantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: QuantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, attrs.block_size)?;
    let precision = attrs.precision.unwrap_or(cx.dag.dtype(scale));
    let wide = computed_in(precision);
    let (_, held) = cx.result();
    cx.element(|dag, index| {
        // A cast to a type that is computed in a wider one rounds.
        let rounded = |value: PrimExpr| value.cast(precision).cast(wide);
        let x = rounded(dag.at(x, index));
        let quotient = x / rounded(scales.at(dag, scale, index));
        let quotient = rounded(quotient);
        let zero = zero.map(|zero| scales.at(dag, zero, index));
        if attrs.dtype.is_int() {
            return expr_to_range(quotient, zero, attrs.dtype, held);
        }
        let moved = match zero {
            Some(zero) => quotient + zero.cast(wide),
            None => quotient,
        };
        let to = CastAttrs { saturate: attrs.saturate, ..CastAttrs::to(attrs.dtype) };
        cast(moved, &to)
    })
}

fn compute_dequantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: DequantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, attrs.block_size)?;
    let wide = computed_in(cx.dag.dtype(scale));
    // Differences of small integers are exact in integers and in floats.
    let between = if cx.dag.dtype(x).is_int() { DType::I32 } else { wide };
    cx.element(|dag, index| {
        let x = dag.at(x, index).cast(between);
        let difference = match zero {
            Some(zero) => x - scales.at(dag, zero, index).cast(between),
            None => x,
        };
        let scale = scales.at(dag, scale, index).cast(wide);
        (difference.cast(wide) * scale).cast(attrs.dtype)
    })
}

fn compute_requantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: RequantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, 0)?;
    let wide = computed_in(cx.dag.dtype(scale));
    let (_, held) = cx.result();
    cx.element(|dag, index| {
        let scale = scales.at(dag, scale, index).cast(wide);
        let product = dag.at(x, index).cast(wide) * scale;
        let zero = zero.map(|zero| scales.at(dag, zero, index));
        expr_to_range(product, zero, attrs.dtype, held)
    })
}
