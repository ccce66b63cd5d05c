//! `niello opt`: passes run on a model, and the module printed.

mod bisect;
mod errors;
mod panics;
mod reproduce;
mod watch;

use std::path::{Path, PathBuf};

use clap::ArgAction;

use super::Failure;
use super::code::CodeArgs;
use super::output::Output;
use crate::compile::{self, Model, Passes};
use crate::diagnostics::{Diagnostic, Problem};
use crate::files::write_file;
use crate::graph::{self, PrintOptions, print_with_sidecar, verify_module};
use crate::ir::IRModule;
use crate::options::CompileOptions;
use crate::pass::{Pass, PassContextBuilder, PassError, PipelineText, Registry, Sequential};
use crate::target::{Target, TargetError};
use crate::transform::pipeline::{PipelineExtensions, pipeline};
use errors::{ErrorFormat, Teller};
use watch::WatchArgs;

/// Run passes on a model and print the module.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    #[arg(required_unless_present = "run_reproducer")]
    model: Option<PathBuf>,
    /// Passes to run, such as "fold-constant,fuse-ops{max_depth=10}" [default: the pipeline of the
    /// level]
    #[arg(long, value_name = "PASSES")]
    passes: Option<String>,
    #[command(flatten)]
    code: CodeArgs,
    /// Machine that passes on loops assume, instead of this one: an architecture and, behind a
    /// space, its CPU, such as "x86_64 x86-64-v3" or "aarch64" [default: this architecture and
    /// `--target-cpu`]
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["target_cpu", "run_reproducer"],
          value_parser = machine)]
    target: Option<Box<Target>>,
    /// Pass that must run whatever its level; may be given more than once
    #[arg(long, value_name = "PASS", action = ArgAction::Append)]
    require_pass: Vec<String>,
    /// Write the text to a file, and large constants to a sidecar beside it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the module, too: a file of Graphviz (.dot)
    #[arg(long, value_name = "FILE", conflicts_with = "run_reproducer")]
    graph: Option<PathBuf>,
    /// Draw the module as it is before the passes
    #[arg(long, value_name = "FILE", conflicts_with = "run_reproducer")]
    graph_before: Option<PathBuf>,
    /// Print the type of each value
    #[arg(long)]
    types: bool,
    /// Print what would run, in order, and run nothing
    #[arg(long)]
    print_pipeline: bool,
    /// How to tell what is wrong
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    error_format: ErrorFormat,
    #[command(flatten)]
    watch: WatchArgs,
    /// Repeat the failure that `--reproducer` has written to a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "passes", "bisect"])]
    run_reproducer: Option<PathBuf>,
    /// Find the first pass whose result a program does not like: it is called with the path of the
    /// module, and likes it if its exit status is 0
    #[arg(long, value_name = "PROGRAM", conflicts_with = "opt_bisect_limit")]
    bisect: Option<PathBuf>,
}

fn machine(text: &str) -> Result<Box<Target>, TargetError> {
    Target::of_machine(text).map(Box::new)
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let path = args.run_reproducer.as_ref().or(args.model.as_ref());
    let path = path.expect("the parser of arguments asks for one of the two");
    let mut teller = Teller::new(args.error_format, path);
    panics::listen();
    let result = match &args.run_reproducer {
        Some(path) => {
            let watch = args.watch.instruments("");
            watch.and_then(|watch| reproduce::run(path, &watch, &mut teller))
        }
        None => run_on_model(args, path, &mut teller),
    };
    match result {
        Err(Failure::Report(report)) => Err(teller.fail_with(&report)),
        other => other,
    }
}

