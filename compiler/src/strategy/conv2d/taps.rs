//! Depthwise convolution of bytes by dot products: four taps of a row are one step of each channel.
//!
//! Four pixels of a block of channels are 64 bytes side by side. Turned, each channel has its four in
//! one lane, beside which the weights of four taps lie, with zeros for pixels that are no taps. With
//! strides of one, the same pixels serve two results, one pixel apart, for which the weights are moved
//! by one.

use super::Conv;
use crate::ir::DType;
use crate::strategy::emit::Emitter;
use crate::strategy::machine::Machine;
use crate::strategy::tile::{FOUR, Tile};
use crate::target::CHANNEL_BLOCK;
use crate::tir::{PrimExpr, Stmt};

/// Bytes of four pixels of a block of channels.
const BYTES: i64 = FOUR * CHANNEL_BLOCK;

/// Results that pixels serve: the one that begins with the first of them, and the next.
const SHARERS: i64 = 2;

/// How the taps of a row are taken by fours.
#[derive(Clone, Copy)]
pub(super) struct Taps {
    /// Taps of a column and of a row.
    kernel: [i64; 2],
}

impl Taps {
    /// Those of a convolution that gains by it, on such a machine.
    pub(super) fn of(conv: &Conv, machine: Machine) -> Option<Taps> {
        let (kernel, stride) = (conv.kernel, conv.strides[1]);
        let is_byte = (conv.ty.lhs, conv.ty.rhs) == (DType::U8, DType::I8);
        let fills = machine.dot && machine.lanes(DType::I32) == CHANNEL_BLOCK;
        let has_fours = kernel[1] >= FOUR - 1 && kernel[0] * kernel[1] >= FOUR;
        let suits = conv.dilation[1] == 1 && (1..=SHARERS).contains(&stride);
        (is_byte && fills && has_fours && suits).then_some(Taps { kernel })
    }

    /// Pixels that a result and its next may read: none is read beyond the last tap.
    fn span(self) -> i64 {
        self.kernel[1] + SHARERS - 1
    }

    /// The first pixels of the fours that cover these: the last four end where they do.
    fn fours(self) -> impl Iterator<Item = i64> {
        let last = self.span() - FOUR;
        (0..self.span()).step_by(FOUR as usize).map(move |first| first.min(last))
    }

    /// The number of the weights of a row of taps and a four, for a result that begins so many pixels
    /// behind.
    fn number(self, row: i64, four: i64, behind: i64) -> i64 {
        (row * self.fours().count() as i64 + four) * SHARERS + behind
    }

    /// Each four with each of the results that it serves.
    fn each(self) -> impl Iterator<Item = (i64, i64)> {
        let fours = 0..self.fours().count() as i64;
        fours.flat_map(|four| (0..SHARERS).map(move |behind| (four, behind)))
    }

    /// For each pixel of a four its tap in a row, if the four before has not had it.
    fn taps(self, four: i64, behind: i64) -> [Option<i64>; FOUR as usize] {
        let first = self.fours().nth(four as usize).unwrap_or(0);
        [0, 1, 2, 3].map(|pixel| {
            let tap = first + pixel - behind;
            let is_new = first + pixel >= four * FOUR;
            (is_new && (0..self.kernel[1]).contains(&tap)).then_some(tap)
        })
    }

    /// Whether a four has a tap of a result that begins so many pixels behind.
    fn has(self, four: i64, behind: i64) -> bool {
        self.taps(four, behind).iter().any(Option::is_some)
    }

    /// For each of the pixels from which fours are read, the results of a row that they serve, and how
    /// far behind these begin.
    fn results(self, count: i64, stride: i64) -> Vec<(i64, Vec<(i64, i64)>)> {
        let mut results = Vec::new();
        let mut at = 0;
        while at < count {
            let is_last = at + 1 == count;
            if stride < SHARERS && !is_last {
                results.push((at * stride, vec![(at, 0), (at + 1, 1)]));
                at += SHARERS;
            } else {
                // The last one is the next of the pixel before, which is there.
                let behind = i64::from(is_last);
                results.push((at * stride - behind, vec![(at, behind)]));
                at += 1;
            }
        }
        results
    }
}

/// Lanes of so many bytes from a place on.
fn bytes(first: i64) -> PrimExpr {
    PrimExpr::ramp(PrimExpr::index(first), 1, BYTES as u32)
}

