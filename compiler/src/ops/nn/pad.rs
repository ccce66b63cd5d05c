//! `nn.pad`: elements around a tensor (ONNX `Pad`, with constant widths).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, dense_strides, floats, ints, num_elements};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// What is put around a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// The element that input `fill` gives, or zero.
    Constant,
    /// The nearest element.
    Edge,
    /// The elements mirrored at the first and the last, which are not repeated.
    Reflect,
    /// The elements from the other end.
    Wrap,
}

/// Attributes of `nn.pad`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadAttrs {
    /// For each axis the number of elements before and after; negative ones are removed instead.
    pub pad_width: Vec<[i64; 2]>,
    /// What is put around the tensor.
    pub mode: PadMode,
}

impl PadMode {
    /// The place along an axis of `extent` that is read for place `index`, or `None` for the fill.
    fn source(self, index: i64, extent: i64) -> Option<i64> {
        if (0..extent).contains(&index) {
            return Some(index);
        }
        match self {
            PadMode::Constant => None,
            PadMode::Edge => Some(index.clamp(0, extent - 1)),
            PadMode::Wrap => Some(index.rem_euclid(extent)),
            PadMode::Reflect if extent == 1 => Some(0),
            PadMode::Reflect => {
                let turn = 2 * (extent - 1);
                let index = index.rem_euclid(turn);
                Some(index.min(turn - index))
            }
        }
    }
}

