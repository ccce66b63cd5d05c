//! From a model to native code: every stage, in order.

mod budget;
mod growing;
mod identity;
mod interface;
mod metadata;
mod model;
mod passes;
mod stages;
mod states;
mod units;

use std::path::Path;

pub use model::Model;
#[cfg(feature = "cli")]
pub(crate) use model::read_text;
#[cfg(any(feature = "cli", test))]
pub(crate) use model::sidecar_path;
pub use passes::Passes;
pub use stages::{Stage, Stages};

use growing::States;

use crate::codegen::check_external;
use crate::diagnostics::{ProblemNode, Report};
use crate::executor::aot::{
    CacheUse, Code, Entry, Generator, KernelFunctions, PackedWeights, Scratch,
};
use crate::executor::{CompiledModel, KernelReport, Program, RunTimeSize, RunTimeSizes};
use crate::graph::Function;
use crate::ir::{DType, IRModule, Span, TensorType};
use crate::memory::{self, MemoryPlan};
use crate::options::{CompileOptions, Executor, Numerics};
use crate::strategy;
use crate::target::{LEVEL_FOR_HALVES, LEVELS_FOR_BYTES};

/// A compiled model, and what led to it.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// The model.
    pub model: CompiledModel,
    /// The module that kernels were made of.
    pub module: IRModule,
    /// The lowered program: kernels and their calls. Empty in a stub.
    pub program: Program,
    /// The functions that the kernels became.
    pub functions: KernelFunctions,
    /// What the objects were compiled from.
    pub code: Code,
    /// What the kernel cache had of them.
    pub cache: CacheUse,
    /// Where each value is.
    pub plan: MemoryPlan,
    /// How long each stage took.
    pub stages: Stages,
}

impl Compilation {
    /// What came out and how long it took, for people: some lines.
    pub fn summary(&self) -> String {
        let Compilation { model, program, functions, cache, stages, .. } = self;
        let MemoryPlan { peak_live_bytes, lower_bound_bytes, token_bytes, .. } = &self.plan;
        let CacheUse { hits, misses } = cache;
        let levels: Vec<&str> = model.levels.iter().map(|level| level.name()).collect();
        format!(
            "{stages}{} kernels, {} functions for {} ({misses} compiled, {hits} in the kernel cache), {} calls, \
             {} multiply-accumulates\n\
             workspace {} bytes (at least {lower_bound_bytes} are needed, {peak_live_bytes} for values alone; \
             {token_bytes} as storage tokens), {} values in others, weights {} bytes\n",
            program.kernels.len(),
            functions.functions.len(),
            levels.join(", "),
            program.steps.len(),
            model.macs,
            model.workspace_bytes,
            program.count_parts(),
            model.weights.len(),
        )
    }
}

