//! `niello compile`: a model as objects, sources, bindings or a shared library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ValueEnum};
use serde_json::json;

use super::code::{CodeArgs, Engine};
use super::output::{Output, write_json};
use super::progress::Progress;
use super::{Failure, Problem};
use crate::bindings::{self, BindingsOptions, WeightsPlacement};
use crate::codegen::c::{LIBM_FUNCTIONS, SourceFile, standalone, weights_in_c};
use crate::codegen::object::{check_undefined, text_bytes, weights_object};
use crate::compile::{self, Compilation, Model, Passes, sidecar_path};
use crate::executor::aot::Listing;
use crate::executor::{
    CompiledModel, Contents, Loops, Scheduled, graph_json, write_shared_library,
};
use crate::files::write_file;
use crate::graph::print_with_sidecar;
use crate::options::{Budget, CompileOptions, Executor};
use crate::target::Target;

/// Compile a model to objects, sources, bindings or a shared library.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    /// Folder for what is written
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// What to write
    #[arg(long, value_enum, value_delimiter = ',', action = ArgAction::Append,
          default_values_t = [Emit::Obj, Emit::Header])]
    emit: Vec<Emit>,
    /// Where the weights are: in an object or a C file, or in a file that the program reads
    #[arg(long, value_enum, default_value_t = Weights::Embed)]
    weights: Weights,
    /// What generates code
    #[arg(long, value_enum, default_value_t = Engine::C)]
    backend: Engine,
    /// Target triple of the machine that the model is for, such as aarch64-unknown-linux-gnu
    /// [default: this machine]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    #[command(flatten)]
    code: CodeArgs,
    /// Name of the model [default: the file's]
    #[arg(long)]
    name: Option<String>,
    /// Input that takes what an output was in the run before, zeros at first; the model keeps it, and
    /// callers see neither; may be given more than once
    #[arg(long = "state", value_name = "INPUT=OUTPUT", value_parser = parse_state,
          action = ArgAction::Append)]
    states: Vec<(String, String)>,
    /// Most bytes of the workspace: a model that takes more is an error
    #[arg(long, value_name = "N")]
    max_workspace_bytes: Option<u64>,
    /// Most bytes of the weights
    #[arg(long, value_name = "N")]
    max_weight_bytes: Option<u64>,
    /// Most bytes of machine code, all CPU levels together
    #[arg(long, value_name = "N")]
    max_code_bytes: Option<u64>,
    /// Most multiply-accumulate operations of one inference, one step of each loop
    #[arg(long, value_name = "N")]
    max_macs: Option<u64>,
    /// Print what became of each kernel: the rule that made its loops, what it computes and moves
    #[arg(long)]
    report: bool,
    /// Write sizes and times to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Emit {
    /// Objects, weights among them
    Obj,
    /// C sources, the weights among them, and a C header
    C,
    /// LLVM IR, as optimised
    LlvmIr,
    /// Assembly
    Asm,
    /// The graph after all passes, as text with a sidecar for large constants
    Graph,
    /// The calls of kernels in the form of TVM's graph executor, as JSON
    GraphJson,
    /// Interface, devices, memory and passes, as JSON
    Metadata,
    /// The lowered loop functions, as text
    Tir,
    /// How rules scheduled the kernels they made: blocks, and the primitives that were applied
    Trace,
    /// A C header
    Header,
    /// Rust bindings
    Bindings,
    /// A shared library that sets itself up
    Shared,
}

/// Where the weights of a model are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Weights {
    /// In the program
    Embed,
    /// In a file of their own, which the program hands to the model
    File,
}

impl Emit {
    /// Whether it takes machine code, as objects.
    fn needs_objects(self) -> bool {
        match self {
            Emit::Obj | Emit::Shared => true,
            Emit::C
            | Emit::LlvmIr
            | Emit::Asm
            | Emit::Graph
            | Emit::GraphJson
            | Emit::Metadata
            | Emit::Tir
            | Emit::Trace
            | Emit::Header
            | Emit::Bindings => false,
        }
    }
}

