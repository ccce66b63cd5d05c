//! Runs the filetests, and tests that mistakes in a filetest are reported.

use std::fs;

use niello_tests::filetest::{Verdict, run, run_folder};
use niello_tests::workspace;

/// `BLESS=1` rewrites expectations; `FILETEST=name` runs the files whose path contains the name.
#[test]
fn filetests() {
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let filter = std::env::var("FILETEST").ok();
    let outcome = run_folder(&workspace().join("tests/filetests"), bless, filter.as_deref());
    assert!(
        outcome.failures.is_empty(),
        "{} of {} filetests failed:\n\n{}",
        outcome.failures.len(),
        outcome.files,
        outcome.failures.join("\n")
    );
    assert!(outcome.files > 0, "there are no filetests of that name");
}

const TEXT: &str =
    "\ndef @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {\n  nn.relu(%x)\n}\n";

fn error(contents: &str) -> String {
    match run(contents) {
        Ok(Verdict::Pass) => panic!("this passes:\n{contents}"),
        Ok(Verdict::Expected { blessed: _, difference }) => difference,
        Err(error) => error,
    }
}

#[test]
fn malformed_files_fail() {
    for (contents, expected) in [
        ("".to_owned(), "there is no text"),
        ("; test: roundtrip\n".to_owned(), "there is no text"),
        (TEXT.to_owned(), "neither `; test:` nor `; run:`"),
        (format!("; nonsense\n{TEXT}"), "must be `; key: value`"),
        (format!("; test: rountrip\n{TEXT}"), "there is no test `rountrip`"),
        (format!("; test: roundtrip\n; colour: red\n{TEXT}"), "`; colour:` is not known"),
        (format!("; test: roundtrip\n; args: \n{TEXT}"), "`; args:` is not known, or not for this"),
        (format!("; test: print\n; test: verify\n{TEXT}"), "`; test:` occurs 2 times"),
        (format!("; test: print\n; run: infer-type\n{TEXT}"), "both `; test:` and `; run:`"),
        (format!("; test: roundtrip\n{TEXT}\n; stray\n"), "the test expects nothing"),
        (format!("; test: print\n{TEXT}"), "nothing is expected"),
        (format!("; test: print\n{TEXT}\n; a\n\n; b\n"), "one block of comment lines"),
        (format!("; test: interp\n{TEXT}"), "there is no `; args:` line"),
        (format!("; run: no-such-pass\n{TEXT}\n; x\n"), "no-such-pass"),
    ] {
        let error = error(&contents);
        assert!(error.contains(expected), "{contents}\n{error}");
    }
}

#[test]
fn errors_must_be_announced_and_announced_errors_must_be_there() {
    let text = |line: &str| format!("; test: verify\n{}", TEXT.replace("  nn.relu(%x)", line));
    assert_eq!(run(&text("  nn.relu(%x)")), Ok(Verdict::Pass));
    assert_eq!(run(&text("  nn.rellu(%x) ; error: no operator `nn.rellu`")), Ok(Verdict::Pass));
    let both = error(&text("  nn.relu(%y) ; error: no operator"));
    assert!(both.contains("line 4: there is no error `no operator`"), "{both}");
    assert!(both.contains("line 4: unexpected error: `%y` is not defined here"), "{both}");
}

#[test]
fn blessing_writes_the_expectation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.relay");
    fs::write(&path, format!("; test: print\n{TEXT}\n; wrong\n")).unwrap();
    fs::write(folder.path().join("notes.txt"), "").unwrap();
    let outcome = run_folder(folder.path(), false, None);
    assert_eq!((outcome.files, outcome.failures.len()), (2, 2));
    assert!(outcome.failures[0].contains("- wrong"), "{:?}", outcome.failures);
    assert!(outcome.failures[1].contains("notes.txt: not a filetest"), "{:?}", outcome.failures);
    assert_eq!(run_folder(folder.path(), true, Some("a.relay")).failures.len(), 0);
    let blessed = fs::read_to_string(&path).unwrap();
    assert!(blessed.ends_with("}\n\n; def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {\n;   nn.relu(%x)\n; }\n"), "{blessed}");
    assert_eq!(run(&blessed), Ok(Verdict::Pass));
}
