//! Matrix products in register tiles.

use crate::ir::BufferSpec;
use crate::schedule::{BlockRv, BufferAccess, LoopRv, Schedule, ScheduleError};
use crate::strategy::Machine;
use crate::target::Target;
use crate::tir::BufferScope;

/// Bytes of the right operand from which its panels are the outer loop and the next panel is
/// prefetched: it does not stay in the second-level cache beside the rows.
const MAX_RESIDENT_BYTES: i64 = 1 << 20;

/// Rows from which a panel is used long enough for a prefetch of the next one to pay off.
const MIN_PREFETCH_ROWS: i64 = 16;

/// How a product of `m` x `k` with `k` x `n` is cut into register tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatmulTiles {
    /// Most rows of a tile.
    pub rows: i64,
    /// Vectors of a row of a tile.
    pub vectors: i64,
    /// Elements of a vector.
    pub lanes: i64,
    /// Whether panels of the right operand are the outer loop, and tiles of rows the inner one.
    pub panels_outside: bool,
    /// Whether the next panel is prefetched.
    pub prefetch: bool,
}

impl MatmulTiles {
    /// Tiles whose accumulators fill the registers of a target: two vectors of columns for a
    /// product of few rows, so that each panel is read seldom, else four, so that each broadcast is
    /// used more often.
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
        let bytes = k.saturating_mul(n).saturating_mul(4);
        MatmulTiles {
            rows: machine.tile_rows(vectors),
            vectors,
            lanes,
            panels_outside: bytes > MAX_RESIDENT_BYTES,
            prefetch: bytes > MAX_RESIDENT_BYTES && m >= MIN_PREFETCH_ROWS,
        }
    }

    /// Columns of a panel of the right operand.
    pub fn panel(&self) -> i64 {
        self.vectors * self.lanes
    }
}

/// The loops of a scheduled product.
#[derive(Clone, Copy, Debug)]
pub struct MatmulLoops {
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
/// # Errors
///
/// The block is not such a product, or a primitive does not fit it.
pub fn matmul(
    s: &mut Schedule,
    block: BlockRv,
    epilogue: Option<BlockRv>,
    cut: MatmulTiles,
) -> Result<MatmulLoops, ScheduleError> {
    let stored = match epilogue {
        Some(epilogue) => {
            s.set_scope(block, 0, BufferScope::Register)?;
            epilogue
        }
        None => s.cache_write(block, 0, BufferScope::Register)?,
    };
    let loops = s.get_loops(block)?;
    let [.., i, j, k] = loops[..] else { return Err(no_product()) };
    let (Some(n), Some(depth)) = (s.extent(j), s.extent(k)) else { return Err(no_product()) };
    let panels = BufferSpec::packed(&[depth, n], &[(1, cut.panel()), (0, 1), (1, 1)]);
    s.transform_layout(block, BufferAccess::Read(1), &panels)?;
    if n % cut.panel() != 0 {
        let mut padding = vec![1; loops.len()];
        padding[loops.len() - 2] = cut.panel();
        s.pad_einsum(block, &padding)?;
    }
    let [tiles, row] = s.split_even(i, cut.rows)?;
    let [panel, vector, lane] = s.split(j, [None, Some(cut.vectors), Some(cut.lanes)])?;
    let outside = if cut.panels_outside { [panel, tiles] } else { [tiles, panel] };
    s.reorder(&[outside[0], outside[1], k, row, vector, lane])?;
    s.reverse_compute_at(stored, outside[1])?;
    let [.., out_row, out_column] = s.get_loops(stored)?[..] else { return Err(no_product()) };
    let [out_vector, out_lane] = s.split(out_column, [None, Some(cut.lanes)])?;
    for written_out in [row, vector, out_row, out_vector] {
        s.unroll(written_out)?;
    }
    s.vectorize(lane)?;
    s.vectorize(out_lane)?;
    s.decompose_reduction(block, k)?;
    if cut.prefetch && s.extent(panel).is_some_and(|count| count > 1) {
        s.prefetch_next(block, BufferAccess::Read(1), panel, k, 2)?;
    }
    Ok(MatmulLoops { panels: panel, tiles, k })
}

fn no_product() -> ScheduleError {
    ScheduleError {
        primitive: "matmul",
        message: "the block is not a product in loops over rows, columns and the reduction"
            .to_owned(),
    }
}
