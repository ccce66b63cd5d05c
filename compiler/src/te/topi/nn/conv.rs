//! Convolutions along one, two and three axes.

use super::within;
use crate::ops::nn::{Conv1dAttrs, Conv2dAttrs, Conv3dAttrs};
use crate::te::topi::{Compute, ComputeError, Stages};
use crate::te::{Anchor, StageId};
use crate::tir::{BinaryOp, PrimExpr};

/// The attributes of a convolution of any number of spatial axes.
struct Conv {
    strides: Vec<i64>,
    /// Zeros before each axis.
    padding: Vec<i64>,
    /// Whether there are zeros on any side.
    is_padded: bool,
    dilation: Vec<i64>,
    groups: i64,
}

impl Conv {
    /// `padding` has all that is before the axes, then all that is after them.
    fn new(strides: &[i64], padding: &[i64], dilation: &[i64], groups: i64) -> Conv {
        Conv {
            strides: strides.to_vec(),
            padding: padding[..strides.len()].to_vec(),
            is_padded: padding.iter().any(|&p| p != 0),
            dilation: dilation.to_vec(),
            groups,
        }
    }
}

pub(super) fn conv1d(cx: &mut Compute<'_>) -> Stages {
    let Conv1dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let conv = convolve(cx, &Conv::new(&strides, &padding, &dilation, groups))?;
    add_bias(cx, conv)
}

pub(super) fn conv2d(cx: &mut Compute<'_>) -> Stages {
    let Conv2dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let (data, weight) = (cx.arg(0)?, cx.arg(1)?);
    let conv = convolve(cx, &Conv::new(&strides, &padding, &dilation, groups))?;
    let padding = [padding[0], padding[1]];
    cx.dag.set_anchor(conv, Anchor::Conv2d { data, weight, strides, padding, dilation, groups });
    add_bias(cx, conv)
}

pub(super) fn conv3d(cx: &mut Compute<'_>) -> Stages {
    let Conv3dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let conv = convolve(cx, &Conv::new(&strides, &padding, &dilation, groups))?;
    add_bias(cx, conv)
}

/// The sum over the input channels of a group and the taps of the kernel.
fn convolve(cx: &mut Compute<'_>, conv: &Conv) -> Result<StageId, ComputeError> {
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (input, over) = (cx.dag.shape(x).to_vec(), cx.dag.shape(weight)[1..].to_vec());
    let group_out = (shape[1] / conv.groups).max(1);
    let op = cx.op.name;
    Ok(cx.dag.reduce(op, &shape, dtype, BinaryOp::Add, &over, |dag, index, by| {
        let channel = if conv.groups == 1 {
            by[0].clone()
        } else {
            index[1].clone().floordiv(group_out) * over[0] + by[0].clone()
        };
        let mut at = vec![index[0].clone(), channel];
        let mut inside = PrimExpr::bool(true);
        for (axis, tap) in by[1..].iter().enumerate() {
            let place = index[axis + 2].clone() * conv.strides[axis]
                + tap.clone() * conv.dilation[axis]
                - conv.padding[axis];
            inside = inside.and(within(&place, 0, input[axis + 2]));
            at.push(place);
        }
        let element = dag.at(x, &at);
        let element = if conv.is_padded {
            PrimExpr::select(inside, element, PrimExpr::zero(dtype))
        } else {
            element
        };
        let mut tap = vec![index[1].clone()];
        tap.extend_from_slice(by);
        element * dag.at(weight, &tap)
    }))
}

/// What a convolution computes, and the bias, if there is one.
pub(super) fn add_bias(cx: &mut Compute<'_>, conv: StageId) -> Stages {
    let Some(bias) = cx.optional(2) else { return Ok(vec![conv]) };
    cx.element(|dag, index| dag.at(conv, index) + dag.at(bias, &index[1..2]))
}
