//! Windows that slide over planes, with a border around these, so that no element is tested; and
//! which border images need.

use super::cover::{LEAST_LANES, adjacent};
use super::emit::Emitter;
use super::nest::block;
use super::reduce::Reduction;
use super::turn::turns;
use crate::ir::{BufferSpec, DType};
use crate::target::CHANNEL_BLOCK;
use crate::te::{Anchor, StageId};
use crate::tir::{BufferId, ParamKind, Stmt};

/// Shortest row of a result, in pixels, whose ends are tested instead of copying what they read.
const LONG_ROW: i64 = 64;

/// Fewest neighbours in a row of the result for which its planes get a border.
const MIN_ROW: i64 = LEAST_LANES;

/// Fewest elements of a window for which short rows of planes are turned into blocks of channels and back.
const LEAST_TAPS: i64 = 6;

/// The zero border a convolution needs along an axis: before and after. Of an extent that is known at
/// run time alone, what is given are the greatest, and the last step may reach further for others.
pub fn halo_needed(
    (input, is_open): (i64, bool),
    output: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
) -> (i64, i64) {
    let last = (output - 1) * stride + (kernel - 1) * dilation - padding;
    let further = if is_open { stride - 1 } else { 0 };
    (padding.max(0), (last + 1 + further - input).max(0))
}

/// Whether the layout of an image has the border of zeros that is needed along height and width.
pub(super) fn halo_fits(spec: &BufferSpec, needed: &[(i64, i64)]) -> bool {
    needed
        .iter()
        .zip(&spec.halo()[2..])
        .all(|(&(before, after), halo)| halo.before >= before && halo.after >= after)
}

/// Whether a border along rows alone, of so many pixels of the result, is no copy of the image: testing what
/// is at their ends takes less time.
pub(super) fn tests_ends(halos: &[(i64, i64)], row: i64) -> bool {
    let rows = halos.split_last().map_or(&[][..], |(_, others)| others);
    row >= LONG_ROW && rows.iter().all(|&halo| halo == (0, 0))
}

impl Emitter {
    /// Planes that are made in blocks of channels first, by `emit`, which is handed the last stage that lies
    /// in such: with what is made of `inner` if that reads no other planes, as both are vectors then, and can
    /// be turned in registers.
    pub(super) fn through_blocks(
        &mut self,
        root: StageId,
        inner: StageId,
        emit: impl FnOnce(&mut Self, StageId) -> Stmt,
    ) -> Stmt {
        let output = self.materialised[&root];
        let is_vectors = turns(self.dag.dtype(root)) && !self.reads_planes(root, inner);
        let last = if is_vectors { root } else { inner };
        let spec = BufferSpec::nchwc(self.dag.shape(last), CHANNEL_BLOCK, &[]);
        let blocks = self.func.local("blocks", self.dag.dtype(last), spec);
        self.scratch.push(blocks);
        self.materialised.insert(last, blocks);
        let made = emit(self, last);
        self.note(root, "planes from blocks of channels", String::new(), None, None);
        let rest = if last == root {
            self.materialised.insert(root, output);
            self.copy(blocks, output)
        } else {
            self.emit_compute(root, false)
        };
        Stmt::seq([made, rest])
    }

    /// Whether what is made of `inner` reads other tensors of planes.
    fn reads_planes(&self, root: StageId, inner: StageId) -> bool {
        let mut open = vec![root];
        while let Some(stage) = open.pop() {
            let Some(buffer) = self.materialised.get(&stage).filter(|_| stage != root) else {
                open.extend(self.dag.reads(stage).into_iter().filter(|&read| read != inner));
                continue;
            };
            let spec = &self.func.buffers[*buffer].spec;
            let channels = self.dag.shape(inner)[1];
            if spec.blocking().is_empty() && spec.num_elements().is_none_or(|n| n > channels) {
                return true;
            }
        }
        false
    }

