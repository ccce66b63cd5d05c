//! One graph: inputs, nodes in order, outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::extents::{Extents, SizeNames};
use super::functions::{self, FlatNode, Functions};
use super::known::KnownValues;
use super::order::{Definition, Definitions, definitions, live_order};
use super::{
    Attributes, CONVERT, ImportOptions, MIN_OPSET, ModelPort, NodeError, Opsets, inputs, node_name,
    normal_domain, op_name, problem_node, subgraphs,
};
use crate::arith::Symbol;
use crate::diagnostics::{Problem, Report};
use crate::executor::RunTimeSizes;
use crate::graph::{ExprId, Function, FunctionBuilder};
use crate::ir::{Dim, OnnxSpan, Span, TensorType, Type};
use crate::onnx::external::ExternalData;
use crate::onnx::input_value::InputValue;
use crate::onnx::ops::{self, Handler, OpImport};
use crate::onnx::proto::{Dimension, DimensionValue, GraphProto, NodeProto, ValueInfoProto};
use crate::onnx::tensor::{constant_from_onnx, dtype_from_onnx};

/// Most inputs of a node that a message lists.
const MAX_LISTED_INPUTS: usize = 8;

/// The imported main graph.
pub(super) struct Main {
    pub(super) function: Function,
    pub(super) inputs: Vec<ModelPort>,
    pub(super) outputs: Vec<ModelPort>,
    /// Outputs whose classes stand for strings, with these, in the order of the outputs.
    pub(super) labels: Vec<(String, Vec<String>)>,
}

/// A value of a graph: an expression, or nothing because of a problem that is reported already. A
/// sequence is a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Known(ExprId),
    /// An optional value that has no element; a node that reads it has no such input.
    Absent,
    Unknown,
}

/// What the graphs of a model have in common while they are imported.
pub(super) struct Shared<'m> {
    pub(super) builder: FunctionBuilder,
    pub(super) external: &'m mut ExternalData,
    pub(super) known: KnownValues,
    /// Strings that the classes of a value stand for, by its name.
    pub(super) labels: BTreeMap<String, Vec<String>>,
    pub(super) sizes: SizeNames,
    pub(super) functions: &'m Functions<'m>,
    /// Whether the model's opset is too old for a node that was met; told once.
    too_old: bool,
    /// Whether the model itself says the extents of all inputs, and the caller fixes no values.
    is_fixed: bool,
    /// Nodes that were imported as steps of loops.
    pub(super) unrolled: usize,
    /// Loops that were imported a second time, as a counter ends them.
    pub(super) counted_loops: usize,
    pub(super) report: &'m mut Report,
}

/// One graph while it is imported.
pub(super) struct GraphImporter<'a, 's, 'm> {
    graph: &'a GraphProto,
    opsets: Opsets<'a>,
    definitions: &'s Definitions<'a>,
    values: IndexMap<&'a str, Value>,
    pub(super) shared: &'s mut Shared<'m>,
}

/// A graph that a node has as an attribute: a branch, or the body of a loop, which is imported once
/// for each step.
pub(super) struct Body<'a> {
    pub(super) graph: &'a GraphProto,
    opsets: Opsets<'a>,
    nodes: Vec<FlatNode<'a>>,
    /// What it reads from the graphs around it.
    outer: Vec<(&'a str, Value)>,
}

