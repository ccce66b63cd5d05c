//! What documents say of the operators.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::samples::sample;
use crate::ops::{InputKind, OpPattern, all};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The page of all operators.
fn page() -> String {
    let mut text = String::from(
        "# Graph operators\n\nThe operators of the graph IR, which models are imported to, with their \
         inputs and attributes. Names are Relay's. In the [text format](text-format.md), a call is \
         `nn.leaky_relu(%x, alpha=0.1)`; an attribute with a value in parentheses may be left out, and \
         has that value then. This page is written from the table of the operators by \
         `BLESS=1 cargo test -p niello --lib ops::tests::documents`, and a test holds it to the table.\n\n\
         How an operator is fused: *element by element* and *broadcast* with all others; *moves* \
         elements, each to one place; *reduces*; *heavy* operators take those that follow element by \
         element into their loops; what is *alone* is not fused.\n\n\
         | operator | result | inputs | attributes | fused |\n|---|---|---|---|---|\n",
    );
    for op in all() {
        let inputs: Vec<String> = (op.inputs.iter())
            .map(|input| match input.kind {
                InputKind::Required => input.name.to_owned(),
                InputKind::Optional => format!("{} (optional)", input.name),
                InputKind::Variadic => format!("{}, one or more", input.name),
            })
            .collect();
        let attrs: Vec<String> =
            op.attrs().unwrap().iter().map(|attribute| attribute.to_string()).collect();
        let fused = match op.pattern {
            OpPattern::ElemWise => "element by element",
            OpPattern::Broadcast => "broadcast",
            OpPattern::Injective => "moves",
            OpPattern::CommReduce => "reduces",
            OpPattern::OutElemWiseFusable => "heavy",
            OpPattern::Tuple | OpPattern::Opaque => "alone",
        };
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {fused} |",
            op.name,
            op.summary,
            inputs.join(", "),
            attrs.join("; "),
        )
        .unwrap();
    }
    text
}

#[test]
fn the_page_of_graph_operators_is_current() {
    let path = workspace().join("docs/graph-operators.md");
    let page = page();
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "docs/graph-operators.md is not current; BLESS=1 writes it");
}

/// The attributes that an operator says it has are those that its type relation takes.
#[test]
fn every_operator_has_the_attributes_that_it_lists() {
    for op in all() {
        let (attrs, _) = sample(op.name).unwrap();
        let listed = op.attrs().unwrap();
        for attribute in &listed {
            let given = attrs.get(attribute.name).is_some();
            assert!(given || attribute.optional, "`{}`: {attribute}", op.name);
        }
        for (name, _) in attrs.iter() {
            assert!(listed.iter().any(|a| a.name == name), "`{}` takes `{name}`", op.name);
        }
    }
}

/// Blocks of code whose marker names the file that they are in.
fn excerpts(document: &str) -> Vec<(String, String)> {
    let mut excerpts = Vec::new();
    let mut marker = None;
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(path) = line.strip_prefix("<!-- source: ") {
            marker = path.strip_suffix(" -->");
        } else if line == "```rust" {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let path = marker.take().unwrap_or_else(|| panic!("of which file is {code:?}?"));
            excerpts.push((path.to_owned(), code.join("\n")));
        }
    }
    excerpts
}

#[test]
fn the_guide_to_adding_an_operator_quotes_the_source() {
    let guide = fs::read_to_string(workspace().join("docs/adding-an-op.md")).unwrap();
    let excerpts = excerpts(&guide);
    assert!(excerpts.len() >= 8, "the guide has lost its code");
    for (path, code) in excerpts {
        let source = fs::read_to_string(workspace().join(&path)).unwrap();
        assert!(source.contains(&code), "{path} does not contain:\n{code}");
    }
}

/// The source files in which an operator occurs, but for tests.
fn files_with(words: &[&str], folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files_with(words, &path, found);
        } else if name.ends_with(".rs") && !name.starts_with("tests") && name != "samples.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            if text.split(|c| !is_word(c)).any(|word| words.contains(&word)) {
                found.push(path);
            }
        }
    }
}

#[test]
fn an_operator_touches_the_files_that_the_guide_lists() {
    let guide = fs::read_to_string(workspace().join("docs/adding-an-op.md")).unwrap();
    let mut listed: Vec<PathBuf> = (guide.lines())
        .filter_map(|line| line.strip_prefix("- `compiler/src/")?.split_once("`: "))
        .map(|(path, _)| Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path))
        .collect();
    let mut found = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files_with(&["lrn", "LRN", "LrnAttrs"], &source, &mut found);
    listed.sort();
    found.sort();
    assert_eq!(found, listed);
}
