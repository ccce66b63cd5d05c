//! Functions that a model defines: calls are replaced by the function's nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use prost::Message;

use super::subgraphs::{self, Substitution};
use super::{Opsets, normal_domain, op_name, opset_versions, problem_node};
use crate::diagnostics::{Problem, Report};
use crate::onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto,
};

/// Most memory, in bytes, that the nodes of replaced calls may take.
///
/// Functions that call each other twice double the nodes at every level, so a small file could ask
/// for any number. The largest models of exporters that write functions have some ten thousand nodes
/// of half a kilobyte each.
const MAX_INLINED_BYTES: usize = 32 << 20;

/// A node of the graph after calls were replaced, with the operator sets that it goes by.
pub(super) struct FlatNode<'a> {
    proto: Cow<'a, NodeProto>,
    pub(super) opsets: Opsets<'a>,
    /// A call that could not be replaced, for a reason that is reported: its outputs are not known.
    pub(super) failed: bool,
}

impl FlatNode<'_> {
    /// The values that the node reads: its inputs, and what its graphs read from outside.
    pub(super) fn uses(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.input.iter().map(String::as_str).collect();
        for graph in self.graphs() {
            names.extend(subgraphs::captures(graph));
        }
        names.retain(|name| !name.is_empty());
        names
    }

    /// The graphs that the node has as attributes.
    fn graphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.attribute.iter().flat_map(subgraphs::of_attribute)
    }
}

impl Deref for FlatNode<'_> {
    type Target = NodeProto;

    fn deref(&self) -> &NodeProto {
        &self.proto
    }
}

/// Whom a node may call.
pub(super) struct Functions<'a> {
    functions: &'a [FunctionProto],
    /// By domain, name and overload.
    by_name: BTreeMap<(&'a str, &'a str, &'a str), usize>,
    opsets: Vec<BTreeMap<String, i64>>,
}

impl<'a> Functions<'a> {
    pub(super) fn of(model: &'a ModelProto) -> Functions<'a> {
        let functions = model.functions.as_slice();
        let opsets = functions.iter().map(|function| opset_versions(&function.opset_import));
        let names = functions.iter().enumerate().map(|(index, function)| {
            ((normal_domain(function.domain()), function.name(), function.overload()), index)
        });
        Functions { functions, by_name: names.collect(), opsets: opsets.collect() }
    }

    fn find(&self, node: &NodeProto) -> Option<usize> {
        let name = (normal_domain(node.domain()), node.op_type(), node.overload());
        self.by_name.get(&name).copied()
    }
}

/// A node that is still to be looked at, and the calls that it came from.
struct Pending<'a> {
    node: FlatNode<'a>,
    /// Index of the innermost call in the list of calls.
    call: Option<usize>,
}

/// A call that was replaced.
struct Call {
    function: usize,
    parent: Option<usize>,
}

