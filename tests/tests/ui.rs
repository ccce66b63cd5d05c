//! What the attribute macros say to wrong passes and instruments, and which forms they take.
//!
//! Each file of `ui/fail` is named after the row of the specification that it tests. What the
//! compiler prints is compared with the `.stderr` beside it; `TRYBUILD=overwrite` rewrites those.
//! Where the words are rustc's own they belong to one version of it, [`PINNED`].

/// The toolchain whose own messages the files of [`RUSTC_ROWS`] hold.
const PINNED: &str = "1.95";

/// Each file with the message of its row, as the specification has it, and what is underlined in
/// each of its errors.
const ROWS: &[(&str, &str, &[&str])] = &[
    ("row_01_level_missing", "Please provide opt_level for the module pass.", &["#[module_pass]"]),
    (
        "row_02_level_missing_function",
        "Please provide opt_level for the function pass.",
        &["#[function_pass(name = \"x\")]"],
    ),
    (
        "row_03_level",
        "opt_level must be a non-negative integer literal",
        &["\"2\"", "-1", "2.5", "opt_level"],
    ),
    (
        "row_04_unknown_argument",
        "unknown argument `optlevel`, did you mean `opt_level`? expected one of: ",
        &["optlevel", "colour"],
    ),
    ("row_05_duplicate_argument", "duplicate argument `opt_level`", &["opt_level"]),
    (
        "row_06_required",
        "required must be a list of pass names or paths",
        &["\"InferType\"", "[42]", "some"],
    ),
    (
        "row_07_name",
        "pass name may not contain blanks or any of , ( ) { } =",
        &["\"a b\"", "\"x(y)\"", "NAME"],
    ),
    (
        "row_08_arity",
        "a module pass takes (IRModule, &PassContext); found 1 parameter",
        &["module: IRModule", "none", "function: Function, _cx: &PassContext"],
    ),
    (
        "row_09_by_value",
        "take IRModule by value and return it; passes are module → module",
        &["&mut IRModule"],
    ),
    ("row_11_no_result", "must return IRModule or Result<IRModule, E>", &["p"]),
    (
        "row_12_qualifiers",
        "a pass function cannot be `async`",
        &["async", "unsafe", "extern \"C\""],
    ),
    (
        "row_13_generic",
        "a pass function cannot be generic; capture configuration in a struct",
        &["<T>", "impl Into<IRModule>"],
    ),
    (
        "row_14_item",
        "#[module_pass] can be applied to a function or an inherent impl block (for a struct: put it on the impl that has transform_module)",
        &["struct", "enum", "const", "Default"],
    ),
    (
        "row_15_method",
        "expected fn transform_module(&self, IRModule, &PassContext) in this impl; found transform_function – did you mean #[function_pass]?",
        &["transform_function", "transfrom_function", "&mut self"],
    ),
    (
        "row_16_instrument_item",
        "#[pass_instrument] must be applied to an inherent impl block",
        &["fn", "struct", "PassInstrument"],
    ),
    (
        "row_17_hook_name",
        "unknown hook `run_befor_pass`, did you mean `run_before_pass`? (`#[not_a_hook]` to silence)",
        &["run_befor_pass", "shouldrun"],
    ),
    ("row_18_should_run", "should_run must return bool or Result<bool, E>", &["should_run"]),
    (
        "row_19_mutable_hook",
        "hooks take &self: instruments are shared by contexts and threads; use Mutex/atomics",
        &["&mut self", "self", "enter_pass_ctx"],
    ),
    ("row_21_itself", "pass `MyPass` cannot require itself", &["MyPass", "Self"]),
    (
        "other_arguments",
        "name must be a string literal",
        &["Mine", "everything", "3", "\"niello\"", "1", "opt_level"],
    ),
    (
        "other_functions",
        "a pass changes nothing but what it returns; take it by `&`",
        &[
            "&mut PassContext",
            "no_parameters",
            "returns_nothing",
            "<T>",
            "transform_module",
            "Empty",
            "Clone",
        ],
    ),
    (
        "other_instruments",
        "an instrument has at least one of the hooks enter_pass_ctx, ",
        &["Idle", "Watch", "crat", "async", "&self, _info: &PassInfo", "<T>", "unsafe"],
    ),
    ("three_mistakes", "a pass function cannot be `async`", &["async", "\"high\"", "InferType"]),
];

/// Files whose messages are rustc's own, what they must say, and what is underlined.
const RUSTC_ROWS: &[(&str, &str, &[&str])] = &[
    ("row_10_types", "mismatched types", &["swapped", "run_before_pass"]),
    ("row_20_not_sync", "`Rc<u32>` cannot be shared between threads safely", &["Counts", "Counts"]),
    ("row_22_guard_to_a_thread", "cannot be sent between threads safely", &[" drop(guard)"]),
    (
        "other_results",
        "a module pass must return `IRModule` or a `Result` of it, not `Option<IRModule>`",
        &["Option", "String", "u32"],
    ),
];

#[test]
fn every_row_has_its_message_once_a_mistake_at_its_token() {
    let folder = niello_tests::workspace().join("tests/tests/ui");
    let mut files: Vec<String> = ["fail", "rustc"]
        .into_iter()
        .flat_map(|part| std::fs::read_dir(folder.join(part)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort_unstable();
    let rows =
        || ROWS.iter().map(|row| ("fail", row)).chain(RUSTC_ROWS.iter().map(|row| ("rustc", row)));
    let mut expected: Vec<&str> = rows().map(|(_, row)| row.0).collect();
    expected.sort_unstable();
    assert_eq!(files, expected);
    for row in 1..=22 {
        let prefix = format!("row_{row:02}_");
        assert!(files.iter().any(|file| file.starts_with(&prefix)), "no file for row {row}");
    }
    for (part, (name, message, tokens)) in rows() {
        let text =
            std::fs::read_to_string(folder.join(part).join(format!("{name}.stderr"))).unwrap();
        assert!(text.contains(message), "{name}: {text}");
        assert_eq!(underlined(&text), *tokens, "{name}: {text}");
        assert!(!text.contains("__private") && !text.contains("StaticPassInfo"), "{name}: {text}");
    }
}

/// What the first line of carets underlines in each error of rustc's output.
fn underlined(stderr: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = false;
    let mut source = "";
    for line in stderr.lines() {
        if line.starts_with("error") {
            waiting = true;
        }
        let Some((_, shown)) = line.split_once(" |").or_else(|| line.split_once('|')) else {
            continue;
        };
        match shown.find('^') {
            Some(start) if waiting => {
                let carets: Vec<char> =
                    shown[start..].chars().take_while(|&letter| letter == '^').collect();
                let letters = source.chars().skip(shown[..start].chars().count());
                found.push(letters.take(carets.len()).collect());
                waiting = false;
            }
            _ => source = shown,
        }
    }
    found
}

#[test]
fn wrong_passes_are_told_what_is_wrong() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
    let version = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .arg("--version")
        .output()
        .expect("cargo runs tests where rustc is");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if version.starts_with(&format!("rustc {PINNED}.")) {
        cases.compile_fail("tests/ui/rustc/*.rs");
    } else {
        eprintln!("skipped: the messages of rustc {PINNED} itself; this is {version}");
    }
}
