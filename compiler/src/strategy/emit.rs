//! The loops of a kernel: which stages are materialised, and the nests that compute them.

use std::collections::BTreeMap;

use super::ModelFacts;
use super::inline::{Inliner, MAX_INLINE_DEPTH, use_counts};
use super::join::join_axes;
use super::machine::Machine;
use super::nest::{Padding, innermost};
use super::tiling::{Tiling, Work, comes_from_afar};
use crate::executor::Loops;
use crate::ir::BufferSpec;
use crate::te::{Anchor, AxisLimit, ComputeDag, ConcatPart, StageId, StageKind, stage_nest};
use crate::tir::{
    BinaryOp, BufferId, BufferScope, ForKind, Param, ParamKind, PrimExpr, PrimFuncData, Stmt, VarId,
};
use crate::tuned::{Tunable, Workload};

/// Fewest elements of a tensor whose loops are worth a remark if they are not of vectors.
const FEWEST_FOR_VECTORS: i64 = 64;

/// Makes the loops of one kernel.
pub(super) struct Emitter {
    pub(super) dag: ComputeDag,
    pub(super) func: PrimFuncData,
    pub(super) machine: Machine,
    /// The machine whose registers weights are packed for: that of the widest level.
    pub(super) packing: Machine,
    /// Constants that have padding lanes.
    pub(super) padding: Padding,
    pub(super) materialised: BTreeMap<StageId, BufferId>,
    pub(super) uses: BTreeMap<StageId, usize>,
    /// The first axes of the index, inside the loops over rows.
    pub(super) rows: Vec<PrimExpr>,
    /// Extents of loop variables, which begin at zero.
    pub(super) extents: BTreeMap<VarId, i64>,
    /// How far a run goes along axes of copies of parts of tensors.
    pub(super) ends: BTreeMap<BufferId, Vec<AxisLimit>>,
    /// Scratch buffers that live as long as the kernel runs.
    pub(super) scratch: Vec<BufferId>,
    pub(super) macs: u64,
    /// How the stages are computed that are stored so far.
    pub(super) loops: Vec<Loops>,
    pub(super) facts: ModelFacts,
    /// Where choices that were measured count.
    pub(super) tunables: Vec<Tunable>,
}

/// A stage that is stored to a buffer, and what is computed in the same loops.
pub(super) struct Root {
    pub(super) stage: StageId,
    /// A reduction or concatenation whose element is at hand when the root's is computed.
    pub(super) fused: Option<StageId>,
}

impl Emitter {
    /// An emitter for a dag whose placeholders and outputs have the given layouts.
    ///
    /// An output that is a placeholder, or occurs twice, becomes a stage of its own. Constants in
    /// `padding` have padding lanes from the start.
    pub(super) fn new(
        mut dag: ComputeDag,
        params: &[(StageId, ParamKind, BufferSpec)],
        outputs: &[(StageId, BufferSpec)],
        [machine, packing]: [Machine; 2],
        padding: Padding,
        facts: &ModelFacts,
    ) -> (Emitter, Vec<StageId>) {
        let mut stages: Vec<StageId> = Vec::with_capacity(outputs.len());
        for &(stage, _) in outputs {
            let is_param = dag.stages[stage].kind == StageKind::Placeholder;
            let stage = if is_param || stages.contains(&stage) {
                let (shape, dtype) = (dag.shape(stage).to_vec(), dag.dtype(stage));
                dag.compute("copy", &shape, dtype, |dag, index| dag.at(stage, index))
            } else {
                stage
            };
            stages.push(stage);
        }
        let inputs = params.iter().map(|(stage, kind, spec)| (*stage, *kind, spec));
        let results =
            stages.iter().zip(outputs).map(|(&stage, (_, spec))| (stage, ParamKind::Output, spec));
        let tensors: Vec<_> = inputs.chain(results).collect();
        let fixed = tensors.iter().filter(|(.., spec)| !spec.is_dense());
        join_axes(&mut dag, &fixed.map(|(stage, ..)| *stage).collect());
        let mut func = dag.func.clone();
        let mut materialised = BTreeMap::new();
        for (stage, kind, spec) in tensors {
            let buffer = dag.stages[stage].buffer;
            func.buffers[buffer].scope = BufferScope::Param;
            if !spec.is_dense() {
                func.buffers[buffer].spec = spec.clone();
            }
            func.params.push(Param { buffer, kind });
            materialised.insert(stage, buffer);
        }
        padding.apply(&mut func);
        let uses = use_counts(&dag, &stages);
        let emitter = Emitter {
            dag,
            func,
            machine,
            packing,
            padding,
            materialised,
            uses,
            rows: Vec::new(),
            extents: BTreeMap::new(),
            ends: BTreeMap::new(),
            scratch: Vec::new(),
            macs: 0,
            loops: Vec::new(),
            facts: facts.clone(),
            tunables: Vec::new(),
        };
        (emitter, stages)
    }

