//! What a schedule has to know of the target: its registers, and its caches.

use crate::ir::DType;
use crate::target::Target;
use crate::tir::{MATRIX_SUMS, PrimExpr, PrimFuncData, Stmt};

/// A core of a target: vector registers, or those of scalars if it has none, and caches.
///
/// Targets do not say how large their caches are. What is assumed is what most processors with their
/// features have, and never what the machine has that compiles; of a CPU that a crate has
/// [registered](crate::register_cpu), what that says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Width of a vector register in bits; 0 without vectors.
    pub vector_bits: u32,
    /// Number of vector registers.
    pub registers: u32,
    /// Bytes of the first and of the second cache level.
    pub caches: [i64; 2],
    /// Whether an instruction multiplies four bytes with as many others and adds them to each lane of
    /// a register: [`PrimExpr::DotAdd`](crate::tir::PrimExpr::DotAdd).
    pub dot: bool,
    /// Whether that takes an instruction for two of each four bytes and one for the others, both
    /// widened to words before.
    pub words: bool,
    /// Whether an instruction adds the product of two matrices of bytes to sums that it keeps in a
    /// register of their own: `strategy::tile::Sums::Matrices`.
    pub matrix: bool,
    /// Whether the lanes of a register can be of `float16`, not of `float32` that they are converted to.
    pub halves: bool,
}

/// Caches of server cores with AVX-512.
const LARGE_CACHES: [i64; 2] = [48 << 10, 2 << 20];

/// Caches of cores with narrower vectors: desktops, and servers before those.
const SMALL_CACHES: [i64; 2] = [32 << 10, 512 << 10];

/// Multiply-adds of vectors that begin in one cycle, and as many loads.
pub(crate) const PER_CYCLE: i64 = 2;

/// Bytes in a cycle from the second cache level.
pub(crate) const MIDDLE_RATE: f64 = 48.0;

/// By what instructions a kernel multiplies and adds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Products {
    /// One product in each lane, as `float32` has them.
    Lanes,
    /// Dot products of four bytes.
    Fours,
    /// Products of matrices of bytes.
    Matrices,
}

impl Products {
    /// The widest in a lowered function.
    pub(crate) fn of(func: &PrimFuncData) -> Products {
        let mut widest = Products::Lanes;
        func.body.walk(&mut |stmt| {
            if matches!(stmt, Stmt::Block { name, .. } if name == MATRIX_SUMS) {
                widest = Products::Matrices;
            }
            stmt.for_each_expr(&mut |expr| {
                if expr.any(&mut |expr| matches!(expr, PrimExpr::DotAdd { .. })) {
                    widest = widest.max(Products::Fours);
                }
            });
        });
        widest
    }

    /// How many there are for each of `float32`.
    fn times_floats(self) -> i64 {
        match self {
            Products::Lanes => 1,
            Products::Fours => 4,
            // 16 rows of 64 terms of 16 columns in 16 cycles, beside two vectors of 16 lanes in one.
            Products::Matrices => 32,
        }
    }
}

impl Machine {
    /// The core of a target.
    pub fn of(target: &Target) -> Machine {
        let has = |feature| target.has_feature(feature);
        let (registers, caches) = match target.arch.as_str() {
            "x86_64" if has("avx512f") && has("avx512vl") => (32, LARGE_CACHES),
            "x86" => (8, SMALL_CACHES),
            "aarch64" | "riscv32" | "riscv64" => (32, SMALL_CACHES),
            _ => (16, SMALL_CACHES),
        };
        let vector_bits = u32::try_from(target.vector_bits()).unwrap_or(0);
        let caches = target.registered_cpu().map_or(caches, |cpu| cpu.caches);
        let sums = vector_bits / DType::I32.bits();
        let dot = target.has_dot_add(sums);
        // An instruction of two operands overwrites one, which other rows need.
        let words = !dot && has("avx") && target.has_word_dot_add(sums);
        let halves = target.has_fp16_arithmetic();
        let matrix = target.has_matrix_add();
        Machine { vector_bits, registers, caches, dot, words, matrix, halves }
    }

    /// The registers, for which choices are measured.
    pub(crate) fn name(self) -> String {
        format!("{} bits x {}", self.vector_bits, self.registers)
    }

    /// Bytes that stay in the first cache level while others stream by.
    pub fn near_bytes(self) -> i64 {
        self.caches[0] / 2
    }

    /// Bytes that stay in the second cache level while others stream by.
    pub fn middle_bytes(self) -> i64 {
        self.caches[1] / 2
    }

    /// Fewest cycles for multiply-accumulates, and for moving bytes from or to the second cache level:
    /// what a roofline model allows.
    pub(crate) fn least_cycles(self, products: Products, macs: u64, bytes: u64) -> u64 {
        let each = PER_CYCLE * self.lanes(DType::F32) * products.times_floats();
        macs.div_ceil(each.unsigned_abs()).max((bytes as f64 / MIDDLE_RATE) as u64)
    }

    /// Elements of one register; 1 without vectors.
    pub fn lanes(self, dtype: DType) -> i64 {
        i64::from((self.vector_bits / dtype.bits()).max(1))
    }

    /// Sums of one register, which are wider where there is no arithmetic of their type.
    pub(crate) fn sums(self, dtype: DType) -> i64 {
        self.lanes(if self.halves { dtype } else { dtype.accumulator() })
    }

