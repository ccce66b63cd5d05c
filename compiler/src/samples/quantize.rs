//! Quantisation of a model by what it computes of samples, and what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::formats::Format;
use super::inputs::inputs_of;
use super::runner::{Runner, open_names};
use crate::compile::Model;
use crate::diagnostics::{Problem, Report};
use crate::ir::Constant;
use crate::onnx::ModelFile;
use crate::onnx::quantize::{
    Affine, Calibration, Histogram, Method, Quantized, Quantizer, Range, Site, with_outputs,
};
use crate::options::CompileOptions;

/// How a model is quantised.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Quantization {
    method: Method,
    samples: Vec<PathBuf>,
    calibration: Calibration,
    symmetric: bool,
    skip: Vec<String>,
}

impl Quantization {
    /// Everything that the method applies to, with activations in the range that samples have.
    pub fn new(method: Method) -> Quantization {
        Quantization { method, ..Quantization::default() }
    }

    /// Sample inputs: a file with all inputs of one run (`.npz`; `.npy` or `.pb` if there is one), or
    /// a folder of such files. More may be added.
    #[must_use]
    pub fn samples(mut self, path: impl Into<PathBuf>) -> Quantization {
        self.samples.push(path.into());
        self
    }

    /// Which part of an activation's numbers static quantisation covers; all, unless given.
    #[must_use]
    pub fn calibration(mut self, calibration: Calibration) -> Quantization {
        self.calibration = calibration;
        self
    }

    /// Whether static quantisation covers the same range of activations on both sides of 0; it does
    /// not, unless given.
    #[must_use]
    pub fn symmetric(mut self, symmetric: bool) -> Quantization {
        self.symmetric = symmetric;
        self
    }

