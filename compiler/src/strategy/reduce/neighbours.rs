//! Sums over the neighbours of each channel of tensors in blocks, as local response normalisation has
//! them.
//!
//! The neighbours of a channel are in other lanes than it is, and some in another block. The channels
//! of a few pixels are copied side by side, with what stands for those beyond the first and the last:
//! there, the neighbours of a vector are vectors as well, which begin anywhere.

use super::super::emit::Emitter;
use super::super::nest::{block, coefficient, in_loop, innermost};
use super::super::tiling::Run;
use super::super::turn::lanes_of;
use super::Reduction;
use crate::ir::BufferSpec;
use crate::te::{ReduceAxis, StageId, StageKind};
use crate::tir::{Analyzer, BinaryOp, BufferId, CompareOp, PrimExpr, Stmt, VarId};

/// Most pixels that are copied at a time. A vector that is read when one of two that it overlaps has only
/// just been written waits for it.
const PIXELS: i64 = 8;

/// Most neighbours, which are written out.
const MOST_NEIGHBOURS: i64 = 15;

/// Fewest lanes that are worth it.
const LEAST_LANES: i64 = 4;

/// A sum over the neighbours of a channel.
struct Neighbours {
    /// The axis of the channels, and how many there are.
    axis: usize,
    channels: i64,
    /// How many neighbours come before a channel.
    before: i64,
    /// What goes over all of them, the channel itself among them, and how many they are.
    over: (VarId, i64),
    /// What is read of a neighbour.
    element: PrimExpr,
    /// What the channel itself has.
    inside: PrimExpr,
    /// What stands for neighbours that are not there.
    outside: PrimExpr,
}

/// Pixels side by side, and how their channels lie in memory.
struct Pixels<'a> {
    /// Their axis.
    axis: usize,
    first: PrimExpr,
    count: i64,
    /// The index of an element, but for the pixel and the channel.
    index: &'a [PrimExpr],
    /// Blocks of channels, and channels of a block and of a vector.
    blocks: i64,
    size: i64,
    lanes: i64,
}

impl Neighbours {
    fn of(emitter: &Emitter, reduction: &Reduction, axis: usize) -> Option<Neighbours> {
        let [ReduceAxis { var, extent }] = *reduction.axes.as_slice() else { return None };
        let over = (var, extent);
        let is_open = reduction.limits.iter().any(Option::is_some);
        if is_open || !(2..=MOST_NEIGHBOURS).contains(&extent) {
            return None;
        }
        let mut element = None;
        reduction.value.walk(&mut |expr| {
            if matches!(expr, PrimExpr::Select { .. }) && element.is_none() {
                element = Some(expr.clone());
            }
        });
        let element = element?;
        let PrimExpr::Select { cond, then, otherwise } = &element else { return None };
        let PrimExpr::Load { buffer, dtype, indices } = &**then else { return None };
        let channel = *emitter.dag.stages[reduction.stage].axes.get(axis)?;
        let channels = emitter.dag.shape(reduction.stage)[axis];
        let varies = |expr: &PrimExpr| expr.uses(channel) || expr.uses(var);
        let (place, others) = (indices.get(axis)?, indices.iter().enumerate());
        let is_place = [channel, var].iter().all(|&var| coefficient(place, var) == Some(1));
        let is_alone = others.filter(|(at, _)| *at != axis).all(|(_, index)| !varies(index));
        if !is_place || !is_alone || varies(otherwise) {
            return None;
        }
        let zeros = [channel, var].map(|var| (var, PrimExpr::index(0))).into();
        let first = Analyzer::new().simplify(&place.clone().substitute(&zeros)).as_int()?;
        let before = Some(-first).filter(|before| (0..extent).contains(before))?;
        let is_inside = bounds(cond, place)? == [0, channels];
        // All that the value has of the neighbour is the element.
        let rest = reduction.value.clone().rewrite(&mut |expr| match expr == element {
            true => (**otherwise).clone(),
            false => expr,
        });
        let mut indices = indices.clone();
        indices[axis] = PrimExpr::var(channel, place.ty());
        let inside = PrimExpr::Load { buffer: *buffer, dtype: *dtype, indices };
        let outside = (**otherwise).clone();
        let found = Neighbours { axis, channels, before, over, element, inside, outside };
        (is_inside && !varies(&rest)).then_some(found)
    }
}

/// The bounds of a place that a condition has, lower one first: `low <= place && place < high`.
fn bounds(cond: &PrimExpr, place: &PrimExpr) -> Option<[i64; 2]> {
    let PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } = cond else { return None };
    let bound = |expr: &PrimExpr, wanted: CompareOp| match expr {
        PrimExpr::Compare { op, lhs, rhs } if *op == wanted && **lhs == *place => rhs.as_int(),
        _ => None,
    };
    Some([bound(lhs, CompareOp::Ge)?, bound(rhs, CompareOp::Lt)?])
}

