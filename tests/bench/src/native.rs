//! niello's code for a model, made the way users get it.

use std::time::Duration;

use niello::codegen::object::text_bytes;
use niello::compile::{self, Model, Passes};
use niello::executor::{LoadedModel, write_shared_library};
use niello::ir::Constant;
use niello::onnx;
use niello::options::CompileOptions;
use niello::target::Target;
use tempfile::TempDir;

use crate::kernel::{Build, Built, Call, Case, Code, Kernel, Result, Setup, first, said};

/// The stages of a compilation that make code; the others read the model and pack its weights.
const CODE_STAGES: [&str; 3] = ["lower kernels", "write kernels", "compile code"];

/// Makes a kernel's code.
///
/// # Errors
///
/// niello cannot make it; says why.
pub(crate) fn build(kernel: &Kernel, case: &Case, setup: Setup) -> Result<Built> {
    match kernel.build {
        Build::Model => of_model(case, setup),
        Build::Function(function) => function(setup),
    }
}

fn of_model(case: &Case, setup: Setup) -> Result<Built> {
    if setup.threads > 1 {
        return Err("compiled models run on one thread yet".to_owned());
    }
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu("native").map_err(|error| error.to_string())?;
    options.backend = setup.backend;
    options.threads = setup.threads;
    let file = onnx::load_bytes(case.model.clone()).map_err(|report| first(&report))?;
    let model = Model::from_onnx("kernel", file);
    let passes = Passes::new(&options).map_err(|report| first(&report))?;
    let compilation =
        compile::compile(&model, &options, &passes).map_err(|report| first(&report))?;
    let stages = compilation.stages.0.iter();
    let compile: Duration =
        stages.filter(|stage| CODE_STAGES.contains(&stage.name)).map(|stage| stage.duration).sum();
    let mut code_bytes = 0;
    for object in &compilation.model.objects {
        code_bytes += text_bytes(object).map_err(|problem| said(&problem))?;
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("kernel.so");
    write_shared_library(&compilation.model, &options.target, &path)
        .map_err(|report| first(&report))?;
    let model = LoadedModel::load(&compilation.model, &path).map_err(|problem| said(&problem))?;
    Ok(Built {
        code: Box::new(Library { model, _folder: folder }),
        inputs: case.inputs.clone(),
        expected: case.expected.clone(),
        repeats: case.repeats,
        compile,
        functions: compilation.functions.functions.len(),
        code_bytes,
    })
}

/// A loaded library, and the folder with its file: the system tells libraries apart by their files, as long as those
/// exist.
struct Library {
    model: LoadedModel,
    _folder: TempDir,
}

impl Code for Library {
    fn call(&self, inputs: &[Constant]) -> Result<Box<dyn Call + '_>> {
        Code::call(&self.model, inputs)
    }
}
