//! `nn.space_to_batch_nd` and `nn.batch_to_space_nd` (of TensorFlow): the places of an image that are
//! the same modulo a block as an image each, and back.
//!
//! A convolution between the two is one with dilation.

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Dim, TensorType, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, dense_strides};
use crate::ops::relation::at_least;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `nn.space_to_batch_nd`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceToBatchAttrs {
    /// The distance of the places of one image along each axis from 1 on.
    pub block_shape: Vec<i64>,
    /// Zeros before and after each of these axes.
    pub paddings: Vec<[i64; 2]>,
}

/// Attributes of `nn.batch_to_space_nd`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchToSpaceAttrs {
    /// The distance of the places of one image along each axis from 1 on.
    pub block_shape: Vec<i64>,
    /// What is removed before and after each of these axes.
    pub crops: Vec<[i64; 2]>,
}

/// `(N, spatial…, rest…)` as `(∏block · N, (spatial + padding) / block…, rest…)`.
pub static SPACE_TO_BATCH_ND: OpDef = OpDef::new(
    "nn.space_to_batch_nd",
    "the places that are the same modulo a block as images",
    X,
    |cx| {
        let attrs: SpaceToBatchAttrs = cx.attrs()?;
        Blocks::new(cx, &attrs.block_shape, "paddings", &attrs.paddings)?.space_to_batch(cx)
    },
    |cx| {
        let SpaceToBatchAttrs { block_shape, paddings } = cx.attrs()?;
        let images = cx.arg(0)?.shape()[0] as i64;
        moved(cx, |index| to_batch(images, &block_shape, &paddings, index))
    },
    compute_space_to_batch,
)
.attributes::<SpaceToBatchAttrs>()
.pattern(OpPattern::Injective);

/// `(∏block · N, spatial…, rest…)` as `(N, spatial · block - crops…, rest…)`.
pub static BATCH_TO_SPACE_ND: OpDef = OpDef::new(
    "nn.batch_to_space_nd",
    "images as the places of one that are the same modulo a block",
    X,
    |cx| {
        let attrs: BatchToSpaceAttrs = cx.attrs()?;
        Blocks::new(cx, &attrs.block_shape, "crops", &attrs.crops)?.batch_to_space(cx)
    },
    |cx| {
        let BatchToSpaceAttrs { block_shape, crops } = cx.attrs()?;
        let images = cx.shape()[0] as i64;
        moved(cx, |index| to_space(images, &block_shape, &crops, index))
    },
    compute_batch_to_space,
)
.attributes::<BatchToSpaceAttrs>()
.pattern(OpPattern::Injective);

/// The blocks of a call, and what is added or removed around its axes.
struct Blocks<'a> {
    x: &'a TensorType,
    shape: &'a [i64],
    around: &'a [[i64; 2]],
    /// The product of the extents of a block.
    images: i64,
}

impl<'a> Blocks<'a> {
    fn new(
        cx: &InferCx<'a>,
        shape: &'a [i64],
        name: &str,
        around: &'a [[i64; 2]],
    ) -> Result<Blocks<'a>, TypeError> {
        let x = cx.tensor(0)?;
        ensure!(
            around.len() == shape.len() && x.shape.rank() > shape.len(),
            "attributes `block_shape` {shape:?} and `{name}` {around:?} must have an entry for each of \
             some axes after the first of input `x`, which is {x}"
        );
        for &extent in shape {
            at_least("block_shape", extent, 1)?;
        }
        for &width in around.iter().flatten() {
            at_least(name, width, 0)?;
        }
        let images = shape.iter().try_fold(1i64, |product, &extent| product.checked_mul(extent));
        let Some(images) = images else {
            bail!("attribute `block_shape` {shape:?} has more than 2^63 places");
        };
        Ok(Blocks { x, shape, around, images })
    }

    fn space_to_batch(&self, cx: &InferCx<'_>) -> Result<Type, TypeError> {
        let mut dims = self.x.shape.to_vec();
        dims[0] = &dims[0] * &Dim::from(self.images);
        let axes = dims[1..].iter_mut().zip(self.shape).zip(self.around);
        for ((dim, &block), &[before, after]) in axes {
            let padded = &*dim + &Dim::from(before) + &Dim::from(after);
            ensure!(
                padded.as_const().is_none_or(|padded| padded % block == 0),
                "blocks of {block} do not divide an axis of {padded} elements, padding included, of input \
                 `x`, which is {}",
                self.x
            );
            *dim = padded.floor_div(&Dim::from(block));
        }
        cx.result(dims, self.x.dtype)
    }

    fn batch_to_space(&self, cx: &InferCx<'_>) -> Result<Type, TypeError> {
        let mut dims = self.x.shape.to_vec();
        ensure!(
            dims[0].as_const().is_none_or(|images| images % self.images == 0),
            "blocks of {} images do not divide the {} of input `x`, which is {}",
            self.images,
            dims[0],
            self.x
        );
        dims[0] = dims[0].floor_div(&Dim::from(self.images));
        let axes = dims[1..].iter_mut().zip(self.shape).zip(self.around);
        for ((dim, &block), &[before, after]) in axes {
            *dim = &*dim * &Dim::from(block) - &Dim::from(before) - &Dim::from(after);
            ensure!(
                dim.as_const().is_none_or(|extent| extent >= 0),
                "attribute `crops` {:?} removes more than an axis of input `x`, which is {}, has",
                self.around,
                self.x
            );
        }
        cx.result(dims, self.x.dtype)
    }
}

