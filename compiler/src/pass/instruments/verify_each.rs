//! Verifies the module after each pass.

use super::per_thread::PerThread;
use crate::graph::verify_module;
use crate::ir::IRModule;
use crate::pass::{HookResult, PassError, PassInfo, PassInstrument};

/// Verifies the module before the first pass and after each pass that changed it: graph functions
/// and loop functions.
///
/// Unlike [`verify_each`](crate::pass::PassContextBuilder::verify_each) of a context, it
/// distinguishes a module that was malformed before the first pass from one that a pass has broken.
#[derive(Default, Debug)]
pub struct VerifyEach {
    threads: PerThread<State>,
}

#[derive(Default, Debug)]
struct State {
    /// The number of passes that are running, one within the other.
    depth: usize,
    /// The last module that passed verification.
    good: Option<IRModule>,
}

impl State {
    fn is_good(&self, module: &IRModule) -> bool {
        self.good.as_ref().is_some_and(|good| good.same(module))
    }
}

impl VerifyEach {
    /// An instrument that has verified nothing yet.
    pub fn new() -> VerifyEach {
        VerifyEach::default()
    }

    fn check(&self, module: &IRModule) -> HookResult {
        if self.threads.with(|state| state.is_good(module)) {
            return Ok(());
        }
        verify_module(module)?;
        // A list often returns the module of its last pass, which is then not verified twice.
        self.threads.with(|state| state.good = Some(module.clone()));
        Ok(())
    }
}

impl PassInstrument for VerifyEach {
    fn run_before_pass(&self, module: &IRModule, _: &PassInfo) -> HookResult {
        let outermost = self.threads.with(|state| {
            state.depth += 1;
            state.depth == 1
        });
        if outermost { self.check(module) } else { Ok(()) }
    }

    fn run_after_pass(&self, module: &IRModule, _: &PassInfo) -> HookResult {
        self.threads.with(|state| state.depth = state.depth.saturating_sub(1));
        self.check(module)
    }

    fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
        self.threads.with(|state| state.depth = state.depth.saturating_sub(1));
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }
}
