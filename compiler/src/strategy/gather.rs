//! Copies into layouts in blocks of channels whose elements come from other lanes and other blocks:
//! channel shuffles, and slices and concatenations that do not begin with a block.
//!
//! Which element goes to which lane is known for each block, so that a vector is picked from the few
//! vectors that have its elements.

use super::emit::Emitter;
use super::nest::{block, in_loop, innermost};
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::tir::{BufferId, PrimExpr, Stmt, VarId};

/// Most vectors of which one is picked: each takes an instruction to read and one to pick from.
pub(super) const MOST_SOURCES: usize = 8;

/// Most vectors along the channels: each has code of its own.
const MOST_VECTORS: i64 = 64;

/// Fewest lanes that are worth it.
const LEAST_LANES: i64 = 4;

/// A vector that is read: a buffer, and the index of its first lane.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Source {
    pub(super) buffer: BufferId,
    pub(super) index: Vec<PrimExpr>,
    pub(super) axis: usize,
}

/// A vector that is written: what it is picked from, and the source and the lane of each of its lanes.
pub(super) struct Picked {
    pub(super) sources: Vec<Source>,
    pub(super) picks: Vec<(usize, i64)>,
}

/// The registers of a vector that is picked.
pub(super) struct PickedVector {
    rows: BufferId,
    pub(super) result: BufferId,
}

impl Emitter {
    /// Copies of a layout in blocks, if `element` makes stores of elements that are loaded, in blocks
    /// as well. Lanes may go into padding.
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
            let mut picked = Picked { sources: Vec::new(), picks: Vec::new() };
            for lane in 0..lanes {
                // What padding lanes hold does not matter.
                index[axis] = (first + lane).min(extent - 1).into();
                let Stmt::Store { buffer, value, indices } = element(self, &index) else {
                    return None;
                };
                if indices != index || !picked.add(&self.source(value, lanes)?) {
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

    /// The vector and the lane of a loaded element, if they are known.
    fn source(&self, value: PrimExpr, lanes: i64) -> Option<(Source, i64)> {
        let PrimExpr::Load { buffer, indices, .. } = value else { return None };
        let data = &self.func.buffers[buffer].spec;
        let axis = data.dims().get(innermost(data)?)?.axis;
        let mut analyzer = self.knowing_loops(&indices);
        let mut index: Vec<PrimExpr> =
            indices.iter().map(|index| analyzer.simplify(index)).collect();
        let place = index[axis].as_int()?;
        block(data, axis).filter(|size| size % lanes == 0)?;
        index[axis] = (place / lanes * lanes).into();
        Some((Source { buffer, index, axis }, place % lanes))
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
            let mut at = source.index.clone();
            at[source.axis] = at[source.axis].clone() + lane.clone();
            let value = self.func.load(source.buffer, at);
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
    fn add(&mut self, (source, lane): &(Source, i64)) -> bool {
        let known = self.sources.iter().position(|other| other == source);
        let number = known.unwrap_or_else(|| {
            self.sources.push(source.clone());
            self.sources.len() - 1
        });
        self.picks.push((number, *lane));
        self.sources.len() <= MOST_SOURCES
    }
}
