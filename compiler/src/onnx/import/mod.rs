//! From a model to a module of the graph IR.
//!
//! Every problem of a model is collected. Where one is found, the values that depend on it have no
//! type; they are left out silently, so that one cause makes one problem.

mod attributes;
mod branches;
mod control;
mod counter;
mod extents;
mod functions;
mod graph;
mod inputs;
mod known;
mod node;
mod order;
mod static_inputs;
mod subgraphs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use attributes::Attributes;
pub use node::{Node, NodeError, Outputs};
pub use static_inputs::static_inputs;

use super::external::ExternalData;
use super::input_value::InputValue;
use super::proto::{ModelProto, NodeProto, OperatorSetIdProto};
use crate::arith::Symbol;
use crate::diagnostics::{Problem, ProblemNode, Report};
use crate::ir::{Dim, IRModule, TensorType};
use crate::options::DimSize;
use extents::{Extents, FoundExtents};
use functions::{FlatNode, Functions};

/// Oldest version of ONNX's operators that is read. Since it, elementwise operators broadcast as
/// numpy does, and test modes of operators are gone. Operators that did not change then are read from
/// older models as well.
pub const MIN_OPSET: i64 = 7;

/// Newest version of ONNX's operators that is known. Later ones may change what an operator means.
pub const MAX_OPSET: i64 = 28;

/// Most steps of a recurrent layer or a loop that are unrolled.
///
/// Each step takes some ten calls at run time and a few kilobytes while compiling. Speech and text
/// models have some hundred steps.
pub(super) const MAX_UNROLLED_STEPS: usize = 4096;

/// Most nodes, all steps taken together, that loops of a model are unrolled to.
const MAX_UNROLLED_NODES: usize = 1 << 18;

/// What to do about a model of another version.
const CONVERT: &str = "convert the model: onnx.version_converter.convert_version(model, 17)";

/// Before the name of an output, the name of the property that has its classes' labels: a JSON list.
const LABELS: &str = "labels:";

/// Newest version of the file format that is known.
const MAX_IR_VERSION: i64 = 14;

/// What the caller knows of a model that its file does not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// Sizes of symbolic dimensions, by their name in the model. An unnamed dimension of an input
    /// `x` is called `x_0`, `x_1` and so on, by its position. Those with bounds stay symbols.
    pub dims: BTreeMap<String, DimSize>,
    /// Whole shapes of inputs, by the input's name.
    pub input_shapes: BTreeMap<String, Vec<u64>>,
    /// Inputs whose value never changes, by name: they become constants and are inputs no more. A
    /// shape that a caller would pass in can so be compiled in; see [`static_inputs`].
    pub input_values: BTreeMap<String, InputValue>,
    /// Folders that links in the model's folder may lead to, where they stand for external data.
    pub external_folders: Vec<PathBuf>,
}

/// An input or output of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelPort {
    /// The name in the model.
    pub name: String,
    /// The type; its symbols are those that were not pinned.
    pub ty: TensorType,
}

/// What a model says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelInfo {
    /// Name of the graph.
    pub graph_name: String,
    /// Name and version of the tool that wrote the model.
    pub producer: String,
    /// Version of the model.
    pub model_version: i64,
    /// Version of the file format.
    pub ir_version: i64,
    /// Operator sets that the model imports, by domain; ONNX's own domain is empty.
    pub opsets: BTreeMap<String, i64>,
    /// Free-form properties, in the model's order.
    pub metadata: Vec<(String, String)>,
    /// Description for people.
    pub doc: String,
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// A module of one function, `main`. Its parameters are the model's inputs under their names;
    /// its result is the output, or a tuple of the outputs if they are several.
    pub module: IRModule,
    /// Inputs that are no initializers, in the model's order.
    pub inputs: Vec<ModelPort>,
    /// Outputs in the model's order.
    pub outputs: Vec<ModelPort>,
    /// What the model says about itself.
    pub info: ModelInfo,
    /// The files beside the model that its tensors are in.
    pub external_files: Vec<PathBuf>,
    /// Symbols of inputs that options say nothing of and that follow from others.
    pub followed: BTreeMap<Symbol, Dim>,
}

