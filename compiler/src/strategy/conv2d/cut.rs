//! How a direct convolution is cut into panels of weights and register tiles.

use super::Conv;
use super::matrices::matrix_runs;
use crate::ir::BufferSpec;
use crate::strategy::emit::Emitter;
use crate::strategy::fetch::Fetch;
use crate::strategy::nest::block;
use crate::strategy::tile::{ColumnRun, FOUR, Sums, steps};
use crate::strategy::tiling::{Run, Tiling, Work, tile_runs};
use crate::strategy::winograd::algorithm_tunable;
use crate::target::CHANNEL_BLOCK;
use crate::tir::MATRIX_GRID;

/// How a direct convolution is cut.
pub(super) struct Cut {
    pub(super) tiling: Tiling,
    /// The channels of a block of the image; none of planes.
    pub(super) block: Option<i64>,
    /// The columns of all tiles.
    pub(super) runs: Vec<ColumnRun>,
    /// Where the sums of a tile are.
    pub(super) sums: Sums,
    /// Most pixels of a tile.
    rows: i64,
    /// Whether lines of the image are adjacent as its pixels are.
    has_adjacent_lines: bool,
    /// Steps of a sum, and columns of a panel.
    panel: [i64; 2],
}

impl Cut {
    /// The tiles of some lines and pixels.
    pub(super) fn tiles(&self, image: [i64; 2]) -> Vec<[Run; 2]> {
        match self.sums {
            Sums::Vectors => tile_runs(image, self.rows),
            Sums::Matrices => matrix_runs(image, self.has_adjacent_lines),
        }
    }

    pub(super) fn fetch(&self, conv: &Conv, run: &ColumnRun, tiles: &[[Run; 2]]) -> Fetch {
        let count = tiles.iter().map(|[y, x]| y.count * x.count).sum();
        Fetch::new(&self.tiling, conv.weight, conv.ty, self.panel, run, count)
    }
}

impl Emitter {
    /// How a convolution is cut into panels and tiles. Its weights are packed so.
    pub(super) fn cut_conv(&mut self, conv: &Conv) -> Cut {
        let channels = block(&self.func.buffers[conv.data].spec, 1);
        // Groups are an axis of their own, so that each begins with a panel.
        let [kh, kw] = conv.kernel;
        let shape = [conv.groups, conv.out_channels, conv.in_channels, kh, kw];
        let work = Work { weights: self.facts.weight_bytes, ..conv.work(channels) };
        let tiling = self.tiling(&conv.described(channels), &work, self.packing, true);
        if conv.suits_winograd() {
            let extents = [conv.batch, conv.in_channels, conv.out_channels];
            let machine = self.packing;
            self.tunables.push(algorithm_tunable(machine, extents, conv.output, None));
        }
        let images = (conv.batch * conv.groups).unsigned_abs();
        let sums = self.sums_of_conv(conv, channels);
        // The cost is that of sums in vectors.
        let cycles = (sums == Sums::Vectors).then(|| tiling.cycles.saturating_mul(images));
        let rule = match (channels, conv.ty.fours) {
            _ if sums == Sums::Matrices => "direct convolution by products of matrices",
            (None, false) => "direct convolution of planes",
            (None, true) => "direct convolution of planes by dot products",
            (Some(_), false) => "direct convolution",
            (Some(_), true) => "direct convolution by dot products",
        };
        self.note(conv.inner, rule, tiling.to_string(), cycles, None);
        let panel = tiling.vectors * self.packing.sums(conv.ty.sum);
        let lanes = self.machine.sums(conv.ty.sum);
        let pixels = conv.output[0] * conv.output[1];
        let width = match sums {
            Sums::Vectors => self.machine.tile_columns(panel, pixels, conv.ty.sum),
            Sums::Matrices => self.machine.columns_of_at_most(panel, MATRIX_GRID, conv.ty.sum),
        };
        // A tile that is wider than a block of channels, or across two, has no step between.
        let widths = match CHANNEL_BLOCK % width {
            0 => steps(&[panel, CHANNEL_BLOCK, width]),
            _ => steps(&[panel, width]),
        };
        let dims: &[(usize, i64)] = match (conv.ty.fours, channels) {
            (false, Some(block)) => &[(2, block), (3, 1), (4, 1), (2, 1), (1, 1)],
            (false, None) => &[(2, 1), (3, 1), (4, 1), (1, 1)],
            (true, Some(FOUR)) => &[(2, FOUR), (3, 1), (4, 1), (1, 1), (2, 1)],
            // Blocks of the image that are wider than those of a register's row are for one level alone.
            (true, Some(_)) => &[(2, CHANNEL_BLOCK), (3, 1), (4, 1), (2, FOUR), (1, 1), (2, 1)],
            (true, None) => &[(2, 1), (3, 1), (4, FOUR), (1, 1), (4, 1)],
        };
        let dims = [&[(0, 1), (1, panel)], dims].concat();
        self.func.buffers[conv.weight].spec = BufferSpec::packed(&shape, &dims);
        Cut {
            tiling,
            block: channels,
            sums,
            runs: ColumnRun::cover(conv.out_channels, &widths, lanes),
            has_adjacent_lines: conv.has_adjacent_lines(&self.func.buffers[conv.data].spec),
            rows: conv.ty.rows(self.machine, width / lanes),
            panel: [work.depth, panel],
        }
    }
}
