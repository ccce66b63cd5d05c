//! Checks on source files.

use super::code::{names, without_comments_and_literals};
use super::{File, Tree};

/// Most lines of a Rust file, its unit tests not counted. A longer file has more than one topic.
const MOST_LINES: usize = 800;

/// Crates that one folder may name. Everything else goes through what that folder offers.
const CONFINED: [(&str, &str); 2] =
    [("inkwell", "compiler/src/codegen/llvm"), ("prost", "compiler/src/onnx")];

/// Standard collections whose order of iteration is random: outputs have to be byte-identical.
const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];

/// Macros that stand for code that is not there.
const UNFINISHED: [&str; 2] = ["todo", "unimplemented"];

/// Beginnings of paths that exist on one person's machine. Each is in two parts so that this file does not match itself.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/t", "mp/"),
    concat!("C:", "\\"),
];

pub(super) fn check(tree: &Tree, problems: &mut Vec<String>) {
    for (file, text) in tree.texts() {
        machine_paths(file, text, problems);
        match file.extension() {
            "rs" => rust(file, text, problems),
            "py" if !text.starts_with("\"\"\"") => {
                problems.push(format!("{}:1: a script opens with a docstring", file.path));
            }
            _ => {}
        }
    }
}

fn rust(file: &File, text: &str, problems: &mut Vec<String>) {
    let path = &file.path;
    if !text.starts_with("//!") {
        problems.push(format!("{path}:1: a module opens with `//!` and what is in it"));
    }
    if !is_test(file) {
        let lines = lines_without_tests(text);
        if lines > MOST_LINES {
            problems.push(format!("{path}: {lines} lines without tests, at most {MOST_LINES}"));
        }
    }
    let code = without_comments_and_literals(text);
    for (number, line) in (1..).zip(code.lines()) {
        for name in UNORDERED {
            if names(line, name) {
                problems
                    .push(format!("{path}:{number}: {name} has no order; use indexmap or a BTree"));
            }
        }
        for name in UNFINISHED {
            if names(line, name) && line.contains(&format!("{name}!")) {
                problems.push(format!("{path}:{number}: {name}! is no implementation"));
            }
        }
        if line.contains("#[ignore") {
            problems.push(format!("{path}:{number}: a test that is ignored tests nothing"));
        }
        for (name, room) in CONFINED {
            let inside = path.starts_with(room) && path[room.len()..].starts_with(['/', '.']);
            if !inside && names(line, name) {
                problems.push(format!("{path}:{number}: only {room} names {name}"));
            }
        }
    }
}

fn is_test(file: &File) -> bool {
    file.path.starts_with("tests/") || file.path.contains("/tests/") || file.name() == "tests.rs"
}

/// Unit tests end a file, so the lines before them are the file's.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

fn machine_paths(file: &File, text: &str, problems: &mut Vec<String>) {
    for (number, line) in (1..).zip(text.lines()) {
        for start in MACHINE_PATHS {
            // Part of a longer path or address is no machine's root.
            let at_root = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-$}/".contains(c))
            };
            if line.match_indices(start).any(|(at, _)| at_root(at)) {
                problems
                    .push(format!("{}:{number}: `{start}` is a path of one machine", file.path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::problems;

    /// A tree of one good module with `line` in it.
    fn with(path: &str, line: &str) -> Vec<String> {
        problems(&[(path, &format!("//! A module.\n\n{line}\n"))])
    }

    #[test]
    fn a_module_opens_with_what_is_in_it() {
        let found = problems(&[("src/a.rs", "// A module.\n"), ("src/b.rs", "//! A module.\n")]);
        assert_eq!(found, ["src/a.rs:1: a module opens with `//!` and what is in it"]);
        assert_eq!(
            problems(&[("a.py", "import x\n")]),
            ["a.py:1: a script opens with a docstring"]
        );
    }

    #[test]
    fn a_file_is_long_without_its_tests() {
        let body = "//! A module.\n".repeat(800);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// A test.\n".repeat(500));
        assert_eq!(problems(&[("src/a.rs", &format!("{body}{tests}"))]), [""; 0]);
        let found = problems(&[("src/a.rs", &format!("{body}fn more() {{}}\n{tests}"))]);
        assert_eq!(found, ["src/a.rs: 801 lines without tests, at most 800"]);
        assert_eq!(problems(&[("tests/a.rs", &body.repeat(2))]), [""; 0]);
    }

    #[test]
    fn collections_without_order_are_found_in_code_only() {
        let found = with("src/a.rs", "use std::collections::HashMap;");
        assert_eq!(found, ["src/a.rs:3: HashMap has no order; use indexmap or a BTree"]);
        assert_eq!(
            with("src/a.rs", "// no HashMap, \"no HashSet\"\nlet s = \"HashMap\";"),
            [""; 0]
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(
            with("src/a.rs", "fn a() { todo!() }"),
            ["src/a.rs:3: todo! is no implementation"]
        );
        assert_eq!(with("src/a.rs", "#[ignore]\nfn a() {}").len(), 1);
        assert_eq!(with("src/a.rs", "let todo = 1;"), [""; 0]);
    }

    #[test]
    fn crates_stay_in_their_room() {
        let import = "use prost::Message;";
        assert_eq!(with("compiler/src/onnx/proto.rs", import), [""; 0]);
        let found = with("compiler/src/onnx_tools.rs", import);
        assert_eq!(found, ["compiler/src/onnx_tools.rs:3: only compiler/src/onnx names prost"]);
        assert_eq!(with("compiler/src/codegen/mod.rs", "use inkwell::context;").len(), 1);
        assert_eq!(with("compiler/src/codegen/llvm.rs", "use inkwell::context;"), [""; 0]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_text() {
        let start = concat!("/ho", "me/");
        let found = problems(&[("a.toml", &format!("path = \"{start}ann/x\"\n"))]);
        assert_eq!(found, [format!("a.toml:1: `{start}` is a path of one machine")]);
        assert_eq!(problems(&[("a.toml", &format!("url = \"https://x.org{start}\"\n"))]), [""; 0]);
    }
}
