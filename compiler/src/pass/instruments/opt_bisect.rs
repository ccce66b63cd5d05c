//! Runs only the first passes, to find the pass that causes a failure.

use std::sync::atomic::{AtomicU64, Ordering};

use super::text_output::TextOutput;
use crate::ir::IRModule;
use crate::pass::{HookResult, InstrumentOutput, PassInfo, PassInstrument, PassKind};

/// Runs only the first optional passes, and prints for each whether it runs.
///
/// A pass is optional if a level can leave it out: lists of passes, passes of level 0 and passes
/// that the context or another pass requires always run and have no number. A number stands for the
/// same run of a pass whatever the limit is, up to the limit.
/// run of a pass whatever the limit is, up to the limit.
///
/// Without an [output](Self::output) the lines are kept, and shown
/// [afterwards](PassInstrument::outputs) as `bisect.txt`.
#[derive(Debug)]
pub struct OptBisect {
    limit: Option<u64>,
    count: AtomicU64,
    output: TextOutput,
}

impl OptBisect {
    /// Runs the first `limit` optional passes; `None` runs all and numbers them.
    pub fn new(limit: Option<u64>) -> OptBisect {
        OptBisect { limit, count: AtomicU64::new(0), output: TextOutput::default() }
    }

    /// Sets the output for the lines.
    #[must_use]
    pub fn output(mut self, output: TextOutput) -> OptBisect {
        self.output = output;
        self
    }

    /// The number of optional passes so far, whether they ran or not.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl PassInstrument for OptBisect {
    fn should_run(&self, _: &IRModule, info: &PassInfo) -> HookResult<bool> {
        if info.kind() == PassKind::Sequential || info.opt_level() == 0 {
            return Ok(true);
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let runs = self.limit.is_none_or(|limit| number <= limit);
        let verb = if runs { "running" } else { "NOT running" };
        self.output.write(&format!("BISECT: {verb} pass ({number}) {}\n", info.text()));
        Ok(runs)
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        match self.output.kept() {
            text if text.is_empty() => Vec::new(),
            text => vec![InstrumentOutput::new("bisect.txt", text)],
        }
    }
}
