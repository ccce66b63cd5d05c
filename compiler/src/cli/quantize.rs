//! `niello quantize`: a model made smaller and faster, by integers of 8 bits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgAction;

use super::code::{Engine, NATIVE};
use super::formats::Format;
use super::output::{Output, write_file};
use super::progress::Progress;
use super::runner::Runner;
use super::{Failure, run};
use crate::compile::Model;
use crate::diagnostics::{Problem, Report};
use crate::ir::Constant;
use crate::onnx::ModelFile;
use crate::onnx::quantize::{Quantizer, Range, with_outputs};
use crate::options::CompileOptions;
use crate::target::Target;

/// Quantise a model, with ranges from sample inputs.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, in floats
    model: PathBuf,
    /// Sample inputs: files as `niello run` takes them, each with all inputs of one run, or folders
    /// of them; may be given more than once
    #[arg(long, value_name = "PATH", action = ArgAction::Append, required = true)]
    data: Vec<PathBuf>,
    /// Node or operator that stays as it is; may be given more than once
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    skip: Vec<String>,
    /// File for the quantised model
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let model = Model::read(&args.model)?;
    let Some(file) = model.as_onnx() else {
        let message = format!("{}: only ONNX models are quantised", args.model.display());
        return Err(Problem::new(message).into());
    };
    let quantizer = Quantizer::new(file.clone(), &args.skip)?;
    let samples = samples(&args.data)?;
    let progress = Progress::spinner(None, "calibrating");
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu(NATIVE).map_err(|error| Problem::new(error.to_string()))?;
    let mut float = Sampler::new(quantizer.float_model(), &quantizer.activations(), &options);
    let mut ranges: BTreeMap<String, Range> = BTreeMap::new();
    let activations = quantizer.activations();
    for sample in &samples {
        for (name, value) in float.values(sample)? {
            if !activations.contains(name.as_str()) {
                continue;
            }
            let range = ranges.entry(name.clone()).or_insert(Range::ZERO);
            let covered = value.to_f64_vec().and_then(|values| range.cover(&values));
            *range = covered.ok_or_else(|| {
                let sample = sample.display();
                Problem::new(format!("{sample}: `{name}` has elements that are no finite numbers"))
            })?;
        }
    }
    let quantized = quantizer.quantized(&ranges)?;
    progress.say("comparing");
    let report = errors(&quantizer, &quantized, &samples, &options)?;
    progress.finish();
    let bytes = quantized.proto.to_bytes();
    write_file(&args.output, bytes.as_slice())?;
    let out = Output::stdout();
    out.text(&report);
    let before = fs::metadata(&args.model).map_or(0, |metadata| metadata.len());
    out.line(&format!("file: {before} bytes before, {} after", bytes.len()));
    out.line(&args.output.display().to_string());
    Ok(())
}

/// The files of samples, those of a folder in the order of their names.
fn samples(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Problem> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| {
            Problem::new(format!("cannot read samples from {}: {error}", path.display()))
        };
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(failed)?;
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        found.retain(|path| Format::of(path).is_ok());
        found.sort();
        if found.is_empty() {
            let message = format!("{}: the folder has no samples", path.display());
            return Err(Problem::new(message).help("samples are files .npz, .npy or .pb"));
        }
        files.append(&mut found);
    }
    Ok(files)
}

/// A model that is run on samples, with values of it as outputs.
struct Sampler<'a> {
    model: Model,
    options: &'a CompileOptions,
    /// What was compiled for the inputs of the last sample.
    ready: Option<(Runner, Vec<Constant>)>,
}

impl Sampler<'_> {
    fn new<'a>(
        file: &ModelFile,
        values: &BTreeSet<&str>,
        options: &'a CompileOptions,
    ) -> Sampler<'a> {
        let model = Model::from_onnx("samples", with_outputs(file, values));
        Sampler { model, options, ready: None }
    }

    /// Inputs and outputs for a sample, by name.
    fn values(&mut self, sample: &Path) -> Result<BTreeMap<String, Constant>, Report> {
        let inputs = run::inputs_of(&self.model, self.options, sample)?;
        let ready = self.ready.take().filter(|(runner, former)| runner.serves(former, &inputs));
        let runner = match ready {
            Some((runner, _)) => runner,
            None => Runner::new(Engine::C, &self.model, &inputs, self.options, 1)?,
        };
        let outputs = runner.run(&inputs)?;
        let names = self.model.input_names()?;
        let mut values: BTreeMap<String, Constant> =
            names.into_iter().zip(inputs.iter().cloned()).collect();
        values.extend(runner.output_names().iter().cloned().zip(outputs));
        self.ready = Some((runner, inputs));
        Ok(values)
    }
}

/// Sums of squares of a value, and of what differs from it.
#[derive(Clone, Copy, Default)]
struct Error {
    signal: f64,
    noise: f64,
}

impl Error {
    fn add(&mut self, expected: &[f64], found: &[f64]) {
        self.signal += expected.iter().map(|value| value * value).sum::<f64>();
        let pairs = expected.iter().zip(found);
        self.noise += pairs.map(|(expected, found)| (expected - found).powi(2)).sum::<f64>();
    }

    /// Ratio of signal to noise in decibels, and error relative to the signal's root mean square.
    fn text(self) -> String {
        if self.noise == 0.0 {
            return "exact".to_owned();
        }
        let ratio = self.signal / self.noise;
        format!("{:.1} dB, {:.3} %", 10.0 * ratio.log10(), 100.0 / ratio.sqrt())
    }
}

/// The error of each quantised operator's result and of the outputs, as a table.
fn errors(
    quantizer: &Quantizer,
    quantized: &ModelFile,
    samples: &[PathBuf],
    options: &CompileOptions,
) -> Result<String, Report> {
    let values = quantizer.sites().iter().map(|site| site.output.as_str()).collect();
    let mut float = Sampler::new(quantizer.float_model(), &values, options);
    let mut integer = Sampler::new(quantized, &values, options);
    let mut errors: BTreeMap<String, Error> = BTreeMap::new();
    for sample in samples {
        let found = integer.values(sample)?;
        for (name, expected) in float.values(sample)? {
            let found = found.get(&name).and_then(Constant::to_f64_vec);
            if let (Some(expected), Some(found)) = (expected.to_f64_vec(), found) {
                errors.entry(name).or_default().add(&expected, &found);
            }
        }
    }
    let text = |name: &str| errors.get(name).copied().unwrap_or_default().text();
    let width = quantizer.sites().iter().map(|site| site.name.chars().count()).max();
    let width = width.unwrap_or_default();
    let rows = quantizer
        .sites()
        .iter()
        .map(|site| format!("{:width$}  {:6}  {}\n", site.name, site.op, text(&site.output)));
    let graph = quantizer.float_model().proto.graph.iter();
    let outputs = graph.flat_map(|graph| &graph.output);
    let outputs =
        outputs.map(|port| format!("output `{0}`: {1}\n", port.name(), text(port.name())));
    Ok(rows.chain(outputs).collect())
}
