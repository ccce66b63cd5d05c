//! Every numbered case of the specification has a test that carries its number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::pass::tests::cases::Covered::{ByFile, ByTest};

/// What stands for a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Covered {
    /// A test in `compiler/src` whose name begins with `case_`, the number and `_`.
    ByTest,
    /// A file outside: one of the macros' own tests.
    ByFile(&'static str),
}

/// The cases of TVM's infrastructure, section 2.1.
const CASES: &[(u32, Covered)] = &[
    (1, ByTest),
    (2, ByTest),
    (3, ByFile("tests/tests/ui/fail/row_01_level_missing.rs")),
    (4, ByTest),
    (5, ByTest),
    (6, ByTest),
    (7, ByTest),
    (8, ByTest),
    (9, ByTest),
    (11, ByTest),
    (13, ByTest),
    (14, ByTest),
    (15, ByTest),
    (16, ByTest),
    (17, ByTest),
    (18, ByTest),
    (19, ByTest),
    (20, ByTest),
    (21, ByTest),
    (23, ByTest),
    (24, ByTest),
    (25, ByTest),
    (26, ByTest),
    (27, ByTest),
    (28, ByTest),
    (29, ByTest),
    (30, ByTest),
    (32, ByTest),
    (33, ByTest),
    (34, ByTest),
    (35, ByTest),
    (36, ByTest),
    (37, ByTest),
    (38, ByTest),
    (40, ByTest),
    (41, ByTest),
    (42, ByTest),
    (44, ByTest),
    (45, ByTest),
    (46, ByTest),
    (48, ByTest),
    (49, ByTest),
    (50, ByTest),
    (51, ByTest),
    (53, ByTest),
    (54, ByTest),
    (56, ByTest),
    (57, ByTest),
    (58, ByTest),
    (60, ByTest),
    (61, ByTest),
    (63, ByTest),
    (64, ByTest),
    (65, ByTest),
    (66, ByTest),
    (67, ByTest),
    (68, ByTest),
    (69, ByTest),
    (70, ByTest),
    (71, ByTest),
    (72, ByTest),
    (73, ByTest),
    (74, ByTest),
    (75, ByTest),
    (76, ByTest),
    (77, ByTest),
    (78, ByTest),
    (79, ByTest),
];

/// The cases beyond TVM, section 3.5; their tests begin with `case_3_5_`.
const CASES_BEYOND: &[u32] =
    &[1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 14, 15, 16, 18, 19, 21, 22, 23, 24, 25];

/// Names of the tests with a number, and how often each is there, in the files of a folder.
fn tests_in(folder: &Path, found: &mut BTreeMap<String, usize>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines().peekable();
            while let Some(line) = lines.next() {
                let next = lines.peek().map(|line| line.trim()).unwrap_or_default();
                if line.trim() == "#[test]"
                    && let Some(name) = next.strip_prefix("fn case_")
                {
                    let name = name.split('(').next().unwrap_or_default();
                    *found.entry(name.to_owned()).or_default() += 1;
                }
            }
        }
    }
}

#[test]
fn no_case_is_missing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeMap::new();
    tests_in(&root.join("src/pass"), &mut tests);
    let is_there = |prefix: &str| tests.keys().any(|name| name.starts_with(prefix));
    let mut missing: Vec<String> = Vec::new();
    for (number, covered) in CASES {
        let found = match covered {
            ByTest => is_there(&format!("{number}_")) && !is_there_only_beyond(&tests, *number),
            ByFile(path) => root.join("..").join(path).is_file(),
        };
        if !found {
            missing.push(number.to_string());
        }
    }
    for number in CASES_BEYOND {
        if !is_there(&format!("3_5_{number}_")) {
            missing.push(format!("3.5: {number}"));
        }
    }
    assert!(missing.is_empty(), "cases without a test: {}", missing.join(", "));
    for name in tests.keys() {
        let known = match name.strip_prefix("3_5_") {
            Some(rest) => CASES_BEYOND.iter().any(|n| rest.starts_with(&format!("{n}_"))),
            None => CASES.iter().any(|(n, _)| name.starts_with(&format!("{n}_"))),
        };
        assert!(known, "the specification has no case of `case_{name}`");
    }
}

/// Whether all tests that begin with the number 3 are of section 3.5.
fn is_there_only_beyond(tests: &BTreeMap<String, usize>, number: u32) -> bool {
    let prefix = format!("{number}_");
    tests.keys().filter(|name| name.starts_with(&prefix)).all(|name| name.starts_with("3_5_"))
}
