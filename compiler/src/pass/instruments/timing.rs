//! How long passes take.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::per_thread::PerThread;
use super::timing_report::{json, text, trace};
use crate::ir::IRModule;
use crate::pass::{
    HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument, PassKind, Result,
};

/// How a profile is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimingFormat {
    /// One line a pass, indented under the pass it ran in.
    #[default]
    Text,
    /// One JSON object, with the passes in the order in which they began.
    Json,
    /// Trace events, as `chrome://tracing` and <https://ui.perfetto.dev> show them.
    Trace,
}

/// Measures how long each pass takes, and the passes within it.
///
/// Results are kept until the context is left: [`render`](Self::render) them before. What it has
/// to show [afterwards](PassInstrument::outputs) is `timing.txt`, `timing.json` or `trace.json`.
#[derive(Default, Debug)]
pub struct PassTiming {
    format: TimingFormat,
    threads: PerThread<Profile>,
    finished: Mutex<Vec<Profile>>,
}

/// The passes of one thread: a forest, parents before children.
#[derive(Clone, Default, Debug)]
pub(super) struct Profile {
    pub(super) nodes: Vec<Node>,
    open: Vec<usize>,
}

/// One run of a pass.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kind: PassKind,
    pub(super) depth: usize,
    pub(super) parent: Option<usize>,
    pub(super) start: Instant,
    pub(super) duration: Duration,
    pub(super) failed: bool,
}

impl PassTiming {
    /// One that has its profile to show in that format.
    pub fn new(format: TimingFormat) -> PassTiming {
        PassTiming { format, ..PassTiming::default() }
    }

    /// The profile as text. One line a pass, indented by tabs under the pass it ran in: the time it
    /// took, in brackets without the passes within it, and its share of the whole and of the pass
    /// around it. Empty if no pass ran.
    ///
    /// # Errors
    ///
    /// If a pass of this thread is still running.
    pub fn render(&self) -> Result<String> {
        self.render_as(TimingFormat::Text)
    }

    /// The profile in a format.
    ///
    /// # Errors
    ///
    /// If a pass of this thread is still running.
    pub fn render_as(&self, format: TimingFormat) -> Result<String> {
        if self.threads.with(|profile| !profile.open.is_empty()) {
            return Err(PassError::new("cannot render the profile while still in a pass"));
        }
        Ok(self.threads.all(|profiles| write(&profiles.collect::<Vec<_>>(), format)))
    }

    fn close(&self, info: &PassInfo, failed: bool) -> HookResult {
        let now = Instant::now();
        self.threads.with(|profile| {
            let Some(index) = profile.open.pop() else {
                return Err(format!("`{}` ended, but no pass has begun", info.name()).into());
            };
            let node = &mut profile.nodes[index];
            node.duration = now - node.start;
            node.failed = failed;
            Ok(())
        })
    }
}

fn write(profiles: &[&Profile], format: TimingFormat) -> String {
    match format {
        TimingFormat::Text => profiles.iter().map(|profile| text(profile)).collect(),
        TimingFormat::Json => json(profiles),
        TimingFormat::Trace => trace(profiles),
    }
}

impl PassInstrument for PassTiming {
    fn exit_pass_ctx(&self) -> HookResult {
        let profile = self.threads.take();
        if !profile.nodes.is_empty() {
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(profile);
        }
        Ok(())
    }

    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.threads.with(|profile| {
            let node = Node {
                name: info.text(),
                kind: info.kind(),
                depth: profile.open.len(),
                parent: profile.open.last().copied(),
                start: Instant::now(),
                duration: Duration::ZERO,
                failed: false,
            };
            profile.open.push(profile.nodes.len());
            profile.nodes.push(node);
        });
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.close(info, false)
    }

    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        self.close(info, true)
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        if finished.is_empty() {
            return Vec::new();
        }
        let suffix = match self.format {
            TimingFormat::Text => "timing.txt",
            TimingFormat::Json => "timing.json",
            TimingFormat::Trace => "trace.json",
        };
        vec![InstrumentOutput::new(
            suffix,
            write(&finished.iter().collect::<Vec<_>>(), self.format),
        )]
    }
}
