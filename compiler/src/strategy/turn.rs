//! Loops over elements that lie along one axis where they are written and along another where they
//! are read: other layouts, and transposes.
//!
//! A square block at a time is read in vectors, turned round in registers and written in vectors. A
//! turn of `n` vectors interleaves the first half of them with the second, log2 `n` times: that
//! rotates the bits of the number `row · n + column` until row and column have changed places.

use std::collections::BTreeMap;

use super::cover::adjacent;
use super::emit::Emitter;
use super::nest::{block, coefficient, contiguous, guards_loads, in_loop, innermost};
use crate::ir::{BufferSpec, DType};
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt, VarId};

/// Most tensors that are turned in one loop: each takes registers for a block.
const MOST_TURNED: usize = 2;

/// Fewest elements of a block's side.
const LEAST_SIDE: i64 = 4;

/// Bits of the vectors of narrow elements: of wider ones no instruction interleaves all lanes.
const NARROW_VECTOR_BITS: u32 = 128;

/// The statement for one element, of which some loads are turned.
#[derive(Clone)]
struct Element {
    stmt: Stmt,
    /// The variable of each axis; none where the extent is one.
    vars: Vec<Option<VarId>>,
    /// The axis along which vectors are written, and the one along which they are read.
    written: usize,
    read: usize,
    /// The block of the layout that is written along its axis, and of those that are read.
    written_block: Option<i64>,
    read_block: Option<i64>,
    /// The loads that are turned, of elements of other sizes what they are cast to.
    turned: Vec<PrimExpr>,
    /// Rows and columns of a block.
    side: i64,
    /// Whether an element may be computed twice.
    repeats: bool,
    /// How far a run goes along the axis that is written, where places that are read depend on its sizes:
    /// what is behind that need not be there to be read.
    end: Option<PrimExpr>,
}

/// Blocks along one axis.
struct Run {
    first: i64,
    /// Iterations, and places from one to the next.
    loops: Vec<(i64, i64)>,
    /// Places of a block that there are: the others are padding lanes.
    valid: i64,
}

impl Emitter {
    /// Loops over a layout in blocks that are turned, if `element` makes statements for which that
    /// can be done: see the module's documentation. With `overrun`, lanes may go into padding.
    pub(super) fn cover_turned(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        overrun: bool,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        if !self.rows.is_empty() || !turns(dtype) {
            return None;
        }
        let element = self.turnable(spec, dtype, element)?;
        let shape = spec.shape();
        let written = runs(shape[element.written], element.written_block, &element)?;
        let read = runs(shape[element.read], element.read_block, &element)?;
        // Lanes that pad a block are written for elements of 32 bits alone.
        let is_part = |run: &&Run| dtype.bits() != 32 && run.valid < element.side;
        let overruns = written.iter().any(|run| !is_part(&run) && run.valid < element.side);
        if overruns && !overrun {
            return None;
        }
        let mut parts = Vec::new();
        for columns in written.iter().filter(|run| !is_part(run)) {
            for rows in read.iter().filter(|run| !is_part(run)) {
                parts.push(self.turned_run(spec, &element, columns, rows, overruns)?);
            }
        }
        for (axis, runs) in [(element.written, &written), (element.read, &read)] {
            for run in runs.iter().filter(is_part) {
                parts.push(self.rest_of_block(spec, &element, axis, run)?);
            }
        }
        Some(Stmt::seq(parts))
    }

    /// A part of a block along an axis, in smaller blocks without padding, and what is left one by one.
    fn rest_of_block(
        &mut self,
        spec: &BufferSpec,
        element: &Element,
        axis: usize,
        run: &Run,
    ) -> Option<Stmt> {
        let other = if axis == element.written { element.read } else { element.written };
        let (mut first, mut left) = (run.first, run.valid);
        let mut parts = Vec::new();
        while left >= LEAST_SIDE {
            let side = 1 << left.ilog2();
            let small = Element { side, ..element.clone() };
            let cut = Run { first, loops: Vec::new(), valid: side };
            for others in runs(spec.shape()[other], None, &small)? {
                let [columns, rows] =
                    if axis == small.written { [&cut, &others] } else { [&others, &cut] };
                parts.push(self.turned_run(spec, &small, columns, rows, false)?);
            }
            (first, left) = (first + side, left - side);
        }
        if left > 0 {
            parts.push(self.one_by_one(spec, element, axis, [first, left]));
        }
        Some(Stmt::seq(parts))
    }

