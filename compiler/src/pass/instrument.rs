//! Instruments: observers of passes, which may also keep a pass from running.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::error::panic_message;
use super::sink::Records;
use super::{
    AnalysisInfo, BoxError, Hook, PassError, PassErrorKind, PassInfo, Remark, Result, Statistics,
};
use crate::diagnostics::Diagnostic;
use crate::ir::IRModule;

/// What a hook returns.
pub type HookResult<T = ()> = std::result::Result<T, BoxError>;

/// What a hook may return in an impl block with `#[pass_instrument]`: its answer, or a `Result` of
/// it with any error.
#[diagnostic::on_unimplemented(
    message = "this hook must return `{T}`, or a `Result` of it, not `{Self}`",
    label = "not what a hook returns"
)]
pub trait IntoHookResult<T> {
    /// The answer, or the hook's error.
    ///
    /// # Errors
    ///
    /// If the hook returned an error.
    fn into_hook_result(self) -> HookResult<T>;
}

impl IntoHookResult<()> for () {
    fn into_hook_result(self) -> HookResult {
        Ok(())
    }
}

impl IntoHookResult<bool> for bool {
    fn into_hook_result(self) -> HookResult<bool> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> IntoHookResult<T> for std::result::Result<T, E> {
    fn into_hook_result(self) -> HookResult<T> {
        self.map_err(Into::into)
    }
}

/// Watches the passes of a context.
///
/// Every hook may be left out, and is called in the order in which instruments were registered,
/// before and after alike. Instruments are shared by contexts and threads: hooks take `&self`, and
/// state is behind a mutex or atomic. A hook may run passes itself, or change the context's
/// instruments; that takes effect with the next pass.
pub trait PassInstrument: Send + Sync {
    /// The name in messages; the type's own by default.
    fn name(&self) -> &str {
        let name = std::any::type_name::<Self>();
        name.rsplit("::").next().unwrap_or(name)
    }

    /// A context with this instrument is about to become the current one.
    ///
    /// # Errors
    ///
    /// The context is not entered, and loses its instruments.
    fn enter_pass_ctx(&self) -> HookResult {
        Ok(())
    }

    /// A context with this instrument is no longer the current one.
    ///
    /// # Errors
    ///
    /// Later instruments are not told, and the context loses its instruments.
    fn exit_pass_ctx(&self) -> HookResult {
        Ok(())
    }

    /// Whether a pass is to run. All instruments are asked, and all must agree; they are not asked
    /// about a pass that the context or another pass requires.
    ///
    /// # Errors
    ///
    /// The pass does not run, and the error is returned in its place.
    fn should_run(&self, module: &IRModule, info: &PassInfo) -> HookResult<bool> {
        let _ = (module, info);
        Ok(true)
    }

    /// A pass is about to run on `module`.
    ///
    /// # Errors
    ///
    /// The pass does not run, and the error is returned in its place.
    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let _ = (module, info);
        Ok(())
    }

    /// A pass has run and returned `module`.
    ///
    /// # Errors
    ///
    /// The pass's result is lost, and the error is returned in its place.
    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let _ = (module, info);
        Ok(())
    }

    /// A pass that was announced by [`run_before_pass`](Self::run_before_pass) did not return a
    /// module; called in place of [`run_after_pass`](Self::run_after_pass).
    ///
    /// # Errors
    ///
    /// The error is attached to the pass's.
    fn after_pass_failed(&self, info: &PassInfo, error: &PassError) -> HookResult {
        let _ = (info, error);
        Ok(())
    }

    /// The diagnostics, remarks and counts of a pass that has just returned or failed; called
    /// before [`run_after_pass`](Self::run_after_pass) or
    /// [`after_pass_failed`](Self::after_pass_failed).
    ///
    /// # Errors
    ///
    /// The pass's result is lost, and the error is returned in its place.
    fn pass_said(&self, info: &PassInfo, said: &Said<'_>) -> HookResult {
        let _ = (info, said);
        Ok(())
    }

    /// An analysis that a pass asked for is about to be computed; not called in the functions of a
    /// function pass, which run side by side.
    ///
    /// # Errors
    ///
    /// The error becomes that of the pass that is running.
    fn before_analysis(&self, info: &AnalysisInfo) -> HookResult {
        let _ = info;
        Ok(())
    }

    /// An analysis has been computed; see [`before_analysis`](Self::before_analysis).
    ///
    /// # Errors
    ///
    /// The error becomes that of the pass that is running.
    fn after_analysis(&self, info: &AnalysisInfo) -> HookResult {
        let _ = info;
        Ok(())
    }

    /// A result of an analysis no longer holds after the pass that has just run.
    ///
    /// # Errors
    ///
    /// The error becomes that of the pass.
    fn analysis_invalidated(&self, info: &AnalysisInfo) -> HookResult {
        let _ = info;
        Ok(())
    }

    /// An instrument kept a pass from running.
    ///
    /// # Errors
    ///
    /// The error is returned in place of the unchanged module.
    fn before_skipped_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let _ = (module, info);
        Ok(())
    }

    /// The files that the instrument offers once its context has been left; `niello-build` writes
    /// them beside the model's other files.
    fn outputs(&self) -> Vec<InstrumentOutput> {
        Vec::new()
    }
}

/// The diagnostics, remarks and counts of a pass and of the passes within it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Said<'a> {
    /// Diagnostics, in order.
    pub diagnostics: &'a [Diagnostic],
    /// Rewrites that the pass did not make, if the context records them.
    pub remarks: &'a [Remark],
    /// Counts, by pass and by counter.
    pub statistics: &'a Statistics,
}

/// One file that an instrument offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstrumentOutput {
    /// The end of the file's name, after that of the model: `timing.txt`.
    pub suffix: String,
    /// The contents.
    pub text: String,
}

