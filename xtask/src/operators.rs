//! `docs/operators.md`: which ONNX operators are supported, from which version, and with which types.
//!
//! Names and versions are the importer's own, as the command tells them. The types are those of the ONNX node tests that
//! pass, by the committed lists. What the standard has besides comes from the package `onnx`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use serde::Deserialize;

use crate::command::Backend;
use crate::{Result, conformance, process, workspace};

/// Data types in the order in which they are listed; others follow.
const TYPES: [&str; 13] = [
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool",
];

/// What `niello operators --json` says.
#[derive(Deserialize)]
struct Importer {
    opsets: Opsets,
    /// Versions of each operator, ascending.
    operators: BTreeMap<String, Vec<i64>>,
    /// Operators of other domains.
    domains: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Opsets {
    oldest: i64,
    newest: i64,
}

/// What `tests/conformance/operators.py` says.
#[derive(Deserialize)]
struct Standard {
    operators: BTreeMap<String, Schema>,
    /// For each case the operators in it, each with the type of its first input.
    cases: BTreeMap<String, Vec<(String, String)>>,
}

#[derive(Deserialize)]
struct Schema {
    since: Vec<i64>,
    deprecated: bool,
}

/// Writes the document, or fails if it is not what would be written.
pub(crate) fn check(niello: &Path, python: &Path, cases: &Path, bless: bool) -> Result {
    let folder = workspace::target().join("conformance");
    let (table, schemas) = (folder.join("importer.json"), folder.join("operators.json"));
    let mut list = Command::new(niello);
    list.args(["operators", "--json"]).arg(&table);
    process::output(&mut list).ok_or_else(|| format!("{} fails", process::shown(&list)))?;
    let script = workspace::root().join("tests/conformance/operators.py");
    process::run(Command::new(python).arg("-B").arg(script).arg(cases).arg(&schemas))?;
    let importer: Importer = serde_json::from_str(&fs::read_to_string(table)?)?;
    let standard: Standard = serde_json::from_str(&fs::read_to_string(schemas)?)?;
    let mut passing = Vec::new();
    for &backend in Backend::value_variants() {
        if let Ok(text) = fs::read_to_string(backend.list()) {
            passing.push((backend.title(), text.lines().map(str::to_owned).collect()));
        }
    }
    let text = document(
        &importer,
        &standard,
        &passing,
        &conformance::missing("tests/conformance/missing.txt")?,
    )?;
    let path: PathBuf = workspace::root().join("docs/operators.md");
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if bless {
        return Ok(fs::write(path, text)?);
    }
    Err("docs/operators.md is not current; `cargo xtask conformance --bless` writes it".into())
}

type Passing<'a> = (&'a str, BTreeSet<String>);

