//! Depthwise convolution, and that of narrow groups: vectors of channels on both sides.

use super::taps::Taps;
use super::{Conv, around};
use crate::ir::BufferSpec;
use crate::strategy::emit::Emitter;
use crate::strategy::tile::{ColumnRun, Columns, Outcome, Rows, Sums, Tile, steps};
use crate::strategy::tiling::{Run, tile_runs};
use crate::target::CHANNEL_BLOCK;
use crate::tir::{ForKind, PrimExpr, Stmt};

/// Most taps of a depthwise convolution that are written out.
const MAX_UNROLLED_TAPS: i64 = 25;

/// Smallest image, in bytes, of which a depthwise convolution asks for pixels ahead: a smaller one
/// stays in the first cache.
const MIN_PREFETCHED_BYTES: i64 = 32 << 10;

impl Emitter {
    pub(super) fn depthwise(&mut self, mut conv: Conv) -> Stmt {
        let lanes = self.machine.sums(conv.ty.sum);
        conv.ty.fours = false;
        let image = self.image(&mut conv, Some(CHANNEL_BLOCK));
        let channels = conv.groups * conv.out_channels;
        let taps = Taps::of(&conv, self.machine).filter(|_| is_unrolled(&conv));
        let rule = match taps {
            Some(_) => "depthwise convolution by dot products",
            None if conv.is_depthwise() => "depthwise convolution",
            None => "convolution of narrow groups",
        };
        self.pack_depthwise(&conv);
        self.note(conv.inner, rule, String::new(), None, None);
        let mut stmts = vec![image];
        for run in ColumnRun::cover(channels, &steps(&[CHANNEL_BLOCK, lanes]), lanes) {
            let (n, n_var) = self.counter("n", conv.batch);
            let body = self.over_columns(&run, &mut |emitter, channel| {
                let at = [&n, &channel.first, &PrimExpr::index(0)];
                emitter.depthwise_lines(&conv, run.columns, taps, conv.output[0], at)
            });
            stmts.push(around(n_var, conv.batch, body));
        }
        Stmt::seq(stmts)
    }

    /// Packs the weights for vectors of channels.
    pub(super) fn pack_depthwise(&mut self, conv: &Conv) {
        let shape = self.func.buffers[conv.weight].shape().to_vec();
        self.func.buffers[conv.weight].spec =
            BufferSpec::packed(&shape, &[(0, CHANNEL_BLOCK), (2, 1), (1, 1), (3, 1), (0, 1)]);
    }

    /// So many lines of some channels, from a first one on.
    pub(super) fn depthwise_lines(
        &mut self,
        conv: &Conv,
        columns: Columns,
        taps: Option<Taps>,
        lines: i64,
        [n, channel, first]: [&PrimExpr; 3],
    ) -> Stmt {
        let rows = match taps {
            Some(_) => conv.ty.rows(self.machine, 1),
            None if conv.is_depthwise() => self.depthwise_rows(conv),
            None => self.narrow_rows(conv),
        };
        let tiles = tile_runs([lines, conv.output[1]], rows).into_iter().map(|tile| {
            self.over_tiles(tile, &mut |emitter, y, x, _| {
                let y = first.clone() + y.clone();
                emitter.narrowed(conv, tile, x, &mut |emitter, tile| {
                    let taps = taps.filter(|_| tile[1].size > 1);
                    emitter.depthwise_tile(conv, tile, columns, taps, [n, channel, &y, x])
                })
            })
        });
        Stmt::seq(tiles.collect::<Vec<_>>())
    }

    /// Rows of a register tile. Pixels that are widened before they are multiplied are in registers
    /// as well, from the first tap that reads them to the last.
    fn depthwise_rows(&self, conv: &Conv) -> i64 {
        let most = conv.ty.rows(self.machine, 1);
        if conv.ty.lhs == conv.ty.sum {
            return most;
        }
        let widened =
            |rows: i64| (rows - 1) * conv.strides[1] + (conv.kernel[1] - 1) * conv.dilation[1] + 1;
        // Beside them a weight and a product.
        let free = i64::from(self.machine.registers) - 2;
        (1..=most).rev().find(|&rows| rows + widened(rows) <= free).unwrap_or(1)
    }