impl Emitter {
    /// A sum over neighbours of which a vector is computed at a time; `None` if it is none, or the result
    /// is not in blocks of channels.
    pub(super) fn reduce_neighbours(
        &mut self,
        root: StageId,
        reduction: &Reduction,
    ) -> Option<Stmt> {
        let to = self.materialised[&root];
        let spec = self.func.buffers[to].spec.clone();
        let axis = spec.dims().get(innermost(&spec)?)?.axis;
        let size = block(&spec, axis)?;
        let lanes = reduction.lanes(self.machine).min(size);
        let is_compute = matches!(self.dag.stages[root].kind, StageKind::Compute(_));
        let is_open = self.is_open(to) || !self.rows.is_empty();
        if !is_compute || is_open || lanes < LEAST_LANES || size % lanes != 0 {
            return None;
        }
        let neighbours = Neighbours::of(self, reduction, axis)?;
        // Lanes behind the last channel are read as well: padding.
        let PrimExpr::Load { buffer, .. } = neighbours.inside else { return None };
        let from = self.materialised.get(&self.dag.stage_of(buffer)?)?;
        block(&self.func.buffers[*from].spec, axis).filter(|size| size % lanes == 0)?;
        let mut index = vec![PrimExpr::index(0); spec.shape().len()];
        let mut loops = Vec::new();
        for dim in spec.dims().iter().filter(|dim| dim.axis != axis) {
            if dim.step != 1 {
                return None;
            }
            let (at, var) = self.counter("i", spec.shape()[dim.axis]);
            index[dim.axis] = at;
            loops.push((dim.axis, var));
        }
        let (along, _) = loops.pop()?;
        let mut parts = Vec::new();
        for run in Run::cover(spec.shape()[along], PIXELS) {
            let (number, var) = self.counter("x", run.count);
            let first = number * run.size + run.first;
            let blocks = (neighbours.channels + size - 1) / size;
            let count = run.size;
            let pixels = Pixels { axis: along, first, count, index: &index, blocks, size, lanes };
            let body = self.neighbours_of_pixels(root, reduction, &neighbours, &pixels)?;
            parts.push(in_loop(body, (var, run.count)));
        }
        let around = loops.iter().rev();
        Some(
            around.fold(Stmt::seq(parts), |body, &(axis, var)| {
                in_loop(body, (var, spec.shape()[axis]))
            }),
        )
    }

    /// Copies the channels of pixels and sums them up.
    fn neighbours_of_pixels(
        &mut self,
        root: StageId,
        reduction: &Reduction,
        neighbours: &Neighbours,
        pixels: &Pixels<'_>,
    ) -> Option<Stmt> {
        let &Neighbours { axis, before, over: (_, count), channels, .. } = neighbours;
        // The copy has room for whole blocks, and the result has padding.
        let overruns = channels % pixels.size != 0;
        let width = pixels.blocks * pixels.size + count - 1;
        let dtype = neighbours.inside.dtype();
        let shape = [pixels.count, width];
        let copy = self.func.local("neighbours", dtype, BufferSpec::dense(&shape));
        let own = self.dag.stages[reduction.stage].axes.clone();
        let copied = self.over_channels(axis, (pixels, false), &mut |emitter, at, pixel| {
            let values = own.iter().copied().zip(at.iter().cloned()).collect();
            let value = neighbours.inside.clone().substitute(&values);
            let (mut inliner, func) = emitter.inliner();
            let value = inliner.expression(func, value);
            let place = [pixel.clone(), at[axis].clone() + before];
            let stmt = func.store(copy, place, value);
            inliner.wrap(stmt)
        })?;
        let around = self.around_channels(neighbours, copy, shape);
        let summed = self.over_channels(axis, (pixels, overruns), &mut |emitter, at, pixel| {
            let mut sum = reduction.init();
            for number in 0..count {
                let place = [pixel.clone(), at[axis].clone() + number];
                let element = emitter.func.load(copy, place);
                let value = reduction.value.clone().rewrite(&mut |expr| {
                    if expr == neighbours.element { element.clone() } else { expr }
                });
                sum = reduction.combined(sum, value);
            }
            emitter.store_element(root, Some((reduction.stage, sum)), at)
        })?;
        Some(Stmt::allocate(copy, Stmt::seq([copied, around, summed])))
    }

    /// Loops over the channels of pixels in vectors. The body is handed the index of an element, and which
    /// of the pixels it is in.
    fn over_channels(
        &mut self,
        axis: usize,
        (pixels, overruns): (&Pixels<'_>, bool),
        body: &mut dyn FnMut(&mut Emitter, &[PrimExpr], &PrimExpr) -> Stmt,
    ) -> Option<Stmt> {
        let &Pixels { count, blocks, size, lanes, .. } = pixels;
        let (pixel, pixel_var) = self.counter("p", count);
        let (number, block_var) = self.counter("b", blocks);
        let mut parts = Vec::new();
        for part in 0..size / lanes {
            let (lane, var) = self.counter("l", lanes);
            let channel = number.clone() * size + part * lanes + lane;
            let mut at = pixels.index.to_vec();
            at[pixels.axis] = pixels.first.clone() + pixel.clone();
            at[axis] = channel;
            let stmt = body(self, &at, &pixel);
            if !self.can_vectorize(&stmt, var, lanes, overruns) {
                return None;
            }
            parts.push(lanes_of(var, lanes, stmt));
        }
        Some(in_loop(in_loop(Stmt::seq(parts), (block_var, blocks)), (pixel_var, count)))
    }

    /// What stands for channels before the first and behind the last.
    fn around_channels(
        &mut self,
        neighbours: &Neighbours,
        copy: BufferId,
        [pixels, width]: [i64; 2],
    ) -> Stmt {
        let (pixel, pixel_var) = self.counter("p", pixels);
        let behind = neighbours.before + neighbours.channels;
        let mut stmts = Vec::new();
        for (first, count) in [(0, neighbours.before), (behind, width - behind)] {
            let (place, var) = self.counter("c", count);
            let place = [pixel.clone(), place + first];
            let store = self.func.store(copy, place, neighbours.outside.clone());
            if count > 0 {
                stmts.push(in_loop(store, (var, count)));
            }
        }
        in_loop(Stmt::seq(stmts), (pixel_var, pixels))
    }
}