fn parse_state(text: &str) -> Result<(String, String), String> {
    let names =
        text.split_once('=').filter(|(input, output)| !input.is_empty() && !output.is_empty());
    let (input, output) = names.ok_or("it has to be an input and an output: INPUT=OUTPUT")?;
    Ok((input.to_owned(), output.to_owned()))
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(backend) = args.backend.backend()? else {
        return Err(Problem::new("the interpreter makes no code")
            .help("leave out --backend, or run the model with `niello run --backend interp`")
            .into());
    };
    let mut options = args.code.options_for(args.target.as_deref())?;
    options.backend = backend;
    options.name = args.name.clone();
    options.states = args.states.clone();
    options.budget = Budget {
        workspace_bytes: args.max_workspace_bytes,
        weight_bytes: args.max_weight_bytes,
        code_bytes: args.max_code_bytes,
        macs: args.max_macs,
    };
    let objects = args.json.is_some() || args.max_code_bytes.is_some();
    options.without_objects = !objects && !args.emit.iter().any(|e| e.needs_objects());
    if args.emit.contains(&Emit::GraphJson) && options.executor != Executor::Graph {
        return Err(Problem::new("--emit graph-json: the model is called by one function")
            .help("add --executor graph")
            .into());
    }
    if args.emit.contains(&Emit::Shared) {
        shared_name("model", &options.target)?;
    }
    let model = Model::read(&args.model)?;
    // Before the work, so that a folder that cannot be written is told at once.
    fs::create_dir_all(&args.output).map_err(|error| {
        Problem::new(format!("{}: cannot create the folder: {error}", args.output.display()))
    })?;
    let progress = Progress::spinner(args.json.as_deref(), "compiling");
    let compilation = compile::compile(&model, &options, &Passes::new(&options)?)?;
    // A missing function would otherwise be found by whoever links or loads the model.
    let external = compilation.model.external_symbols.iter().map(String::as_str);
    let allowed: Vec<&str> = LIBM_FUNCTIONS.iter().copied().chain(external).collect();
    check_undefined(&compilation.model.objects, &allowed)?;
    progress.say("writing");
    let mut written = Vec::new();
    for (position, &emit) in args.emit.iter().enumerate() {
        if !args.emit[..position].contains(&emit) {
            written.extend(write(emit, &compilation, &options, args)?);
        }
    }
    if args.weights == Weights::File {
        written.push(write_weights(&compilation.model, &args.output)?);
    }
    // C comes with the header, which may be asked for as well.
    let mut seen = BTreeSet::new();
    written.retain(|path| seen.insert(path.clone()));
    progress.finish();
    let out = Output::beside(args.json.as_deref());
    for path in &written {
        out.line(&path.display().to_string());
    }
    if args.report {
        out.text(&compilation.model.kernels.to_string());
    }
    if let Some(remark) = options.tuned.remark(compilation.model.kernels.tunables()) {
        out.line(&remark);
    }
    summary(args, &compilation, out)
}

fn summary(args: &Args, compilation: &Compilation, out: Output) -> Result<(), Failure> {
    let Compilation { model, program, plan, stages, .. } = compilation;
    let mut code_bytes = 0;
    for object in &model.objects {
        code_bytes += text_bytes(object)?;
    }
    out.text(&compilation.summary());
    if !model.objects.is_empty() {
        out.line(&format!("code {code_bytes} bytes"));
    }
    let Some(path) = &args.json else { return Ok(()) };
    let times: serde_json::Map<String, serde_json::Value> = stages
        .0
        .iter()
        .map(|stage| (stage.name.to_owned(), json!(stage.duration.as_secs_f64() * 1e3)))
        .collect();
    let loops: Vec<serde_json::Value> = (model.kernels.rows.iter())
        .flat_map(|row| row.loops.iter().map(move |loops| (row, loops)))
        .map(|(row, loops)| {
            json!({
                "kernel": row.name,
                "op": loops.op,
                "rule": loops.rule,
                "knobs": loops.knobs,
                "missed": loops.missed,
            })
        })
        .collect();
    write_json(
        path,
        &json!({
            "model": model.name,
            "symbol": model.symbol,
            "compile_ms": stages.total().as_secs_f64() * 1e3,
            "stages_ms": times,
            "kernels": program.kernels.len(),
            "calls": program.steps.len(),
            "macs": model.macs,
            "workspace_bytes": model.workspace_bytes,
            "peak_live_bytes": plan.peak_live_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "token_bytes": plan.token_bytes,
            "parts": program.count_parts(),
            "weight_bytes": model.weights.len(),
            "code_bytes": code_bytes,
            "loops": loops,
        }),
    )
}

