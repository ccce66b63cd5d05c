//! Measures how long passes take.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::per_thread::PerThread;
use super::timing_report::{json, text, trace};
use crate::ir::IRModule;
use crate::pass::{
    AnalysisInfo, HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument, PassKind,
    Result,
};

/// The kind of the nodes that are analyses rather than passes.
const ANALYSIS: &str = "analysis";

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

/// Measures how long each pass takes, with the passes within it and the analyses that it asks for,
/// which are marked `(A)`.
///
/// Results are kept until the context is left: [`render`](Self::render) them before. Its
/// [file](PassInstrument::outputs) is `timing.txt`, `timing.json` or `trace.json`.
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

/// One run of a pass or of an analysis.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// The kind of pass, or [`ANALYSIS`].
    pub(super) kind: &'static str,
    pub(super) depth: usize,
    pub(super) parent: Option<usize>,
    pub(super) start: Instant,
    pub(super) duration: Duration,
    pub(super) failed: bool,
}

impl PassTiming {
    /// An instrument whose file is in that format.
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

    /// The profiles of the contexts that have been left so far, in a format.
    pub fn finished(&self, format: TimingFormat) -> String {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        write(&finished.iter().collect::<Vec<_>>(), format)
    }

    fn close(&self, info: &PassInfo, failed: bool) -> HookResult {
        let now = Instant::now();
        self.threads.with(|profile| {
            // An analysis that panicked has not ended.
            while profile.last_open().is_some_and(|node| node.kind == ANALYSIS) {
                profile.close_last(now, true);
            }
            if profile.last_open().is_none() {
                return Err(format!("`{}` ended, but no pass has begun", info.name()).into());
            }
            profile.close_last(now, failed);
            Ok(())
        })
    }
}

impl Profile {
    fn open(&mut self, name: String, kind: &'static str) {
        self.nodes.push(Node {
            name,
            kind,
            depth: self.open.len(),
            parent: self.open.last().copied(),
            start: Instant::now(),
            duration: Duration::ZERO,
            failed: false,
        });
        self.open.push(self.nodes.len() - 1);
    }

    fn last_open(&self) -> Option<&Node> {
        self.nodes.get(*self.open.last()?)
    }

    fn close_last(&mut self, now: Instant, failed: bool) {
        if let Some(node) = self.open.pop().and_then(|index| self.nodes.get_mut(index)) {
            node.duration = now - node.start;
            node.failed = failed;
        }
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
        let kind = match info.kind() {
            PassKind::Module => "module",
            PassKind::Function => "function",
            PassKind::PrimFunc => "prim_func",
            PassKind::Sequential => "sequential",
        };
        self.threads.with(|profile| profile.open(info.text(), kind));
        Ok(())
    }

    fn before_analysis(&self, info: &AnalysisInfo) -> HookResult {
        self.threads.with(|profile| profile.open(format!("(A) {}", info.name), ANALYSIS));
        Ok(())
    }

    fn after_analysis(&self, _: &AnalysisInfo) -> HookResult {
        let now = Instant::now();
        self.threads.with(|profile| profile.close_last(now, false));
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.close(info, false)
    }

    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        self.close(info, true)
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        if self.finished.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Vec::new();
        }
        let suffix = match self.format {
            TimingFormat::Text => "timing.txt",
            TimingFormat::Json => "timing.json",
            TimingFormat::Trace => "trace.json",
        };
        vec![InstrumentOutput::new(suffix, self.finished(self.format))]
    }
}
