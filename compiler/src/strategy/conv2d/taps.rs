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
}

/// Lanes of four pixels, or taps, of which each channel has its own side by side.
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
        let bytes = |first: i64| PrimExpr::ramp(PrimExpr::index(first), 1, BYTES as u32);
        // Channels of neighbours along a row, as they lie in memory.
        let lane = || bytes(0).floormod(CHANNEL_BLOCK) + channel.clone();
        let along = || bytes(0).floordiv(CHANNEL_BLOCK);

        let mut stmts = Vec::new();
        let all = taps.kernel[0] * taps.kernel[1];
        for row in 0..taps.kernel[0] {
            for (four, behind) in taps.each() {
                // Four taps side by side in memory, of which those of this row are taken.
                let wanted = taps.taps(four, behind);
                let first =
                    wanted.iter().flatten().next().map_or(0, |tap| row * taps.kernel[1] + tap);
                let first = first.min(all - FOUR);
                let tap = along() + first;
                let at = [
                    lane(),
                    PrimExpr::index(0),
                    tap.clone().floordiv(taps.kernel[1]),
                    tap.floormod(taps.kernel[1]),
                ];
                let zeros = PrimExpr::zero(DType::I8).broadcast_to(BYTES as u32);
                let lanes = turned().map(|(pixel, channel)| match wanted[pixel as usize] {
                    Some(tap) => (row * taps.kernel[1] + tap - first) * CHANNEL_BLOCK + channel,
                    None => BYTES,
                });
                let lanes = lanes.map(|lane| lane as u32).collect();
                let vectors = vec![self.func.load(conv.weight, at), zeros];
                let at = bytes(taps.number(row, four, behind) * BYTES);
                stmts.push(self.func.store(weights, [at], PrimExpr::Shuffle { vectors, lanes }));
            }
        }

        let [sy, sx] = conv.strides;
        for dy in 0..tile.rows.outer {
            for row in 0..taps.kernel[0] {
                let mut dx = 0;
                while dx < tile.rows.inner {
                    // A result without a next is the next of the pixel before, which is there.
                    let shares = sx < SHARERS && dx + 1 < tile.rows.inner;
                    let behind = i64::from(dx + 1 == tile.rows.inner);
                    let first = dx * sx - behind;
                    let results =
                        if shares { vec![(dx, 0), (dx + 1, 1)] } else { vec![(dx, behind)] };
                    for (four, offset) in (0..).zip(taps.fours()) {
                        let line =
                            (y.clone() + dy) * sy + (row * conv.dilation[0] - conv.padding[0]);
                        let pixel = x.clone() * sx + (first + offset - conv.padding[1]) + along();
                        let four_pixels =
                            self.func.load(conv.data, [n.clone(), lane(), line, pixel]);
                        let lanes =
                            turned().map(|(pixel, lane)| (pixel * CHANNEL_BLOCK + lane) as u32);
                        let value = four_pixels.shuffle(lanes.collect());
                        stmts.push(self.func.store(pixels, [bytes(0)], value));
                        for &(dx, behind) in &results {
                            if taps.taps(four, behind).iter().all(Option::is_none) {
                                continue;
                            }
                            let at = bytes(taps.number(row, four, behind) * BYTES);
                            let value = self.func.load(pixels, [bytes(0)]);
                            let weight = self.func.load(weights, [at]);
                            let at = [&PrimExpr::index(dy), &PrimExpr::index(dx)];
                            stmts.push(tile.add_dot(self, at, 0, (value, weight)));
                        }
                    }
                    dx += results.len() as i64;
                }
            }
        }
        Stmt::allocate(weights, Stmt::allocate(pixels, Stmt::seq(stmts)))
    }
}
