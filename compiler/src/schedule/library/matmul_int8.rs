//! Schedules for matrix products of bytes.

use super::matmul::{Results, results, store_last};
use crate::ir::{BufferSpec, DType};
use crate::schedule::{BlockRv, BufferAccess, Schedule, ScheduleError, TensorIntrin};
use crate::strategy::Machine;
use crate::target::Target;

/// Products that one instruction adds to each sum.
const GROUP: i64 = 4;

/// The sizes of the register tiles of a product of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int8Tiles {
    /// Maximum number of rows of a tile.
    pub rows: i64,
    /// Number of vectors in a row of a tile, which is a panel of the right operand.
    pub vectors: i64,
    /// Sums of a vector: 4, 8 or 16.
    pub lanes: u32,
    /// Bytes of a right operand beyond which the next panel is prefetched while one is used.
    pub resident_bytes: i64,
}

impl Int8Tiles {
    /// Tiles of two vectors that fill the target's registers; `None` if the target has no
    /// instruction for dot products of bytes.
    pub fn choose(target: &Target) -> Option<Int8Tiles> {
        let machine = Machine::of(target);
        let lanes = u32::try_from(machine.lanes(DType::I32)).ok()?;
        let vectors = 2;
        let rows = machine.tile_rows(vectors).max(1);
        let resident_bytes = machine.middle_bytes();
        let tiles = Int8Tiles { rows, vectors, lanes, resident_bytes };
        target.has_dot_add(lanes).then_some(tiles)
    }

    /// The layout of a right operand `[k, n]` in which memory order is the order of reads within a
    /// panel: blocks of columns, groups of four rows, columns, rows.
    pub fn panels(&self, k: i64, n: i64) -> BufferSpec {
        let width = self.vectors * i64::from(self.lanes);
        BufferSpec::packed(&[k, n], &[(1, width), (0, GROUP), (1, 1), (0, 1)])
    }
}

/// Schedules `product`, a block that adds `uint8` products `A[i, k]` times `int8` `B[k, j]`, in
/// register tiles, by an instruction for dot products of bytes. `B`, the second input, gets the
/// layout of [`Int8Tiles::panels`]. If `k` is no multiple of four, `A`, which must then be a
/// parameter, gets a halo of zeros after each row. If a single block reads the product, element by
/// element, it runs on each tile.
///
/// # Errors
///
/// The block is no such product, or several blocks read the product.
pub fn matmul_int8(
    s: &mut Schedule,
    product: BlockRv,
    tiles: Int8Tiles,
) -> Result<(), ScheduleError> {
    let problem =
        |message: &str| ScheduleError { primitive: "matmul_int8", message: message.to_owned() };
    let intrinsic = TensorIntrin::dot_u8i8i32(tiles.lanes)
        .ok_or_else(|| problem("a vector has 4, 8 or 16 sums"))?;
    let lanes = i64::from(tiles.lanes);
    let width = tiles.vectors * lanes;
    let [i, j, k] = s.get_loops(product)?[..] else {
        return Err(problem("the product is not in three loops"));
    };
    let (m, n, k_extent) = (s.get_extent(i)?, s.get_extent(j)?, s.get_extent(k)?);
    let reader = match s.get_consumers(product)?[..] {
        [] => None,
        [reader] => Some(reader),
        _ => return Err(problem("several blocks read the product")),
    };
    let Results { stored, last } = results(s, product, reader, n % lanes != 0)?;
    let [i, j, k] = s.get_loops(product)?[..] else {
        return Err(problem("the product is not in three loops"));
    };
    s.transform_layout(product, BufferAccess::Read(1), &tiles.panels(k_extent, n))?;
    let missing = (-k_extent).rem_euclid(GROUP);
    if missing > 0 {
        let rows = BufferSpec::dense(&[m, k_extent]).with_halo(1, 0, missing);
        s.transform_layout(product, BufferAccess::Read(0), &rows)?;
    }

    let [i0, i1] = s.split_even(i, tiles.rows)?;
    let [j0, j1, j2] = s.split(j, [None, Some(tiles.vectors), Some(lanes)])?;
    let [k0, k1] = s.split(k, [None, Some(GROUP)])?;
    s.reorder(&[j0, i0, k0, i1, j1, j2, k1])?;
    s.pad_einsum(product, &[1, width, GROUP])?;
    if last.is_some() {
        s.pad_einsum(stored, &[1, width])?;
    }
    s.reverse_compute_at(stored, i0)?;
    let [.., row, column] = s.get_loops(stored)?[..] else {
        return Err(problem("what reads the product has no rows and columns"));
    };
    let [vector, lane] = s.split(column, [None, Some(lanes)])?;
    for rv in [i1, j1, row, vector] {
        s.unroll(rv)?;
    }
    s.vectorize(lane)?;
    if let Some(last) = last {
        store_last(s, last, i0, lanes)?;
    }
    let init = s.decompose_reduction(product, k0)?;
    let lane = s.get_loops(init)?.last().copied();
    s.vectorize(lane.ok_or_else(|| problem("the product has no columns"))?)?;
    if n.saturating_mul(k_extent) > tiles.resident_bytes {
        s.prefetch_next(product, BufferAccess::Read(1), j0, k0, 2)?;
    }
    s.tensorize(j2, &intrinsic)
}
