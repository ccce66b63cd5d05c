//! Passes of whole modules, from functions and closures.

use super::{BoxError, PassBody, PassContext, PassError, PassInfo, PassKind, Result, RunToken};
use crate::ir::IRModule;

/// What the function of a module pass may return: a module, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a module pass must return `IRModule` or a `Result` of it, not `{Self}`",
    label = "not a module"
)]
pub trait IntoModule {
    /// The module, or the pass's error.
    ///
    /// # Errors
    ///
    /// If the pass returned an error.
    fn into_module(self) -> Result<IRModule>;
}

impl IntoModule for IRModule {
    fn into_module(self) -> Result<IRModule> {
        Ok(self)
    }
}

impl<E: Into<BoxError>> IntoModule for Result<IRModule, E> {
    fn into_module(self) -> Result<IRModule> {
        self.map_err(PassError::new)
    }
}

/// The work of a module pass.
type Body = dyn Fn(IRModule, &PassContext) -> Result<IRModule> + Send + Sync;

/// A module pass made from a closure.
pub struct ModulePass {
    info: PassInfo,
    body: Box<Body>,
}

impl ModulePass {
    /// A pass of that name and level, which runs `body` on the module.
    pub fn new<R: IntoModule>(
        info: PassInfo,
        body: impl Fn(IRModule, &PassContext) -> R + Send + Sync + 'static,
    ) -> ModulePass {
        ModulePass {
            info: info.with_kind(PassKind::Module),
            body: Box::new(move |module, cx| body(module, cx).into_module()),
        }
    }
}

impl PassBody for ModulePass {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        (self.body)(module, cx)
    }
}
