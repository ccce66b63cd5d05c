//! Which graph passes run, and under which context.

use crate::diagnostics::{Problem, Report};
use crate::ir::IRModule;
use crate::options::CompileOptions;
use crate::pass::{Pass, PassContext, PassContextBuilder, PassError, PassErrorKind};
use crate::transform::pipeline::{PipelineExtensions, pipeline};

/// The graph passes of a compilation: the pipeline, what a caller adds to it, and the context.
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
        let context = Self::context(options).build().map_err(|error| report_of(&error))?;
        Ok(Passes { context, extensions: PipelineExtensions::new() })
    }

    /// The context that the options ask for, to which a caller may add.
    pub fn context(options: &CompileOptions) -> PassContextBuilder {
        let builder = PassContext::builder().opt_level(options.opt_level).jobs(options.jobs);
        options.disabled_passes.iter().fold(builder, |builder, pass| builder.disable_pass(pass))
    }

    /// Runs the passes on a module.
    ///
    /// # Errors
    ///
    /// A pass fails, or an extension names no place.
    pub fn run(&self, module: IRModule) -> Result<IRModule, Report> {
        pipeline(&self.extensions)
            .and_then(|passes| self.context.scope(|cx| passes.run(module, cx)))
            .map_err(|error| report_of(&error))
    }
}

/// The problems that an error of passes stands for.
pub(crate) fn report_of(error: &PassError) -> Report {
    match error.kind() {
        PassErrorKind::Invalid(report) => report.clone(),
        _ => Problem::new(error.to_string()).into(),
    }
}