    /// The kernel's body.
    pub(super) fn emit(&mut self, outputs: &[StageId]) -> Stmt {
        let roots = self.plan(outputs);
        let mut axes = self.row_axes(&roots);
        // What is read again once some of the output is stored.
        let mut reads_again = false;
        let stmts = if let Some(axes) = axes {
            vec![self.emit_rows(&roots, axes)]
        } else if let Some((stmt, shared)) = self.emit_attention(&roots) {
            axes = Some(shared);
            vec![stmt]
        } else if let Some(stmt) = self.emit_expanded(&roots) {
            reads_again = true;
            vec![stmt]
        } else {
            let flat = self.flatten(&roots);
            self.emit_blocks(&roots, flat)
        };
        if !reads_again {
            self.func.inplace = self.inplace_pairs(&roots, axes);
        }
        let mut body = Stmt::seq(stmts);
        for buffer in std::mem::take(&mut self.scratch) {
            body = Stmt::allocate(buffer, body);
        }
        body
    }

    /// The loops of all roots but of concatenations that the others read through.
    fn emit_blocks(&mut self, roots: &[Root], flat: bool) -> Vec<Stmt> {
        let mut stmts: Vec<(Stmt, usize)> = Vec::with_capacity(roots.len());
        for root in roots {
            let notes = self.loops.len();
            stmts.push((self.emit_block(root, flat), notes));
        }
        for at in (0..roots.len()).rev() {
            let buffer = self.materialised[&roots[at].stage];
            let reads = |(stmt, _): &(Stmt, usize)| {
                let mut reads = false;
                stmt.walk_exprs(&mut |expr| {
                    reads |= matches!(expr, PrimExpr::Load { buffer: read, .. } if *read == buffer);
                });
                reads
            };
            if self.concatenated(buffer).is_some() && !stmts[at + 1..].iter().any(reads) {
                let next = stmts.get(at + 1).map_or(self.loops.len(), |next| next.1);
                let (_, notes) = stmts.remove(at);
                for (_, behind) in &mut stmts[at..] {
                    *behind -= next - notes;
                }
                self.loops.drain(notes..next);
                self.scratch.retain(|&scratch| scratch != buffer);
            }
        }
        stmts.into_iter().map(|(stmt, _)| stmt).collect()
    }

