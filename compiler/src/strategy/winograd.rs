//! The rule for convolution by Winograd's algorithm.

use std::collections::BTreeMap;
use std::fmt;

use super::{CHANNEL_BLOCK, Machine};
use crate::ir::{BufferSpec, DType};
use crate::ops::nn::Winograd;
use crate::schedule::library::{WinogradTiles, winograd};
use crate::schedule::{BufferAccess, Schedule, ScheduleError, ScheduleRule, Task};
use crate::target::Target;
use crate::te::{Anchor, ComputeDag, StageId};
use crate::tuned::{Tunable, Tuned, Workload};

/// The stages of a convolution in a dag.
struct Conv {
    output: StageId,
    data: StageId,
    image: StageId,
    weight: StageId,
    algorithm: Winograd,
}

impl Conv {
    fn of(dag: &ComputeDag) -> Option<Conv> {
        dag.stages.iter().find_map(|(output, stage)| match stage.anchor {
            Anchor::Winograd { data, image, weight, algorithm, padding: _ } => {
                Some(Conv { output, data, image, weight, algorithm })
            }
            Anchor::Conv2d { .. }
            | Anchor::MatMul { .. }
            | Anchor::Window { .. }
            | Anchor::None => None,
        })
    }

    /// Multiplications and additions of a direct convolution.
    fn macs(&self, dag: &ComputeDag) -> u64 {
        let taps = 9 * dag.shape(self.data)[1];
        let extents = dag.shape(self.output).iter().chain([&taps]);
        extents.fold(1u64, |macs, &extent| macs.saturating_mul(extent.unsigned_abs()))
    }
}

/// What workloads begin with for which an algorithm is chosen.
const ALGORITHM: &str = "algorithm of conv2d";

/// What convolutions that no algorithm makes faster are computed by.
const DIRECT: &str = "direct";

/// The choice of an algorithm for a convolution of a batch with input and output channels, whose
/// result has such an image; `None` is the direct one.
pub(super) fn algorithm_tunable(
    packing: Machine,
    [batch, channels, outputs]: [i64; 3],
    [height, width]: [i64; 2],
    algorithm: Option<Winograd>,
) -> Tunable {
    let name = |algorithm: &Winograd| algorithm.to_string();
    let what = algorithm_workload([batch, channels, outputs], [height, width]);
    let candidates = [Winograd::F2, Winograd::F4].iter().map(name);
    Tunable {
        workload: Workload { machine: packing.name(), what },
        candidates: std::iter::once(DIRECT.to_owned()).chain(candidates).collect(),
        chosen: algorithm.as_ref().map_or(DIRECT.to_owned(), name),
    }
}

/// In words.
pub(crate) fn algorithm_workload(
    [batch, channels, outputs]: [i64; 3],
    [height, width]: [i64; 2],
) -> String {
    format!("{ALGORITHM} {batch}x{channels} by 3x3 to {outputs}x{height}x{width}")
}

/// Whether it is an algorithm that is chosen for a workload.
#[cfg(feature = "cli")]
pub(crate) fn is_algorithm(workload: &Workload) -> bool {
    workload.what.starts_with(ALGORITHM)
}

/// The algorithms that were measured to be the fastest, by [`algorithm_workload`].
pub(crate) fn measured_algorithms(tuned: &Tuned, widest: &Target) -> BTreeMap<String, String> {
    let machine = Machine::of(widest).name();
    let own = tuned.choices().filter(|(workload, _)| {
        workload.machine == machine && workload.what.starts_with(ALGORITHM)
    });
    own.map(|(workload, choice)| (workload.what.clone(), choice.to_owned())).collect()
}

/// How a convolution is cut: `F(2x2, 3x3), blocks of 28 tiles, register tiles of 14 x 32`.
#[derive(Clone)]
pub(super) struct Cut {
    algorithm: Winograd,
    tiles: WinogradTiles,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.algorithm, self.tiles)
    }
}

/// The rule for one such convolution with constant weights and whole blocks of channels, and what is
/// done to each of its elements.
pub(super) struct WinogradConv;

impl ScheduleRule for WinogradConv {
    type Knobs = Cut;

    fn name(&self) -> &'static str {
        "Winograd convolution"
    }

    fn anchor(&self, dag: &ComputeDag) -> Option<StageId> {
        Some(Conv::of(dag)?.output)
    }

    fn knobs(&self, task: &Task<'_>, widest: Option<&Cut>) -> Vec<Cut> {
        let dag = task.dag;
        let Some(conv) = Conv::of(dag) else { return Vec::new() };
        let &[_, channels, height, width] = task.shape() else { return Vec::new() };
        let extents = [dag.shape(conv.data)[1], channels, height, width];
        let fits = dag.dtype(conv.output) == DType::F32
            && dag.limits(conv.output).iter().all(|limit| limit.axis == 0)
            && extents[..2].iter().all(|count| count % CHANNEL_BLOCK == 0)
            && task.is_constant(conv.weight);
        if !fits {
            return Vec::new();
        }
        let mut all = WinogradTiles::candidates(conv.algorithm, extents, task.machine);
        if let Some(WinogradTiles { packed, .. }) = widest.map(|cut| cut.tiles) {
            all.retain(|tiles| packed % tiles.panel == 0);
            all.iter_mut().for_each(|tiles| tiles.packed = packed);
        }
        all.into_iter().map(|tiles| Cut { algorithm: conv.algorithm, tiles }).collect()
    }

    fn apply(&self, s: &mut Schedule, task: &Task<'_>, cut: &Cut) -> Result<(), ScheduleError> {
        let Some(conv) = Conv::of(task.dag) else { return Ok(()) };
        let image = s.get_block("image")?;
        if s.read_halo(image).is_ok() {
            s.compute_inline(image)?;
        } else {
            // A copy in the layout in which tiles are read.
            let spec = BufferSpec::nchwc(task.dag.shape(conv.image), CHANNEL_BLOCK, &[]);
            s.transform_layout(image, BufferAccess::Write(0), &spec)?;
            if let [_, c, y, x] = s.get_loops(image)?[..] {
                let [blocks, c] = s.split(c, [None, Some(CHANNEL_BLOCK)])?;
                s.reorder(&[blocks, y, x, c])?;
            }
        }
        if let Some(epilogue) = task.epilogue(s)? {
            s.reverse_compute_inline(epilogue)?;
        }
        winograd(s, cut.algorithm, cut.tiles).map(drop)
    }

    fn macs(&self, task: &Task<'_>) -> u64 {
        Conv::of(task.dag).map_or(0, |conv| conv.macs(task.dag))
    }
}

/// The choice of the algorithm of a kernel by this rule.
pub(super) fn algorithm_of(dag: &ComputeDag, packing: Machine) -> Option<Tunable> {
    let conv = Conv::of(dag)?;
    let &[batch, outputs, height, width] = dag.shape(conv.output) else { return None };
    let channels = dag.shape(conv.data)[1];
    let algorithm = Some(conv.algorithm);
    Some(algorithm_tunable(packing, [batch, channels, outputs], [height, width], algorithm))
}
