//! Direct convolution in register tiles.
//!
//! Pixels of a tile are broadcast from the image and multiplied by vectors of output channels from
//! weights that are packed in the order in which they are read; depthwise convolution has vectors
//! of channels on both sides. The border of the image is a halo of zeros, so that no tap is tested.

mod cut;
mod depthwise;
mod expanded;
mod matrices;
mod narrow;
mod taps;
mod terms;

use super::cover::adjacent;
use super::emit::Emitter;
use super::fetch::{Fetch, Step, Turn};
use super::machine::Machine;
use super::nest::{MOST_APART, block, contiguous};
use super::tile::{Column, ColumnRun, Columns, FOUR, Outcome, Rows, Sums, Tile, TileType};
use super::tiling::{Order, Run, Window, Work};
use super::window::{halo_fits, halo_needed, tests_ends};
use super::words::Words;
use crate::ir::{BufferSpec, DType};
use crate::target::CHANNEL_BLOCK;
use crate::te::{Anchor, StageId};
use crate::tir::border::padding;
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt};
use terms::Terms;

/// Fewest input channels for which an image is blocked. Fewer are read plane by plane: a block
/// would be mostly padding.
pub const MIN_BLOCKED_CHANNELS: i64 = 8;

/// Whether a convolution by such weights reads its image, of such a type, in blocks of channels. Groups
/// that begin inside a block are read plane by plane, unless their channels are lanes.
pub(crate) fn reads_blocks(weight: &[i64], groups: i64, dtype: DType) -> bool {
    let &[_, channels, ..] = weight else { return false };
    let whole_blocks = groups == 1 || channels % CHANNEL_BLOCK == 0;
    let is_blocked = whole_blocks || channels == 1 || goes_by_lanes(weight, groups, dtype);
    channels.saturating_mul(groups) >= MIN_BLOCKED_CHANNELS && is_blocked
}

/// Whether the lanes of a convolution by such weights are channels of the image's blocks as of the
/// result's: of groups of one or of few.
pub(crate) fn goes_by_lanes(weight: &[i64], groups: i64, dtype: DType) -> bool {
    let &[outputs, channels, ..] = weight else { return false };
    let is_depthwise = groups > 1 && channels == 1 && outputs == groups;
    is_depthwise || narrow::shares_blocks(weight, groups, dtype)
}

/// Most taps of a depthwise convolution whose lanes are pixels of a row, and most sums that are taken of a
/// line whose ends are tested.
const MOST_TAPS_ALONG_ROWS: i64 = 9;

/// Most output channels of a group for which the lanes are pixels of a row: vectors of channels are half
/// padding then, or more.
const MOST_COLUMNS_ALONG_ROWS: i64 = 4;

/// Whether a convolution of planes had better make planes, whose rows are the lanes: by groups of so
/// few output channels that vectors of them would be mostly padding. All CPU levels must answer alike,
/// as they read the same weights; and so must all layouts of the image, of such a type, where sums would
/// be taken in another order.
pub(crate) fn goes_along_rows(
    weight: &[i64],
    output: &[i64],
    groups: i64,
    strides: &[i64],
    dtype: DType,
    packing: Machine,
) -> bool {
    if narrow::shares_blocks(weight, groups, dtype) {
        return false;
    }
    let lanes = packing.lanes(DType::F32);
    let (&[_, channels, ref taps @ ..], &[_, columns, .., row]) = (weight, output) else {
        return false;
    };
    // Of one channel each, blocks do better unless few pixels are read and rows are a few vectors.
    let is_depthwise = channels == 1 && columns == groups;
    let is_long = match is_depthwise {
        true => {
            let reads_few = taps.iter().product::<i64>() <= MOST_TAPS_ALONG_ROWS;
            reads_few && strides.last() == Some(&1) && (3 * lanes..=5 * lanes).contains(&row)
        }
        false => row >= 8,
    };
    // Pixels that are further apart are no vectors.
    let stride = strides.last().copied().unwrap_or(1);
    // To take every second pixel of many channels costs as much as half a vector of padding, and so does to
    // copy an image into planes for one product of each element.
    let is_product = groups == 1 && taps.iter().all(|&tap| tap == 1);
    let padding = if (stride == 1 && !is_product) || channels == 1 { 2 } else { 4 };
    let most_columns = MOST_COLUMNS_ALONG_ROWS.min(lanes / padding);
    is_long && stride <= MOST_APART && columns / groups <= most_columns
}

