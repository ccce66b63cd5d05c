//! `layout_transform`: a tensor in another layout, such as `NCHW16c`.

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Layout, LayoutError, LayoutMap, Type};
use crate::ops::compute::{Compute, ComputeError, Stages};
use crate::ops::eval::{EvalCx, dense_strides};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `layout_transform`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutTransformAttrs {
    /// The layout of the argument.
    pub src_layout: String,
    /// The layout of the result, with the same axes.
    pub dst_layout: String,
}

impl LayoutTransformAttrs {
    fn map(&self) -> Result<LayoutMap, LayoutError> {
        let (from, to): (Layout, Layout) = (self.src_layout.parse()?, self.dst_layout.parse()?);
        LayoutMap::new(&from, &to)
    }
}

/// The argument's elements in another order: that of `dst_layout`.
pub static LAYOUT_TRANSFORM: OpDef =
    OpDef::new("layout_transform", "a tensor in another layout", X, infer, eval, compute)
        .attributes::<LayoutTransformAttrs>()
        .pattern(OpPattern::Injective);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: LayoutTransformAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    match attrs.map().and_then(|map| map.shape(&x.shape)) {
        Ok(shape) => cx.result(shape, x.dtype),
        Err(error) => bail!("input `x` is {x}: {error}"),
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: LayoutTransformAttrs = cx.attrs()?;
    let map = attrs.map().map_err(|error| EvalError::new(error.to_string()))?;
    let x = cx.arg(0)?;
    let (before, after) = (dense_strides(x.shape()), dense_strides(cx.shape()));
    let source = |place: usize| {
        let index = after.iter().zip(cx.shape());
        let index: Vec<usize> =
            index.map(|(&stride, &extent)| place / stride as usize % extent).collect();
        let index = map.index_before(&index);
        index.iter().zip(&before).map(|(&at, &stride)| at * stride as usize).sum()
    };
    cx.picked(x, (0..cx.len()).map(source))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: LayoutTransformAttrs = cx.attrs()?;
    let map = attrs.map().map_err(|error| ComputeError(error.to_string()))?;
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, &index_before(&map, index)))
}

/// The index before of the element at an index after.
pub(in crate::ops) fn index_before(map: &LayoutMap, index: &[PrimExpr]) -> Vec<PrimExpr> {
    let (before, after) = map.digits();
    let at = before.iter().map(|digit| {
        // The same digit of the result, or one of the whole index along the axis.
        if let Some(same) = after.iter().position(|other| other == digit) {
            return index[same].clone();
        }
        let parts = after.iter().zip(index).filter(|(other, _)| other.dim.axis == digit.dim.axis);
        let whole = parts
            .map(|(other, at)| at.clone() * other.dim.step)
            .reduce(|sum, part| sum + part)
            .unwrap_or_else(|| PrimExpr::index(0));
        let quotient = if digit.dim.step == 1 { whole } else { whole.floordiv(digit.dim.step) };
        match digit.block {
            Some(block) => quotient.floormod(block),
            None => quotient,
        }
    });
    at.collect()
}
