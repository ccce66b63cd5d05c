//! Post-training quantisation of ONNX graphs.
//!
//! The result is a model of ONNX Runtime's as of niello's. What it reads and writes stays as it was,
//! and so do all operators but those that are quantised, and batch normalisation, which goes into
//! the convolution before it. Each [`Method`] is a module.

mod calibration;
mod dynamic;
mod embedding;
mod float16;
mod fold;
mod half_types;
mod qdq;
mod range;
mod weights;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use prost::Message;

use super::external::ExternalData;
use super::load::{MAX_MODEL_BYTES, ModelFile};
use super::proto::{
    AttributeProto, DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use super::tensor::{constant_from_onnx, constant_to_onnx};
use crate::diagnostics::{Problem, Report};
use crate::ir::{Constant, DType};
pub use calibration::{Calibration, Histogram};
pub use range::{Affine, Range};
use writer::Writer;

/// Operators that are quantised.
const QUANTISED: [&str; 4] = ["Conv", "Gather", "Gemm", "MatMul"];

/// Operators without weights that read bytes if samples give ranges: their numbers would take four times the memory.
const POOLS: [&str; 2] = ["AveragePool", "GlobalAveragePool"];

/// Operators whose result has the type of their first operand, as far as [`pools`] looks through them.
const PASSED: [&str; 5] = ["Add", "Clip", "Concat", "MaxPool", "Relu"];

/// What a model's numbers become.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Method {
    /// Activations and weights become 8-bit integers; samples give the ranges of activations
    #[default]
    Static,
    /// Activations and weights become 8-bit integers; each run finds the ranges of activations
    Dynamic,
    /// Weights alone become 8-bit integers
    Weights8,
    /// Weights alone become integers: those of matrix products of 4 bits, others of 8
    Weights4,
    /// Weights and activations become floats of 16 bits
    Float16,
}

impl Method {
    /// The name by which people ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Static => "static",
            Method::Dynamic => "dynamic",
            Method::Weights8 => "weights8",
            Method::Weights4 => "weights4",
            Method::Float16 => "float16",
        }
    }

    /// The oldest operator set that has what the method writes, and what that is.
    fn needs(self) -> (i64, &'static str) {
        match self {
            Method::Static | Method::Weights8 | Method::Weights4 => {
                (13, "scales for each channel need")
            }
            Method::Dynamic => (11, "DynamicQuantizeLinear needs"),
            Method::Float16 => (7, "operators on float16 need"),
        }
    }
}

/// An operator that is going to be quantised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The node's name, or that of its output if it has none.
    pub name: String,
    /// The operator.
    pub op: String,
    /// The value that it computes.
    pub output: String,
    /// The activations that it reads, or the numbers of the rows that it looks up.
    input: String,
    /// Its place among the nodes.
    node: usize,
    /// The axis of the weights that output channels go along; 0 if it has none.
    axis: usize,
    /// Whether a product takes its operands as they are: `alpha`, `beta` and `transA` are not given.
    is_plain: bool,
}

impl Site {
    /// Whether it looks up rows of its weights.
    fn looks_up(&self) -> bool {
        self.op == "Gather"
    }
}

/// A model that is ready to be quantised.
#[derive(Clone, Debug)]
pub struct Quantizer {
    file: ModelFile,
    method: Method,
    skip: Vec<String>,
    constants: BTreeMap<String, Constant>,
    sites: Vec<Site>,
    external_files: Vec<PathBuf>,
}

/// A quantised model.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The model.
    pub file: ModelFile,
    /// What people should know of it, a sentence each.
    pub remarks: Vec<String>,
    /// New names of values that exist in `float16` alone.
    renamed: BTreeMap<String, String>,
}

impl Quantized {
    /// The name of what takes the place of a value of the float model.
    pub fn name_of<'a>(&'a self, value: &'a str) -> &'a str {
        self.renamed.get(value).map_or(value, String::as_str)
    }
}

