//! `niello quantize`: a model made smaller, and faster, by numbers of fewer bits.

use std::fs;
use std::path::PathBuf;

use clap::ArgAction;

use super::Failure;
use super::code::NATIVE;
use super::output::Output;
use super::progress::Progress;
use crate::compile::Model;
use crate::diagnostics::Problem;
use crate::files::write_file;
use crate::onnx::quantize::{Calibration, Method};
use crate::options::CompileOptions;
use crate::samples::quantize::Quantization;
use crate::target::Target;

/// Make a model of smaller numbers: integers or float16.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, in floats
    model: PathBuf,
    /// What the model's numbers become
    #[arg(long, value_enum, default_value_t = Method::default())]
    method: Method,
    /// Sample inputs: files as `niello run` takes them, each with all inputs of one run, or folders
    /// of them; may be given more than once. `static` needs them; of other methods they show the error
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    data: Vec<PathBuf>,
    /// Which part of an activation's numbers its bytes cover, with `static` [default: minmax]
    #[arg(long, value_enum)]
    calibration: Option<CalibrationName>,
    /// How many of a hundred numbers are covered, with the calibration `percentile`
    /// [default: 99.99]
    #[arg(long, value_name = "P", value_parser = parse_percentile)]
    percentile: Option<f64>,
    /// Cover the same range of activations on both sides of 0, with `static`
    #[arg(long)]
    symmetric: bool,
    /// Node or operator that stays as it is; may be given more than once
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    skip: Vec<String>,
    /// File for the quantised model
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// A calibration, as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum CalibrationName {
    /// All of them
    Minmax,
    /// All but the rarest at both ends
    Percentile,
    /// The part whose distribution, in bytes, is nearest to the whole one's
    Entropy,
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("a percentile is a number above 0 and at most 100".to_owned()),
    }
}

impl Args {
    /// What the arguments ask for.
    ///
    /// # Errors
    ///
    /// Some of them have no effect together.
    fn quantization(&self) -> Result<Quantization, Problem> {
        let is_static = self.method == Method::Static;
        if !is_static && (self.calibration.is_some() || self.percentile.is_some() || self.symmetric)
        {
            return Err(Problem::new(format!(
                "the method `{}` takes no ranges from samples",
                self.method.name()
            ))
            .help("leave out --calibration, --percentile and --symmetric, or take `static`"));
        }
        let calibration = match (self.calibration, self.percentile) {
            (None | Some(CalibrationName::Percentile), Some(percent)) => {
                Calibration::Percentile(percent)
            }
            (Some(_), Some(_)) => {
                return Err(Problem::new(
                    "--percentile is for --calibration percentile, and another one is given",
                ));
            }
            (Some(CalibrationName::Percentile), None) => {
                Calibration::Percentile(Calibration::PERCENTILE)
            }
            (Some(CalibrationName::Entropy), None) => Calibration::Entropy,
            (Some(CalibrationName::Minmax) | None, None) => Calibration::MinMax,
        };
        if is_static && self.data.is_empty() {
            return Err(Problem::new("the method `static` takes ranges from sample inputs")
                .help("name their files: --data PATH; or take --method dynamic"));
        }
        let quantization =
            Quantization::new(self.method).calibration(calibration).symmetric(self.symmetric);
        let quantization = self.data.iter().fold(quantization, |all, path| all.samples(path));
        Ok(self.skip.iter().fold(quantization, |all, name| all.skip(name)))
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let quantization = args.quantization()?;
    let model = Model::read(&args.model)?;
    let Some(file) = model.as_onnx() else {
        let message = format!("{}: only ONNX models are quantised", args.model.display());
        return Err(Problem::new(message).into());
    };
    let progress = Progress::spinner(None, "quantising");
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu(NATIVE).map_err(|error| Problem::new(error.to_string()))?;
    let outcome = quantization.run(file.clone(), &options)?;
    progress.say("comparing");
    let errors = outcome.errors(&options)?;
    progress.finish();
    let bytes = outcome.file().proto.to_bytes();
    write_file(&args.output, bytes.as_slice())?;
    let out = Output::stdout();
    out.text(&errors);
    outcome.remarks().iter().for_each(|remark| out.line(remark));
    let beside = outcome.external_files().iter();
    let before: u64 = std::iter::once(&args.model)
        .chain(beside)
        .map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()))
        .sum();
    out.line(&format!("file: {before} bytes before, {} after", bytes.len()));
    out.line(&args.output.display().to_string());
    Ok(())
}
