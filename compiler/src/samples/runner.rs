//! Running a model on given inputs: by the interpreter or as native code.

use crate::codegen::c::TempFolder;
use crate::compile::{self, Compilation, Model, Passes};
use crate::diagnostics::{Problem, Report};
use crate::executor::{GraphExecutor, LoadedModel, compare_kernels, write_shared_library};
use crate::graph::interp::{Tensor, Tolerance, Value, compare, evaluate};
use crate::ir::{Constant, IRModule};
use crate::onnx;
use crate::options::{Backend, CompileOptions, Executor};

/// A model that is ready to run.
pub struct Runner {
    engine: Ready,
    /// Positions of the inputs that are passed; the others are compiled in.
    passed: Vec<usize>,
    outputs: Vec<String>,
    /// The options, with what the inputs fixed.
    options: CompileOptions,
}

enum Ready {
    /// The module after graph passes, and the interpreter.
    Interp(IRModule),
    /// A shared library in this process, and what it was made of.
    Native { model: Box<LoadedModel>, compilation: Box<Compilation> },
}

impl Runner {
    /// Makes a model ready for inputs of these shapes, as native code of a code generator or for the
    /// interpreter. Inputs that a compiled model does not take,
    /// such as the shape of a Reshape, become part of it with the values they have here. `workers`
    /// threads share a run of native code, of those that the options allow.
    ///
    /// # Errors
    ///
    /// The number of inputs is not the model's, or the model cannot be compiled for them.
    pub fn new(
        backend: Option<Backend>,
        model: &Model,
        inputs: &[Constant],
        options: &CompileOptions,
        workers: usize,
    ) -> Result<Runner, Report> {
        let mut options = options.clone();
        let passed = fit(model, inputs, &mut options)?;
        match backend {
            None => {
                let imported = model.import(&options)?;
                let outputs = imported.outputs.into_iter().map(|port| port.name).collect();
                let module = Passes::new(&options)?.run(imported.module)?;
                Ok(Runner { engine: Ready::Interp(module), passed, outputs, options })
            }
            Some(backend) => {
                let (mut model, compilation) = native(backend, model, options.clone())?;
                model.set_threads(workers);
                let infos = &compilation.model.outputs;
                let outputs = infos.iter().map(|info| info.name.clone()).collect();
                let (model, compilation) = (Box::new(model), Box::new(compilation));
                let engine = Ready::Native { model, compilation };
                Ok(Runner { engine, passed, outputs, options })
            }
        }
    }

    /// What was compiled, unless the interpreter runs the model.
    pub fn compilation(&self) -> Option<&Compilation> {
        match &self.engine {
            Ready::Interp(_) => None,
            Ready::Native { compilation, .. } => Some(compilation),
        }
    }

    /// The library, unless the interpreter runs the model.
    pub fn loaded(&self) -> Option<&LoadedModel> {
        match &self.engine {
            Ready::Interp(_) => None,
            Ready::Native { model, .. } => Some(model),
        }
    }

    /// Lets native code use no wider CPU level than the one of that place among the model's. Returns
    /// the place of the level that runs from now on.
    pub fn limit_level(&mut self, most: usize) -> usize {
        match &mut self.engine {
            Ready::Interp(_) => 0,
            Ready::Native { model, .. } => model.limit_level(most),
        }
    }

    /// Names of the outputs, in the model's order.
    pub fn output_names(&self) -> &[String] {
        &self.outputs
    }

    /// Kernel calls of one run.
    pub fn kernels(&self) -> u64 {
        self.compilation().map_or(0, |compilation| compilation.program.steps.len() as u64)
    }

    /// Whether what was made for the inputs `former` serves `new` as well.
    pub fn serves(&self, former: &[Constant], new: &[Constant]) -> bool {
        former.len() == new.len()
            && former.iter().zip(new).enumerate().all(|(position, (former, new))| {
                if self.passed.contains(&position) {
                    former.ty() == new.ty()
                } else {
                    former == new
                }
            })
    }

