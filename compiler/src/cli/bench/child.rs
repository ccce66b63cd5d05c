//! The process that compiles, checks and measures; the outcome is a line of JSON.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check;
use super::measure::measure;
use super::profile::profile;
use super::sizes::SizeArgs;
use super::{Outcome, Row};
use crate::cli::code::{CodeArgs, Engine};
use crate::cli::output::write_json;
use crate::cli::{Failure, isolated, title};
use crate::codegen::object::text_bytes;
use crate::compile::Model;
use crate::diagnostics::{Problem, Report};
use crate::samples::runner::Runner;

/// Measure a model in this process.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct Args {
    #[arg(long, value_enum)]
    backend: Engine,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    code: CodeArgs,
    #[command(flatten)]
    sizes: SizeArgs,
    model: PathBuf,
}

/// Measures, and prints the outcome.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    isolated::end_with_parent();
    let outcome = match row(args) {
        Ok((row, profile)) => Outcome::Measured(row, profile),
        Err(Failure::Report(report)) => Outcome::Failed(report.lines()),
        Err(Failure::Told) => Outcome::Failed(Vec::new()),
    };
    write_json(Path::new("-"), &outcome)
}

fn row(args: &Args) -> Result<(Row, Option<String>), Failure> {
    let mut options = args.code.options()?;
    options.single_calls = args.profile;
    let model = Model::read(&args.model)?;
    let data = check::data(&args.model, &model, &args.sizes.fixed(&options)?)?;
    let (backend, workers) = (args.backend.backend()?, args.code.workers());
    let runner = Runner::new(backend, &model, data.inputs(), &options, workers)?;
    let checked = check::check(&args.model, &model, &runner, &data, &options)?;
    let (Some(compilation), Some(loaded)) = (runner.compilation(), runner.loaded()) else {
        return Err(Problem::new("the interpreter is not measured").into());
    };
    let mut call = loaded.call(&runner.passed(data.inputs()))?;
    let times = measure(Duration::from_secs_f64(args.seconds), || call.run())?;
    let profile = match args.profile {
        true => Some(profile(&mut call, compilation, args.seconds)?.to_string()),
        false => None,
    };
    let mut code_bytes = 0;
    for object in &compilation.model.objects {
        code_bytes += text_bytes(object).map_err(Report::from)?;
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let row = Row {
        model: title(&args.model, &model),
        threads: args.code.workers() as u64,
        compile_ms: compilation.stages.total().as_secs_f64() * 1e3,
        median_us: micros(times.median),
        min_us: micros(times.min),
        workspace_bytes: compilation.model.workspace_bytes,
        weight_bytes: compilation.model.weights.len() as u64,
        code_bytes,
        checked,
    };
    Ok((row, profile))
}
