//! Collects the counters of passes and the rewrites they did not make.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use super::per_thread::PerThread;
use crate::ir::IRModule;
use crate::pass::{
    HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument, PassKind, Remark, Said,
    Statistics,
};

/// Collects the counters that passes [count](crate::pass::PassContext::count) with, and, in a
/// context that records [remarks](crate::pass::PassContextBuilder::remarks), the rewrites they did
/// not make.
///
/// Its file is `statistics.txt`.
#[derive(Default, Debug)]
pub struct PassStatistics {
    threads: PerThread<Vec<Statistics>>,
    kept: Mutex<Kept>,
}

#[derive(Default, Debug)]
struct Kept {
    /// The counts of each run of a pass, without the passes within it, in the order in which they
    /// ended.
    runs: Vec<(String, Statistics)>,
    /// The sums over all runs.
    totals: Statistics,
    remarks: Vec<Remark>,
}

impl PassStatistics {
    /// Empty counters.
    pub fn new() -> PassStatistics {
        PassStatistics::default()
    }

    /// The sums over all runs, by pass and by counter.
    pub fn totals(&self) -> Statistics {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).totals.clone()
    }

    /// The rewrites that passes did not make, in order.
    pub fn remarks(&self) -> Vec<Remark> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remarks.clone()
    }

    /// The counts of each run of a pass in order, the sums over all runs, and the missed rewrites.
    /// Empty if there are none of all three.
    pub fn render(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let section = |text: &mut String, title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = writeln!(text, "{title}");
                lines.iter().for_each(|line| {
                    let _ = writeln!(text, "{line}");
                });
            }
        };
        let of_run = |(name, statistics): &(String, Statistics)| {
            let counts: Vec<String> =
                statistics.iter().map(|((_, what), count)| format!("{count} {what}")).collect();
            format!("    {name}: {}", counts.join(", "))
        };
        section(&mut text, "in the order of the pipeline", kept.runs.iter().map(of_run).collect());
        let total = |((pass, what), count): (&(String, &'static str), &u64)| {
            format!("{count:>8} {pass}: {what}")
        };
        section(&mut text, "altogether", kept.totals.iter().map(total).collect());
        let remark = |remark: &Remark| format!("    {remark}");
        section(&mut text, "missed", kept.remarks.iter().map(remark).collect());
        text
    }
}

/// The counts of `all` minus those of `parts`.
fn without(all: &Statistics, parts: &Statistics) -> Statistics {
    all.iter()
        .map(|(what, count)| {
            (what.clone(), count.saturating_sub(parts.get(what).copied().unwrap_or(0)))
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

impl PassInstrument for PassStatistics {
    fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.threads.with(|open| open.push(Statistics::new()));
        Ok(())
    }

    fn pass_said(&self, info: &PassInfo, said: &Said<'_>) -> HookResult {
        // The passes within this one have reported their own counts already.
        let (inner, outermost) = self.threads.with(|open| {
            let inner = open.last().cloned().unwrap_or_default();
            if let [.., outer, _] = open.as_mut_slice() {
                for (what, count) in said.statistics {
                    *outer.entry(what.clone()).or_default() += count;
                }
            }
            (inner, open.len() <= 1)
        });
        let own = without(said.statistics, &inner);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.is_empty() && info.kind() != PassKind::Sequential {
            kept.runs.push((info.text(), own));
        }
        if outermost {
            for (what, count) in said.statistics {
                *kept.totals.entry(what.clone()).or_default() += count;
            }
            kept.remarks.extend_from_slice(said.remarks);
        }
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.threads.with(Vec::pop);
        Ok(())
    }

    fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
        self.threads.with(Vec::pop);
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        match self.render() {
            text if text.is_empty() => Vec::new(),
            text => vec![InstrumentOutput::new("statistics.txt", text)],
        }
    }
}