/// Widths that tiles may have where a run says how wide an image is.
const WIDTHS_OF_RUNS: usize = 3;

/// Geometry of a convolution.
struct Conv {
    root: StageId,
    inner: StageId,
    data: BufferId,
    weight: BufferId,
    /// What the weights are first copied from, if they are no constant.
    computed: Option<StageId>,
    batch: i64,
    /// Input and output channels of one group.
    in_channels: i64,
    out_channels: i64,
    groups: i64,
    kernel: [i64; 2],
    output: [i64; 2],
    strides: [i64; 2],
    padding: [i64; 2],
    /// What padding reads as.
    pad_value: i64,
    dilation: [i64; 2],
    ty: TileType,
}

impl Conv {
    fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.in_channels == 1 && self.out_channels == 1
    }

    /// The channels of a block of the image; none of a plane.
    fn block(&self) -> Option<i64> {
        match reads_blocks(&self.weights(), self.groups, self.ty.lhs) {
            true => Some(CHANNEL_BLOCK),
            false => (self.ty.fours && !self.takes_taps()).then_some(FOUR),
        }
    }

    /// The extents of the weights.
    fn weights(&self) -> [i64; 4] {
        let [kh, kw] = self.kernel;
        [self.groups * self.out_channels, self.in_channels, kh, kw]
    }

    /// Whether an instruction that multiplies four neighbours can take taps along a row of a plane,
    /// not channels of a pixel.
    fn takes_taps(&self) -> bool {
        self.kernel[1] > 1 && self.dilation[1] == 1
    }

    /// Whether Winograd's algorithm could compute it.
    fn suits_winograd(&self) -> bool {
        let blocks = [self.in_channels, self.out_channels].iter().all(|n| n % CHANNEL_BLOCK == 0);
        let is_constant = self.computed.is_none() && self.ty.sum == DType::F32;
        let plain = (self.kernel, self.strides, self.dilation, self.groups);
        blocks && is_constant && plain == ([3, 3], [1, 1], [1, 1], 1)
    }

    /// The convolution in words, of an image whose channels are in such blocks or in planes.
    fn described(&self, block: Option<i64>) -> String {
        let Conv { batch, in_channels, out_channels, groups, ty, .. } = self;
        let [[h, w], [kh, kw], [sy, sx], [dy, dx]] =
            [self.output, self.kernel, self.strides, self.dilation];
        let layout = block.map_or("planes".to_owned(), |block| format!("blocks of {block}"));
        format!(
            "conv2d {batch}x{groups}x{in_channels} by {kh}x{kw} to {out_channels}x{h}x{w}, \
             strides {sy}x{sx}, dilation {dy}x{dx}, {ty}, {layout}"
        )
    }

    /// The sums of one group for one image, whose channels are in such blocks or in planes.
    fn work(&self, block: Option<i64>) -> Work {
        let extent = |axis: usize| (self.kernel[axis] - 1) * self.dilation[axis] + 1;
        // A pixel of a plane brings its neighbours with it.
        let channels = self.in_channels.max(block.unwrap_or(1));
        Work {
            rows: self.output,
            columns: self.out_channels,
            depth: match block {
                Some(_) => self.ty.steps(self.in_channels) * self.kernel[0] * self.kernel[1],
                None => self.in_channels * self.kernel[0] * self.ty.steps(self.kernel[1]),
            },
            sum: self.ty.sum,
            fours: self.ty.fours,
            window: Window {
                strides: self.strides,
                extents: [extent(0), extent(1)],
                pixel: channels * self.ty.bytes(),
            },
            scattered: false,
            stride: None,
            weights: 0,
        }
    }
}