    /// Columns of a register tile of `rows` rows or fewer inside a panel of weights, which may have
    /// been made for wider registers than these.
    pub(crate) fn tile_columns(self, panel: i64, rows: i64, dtype: DType) -> i64 {
        let vectors = panel / self.sums(dtype);
        let most = match rows {
            _ if rows <= FEW_ROWS => self.vectors_of_few(rows),
            _ if self.registers >= 32 => 4,
            _ if vectors % 2 == 0 => 2,
            _ => 3,
        };
        self.columns_of_at_most(panel, most, dtype)
    }

    /// Most registers of a row of a tile of few rows: more columns keep enough sums in flight.
    pub(crate) fn vectors_of_few(self, rows: i64) -> i64 {
        match rows {
            1 => 8,
            _ => 4,
        }
    }

    /// Columns of as many vectors, at most `most`, as divide a panel evenly.
    pub(crate) fn columns_of_at_most(self, panel: i64, most: i64, dtype: DType) -> i64 {
        let lanes = self.sums(dtype);
        let vectors = (panel / lanes).max(1);
        let fits = (1..=vectors.min(most)).rev().find(|count| vectors % count == 0);
        fits.unwrap_or(1) * lanes
    }

    /// Rows of a register tile whose rows take `vectors` registers each: accumulators leave room
    /// for one row of the other operand and a broadcast value. Instructions of 512 bits broadcast
    /// what they read, but LLVM loads a value that is used four times once, and moves sums to memory
    /// where no register is left for it.
    pub fn tile_rows(self, vectors: i64) -> i64 {
        let free = i64::from(self.registers) - vectors - 1;
        (free / vectors.max(1)).clamp(1, MAX_TILE_ROWS)
    }
}

/// Rows up to which a tile has more columns instead, to keep enough sums in flight.
pub(crate) const FEW_ROWS: i64 = 6;

/// Most rows of a register tile. More rows than this hide no latency that is left, and each is
/// another displacement of the loads.
pub(crate) const MAX_TILE_ROWS: i64 = 14;

/// `total` as runs of equal sizes of at most `most`: (number of runs, size), larger ones first.
///
/// Even sizes need no masked tail: at most two different loop bodies.
pub(crate) fn split_even(total: i64, most: i64) -> Vec<(i64, i64)> {
    if total <= 0 {
        return Vec::new();
    }
    let runs = (total + most - 1) / most;
    let (small, larger) = (total / runs, total % runs);
    [(larger, small + 1), (runs - larger, small)].into_iter().filter(|run| run.0 > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_cover_the_total_without_a_tail() {
        assert_eq!(split_even(56, 14), [(4, 14)]);
        assert_eq!(split_even(15, 14), [(1, 8), (1, 7)]);
        assert_eq!(split_even(3, 14), [(1, 3)]);
        assert!(split_even(0, 14).is_empty());
        for total in 1..200 {
            for most in 1..20 {
                let runs = split_even(total, most);
                assert_eq!(runs.iter().map(|(n, size)| n * size).sum::<i64>(), total);
                assert!(runs.iter().all(|&(_, size)| size <= most));
            }
        }
    }

    #[test]
    fn vectors_are_no_wider_than_what_the_target_allows() {
        let target = Target { arch: "x86_64".to_owned(), ..Target::host() };
        let target = target.with_cpu("x86-64-v4").unwrap();
        assert_eq!(Machine::of(&target).vector_bits, 512);
        for bits in [256, 128] {
            let machine = Machine::of(&target.clone().with_vector_width(bits).unwrap());
            // The processor has as many registers of them.
            let vector_bits = bits as u32;
            let caches = LARGE_CACHES;
            let (dot, halves) = (false, false);
            assert_eq!(
                machine,
                Machine {
                    vector_bits,
                    registers: 32,
                    caches,
                    dot,
                    words: true,
                    matrix: false,
                    halves
                }
            );
        }
    }

    #[test]
    fn tiles_fit_the_registers() {
        let avx512 = Machine {
            vector_bits: 512,
            registers: 32,
            caches: LARGE_CACHES,
            dot: false,
            words: false,
            matrix: false,
            halves: false,
        };
        assert_eq!(avx512.tile_rows(2), 14);
        assert_eq!(avx512.tile_rows(3), 9);
        assert_eq!(avx512.tile_rows(4), 6);
        let avx2 = Machine {
            vector_bits: 256,
            registers: 16,
            caches: SMALL_CACHES,
            dot: false,
            words: false,
            matrix: false,
            halves: false,
        };
        assert_eq!(avx2.tile_rows(2), 6);
        assert_eq!(avx2.tile_rows(4), 2);
        // A panel of two wide registers is two tiles of two narrower ones.
        assert_eq!(avx512.tile_columns(32, 49, DType::F32), 32);
        assert_eq!(avx512.tile_columns(48, 49, DType::F32), 48);
        assert_eq!(avx512.tile_columns(64, 49, DType::F32), 64);
        assert_eq!(avx2.tile_columns(32, 49, DType::F32), 16);
        assert_eq!(avx2.tile_columns(48, 49, DType::F32), 16);
        assert_eq!(avx2.tile_columns(64, 49, DType::F32), 16);
        assert_eq!(avx2.tile_columns(24, 49, DType::F32), 24);
        assert_eq!(avx2.columns_of_at_most(128, 6, DType::F32), 32);
    }
}
