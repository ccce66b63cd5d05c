//! Mistakes common to all commands, and their messages.

use std::io::Read;
use std::process::Stdio;

use super::{case, command, doubled, fails, niello, path, scores, stderr, stdout, write};

/// Commands that read a model, with their other arguments.
const READERS: [&[&str]; 5] =
    [&["inspect"], &["compile", "-o", "unwritten"], &["opt"], &["run"], &["bench"]];

#[test]
fn files_that_are_no_model_are_named_by_their_kind() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, expected) in [
        ("a.pt", &b"PK\x03\x04...."[..], "PyTorch saves a .pt file, not an ONNX model"),
        ("b.tflite", b"\x1c\0\0\0TFL3....", "a TensorFlow Lite model"),
        (
            "c.onnx",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "run `git lfs pull`",
        ),
        ("d.onnx", b"", "the file is empty"),
        ("e.onnx", b"\x08\x07\x12", "damaged or cut short"),
    ] {
        let file = folder.path().join(name);
        write(&file, bytes);
        for reader in READERS {
            let text = fails(&[reader, &[path(&file)]].concat());
            assert_eq!(text.matches("error: ").count(), 1, "{text}");
            assert!(text.contains(name) && text.contains(expected), "{reader:?}: {text}");
        }
    }
    for reader in READERS {
        let text = fails(&[reader, &["no/such/model.onnx"]].concat());
        assert_eq!(text, "error: no/such/model.onnx: there is no such file\n");
        let text = fails(&[reader, &[path(folder.path())]].concat());
        assert!(text.contains("this is a folder, not an ONNX file"), "{text}");
    }
}

#[test]
fn unknown_operators_dimensions_and_passes_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "unknown", "NoSuchOperator", &doubled());
    let unknown = path(&case.join("model.onnx")).to_owned();
    let text = fails(&["compile", &unknown, "-o", path(folder.path())]);
    assert!(text.contains("NoSuchOperator"), "{text}");

    let model = scores(folder.path());
    let compile = ["compile", path(&model), "-o", path(folder.path()), "--emit", "header"];
    let with = |args: &[&str]| fails(&[&compile[..], args].concat());
    let unpinned = with(&[]);
    assert!(
        unpinned.contains("the size of `batch` is not known; help: pin it: --dim batch=N"),
        "{unpinned}"
    );
    let wrong = with(&["--dim", "bach=2"]);
    assert!(wrong.contains("`bach`") && wrong.contains("it has `batch`"), "{wrong}");
    let twice = with(&["--dim", "batch=2", "--dim", "batch=3"]);
    assert!(twice.contains("dimension `batch` is given twice: batch=2 and batch=3"), "{twice}");
    let pass = with(&["--dim", "batch=2", "--disable-pass", "FoldConstnat"]);
    assert!(pass.contains("FoldConstant"), "{pass}");
    assert!(with(&["--dim", "batch=2", "--target-cpu", "z80"]).contains("z80"));

    let tile = "relay.ApplyWinograd.max_tile=3";
    let tile = fails(&["opt", path(&model), "--dim", "batch=2", "--config", tile]);
    assert!(tile.contains("relay.ApplyWinograd.max_tile is 3; it can be 0, 2 or 4"), "{tile}");
    let arch = niello(&["opt", path(&model), "--dim", "batch=2", "--target", "z80"]);
    assert_eq!(arch.status.code(), Some(2));
    let arch = stderr(&arch);
    assert!(
        arch.contains("`z80` is not an architecture that is known; known are x86_64"),
        "{arch}"
    );
}

/// Errors of the command line itself have status 2, before any file is read.
#[test]
fn malformed_arguments_have_status_two() {
    for args in [
        &["compile", "m.onnx", "-o", "out", "-O9"][..],
        &["bench", "m.onnx", "-O9"],
        &["run", "m.onnx", "-O9"],
        &["test", "cases", "-O9"],
        &["inspect", "m.onnx", "--dim", "batch"],
        &["bench", "m.onnx", "--seconds", "-1"],
        &["test", "cases", "--backend", "fortran"],
        &["test", "cases", "--threads", "0"],
        &["bench", "m.onnx", "--threads", "many"],
        &["test"],
        &["compile", "m.onnx"],
        &["frobnicate"],
        &[],
    ] {
        let output = niello(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(!stderr(&output).contains('\u{1b}'), "no colours without a terminal");
    }
    let level = stderr(&niello(&["compile", "m.onnx", "-o", "out", "-O9"]));
    assert!(level.contains("9 is not in 0..=4"), "{level}");
}

/// A closed pipe, as with `niello passes | head -1`, causes no panic.
#[test]
fn a_broken_pipe_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let case = case(folder.path(), "wrong", "Mul", &doubled());
    for args in [
        &["passes"][..],
        &["help"],
        &["compile", "--help"],
        &["opt", path(&model), "--dim", "batch=2"],
        &["inspect", path(&model)],
        &["test", path(&case)],
    ] {
        let mut child =
            command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let status = child.wait().unwrap();
        assert!(!text.contains("panicked") && status.code() < Some(101), "{args:?}: {text}");
    }
}

#[test]
fn json_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let file = folder.path().join("none/result.json");
    let output = niello(&["inspect", path(&model), "--json", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("none/result.json: cannot write the file"));
}
