//! Passes, and the one funnel that all of them run through.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{PassContext, PassError, PassErrorKind, PassInfo, Result, instrument};
use crate::ir::IRModule;

/// Proof that a pass is run by the funnel, which alone can make one.
#[derive(Debug)]
pub struct RunToken(());

/// What a pass is made of. The attribute macros implement it; to run a pass, see [`Pass`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pass",
    note = "write it as a function with `#[module_pass]`, `#[function_pass]` or `#[prim_func_pass]`, or implement `PassBody`"
)]
pub trait PassBody: Send + Sync + 'static {
    /// What is known about the pass; always the same.
    fn info(&self) -> &PassInfo;

    /// The work. Only the funnel calls it.
    ///
    /// # Errors
    ///
    /// Whatever keeps the pass from doing its work; the caller's module stays as it was.
    fn transform(&self, module: IRModule, cx: &PassContext, token: RunToken) -> Result<IRModule>;

    /// The passes that this one runs in order, if it is a list of them.
    fn members(&self) -> &[PassRef] {
        &[]
    }
}

/// A pass: from a module to a module.
pub trait Pass: PassBody {
    /// Runs the pass under a context: instruments, then the pass, then verification if the context
    /// asks for it, then instruments.
    ///
    /// The level of the context and its lists of passes play no part here: they decide what a
    /// [`Sequential`](super::Sequential) runs.
    ///
    /// # Errors
    ///
    /// If the pass or an instrument fails or panics, the pass emitted an error, or its result is
    /// malformed. A clone of `module` that the caller kept is as it was.
    fn run(&self, module: IRModule, cx: &PassContext) -> Result<IRModule>;

    /// Runs the pass under the [current](PassContext::current) context.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    fn apply(&self, module: IRModule) -> Result<IRModule>;
}

impl<P: PassBody> Pass for P {
    fn run(&self, module: IRModule, cx: &PassContext) -> Result<IRModule> {
        funnel(self, module, cx, Asked::ByCaller)
    }

    fn apply(&self, module: IRModule) -> Result<IRModule> {
        self.run(module, &PassContext::current())
    }
}

/// A shared pass.
#[derive(Clone)]
pub struct PassRef(Arc<dyn Pass>);

impl PassRef {
    /// Shares a pass.
    pub fn new(pass: impl PassBody) -> PassRef {
        PassRef(Arc::new(pass))
    }

    /// Runs it as a requirement of another pass: no instrument can keep it from running.
    pub(super) fn run_required(&self, module: IRModule, cx: &PassContext) -> Result<IRModule> {
        funnel(&*self.0, module, cx, Asked::AsRequirement)
    }
}

impl<P: PassBody> From<P> for PassRef {
    fn from(pass: P) -> PassRef {
        PassRef::new(pass)
    }
}

impl Deref for PassRef {
    type Target = dyn Pass;

    fn deref(&self) -> &(dyn Pass + 'static) {
        &*self.0
    }
}

impl fmt::Debug for PassRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassRef({})", self.info().name())
    }
}

/// Who wants a pass to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    ByCaller,
    AsRequirement,
}

/// Runs a pass with everything around it. Nothing else calls [`PassBody::transform`].
fn funnel<P: PassBody + ?Sized>(
    pass: &P,
    module: IRModule,
    cx: &PassContext,
    asked: Asked,
) -> Result<IRModule> {
    let info = pass.info();
    let within = |error: PassError| error.within(info.name());
    // Function passes run side by side: what they run themselves is not the caller's instruments'
    // business.
    let cx = &if cx.is_in_function() { cx.fresh_within_function() } else { cx.clone() };
    // One snapshot for before and after, so that the two always nest.
    let instruments = cx.instruments();
    let must_run = asked == Asked::AsRequirement || cx.is_required(info.name());
    if !instrument::before_pass(&instruments, &module, info, must_run).map_err(within)? {
        return Ok(module);
    }
    // The clone makes the pass's edits copy, so that the caller's module and this comparison hold.
    let input = module.clone();
    let inner = cx.for_pass(info.name());
    let result = {
        let _installed = inner.install();
        catch_unwind(AssertUnwindSafe(|| pass.transform(module, &inner, RunToken(()))))
    };
    let result = result.unwrap_or_else(|payload| Err(PassError::from_panic(&*payload)));
    // The records are copied only if someone wants to hear them: hooks may not run under the lock.
    let heard = if instruments.is_empty() { None } else { Some(inner.records()) };
    let result = inner.settle(cx, result).and_then(|output| {
        if output.same(&input) {
            return Ok(output);
        }
        match cx.verifier().map(|verify| verify(&output)) {
            None | Some(Ok(())) => Ok(output),
            Some(Err(errors)) => Err(PassErrorKind::Verify(errors).into()),
        }
    });
    let told = heard.map_or(Ok(()), |heard| instrument::said(&instruments, info, &heard));
    let result = match (result, told) {
        (Ok(output), told) => told.map(|()| output),
        (Err(error), told) => Err(error.followed_by(told.err())),
    };
    match result {
        Ok(output) => {
            instrument::after_pass(&instruments, &output, info).map_err(within)?;
            Ok(output)
        }
        Err(error) => Err(instrument::after_failure(&instruments, info, within(error))),
    }
}