    /// Those of the model's inputs that are passed; the others are compiled in.
    pub fn passed(&self, inputs: &[Constant]) -> Vec<Constant> {
        self.passed.iter().filter_map(|&position| inputs.get(position).cloned()).collect()
    }

    /// The outputs for these inputs, those among them that are compiled in included.
    ///
    /// # Errors
    ///
    /// The inputs are not of the types that the model was made ready for, or it fails.
    pub fn run(&self, inputs: &[Constant]) -> Result<Vec<Constant>, Problem> {
        let passed = self.passed(inputs);
        match &self.engine {
            Ready::Interp(module) => interpret(module, &passed),
            Ready::Native { model, .. } => match self.options.executor {
                Executor::Aot => model.run(&passed),
                Executor::Graph => self.by_calls(inputs)?.finish(),
            },
        }
    }

    /// A run of native code for these inputs, call by call. The options had `single_calls`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if the interpreter runs the model.
    pub fn by_calls(&self, inputs: &[Constant]) -> Result<GraphExecutor<'_>, Problem> {
        let Ready::Native { model, compilation } = &self.engine else {
            return Err(Problem::new("the interpreter has no kernels that run one by one"));
        };
        let Compilation { program, plan, .. } = &**compilation;
        GraphExecutor::new(model, program, plan, &self.passed(inputs))
    }

    /// The outputs for these inputs, of native code that runs kernel by kernel: each is compared with
    /// the interpreter, and the outputs with what it makes of `model` as imported. Also returns how
    /// many calls were compared. The options had `single_calls`.
    ///
    /// # Errors
    ///
    /// The first call whose results differ; if there is none, the first output.
    pub fn compare(
        &self,
        model: &Model,
        inputs: &[Constant],
        tolerance: impl Fn(&Constant) -> Tolerance,
    ) -> Result<(Vec<Constant>, usize), Report> {
        let passed = self.passed(inputs);
        let mut run = self.by_calls(inputs)?;
        let module = self.compilation().map(|compilation| &compilation.module);
        let compared = match module {
            Some(module) => compare_kernels(&mut run, module, &passed, &tolerance)?,
            None => 0,
        };
        let outputs = run.finish()?;
        let expected = interpret(&model.import(&self.options)?.module, &passed)?;
        for ((name, found), expected) in self.outputs.iter().zip(&outputs).zip(&expected) {
            compare(found, expected, tolerance(expected)).map_err(|reason| {
                let message = format!(
                    "output `{name}`, against the model as imported: {reason}; each kernel computes \
                     what the interpreter does of its operands"
                );
                Problem::new(message).help(
                    "either a pass changed what the model computes (--disable-pass leaves one out), or \
                     rounding adds up (--rtol and --atol allow more)",
                )
            })?;
        }
        Ok((outputs, compared))
    }
}

/// Names of the inputs whose value no option fixes, in the model's order.
///
/// # Errors
///
/// Those of [`Model::input_names`].
pub fn open_names(model: &Model, options: &CompileOptions) -> Result<Vec<String>, Report> {
    let mut names = model.input_names()?;
    names.retain(|name| !options.input_values.contains_key(name));
    Ok(names)
}

/// Of values for all inputs those whose value no option fixes. What is no list of values for all
/// inputs stays as it is, and [`Runner::new`] refuses it.
///
/// # Errors
///
/// Those of [`Model::input_names`].
pub fn open_inputs(
    model: &Model,
    options: &CompileOptions,
    mut inputs: Vec<Constant>,
) -> Result<Vec<Constant>, Report> {
    let names = model.input_names()?;
    if names.len() == inputs.len() {
        let mut is_open = names.iter().map(|name| !options.input_values.contains_key(name));
        inputs.retain(|_| is_open.next().unwrap_or(true));
    }
    Ok(inputs)
}

