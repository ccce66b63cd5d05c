//! Passes of graph functions.

use super::fan_out::{Work, fan_out};
use super::{BoxError, PassBody, PassContext, PassError, PassInfo, PassKind, Result, RunToken};
use crate::graph::Function;
use crate::ir::{Attrs, Definition, IRModule};

/// What the function of a function pass may return: a function, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a function pass must return `Function` or a `Result` of it, not `{Self}`",
    label = "not a function"
)]
pub trait IntoFunction {
    /// The function, or the pass's error.
    ///
    /// # Errors
    ///
    /// If the pass returned an error.
    fn into_function(self) -> Result<Function>;
}

impl IntoFunction for Function {
    fn into_function(self) -> Result<Function> {
        Ok(self)
    }
}

impl<E: Into<BoxError>> IntoFunction for Result<Function, E> {
    fn into_function(self) -> Result<Function> {
        self.map_err(PassError::new)
    }
}

/// Whether function passes may change a function with these attributes: not if another code
/// generator compiles it, if it is defined elsewhere, or if it is marked to be left alone.
pub fn is_optimizable(attrs: &Attrs) -> bool {
    attrs.get("Compiler").is_none() && !attrs.flag("Extern") && !attrs.flag("SkipOptimization")
}

/// The work of a function pass.
type Body<'a> = dyn Fn(Function, &IRModule, &PassContext) -> Result<Function> + Sync + 'a;

/// Runs `body` on every graph function that [may be optimised](is_optimizable).
///
/// Every call sees the module as it was before the pass. Results, diagnostics and remarks do not
/// depend on the number of threads: they are joined in the order of the module, and of several
/// errors the first in that order is returned.
///
/// # Errors
///
/// The first error of `body`.
pub fn transform_functions(
    mut module: IRModule,
    cx: &PassContext,
    body: &Body<'_>,
) -> Result<IRModule> {
    let before = module.clone();
    let work: Vec<Work<'_, Function>> = before
        .functions()
        .filter(|(global, function)| cx.is_for(global) && is_optimizable(function.attrs()))
        .map(|(global, function)| Work {
            global,
            unit: function,
            function: Some(function),
            size: function.len(),
        })
        .collect();
    let rewrite = |function: &Function, cx: &PassContext| body(function.clone(), &before, cx);
    fan_out(&work, cx, rewrite, |global, function| {
        module.insert(global.clone(), Definition::Graph(function));
    })?;
    Ok(module)
}

/// The work of a function pass as a shared closure.
type SharedBody = dyn Fn(Function, &IRModule, &PassContext) -> Result<Function> + Send + Sync;

/// A function pass made from a closure.
pub struct FunctionPass {
    info: PassInfo,
    body: Box<SharedBody>,
}

impl FunctionPass {
    /// A pass of that name and level, which runs `body` on every function that
    /// [may be optimised](is_optimizable).
    pub fn new<R: IntoFunction>(
        info: PassInfo,
        body: impl Fn(Function, &IRModule, &PassContext) -> R + Send + Sync + 'static,
    ) -> FunctionPass {
        FunctionPass {
            info: info.with_kind(PassKind::Function),
            body: Box::new(move |function, module, cx| body(function, module, cx).into_function()),
        }
    }
}

impl PassBody for FunctionPass {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        transform_functions(module, cx, &*self.body)
    }
}
