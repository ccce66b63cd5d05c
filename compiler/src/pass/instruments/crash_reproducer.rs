//! Writes a file that reproduces a failure when a pass fails.

use std::path::{Path, PathBuf};

use super::per_thread::PerThread;
use super::reproducer::{Reproducer, failure_text, verify_errors};
use super::text_output::TextOutput;
use crate::ir::IRModule;
use crate::pass::{HookResult, PassContext, PassError, PassInfo, PassInstrument, PassKind};

/// When a pass fails or panics, writes a [`Reproducer`]: the module as it was before that pass, its
/// constants, the pass with its options, and the context.
///
/// Level, lists and options are taken from the [current](PassContext::current) context, so passes
/// must run within its scope. Register this instrument last, so that it also hears of failures of
/// the other instruments. If several passes fail one after the other, the file of the last remains.
///
/// A process that ends without unwinding writes no file; use [`DumpIr`](super::DumpIr) then.
#[derive(Debug)]
pub struct CrashReproducer {
    path: PathBuf,
    /// The text of the whole pipeline; `None` to reproduce the failing pass alone.
    pipeline: Option<String>,
    output: TextOutput,
    threads: PerThread<State>,
}

#[derive(Default, Debug)]
struct State {
    /// The module before each pass that is running.
    open: Vec<IRModule>,
    /// Whether the failure that is propagating now has been written already.
    written: bool,
}

impl CrashReproducer {
    /// Writes the pass that failed alone to that file, and constants beside it.
    pub fn new(path: impl Into<PathBuf>) -> CrashReproducer {
        CrashReproducer {
            path: path.into(),
            pipeline: None,
            output: TextOutput::default(),
            threads: PerThread::default(),
        }
    }

    /// Writes the whole pipeline, whose text the caller gives, with the module as it was before the
    /// outermost pass.
    #[must_use]
    pub fn whole_pipeline(mut self, pipeline: impl Into<String>) -> CrashReproducer {
        self.pipeline = Some(pipeline.into());
        self
    }

    /// Sets the output for the message that a file was written.
    #[must_use]
    pub fn output(mut self, output: TextOutput) -> CrashReproducer {
        self.output = output;
        self
    }

    fn write(&self, module: IRModule, info: &PassInfo, error: &PassError) -> HookResult {
        let cx = PassContext::current();
        let pipeline = self.pipeline.clone();
        let reproducer = Reproducer {
            pipeline: pipeline.unwrap_or_else(|| info.text()),
            whole_pipeline: self.pipeline.is_some(),
            opt_level: cx.opt_level(),
            required: cx.required_passes().map(str::to_owned).collect(),
            disabled: cx.disabled_passes().map(str::to_owned).collect(),
            config: cx.config_json().into_iter().map(|(name, v)| (name.to_owned(), v)).collect(),
            verify: cx.verifies() || verify_errors(error).is_some(),
            failure: failure_text(error),
            module,
        };
        reproducer
            .write(&self.path)
            .map_err(|error| format!("cannot write `{}`: {error}", self.path.display()))?;
        self.output.write(&note(info, &self.path));
        Ok(())
    }
}

fn note(info: &PassInfo, path: &Path) -> String {
    let (name, path) = (info.text(), path.display());
    format!(
        "note: pass {name} failed; what repeats it was written to `{path}`: niello opt --run-reproducer {path}\n"
    )
}

impl PassInstrument for CrashReproducer {
    fn run_before_pass(&self, module: &IRModule, _: &PassInfo) -> HookResult {
        self.threads.with(|state| {
            state.written = false;
            state.open.push(module.clone());
        });
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.threads.with(|state| {
            state.written = false;
            state.open.pop();
        });
        Ok(())
    }

    fn after_pass_failed(&self, info: &PassInfo, error: &PassError) -> HookResult {
        let (module, outermost, written) = self.threads.with(|state| {
            (state.open.pop(), state.open.is_empty(), std::mem::take(&mut state.written))
        });
        let Some(module) = module else { return Ok(()) };
        let wanted = match self.pipeline {
            Some(_) => outermost,
            // A list that fails by itself has no text: its passes are not known here.
            None => !written && info.kind() != PassKind::Sequential,
        };
        if wanted {
            self.write(module, info, error)?;
        }
        self.threads.with(|state| state.written = !outermost && (written || wanted));
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }
}
