//! `niello opt`: passes run on a model, and the module printed.

use std::path::PathBuf;

use super::code::CodeArgs;
use super::output::{Output, write_file};
use super::{Failure, read_model};
use crate::compile::{self, Passes};
use crate::diagnostics::{Problem, Report};
use crate::graph::{PrintOptions, print_with_sidecar};
use crate::ir::IRModule;
use crate::pass::{Pass, PassContext, PassError, PipelineText};

/// Run passes on a model and print the module.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    /// Passes to run, such as "fold-constant,fuse-ops{max_depth=10}" [default: the pipeline of the
    /// level]
    #[arg(long, value_name = "PASSES")]
    passes: Option<String>,
    #[command(flatten)]
    code: CodeArgs,
    /// Write the text to a file, and large constants to a sidecar beside it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the type of each value
    #[arg(long)]
    types: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let options = args.code.options()?;
    let model = read_model(&args.model)?;
    let imported = model.import(&options)?;
    let passes = Passes::new(&options)?;
    let module = match &args.passes {
        None => passes.run(imported.module)?,
        Some(text) => passes
            .context
            .scope(|cx| run_passes(text, imported.module, cx))
            .map_err(Report::from)?,
    };
    let print = PrintOptions { types: args.types, ..PrintOptions::default() };
    let (text, sidecar) = print_with_sidecar(&module, &print);
    let Some(path) = &args.output else {
        Output::stdout().text(&text);
        return Ok(());
    };
    if !sidecar.is_empty() {
        let mut bytes = Vec::new();
        sidecar
            .write_to(&mut bytes)
            .map_err(|error| Problem::new(format!("cannot write the sidecar: {error}")))?;
        write_file(&compile::sidecar_path(path), &bytes)?;
    }
    Ok(write_file(path, text.as_bytes())?)
}

/// Runs the passes of a text such as `module(function(fold-constant),FuseOps)`.
fn run_passes(text: &str, module: IRModule, cx: &PassContext) -> Result<IRModule, PassError> {
    PipelineText::parse(text)?.build(cx.registry())?.run(module, cx)
}
