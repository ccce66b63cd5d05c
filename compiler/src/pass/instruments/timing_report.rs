//! Writes profiles as text, as JSON and as trace events.

use std::time::Instant;

use serde_json::{Value, json as object};

use super::timing::{Node, Profile};

/// Times derived from the measured ones.
struct Shares {
    /// The time of all outermost passes, in µs.
    total: f64,
    /// The time of each pass without the passes within it, in µs.
    own: Vec<f64>,
}

fn micros(node: &Node) -> f64 {
    node.duration.as_secs_f64() * 1e6
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

impl Shares {
    fn of(profile: &Profile) -> Shares {
        let roots = profile.nodes.iter().filter(|node| node.parent.is_none());
        let total = roots.map(micros).sum();
        let mut own: Vec<f64> = profile.nodes.iter().map(micros).collect();
        for node in &profile.nodes {
            if let Some(parent) = node.parent {
                own[parent] -= micros(node);
            }
        }
        Shares { total, own }
    }

    /// The share of a pass in the whole and in the pass around it, in per cent.
    fn percents(&self, profile: &Profile, node: &Node) -> (f64, f64) {
        let parent = node.parent.map_or(self.total, |parent| micros(&profile.nodes[parent]));
        (percent(micros(node), self.total), percent(micros(node), parent))
    }
}

/// `NAME: 120us [80us] (60.00%; 100.00%)`, indented by tabs.
pub(super) fn text(profile: &Profile) -> String {
    let shares = Shares::of(profile);
    let line = |(node, own): (&Node, &f64)| {
        let (of_total, of_parent) = shares.percents(profile, node);
        format!(
            "{}{}: {:.0}us [{own:.0}us] ({of_total:.2}%; {of_parent:.2}%){}\n",
            "\t".repeat(node.depth),
            node.name,
            micros(node),
            if node.failed { " failed" } else { "" },
        )
    };
    profile.nodes.iter().zip(&shares.own).map(line).collect()
}

/// The start of the earliest pass of all profiles.
fn epoch(profiles: &[&Profile]) -> Option<Instant> {
    profiles.iter().flat_map(|profile| &profile.nodes).map(|node| node.start).min()
}

fn start(node: &Node, epoch: Option<Instant>) -> f64 {
    epoch.map_or(0.0, |epoch| node.start.duration_since(epoch).as_secs_f64() * 1e6)
}

/// One object: `total_us`, and `passes` with `parent` as an index into the passes.
pub(super) fn json(profiles: &[&Profile]) -> String {
    let epoch = epoch(profiles);
    let mut passes: Vec<Value> = Vec::new();
    let mut total = 0.0;
    for (thread, profile) in profiles.iter().enumerate() {
        let (first, shares) = (passes.len(), Shares::of(profile));
        total += shares.total;
        for (node, own) in profile.nodes.iter().zip(&shares.own) {
            let (of_total, of_parent) = shares.percents(profile, node);
            passes.push(object!({
                "name": node.name,
                "kind": node.kind,
                "thread": thread,
                "depth": node.depth,
                "parent": node.parent.map(|parent| first + parent),
                "start_us": start(node, epoch),
                "duration_us": micros(node),
                "self_us": own,
                "percent": of_total,
                "percent_of_parent": of_parent,
                "failed": node.failed,
            }));
        }
    }
    format!("{:#}\n", object!({ "total_us": total, "passes": passes }))
}

/// Complete events (`"ph": "X"`) of the trace event format.
pub(super) fn trace(profiles: &[&Profile]) -> String {
    let epoch = epoch(profiles);
    let event = |thread: usize, node: &Node| {
        object!({
            "name": node.name,
            "cat": node.kind,
            "ph": "X",
            "ts": start(node, epoch),
            "dur": micros(node),
            "pid": 1,
            "tid": thread + 1,
            "args": { "failed": node.failed },
        })
    };
    let events: Vec<Value> = profiles
        .iter()
        .enumerate()
        .flat_map(|(thread, profile)| profile.nodes.iter().map(move |node| event(thread, node)))
        .collect();
    format!("{:#}\n", object!({ "displayTimeUnit": "ms", "traceEvents": events }))
}
