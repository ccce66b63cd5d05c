//! Running a model on test data: by the interpreter or as native code.

use crate::cli::code::Engine;
use crate::codegen::c::TempFolder;
use crate::compile::{self, Model, Passes};
use crate::diagnostics::{Problem, Report};
use crate::executor::{LoadedModel, write_shared_library};
use crate::graph::interp::{Tensor, Value, evaluate};
use crate::ir::{Constant, IRModule};
use crate::onnx::ModelFile;
use crate::options::CompileOptions;

/// A model that is ready to run.
pub(super) struct Runner {
    engine: Ready,
    /// Positions of the inputs that are passed; the others are compiled in.
    passed: Vec<usize>,
}

enum Ready {
    /// The module after graph passes, and the interpreter.
    Interp(IRModule),
    /// A shared library in this process, and the number of kernel calls of one run.
    Native { model: LoadedModel, kernels: u64 },
}

impl Runner {
    /// Makes a model ready.
    pub(super) fn new(
        engine: Engine,
        file: &ModelFile,
        passed: Vec<usize>,
        options: &CompileOptions,
    ) -> Result<Runner, Report> {
        let model = Model::from_onnx("model", file.clone());
        let engine = match engine {
            Engine::Interp => {
                let imported = model.import(options)?;
                Ready::Interp(Passes::new(options)?.run(imported.module)?)
            }
            Engine::C => {
                let compilation = compile::compile(&model, options, &Passes::new(options)?)?;
                // Deleted before the model runs: the system keeps what is loaded, and nothing is left
                // if the model crashes.
                let folder = TempFolder::new().map_err(|error| Problem::new(error.to_string()))?;
                let path = folder.path().join("model.so");
                write_shared_library(&compilation.model, &options.target, &path)?;
                let model = LoadedModel::load(&compilation.model, &path)?;
                Ready::Native { model, kernels: compilation.program.steps.len() as u64 }
            }
        };
        Ok(Runner { engine, passed })
    }

    /// Whether one run could change the next.
    pub(super) fn keeps_state(&self) -> bool {
        matches!(self.engine, Ready::Native { .. })
    }

    /// Kernel calls of one run.
    pub(super) fn kernels(&self) -> u64 {
        match self.engine {
            Ready::Interp(_) => 0,
            Ready::Native { kernels, .. } => kernels,
        }
    }

    /// Whether what was made for the inputs `former` serves `new` as well.
    pub(super) fn serves(&self, former: &[Constant], new: &[Constant]) -> bool {
        former.len() == new.len()
            && former.iter().zip(new).enumerate().all(|(position, (former, new))| {
                if self.passed.contains(&position) {
                    former.ty() == new.ty()
                } else {
                    former == new
                }
            })
    }

    /// The outputs for these inputs, those among them that are compiled in included.
    pub(super) fn run(&self, inputs: &[Constant]) -> Result<Vec<Constant>, String> {
        let passed: Vec<Constant> =
            self.passed.iter().filter_map(|&position| inputs.get(position).cloned()).collect();
        match &self.engine {
            Ready::Interp(module) => interpret(module, &passed),
            Ready::Native { model, .. } => {
                model.run(&passed).map_err(|problem| problem.to_string())
            }
        }
    }
}

fn interpret(module: &IRModule, inputs: &[Constant]) -> Result<Vec<Constant>, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let tensor = |constant| Tensor::from_constant(constant).map_err(|error| text(&error));
    let args: Vec<Value> =
        inputs.iter().map(|input| tensor(input).map(Value::from)).collect::<Result<_, _>>()?;
    let result = evaluate(module, "main", &args).map_err(|error| text(&error))?;
    let constant = |value: &Value| {
        let tensor = value.as_tensor().ok_or("the model's result is no tensor")?;
        tensor.to_constant().map_err(|error| text(&error))
    };
    match result.as_tuple() {
        Some(fields) => fields.iter().map(constant).collect(),
        None => Ok(vec![constant(&result)?]),
    }
}