fn run_on_model(args: &Args, path: &Path, teller: &mut Teller) -> Result<(), Failure> {
    let options = args.code.options()?;
    let list = args.list()?;
    let watch = args.watch.instruments(&text_of(&list))?;
    let context = || args.context(&options);
    if args.print_pipeline {
        let cx = context().build()?;
        Output::stdout().text(&list.plan(&cx)?.to_string());
        return Ok(());
    }
    let module = read(path, &options, teller)?;
    if let Some(path) = &args.graph_before {
        write_file(path, graph::dot(&module).as_bytes())?;
    }
    if let Some(command) = &args.bisect {
        let passes =
            |builder: PassContextBuilder| builder.build()?.scope(|cx| list.run(module.clone(), cx));
        return bisect::run(command, &context, &passes);
    }
    let builder = watch
        .instruments
        .iter()
        .fold(context(), |builder, instrument| builder.shared_instrument(instrument.clone()));
    let cx = builder.build()?;
    let result = cx.scope(|cx| list.run(module, cx));
    // Of a failed run too: how far it came is what one wants to know.
    watch.finish()?;
    // What a failure is about is told with it.
    let quiet = |diagnostic: &Diagnostic| !diagnostic.level.is_failure();
    let said: Vec<Diagnostic> = match &result {
        Ok(_) => cx.diagnostics(),
        Err(_) => cx.diagnostics().into_iter().filter(quiet).collect(),
    };
    teller.tell(&said);
    let module = result.map_err(|error| teller.fail(&Teller::of_failure(&error)))?;
    if let Some(path) = &args.graph {
        write_file(path, graph::dot(&module).as_bytes())?;
    }
    let print = PrintOptions { types: args.types, ..PrintOptions::default() };
    match &args.output {
        Some(path) => write_module(&module, &print, path),
        None => {
            Output::stdout().text(&print_with_sidecar(&module, &print).0);
            Ok(())
        }
    }
}

impl Args {
    /// What is to run.
    fn list(&self) -> Result<Sequential, PassError> {
        match &self.passes {
            Some(text) => PipelineText::parse(text)?.build(&Registry::global()),
            None => pipeline(&PipelineExtensions::new()),
        }
    }

    /// The context, without instruments.
    fn context(&self, options: &CompileOptions) -> PassContextBuilder {
        let mut builder =
            Passes::context(options).remarks(self.watch.stats).verify_each(self.watch.verify_each);
        for pass in &self.require_pass {
            builder = builder.require_pass(pass);
        }
        if let Some(target) = &self.target {
            builder = builder.target((**target).clone());
        }
        builder
    }
}

/// A list as a textual pipeline.
fn text_of(list: &Sequential) -> String {
    list.passes().iter().map(|pass| pass.info().text()).collect::<Vec<_>>().join(",")
}

/// The module of a model. What is wrong with a text is told with its lines.
fn read(path: &Path, options: &CompileOptions, teller: &mut Teller) -> Result<IRModule, Failure> {
    let Some((text, sidecar)) = compile::read_text(path)? else {
        return Ok(Model::read(path)?.import(options)?.module);
    };
    teller.set_text(text.clone());
    let module = graph::parse_module_with(&text, &sidecar)
        .map_err(|errors| teller.fail(&errors.diagnostics()))?;
    if let Err(errors) = verify_module(&module) {
        // The lines to show are those of the file, not those that would be printed.
        let of_file = |diagnostic: Diagnostic| Diagnostic { excerpt: None, ..diagnostic };
        let found: Vec<Diagnostic> =
            errors.diagnostics_in(&text).into_iter().map(of_file).collect();
        return Err(teller.fail(&found));
    }
    Ok(module)
}

/// Writes a module to a file, and large constants to a sidecar beside it.
fn write_module(module: &IRModule, print: &PrintOptions, path: &Path) -> Result<(), Failure> {
    let (text, sidecar) = print_with_sidecar(module, print);
    if !sidecar.is_empty() {
        let mut bytes = Vec::new();
        sidecar
            .write_to(&mut bytes)
            .map_err(|error| Problem::new(format!("cannot write the sidecar: {error}")))?;
        write_file(&compile::sidecar_path(path), bytes)?;
    }
    Ok(write_file(path, text.as_bytes())?)
}