/// A direct convolution, the channels of a block of its image, none of planes, and where its sums are.
#[derive(Clone, Copy)]
struct Direct<'a> {
    conv: &'a Conv,
    block: Option<i64>,
    sums: Sums,
}

/// Where a tile is: batch, group, columns in the group, first pixel, and its number among those of
/// the image.
#[derive(Clone, Copy)]
struct Place<'a> {
    n: &'a PrimExpr,
    g: &'a PrimExpr,
    column: &'a Column,
    y: &'a PrimExpr,
    x: &'a PrimExpr,
    number: &'a PrimExpr,
    /// The weights of its columns as words, if they are there.
    wide: Option<BufferId>,
}

impl Direct<'_> {
    /// The weight of a column behind one of a group, and of a term of a step: a channel, or a tap of a
    /// row.
    fn weight(
        &self,
        [g, o]: [&PrimExpr; 2],
        [c, ky, kx]: &[PrimExpr; 3],
    ) -> impl Fn(&mut Emitter, PrimExpr, PrimExpr) -> PrimExpr {
        let [channels, taps] = self.terms();
        let weight = self.conv.weight;
        move |emitter, column, term| {
            let (o, c) = (o.clone() + column, c.clone() + term.clone() * channels);
            emitter.func.load(weight, vec![g.clone(), o, c, ky.clone(), kx.clone() + term * taps])
        }
    }

    /// Channels, and taps of a row, from one term of a step to the next.
    fn terms(&self) -> [i64; 2] {
        if self.block.is_some() { [1, 0] } else { [0, 1] }
    }
}

impl Emitter {
    /// The loops of a convolution of floats, or of bytes. Constant weights are packed while the model
    /// is compiled, of others a packed copy is made.
    ///
    /// # Errors
    ///
    /// What is different about others.
    pub(super) fn emit_conv2d(
        &mut self,
        root: StageId,
        inner: StageId,
        anchor: &Anchor,
    ) -> Result<Stmt, String> {
        let conv = self.conv(root, inner, anchor)?;
        let output = self.materialised[&root];
        let is_dense = |buffer| self.func.buffers[buffer].spec.is_dense();
        let reads_planes = is_dense(conv.data) || conv.groups == 1;
        let [w, o] = [conv.weight, self.dag.stages[inner].buffer]
            .map(|buffer| self.func.buffers[buffer].shape());
        let (strides, dtype) = (&conv.strides, conv.ty.lhs);
        if goes_along_rows(w, o, conv.groups, strides, dtype, self.packing)
            && !conv.ty.fours
            && reads_planes
            && is_dense(output)
        {
            return Ok(self.planes(conv));
        }
        if !self.is_planar(output) {
            return Ok(self.convolution(conv));
        }
        Ok(self.through_blocks(root, inner, |emitter, root| {
            emitter.convolution(Conv { root, ..conv })
        }))
    }

    /// The geometry of a convolution whose loops can be emitted.
    ///
    /// # Errors
    ///
    /// What is different about others.
    fn conv(&mut self, root: StageId, inner: StageId, anchor: &Anchor) -> Result<Conv, String> {
        let refused = |why: &str| Err(format!("convolution {why}"));
        let Anchor::Conv2d { data, weight, strides, padding, pad_value, dilation, groups } = anchor
        else {
            return refused("of an unknown kind");
        };
        let (data, weight) = (*data, *weight);
        let [from, by, sum] = [data, weight, inner].map(|stage| self.dag.dtype(stage));
        let Some(mut ty) = TileType::of(from, by, sum, self.packing) else {
            return refused("of other types than float32, float16 and integers of 8 bits");
        };
        let Some(&data_buffer) = self.materialised.get(&data) else {
            return refused("of an operand that is computed in the same kernel");
        };
        let (d, w, o) = (self.dag.shape(data), self.dag.shape(weight), self.dag.shape(inner));
        let stored = self.materialised.get(&weight).copied();
        let constant = stored.filter(|&buffer| self.is_constant(buffer));
        if constant.is_some_and(|buffer| !self.func.buffers[buffer].spec.is_dense()) {
            return refused("whose weights another convolution of the kernel has packed");
        }
        if o.contains(&0) || d.contains(&0) || w.contains(&0) {
            return refused("without any element");
        }
        // Behind the channels and taps of a copy there are no zeros.
        ty.fours &= constant.is_some() && ty.lhs == DType::U8;
        Ok(Conv {
            root,
            inner,
            data: data_buffer,
            weight: constant
                .unwrap_or_else(|| self.func.local("weights", by, BufferSpec::dense(w))),
            computed: constant.is_none().then_some(weight),
            batch: o[0],
            in_channels: w[1],
            out_channels: o[1] / groups,
            groups: *groups,
            kernel: [w[2], w[3]],
            output: [o[2], o[3]],
            strides: *strides,
            padding: *padding,
            pad_value: *pad_value,
            dilation: *dilation,
            ty,
        })
    }

