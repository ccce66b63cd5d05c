//! Convolution by Winograd's algorithm: the one kind of kernel that is made by a schedule of
//! primitives as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHANNEL_BLOCK, KernelParam, Machine, halo_fits};
use crate::executor::{Kernel, Loops};
use crate::ir::{BufferSpec, DType};
use crate::ops::nn::Winograd;
use crate::schedule::library::{WinogradTiles, winograd};
use crate::schedule::{Schedule, ScheduleError};
use crate::target::Target;
use crate::te::{Anchor, ComputeDag, StageId, StageKind, lower_to_blocks};
use crate::tir::{BufferId, ParamKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};
use crate::tuned::{Tunable, Tuned, Workload};

/// The stages of a convolution in a dag.
struct Conv {
    output: StageId,
    data: StageId,
    image: StageId,
    weight: StageId,
    algorithm: Winograd,
    padding: [i64; 2],
}

impl Conv {
    fn of(dag: &ComputeDag) -> Option<Conv> {
        dag.stages.iter().find_map(|(output, stage)| match stage.anchor {
            Anchor::Winograd { data, image, weight, algorithm, padding } => {
                Some(Conv { output, data, image, weight, algorithm, padding })
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

/// The kernel of a dag that is one such convolution with constant weights and what is done to each
/// of its elements; `None` for others, and for extents that the schedule does not take.
pub(super) fn kernel(
    dag: &ComputeDag,
    params: &[KernelParam],
    outputs: &[(StageId, BufferSpec)],
    levels: &[Target],
    tuned: &Tuned,
) -> Option<Kernel> {
    let conv = Conv::of(dag)?;
    let [(root, _)] = outputs else { return None };
    let packable =
        |(stage, kind, _): &KernelParam| *stage == conv.weight && *kind == ParamKind::Constant;
    let channels = dag.shape(conv.output)[1];
    let fits = dag.shape(*root) == dag.shape(conv.output)
        && dag.dtype(conv.output) == DType::F32
        && dag.limits(conv.output).iter().all(|limit| limit.axis == 0)
        && [dag.shape(conv.data)[1], channels].iter().all(|count| count % CHANNEL_BLOCK == 0);
    if !fits || !params.iter().any(packable) {
        return None;
    }
    let &[_, _, height, width] = dag.shape(conv.output) else { return None };
    let extents = [dag.shape(conv.data)[1], channels, height, width];
    let batch = dag.shape(conv.output)[0];
    let Conv { algorithm, .. } = conv;
    let (out, [c, ..]) = (channels, extents);
    let beside = params.len().saturating_sub(2);
    // All levels read the weights that are packed for the widest.
    let choose = |level: &Target, packed: Option<i64>| {
        let mut candidates = WinogradTiles::candidates(algorithm, extents, level);
        if let Some(packed) = packed {
            candidates.retain(|cut| packed % cut.panel == 0);
        }
        let what = format!(
            "conv2d {batch}x{c} by {algorithm} to {out}x{height}x{width}, {beside} tensors beside"
        );
        let workload = Workload { machine: Machine::of(level).name(), what };
        let (at, tunable) = tuned.pick(workload, &candidates);
        (candidates[at], tunable)
    };
    let (widest, tunable) = choose(levels.last()?, None);
    let packed = widest.packed;
    let versions: Option<Vec<PrimFunc>> = levels
        .iter()
        .map(|level| {
            let cut = WinogradTiles { packed, ..choose(level, Some(packed)).0 };
            version(dag, &conv, params, &outputs[0], cut).ok()
        })
        .collect();
    let packing = Machine::of(levels.last()?);
    let by = algorithm_tunable(packing, [batch, c, out], [height, width], Some(algorithm));
    let loops = Loops {
        op: dag.stages[conv.output].op.clone(),
        rule: "Winograd convolution",
        knobs: format!("{algorithm}, {widest}"),
        cycles: None,
        missed: None,
    };
    Some(Kernel {
        macs: conv.macs(dag),
        loops: vec![loops],
        tunables: vec![by, tunable],
        ..Kernel::new(versions?)
    })
}

/// The function for one CPU level.
fn version(
    dag: &ComputeDag,
    conv: &Conv,
    params: &[KernelParam],
    (root, layout): &(StageId, BufferSpec),
    cut: WinogradTiles,
) -> Result<PrimFunc, ScheduleError> {
    let mut dag = dag.clone();
    let mut kinds = Vec::with_capacity(params.len() + 1);
    for (stage, kind, spec) in params {
        let buffer = dag.stages[*stage].buffer;
        dag.func.buffers[buffer].spec = spec.clone();
        kinds.push((*stage, *kind));
    }
    kinds.push((*root, ParamKind::Output));
    let output = dag.stages[*root].buffer;
    dag.func.buffers[output].spec = layout.clone();
    let has_border = read_border(&mut dag, conv);
    if !has_border {
        // A copy in the layout in which tiles are read.
        let image = dag.stages[conv.image].buffer;
        let shape = dag.shape(conv.image).to_vec();
        dag.func.buffers[image].spec = BufferSpec::nchwc(&shape, CHANNEL_BLOCK, &[]);
    }
    let inlined = name_epilogue(&mut dag, conv, *root);

    let func = lower_to_blocks(&dag, &kinds)
        .map_err(|error| ScheduleError { primitive: "winograd", message: error.0 })?;
    let mut s = Schedule::new(func);
    let image = s.get_block("image")?;
    if has_border {
        s.compute_inline(image)?;
    } else if let [_, c, y, x] = s.get_loops(image)?[..] {
        let [blocks, c] = s.split(c, [None, Some(CHANNEL_BLOCK)])?;
        s.reorder(&[blocks, y, x, c])?;
    }
    for name in inlined {
        let block = s.get_block(&name)?;
        s.compute_inline(block)?;
    }
    if *root != conv.output {
        let last = s.get_block(&dag.func.buffers[output].name)?;
        s.reverse_compute_inline(last)?;
    }
    let inplace = inplace_pairs(&s.func());
    winograd(&mut s, conv.algorithm, cut)?;
    let mut func = s.into_func().into_data();
    func.inplace = inplace;
    Ok(PrimFunc::new(func))
}

/// Has the first stage read the border of zeros that the image's layout has; whether it has one.
fn read_border(dag: &mut ComputeDag, conv: &Conv) -> bool {
    let spec = &dag.func.buffers[dag.stages[conv.data].buffer].spec;
    let (inner, outer) = (dag.shape(conv.data), dag.shape(conv.image));
    let needed: Vec<(i64, i64)> = (0..2)
        .map(|axis| {
            let before = conv.padding[axis];
            (before, (outer[axis + 2] - inner[axis + 2] - before).max(0))
        })
        .collect();
    if !halo_fits(spec, &needed) {
        return false;
    }
    let axes = dag.stages[conv.image].axes.clone();
    let mut index: Vec<PrimExpr> = axes.iter().map(|&axis| dag.func.var_expr(axis)).collect();
    for (axis, before) in conv.padding.into_iter().enumerate() {
        index[axis + 2] = index[axis + 2].clone() - before;
    }
    dag.stages[conv.image].kind = StageKind::Compute(dag.at(conv.data, &index));
    true
}

/// Gives the stages that are neither the convolution's nor the last one names of their own, and
/// returns those, in order.
fn name_epilogue(dag: &mut ComputeDag, conv: &Conv, root: StageId) -> Vec<String> {
    let mut needed = BTreeSet::from([root]);
    let mut named = Vec::new();
    for stage in dag.ids().rev() {
        // What the convolution reads is its own.
        if !needed.contains(&stage) || stage == conv.output {
            continue;
        }
        needed.extend(dag.reads(stage));
        if stage != root && dag.stages[stage].kind != StageKind::Placeholder {
            let buffer = dag.stages[stage].buffer;
            let name = format!("{}_{stage}", dag.func.buffers[buffer].name);
            dag.func.buffers[buffer].name.clone_from(&name);
            named.push(name);
        }
    }
    named.reverse();
    named
}

/// Outputs that may take an input's place: the input has the same layout and is read nowhere but at
/// the index that is being written.
fn inplace_pairs(func: &PrimFuncData) -> Vec<(usize, usize)> {
    let Some(output) = func.params.iter().position(|param| param.kind == ParamKind::Output) else {
        return Vec::new();
    };
    let written = func.params[output].buffer;
    let mut stores: Vec<&[PrimExpr]> = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, indices, .. } = stmt
            && *buffer == written
        {
            stores.push(indices);
        }
    });
    let [at] = stores[..] else { return Vec::new() };
    let same = |buffer: BufferId| {
        func.buffers[buffer].spec == func.buffers[written].spec
            && func.buffers[buffer].dtype == func.buffers[written].dtype
    };
    let inputs = func.params.iter().enumerate().filter(|(_, param)| {
        param.kind == ParamKind::Input && same(param.buffer) && {
            let mut only_there = true;
            func.body.walk_exprs(&mut |expr| {
                if let PrimExpr::Load { buffer, indices, .. } = expr
                    && *buffer == param.buffer
                {
                    only_there &= indices == at;
                }
            });
            only_there
        }
    });
    inputs.map(|(position, _)| (output, position)).collect()
}