    /// Which stages are stored, in order. The rest is inlined where it is used.
    fn plan(&mut self, outputs: &[StageId]) -> Vec<Root> {
        let mut spread = self.spread_stages();
        spread.extend(self.picked_stages());
        spread.extend(self.moved_stages());
        spread.extend(self.stages_of_attention());
        spread.extend(self.expanded_stages());
        let mut depth: BTreeMap<StageId, usize> = BTreeMap::new();
        let mut stored: Vec<StageId> = Vec::new();
        for stage in self.dag.ids() {
            if !self.uses.contains_key(&stage) {
                continue;
            }
            let inputs = self.dag.reads(stage);
            let below = inputs.iter().map(|read| depth[read]).max().unwrap_or(0);
            let (own, must) = match &self.dag.stages[stage].kind {
                StageKind::Placeholder => (0, false),
                StageKind::Compute(body) => {
                    let own = below + body.depth();
                    let must = own > MAX_INLINE_DEPTH
                        || self.dag.stages[stage].is_stored
                        || spread.contains(&stage);
                    (own, must)
                }
                StageKind::Reduce { .. }
                | StageKind::Concat { .. }
                | StageKind::Joint { .. }
                | StageKind::Extern { .. } => (0, true),
            };
            let must = must || outputs.contains(&stage);
            depth.insert(stage, if must { 1 } else { own });
            if must {
                stored.push(stage);
            }
        }
        let owner = self.owners(&stored);
        let mut fused: BTreeMap<StageId, StageId> = BTreeMap::new();
        for &stage in &stored {
            let reduces = matches!(
                self.dag.stages[stage].kind,
                StageKind::Reduce { .. } | StageKind::Concat { .. }
            );
            if !reduces || outputs.contains(&stage) {
                continue;
            }
            let Some(&Some(root)) = owner.get(&stage) else { continue };
            if !self.reads_in_place(root, stage, &stored) {
                continue;
            }
            // One at a time; what strategies know a schedule for comes first.
            let known = |stage: StageId| self.dag.stages[stage].anchor != Anchor::None;
            match fused.get(&root) {
                Some(&other) if known(other) && !known(stage) => {}
                _ => {
                    fused.insert(root, stage);
                }
            }
        }
        stored.retain(|&stage| !fused.values().any(|&inner| inner == stage));
        stored.extend(self.picked_parts(&stored, outputs));
        stored.sort_unstable();
        stored.dedup();
        let mut roots = Vec::new();
        for &stage in &stored {
            if !self.materialised.contains_key(&stage) {
                let buffer = self.dag.stages[stage].buffer;
                if let Some(spec) = self.blocks_between(stage) {
                    self.func.buffers[buffer].spec = spec;
                }
                self.materialised.insert(stage, buffer);
                self.scratch.push(buffer);
            }
            roots.push(Root { stage, fused: fused.get(&stage).copied() });
        }
        roots
    }

    /// The layout of a stage between a tensor in blocks, which it reads, and others of its rank: the
    /// same blocks.
    fn blocks_between(&self, stage: StageId) -> Option<BufferSpec> {
        let shape = self.dag.shape(stage);
        let blocks = |buffer: BufferId| {
            let spec = &self.func.buffers[buffer].spec;
            let is_alike = spec.shape().len() == shape.len()
                && !spec.blocking().is_empty()
                && spec.blocking().iter().all(|&(axis, _)| spec.shape()[axis] == shape[axis]);
            let dims = spec.dims().iter().map(|dim| (dim.axis, dim.step));
            is_alike.then(|| BufferSpec::packed(shape, &dims.collect::<Vec<_>>()))
        };
        // What it reads, and what that is computed of where it is not stored.
        let mut reads = self.dag.reads(stage);
        let mut at = 0;
        while let Some(&read) = reads.get(at) {
            at += 1;
            match self.materialised.get(&read) {
                Some(&buffer) => match blocks(buffer) {
                    None => {}
                    found => return found,
                },
                None => {
                    let more = self.dag.reads(read).into_iter();
                    reads.extend(more.filter(|more| !reads.contains(more)).collect::<Vec<_>>());
                }
            }
        }
        None
    }

    /// For each stage the one stored `Compute` stage into which all its uses are inlined, if there
    /// is one.
    fn owners(&self, stored: &[StageId]) -> BTreeMap<StageId, Option<StageId>> {
        let mut owner: BTreeMap<StageId, Option<StageId>> = BTreeMap::new();
        for stage in self.dag.ids().rev() {
            if !self.uses.contains_key(&stage) {
                continue;
            }
            let computes = matches!(self.dag.stages[stage].kind, StageKind::Compute(_));
            let this = match (stored.contains(&stage), computes) {
                (true, true) => Some(stage),
                (true, false) => None,
                (false, _) => owner.get(&stage).copied().flatten(),
            };
            for read in self.dag.reads(stage) {
                owner
                    .entry(read)
                    .and_modify(|o| *o = o.filter(|o| Some(*o) == this))
                    .or_insert(this);
            }
        }
        owner
    }

