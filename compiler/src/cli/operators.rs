//! `niello operators`: which ONNX operators can be imported.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use super::Failure;
use super::output::{Output, write_json};
use crate::onnx::{MAX_OPSET, MIN_OPSET, operator_versions, operators_by_domain};

/// List the ONNX operators that can be imported.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Write the same to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let operators: BTreeMap<&str, &[i64]> = operator_versions().collect();
    let domains = operators_by_domain();
    if let Some(path) = &args.json {
        let opsets = json!({"oldest": MIN_OPSET, "newest": MAX_OPSET});
        write_json(path, &json!({"opsets": opsets, "operators": operators, "domains": domains}))?;
    }
    let out = Output::beside(args.json.as_deref());
    out.line(&format!("models of opsets {MIN_OPSET} to {MAX_OPSET}; an operator's versions:"));
    let width = operators.keys().map(|name| name.len()).max().unwrap_or(0);
    for (name, versions) in operators {
        let versions: Vec<String> = versions.iter().map(i64::to_string).collect();
        out.line(&format!("{name:width$}  {}", versions.join(" ")));
    }
    for (domain, names) in domains {
        out.line("");
        let names: Vec<&str> = names.into_iter().collect();
        out.line(&format!("{domain}: {}", names.join(", ")));
    }
    Ok(())
}
