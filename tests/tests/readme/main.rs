//! The documents' own snippets as packages outside the workspace, as a new user would build them.
//!
//! A comment before a fenced block says what it is:
//!
//! - `file: five/build.rs`: a file;
//! - `append: my-passes/src/lib.rs`: the rest of a file;
//! - `test: refined`: statements that use the model of that package;
//! - `output: five`: what the program prints;
//! - `stderr: negation opt …`: what a command prints to the standard error;
//! - `same: <document> <file>`: the beginning of a file of another document;
//! - `source: examples/digits/build.rs`: a part of a file of the workspace.
//!
//! Every block of Rust or TOML has one.

mod package;
mod snippets;

use std::fs;
use std::process::Command;

use niello::ir::{Constant, DType};
use niello::onnx::{ModelBuilder, ModelDim};
use niello_tests::{skip, workspace};

use package::Folder;
use snippets::{Snippet, find, snippets};

fn document(path: &str) -> Vec<Snippet> {
    snippets(&fs::read_to_string(workspace().join(path)).unwrap())
}

/// Half of each sample, and half of what came before.
fn filter() -> ModelBuilder {
    ModelBuilder::new(13)
        .input("sample", DType::F32, &[1, 2])
        .input("level", DType::F32, &[1, 2])
        .initializer("half", &Constant::from_f32(&[], &[0.5]).unwrap())
        .node("Add", &["sample", "level"], &["sum"], &[])
        .node("Mul", &["sum", "half"], &["smooth"], &[])
        .node("Identity", &["smooth"], &["next_level"], &[])
        .output("smooth", DType::F32, &[1, 2])
        .output("next_level", DType::F32, &[1, 2])
}

/// The mean of all samples so far.
fn history() -> ModelBuilder {
    let all = ModelDim::from("past + new");
    ModelBuilder::new(13)
        .input("samples", DType::F32, &[ModelDim::from("new")])
        .input("past.samples", DType::F32, &[ModelDim::from("past")])
        .node("Concat", &["past.samples", "samples"], &["present.samples"], &[("axis", 0.into())])
        .node("ReduceMean", &["present.samples"], &["mean"], &[])
        .output("mean", DType::F32, &[1])
        .output("present.samples", DType::F32, &[all])
}

/// `next = relu(sample · w + state · u)`.
fn recurrent() -> ModelBuilder {
    let floats = |shape: &[i64], values: &[f32]| Constant::from_f32(shape, values).unwrap();
    let w = floats(&[2, 4], &[1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, -1.0]);
    // Half of each element, and the first one to the second.
    let u = [0.5, 1.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5];
    let dims = |size: i64| [ModelDim::from("batch"), ModelDim::from(size)];
    ModelBuilder::new(13)
        .input("sample", DType::F32, &dims(2))
        .input("state", DType::F32, &dims(4))
        .initializer("w", &w)
        .initializer("u", &floats(&[4, 4], &u))
        .node("MatMul", &["sample", "w"], &["seen"], &[])
        .node("MatMul", &["state", "u"], &["kept"], &[])
        .node("Add", &["seen", "kept"], &["sum"], &[])
        .node("Relu", &["sum"], &["next"], &[])
        .output("next", DType::F32, &dims(4))
}

/// A package's `lib.rs` that runs a document's statements as tests.
///
/// `checks`, computed by hand, are appended to the statements in order.
fn statements_as_tests(
    snippets: &[Snippet],
    package: &str,
    model: &str,
    checks: &[&str],
) -> String {
    let mut text = format!(
        "//! Snippets.\n#![cfg(test)]\n\nmod {model} {{\n    \
         niello_runtime::include_model!(\"{model}\");\n}}\n"
    );
    let marked = snippets.iter().filter(|snippet| {
        snippet.marker.as_ref().is_some_and(|(key, value)| key == "test" && value == package)
    });
    let mut count = 0;
    for Snippet { line, text: statements, .. } in marked {
        let check = checks.get(count).unwrap_or_else(|| panic!("no check for line {line}"));
        text += &format!(
            "\n#[test]\nfn line_{line}() -> Result<(), Box<dyn std::error::Error>> {{\n\
             {statements}\n{check}\nOk(())\n}}\n"
        );
        count += 1;
    }
    assert_eq!(count, checks.len(), "snippets of {package}");
    text
}

