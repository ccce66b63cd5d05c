//! Test cases, run in this process one after another; the outcome of each is a line of JSON on the standard output.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use niello_runtime::CpuLevel;

use super::{Outcome, Verdict};
use crate::cli::case::{self, CaseTolerance, DataSet};
use crate::cli::code::{CodeArgs, Engine};
use crate::cli::output::Output;
use crate::cli::{Failure, isolated};
use crate::compile::Model;
use crate::graph::interp::compare;
use crate::ir::Constant;
use crate::onnx::{self, TestValue};
use crate::options::CompileOptions;
use crate::samples::runner::{Runner, open_inputs};

/// Longest reason in bytes: it is passed on through a pipe, which holds a few KiB unread.
const MAX_REASON_BYTES: usize = 2000;

/// Run test cases in this process.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct Args {
    #[arg(long, value_enum)]
    backend: Engine,
    #[arg(long)]
    jobs: usize,
    #[command(flatten)]
    code: CodeArgs,
    #[arg(long)]
    save_outputs: Option<PathBuf>,
    #[arg(required = true)]
    cases: Vec<PathBuf>,
}

/// Why a case ended without its outputs being as expected.
enum Stop {
    Fail(String),
    Skip(String),
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Stop::Fail(reason)
    }
}

/// Runs the cases and prints the outcome of each.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    isolated::end_with_parent();
    let mut options = args.code.options()?;
    options.jobs = args.jobs;
    for case in &args.cases {
        let mut outcome = outcome(args, case, &options);
        if outcome.reason.len() > MAX_REASON_BYTES {
            let end =
                (0..=MAX_REASON_BYTES).rev().find(|&end| outcome.reason.is_char_boundary(end));
            outcome.reason.truncate(end.unwrap_or(0));
            outcome.reason.push('…');
        }
        let text = serde_json::to_string(&outcome).map_err(|error| {
            crate::diagnostics::Problem::new(format!("cannot write the outcome: {error}"))
        })?;
        Output::stdout().line(&text);
    }
    Ok(())
}

