//! Neighbouring axes as one, where every stage of a kernel takes them for one.
//!
//! A pair of axes of a dense tensor is one axis if each stage that reads it has a pair of its own
//! there, of the same extents, which it uses nowhere else. So a softmax along channels has one axis of
//! pixels, however few a line has, and a mean over an image is one sum.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::BufferSpec;
use crate::te::{Anchor, ComputeDag, ReduceAxis, Stage, StageId, StageKind};
use crate::tir::{PrimExpr, VarId};

/// Which axes of a stage: those of its index, or those that it reduces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Index,
    Reduced,
}

/// An axis and the one behind it.
type Pair = (StageId, Kind, usize);

/// Joins axes of the stages of a kernel of sums, whose tensors that are not dense are `fixed`.
pub(super) fn join_axes(dag: &mut ComputeDag, fixed: &BTreeSet<StageId>) {
    let has_anchor = dag.stages.values().any(|stage| stage.anchor != Anchor::None);
    let is_sum = |stage: &Stage| matches!(stage.kind, StageKind::Reduce { .. });
    if has_anchor || !dag.stages.values().any(is_sum) {
        return;
    }
    let mut pairs = Pairs::default();
    for stage in dag.ids() {
        pairs.add_stage(dag, stage, fixed);
    }
    let joined = pairs.joined();
    if joined.is_empty() {
        return;
    }
    let groups: BTreeMap<StageId, Groups> =
        dag.ids().map(|stage| (stage, Groups::of(dag, stage, &joined))).collect();
    for stage in dag.ids() {
        join(dag, stage, &groups);
    }
}

/// Pairs of axes that have to be joined together, and those that cannot be.
#[derive(Default)]
struct Pairs {
    numbers: BTreeMap<Pair, usize>,
    /// For each pair another one of its set, or itself.
    parent: Vec<usize>,
    apart: BTreeSet<usize>,
}

impl Pairs {
    fn number(&mut self, pair: Pair) -> usize {
        let next = self.parent.len();
        let number = *self.numbers.entry(pair).or_insert(next);
        if number == next {
            self.parent.push(next);
        }
        number
    }

    fn root(&self, mut number: usize) -> usize {
        while self.parent[number] != number {
            number = self.parent[number];
        }
        number
    }

    fn unite(&mut self, a: Pair, b: Pair) {
        let [a, b] = [a, b].map(|pair| self.number(pair));
        let [a, b] = [a, b].map(|number| self.root(number));
        self.parent[a.max(b)] = a.min(b);
    }

    fn part(&mut self, pair: Pair) {
        let number = self.number(pair);
        self.apart.insert(number);
    }

    /// Keeps an axis apart from both of its neighbours.
    fn part_axis(&mut self, (stage, kind, axis): Pair) {
        self.part((stage, kind, axis));
        if axis > 0 {
            self.part((stage, kind, axis - 1));
        }
    }

    fn part_all(&mut self, dag: &ComputeDag, stage: StageId) {
        (0..dag.shape(stage).len()).for_each(|axis| self.part((stage, Kind::Index, axis)));
    }