/// Compiles a model; `passes` says under which context and with which additions passes run.
///
/// # Errors
///
/// Every problem of the first stage that has any; what exceeds [`CompileOptions::budget`].
pub fn compile(
    model: &Model,
    options: &CompileOptions,
    passes: &Passes,
) -> Result<Compilation, Report> {
    check_external(&options.external)?;
    let mut stages = Stages::default();
    let mut imported = stages.run("import", || model.import(options))?;
    let options = &for_module(options, &imported.module);
    let levels = &options.targets()[..];
    let mut sizes = RunTimeSizes::of(&options.dims);
    if let Some(main) = imported.module.function("main") {
        sizes.settle(main.facts());
    }
    sizes.add_counted(&imported.module);
    if let Some(main) = imported.module.function("main") {
        sizes.leave_out_negative(main)?;
    }
    let kept = States::of(&options.states, &mut imported, &sizes)?;
    let mut interface =
        stages.run("interface", || interface::of(model, &imported, &kept, sizes.clone()))?;
    let states = interface.keep(&kept)?;
    if options.stub {
        return Ok(interface.stub(options, imported.module, stages));
    }
    // First, as a compiler may be missing, or be one for another machine.
    let generator = Generator::of(options)?.digest();
    let declared = imported.module.function("main").map(Function::func_type);
    let module = stages.run("passes", || passes.run(imported.module))?;
    if let Some(declared) = declared {
        interface::check_kept(&declared, &module)?;
    }
    let unit = units::program(
        model,
        options,
        passes,
        &module,
        (&interface, &imported.followed),
        &mut stages,
    )?;
    let (module, mut program) = match unit {
        Some(unit) => unit,
        None => {
            let program = stages
                .run("strategies", || strategy::program(&module, levels, &sizes, &options.tuned))?;
            (module, program)
        }
    };
    states::keep(&mut program, &states, levels);
    program.hand_out(levels);
    program.store_directly();
    let located = |report: Report| locate(report, &module);
    program.verify().map_err(located)?;
    program.merge_equal_kernels();
    memory::order_steps(&mut program)?;
    // Blocks of the graph executor are of one value at a time.
    if options.executor == Executor::Aot {
        stages.run("share parts", || program.share_parts(levels)).map_err(located)?;
    }
    let digest = program.digest();
    let storage = stages.run("share memory", || memory::Storage::of(&program))?;
    program.insert_border_steps(&storage);
    stages
        .run("lower kernels", || program.lower_kernels(levels, &passes.context))
        .map_err(located)?;
    let symbol = identity::symbol(&interface, &digest, &program, options, &passes.context);
    let functions = stages.run("share code", || KernelFunctions::of(&program, &generator, levels));
    let workers = if program.shares_loops() { options.threads.max(1) } else { 1 };
    let scratch = Scratch::of(&program, &functions, workers).map_err(located)?;
    let plan = stages.run("place memory", || match options.executor {
        Executor::Aot => memory::plan(&program, &storage, &scratch.bytes),
        Executor::Graph => memory::plan_blocks(&program, &storage, &scratch.bytes),
    })?;
    let weights = stages.run("pack weights", || {
        PackedWeights::pack(&program, &storage, &plan, options.weights_of.as_ref())
    })?;
    let entry = Entry::new(&program, &storage, &plan, &weights, &symbol, &functions, &scratch);
    let single_calls = options.single_calls || options.executor == Executor::Graph;
    if options.executor == Executor::Graph {
        program.check_one_by_one()?;
    }
    let calls = if single_calls { entry.single_calls() } else { Vec::new() };
    let count = calls.len();
    let entries = std::iter::once(entry).chain(calls).collect();
    let code = Code::new(options.backend, &program, &functions, entries);
    let (objects, cache) = match options.without_objects {
        true => Default::default(),
        false => stages.run("compile code", || code.compile(options, levels)).map_err(located)?,
    };
    let is_bounded = interface.sizes().iter().all(RunTimeSize::is_bounded);
    let runs = if program.units.is_some() && is_bounded { interface.greatest() } else { 1 };
    let macs = program.macs().saturating_mul(runs);
    let widest = strategy::Machine::of(levels.last().unwrap_or(&options.target));
    let kernels = KernelReport::of(&program, |products, macs, bytes| {
        widest.least_cycles(products, macs, bytes)
    });
    let model = CompiledModel {
        symbol,
        workspace_bytes: plan.arena_bytes,
        weights: weights.bytes.in_order(options.target.endian),
        constants: weights.constants,
        other_weights: weights.other,
        macs,
        kernels,
        objects,
        external_symbols: program.external_symbols(),
        calls: count,
        workers,
        ..interface.model(options)
    };
    budget::check(&options.budget, &model, &program)?;
    Ok(Compilation { model, module, program, functions, code, cache, plan, stages })
}

/// The options without the CPU levels that differ in instructions for bytes alone, unless the module
/// has tensors of bytes, and the one for `float16`, unless it has such tensors to compute with.
fn for_module(options: &CompileOptions, module: &IRModule) -> CompileOptions {
    let mut options = options.clone();
    let has = |dtypes: &[DType]| {
        let is_one = |ty: &TensorType| dtypes.contains(&ty.dtype);
        module.functions().any(|(_, function)| {
            function.ids().any(|id| function.ty(id).as_tensor().is_some_and(is_one))
        })
    };
    if !has(&[DType::I8, DType::U8]) {
        options.levels.retain(|level| !LEVELS_FOR_BYTES.contains(level));
    }
    if options.numerics != Numerics::Float16 || !has(&[DType::F16]) {
        options.levels.retain(|level| *level != LEVEL_FOR_HALVES);
    }
    options
}

/// Names the node of the model that each problem of a kernel is about: that of the last expression
/// of the function that the kernel was made of.
fn locate(mut report: Report, module: &IRModule) -> Report {
    for problem in report.problems.iter_mut().filter(|problem| problem.node.is_none()) {
        let Some((_, rest)) = problem.message.split_once("kernel `") else { continue };
        let Some((name, _)) = rest.split_once('`') else { continue };
        // One function in several layouts is several kernels.
        let made_of = |function: &str| {
            name.strip_prefix(function)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("_v"))
        };
        let made_of = module.functions().filter(|(global, _)| made_of(global.name()));
        let function = made_of.max_by_key(|(global, _)| global.name().len());
        let spans = function.map(|(_, function)| {
            let spans = function.ids().rev().map(|id| function.span(id).clone());
            spans.collect::<Vec<Span>>()
        });
        problem.node =
            spans.into_iter().flatten().find_map(|span| ProblemNode::of(&span)).map(Box::new);
    }
    report
}

/// Compiles the model file `path`: ONNX, or the text of a module.
///
/// # Errors
///
/// As [`compile`]; also if the file cannot be read or is no model.
pub fn compile_file(path: &Path, options: &CompileOptions) -> Result<CompiledModel, Report> {
    let model = Model::read(path)?;
    let passes = Passes::new(options)?;
    compile(&model, options, &passes).map(|compilation| compilation.model)
}

#[cfg(test)]
mod tests;
