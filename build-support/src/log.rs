//! The full report of a compilation: `$OUT_DIR/<model>.log`.

use std::fmt::Write as _;
use std::path::Path;

use niello::codegen::object::text_bytes;
use niello::compile::Stages;
use niello::diagnostics::Report;
use niello::executor::{CompiledModel, Package};
use niello::options::{CompileOptions, Denormals};

/// Appends a formatted line to a `String`, which cannot fail.
macro_rules! line {
    ($text:expr, $($arguments:tt)*) => {
        writeln!($text, $($arguments)*).expect("a String takes any text")
    };
}

/// The model, what was asked for, what came out.
pub(crate) fn success(
    path: &Path,
    options: &CompileOptions,
    model: &CompiledModel,
    package: &Package,
    stages: &Stages,
) -> String {
    let mut text = head(path, options);
    let digest: String = model.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    line!(text, "digest     {digest}");
    line!(text, "symbols    {}", model.symbol);
    for (kind, tensors) in [("input ", &model.inputs), ("output", &model.outputs)] {
        for tensor in tensors {
            line!(text, "{kind}     {:?}: {} {:?}", tensor.name, tensor.dtype, tensor.shape);
        }
    }
    line!(text, "workspace  {} bytes", model.workspace_bytes);
    line!(text, "weights    {} bytes", model.weights.len());
    if let Some(other) = &model.other_weights {
        line!(text, "shared     {} bytes of {}", other.used_bytes, other.symbol);
    }
    line!(text, "macs       {}", model.macs);
    for object in &model.objects {
        match text_bytes(object) {
            Ok(bytes) => line!(text, "code       {bytes} bytes in {}", object.name),
            Err(problem) => line!(text, "code       {problem}"),
        }
    }
    let files = [&package.bindings].into_iter().chain(&package.archives).chain(&package.weights);
    for file in files {
        line!(text, "file       {}", file.display());
    }
    if let Some(remark) = options.tuned.remark(model.kernels.tunables()) {
        line!(text, "tuned      {remark}");
    }
    line!(text, "\n{stages}");
    if !model.kernels.rows.is_empty() {
        line!(text, "{}", model.kernels);
    }
    text
}

/// The model, what was asked for, and each problem with all that is known of it.
pub(crate) fn failure(path: &Path, options: &CompileOptions, report: &Report) -> String {
    let mut text = head(path, options);
    for (index, problem) in report.problems.iter().enumerate() {
        line!(text, "\nproblem {} of {}", index + 1, report.problems.len());
        if let Some(node) = &problem.node {
            line!(text, "  at: {node}");
        }
        for part in problem.message.lines() {
            line!(text, "  {part}");
        }
        if let Some(help) = &problem.help {
            line!(text, "  help: {help}");
        }
    }
    text
}

fn head(path: &Path, options: &CompileOptions) -> String {
    let mut text = String::new();
    let target = &options.target;
    line!(text, "niello     {}", env!("CARGO_PKG_VERSION"));
    line!(text, "model      {}", path.display());
    line!(text, "target     {}", target.triple);
    if let Some(cpu) = &target.cpu {
        line!(text, "cpu        {cpu}");
    }
    let features: Vec<_> = target.features.iter().map(String::as_str).collect();
    line!(text, "features   {}", features.join(","));
    let levels: Vec<_> = options.targets().iter().map(|t| t.cpu_level().name()).collect();
    line!(text, "levels     {}", levels.join(","));
    line!(text, "backend    {}", options.backend);
    line!(text, "opt level  {}", options.opt_level);
    let keeps = options.denormals == Denormals::Flush && !target.can_flush_denormals();
    let note = if keeps { " is asked for, but the target keeps them" } else { "" };
    line!(text, "denormals  {}{note}", options.denormals.name());
    line!(text, "numerics   {}", options.numerics.name());
    if options.threads > 1 {
        line!(text, "threads    up to {}", options.threads);
    }
    if options.stub {
        line!(text, "stub       no code was generated");
    }
    for pass in &options.disabled_passes {
        line!(text, "disabled   {pass}");
    }
    for (name, size) in &options.dims {
        line!(text, "dim        {name:?} = {size}");
    }
    for (input, output) in &options.states {
        line!(text, "state      {input:?} from {output:?}");
    }
    for (name, shape) in &options.input_shapes {
        line!(text, "shape      {name:?} = {shape:?}");
    }
    text
}