    /// Loops over the elements of so many places along an axis from the first on.
    fn one_by_one(
        &mut self,
        spec: &BufferSpec,
        element: &Element,
        cut: usize,
        [first, count]: [i64; 2],
    ) -> Stmt {
        let mut values: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
        let mut loops = Vec::new();
        for (axis, var) in element.vars.iter().enumerate() {
            let Some(var) = *var else { continue };
            let (first, extent) =
                if axis == cut { (first, count) } else { (0, spec.shape()[axis]) };
            let (index, counter) = self.counter("b", extent);
            values.insert(var, index + first);
            loops.push((counter, extent));
        }
        let stmt = self.func.copy_of(&element.stmt, &values);
        loops.into_iter().rev().fold(stmt, in_loop)
    }

    /// Finds out what would be turned.
    fn turnable(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Element> {
        let dim = spec.dims().get(innermost(spec)?)?;
        let (written, shape, bits) = (dim.axis, spec.shape(), dtype.bits());
        if dim.step != 1 {
            return None;
        }
        let vars: Vec<Option<VarId>> = (shape.iter().enumerate())
            .map(|(axis, &extent)| {
                (extent != 1 || axis == written).then(|| self.func.index_var(format!("i{axis}")))
            })
            .collect();
        let index: Vec<PrimExpr> = vars
            .iter()
            .map(|var| var.map_or(PrimExpr::index(0), |var| self.func.var_expr(var)))
            .collect();
        let stmt = element(self, &index);
        let lane = vars[written]?;
        let mut loads: Vec<PrimExpr> = Vec::new();
        let mut casts: Vec<(PrimExpr, PrimExpr)> = Vec::new();
        let mut guarded = false;
        let mut stored = None;
        stmt.walk(&mut |stmt| match stmt {
            Stmt::If { .. } => guarded = true,
            Stmt::Store { buffer, indices, .. } => stored = Some((*buffer, indices.clone())),
            _ => {}
        });
        stmt.walk_exprs(&mut |expr| match expr {
            PrimExpr::Load { .. } if !loads.contains(expr) => loads.push(expr.clone()),
            PrimExpr::Cast { value, .. } if matches!(**value, PrimExpr::Load { .. }) => {
                casts.push(((**value).clone(), expr.clone()));
            }
            // What is guarded must not be read ahead.
            PrimExpr::Select { cond, then, otherwise } => {
                guarded |= guards_loads(cond, then, otherwise);
            }
            _ => {}
        });
        if guarded {
            return None;
        }
        let mut read: Option<(usize, Option<i64>)> = None;
        let mut turned = Vec::new();
        let mut repeats = true;
        let mut by_sizes = false;
        for load in loads {
            let PrimExpr::Load { buffer, dtype, indices } = &load else { continue };
            let data = &self.func.buffers[*buffer].spec;
            // Each row of a block is read at a place of its own, be it none that follows from the others.
            if let Some(Along::Same | Along::Adjacent) = along(data, indices, lane) {
                // It could be what the result takes the place of.
                repeats &= self.is_constant(*buffer)
                    || stored.as_ref().is_some_and(|(to, at)| {
                        *at != *indices || self.func.buffers[*to].spec != *data
                    });
                continue;
            }
            if self.can_be_packed(*buffer, indices, lane) {
                continue;
            }
            let is_size = |var: &VarId| self.func.dims.contains(var);
            // Those of loops around these, too.
            let known = |var: &VarId| vars.contains(&Some(*var)) || self.extents.contains_key(var);
            let strange = indices.iter().any(|index| {
                index.any(&mut |e| match e {
                    PrimExpr::Load { .. } => true,
                    PrimExpr::Var { var, .. } => !known(var) && !is_size(var),
                    _ => false,
                })
            });
            by_sizes |= indices.iter().any(|index| {
                index.any(&mut |e| matches!(e, PrimExpr::Var { var, .. } if is_size(var)))
            });
            let is_cast = |(from, to): &&(PrimExpr, PrimExpr)| *from == load && turns(to.dtype());
            let unit = match dtype.bits() == bits && turns(*dtype) {
                true => load.clone(),
                false => casts.iter().find(is_cast)?.1.clone(),
            };
            if strange || unit.dtype().bits() != bits {
                return None;
            }
            let other = (vars.iter().enumerate()).find(|&(axis, var)| {
                axis != written
                    && var.is_some_and(|var| {
                        matches!(along(data, indices, var), Some(Along::Adjacent))
                    })
            });
            let innermost = data.dims().get(innermost(data)?)?.axis;
            let found = (other?.0, block(data, innermost));
            if *read.get_or_insert(found) != found {
                return None;
            }
            turned.push(unit);
        }
        let (read, read_block) = read?;
        if turned.len() > MOST_TURNED {
            return None;
        }
        let limits = stored.as_ref().map_or(&[][..], |&(to, _)| self.limits(to));
        let end = |axis: usize| limits.iter().find(|limit| limit.axis == axis);
        if by_sizes && end(read).is_some() {
            return None;
        }
        let end = end(written).filter(|_| by_sizes).map(|limit| limit.extent.clone());
        let vector_bits = match bits {
            ..32 => self.machine.vector_bits.min(NARROW_VECTOR_BITS),
            _ => self.machine.vector_bits,
        };
        let most = i64::from(vector_bits / bits).min(adjacent(spec));
        let most = most.min(read_block.unwrap_or(shape[read])).max(1);
        // A power of two, so that halves can be interleaved.
        let side = 1 << most.ilog2();
        let written_block = block(spec, written);
        let are_blocks = bits == 32 || written_block.is_none() || read_block.is_none();
        let fits = side >= LEAST_SIDE
            && are_blocks
            && block(spec, read).is_none()
            && [written_block, read_block].into_iter().flatten().all(|block| block % side == 0);
        fits.then_some(Element {
            stmt,
            vars,
            written,
            read,
            written_block,
            read_block,
            turned,
            side,
            repeats,
            end,
        })
    }

    /// Whether a tensor is a constant of which lanes read neighbours along an axis: it is packed as they
    /// lie in the result.
    fn can_be_packed(&self, buffer: BufferId, indices: &[PrimExpr], lane: VarId) -> bool {
        let steps = indices.iter().map(|index| coefficient(index, lane));
        let mut moving = steps.filter(|step| *step != Some(0));
        let is_dense = self.func.buffers[buffer].spec.is_dense();
        let is_along_one = moving.next() == Some(Some(1)) && moving.next().is_none();
        is_dense && is_along_one && self.is_constant(buffer)
    }

    /// The blocks of one run along either axis.
    fn turned_run(
        &mut self,
        spec: &BufferSpec,
        element: &Element,
        columns: &Run,
        rows: &Run,
        overruns: bool,
    ) -> Option<Stmt> {
        let side = element.side;
        let mut values: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
        // Loops in the order of memory.
        let mut loops: Vec<(usize, VarId, i64)> = Vec::new();
        for (axis, var) in element.vars.iter().enumerate() {
            let Some(var) = *var else { continue };
            let place = spec.dims().iter().position(|dim| dim.axis == axis).unwrap_or(axis);
            let mut value = PrimExpr::index(0);
            let whole = [(spec.shape()[axis], 1)];
            let (first, steps) = match axis {
                _ if axis == element.written => (columns.first, columns.loops.as_slice()),
                _ if axis == element.read => (rows.first, rows.loops.as_slice()),
                _ => (0, whole.as_slice()),
            };
            for (depth, &(count, step)) in steps.iter().enumerate() {
                let (index, counter) = self.counter("b", count);
                value = value + index * step;
                // The parts of a larger block side by side.
                loops.push((if depth == 0 { place } else { usize::MAX }, counter, count));
            }
            values.insert(var, value + first);
        }
        loops.sort_by_key(|&(place, ..)| place);
        let mut body = Vec::new();
        let mut registers = Vec::new();
        let mut copies: Vec<(&PrimExpr, BufferId)> = Vec::new();
        for load in &element.turned {
            let bits = held(load.dtype());
            let pair =
                ["rows", "turned"].map(|name| self.func.register(name, bits, &[side * side]));
            registers.extend(pair);
            for row in 0..side {
                let at = |axis: usize, offset: PrimExpr| -> Option<(VarId, PrimExpr)> {
                    let var = element.vars[axis]?;
                    Some((var, values.get(&var)?.clone() + offset))
                };
                // A padding lane may hold anything: another element, which is there to be read.
                let mut row_at = at(element.written, row.min(columns.valid - 1).into())?;
                if let Some(end) = &element.end {
                    row_at.1 = row_at.1.min(end.clone() - 1);
                }
                let lane = self.func.index_var("l");
                let lane_at = at(element.read, self.func.var_expr(lane))?;
                let mut here = values.clone();
                here.extend([row_at, lane_at]);
                let place = self.func.var_expr(lane) + row * side;
                let value = load.clone().substitute(&here).reinterpret(bits);
                let store = self.func.store(pair[0], [place], value);
                if !self.can_vectorize(&store, lane, side, false) {
                    return None;
                }
                body.push(lanes_of(lane, side, store));
            }
            let done = self.turn(pair, side, bits, &mut body);
            copies.push((load, done));
        }
        // The element with what was turned in registers.
        let [column, row] = ["column", "row"].map(|name| self.func.index_var(name));
        let place = self.func.var_expr(row) * side + self.func.var_expr(column);
        let func = &self.func;
        let stmt = element.stmt.clone().map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match copies.iter().find(|copy| *copy.0 == expr) {
                Some(&(_, from)) => func.load(from, [place.clone()]).reinterpret(expr.dtype()),
                None => expr,
            })
        });
        for number in 0..rows.valid {
            let lane = self.func.index_var("l");
            let lane_index = self.func.var_expr(lane);
            let mut here = values.clone();
            for (axis, by) in
                [(element.written, lane_index.clone()), (element.read, PrimExpr::index(number))]
            {
                let value = here.get_mut(&element.vars[axis]?)?;
                *value = value.clone() + by;
            }
            here.insert(column, lane_index);
            here.insert(row, PrimExpr::index(number));
            let one = self.func.copy_of(&stmt, &here);
            if !self.can_vectorize(&one, lane, side, overruns) {
                return None;
            }
            body.push(lanes_of(lane, side, one));
        }
        let body = registers
            .into_iter()
            .fold(Stmt::seq(body), |body, register| Stmt::allocate(register, body));
        Some(loops.into_iter().rev().fold(body, |body, (_, var, count)| match count {
            1 => body,
            _ => in_loop(body, (var, count)),
        }))
    }

    /// Turns a block of registers; returns which of the two buffers has the result.
    fn turn(
        &mut self,
        [mut from, mut to]: [BufferId; 2],
        side: i64,
        dtype: DType,
        stmts: &mut Vec<Stmt>,
    ) -> BufferId {
        let vector = |row: i64| PrimExpr::ramp(PrimExpr::index(row * side), 1, side as u32);
        let load = |buffer, row| PrimExpr::Load { buffer, dtype, indices: vec![vector(row)] };
        for _ in 0..side.trailing_zeros() {
            for row in 0..side {
                // Lanes of the first and the second vector in turns, from the start or the middle.
                let start = (row % 2) * side / 2;
                let picks = (0..side).map(|lane| start + lane / 2 + (lane % 2) * side);
                let vectors = vec![load(from, row / 2), load(from, row / 2 + side / 2)];
                let lanes = picks.map(|lane| lane as u32).collect();
                let turned = PrimExpr::Shuffle { vectors, lanes };
                stmts.push(self.func.store(to, [vector(row)], turned));
            }
            std::mem::swap(&mut from, &mut to);
        }
        from
    }
}

