//! From a model to native code: every stage, in order.

mod identity;
mod interface;
mod model;
mod stages;

use std::path::Path;

pub use model::Model;
#[cfg(any(feature = "cli", test))]
pub(crate) use model::sidecar_path;
pub use stages::{Stage, Stages};

use crate::codegen::c::{SourceFile, compile_c};
use crate::diagnostics::{Problem, Report};
use crate::executor::aot::{PackedWeights, c_sources};
use crate::executor::{CompiledModel, Program};
use crate::ir::IRModule;
use crate::memory;
use crate::options::CompileOptions;
use crate::pass::{Pass, PassContext};
use crate::strategy;
use crate::transform::pipeline::{PipelineExtensions, pipeline};

/// A compiled model, and what led to it.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// The model.
    pub model: CompiledModel,
    /// The module that kernels were made of.
    pub module: IRModule,
    /// The lowered program: kernels and their calls. Empty in a stub.
    pub program: Program,
    /// The C files that the objects were compiled from.
    pub sources: Vec<SourceFile>,
    /// Most bytes of intermediate values that are alive in one step.
    pub peak_live_bytes: u64,
    /// How long each stage took.
    pub stages: Stages,
}

/// Compiles a model.
///
/// # Errors
///
/// Every problem of the first stage that has any.
pub fn compile(model: &Model, options: &CompileOptions) -> Result<Compilation, Report> {
    let (target, jobs) = (&options.target, options.jobs);
    let mut stages = Stages::default();
    let imported = stages.run("import", || model.import(options))?;
    let interface = stages.run("interface", || interface::of(model, &imported))?;
    let cx = context(options)?;
    let module = stages.run("passes", || optimize(imported.module, &cx))?;
    if options.stub {
        return Ok(interface.stub(options, module, stages));
    }
    let mut program = stages.run("strategies", || strategy::program(&module, target))?;
    program.verify()?;
    program.merge_equal_kernels();
    let symbol = identity::symbol(&interface, &program, options);
    let plan = stages.run("memory plan", || memory::plan(&program))?;
    program.insert_border_steps(&plan);
    stages.run("lower kernels", || program.lower_kernels(target, jobs))?;
    let weights = stages.run("pack weights", || PackedWeights::pack(&program, &plan))?;
    let code =
        stages.run("write C", || c_sources(&program, &plan, &weights, &symbol, target, jobs))?;
    let objects = stages
        .run("compile C", || compile_c(&code.files, target, jobs))
        .map_err(|error| Problem::new(error.to_string()))?;
    let macs = program.steps.iter().map(|step| program.kernels[step.kernel].macs).sum();
    let model = CompiledModel {
        symbol,
        workspace_bytes: plan.arena_bytes + code.scratch_stride * options.threads as u64,
        scratch_offset: plan.arena_bytes,
        scratch_stride: code.scratch_stride,
        weights: weights.bytes,
        macs,
        objects,
        ..interface.model(options)
    };
    let (sources, peak_live_bytes) = (code.files, plan.peak_live_bytes);
    Ok(Compilation { model, module, program, sources, peak_live_bytes, stages })
}

/// Compiles the model file `path`: ONNX, or the text of a module.
///
/// # Errors
///
/// As [`compile`]; also if the file cannot be read or is no model.
pub fn compile_file(path: &Path, options: &CompileOptions) -> Result<CompiledModel, Report> {
    let model = Model::read(path)?;
    compile(&model, options).map(|compilation| compilation.model)
}

/// The context in which passes run for these options.
///
/// # Errors
///
/// An option names a pass that does not exist.
pub fn context(options: &CompileOptions) -> Result<PassContext, Report> {
    let mut builder = PassContext::builder().opt_level(options.opt_level).jobs(options.jobs);
    for pass in &options.disabled_passes {
        builder = builder.disable_pass(pass);
    }
    Ok(builder.build()?)
}

/// Runs the default pipeline.
///
/// # Errors
///
/// A pass fails.
pub fn optimize(module: IRModule, cx: &PassContext) -> Result<IRModule, Report> {
    Ok(pipeline(&PipelineExtensions::new())?.run(module, cx)?)
}

#[cfg(test)]
mod tests;