    /// Whether the root reads the stage at its own index alone, so that one loop can do both.
    pub(super) fn reads_in_place(&self, root: StageId, stage: StageId, stored: &[StageId]) -> bool {
        if self.dag.shape(root) != self.dag.shape(stage) {
            return false;
        }
        let materialised = stored
            .iter()
            .chain(self.materialised.keys())
            .filter(|&&other| other != root)
            .map(|&other| (other, self.dag.stages[other].buffer))
            .collect();
        let mut func = self.func.clone();
        let index = self.index_of(root);
        let mut inliner = Inliner::new(&self.dag, &materialised, &self.uses);
        let value = inliner.computed(&mut func, root, &index);
        let stmt = inliner.wrap(func.store(self.dag.stages[root].buffer, index.clone(), value));
        reads_only_at(&stmt, self.dag.stages[stage].buffer, &index)
    }

    pub(super) fn index_of(&self, stage: StageId) -> Vec<PrimExpr> {
        self.dag.stages[stage].axes.iter().map(|&var| self.func.var_expr(var)).collect()
    }

    /// The loops of one root, with its name.
    #[inline(never)]
    pub(super) fn emit_block(&mut self, root: &Root, flat: bool) -> Stmt {
        let body = self.emit_root(root, flat);
        Stmt::block(self.dag.stages[root.stage].op.clone(), body)
    }

    fn emit_root(&mut self, root: &Root, flat: bool) -> Stmt {
        let inner = root.fused.unwrap_or(root.stage);
        let mut missed = Vec::new();
        let (rule, stmt) = match self.dag.stages[inner].kind.clone() {
            StageKind::Placeholder => return Stmt::nop(),
            StageKind::Compute(_) => ("elementwise", self.emit_compute(root.stage, flat)),
            StageKind::Joint { .. } | StageKind::Extern { .. } => {
                ("own loops", stage_nest(&self.dag, &mut self.func, inner))
            }
            StageKind::Concat { axis, parts } => {
                let side_by_side: Vec<Stmt> = parts
                    .iter()
                    .map(|part| self.emit_part(root.stage, inner, axis, part, flat))
                    .collect();
                let picked = (!flat && !side_by_side.iter().all(is_vectorized))
                    .then(|| self.emit_picked(root.stage, inner, axis, &parts))
                    .flatten();
                ("concatenation", picked.unwrap_or_else(|| Stmt::seq(side_by_side)))
            }
            StageKind::Reduce { .. } => {
                self.count_macs(inner);
                let anchor = self.dag.stages[inner].anchor.clone();
                match self.emit_anchor(root.stage, inner, &anchor) {
                    Ok(Some(stmt)) => return stmt,
                    Ok(None) => {}
                    Err(why) => missed.push(why),
                }
                ("reduction", self.emit_reduce(root.stage, inner))
            }
        };
        // A short loop is no slower for want of vectors.
        let elements = self.dag.shape(inner).iter().product::<i64>();
        if elements >= FEWEST_FOR_VECTORS && !is_vectorized(&stmt) {
            missed.push("one element at a time, not in vectors".to_owned());
        }
        let missed = (!missed.is_empty()).then(|| missed.join("; "));
        self.note(inner, rule, String::new(), None, missed);
        stmt
    }

