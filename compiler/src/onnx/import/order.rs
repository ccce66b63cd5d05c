//! Who defines which value, and in which order the nodes that matter are imported.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use indexmap::IndexMap;

use super::functions::FlatNode;
use super::problem_node;
use crate::diagnostics::{Problem, Report};
use crate::onnx::proto::GraphProto;

/// What a name in a graph stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Definition {
    /// A graph input, by position.
    Input(usize),
    /// An initializer, by position.
    Initializer(usize),
    /// An output of a node, by position.
    Node(usize),
    /// A value of a graph around this one.
    Outer,
}

/// The values of a graph by name.
pub(super) type Definitions<'a> = IndexMap<&'a str, Definition>;

/// Finds what each name stands for, `outer` being those of the graphs around this one. Reports names
/// that are defined twice.
pub(super) fn definitions<'a>(
    graph: &'a GraphProto,
    nodes: &'a [FlatNode<'_>],
    outer: &[&'a str],
    report: &mut Report,
) -> Definitions<'a> {
    let mut definitions = Definitions::new();
    for (index, tensor) in graph.initializer.iter().enumerate() {
        // Of several with one name the last counts, as in ONNX Runtime.
        definitions.insert(tensor.name(), Definition::Initializer(index));
    }
    for (index, input) in graph.input.iter().enumerate() {
        match definitions.get(input.name()) {
            // An input with a default value, which no caller of a compiled model can override; up
            // to version 3 of the format, every initializer was listed so.
            Some(Definition::Initializer(_)) => {}
            Some(Definition::Input(_) | Definition::Node(_) | Definition::Outer) => {
                report.push(Problem::new(format!("there are two inputs `{}`", input.name())));
            }
            None => {
                definitions.insert(input.name(), Definition::Input(index));
            }
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if let Some(former) = definitions.insert(output, Definition::Node(index)) {
                let by = match former {
                    Definition::Input(_) => "an input of the graph".to_owned(),
                    Definition::Initializer(_) => "an initializer".to_owned(),
                    Definition::Outer => "a value of the graph around it".to_owned(),
                    Definition::Node(former) => {
                        nodes.get(former).map_or_else(String::new, |former| {
                            format!("an output of {}", problem_node(former))
                        })
                    }
                };
                report.push(
                    Problem::new(format!("it defines `{output}`, which is already {by}"))
                        .at(problem_node(node)),
                );
            }
        }
    }
    for name in outer {
        definitions.entry(name).or_insert(Definition::Outer);
    }
    definitions
}

/// The nodes that the outputs need, each after those whose outputs it uses; otherwise in the order
/// of the file. Reports names that nothing defines, and cycles.
pub(super) fn live_order(
    graph: &GraphProto,
    nodes: &[FlatNode<'_>],
    definitions: &Definitions<'_>,
    report: &mut Report,
) -> Vec<usize> {
    let live = live_nodes(graph, nodes, definitions);
    // How many of a node's operands are still to come, and who waits for a node.
    let mut missing = vec![0usize; nodes.len()];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().filter(|(index, _)| live[*index]) {
        for input in node.uses() {
            match definitions.get(input) {
                Some(&Definition::Node(from)) => {
                    missing[index] += 1;
                    waiting[from].push(index);
                }
                Some(Definition::Input(_) | Definition::Initializer(_) | Definition::Outer) => {}
                None => report.push(
                    Problem::new(format!("it uses `{input}`, which nothing defines"))
                        .at(problem_node(node)),
                ),
            }
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&index| live[index] && missing[index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &user in &waiting[index] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    let left: Vec<usize> =
        (0..nodes.len()).filter(|&index| live[index] && missing[index] > 0).collect();
    if let Some(&first) = left.first() {
        report.push(cycle(first, nodes, definitions, &missing));
    }
    order
}

fn live_nodes(
    graph: &GraphProto,
    nodes: &[FlatNode<'_>],
    definitions: &Definitions<'_>,
) -> Vec<bool> {
    let mut live = vec![false; nodes.len()];
    let mut work: Vec<&str> = graph.output.iter().map(|output| output.name()).collect();
    while let Some(name) = work.pop() {
        if let Some(&Definition::Node(index)) = definitions.get(name)
            && !live[index]
        {
            live[index] = true;
            work.extend(nodes[index].uses());
        }
    }
    live
}

/// Describes one cycle. Every node that was left over waits for another such node, so walking from
/// each to one it waits for comes back at last.
fn cycle(
    first: usize,
    nodes: &[FlatNode<'_>],
    definitions: &Definitions<'_>,
    missing: &[usize],
) -> Problem {
    /// Longest cycle that is written out.
    const SHOWN: usize = 6;
    let waits_for = |index: usize| {
        nodes[index].uses().into_iter().find_map(|input| match definitions.get(input) {
            Some(&Definition::Node(from)) if missing[from] > 0 => Some(from),
            _ => None,
        })
    };
    let mut step_of = vec![None; nodes.len()];
    let mut path = Vec::new();
    let mut at = first;
    while step_of[at].is_none() {
        step_of[at] = Some(path.len());
        path.push(at);
        match waits_for(at) {
            Some(next) => at = next,
            None => break,
        }
    }
    let mut cycle = path.split_off(step_of[at].unwrap_or(0));
    cycle.reverse();
    let mut names: Vec<String> = cycle
        .iter()
        .take(SHOWN)
        .map(|&index| format!("`{}`", super::node_name(&nodes[index])))
        .collect();
    if cycle.len() > SHOWN {
        names.push(format!("{} more", cycle.len() - SHOWN));
    }
    Problem::new(format!("the nodes {} depend on each other in a circle", names.join(", ")))
        .at(problem_node(&nodes[cycle[0]]))
}