    /// The loops of windows over a tensor in planes, if the result lies in such, too, or in blocks of channels.
    pub(super) fn emit_window(
        &mut self,
        root: StageId,
        inner: StageId,
        anchor: &Anchor,
    ) -> Option<Stmt> {
        let Anchor::Window { data, taps, strides, padding, dilation } = anchor else { return None };
        let data = *data;
        let from = *self.materialised.get(&data)?;
        let reduction = Reduction::of(self, inner)?;
        let (outside, factor) = (reduction.init(), reduction.factor());
        let [read, written] = [from, self.materialised[&root]].map(|b| &self.func.buffers[b].spec);
        let into_blocks = block(written, 1) == Some(CHANNEL_BLOCK);
        let is_known = read.is_dense() && (into_blocks || written.is_dense());
        let row = adjacent(written);
        let (extents, windows) = (self.dag.shape(data), self.dag.shape(inner));
        let is_large = taps.iter().product::<i64>() >= LEAST_TAPS;
        // Factors of channels are packed in blocks, too: all CPU levels read the same ones.
        let machine = if factor.is_some() { self.packing } else { self.machine };
        // Products of two vectors want whole ones, and pixels that are further apart are picked.
        let is_uneven = row < machine.lanes(DType::F32)
            || factor.is_some()
            || strides.last().is_some_and(|&stride| stride > 1);
        let has_blocks = factor.is_none_or(|factor| self.is_constant(factor));
        let is_turned = is_large && is_uneven && windows[1] >= CHANNEL_BLOCK && has_blocks;
        let through_blocks = !into_blocks && is_turned;
        let blocked = into_blocks || through_blocks;
        if !self.rows.is_empty()
            || !is_known
            || !(blocked || row >= MIN_ROW)
            || self.dag.dtype(data) != self.dag.dtype(inner)
        {
            return None;
        }
        let halos = (0..taps.len()).zip(2..).map(|(axis, at)| {
            let is_open = self.dag.limits(data).iter().any(|limit| limit.axis == at);
            let input = (extents[at], is_open);
            let [taps, stride] = [taps[axis], strides[axis]];
            halo_needed(input, windows[at], taps, stride, padding[axis], dilation[axis])
        });
        let halos: Vec<(i64, i64)> = halos.collect();
        // Which rows are outside is the same for all lanes.
        let is_around = halos.last() != Some(&(0, 0));
        let is_tested = !through_blocks && (tests_ends(&halos, row) || !is_around);
        if !into_blocks && is_tested {
            self.note(inner, "windows over planes", String::new(), None, None);
            return Some(self.reduce_planes(root, inner, from));
        }
        let spec = match blocked {
            true => BufferSpec::nchwc(extents, CHANNEL_BLOCK, &halos),
            false => (halos.iter().zip(2..))
                .fold(BufferSpec::dense(extents), |spec, (&(before, after), axis)| {
                    spec.with_halo(axis, before, after)
                }),
        };
        if let Some(factor) = factor.filter(|_| blocked && has_blocks) {
            let shape = self.func.buffers[factor].shape().to_vec();
            let taps = (1..shape.len()).map(|axis| (axis, 1));
            let dims: Vec<(usize, i64)> =
                [(0, CHANNEL_BLOCK)].into_iter().chain(taps).chain([(0, 1)]).collect();
            self.func.buffers[factor].spec = BufferSpec::packed(&shape, &dims);
        }
        let (copy, fill) = self.copy_with_border(from, spec, &outside);
        self.note(inner, "windows over planes with a border", String::new(), None, None);
        let loops = match through_blocks {
            true => self.through_blocks(root, inner, |emitter, root| {
                emitter.reduce_with_border(root, inner, from, copy)
            }),
            false => self.reduce_with_border(root, inner, from, copy),
        };
        Some(Stmt::seq([fill, loops]))
    }

    /// A reduction of windows over a copy that has the border they need.
    pub(super) fn reduce_with_border(
        &mut self,
        root: StageId,
        inner: StageId,
        data: BufferId,
        copy: BufferId,
    ) -> Stmt {
        let Some(reduction) = Reduction::of(self, inner) else { return Stmt::nop() };
        let image = self.dag.stage_of(data);
        let before = image.and_then(|image| self.materialised.insert(image, copy));
        let is_alone = self.reads_alone(root, image);
        let anchor = self.dag.stages[inner].anchor.clone();
        let reduction = reduction.with_border().repeating(is_alone).sharing_lines(&anchor);
        let loops = self.emit_reduction(root, &reduction);
        if let Some((image, buffer)) = image.zip(before) {
            self.materialised.insert(image, buffer);
        }
        loops
    }

    /// A reduction of windows over planes as they are.
    pub(super) fn reduce_planes(&mut self, root: StageId, inner: StageId, data: BufferId) -> Stmt {
        let Some(reduction) = Reduction::of(self, inner) else { return Stmt::nop() };
        let is_alone = self.reads_alone(root, self.dag.stage_of(data));
        self.emit_reduction(root, &reduction.repeating(is_alone))
    }

    /// Whether elements may be computed twice: no tensor but one, which is not written, is read.
    fn reads_alone(&self, root: StageId, image: Option<StageId>) -> bool {
        let inputs = self.func.params.iter().filter(|param| param.kind == ParamKind::Input);
        let mut inputs = inputs.filter_map(|param| self.dag.stage_of(param.buffer));
        let reads = |input| self.reads_stored(root, input, &self.materialised);
        let reads_others = inputs.any(|input| Some(input) != image && reads(input));
        !reads_others && self.dag.limits(root).is_empty()
    }
}