    /// The loops of a computation that a rule knows as a whole; `None` for one that none knows.
    ///
    /// # Errors
    ///
    /// Why its rule does not take it.
    fn emit_anchor(
        &mut self,
        root: StageId,
        inner: StageId,
        anchor: &Anchor,
    ) -> Result<Option<Stmt>, String> {
        match anchor {
            Anchor::None => Ok(None),
            Anchor::Window { .. } => Ok(self.emit_window(root, inner, anchor)),
            Anchor::Winograd { .. } => {
                let takes = "constant weights and whole blocks of channels";
                Err(format!("Winograd's convolution, whose schedule takes {takes}"))
            }
            Anchor::Conv2d { .. } => self.emit_conv2d(root, inner, anchor).map(Some),
            Anchor::MatMul { .. } if self.has_one_column(inner) => Ok(None),
            &Anchor::MatMul { lhs, rhs, transpose_a, transpose_b } => {
                let transposed = [transpose_a, transpose_b];
                self.emit_matmul(root, inner, [lhs, rhs], transposed).map(Some)
            }
        }
    }

    /// Says how a stage was computed. What is inside of loops over rows is part of these.
    pub(super) fn note(
        &mut self,
        stage: StageId,
        rule: &'static str,
        knobs: String,
        cycles: Option<u64>,
        missed: Option<String>,
    ) {
        if self.rows.is_empty() {
            let op = self.dag.stages[stage].op.clone();
            self.loops.push(Loops { op, rule, knobs, cycles, missed });
        }
    }

    /// How a sum of products is cut: as was measured to be the fastest, else as costs least. `what` is
    /// the work in words.
    pub(super) fn tiling(
        &mut self,
        what: &str,
        work: &Work,
        packing: Machine,
        may_fetch: bool,
    ) -> Tiling {
        // The bias is one, too; what else is read takes registers and time beside the sums.
        let beside = self.func.params.len().saturating_sub(3);
        let what = format!("{what}, {beside} tensors beside");
        let pick = |machine: Machine, widths| {
            let all = Tiling::candidates(packing, machine, work, widths, may_fetch);
            let workload = Workload { machine: machine.name(), what: what.clone() };
            let (at, tunable) = self.facts.tuned.pick(workload, &all);
            (all[at], tunable)
        };
        let (mut tiling, mut tunable) = pick(packing, None);
        if self.machine != packing {
            (tiling, tunable) = pick(self.machine, Some(tiling.vectors));
        }
        self.tunables.push(tunable);
        tiling
    }

    /// Whether weights are in no near cache when their turn comes, as the model has more.
    pub(super) fn weights_are_far(&self) -> bool {
        comes_from_afar(self.machine, self.facts.weight_bytes)
    }

    pub(super) fn count_macs(&mut self, stage: StageId) {
        let StageKind::Reduce { combiner, init: _, axes, value } = &self.dag.stages[stage].kind
        else {
            return;
        };
        let multiplies =
            value.any(&mut |e| matches!(e, PrimExpr::Binary { op: BinaryOp::Mul, .. }));
        if *combiner != BinaryOp::Add || !multiplies {
            return;
        }
        let extents = self.dag.shape(stage).iter().copied().chain(axes.iter().map(|a| a.extent));
        let macs = extents.fold(1u64, |n, extent| n.saturating_mul(extent.unsigned_abs()));
        self.macs = self.macs.saturating_add(macs);
    }

    /// An inliner that knows what is stored so far, and where its expressions go.
    pub(super) fn inliner(&mut self) -> (Inliner<'_>, &mut PrimFuncData) {
        (Inliner::new(&self.dag, &self.materialised, &self.uses), &mut self.func)
    }

    /// The statement that stores the root's element at an index, given that of what is fused.
    pub(super) fn store_element(
        &mut self,
        root: StageId,
        at_hand: Option<(StageId, PrimExpr)>,
        index: &[PrimExpr],
    ) -> Stmt {
        self.store_with(root, index, |_, _| at_hand)
    }