    fn add_stage(&mut self, dag: &ComputeDag, stage: StageId, fixed: &BTreeSet<StageId>) {
        if fixed.contains(&stage) {
            self.part_all(dag, stage);
        }
        // Axes of which each run has its own number keep their places.
        for limit in dag.limits(stage) {
            (0..=limit.axis).for_each(|axis| self.part((stage, Kind::Index, axis)));
        }
        for axis in 0..dag.shape(stage).len().saturating_sub(1) {
            self.number((stage, Kind::Index, axis));
        }
        // Extents that are not known have no product.
        for (axis, _) in dag.shape(stage).iter().enumerate().filter(|(_, extent)| **extent < 0) {
            self.part_axis((stage, Kind::Index, axis));
        }
        let own = Axes::of(dag, stage);
        match &dag.stages[stage].kind {
            StageKind::Placeholder => {}
            StageKind::Compute(value) => self.add_reads(dag, &own, value),
            StageKind::Reduce { axes, init, value, .. } => {
                for (number, axis) in axes.iter().enumerate() {
                    self.number((stage, Kind::Reduced, number));
                    if dag.reduce_limit(axis).is_some() {
                        self.part_axis((stage, Kind::Reduced, number));
                    }
                }
                self.part((stage, Kind::Reduced, axes.len().saturating_sub(1)));
                self.add_reads(dag, &own, init);
                self.add_reads(dag, &own, value);
            }
            StageKind::Concat { axis, parts } => {
                for of in [stage].into_iter().chain(parts.iter().map(|part| part.stage)) {
                    self.part_axis((of, Kind::Index, *axis));
                    for other in 0..dag.shape(of).len().saturating_sub(1) {
                        self.unite((stage, Kind::Index, other), (of, Kind::Index, other));
                    }
                }
            }
            StageKind::Joint { .. } | StageKind::Extern { .. } => {
                let reads = dag.reads(stage);
                [stage].into_iter().chain(reads).for_each(|stage| self.part_all(dag, stage));
            }
        }
    }

    /// What an expression of a stage says of its axes and of those of the tensors that it reads.
    fn add_reads(&mut self, dag: &ComputeDag, own: &Axes, expr: &PrimExpr) {
        match expr {
            PrimExpr::Var { var, .. } => {
                if let Some((kind, axis, _)) = own.find(*var) {
                    self.part_axis((own.stage, kind, axis));
                }
            }
            PrimExpr::Load { buffer, indices, .. } if dag.stage_of(*buffer).is_some() => {
                let Some(read) = dag.stage_of(*buffer) else { return };
                let shape = dag.shape(read);
                let places: Vec<_> = indices.iter().map(|index| own.place(index)).collect();
                for (at, index) in indices.iter().enumerate() {
                    let here = places[at].filter(|place| place.2 == shape[at]);
                    let next = places.get(at + 1).copied().flatten();
                    let next = next.filter(|place| place.2 == shape[at + 1]);
                    let Some((kind, axis, _)) = here else {
                        self.part((read, Kind::Index, at));
                        self.add_reads(dag, own, index);
                        continue;
                    };
                    match next {
                        Some((other, behind, _)) if (other, behind) == (kind, axis + 1) => {
                            self.unite((read, Kind::Index, at), (own.stage, kind, axis));
                        }
                        _ => {
                            self.part((read, Kind::Index, at));
                            self.part((own.stage, kind, axis));
                        }
                    }
                    let before = at.checked_sub(1).and_then(|at| places[at]);
                    let follows = before
                        .is_some_and(|(other, before, _)| (other, before + 1) == (kind, axis));
                    if axis > 0 && !follows {
                        self.part((own.stage, kind, axis - 1));
                    }
                }
            }
            other => other.for_each_child(&mut |child| self.add_reads(dag, own, child)),
        }
    }

    /// The pairs of the sets of which none is kept apart.
    fn joined(&self) -> BTreeSet<Pair> {
        let apart: BTreeSet<usize> = self.apart.iter().map(|&number| self.root(number)).collect();
        let joined =
            self.numbers.iter().filter(|(_, number)| !apart.contains(&self.root(**number)));
        joined.map(|(&pair, _)| pair).collect()
    }
}

/// The axes of a stage, by their variables, with their extents.
struct Axes {
    stage: StageId,
    axes: Vec<(VarId, Kind, usize, i64)>,
}

impl Axes {
    fn of(dag: &ComputeDag, stage: StageId) -> Axes {
        let index = dag.stages[stage].axes.iter().zip(dag.shape(stage)).enumerate();
        let index = index.map(|(axis, (&var, &extent))| (var, Kind::Index, axis, extent));
        let reduced = dag.stages[stage].kind.reduced().iter().enumerate();
        let reduced = reduced.map(|(axis, of)| (of.var, Kind::Reduced, axis, of.extent));
        Axes { stage, axes: index.chain(reduced).collect() }
    }

