//! Layouts in blocks of channels whose elements come from other lanes and other blocks: channel shuffles,
//! and slices and concatenations that do not begin with a block.
//!
//! Which element goes to which lane is known for each block, so that a vector is picked from the few
//! vectors that have its elements. So is which part of a concatenation an element is of: one that is
//! only read so is never in memory as a whole.

use super::emit::Emitter;
use super::nest::{block, in_loop, innermost};
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::te::{ConcatPart, StageId, StageKind};
use crate::tir::{BufferId, BufferScope, PrimExpr, Stmt, VarId};

/// Most vectors of which one is picked: each takes an instruction to read and one to pick from.
pub(super) const MOST_SOURCES: usize = 8;

/// Most vectors along the channels: each has code of its own.
const MOST_VECTORS: i64 = 64;

/// Fewest lanes that are worth it.
const LEAST_LANES: i64 = 4;

/// A vector that is written: what it is picked from, and the source and the lane of each of its lanes.
pub(super) struct Picked {
    /// The elements in a lane of the vectors that are read.
    pub(super) sources: Vec<PrimExpr>,
    /// The lane.
    pub(super) lane: VarId,
    pub(super) picks: Vec<(usize, i64)>,
}

/// The registers of a vector that is picked.
pub(super) struct PickedVector {
    rows: BufferId,
    pub(super) result: BufferId,
}

impl Emitter {
    /// Loops over a layout in blocks, if `element` makes stores of elements of tensors in blocks. Lanes
    /// may go into padding.
    pub(super) fn cover_gathered(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        let axis = spec.dims().get(innermost(spec)?)?.axis;
        let size = block(spec, axis)?;
        // Floats of 16 bits are `float32` in registers.
        let lanes = self.machine.lanes(dtype.accumulator()).min(size);
        let extent = spec.shape()[axis];
        let count = (extent + lanes - 1) / lanes;
        let suits = self.rows.is_empty() && dtype != DType::Bool && size % lanes == 0;
        if !suits || lanes < LEAST_LANES || count > MOST_VECTORS {
            return None;
        }
        let mut loops: Vec<(VarId, i64)> = Vec::new();
        let mut index: Vec<PrimExpr> = vec![0.into(); spec.shape().len()];
        for dim in spec.dims().iter().filter(|dim| dim.axis != axis) {
            // Another axis in blocks would have two loops.
            if dim.step != 1 {
                return None;
            }
            let extent = spec.shape()[dim.axis];
            let (at, var) = self.counter("b", extent);
            index[dim.axis] = at;
            loops.push((var, extent));
        }
        let mut parts = Vec::new();
        for vector in 0..count {
            let first = vector * lanes;
            let mut to = None;
            let lane = self.func.index_var("l");
            let mut picked = Picked { sources: Vec::new(), lane, picks: Vec::new() };
            for place in first..first + lanes {
                // What padding lanes hold does not matter.
                index[axis] = place.min(extent - 1).into();
                let (buffer, indices, value) = stored(element(self, &index))?;
                let (source, from) = self.source(value, lane, lanes)?;
                if indices != index || !picked.add(source, from) {
                    return None;
                }
                to = Some(buffer);
            }
            index[axis] = first.into();
            let body = self.pick(&picked, (to?, &index, axis), lanes, dtype)?;
            let around = loops.iter().rev().filter(|(_, count)| *count != 1);
            parts.push(around.fold(body, |body, &around| in_loop(body, around)));
        }
        Some(Stmt::seq(parts))
    }

    /// What a loaded element is in each lane of the vector that it is read from, and its own lane, if
    /// they are known.
    fn source(&self, value: PrimExpr, lane: VarId, lanes: i64) -> Option<(PrimExpr, i64)> {
        let PrimExpr::Load { mut buffer, dtype, indices } = value else { return None };
        let mut analyzer = self.knowing_loops(&indices);
        let mut indices: Vec<PrimExpr> =
            indices.iter().map(|index| analyzer.simplify(index)).collect();
        while let Some((axis, parts)) = self.concatenated(buffer) {
            // A part is in memory, too: what is computed of one is stored before.
            let place = indices[axis].as_int()?;
            let part = parts.iter().rfind(|part| part.offset <= place)?;
            buffer = *self.materialised.get(&part.stage)?;
            indices[axis] = (place - part.offset).into();
        }
        let data = &self.func.buffers[buffer].spec;
        let axis = data.dims().get(innermost(data)?)?.axis;
        let place = indices[axis].as_int()?;
        block(data, axis).filter(|size| size % lanes == 0)?;
        indices[axis] = PrimExpr::index(place / lanes * lanes) + self.func.var_expr(lane);
        Some((PrimExpr::Load { buffer, dtype, indices }, place % lanes))
    }

    /// Parts of the concatenations among stored stages that are computed, and from which vectors of a
    /// result may be picked.
    pub(super) fn picked_parts(&self, stored: &[StageId], outputs: &[StageId]) -> Vec<StageId> {
        let mut picked = Vec::new();
        for &stage in stored {
            let StageKind::Concat { axis, parts } = &self.dag.stages[stage].kind else { continue };
            let spec = |output: &StageId| &self.func.buffers[self.materialised[output]].spec;
            let Some(size) = outputs.iter().find_map(|output| block(spec(output), *axis)) else {
                continue;
            };
            let is_apart = parts.iter().any(|part| part.offset % size != 0);
            let stages = parts.iter().map(|part| part.stage);
            picked.extend(stages.filter(|part| {
                let is_computed = matches!(self.dag.stages[*part].kind, StageKind::Compute(_));
                is_computed && (is_apart || !outputs.contains(&stage))
            }));
        }
        picked
    }