    /// Planes from planes: the lanes are pixels of a row, weights are broadcast. An image in blocks is
    /// copied into planes: its channels are more than the result's.
    fn planes(&mut self, mut conv: Conv) -> Stmt {
        let data = conv.data;
        let rule = "convolution of planes along rows";
        let halos = self.halos(&conv);
        let is_planar = self.func.buffers[data].spec.blocking().is_empty();
        // To copy a line takes as long as few sums that are taken of it.
        let reads_few =
            conv.kernel[0] == 1 && conv.out_channels * conv.kernel[1] <= MOST_TAPS_ALONG_ROWS;
        if is_planar && reads_few && tests_ends(&halos, conv.output[1]) {
            self.note(conv.inner, rule, String::new(), None, None);
            return self.reduce_planes(conv.root, conv.inner, data);
        }
        let border = match is_planar {
            true => self.image(&mut conv, None),
            false => self.copied_image(&mut conv, None, halos),
        };
        self.note(conv.inner, rule, String::new(), None, None);
        Stmt::seq([border, self.reduce_with_border(conv.root, conv.inner, data, conv.data)])
    }

    fn convolution(&mut self, conv: Conv) -> Stmt {
        let (weight, computed, channels) = (conv.weight, conv.computed, conv.out_channels);
        let by_lanes = goes_by_lanes(&conv.weights(), conv.groups, conv.ty.lhs);
        let loops = if by_lanes { self.depthwise(conv) } else { self.direct(conv) };
        let Some(stage) = computed else { return loops };
        let copy = self.fill(weight, stage, &|index| match index {
            [group, channel, rest @ ..] if rest.len() == 3 => {
                let first = [group.clone() * channels + channel.clone()];
                first.into_iter().chain(rest.iter().cloned()).collect()
            }
            _ => index.to_vec(),
        });
        Stmt::allocate(weight, Stmt::seq([Stmt::block("weights", copy), loops]))
    }

    /// Whether an image lies in planes that have room for vectors, one for each of many channels.
    fn is_planar(&self, buffer: BufferId) -> bool {
        let spec = &self.func.buffers[buffer].spec;
        let lanes = self.machine.lanes(DType::F32);
        spec.blocking().is_empty()
            && adjacent(spec) >= 4
            && spec.shape()[1] >= lanes.min(8)
            && !contiguous(spec, 1, &PrimExpr::index(0), lanes)
    }

    /// The border that the image of a convolution needs along height and width.
    fn halos(&self, conv: &Conv) -> [(i64, i64); 2] {
        let shape = self.func.buffers[conv.data].shape();
        let image = self.dag.stage_of(conv.data);
        let open = image.map_or(&[][..], |image| self.dag.limits(image));
        let is_open = |axis| open.iter().any(|limit| limit.axis == axis);
        [0, 1].map(|axis| {
            halo_needed(
                (shape[axis + 2], is_open(axis + 2)),
                conv.output[axis],
                conv.kernel[axis],
                conv.strides[axis],
                conv.padding[axis],
                conv.dilation[axis],
            )
        })
    }

