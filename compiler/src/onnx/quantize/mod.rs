//! Post-training quantisation of ONNX graphs, in the QDQ form.
//!
//! `QuantizeLinear` and `DequantizeLinear` go around what each quantised operator reads, as ONNX
//! Runtime's `quantize_static` writes them: activations as `uint8` with one scale and zero point for
//! a tensor, weights as `int8` with a scale for each output channel, biases as `int32` in the scale
//! of the sums. The scheme is that of Jacob et al., "Quantization and Training of Neural Networks for
//! Efficient Integer-Arithmetic-Only Inference" (2018). Everything else stays as it is in the model.

mod fold;
mod range;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::external::ExternalData;
use super::load::{MAX_MODEL_BYTES, ModelFile};
use super::model_builder::ModelAttr;
use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use super::tensor::{constant_from_onnx, constant_to_onnx};
use crate::diagnostics::{Problem, Report};
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};
pub use range::Range;

/// The oldest operator set in which `DequantizeLinear` takes a scale for each channel.
const MIN_QDQ_OPSET: i64 = 13;

/// Operators that are quantised.
const QUANTISED: [&str; 3] = ["Conv", "Gemm", "MatMul"];

/// The greatest magnitude of a weight: the same on both sides, so that the zero point is 0.
const MAX_WEIGHT: f64 = 127.0;

/// An operator that is going to be quantised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The node's name, or that of its output if it has none.
    pub name: String,
    /// The operator.
    pub op: String,
    /// The value that it computes.
    pub output: String,
    /// The activations that it reads.
    input: String,
    /// Its place among the nodes.
    node: usize,
    /// The axis of the weights that output channels go along.
    axis: usize,
}

/// A model that is ready to be quantised: batch normalisation is folded into convolutions.
#[derive(Clone, Debug)]
pub struct Quantizer {
    file: ModelFile,
    constants: BTreeMap<String, Constant>,
    sites: Vec<Site>,
}

impl Quantizer {
    /// Finds what can be quantised. `skip` has names of nodes and operators that stay as they are.
    ///
    /// # Errors
    ///
    /// The model is quantised already, its operator set is too old, a name in `skip` is neither a
    /// node nor an operator of it, constants cannot be read, or there is nothing to quantise.
    pub fn new(mut file: ModelFile, skip: &[String]) -> Result<Quantizer, Report> {
        check(&file.proto, skip)?;
        let mut external = match &file.folder {
            Some(folder) => ExternalData::in_folder(folder),
            None => ExternalData::none(),
        };
        external = external.with_link_targets(file.store.as_slice());
        let graph = file.proto.graph.get_or_insert_default();
        let mut constants = BTreeMap::new();
        for tensor in &mut graph.initializer {
            let is_external = tensor.is_external();
            if !is_external && tensor.data_type != Some(super::proto::DataType::Float as i32) {
                continue;
            }
            let name = tensor.name().to_owned();
            let constant = constant_from_onnx(tensor, &mut external)
                .map_err(|error| Problem::new(format!("initializer `{name}`: {error}")))?;
            if is_external {
                // The new file may be in another folder, so it holds all constants itself.
                *tensor = constant_to_onnx(&constant, &name).ok_or_else(|| {
                    Problem::new(format!("initializer `{name}` cannot be written to another file"))
                })?;
            }
            // An initializer that is an input as well is the default of something that changes, and
            // what is not finite has no scale.
            if constant.ty().dtype == DType::F32
                && graph.input.iter().all(|input| input.name() != name)
                && constant.to_f64_vec().is_some_and(|values| values.iter().all(|v| v.is_finite()))
            {
                constants.insert(name, constant);
            }
        }
        fold::fold_batch_norm(graph, &mut constants);
        let sites: Vec<Site> = sites(graph, &constants, skip);
        if sites.is_empty() {
            return Err(Problem::new(format!(
                "there is nothing to quantise: no {} with float32 weights that are constant",
                QUANTISED.join(", ")
            ))
            .into());
        }
        Ok(Quantizer { file, constants, sites })
    }

    /// What is going to be quantised, in the model's order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The values whose ranges are needed, in the order of their names.
    pub fn activations(&self) -> BTreeSet<&str> {
        self.sites.iter().map(|site| site.input.as_str()).collect()
    }

    /// The model before quantisation.
    pub fn float_model(&self) -> &ModelFile {
        &self.file
    }

    /// The quantised model.
    ///
    /// # Errors
    ///
    /// An activation has no range, or the model is too large for one file.
    pub fn quantized(&self, ranges: &BTreeMap<String, Range>) -> Result<ModelFile, Report> {
        let mut file = self.file.clone();
        let graph = file.proto.graph.get_or_insert_default();
        let mut writer = Writer::new(graph);
        for (at, mut node) in std::mem::take(&mut writer.graph.node).into_iter().enumerate() {
            if let Some(site) = self.sites.iter().find(|site| site.node == at) {
                let range = ranges.get(&site.input).ok_or_else(|| {
                    Problem::new(format!(
                        "`{}` of {} has no range: no run has computed it",
                        site.input, site.name
                    ))
                })?;
                self.quantise(&mut writer, site, &mut node, range);
            }
            writer.nodes.push(node);
        }
        writer.finish();
        if file.proto.encoded_len() as u64 > MAX_MODEL_BYTES {
            let message = "the quantised model is too large for one file";
            return Err(Problem::new(message).into());
        }
        Ok(file)
    }