/// Fixes the shapes of a model's inputs, and the values of those that a compiled model may not take:
/// shapes, axes, bounds. Returns the positions of the others. Inputs whose value an option
/// fixes are not among `inputs`.
fn fit(
    model: &Model,
    inputs: &[Constant],
    options: &mut CompileOptions,
) -> Result<Vec<usize>, Report> {
    let names = open_names(model, options)?;
    if names.len() != inputs.len() {
        return Err(Problem::new(format!(
            "the model has {} inputs, but {} were given",
            names.len(),
            inputs.len()
        ))
        .into());
    }
    // The types of a text are in it.
    let Some(file) = model.as_onnx() else { return Ok((0..names.len()).collect()) };
    let has_bounds = |name: &String| options.dims.get(name).is_some_and(|d| d.bounds().is_some());
    let open = options.dims.keys().any(has_bounds);
    let mut fixed = onnx::static_inputs(&file.proto);
    if open && !fixed.is_empty() {
        match model.import(options) {
            // What a run can compute is no constant.
            Ok(_) => fixed.clear(),
            // Its value would be of one size.
            Err(report) => {
                let dims = fixed.iter().flat_map(|name| onnx::dim_names(&file.proto, name));
                if dims.flatten().any(|name| has_bounds(&name)) {
                    return Err(report);
                }
            }
        }
    }
    let mut passed = Vec::new();
    for (position, (name, input)) in names.into_iter().zip(inputs).enumerate() {
        if fixed.contains(&name.as_str()) {
            options.input_values.insert(name, input.clone().into());
        } else {
            // Shapes that runs have of their own are checked with each.
            if !open {
                let shape = input.ty().shape.as_consts().unwrap_or_default();
                options.input_shapes.entry(name).or_insert(shape);
            }
            passed.push(position);
        }
    }
    Ok(passed)
}

/// Compiles a model and loads it into this process.
fn native(
    backend: Backend,
    model: &Model,
    mut options: CompileOptions,
) -> Result<(LoadedModel, Compilation), Report> {
    options.backend = backend;
    let compilation = compile::compile(model, &options, &Passes::new(&options)?)?;
    if let symbols @ [_, ..] = &compilation.model.external_symbols[..] {
        let message = format!("no function `{}` is linked into this command", symbols.join("`, `"));
        return Err(Problem::new(message)
            .help("a program that includes the model links what its code generators call")
            .into());
    }
    #[cfg(feature = "llvm")]
    if backend == Backend::Llvm {
        return Ok((LoadedModel::jit(&compilation.model)?, compilation));
    }
    // Deleted before the model runs: the system keeps what is loaded, and nothing is left if the
    // model crashes.
    let folder = TempFolder::new().map_err(|error| Problem::new(error.to_string()))?;
    let path = folder.path().join("model.so");
    write_shared_library(&compilation.model, &options.target, &path)?;
    let model = LoadedModel::load(&compilation.model, &path)?;
    Ok((model, compilation))
}

/// The outputs of a module's function `main`, by the reference interpreter.
pub fn interpret(module: &IRModule, inputs: &[Constant]) -> Result<Vec<Constant>, Problem> {
    let problem = |error: &dyn std::error::Error| Problem::new(error.to_string());
    let tensor = |constant| Tensor::from_constant(constant).map_err(|error| problem(&error));
    let args: Vec<Value> =
        inputs.iter().map(|input| tensor(input).map(Value::from)).collect::<Result<_, _>>()?;
    let result = evaluate(module, "main", &args).map_err(|error| problem(&error))?;
    let constant = |value: &Value| {
        let tensor =
            value.as_tensor().ok_or_else(|| Problem::new("the model's result is no tensor"))?;
        tensor.to_constant().map_err(|error| problem(&error))
    };
    match result.as_tuple() {
        Some(fields) => fields.iter().map(constant).collect(),
        None => Ok(vec![constant(&result)?]),
    }
}
