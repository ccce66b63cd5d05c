//! `nn.group_norm` and `nn.instance_norm`: normalisation of each example by its own statistics
//! (ONNX `GroupNormalization` and `InstanceNormalization`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages, multiply_add};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of, floats};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::ComputeDag;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Attributes of `nn.group_norm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNormAttrs {
    /// The number of groups, which divides that of the channels.
    pub num_groups: i64,
    /// The axis of the channels, counted from either end; 1 in ONNX.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
}

/// Attributes of `nn.instance_norm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceNormAttrs {
    /// The axis of the channels, counted from either end; 1 in ONNX.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
}

const INPUTS: &[Input] = &[Input::required("x"), Input::optional("gamma"), Input::optional("beta")];

/// `gamma · (x - mean) / √(variance + epsilon) + beta`, with mean and variance of the channels of a
/// group, along all axes but the first. `gamma` and `beta` have one element for each channel; an
/// absent one changes nothing.
pub static GROUP_NORM: OpDef = OpDef::new(
    "nn.group_norm",
    "normalisation of groups of channels",
    INPUTS,
    |cx| {
        let GroupNormAttrs { num_groups, axis, .. } = cx.attrs()?;
        infer(cx, axis, Some(num_groups))
    },
    |cx| {
        let GroupNormAttrs { num_groups, axis, epsilon } = cx.attrs()?;
        eval(cx, axis, Some(num_groups), epsilon)
    },
    |cx| {
        let GroupNormAttrs { num_groups, axis, epsilon } = cx.attrs()?;
        compute(cx, axis, Some(num_groups), epsilon)
    },
)
.attributes::<GroupNormAttrs>()
.defaults(|| Attrs::new().with("axis", 1).with("epsilon", 1e-5))
.pattern(OpPattern::OutElemWiseFusable);

/// `nn.group_norm` with each channel a group of its own.
pub static INSTANCE_NORM: OpDef = OpDef::new(
    "nn.instance_norm",
    "normalisation of each channel of each example",
    INPUTS,
    |cx| {
        let InstanceNormAttrs { axis, .. } = cx.attrs()?;
        infer(cx, axis, None)
    },
    |cx| {
        let InstanceNormAttrs { axis, epsilon } = cx.attrs()?;
        eval(cx, axis, None, epsilon)
    },
    |cx| {
        let InstanceNormAttrs { axis, epsilon } = cx.attrs()?;
        compute(cx, axis, None, epsilon)
    },
)
.attributes::<InstanceNormAttrs>()
.defaults(|| Attrs::new().with("axis", 1).with("epsilon", 1e-5))
.pattern(OpPattern::OutElemWiseFusable);

/// Without a number of groups, each channel is one.
fn infer(cx: &InferCx<'_>, axis: i64, groups: Option<i64>) -> Result<Type, TypeError> {
    let x = cx.tensor_of(0, DTypes::Float)?;
    let axis = cx.axis(0, axis)?;
    ensure!(
        axis != 0,
        "the channels of input `x`, which is {x}, cannot be along axis 0, that of the examples"
    );
    ensure!(
        groups.is_some() || x.shape.rank() > 2,
        "input `x` is {x}, but it must have axes besides those of the examples and the channels"
    );
    if let Some(groups) = groups {
        at_least("num_groups", groups, 1)?;
        let whole = x.shape[axis].as_const().is_some_and(|channels| channels % groups == 0);
        ensure!(
            whole,
            "attribute `num_groups` {groups} does not divide the {} channels of input `x`, which is {x}",
            x.shape[axis]
        );
    }
    let channels = TensorType::new(Shape::new([x.shape[axis].clone()]), x.dtype);
    for index in [1, 2] {
        if cx.optional_tensor(index)?.is_some() {
            cx.expect_type(index, &channels, "the channels of input `x`")?;
        }
    }
    Ok(x.clone().into())
}