/// The place in space of one in a batch of `images` for each place of a block; it may be outside.
fn to_batch(images: i64, block: &[i64], paddings: &[[i64; 2]], index: &[i64]) -> Vec<i64> {
    let mut at = index.to_vec();
    let mut rest = index[0].div_euclid(images.max(1));
    at[0] = index[0].rem_euclid(images.max(1));
    for (axis, (&extent, &[before, _])) in block.iter().zip(paddings).enumerate().rev() {
        at[axis + 1] = index[axis + 1] * extent + rest % extent - before;
        rest /= extent;
    }
    at
}

/// The place in the batch of one in space.
fn to_space(images: i64, block: &[i64], crops: &[[i64; 2]], index: &[i64]) -> Vec<i64> {
    let mut at = index.to_vec();
    let mut part = 0;
    for (axis, (&extent, &[before, _])) in block.iter().zip(crops).enumerate() {
        let place = index[axis + 1] + before;
        part = part * extent + place % extent;
        at[axis + 1] = place / extent;
    }
    at[0] = part * images + index[0];
    at
}

/// The element at the place that `from` gives for each of the result; zero if it is outside.
fn moved(cx: &EvalCx<'_>, from: impl Fn(&[i64]) -> Vec<i64>) -> Result<Vec<Tensor>, EvalError> {
    let x = cx.arg(0)?;
    let (before, after) = (dense_strides(x.shape()), dense_strides(cx.shape()));
    let source = |place: usize| -> Option<usize> {
        let index = after.iter().zip(cx.shape());
        let index: Vec<i64> =
            index.map(|(&stride, &extent)| (place / stride as usize % extent) as i64).collect();
        let at = from(&index);
        let inside =
            at.iter().zip(x.shape()).all(|(&at, &extent)| (0..extent as i64).contains(&at));
        inside.then(|| {
            at.iter().zip(&before).map(|(&at, &stride)| at as usize * stride as usize).sum()
        })
    };
    let places = (0..cx.len()).map(source);
    cx.result(match x.elements() {
        Elements::Float(x) => {
            Elements::Float(places.map(|at| at.map_or(0.0, |at| x[at])).collect())
        }
        Elements::Int(x) => Elements::Int(places.map(|at| at.map_or(0, |at| x[at])).collect()),
    })
}

fn compute_space_to_batch(cx: &mut Compute<'_>) -> Stages {
    let SpaceToBatchAttrs { block_shape, paddings } = cx.attrs()?;
    let x = cx.arg(0)?;
    let input = cx.dag.shape(x).to_vec();
    let (_, dtype) = cx.result();
    cx.element(|dag, index| {
        let images = input[0].max(1);
        let mut at = index.to_vec();
        let mut rest = index[0].clone().floordiv(images);
        at[0] = index[0].clone().floormod(images);
        let mut inside = PrimExpr::bool(true);
        for (axis, (&extent, &[before, after])) in
            block_shape.iter().zip(&paddings).enumerate().rev()
        {
            let place = index[axis + 1].clone() * extent + rest.clone().floormod(extent) - before;
            if before > 0 || after > 0 {
                inside = inside.and(within(&place, 0, input[axis + 1]));
            }
            at[axis + 1] = place;
            rest = rest.floordiv(extent);
        }
        let value = dag.at(x, &at);
        if inside.is_const(1) {
            return value;
        }
        PrimExpr::select(inside, value, PrimExpr::zero(dtype))
    })
}

fn compute_batch_to_space(cx: &mut Compute<'_>) -> Stages {
    let BatchToSpaceAttrs { block_shape, crops } = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, _) = cx.result();
    cx.element(|dag, index| {
        let mut at = index.to_vec();
        let mut part = PrimExpr::index(0);
        for (axis, (&extent, &[before, _])) in block_shape.iter().zip(&crops).enumerate() {
            let place = index[axis + 1].clone() + before;
            part = part * extent + place.clone().floormod(extent);
            at[axis + 1] = place.floordiv(extent);
        }
        at[0] = part * shape[0] + index[0].clone();
        dag.at(x, &at)
    })
}