#[test]
fn every_block_of_code_says_what_it_is() {
    for path in
        ["README.md", "docs/adding-a-pass.md", "docs/debugging.md", "docs/tutorial-passes.md"]
    {
        let snippets = document(path);
        assert!(snippets.len() > 5, "{path} has lost its snippets");
        for Snippet { line, language, marker, text } in &snippets {
            let known = ["file", "append", "test", "output", "stderr", "same"];
            let place = format!("{path}:{line}");
            match marker {
                Some((key, file)) if key == "source" => {
                    let source = fs::read_to_string(workspace().join(file)).unwrap();
                    assert!(source.contains(text.as_str()), "{place}: {file} has no such part");
                }
                Some((key, _)) => assert!(known.contains(&key.as_str()), "{place}: {key}"),
                None => assert!(!["rust", "toml"].contains(&&**language), "{place}: not tested"),
            }
        }
    }
}

#[test]
fn code_shown_in_two_documents_is_the_same() {
    for Snippet { marker, text, .. } in document("README.md") {
        let Some((_, place)) = marker.filter(|(key, _)| key == "same") else { continue };
        let (path, file) = place.split_once(' ').expect("a document and a file");
        let other = document(path);
        let whole = find(&other, "file", file);
        let start = whole.find("\nuse ").expect("the file imports something") + 1;
        assert_eq!(text, whole[start..], "{place}");
    }
}

