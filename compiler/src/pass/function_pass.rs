//! Passes of graph functions: one function after the other, or side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{BoxError, PassBody, PassContext, PassError, PassInfo, PassKind, Result, RunToken};
use crate::graph::Function;
use crate::ir::{Attrs, Definition, GlobalVar, IRModule};

/// Expressions in a module below which its functions are rewritten on the calling thread.
///
/// A thread takes some 30 µs to start, in which a pass rewrites a few hundred expressions.
const MIN_PARALLEL_EXPRS: usize = 2048;

/// What the function of a function pass may return: a function, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a function pass must return `Function` or a `Result` of it, not `{Self}`",
    label = "not a function"
)]
pub trait IntoFunction {
    /// The function, or why there is none.
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

/// Whether function passes touch a function with these attributes: not if it is another code
/// generator's, defined elsewhere, or marked to be left alone.
pub fn is_optimizable(attrs: &Attrs) -> bool {
    attrs.get("Compiler").is_none() && !attrs.flag("Extern") && !attrs.flag("SkipOptimization")
}

/// The work of a function pass.
type Body<'a> = dyn Fn(Function, &IRModule, &PassContext) -> Result<Function> + Sync + 'a;

/// Runs `body` on every graph function that [may be optimised](is_optimizable).
///
/// Every call sees the module as it was before the pass. Results, diagnostics and remarks do not
/// depend on the number of threads: they are put together in the order of the module, and of
/// several errors the first in that order is returned.
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
    let work: Vec<(&GlobalVar, &Function)> =
        before.functions().filter(|(_, function)| is_optimizable(function.attrs())).collect();
    let exprs: usize = work.iter().map(|(_, function)| function.len()).sum();
    let workers = if exprs < MIN_PARALLEL_EXPRS { 1 } else { cx.jobs().min(work.len()) };

    let ambient = PassContext::current();
    let run = |(global, function): (&GlobalVar, &Function)| {
        let inner = cx.for_function(global, function);
        let result = {
            let _installed = inner.install();
            catch_unwind(AssertUnwindSafe(|| body(function.clone(), &before, &inner)))
        };
        let result = result.unwrap_or_else(|payload| Err(PassError::from_panic(&*payload)));
        (inner, result.map_err(|error| error.about(global)))
    };
    let mut finish =
        |global: &GlobalVar, (inner, result): (PassContext, Result<Function>)| -> Result<()> {
            inner.drain_into(cx);
            module.insert(global.clone(), Definition::Graph(result?));
            Ok(())
        };

    if workers <= 1 {
        for (global, function) in work {
            finish(global, run((global, function)))?;
        }
        return Ok(module);
    }
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let done: Vec<Mutex<Option<(PassContext, Result<Function>)>>> =
        work.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let _attached = ambient.attach();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // Indices are handed out in order: all before a failure are done or under way.
                    if index >= work.len() || index > first_failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let result = run(work[index]);
                    if result.1.is_err() {
                        first_failed.fetch_min(index, Ordering::Relaxed);
                    }
                    *done[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    for ((global, _), result) in work.into_iter().zip(done) {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        finish(global, result.expect("only functions after a failed one are left out"))?;
    }
    Ok(module)
}

/// A function pass made from a closure.
pub struct FunctionPass {
    info: PassInfo,
    body: Box<dyn Fn(Function, &IRModule, &PassContext) -> Result<Function> + Send + Sync>,
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
