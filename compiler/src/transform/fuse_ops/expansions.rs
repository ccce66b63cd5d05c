//! Depthwise convolutions with the 1x1 convolutions before them: the first half of inverted residual
//! blocks.

use super::graph::Graph;
use super::partition::Groups;
use crate::graph::{Call, ExprId, Function};
use crate::ir::DType;
use crate::ops::OpPattern;
use crate::ops::nn::{CONV2D, ConvAttrs};
use crate::strategy::CHANNEL_BLOCK;
use crate::transform::calls::{extents, op_of};

/// Least bytes of an image between the two for which it was measured to pay to compute it in parts: 2 MiB
/// come back from the third cache as fast as lines are computed twice.
const LEAST_BYTES: i64 = 4 << 20;

/// Bytes of a band that stays in the second cache of most processors, whichever level is compiled for.
const BAND: i64 = 128 << 10;

/// Channels that a band has, about: those of a panel of weights.
const PANEL: i64 = 2 * CHANNEL_BLOCK;

/// One of so many lines of a band may be one that the next band computes again.
const LEAST_NEW_LINES: i64 = 4;

/// Joins groups of a convolution of single pixels and of a depthwise one of its result, if nothing else
/// reads that, it is large, and bands of it that stay in the second cache have few lines in common.
pub(super) fn join(groups: &mut Groups, function: &Function, graph: &Graph, max_depth: usize) {
    let members = groups.members(graph);
    for id in graph.ids() {
        let Some(conv) = Conv::of(function, id).filter(Conv::is_depthwise) else { continue };
        if !conv.goes_by_bands() {
            continue;
        }
        let image = conv.image;
        let is_alone = graph.contains(image)
            && groups.root(image) == image
            && !graph.is_used_outside(image)
            && graph.uses(image).len() == 1;
        let root = groups.root(id);
        if !is_alone || members[image].len() + members[root].len() > max_depth {
            continue;
        }
        let is_anchor = |id: &&ExprId| graph.pattern(**id) > OpPattern::Broadcast;
        let mut anchors = members[image].iter().filter(is_anchor);
        if let (Some(&anchor), None) = (anchors.next(), anchors.next())
            && Conv::of(function, anchor).is_some_and(|conv| conv.is_each_pixel())
            && members[root].iter().filter(is_anchor).count() == 1
        {
            groups.merge(image, id);
        }
    }
}

/// A convolution of `float32` by constant weights.
struct Conv {
    image: ExprId,
    weight: [i64; 4],
    /// Extents of the image and of the result.
    read: [i64; 4],
    made: [i64; 4],
    attrs: ConvAttrs,
}

impl Conv {
    fn of(function: &Function, id: ExprId) -> Option<Conv> {
        let (op, Call { args, attrs, .. }) = op_of(function.expr(id))?;
        let &[Some(image), Some(weight), ..] = args.as_slice() else { return None };
        if !op.is(&CONV2D) || !op.is_plain(attrs) || function.expr(weight).as_constant().is_none() {
            return None;
        }
        let extents = |id| {
            let ty = function.ty(id).as_tensor().filter(|ty| ty.dtype == DType::F32)?;
            <[i64; 4]>::try_from(extents(ty)?).ok()
        };
        let [weight, read, made] = [extents(weight)?, extents(image)?, extents(id)?];
        Some(Conv { image, weight, read, made, attrs: attrs.parse().ok()? })
    }

    /// Whether it is a depthwise one, of a large image of whole blocks of channels.
    fn is_depthwise(&self) -> bool {
        let [_, channels, height, width] = self.read;
        let bytes = [4, channels, height, width].into_iter().fold(1, i64::saturating_mul);
        let is_each = self.weight[1] == 1 && self.made[1] == channels;
        self.attrs.groups == channels
            && is_each
            && channels % CHANNEL_BLOCK == 0
            && bytes >= LEAST_BYTES
    }

    /// Whether few lines of the image are in two bands.
    fn goes_by_bands(&self) -> bool {
        let ConvAttrs { strides, dilation, .. } = &self.attrs;
        let shared = (self.weight[2] - 1).saturating_mul(dilation[0]) + 1 - strides[0];
        let line = [4, PANEL, self.read[3]].into_iter().fold(1, i64::saturating_mul);
        let lines = (BAND / line.max(1)).min(self.read[2]);
        shared.saturating_mul(LEAST_NEW_LINES) <= lines
    }

    /// Whether it makes each pixel of one.
    fn is_each_pixel(&self) -> bool {
        let ConvAttrs { strides, padding, groups, .. } = &self.attrs;
        self.weight[2..] == [1, 1]
            && strides.iter().all(|&stride| stride == 1)
            && padding.iter().all(|&padding| padding == 0)
            && *groups == 1
    }
}