/// Imports the main graph. `None` if that is not possible; the report says why.
pub(super) fn import(
    graph: &GraphProto,
    (opsets, functions): (Opsets<'_>, &Functions<'_>),
    options: &ImportOptions,
    extents: Extents<'_>,
    external: &mut ExternalData,
    report: &mut Report,
) -> Option<Main> {
    let nodes = functions::flatten(&graph.node, opsets, functions, report);
    let definitions = definitions(graph, &nodes, &[], report);
    let order = live_order(graph, &nodes, &definitions, report);
    let mut shared = Shared {
        builder: FunctionBuilder::new(),
        external,
        known: KnownValues::default(),
        labels: BTreeMap::new(),
        sizes: SizeNames::default(),
        functions,
        too_old: false,
        is_fixed: true,
        unrolled: 0,
        counted_loops: 0,
        report,
    };
    let mut importer = GraphImporter {
        graph,
        opsets,
        definitions: &definitions,
        values: IndexMap::new(),
        shared: &mut shared,
    };
    RunTimeSizes::of(&options.dims).assume(importer.shared.builder.facts_mut());
    let mut told = None;
    match &extents {
        Extents::Found(_) => importer.shared.builder.find_symbols(),
        Extents::Declared(known) => {
            told = Some(&known.told);
            importer.shared.sizes.expected.clone_from(&known.counts);
            for (left, right) in &known.equal {
                // What cannot hold is told where it is needed.
                let _ = importer.shared.builder.facts_mut().assume_eq(left, right);
            }
        }
    }
    importer.check_graph();
    let inputs = importer.inputs(options, told);
    for index in order {
        importer.node(&nodes[index]);
    }
    // First, as nodes may have problems because of a misspelling.
    let asked = std::mem::take(&mut importer.shared.sizes.asked);
    let nodes = std::mem::take(&mut importer.shared.report.problems);
    importer.shared.report.extend(asked.into_values().map(|(_, problem)| problem).chain(nodes));
    if let Extents::Found(found) = extents {
        found.add(&importer.shared.builder, &inputs, &importer.shared.sizes, options);
    }
    let (result, outputs) = importer.outputs()?;
    let labels =
        outputs.iter().filter_map(|output| shared.labels.remove_entry(&output.name)).collect();
    Some(Main { function: shared.builder.finish(result), inputs, outputs, labels })
}

impl Body<'_> {
    /// Number of nodes, at least one.
    pub(super) fn len(&self) -> usize {
        self.nodes.len().max(1)
    }
}

impl Shared<'_> {
    /// Imports a body with values for its inputs. Returns the values of its outputs; those that are
    /// not known depend on a problem that is reported.
    pub(super) fn run(&mut self, body: &Body<'_>, inputs: &[Value]) -> Vec<Value> {
        let outer: Vec<&str> = body.outer.iter().map(|(name, _)| *name).collect();
        let definitions = definitions(body.graph, &body.nodes, &outer, self.report);
        let order = live_order(body.graph, &body.nodes, &definitions, self.report);
        let mut values: IndexMap<&str, Value> = body.outer.iter().copied().collect();
        values
            .extend(body.graph.input.iter().map(ValueInfoProto::name).zip(inputs.iter().copied()));
        let mut importer = GraphImporter {
            graph: body.graph,
            opsets: body.opsets,
            definitions: &definitions,
            values,
            shared: self,
        };
        importer.check_graph();
        for index in order {
            importer.node(&body.nodes[index]);
        }
        let outputs = &body.graph.output;
        outputs.iter().map(|output| importer.defined(output.name())).collect()
    }
}

