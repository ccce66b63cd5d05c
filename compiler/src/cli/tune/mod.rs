//! `niello tune`: which of the ways to make a model's loops are the fastest on this machine.

mod search;

use std::path::PathBuf;
use std::time::Duration;

use super::bench::{data_of, parse_seconds};
use super::code::{self, CodeArgs, Engine};
use super::output::Output;
use super::progress::Progress;
use super::{Failure, Problem};
use crate::compile::{Model, Passes};
use crate::files::write_file;
use crate::options::Executor;
use crate::tuned::Tuned;
use search::Search;

/// Measure the ways in which kernels of a model can be made, and write the fastest to a file.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    /// File of tuned choices, for `--tuned` and for `.tuned(..)` in a build script; if it is there,
    /// what it says stays, and what was not measured yet is added
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What generates code
    #[arg(long, value_enum, default_value_t = Engine::C)]
    backend: Engine,
    /// Seconds after which no other way is tried; a later run goes on where this one stopped
    #[arg(long, value_name = "S", default_value_t = 300.0, value_parser = parse_seconds)]
    seconds: f64,
    #[command(flatten)]
    code: CodeArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(backend) = args.backend.backend()? else {
        return Err(Problem::new("the interpreter is not tuned")
            .help("leave out --backend, or name a code generator")
            .into());
    };
    let mut options = args.code.options()?;
    code::beyond_machine(args.backend, &options)?;
    if options.executor != Executor::Aot {
        return Err(Problem::new("what is measured is called by one function")
            .help("leave out --executor; the choices are good for both")
            .into());
    }
    if options.targets().len() > 1 {
        return Err(Problem::new("one CPU level at a time is tuned, and the target has several")
            .help("leave out --target-cpu, or name one: a file may have choices for several levels")
            .into());
    }
    if options.tuned != Tuned::default() {
        return Err(Problem::new("`niello tune` adds to the choices of its output file")
            .help("leave out --tuned")
            .into());
    }
    let model = Model::read(&args.model)?;
    let known = match args.output.exists() {
        true => Tuned::read(&args.output)?,
        false => Tuned::default(),
    };
    options.single_calls = true;
    let data = data_of(&args.model, &model, &options)?;
    Passes::new(&options)?;
    // Before the work, so that a file that cannot be written is told at once; and only if nothing is
    // wrong that can be told without it.
    let write = |tuned: &Tuned| write_file(&args.output, tuned.to_string().as_bytes());
    write(&known)?;
    let progress = Progress::spinner(None, "measuring the compiler's own choices");
    let mut search = Search::new(&model, data.inputs(), options, backend, args.code.workers())?;
    let length = Duration::from_secs_f64(args.seconds);
    search.run(known, length, &mut |tuned| {
        progress.say("measuring others");
        write(tuned)
    })?;
    progress.say("comparing");
    let outcome = search.settle(length)?;
    write(search.tuned())?;
    progress.finish();
    let out = Output::stdout();
    for (workload, measured) in search.found() {
        let choice = measured.choice.as_deref().unwrap_or_default();
        out.line(&format!("{:>4}%  {}: {choice}", measured.percent, workload.what));
    }
    match outcome {
        Some(outcome) => out.line(&outcome.to_string()),
        None => out.line("nothing is faster than what the compiler chooses"),
    }
    out.line(&args.output.display().to_string());
    Ok(())
}
