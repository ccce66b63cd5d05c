//! What is known of a model, as far as it can be imported and compiled.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::passes::{self, PassFacts};
use crate::arith::Symbol;
use crate::compile::Model;
use crate::diagnostics::Report;
use crate::executor::RunTimeSizes;
use crate::graph::{Callee, Expr};
use crate::ir::{DType, Definition, Dim, IRModule};
use crate::onnx::{
    self, DeclaredDim, DeclaredPort, Imported, ModelPort, OperatorUse, ParameterCount,
};
use crate::options::CompileOptions;

/// An extent: a number, a symbol, or nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Extent {
    Number(i64),
    Symbol(String),
    Unknown,
}

/// An input or output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Option<Vec<Extent>>,
    /// What the value is if it is no tensor of a known type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other: Option<String>,
}

/// Number and size of constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Parameters {
    pub(super) tensors: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

/// What one inference takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Sizes {
    pub(super) macs: u64,
    pub(super) workspace_bytes: u64,
    /// Most bytes of intermediate values that are alive at a time.
    pub(super) peak_live_bytes: u64,
    pub(super) weight_bytes: u64,
}

/// Everything that is told of a model; the JSON has the same keys.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Facts {
    pub(super) model: String,
    pub(super) producer: String,
    pub(super) ir_version: i64,
    /// By domain; ONNX's own is `ai.onnx`.
    pub(super) opsets: BTreeMap<String, i64>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    /// Nodes by operator.
    pub(super) operators: BTreeMap<String, u64>,
    /// Those of the operators that cannot be imported.
    pub(super) unsupported: Vec<String>,
    pub(super) parameters: Parameters,
    pub(super) external_data: Vec<String>,
    /// Pairs of extents that have to be equal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) equal: Vec<(String, String)>,
    /// Symbols that are to be pinned before the model can be compiled.
    pub(super) unpinned: Vec<String>,
    /// What passes did, if the model can be compiled and they are asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) passes: Option<PassFacts>,
    /// Known if the model can be compiled.
    #[serde(flatten)]
    pub(super) sizes: Option<Sizes>,
    /// Why it cannot.
    pub(super) problems: Vec<String>,
}

impl Facts {
    /// Everything that can be known of a model, which is called `title`.
    pub(super) fn of(
        title: String,
        model: &Model,
        options: &CompileOptions,
        with_passes: bool,
    ) -> Facts {
        let mut facts = Facts {
            model: title,
            producer: String::new(),
            ir_version: 0,
            opsets: BTreeMap::new(),
            metadata: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            operators: BTreeMap::new(),
            unsupported: Vec::new(),
            parameters: Parameters::default(),
            external_data: Vec::new(),
            equal: Vec::new(),
            unpinned: Vec::new(),
            passes: None,
            sizes: None,
            problems: Vec::new(),
        };
        if let Some(file) = model.as_onnx() {
            facts.add_file(&file.proto);
        }
        match model.import(options) {
            Err(report) => facts.add_problems(&report),
            Ok(imported) => {
                if model.as_onnx().is_none() {
                    facts.add_module(&imported.module);
                }
                facts.add_interface(&imported, options);
                if facts.unpinned.is_empty() {
                    facts.add_sizes(model, options, with_passes);
                }
            }
        }
        facts
    }

    fn add_problems(&mut self, report: &Report) {
        self.problems.extend(report.lines());
    }

    /// What the file says, whether it can be imported or not.
    fn add_file(&mut self, proto: &onnx::proto::ModelProto) {
        let summary = onnx::summary(proto);
        self.producer = summary.info.producer;
        self.ir_version = summary.info.ir_version;
        let named = |domain: String| if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
        self.opsets =
            summary.info.opsets.into_iter().map(|(domain, v)| (named(domain), v)).collect();
        self.metadata = summary.info.metadata;
        self.inputs = summary.inputs.into_iter().map(declared).collect();
        self.outputs = summary.outputs.into_iter().map(declared).collect();
        for operator in summary.operators {
            let OperatorUse { domain, name, count, is_known } = operator;
            let name = if domain.is_empty() { name } else { format!("{domain}.{name}") };
            if !is_known {
                self.unsupported.push(name.clone());
            }
            self.operators.insert(name, count);
        }
        let ParameterCount { tensors, elements, bytes } = summary.parameters;
        self.parameters = Parameters { tensors, elements, bytes };
        self.external_data = summary.external_data.into_iter().collect();
    }

