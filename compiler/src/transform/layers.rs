//! Linear layers: what the passes that fold factors into weights know of them.

use super::channels::{ChannelAxis, relaid, scale_weights};
use crate::graph::Call;
use crate::ir::{Attrs, Constant, Layout, LayoutMap};
use crate::ops::elementwise::{LEAKY_RELU, NEGATIVE, RELU};
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE,
    GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D, MATMUL, MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MatmulAttrs,
    PAD, PadAttrs, PadMode,
};
use crate::ops::{Op, OpDef};
use crate::pass::Result;

/// A linear layer.
#[derive(Clone)]
pub(super) struct Layer {
    pub(super) op: Op,
    /// Whether there may be a third argument, the bias.
    pub(super) takes_bias: bool,
    /// The axis of the channels in `x` and in the result, if it is not the last one.
    channels: Option<ChannelAxis>,
    /// Number of axes of the weights.
    rank: usize,
    /// The axes of the weights that the output channels and the input channels of a group run along.
    weights: [usize; 2],
    /// If the weights have channels in blocks: a layout with these axes, and theirs.
    blocked: Option<[Layout; 2]>,
    groups: i64,
}

impl Layer {
    pub(super) fn of(op: Op, attrs: &Attrs) -> Result<Option<Layer>> {
        let product = |weights| Layer {
            op,
            takes_bias: false,
            channels: None,
            rank: 2,
            weights,
            blocked: None,
            groups: 1,
        };
        Ok(if [&CONV1D, &CONV2D, &CONV3D].iter().any(|def| op.is(def)) {
            let plain = attrs.clone().without("data_layout").without("kernel_layout");
            let ConvAttrs { strides, groups, out_dtype, .. } = plain.parse()?;
            let channels = place(attrs, "data_layout", 'C', 1);
            let kernel = attrs.str("kernel_layout").and_then(|text| text.parse::<Layout>().ok());
            let whole = |axis, plain| kernel.as_ref().map_or(Some(plain), |own| own.whole(axis));
            let rank = kernel.as_ref().map_or(2 + strides.len(), |own| own.dims().len());
            let (weights, blocked) = match whole('O', 0).zip(whole('I', 1)) {
                Some((o, i)) => ([o, i], None),
                None => ([0, 1], kernel.map(|own| [own.default(), own])),
            };
            channels.filter(|_| out_dtype.is_none()).map(|channels| Layer {
                op,
                takes_bias: true,
                channels: Some(channels),
                rank,
                weights,
                blocked,
                groups,
            })
        } else if op.is(&DENSE) {
            Some(product([0, 1]))
        } else if op.is(&MATMUL) {
            let MatmulAttrs { transpose_a, transpose_b, out_dtype } = attrs.parse()?;
            (!transpose_a && out_dtype.is_none())
                .then(|| product(if transpose_b { [0, 1] } else { [1, 0] }))
        } else {
            None
        })
    }

    /// Whether weights have the axes that this one's must have.
    pub(super) fn has_rank_of(&self, weight: &Constant) -> bool {
        weight.ty().shape.rank() == self.rank
    }

    /// The extents of the weights along the axes of output channels and of input channels.
    fn extents(&self, weight: &Constant) -> Option<[i64; 2]> {
        let shape = match &self.blocked {
            None => weight.ty().shape.to_vec(),
            Some([plain, own]) => {
                LayoutMap::new(own, plain).ok()?.shape(&weight.ty().shape).ok()?
            }
        };
        let [outputs, inputs] = self.weights;
        Some([shape.get(outputs)?.as_const()?, shape.get(inputs)?.as_const()?])
    }

    /// Number of output channels.
    pub(super) fn outputs(&self, weight: &Constant) -> Option<i64> {
        self.extents(weight).map(|[outputs, _]| outputs)
    }

    /// Number of input channels, in all groups.
    pub(super) fn inputs(&self, weight: &Constant) -> Option<i64> {
        self.extents(weight)?[1].checked_mul(self.groups)
    }

    /// Weights with each output channel multiplied by its factor.
    pub(super) fn scale_outputs(&self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        self.scaled(weight, factors, |output, _| output)
    }

    /// Weights with each input channel multiplied by its factor, one for each channel of `x`.
    pub(super) fn scale_inputs(&self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        let groups = usize::try_from(self.groups).ok()?;
        let outputs_of_group = (usize::try_from(self.outputs(weight)?).ok()? / groups).max(1);
        let inputs_of_group = factors.len() / groups;
        self.scaled(weight, factors, |output, input| {
            output / outputs_of_group * inputs_of_group + input
        })
    }

    fn scaled(
        &self,
        weight: &Constant,
        factors: &[f64],
        channel: impl Fn(usize, usize) -> usize,
    ) -> Option<Constant> {
        let Some([plain, own]) = &self.blocked else {
            return scale_weights(weight, factors, self.weights, channel);
        };
        let scaled = scale_weights(&relaid(weight, own, plain)?, factors, self.weights, channel)?;
        relaid(&scaled, plain, own)
    }

    /// The axis of the channels in a tensor of `rank` axes, an argument or a result.
    pub(super) fn channel_axis(&self, rank: usize) -> Option<ChannelAxis> {
        match self.channels {
            Some(axis) => axis.dims().all(|dim| dim < rank).then_some(axis),
            None => rank.checked_sub(1).map(ChannelAxis::whole),
        }
    }
}

/// The dimensions of an axis in the layout that an attribute names: `plain` without the attribute,
/// none if the layout has not got them.
fn place(attrs: &Attrs, name: &str, axis: char, plain: usize) -> Option<ChannelAxis> {
    match attrs.str(name) {
        Some(layout) => ChannelAxis::of(&layout.parse().ok()?, axis),
        None => Some(ChannelAxis::whole(plain)),
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
pub(super) fn passing(op: Op, call: &Call, axis: ChannelAxis) -> Result<Option<Passing>> {
    let is_any = |defs: &[&OpDef]| defs.iter().any(|def| op.is(def));
    let outside_of_windows = [('N', 0), ('C', 1)]
        .iter()
        .any(|&(letter, plain)| place(&call.attrs, "layout", letter, plain) == Some(axis));
    Ok(if is_any(&[&RELU, &LEAKY_RELU]) {
        Some(Passing::Positive)
    } else if op.is(&NEGATIVE) {
        Some(Passing::Any)
    } else if is_any(&[&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D, &GLOBAL_MAX_POOL2D]) {
        outside_of_windows.then_some(Passing::Positive)
    } else if is_any(&[&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D, &GLOBAL_AVG_POOL2D]) {
        outside_of_windows.then_some(Passing::Any)
    } else if op.is(&PAD) {
        let PadAttrs { pad_width, mode } = call.attrs.parse()?;
        let of_zeros = mode != PadMode::Constant || call.args.get(1).copied().flatten().is_none();
        let unpadded = axis.dims().all(|dim| pad_width.get(dim) == Some(&[0, 0]));
        (of_zeros && unpadded).then_some(Passing::Any)
    } else {
        None
    })
}