impl InstrumentOutput {
    /// A file with that suffix and text.
    pub fn new(suffix: impl Into<String>, text: impl Into<String>) -> InstrumentOutput {
        InstrumentOutput { suffix: suffix.into(), text: text.into() }
    }
}

/// A shared instrument, so that its owner can read its results afterwards.
impl<T: PassInstrument + ?Sized> PassInstrument for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn enter_pass_ctx(&self) -> HookResult {
        (**self).enter_pass_ctx()
    }

    fn exit_pass_ctx(&self) -> HookResult {
        (**self).exit_pass_ctx()
    }

    fn should_run(&self, module: &IRModule, info: &PassInfo) -> HookResult<bool> {
        (**self).should_run(module, info)
    }

    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        (**self).run_before_pass(module, info)
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        (**self).run_after_pass(module, info)
    }

    fn after_pass_failed(&self, info: &PassInfo, error: &PassError) -> HookResult {
        (**self).after_pass_failed(info, error)
    }

    fn pass_said(&self, info: &PassInfo, said: &Said<'_>) -> HookResult {
        (**self).pass_said(info, said)
    }

    fn before_skipped_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        (**self).before_skipped_pass(module, info)
    }

    fn before_analysis(&self, info: &AnalysisInfo) -> HookResult {
        (**self).before_analysis(info)
    }

    fn after_analysis(&self, info: &AnalysisInfo) -> HookResult {
        (**self).after_analysis(info)
    }

    fn analysis_invalidated(&self, info: &AnalysisInfo) -> HookResult {
        (**self).analysis_invalidated(info)
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        (**self).outputs()
    }
}

impl fmt::Debug for dyn PassInstrument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassInstrument({})", self.name())
    }
}

/// A shared instrument.
pub type InstrumentRef = Arc<dyn PassInstrument>;

/// A list of instruments that stays the same during an iteration.
pub(super) type Instruments = Arc<[InstrumentRef]>;

/// Calls one hook of one instrument; a panic is an error.
pub(super) fn call<T>(
    instrument: &InstrumentRef,
    hook: Hook,
    body: impl FnOnce(&dyn PassInstrument) -> HookResult<T>,
) -> Result<T> {
    let source = match catch_unwind(AssertUnwindSafe(|| body(&**instrument))) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(payload) => format!("panicked: {}", panic_message(&*payload)).into(),
    };
    let instrument = instrument.name().to_owned();
    Err(PassErrorKind::Instrument { instrument, hook, source }.into())
}

/// Enters the instruments of a list; if one fails, leaves those before it, last first.
pub(super) fn enter_all(list: &Instruments) -> Result<()> {
    for (index, instrument) in list.iter().enumerate() {
        if let Err(error) = call(instrument, Hook::EnterPassCtx, |i| i.enter_pass_ctx()) {
            let secondary = list[..index].iter().rev().filter_map(|entered| {
                call(entered, Hook::ExitPassCtx, |i| i.exit_pass_ctx()).err()
            });
            return Err(error.followed_by(secondary.collect::<Vec<_>>()));
        }
    }
    Ok(())
}

/// Leaves the instruments of a list, up to the first that fails.
pub(super) fn exit_all(list: &Instruments) -> Result<()> {
    list.iter()
        .try_for_each(|instrument| call(instrument, Hook::ExitPassCtx, |i| i.exit_pass_ctx()))
}

/// Asks all instruments whether a pass may run, unless it must run, and then announces its run or
/// its skipping to them.
pub(super) fn before_pass(
    list: &Instruments,
    module: &IRModule,
    info: &PassInfo,
    must_run: bool,
) -> Result<bool> {
    let mut run = true;
    if !must_run {
        for instrument in list.iter() {
            run &= call(instrument, Hook::ShouldRun, |i| i.should_run(module, info))?;
        }
    }
    for (index, instrument) in list.iter().enumerate() {
        if !run {
            call(instrument, Hook::BeforeSkippedPass, |i| i.before_skipped_pass(module, info))?;
            continue;
        }
        if let Err(error) =
            call(instrument, Hook::RunBeforePass, |i| i.run_before_pass(module, info))
        {
            // The instruments that have heard of the start of the pass hear of its failure, the one
            // that failed among them: it may have noted the start.
            return Err(after_failure(&list[..=index], info, error));
        }
    }
    Ok(run)
}

/// Reports the records of a pass to all instruments.
pub(super) fn said(list: &Instruments, info: &PassInfo, records: &Records) -> Result<()> {
    let Records { diagnostics, remarks, statistics, .. } = records;
    let said = Said { diagnostics, remarks, statistics };
    list.iter()
        .try_for_each(|instrument| call(instrument, Hook::PassSaid, |i| i.pass_said(info, &said)))
}

/// Reports to all instruments that a pass has returned `module`.
pub(super) fn after_pass(list: &Instruments, module: &IRModule, info: &PassInfo) -> Result<()> {
    for (index, instrument) in list.iter().enumerate() {
        if let Err(error) = call(instrument, Hook::RunAfterPass, |i| i.run_after_pass(module, info))
        {
            return Err(after_failure(&list[index + 1..], info, error));
        }
    }
    Ok(())
}

/// Reports to all instruments that a pass has failed; returns the error, with errors of the hooks
/// attached.
pub(super) fn after_failure(
    list: &[InstrumentRef],
    info: &PassInfo,
    error: PassError,
) -> PassError {
    let secondary: Vec<PassError> = list
        .iter()
        .filter_map(|instrument| {
            call(instrument, Hook::AfterPassFailed, |i| i.after_pass_failed(info, &error)).err()
        })
        .collect();
    error.followed_by(secondary)
}
