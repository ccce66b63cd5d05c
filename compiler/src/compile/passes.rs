//! Which passes run, and under which context.

use crate::codegen::ExternalOptions;
use crate::diagnostics::Report;
use crate::ir::IRModule;
use crate::options::{CompileOptions, Denormals, Numerics};
use crate::pass::{Pass, PassContext, PassContextBuilder};
use crate::strategy::measured_algorithms;
use crate::target::Target;
use crate::tir::transform::{FLOAT16_ARITHMETIC, FLUSH_DENORMALS, PARALLEL_THREADS, STRICT_MATH};
use crate::transform::pipeline::{PipelineExtensions, changing_arithmetic, pipeline};
use crate::transform::{
    APART, AnnotateTarget, COMPOSITE_PATTERNS, EXTERNAL_DEVICES, EXTERNAL_TARGETS,
    MEASURED_ALGORITHMS, MergeCompilerRegions, MergeComposite, PartitionGraph, VECTOR_BITS,
};

/// The pass before which parts of the graph are given to other code generators.
const EXTERNAL_PLACE: &str = "CanonicalizeOps";

/// The passes of a compilation: the pipeline of the graph, what a caller adds to it, and the context,
/// under which kernels are lowered, too.
#[derive(Clone, Debug)]
pub struct Passes {
    /// Levels, lists, instruments and options.
    pub context: PassContext,
    /// Passes beside those of the pipeline.
    pub extensions: PipelineExtensions,
}

impl Passes {
    /// The pipeline alone, under the context that the options ask for.
    ///
    /// # Errors
    ///
    /// An option names a pass that does not exist.
    pub fn new(options: &CompileOptions) -> Result<Passes, Report> {
        let context = Self::context(options).build()?;
        Ok(Passes { context, extensions: PipelineExtensions::new() })
    }

    /// The context that the options ask for, to which a caller may add.
    pub fn context(options: &CompileOptions) -> PassContextBuilder {
        let builder = PassContext::builder()
            .opt_level(options.opt_level)
            .jobs(options.jobs)
            .target(options.target.clone());
        let strict = options.numerics == Numerics::Strict;
        let builder = builder
            .config(&FLUSH_DENORMALS, options.denormals == Denormals::Flush)
            .config(&STRICT_MATH, strict);
        let has_halves = options.targets().iter().any(Target::has_fp16_arithmetic);
        let builder = match has_halves && options.numerics == Numerics::Float16 {
            true => builder.config(&FLOAT16_ARITHMETIC, true),
            false => builder,
        };
        let widest = options.targets().last().map_or(0, Target::vector_bits);
        let builder = match widest == options.target.vector_bits() {
            true => builder,
            false => builder.config(&VECTOR_BITS, widest),
        };
        let algorithms = match options.targets().last() {
            Some(widest) => measured_algorithms(&options.tuned, widest),
            None => Default::default(),
        };
        let builder = match algorithms.is_empty() {
            true => builder,
            false => builder.config(&MEASURED_ALGORITHMS, algorithms),
        };
        let builder = match options.threads {
            0 | 1 => builder,
            threads => builder.config(&PARALLEL_THREADS, threads as u64),
        };
        let builder = match &options.external[..] {
            [] => builder,
            names => {
                let ExternalOptions { targets, devices, patterns, apart } =
                    ExternalOptions::of(names);
                let builder = builder.config(&EXTERNAL_TARGETS, targets);
                let builder = builder.config(&EXTERNAL_DEVICES, devices);
                builder.config(&COMPOSITE_PATTERNS, patterns).config(&APART, apart)
            }
        };
        let changing = changing_arithmetic();
        let left_out = changing.iter().filter(|_| strict).map(|pass| pass.info().name());
        let left_out = left_out.chain(options.disabled_passes.iter().map(String::as_str));
        let builder = left_out.fold(builder, |builder, pass| builder.disable_pass(pass));
        let config = options.config.iter();
        config.fold(builder, |builder, (name, value)| builder.config_value(name, value.clone()))
    }

    /// Runs the passes on a module.
    ///
    /// # Errors
    ///
    /// A pass fails, or an extension names no place.
    pub fn run(&self, module: IRModule) -> Result<IRModule, Report> {
        let passes = pipeline(&self.all_extensions())?;
        Ok(self.context.scope(|cx| passes.run(module, cx))?)
    }

    /// The extensions, with the passes that give parts of the graph to other code generators.
    pub(super) fn all_extensions(&self) -> PipelineExtensions {
        let mut extensions = self.extensions.clone();
        let targets = self.context.get(&EXTERNAL_TARGETS);
        if !targets.is_empty() || !self.context.get(&EXTERNAL_DEVICES).is_empty() {
            // After what makes calls simpler, and before what niello's own kernels need.
            extensions.before(EXTERNAL_PLACE, MergeComposite);
            extensions.before(EXTERNAL_PLACE, AnnotateTarget);
            extensions.before(EXTERNAL_PLACE, MergeCompilerRegions);
            extensions.before(EXTERNAL_PLACE, PartitionGraph);
        }
        extensions
    }
}
