//! The options of one model, and the way from them to files and directives.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use niello::bindings::WeightsPlacement;
use niello::codegen::object::text_bytes;
use niello::compile::{Model, Passes, Stages, compile};
use niello::diagnostics::{Problem, Report};
use niello::executor::aot::SharedWeights;
use niello::executor::{CompiledModel, PackageOptions, write_if_changed, write_package};
use niello::onnx::InputValue;
use niello::options::{Backend, CompileOptions, Denormals, DimSize, Numerics, Threads};
use niello::pass::{
    ConfigKey, ConfigValue, InstrumentRef, PassContextBuilder, PassInstrument, PassRef,
};
use niello::samples::quantize::Quantization;
use niello::target::Target;
use niello::transform::pipeline::PipelineExtensions;

use crate::artifacts::Artifacts;
use crate::cargo::{Directives, Environment};
use crate::last_build::LastBuild;
use crate::sharing::{self, ForOthers};
use crate::{Errors, log, quantize, watch};

/// Where a model's weights go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Weights {
    /// Into the binary.
    #[default]
    Embed,
    /// Into a file, relative to `OUT_DIR`. The program maps or reads it and hands the bytes to
    /// `Model::with_weights`.
    External(PathBuf),
}

/// An option of passes with its value.
#[derive(Clone)]
struct PassOption {
    name: &'static str,
    set: Arc<dyn Fn(PassContextBuilder) -> PassContextBuilder + Send + Sync>,
}

impl std::fmt::Debug for PassOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PassOption({})", self.name)
    }
}

/// The options of one model; [`configure`](crate::configure) makes them.
#[derive(Clone, Debug)]
#[must_use = "nothing is compiled before `try_compile` is called"]
pub struct Config {
    pub(crate) model: PathBuf,
    pub(crate) options: CompileOptions,
    extensions: PipelineExtensions,
    instruments: Vec<InstrumentRef>,
    pass_options: Vec<PassOption>,
    pub(crate) target_cpu: Option<String>,
    pub(crate) cpu_levels: Option<Vec<String>>,
    pub(crate) weights: Weights,
    weights_of: Option<String>,
    pub(crate) tuned: Option<PathBuf>,
    out_dir: Option<PathBuf>,
    pub(crate) runtime: Option<String>,
    emit_rerun: bool,
    pub(crate) quantization: Option<Quantization>,
}

/// What makes a compiled model of a file, watched by instruments.
pub(crate) trait Compile:
    FnOnce(&Path, &CompileOptions, &[InstrumentRef]) -> Result<(CompiledModel, Stages), Report>
{
}

impl<F> Compile for F where
    F: FnOnce(&Path, &CompileOptions, &[InstrumentRef]) -> Result<(CompiledModel, Stages), Report>
{
}

impl Config {
    pub(crate) fn new(model: PathBuf) -> Self {
        Config {
            model,
            // The target is read when the compilation starts.
            options: CompileOptions::new(Target::host()),
            extensions: PipelineExtensions::new(),
            instruments: Vec::new(),
            pass_options: Vec::new(),
            target_cpu: None,
            cpu_levels: None,
            weights: Weights::Embed,
            weights_of: None,
            tuned: None,
            out_dir: None,
            runtime: None,
            emit_rerun: true,
            quantization: None,
        }
    }

    /// The model's name, by which it is included; the stem of its file unless given.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Gives the symbolic dimension that the model calls `name` its size, or bounds within which each
    /// run has a size of its own.
    ///
    /// ```
    /// niello_build::configure("models/speech.onnx").dim("batch", 1..=32).dim("channels", 2);
    /// ```
    ///
    /// Or sizes, each of which gets code of its own beside that for any size up to the last, or no bound,
    /// if units along the dimension have nothing to do with each other, as the images of a batch:
    ///
    /// ```
    /// niello_build::configure("models/speech.onnx").dim("seq", [32, 128, 512]);
    /// niello_build::configure("models/images.onnx").dim("batch", ..);
    /// ```
    ///
    /// Of bounds, memory is planned for the greatest size. The bindings take slices then, whose
    /// lengths say the size of a run, and `run` fails if they do not agree. If the lengths do not say
    /// all sizes, `Inputs` has a field `sizes`. An operator that has no code along such a dimension
    /// is an error that names the node.
    pub fn dim(mut self, name: impl Into<String>, size: impl Into<DimSize>) -> Self {
        self.options.dims.insert(name.into(), size.into());
        self
    }