fn eval(
    cx: &EvalCx<'_>,
    axis: i64,
    groups: Option<i64>,
    epsilon: f64,
) -> Result<Vec<Tensor>, EvalError> {
    let x = cx.arg(0)?;
    let split = AxisSplit::new(x.shape(), axis_of(x, axis)?);
    let groups = groups.map_or(split.extent, |groups| groups as usize);
    let channel = |index: usize| index / split.inner % split.extent;
    let of_example: usize = x.shape()[1..].iter().product();
    let group = |index: usize| index / of_example * groups + channel(index) * groups / split.extent;
    let mut values = floats(x)?.to_vec();
    let count = of_example as f64 / groups as f64;
    let means = |of: &dyn Fn(usize) -> f64| {
        let mut sums = vec![0.0; x.shape()[0] * groups];
        (0..cx.len()).for_each(|index| sums[group(index)] += of(index) / count);
        sums
    };
    let mean = means(&|index| values[index]);
    let variance = means(&|index| (values[index] - mean[group(index)]).powi(2));
    let gamma = cx.optional(1).map(floats).transpose()?;
    let beta = cx.optional(2).map(floats).transpose()?;
    for (index, value) in values.iter_mut().enumerate() {
        let of = group(index);
        let gamma = gamma.map_or(1.0, |gamma| gamma[channel(index)]);
        let beta = beta.map_or(0.0, |beta| beta[channel(index)]);
        *value = (*value - mean[of]) / (variance[of] + epsilon).sqrt() * gamma + beta;
    }
    cx.result(Elements::Float(values))
}

/// Mean and variance are found in two passes, so that a mean far from zero takes no digits from the
/// variance.
fn compute(cx: &mut Compute<'_>, axis: i64, groups: Option<i64>, epsilon: f64) -> Stages {
    let (x, gamma, beta) = (cx.arg(0)?, cx.optional(1), cx.optional(2));
    let (shape, dtype) = cx.result();
    let axis = cx.axis(axis, shape.len())?;
    let groups = groups.unwrap_or(shape[axis]);
    // Without channels there are no groups, either.
    let size = shape[axis].checked_div(groups).unwrap_or(1);
    let is_other = |&other: &usize| other != 0 && other != axis;
    let outer = [shape[0], groups];
    let over: Vec<i64> = [size]
        .into_iter()
        .chain((0..shape.len()).filter(is_other).map(|other| shape[other]))
        .collect();
    let at = |index: &[PrimExpr], by: &[PrimExpr]| {
        let mut at = vec![index[0].clone(); shape.len()];
        at[axis] = index[1].clone() * size + by[0].clone();
        for (other, by) in (0..shape.len()).filter(is_other).zip(&by[1..]) {
            at[other] = by.clone();
        }
        at
    };
    let group = |index: &[PrimExpr]| [index[0].clone(), index[axis].clone().floordiv(size)];
    let wide = dtype.accumulator();
    let count = PrimExpr::float(over.iter().map(|&extent| extent as f64).product(), wide);
    let op = cx.op.name;
    let dag: &mut ComputeDag = cx.dag;
    let sum = dag.reduce(op, &outer, wide, BinaryOp::Add, &over, |dag, index, by| {
        dag.at(x, &at(index, by)).cast(wide)
    });
    let mean = dag.compute(op, &outer, wide, |dag, index| dag.at(sum, index) / count.clone());
    let squares = dag.reduce(op, &outer, wide, BinaryOp::Add, &over, |dag, index, by| {
        let deviation = dag.at(x, &at(index, by)).cast(wide) - dag.at(mean, index);
        deviation.clone() * deviation
    });
    let scale = dag.compute(op, &outer, wide, |dag, index| {
        let variance = dag.at(squares, index) / count + PrimExpr::float(epsilon, wide);
        PrimExpr::float(1.0, wide) / PrimExpr::call(Intrinsic::Sqrt, variance)
    });
    cx.element(|dag, index| {
        let of_channel = |stage| dag.at(stage, &index[axis..=axis]).cast(wide);
        let group = group(index);
        let value = dag.at(x, index).cast(wide) - dag.at(mean, &group);
        let factor = dag.at(scale, &group);
        let factor = match gamma {
            Some(gamma) => factor * of_channel(gamma),
            None => factor,
        };
        let value = match beta {
            Some(beta) => multiply_add(value, factor, of_channel(beta)),
            None => value * factor,
        };
        value.cast(dtype)
    })
}