    /// Leaves a node as it is, or all nodes of an operator. More may be added.
    #[must_use]
    pub fn skip(mut self, name: impl Into<String>) -> Quantization {
        self.skip.push(name.into());
        self
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The files and folders of samples, as given.
    pub fn sample_paths(&self) -> &[PathBuf] {
        &self.samples
    }

    /// The files of samples, those of a folder in the order of their names.
    ///
    /// # Errors
    ///
    /// A file or a folder cannot be read, or a folder has none.
    pub fn sample_files(&self) -> Result<Vec<PathBuf>, Problem> {
        let mut files = Vec::new();
        for path in &self.samples {
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

    /// Quantises a model. Static quantisation runs it on each sample, as native code with these
    /// options, twice if rare numbers are left out.
    ///
    /// # Errors
    ///
    /// Those of [`Quantizer`]; samples cannot be read or are missing, the percentile is none, the
    /// model cannot be compiled or fails, or it computes what is no finite number.
    pub fn run(&self, file: ModelFile, options: &CompileOptions) -> Result<Outcome, Report> {
        if let Calibration::Percentile(percent) = self.calibration
            && !(percent > 0.0 && percent <= 100.0)
        {
            let message =
                format!("the percentile is {percent}, but must be above 0 and at most 100");
            return Err(Problem::new(message).into());
        }
        let quantizer = Quantizer::new(file, self.method, &self.skip, &options.external_folders)?;
        let samples = self.sample_files()?;
        let scales = match self.method {
            Method::Static if samples.is_empty() => {
                let message = "static quantisation takes the ranges of activations from sample \
                               inputs, and none are given";
                return Err(Problem::new(message)
                    .help("name files of inputs, or quantise by the method `dynamic`")
                    .into());
            }
            Method::Static => self.scales(&quantizer, &samples, options)?,
            Method::Dynamic | Method::Weights8 | Method::Weights4 | Method::Float16 => {
                BTreeMap::new()
            }
        };
        let quantized = quantizer.quantized(&scales)?;
        Ok(Outcome { quantizer, quantized, samples })
    }

    /// The scale of each activation.
    fn scales(
        &self,
        quantizer: &Quantizer,
        samples: &[PathBuf],
        options: &CompileOptions,
    ) -> Result<BTreeMap<String, Affine>, Report> {
        let activations = quantizer.activations();
        let mut float = Sampler::new(quantizer.float_model(), &activations, options);
        let mut ranges: BTreeMap<String, Range> = BTreeMap::new();
        for sample in samples {
            for (name, value) in float.values(sample)? {
                if !activations.contains(name.as_str()) {
                    continue;
                }
                let range = ranges.entry(name.clone()).or_insert(Range::ZERO);
                let covered = value.to_f64_vec().and_then(|values| range.cover(&values));
                *range = covered.ok_or_else(|| {
                    let sample = sample.display();
                    Problem::new(format!(
                        "{sample}: `{name}` has elements that are no finite numbers"
                    ))
                })?;
            }
        }
        if self.calibration != Calibration::MinMax {
            let mut histograms: BTreeMap<String, Histogram> =
                ranges.iter().map(|(name, range)| (name.clone(), Histogram::new(*range))).collect();
            for sample in samples {
                for (name, value) in float.values(sample)? {
                    if let (Some(histogram), Some(values)) =
                        (histograms.get_mut(&name), value.to_f64_vec())
                    {
                        histogram.add(&values);
                    }
                }
            }
            for (name, histogram) in histograms {
                ranges.insert(name, histogram.range(self.calibration, self.symmetric));
            }
        }
        let scale = |range: Range| match self.symmetric {
            true => range.symmetric(),
            false => range.asymmetric(),
        };
        Ok(ranges.into_iter().map(|(name, range)| (name, scale(range))).collect())
    }
}

/// A model before and after quantisation.
#[derive(Clone, Debug)]
pub struct Outcome {
    quantizer: Quantizer,
    quantized: Quantized,
    samples: Vec<PathBuf>,
}

impl Outcome {
    /// The quantised model, without the files that the float model had beside it.
    pub fn file(&self) -> &ModelFile {
        &self.quantized.file
    }

    /// What people should know of it, a sentence each.
    pub fn remarks(&self) -> &[String] {
        &self.quantized.remarks
    }

    /// The files beside the float model that its constants were in.
    pub fn external_files(&self) -> &[PathBuf] {
        self.quantizer.external_files()
    }

    /// The error of each quantised operator's result and of the outputs on the samples, as a table;
    /// empty without samples.
    ///
    /// # Errors
    ///
    /// One of the models cannot be compiled or fails.
    pub fn errors(&self, options: &CompileOptions) -> Result<String, Report> {
        if self.samples.is_empty() {
            return Ok(String::new());
        }
        let (sites, quantized) = (self.quantizer.sites(), &self.quantized);
        let values = sites.iter().map(|site| site.output.as_str()).collect();
        let float_model = self.quantizer.float_model();
        let renamed = sites.iter().map(|site| quantized.name_of(&site.output)).collect();
        let mut float = Sampler::new(float_model, &values, options);
        let mut small = Sampler::new(&quantized.file, &renamed, options);
        let mut errors: BTreeMap<String, Error> = BTreeMap::new();
        for sample in &self.samples {
            let found = small.values(sample)?;
            for (name, expected) in float.values(sample)? {
                let found = found.get(quantized.name_of(&name)).or_else(|| found.get(&name));
                let found = found.and_then(Constant::to_f64_vec);
                if let (Some(expected), Some(found)) = (expected.to_f64_vec(), found) {
                    errors.entry(name).or_default().add(&expected, &found);
                }
            }
        }
        let text = |name: &str| errors.get(name).copied().unwrap_or_default().text();
        let width = |of: fn(&Site) -> &str| {
            sites.iter().map(|site| of(site).chars().count()).max().unwrap_or_default()
        };
        let (names, ops) = (width(|site| &site.name), width(|site| &site.op));
        let rows = sites.iter().map(|site| {
            format!("{:names$}  {:ops$}  {}\n", site.name, site.op, text(&site.output))
        });
        let outputs = float_model.proto.graph.iter().flat_map(|graph| &graph.output);
        let outputs =
            outputs.map(|port| format!("output `{0}`: {1}\n", port.name(), text(port.name())));
        Ok(rows.chain(outputs).collect())
    }
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
        let inputs = inputs_of(&self.model, self.options, sample)?;
        let ready = self.ready.take().filter(|(runner, former)| runner.serves(former, &inputs));
        let runner = match ready {
            Some((runner, _)) => runner,
            None => {
                let backend = Some(self.options.backend);
                Runner::new(backend, &self.model, &inputs, self.options, 1)?
            }
        };
        let outputs = runner.run(&inputs)?;
        let names = open_names(&self.model, self.options)?;
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