/// Imports a model. `folder` is where its external data is, if it has any.
///
/// An extent of an input that is a symbol in the model becomes the number that some node needs it to
/// be, as a product with a constant matrix does, unless `options` say what it is. Extents that nodes
/// need to be equal are so in the facts of the function, of which callers have to check
/// [equations](crate::arith::Facts::equations) when they run it.
///
/// # Errors
///
/// Every problem of the model: operators that are not supported, bad attributes, types that do not
/// fit, names that are not defined, options that do not fit the model.
pub fn import(
    model: &ModelProto,
    folder: Option<&Path>,
    options: &ImportOptions,
) -> Result<Imported, Report> {
    let mut info = model_info(model);
    let mut report = Report::new();
    report.extend(check_versions(model, &info));
    let Some(graph) = &model.graph else {
        report.push(Problem::new("the model has no graph"));
        return Err(report);
    };
    if !report.is_empty() {
        // Without known operator sets no node means anything.
        return Err(report);
    }
    let opsets = Opsets(&info.opsets);
    let functions = Functions::of(model);
    let attempt = |options: &ImportOptions, extents: Extents<'_>| {
        let mut report = Report::new();
        let external = folder.map_or_else(ExternalData::none, ExternalData::in_folder);
        let mut external = external.with_link_targets(&options.external_folders);
        let context = (opsets, &functions);
        let main = graph::import(graph, context, options, extents, &mut external, &mut report);
        let files: Vec<PathBuf> = external.files().map(Path::to_owned).collect();
        (main, files, report)
    };
    let mut found = FoundExtents::default();
    let (mut main, mut files, mut report) = attempt(options, Extents::Declared(&found));
    if !report.is_empty() {
        let (.., explained) = attempt(options, Extents::Found(&mut found));
        if !found.is_empty() {
            let mut options = options.clone();
            let sizes = found.sizes.iter().map(|(name, &size)| (name.clone(), size.into()));
            options.dims.extend(sizes);
            (main, files, report) = attempt(&options, Extents::Declared(&found));
            // It tells why an extent is what another node does not take.
            if !report.is_empty() && !explained.is_empty() {
                report = explained;
            }
        }
    }
    let Some(main) = main else { return Err(report) };
    info.metadata.extend(main.labels.into_iter().map(|(output, labels)| {
        (format!("{LABELS}{output}"), serde_json::json!(labels).to_string())
    }));
    report.into_result(Imported {
        module: IRModule::from_function(main.function),
        inputs: main.inputs,
        outputs: main.outputs,
        info,
        external_files: files,
        followed: found.told,
    })
}

/// The operator sets that a model imports.
#[derive(Clone, Copy)]
struct Opsets<'a>(&'a BTreeMap<String, i64>);

impl Opsets<'_> {
    /// The version of a domain, if the model imports it. ONNX's own has two names.
    fn version(&self, domain: &str) -> Option<i64> {
        self.0.get(normal_domain(domain)).copied()
    }
}

/// ONNX's own operators have an empty domain, which may also be written out.
pub(super) fn normal_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Versions of operator sets by domain.
fn opset_versions(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    imports.iter().map(|set| (normal_domain(set.domain()).to_owned(), set.version())).collect()
}

/// What a model says about itself.
pub(super) fn model_info(model: &ModelProto) -> ModelInfo {
    let producer = format!("{} {}", model.producer_name(), model.producer_version());
    let mut opsets = opset_versions(&model.opset_import);
    if opsets.is_empty() && model.ir_version() < 3 {
        // The first formats had no operator sets; they mean version 1.
        opsets.insert(String::new(), 1);
    }
    ModelInfo {
        graph_name: model.graph.as_ref().map(|graph| graph.name().to_owned()).unwrap_or_default(),
        producer: producer.trim().to_owned(),
        model_version: model.model_version(),
        ir_version: model.ir_version(),
        opsets,
        metadata: model
            .metadata_props
            .iter()
            .map(|entry| (entry.key().to_owned(), entry.value().to_owned()))
            .collect(),
        doc: model.doc_string().to_owned(),
    }
}

fn check_versions(model: &ModelProto, info: &ModelInfo) -> Vec<Problem> {
    let mut problems = Vec::new();
    if info.ir_version > MAX_IR_VERSION {
        problems.push(
            Problem::new(format!(
                "the model has version {} of the ONNX format; the newest that is known is {MAX_IR_VERSION}",
                info.ir_version
            ))
            .help("save it with an older version of the package onnx"),
        );
    }
    match info.opsets.get("") {
        None if model.opset_import.is_empty() => {
            problems.push(Problem::new("the model does not say which operator sets it uses"));
        }
        // A model of other domains alone: its nodes are told one by one.
        None => {}
        Some(&version) if version > MAX_OPSET => problems.push(
            Problem::new(format!(
                "the model uses opset {version}, but the newest that is known is {MAX_OPSET}"
            ))
            .help(CONVERT),
        ),
        // An older one is told when a node is met whose operator has changed since.
        Some(_) => {}
    }
    problems
}

/// How problems name a node.
fn problem_node(node: &FlatNode<'_>) -> ProblemNode {
    ProblemNode {
        name: node_name(node),
        op: op_name(node),
        opset: node.opsets.version(node.domain()),
        source: source_line(node),
    }
}

/// A node's name, else that of its first output, which is unique as well.
fn node_name(node: &NodeProto) -> String {
    let named = [node.name()].into_iter().chain(node.output.iter().map(String::as_str));
    named.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned()
}

/// The operator with its domain, unless that is ONNX's own.
fn op_name(node: &NodeProto) -> String {
    match normal_domain(node.domain()) {
        "" => node.op_type().to_owned(),
        domain => format!("{domain}.{}", node.op_type()),
    }
}

/// The innermost place of the Python stack that PyTorch's exporter recorded: `model.py:12`.
fn source_line(node: &NodeProto) -> Option<String> {
    const KEY: &str = "pkg.torch.onnx.stack_trace";
    let trace = node.metadata_props.iter().find(|entry| entry.key() == KEY)?.value();
    // Each place is a line `File "model.py", line 12, in forward`.
    let last = trace.lines().rev().find_map(|line| line.trim().strip_prefix("File \""))?;
    let (file, rest) = last.split_once('"')?;
    let line: String =
        rest.trim_start_matches(", line ").chars().take_while(char::is_ascii_digit).collect();
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests;
