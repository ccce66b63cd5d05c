//! `strided_slice`: every so many elements between two bounds along some axes (ONNX `Slice`, with
//! constant bounds).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, ComputeError, Stages, extent_of};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, offsets};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};
use crate::tir::{BinaryOp, PrimExpr};

/// An end from which on it means "to the end", whatever the extent.
///
/// ONNX recommends the greatest value of the index type for this; no tensor has an axis this long.
const TO_THE_END: i64 = i32::MAX as i64;

/// Attributes of `strided_slice`: lists of equal lengths.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StridedSliceAttrs {
    /// The first element along each axis; a negative one counts from the end.
    pub begin: Vec<i64>,
    /// Where the slice ends, excluded; a negative one counts from the end. Both bounds are clamped
    /// to the extent.
    pub end: Vec<i64>,
    /// The step along each axis, not zero; a negative one goes backwards.
    pub strides: Vec<i64>,
    /// The axes, counted from either end, each at most once; the other axes stay whole.
    pub axes: Vec<i64>,
}

/// The slice along one axis.
#[derive(Clone, Copy)]
struct Range {
    begin: i64,
    end: i64,
    stride: i64,
}

impl Range {
    const WHOLE: Range = Range { begin: 0, end: i64::MAX, stride: 1 };

    /// The index of the first element and the number of elements, for an extent that is a number.
    fn resolve(self, extent: i64) -> (i64, i64) {
        // A declared type may be anything; the result's extents are checked.
        let extent = extent.max(0);
        let from_end = |bound: i64| if bound < 0 { bound.saturating_add(extent) } else { bound };
        let (begin, end) = (from_end(self.begin), from_end(self.end));
        if self.stride > 0 {
            let (begin, end) = (begin.clamp(0, extent), end.clamp(0, extent));
            (begin, (end - begin).max(0).unsigned_abs().div_ceil(self.stride.unsigned_abs()) as i64)
        } else {
            let last = extent - 1;
            let (begin, end) = (begin.max(0).min(last), end.clamp(-1, last));
            (begin, (begin - end).max(0).unsigned_abs().div_ceil(self.stride.unsigned_abs()) as i64)
        }
    }

    /// The index of the first element, if there is one, for an extent that a run says. The expression has the
    /// same form for all extents.
    fn first(self, extent: i64) -> PrimExpr {
        let binary = |op, lhs: PrimExpr, rhs: PrimExpr| PrimExpr::Binary {
            op,
            lhs: Box::new(lhs),
            rhs: Box::new(rhs),
        };
        let at =
            |from_end| binary(BinaryOp::Add, extent_of(extent, true), PrimExpr::index(from_end));
        let most = if self.stride > 0 { extent_of(extent, true) } else { at(-1) };
        match self.begin {
            0 if self.stride > 0 => PrimExpr::index(0),
            begin @ 0.. => binary(BinaryOp::Min, PrimExpr::index(begin), most),
            begin => {
                let within = binary(BinaryOp::Max, at(begin), PrimExpr::index(0));
                binary(BinaryOp::Min, within, most)
            }
        }
    }

    /// The number of elements, for any extent.
    fn len(self, extent: &Dim) -> Dim {
        if let Some(extent) = extent.as_const() {
            return Dim::from(self.resolve(extent).1);
        }
        let zero = Dim::from(0i64);
        let step = Dim::from(self.stride.saturating_abs());
        let span = if self.stride > 0 {
            let whole = self.end >= TO_THE_END;
            match (self.begin, whole) {
                (0, true) => extent.clone(),
                (begin @ 1.., true) => (extent - begin).maximum(&zero),
                (begin @ ..=-1, true) => extent.minimum(&-Dim::from(begin)),
                _ => {
                    let clamp = |bound: i64| match bound {
                        0 => zero.clone(),
                        TO_THE_END.. => extent.clone(),
                        1.. => extent.minimum(&Dim::from(bound)),
                        _ => (extent + bound).maximum(&zero),
                    };
                    (clamp(self.end) - clamp(self.begin)).maximum(&zero)
                }
            }
        } else {
            let last = extent - 1;
            let begin = match self.begin {
                -1 | TO_THE_END.. => last.clone(),
                0.. => last.minimum(&Dim::from(self.begin)),
                _ => (extent + self.begin).maximum(&zero).minimum(&last),
            };
            let end = match self.end {
                // As far below the end as no extent reaches: down to the first element.
                end if end <= -TO_THE_END => Dim::from(-1i64),
                0.. => last.minimum(&Dim::from(self.end)),
                _ => (extent + self.end).maximum(&Dim::from(-1i64)),
            };
            let span = begin - end;
            if span == *extent { span } else { span.maximum(&zero) }
        };
        span.ceil_div(&step)
    }
}