/// The document's text.
fn document(
    importer: &Importer,
    standard: &Standard,
    passing: &[Passing<'_>],
    missing_cases: &[(String, String)],
) -> Result<String> {
    let Opsets { oldest, newest } = importer.opsets;
    let titles: Vec<&str> = passing.iter().map(|(title, _)| *title).collect();
    let mut text = format!(
        "# Operators\n\n\
         Which operators of the ONNX standard can be compiled, in models of opsets {oldest} to {newest}. This page is \
         written by `cargo xtask conformance --bless`, and CI checks that it is current.\n\n\
         The data types are those of the operator's first input in the ONNX node tests that pass, backend by backend. \
         Most operators take more types than there are tests for; an operator or type that is not supported is an error \
         when the model is compiled. The versions in which the standard changed an operator are in brackets.\n\n\
         Random operators, and dropout in training, are functions of the node's seed and of an element's place: a model \
         computes the same each time, on every backend. A node without a seed takes one from the name of its output. \
         What `NonMaxSuppression`, `NonZero`, `Unique`, `Compress`, `TopK` with a `k` that is computed, and a `Loop` that \
         a condition ends leave is as large as a run finds, and has room for the most there may be: `Unique` takes \
         tensors whose extents are known while compiling, and along an axis compares up to 2,048 slices, and a loop that \
         a condition ends may put up to 65,536 rows side by side. Positions in sequences and sizes of their elements must \
         be known while compiling. `RoiAlign` with `sampling_ratio` 0 samples a region that is more than twice as large \
         as the image as often as one of that size. `Resize` with `antialias` takes elements beyond the border for the \
         border, as the standard has it; ONNX Runtime leaves them out, as `exclude_outside` does. By `scales` with \
         `align_corners`, the last place is that of the length before it is rounded down, as the standard's tests have \
         it; PyTorch and ONNX Runtime take the length of the result, which is another place where a scaled length is no \
         whole number. `ScatterElements` and `ScatterND` take `min` and `max` from version 16 on, where PyTorch writes \
         them. A declared output of another rank than the model computes is an error if the declaration has a number, \
         and ignored if not.\n\n\
         | operator | opsets | {} |\n|---|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for (name, versions) in &importer.operators {
        let schema = standard
            .operators
            .get(name)
            .ok_or_else(|| format!("`{name}` can be imported, but is no operator of ONNX"))?;
        if let Some(unknown) = versions.iter().find(|version| !schema.since.contains(version)) {
            return Err(format!("`{name}` did not change in opset {unknown}").into());
        }
        let cells: Vec<String> =
            passing.iter().map(|(_, passed)| types(name, standard, passed)).collect();
        let opsets = opsets(versions, schema, &importer.opsets);
        text += &format!("| {name} | {opsets} | {} |\n", cells.join(" | "));
    }
    let missing: Vec<String> = standard
        .operators
        .iter()
        .filter(|(name, schema)| !schema.deprecated && !importer.operators.contains_key(*name))
        .map(|(name, schema)| format!("{name} ({})", schema.since[0]))
        .collect();
    text += &format!(
        "\nOf the standard's operators, these {} are not supported (with the opset that brought them): {}.\n",
        missing.len(),
        missing.join(", ")
    );
    text += "\nBesides, of other domains, which `cargo xtask conformance` compares with ONNX Runtime where it has them:\n\n";
    for (domain, names) in &importer.domains {
        text += &format!("- `{domain}`: {}\n", names.join(", "));
    }
    text += "\nNode tests that do not pass, by what their names begin with, and why:\n\n";
    for (cases, reason) in missing_cases {
        text += &format!("- `{cases}`: {reason}\n");
    }
    Ok(text)
}

/// The opsets in which an operator is supported, and its changes among them.
fn opsets(versions: &[i64], schema: &Schema, opsets: &Opsets) -> String {
    let first = versions.first().map_or(opsets.oldest, |&first| first.max(opsets.oldest));
    let last = match schema.since.last() {
        Some(&removed) if schema.deprecated => removed - 1,
        // A change that the importer does not know ends what is known to be right.
        _ => schema
            .since
            .iter()
            .find(|since| **since > first && !versions.contains(since))
            .map_or(opsets.newest, |&unknown| unknown - 1),
    };
    let changes: Vec<String> = versions
        .iter()
        .filter(|version| (first + 1..=last).contains(version))
        .map(i64::to_string)
        .collect();
    match changes.is_empty() {
        true => format!("{first}–{last}"),
        false => format!("{first}–{last} ({})", changes.join(", ")),
    }
}

/// The types with which an operator occurs in passing cases.
fn types(name: &str, standard: &Standard, passed: &BTreeSet<String>) -> String {
    let pairs = passed.iter().filter_map(|case| standard.cases.get(case)).flatten();
    let found: BTreeSet<&str> =
        pairs.filter(|(op, _)| op == name).map(|(_, dtype)| dtype.as_str()).collect();
    let known = TYPES.iter().copied().filter(|dtype| found.contains(dtype));
    let others = found.iter().copied().filter(|dtype| !TYPES.contains(dtype));
    let listed: Vec<&str> = known.chain(others).collect();
    if listed.is_empty() { "–".to_owned() } else { listed.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn standard() -> Standard {
        serde_json::from_value(json!({
            "operators": {
                "Add": {"since": [1, 7, 13], "deprecated": false},
                "Upsample": {"since": [1, 9, 10], "deprecated": true},
                "Loop": {"since": [11], "deprecated": false},
                "Cast": {"since": [1, 9, 25], "deprecated": false},
            },
            "cases": {
                "test_add": [["Add", "float32"]],
                "test_add_int8": [["Add", "int8"], ["Cast", "int8"]],
                "test_add_half": [["Add", "float16"]],
            },
        }))
        .unwrap()
    }

    fn importer(operators: serde_json::Value) -> Importer {
        let opsets = json!({"oldest": 7, "newest": 28});
        serde_json::from_value(json!({
            "opsets": opsets,
            "operators": operators,
            "domains": {"com.microsoft": ["Gelu", "QGemm"]},
        }))
        .unwrap()
    }

    fn passing() -> Vec<Passing<'static>> {
        let cases = ["test_add", "test_add_int8"].map(str::to_owned);
        vec![("C", cases.into()), ("LLVM", BTreeSet::new())]
    }

    #[test]
    fn rows_have_opsets_changes_and_types_that_pass() {
        let importer = importer(json!({"Add": [1, 7, 13], "Cast": [1, 9], "Upsample": [1, 9, 10]}));
        let missing = [("test_odd".to_owned(), "no strings".to_owned())];
        let text = document(&importer, &standard(), &passing(), &missing).unwrap();
        assert!(text.contains("| operator | opsets | C | LLVM |\n|---|---|---|---|\n"), "{text}");
        assert!(text.contains("| Add | 7–28 (13) | float32, int8 | – |\n"), "{text}");
        assert!(text.contains("| Upsample | 7–9 (9) | – | – |\n"), "{text}");
        // The change in opset 25 is not known.
        assert!(text.contains("| Cast | 7–24 (9) | int8 | – |\n"), "{text}");
        assert!(text.contains(
            "these 1 are not supported (with the opset that brought them): Loop (11).\n"
        ));
        assert!(text.contains("\n- `com.microsoft`: Gelu, QGemm\n"), "{text}");
        assert!(text.ends_with("\n- `test_odd`: no strings\n"), "{text}");
    }

    #[test]
    fn a_table_that_cannot_be_right_is_refused() {
        for (operators, expected) in [
            (json!({"Ad": [1]}), "no operator of ONNX"),
            (json!({"Add": [1, 8]}), "did not change in opset 8"),
        ] {
            let error = document(&importer(operators), &standard(), &passing(), &[]).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
