//! The time of each kernel, measured call by call.

use std::fmt;
use std::time::{Duration, Instant};

use super::measure::{MAX_RUNS, MIN_RUNS, Times, WARM_UP};
use crate::compile::Compilation;
use crate::diagnostics::Problem;
use crate::executor::{KernelRow, LoadedCall, Part, RegionKind};

/// Where the time of a model goes.
pub(super) struct Profile<'a> {
    /// Kernels and the time that all calls of each take, the slowest first.
    kernels: Vec<(&'a KernelRow, Duration)>,
    /// Loops and branches, each as a whole: what it is, and its time.
    regions: Vec<(String, Duration)>,
    /// The time of copying values to outputs.
    copies: Duration,
}

/// Runs a model call by call for about `seconds`. The time of a call is the median over all runs;
/// it includes what reading the clock takes, some dozens of nanoseconds.
///
/// # Errors
///
/// The model was not compiled for that, or a call fails.
pub(super) fn profile<'a>(
    call: &mut LoadedCall<'_>,
    compilation: &'a Compilation,
    seconds: f64,
) -> Result<Profile<'a>, Problem> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); compilation.model.calls];
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut counted = 0;
    while counted < MIN_RUNS
        || (begun.elapsed() < length && counted < MAX_RUNS / times.len().max(1))
    {
        let is_warm = begun.elapsed() >= length.mul_f64(WARM_UP);
        for (number, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            call.run_call(number)?;
            let time = start.elapsed();
            if is_warm {
                times.push(time);
            }
        }
        counted += usize::from(is_warm);
    }
    let mut medians = times.into_iter().map(|times| Times::of(times).median);
    let rows = &compilation.model.kernels.rows;
    let mut kernels: Vec<_> = rows.iter().map(|row| (row, Duration::ZERO)).collect();
    let mut regions = Vec::new();
    let program = &compilation.program;
    for (part, median) in program.parts().iter().zip(&mut medians) {
        let Part::Step(step) = part else {
            regions.push((described(part, compilation), median));
            continue;
        };
        let kernel = program.steps[*step].kernel;
        if let Some((_, sum)) = kernels.iter_mut().find(|(row, _)| row.kernel == kernel) {
            *sum += median;
        }
    }
    // Those of regions alone have no time of their own.
    kernels.retain(|(_, time)| !time.is_zero());
    kernels.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    Ok(Profile { kernels, regions, copies: medians.sum() })
}

/// A region and the kernels in it.
fn described(region: &Part, compilation: &Compilation) -> String {
    let program = &compilation.program;
    let mut names: Vec<&str> = Vec::new();
    let mut open = vec![region];
    while let Some(part) = open.pop() {
        match part {
            Part::Step(step) => {
                let name = program.kernels[program.steps[*step].kernel].signature().name.as_str();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Part::Region { parts, .. } => open.extend(parts.iter().rev()),
        }
    }
    let what = match region {
        Part::Region { kind: RegionKind::While, .. } => "loop",
        Part::Region { .. } | Part::Step(_) => "branch",
    };
    format!("{what} of {}", names.join(", "))
}

/// A table like that of the report, with measured times.
impl fmt::Display for Profile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let regions = self.regions.iter().map(|(_, time)| *time);
        let sum: Duration = self.kernels.iter().map(|(_, time)| *time).chain(regions).sum();
        let all = micros(sum + self.copies).max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "{:>10} {:>6} {:>5} {:>8} {:>8} {:>10} {:>9}  kernel",
            "us", "share", "calls", "GMAC/s", "GB/s", "kcycles>=", "expected"
        )?;
        for (row, time) in &self.kernels {
            let time = micros(*time);
            let calls = row.calls as f64;
            let per_second = |count: u64| count as f64 * calls / time.max(f64::MIN_POSITIVE) / 1e3;
            let thousands = |cycles: u64| format!("{:.1}", cycles as f64 * calls / 1e3);
            writeln!(
                f,
                "{time:>10.2} {:>5.1}% {:>5} {:>8.2} {:>8.2} {:>10} {:>9}  {}",
                time / all * 100.0,
                row.calls,
                per_second(row.macs),
                per_second(row.bytes[0] + row.bytes[1]),
                thousands(row.least_cycles),
                row.expected_cycles().map_or("-".to_owned(), thousands),
                row.name
            )?;
            write!(f, "{row}")?;
        }
        for (what, time) in &self.regions {
            let time = micros(*time);
            writeln!(f, "{time:>10.2} {:>5.1}%  {what}", time / all * 100.0)?;
        }
        if !self.copies.is_zero() {
            let time = micros(self.copies);
            writeln!(f, "{time:>10.2} {:>5.1}%  copies to outputs", time / all * 100.0)?;
        }
        writeln!(f, "{all:>10.2} 100.0%  all calls")
    }
}
