//! Matrix products in register tiles.

use std::fmt;

use crate::ir::{BufferSpec, DType};
use crate::schedule::{BlockRv, BufferAccess, LoopRv, Schedule, ScheduleError};
use crate::strategy::{Machine, Order, Tiling, Work};
use crate::target::Target;
use crate::tir::BufferScope;

/// The sizes of the register tiles of a product of `m` x `k` with `k` x `n`, and the order of the
/// loops over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatmulTiles {
    /// Maximum number of rows of a tile.
    pub rows: i64,
    /// Number of vectors in a row of a tile.
    pub vectors: i64,
    /// Elements of a vector.
    pub lanes: i64,
    /// Number of columns that are adjacent in the right operand's layout: a multiple of
    /// [`panel`](Self::panel).
    pub packed: i64,
    /// Whether panels of the right operand are the outer loop, and tiles of rows the inner one.
    pub panels_outside: bool,
    /// Maximum number of rows that pass all panels before the next rows do; `None` for all rows at
    /// once.
    pub block: Option<i64>,
    /// Whether the next panel is prefetched into the second-level cache while one is used.
    pub prefetch_panel: bool,
    /// Number of steps of the reduction between the prefetch of the right operand and its use; 0
    /// for no prefetch.
    pub ahead: i64,
}

impl MatmulTiles {
    /// Tiles of the least cost on a target, by the cost model that compiled models are cut by too.
    pub fn choose(m: i64, k: i64, n: i64, target: &Target) -> MatmulTiles {
        let machine = Machine::of(target);
        MatmulTiles::of(m, Tiling::choose(machine, machine, &work(m, k, n)), machine)
    }

    /// The tiles of least cost on a machine, then others that are worth measuring.
    pub fn candidates(m: i64, k: i64, n: i64, machine: Machine) -> Vec<MatmulTiles> {
        let all = Tiling::candidates(machine, machine, &work(m, k, n), None, true);
        all.into_iter().map(|tiling| MatmulTiles::of(m, tiling, machine)).collect()
    }

    fn of(m: i64, tiling: Tiling, machine: Machine) -> MatmulTiles {
        let Tiling { vectors, order, ahead, next, cycles: _ } = tiling;
        let lanes = machine.lanes(DType::F32);
        MatmulTiles {
            rows: machine.tile_rows(vectors),
            vectors,
            lanes,
            packed: vectors * lanes,
            panels_outside: order != Order::Rows,
            block: match order {
                Order::Panels { blocks: blocks @ 2.. } => Some((m + blocks - 1) / blocks),
                Order::Panels { .. } | Order::Rows => None,
            },
            prefetch_panel: next,
            ahead,
        }
    }

    /// Number of columns of a tile.
    pub fn panel(&self) -> i64 {
        self.vectors * self.lanes
    }

    /// As many of these tiles' vectors as lie in columns that others have packed, which is a multiple
    /// of a vector.
    #[must_use]
    pub fn within(self, packed: i64) -> MatmulTiles {
        let fits = |vectors: &i64| packed % (vectors * self.lanes) == 0;
        let vectors = (1..=self.vectors).rev().find(fits).unwrap_or(1);
        MatmulTiles { vectors, packed, ..self }
    }
}

/// A product, as the cost model sees it.
fn work(m: i64, k: i64, n: i64) -> Work {
    Work::product(m.max(1), n.max(1), k, k.saturating_mul(4))
}

/// `tiles of 14 x 32, panels outside, prefetched`.
impl fmt::Display for MatmulTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tiles of {} x {}, ", self.rows, self.panel())?;
        f.write_str(if self.panels_outside { "panels outside" } else { "rows outside" })?;
        if let Some(rows) = self.block {
            write!(f, " in blocks of {rows} rows")?;
        }
        f.write_str(if self.ahead > 0 { ", prefetched" } else { "" })?;
        f.write_str(if self.prefetch_panel { ", next panel prefetched" } else { "" })
    }
}

/// The loops of a scheduled product.
#[derive(Clone, Copy, Debug)]
pub struct MatmulLoops {
    /// The outermost loop, over panels or over tiles of rows, which may run in parallel.
    pub outer: LoopRv,
    /// Over panels of the right operand.
    pub panels: LoopRv,
    /// Over tiles of rows.
    pub tiles: LoopRv,
    /// The reduction.
    pub k: LoopRv,
}

