//! `cargo xtask fuzz coverage`: the fuzz targets of `fuzz/`, by libFuzzer, on the stable toolchain.
//!
//! The compiler's coverage pass is turned on by flags of rustc that stable has; libFuzzer itself is
//! C++ that the crate `libfuzzer-sys` brings. There is no sanitizer: niello has no unsafe code where
//! these inputs go, and debug assertions and overflow checks are on.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, fs, thread};

use clap::ValueEnum;

use crate::{Result, process, workspace};

/// What counts edges, lists them, and reports the operands of comparisons.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // A comparison that is folded into another is no edge.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

/// Seconds after which an input is called endless. A slow input is found by its processor time, in
/// the target; this is real time, and leaves room for a busy machine.
const TIMEOUT: u32 = 30;

/// Lines of a failing target's output that are shown. The whole is kept in a file.
const SHOWN_LINES: usize = 40;

/// Bytes of a failing input that are shown.
const SHOWN_BYTES: usize = 2048;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target to run, all unless given; may be given several times
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<Target>,
    /// How long each target runs; 60 unless runs are given
    #[arg(long, value_name = "S", conflicts_with = "runs")]
    seconds: Option<u32>,
    /// How many inputs each target runs
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// The seed of the mutations
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u32,
    /// How many targets run at a time; as many as the machine has processors unless given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Afterwards, replaces the committed corpus by the smallest one of the same coverage
    #[arg(long)]
    minimize: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Target {
    Onnx,
    GraphText,
    LoopText,
    Pipeline,
    Schedule,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::GraphText => "graph_text",
            Self::LoopText => "loop_text",
            Self::Pipeline => "pipeline",
            Self::Schedule => "schedule",
        }
    }

    /// Bytes of the longest input that is tried: short ones are fast, and say more when they fail.
    fn max_len(self) -> usize {
        match self {
            Self::Onnx => 1024,
            Self::GraphText | Self::LoopText => 1024,
            Self::Pipeline => 256,
            Self::Schedule => 512,
        }
    }

    /// The inputs that are committed.
    fn corpus(self) -> PathBuf {
        source().join("corpus").join(self.name())
    }

    fn dictionary(self) -> PathBuf {
        source().join("dict").join(self.name()).with_extension("dict")
    }
}

fn source() -> PathBuf {
    workspace::root().join("fuzz")
}

/// What is built, and what is found.
fn folder() -> PathBuf {
    workspace::target().join("fuzz")
}

/// What a target did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Statistics {
    executions: u64,
    per_second: u64,
    edges: u64,
}

pub(crate) fn run(options: &Options) -> Result {
    let binaries = build()?;
    let mut targets =
        if options.targets.is_empty() { Target::value_variants() } else { &options.targets }
            .to_vec();
    targets.sort();
    targets.dedup();
    // The slowest to build up coverage first.
    let queue = Mutex::new(targets.clone().into_iter());
    let jobs = options.jobs.or_else(|| thread::available_parallelism().ok());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.map_or(1, NonZero::get).min(targets.len()) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no thread panics").next();
                    let Some(target) = next else { return };
                    match fuzz(target, &binaries, options) {
                        Ok(found) => println!(
                            "{}: {} executions, {} a second, {} edges covered",
                            target.name(),
                            found.executions,
                            found.per_second,
                            found.edges
                        ),
                        Err(error) => {
                            eprintln!("{}: {error}", target.name());
                            failed.lock().expect("no thread panics").push(target.name());
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner()?;
    if !failed.is_empty() {
        failed.sort_unstable();
        return Err(format!("fuzz targets that failed: {}", failed.join(", ")).into());
    }
    if options.minimize {
        for target in targets {
            minimize(target, &binaries)?;
        }
    }
    Ok(())
}

/// Builds all targets and returns the folder of the binaries.
fn build() -> Result<PathBuf> {
    let host = host()?;
    let mut command = process::cargo();
    command
        .args(["build", "--package", "niello-fuzz", "--features", "libfuzzer", "--bins"])
        // With a target named, what runs while building is not instrumented.
        .args(["--profile", "fuzz", "--target", &host])
        .env("CARGO_TARGET_DIR", folder())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", INSTRUMENTATION.join(" "));
    process::run(&mut command)?;
    Ok(folder().join(host).join("fuzz"))
}

fn host() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let about = process::output(Command::new(rustc).arg("-vV")).ok_or("rustc is missing")?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.ok_or("rustc names no host")?.to_owned())
}