impl Quantizer {
    /// Finds what can be quantised. `skip` has names of nodes and operators that stay as they are;
    /// links in the model's folder may lead to `external_folders`.
    ///
    /// # Errors
    ///
    /// The model is quantised already, its operator set is too old, a name in `skip` is neither a
    /// node nor an operator of it, constants cannot be read, or there is nothing to quantise.
    pub fn new(
        mut file: ModelFile,
        method: Method,
        skip: &[String],
        external_folders: &[PathBuf],
    ) -> Result<Quantizer, Report> {
        check(&file.proto, method, skip)?;
        let mut external = match &file.folder {
            Some(folder) => ExternalData::in_folder(folder),
            None => ExternalData::none(),
        };
        external =
            external.with_link_targets(external_folders).with_link_targets(file.store.as_slice());
        inputs_to_initializers(&mut file.proto);
        let graph = file.proto.graph.get_or_insert_default();
        constant_nodes_to_initializers(graph);
        let mut constants = BTreeMap::new();
        for tensor in &mut graph.initializer {
            let is_external = tensor.is_external();
            if !is_external && tensor.data_type != Some(DataType::Float as i32) {
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
            if constant.ty().dtype == DType::F32 {
                constants.insert(name, constant);
            }
        }
        let external_files = external.files().map(PathBuf::from).collect();
        fold::fold_batch_norm(graph, &mut constants);
        let mut sites = sites(graph, &constants, method, skip);
        if method == Method::Static {
            sites.extend(pools(graph, &sites, skip));
            sites.sort_by_key(|site| site.node);
        }
        if sites.is_empty() && method != Method::Float16 {
            return Err(Problem::new(format!(
                "there is nothing to quantise: no {} with constant float32 weights that are finite",
                QUANTISED.join(", ")
            ))
            .into());
        }
        Ok(Quantizer { file, method, skip: skip.to_vec(), constants, sites, external_files })
    }

    /// The operators that are going to be quantised, in the model's order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The values whose ranges are needed, in the order of their names.
    pub fn activations(&self) -> BTreeSet<&str> {
        match self.method {
            Method::Static => {
                let sites = self.sites.iter().filter(|site| !site.looks_up());
                sites.map(|site| site.input.as_str()).collect()
            }
            Method::Dynamic | Method::Weights8 | Method::Weights4 | Method::Float16 => {
                BTreeSet::new()
            }
        }
    }

    /// The model before quantisation.
    pub fn float_model(&self) -> &ModelFile {
        &self.file
    }

    /// The files beside the model that its constants were in.
    pub fn external_files(&self) -> &[PathBuf] {
        &self.external_files
    }

    /// The quantised model. `scales` has one for each of the [`activations`](Self::activations).
    ///
    /// # Errors
    ///
    /// An activation has no scale, or the model is too large for one file.
    pub fn quantized(&self, scales: &BTreeMap<String, Affine>) -> Result<Quantized, Report> {
        let mut file = self.file.clone();
        let opset = opset(&file.proto);
        let graph = file.proto.graph.get_or_insert_default();
        let (mut remarks, mut renamed) = (Vec::new(), BTreeMap::new());
        let mut uses_microsoft = false;
        if self.method == Method::Float16 {
            (remarks, renamed) = float16::convert(graph, &self.constants, &self.skip, opset);
        } else {
            let mut writer = Writer::new(graph);
            for (at, mut node) in writer.take_nodes().into_iter().enumerate() {
                let Some(site) = self.sites.iter().find(|site| site.node == at) else {
                    writer.push(node);
                    continue;
                };
                match self.method {
                    _ if site.looks_up() => embedding::rows(self, &mut writer, site, node),
                    Method::Static => {
                        let scale = scales.get(&site.input).ok_or_else(|| {
                            Problem::new(format!(
                                "`{}` of {} has no range: no run has computed it",
                                site.input, site.name
                            ))
                        })?;
                        qdq::activations_and_weights(self, &mut writer, site, &mut node, scale);
                        writer.push(node);
                    }
                    Method::Dynamic => dynamic::integers(self, &mut writer, site, node),
                    Method::Weights4 if site.is_plain => {
                        uses_microsoft = true;
                        qdq::nibbles(self, &mut writer, site, node);
                    }
                    Method::Weights8 | Method::Weights4 | Method::Float16 => {
                        qdq::weights(self, &mut writer, site, &mut node);
                        writer.push(node);
                    }
                }
            }
            writer.finish();
        }
        let sets = &mut file.proto.opset_import;
        if uses_microsoft && sets.iter().all(|set| set.domain() != MICROSOFT) {
            let domain = Some(MICROSOFT.to_owned());
            sets.push(OperatorSetIdProto { domain, version: Some(1) });
        }
        if file.proto.encoded_len() as u64 > MAX_MODEL_BYTES {
            let message = "the quantised model is too large for one file";
            return Err(Problem::new(message).into());
        }
        Ok(Quantized { file, remarks, renamed })
    }
}

/// The domain of ONNX Runtime's own operators.
const MICROSOFT: &str = "com.microsoft";

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

/// Leaves out inputs that have an initializer: what is imported of them is that. Until version 4 of the
/// format there were no others.
fn inputs_to_initializers(model: &mut ModelProto) {
    let version = model.ir_version();
    let GraphProto { input, initializer, .. } = model.graph.get_or_insert_default();
    let before = input.len();
    let names: BTreeSet<&str> = initializer.iter().map(|tensor| tensor.name()).collect();
    input.retain(|input| !names.contains(input.name()));
    if input.len() < before {
        model.ir_version = Some(version.max(4));
    }
}

/// Makes initializers of nodes that are float constants, so that there is one kind of weights.
fn constant_nodes_to_initializers(graph: &mut GraphProto) {
    let GraphProto { node, initializer, .. } = graph;
    node.retain_mut(|node| {
        if !is_plain(node, "Constant") || node.output.len() != 1 {
            return true;
        }
        let value = node.attribute.iter_mut().find(|attribute| attribute.name() == "value");
        let tensor = value.and_then(|attribute| {
            let is_float = attribute.t.as_ref()?.data_type == Some(DataType::Float as i32);
            attribute.t.take_if(|_| is_float)
        });
        let Some(mut tensor) = tensor else { return true };
        tensor.name = node.output.pop();
        initializer.push(*tensor);
        false
    });
}

/// The version of ONNX's own operators that a model uses.
fn opset(model: &ModelProto) -> i64 {
    let set = model.opset_import.iter().find(|set| set.domain().is_empty());
    set.map_or(1, |set| set.version())
}

/// What is wrong with a model before one looks at its operators.
fn check(model: &ModelProto, method: Method, skip: &[String]) -> Result<(), Report> {
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
    let (opset, (least, what)) = (opset(model), method.needs());
    if opset < least {
        report.push(
            Problem::new(format!("the model uses operator set {opset}, but {what} {least}")).help(
                format!("convert it: onnx.version_converter.convert_version(model, {least})"),
            ),
        );
    }
    for name in skip {
        if !nodes.iter().any(|node| is_skipped(node, std::slice::from_ref(name))) {
            report.push(Problem::new(format!(
                "{name} is to be skipped, but the model has no such node and no such operator"
            )));
        }
    }
    report.into_result(())
}

fn is_quantised(op: &str) -> bool {
    ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulNBits"].contains(&op)
        || op.starts_with("QLinear")
        || op.ends_with("Integer")
}

fn name_of(node: &NodeProto) -> &str {
    let output = node.output.first().map_or("", String::as_str);
    node.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(output)
}

/// Whether a node is an operator of ONNX's own.
fn is_plain(node: &NodeProto, op: &str) -> bool {
    node.op_type() == op && node.domain().is_empty()
}

fn is_skipped(node: &NodeProto, skip: &[String]) -> bool {
    skip.iter().any(|name| name_of(node) == name || node.op_type() == name)
}

/// An attribute of a node.
fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name() == name)
}