/// The channels of four neighbours along a row, as they lie in memory, and which neighbour each is of.
fn neighbours(channel: &PrimExpr) -> [PrimExpr; 2] {
    [bytes(0).floormod(CHANNEL_BLOCK) + channel.clone(), bytes(0).floordiv(CHANNEL_BLOCK)]
}

/// Lanes of neighbours, of which each channel has its four side by side: which one, and the channel.
fn turned() -> impl Iterator<Item = (i64, i64)> {
    (0..BYTES).map(|byte| (byte % FOUR, byte / FOUR))
}

impl Emitter {
    /// Adds all taps to the sums of a tile of at least two results in a row.
    pub(super) fn add_taps(
        &mut self,
        conv: &Conv,
        tile: &Tile,
        taps: Taps,
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> Stmt {
        let count = taps.number(taps.kernel[0], 0, 0);
        let weights = self.func.register("taps", DType::I8, &[count * BYTES]);
        let pixels = self.func.register("pixels", DType::U8, &[BYTES]);
        let mut stmts = Vec::new();
        for row in 0..taps.kernel[0] {
            for (four, behind) in taps.each() {
                let value = self.turned_weights(conv, taps, channel, (row, four, behind));
                let at = bytes(taps.number(row, four, behind) * BYTES);
                stmts.push(self.func.store(weights, [at], value));
            }
        }
        let [sy, sx] = conv.strides;
        let results = taps.results(tile.rows.inner, sx);
        for (dy, row) in
            (0..tile.rows.outer).flat_map(|dy| (0..taps.kernel[0]).map(move |row| (dy, row)))
        {
            let y = (y.clone() + dy) * sy + (row * conv.dilation[0] - conv.padding[0]);
            for (first, results) in &results {
                for (four, offset) in (0..).zip(taps.fours()) {
                    let results: Vec<_> =
                        results.iter().filter(|result| taps.has(four, result.1)).collect();
                    if results.is_empty() {
                        continue;
                    }
                    let x = x.clone() * sx + (first + offset - conv.padding[1]);
                    let value = self.turned_pixels(conv, [n, channel, &y, &x]);
                    stmts.push(self.func.store(pixels, [bytes(0)], value));
                    for &(dx, behind) in results {
                        let at = bytes(taps.number(row, four, behind) * BYTES);
                        let operands =
                            (self.func.load(pixels, [bytes(0)]), self.func.load(weights, [at]));
                        let at = [&PrimExpr::index(dy), &PrimExpr::index(dx)];
                        stmts.push(tile.add_dot(self, at, 0, operands));
                    }
                }
            }
        }
        Stmt::allocate(weights, Stmt::allocate(pixels, Stmt::seq(stmts)))
    }

    /// The weights of a row beside four pixels, for a result that begins so many pixels behind.
    fn turned_weights(
        &self,
        conv: &Conv,
        taps: Taps,
        channel: &PrimExpr,
        (row, four, behind): (i64, i64, i64),
    ) -> PrimExpr {
        // Four taps side by side in memory, of which those of this row are taken.
        let [height, width] = taps.kernel;
        let wanted = taps.taps(four, behind).map(|tap| tap.map(|tap| row * width + tap));
        let first = wanted.iter().flatten().next().map_or(0, |&tap| tap.min(height * width - FOUR));
        let [channels, along] = neighbours(channel);
        let tap = along + first;
        let [ky, kx] = [tap.clone().floordiv(width), tap.floormod(width)];
        let lanes = turned().map(|(pixel, channel)| match wanted[pixel as usize] {
            Some(tap) => ((tap - first) * CHANNEL_BLOCK + channel) as u32,
            None => BYTES as u32,
        });
        let loaded = self.func.load(conv.weight, [channels, PrimExpr::index(0), ky, kx]);
        if wanted.iter().all(Option::is_some) {
            return loaded.shuffle(lanes.collect());
        }
        let zeros = PrimExpr::zero(DType::I8).broadcast_to(BYTES as u32);
        PrimExpr::Shuffle { vectors: vec![loaded, zeros], lanes: lanes.collect() }
    }

    /// Four pixels from a place on, those of each channel side by side.
    fn turned_pixels(&self, conv: &Conv, [n, channel, y, x]: [&PrimExpr; 4]) -> PrimExpr {
        let [channels, along] = neighbours(channel);
        let at = [n.clone(), channels, y.clone(), x.clone() + along];
        let lanes = turned().map(|(pixel, channel)| (pixel * CHANNEL_BLOCK + channel) as u32);
        self.func.load(conv.data, at).shuffle(lanes.collect())
    }
}
