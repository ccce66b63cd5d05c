//! `niello run`: a model run once on inputs from files.

mod describe;
mod outputs;

use std::path::{Path, PathBuf};

use clap::{ArgAction, ValueEnum};
use serde_json::json;

use super::Failure;
use super::code::{self, CodeArgs, Engine};
use super::compile::shared_name;
use super::output::{Output, write_json};
use super::progress::Progress;
use crate::compile::Model;
use crate::diagnostics::Problem;
use crate::executor::{GraphModule, TensorInfo};
use crate::graph::interp::Tolerance;
use crate::ir::Constant;
use crate::samples::formats;
use crate::samples::inputs::{self, Port, ports};
use crate::samples::runner::Runner;
use crate::target::Target;

/// Run a model on inputs from files.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, the text of a module, or a `.graph.json` that `niello compile` wrote beside
    /// a shared library
    model: PathBuf,
    /// Inputs in the model's order: files of one tensor each (.npy, .pb), or archives whose names
    /// are the inputs' (.npz)
    #[arg(value_name = "INPUTS")]
    inputs: Vec<PathBuf>,
    /// An input by its name; may be given more than once
    #[arg(long = "input", value_name = "NAME=FILE", action = ArgAction::Append)]
    named: Vec<String>,
    /// File for the outputs: .npz for all, .npy or .pb for one in the model's order or by its
    /// name; may be given more than once [default: a summary is printed]
    #[arg(short, long, value_name = "[NAME=]FILE", action = ArgAction::Append)]
    output: Vec<String>,
    /// What runs the model
    #[arg(long, value_enum, default_value_t = Engine::C)]
    backend: Engine,
    #[command(flatten)]
    code: CodeArgs,
    /// Run kernel by kernel, and name the first whose values are not those of the reference
    /// interpreter
    #[arg(long, value_enum, value_name = "ENGINE")]
    compare_with: Option<Reference>,
    /// How far from the expected value a compared one may be, relative to it [default: by the type,
    /// as in `niello bench`]
    #[arg(long, value_name = "R", value_parser = parse_tolerance, requires = "compare_with")]
    rtol: Option<f64>,
    /// How far in any case [default: by the largest value of the tensor, as in `niello bench`]
    #[arg(long, value_name = "A", value_parser = parse_tolerance, requires = "compare_with")]
    atol: Option<f64>,
    /// Run kernel by kernel, and write what each call computes to an archive (.npz)
    #[arg(long, value_name = "FILE", value_parser = parse_archive, conflicts_with = "compare_with")]
    values: Option<PathBuf>,
    /// Write a summary of the outputs to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What values of compiled code are compared with.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reference {
    /// The reference interpreter
    Interp,
}

fn parse_archive(text: &str) -> Result<PathBuf, String> {
    match text.ends_with(".npz") {
        true => Ok(PathBuf::from(text)),
        false => Err("values are written to an archive, whose name ends in .npz".to_owned()),
    }
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    match number >= 0.0 {
        true => Ok(number),
        false => Err(format!("{text} is less than 0")),
    }
}

/// What the outputs of a run are, and what is said of it.
struct Ran {
    /// The model's name.
    model: String,
    targets: Vec<outputs::Target>,
    outputs: Vec<(String, Constant)>,
    /// How many calls agree with the interpreter, if they were compared.
    compared: Option<usize>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let ran = match args.model.to_str().and_then(|model| model.strip_suffix(".graph.json")) {
        Some(stem) => run_graph(args, Path::new(stem))?,
        None => run_model(args)?,
    };
    let named: Vec<(&str, &Constant)> =
        ran.outputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let out = Output::beside(args.json.as_deref());
    if let Some(compared) = ran.compared {
        out.line(&format!("{compared} calls of kernels agree with the interpreter"));
    }
    if let Some(path) = &args.json {
        let outputs: Vec<_> =
            named.iter().map(|(name, value)| describe::json(name, value)).collect();
        let mut summary = json!({"model": ran.model, "outputs": outputs});
        if let Some(compared) = ran.compared {
            summary["compared_calls"] = compared.into();
        }
        write_json(path, &summary)?;
    }
    if ran.targets.is_empty() {
        named.iter().for_each(|(name, value)| out.text(&describe::text(name, value)));
        return Ok(());
    }
    for path in outputs::write(&ran.targets, &named)? {
        out.line(&path.display().to_string());
    }
    Ok(())
}