/// Elements before and after along each axis. `fill` is a scalar of the data type of `x`.
pub static PAD: OpDef = OpDef::new(
    "nn.pad",
    "elements around a tensor",
    &[Input::required("x"), Input::optional("fill")],
    infer,
    eval,
    compute,
)
.attributes::<PadAttrs>()
.defaults(|| Attrs::new().with("mode", "constant"))
.pattern(OpPattern::Injective);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: PadAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    ensure!(
        attrs.pad_width.len() == x.shape.rank(),
        "attribute `pad_width` has {} entries, but input `x`, which is {x}, has {} dimensions",
        attrs.pad_width.len(),
        x.shape.rank()
    );
    if let Some(fill) = cx.optional_tensor(1)? {
        cx.same_dtype(0, 1)?;
        ensure!(fill.shape.rank() == 0, "input `fill` must be a scalar, but it is {fill}");
        ensure!(
            attrs.mode == PadMode::Constant,
            "input `fill` has no meaning unless attribute `mode` is constant"
        );
    }
    let mut dims = Vec::with_capacity(x.shape.rank());
    for (axis, (dim, &[before, after])) in x.shape.iter().zip(&attrs.pad_width).enumerate() {
        let padded = dim + &Dim::from(before) + &Dim::from(after);
        ensure!(
            attrs.mode == PadMode::Constant
                || dim.as_const() != Some(0)
                || padded.as_const() == Some(0),
            "dimension {axis} of input `x`, which is {x}, has no element to repeat"
        );
        // An extent that a run says is mirrored or gone around once: see `reflected` and `wrapped`.
        let beyond = before.max(after);
        let least = match attrs.mode {
            PadMode::Reflect => beyond.saturating_add(1),
            PadMode::Wrap => beyond,
            PadMode::Constant | PadMode::Edge => 0,
        };
        ensure!(
            beyond <= 0 || dim.is_const() || cx.same(&dim.maximum(&Dim::from(least)), dim),
            "dimension {axis} of input `x`, which is {x}, may have too few elements to repeat \
             {beyond} of them; pin symbolic dimensions to numbers"
        );
        ensure!(
            padded.as_const().is_none_or(|padded| padded >= 0),
            "attribute `pad_width` {:?} removes more than the {dim} elements of dimension {axis}",
            attrs.pad_width
        );
        dims.push(padded);
    }
    cx.result(dims, x.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: PadAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let strides = dense_strides(x.shape());
    let outer_len = num_elements(cx.shape());
    // For each place of the result the place that it reads, axis by axis from the innermost.
    let mut places = Vec::with_capacity(outer_len);
    if outer_len > 0 {
        places.push(Some(0usize));
    }
    for (axis, &extent) in cx.shape().iter().enumerate() {
        if outer_len == 0 {
            break;
        }
        let sources: Vec<Option<usize>> = (0..extent)
            .map(|index| {
                let index = (index as i64).saturating_sub(attrs.pad_width[axis][0]);
                let source = attrs.mode.source(index, x.shape()[axis] as i64)?;
                usize::try_from(source).ok().map(|source| source * strides[axis] as usize)
            })
            .collect();
        let extend = |place: &Option<usize>| {
            let place = *place;
            sources.iter().map(move |source| Some(place? + (*source)?)).collect::<Vec<_>>()
        };
        places = places.iter().flat_map(extend).collect();
    }
    cx.result(match x.elements() {
        Elements::Float(values) => {
            let fill = cx.optional(1).map(floats).transpose()?.map_or(0.0, |fill| fill[0]);
            Elements::Float(places.into_iter().map(|at| at.map_or(fill, |at| values[at])).collect())
        }
        Elements::Int(values) => {
            let fill = cx.optional(1).map(ints).transpose()?.map_or(0, |fill| fill[0]);
            Elements::Int(places.into_iter().map(|at| at.map_or(fill, |at| values[at])).collect())
        }
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: PadAttrs = cx.attrs()?;
    let (x, fill) = (cx.arg(0)?, cx.optional(1));
    let input = cx.dag.shape(x).to_vec();
    let (_, dtype) = cx.result();
    cx.element(|dag, index| {
        let mut at = Vec::with_capacity(index.len());
        let mut inside = PrimExpr::bool(true);
        for ((i, &[before, after]), &extent) in index.iter().zip(&attrs.pad_width).zip(&input) {
            let place = i.clone() - before;
            // An axis of which elements are only removed is never left.
            let is_padded = before > 0 || after > 0;
            at.push(match attrs.mode {
                _ if !is_padded => place,
                PadMode::Constant => {
                    inside = inside.clone().and(within(&place, 0, extent));
                    place
                }
                PadMode::Edge => place.max(0).min(extent - 1),
                PadMode::Wrap => wrapped(place, before.max(after), extent),
                PadMode::Reflect => reflected(place, before.max(after), extent),
            });
        }
        let value = dag.at(x, &at);
        if inside.is_const(1) {
            return value;
        }
        let fill = match fill {
            Some(fill) => dag.at(fill, &vec![PrimExpr::index(0); dag.shape(fill).len()]),
            None => PrimExpr::zero(dtype),
        };
        PrimExpr::select(inside, value, fill)
    })
}

/// A place at most `beyond` elements outside of the axis, from whose other end it goes on.
fn wrapped(place: PrimExpr, beyond: i64, extent: i64) -> PrimExpr {
    if beyond > extent || extent == 0 {
        return place.floormod(extent.max(1));
    }
    // Once around is enough, and comparisons are where loops can be cut.
    let from_end = place.clone().less(0);
    let from_start = place.clone().greater_equal(extent);
    let near = PrimExpr::select(from_end, place.clone() + extent, place.clone());
    PrimExpr::select(from_start, place - extent, near)
}

/// A place at most `beyond` elements outside of the axis, mirrored at the first and the last element
/// until it is within.
fn reflected(place: PrimExpr, beyond: i64, extent: i64) -> PrimExpr {
    if extent <= 1 {
        return PrimExpr::index(0);
    }
    let turn = (extent - 1).saturating_mul(2);
    let place = if beyond < extent {
        // Once is enough, and comparisons are where loops can be cut.
        place.clone().max(PrimExpr::index(0) - place)
    } else {
        place.floormod(turn)
    };
    place.clone().min(PrimExpr::index(turn) - place)
}
