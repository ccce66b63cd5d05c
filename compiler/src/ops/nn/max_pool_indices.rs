//! `nn.max_pool_indices`: where the greatest of each window stands (the second output of ONNX
//! `MaxPool`).

use serde::{Deserialize, Serialize};

use super::X;
use super::pool::each_tap;
use super::window::Window;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef};
use crate::te::identity;
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `nn.max_pool_indices`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPoolIndicesAttrs {
    /// Extents of the window.
    pub pool_size: Vec<i64>,
    /// Distance between windows along each axis.
    pub strides: Vec<i64>,
    /// Padding around the argument: before each spatial axis, then after each.
    pub padding: Vec<i64>,
    /// Distance between the elements of a window along each axis.
    pub dilation: Vec<i64>,
    /// Whether a last window may reach beyond the padding.
    pub ceil_mode: bool,
    /// Whether places are counted with the first spatial axis innermost, ONNX `storage_order`.
    pub column_major: bool,
}

impl MaxPoolIndicesAttrs {
    /// The places of a pool by that window.
    pub fn new(window: &Window, ceil_mode: bool, column_major: bool) -> MaxPoolIndicesAttrs {
        MaxPoolIndicesAttrs {
            pool_size: window.taps(),
            strides: window.strides(),
            padding: window.padding(),
            dilation: window.dilation(),
            ceil_mode,
            column_major,
        }
    }

    fn window(&self) -> Result<Window, TypeError> {
        Window::new(&self.pool_size, &self.strides, &self.padding, &self.dilation)
    }

    /// The distance between neighbours along each spatial axis, as places are counted.
    fn distances(&self, extents: &[i64]) -> Vec<i64> {
        let mut distances = vec![1; extents.len()];
        let mut distance = 1i64;
        let mut set = |axis: usize| {
            distances[axis] = distance;
            distance = distance.saturating_mul(extents[axis]);
        };
        if self.column_major {
            (0..extents.len()).for_each(&mut set);
        } else {
            (0..extents.len()).rev().for_each(&mut set);
        }
        distances
    }
}

/// The place of the greatest of each window, counted over the whole tensor, as `int64`. Of equal
/// ones, the first as elements lie.
pub static MAX_POOL_INDICES: OpDef = OpDef::new(
    "nn.max_pool_indices",
    "the place of the greatest of each window",
    X,
    infer,
    eval,
    compute,
)
.attributes::<MaxPoolIndicesAttrs>();

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: MaxPoolIndicesAttrs = cx.attrs()?;
    let rank = cx.tensor(0)?.shape.rank().saturating_sub(2);
    let window = attrs.window()?;
    let Type::Tensor(pooled) =
        super::pool::infer(cx, rank, DTypes::Numeric, &window, attrs.ceil_mode)?
    else {
        bail!("a pool of a tensor must be a tensor");
    };
    cx.result(pooled.shape.to_vec(), DType::I64)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: MaxPoolIndicesAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let extents: Vec<i64> = x.shape()[2..].iter().map(|&extent| extent as i64).collect();
    let plane = num_elements(&x.shape()[2..]).max(1);
    let mut places: Vec<Option<usize>> = vec![None; cx.len()];
    let mut visit = |is_greater: &dyn Fn(usize, usize) -> bool| -> Result<(), EvalError> {
        each_tap(&attrs.window()?, x.shape(), cx.shape(), |out, at| {
            places[out] = match places[out] {
                Some(best) if !is_greater(at, best) => Some(best),
                _ => Some(at),
            };
        });
        Ok(())
    };
    match x.elements() {
        // As in the maximum, a NaN is the greatest.
        Elements::Float(values) => visit(&|at, best| {
            !values[best].is_nan() && (values[at].is_nan() || values[at] > values[best])
        })?,
        Elements::Int(values) => visit(&|at, best| values[at] > values[best])?,
    }
    let counted = |place: usize| {
        let (image, mut rest) = (place / plane, (place % plane) as i64);
        let mut index = (image * plane) as i64;
        for (&extent, distance) in extents.iter().zip(attrs.distances(&extents)).rev() {
            index += rest % extent * distance;
            rest /= extent;
        }
        i128::from(index)
    };
    cx.result(Elements::Int(places.into_iter().map(|place| place.map_or(0, counted)).collect()))
}

/// The greatest of each window, and then the first place, as elements lie, at which it stands.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: MaxPoolIndicesAttrs = cx.attrs()?;
    let window = attrs.window()?;
    let x = cx.arg(0)?;
    let (shape, index_dtype) = cx.result();
    let (input, dtype) = (cx.dag.shape(x)[2..].to_vec(), cx.dag.dtype(x));
    let ceil = attrs.ceil_mode;
    let greatest = window.reduce(cx, x, &shape, ceil, (BinaryOp::Max, dtype));
    let guard = window.overhangs(cx, [cx.dag.shape(x), &shape], ceil).contains(&true);
    let none = identity(BinaryOp::Min, index_dtype);
    let dense = MaxPoolIndicesAttrs { column_major: false, ..attrs.clone() }.distances(&input);
    let (op, taps) = (cx.op.name, window.taps());
    let first = cx.dag.reduce(op, &shape, index_dtype, BinaryOp::Min, &taps, |dag, index, by| {
        let (places, inside) = window.read(&index[2..], by, &input);
        let value = dag.at(x, &[&index[..2], &places[..]].concat());
        let mut found = value.clone().equal(dag.at(greatest, index));
        if dtype.is_float() {
            found = found.or(value.clone().not_equal(value));
        }
        let place = places.iter().zip(&dense).map(|(place, &distance)| place.clone() * distance);
        let place = place.reduce(|sum, term| sum + term).unwrap_or(PrimExpr::index(0));
        let place = PrimExpr::select(found, place, none.clone());
        // Outside of the image nothing is read.
        if guard { PrimExpr::select(inside, place, none) } else { place }
    });
    let plane = input.iter().fold(1i64, |n, &extent| n.saturating_mul(extent));
    let counted = attrs.distances(&input);
    let channels = shape[1];
    cx.element(|dag, index| {
        let image = index[0].clone() * channels + index[1].clone();
        // A window of padding alone has none.
        let place = dag.at(first, index).min(plane - 1);
        let place = if attrs.column_major {
            let terms = input.iter().zip(&dense).zip(&counted).map(|((&extent, &dense), &to)| {
                place.clone().floordiv(dense).floormod(extent) * to
            });
            terms.reduce(|sum, term| sum + term).unwrap_or(PrimExpr::index(0))
        } else {
            place
        };
        image * plane + place
    })
}
