//! `niello passes`: what passes there are.

use super::Failure;
use super::output::Output;
use crate::diagnostics::Problem;
use crate::pass::{PassEntry, PassRef, Registry};

/// List the passes, or show one.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The pass to show
    name: Option<String>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let out = Output::stdout();
    let registry = Registry::global();
    if let Some(name) = &args.name {
        let entry = registry.entry(name).map_err(|error| Problem::new(error.to_string()))?;
        out.text(&description(entry));
        return Ok(());
    }
    let width = registry.entries().map(|entry| entry.name().len()).max().unwrap_or(0);
    for entry in registry.entries() {
        let summary = entry.doc().lines().next().unwrap_or_default();
        out.line(format!("{:width$}  {summary}", entry.name()).trim_end());
    }
    Ok(())
}

/// Everything that is known of a pass.
fn description(entry: &PassEntry) -> String {
    let mut text = format!("{}\n", entry.name());
    if let Some(pass) = entry.pass() {
        text += &facts(&pass);
    }
    let doc = entry.doc().trim();
    if !doc.is_empty() {
        text += &format!("\n{doc}\n");
    }
    text
}

fn facts(pass: &PassRef) -> String {
    let info = pass.info();
    let mut text = format!("level {}\n", info.opt_level());
    let required: Vec<&str> = info.required().iter().map(|r| r.name()).collect();
    if !required.is_empty() {
        text += &format!("requires {}\n", required.join(", "));
    }
    text
}
