//! `cargo xtask zoo`: models of many families beside ONNX Runtime.
//!
//! The scripts in `tests/zoo` make them with random weights, by ONNX's own helpers or by packages that convert what they
//! trained, and run them at two sizes of the batch. niello compiles each for a range of sizes. `tests/zoo/missing.txt`
//! says why models do not pass; docs/zoo.md follows from the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use crate::command::{self, Backend};
use crate::conformance::{self, Suite};
use crate::{Result, setup, workspace};

/// Why models do not pass.
const MISSING: &str = "tests/zoo/missing.txt";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Backend to run; may be given more than once [default: llvm, or c where LLVM is missing]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// CPU to compile for, such as x86-64-v2 [default: by LLVM every level that a build script makes, by C x86-64-v3]
    #[arg(long, value_name = "CPU")]
    target_cpu: Option<String>,
    /// Write docs/zoo.md
    #[arg(long)]
    bless: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// A model that the scripts made.
#[derive(Deserialize)]
struct Model {
    name: String,
    family: String,
    /// What the family is.
    about: String,
    operators: Vec<String>,
}

/// Makes the models if need be and runs them on each backend.
pub(crate) fn run(options: &Options) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let python = environment.python()?;
    setup::add_packages(python, "requirements-zoo.txt")?;
    let folder = conformance::generate_by(python, "zoo", &sources()?)?;
    let models: Vec<Model> = serde_json::from_str(&fs::read_to_string(folder.join("index.json"))?)?;

    let fastest = if environment.llvm.is_some() { Backend::Llvm } else { Backend::C };
    let asked = if options.backend.is_empty() { &[fastest][..] } else { &options.backend };
    let backends = command::backends(asked, &environment)?;
    let niello = command::build(&environment)?;
    let missing = conformance::missing(MISSING)?;
    let mut wrong = 0;
    for backend in backends {
        let cpu = options.target_cpu.as_deref();
        let results = Suite::of(backend, cpu, &folder, "zoo").run(&niello)?;
        results.told_failures();
        let passed = results.passed();
        for (family, of) in by_family(&models) {
            let count = of.iter().filter(|model| passed.contains(model.name.as_str())).count();
            println!("{family}: {count} of {}", of.len());
        }
        let unexplained = conformance::unexplained(&results, &missing);
        for line in &unexplained {
            println!("{}: {line}", backend.name());
        }
        wrong += unexplained.len();
        println!("{}: {} of {} models pass", backend.title(), passed.len(), models.len());
    }
    if wrong > 0 {
        return Err(format!("{wrong} models are not as {MISSING} says").into());
    }
    document(&models, &missing, options.bless)
}

/// What the models follow from, the script that is run first.
fn sources() -> Result<Vec<PathBuf>> {
    let folder = workspace::root().join("tests/zoo");
    let script = folder.join("zoo.py");
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "py") && path != script {
            sources.push(path);
        }
    }
    sources.push(workspace::root().join("xtask/requirements-zoo.txt"));
    sources.sort();
    sources.insert(0, script);
    Ok(sources)
}

fn by_family(models: &[Model]) -> BTreeMap<&str, Vec<&Model>> {
    let mut families: BTreeMap<&str, Vec<&Model>> = BTreeMap::new();
    for model in models {
        families.entry(&model.family).or_default().push(model);
    }
    families
}

/// Writes docs/zoo.md, or fails if it is not what would be written.
fn document(models: &[Model], missing: &[(String, String)], bless: bool) -> Result {
    let path = workspace::root().join("docs/zoo.md");
    let text = text(models, missing);
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if bless {
        return Ok(fs::write(path, text)?);
    }
    Err("docs/zoo.md is not current; `cargo xtask zoo --bless` writes it".into())
}

fn text(models: &[Model], missing: &[(String, String)]) -> String {
    let reason = |model: &Model| {
        missing.iter().find(|(prefix, _)| model.name.starts_with(prefix)).map(|(_, reason)| reason)
    };
    let families = by_family(models);
    let passing = models.iter().filter(|model| reason(model).is_none()).count();
    let mut text = format!(
        "# Model families\n\nSmall models of {} families, made with random weights by the scripts in `tests/zoo` and \
         compiled for a range of batch sizes; `cargo xtask zoo` compares what two sizes yield with ONNX Runtime, at every \
         CPU level. {passing} of {} models pass. This page is written by `cargo xtask zoo --bless`.\n\n\
         | family | what it has | models | pass | operators |\n|---|---|---|---|---|\n",
        families.len(),
        models.len(),
    );
    for (family, of) in &families {
        let mut operators: Vec<&str> =
            of.iter().flat_map(|model| &model.operators).map(String::as_str).collect();
        operators.sort_unstable();
        operators.dedup();
        let count = of.iter().filter(|model| reason(model).is_none()).count();
        let about = of[0].about.lines().next().unwrap_or_default();
        let (all, operators) = (of.len(), operators.join(", "));
        let _ = writeln!(text, "| `{family}` | {about} | {all} | {count} | {operators} |");
    }
    let others: Vec<_> = models.iter().filter_map(|model| Some((model, reason(model)?))).collect();
    if !others.is_empty() {
        text += "\n| model that does not pass | reason |\n|---|---|\n";
        for (model, reason) in others {
            let _ = writeln!(text, "| `{}` | {reason} |", model.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, family: &str, operators: &[&str]) -> Model {
        Model {
            name: name.to_owned(),
            family: family.to_owned(),
            about: "blocks".to_owned(),
            operators: operators.iter().map(|&operator| operator.to_owned()).collect(),
        }
    }

    #[test]
    fn the_page_has_a_line_for_each_family_and_each_reason() {
        let models = [
            model("net-b", "net", &["Conv", "Relu"]),
            model("net-a", "net", &["Add", "Conv"]),
            model("tree-a", "tree", &["TreeEnsemble"]),
        ];
        let missing = [("net-a".to_owned(), "no sums".to_owned())];
        let text = text(&models, &missing);
        assert!(text.contains("2 of 3 models pass"), "{text}");
        assert!(text.contains("| `net` | blocks | 2 | 1 | Add, Conv, Relu |\n"), "{text}");
        assert!(text.contains("| `tree` | blocks | 1 | 1 | TreeEnsemble |\n"), "{text}");
        assert!(text.ends_with("| `net-a` | no sums |\n"), "{text}");
    }
}