    /// Puts quantisation around what a node reads.
    fn quantise(&self, writer: &mut Writer<'_>, site: &Site, node: &mut NodeProto, range: &Range) {
        let (scale, zero) = range.asymmetric();
        node.input[0] = writer.activation(&site.input, scale, zero);
        let weight = std::mem::take(&mut node.input[1]);
        let Some(values) = self.constants.get(&weight).and_then(Constant::to_f64_vec) else {
            return node.input[1] = weight;
        };
        let dims = self.constants[&weight].ty().shape.as_consts().unwrap_or_default();
        let inner: usize = dims[site.axis + 1..].iter().map(|&dim| dim as usize).product();
        let channels = dims[site.axis] as usize;
        let channel = |at: usize| at / inner % channels;
        let mut greatest = vec![0f64; channels];
        for (at, value) in values.iter().enumerate() {
            greatest[channel(at)] = greatest[channel(at)].max(value.abs());
        }
        let scales: Vec<f32> =
            greatest.iter().map(|&most| range::scale(most, MAX_WEIGHT)).collect();
        let quantised = values.iter().enumerate().map(|(at, value)| {
            let steps = (value / f64::from(scales[channel(at)])).round_ties_even();
            steps.clamp(-MAX_WEIGHT, MAX_WEIGHT) as i128
        });
        let quantised = ints(&dims, DType::I8, quantised.collect());
        node.input[1] = writer.constant(&weight, quantised, &scales, site.axis);
        if let Some(bias) = node.input.get(2).filter(|name| !name.is_empty()).cloned()
            && let Some(values) = self.constants.get(&bias).and_then(Constant::to_f64_vec)
            && values.len() == channels
        {
            // One channel alone has a scale for the whole tensor, like any other.
            let scales: Vec<f32> = scales.iter().map(|&weight| weight * scale).collect();
            let steps: Vec<f64> = values
                .iter()
                .zip(&scales)
                .map(|(value, &scale)| (value / f64::from(scale)).round_ties_even())
                .collect();
            // A bias beyond 32 bits stays a float: the sums would not hold it.
            if steps.iter().all(|steps| steps.abs() <= f64::from(i32::MAX)) {
                let dims = self.constants[&bias].ty().shape.as_consts().unwrap_or_default();
                let steps = steps.iter().map(|&steps| steps as i128).collect();
                let axis = dims.len().saturating_sub(1);
                let steps = ints(&dims, DType::I32, steps);
                node.input[2] = writer.constant(&bias, steps, &scales, axis);
            }
        }
    }
}

/// A model of which these values are outputs, after its own.
pub fn with_outputs(file: &ModelFile, values: &BTreeSet<&str>) -> ModelFile {
    let mut file = file.clone();
    let graph = file.proto.graph.get_or_insert_default();
    for name in values {
        let known = graph.input.iter().chain(&graph.output).any(|port| port.name() == *name);
        if !known {
            let name = Some((*name).to_owned());
            graph.output.push(ValueInfoProto { name, ..ValueInfoProto::default() });
        }
    }
    file
}

fn ints(dims: &[u64], dtype: DType, values: Vec<i128>) -> Constant {
    let shape: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
    let tensor = Tensor::from_ints(dtype, &shape, values).expect("as many values as weights");
    tensor.to_constant().expect("the values are within the type")
}

/// What is wrong with a model before one looks at its operators.
fn check(model: &ModelProto, skip: &[String]) -> Result<(), Report> {
    let mut report = Report::new();
    let nodes = model.graph.as_ref().map_or(&[][..], |graph| &graph.node);
    if let Some(node) = nodes.iter().find(|node| is_quantised(node.op_type())) {
        report.push(
            Problem::new(format!(
                "the model is quantised already: `{}` is {}",
                name_of(node),
                node.op_type()
            ))
            .help("quantise the float model that it was made of"),
        );
    }
    let opset = model.opset_import.iter().find(|set| set.domain().is_empty());
    let opset = opset.map_or(1, |set| set.version());
    if opset < MIN_QDQ_OPSET {
        report.push(
            Problem::new(format!(
                "the model uses operator set {opset}, but scales for each channel need {MIN_QDQ_OPSET}"
            ))
            .help(format!(
                "convert it: onnx.version_converter.convert_version(model, {MIN_QDQ_OPSET})"
            )),
        );
    }
    for name in skip {
        if !nodes.iter().any(|node| name_of(node) == name || node.op_type() == name) {
            report.push(Problem::new(format!(
                "--skip {name}: the model has no such node and no such operator"
            )));
        }
    }
    report.into_result(())
}

fn is_quantised(op: &str) -> bool {
    ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"].contains(&op)
        || op.starts_with("QLinear")
        || op.ends_with("Integer")
}

