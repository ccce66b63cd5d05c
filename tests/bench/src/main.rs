//! Measures kernels beside what the processor can do, ONNX Runtime and OpenVINO. `cargo xtask bench kernels` builds and
//! runs it.

#![allow(clippy::print_stdout, reason = "what a benchmark has to say goes to standard output")]

mod catalogue;
mod check;
mod kernel;
mod measure;
mod native;

mod peak;
mod peers;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use niello::options::Backend;

use crate::kernel::Kernel;
use crate::measure::{Plan, measure, median};
use crate::peak::Memory;
use crate::peers::Peers;
use crate::report::{COLUMNS, Row, markdown};

/// Measures kernels beside what the processor can do, ONNX Runtime and OpenVINO.
#[derive(Parser)]
struct Options {
    /// Only kernels whose name contains one of these
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Backend of niello; may be given more than once [default: all of this build]
    #[arg(long)]
    backend: Vec<Backend>,
    /// Thread count; may be given more than once [default: 1, and 2 if there are two cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Vec<u16>,
    /// Rounds in which all take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Length of a turn in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30)]
    turn: u64,
    /// A Python with ONNX Runtime and OpenVINO; without it, they are left out
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Write the kernels' models to a folder, for a closer look at their code, and measure nothing
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The memory read to measure the bandwidth: more than the caches hold.
const MEMORY_BYTES: usize = 512 << 20;

/// Largest allowed difference of the measured peak from the clock's.
const PEAK_TOLERANCE: f64 = 0.05;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> kernel::Result<()> {
    let kernels = chosen(options)?;
    if let Some(folder) = &options.save {
        return save(&kernels, folder);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<usize> = match options.threads.as_slice() {
        [] => (1..=cores.min(2)).collect(),
        given => given.iter().copied().map(usize::from).collect(),
    };
    let plan = Plan {
        rounds: options.rounds.into(),
        turn: Duration::from_millis(options.turn),
        backends: match options.backend.as_slice() {
            [] => Backend::ALL.to_vec(),
            given => given.to_vec(),
        },
        memory: Memory::new(MEMORY_BYTES),
    };
    let mut peers = options.python.as_deref().map(Peers::new);
    if peers.is_none() {
        eprintln!("ONNX Runtime and OpenVINO are left out: no Python was given");
    }
    let mut peaks = Vec::new();
    for &threads in &threads {
        if threads > cores {
            eprintln!("warning: {threads} threads share {cores} cores");
        }
        peaks.extend(measured_peaks(&plan, threads));
    }
    for peak in &peaks {
        println!("# {peak}");
    }
    println!("# {}", COLUMNS.join(" "));
    let (mut rows, mut failures): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
    for kernel in &kernels {
        for &threads in threads.iter().filter(|threads| kernel.threads.contains(threads)) {
            // One that fails says so, and the others are measured nevertheless.
            let (new, failed) = measure(&plan, kernel, threads, peers.as_mut())
                .unwrap_or_else(|why| (Vec::new(), vec![("all".to_owned(), why)]));
            let first = rows.len();
            rows.extend(new);
            for row in &rows[first..] {
                println!("{}", row.line(&rows));
            }
            for (who, why) in failed {
                let failure = format!("{} on {threads}, {who}: {why}", kernel.name);
                eprintln!("not measured: {failure}");
                failures.push(failure);
            }
        }
    }
    if let Some(path) = &options.markdown {
        let text = markdown(&peaks, &rows, &failures);
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn save(kernels: &[Kernel], folder: &Path) -> kernel::Result<()> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for kernel in kernels {
        let path = folder.join(format!("{}.onnx", kernel.name));
        fs::write(&path, (kernel.case)()?.model)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn chosen(options: &Options) -> kernel::Result<Vec<Kernel>> {
    let mut kernels = catalogue::kernels();
    let names: Vec<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
    if !options.filter.is_empty() {
        kernels.retain(|kernel| options.filter.iter().any(|part| kernel.name.contains(part)));
    }
    if kernels.is_empty() {
        return Err(format!("no kernel has such a name; there are {}", names.join(", ")));
    }
    Ok(kernels)
}

/// The processor's limits on that many threads, in lines; warns if two measurements disagree.
fn measured_peaks(plan: &Plan, threads: usize) -> Vec<String> {
    let (mut fma, mut int8) = (Vec::new(), Vec::new());
    let (mut clock, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        fma.push(peak::fma(threads, plan.turn));
        clock.extend(peak::clock(plan.turn));
        int8.extend(peak::int8(threads, plan.turn));
        bytes.push(plan.memory.read(threads));
    }
    let shown = |rates: &mut [f64], unit: &str| {
        median(rates)
            .map_or_else(|| "not known".to_owned(), |rate| format!("{:.1} {unit}", rate / 1e9))
    };
    let mut lines = vec![format!(
        "on {threads}: f32 FMA ({}) {}, int8 dot products {}, reading memory {}",
        peak::fma_name(),
        shown(&mut fma, "GF"),
        shown(&mut int8, "GOPS"),
        shown(&mut bytes, "GB/s"),
    )];
    if let (Some(fma), Some(clock)) = (median(&mut fma), median(&mut clock)) {
        let per_cycle = fma / clock / threads as f64;
        lines.push(format!(
            "on {threads}: clock {:.2} GHz by dependent additions, {per_cycle:.1} flop in a cycle",
            clock / 1e9,
        ));
        let expected = peak::expected_per_cycle();
        let away = expected.map(|expected| (per_cycle / expected - 1.0).abs());
        if let (Some(expected), true) = (expected, away > Some(PEAK_TOLERANCE)) {
            let warning = format!(
                "warning: the peak is {per_cycle:.1} flop in a cycle, expected {expected}: the clock changed, the \
                 machine was busy, or the processor has another number of multipliers",
            );
            eprintln!("{warning}");
            lines.push(warning);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn kernels_are_chosen_by_parts_of_their_names() {
        let of = |filter: &[&str]| {
            let arguments = filter.iter().map(|name| format!("--filter={name}"));
            let options = Options::parse_from(["bench".to_owned()].into_iter().chain(arguments));
            chosen(&options).map(|kernels| kernels.len())
        };
        assert_eq!(of(&[]), Ok(catalogue::kernels().len()));
        assert_eq!(of(&["matmul_384", "exp"]), Ok(3));
        assert!(of(&["no_such"]).unwrap_err().contains("matmul_1024"));
    }

    #[test]
    fn peaks_are_printed_one_per_line() {
        let plan = Plan {
            rounds: 1,
            turn: Duration::from_micros(10),
            backends: Vec::new(),
            memory: Memory::new(1 << 16),
        };
        let lines = measured_peaks(&plan, 1);
        assert!(lines[0].starts_with("on 1: f32 FMA ("), "{lines:?}");
        assert!(lines[0].contains("reading memory"), "{lines:?}");
    }
}