    /// The axis and the parts of a concatenation in scratch memory.
    pub(super) fn concatenated(&self, buffer: BufferId) -> Option<(usize, &[ConcatPart])> {
        let is_scratch = self.func.buffers[buffer].scope == BufferScope::Local;
        match &self.dag.stages[self.dag.stage_of(buffer)?].kind {
            StageKind::Concat { axis, parts } if is_scratch => Some((*axis, parts)),
            _ => None,
        }
    }

    /// Whether a statement reads a concatenation in scratch memory.
    pub(super) fn reads_concatenation(&self, stmt: &Stmt) -> bool {
        let mut found = false;
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, .. } = expr {
                found |= self.concatenated(*buffer).is_some();
            }
        });
        found
    }

    /// Reads the sources, picks the lanes and stores them to a place in a buffer.
    fn pick(
        &mut self,
        picked: &Picked,
        (to, index, axis): (BufferId, &[PrimExpr], usize),
        lanes: i64,
        dtype: DType,
    ) -> Option<Stmt> {
        let (vector, mut body) = self.pick_lanes(picked, lanes, dtype)?;
        let (lane, var) = self.counter("l", lanes);
        let mut at = index.to_vec();
        at[axis] = at[axis].clone() + lane.clone();
        let value = self.func.load(vector.result, [lane]);
        let store = self.func.store(to, at, value);
        if !self.can_vectorize(&store, var, lanes, true) {
            return None;
        }
        body.push(lanes_of(var, lanes, store));
        Some(vector.around(Stmt::seq(body)))
    }

    /// Reads the sources and picks the lanes.
    pub(super) fn pick_lanes(
        &mut self,
        picked: &Picked,
        lanes: i64,
        dtype: DType,
    ) -> Option<(PickedVector, Vec<Stmt>)> {
        let count = picked.sources.len() as i64;
        let rows = self.func.register("rows", dtype, &[count * lanes]);
        let result = self.func.register("picked", dtype, &[lanes]);
        let mut body = Vec::new();
        for (row, source) in picked.sources.iter().enumerate() {
            let (lane, var) = self.counter("l", lanes);
            let value = source.clone().substitute(&[(picked.lane, lane.clone())].into());
            let store = self.func.store(rows, [lane + row as i64 * lanes], value);
            if !self.can_vectorize(&store, var, lanes, false) {
                return None;
            }
            body.push(lanes_of(var, lanes, store));
        }
        let whole = |buffer, row: i64| PrimExpr::Load {
            buffer,
            dtype,
            indices: vec![PrimExpr::ramp(PrimExpr::index(row * lanes), 1, lanes as u32)],
        };
        let mut so_far = whole(rows, 0);
        for row in 0..picked.sources.len().max(2) - 1 {
            // What was picked before stays in its lane; before the first, it is where it was read.
            let picks = picked.picks.iter().zip(0..).map(|(&(source, from), lane)| match row {
                0 if source == 0 => from,
                0 if source == 1 => lanes + from,
                _ if source == row + 1 => lanes + from,
                _ => lane,
            });
            let lanes = picks.map(|lane| lane as u32).collect();
            let last = (row as i64 + 1).min(count - 1);
            so_far = PrimExpr::Shuffle { vectors: vec![so_far, whole(rows, last)], lanes };
        }
        let place = [PrimExpr::ramp(PrimExpr::index(0), 1, lanes as u32)];
        body.push(self.func.store(result, place, so_far));
        Some((PickedVector { rows, result }, body))
    }
}

impl PickedVector {
    /// Its registers around a statement.
    pub(super) fn around(&self, body: Stmt) -> Stmt {
        Stmt::allocate(self.rows, Stmt::allocate(self.result, body))
    }
}

impl Picked {
    /// Adds a lane; returns whether there are few enough sources.
    fn add(&mut self, source: PrimExpr, lane: i64) -> bool {
        let known = self.sources.iter().position(|other| *other == source);
        let number = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        self.picks.push((number, lane));
        self.sources.len() <= MOST_SOURCES
    }
}

/// The buffer, the indices and the value of a statement that is a store. What the value is made of and
/// has a name keeps it, unless it is used once: chains of what is used twice would grow without bounds.
pub(super) fn stored(mut stmt: Stmt) -> Option<(BufferId, Vec<PrimExpr>, PrimExpr)> {
    let mut named = Vec::new();
    while let Stmt::Let { var, value, body } = stmt {
        let mut uses = 0;
        body.walk_exprs(&mut |expr| {
            uses += usize::from(matches!(expr, PrimExpr::Var { var: used, .. } if *used == var));
        });
        if uses <= 1 || is_plain_load(&value) {
            stmt = body.substitute(&[(var, value)].into());
        } else {
            named.push((var, value));
            stmt = *body;
        }
    }
    let Stmt::Store { buffer, value, indices } = stmt else { return None };
    let is_place = |(var, _): &(VarId, PrimExpr)| indices.iter().any(|index| index.uses(*var));
    if named.iter().any(is_place) {
        return None;
    }
    let value = named.into_iter().rev().fold(value, |body, (var, value)| PrimExpr::Let {
        var,
        value: Box::new(value),
        body: Box::new(body),
    });
    Some((buffer, indices, value))
}

/// Whether a value is read at a place that no other value says.
fn is_plain_load(value: &PrimExpr) -> bool {
    let PrimExpr::Load { indices, .. } = value else { return false };
    let is_load = |index: &PrimExpr| matches!(index, PrimExpr::Load { .. });
    !indices.iter().any(|index| index.any(&mut { is_load }))
}
