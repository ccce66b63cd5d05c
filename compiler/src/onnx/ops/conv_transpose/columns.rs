//! A transposed convolution as one product of all taps, added where they go: *col2im*.
//!
//! The weights, a row for each output channel and tap, times the image are what each tap adds for each
//! input. An output of one phase is the sum of that phase's taps, each at a constant distance from the
//! place in the image.

use super::{Axis, Operands, Run, concatenated};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError};
use crate::ops::nn::{MATMUL, MatmulAttrs, PAD, PadAttrs, PadMode};
use crate::target::CHANNEL_BLOCK;

/// Most taps and phases: each tap is a term of a sum, and each phase a sum.
const MOST: i64 = 64;

/// Whether the phases have more and fewer taps, so that convolutions of each would be of different
/// shapes, as those of three taps with a stride of two are, and channels that do not fill blocks, so
/// that lanes of these would be idle: those that do go between each other as they are. Sums of 16-bit floats would be rounded at each tap.
pub(super) fn pays(axes: &[Axis], runs: &[Vec<Run>], outputs: i64, dtype: DType) -> bool {
    let product = |of: fn(&Axis) -> i64| axes.iter().map(of).fold(1, i64::saturating_mul);
    let uneven = |runs: &Vec<Run>| runs.iter().any(|run| run.taps != runs[0].taps);
    matches!(dtype, DType::F32 | DType::F64)
        && outputs % CHANNEL_BLOCK != 0
        && runs.iter().any(uneven)
        && product(|axis| axis.taps) <= MOST
        && product(|axis| axis.stride) <= MOST
}

/// All phases, as `(N, M, phases…, steps…)`.
pub(super) fn summed(
    node: &mut Node<'_, '_>,
    operands: &Operands,
    axes: &[Axis],
) -> Result<ExprId, NodeError> {
    let columns = operands.columns(node)?;
    let of_axes: Vec<Vec<Vec<Tap>>> = axes.iter().map(|axis| axis.taps_of_phases()).collect();
    let phases = choices(&of_axes);
    let mut shape = node.shape(columns)?.to_vec();
    let dtype = node.tensor(columns)?.dtype;
    shape.splice(2.., [Dim::from(1i64)].into_iter().chain(operands.steps.iter().cloned()));
    let mut sums = Vec::with_capacity(phases.len());
    for phase in phases {
        let mut sum = None;
        for taps in choices(&phase) {
            let next = term(node, columns, axes, &taps)?;
            sum = Some(match sum {
                None => next,
                Some(sum) => node.add(sum, next)?,
            });
        }
        sums.push(match sum {
            Some(sum) => sum,
            None => node.full(0.0, dtype, shape.clone())?,
        });
    }
    let all = concatenated(node, &sums, 2)?;
    let strides = axes.iter().map(|axis| Dim::from(axis.stride));
    shape.splice(2..3, strides);
    node.reshape(all, shape)
}

/// A tap of one axis that has a place in a phase.
#[derive(Clone, Copy, Debug)]
struct Tap {
    index: i64,
    /// How many inputs before the step of an output the input lies that the tap meets.
    distance: i64,
}

impl Axis {
    fn taps_of_phases(&self) -> Vec<Vec<Tap>> {
        let mut phases = vec![Vec::new(); self.stride as usize];
        for index in 0..self.taps {
            let at = self.dilation * index;
            let tap = Tap { index, distance: at / self.stride };
            phases[(at % self.stride) as usize].push(tap);
        }
        phases
    }
}

impl Operands {
    /// What each tap adds for each input, as `(N, M, taps, extents…)`.
    fn columns(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        let (x_shape, w_shape) = (node.shape(self.x)?, node.shape(self.weight)?);
        let groups = Dim::from(self.groups);
        let inputs = Dim::from(node.known_extent(self.weight, 0)? / self.groups);
        let taps: Dim = w_shape.iter().skip(2).product();
        let rows = &w_shape[1] * &taps;
        let weight = node.reshape(self.weight, vec![groups.clone(), inputs.clone(), rows])?;
        let weight = node.transposed(weight, &[0, 2, 1])?;
        let extents = x_shape[2..].to_vec();
        let places = extents.iter().product();
        let x = node.reshape(self.x, vec![x_shape[0].clone(), groups, inputs, places])?;
        let columns = node.call_with(&MATMUL, &[weight, x], &MatmulAttrs::default())?;
        let mut shape = vec![x_shape[0].clone(), Dim::from(self.channels), taps];
        shape.extend(extents);
        node.reshape(columns, shape)
    }
}

/// What a tap for each axis adds to the steps of their phase, as `(N, M, 1, steps…)`.
fn term(
    node: &mut Node<'_, '_>,
    columns: ExprId,
    axes: &[Axis],
    taps: &[Tap],
) -> Result<ExprId, NodeError> {
    let index = axes.iter().zip(taps).fold(0, |all, (axis, tap)| all * axis.taps + tap.index);
    let column = node.slice(columns, 2, index, index + 1)?;
    let mut pad_width = vec![[0, 0]; 3];
    pad_width.extend(axes.iter().zip(taps).map(|(axis, tap)| {
        let [first, last] = axis.steps();
        [tap.distance - first, last - tap.distance]
    }));
    node.call_with(&PAD, &[column], &PadAttrs { pad_width, mode: PadMode::Constant })
}

/// Every choice of one element of each list, the last list's changing fastest.
fn choices<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |chosen, list| {
        let longer = |chosen: &Vec<T>| {
            list.iter()
                .map(|one| [chosen.as_slice(), std::slice::from_ref(one)].concat())
                .collect::<Vec<_>>()
        };
        chosen.iter().flat_map(longer).collect()
    })
}