    /// Operators and constants of a text.
    fn add_module(&mut self, module: &IRModule) {
        for function in module.iter().filter_map(|(_, definition)| Definition::as_graph(definition))
        {
            for (_, data) in function.iter() {
                match &data.expr {
                    Expr::Constant(constant) => {
                        let parameters = &mut self.parameters;
                        parameters.tensors += 1;
                        parameters.elements += constant.ty().num_elements().unwrap_or(0);
                        parameters.bytes += constant.byte_len();
                    }
                    Expr::Call(call) => {
                        let name = match &call.callee {
                            Callee::Op(op) => op.name.to_owned(),
                            Callee::Expr(_) => "(a function)".to_owned(),
                        };
                        *self.operators.entry(name).or_default() += 1;
                    }
                    Expr::Var(_)
                    | Expr::GlobalVar(_)
                    | Expr::Tuple(_)
                    | Expr::TupleGet { .. }
                    | Expr::If(_)
                    | Expr::While(_)
                    | Expr::Func(_) => {}
                }
            }
        }
    }

    /// Inputs and outputs as they are after import: sizes that options pin are numbers, and others
    /// have the symbols by which they can be pinned, but for those that a run computes.
    fn add_interface(&mut self, imported: &Imported, options: &CompileOptions) {
        let mut counted = RunTimeSizes::default();
        counted.add_counted(&imported.module);
        let mut seen: BTreeSet<Symbol> =
            counted.iter().map(|size| Symbol::new(&size.name)).collect();
        for port in imported.inputs.iter().chain(&imported.outputs) {
            for symbol in port.ty.shape.iter().flat_map(Dim::symbols) {
                let bounds = options.dims.get(symbol.name()).and_then(|size| size.bounds());
                if bounds.is_none() && seen.insert(symbol.clone()) {
                    self.unpinned.push(symbol.name().to_owned());
                }
            }
        }
        if let Some(main) = imported.module.function("main") {
            let equations = main.facts().equations();
            self.equal = equations.map(|(a, b)| (a.to_string(), b.to_string())).collect();
        }
        self.inputs = imported.inputs.iter().map(typed).collect();
        self.outputs = imported.outputs.iter().map(typed).collect();
    }

    /// What a compilation for the options would need. No machine code is made.
    fn add_sizes(&mut self, model: &Model, options: &CompileOptions, with_passes: bool) {
        let options = CompileOptions { without_objects: true, ..options.clone() };
        match passes::compile(model, &options) {
            Err(report) => self.add_problems(&report),
            Ok((compilation, passes)) => {
                self.passes = with_passes.then_some(passes);
                self.sizes = Some(Sizes {
                    macs: compilation.model.macs,
                    workspace_bytes: compilation.model.workspace_bytes,
                    peak_live_bytes: compilation.plan.peak_live_bytes,
                    weight_bytes: compilation.model.weights.len() as u64,
                });
            }
        }
    }
}

fn declared(port: DeclaredPort) -> Port {
    let extent = |dim| match dim {
        DeclaredDim::Value(value) => Extent::Number(value),
        DeclaredDim::Symbol(name) => Extent::Symbol(name),
        DeclaredDim::Unknown => Extent::Unknown,
    };
    let DeclaredPort { name, dtype, shape, other } = port;
    let shape = shape.map(|dims| dims.into_iter().map(extent).collect());
    Port { name, dtype, shape, other }
}