/// Whether an attribute of a node is a number other than 0.
fn flag(node: &NodeProto, name: &str) -> bool {
    attribute(node, name).is_some_and(|value| value.i() != 0)
}

fn sites(
    graph: &GraphProto,
    constants: &BTreeMap<String, Constant>,
    method: Method,
    skip: &[String],
) -> Vec<Site> {
    let nodes = graph.node.iter().enumerate();
    let site = |(at, node): (usize, &NodeProto)| {
        if is_skipped(node, skip)
            || !node.domain().is_empty()
            || !QUANTISED.contains(&node.op_type())
        {
            return None;
        }
        let [input, weight, ..] = &node.input[..] else { return None };
        let looks_up = node.op_type() == "Gather";
        let (input, weight) = if looks_up { (weight, input) } else { (input, weight) };
        let weight = constants.get(weight)?;
        let one = |name| attribute(node, name).is_none_or(|value| value.f() == 1.0);
        let (axis, is_plain) = match (node.op_type(), weight.ty().shape.rank()) {
            ("Conv", 3..) => (0, false),
            ("Gemm", 2) => {
                let is_plain = !flag(node, "transA") && one("alpha") && one("beta");
                (usize::from(!flag(node, "transB")), is_plain)
            }
            ("MatMul", 2) => (1, true),
            ("Gather", 2) if !flag(node, "axis") && method != Method::Float16 => {
                let elements = weight.ty().num_elements().unwrap_or(0);
                if elements < embedding::MIN_ELEMENTS {
                    return None;
                }
                (0, false)
            }
            _ => return None,
        };
        let takes_operands = is_plain || looks_up || node.op_type() == "Conv";
        if !takes_operands && matches!(method, Method::Static | Method::Dynamic) {
            return None;
        }
        if constants.contains_key(input) || graph.initializer.iter().any(|t| t.name() == input) {
            return None;
        }
        // What is not finite has no scale.
        if method != Method::Float16 && !weight.to_f64_vec()?.iter().all(|value| value.is_finite())
        {
            return None;
        }
        Some(Site {
            name: name_of(node).to_owned(),
            op: node.op_type().to_owned(),
            output: node.output.first()?.clone(),
            input: input.clone(),
            node: at,
            axis,
            is_plain,
        })
    };
    nodes.filter_map(site).collect()
}

