//! `ConvTranspose`, as convolutions.
//!
//! Along an axis of stride `s`, tap `t` of a kernel of dilation `d` adds input `i` to output
//! `s·i + d·t`. Outputs `s·j + p` of one phase `p` so take the taps with `d·t ≡ p (mod s)`, which lie
//! `s / gcd(d, s)` apart, and are a convolution of the input with these, turned round. Neighbouring
//! phases of as many taps are one convolution with more output channels, and the results are put
//! between each other. Phases that differ in their number of taps are sums of the columns of one
//! product instead. No product with an inserted zero is computed, which would also make NaN of an
//! infinite input, and the weights are rearranged while compiling. With strides of one there is one
//! phase, and nothing to put together.

mod columns;

use super::missing;
use super::window::of_rank;
use crate::graph::ExprId;
use crate::ir::Dim;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::nn::{self, ConvAttrs};
use crate::ops::tensor::{CONCATENATE, ConcatenateAttrs, STRIDED_SLICE, StridedSliceAttrs};

/// Most parts that a kernel is divided into, each a slice of the weights; real kernels have a few.
const MAX_PARTS: usize = 4096;

/// What the node says of one spatial axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    taps: i64,
    stride: i64,
    dilation: i64,
    /// What is cut from the whole result before and after it; may be negative.
    before: i64,
    after: i64,
    /// Zeros after the whole result.
    extra: i64,
}

/// Neighbouring phases of an axis that have as many taps, at the same inputs.
#[derive(Clone, Debug)]
struct Run {
    /// The first tap of each phase.
    first: Vec<i64>,
    /// Taps of each phase, which may be none.
    taps: i64,
    /// Distance between the taps of a phase, in the kernel.
    step: i64,
    /// Distance between the inputs that they meet.
    dilation: i64,
    /// Zeros before and after the input; negative if inputs are left out.
    padding: [i64; 2],
}

impl Axis {
    /// Taps from the first to the last, with what lies between them.
    fn span(self) -> i64 {
        self.dilation * (self.taps - 1) + 1
    }

    /// Where the whole result ends, counted from the step of the last input.
    fn rest(self) -> i64 {
        self.extra + self.span() - self.after
    }

    /// The first step `j` that has a phase within the result, and the last one, counted from the last
    /// input.
    fn steps(self) -> [i64; 2] {
        [self.before.div_euclid(self.stride), (self.rest() - 1).div_euclid(self.stride)]
    }

    /// What is cut before and after all phases of these steps.
    fn cut(self) -> [i64; 2] {
        let [first, last] = self.steps();
        [self.before - self.stride * first, self.stride * (last + 1) - self.rest()]
    }

