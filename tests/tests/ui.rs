//! What the attribute macros say to wrong passes, and which forms they take.
//!
//! Each file of `ui/fail` is named after the row of the specification that it tests. What the
//! compiler prints is compared with the `.stderr` beside it; `TRYBUILD=overwrite` rewrites those.

/// The message of each row, as the specification has it, and the number of mistakes in its file.
const ROWS: &[(&str, &str, usize)] = &[
    ("row_01_level_missing", "Please provide opt_level for the module pass.", 1),
    ("row_02_level_missing_function", "Please provide opt_level for the function pass.", 1),
    ("row_03_level", "opt_level must be a non-negative integer literal", 4),
    ("row_04_unknown_argument", "unknown argument `optlevel`, did you mean `opt_level`?", 2),
    ("row_05_duplicate_argument", "duplicate argument `opt_level`", 1),
    ("row_06_required", "required must be a list of pass names or paths", 3),
    ("row_07_name", "pass name may not contain blanks or any of , ( ) { } =", 3),
    ("row_08_arity", "a module pass takes (IRModule, &PassContext); found 1 parameter", 3),
    ("row_09_by_value", "take IRModule by value and return it; passes are module → module", 1),
    ("row_11_no_result", "must return IRModule or Result<IRModule, E>", 1),
    ("row_12_qualifiers", "a pass function cannot be `async`", 3),
    ("row_13_generic", "a pass function cannot be generic; capture configuration in a struct", 2),
    (
        "row_14_item",
        "#[module_pass] can be applied to a function or an inherent impl block (for a struct: put it on the impl that has transform_module)",
        4,
    ),
    (
        "row_15_method",
        "expected fn transform_module(&self, IRModule, &PassContext) in this impl; found transform_function – did you mean #[function_pass]?",
        3,
    ),
    ("row_21_itself", "pass `MyPass` cannot require itself", 2),
    ("three_mistakes", "a pass function cannot be `async`", 3),
];

#[test]
fn every_row_has_its_message_once_a_mistake() {
    let folder = niello_tests::workspace().join("tests/tests/ui/fail");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            files += 1;
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(ROWS.iter().any(|(name, ..)| *name == stem), "{stem} is in no row");
        }
    }
    assert_eq!(files, ROWS.len());
    for (name, message, mistakes) in ROWS {
        let text = std::fs::read_to_string(folder.join(format!("{name}.stderr"))).unwrap();
        assert!(text.contains(message), "{name}: {text}");
        let errors = text.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, *mistakes, "{name}: {text}");
        assert!(!text.contains("__private") && !text.contains("StaticPassInfo"), "{name}: {text}");
    }
}

#[test]
fn wrong_passes_are_told_what_is_wrong() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
