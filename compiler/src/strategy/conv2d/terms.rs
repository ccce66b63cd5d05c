//! The loops over the terms of a convolution's sums: blocks of input channels, taps, channels.

use super::super::emit::Emitter;
use super::{Conv, Direct, around};
use crate::tir::{ForKind, PrimExpr, Stmt};

/// Of so many terms of a convolution at least one is of the border above or below the image, for what is
/// left out to be worth loops whose ends are computed.
const LEAST_OUTSIDE: i64 = 25;

/// Lines of a kernel that read the image: the first one, and how many there are.
pub(super) struct Lines {
    first: PrimExpr,
    count: PrimExpr,
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
    /// How many terms of a column of the result's pixels are there, and how many of them are of the image,
    /// of so many lines, not of the border above and below it.
    fn terms_within(&self, height: i64) -> [i64; 2] {
        let [[taps, _], [stride, _], [dilation, _]] = [self.kernel, self.strides, self.dilation];
        let reach = (taps - 1) * dilation;
        let within = (0..self.output[0]).map(|line| {
            let above = line * stride - self.padding[0];
            let below = height - 1 - above;
            let first = (-above + dilation - 1).div_euclid(dilation).max(0);
            below.min(reach).div_euclid(dilation) + 1 - first
        });
        [self.output[0] * taps, within.map(|count| count.max(0)).sum()]
    }
}

impl Emitter {
    /// Which lines of the kernel read anything but the border for a tile of so many lines of the result from
    /// a first one on; nothing if that is nearly all of them, or if the border adds to the sums.
    pub(super) fn lines_within(&self, conv: &Conv, y: &PrimExpr, lines: i64) -> Option<Lines> {
        let height = self.func.buffers[conv.data].shape()[2];
        let [all, within] = conv.terms_within(height);
        let is_open = !self.dag.limits(conv.inner).is_empty();
        if conv.pad_value != 0 || is_open || (all - within) * LEAST_OUTSIDE < all {
            return None;
        }
        let [stride, dilation] = [conv.strides[0], conv.dilation[0]];
        let above = |line: PrimExpr| line * stride - conv.padding[0];
        let last = above(y.clone() + (lines - 1));
        let first = (PrimExpr::index(dilation - 1) - last).floordiv(dilation).max(0);
        let below = PrimExpr::index(height - 1) - above(y.clone());
        let end = (below.floordiv(dilation) + 1).min(conv.kernel[0]);
        Some(Lines { count: (end - first.clone()).max(0), first })
    }

    /// Loops over the steps of a sum, of some lines of the kernel or of all; `step` is handed channel and
    /// tap, and the step's number.
    pub(super) fn sum(
        &mut self,
        direct: &Direct<'_>,
        lines: Option<&Lines>,
        step: &dyn Fn(&mut Emitter, [PrimExpr; 3], &PrimExpr) -> Stmt,
    ) -> Stmt {
        let Direct { conv, block } = *direct;
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
        let sums = parts.into_iter().map(|part| self.terms(conv, part, lines, step));
        Stmt::seq(sums.collect::<Vec<_>>())
    }

    /// Loops over blocks of input channels, taps, some of a row at once, and the channels of a block.
    fn terms(
        &mut self,
        conv: &Conv,
        part: Part,
        lines: Option<&Lines>,
        step: &dyn Fn(&mut Emitter, [PrimExpr; 3], &PrimExpr) -> Stmt,
    ) -> Stmt {
        let [kh, kw] = [conv.kernel[0], (conv.kernel[1] + part.taps - 1) / part.taps];
        let steps = conv.ty.steps(part.size);
        let (b, b_var) = self.counter("cb", part.blocks);
        let (ky, ky_var) = self.counter("ky", kh);
        let (kx, kx_var) = self.counter("kx", kw);
        let (c, c_var) = self.counter("c", steps);
        let taps = (b.clone() * kh + ky.clone()) * kw + kx.clone();
        let number = taps * steps + c.clone() + conv.ty.steps(part.first) * kh * kw;
        let channel = b * part.size + part.first + c * conv.ty.depth();
        let stmt = step(self, [channel, ky, kx * part.taps], &number);
        let stmt = around(kx_var, kw, around(c_var, steps, stmt));
        let stmt = match lines {
            Some(Lines { first, count }) => {
                Stmt::for_loop(ky_var, first.clone(), count.clone(), ForKind::Serial, stmt)
            }
            None => around(ky_var, kh, stmt),
        };
        around(b_var, part.blocks, stmt)
    }
}