    /// All phases, in order.
    fn runs(self) -> Vec<Run> {
        let common = gcd(self.dilation, self.stride);
        let (step, dilation) = (self.stride / common, self.dilation / common);
        let [first_step, last_step] = self.steps();
        // The first tap of each phase; those of others are zeros.
        let mut first = vec![None; self.stride as usize];
        for tap in 0..step.min(self.taps) {
            first[(self.dilation * tap % self.stride) as usize] = Some(tap);
        }
        let mut runs: Vec<Run> = Vec::new();
        for (phase, tap) in (0..).zip(first) {
            let taps = tap.map_or(0, |tap| (self.taps - 1 - tap) / step + 1);
            // The input of a phase's first tap at step 0, to the left.
            let offset = tap.map_or(0, |tap| (self.dilation * tap - phase) / self.stride);
            let reach = dilation * (taps - 1).max(0);
            let padding = [offset + reach - first_step, last_step - offset];
            let tap = tap.unwrap_or(0);
            match runs.last_mut() {
                Some(run) if (run.taps, run.padding) == (taps, padding) => run.first.push(tap),
                _ => runs.push(Run { first: vec![tap], taps, step, dilation, padding }),
            }
        }
        runs
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `ConvTranspose`-1, -11 (defaults of strides and dilations spelled out), -22 (more types).
pub(super) fn conv_transpose(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight, bias) = (node.input(0)?, node.input(1)?, node.optional(2));
    let (x_shape, w_shape) = (node.shape(x)?, node.shape(weight)?);
    let rank = x_shape.rank().saturating_sub(2);
    if nn::conv(rank).is_none() || w_shape.rank() != rank + 2 {
        return Err(NodeError::new(format!(
            "1 to 3 spatial dimensions are supported, the same number in input and weights, but the \
             shapes are {x_shape} and {w_shape}"
        )));
    }
    let groups = node.attrs.int("group")?.unwrap_or(1);
    let [inputs, outputs] = [node.known_extent(weight, 0)?, node.known_extent(weight, 1)?];
    if groups < 1 || inputs % groups != 0 || !node.is_same(&x_shape[1..2], &[inputs.into()]) {
        return Err(NodeError::new(format!(
            "the weights {w_shape} take {inputs} channels in {groups} groups, but the input is {x_shape}"
        )));
    }
    let axes = read_axes(node, x, weight, rank)?;
    let runs: Vec<Vec<Run>> = axes.iter().map(|axis| axis.runs()).collect();
    let parts = runs.iter().map(|runs| runs.iter().map(Run::parts).sum::<usize>());
    if parts.fold(1, usize::saturating_mul) > MAX_PARTS {
        return Err(NodeError::new(format!(
            "the strides {:?} divide the kernel of {:?} taps into more than {MAX_PARTS} parts",
            axes.iter().map(|axis| axis.stride).collect::<Vec<_>>(),
            axes.iter().map(|axis| axis.taps).collect::<Vec<_>>()
        )));
    }
    let steps = (x_shape.iter().skip(2).zip(&axes))
        .map(|(extent, axis)| {
            let [first, last] = axis.steps();
            extent.clone() + Dim::from(last - first)
        })
        .collect();
    let phases = runs.iter().any(|runs| runs.iter().map(|run| run.first.len()).sum::<usize>() > 1);
    let operands = Operands { x, weight, bias, groups, channels: groups * outputs, steps, phases };
    let as_columns = columns::pays(&axes, &runs, outputs, node.tensor(x)?.dtype);
    let mut result = if as_columns {
        columns::summed(node, &operands, &axes)?
    } else {
        operands.convolved(node, &runs, &mut Vec::with_capacity(rank))?
    };
    if phases {
        result = interleave(node, result, rank)?;
    }
    let last = |cut: i64| if cut == 0 { i64::MAX } else { -cut };
    let kept = axes.iter().map(|axis| axis.cut()).map(|[before, after]| [before, last(after)]);
    result = sliced(node, result, kept)?;
    if let Some(bias) = bias.filter(|_| as_columns) {
        result = node.call_with(&nn::BIAS_ADD, &[result, bias], &nn::BiasAddAttrs { axis: 1 })?;
    }
    Ok(vec![result])
}

fn read_axes(
    node: &mut Node<'_, '_>,
    x: ExprId,
    weight: ExprId,
    rank: usize,
) -> Result<Vec<Axis>, NodeError> {
    let kernel: Vec<i64> =
        (0..rank).map(|axis| node.known_extent(weight, axis + 2)).collect::<Result<_, _>>()?;
    if let Some(declared) = node.attrs.ints("kernel_shape")?
        && declared != kernel
    {
        return Err(NodeError::new(format!(
            "attribute `kernel_shape` is {declared:?}, but the weights have {kernel:?}"
        )));
    }
    let strides = node.attrs.ints_or("strides", rank, 1)?;
    let dilations = node.attrs.ints_or("dilations", rank, 1)?;
    let extra = node.attrs.ints_or("output_padding", rank, 0)?;
    let pads = node.attrs.ints_or("pads", 2 * rank, 0)?;
    let output_shape = node.attrs.ints("output_shape")?;
    let auto_pad = node.attrs.string("auto_pad")?.unwrap_or("NOTSET");
    if !matches!(auto_pad, "NOTSET" | "" | "VALID" | "SAME_UPPER" | "SAME_LOWER") {
        return Err(NodeError::new(format!(
            "attribute `auto_pad` must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, but it is `{auto_pad}`"
        )));
    }
    // Enough for any real model, and products of three such numbers fit into 64 bits.
    const MOST: i64 = 1 << 20;
    let mut axes = Vec::with_capacity(rank);
    for index in 0..rank {
        let mut axis = Axis {
            taps: kernel[index],
            stride: strides[index],
            dilation: dilations[index],
            before: pads[index],
            after: pads[rank + index],
            extra: extra[index],
        };
        let positive = [axis.taps, axis.stride, axis.dilation];
        let others = [axis.before, axis.after, axis.extra];
        if positive.iter().any(|value| !(1..=MOST).contains(value))
            || others.iter().any(|value| !(0..=MOST).contains(value))
        {
            return Err(NodeError::new(format!(
                "along spatial axis {index}, kernel, stride and dilation {positive:?} must be from 1 to \
                 {MOST}, and padding and output padding {others:?} from 0"
            )));
        }
        // What is left of the whole result, if not what `pads` says.
        let total = match (output_shape, auto_pad) {
            (Some(shape), _) => {
                // Some writers list the batch and the channels as well.
                let skip = shape.len().saturating_sub(rank);
                let wanted = *shape.get(skip + index).ok_or_else(|| missing("output_shape"))?;
                let whole = (node.known_extent(x, index + 2)? - 1)
                    .checked_mul(axis.stride)
                    .and_then(|whole| whole.checked_add(axis.extra + axis.span()));
                let total = whole.and_then(|whole| whole.checked_sub(wanted));
                Some(total.filter(|total| total.abs() <= MOST).ok_or_else(|| {
                    NodeError::new(format!("an output extent of {wanted} does not fit"))
                })?)
            }
            // The result is the stride times as large as the input.
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(axis.extra + axis.span() - axis.stride),
            (None, "VALID") => {
                (axis.before, axis.after) = (0, 0);
                None
            }
            (None, _) => None,
        };
        if let Some(total) = total {
            (axis.before, axis.after) = match auto_pad {
                _ if total < 0 => (0, total),
                "SAME_UPPER" => (total / 2, total - total / 2),
                _ => (total - total / 2, total / 2),
            };
        }
        axes.push(axis);
    }
    Ok(axes)
}

impl Run {
    /// How many slices of the weights make those of the run.
    fn parts(&self) -> usize {
        if self.taps == 0 || self.is_whole() { 1 } else { self.first.len() }
    }

