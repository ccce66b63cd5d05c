//! `niello inspect`: what a model consists of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use super::Failure;
use super::code::CodeArgs;
use super::output::{Output, write_json};
use crate::compile::Model;
use crate::graph::{Callee, Expr};
use crate::ir::{Definition, IRModule};
use crate::onnx::{Imported, ModelPort};

/// Show what a model consists of.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    #[command(flatten)]
    code: CodeArgs,
    /// Write the same to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Counts over all functions of a module.
#[derive(Default)]
struct Counts {
    operators: BTreeMap<String, u64>,
    constants: u64,
    constant_bytes: u64,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let model = Model::read(&args.model)?;
    let imported = model.import(&args.code.options()?)?;
    let counts = counts(&imported.module);
    if let Some(path) = &args.json {
        let ports = |ports: &[ModelPort]| -> Vec<_> {
            ports.iter().map(|p| json!({"name": p.name, "type": p.ty.to_string()})).collect()
        };
        let value = json!({
            "name": model.stem,
            "producer": imported.info.producer,
            "opsets": imported.info.opsets,
            "inputs": ports(&imported.inputs),
            "outputs": ports(&imported.outputs),
            "operators": counts.operators,
            "constants": counts.constants,
            "constant_bytes": counts.constant_bytes,
        });
        write_json(path, &value)?;
    }
    Output::beside(args.json.as_deref()).text(&text(&model.stem, &imported, &counts));
    Ok(())
}

fn text(name: &str, imported: &Imported, counts: &Counts) -> String {
    let info = &imported.info;
    let mut text = format!("model      {name}\n");
    if !info.producer.is_empty() {
        text += &format!("producer   {}\n", info.producer);
    }
    for (domain, version) in &info.opsets {
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        text += &format!("opset      {domain} {version}\n");
    }
    for (kind, ports) in [("input", &imported.inputs), ("output", &imported.outputs)] {
        for port in ports {
            text += &format!("{kind:<10} {:?} {}\n", port.name, port.ty);
        }
    }
    text += &format!("constants  {} of {} bytes\n", counts.constants, counts.constant_bytes);
    let calls: u64 = counts.operators.values().sum();
    text += &format!("operators  {calls}\n");
    for (operator, count) in &counts.operators {
        text += &format!("  {count:>6} {operator}\n");
    }
    text
}

fn counts(module: &IRModule) -> Counts {
    let mut counts = Counts::default();
    for function in module.iter().filter_map(|(_, definition)| Definition::as_graph(definition)) {
        for (_, data) in function.iter() {
            match &data.expr {
                Expr::Constant(constant) => {
                    counts.constants += 1;
                    counts.constant_bytes += constant.byte_len();
                }
                Expr::Call(call) => {
                    let name = match &call.callee {
                        Callee::Op(op) => op.name.to_owned(),
                        Callee::Expr(_) => "(a function)".to_owned(),
                    };
                    *counts.operators.entry(name).or_default() += 1;
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
    counts
}