    /// The image in a layout that fits: itself, or a copy in scratch memory with the border.
    fn image(&mut self, conv: &mut Conv, wanted: Option<i64>) -> Stmt {
        let mut needed = self.halos(conv);
        let spec = &self.func.buffers[conv.data].spec;
        let is_blocked = block(spec, 1) == Some(CHANNEL_BLOCK);
        let serves_planes = is_blocked && conv.groups == 1;
        if conv.ty.fours && wanted.is_none() && !serves_planes {
            // What a row's last four taps read beyond the kernel, whose weights are zeros there.
            needed[1].1 += conv.ty.steps(conv.kernel[1]) * FOUR - conv.kernel[1];
        }
        let planar = spec.blocking().is_empty();
        let fits = match wanted {
            None => planar || serves_planes,
            Some(CHANNEL_BLOCK) => is_blocked,
            Some(_) => serves_planes,
        };
        let padded = needed.iter().any(|&(before, after)| before > 0 || after > 0);
        if halo_fits(spec, &needed) && fits && (!padded || conv.pad_value == 0) {
            return Stmt::nop();
        }
        self.copied_image(conv, wanted, needed)
    }

    /// A copy of the image in blocks of channels, or in planes, with a border.
    fn copied_image(
        &mut self,
        conv: &mut Conv,
        block: Option<i64>,
        [lines, pixels]: [(i64, i64); 2],
    ) -> Stmt {
        let shape = self.func.buffers[conv.data].shape().to_vec();
        let spec = match block {
            Some(block) => BufferSpec::nchwc(&shape, block, &[lines, pixels]),
            None => BufferSpec::dense(&shape)
                .with_halo(2, lines.0, lines.1)
                .with_halo(3, pixels.0, pixels.1),
        };
        self.note(conv.inner, "copy of the image with its border", String::new(), None, None);
        let outside = padding(conv.ty.lhs, conv.pad_value);
        let (copy, fill) = self.copy_with_border(conv.data, spec, &outside);
        conv.data = copy;
        fill
    }

    fn direct(&mut self, mut conv: Conv) -> Stmt {
        // Groups begin within a block.
        conv.ty.fours &= conv.groups == 1 || conv.block() != Some(FOUR);
        let image = self.blocked_image(&mut conv);
        let cut = self.cut_conv(&conv);
        let direct = Direct { conv: &conv, block: cut.block, sums: cut.sums };
        let mut stmts = vec![image];
        match cut.tiling.order {
            Order::Rows => {
                let tiles = cut.tiles(conv.output);
                for &tile in &tiles {
                    stmts.push(self.over_tiles(tile, &mut |emitter, y, x, number| {
                        let panels = cut.runs.iter().map(|run| {
                            let fetch = cut.fetch(&conv, run, &tiles);
                            emitter.over_panels(&conv, run, &mut |emitter, n, g, column| {
                                let place = Place { n, g, column, y, x, number, wide: None };
                                emitter.narrowed(&conv, tile, x, &mut |emitter, tile| {
                                    emitter.tile(&direct, tile, run.columns, &fetch, &place)
                                })
                            })
                        });
                        Stmt::seq(panels.collect::<Vec<_>>())
                    }));
                }
            }
            Order::Panels { blocks } => {
                let [lines, pixels] = conv.output;
                for block in Run::cover(lines, (lines + blocks - 1) / blocks) {
                    let (b, b_var) = self.counter("yb", block.count);
                    let first = &(b * block.size + block.first);
                    let tiles = cut.tiles([block.size, pixels]);
                    let panels = cut.runs.iter().map(|run| {
                        let fetch = cut.fetch(&conv, run, &tiles);
                        self.over_panels(&conv, run, &mut |emitter, n, g, column| {
                            emitter.panel(
                                &direct,
                                run.columns,
                                &fetch,
                                &tiles,
                                [n, g, first],
                                column,
                            )
                        })
                    });
                    let panels = Stmt::seq(panels.collect::<Vec<_>>());
                    stmts.push(around(b_var, block.count, panels));
                }
            }
        }
        Stmt::seq(stmts)
    }