    /// Whether the run has all taps, in groups of one for each phase.
    fn is_whole(&self) -> bool {
        self.first.len() as i64 == self.step
            && (0..).zip(&self.first).all(|(phase, &first)| phase == first)
    }
}

/// What the convolutions of all runs share.
struct Operands {
    x: ExprId,
    /// `(C, M / groups, taps…)`.
    weight: ExprId,
    bias: Option<ExprId>,
    groups: i64,
    /// Of the result.
    channels: i64,
    /// Of every phase, along each axis.
    steps: Vec<Dim>,
    /// Whether an axis has more than one phase.
    phases: bool,
}

impl Operands {
    /// All phases whose first axes are in the chosen runs, as `(N, M, phases…, steps…)`; as
    /// `(N, M, steps…)` if there is one phase.
    fn convolved<'r>(
        &self,
        node: &mut Node<'_, '_>,
        runs: &'r [Vec<Run>],
        chosen: &mut Vec<&'r Run>,
    ) -> Result<ExprId, NodeError> {
        let axis = chosen.len();
        let Some(of_axis) = runs.get(axis) else { return self.convolution(node, chosen) };
        let mut parts = Vec::with_capacity(of_axis.len());
        for run in of_axis {
            chosen.push(run);
            let part = self.convolved(node, runs, chosen);
            chosen.pop();
            parts.push(part?);
        }
        concatenated(node, &parts, axis + 2)
    }

    /// The phases of one run for each axis.
    fn convolution(&self, node: &mut Node<'_, '_>, runs: &[&Run]) -> Result<ExprId, NodeError> {
        let rank = runs.len();
        let x_shape = node.shape(self.x)?;
        let channels = Dim::from(self.channels);
        let counts = runs.iter().map(|run| Dim::from(run.first.len() as i64));
        let count = counts.clone().fold(Dim::from(1i64), |product, count| &product * &count);
        let mut shape = vec![x_shape[0].clone(), channels.clone()];
        shape.extend(counts.filter(|_| self.phases));
        shape.extend(self.steps.iter().cloned());
        // A run beside the input has the bias alone.
        let beside = |(run, extent): (&&Run, &Dim)| {
            let skipped = run.padding.iter().map(|&padding| -padding).max();
            extent.as_const().is_some_and(|extent| skipped >= Some(extent.max(1)))
        };
        if runs.iter().any(|run| run.taps == 0)
            || runs.iter().zip(x_shape.iter().skip(2)).any(beside)
        {
            let dtype = node.tensor(self.x)?.dtype;
            let value = match self.bias {
                None => node.scalar(0.0, dtype)?,
                Some(bias) => {
                    let ones = vec![Dim::from(1i64); shape.len() - 2];
                    node.reshape(bias, [channels].into_iter().chain(ones).collect())?
                }
            };
            return node.broadcast_to(value, shape);
        }
        let weight = self.weights(node, runs)?;
        let bias = match self.bias {
            Some(bias) if self.phases => {
                // The same for all phases of a channel.
                let column = node.reshape(bias, vec![channels.clone(), Dim::from(1i64)])?;
                let all = node.broadcast_to(column, vec![channels.clone(), count.clone()])?;
                Some(node.reshape(all, vec![&channels * &count])?)
            }
            bias => bias,
        };
        let last = |padding: i64| if padding < 0 { padding } else { i64::MAX };
        let kept = runs.iter().map(|run| [(-run.padding[0]).max(0), last(run.padding[1])]);
        let x = sliced(node, self.x, kept)?;
        let padding =
            [0, 1].map(|side: usize| runs.iter().map(move |run| run.padding[side].max(0)));
        let attrs = ConvAttrs {
            padding: padding.into_iter().flatten().collect(),
            dilation: runs.iter().map(|run| run.dilation).collect(),
            groups: self.groups,
            ..ConvAttrs::of_rank(rank)
        };
        let args = vec![Some(x), Some(weight), bias];
        let result = node.call_optional(of_rank(nn::conv, rank)?, args, &attrs)?;
        if self.phases { node.reshape(result, shape) } else { Ok(result) }
    }