fn outcome(args: &Args, case: &Path, options: &CompileOptions) -> Outcome {
    // Where a panic happened is only known to the hook.
    static PANIC: Mutex<String> = Mutex::new(String::new());
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.lock() {
            *text = info.to_string();
        }
    }));
    let result = catch_unwind(AssertUnwindSafe(|| run_case(args, case, options)));
    match result {
        Ok(Ok(kernels)) => Outcome { result: Verdict::Pass, reason: String::new(), kernels },
        Ok(Err(Stop::Fail(reason))) => Outcome::fail(one_line(&reason)),
        Ok(Err(Stop::Skip(reason))) => Outcome::skip(one_line(&reason)),
        Err(_) => {
            let text = PANIC.lock().map(|text| text.clone()).unwrap_or_default();
            Outcome::fail(format!("niello panicked: {}", one_line(&text)))
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Runs the case; returns the number of compiled kernels that ran.
fn run_case(args: &Args, folder: &Path, options: &CompileOptions) -> Result<u64, Stop> {
    let path = folder.join(case::MODEL);
    let mut file = onnx::load(&path).map_err(|report| report.to_string())?;
    if let Some(name) = onnx::string_port(&file.proto) {
        return Err(Stop::Skip(format!("`{name}` holds strings")));
    }
    let tolerance = case::tolerance(folder)?;
    let mut options = options.clone();
    options.dims.extend(case::dims(folder)?);
    let data_sets = case::data_sets(folder, &file.proto)?;
    if let Some(first) = data_sets.first() {
        onnx::open_inputs(&mut file.proto, &first.inputs);
    }
    let model = Model::from_onnx("model", file);
    let mut ready: Option<(Vec<Constant>, Runner)> = None;
    let mut kernels = 0;
    for (position, data) in data_sets.into_iter().enumerate() {
        let number = data.number;
        let (inputs, expected) = tensors(data)?;
        let inputs = open_inputs(&model, &options, inputs).map_err(|report| report.to_string())?;
        let serves = |(former, runner): &(Vec<Constant>, Runner)| runner.serves(former, &inputs);
        // One compilation serves all data sets of the same shapes.
        if !ready.as_ref().is_some_and(serves) {
            let workers = args.code.workers();
            let backend = args.backend.backend().map_err(|problem| problem.to_string())?;
            let runner = Runner::new(backend, &model, &inputs, &options, workers)
                .map_err(|report| report.to_string())?;
            ready = Some((inputs.clone(), runner));
        }
        let Some((_, runner)) = &mut ready else { continue };
        let saved = args.save_outputs.as_ref();
        let saved = saved.map(|saved| case::data_set(&saved.join(case::name(folder)), number));
        kernels += check(runner, &inputs, &expected, tolerance, saved.as_deref())
            .map_err(|reason| format!("{}{reason}", set_prefix(position)))?;
    }
    Ok(kernels)
}

fn set_prefix(number: usize) -> String {
    if number == 0 { String::new() } else { format!("data set {number}: ") }
}

/// The tensors of a data set, those of sequences in order.
fn tensors(data: DataSet) -> Result<(Vec<Constant>, Vec<Constant>), Stop> {
    let of = |kind: &str, values: Vec<TestValue>| -> Result<Vec<Constant>, Stop> {
        let mut tensors = Vec::with_capacity(values.len());
        for (position, value) in values.into_iter().enumerate() {
            tensors.extend(value.into_tensors().map_err(|what| {
                Stop::Fail(format!("{kind} {position} is {what}, which is not supported"))
            })?);
        }
        Ok(tensors)
    };
    Ok((of("input", data.inputs)?, of("output", data.outputs)?))
}

/// Writes outputs as the files of a test case.
fn save(outputs: &[Constant], runner: &Runner, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    for (position, (output, name)) in outputs.iter().zip(runner.output_names()).enumerate() {
        let bytes = onnx::test_value_to_bytes(output, name)
            .ok_or_else(|| format!("output {position} has no form as a file"))?;
        fs::write(folder.join(format!("output_{position}.pb")), bytes).map_err(failed)?;
    }
    Ok(())
}

/// Runs the model at each CPU level that it has code for, and compares. Outputs are written to the
/// folder `saved`, if there is one. Returns the number of compiled kernels that one run calls.
fn check(
    runner: &mut Runner,
    inputs: &[Constant],
    expected: &[Constant],
    tolerance: CaseTolerance,
    saved: Option<&Path>,
) -> Result<u64, String> {
    let levels: Vec<CpuLevel> =
        runner.compilation().map(|made| made.model.levels.clone()).unwrap_or_default();
    if levels.len() < 2 {
        check_level(runner, inputs, expected, tolerance, saved)?;
        return Ok(runner.kernels());
    }
    for (place, level) in levels.iter().enumerate() {
        // A level that the machine lacks, or that `NIELLO_CPU_LEVEL` excludes.
        if *level > niello_runtime::cpu_level() || runner.limit_level(place) != place {
            break;
        }
        check_level(runner, inputs, expected, tolerance, saved)
            .map_err(|reason| format!("at CPU level {level}: {reason}"))?;
    }
    Ok(runner.kernels())
}

/// Runs the model twice, as what the first run leaves behind must not change the second, and
/// compares.
fn check_level(
    runner: &Runner,
    inputs: &[Constant],
    expected: &[Constant],
    tolerance: CaseTolerance,
    saved: Option<&Path>,
) -> Result<(), String> {
    let run = || runner.run(inputs).map_err(|problem| problem.to_string());
    let found = run()?;
    if let Some(saved) = saved {
        save(&found, runner, saved)?;
    }
    if found.len() != expected.len() {
        return Err(format!(
            "the model has {} outputs, but the data set has {}",
            found.len(),
            expected.len()
        ));
    }
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        compare(found, expected, tolerance.of(expected.ty().dtype))
            .map_err(|reason| format!("output {position}: {reason}"))?;
    }
    if runner.loaded().is_some() && run()? != found {
        return Err("a second run gives other outputs".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_one_line() {
        assert_eq!(one_line("a\n\n  b\r\nc"), "a; b; c");
    }
}
