//! How long passes take.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::instrument::HookResult;
use super::{PassError, PassInfo, PassInstrument, Result};
use crate::ir::IRModule;

/// Measures how long each pass takes, and the passes within it.
///
/// Results are kept until the context is left: render them before.
#[derive(Default, Debug)]
pub struct PassTiming {
    threads: Mutex<IndexMap<ThreadId, Profile>>,
}

/// The passes of one thread: a forest, parents before children.
#[derive(Default, Debug)]
struct Profile {
    nodes: Vec<Node>,
    open: Vec<usize>,
}

#[derive(Debug)]
struct Node {
    name: String,
    depth: usize,
    parent: Option<usize>,
    start: Instant,
    duration: Option<Duration>,
}

impl PassTiming {
    fn lock(&self) -> MutexGuard<'_, IndexMap<ThreadId, Profile>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One line a pass, indented by tabs under the pass it ran in: the time it took, in brackets
    /// without the passes within it, and its share of the whole and of the pass around it. Empty if
    /// no pass ran.
    ///
    /// # Errors
    ///
    /// If a pass of this thread is still running.
    pub fn render(&self) -> Result<String> {
        let threads = self.lock();
        let current = threads.get(&std::thread::current().id());
        if current.is_some_and(|profile| !profile.open.is_empty()) {
            return Err(PassError::new("cannot render the profile while still in a pass"));
        }
        Ok(threads.values().map(Profile::render).collect())
    }

    fn close(&self, info: &PassInfo) -> HookResult {
        let now = Instant::now();
        let mut threads = self.lock();
        let profile = threads.entry(std::thread::current().id()).or_default();
        let Some(index) = profile.open.pop() else {
            return Err(format!("`{}` ended, but no pass has begun", info.name()).into());
        };
        let node = &mut profile.nodes[index];
        node.duration = Some(now - node.start);
        Ok(())
    }
}

impl Profile {
    fn render(&self) -> String {
        let micros = |node: &Node| node.duration.unwrap_or_default().as_secs_f64() * 1e6;
        let total: f64 = self.nodes.iter().filter(|node| node.parent.is_none()).map(micros).sum();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
        let mut inside = vec![0.0; self.nodes.len()];
        for node in &self.nodes {
            if let Some(parent) = node.parent {
                inside[parent] += micros(node);
            }
        }
        let line = |(index, node): (usize, &Node)| {
            let time = micros(node);
            let parent = node.parent.map_or(total, |parent| micros(&self.nodes[parent]));
            format!(
                "{}{}: {time:.0}us [{:.0}us] ({:.2}%; {:.2}%)\n",
                "\t".repeat(node.depth),
                node.name,
                time - inside[index],
                share(time, total),
                share(time, parent),
            )
        };
        self.nodes.iter().enumerate().map(line).collect()
    }
}

impl PassInstrument for PassTiming {
    fn exit_pass_ctx(&self) -> HookResult {
        self.lock().shift_remove(&std::thread::current().id());
        Ok(())
    }

    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        let mut threads = self.lock();
        let profile = threads.entry(std::thread::current().id()).or_default();
        let node = Node {
            name: info.name().to_owned(),
            depth: profile.open.len(),
            parent: profile.open.last().copied(),
            start: Instant::now(),
            duration: None,
        };
        profile.open.push(profile.nodes.len());
        profile.nodes.push(node);
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.close(info)
    }

    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        self.close(info)
    }
}