/// Schedules a block that computes `C[.., i, j] = sum(A[.., i, k] * B[k, j], k)` in this order of
/// its variables, or combines what it reads there in another way.
///
/// The right operand is read in panels: it becomes `[n / packed][k][packed]`, the last one padded.
/// If `epilogue` names the block that reads the product at its own index, it runs on the registers
/// of each tile; else the product itself is stored from there.
///
/// If `n` is no multiple of a vector, tiles go through memory: the rest of the last vector is
/// stored lane by lane, and registers can only be indexed by constant lanes.
///
/// # Errors
///
/// The block is not such a product, or a primitive does not fit it.
pub fn matmul(
    s: &mut Schedule,
    block: BlockRv,
    epilogue: Option<BlockRv>,
    cut: MatmulTiles,
) -> Result<MatmulLoops, ScheduleError> {
    let loops = s.get_loops(block)?;
    let [.., j, k] = loops[..] else { return Err(no_product()) };
    let (Some(n), Some(depth)) = (s.extent(j), s.extent(k)) else { return Err(no_product()) };
    let Results { stored, last } = results(s, block, epilogue, n % cut.lanes != 0)?;
    let [.., i, j, k] = s.get_loops(block)?[..] else { return Err(no_product()) };
    let panels = BufferSpec::packed(&[depth, n], &[(1, cut.packed), (0, 1), (1, 1)]);
    s.transform_layout(block, BufferAccess::Read(1), &panels)?;
    if n % cut.panel() != 0 {
        let mut padding = vec![1; loops.len()];
        padding[loops.len() - 2] = cut.panel();
        s.pad_einsum(block, &padding)?;
        if last.is_some() {
            s.pad_einsum(stored, &padding[..loops.len() - 1])?;
        }
    }
    let (block_of_rows, i) = match cut.block {
        Some(most) => s.split_even(i, most).map(|[block, i]| (Some(block), i))?,
        None => (None, i),
    };
    let [tiles, row] = s.split_even(i, cut.rows)?;
    let [panel, vector, lane] = s.split(j, [None, Some(cut.vectors), Some(cut.lanes)])?;
    let outside = if cut.panels_outside { [panel, tiles] } else { [tiles, panel] };
    let order = [outside[0], outside[1], k, row, vector, lane];
    s.reorder(&block_of_rows.into_iter().chain(order).collect::<Vec<_>>())?;
    s.reverse_compute_at(stored, outside[1])?;
    let [.., out_row, out_column] = s.get_loops(stored)?[..] else { return Err(no_product()) };
    let [out_vector, out_lane] = s.split(out_column, [None, Some(cut.lanes)])?;
    for written_out in [row, vector, out_row, out_vector] {
        s.unroll(written_out)?;
    }
    s.vectorize(lane)?;
    s.vectorize(out_lane)?;
    if let Some(last) = last {
        store_last(s, last, outside[1], cut.lanes)?;
    }
    s.decompose_reduction(block, k)?;
    if cut.ahead > 0 {
        s.prefetch(block, BufferAccess::Read(1), k, cut.ahead, 3)?;
    }
    if cut.prefetch_panel && s.extent(panel).is_some_and(|count| count > 1) {
        s.prefetch_next(block, BufferAccess::Read(1), panel, k, 2)?;
    }
    Ok(MatmulLoops { outer: outside[0], panels: panel, tiles, k })
}

/// The blocks that store a product's sums from registers.
pub(super) struct Results {
    /// Reads the registers, in whole vectors.
    pub(super) stored: BlockRv,
    /// Reads the memory that `stored` wrote, if there are columns that fill no vector.
    pub(super) last: Option<BlockRv>,
}

/// Keeps a product's sums in registers. `reader` is the block that reads the product, if there is
/// one; columns are `ragged` if they end within a vector.
pub(super) fn results(
    s: &mut Schedule,
    product: BlockRv,
    reader: Option<BlockRv>,
    ragged: bool,
) -> Result<Results, ScheduleError> {
    if let (Some(stored), false) = (reader, ragged) {
        s.set_scope(product, 0, BufferScope::Register)?;
        return Ok(Results { stored, last: None });
    }
    let last = match reader {
        None if ragged => Some(s.cache_write(product, 0, BufferScope::Local)?),
        reader => reader,
    };
    Ok(Results { stored: s.cache_write(product, 0, BufferScope::Register)?, last })
}

/// Runs the block that reads the sums from memory on each tile.
pub(super) fn store_last(
    s: &mut Schedule,
    last: BlockRv,
    tile: LoopRv,
    lanes: i64,
) -> Result<(), ScheduleError> {
    s.reverse_compute_at(last, tile)?;
    let column = s.get_loops(last)?.last().copied().ok_or_else(no_product)?;
    let [_, lane] = s.split(column, [None, Some(lanes)])?;
    s.vectorize(lane)
}

fn no_product() -> ScheduleError {
    ScheduleError {
        primitive: "matmul",
        message: "the block is not a product in loops over rows, columns and the reduction"
            .to_owned(),
    }
}