    /// Has the model keep what the output `output` is, and take it as the input `input` in the next
    /// run: zeros in the first one, and after `Model::reset`. The bindings have neither of them. Their
    /// types and shapes are equal.
    ///
    /// ```
    /// niello_build::configure("models/speech.onnx").dim("batch", 1).state("hidden", "hidden_out");
    /// ```
    ///
    /// Or the output is the input with more behind it, by `Concat` along a [dimension](Self::dim) with
    /// bounds, as the keys and values of a decoder are. What is new is stored behind what is there; how
    /// much of that a run reads, its caller says in `Inputs::sizes`. A `*` in both names stands for any
    /// text that makes names of tensors, so this keeps those of all layers, of 511 tokens and the one
    /// that is new:
    ///
    /// ```
    /// niello_build::configure("models/decoder.onnx")
    ///     .dim("past", 0..=511)
    ///     .dim("seq", 1)
    ///     .state("past.*", "present.*");
    /// ```
    pub fn state(mut self, input: impl Into<String>, output: impl Into<String>) -> Self {
        self.options.states.push((input.into(), output.into()));
        self
    }

    /// Gives an input its whole shape, where its dimensions have no names.
    pub fn input_shape(
        mut self,
        input: impl Into<String>,
        shape: impl IntoIterator<Item = u64>,
    ) -> Self {
        self.options.input_shapes.insert(input.into(), shape.into_iter().collect());
        self
    }

    /// Fixes the value of an input, which becomes part of the model: the bindings' `Inputs` have no
    /// such field. For inputs that shapes, branches or numbers of steps are computed from.
    ///
    /// Numbers take the input's own element type, as many as it has elements, or one for all.
    ///
    /// ```
    /// niello_build::configure("models/vad.onnx").input_value("sr", 16000).input_value("scales", [0.5, 2.0]);
    /// ```
    pub fn input_value(mut self, input: impl Into<String>, value: impl Into<InputValue>) -> Self {
        self.options.input_values.insert(input.into(), value.into());
        self
    }