fn name_of(node: &NodeProto) -> &str {
    let output = node.output.first().map_or("", String::as_str);
    node.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(output)
}

/// An attribute of a node.
fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name() == name)
}

fn sites(graph: &GraphProto, constants: &BTreeMap<String, Constant>, skip: &[String]) -> Vec<Site> {
    let nodes = graph.node.iter().enumerate();
    let site = |(at, node): (usize, &NodeProto)| {
        let skipped = skip.iter().any(|name| name_of(node) == name || node.op_type() == name);
        if skipped || !node.domain().is_empty() || !QUANTISED.contains(&node.op_type()) {
            return None;
        }
        let [input, weight, ..] = &node.input[..] else { return None };
        let shape = constants.get(weight).map(|weight| weight.ty().shape.rank());
        let int = |name| attribute(node, name).map_or(0, AttributeProto::i);
        let one = |name| attribute(node, name).is_none_or(|value| value.f() == 1.0);
        let axis = match (node.op_type(), shape?) {
            ("Conv", 3..) => 0,
            ("Gemm", 2) if int("transA") == 0 && one("alpha") && one("beta") => {
                usize::from(int("transB") == 0)
            }
            ("MatMul", 2) => 1,
            _ => return None,
        };
        if constants.contains_key(input) || graph.initializer.iter().any(|t| t.name() == input) {
            return None;
        }
        Some(Site {
            name: name_of(node).to_owned(),
            op: node.op_type().to_owned(),
            output: node.output.first()?.clone(),
            input: input.clone(),
            node: at,
            axis,
        })
    };
    nodes.filter_map(site).collect()
}

/// A graph that is written anew, with nodes and constants between what was there.
struct Writer<'a> {
    graph: &'a mut GraphProto,
    nodes: Vec<NodeProto>,
    /// All names of values.
    names: BTreeSet<String>,
    /// What stands for an activation.
    activations: BTreeMap<String, String>,
    /// Initializers of which quantised copies are made.
    replaced: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a mut GraphProto) -> Writer<'a> {
        let names = fold::used_names(graph).into_keys().collect();
        let (nodes, activations, replaced) = Default::default();
        Writer { graph, nodes, names, activations, replaced }
    }

    /// A name that nothing else has.
    fn fresh(&mut self, base: &str, what: &str) -> String {
        let mut name = format!("{base}_{what}");
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{what}_{number}");
        }
        name
    }

    fn initializer(&mut self, base: &str, what: &str, constant: &Constant) -> String {
        let name = self.fresh(base, what);
        self.graph.initializer.extend(constant_to_onnx(constant, &name));
        name
    }

    fn node(&mut self, op: &str, base: &str, input: Vec<String>, attrs: &[(&str, i64)]) -> String {
        let output = self.fresh(base, op);
        let attrs = attrs.iter().map(|&(name, value)| ModelAttr::Int(value).to_proto(name));
        self.nodes.push(NodeProto {
            input,
            output: vec![output.clone()],
            name: Some(output.clone()),
            op_type: Some(op.to_owned()),
            attribute: attrs.collect(),
            ..NodeProto::default()
        });
        output
    }

    /// An activation, quantised and dequantised.
    fn activation(&mut self, value: &str, scale: f32, zero: u8) -> String {
        if let Some(known) = self.activations.get(value) {
            return known.clone();
        }
        let scale = Constant::scalar(f64::from(scale), DType::F32).expect("a float has constants");
        let scale = self.initializer(value, "scale", &scale);
        let zero = Constant::scalar(f64::from(zero), DType::U8).expect("a byte has constants");
        let zero = self.initializer(value, "zero_point", &zero);
        let input = vec![value.to_owned(), scale.clone(), zero.clone()];
        let quantised = self.node("QuantizeLinear", value, input, &[]);
        let output = self.node("DequantizeLinear", value, vec![quantised, scale, zero], &[]);
        self.activations.insert(value.to_owned(), output.clone());
        output
    }

    /// A constant that is dequantised, with a scale for each index along an axis.
    fn constant(&mut self, base: &str, steps: Constant, scales: &[f32], axis: usize) -> String {
        self.replaced.insert(base.to_owned());
        let extent = scales.len();
        let dtype = steps.ty().dtype;
        let zeros = ints(&[extent as u64], dtype, vec![0; extent]);
        let scales =
            Constant::from_f32(&[extent as i64], scales).expect("as many as the extent says");
        let input = vec![
            self.initializer(base, "quantized", &steps),
            self.initializer(base, "scale", &scales),
            self.initializer(base, "zero_point", &zeros),
        ];
        self.node("DequantizeLinear", base, input, &[("axis", axis as i64)])
    }

    /// Sets the nodes, and takes out initializers that only had quantised uses.
    fn finish(self) {
        let Writer { graph, nodes, replaced, .. } = self;
        graph.node = nodes;
        let used = fold::used_names(graph);
        let is_used = |name: &str| used.get(name).is_some_and(|&uses| uses > 0);
        graph.initializer.retain(|t| !replaced.contains(t.name()) || is_used(t.name()));
    }
}

#[cfg(test)]
mod tests;
