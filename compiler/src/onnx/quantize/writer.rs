//! A graph that is written anew, with nodes and constants between what was there.

use std::collections::{BTreeMap, BTreeSet};

use super::fold;
use super::weights::ints;
use crate::ir::{Constant, DType};
use crate::onnx::model_builder::ModelAttr;
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto};
use crate::onnx::tensor::constant_to_onnx;

/// The nodes of a graph, one after the other, and the constants that they need.
pub(super) struct Writer<'a> {
    graph: &'a mut GraphProto,
    nodes: Vec<NodeProto>,
    /// All names of values.
    names: BTreeSet<String>,
    /// What was made of a value already, by what it was made for.
    made: BTreeMap<(String, &'static str), Vec<String>>,
    /// Initializers of which quantised copies are made.
    replaced: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(graph: &'a mut GraphProto) -> Writer<'a> {
        let names = fold::used_names(graph).into_keys().collect();
        let (nodes, made, replaced) = Default::default();
        Writer { graph, nodes, names, made, replaced }
    }

    /// The nodes of the graph as it was, which are written one by one.
    pub(super) fn take_nodes(&mut self) -> Vec<NodeProto> {
        std::mem::take(&mut self.graph.node)
    }

    /// A name that nothing else has.
    pub(super) fn fresh(&mut self, base: &str, what: &str) -> String {
        let mut name = format!("{base}_{what}");
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{what}_{number}");
        }
        name
    }

    /// What `make` makes of a value, once for each purpose.
    pub(super) fn once(
        &mut self,
        value: &str,
        purpose: &'static str,
        make: impl FnOnce(&mut Self) -> Vec<String>,
    ) -> Vec<String> {
        let key = (value.to_owned(), purpose);
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        let made = make(self);
        self.made.insert(key, made.clone());
        made
    }

    pub(super) fn initializer(&mut self, base: &str, what: &str, constant: &Constant) -> String {
        let name = self.fresh(base, what);
        self.graph.initializer.extend(constant_to_onnx(constant, &name));
        name
    }

    /// An initializer that takes the place of `former`, which goes if nothing else reads it.
    pub(super) fn replacement(&mut self, former: &str, what: &str, constant: &Constant) -> String {
        self.replaced.insert(former.to_owned());
        self.initializer(former, what, constant)
    }

    /// A node as it is.
    pub(super) fn push(&mut self, node: NodeProto) {
        self.nodes.push(node);
    }

    /// A node of ONNX's own operators with one output, and the name of that.
    pub(super) fn node(
        &mut self,
        op: &str,
        base: &str,
        input: Vec<String>,
        attrs: &[(&str, i64)],
    ) -> String {
        let attrs = attrs.iter().map(|&(name, value)| ModelAttr::Int(value).to_proto(name));
        let outputs = vec![self.fresh(base, op)];
        self.node_of("", op, input, outputs, attrs.collect()).remove(0)
    }

    /// A node of a domain that computes these values, which it returns.
    pub(super) fn node_of(
        &mut self,
        domain: &str,
        op: &str,
        input: Vec<String>,
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) -> Vec<String> {
        self.nodes.push(NodeProto {
            input,
            output: output.clone(),
            name: output.first().cloned(),
            op_type: Some(op.to_owned()),
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            attribute,
            ..NodeProto::default()
        });
        output
    }

    /// An activation, quantised and dequantised.
    pub(super) fn activation(&mut self, value: &str, scale: f32, zero: u8) -> String {
        let made = self.once(value, "qdq", |writer| {
            let scale =
                Constant::scalar(f64::from(scale), DType::F32).expect("a float has constants");
            let scale = writer.initializer(value, "scale", &scale);
            let zero = Constant::scalar(f64::from(zero), DType::U8).expect("a byte has constants");
            let zero = writer.initializer(value, "zero_point", &zero);
            let input = vec![value.to_owned(), scale.clone(), zero.clone()];
            let quantised = writer.node("QuantizeLinear", value, input, &[]);
            vec![writer.node("DequantizeLinear", value, vec![quantised, scale, zero], &[])]
        });
        made[0].clone()
    }

    /// A constant that is dequantised, with a scale for each index along an axis.
    pub(super) fn dequantised(
        &mut self,
        base: &str,
        steps: &Constant,
        scales: &[f32],
        axis: usize,
    ) -> String {
        let extent = scales.len();
        let dtype = steps.ty().dtype;
        let zeros = ints(&[extent as u64], dtype, vec![0; extent]);
        let scales =
            Constant::from_f32(&[extent as i64], scales).expect("as many as the extent says");
        let input = vec![
            self.replacement(base, "quantized", steps),
            self.initializer(base, "scale", &scales),
            self.initializer(base, "zero_point", &zeros),
        ];
        self.node("DequantizeLinear", base, input, &[("axis", axis as i64)])
    }

    /// Sets the nodes, and takes out initializers that only had quantised uses, and what was said of
    /// values that are there no more.
    pub(super) fn finish(self) {
        let Writer { graph, nodes, replaced, .. } = self;
        graph.node = nodes;
        let used = fold::used_names(graph);
        let is_used = |name: &str| used.get(name).is_some_and(|&uses| uses > 0);
        graph.initializer.retain(|t| !replaced.contains(t.name()) || is_used(t.name()));
        graph.value_info.retain(|info| used.contains_key(info.name()));
    }
}