fn typed(port: &ModelPort) -> Port {
    let extent = |dim: &Dim| match dim.as_const() {
        Some(value) => Extent::Number(value),
        None => Extent::Symbol(dim.to_string()),
    };
    Port {
        name: port.name.clone(),
        dtype: Some(port.ty.dtype),
        shape: Some(port.ty.shape.iter().map(extent).collect()),
        other: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Constant;
    use crate::onnx::{ModelBuilder, ModelDim, load_bytes};
    use crate::target::Target;

    fn options() -> CompileOptions {
        CompileOptions::new(Target::host())
    }

    fn facts(model: ModelBuilder, options: &CompileOptions) -> Facts {
        let file = load_bytes(model.to_bytes()).unwrap();
        Facts::of("m".to_owned(), &Model::from_onnx("m", file), options, false)
    }

    /// A matrix product of `batch` rows with a 2 by 3 matrix.
    fn product(op: &str) -> ModelBuilder {
        let weight = Constant::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        ModelBuilder::new(13)
            .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(2)])
            .initializer("w", &weight)
            .node("MatMul", &["x", "w"], &["a"], &[])
            .node(op, &["a"], &["y"], &[])
            .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(3)])
    }

    #[test]
    fn sizes_are_known_when_every_dimension_is() {
        let open = facts(product("Relu"), &options());
        assert_eq!((open.unpinned, open.sizes), (vec!["batch".to_owned()], None));
        // With bounds, they are those of the greatest.
        let bounds = [("batch".to_owned(), (1..=4).into())].into();
        let bounded = facts(product("Relu"), &CompileOptions { dims: bounds, ..options() });
        assert_eq!(bounded.unpinned, Vec::<String>::new());
        assert_eq!(bounded.sizes.unwrap().macs, 4 * 2 * 3);
        assert_eq!(open.problems, Vec::<String>::new());
        let symbol = Extent::Symbol("batch".to_owned());
        assert_eq!(open.inputs[0].shape, Some(vec![symbol, Extent::Number(2)]));

        let mut pinned = options();
        pinned.dims.insert("batch".to_owned(), 5.into());
        let facts = facts(product("Relu"), &pinned);
        assert_eq!(facts.inputs[0].shape, Some(vec![Extent::Number(5), Extent::Number(2)]));
        let sizes = facts.sizes.unwrap();
        assert_eq!(sizes.macs, 5 * 2 * 3);
        assert!(sizes.weight_bytes >= 24, "{sizes:?}");
        assert_eq!(facts.parameters, Parameters { tensors: 1, elements: 6, bytes: 24 });
    }

    #[test]
    fn extents_that_have_to_be_equal_are_told() {
        let half = [("kernel_shape", vec![2].into()), ("strides", vec![2].into())];
        let dims = [ModelDim::from(1), ModelDim::from(1), ModelDim::from("n")];
        let builder = ModelBuilder::new(13)
            .input("x", DType::F32, &dims)
            .node("MaxPool", &["x"], &["a"], &half)
            .node("Concat", &["a", "a"], &["b"], &[("axis", 2.into())])
            .node("Add", &["x", "b"], &["y"], &[])
            .output("y", DType::F32, &dims);
        let facts = facts(builder, &options());
        assert_eq!(facts.equal, [("n".to_owned(), "2*floordiv(n, 2)".to_owned())]);
        assert!(super::super::text::of(&facts).contains("needs      n = 2*floordiv(n, 2)\n"));
    }

    #[test]
    fn models_that_cannot_be_compiled_are_described_too() {
        let facts = facts(product("Frobnicate"), &options());
        assert_eq!(facts.unsupported, ["Frobnicate"]);
        assert_eq!(facts.operators["MatMul"], 1);
        assert_eq!(facts.inputs[0].dtype, Some(DType::F32));
        assert_eq!(facts.problems.len(), 1);
        assert!(facts.problems[0].contains("Frobnicate"), "{:?}", facts.problems);
        assert_eq!(facts.sizes, None);
    }
}