impl<'a, 'm> GraphImporter<'a, '_, 'm> {
    fn check_graph(&mut self) {
        for sparse in &self.graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name());
            self.shared.report.push(
                Problem::new(format!("initializer `{name}` is sparse, which is not supported"))
                    .help("store it as a dense tensor"),
            );
        }
        if self.graph.output.is_empty() {
            self.shared
                .report
                .push(Problem::new("the graph has no outputs, so there is nothing to compute"));
        }
    }

    /// The inputs, in whose types symbols are replaced by the expressions that are told of them.
    fn inputs(
        &mut self,
        options: &ImportOptions,
        told: Option<&BTreeMap<Symbol, Dim>>,
    ) -> Vec<ModelPort> {
        let declared: Vec<&'a ValueInfoProto> = self
            .graph
            .input
            .iter()
            .enumerate()
            .filter(|(index, input)| {
                self.definitions.get(input.name()) == Some(&Definition::Input(*index))
            })
            .map(|(_, input)| input)
            .collect();
        let asked = &mut self.shared.sizes.asked;
        let types = inputs::input_types(&declared, options, asked, self.shared.report);
        let is_given = !options.input_values.is_empty() || !options.input_shapes.is_empty();
        let is_fixed = !is_given && declared.iter().all(inputs::is_fixed);
        self.shared.is_fixed = is_fixed;
        let mut ports = Vec::with_capacity(declared.len());
        for (input, ty) in declared.into_iter().zip(types) {
            let name = input.name();
            let Some(ty) = ty else {
                self.values.insert(name, Value::Unknown);
                continue;
            };
            self.set_span(name.to_owned(), "input".to_owned(), None);
            if let Some(value) = options.input_values.get(name) {
                let value = self.fixed_input(name, &ty, value);
                self.values.insert(name, value);
                continue;
            }
            let facts = self.shared.builder.facts();
            let told = |symbol: &Symbol| told?.get(symbol).cloned();
            let defined = |symbol: &Symbol| facts.definition(symbol).cloned();
            let extent = |dim: &Dim| dim.substitute(&told).substitute(&defined);
            let shape = ty.shape.iter().map(extent).collect();
            let ty = TensorType::new(shape, ty.dtype);
            let symbols = ty.shape.iter().flat_map(Dim::symbols);
            self.shared.sizes.names.extend(symbols.map(|symbol| symbol.name().to_owned()));
            let param = self.shared.builder.param(name, ty.clone());
            self.values.insert(name, Value::Known(param));
            ports.push(ModelPort { name: name.to_owned(), ty });
        }
        ports
    }

    /// An input whose value the caller fixed.
    fn fixed_input(&mut self, name: &str, ty: &TensorType, value: &InputValue) -> Value {
        match value.fit(ty) {
            Ok(constant) => Value::Known(self.shared.builder.constant(constant)),
            Err(why) => {
                let message = format!("the value given for input `{name}` {why}");
                self.shared.report.push(Problem::new(message));
                Value::Unknown
            }
        }
    }

    fn set_span(&mut self, node: String, op: String, proto: Option<&FlatNode<'_>>) {
        let domain = proto.map_or("", |proto| proto.domain());
        self.shared.builder.set_span(Span::Onnx(Arc::new(OnnxSpan {
            node,
            op,
            opset: proto
                .map_or(self.opsets, |proto| proto.opsets)
                .version(domain)
                .unwrap_or_default(),
            source: proto.and_then(|proto| super::source_line(proto)),
        })));
    }

    /// The value of a name; an initializer becomes a constant when it is first used. A name that
    /// nothing defines has been reported.
    fn value(&mut self, name: &'a str) -> Value {
        if let Some(&value) = self.values.get(name) {
            return value;
        }
        let value = match self.definitions.get(name) {
            Some(&Definition::Initializer(index)) => self.initializer(index),
            Some(Definition::Input(_) | Definition::Node(_) | Definition::Outer) | None => {
                Value::Unknown
            }
        };
        self.values.insert(name, value);
        value
    }

    fn initializer(&mut self, index: usize) -> Value {
        let tensor = &self.graph.initializer[index];
        match constant_from_onnx(tensor, self.shared.external) {
            Ok(constant) => {
                self.set_span(tensor.name().to_owned(), "initializer".to_owned(), None);
                Value::Known(self.shared.builder.constant(constant))
            }
            Err(error) => {
                self.shared
                    .report
                    .push(Problem::new(format!("initializer `{}`: {error}", tensor.name())));
                Value::Unknown
            }
        }
    }

    /// The value of a name that must be defined; if it is not, that is reported.
    fn defined(&mut self, name: &'a str) -> Value {
        if !self.definitions.contains_key(name) {
            self.shared.report.push(Problem::new(format!("nothing defines the output `{name}`")));
        }
        self.value(name)
    }

    /// Prepares a graph that a node has as an attribute.
    pub(super) fn body<'f>(&mut self, graph: &'a GraphProto, opsets: Opsets<'a>) -> Body<'f>
    where
        'a: 'f,
        'm: 'f,
    {
        let functions: &'m Functions<'m> = self.shared.functions;
        let nodes = functions::flatten(&graph.node, opsets, functions, self.shared.report);
        let captures = subgraphs::captures(graph).into_iter();
        let outer = captures
            .filter(|name| self.definitions.contains_key(name))
            .map(|name| (name, self.value(name)))
            .collect();
        Body { graph, opsets, nodes, outer }
    }

    fn node(&mut self, proto: &'a FlatNode<'_>) {
        let inputs: Vec<Option<Value>> =
            proto.input.iter().map(|name| (!name.is_empty()).then(|| self.value(name))).collect();
        let outputs = match self.operator(proto) {
            _ if proto.failed => Vec::new(),
            Err(error) => {
                let listed = self.describe_inputs(proto, &inputs);
                let problem =
                    error.into_problem(&listed, &self.extents(&inputs), &self.shared.sizes);
                self.shared.report.push(problem.at(problem_node(proto)));
                Vec::new()
            }
            // The cause is reported where it is.
            Ok(_) if inputs.contains(&Some(Value::Unknown)) => Vec::new(),
            Ok(None) => Vec::new(),
            Ok(Some((op, version))) => self.import_node(proto, op, version, &inputs),
        };
        for (index, name) in proto.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let value = outputs.get(index).copied().unwrap_or(Value::Unknown);
            self.values.insert(name, value);
        }
    }

    /// The import of a node's operator, and the version of the operator that is in effect. `None` if
    /// the model's operator set is too old for it, which is told once.
    fn operator(
        &mut self,
        proto: &FlatNode<'_>,
    ) -> Result<Option<(&'static OpImport, i64)>, NodeError> {
        let domain = normal_domain(proto.domain());
        let Some(opset) = proto.opsets.version(domain) else {
            return Err(NodeError::new(match domain {
                "" => "the model does not import ONNX's own operators".to_owned(),
                domain => format!("the model does not import the domain `{domain}`"),
            }));
        };
        const WITHOUT: &str = "export the model without it, cut the graph before it with \
                               onnx.utils.extract_model, or import it with \
                               niello::register_onnx_op!";
        const PORTABLE: &str = "ONNX Runtime wrote this file for one machine; let it optimise no further than \
                                ORT_ENABLE_EXTENDED, or take the file from before";
        let op = ops::find(domain, proto.op_type(), opset)
            .map_err(|places| {
                let name = op_name(proto);
                NodeError::new(format!("imports of the operator {name} are registered at {places}"))
            })?
            .ok_or_else(|| {
                let help = if domain == "com.microsoft.nchwc" { PORTABLE } else { WITHOUT };
                NodeError::new(format!("the operator {} is not supported", op_name(proto)))
                    .help(help)
            })?;
        let version = op.version(opset).ok_or_else(|| {
            NodeError::new(format!("there is no operator {} in opset {opset}", op.name))
        })?;
        if domain.is_empty() && opset < MIN_OPSET && op.version(MIN_OPSET) != Some(version) {
            if !std::mem::replace(&mut self.shared.too_old, true) {
                let message = format!(
                    "the model uses opset {opset}, but the oldest that is supported is {MIN_OPSET}"
                );
                self.shared.report.push(Problem::new(message).help(CONVERT));
            }
            return Ok(None);
        }
        Ok(Some((op, version)))
    }

    fn import_node(
        &mut self,
        proto: &'a FlatNode<'_>,
        op: &'static OpImport,
        version: i64,
        inputs: &[Option<Value>],
    ) -> Vec<Value> {
        let known = |input: &Option<Value>| match input {
            Some(Value::Known(id)) => Some(*id),
            Some(Value::Unknown | Value::Absent) | None => None,
        };
        self.set_span(node_name(proto), op_name(proto), Some(proto));
        let inputs_known: Vec<Option<ExprId>> = inputs.iter().map(known).collect();
        let mut attrs = Attributes::new(proto);
        let result = check_arity(inputs.len(), &attrs, op).and_then(|()| match op.import {
            Handler::Calls(import) => {
                let mut node = self.shared.node(proto, version, inputs_known, attrs.take());
                let outputs = import(&mut node);
                attrs = node.attrs;
                Ok(outputs?.into_iter().map(Value::Known).collect())
            }
            Handler::If => self.import_if(proto, &mut attrs, &inputs_known),
            Handler::Loop => self.import_loop(proto, &mut attrs, &inputs_known),
            Handler::Scan => self.import_scan(proto, version, &mut attrs, &inputs_known),
            Handler::SequenceMap => self.import_sequence_map(proto, &mut attrs, &inputs_known),
            // `Optional`-15, -28 (more types).
            Handler::Optional => {
                let value = inputs_known.first().copied().flatten();
                attrs.ty("type").map(|_| vec![value.map_or(Value::Absent, Value::Known)])
            }
            Handler::FlexAttention => self.import_flex_attention(proto, &mut attrs, &inputs_known),
        });
        let unread: Vec<&str> = attrs.unread().collect();
        let mut errors = Vec::new();
        let outputs = match result {
            Ok(outputs) => {
                for name in unread {
                    errors.push(NodeError::new(format!(
                        "attribute `{name}` is not one of {} at opset {version}",
                        op.name
                    )));
                }
                for (index, name) in proto.output.iter().enumerate().skip(outputs.len()) {
                    if !name.is_empty() {
                        errors.push(NodeError::new(format!(
                            "output {index}, `{name}`, is not supported"
                        )));
                    }
                }
                outputs
            }
            Err(error) => {
                errors.push(error);
                Vec::new()
            }
        };
        if errors.is_empty() {
            return outputs;
        }
        let listed = self.describe_inputs(proto, inputs);
        for error in errors {
            let problem = error.into_problem(&listed, &self.extents(inputs), &self.shared.sizes);
            self.shared.report.push(problem.at(problem_node(proto)));
        }
        Vec::new()
    }

    /// The extents of a node's inputs.
    fn extents(&self, inputs: &[Option<Value>]) -> Vec<Dim> {
        let known = inputs.iter().copied().flatten().filter_map(Value::known);
        let tensors = known.filter_map(|id| self.shared.builder.ty(id).as_tensor());
        tensors.flat_map(|ty| ty.shape.iter().cloned()).collect()
    }

    /// Names and types of a node's inputs, for messages.
    fn describe_inputs(&self, proto: &NodeProto, inputs: &[Option<Value>]) -> String {
        let mut listed: Vec<String> = proto
            .input
            .iter()
            .zip(inputs)
            .take(MAX_LISTED_INPUTS)
            .map(|(name, value)| match value {
                Some(Value::Known(id)) => format!("`{name}`: {}", self.shared.builder.ty(*id)),
                Some(Value::Unknown) => format!("`{name}` of unknown type"),
                Some(Value::Absent) => format!("`{name}` without an element"),
                None => "none".to_owned(),
            })
            .collect();
        match inputs.len() {
            0 => return "no inputs".to_owned(),
            1 => {}
            more if more > MAX_LISTED_INPUTS => {
                listed.push(format!("{} more", more - MAX_LISTED_INPUTS));
            }
            _ => {}
        }
        let what = if inputs.len() == 1 { "input" } else { "inputs" };
        format!("{what} {}", listed.join(", "))
    }

    /// The function's result and the outputs' names and types.
    fn outputs(&mut self) -> Option<(ExprId, Vec<ModelPort>)> {
        let mut complete = true;
        let mut fields = Vec::with_capacity(self.graph.output.len());
        let mut ports: Vec<ModelPort> = Vec::with_capacity(self.graph.output.len());
        for output in &self.graph.output {
            let name = output.name();
            // The elements of a sequence are outputs of their own.
            let parts: Vec<(String, ExprId)> = match self.defined(name) {
                Value::Unknown => {
                    complete = false;
                    continue;
                }
                Value::Absent => Vec::new(),
                Value::Known(id) => match self.shared.builder.expr(id).as_tuple() {
                    Some(elements) if inputs::tensor_type(output.r#type.as_ref()).is_err() => {
                        let named = |(at, &element)| (format!("{name}_{at}"), element);
                        elements.iter().enumerate().map(named).collect()
                    }
                    Some(_) | None => vec![(name.to_owned(), id)],
                },
            };
            for (name, id) in parts {
                let problem = match self.shared.builder.ty(id).clone() {
                    Type::Tensor(ty) => match check_output(output, &ty, self.shared.is_fixed) {
                        None => {
                            fields.push(id);
                            ports.push(ModelPort { name: unused(&name, self.graph, &ports), ty });
                            continue;
                        }
                        Some(problem) => problem,
                    },
                    Type::Tuple(_) | Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => {
                        Problem::new(format!("output `{name}` is no tensor"))
                    }
                };
                self.shared.report.push(problem);
                complete = false;
            }
        }
        if !complete {
            return None;
        }
        match fields.as_slice() {
            [] => {
                let message = "the outputs have no elements, so there is nothing to compute";
                self.shared.report.push(Problem::new(message));
                None
            }
            &[field] => Some((field, ports)),
            fields => {
                self.shared.builder.set_span(Span::Unknown);
                Some((self.shared.builder.tuple(fields), ports))
            }
        }
    }
}

