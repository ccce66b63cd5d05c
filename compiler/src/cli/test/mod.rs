//! `niello test`: ONNX test cases in child processes, one or several in each.

mod child;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};

use super::code::{self, CodeArgs, Engine};
use super::isolated::{End, Isolated};
use super::output::{Output, write_json};
use super::progress::Progress;
use super::{Failure, Problem, case};
use crate::options::PORTABLE;

pub(super) use child::{Args as ChildArgs, run as run_child};

/// The subcommand that runs one case.
pub(super) const CHILD: &str = "__test-case";

/// Run ONNX test cases and compare with their outputs, at each CPU level that a build script makes.
#[derive(ClapArgs, Debug)]
pub(super) struct Args {
    /// Test cases, or folders of test cases
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// What runs the model
    #[arg(long, value_enum, default_value_t = Engine::C)]
    backend: Engine,
    #[command(flatten)]
    code: CodeArgs,
    /// Write the results to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds after which a case has failed
    #[arg(long, value_name = "S", default_value_t = 300)]
    timeout: u64,
    /// Cases that run at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Cases that share a process, one after another; if it ends early, each of them is run again
    /// in a process of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// What runs the cases, in the place of this program: another build of it, behind what starts it,
    /// such as `qemu-aarch64 -L /usr/aarch64-linux-gnu niello`; each word is an argument
    #[arg(long, value_name = "COMMAND")]
    by: Option<String>,
    /// Write what came out to DIR/CASE/test_data_set_N/output_K.pb
    #[arg(long, value_name = "DIR")]
    save_outputs: Option<PathBuf>,
}

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Every output is near enough to what was expected.
    Pass,
    /// It is not, or there is none.
    Fail,
    /// The case cannot be run by any version of niello.
    Skip,
}

/// The result of a case: what a child process prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Outcome {
    result: Verdict,
    reason: String,
    /// How many compiled kernels ran.
    kernels: u64,
}

impl Outcome {
    fn fail(reason: impl Into<String>) -> Self {
        Outcome { result: Verdict::Fail, reason: reason.into(), kernels: 0 }
    }

    fn skip(reason: impl Into<String>) -> Self {
        Outcome { result: Verdict::Skip, reason: reason.into(), kernels: 0 }
    }
}

/// A case in the JSON file.
#[derive(Serialize)]
struct JsonCase<'a> {
    name: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// The JSON file.
#[derive(Serialize)]
struct Json<'a> {
    passed: usize,
    failed: usize,
    skipped: usize,
    cases: Vec<JsonCase<'a>>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let cases = case::find(&args.folders)?;
    // What is tested is what a build script makes: the code of each level.
    let mut code = args.code.clone();
    code.target_cpu.get_or_insert_with(|| PORTABLE.to_owned());
    // What is wrong with the options would be wrong with every case. Which CPUs there are is for the machine to say that
    // runs them.
    match args.by {
        None => {
            for what in code::beyond_machine(args.backend, &code.options()?)? {
                Output::error(&format!("warning: {what}: its code is not tested"));
            }
        }
        Some(_) => {
            let mut known = code.clone();
            known.target_cpu = None;
            known.options()?;
        }
    }
    let names: Vec<String> = cases.iter().map(|case| case::name(case)).collect();
    let out = Output::beside(args.json.as_deref());
    let progress = Progress::parts(args.json.as_deref(), cases.len(), "cases");
    let outcomes = run_all(&cases, args, &code, &progress, |index, outcome: &Outcome| {
        let word = match outcome.result {
            Verdict::Pass => return,
            Verdict::Fail => "fail",
            Verdict::Skip => "skip",
        };
        let line = format!("{}: {word}: {}", names[index], outcome.reason);
        progress.suspended(|| out.line(&line));
    })?;
    progress.finish();
    let count = |verdict| outcomes.iter().filter(|outcome| outcome.result == verdict).count();
    let (passed, failed, skipped) =
        (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Skip));
    if let Some(path) = &args.json {
        let cases = names.iter().zip(&outcomes).map(|(name, outcome)| JsonCase { name, outcome });
        write_json(path, &Json { passed, failed, skipped, cases: cases.collect() })?;
    }
    out.line(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
    if failed == 0 && passed > 0 { Ok(()) } else { Err(Failure::Told) }
}

