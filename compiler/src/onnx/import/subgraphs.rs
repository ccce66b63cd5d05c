//! Graphs that nodes have as attributes: what they read from outside, and copies with other names.
//!
//! These functions recurse into graphs within graphs. A model file nests at most a hundred messages,
//! which the decoder checks, so they go some thirty levels deep.

use std::collections::BTreeSet;

use crate::onnx::proto::{AttributeProto, GraphProto};

/// The graphs that an attribute holds.
pub(super) fn of_attribute(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

/// The names that a graph itself defines.
fn locals(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|input| input.name());
    let initializers = graph.initializer.iter().map(|tensor| tensor.name());
    let outputs = graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str));
    inputs.chain(initializers).chain(outputs).collect()
}

/// The names that a graph uses and does not define, each once, in the order of first use.
pub(super) fn captures(graph: &GraphProto) -> Vec<&str> {
    let mut seen = locals(graph);
    let mut captured = Vec::new();
    let mut add = |name| {
        if seen.insert(name) && !str::is_empty(name) {
            captured.push(name);
        }
    };
    for node in &graph.node {
        node.input.iter().map(String::as_str).for_each(&mut add);
        let graphs = node.attribute.iter().flat_map(of_attribute);
        graphs.flat_map(captures).for_each(&mut add);
    }
    graph.output.iter().map(|output| output.name()).for_each(&mut add);
    captured
}

/// How names and attributes of a function's body are replaced.
pub(super) struct Substitution<'f> {
    /// What a name that the graph does not define becomes.
    pub(super) value: &'f dyn Fn(&str) -> String,
    /// What an attribute becomes, if it stays.
    pub(super) attribute: &'f dyn Fn(&AttributeProto) -> Option<AttributeProto>,
}

impl Substitution<'_> {
    /// A copy of an attribute that holds graphs.
    pub(super) fn apply(&self, attribute: &AttributeProto) -> AttributeProto {
        let mut copy = attribute.clone();
        self.replace(&mut copy, &mut Vec::new());
        copy
    }

    /// Replaces in the graphs of an attribute. `defined` are the names of the graphs around them.
    fn replace(&self, attribute: &mut AttributeProto, defined: &mut Vec<BTreeSet<String>>) {
        let graphs = attribute.g.iter_mut().map(AsMut::as_mut).chain(&mut attribute.graphs);
        for graph in graphs {
            defined.push(locals(graph).into_iter().map(str::to_owned).collect());
            let rename = |name: &mut String| {
                let is_own = defined.iter().any(|names| names.contains(name.as_str()));
                if !name.is_empty() && !is_own {
                    *name = (self.value)(name);
                }
            };
            for node in &mut graph.node {
                node.input.iter_mut().for_each(rename);
            }
            graph.output.iter_mut().filter_map(|output| output.name.as_mut()).for_each(rename);
            for node in &mut graph.node {
                node.attribute = node.attribute.iter().filter_map(self.attribute).collect();
                for inner in &mut node.attribute {
                    self.replace(inner, defined);
                }
            }
            defined.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use crate::onnx::{ModelAttr, ModelBuilder};

    /// A branch that reads `a` and `b` of outside, the latter from a graph within it.
    fn branch() -> GraphProto {
        let inner = ModelBuilder::new(18)
            .node("Add", &["t", "b"], &["u"], &[])
            .output::<i64>("u", DType::F32, &[])
            .build_graph();
        ModelBuilder::new(18)
            .node("Relu", &["a"], &["t"], &[])
            .node("If", &["t"], &["v"], &[("then_branch", inner.into())])
            .node("Add", &["v", "a"], &["w"], &[])
            .output::<i64>("w", DType::F32, &[])
            .build_graph()
    }

    #[test]
    fn captures_are_what_no_graph_on_the_way_defines() {
        assert_eq!(captures(&branch()), ["a", "b"]);
    }

    #[test]
    fn substitution_leaves_own_names_alone() {
        let node = ModelBuilder::new(18)
            .node("If", &["c"], &["y"], &[("then_branch", ModelAttr::from(branch()))])
            .build_graph();
        let substitution = Substitution {
            value: &|name| format!("outer.{name}"),
            attribute: &|attribute| Some(attribute.clone()),
        };
        let copy = substitution.apply(&node.node[0].attribute[0]);
        let graph = copy.g.unwrap();
        assert_eq!(captures(&graph), ["outer.a", "outer.b"]);
        assert_eq!(graph.node[2].input, ["v", "outer.a"]);
    }
}
