//! `niello inspect`: what a model consists of, what it takes to run it, and what stands in the way.

mod facts;
mod passes;
mod text;

use std::path::PathBuf;

use super::code::CodeArgs;
use super::output::{Output, write_json};
use super::{Failure, title};
use crate::compile::Model;
use facts::Facts;

/// Show what a model consists of.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    #[command(flatten)]
    code: CodeArgs,
    /// Also show what each pass of the pipeline did, at the level of `-O`
    #[arg(long)]
    passes: bool,
    /// Write the same to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let options = args.code.options()?;
    let model = Model::read(&args.model)?;
    let facts = Facts::of(title(&args.model, &model), &model, &options, args.passes);
    if let Some(path) = &args.json {
        write_json(path, &facts)?;
    }
    Output::beside(args.json.as_deref()).text(&text::of(&facts));
    if facts.problems.is_empty() {
        return Ok(());
    }
    for problem in &facts.problems {
        Output::error(&format!("error: {problem}"));
    }
    Err(Failure::Told)
}
