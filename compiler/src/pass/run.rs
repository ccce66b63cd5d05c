//! Passes, and the one funnel that all of them run through.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::analysis::Change;
use super::prim_func_pass::run_on_prim_func;
use super::verify::{self, Claims};
use super::{Hook, PassContext, PassError, PassInfo, Result, instrument};
use crate::ir::IRModule;
use crate::tir::PrimFunc;

/// Proof that a pass is run by the funnel, which alone can make one.
#[derive(Debug)]
pub struct RunToken(());

/// The body of a pass. The attribute macros implement it; to run a pass, see [`Pass`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pass",
    note = "write it as a function with `#[module_pass]`, `#[function_pass]` or `#[prim_func_pass]`, or implement `PassBody`"
)]
pub trait PassBody: Send + Sync + 'static {
    /// The description of the pass; always the same.
    fn info(&self) -> &PassInfo;

    /// The work. Only the funnel calls it.
    ///
    /// # Errors
    ///
    /// The error that keeps the pass from doing its work; the caller's module stays as it was.
    fn transform(&self, module: IRModule, cx: &PassContext, token: RunToken) -> Result<IRModule>;

    /// The work on one loop function, if this is a pass of loop functions: the new function, or
    /// `None` to delete it.
    ///
    /// # Errors
    ///
    /// The error that keeps the pass from doing its work; also if this is no pass of loop
    /// functions.
    fn on_prim_func(
        &self,
        func: PrimFunc,
        module: &IRModule,
        cx: &PassContext,
    ) -> Result<Option<PrimFunc>> {
        let _ = (func, module, cx);
        Err(PassError::new("this is no pass of loop functions"))
    }

    /// Prepares the pass, at some cost, for any number of modules: called once before the first
    /// pass of the outermost list runs, or before the pass runs alone.
    ///
    /// # Errors
    ///
    /// The error that keeps the pass from being prepared; no pass of the list runs.
    fn initialize(&self, cx: &PassContext) -> Result<()> {
        let _ = cx;
        Ok(())
    }

    /// The passes that this one runs in order, if it is a list of them.
    fn members(&self) -> &[PassRef] {
        &[]
    }
}

/// A pass: from a module to a module.
pub trait Pass: PassBody {
    /// Runs the pass under a context: instruments, then the pass, then verification if the context
    /// asks for it or another crate than niello declares the pass, then instruments.
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

    /// Runs the pass on one loop function without a module around it. A pass of loop functions does
    /// its work in place, and instruments are not told: for whoever lowers many kernels. Any other
    /// pass runs as by [`run`](Self::run), on a module of that function alone.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); also if the pass deletes the function.
    fn run_on_prim_func(&self, func: PrimFunc, cx: &PassContext) -> Result<PrimFunc>;
}

impl<P: PassBody> Pass for P {
    fn run(&self, module: IRModule, cx: &PassContext) -> Result<IRModule> {
        Ok(funnel(self, module, cx, Asked::ByCaller)?.module)
    }

    fn apply(&self, module: IRModule) -> Result<IRModule> {
        self.run(module, &PassContext::current())
    }

    fn run_on_prim_func(&self, func: PrimFunc, cx: &PassContext) -> Result<PrimFunc> {
        run_on_prim_func(self, func, cx)
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

    /// Runs the pass; `asked` says on whose behalf.
    pub(super) fn run_asked(
        &self,
        module: IRModule,
        cx: &PassContext,
        asked: Asked,
    ) -> Result<Ran> {
        funnel(&*self.0, module, cx, asked)
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

/// The reason for which a pass runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A direct call of [`Pass::run`].
    ByCaller,
    /// A list that contains the pass, and has initialized it.
    ByList,
    /// A list, for another pass that requires this one: no instrument can stop it.
    AsRequirement,
}

/// The outcome of a pass.
pub(super) struct Ran {
    pub(super) module: IRModule,
    /// Whether an instrument kept the pass from running.
    pub(super) skipped: bool,
}

/// Runs a pass between the hooks. Nothing else calls [`PassBody::transform`].
fn funnel<P: PassBody + ?Sized>(
    pass: &P,
    module: IRModule,
    cx: &PassContext,
    asked: Asked,
) -> Result<Ran> {
    let info = pass.info();
    let within = |error: PassError| error.within(info.name());
    // Function passes run on several threads: passes that they run themselves are hidden from the
    // caller's instruments.
    let cx = &if cx.is_in_function() { cx.fresh_within_function() } else { cx.clone() };
    // One snapshot for before and after, so that the two always nest.
    let instruments = cx.instruments();
    let must_run = asked == Asked::AsRequirement || cx.is_required(info.name());
    if !instrument::before_pass(&instruments, &module, info, must_run).map_err(within)? {
        return Ok(Ran { module, skipped: true });
    }
    // The clone makes the pass's edits copy, so that the caller's module and this comparison hold.
    let input = module.clone();
    let since = cx.cache().now();
    let inner = cx.for_pass(info);
    let result = {
        let _installed = inner.install();
        catch_unwind(AssertUnwindSafe(|| {
            if asked == Asked::ByCaller {
                pass.initialize(&inner)?;
            }
            for analysis in info.analyses() {
                analysis.compute(&module, &inner);
            }
            pass.transform(module, &inner, RunToken(()))
        }))
    };
    let (result, panic) = match result {
        Ok(result) => (result, None),
        Err(payload) => (Err(PassError::from_panic(&*payload)), Some(payload)),
    };
    let mut records = inner.take_records();
    let claims = Claims { info, said: std::mem::take(&mut records.claims) };
    let result = records.settle(result).and_then(|output| {
        verify::verify(cx, &claims, &input, &output)?;
        Ok(output)
    });
    let change = Change { before: &input, after: result.as_ref().unwrap_or(&input), since };
    let update = cx.cache().update(&change, |unit| claims.about(unit), cx.verifier().map(|_| cx));
    let result = verify::carried_over(&update, &claims).and(result);
    for analysis in &update.invalidated {
        inner.tell(&instruments, Hook::AnalysisInvalidated, |i| i.analysis_invalidated(analysis));
    }
    let told = instrument::said(&instruments, info, &records);
    cx.absorb(records);
    let mut late = inner.take_records();
    late.failures.extend(told.err());
    let result = late.settle(result);
    cx.absorb(late);
    match result {
        Ok(output) => {
            instrument::after_pass(&instruments, &output, info).map_err(within)?;
            Ok(Ran { module: output, skipped: false })
        }
        Err(error) => {
            let error = instrument::after_failure(&instruments, info, within(error));
            match panic {
                Some(payload) if cx.resumes_panics() => resume_unwind(payload),
                _ => Err(error),
            }
        }
    }
}