    fn depthwise_tile(
        &mut self,
        conv: &Conv,
        run: [Run; 2],
        columns: Columns,
        taps: Option<Taps>,
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> Stmt {
        let rows = Rows { outer: run[0].size, inner: run[1].size };
        let tile = Tile::new(self, rows, columns, conv.ty, Sums::Vectors);
        let [sy, sx] = conv.strides;
        let [dy, dx] = conv.dilation;
        let [py, px] = conv.padding;
        let (ky_var, kx_var) = (self.func.index_var("ky"), self.func.index_var("kx"));
        let (ky, kx) = (self.func.var_expr(ky_var), self.func.var_expr(kx_var));
        let weights = |emitter: &mut Emitter, column: PrimExpr, _: PrimExpr| {
            let c = channel.clone() + column;
            emitter.func.load(conv.weight, [c, PrimExpr::index(0), ky.clone(), kx.clone()])
        };
        let pixels = |[dy_, dx_]: [&PrimExpr; 2], column: PrimExpr, _: PrimExpr| {
            let y = (y.clone() + dy_.clone()) * sy + ky.clone() * dy - py;
            let x = (x.clone() + dx_.clone()) * sx + kx.clone() * dx - px;
            (conv.data, vec![n.clone(), channel.clone() + column, y, x])
        };
        let sum = match taps {
            Some(taps) => self.add_taps(conv, &tile, taps, [n, channel, y, x]),
            None if !conv.is_depthwise() => self.add_narrow(conv, &tile, [n, channel, y, x]),
            None => {
                let step = tile.multiply_add(self, &weights, &pixels);
                let kind = if is_unrolled(conv) { ForKind::Unrolled } else { ForKind::Serial };
                let taps = |var, extent: i64, body| {
                    Stmt::for_loop(var, PrimExpr::index(0), PrimExpr::index(extent), kind, body)
                };
                taps(ky_var, conv.kernel[0], taps(kx_var, conv.kernel[1], step))
            }
        };
        let index = |dy_: &PrimExpr, dx_: &PrimExpr, column: PrimExpr| {
            vec![
                n.clone(),
                channel.clone() + column,
                y.clone() + dy_.clone(),
                x.clone() + dx_.clone(),
            ]
        };
        let store =
            tile.store(self, &Outcome { root: conv.root, inner: conv.inner, index: &index });
        let next = self.prefetch_below(conv, run, [n, channel, y, x]);
        let sums = tile.sum(self, Stmt::seq([next, sum]));
        tile.wrap(Stmt::seq([sums, store]))
    }

    /// Asks for the pixels that the tile below this one reads and this one does not: an image that
    /// is not in the first cache would keep it waiting.
    fn prefetch_below(
        &mut self,
        conv: &Conv,
        [lines, pixels]: [Run; 2],
        [n, channel, y, x]: [&PrimExpr; 4],
    ) -> Stmt {
        let data = &self.func.buffers[conv.data];
        let elements = data.spec.num_elements().unwrap_or(0);
        if elements.saturating_mul(i64::from(data.dtype.bits()) / 8) < MIN_PREFETCHED_BYTES {
            return Stmt::nop();
        }
        let [sy, sx] = conv.strides;
        // Behind the last tap of the last row, and as far to the right as taps reach.
        let behind = |kernel: i64, dilation: i64, padding: i64| (kernel - 1) * dilation - padding;
        let top =
            (lines.size - 1) * sy + behind(conv.kernel[0], conv.dilation[0], conv.padding[0]) + 1;
        let left = behind(conv.kernel[1], conv.dilation[1], conv.padding[1]);
        let mut stmts = Vec::new();
        for row in 0..lines.size * sy {
            for column in 0..pixels.size * sx {
                let y = y.clone() * sy + (top + row);
                let x = x.clone() * sx + (left + column);
                let indices = vec![n.clone(), channel.clone(), y, x];
                let (buffer, locality, write) = (conv.data, 3, false);
                stmts.push(Stmt::Prefetch { buffer, indices, offset: 0.into(), locality, write });
            }
        }
        Stmt::seq(stmts)
    }
}

/// Whether the taps of a depthwise convolution are written out.
fn is_unrolled(conv: &Conv) -> bool {
    conv.kernel[0] * conv.kernel[1] <= MAX_UNROLLED_TAPS
}