/// Whether elements of a type are turned: conditions are masks, and others share bytes.
pub(super) fn turns(dtype: DType) -> bool {
    dtype != DType::Bool && dtype.bits() >= 8
}

/// The type of elements in registers: floats of few bits would be computed in more.
fn held(dtype: DType) -> DType {
    match dtype.bits() {
        8 if dtype.is_float() => DType::U8,
        16 if dtype.is_float() => DType::U16,
        _ => dtype,
    }
}

/// How the places of a load differ along a variable.
enum Along {
    Same,
    Adjacent,
    Apart,
}

/// `None` if the places are not linear in the variable.
fn along(spec: &BufferSpec, indices: &[PrimExpr], var: VarId) -> Option<Along> {
    let steps: Vec<i64> =
        indices.iter().map(|index| coefficient(index, var)).collect::<Option<_>>()?;
    let mut moving = steps.iter().enumerate().filter(|(_, step)| **step != 0);
    let (Some((axis, step)), rest) = (moving.next(), moving.next()) else {
        return Some(Along::Same);
    };
    // Loops begin with a block.
    let start = indices[axis].clone().substitute(&[(var, PrimExpr::index(0))].into());
    let whole =
        block(spec, axis).is_none_or(|block| start.as_int().is_some_and(|at| at % block == 0));
    let unit = contiguous(spec, axis, &PrimExpr::index(0), 1);
    let adjacent = rest.is_none() && *step == 1 && whole && unit;
    Some(if adjacent { Along::Adjacent } else { Along::Apart })
}