    /// The same, with what is fused computed by the inliner that the root's element goes through.
    fn store_with(
        &mut self,
        root: StageId,
        index: &[PrimExpr],
        at_hand: impl FnOnce(&mut PrimFuncData, &mut Inliner<'_>) -> Option<(StageId, PrimExpr)>,
    ) -> Stmt {
        let buffer = self.materialised[&root];
        let (mut inliner, func) = self.inliner();
        let value = match at_hand(func, &mut inliner) {
            Some((stage, value)) if stage == root => value,
            at_hand => {
                if let Some((stage, value)) = at_hand {
                    inliner.put_at_hand(stage, value);
                }
                inliner.computed(func, root, index)
            }
        };
        let stmt = func.store(buffer, index.iter().cloned(), value);
        inliner.wrap(stmt)
    }

    pub(super) fn emit_compute(&mut self, root: StageId, flat: bool) -> Stmt {
        let buffer = self.materialised[&root];
        let stmt = if flat {
            let vars = self.dag.stages[root].axes.iter().copied();
            let axes: Vec<(VarId, i64)> = vars.zip(self.dag.shape(root).iter().copied()).collect();
            let stmt = self.store_element(root, None, &self.index_of(root));
            self.cover_flat(&axes, stmt, buffer)
        } else {
            let to = &self.func.buffers[buffer];
            let (spec, dtype) = (to.spec.clone(), to.dtype);
            let element = &mut |emitter: &mut Emitter, index: &[PrimExpr]| {
                emitter.store_element(root, None, index)
            };
            self.cover(&spec, dtype, true, element)
        };
        match is_vectorized(&stmt) {
            true => stmt,
            false => {
                let copied = self.through_copies(root);
                let copied = copied.or_else(|| self.planes_through_copies(root));
                copied.unwrap_or(stmt)
            }
        }
    }

    fn emit_part(
        &mut self,
        root: StageId,
        concat: StageId,
        axis: usize,
        &ConcatPart { stage: part, offset }: &ConcatPart,
        flat: bool,
    ) -> Stmt {
        let buffer = self.materialised[&root];
        let mut element = |emitter: &mut Emitter, index: &[PrimExpr]| {
            let mut at = index.to_vec();
            at[axis] = at[axis].clone() + offset;
            emitter.store_with(root, &at, |func, inliner| {
                Some((concat, inliner.element(func, part, index)))
            })
        };
        let mut shape = self.dag.shape(root).to_vec();
        shape[axis] = self.dag.shape(part)[axis];
        if flat {
            let axes: Vec<(VarId, i64)> =
                shape.iter().map(|&extent| (self.func.index_var("i"), extent)).collect();
            let index: Vec<PrimExpr> = axes.iter().map(|axis| self.func.var_expr(axis.0)).collect();
            let stmt = element(self, &index);
            return self.cover_flat(&axes, stmt, buffer);
        }
        let spec = &self.func.buffers[buffer].spec;
        let dims: Vec<(usize, i64)> = spec.dims().iter().map(|dim| (dim.axis, dim.step)).collect();
        let (spec, dtype) = (BufferSpec::packed(&shape, &dims), self.func.buffers[buffer].dtype);
        // Lanes beyond this part are elements of the next one.
        self.cover(&spec, dtype, false, &mut element)
    }

    /// Parts side by side that do not begin with a block, where the element of each lane is known.
    fn emit_picked(
        &mut self,
        root: StageId,
        concat: StageId,
        axis: usize,
        parts: &[ConcatPart],
    ) -> Option<Stmt> {
        let buffer = self.materialised[&root];
        let (spec, dtype) =
            (self.func.buffers[buffer].spec.clone(), self.func.buffers[buffer].dtype);
        // Along another axis, which part an element is of is not known.
        if spec.dims().get(innermost(&spec)?)?.axis != axis {
            return None;
        }
        self.cover_gathered(&spec, dtype, &mut |emitter, index| {
            let place = index[axis].as_int().unwrap_or(0);
            let Some(part) = parts.iter().rfind(|part| part.offset <= place) else {
                return Stmt::nop();
            };
            let mut from = index.to_vec();
            from[axis] = (place - part.offset).into();
            emitter.store_with(root, index, |func, inliner| {
                Some((concat, inliner.element(func, part.stage, &from)))
            })
        })
    }

    /// A loop variable from 0, and its use; 0 itself if there is one iteration.
    pub(super) fn counter(&mut self, name: &str, extent: i64) -> (PrimExpr, VarId) {
        let var = self.func.index_var(name);
        self.extents.insert(var, extent);
        let index = if extent == 1 { PrimExpr::index(0) } else { self.func.var_expr(var) };
        (index, var)
    }

    /// The axes of a buffer of which a run has as much as it says itself.
    pub(super) fn limits(&self, buffer: BufferId) -> &[AxisLimit] {
        let of_stage = || self.dag.stage_of(buffer).map(|stage| self.dag.limits(stage));
        self.ends.get(&buffer).map(Vec::as_slice).or_else(of_stage).unwrap_or(&[])
    }

    /// Whether each run says how much there is in a buffer.
    pub(super) fn is_open(&self, buffer: BufferId) -> bool {
        self.dag.stage_of(buffer).is_some_and(|stage| !self.dag.limits(stage).is_empty())
    }

    /// Whether a buffer is a constant that is packed while the model is compiled.
    pub(super) fn is_constant(&self, buffer: BufferId) -> bool {
        self.func.param_of(buffer).is_some_and(|param| param.kind == ParamKind::Constant)
    }

    /// Outputs that may take an input's place: the input has the same layout, and no element of it is
    /// read once it is overwritten. `axes` are those of the rows, if the roots are computed by rows.
    fn inplace_pairs(&mut self, roots: &[Root], axes: Option<usize>) -> Vec<(usize, usize)> {
        // Where a concatenation may be read through, its parts are read until the last.
        let buffers = || roots.iter().map(|root| self.materialised[&root.stage]);
        let in_blocks = |buffer: BufferId| !self.func.buffers[buffer].spec.blocking().is_empty();
        if buffers().any(|buffer| self.concatenated(buffer).is_some()) && buffers().any(in_blocks) {
            return Vec::new();
        }
        let params = self.func.params.clone();
        let of_kind = |kind: ParamKind| -> Vec<usize> {
            (0..params.len()).filter(|&at| params[at].kind == kind).collect()
        };
        let outputs = of_kind(ParamKind::Output);
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for input in of_kind(ParamKind::Input) {
            let Some(stage) = self.dag.stage_of(params[input].buffer) else { continue };
            let mut possible = Vec::new();
            for &output in &outputs {
                let [from, to] = [input, output].map(|at| &self.func.buffers[params[at].buffer]);
                let alike = from.spec == to.spec && from.dtype == to.dtype;
                if alike && self.may_overwrite(roots, axes, stage, params[output].buffer) {
                    possible.push(output);
                }
            }
            // Each output is to have a place, before one has several to choose from.
            let places = |output: &usize| pairs.iter().filter(|pair| pair.0 == *output).count();
            let output = possible.into_iter().min_by_key(places);
            pairs.extend(output.map(|output| (output, input)));
        }
        pairs
    }
}

/// Whether some of a statement's loops are of vectors.
pub(super) fn is_vectorized(stmt: &Stmt) -> bool {
    let mut found = false;
    stmt.walk(&mut |stmt| {
        found |= matches!(stmt, Stmt::For { kind: ForKind::Vectorized, .. })
            || matches!(stmt, Stmt::Store { value, .. } if value.ty().lanes > 1);
    });
    found
}

/// Whether a buffer is read at that very index and at no other.
fn reads_only_at(stmt: &Stmt, wanted: BufferId, index: &[PrimExpr]) -> bool {
    let mut reads = 0;
    let mut only = true;
    stmt.walk_exprs(&mut |expr| {
        if let PrimExpr::Load { buffer, indices, .. } = expr
            && *buffer == wanted
        {
            reads += 1;
            only &= indices == index;
        }
    });
    only && reads > 0
}
