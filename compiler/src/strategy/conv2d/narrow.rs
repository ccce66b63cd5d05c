//! Convolutions by groups of few channels, several of which share a block: vectors of channels on both
//! sides, as of a depthwise convolution.
//!
//! One step takes one channel of each group: of a pixel's vector every lane is handed that channel of its
//! own group, which takes a shuffle, and serves all taps of a row that read the pixel. So no product is of
//! padding, nor of two groups.

use std::collections::BTreeMap;

use super::{Conv, around};
use crate::ir::DType;
use crate::strategy::emit::Emitter;
use crate::strategy::tile::Tile;
use crate::target::CHANNEL_BLOCK;
use crate::tir::{PrimExpr, Stmt};

/// Most taps of a row, which are written out for each channel of a group.
const MOST_TAPS: i64 = 7;

/// Channels that are taken from a pixel's vector one after the other: as many as the 128 bits have within
/// which a shuffle is one instruction.
const QUARTER: i64 = 4;

/// Whether groups of such weights share blocks of channels: as many channels of the result as of the
/// image, a part of a block.
pub(super) fn shares_blocks(weight: &[i64], groups: i64, dtype: DType) -> bool {
    let &[outputs, channels, _, taps] = weight else { return false };
    let is_part = (2..CHANNEL_BLOCK).contains(&channels) && CHANNEL_BLOCK % channels == 0;
    let is_square = groups > 1 && groups.checked_mul(channels) == Some(outputs);
    is_part && is_square && outputs % CHANNEL_BLOCK == 0 && taps <= MOST_TAPS && dtype == DType::F32
}

impl Emitter {
    /// Rows of a register tile, beside which there are the taps of a row and a pixel, and, if registers are
    /// many and pixels shuffled, all that are read.
    pub(super) fn narrow_rows(&self, conv: &Conv) -> i64 {
        let registers = i64::from(self.machine.registers);
        let quarters = (conv.in_channels + QUARTER - 1) / QUARTER;
        let are_kept = registers >= 32 && conv.in_channels < self.machine.sums(conv.ty.sum);
        let fits = |rows: &i64| {
            let pixels = if are_kept { conv.places(*rows).len() as i64 * quarters } else { 1 };
            rows + conv.kernel[1] + pixels < registers
        };
        let most = conv.ty.rows(self.machine, 1);
        (1..=most).rev().find(fits).unwrap_or(1)
    }

    /// Adds all products to the sums of a tile whose columns are one vector of channels.
    pub(super) fn add_narrow(
        &mut self,
        conv: &Conv,
        tile: &Tile,
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> Stmt {
        let (size, lanes, taps) = (conv.in_channels, tile.columns.lanes, conv.kernel[1]);
        let places = conv.places(tile.rows.inner);
        let places: Vec<_> = (0..tile.rows.outer)
            .flat_map(|dy| places.iter().map(move |(place, readers)| (dy, *place, readers)))
            .collect();
        let register = |emitter: &mut Emitter, name: &str, vectors: usize| {
            emitter.func.register(name, conv.ty.sum, &[vectors as i64 * lanes])
        };
        let weights = register(self, "taps", taps as usize);
        let pixels = register(self, "pixels", places.len());
        let spread = register(self, "spread", 1);
        let vector = |number: i64| PrimExpr::ramp(PrimExpr::index(number * lanes), 1, lanes as u32);
        let (ky, ky_var) = self.counter("ky", conv.kernel[0]);
        let [sy, sx] = conv.strides;
        let at = |emitter: &Emitter, (dy, place): (i64, i64), channel: PrimExpr| {
            let y = (y.clone() + dy) * sy + ky.clone() * conv.dilation[0] - conv.padding[0];
            let x = x.clone() * sx + (place - conv.padding[1]);
            emitter.func.load(conv.data, [n.clone(), channel, y, x])
        };
        // Whether a vector has several groups, whose channels are shuffled.
        let is_shared = size < lanes;
        let quarter = size.min(QUARTER);
        let mut stmts = Vec::new();
        for c in 0..size {
            if is_shared && c % quarter == 0 {
                for (number, &(dy, place, _)) in (0..).zip(&places) {
                    let whole = PrimExpr::ramp(channel.clone(), 1, lanes as u32);
                    let own =
                        (0..lanes).map(|lane| (lane / size * size + c + lane % quarter) as u32);
                    let value = at(self, (dy, place), whole);
                    let value = if size == quarter { value } else { value.shuffle(own.collect()) };
                    stmts.push(self.func.store(pixels, [vector(number)], value));
                }
            }
            for kx in 0..taps {
                let at = [channel.clone() + vector(0), c.into(), ky.clone(), kx.into()];
                let value = self.func.load(conv.weight, at).cast(conv.ty.sum);
                stmts.push(self.func.store(weights, [vector(kx)], value));
            }
            for (number, &(dy, place, readers)) in (0..).zip(&places) {
                let value = if is_shared {
                    let own =
                        (0..lanes).map(|lane| (lane / quarter * quarter + c % quarter) as u32);
                    self.func.load(pixels, [vector(number)]).shuffle(own.collect())
                } else {
                    let first = channel.clone().floordiv(size) * size;
                    at(self, (dy, place), first + c).broadcast_to(lanes as u32)
                };
                stmts.push(self.func.store(spread, [vector(0)], value));
                for &(dx, kx) in readers {
                    let value = self.func.load(spread, [vector(0)]);
                    let weight = self.func.load(weights, [vector(kx)]);
                    let at = [&PrimExpr::index(dy), &PrimExpr::index(dx)];
                    stmts.push(tile.add_product(self, at, 0, (value, weight)));
                }
            }
        }
        let body = [weights, pixels, spread]
            .into_iter()
            .fold(Stmt::seq(stmts), |body, register| Stmt::allocate(register, body));
        around(ky_var, conv.kernel[0], body)
    }
}

impl Conv {
    /// The places along a row that so many pixels of the result read, from the first one's first tap on,
    /// each with the pixels and the taps that read it.
    fn places(&self, pixels: i64) -> BTreeMap<i64, Vec<(i64, i64)>> {
        let mut places: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for (pixel, tap) in (0..pixels).flat_map(|x| (0..self.kernel[1]).map(move |tap| (x, tap))) {
            let place = pixel * self.strides[1] + tap * self.dilation[1];
            places.entry(place).or_default().push((pixel, tap));
        }
        places
    }
}