    /// The weights of one run for each axis, as `(M · phases, C / groups, taps…)`, the taps of each
    /// phase turned round.
    fn weights(&self, node: &mut Node<'_, '_>, runs: &[&Run]) -> Result<ExprId, NodeError> {
        let rank = runs.len();
        let shape = node.shape(self.weight)?;
        let [inputs, outputs] = [&shape[0], &shape[1]];
        let groups = Dim::from(self.groups);
        let per_group = inputs.as_const().map_or(1, |inputs| inputs / self.groups);
        let mut dims = vec![groups.clone(), Dim::from(per_group), outputs.clone()];
        dims.extend(shape.iter().skip(2).cloned());
        let mut weight = node.reshape(self.weight, dims.clone())?;
        // Axis by axis, taps become taps and phases.
        for (axis, run) in runs.iter().enumerate() {
            let place = 3 + 2 * axis;
            let count = run.first.len() as i64;
            dims.splice(place..=place, [Dim::from(run.taps), Dim::from(count)]);
            let slice = |node: &mut Node<'_, '_>, value, [begin, end, stride]: [i64; 3]| {
                let attrs = StridedSliceAttrs {
                    begin: vec![begin],
                    end: vec![if end < 0 { i64::MIN } else { end }],
                    strides: vec![stride],
                    axes: vec![place as i64],
                };
                node.call_with(&STRIDED_SLICE, &[value], &attrs)
            };
            if run.is_whole() {
                weight = node.reshape(weight, dims.clone())?;
                if run.taps > 1 {
                    weight = slice(node, weight, [run.taps - 1, -1, -1])?;
                }
                continue;
            }
            let mut one = dims.clone();
            one[place + 1] = Dim::from(1i64);
            let mut parts = Vec::with_capacity(run.first.len());
            for &first in &run.first {
                let last = first + run.step * (run.taps - 1);
                let part = slice(node, weight, [last, first - run.step, -run.step])?;
                parts.push(node.reshape(part, one.clone())?);
            }
            weight = concatenated(node, &parts, place + 1)?;
        }
        let phases = (0..rank).map(|axis| 4 + 2 * axis);
        let taps = (0..rank).map(|axis| 3 + 2 * axis);
        let order: Vec<usize> = [0, 2].into_iter().chain(phases).chain([1]).chain(taps).collect();
        let weight = node.transposed(weight, &order)?;
        let all = (runs.iter())
            .fold(&groups * outputs, |all, run| &all * &Dim::from(run.first.len() as i64));
        let taps = runs.iter().map(|run| Dim::from(run.taps));
        node.reshape(weight, [all, Dim::from(per_group)].into_iter().chain(taps).collect())
    }
}

fn concatenated(
    node: &mut Node<'_, '_>,
    parts: &[ExprId],
    axis: usize,
) -> Result<ExprId, NodeError> {
    match parts {
        [part] => Ok(*part),
        _ => node.call_with(&CONCATENATE, parts, &ConcatenateAttrs { axis: axis as i64 }),
    }
}

/// What is from a first place to a last along each spatial axis.
fn sliced(
    node: &mut Node<'_, '_>,
    value: ExprId,
    ranges: impl Iterator<Item = [i64; 2]>,
) -> Result<ExprId, NodeError> {
    let mut attrs = StridedSliceAttrs { begin: vec![], end: vec![], strides: vec![], axes: vec![] };
    for (axis, [begin, end]) in (2..).zip(ranges).filter(|(_, range)| *range != [0, i64::MAX]) {
        attrs.begin.push(begin);
        attrs.end.push(end);
        attrs.strides.push(1);
        attrs.axes.push(axis);
    }
    if attrs.axes.is_empty() {
        return Ok(value);
    }
    node.call_with(&STRIDED_SLICE, &[value], &attrs)
}

/// `(N, M, phases…, steps…)` as `(N, M, steps · phases…)`.
fn interleave(node: &mut Node<'_, '_>, value: ExprId, rank: usize) -> Result<ExprId, NodeError> {
    let shape = node.shape(value)?;
    let order: Vec<usize> =
        [0, 1].into_iter().chain((0..rank).flat_map(|axis| [2 + rank + axis, 2 + axis])).collect();
    let value = node.transposed(value, &order)?;
    let whole = (0..rank).map(|axis| &shape[2 + rank + axis] * &shape[2 + axis]);
    node.reshape(value, shape.iter().take(2).cloned().chain(whole).collect())
}
