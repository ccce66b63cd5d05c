//! The loops over the terms of a convolution's sums: blocks of input channels, taps, channels.

use super::super::emit::Emitter;
use super::{Conv, Direct, around};
use crate::ops::nn::AxisWindow;
use crate::strategy::tile::{Sums, matrix_step};
use crate::target::CHANNEL_BLOCK;
use crate::tir::{ForKind, MATRIX_BYTES, PrimExpr, Stmt};

/// Of so many terms of a convolution at least one is of the border on two sides of the image, for what is
/// left out to be worth loops whose ends are computed.
const LEAST_OUTSIDE: i64 = 25;

/// Taps of a kernel along an axis that read the image: the first one, and how many there are.
pub(super) struct Taps {
    first: PrimExpr,
    count: PrimExpr,
}

/// A channel, and a tap's line and column.
type At = [PrimExpr; 3];

/// What is asked for before so many steps from one on.
type Asked<'a> = dyn Fn(&mut Emitter, &At, &PrimExpr, i64) -> Vec<Stmt> + 'a;

/// What is done for a step of a sum, whose channel and tap are given, and its number; and what is asked for
/// before.
pub(super) struct Terms<'a> {
    pub(super) asked: &'a Asked<'a>,
    pub(super) step: &'a dyn Fn(&mut Emitter, &At, &PrimExpr) -> Stmt,
}

/// A part of the terms: blocks of so many input channels behind a first one, and taps of a row that an
/// instruction takes.
#[derive(Clone, Copy)]
struct Part {
    first: i64,
    blocks: i64,
    size: i64,
    taps: i64,
}

impl Conv {
    /// Whether the taps of a line, in blocks of channels, are a row of a matrix of bytes.
    fn has_adjacent_taps(&self) -> bool {
        let taps = self.kernel[1];
        taps > 1 && taps * CHANNEL_BLOCK <= MATRIX_BYTES && self.dilation[1] == 1
    }

    /// How many taps the tiles of so many places along an axis have, and how many of them read the image, of
    /// such an extent, not the border before and behind it alone.
    fn taps_within(&self, axis: usize, image: i64, places: i64) -> [i64; 2] {
        let [taps, stride, dilation] =
            [self.kernel, self.strides, self.dilation].map(|both| both[axis]);
        let output = self.output[axis];
        let firsts = (0..output).step_by(usize::try_from(places).unwrap_or(1).max(1));
        let within = firsts.clone().map(|first| {
            let before = self.padding[axis] - first * stride;
            let window = AxisWindow { taps, stride, dilation, before, after: 0 };
            let within = window.read_taps(image, places.min(output - first));
            within.end - within.start
        });
        [firsts.count() as i64 * taps, within.sum()]
    }
}

impl Emitter {
    /// Which taps along an axis read anything but the border for a tile of so many places from a first one
    /// on; nothing if those are nearly all, or if the border adds to the sums.
    pub(super) fn within(
        &self,
        conv: &Conv,
        axis: usize,
        first: &PrimExpr,
        places: i64,
    ) -> Option<Taps> {
        let image = self.func.buffers[conv.data].shape()[axis + 2];
        let [all, within] = conv.taps_within(axis, image, places);
        let is_open = !self.dag.limits(conv.inner).is_empty();
        if conv.pad_value != 0 || is_open || (all - within) * LEAST_OUTSIDE < all {
            return None;
        }
        let [stride, dilation] = [conv.strides[axis], conv.dilation[axis]];
        let at = |place: PrimExpr| place * stride - conv.padding[axis];
        let last = at(first.clone() + (places - 1));
        let before = (PrimExpr::index(dilation - 1) - last).floordiv(dilation).max(0);
        let behind = PrimExpr::index(image - 1) - at(first.clone());
        let end = (behind.floordiv(dilation) + 1).min(conv.kernel[axis]);
        Some(Taps { count: (end - before.clone()).max(0), first: before })
    }

    /// Loops over the steps of a sum, of some lines and columns of the kernel or of all.
    pub(super) fn sum(
        &mut self,
        direct: &Direct<'_>,
        within: [Option<&Taps>; 2],
        of_step: &Terms<'_>,
    ) -> Stmt {
        let Direct { conv, block, .. } = *direct;
        let channels = conv.in_channels;
        let parts = match block {
            None => vec![Part { first: 0, blocks: channels, size: 1, taps: conv.ty.depth() }],
            Some(size) => {
                let (blocks, rest) = (channels / size, channels % size);
                let parts = [(0, blocks, size), (blocks * size, i64::from(rest > 0), rest)];
                let parts = parts.into_iter().filter(|(_, blocks, _)| *blocks > 0);
                parts.map(|(first, blocks, size)| Part { first, blocks, size, taps: 1 }).collect()
            }
        };
        let sums = parts.into_iter().map(|part| self.terms(direct, part, within, of_step));
        Stmt::seq(sums.collect::<Vec<_>>())
    }

    /// Loops over blocks of input channels, taps, some of a row at once, and the channels of a block.
    fn terms(
        &mut self,
        direct: &Direct<'_>,
        part: Part,
        within: [Option<&Taps>; 2],
        of_step: &Terms<'_>,
    ) -> Stmt {
        let conv = direct.conv;
        let [kh, kw] = [conv.kernel[0], (conv.kernel[1] + part.taps - 1) / part.taps];
        let steps = conv.ty.steps(part.size);
        let (b, b_var) = self.counter("cb", part.blocks);
        let (ky, ky_var) = self.counter("ky", kh);
        let (kx, kx_var) = self.counter("kx", kw);
        let (c, c_var) = self.counter("c", steps);
        // Where a step is, and its number.
        let at = |kx: &PrimExpr, c: &PrimExpr| {
            let taps = (b.clone() * kh + ky.clone()) * kw + kx.clone();
            let number = taps * steps + c.clone() + conv.ty.steps(part.first) * kh * kw;
            let channel = b.clone() * part.size + part.first + c.clone() * conv.ty.depth();
            ([channel, ky.clone(), kx.clone() * part.taps], number)
        };
        let (place, number) = at(&kx, &c);
        let stmt = (of_step.step)(self, &place, &number);
        let over = |var, taps, within: Option<&Taps>, body| match within {
            Some(Taps { first, count }) => {
                Stmt::for_loop(var, first.clone(), count.clone(), ForKind::Serial, body)
            }
            None => around(var, taps, body),
        };
        // Taps that an instruction takes at once are not left out.
        let columns = within[1].filter(|_| part.taps == 1);
        let zero = PrimExpr::index(0);
        let mut with_asked = |(place, number): (At, PrimExpr), steps, stmt| {
            let mut stmts = (of_step.asked)(self, &place, &number, steps);
            stmts.push(stmt);
            Stmt::seq(stmts)
        };
        let stmt = match direct.sums {
            Sums::Vectors => {
                let stmt = with_asked((place, number), 1, stmt);
                over(kx_var, kw, columns, around(c_var, steps, stmt))
            }
            // The taps of a line lie side by side, with all channels of a block of each.
            Sums::Matrices if conv.has_adjacent_taps() => {
                let stmt = matrix_step(kx_var, kw, around(c_var, steps, stmt));
                with_asked(at(&zero, &zero), kw * steps, stmt)
            }
            Sums::Matrices => {
                let stmt = with_asked(at(&kx, &zero), steps, matrix_step(c_var, steps, stmt));
                over(kx_var, kw, columns, stmt)
            }
        };
        let stmt = over(ky_var, kh, within[0], stmt);
        around(b_var, part.blocks, stmt)
    }
}