/// The slice along each axis, for axes that are given as indices.
fn ranges(attrs: &StridedSliceAttrs, rank: usize, axes: &[usize]) -> Vec<Range> {
    let mut ranges = vec![Range::WHOLE; rank];
    let bounds = attrs.begin.iter().zip(&attrs.end).zip(&attrs.strides);
    for (&axis, ((&begin, &end), &stride)) in axes.iter().zip(bounds) {
        ranges[axis] = Range { begin, end, stride };
    }
    ranges
}

/// Slices along some axes, with numpy's and ONNX's meaning of negative and too large bounds.
pub static STRIDED_SLICE: OpDef = OpDef::new(
    "strided_slice",
    "every so many elements between two bounds",
    X,
    infer,
    eval,
    compute,
)
.attributes::<StridedSliceAttrs>()
.pattern(OpPattern::Injective)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: StridedSliceAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let lengths = [attrs.begin.len(), attrs.end.len(), attrs.strides.len(), attrs.axes.len()];
    ensure!(
        lengths.iter().all(|&len| len == lengths[0]),
        "attributes `begin`, `end`, `strides` and `axes` must have one length, \
         but they have {lengths:?}"
    );
    ensure!(!attrs.strides.contains(&0), "attribute `strides` {:?} has a zero", attrs.strides);
    cx.axis_mask(0, &attrs.axes)?;
    let axes: Vec<usize> =
        attrs.axes.iter().map(|&axis| cx.axis(0, axis)).collect::<Result<_, _>>()?;
    let ranges = ranges(&attrs, x.shape.rank(), &axes);
    cx.result(x.shape.iter().zip(ranges).map(|(dim, range)| range.len(dim)), x.dtype)
}

fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: StridedSliceAttrs = cx.attrs().ok()?;
    let (dims, ty) = values::value(cx, 0)?;
    let axes: Option<Vec<usize>> = attrs.axes.iter().map(|&axis| cx.axis(0, axis).ok()).collect();
    let shape = values::usizes(&ty.shape)?;
    let View { shape, strides, start } = view(&ranges(&attrs, shape.len(), &axes?), &shape);
    values::picked(dims, offsets(&shape, &strides, start))
}

/// The elements of a dense tensor that a slice has.
struct View {
    shape: Vec<usize>,
    strides: Vec<isize>,
    start: usize,
}

/// What ranges of the axes of a shape are.
fn view(ranges: &[Range], shape: &[usize]) -> View {
    let mut strides = dense_strides(shape);
    let mut view = View { shape: Vec::with_capacity(shape.len()), strides: Vec::new(), start: 0 };
    for (axis, range) in ranges.iter().enumerate() {
        let (begin, len) = range.resolve(shape[axis] as i64);
        if len > 0 {
            // Of a tensor without elements any product of extents may leave the range.
            let before = (begin as usize).wrapping_mul(strides[axis] as usize);
            view.start = before.wrapping_add(view.start);
        }
        view.shape.push(usize::try_from(len).unwrap_or(0));
        strides[axis] = strides[axis].wrapping_mul(range.stride as isize);
    }
    View { strides, ..view }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: StridedSliceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axes: Vec<usize> =
        attrs.axes.iter().map(|&axis| axis_of(x, axis)).collect::<Result<_, _>>()?;
    let View { strides, start, .. } = view(&ranges(&attrs, x.shape().len(), &axes), x.shape());
    cx.picked(x, offsets(cx.shape(), &strides, start))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: StridedSliceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let shape = cx.dag.shape(x).to_vec();
    let mut starts = vec![(PrimExpr::index(0), 1i64); shape.len()];
    for (position, &axis) in attrs.axes.iter().enumerate() {
        let axis = cx.axis(axis, shape.len())?;
        let stride = attrs.strides.get(position).copied().unwrap_or(1);
        let missing = || ComputeError("`strided_slice` has fewer starts than axes".into());
        let begin = attrs.begin.get(position).copied().ok_or_else(missing)?;
        let extent = shape[axis];
        // Where it ends, the shape of the result says.
        let range = Range { begin, end: 0, stride };
        let first = match cx.open_args.first().is_some_and(|open| open.contains(&axis)) {
            true => range.first(extent),
            false => PrimExpr::index(range.resolve(extent).0),
        };
        starts[axis] = (first, stride);
    }
    cx.element(|dag, index| {
        let at: Vec<PrimExpr> = index
            .iter()
            .zip(&starts)
            .map(|(i, (begin, stride))| i.clone() * *stride + begin.clone())
            .collect();
        dag.at(x, &at)
    })
}
