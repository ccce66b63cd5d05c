//! The steps of docs/tutorial-matmul.md: schedules of one matrix product, each faster than the one
//! before.

use niello::ir::{BufferSpec, DType};
use niello::schedule::library::{MatmulTiles, matmul};
use niello::schedule::{BufferAccess, Schedule, ScheduleError};
use niello::target::Target;
use niello::te::{self, TeError};
use niello::tir::{BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// `C = A * B` of square matrices, in plain loops.
pub fn plain(size: i64) -> Result<PrimFunc, TeError> {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [size, size], DType::F32);
    let b = te.constant("B", [size, size], DType::F32);
    let k = te.reduce_axis("k", size);
    let c = te.compute("C", [size, size], |[i, j]| te::sum(a.at([i, k]) * b.at([k, j]), [k]));
    te.prim_func(&[a, b, c])
}

/// Rows of `B` and `C` are read and written in order when `j` is the inner loop.
pub fn reordered(s: &mut Schedule, _: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let [_, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    s.decompose_reduction(block, j)?;
    s.reorder(&[k, j])
}

/// A vector of the columns at once.
pub fn vectorized(s: &mut Schedule, target: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let [_, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    let [column, lane] = s.split(j, [None, Some(lanes(target))])?;
    s.vectorize(lane)?;
    s.decompose_reduction(block, column)?;
    s.reorder(&[k, column, lane])
}

/// A tile of `C` stays in registers while all of `k` is added up.
pub fn in_registers(s: &mut Schedule, target: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let stored = s.cache_write(block, 0, BufferScope::Register)?;
    let [i, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    let [tile, row] = s.split(i, [None, Some(4)])?;
    let [panel, vector, lane] = s.split(j, [None, Some(4), Some(lanes(target))])?;
    s.reorder(&[tile, panel, k, row, vector, lane])?;
    s.reverse_compute_at(stored, panel)?;
    let [.., out_row, columns] = s.get_loops(stored)?[..] else { unreachable!("two axes") };
    let [out_vector, out_lane] = s.split(columns, [None, Some(lanes(target))])?;
    for unrolled in [row, vector, out_row, out_vector] {
        s.unroll(unrolled)?;
    }
    s.vectorize(lane)?;
    s.vectorize(out_lane)?;
    s.decompose_reduction(block, k)?;
    Ok(())
}

/// `B` lies in memory in the order in which the tiles read it.
pub fn packed(s: &mut Schedule, target: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let [_, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    let shape = [s.extent(k).unwrap_or(0), s.extent(j).unwrap_or(0)];
    let panels = BufferSpec::packed(&shape, &[(1, 4 * lanes(target)), (0, 1), (1, 1)]);
    s.transform_layout(block, BufferAccess::Read(1), &panels)?;
    in_registers(s, target)
}

/// The library's own schedule: as many rows as fit the registers, split evenly, panels outside.
pub fn library(s: &mut Schedule, target: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let [i, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    let [m, n, k] = [i, j, k].map(|axis| s.extent(axis).unwrap_or(0));
    matmul(s, block, None, MatmulTiles::choose(m, k, n, target)).map(drop)
}

/// The same with panels spread over threads.
pub fn parallel(s: &mut Schedule, target: &Target) -> Result<(), ScheduleError> {
    let block = s.get_block("C")?;
    let [i, j, k] = s.get_loops(block)?[..] else { unreachable!("a product has three loops") };
    let [m, n, k] = [i, j, k].map(|axis| s.extent(axis).unwrap_or(0));
    let loops = matmul(s, block, None, MatmulTiles::choose(m, k, n, target))?;
    s.parallel(loops.outer)
}

/// A step: its name and what it does to the plain loops.
pub type Step = (&'static str, fn(&mut Schedule, &Target) -> Result<(), ScheduleError>);

/// The steps in order.
pub const STEPS: [Step; 7] = [
    ("plain", |_, _| Ok(())),
    ("reordered", reordered),
    ("vectorized", vectorized),
    ("in registers", in_registers),
    ("packed", packed),
    ("library", library),
    ("parallel", parallel),
];

/// Elements of a vector register.
pub fn lanes(target: &Target) -> i64 {
    i64::try_from(target.vector_bits() / 32).map_or(1, |lanes| lanes.max(1))
}

/// Independent fused multiply-adds in registers: what no schedule can be faster than. Each of the
/// `n` steps is `2 * 16 * lanes` floating-point operations.
pub fn peak(target: &Target) -> PrimFunc {
    const SUMS: i64 = 16;
    let lanes = lanes(target);
    let mut f = PrimFuncData::new("peak");
    let factor = f.input("factor", DType::F32, BufferSpec::dense(&[lanes]));
    let result = f.output("result", DType::F32, BufferSpec::dense(&[SUMS, lanes]));
    let sums = f.register("sums", DType::F32, &[SUMS, lanes]);
    let n = f.dim("n");
    // What each sum becomes, in all lanes.
    let each = |f: &mut PrimFuncData, body: &dyn Fn(&PrimFuncData, PrimExpr, PrimExpr) -> Stmt| {
        f.for_("s", SUMS, ForKind::Unrolled, |f, s| {
            f.for_("l", lanes, ForKind::Vectorized, |f, l| body(f, s, l))
        })
    };
    // Each sum is another one, so that none can stand for two.
    let clear = each(&mut f, &|f, s, l| {
        let value = f.load(factor, [l.clone()]) + s.clone().cast(DType::F32);
        f.store(sums, [s, l], value)
    });
    let step = |f: &mut PrimFuncData, _| {
        each(f, &|f, s, l| {
            let (x, sum) = (f.load(factor, [l.clone()]), f.load(sums, [s.clone(), l.clone()]));
            f.store(sums, [s, l], PrimExpr::mul_add(sum, x.clone(), x))
        })
    };
    let run = f.serial("i", n, step);
    let store = each(&mut f, &|f, s, l| {
        let value = f.load(sums, [s.clone(), l.clone()]);
        f.store(result, [s, l], value)
    });
    f.body = Stmt::allocate(sums, Stmt::seq([clear, run, store]));
    PrimFunc::new(f)
}

/// Floating-point operations of one step of [`peak`].
pub fn peak_flops(target: &Target) -> i64 {
    2 * 16 * lanes(target)
}
