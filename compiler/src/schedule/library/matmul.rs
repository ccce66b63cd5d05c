//! Matrix products in register tiles.

use crate::ir::BufferSpec;
use crate::schedule::{BlockRv, BufferAccess, LoopRv, Schedule, ScheduleError};
use crate::strategy::Machine;
use crate::target::Target;
use crate::tir::BufferScope;

/// Number of rows from which a panel is used long enough for a prefetch of the next one to pay off.
const MIN_PREFETCH_ROWS: i64 = 16;

/// Steps of the reduction by which the right operand is prefetched: some hundred cycles, which a
/// line takes from the second-level cache or, on its way already, from the third.
const AHEAD: i64 = 8;

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
    /// Tiles whose accumulators fill the registers of a target: two vectors of columns for a
    /// product of few rows, so that each panel is read seldom, else four, so that each broadcast is
    /// used more often. Loops are in the order that brings the fewest bytes from beyond the
    /// second-level cache.
    pub fn choose(m: i64, k: i64, n: i64, target: &Target) -> MatmulTiles {
        let machine = Machine::of(target);
        let lanes = machine.lanes(crate::ir::DType::F32);
        let columns = (n.max(1) - 1) / lanes + 1;
        let most = if machine.registers >= 32 { 4 } else { 2 };
        let wanted = match m {
            1 => 2 * most,
            2..=8 => most,
            9..=63 => 2,
            _ => most,
        };
        // As few padded columns as possible.
        let vectors = (1..=wanted.min(columns))
            .rev()
            .min_by_key(|vectors| ((columns + vectors - 1) / vectors * vectors, -vectors))
            .unwrap_or(1);
        // With a register for each vector of the right operand and one for a broadcast: LLVM keeps
        // a broadcast that is used four times in a register, and moves sums to memory without one.
        let free = (i64::from(machine.registers) - vectors - 1) / vectors;
        let rows = machine.tile_rows(vectors).min(free.max(1));
        let (panels, tiles) = ((columns - 1) / vectors + 1, (m.max(1) - 1) / rows + 1);
        let bytes = |rows: i64, columns: i64| rows.saturating_mul(columns).saturating_mul(4);
        let (left, right) = (bytes(m, k), bytes(k, n));
        let times = |count: i64, bytes: i64, resident| {
            if bytes > resident { count.saturating_mul(bytes) } else { bytes }
        };
        // The left operand is read in order, so that the hardware fetches it in time, and may take
        // the whole cache.
        let (whole, resident) = (machine.caches[1], machine.middle_bytes());
        let panels_outside = times(panels, left, whole).saturating_add(right);
        let rows_outside = times(tiles, right, resident).saturating_add(left);
        // A block of rows, the panel in use and the next one have three quarters of it: of 2 MiB, the
        // product of 1024 x 1024 x 1024 is 5% faster with blocks of 128 to 256 rows than without.
        let panel = bytes(k, vectors * lanes);
        let block_rows = (whole / 4 * 3 - 2 * panel) / bytes(1, k.max(1));
        let blocks = (m.max(1) - 1) / block_rows.max(rows) + 1;
        let in_blocks = blocks.saturating_mul(right).saturating_add(left);
        let block = in_blocks < panels_outside.min(rows_outside);
        let panels_outside = tiles == 1 || block || panels_outside < rows_outside;
        MatmulTiles {
            rows,
            vectors,
            lanes,
            panels_outside,
            block: block.then(|| (m - 1) / blocks + 1),
            prefetch_panel: panels_outside && right > resident && m >= MIN_PREFETCH_ROWS,
            ahead: if m >= MIN_PREFETCH_ROWS { AHEAD } else { 0 },
        }
    }

    /// Number of columns of a panel of the right operand.
    pub fn panel(&self) -> i64 {
        self.vectors * self.lanes
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
/// its variables.
///
/// The right operand is read in panels: it becomes `[n / panel][k][panel]`, the last panel padded.
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
    let panels = BufferSpec::packed(&[depth, n], &[(1, cut.panel()), (0, 1), (1, 1)]);
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
