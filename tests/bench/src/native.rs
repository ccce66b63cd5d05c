//! niello's code: of a model, made the way users get it, or of a loop function.

use std::time::{Duration, Instant};

use niello::codegen::object::text_bytes;
use niello::compile::{self, Model, Passes};
use niello::driver::{Arg, BoundCall, BuildTarget, Function, NdArray};
use niello::executor::{LoadedModel, ObjectFile, write_shared_library};
use niello::ir::{Constant, SharedBytes, TensorType};
use niello::onnx;
use niello::options::CompileOptions;
use niello::target::Target;
use niello::tir::PrimFunc;
use niello_runtime::ThreadPool;
use tempfile::TempDir;

use crate::check::Expected;
use crate::kernel::{Build, Built, Call, Case, Code, Kernel, Result, Setup, first, said};

/// The stages of a compilation that make code; the others read the model and pack its weights.
const CODE_STAGES: [&str; 3] = ["lower kernels", "write kernels", "compile code"];

/// Makes a kernel's code.
///
/// # Errors
///
/// niello cannot make it; says why.
pub(crate) fn build(kernel: &Kernel, case: &Case, setup: Setup) -> Result<Built> {
    match &kernel.build {
        Build::Model => of_model(case, setup),
        Build::Function(function) => function(setup),
    }
}

fn of_model(case: &Case, setup: Setup) -> Result<Built> {
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu("native").map_err(said)?;
    options.backend = setup.backend;
    options.threads = setup.threads;
    // Kernels of models are direct convolutions: Winograd's algorithm has kernels of its own.
    options.disabled_passes.push("ApplyWinograd".to_owned());
    let file = onnx::load_bytes(case.model.clone()).map_err(|report| first(&report))?;
    let model = Model::from_onnx("kernel", file);
    let passes = Passes::new(&options).map_err(|report| first(&report))?;
    let compilation =
        compile::compile(&model, &options, &passes).map_err(|report| first(&report))?;
    let stages = compilation.stages.0.iter();
    let compile: Duration =
        stages.filter(|stage| CODE_STAGES.contains(&stage.name)).map(|stage| stage.duration).sum();
    let code_bytes = code_bytes(&compilation.model.objects)?;
    let folder = tempfile::tempdir().map_err(said)?;
    let path = folder.path().join("kernel.so");
    write_shared_library(&compilation.model, &options.target, &path)
        .map_err(|report| first(&report))?;
    let model = LoadedModel::load(&compilation.model, &path).map_err(said)?;
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

fn code_bytes(objects: &[ObjectFile]) -> Result<u64> {
    objects.iter().map(|object| text_bytes(object).map_err(said)).sum()
}

/// A loaded library, and the folder with its file: the system tells libraries apart by their files, as long as those
/// exist.
struct Library {
    model: LoadedModel,
    _folder: TempDir,
}

impl Code for Library {
    fn output(&mut self, inputs: &[Constant]) -> Result<Constant> {
        let outputs = self.model.run(inputs).map_err(said)?;
        outputs.into_iter().next().ok_or_else(|| "the model has no output".to_owned())
    }

    fn calls(
        &mut self,
        inputs: &[Constant],
        turn: &mut dyn FnMut(Call<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut call = self.model.call(inputs).map_err(said)?;
        turn(&mut || call.run().map_err(said))
    }
}

/// Builds a loop function, such as that of a [`Schedule`](niello::schedule::Schedule), for this machine. Its parameters
/// are `inputs` and an output, which has to have the elements `expected`; a call is one execution of the kernel. Its
/// parallel loops run on as many threads as `setup` says.
///
/// # Errors
///
/// niello cannot build it; says why.
pub(crate) fn of_function(
    func: PrimFunc,
    setup: Setup,
    inputs: Vec<Constant>,
    expected: Expected,
) -> Result<Built> {
    let name = func.name.clone();
    let start = Instant::now();
    let module = niello::build([func], &BuildTarget::native(setup.backend)).map_err(said)?;
    let compile = start.elapsed();
    let code_bytes = code_bytes(module.objects())?;
    let function = module.function(&name).map_err(said)?;
    let result = function.parameters().last().ok_or("the function has no parameters")?;
    let output = NdArray::zeros(result.dtype, result.spec.shape()).map_err(said)?;
    let pool = (setup.threads > 1).then(|| ThreadPool::new(setup.threads));
    if pool.as_ref().is_some_and(|pool| pool.workers() < setup.threads) {
        return Err(format!("{} threads could not be started", setup.threads));
    }
    let code = Box::new(Scheduled { function, pool, inputs: Vec::new(), output });
    Ok(Built { code, inputs, expected, repeats: 1, compile, functions: 1, code_bytes })
}

/// A built function, the threads of its loops and its arrays.
struct Scheduled {
    function: Function,
    pool: Option<ThreadPool>,
    inputs: Vec<NdArray>,
    output: NdArray,
}

impl Scheduled {
    /// Hands `turn` a call on the inputs.
    fn bound(
        &mut self,
        inputs: &[Constant],
        turn: impl FnOnce(&mut BoundCall<'_>) -> Result<()>,
    ) -> Result<()> {
        let array = |constant: &Constant| {
            let bytes = constant.to_bytes().ok_or("an input has no elements")?;
            let shape = constant.ty().shape.as_consts().unwrap_or_default();
            let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
            NdArray::from_bytes(constant.ty().dtype, &shape, &bytes).map_err(said)
        };
        self.inputs = inputs.iter().map(array).collect::<Result<_>>()?;
        let mut arguments: Vec<Arg<'_>> = self.inputs.iter().map(Arg::from).collect();
        arguments.push(Arg::from(&mut self.output));
        let active = self.pool.as_ref().map(|pool| pool.activate(pool.workers()));
        let call = self.function.bind(arguments).map_err(said)?;
        let mut call = match &active {
            // SAFETY: the function is a schedule's, whose parallel loops are independent.
            Some(active) => unsafe { call.with_workers(active) },
            None => call,
        };
        turn(&mut call)?;
        call.finish().map_err(said)
    }
}

impl Code for Scheduled {
    fn output(&mut self, inputs: &[Constant]) -> Result<Constant> {
        self.bound(inputs, |call| {
            call.run();
            Ok(())
        })?;
        let ty = TensorType::from_consts(self.output.shape(), self.output.dtype());
        Constant::new(ty, SharedBytes::new(self.output.bytes().to_vec())).map_err(said)
    }

    fn calls(
        &mut self,
        inputs: &[Constant],
        turn: &mut dyn FnMut(Call<'_>) -> Result<()>,
    ) -> Result<()> {
        self.bound(inputs, |call| {
            turn(&mut || {
                call.run();
                Ok(())
            })
        })
    }
}