    /// The tiles of a block of lines, one below the other, of a tile's columns. Given are image, group and
    /// first line.
    fn panel(
        &mut self,
        direct: &Direct<'_>,
        columns: Columns,
        fetch: &Fetch,
        tiles: &[[Run; 2]],
        [n, g, first]: [&PrimExpr; 3],
        column: &Column,
    ) -> Stmt {
        let count = tiles.iter().map(|[y, x]| y.count * x.count).sum();
        let widened = self.widen_panel(direct, columns, count, [g, &column.first]);
        let wide = widened.as_ref().map(|(buffer, _)| *buffer);
        let mut before = 0;
        let tiles = tiles.iter().map(|&tile| {
            let others = before;
            before += tile[0].count * tile[1].count;
            self.over_tiles(tile, &mut |emitter, y, x, number| {
                let (y, number) = (&(first.clone() + y.clone()), &(number.clone() + others));
                let place = Place { n, g, column, y, x, number, wide };
                emitter.narrowed(direct.conv, tile, x, &mut |emitter, tile| {
                    emitter.tile(direct, tile, columns, fetch, &place)
                })
            })
        });
        let tiles = Stmt::seq(tiles.collect::<Vec<_>>());
        match widened {
            Some((buffer, fill)) => Stmt::allocate(buffer, Stmt::seq([fill, tiles])),
            None => tiles,
        }
    }

    /// The weights of a tile's columns as words, if several tiles go over them: where they are, and what
    /// fills it.
    fn widen_panel(
        &mut self,
        direct: &Direct<'_>,
        columns: Columns,
        tiles: i64,
        place: [&PrimExpr; 2],
    ) -> Option<(BufferId, Stmt)> {
        let Direct { conv, block, .. } = *direct;
        let buffer = self.words(conv.ty, columns, [conv.work(block).depth, tiles])?;
        let step = |emitter: &mut Emitter, at: &[PrimExpr; 3], step: &PrimExpr| {
            emitter.widen_step(Words { buffer, step }, columns, &direct.weight(place, at))
        };
        let asked = |_: &mut Emitter, _: &[PrimExpr; 3], _: &PrimExpr, _| Vec::new();
        let fill = self.sum(direct, [None; 2], &Terms { asked: &asked, step: &step });
        Some((buffer, Stmt::block("wide", fill)))
    }