fn fuzz(target: Target, binaries: &Path, options: &Options) -> Result<Statistics> {
    let (found, artifacts) = (found(target), folder().join("artifacts").join(target.name()));
    for folder in [&found, &artifacts] {
        fs::create_dir_all(folder)?;
    }
    let mut command = Command::new(binaries.join(target.name()));
    // New inputs go to the first folder.
    command.args([&found, &target.corpus()]);
    command.arg(format!("-dict={}", target.dictionary().display()));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-max_len={}", target.max_len()));
    command.arg(format!("-timeout={TIMEOUT}"));
    command.arg(format!("-seed={}", options.seed));
    match options.runs {
        Some(runs) => command.arg(format!("-runs={runs}")),
        None => command.arg(format!("-max_total_time={}", options.seconds.unwrap_or(60))),
    };
    command.args(["-print_final_stats=1", "-detect_leaks=0"]);
    let log = folder().join(target.name()).with_extension("log");
    let output = fs::File::create(&log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = command.status().map_err(|e| format!("{}: {e}", process::shown(&command)))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        return statistics(&text).ok_or_else(|| format!("{}: no statistics", log.display()).into());
    }
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    let mut message = format!("{status}\n{last}\n");
    match lines.iter().find_map(|line| line.split_once("Test unit written to ")) {
        Some((_, path)) => {
            let input = fs::read(path)?;
            let shown = input[..input.len().min(SHOWN_BYTES)].escape_ascii();
            message += &format!("the input, {} bytes: {shown}\n", input.len());
            let binary = binaries.join(target.name());
            message += &format!("again: {} {path}", binary.display());
        }
        None => message += &format!("the whole output: {}", log.display()),
    }
    Err(message.into())
}

/// The inputs that earlier runs on this machine found.
fn found(target: Target) -> PathBuf {
    folder().join("corpus").join(target.name())
}

/// The statistics at the end of a target's output.
fn statistics(log: &str) -> Option<Statistics> {
    let number = |name: &str| {
        log.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let edges = log.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|&word| word != "cov:");
        words.nth(1)?.parse().ok()
    });
    Some(Statistics {
        executions: number("stat::number_of_executed_units:")?,
        per_second: number("stat::average_exec_per_sec:")?,
        edges: edges?,
    })
}

/// Replaces the committed corpus by the fewest inputs, of all that are known, that reach every edge.
fn minimize(target: Target, binaries: &Path) -> Result {
    let smallest = folder().join("smallest").join(target.name());
    if smallest.exists() {
        fs::remove_dir_all(&smallest)?;
    }
    fs::create_dir_all(&smallest)?;
    let mut command = Command::new(binaries.join(target.name()));
    // Edges alone, not how often each is taken: that would be many times the inputs.
    command.args(["-set_cover_merge=1", "-use_counters=0"]);
    command.arg(format!("-max_len={}", target.max_len()));
    command.args([&smallest, &found(target), &target.corpus()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    process::run(&mut command)?;
    let corpus = target.corpus();
    fs::remove_dir_all(&corpus)?;
    fs::create_dir(&corpus)?;
    let (mut count, mut bytes) = (0, 0);
    for entry in fs::read_dir(&smallest)? {
        let entry = entry?;
        bytes += fs::copy(entry.path(), corpus.join(entry.file_name()))?;
        count += 1;
    }
    println!("{}: {count} inputs, {bytes} bytes", workspace::shown(&corpus));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_from_the_end_of_the_output() {
        let log = "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                   #512\tNEW    cov: 345 ft: 678 corp: 3/9b lim: 4 exec/s: 256 rss: 41Mb\n\
                   Done 1000 runs in 3 second(s)\n\
                   stat::number_of_executed_units: 1000\n\
                   stat::average_exec_per_sec:     333\n";
        let expected = Statistics { executions: 1000, per_second: 333, edges: 345 };
        assert_eq!(statistics(log), Some(expected));
        assert_eq!(statistics("==1== ERROR: libFuzzer: deadly signal\n"), None);
    }

    #[test]
    fn every_target_has_a_program_a_dictionary_and_a_corpus() {
        for target in Target::value_variants() {
            let program = source().join("src/bin").join(target.name()).with_extension("rs");
            assert!(program.is_file(), "{}", program.display());
            assert!(target.dictionary().is_file(), "{}", target.dictionary().display());
            let inputs = fs::read_dir(target.corpus()).unwrap().count();
            assert!(inputs > 10, "{}", target.corpus().display());
        }
    }
}
