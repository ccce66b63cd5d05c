//! Linear layers: what the passes that fold factors into weights know of them.

use super::channels::scale_weights;
use crate::graph::Call;
use crate::ir::{Attrs, Constant};
use crate::ops::elementwise::{LEAKY_RELU, NEGATIVE, RELU};
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE,
    GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D, MATMUL, MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MatmulAttrs,
    PAD, PadAttrs, PadMode,
};
use crate::ops::{Op, OpDef};
use crate::pass::Result;

/// A linear layer. The first two axes of its weights are those of the output channels and of the
/// input channels of a group.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) op: Op,
    /// Number of axes after that of the channels, in `x` and in the result.
    pub(super) spatial: usize,
    /// Whether there may be a third argument, the bias.
    pub(super) takes_bias: bool,
    /// The axis of the weights, 0 or 1, that the output channels run along.
    output_axis: usize,
    groups: i64,
}

impl Layer {
    pub(super) fn of(op: Op, attrs: &Attrs) -> Result<Option<Layer>> {
        let product =
            |output_axis| Layer { op, spatial: 0, takes_bias: false, output_axis, groups: 1 };
        Ok(if !op.is_plain(attrs) {
            None
        } else if [&CONV1D, &CONV2D, &CONV3D].iter().any(|def| op.is(def)) {
            let ConvAttrs { strides, groups, out_dtype, .. } = attrs.parse()?;
            let spatial = strides.len();
            out_dtype.is_none().then_some(Layer {
                op,
                spatial,
                takes_bias: true,
                output_axis: 0,
                groups,
            })
        } else if op.is(&DENSE) {
            Some(product(0))
        } else if op.is(&MATMUL) {
            let MatmulAttrs { transpose_a, transpose_b, out_dtype } = attrs.parse()?;
            (!transpose_a && out_dtype.is_none()).then(|| product(if transpose_b { 0 } else { 1 }))
        } else {
            None
        })
    }

    /// Whether weights have the axes that this one's must have.
    pub(super) fn has_rank_of(self, weight: &Constant) -> bool {
        weight.ty().shape.rank() == 2 + self.spatial
    }

    /// Number of output channels.
    pub(super) fn outputs(self, weight: &Constant) -> Option<i64> {
        weight.ty().shape.get(self.output_axis)?.as_const()
    }

    /// Weights with each output channel multiplied by its factor.
    pub(super) fn scale_outputs(self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        match self.output_axis {
            0 => scale_weights(weight, factors, |output, _| output),
            _ => scale_weights(weight, factors, |_, output| output),
        }
    }

    /// Weights with each input channel multiplied by its factor, one for each channel of `x`.
    pub(super) fn scale_inputs(self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        if self.output_axis == 1 {
            return scale_weights(weight, factors, |input, _| input);
        }
        let groups = usize::try_from(self.groups).ok()?;
        let outputs_of_group = (usize::try_from(self.outputs(weight)?).ok()? / groups).max(1);
        let inputs_of_group = factors.len() / groups;
        scale_weights(weight, factors, |output, input| {
            output / outputs_of_group * inputs_of_group + input
        })
    }

    /// Number of input channels, in all groups.
    pub(super) fn inputs(self, weight: &Constant) -> Option<i64> {
        let inputs = weight.ty().shape.get(1 - self.output_axis)?.as_const()?;
        inputs.checked_mul(self.groups)
    }

    /// The axis of the channels in a tensor of `rank` axes, an argument or a result.
    pub(super) fn channel_axis(self, rank: usize) -> Option<usize> {
        rank.checked_sub(1 + self.spatial)
    }
}

/// How factors of the channels of an operator's result and those of its arguments go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passing {
    /// `f(x · s)` is `f(x) · s`.
    Any,
    /// The same for factors greater than zero.
    Positive,
}

/// How factors along `axis` pass through a call of one tensor; `None` if they do not.
pub(super) fn passing(op: Op, call: &Call, axis: usize) -> Result<Option<Passing>> {
    let is_any = |defs: &[&OpDef]| defs.iter().any(|def| op.is(def));
    // Windows lie along the axes from 2 on.
    Ok(if !op.is_plain(&call.attrs) {
        None
    } else if is_any(&[&RELU, &LEAKY_RELU]) {
        Some(Passing::Positive)
    } else if op.is(&NEGATIVE) {
        Some(Passing::Any)
    } else if is_any(&[&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D, &GLOBAL_MAX_POOL2D]) {
        (axis < 2).then_some(Passing::Positive)
    } else if is_any(&[&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D, &GLOBAL_AVG_POOL2D]) {
        (axis < 2).then_some(Passing::Any)
    } else if op.is(&PAD) {
        let PadAttrs { pad_width, mode } = call.attrs.parse()?;
        let of_zeros = mode != PadMode::Constant || call.args.get(1).copied().flatten().is_none();
        (of_zeros && pad_width.get(axis) == Some(&[0, 0])).then_some(Passing::Any)
    } else {
        None
    })
}