    fn find(&self, var: VarId) -> Option<(Kind, usize, i64)> {
        let found = self.axes.iter().find(|axis| axis.0 == var)?;
        Some((found.1, found.2, found.3))
    }

    /// The axis that an index is the place of.
    fn place(&self, index: &PrimExpr) -> Option<(Kind, usize, i64)> {
        match index {
            PrimExpr::Var { var, .. } => self.find(*var),
            _ => None,
        }
    }
}

/// The first of the axes that become one, and how many they are, in order.
struct Groups {
    index: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
}

impl Groups {
    fn of(dag: &ComputeDag, stage: StageId, joined: &BTreeSet<Pair>) -> Groups {
        let groups = |kind: Kind, count: usize| {
            let mut groups: Vec<(usize, usize)> = Vec::new();
            for axis in 0..count {
                match groups.last_mut() {
                    Some((_, size)) if joined.contains(&(stage, kind, axis - 1)) => *size += 1,
                    _ => groups.push((axis, 1)),
                }
            }
            groups
        };
        let reduced = dag.stages[stage].kind.reduced().len();
        Groups {
            index: groups(Kind::Index, dag.shape(stage).len()),
            reduced: groups(Kind::Reduced, reduced),
        }
    }
}

/// Makes one axis of each group of a stage.
fn join(dag: &mut ComputeDag, stage: StageId, groups: &BTreeMap<StageId, Groups>) {
    let own = &groups[&stage];
    let Stage { axes, kind, buffer, .. } = dag.stages[stage].clone();
    let mut names: BTreeMap<VarId, VarId> = BTreeMap::new();
    let mut name = |dag: &mut ComputeDag, vars: &[VarId]| match *vars {
        [only] => only,
        _ => {
            let text = dag.func.vars[vars[0]].name.clone();
            let var = dag.func.index_var(text);
            names.extend(vars.iter().map(|&old| (old, var)));
            var
        }
    };
    let shape = dag.shape(stage).to_vec();
    let index = own.index.iter();
    let axes = index.map(|&(first, count)| name(dag, &axes[first..first + count])).collect();
    let reduced = own.reduced.iter().map(|&(first, count)| {
        let of = &kind.reduced()[first..first + count];
        let vars: Vec<VarId> = of.iter().map(|axis| axis.var).collect();
        ReduceAxis { var: name(dag, &vars), extent: of.iter().map(|axis| axis.extent).product() }
    });
    let reduced: Vec<ReduceAxis> = reduced.collect();
    let values = kind.values().into_iter().cloned().map(|value| {
        value.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, indices } => {
                let of = dag.stage_of(buffer).and_then(|stage| groups.get(&stage));
                let indices = of.map_or(indices.clone(), |of| {
                    let index = |&(first, count): &(usize, usize)| match &indices[first] {
                        PrimExpr::Var { var, .. } if count > 1 => {
                            dag.func.var_expr(*names.get(var).unwrap_or(var))
                        }
                        other => other.clone(),
                    };
                    of.index.iter().map(index).collect()
                });
                PrimExpr::Load { buffer, dtype, indices }
            }
            other => other,
        })
    });
    let values = values.collect();
    let mut kind = kind.with_values(values);
    match &mut kind {
        StageKind::Reduce { axes, .. } => *axes = reduced,
        StageKind::Concat { axis, .. } => {
            *axis = own.index.iter().position(|group| group.0 == *axis).unwrap_or(*axis);
        }
        StageKind::Placeholder
        | StageKind::Compute(_)
        | StageKind::Joint { .. }
        | StageKind::Extern { .. } => {}
    }
    let extents =
        own.index.iter().map(|&(first, count)| shape[first..first + count].iter().product());
    dag.func.buffers[buffer].spec = BufferSpec::dense(&extents.collect::<Vec<i64>>());
    dag.stages[stage].axes = axes;
    dag.stages[stage].kind = kind;
}