/// The name of the next output; one that is listed again, of the same value, gets a number.
fn unused(name: &str, graph: &GraphProto, ports: &[ModelPort]) -> String {
    let is_listed = |name: &str| ports.iter().any(|port| port.name == name);
    if !is_listed(name) {
        return name.to_owned();
    }
    let is_free = |other: &String| {
        !is_listed(other) && graph.output.iter().all(|output| output.name() != other)
    };
    (2..).map(|number| format!("{name}_{number}")).find(is_free).unwrap_or_default()
}

/// The declared type of an output must not contradict what is computed. Where the caller pinned what
/// the model leaves open, declared extents are not compared: tools that free an input's extents leave
/// those of the outputs as they were.
fn check_output(output: &ValueInfoProto, ty: &TensorType, is_fixed: bool) -> Option<Problem> {
    let declared = inputs::tensor_type(output.r#type.as_ref()).ok()?;
    let dtype = dtype_from_onnx(declared.elem_type()).ok()?;
    let name = output.name();
    if dtype != ty.dtype {
        let message = format!("output `{name}` is declared as {dtype}, but it is {ty}");
        return Some(Problem::new(message));
    }
    let dims = &declared.shape.as_ref()?.dim;
    let contradicts = |(dim, computed): (&Dimension, &Dim)| match dim.value {
        Some(DimensionValue::Value(value)) => {
            value >= 0 && computed.as_const().is_some_and(|computed| computed != value)
        }
        Some(DimensionValue::Param(_)) | None => false,
    };
    let is_number = |dim: &Dimension| matches!(dim.value, Some(DimensionValue::Value(0..)));
    // With an input that is declared as a scalar and given a shape, its outputs are none, either.
    let says_nothing = match dims.is_empty() {
        true => !is_fixed,
        // Converters declare a row of labels of any length where there is a column.
        false => !dims.iter().any(is_number),
    };
    let same_rank = dims.len() == ty.shape.rank() || says_nothing;
    if same_rank && !(is_fixed && dims.iter().zip(ty.shape.iter()).any(contradicts)) {
        return None;
    }
    let extents: Vec<String> = dims
        .iter()
        .map(|dim| match &dim.value {
            Some(DimensionValue::Value(value)) if *value >= 0 => value.to_string(),
            Some(DimensionValue::Param(param)) if !param.is_empty() => param.clone(),
            Some(DimensionValue::Value(_) | DimensionValue::Param(_)) | None => "?".to_owned(),
        })
        .collect();
    let extents = extents.join(", ");
    Some(
        Problem::new(format!("output `{name}` is declared as ({extents}), but it is {ty}"))
            .help("if the declaration is stale, remove the output's shape from the model"),
    )
}

fn check_arity(count: usize, attrs: &Attributes<'_>, op: &OpImport) -> Result<(), NodeError> {
    if let Some(name) = attrs.repeated() {
        return Err(NodeError::new(format!("attribute `{name}` is given twice")));
    }
    let (least, most) = op.inputs;
    if count < least || count > most {
        let expected = match (least, most) {
            (1, 1) => "1 input".to_owned(),
            (least, most) if least == most => format!("{least} inputs"),
            (least, usize::MAX) => format!("at least {least} inputs"),
            (least, most) => format!("{least} to {most} inputs"),
        };
        return Err(NodeError::new(format!(
            "{} takes {expected}, but the node has {count}",
            op.name
        )));
    }
    Ok(())
}
