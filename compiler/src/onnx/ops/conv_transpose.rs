//! `ConvTranspose`, as a convolution.
//!
//! Output `s·q + p` along an axis of stride `s` takes the taps `s·j + p` of the kernel, from input
//! `q - j`. So every phase `p` is an ordinary convolution of its own taps, turned round; all phases
//! together are one convolution with more output channels, whose results are put between each
//! other. No product with an inserted zero is computed, and the weights are rearranged while
//! compiling. With strides of one there is one phase, and nothing to put together.

use super::missing;
use super::window::of_rank;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::nn::{self, ConvAttrs, PAD, PadAttrs, PadMode};
use crate::ops::tensor::{STRIDED_SLICE, StridedSliceAttrs};

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

/// The convolution of one axis's phases.
#[derive(Clone, Copy, Debug)]
struct Phases {
    /// Taps of each phase.
    taps: i64,
    dilation: i64,
    /// Zeros before and after the input.
    padding: [i64; 2],
    /// What is cut before and after, once the phases are put between each other.
    cut: [i64; 2],
}

impl Axis {
    /// Taps from the first to the last, with what lies between them.
    fn span(self) -> i64 {
        self.dilation * (self.taps - 1) + 1
    }

    fn phases(self) -> Phases {
        let (taps, dilation) =
            if self.stride == 1 { (self.taps, self.dilation) } else { (self.span(), 1) };
        let taps = (taps + self.stride - 1) / self.stride;
        let reach = dilation * (taps - 1);
        // The least steps that have all outputs, counted from the first output of the whole result
        // and from the step after the last input.
        let first = self.before.div_euclid(self.stride);
        let rest = self.extra + self.span() - self.after;
        let last = rest.div_euclid(self.stride) + i64::from(rest.rem_euclid(self.stride) > 0) - 1;
        let padding = [(reach - first).max(0), last.max(0)];
        let start = self.before - self.stride * (reach - padding[0]);
        let steps = padding[0] + padding[1] - reach + 1;
        let end = self.stride * steps - start - (rest - self.before);
        Phases { taps, dilation, padding, cut: [start, end] }
    }
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
    if groups < 1 || inputs % groups != 0 || x_shape[1].as_const() != Some(inputs) {
        return Err(NodeError::new(format!(
            "the weights {w_shape} take {inputs} channels in {groups} groups, but the input is {x_shape}"
        )));
    }
    let axes = read_axes(node, x, weight, rank)?;
    let phases: Vec<Phases> = axes.iter().map(|axis| axis.phases()).collect();
    let strides: Vec<i64> = axes.iter().map(|axis| axis.stride).collect();
    let count: i64 = strides.iter().product();
    let weight = phase_weights(node, weight, groups, &axes, &phases)?;
    let bias = match bias {
        Some(bias) if count > 1 => {
            // The same for all phases of a channel.
            let channels = Dim::from(groups * outputs);
            let column = node.reshape(bias, vec![channels.clone(), Dim::from(1i64)])?;
            let all = node.broadcast_to(column, vec![channels, Dim::from(count)])?;
            Some(node.reshape(all, vec![Dim::from(groups * outputs * count)])?)
        }
        bias => bias,
    };
    let padding =
        [0, 1].into_iter().flat_map(|side: usize| phases.iter().map(move |p| p.padding[side]));
    let attrs = ConvAttrs {
        padding: padding.collect(),
        dilation: phases.iter().map(|phase| phase.dilation).collect(),
        groups,
        ..ConvAttrs::of_rank(rank)
    };
    let args = vec![Some(x), Some(weight), bias];
    let mut result = node.call_optional(of_rank(nn::conv, rank)?, args, &attrs)?;
    if count > 1 {
        result = interleave(node, result, groups * outputs, &strides)?;
    }
    Ok(vec![cut(node, result, &phases)?])
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
        let wanted = match (output_shape, auto_pad) {
            (Some(shape), _) => {
                // Some writers list the batch and the channels as well.
                let skip = shape.len().saturating_sub(rank);
                Some(shape.get(skip + index).copied().ok_or_else(|| missing("output_shape"))?)
            }
            (None, "SAME_UPPER" | "SAME_LOWER") => {
                let extent = node.known_extent(x, index + 2)?;
                Some(extent.saturating_mul(axis.stride))
            }
            (None, "VALID") => {
                (axis.before, axis.after) = (0, 0);
                None
            }
            (None, _) => None,
        };
        if let Some(wanted) = wanted {
            let extent = node.known_extent(x, index + 2)?;
            let whole = (extent - 1)
                .checked_mul(axis.stride)
                .and_then(|whole| whole.checked_add(axis.extra + axis.span()));
            let total = whole
                .and_then(|whole| whole.checked_sub(wanted))
                .filter(|total| total.abs() <= MOST)
                .ok_or_else(|| {
                    NodeError::new(format!("an output extent of {wanted} does not fit"))
                })?;
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

/// The weights `(C, M / groups, taps…)` as `(M · phases, C / groups, taps…)`: of each phase its taps,
/// turned round.
fn phase_weights(
    node: &mut Node<'_, '_>,
    weight: ExprId,
    groups: i64,
    axes: &[Axis],
    phases: &[Phases],
) -> Result<ExprId, NodeError> {
    let rank = axes.len();
    let dtype = node.tensor(weight)?.dtype;
    let [inputs, outputs] = [node.known_extent(weight, 0)?, node.known_extent(weight, 1)?];
    let dims = |extents: &[i64]| extents.iter().copied().map(Dim::from).collect::<Vec<_>>();
    let mut weight = weight;
    let spread = |axis: &Axis| if axis.stride == 1 { 1 } else { axis.dilation };
    if axes.iter().any(|axis| spread(axis) > 1) {
        // Zeros between the taps.
        let mut extents = vec![inputs, outputs];
        let mut widths = vec![[0, 0]; 2];
        for axis in axes {
            extents.extend([axis.taps, 1]);
            widths.extend([[0, 0], [0, spread(axis) - 1]]);
        }
        weight = node.reshape(weight, dims(&extents))?;
        weight = pad(node, weight, widths, dtype)?;
        let mut extents = vec![inputs, outputs];
        extents.extend(axes.iter().map(|axis| axis.taps * spread(axis)));
        weight = node.reshape(weight, dims(&extents))?;
    }
    // As many taps for every phase.
    let widths = axes
        .iter()
        .zip(phases)
        .map(|(axis, phase)| [0, phase.taps * axis.stride - axis.taps * spread(axis)]);
    weight = pad(node, weight, [[0, 0]; 2].into_iter().chain(widths).collect(), dtype)?;
    let mut extents = vec![groups, inputs / groups, outputs];
    for (axis, phase) in axes.iter().zip(phases) {
        extents.extend([phase.taps, axis.stride]);
    }
    weight = node.reshape(weight, dims(&extents))?;
    let phase_axes = (0..rank).map(|axis| 4 + 2 * axis);
    let tap_axes = (0..rank).map(|axis| 3 + 2 * axis);
    let order: Vec<usize> =
        [0, 2].into_iter().chain(phase_axes).chain([1]).chain(tap_axes).collect();
    weight = node.transposed(weight, &order)?;
    let count: i64 = axes.iter().map(|axis| axis.stride).product();
    let mut extents = vec![groups * outputs * count, inputs / groups];
    extents.extend(phases.iter().map(|phase| phase.taps));
    weight = node.reshape(weight, dims(&extents))?;
    let turned: Vec<i64> =
        (0..rank).filter(|&axis| phases[axis].taps > 1).map(|axis| axis as i64 + 2).collect();
    if turned.is_empty() {
        return Ok(weight);
    }
    let attrs = StridedSliceAttrs {
        begin: vec![-1; turned.len()],
        end: vec![i64::MIN; turned.len()],
        strides: vec![-1; turned.len()],
        axes: turned,
    };
    node.call_with(&STRIDED_SLICE, &[weight], &attrs)
}

fn pad(
    node: &mut Node<'_, '_>,
    value: ExprId,
    pad_width: Vec<[i64; 2]>,
    dtype: DType,
) -> Result<ExprId, NodeError> {
    if pad_width.iter().all(|width| *width == [0, 0]) {
        return Ok(value);
    }
    let zero = node.scalar(0.0, dtype)?;
    let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
    node.call_with(&PAD, &[value, zero], &attrs)
}

/// `(N, M · phases, steps…)` as `(N, M, steps · phases…)`.
fn interleave(
    node: &mut Node<'_, '_>,
    value: ExprId,
    channels: i64,
    strides: &[i64],
) -> Result<ExprId, NodeError> {
    let shape = node.shape(value)?;
    let rank = strides.len();
    let head = [shape[0].clone(), Dim::from(channels)];
    let steps = &shape[2..];
    let phases = strides.iter().copied().map(Dim::from);
    let split = head.iter().cloned().chain(phases.clone()).chain(steps.iter().cloned()).collect();
    let value = node.reshape(value, split)?;
    let order: Vec<usize> =
        [0, 1].into_iter().chain((0..rank).flat_map(|axis| [2 + rank + axis, 2 + axis])).collect();
    let value = node.transposed(value, &order)?;
    let whole = steps.iter().zip(phases).map(|(steps, phases)| steps * &phases);
    node.reshape(value, head.into_iter().chain(whole).collect())
}

/// What remains after the cuts.
fn cut(node: &mut Node<'_, '_>, value: ExprId, phases: &[Phases]) -> Result<ExprId, NodeError> {
    let mut attrs = StridedSliceAttrs { begin: vec![], end: vec![], strides: vec![], axes: vec![] };
    for (index, phase) in phases.iter().enumerate().filter(|(_, phase)| phase.cut != [0, 0]) {
        attrs.begin.push(phase.cut[0]);
        attrs.end.push(if phase.cut[1] == 0 { i64::MAX } else { -phase.cut[1] });
        attrs.strides.push(1);
        attrs.axes.push(index as i64 + 2);
    }
    if attrs.axes.is_empty() {
        return Ok(value);
    }
    node.call_with(&STRIDED_SLICE, &[value], &attrs)
}
