//! Errors of the attribute macros for wrong passes and instruments, and forms that they accept.
//!
//! Each file of `ui/fail` is named after the mistake that it makes. The compiler's output is
//! compared with the `.stderr` beside it; `TRYBUILD=overwrite` rewrites these. Messages of rustc
//! itself are those of one version, [`PINNED`].

/// The toolchain whose messages the files of [`RUSTC_MISTAKES`] hold.
const PINNED: &str = "1.95";

/// Each file of `ui/fail` with the message of its mistake, and the underlined tokens of its errors.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "module_pass_without_level",
        "Please provide opt_level for the module pass.",
        &["#[module_pass]"],
    ),
    (
        "function_pass_without_level",
        "Please provide opt_level for the function pass.",
        &["#[function_pass(name = \"x\")]"],
    ),
    (
        "level_that_is_no_literal",
        "opt_level must be a non-negative integer literal",
        &["\"2\"", "-1", "2.5", "opt_level"],
    ),
    (
        "unknown_argument",
        "unknown argument `optlevel`, did you mean `opt_level`? expected one of: ",
        &["optlevel", "colour"],
    ),
    ("duplicate_argument", "duplicate argument `opt_level`", &["opt_level"]),
    (
        "required_that_is_no_list",
        "required must be a list of pass names or paths",
        &["\"InferType\"", "[42]", "some"],
    ),
    (
        "name_with_forbidden_characters",
        "pass name may not contain blanks or any of , ( ) { } =",
        &["\"a b\"", "\"x(y)\"", "NAME"],
    ),
    (
        "wrong_number_of_parameters",
        "a module pass takes (IRModule, &PassContext); found 1 parameter",
        &["module: IRModule", "none", "function: Function, _cx: &PassContext"],
    ),
    (
        "module_by_reference",
        "take IRModule by value and return it; passes are module → module",
        &["&mut IRModule"],
    ),
    ("no_result", "must return IRModule or Result<IRModule, E>", &["p"]),
    (
        "async_unsafe_or_extern",
        "a pass function cannot be `async`",
        &["async", "unsafe", "extern \"C\""],
    ),
    (
        "generic_function",
        "a pass function cannot be generic; capture configuration in a struct",
        &["<T>", "impl Into<IRModule>"],
    ),
    (
        "attribute_on_another_item",
        "#[module_pass] can be applied to a function or an inherent impl block (for a struct: put it on the impl that has transform_module)",
        &["struct", "enum", "const", "Default"],
    ),
    (
        "impl_without_the_method",
        "expected fn transform_module(&self, IRModule, &PassContext) in this impl; found transform_function – did you mean #[function_pass]?",
        &["transform_function", "transfrom_function", "&mut self"],
    ),
    (
        "instrument_on_another_item",
        "#[pass_instrument] must be applied to an inherent impl block",
        &["fn", "struct", "PassInstrument"],
    ),
    (
        "unknown_hook",
        "unknown hook `run_befor_pass`, did you mean `run_before_pass`? (`#[not_a_hook]` to silence)",
        &["run_befor_pass", "shouldrun"],
    ),
    ("should_run_without_bool", "should_run must return bool or Result<bool, E>", &["should_run"]),
    (
        "hook_with_mutable_self",
        "hooks take &self: instruments are shared by contexts and threads; use Mutex/atomics",
        &["&mut self", "self", "enter_pass_ctx"],
    ),
    ("pass_that_requires_itself", "pass `MyPass` cannot require itself", &["MyPass", "Self"]),
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

/// Files with messages of rustc itself: a part of the message, and the underlined tokens.
const RUSTC_MISTAKES: &[(&str, &str, &[&str])] = &[
    ("swapped_parameter_types", "mismatched types", &["swapped", "run_before_pass"]),
    (
        "pass_that_is_not_sync",
        "`Rc<u32>` cannot be shared between threads safely",
        &["Counts", "Counts"],
    ),
    ("guard_sent_to_a_thread", "cannot be sent between threads safely", &[" drop(guard)"]),
    (
        "other_results",
        "a module pass must return `IRModule` or a `Result` of it, not `Option<IRModule>`",
        &["Option", "String", "u32"],
    ),
];

#[test]
fn every_mistake_has_its_message_at_its_token() {
    let folder = niello_tests::workspace().join("tests/tests/ui");
    let mut files: Vec<String> = ["fail", "rustc"]
        .into_iter()
        .flat_map(|part| std::fs::read_dir(folder.join(part)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort_unstable();
    let mistakes = || {
        let of_rustc = RUSTC_MISTAKES.iter().map(|mistake| ("rustc", mistake));
        MISTAKES.iter().map(|mistake| ("fail", mistake)).chain(of_rustc)
    };
    let mut expected: Vec<&str> = mistakes().map(|(_, mistake)| mistake.0).collect();
    expected.sort_unstable();
    assert_eq!(files, expected);
    for (part, (name, message, tokens)) in mistakes() {
        let text =
            std::fs::read_to_string(folder.join(part).join(format!("{name}.stderr"))).unwrap();
        assert!(text.contains(message), "{name}: {text}");
        assert_eq!(underlined(&text), *tokens, "{name}: {text}");
        assert!(!text.contains("__private") && !text.contains("StaticPassInfo"), "{name}: {text}");
    }
}

/// The text above the first line of carets of each error in rustc's output.
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
fn wrong_passes_do_not_compile() {
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