    /// Loops over the tiles of one size; `body` is handed the first pixel and the tile's number.
    fn over_tiles(
        &mut self,
        [lines, pixels]: [Run; 2],
        body: &mut dyn FnMut(&mut Emitter, &PrimExpr, &PrimExpr, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let (y, y_var) = self.counter("y", lines.count);
        let (x, x_var) = self.counter("x", pixels.count);
        let number = y.clone() * pixels.count + x.clone();
        let (y, x) = (y * lines.size + lines.first, x * pixels.size + pixels.first);
        let stmt = body(self, &y, &x, &number);
        around(y_var, lines.count, around(x_var, pixels.count, stmt))
    }

    /// A tile of pixels of a line, or a narrower one where a run has fewer: of half as many each.
    fn narrowed(
        &mut self,
        conv: &Conv,
        [lines, pixels]: [Run; 2],
        x: &PrimExpr,
        body: &mut dyn FnMut(&mut Emitter, [Run; 2]) -> Stmt,
    ) -> Stmt {
        let limits = self.dag.limits(conv.inner);
        let Some(width) = limits.iter().find(|limit| limit.axis == 3) else {
            return body(self, [lines, pixels]);
        };
        let left = width.extent.clone() - x.clone();
        let halved = |size: &i64| (*size > 1).then_some((*size + 1) / 2);
        let sizes: Vec<i64> =
            std::iter::successors(Some(pixels.size), halved).take(WIDTHS_OF_RUNS).collect();
        let mut narrower = None;
        for &size in sizes.iter().rev() {
            let tile = body(self, [lines, Run { size, ..pixels }]);
            narrower = Some(match narrower {
                None => (size, tile),
                Some((less, other)) => {
                    (size, Stmt::if_then_else(left.clone().greater(less), tile, other))
                }
            });
        }
        narrower.map_or(Stmt::nop(), |(_, tile)| tile)
    }

    /// Loops over batch, groups and the tiles of a run; `body` is handed those, the tile as its
    /// first output channel in the group.
    fn over_panels(
        &mut self,
        conv: &Conv,
        run: &ColumnRun,
        body: &mut dyn FnMut(&mut Emitter, &PrimExpr, &PrimExpr, &Column) -> Stmt,
    ) -> Stmt {
        let (n, n_var) = self.counter("n", conv.batch);
        let (g, g_var) = self.counter("g", conv.groups);
        let stmt = self.over_columns(run, &mut |emitter, o| body(emitter, &n, &g, o));
        around(n_var, conv.batch, around(g_var, conv.groups, stmt))
    }

    /// One register tile.
    fn tile(
        &mut self,
        direct: &Direct<'_>,
        [lines, pixels]: [Run; 2],
        columns: Columns,
        fetch: &Fetch,
        place: &Place<'_>,
    ) -> Stmt {
        let conv = direct.conv;
        let Place { n, g, column, y, x, number: tile_number, wide } = *place;
        let turn = &Turn::known(tile_number.clone());
        let o = &column.first;
        let rows = Rows { outer: lines.size, inner: pixels.size };
        let tile = Tile::new(self, rows, columns, conv.ty, direct.sums);
        let first = g.clone() * conv.out_channels + o.clone();
        let [sy, sx] = conv.strides;
        let [dy, dx] = conv.dilation;
        let [py, px] = conv.padding;
        let asked = |emitter: &mut Emitter, at: &[PrimExpr; 3], number: &PrimExpr, steps: i64| {
            let [c, ky, kx] = at.clone();
            let zero = PrimExpr::index(0);
            let step = Step {
                index: vec![g.clone(), o.clone(), c, ky, kx],
                panel: vec![g.clone(), column.panel.clone(), zero.clone(), zero.clone(), zero],
                number,
                steps,
                turn,
                column,
                rows: None,
            };
            fetch.step(emitter, columns, step)
        };
        let step = |emitter: &mut Emitter, at: &[PrimExpr; 3], number: &PrimExpr| {
            let weights = direct.weight([g, o], at);
            let [c, ky, kx] = at;
            let channel = g.clone() * conv.in_channels + c.clone();
            let [channels, taps] = direct.terms();
            let pixel = |[dy_, dx_]: [&PrimExpr; 2], _: PrimExpr, term: PrimExpr| {
                let y = (y.clone() + dy_.clone()) * sy + ky.clone() * dy - py;
                let x = (x.clone() + dx_.clone()) * sx + kx.clone() * dx - px;
                let channel = channel.clone() + term.clone() * channels;
                (conv.data, vec![n.clone(), channel, y, x + term * taps])
            };
            match wide {
                Some(buffer) => tile.add_words(emitter, Words { buffer, step: number }, &pixel),
                None => tile.multiply_add(emitter, &weights, &pixel),
            }
        };
        let within = [self.within(conv, 0, y, lines.size), self.within(conv, 1, x, pixels.size)];
        let within = within.each_ref().map(Option::as_ref);
        let sum = self.sum(direct, within, &Terms { asked: &asked, step: &step });
        let index = |dy_: &PrimExpr, dx_: &PrimExpr, column: PrimExpr| {
            vec![
                n.clone(),
                first.clone() + column,
                y.clone() + dy_.clone(),
                x.clone() + dx_.clone(),
            ]
        };
        let store =
            tile.store(self, &Outcome { root: conv.root, inner: conv.inner, index: &index });
        let sums = tile.sum(self, sum);
        tile.wrap(Stmt::seq([sums, store]))
    }
}

/// A serial loop, unless there is one iteration.
pub(super) fn around(var: crate::tir::VarId, extent: i64, body: Stmt) -> Stmt {
    if extent == 1 {
        return body;
    }
    let (min, extent) = (PrimExpr::index(0), PrimExpr::index(extent));
    Stmt::for_loop(var, min, extent, ForKind::Serial, body)
}