    /// A folder that links in the model's folder may lead to, where they stand for external data.
    ///
    /// A model that is itself a link, as in caches, may have its data beside the file that it is
    /// linked to; this is for other arrangements.
    pub fn external_data_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.external_folders.push(folder.into());
        self
    }

    /// Quantises the model, which is ONNX in floats, before it is compiled. It runs on the samples
    /// then, on the machine that compiles; of bindings alone (`NIELLO_STUB`) nothing is quantised, as
    /// inputs and outputs stay what they are. `niello quantize` does the same and tells the errors.
    ///
    /// ```no_run
    /// use niello_build::{Calibration, Method, Quantization};
    ///
    /// niello_build::configure("models/digits.onnx")
    ///     .quantize(
    ///         Quantization::new(Method::Static)
    ///             .samples("models/digits-samples")
    ///             .calibration(Calibration::Percentile(99.99))
    ///             .skip("/fc/Gemm"),
    ///     )
    ///     .try_compile()
    ///     .unwrap_or_else(|errors| errors.exit());
    /// ```
    pub fn quantize(mut self, how: Quantization) -> Self {
        self.quantization = Some(how);
        self
    }

    /// Takes the choices that `niello tune` measured and wrote to a file, which is meant to be committed
    /// beside the model: kernels are made so where a cost model would decide. Choices for other
    /// machines and other work have no effect, and the log says how many those are. Results are the
    /// same, but where another algorithm is chosen for a convolution, whose results differ by rounding.
    ///
    /// ```no_run
    /// // niello tune models/digits.onnx -o models/digits.tuned
    /// niello_build::configure("models/digits.onnx")
    ///     .tuned("models/digits.tuned")
    ///     .try_compile()
    ///     .unwrap_or_else(|errors| errors.exit());
    /// ```
    pub fn tuned(mut self, path: impl Into<PathBuf>) -> Self {
        self.tuned = Some(path.into());
        self
    }

    /// The optimisation level, 0 to 4; 3 unless given. It does not follow Cargo's profile: models
    /// are fast in debug builds as well.
    pub fn opt_level(mut self, level: u8) -> Self {
        self.options.opt_level = level;
        self
    }

    /// What happens to denormal numbers while the model runs: unless given, they count as zeros.
    pub fn denormals(mut self, denormals: Denormals) -> Self {
        self.options.denormals = denormals;
        self
    }

    /// Whether passes and functions may change how results are rounded; unless given, they may.
    /// [`Numerics::Float16`] computes models of `float16` in that type where processors can.
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.options.numerics = numerics;
        self
    }

    /// How many threads may share a run: 1 unless given. The workspace has memory for so many; when
    /// the program runs, it uses no more than it may use processors. Results are the same, bit for
    /// bit, for any number.
    ///
    /// `Model::run` then shares the pool of the process (`niello_runtime::ThreadPool::global`) with
    /// all other models; `Model::run_with` takes threads of the program's own.
    pub fn threads(mut self, threads: impl Into<Threads>) -> Self {
        self.options.threads = threads.into().most();
        self
    }

    /// Leaves a pass out, by its name.
    pub fn disable_pass(mut self, pass: impl Into<String>) -> Self {
        self.options.disabled_passes.push(pass.into());
        self
    }

    /// Gives what it takes of the model to a code generator of another crate, by its name; of several
    /// that take an operator, the first one gets it.
    ///
    /// The crate registers it by `niello::register_external_codegen!`, and the build script names the
    /// crate: `use my_codegen as _;`.
    pub fn external(mut self, name: impl Into<String>) -> Self {
        self.options.external.push(name.into());
        self
    }

    /// Runs `pass` right before the first pass of the pipeline that is named `place`.
    ///
    /// As with all passes, it runs if `opt_level` is not below its level.
    pub fn pass_before(mut self, place: impl AsRef<str>, pass: impl Into<PassRef>) -> Self {
        self.extensions.before(place.as_ref(), pass);
        self
    }

    /// Runs `pass` right after the last pass of the pipeline that is named `place`.
    ///
    /// As with all passes, it runs if `opt_level` is not below its level.
    pub fn pass_after(mut self, place: impl AsRef<str>, pass: impl Into<PassRef>) -> Self {
        self.extensions.after(place.as_ref(), pass);
        self
    }

    /// Tells `instrument` of each pass that runs. What it has to show is written to `OUT_DIR`: with
    /// [`PassTiming`](niello::pass::PassTiming) for a model `digits`, to `digits.timing.txt`.
    pub fn instrument(mut self, instrument: impl PassInstrument + 'static) -> Self {
        self.instruments.push(Arc::new(instrument));
        self
    }

    /// Sets an option that passes read.
    pub fn config<T: ConfigValue>(mut self, key: &ConfigKey<T>, value: T) -> Self {
        let key = *key;
        let set = move |builder: PassContextBuilder| builder.config(&key, value.clone());
        self.pass_options.push(PassOption { name: key.name(), set: Arc::new(set) });
        self
    }

    /// The CPU to compile for, such as `x86-64-v3` or `native`; the program runs on no lesser one,
    /// and has one version of the model's code.
    ///
    /// Unless given, there is code for what Cargo's target has (the baseline, or what `RUSTFLAGS`
    /// add to it) and for each wider CPU level, of which the program chooses at run time;
    /// `portable` asks for the same by name.
    pub fn target_cpu(mut self, cpu: impl Into<String>) -> Self {
        self.target_cpu = Some(cpu.into());
        self
    }

    /// The CPU levels, beside what Cargo's target or [`target_cpu`](Self::target_cpu) has, that get
    /// code of their own: `x86-64-v3` and `x86-64-v4` unless given, for models with tensors of 8-bit
    /// integers `x86-64-v4-vnni` and, on Linux, `x86-64-v4-amx`, or `aarch64-dotprod` and
    /// `aarch64-i8mm`, and for those of `float16` with [`Numerics::Float16`] `aarch64-fp16`. With `baseline` alone there is one version, which
    /// makes builds faster and binaries smaller.
    pub fn cpu_levels(mut self, levels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.cpu_levels = Some(levels.into_iter().map(Into::into).collect());
        self
    }

    /// The code generator; C unless given. LLVM is there with this crate's feature `llvm`.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.options.backend = backend;
        self
    }

    /// Where the weights go; into the binary unless given.
    pub fn weights(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// Uses the weights of the model `name`, which this build script has compiled before: constants
    /// that are equal there, in the layout in which kernels read them, are not stored again. A
    /// program that includes this model links the other's weights, whether it includes the other or
    /// not.
    ///
    /// For models that are parts or variants of one:
    ///
    /// ```no_run
    /// niello_build::compile("models/prefill.onnx");
    /// niello_build::configure("models/decode.onnx")
    ///     .weights_of("prefill")
    ///     .try_compile()
    ///     .unwrap_or_else(|errors| errors.exit());
    /// ```
    ///
    /// The layout of a matrix depends on what it is multiplied by: a product of one row reads wider
    /// panels than one of many. The log says how many bytes are shared, and so does
    /// [`Artifacts::shared_weight_bytes`].
    pub fn weights_of(mut self, name: impl Into<String>) -> Self {
        self.weights_of = Some(name.into());
        self
    }

    /// The most bytes that the workspace may take. A model that takes more is an error, which names
    /// the greatest tensors; so it is for each of the limits below.
    pub fn max_workspace_bytes(mut self, bytes: u64) -> Self {
        self.options.budget.workspace_bytes = Some(bytes);
        self
    }

    /// The most bytes that the model's own weights may take.
    pub fn max_weight_bytes(mut self, bytes: u64) -> Self {
        self.options.budget.weight_bytes = Some(bytes);
        self
    }

    /// The most bytes that the machine code may take, all CPU levels together.
    pub fn max_code_bytes(mut self, bytes: u64) -> Self {
        self.options.budget.code_bytes = Some(bytes);
        self
    }

    /// The most multiply-accumulate operations that one inference may take, in which each loop makes
    /// one step: how often it runs is known to a run alone.
    pub fn max_macs(mut self, macs: u64) -> Self {
        self.options.budget.macs = Some(macs);
        self
    }

    /// The folder to write to; `OUT_DIR` unless given.
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// The path by which the program names the runtime crate; `::niello_runtime` unless given.
    pub fn runtime_path(mut self, path: impl Into<String>) -> Self {
        self.runtime = Some(path.into());
        self
    }

    /// Whether to tell Cargo when to run the build script again; on unless given.
    ///
    /// With the first such directive Cargo stops watching the whole package. A build script that
    /// has inputs of its own names them, or turns this off.
    pub fn emit_rerun(mut self, emit: bool) -> Self {
        self.emit_rerun = emit;
        self
    }

    /// Compiles the model, writes its files and tells Cargo what it must know.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the model, the options or the environment, in one go.
    pub fn try_compile(&self) -> Result<Artifacts, Errors> {
        // What functions of the build script do to a model, nothing tells.
        let is_plain = self.instruments.is_empty()
            && self.pass_options.is_empty()
            && self.extensions.is_empty();
        self.compile_and_tell(is_plain, |path, options, instruments| {
            let mut stages = Stages::default();
            let mut model = stages.run("read", || Model::read(path))?;
            let mut external = Vec::new();
            if let (Some(how), false) = (&self.quantization, options.stub) {
                (model, external) =
                    stages.run("quantise", || quantize::quantised(model, how, options))?;
            }
            let compilation = compile(&model, options, &self.passes(options, instruments)?)?;
            stages.0.extend(compilation.stages.0);
            let mut model = compilation.model;
            model.external_data.append(&mut external);
            Ok((model, stages))
        })
    }

    /// As [`try_compile`](Self::try_compile) with `compile` in the place of niello's own compiler:
    /// for tools that make or change models themselves. Quantisation, and passes that were added to
    /// the pipeline, play no part then.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_compile_with(
        &self,
        compile: impl FnOnce(&Path, &CompileOptions) -> Result<CompiledModel, Report>,
    ) -> Result<Artifacts, Errors> {
        self.compile_and_tell(false, |path, options, _| {
            Ok((compile(path, options)?, Stages::default()))
        })
    }

    /// Compiles with the environment of this process, and prints what Cargo must know. If the model
    /// and its options decide everything, a former result stands.
    fn compile_and_tell(&self, is_plain: bool, compile: impl Compile) -> Result<Artifacts, Errors> {
        let mut directives = Directives::default();
        let mut environment = Environment::of_process();
        let result = self.run(&mut environment, &mut directives, is_plain, compile);
        if result.is_ok() && environment.is_build_script() {
            // Cargo reads what a build script prints; without a reader there is nothing to do.
            let _ = std::io::stdout().write_all(directives.text().as_bytes());
        }
        result
    }

    /// Reads the environment, compiles, writes the files.
    ///
    /// ```text
    /// $OUT_DIR
    /// ├── digits.rs                                      include_model!("digits")
    /// ├── digits.log                                     the full report, also of a failure
    /// ├── digits.niello-c                                C files, if the C compiler failed on one
    /// ├── digits.niello-build                            what this build was made of
    /// ├── digits.timing.txt                              what an instrument has to show
    /// ├── digits.weights                                 weights, if they are external
    /// ├── libniello_app_0_1_0_digits_<hash>.a            code
    /// ├── libniello_app_0_1_0_digits_<hash>_weights.a    weights, if they are embedded
    /// └── niello-kernels                                 compiled functions, for the next build
    /// ```
    pub(crate) fn run(
        &self,
        environment: &mut Environment<'_>,
        directives: &mut Directives,
        is_plain: bool,
        compile: impl Compile,
    ) -> Result<Artifacts, Errors> {
        let in_build_script = environment.is_build_script();
        let out_dir = self.out_dir.clone().or_else(|| {
            environment.cargo("OUT_DIR").filter(|_| in_build_script).map(PathBuf::from)
        });
        let mut report = Report::new();
        let mut options = self.effective_options(environment, &mut report);
        let asked_for = watch::from_environment(environment, &self.log_stem(), &mut report);
        let instruments = [self.instruments.clone(), asked_for].concat();
        if out_dir.is_none() {
            report.push(
                Problem::new("there is no folder to write to, as this is not a build script")
                    .help("give one: `.out_dir(folder)`"),
            );
        }
        if let (Some(folder), Some(other)) = (&out_dir, &self.weights_of) {
            match self.shared_weights(folder, other) {
                Ok(shared) => options.weights_of = shared,
                Err(problem) => report.push(problem),
            }
        }
        let result = match &out_dir {
            Some(folder) if report.is_empty() => {
                let compile =
                    |path: &Path, options: &CompileOptions| compile(path, options, &instruments);
                // Instruments want to see what a build that stands does not show.
                let may_stand = is_plain && in_build_script && instruments.is_empty();
                let last = may_stand.then(|| LastBuild::of(self, folder, &options)).flatten();
                let result = match last.as_ref().and_then(LastBuild::artifacts) {
                    Some(artifacts) => sharing::claim(folder, &artifacts.name, &self.model)
                        .map(|()| artifacts)
                        .map_err(Report::from),
                    None => {
                        let result = self.compile_into(folder, in_build_script, &options, compile);
                        if let (Some(last), Ok(artifacts)) = (&last, &result) {
                            last.keep(artifacts);
                        }
                        result
                    }
                };
                // Of a failure too: that is when one wants to see them.
                let written = watch::write_outputs(&instruments, folder, &self.log_stem());
                match (result, written) {
                    (Ok(artifacts), written) => written.map(|()| artifacts).map_err(Report::from),
                    (Err(mut report), written) => {
                        report.extend(written.err());
                        Err(report)
                    }
                }
            }
            _ => Err(report),
        };
        match result {
            Ok(artifacts) => {
                if let Some(folder) = &out_dir {
                    sharing::offer(folder, &artifacts, &self.model);
                }
                if self.emit_rerun {
                    directives.rerun_if_changed(&self.model);
                    let external = &artifacts.external_data;
                    let samples = self.quantization.iter().flat_map(Quantization::sample_paths);
                    let files = external.iter().chain(samples).chain(&self.tuned);
                    files.for_each(|path| {
                        directives.rerun_if_changed(path);
                    });
                    environment.watched().for_each(|name| directives.rerun_if_env_changed(name));
                }
                if let (false, Some(folder)) = (options.stub, &out_dir) {
                    directives.link_search(folder);
                }
                Ok(artifacts)
            }
            Err(report) => {
                let log = out_dir.and_then(|folder| {
                    let path = folder.join(format!("{}.log", self.log_stem()));
                    let text = log::failure(&self.model, &options, &report);
                    // The problems are told in any case; that the log failed as well is not one of
                    // the model's.
                    write_if_changed(&path, text.as_bytes()).ok()?;
                    Some(path)
                });
                Err(Errors { model: self.model.clone(), report, log, in_build_script })
            }
        }
    }

    /// Compiles the model and writes its files into `folder`.
    fn compile_into(
        &self,
        folder: &Path,
        in_build_script: bool,
        options: &CompileOptions,
        compile: impl FnOnce(&Path, &CompileOptions) -> Result<(CompiledModel, Stages), Report>,
    ) -> Result<Artifacts, Report> {
        let options = &CompileOptions {
            code_folder: Some(folder.join(format!("{}.niello-c", self.log_stem()))),
            ..options.clone()
        };
        let (model, mut stages) = compile(&self.model, options)?;
        if in_build_script {
            sharing::claim(folder, &model.name, &self.model)?;
        }
        let mut package_options = PackageOptions::for_triple(&options.target.triple);
        package_options.bindings.stub = options.stub;
        if let Some(runtime) = &self.runtime {
            package_options.bindings.runtime.clone_from(runtime);
        }
        if let Weights::External(file) = &self.weights {
            package_options.bindings.weights = WeightsPlacement::External;
            package_options.weights_file = Some(file.clone());
        }
        let package =
            stages.run("write files", || write_package(&model, folder, &package_options))?;

        let log = folder.join(format!("{}.log", model.name));
        let text = log::success(&self.model, options, &model, &package, &stages);
        write_if_changed(&log, text.as_bytes()).map_err(|error| {
            Problem::new(format!("`{}` cannot be written: {error}", log.display()))
        })?;
        let mut code_bytes = 0;
        for object in &model.objects {
            code_bytes += text_bytes(object)?;
        }
        let for_others = match (&self.weights, model.constants.is_empty()) {
            _ if options.stub => ForOthers::Nothing,
            _ if model.weights.is_empty() => ForOthers::Nothing,
            (Weights::External(_), _) => ForOthers::External,
            (Weights::Embed, true) => ForOthers::Unknown,
            (Weights::Embed, false) => ForOthers::Weights(SharedWeights {
                symbol: format!("{}_weights", model.symbol),
                bytes: model.weights.len() as u64,
                constants: Arc::new(model.constants),
            }),
        };
        let other = model.other_weights.as_ref();
        Ok(Artifacts {
            name: model.name,
            bindings: package.bindings,
            archives: package.archives,
            weights: package.weights,
            external_data: model.external_data,
            log,
            stub: options.stub,
            workspace_bytes: model.workspace_bytes,
            weight_bytes: model.weights.len() as u64,
            shared_weight_bytes: other.map_or(0, |other| other.used_bytes),
            code_bytes,
            macs: model.macs,
            for_others,
        })
    }

    /// The weights of the model `other` for this one; none if there is nothing to be shared.
    fn shared_weights(&self, folder: &Path, other: &str) -> Result<Option<SharedWeights>, Problem> {
        if self.weights != Weights::Embed {
            let message = format!(
                "`.weights_of({other:?})` is for weights in the binary, and those of this model go into a file"
            );
            return Err(Problem::new(message).help("leave out `.weights(Weights::External(..))`"));
        }
        sharing::weights_of(folder, other)
    }

    /// The graph passes: the pipeline with what was added to it, watched by the instruments.
    fn passes(
        &self,
        options: &CompileOptions,
        instruments: &[InstrumentRef],
    ) -> Result<Passes, Report> {
        let watched = |builder: PassContextBuilder, instrument: &InstrumentRef| {
            builder.shared_instrument(instrument.clone())
        };
        let builder = instruments.iter().fold(Passes::context(options), watched);
        let set = |builder, option: &PassOption| (option.set)(builder);
        let builder = self.pass_options.iter().fold(builder, set);
        let context = builder.build().map_err(|error| Problem::new(error.to_string()))?;
        Ok(Passes { context, extensions: self.extensions.clone() })
    }

    /// Stem of the log's file name when there may be no compiled model.
    pub(crate) fn log_stem(&self) -> String {
        let name = self.options.name.as_deref().map(Path::new).unwrap_or(&self.model);
        let stem = if self.options.name.is_some() { name.file_name() } else { name.file_stem() };
        stem.map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }
}