/// Runs the cases, some at a time; `told` is called in their order, as soon as it is known how each
/// ended.
fn run_all(
    cases: &[PathBuf],
    args: &Args,
    code: &CodeArgs,
    progress: &Progress,
    told: impl Fn(usize, &Outcome) + Sync,
) -> Result<Vec<Outcome>, Failure> {
    let timeout = Duration::from_secs(args.timeout);
    let isolated = match &args.by {
        None => Isolated::new(timeout)?,
        Some(command) => {
            let words: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
            if words.is_empty() {
                return Err(Problem::new("--by names no program").into());
            }
            Isolated::of(words, timeout)?
        }
    };
    let batches: Vec<&[PathBuf]> = cases.chunks(usize::from(args.batch)).collect();
    let jobs = args.jobs.unwrap_or_else(code::jobs).clamp(1, batches.len());
    let child_args = child_args(args, code, code::jobs() / jobs);
    let next = AtomicUsize::new(0);
    let results: Mutex<Results> =
        Mutex::new(Results { outcomes: vec![None; cases.len()], told: 0 });
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(batch) = batches.get(index) else { break };
                    let outcomes = run_batch(&isolated, &child_args, batch);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    for (position, outcome) in outcomes.into_iter().enumerate() {
                        progress.advance();
                        results.outcomes[index * usize::from(args.batch) + position] =
                            Some(outcome);
                    }
                    while let Some(Some(outcome)) = results.outcomes.get(results.told) {
                        told(results.told, outcome);
                        results.told += 1;
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = || Outcome::fail("the case was not run");
    Ok(results.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect())
}

struct Results {
    outcomes: Vec<Option<Outcome>>,
    /// How many, from the first, have been told.
    told: usize,
}

/// Runs cases in one process. Unless that ends well, with an outcome of every case, each is run in
/// a process of its own: a crash may be due to an earlier case than the one that it ended.
fn run_batch(isolated: &Isolated, args: &[OsString], cases: &[PathBuf]) -> Vec<Outcome> {
    if cases.len() > 1 {
        let names = cases.iter().map(|case| case.as_os_str().to_owned());
        let end = isolated.run(&args.iter().cloned().chain(names).collect::<Vec<_>>());
        if let Some(outcomes) = end.ok().and_then(|end| outcomes_of(&end))
            && outcomes.len() == cases.len()
        {
            return outcomes;
        }
    }
    cases.iter().map(|case| run_case(isolated, args, case)).collect()
}

/// The outcomes that a child of several cases printed, unless something went wrong.
fn outcomes_of(end: &End) -> Option<Vec<Outcome>> {
    match end {
        End::Exited { status, output, .. } if status.success() => {
            output.lines().map(|line| serde_json::from_str(line).ok()).collect()
        }
        End::Exited { .. } | End::Signal { .. } | End::Timeout(_) => None,
    }
}

/// Runs one case in a process of its own.
fn run_case(isolated: &Isolated, args: &[OsString], case: &Path) -> Outcome {
    let end = isolated.run(&[args, &[case.as_os_str().to_owned()]].concat());
    match end {
        Ok(end) => outcome_of(&end),
        Err(error) => Outcome::fail(format!("the test process cannot be run: {error}")),
    }
}

/// What the end of a child says. A result that was printed before a crash does not count.
fn outcome_of(end: &End) -> Outcome {
    let with_last_line = |what: String, errors: &str| match errors.lines().last() {
        Some(line) => Outcome::fail(format!("{what}: {line}")),
        None => Outcome::fail(what),
    };
    match end {
        End::Timeout(seconds) => Outcome::fail(format!("timeout after {seconds} s")),
        End::Signal { number, errors } => {
            with_last_line(format!("killed by signal {number}"), errors)
        }
        End::Exited { status, output, errors } => match serde_json::from_str(output.trim()) {
            Ok(outcome) if status.success() => outcome,
            _ => with_last_line(format!("the test process left no result: {status}"), errors),
        },
    }
}

/// Arguments of a child, to which the cases are added.
fn child_args(args: &Args, code: &CodeArgs, jobs: usize) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![CHILD.into()];
    all.push(format!("--backend={}", args.backend.name()).into());
    all.push(format!("--jobs={}", jobs.max(1)).into());
    all.extend(code.to_args());
    if let Some(folder) = &args.save_outputs {
        all.extend(["--save-outputs".into(), folder.clone().into_os_string()]);
    }
    all.push("--".into());
    all
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn exited(status: i32, output: &str) -> Outcome {
        outcome_of(&End::Exited {
            status: ExitStatus::from_raw(status << 8),
            output: output.to_owned(),
            errors: "note\nlast words".to_owned(),
        })
    }

    #[test]
    fn the_exit_of_the_process_decides_the_result() {
        let result = r#"{"result":"pass","reason":"","kernels":3}"#;
        assert_eq!((exited(0, result).result, exited(0, result).kernels), (Verdict::Pass, 3));
        assert_eq!(exited(1, result).result, Verdict::Fail);
        let nonsense = exited(3, "nonsense").reason;
        assert_eq!(nonsense, "the test process left no result: exit status: 3: last words");
        let signal = End::Signal { number: 11, errors: String::new() };
        assert_eq!(outcome_of(&signal).reason, "killed by signal 11");
        assert_eq!(outcome_of(&End::Timeout(7)).reason, "timeout after 7 s");
    }

    #[test]
    fn several_outcomes_count_only_if_the_process_ended_well() {
        let line = r#"{"result":"pass","reason":"","kernels":3}"#;
        let of = |status: i32, output: &str| {
            outcomes_of(&End::Exited {
                status: ExitStatus::from_raw(status << 8),
                output: output.to_owned(),
                errors: String::new(),
            })
            .map(|outcomes| outcomes.len())
        };
        assert_eq!(of(0, &format!("{line}\n{line}\n")), Some(2));
        assert_eq!(of(1, &format!("{line}\n{line}\n")), None);
        assert_eq!(of(0, &format!("{line}\nnonsense\n")), None);
        assert_eq!(outcomes_of(&End::Signal { number: 11, errors: String::new() }), None);
        assert_eq!(outcomes_of(&End::Timeout(7)), None);
    }
}
