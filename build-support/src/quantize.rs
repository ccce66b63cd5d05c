//! Quantisation on the way from the model's file to the compiler.

use std::path::PathBuf;

use niello::compile::Model;
use niello::diagnostics::{Problem, Report};
use niello::options::CompileOptions;
use niello::samples::quantize::Quantization;
use niello::target::Target;

/// The quantised model, and the files beside the float model that its constants were in.
///
/// # Errors
///
/// The model is no ONNX, or one of [`Quantization::run`].
pub(crate) fn quantised(
    model: Model,
    how: &Quantization,
    options: &CompileOptions,
) -> Result<(Model, Vec<PathBuf>), Report> {
    let Some(file) = model.as_onnx() else {
        return Err(Problem::new("only ONNX models are quantised, and this is a text").into());
    };
    let outcome = how.run(file.clone(), &on_this_machine(options)?)?;
    let external = outcome.external_files().to_vec();
    Ok((Model::from_onnx(model.stem, outcome.file().clone()), external))
}

/// What of the options decides what a model computes, and how it is compiled to run here.
fn on_this_machine(options: &CompileOptions) -> Result<CompileOptions, Problem> {
    let mut here = CompileOptions::new(Target::host());
    here.set_target_cpu("native").map_err(|error| Problem::new(error.to_string()))?;
    here.backend = options.backend;
    here.denormals = options.denormals;
    here.input_values = options.input_values.clone();
    here.external_folders = options.external_folders.clone();
    here.jobs = options.jobs;
    here.kernel_cache = options.kernel_cache.clone();
    here.isolate = options.isolate;
    Ok(here)
}
