//! The pass infrastructure: no pass lives here.
//!
//! A pass is a function from a module to a module, with an attribute:
//!
//! ```
//! use niello::ir::IRModule;
//! use niello::pass::{Pass, PassContext, module_pass};
//!
//! /// Does nothing, well.
//! #[module_pass(opt_level = 1)]
//! fn leave_alone(module: IRModule, _cx: &PassContext) -> IRModule {
//!     module
//! }
//!
//! # fn main() -> niello::pass::Result<()> {
//! let cx = PassContext::builder().opt_level(3).build()?;
//! let module = IRModule::new();
//! assert!(LeaveAlone.run(module.clone(), &cx)?.same(&module));
//! # Ok(())
//! # }
//! ```
//!
//! A pass gets all it needs from its [`PassContext`]. All passes run through one funnel
//! ([`Pass::run`]), which calls the context's instruments; a [`Sequential`] decides which of its
//! passes run, and orders the passes that they require.

mod analysis;
mod builder;
mod by_function;
mod config;
mod context;
mod diagnose;
mod error;
mod evaluator;
mod fan_out;
mod function_pass;
mod info;
mod instrument;
pub mod instruments;
mod module_pass;
mod names;
mod plan;
mod prim_func_pass;
mod print_ir;
mod progress;
mod property;
mod registry;
mod run;
mod scope;
mod sequential;
mod sink;
mod textual;
mod upstream;
mod verify;

pub use crate::diagnostics::Origin;
pub use analysis::{
    Analyses, Analysis, AnalysisInfo, AnalysisRef, AnalysisSet, AnalysisUnit, InvalidateAnalysis,
    PreservedAnalyses, RequireAnalysis,
};
pub use builder::{DEFAULT_CONTEXT_OPT_LEVEL, MAX_OPT_LEVEL, PassContextBuilder};
pub use config::{ConfigEntry, ConfigKey, ConfigValue, list_configs};
pub use context::{PassContext, Verifier};
pub(crate) use error::panic_message;
pub use error::{BoxError, Hook, PassError, PassErrorKind, Result};
pub use evaluator::{Evaluator, ReferenceEvaluator};
pub use function_pass::{FunctionPass, IntoFunction, is_optimizable, transform_functions};
pub use info::{InvalidPassName, NamedPass, PassInfo, PassKind, Preserves, Requirement};
pub use instrument::{
    HookResult, InstrumentOutput, InstrumentRef, IntoHookResult, PassInstrument, Said,
};
pub use instruments::PassTiming;
pub use module_pass::{IntoModule, ModulePass};
pub use names::same as same_name;
pub use niello_macros::{function_pass, module_pass, pass_instrument, prim_func_pass};
pub use plan::Plan;
pub use prim_func_pass::{IntoPrimFunc, PrimFuncPass, transform_prim_funcs};
pub use print_ir::print_ir;
pub use property::{IrProperty, Property};
pub use registry::{PassEntry, Registry};
pub use run::{Pass, PassBody, PassRef, RunToken};
pub use scope::{AttachGuard, ScopeGuard, take_deferred_errors};
pub use sequential::Sequential;
pub use sink::{Remark, Statistics};
pub use textual::{PipelineText, options_of, struct_option_of};
pub use upstream::{Counterpart, UPSTREAM, counterpart};

/// Items that expansions of the macros name; not for other use.
#[doc(hidden)]
pub mod __private {
    pub use super::config::ConfigOption;
    pub use super::info::{ByDefault, MakePass, NoDefault, StaticPassInfo};
    pub use inventory;
}

#[cfg(test)]
mod tests;