/// The file name of a shared library.
///
/// # Errors
///
/// The target has no shared libraries.
pub(super) fn shared_name(stem: &str, target: &Target) -> Result<String, Problem> {
    match target.os.as_str() {
        "windows" => Ok(format!("{stem}.dll")),
        "macos" | "ios" => Ok(format!("lib{stem}.dylib")),
        "none" | "uefi" | "unknown" | "wasi" => {
            let message = format!("there are no shared libraries on {}", target.triple);
            Err(Problem::new(message).help("link the objects: --emit obj,header"))
        }
        _ => Ok(format!("lib{stem}.so")),
    }
}

/// What files of a model are called, without their endings.
fn stem(model: &CompiledModel) -> String {
    let name = Path::new(&model.name).file_name();
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Writes the file of the weights; returns its path.
fn write_weights(model: &CompiledModel, folder: &Path) -> Result<PathBuf, Problem> {
    let path = folder.join(format!("{}.weights", stem(model)));
    write_file(&path, &model.weights)?;
    Ok(path)
}

/// The C files, each of which says in its head how it is compiled, with the embedded weights.
fn c_files<'a>(
    compilation: &'a Compilation,
    options: &CompileOptions,
    weights: Weights,
) -> Result<Vec<(String, Contents<'a>)>, Failure> {
    let targets = options.targets();
    let Some(sources) = compilation.code.c_files(&targets, options.jobs)? else {
        let message = "C is what the C backend makes, and code is made by LLVM";
        return Err(Problem::new(message).help("add --backend c").into());
    };
    let text = |source: &SourceFile| {
        let target = targets.get(source.level).unwrap_or(&options.target);
        (format!("{}.c", source.name), standalone(source, target).into_bytes().into())
    };
    let mut files: Vec<(String, Contents<'a>)> = sources.iter().map(text).collect();
    let model = &compilation.model;
    if weights == Weights::Embed && !model.weights.is_empty() {
        let symbol = format!("{}_weights", model.symbol);
        let contents = weights_in_c(&model.name, &symbol, &model.weights, &options.target)?;
        files.push((format!("{symbol}.c"), contents));
    }
    Ok(files)
}

/// The schedules of kernels: the function of blocks that each began with, and the steps for each
/// CPU level; of other kernels the rules of their loops. Lines that are neither begin with `#`.
fn traces(compilation: &Compilation) -> String {
    let mut text = String::new();
    let levels = &compilation.model.levels;
    for kernel in compilation.program.kernels.values() {
        for Loops { rule, knobs, .. } in &kernel.loops {
            let knobs = if knobs.is_empty() { String::new() } else { format!(": {knobs}") };
            text += &format!("# {}: {rule}{knobs}\n", kernel.signature().name);
        }
        let Some(Scheduled { from, traces }) = &kernel.scheduled else { continue };
        text += &format!("{from}\n");
        for (position, trace) in traces.iter().enumerate() {
            if let Some(level) = levels.get(position).filter(|_| levels.len() > 1) {
                text += &format!("# for {level}\n");
            }
            text += &format!("{trace}\n");
        }
    }
    text
}

/// Writes one kind of file; returns the paths.
fn write(
    emit: Emit,
    compilation: &Compilation,
    options: &CompileOptions,
    args: &Args,
) -> Result<Vec<PathBuf>, Failure> {
    let Args { output: folder, weights, .. } = args;
    let model = &compilation.model;
    let stem = stem(model);
    let mut bindings_options = BindingsOptions::default();
    if *weights == Weights::File {
        bindings_options.weights = WeightsPlacement::External;
    }
    let mut files: Vec<(String, Contents<'_>)> = Vec::new();
    match emit {
        Emit::Obj => {
            files.extend(model.objects.iter().map(|object| (object.name.clone(), object.into())));
            let has_object = *weights == Weights::Embed && !model.weights.is_empty();
            if let Some(code) = model.objects.first().filter(|_| has_object) {
                let symbol = format!("{}_weights", model.symbol);
                let object = weights_object(code, &symbol, &model.weights)?;
                files.push((object.name.into_owned(), object.contents));
            }
        }
        Emit::C => {
            files.extend(c_files(compilation, options, *weights)?);
            let header = bindings::header(model, &bindings_options)?;
            files.push((format!("{stem}.h"), header.into_bytes().into()));
        }
        Emit::LlvmIr | Emit::Asm => {
            let listing = if emit == Emit::Asm { Listing::Assembly } else { Listing::LlvmIr };
            let texts = compilation.code.listing(listing, options)?;
            files.extend(texts.into_iter().map(|(name, text)| (name, text.into_bytes().into())));
        }
        Emit::Graph => {
            let (text, sidecar) = print_with_sidecar(&compilation.module, &Default::default());
            let name = format!("{stem}.relay");
            if !sidecar.is_empty() {
                let mut bytes = Vec::new();
                sidecar
                    .write_to(&mut bytes)
                    .map_err(|error| Problem::new(format!("cannot write the sidecar: {error}")))?;
                let path = sidecar_path(Path::new(&name));
                files.push((path.to_string_lossy().into_owned(), bytes.into()));
            }
            files.push((name, text.into_bytes().into()));
        }
        Emit::GraphJson => {
            let Compilation { program, plan, code, .. } = compilation;
            if let Some(entry) = code.entry() {
                let text = format!("{:#}\n", graph_json(program, plan, entry));
                files.push((format!("{stem}.graph.json"), text.into_bytes().into()));
            }
        }
        Emit::Metadata => {
            let metadata = compilation.metadata(options, &Passes::new(options)?)?;
            let text = format!("{metadata:#}\n");
            files.push((format!("{stem}.metadata.json"), text.into_bytes().into()));
        }
        Emit::Tir => {
            let functions = &compilation.functions;
            let texts: Vec<String> = functions
                .versions(&compilation.program)
                .map(|(function, version)| {
                    let level = model.levels.get(function.level).filter(|_| model.levels.len() > 1);
                    let heading = level.map_or(String::new(), |level| format!("// for {level}\n"));
                    format!("{heading}{version}")
                })
                .collect();
            files.push((format!("{stem}.tir"), texts.join("\n").into_bytes().into()));
        }
        Emit::Trace => {
            files.push((format!("{stem}.trace"), traces(compilation).into_bytes().into()))
        }
        Emit::Header => {
            files.push((
                format!("{stem}.h"),
                bindings::header(model, &bindings_options)?.into_bytes().into(),
            ));
        }
        Emit::Bindings => {
            let text = bindings::rust(model, &bindings_options)?;
            files.push((format!("{stem}.rs"), text.into_bytes().into()));
        }
        Emit::Shared => {
            let path = folder.join(shared_name(&stem, &options.target)?);
            write_shared_library(model, &options.target, &path)?;
            return Ok(vec![path]);
        }
    }
    let mut paths = Vec::new();
    for (name, contents) in files {
        let path = folder.join(name);
        write_file(&path, contents)?;
        paths.push(path);
    }
    Ok(paths)
}
