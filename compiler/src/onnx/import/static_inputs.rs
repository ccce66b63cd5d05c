//! Which inputs of a model must have a fixed value.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::{normal_domain, subgraphs};
use crate::onnx::ops;
use crate::onnx::proto::{ModelProto, NodeProto};

/// The inputs whose elements an operator needs while compiling: shapes, axes, bounds, scales, numbers
/// of steps; also where these are computed from the input. Conditions count as well: a branch that
/// is not taken need not fit the other inputs. In the order of the model.
///
/// Compiled models take no such inputs. A caller that knows their values gives them as
/// [`ImportOptions::input_values`](super::ImportOptions::input_values).
pub fn static_inputs(model: &ModelProto) -> Vec<&str> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let mut producers: IndexMap<&str, &NodeProto> = IndexMap::new();
    let mut needed: Vec<&str> = Vec::new();
    // Of all graphs: those that nodes have as attributes use the names of those around them.
    let mut nodes: Vec<&NodeProto> = graph.node.iter().collect();
    while let Some(node) = nodes.pop() {
        nodes.extend(
            node.attribute.iter().flat_map(subgraphs::of_attribute).flat_map(|graph| &graph.node),
        );
        producers.extend(node.output.iter().map(|output| (output.as_str(), node)));
        let known = ops::known_inputs(normal_domain(node.domain()), node.op_type());
        needed.extend(known.iter().filter_map(|&index| node.input.get(index)).map(String::as_str));
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    while let Some(name) = needed.pop() {
        if name.is_empty() || !seen.insert(name) {
            continue;
        }
        // A shape or a length tells about a type, not about elements.
        if let Some(node) = producers.get(name)
            && !matches!(node.op_type(), "Shape" | "Size" | "SequenceLength" | "OptionalHasElement")
        {
            needed.extend(node.input.iter().map(String::as_str));
            // What a branch or a body computes may come from any value around it.
            let graphs = node.attribute.iter().flat_map(subgraphs::of_attribute);
            needed.extend(graphs.flat_map(|graph| &graph.output).map(|output| output.name()));
        }
    }
    let initializers: BTreeSet<&str> =
        graph.initializer.iter().map(|tensor| tensor.name()).collect();
    let inputs = graph.input.iter().map(|input| input.name());
    inputs.filter(|name| seen.contains(name) && !initializers.contains(name)).collect()
}