/// The quick start, with every command that a stranger may try first.
#[test]
fn the_quick_start_works_outside_the_workspace() {
    let readme = document("README.md");
    let folder = Folder::new();
    folder.write_marked(&readme);
    let digits = workspace().join("examples/digits/models/digits.onnx");
    folder.write_bytes("five/models/digits.onnx", fs::read(digits).unwrap());

    let five = |arguments: &[&str]| folder.cargo_ok("five", arguments);
    five(&["check", "--all-targets"]);
    five(&["build"]);
    assert!(five(&["test"]).contains("test result: ok"));
    assert_eq!(five(&["run", "--quiet"]), find(&readme, "output", "five"));
    five(&["doc"]);
    let clippy = Command::new(env!("CARGO")).args(["clippy", "--version"]).output();
    if clippy.is_ok_and(|output| output.status.success()) {
        five(&["clippy", "--all-targets", "--", "-D", "warnings"]);
    } else {
        skip("clippy on the README's snippets", "it is not installed");
    }

    // The build fails as the document says.
    let odd = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node("Frobnicate", &["x"], &["embed"], &[])
        .node("Transmogrify", &["embed"], &["rotate"], &[])
        .output("rotate", DType::F32, &[3]);
    folder.write_bytes("five/models/odd.onnx", odd.to_bytes());
    let build = find(&readme, "file", "five/build.rs");
    folder.write("five/build.rs", &build.replace("digits.onnx", "odd.onnx"));
    let output = folder.cargo("five", &["build"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: String = stderr.lines().filter(|l| l.contains("odd.onnx")).map(line).collect();
    assert!(!output.status.success());
    assert_eq!(errors, find(&readme, "output", "errors"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

#[test]
fn refinements_work_outside_the_workspace() {
    let readme = document("README.md");
    let folder = Folder::new();
    folder.write_marked(&readme);
    let manifest = find(&readme, "file", "five/Cargo.toml");
    let first_step = "assert_eq!(outputs.next, &[1.0, 0.0, 2.0, 0.0]);";
    let packages: [(&str, &[&str]); 3] = [
        // (1, 0, 2, 0), then (½, 2, 1, -1) with the last one clipped, then this.
        ("refined", &["assert_eq!(state, [0.75, 2.0, 1.5, 0.0]);", first_step, first_step]),
        ("external", &[first_step]),
        (
            "batches",
            &["assert_eq!(outputs.next[..], [1., 0., 2., 0., 0., 1., 0., 0., 0.5, 0.5, 1., 0.]);"],
        ),
    ];
    let kept = ["assert_eq!(smooth, &[2.0, 1.0]);\nmodel.reset();\n\
                 assert_eq!(model.run(&filter::Inputs { sample: &[2.0; 2] }).smooth, &[1.0; 2]);"];
    let grown = ["assert_eq!(mean, &[3.0]);"];
    let packages = packages.map(|(package, checks)| (package, "rnn", checks));
    let states = [("kept", "filter", &kept[..]), ("grown", "history", &grown[..])];
    for (package, module, checks) in packages.into_iter().chain(states) {
        folder.write(&format!("{package}/Cargo.toml"), &manifest.replace("five", package));
        folder.write_bytes(&format!("{package}/models/step.onnx"), recurrent().to_bytes());
        folder.write_bytes(&format!("{package}/models/filter.onnx"), filter().to_bytes());
        folder.write_bytes(&format!("{package}/models/history.onnx"), history().to_bytes());
        let text = statements_as_tests(&readme, package, module, checks);
        folder.write(&format!("{package}/src/lib.rs"), &text);
        let tests = folder.cargo_ok(package, &["test", "--lib"]);
        assert!(tests.contains(&format!("{} passed", checks.len())), "{tests}");
    }
}

#[test]
fn a_pass_in_a_crate_of_its_own_works() {
    let how_to = document("docs/adding-a-pass.md");
    let folder = Folder::new();
    folder.write_marked(&how_to);
    let passes = |arguments: &[&str]| folder.cargo_ok("my-passes", arguments);
    let tests = passes(&["test", "--features", "cli", "--lib"]);
    for test in ["chains_shrink_to_one", "short_innermost_loops_are_unrolled"] {
        assert!(tests.contains(&format!("{test} ... ok")), "{tests}");
    }

    let run = ["run", "--quiet", "--features", "cli", "--"];
    for passes_of in ["twice.relay --passes drop-repeated-relu", "norm.relay --passes find-rsqrt"] {
        let opt = format!("my-niello opt {passes_of}");
        let arguments: Vec<&str> = opt.split(' ').skip(1).collect();
        assert_eq!(passes(&[&run[..], &arguments].concat()), find(&how_to, "output", &opt));
    }
    let listed = passes(&[&run[..], &["passes"]].concat());
    for pass in ["DropRepeatedRelu", "FoldConstant"] {
        assert!(listed.lines().any(|line| line.starts_with(pass)), "{listed}");
    }

    // The loop over three elements is there, and written out if the pass runs.
    for (added, is_there) in [("[]", true), ("[[1,\"mine.UnrollShort\"]]", false)] {
        let config = format!("tir.add_lower_pass={added}");
        let compile = ["compile", "sum.relay", "-o", "out", "--emit", "tir", "--config", &config];
        passes(&[&run[..], &compile].concat());
        let loops = fs::read_to_string(folder.path("my-passes/out/sum.tir")).unwrap();
        assert_eq!(loops.contains("in serial(3)"), is_there, "{loops}");
    }

    let twice = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node("Relu", &["x"], &["once"], &[])
        .node("Relu", &["once"], &["y"], &[])
        .output("y", DType::F32, &[3]);
    folder.write_bytes("shrunk/models/twice.onnx", twice.to_bytes());
    let main = "mod twice { niello_runtime::include_model!(\"twice\"); }\n\
                fn main() {\n\
                    let mut model = twice::Model::new();\n\
                    println!(\"{:?}\", model.run(&twice::Inputs { x: &[-1.0, 0.0, 2.5] }).y);\n\
                }\n";
    folder.write("shrunk/src/main.rs", main);
    assert_eq!(folder.cargo_ok("shrunk", &["run", "--quiet"]), "[0.0, 0.0, 2.5]\n");
}

#[test]
fn the_tutorial_on_passes_does_what_it_says() {
    let tutorial = document("docs/tutorial-passes.md");
    let folder = Folder::new();
    folder.write_marked(&tutorial);
    let tests =
        tutorial.iter().map(|snippet| snippet.text.matches("#[test]").count()).sum::<usize>();
    let output = folder.cargo_ok("pass-tutorial", &["test", "--lib"]);
    assert!(tests >= 7 && output.contains(&format!("{tests} passed; 0 failed")), "{output}");
}

/// The output shown in `docs/debugging.md` is the real one. `BLESS=1` writes it there.
#[test]
fn debugging_goes_as_shown() {
    let path = workspace().join("docs/debugging.md");
    let text = fs::read_to_string(&path).unwrap();
    let snippets = snippets(&text);
    let folder = Folder::new();
    folder.write_marked(&snippets);
    folder.cargo_ok("negation", &["build"]);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut commands = 0;
    // From the last one to the first, so that earlier lines keep their numbers.
    let mut shown = Vec::new();
    for Snippet { line, marker, text, .. } in &snippets {
        let Some((stream @ ("stderr" | "output"), command)) =
            marker.as_ref().map(|(stream, command)| (stream.as_str(), command.as_str()))
        else {
            continue;
        };
        let arguments: Vec<&str> = command.split(' ').skip(1).collect();
        let output = folder.run("negation", &arguments);
        let bytes = if stream == "stderr" { output.stderr } else { output.stdout };
        let printed = String::from_utf8(bytes).unwrap();
        shown.push((*line, text.clone(), printed.trim_end().to_owned() + "\n", command.to_owned()));
        commands += 1;
    }
    assert!(commands >= 6, "the document has lost its commands");
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        for (line, old, new, _) in shown.iter().rev() {
            let new = new.lines().map(str::to_owned);
            lines.splice(*line..line + old.lines().count(), new);
        }
        fs::write(path, lines.join("\n") + "\n").unwrap();
        return;
    }
    for (_, expected, printed, command) in shown {
        assert_eq!(printed, expected, "{command}");
    }
}
