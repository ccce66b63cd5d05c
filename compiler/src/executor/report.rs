//! What became of each kernel: which rule made its loops, what it moves and computes, and how many
//! cycles that takes at least.

use std::fmt;

use super::{KernelId, Loops, Program, Step};
use crate::strategy::Products;
use crate::tir::transform::PARALLEL_MISSED_ATTR;
use crate::tir::{ForKind, ParamKind, PrimFunc, Stmt};
use crate::tuned::Tunable;

/// The kernels of a program in the order of their first calls. Prints as a table with a line for
/// each kernel, and lines for the loops it consists of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelReport {
    /// The kernels.
    pub rows: Vec<KernelRow>,
}

/// A kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRow {
    /// Which one.
    pub kernel: KernelId,
    /// Its name.
    pub name: String,
    /// Steps of the model that call it.
    pub calls: usize,
    /// Shapes of what the first call reads, and of what it writes, in the order of the parameters.
    pub shapes: [Vec<Vec<i64>>; 2],
    /// Multiply-accumulate operations of one call.
    pub macs: u64,
    /// Bytes of the tensors that one call reads, and of those that it writes.
    pub bytes: [u64; 2],
    /// Fewest cycles of a call on the widest CPU level: as many as its multiply-accumulates take in
    /// `float32`, or as it takes to move the bytes from and to the second cache level.
    pub least_cycles: u64,
    /// How its loops were made.
    pub loops: Vec<Loops>,
    /// Where they could have been made in another way.
    pub tunables: Vec<Tunable>,
    /// The loops that threads share on the widest CPU level: variables, and how many iterations.
    /// None if one thread is what the model was compiled for.
    pub parallel: Vec<(String, i64)>,
    /// Why there are none, if the work of some loop would be worth it.
    pub serial: Option<String>,
}

impl KernelReport {
    /// The kernels of a program. `least_cycles` says how many cycles so many such multiply-accumulates
    /// and bytes take at least.
    pub(crate) fn of(
        program: &Program,
        least_cycles: impl Fn(Products, u64, u64) -> u64,
    ) -> KernelReport {
        let mut rows: Vec<KernelRow> = Vec::with_capacity(program.kernels.len());
        for step in &program.steps {
            match rows.iter_mut().find(|row| row.kernel == step.kernel) {
                Some(row) => row.calls += 1,
                None => {
                    rows.push(KernelRow::of(program, step, &least_cycles));
                }
            }
        }
        KernelReport { rows }
    }

    /// Where kernels could have been made in another way.
    pub fn tunables(&self) -> impl Iterator<Item = &Tunable> {
        self.rows.iter().flat_map(|row| &row.tunables)
    }

    /// Loops that are slower than those of a rule would be, and why, by the kernel's name.
    pub fn missed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().flat_map(|row| {
            let missed = row.loops.iter().filter_map(|loops| loops.missed.as_deref());
            missed.map(|why| (row.name.as_str(), why))
        })
    }
}

impl KernelRow {
    fn of(
        program: &Program,
        first: &Step,
        least_cycles: &impl Fn(Products, u64, u64) -> u64,
    ) -> KernelRow {
        let kernel = &program.kernels[first.kernel];
        let func = kernel.signature();
        let (mut shapes, mut bytes) = ([Vec::new(), Vec::new()], [0u64; 2]);
        for (param, &arg) in func.params.iter().zip(&first.args) {
            let side = usize::from(param.kind == ParamKind::Output);
            let value = &program.values[arg];
            shapes[side].push(value.spec.shape().to_vec());
            bytes[side] += value.physical_bytes().unwrap_or(0);
        }
        let widest = kernel.versions.last();
        let products = widest.map_or(Products::Lanes, |func| Products::of(func));
        KernelRow {
            kernel: first.kernel,
            name: func.name.to_string(),
            calls: 1,
            shapes,
            macs: kernel.macs,
            bytes,
            least_cycles: least_cycles(products, kernel.macs, bytes[0] + bytes[1]),
            loops: kernel.loops.clone(),
            tunables: kernel.tunables.clone(),
            parallel: kernel.versions.last().map(parallel_loops).unwrap_or_default(),
            serial: kernel
                .versions
                .last()
                .and_then(|widest| widest.attrs.get(PARALLEL_MISSED_ATTR).cloned()),
        }
    }

    /// Cycles of a call by the cost models of the rules, if they have one.
    pub fn expected_cycles(&self) -> Option<u64> {
        let known = self.loops.iter().filter_map(|loops| loops.cycles);
        known.reduce(u64::saturating_add)
    }

    /// The least number of cycles as a share of those that the cost model expects.
    pub fn expected_share(&self) -> Option<f64> {
        let cycles = self.expected_cycles()?.max(1);
        Some(self.least_cycles as f64 / cycles as f64)
    }
}

/// The loops of a lowered function that threads share.
fn parallel_loops(func: &PrimFunc) -> Vec<(String, i64)> {
    let mut loops = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::For { var, extent, kind: ForKind::Parallel, .. } = stmt {
            loops.push((func.vars[*var].name.clone(), extent.as_int().unwrap_or(0)));
        }
    });
    loops
}

/// `1x3x224x224, 32x3x3x3 -> 1x32x112x112`.
struct Shapes<'a>(&'a [Vec<Vec<i64>>; 2]);

impl fmt::Display for Shapes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (side, shapes) in self.0.iter().enumerate() {
            f.write_str(if side == 0 { "" } else { " -> " })?;
            for (position, shape) in shapes.iter().enumerate() {
                f.write_str(if position == 0 { "" } else { ", " })?;
                let extents: Vec<String> = shape.iter().map(i64::to_string).collect();
                f.write_str(if shape.is_empty() { "scalar" } else { "" })?;
                f.write_str(&extents.join("x"))?;
            }
        }
        Ok(())
    }
}

/// What a kernel is, below the line of its figures: shapes, and each of its loops.
impl fmt::Display for KernelRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "        {}", Shapes(&self.shapes))?;
        for Loops { op, rule, knobs, cycles: _, missed } in &self.loops {
            let comma = if knobs.is_empty() { "" } else { ": " };
            writeln!(f, "        {op}: {rule}{comma}{knobs}")?;
            if let Some(why) = missed {
                writeln!(f, "        missed: {op}: {why}")?;
            }
        }
        if !self.parallel.is_empty() {
            let loops = self.parallel.iter().map(|(var, count)| format!("{var} ({count})"));
            writeln!(f, "        shared by threads: {}", loops.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(why) = &self.serial {
            writeln!(f, "        on one thread: {why}")?;
        }
        Ok(())
    }
}

impl fmt::Display for KernelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>6}  kernel",
            "calls", "MMACs", "KiB read", "KiB write", "kcycles>=", "expected", "share"
        )?;
        for row in &self.rows {
            let expected = row.expected_cycles().map_or("-".to_owned(), thousands);
            let share = row.expected_share();
            let share = share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
            writeln!(
                f,
                "{:>5} {:>10.3} {:>10.1} {:>10.1} {:>10} {expected:>10} {share:>6}  {}",
                row.calls,
                row.macs as f64 / 1e6,
                row.bytes[0] as f64 / 1024.0,
                row.bytes[1] as f64 / 1024.0,
                thousands(row.least_cycles),
                row.name
            )?;
            write!(f, "{row}")?;
        }
        Ok(())
    }
}

fn thousands(cycles: u64) -> String {
    format!("{:.1}", cycles as f64 / 1e3)
}