/// Runs a graph that was written beside a shared library of the same name.
fn run_graph(args: &Args, stem: &Path) -> Result<Ran, Failure> {
    if args.compare_with.is_some() {
        let message = "--compare-with: a graph of kernels says nothing of their operators";
        return Err(Problem::new(message)
            .help("compare the model that it was compiled from")
            .into());
    }
    let name = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let library = stem.with_file_name(shared_name(&name, &Target::host())?);
    let module = GraphModule::load(&args.model, &library)?;
    let port = |info: &TensorInfo| Port { name: info.name.clone(), dtype: Some(info.dtype) };
    let input_ports: Vec<Port> = module.inputs().iter().map(port).collect();
    let output_ports: Vec<Port> = module.outputs().iter().map(port).collect();
    let targets = outputs::targets(&args.output, &output_ports)?;
    let inputs = inputs::read(&args.inputs, Some(&args.named), &input_ports)?;
    if let Some(path) = &args.values {
        let values = module.values(&inputs)?;
        let named: Vec<(&str, &Constant)> =
            values.iter().map(|(name, value)| (name.as_str(), value)).collect();
        formats::write(path, &named)?;
    }
    let names = output_ports.into_iter().map(|port| port.name);
    let outputs = names.zip(module.run(&inputs)?).collect();
    Ok(Ran { model: name, targets, outputs, compared: None })
}

/// Compiles a model and runs it.
fn run_model(args: &Args) -> Result<Ran, Failure> {
    let mut options = args.code.options()?;
    code::beyond_machine(args.backend, &options)?;
    options.single_calls = args.compare_with.is_some() || args.values.is_some();
    if options.single_calls && args.backend.backend()?.is_none() {
        let what = match args.compare_with {
            Some(Reference::Interp) => "the interpreter is not compared with itself",
            None => "--values: the interpreter runs no kernels",
        };
        return Err(Problem::new(what)
            .help("leave out --backend, or name a code generator")
            .into());
    }
    let model = Model::read(&args.model)?;
    let (mut input_ports, output_ports) = ports(&model, &options)?;
    input_ports.retain(|port| !options.input_values.contains_key(&port.name));
    // Everything that can be wrong with files is told before the model is compiled, unless the tensors
    // of a sequence are yet to be counted.
    if output_ports.iter().all(|port| port.dtype.is_some()) {
        outputs::targets(&args.output, &output_ports)?;
    }
    let inputs = inputs::read(&args.inputs, Some(&args.named), &input_ports)?;
    let progress = Progress::spinner(args.json.as_deref(), "compiling");
    let runner =
        Runner::new(args.backend.backend()?, &model, &inputs, &options, args.code.workers())?;
    let port = |name: &String| Port { name: name.clone(), dtype: None };
    let tensors: Vec<Port> = runner.output_names().iter().map(port).collect();
    outputs::refuse_sequences(&args.output, &output_ports, &tensors)?;
    let targets = outputs::targets(&args.output, &tensors)?;
    progress.say("running");
    let (values, compared) = match args.compare_with {
        None => match &args.values {
            None => (runner.run(&inputs)?, None),
            Some(path) => {
                let mut run = runner.by_calls(&inputs)?;
                let values = run.values()?;
                let named: Vec<(&str, &Constant)> =
                    values.iter().map(|(name, value)| (name.as_str(), value)).collect();
                formats::write(path, &named)?;
                (run.finish()?, None)
            }
        },
        Some(Reference::Interp) => {
            let tolerance = |expected: &Constant| {
                let near = Tolerance::near(expected);
                let [rtol, atol] = [(args.rtol, near.rtol), (args.atol, near.atol)]
                    .map(|(given, default)| given.unwrap_or(default));
                Tolerance { rtol, atol }
            };
            let (values, compared) = runner.compare(&model, &inputs, tolerance)?;
            (values, Some(compared))
        }
    };
    progress.finish();
    let outputs = runner.output_names().iter().cloned().zip(values).collect();
    Ok(Ran { model: model.stem.clone(), targets, outputs, compared })
}
