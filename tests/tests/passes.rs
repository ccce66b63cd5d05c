//! Every pass has one file, one name and a folder of filetests.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use niello::compile::{Compilation, Model, Passes, compile};
use niello::options::{Backend, CompileOptions, PORTABLE};
use niello::pass::instruments::{Effect, PassTable};
use niello::pass::{Counterpart, Pass, PassContext, Registry, UPSTREAM};
use niello::target::Target;
use niello::transform::pipeline::{PipelineExtensions, pipeline};
use niello_tests::workspace;

/// Files of the folder of graph passes that have no pass: the list, the folder itself, shared code,
/// tests.
const NO_PASSES: [&str; 9] =
    ["calls", "channels", "combine", "external", "layers", "mod", "pipeline", "relayout", "tests"];

/// Names of the files and folders in a folder, without `.rs`.
fn stems(folder: &str) -> BTreeSet<String> {
    fs::read_dir(workspace().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// `FoldConstant` as `fold_constant`, and `BF16ToF32TIR` as `bf16_to_f32_tir`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, c) in letters.iter().enumerate() {
        let starts_word = c.is_uppercase()
            && at.checked_sub(1).is_some_and(|before| {
                let within = letters[before].is_uppercase() || letters[before].is_ascii_digit();
                !within || letters.get(at + 1).is_some_and(|next| next.is_lowercase())
            });
        if starts_word {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[test]
fn files_registry_and_filetests_have_the_same_passes() {
    let mut files = stems("compiler/src/transform");
    for name in NO_PASSES {
        assert!(files.remove(name), "there is no `{name}`");
    }
    let registered: BTreeSet<String> = Registry::global()
        .entries()
        .filter(|entry| entry.origin().package == "niello" && !entry.name().contains('.'))
        .map(|entry| snake_case(entry.name()))
        .collect();
    assert_eq!(registered, files);
    let tested = stems("tests/filetests");
    assert!(files.is_subset(&tested), "{:?} have no filetests", files.difference(&tested));
}

#[test]
fn files_and_registry_have_the_same_passes_of_loop_functions() {
    let mut files = stems("compiler/src/tir/transform");
    assert!(files.remove("mod") && files.remove("random_tests"));
    let registered: BTreeSet<String> = Registry::global()
        .entries()
        .filter(|entry| entry.origin().package == "niello")
        .filter_map(|entry| entry.name().strip_prefix("tir.").map(snake_case))
        .collect();
    assert_eq!(registered, files);
    let tested = stems("tests/filetests");
    assert!(files.is_subset(&tested), "{:?} have no filetests", files.difference(&tested));
}

#[test]
fn the_registry_is_consistent_and_every_pass_says_what_it_does() {
    let registry = Registry::global();
    registry.verify().unwrap();
    for entry in registry.entries() {
        let info = entry.pass().unwrap().info().clone();
        assert!(info.summary().ends_with('.'), "{}: {}", entry.name(), info.summary());
    }
}

/// `docs/tvm-passes.md`; `BLESS=1` writes it.
#[test]
fn the_list_of_passes_of_tvm_is_that_of_the_compiler() {
    let registry = Registry::global();
    let mut text = TVM_PASSES.to_owned();
    for loops in [false, true] {
        let heading = if loops { "Passes of loop functions" } else { "Passes of the graph" };
        text.push_str(&format!("\n## {heading}\n\n| pass of TVM | here |\n|---|---|\n"));
        for &(name, counterpart) in UPSTREAM {
            if name.starts_with("tir.") != loops {
                continue;
            }
            let summary =
                |name: &str| registry.get(name).map(|pass| pass.info().summary().to_owned());
            let here = match (summary(name), counterpart) {
                (Ok(summary), Counterpart::As(other)) => format!("`{other}`: {summary}"),
                (Ok(summary), _) => format!("yes: {summary}"),
                (Err(_), Counterpart::Not(reason)) => format!("no: {reason}."),
                (Err(error), _) => panic!("{name}: {error}"),
            };
            text.push_str(&format!("| `{name}` | {here} |\n"));
        }
    }
    let path = workspace().join("docs/tvm-passes.md");
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/tvm-passes.md is not current; `BLESS=1` writes it:\n{text}");
}

/// The beginning of that document.
const TVM_PASSES: &str = "\
# The passes of TVM

Every pass of TVM by its name, and what it is here: a pass of the same name, a pass of another name,
which TVM's name finds as well, or none, with the reason. `niello passes` lists the passes that are
here, of which some are in no list of TVM's; looking up a name of this list that is not here tells the
reason. The list is `UPSTREAM` in `compiler/src/pass/upstream.rs`; this page is written from it, by
`BLESS=1 cargo test -p niello-tests --test passes`.
";

/// The table in `docs/levels.md`; `BLESS=1` writes it.
#[test]
fn the_table_of_levels_is_that_of_the_digits_model() {
    let model = Model::read(&workspace().join("examples/digits/models/digits.onnx")).unwrap();
    let list = pipeline(&PipelineExtensions::new()).unwrap();
    let mut columns = Vec::new();
    for opt_level in 0..=4 {
        let mut options = CompileOptions::new(Target::host());
        options.set_target_cpu(PORTABLE).unwrap();
        (options.opt_level, options.without_objects) = (opt_level, true);
        options.backend = Backend::C;
        let table = Arc::new(PassTable::new(&list));
        let context = Passes::context(&options).shared_instrument(table.clone()).build().unwrap();
        let passes = Passes { context, extensions: PipelineExtensions::new() };
        let compilation = compile(&model, &options, &passes).unwrap();
        columns.push((table.rows(&list), compilation));
    }
    let mut text = "| pass | level | `-O0` | `-O1` | `-O2` | `-O3` | `-O4` |\n".to_owned();
    text.push_str(&format!("|{}\n", "---|".repeat(7)));
    for (index, pass) in list.passes().iter().enumerate() {
        let info = pass.info();
        text.push_str(&format!("| `{}` | {} |", info.name(), info.opt_level()));
        for (rows, _) in &columns {
            assert_eq!((rows.len(), &*rows[index].pass), (list.passes().len(), info.name()));
            let cell = match &rows[index].ran {
                None => String::new(),
                Some(Effect { changed: false, .. }) => "=".to_owned(),
                Some(effect) => {
                    format!("{} → {}", effect.operators_before, effect.operators_after)
                }
            };
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
    }
    let mut total = |what: &str, of: fn(&Compilation) -> u64| {
        let cells: Vec<String> = columns.iter().map(|(_, c)| of(c).to_string()).collect();
        text.push_str(&format!("| {what} | | {} |\n", cells.join(" | ")));
    };
    total("kernels", |compilation| compilation.program.kernels.len() as u64);
    total("calls of kernels", |compilation| compilation.program.steps.len() as u64);
    total("arena, bytes", |compilation| compilation.plan.arena_bytes);
    let path = workspace().join("docs/levels.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("| pass |").expect("the page has the table");
    let (_, after) = rest.split_once("\n\n").expect("a paragraph follows the table");
    let current = format!("{before}{text}\n{after}");
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &current).unwrap();
        return;
    }
    assert!(page == current, "docs/levels.md is not current; `BLESS=1` writes it:\n{text}");
}

#[test]
fn the_pipeline_has_no_pass_that_is_not_registered() {
    let registry = Registry::global();
    let passes = pipeline(&PipelineExtensions::new()).unwrap();
    for pass in passes.passes() {
        assert!(registry.get(pass.info().name()).is_ok(), "{}", pass.info().name());
    }
    // At the highest level every pass runs.
    let cx = PassContext::builder().opt_level(4).build().unwrap();
    assert_eq!(passes.plan(&cx).unwrap().to_string().lines().count(), passes.passes().len());
    assert!(passes.apply(niello::ir::IRModule::new()).unwrap().is_empty());
}