/// The nodes of a graph with every call of a function replaced by the nodes of its body, in order.
pub(super) fn flatten<'a>(
    nodes: &'a [NodeProto],
    opsets: Opsets<'a>,
    functions: &'a Functions<'a>,
    report: &mut Report,
) -> Vec<FlatNode<'a>> {
    let mut flat = Vec::with_capacity(nodes.len());
    let mut calls: Vec<Call> = Vec::new();
    let mut inlined = 0usize;
    // The node to be looked at next is the last.
    let mut pending: Vec<Pending<'a>> = nodes
        .iter()
        .rev()
        .map(|node| Pending {
            node: FlatNode { proto: Cow::Borrowed(node), opsets, failed: false },
            call: None,
        })
        .collect();
    while let Some(Pending { node, call }) = pending.pop() {
        let Some(index) = functions.find(&node) else {
            flat.push(node);
            continue;
        };
        let problem = |message: String| Problem::new(message).at(problem_node(&node));
        let mut outer = call;
        let mut recursive = false;
        while let Some(at) = outer {
            recursive |= calls[at].function == index;
            outer = calls[at].parent;
        }
        if recursive {
            report.push(problem(format!("the function {} calls itself", op_name(&node))));
            flat.push(FlatNode { failed: true, ..node });
            continue;
        }
        let function = &functions.functions[index];
        inlined = function.node.iter().map(size).fold(inlined, usize::saturating_add);
        if inlined > MAX_INLINED_BYTES {
            report.push(problem(
                "with its calls of functions replaced, the model has too many nodes".to_owned(),
            ));
            flat.push(FlatNode { failed: true, ..node });
            let rest = pending.into_iter().rev();
            flat.extend(rest.map(|rest| FlatNode { failed: true, ..rest.node }));
            return flat;
        }
        let number = calls.len();
        calls.push(Call { function: index, parent: call });
        let body = match Body::new(&node, function, number) {
            Ok(body) => body,
            Err(message) => {
                report.push(problem(message));
                flat.push(FlatNode { failed: true, ..node });
                continue;
            }
        };
        let opsets = Opsets(&functions.opsets[index]);
        pending.extend(function.node.iter().rev().map(|inner| Pending {
            node: FlatNode { proto: Cow::Owned(body.node(inner)), opsets, failed: false },
            call: Some(number),
        }));
    }
    flat
}

/// Bytes of memory that a copy of a node takes, about. Tensors share their elements.
fn size(node: &NodeProto) -> usize {
    let attribute = |attribute: &AttributeProto| {
        let graphs = subgraphs::of_attribute(attribute);
        size_of::<AttributeProto>()
            + attribute.ints.len() * size_of::<i64>()
            + attribute.floats.len() * size_of::<f32>()
            + (attribute.tensors.len() + attribute.t.iter().len()) * size_of::<TensorProto>()
            + graphs.map(|graph| 8 * graph.encoded_len()).sum::<usize>()
    };
    let names = node.input.iter().chain(&node.output);
    size_of::<NodeProto>()
        + names.map(|name| size_of::<String>() + name.len()).sum::<usize>()
        + node.attribute.iter().map(attribute).sum::<usize>()
}

/// What names and attributes of a function's body stand for in one call.
struct Body<'c> {
    /// Names of inputs and outputs in the body, and in the caller.
    values: BTreeMap<&'c str, &'c str>,
    attributes: BTreeMap<&'c str, &'c AttributeProto>,
    /// Goes before every other name of the body.
    prefix: String,
}