/// Pools of what operators with weights compute, whose type is therefore known.
fn pools(graph: &GraphProto, sites: &[Site], skip: &[String]) -> Vec<Site> {
    let pool = |(at, node): (usize, &NodeProto)| {
        let is_pool = POOLS.iter().any(|op| is_plain(node, op)) && !is_skipped(node, skip);
        let [input] = &node.input[..] else { return None };
        if !is_pool || !is_computed(graph, sites, input) {
            return None;
        }
        Some(Site {
            name: name_of(node).to_owned(),
            op: node.op_type().to_owned(),
            output: node.output.first()?.clone(),
            input: input.clone(),
            node: at,
            axis: 0,
            is_plain: false,
        })
    };
    graph.node.iter().enumerate().filter_map(pool).collect()
}

/// Whether a value is that of a quantised operator, or what [`PASSED`] operators make of one.
fn is_computed<'a>(graph: &'a GraphProto, sites: &[Site], mut value: &'a str) -> bool {
    // Each step goes to an earlier node.
    for node in graph.node.iter().rev() {
        if node.output.first().is_none_or(|output| output != value) {
            continue;
        }
        if sites.iter().any(|site| site.output == value) {
            return true;
        }
        match node.input.first() {
            Some(input) if PASSED.contains(&node.op_type()) => value = input,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