/// Blocks that cover an extent. Of a layout in larger blocks the last one may be padding in part;
/// of another one, the last one may overlap the one before it.
fn runs(extent: i64, block: Option<i64>, element: &Element) -> Option<Vec<Run>> {
    let side = element.side;
    let mut runs = Vec::new();
    match block {
        Some(block) => {
            let (full, rest) = (extent / block, extent % block);
            if full > 0 {
                let loops = vec![(full, block), (block / side, side)];
                runs.push(Run { first: 0, loops, valid: side });
            }
            for part in 0..(rest + side - 1) / side {
                let valid = side.min(rest - part * side);
                runs.push(Run { first: full * block + part * side, loops: Vec::new(), valid });
            }
        }
        None => {
            let full = extent / side;
            runs.push(Run { first: 0, loops: vec![(full, side)], valid: side });
            if extent % side != 0 {
                if !element.repeats {
                    return None;
                }
                runs.push(Run { first: extent - side, loops: Vec::new(), valid: side });
            }
        }
    }
    Some(runs)
}

/// A loop over lanes.
pub(super) fn lanes_of(lane: VarId, count: i64, body: Stmt) -> Stmt {
    let (min, extent) = (PrimExpr::index(0), PrimExpr::index(count));
    Stmt::for_loop(lane, min, extent, ForKind::Vectorized, body)
}
