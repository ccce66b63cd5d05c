//! Convolutions by groups of few channels, several of which share a block: vectors of channels on both
//! sides, as of a depthwise convolution.
//!
//! One step takes one channel of each group: of a pixel's vector every lane is handed that channel of its
//! own group, which takes a shuffle, and serves all taps of a row that read the pixel. So no product is of
//! padding, nor of two groups.

use super::{Conv, around};
use crate::ir::DType;
use crate::strategy::emit::Emitter;
use crate::strategy::tile::Tile;
use crate::target::CHANNEL_BLOCK;
use crate::tir::{PrimExpr, Stmt};

/// Most taps of a row, which are written out for each channel of a group.
const MOST_TAPS: i64 = 7;

/// Whether groups of such weights share blocks of channels: as many channels of the result as of the
/// image, a part of a block.
pub(super) fn shares_blocks(weight: &[i64], groups: i64, dtype: DType) -> bool {
    let &[outputs, channels, _, taps] = weight else { return false };
    let is_part = (2..CHANNEL_BLOCK).contains(&channels) && CHANNEL_BLOCK % channels == 0;
    let is_square = groups > 1 && groups.checked_mul(channels) == Some(outputs);
    is_part && is_square && outputs % CHANNEL_BLOCK == 0 && taps <= MOST_TAPS && dtype == DType::F32
}

impl Emitter {
    /// Rows of a register tile, beside the taps of a row and a pixel.
    pub(super) fn narrow_rows(&self, conv: &Conv) -> i64 {
        let free = i64::from(self.machine.registers) - conv.kernel[1] - 2;
        conv.ty.rows(self.machine, 1).min(free).max(1)
    }

    /// Adds all products to the sums of a tile whose columns are one vector of channels.
    pub(super) fn add_narrow(
        &mut self,
        conv: &Conv,
        tile: &Tile,
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> Stmt {
        let (lanes, taps) = (tile.columns.lanes, conv.kernel[1]);
        let weights = self.func.register("taps", conv.ty.sum, &[taps * lanes]);
        let pixel = self.func.register("pixel", conv.ty.sum, &[lanes]);
        let vector = |first: i64| PrimExpr::ramp(PrimExpr::index(first), 1, lanes as u32);
        let (ky, ky_var) = self.counter("ky", conv.kernel[0]);
        let mut stmts = Vec::new();
        for c in 0..conv.in_channels {
            for kx in 0..taps {
                let at = [channel.clone() + vector(0), c.into(), ky.clone(), kx.into()];
                let value = self.func.load(conv.weight, at).cast(conv.ty.sum);
                stmts.push(self.func.store(weights, [vector(kx * lanes)], value));
            }
            for (dy, (place, readers)) in
                (0..tile.rows.outer).flat_map(|dy| conv.readers(tile).map(move |read| (dy, read)))
            {
                let [sy, sx] = conv.strides;
                let line = (y.clone() + dy) * sy + ky.clone() * conv.dilation[0] - conv.padding[0];
                let place = x.clone() * sx + (place - conv.padding[1]);
                let value = self.of_own_group(conv, lanes, c, [n, channel, &line, &place]);
                stmts.push(self.func.store(pixel, [vector(0)], value));
                for (dx, kx) in readers {
                    let value = self.func.load(pixel, [vector(0)]);
                    let weight = self.func.load(weights, [vector(kx * lanes)]);
                    let at = [&PrimExpr::index(dy), &PrimExpr::index(dx)];
                    stmts.push(tile.add_product(self, at, 0, (value, weight)));
                }
            }
        }
        let body = Stmt::allocate(weights, Stmt::allocate(pixel, Stmt::seq(stmts)));
        around(ky_var, conv.kernel[0], body)
    }

    /// The channel of a pixel that has a number in each lane's group.
    fn of_own_group(
        &self,
        conv: &Conv,
        lanes: i64,
        number: i64,
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> PrimExpr {
        let size = conv.in_channels;
        let load = |channel: PrimExpr| {
            self.func.load(conv.data, [n.clone(), channel, y.clone(), x.clone()])
        };
        if size >= lanes {
            // All lanes are of one group.
            let first = channel.clone().floordiv(size) * size;
            return load(first + number).broadcast_to(lanes as u32);
        }
        let lane = |lane: i64| (lane / size * size + number) as u32;
        let vector = PrimExpr::ramp(channel.clone(), 1, lanes as u32);
        load(vector).shuffle((0..lanes).map(lane).collect())
    }
}

impl Conv {
    /// The places along a row that a tile reads, from its first pixel's first tap on, each with the pixels
    /// and the taps that read it.
    fn readers(&self, tile: &Tile) -> impl Iterator<Item = (i64, Vec<(i64, i64)>)> {
        let (stride, dilation, taps) = (self.strides[1], self.dilation[1], self.kernel[1]);
        let pixels = tile.rows.inner;
        let end = (pixels - 1) * stride + (taps - 1) * dilation + 1;
        (0..end).filter_map(move |place| {
            let reads = (0..taps).filter_map(|tap| {
                let behind = place - tap * dilation;
                let pixel = behind.div_euclid(stride);
                (behind % stride == 0 && (0..pixels).contains(&pixel)).then_some((pixel, tap))
            });
            let reads: Vec<_> = reads.collect();
            (!reads.is_empty()).then_some((place, reads))
        })
    }
}