impl<'c> Body<'c> {
    fn new(
        call: &'c NodeProto,
        function: &'c FunctionProto,
        number: usize,
    ) -> Result<Body<'c>, String> {
        for (what, given, declared) in [
            ("inputs", call.input.len(), function.input.len()),
            ("outputs", call.output.len(), function.output.len()),
        ] {
            if given > declared {
                return Err(format!(
                    "the function has {declared} {what}, but the call has {given}"
                ));
            }
        }
        let mut values: BTreeMap<&str, &str> = BTreeMap::new();
        for (names, given) in [(&function.input, &call.input), (&function.output, &call.output)] {
            for (index, name) in names.iter().enumerate() {
                // An input that is left out is absent in the body as well; an output that nobody
                // uses still has its name.
                match given.get(index).map(String::as_str) {
                    Some(outer) if !outer.is_empty() => {
                        values.insert(name, outer);
                    }
                    Some(_) | None if std::ptr::eq(names, &function.input) => {
                        values.insert(name, "");
                    }
                    Some(_) | None => {}
                }
            }
        }
        let mut attributes: BTreeMap<&str, &AttributeProto> =
            function.attribute_proto.iter().map(|default| (default.name(), default)).collect();
        for given in &call.attribute {
            let known = attributes.contains_key(given.name())
                || function.attribute.iter().any(|name| name == given.name());
            if !known {
                return Err(format!("the function has no attribute `{}`", given.name()));
            }
            attributes.insert(given.name(), given);
        }
        let prefix = format!("{}.{number}/", super::node_name(call));
        Ok(Body { values, attributes, prefix })
    }

    fn value(&self, name: &str) -> String {
        match self.values.get(name) {
            Some(outer) => (*outer).to_owned(),
            None if name.is_empty() => String::new(),
            None => format!("{}{name}", self.prefix),
        }
    }

    /// An attribute of a node of the body. One that refers to an attribute that the call does not
    /// give, and that has no default, is not there.
    fn attribute(&self, attribute: &AttributeProto) -> Option<AttributeProto> {
        match attribute.ref_attr_name() {
            "" if subgraphs::of_attribute(attribute).next().is_none() => Some(attribute.clone()),
            "" => {
                let substitution = Substitution {
                    value: &|name| self.value(name),
                    attribute: &|inner| match inner.ref_attr_name() {
                        "" => Some(inner.clone()),
                        refers_to => self.given(inner, refers_to),
                    },
                };
                Some(substitution.apply(attribute))
            }
            refers_to => self.given(attribute, refers_to),
        }
    }

    /// The attribute of the call that one of the body refers to, under the name of the latter.
    fn given(&self, attribute: &AttributeProto, refers_to: &str) -> Option<AttributeProto> {
        let given = self.attributes.get(refers_to)?;
        Some(AttributeProto { name: attribute.name.clone(), ..(*given).clone() })
    }

    fn node(&self, inner: &NodeProto) -> NodeProto {
        let attribute = inner.attribute.iter().filter_map(|attribute| self.attribute(attribute));
        NodeProto {
            input: inner.input.iter().map(|name| self.value(name)).collect(),
            output: inner.output.iter().map(|name| self.value(name)).collect(),
            name: (!inner.name().is_empty()).then(|| format!("{}{}", self.prefix, inner.name())),
            attribute: attribute.collect(),
            ..inner.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImportOptions, import};
    use super::*;
    use crate::ir::DType;
    use crate::onnx::ModelBuilder;
    use crate::onnx::proto::OperatorSetIdProto;

    /// The nodes of a model as a function `f.name` with inputs `a`, `b` and an output `r`.
    fn function(name: &str, opset: i64, body: ModelBuilder) -> FunctionProto {
        let set = |domain: &str, version| OperatorSetIdProto {
            domain: Some(domain.to_owned()),
            version: Some(version),
        };
        FunctionProto {
            name: Some(name.to_owned()),
            domain: Some("f".to_owned()),
            input: vec!["a".to_owned(), "b".to_owned()],
            output: vec!["r".to_owned()],
            node: body.build_graph().node,
            opset_import: vec![set("", opset), set("f", 1)],
            ..FunctionProto::default()
        }
    }

    fn model(
        nodes: impl Fn(ModelBuilder) -> ModelBuilder,
        functions: &[FunctionProto],
    ) -> ModelProto {
        let start = ModelBuilder::new(18).opset("f", 1).input("x", DType::F32, &[2, 3]);
        let mut model = nodes(start).output("y", DType::F32, &[2, 3]).build();
        model.functions = functions.to_vec();
        model
    }

    fn body(model: &ModelProto) -> String {
        match import(model, None, &ImportOptions::default()) {
            Ok(imported) => {
                let text = imported.module.to_string();
                text[text.find("{\n").unwrap() + 2..].trim_end_matches("}\n").to_owned()
            }
            Err(report) => report.to_string(),
        }
    }

    #[test]
    fn calls_become_the_nodes_of_the_body() {
        // The inner values of two calls do not meet; the attribute comes from the call, then from
        // the default; the second input is left out.
        let mut add = function(
            "Scale",
            18,
            ModelBuilder::new(18)
                .node("LeakyRelu", &["a"], &["t"], &[("alpha", 0f32.into())])
                .node("Sum", &["t", "a"], &["r"], &[]),
        );
        let alpha = &mut add.node[0].attribute[0];
        (alpha.f, alpha.ref_attr_name) = (None, Some("slope".to_owned()));
        add.attribute_proto = vec![AttributeProto {
            name: Some("slope".to_owned()),
            f: Some(0.25),
            ..AttributeProto::default()
        }];
        let model =
            model(
                |start| {
                    start
                        .node_in("f", "Scale", &["x"], &["m"], &[("slope", 0.5f32.into())])
                        .node_in("f", "Scale", &["m"], &["y"], &[])
                },
                &[add],
            );
        assert_eq!(
            body(&model),
            "  %0 = nn.leaky_relu(%x, alpha=0.5);\n  \
               %1 = add(%0, %x);\n  \
               %2 = nn.leaky_relu(%1, alpha=0.25);\n  \
               add(%2, %1)\n"
        );
    }

    #[test]
    fn bodies_have_their_own_operator_sets_and_may_call_others() {
        // Until version 13, softmax flattens: the axis is 1 of 2, so that shows in the default.
        let old = function(
            "Old",
            11,
            ModelBuilder::new(11).node("Softmax", &["a"], &["r"], &[("axis", 0.into())]),
        );
        let outer = function(
            "Outer",
            18,
            ModelBuilder::new(18).node_in("f", "Old", &["a"], &["t"], &[]).node(
                "Softmax",
                &["t"],
                &["r"],
                &[("axis", 0.into())],
            ),
        );
        let model = model(|start| start.node_in("f", "Outer", &["x"], &["y"], &[]), &[old, outer]);
        assert_eq!(
            body(&model),
            "  %0 = reshape(%x, newshape=[1, 6]);\n  \
               %1 = nn.softmax(%0, axis=1);\n  \
               %2 = reshape(%1, newshape=[2, 3]);\n  \
               nn.softmax(%2, axis=0)\n"
        );
    }

    #[test]
    fn calls_that_do_not_end_or_do_not_fit_are_told() {
        let calls = |callee: &str| ModelBuilder::new(18).node_in("f", callee, &["a"], &["r"], &[]);
        let circle = [function("A", 18, calls("B")), function("B", 18, calls("A"))];
        let call = |start: ModelBuilder| start.node_in("f", "A", &["x"], &["y"], &[]);
        assert_eq!(
            body(&model(call, &circle)),
            "node `y.0/r.1/r` (f.A, opset 1): the function f.A calls itself"
        );
        let relu = function("A", 18, ModelBuilder::new(18).node("Relu", &["a"], &["r"], &[]));
        let inputs = |start: ModelBuilder| start.node_in("f", "A", &["x"; 3], &["y"], &[]);
        assert!(
            body(&model(inputs, std::slice::from_ref(&relu))).starts_with(
                "node `y` (f.A, opset 1): the function has 2 inputs, but the call has 3"
            )
        );
        let attribute =
            |start: ModelBuilder| start.node_in("f", "A", &["x"], &["y"], &[("k", 1.into())]);
        assert_eq!(
            body(&model(attribute, &[relu])),
            "node `y` (f.A, opset 1): the function has no attribute `k`"
        );
    }

    #[test]
    fn calls_that_double_at_every_level_are_refused() {
        let level = |index: usize| {
            let inner = format!("F{}", index + 1);
            let body = ModelBuilder::new(18).node_in("f", &inner, &["a"], &["t"], &[]).node_in(
                "f",
                &inner,
                &["t"],
                &["r"],
                &[],
            );
            function(&format!("F{index}"), 18, body)
        };
        let mut functions: Vec<FunctionProto> = (0..40).map(level).collect();
        functions.push(function(
            "F40",
            18,
            ModelBuilder::new(18).node("Relu", &["a"], &["r"], &[]),
        ));
        let model = model(|start| start.node_in("f", "F0", &["x"], &["y"], &[]), &functions);
        assert!(body(&model).contains("the model has too many nodes"));
    }
}
