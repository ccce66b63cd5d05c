//! Child processes of `test` and `bench`: their exit is reported, and none is left behind.
//!
//! A script in place of the C compiler crashes or never ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{case, command, doubled, path, stderr, stdout};

/// Enough time for any process of these tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A script in place of the C compiler. Names end in `gcc`, as those of gcc for other systems do.
pub(super) fn compiler(folder: &Path, script: &str) -> PathBuf {
    let file = folder.join("odd-gcc");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// A compiler that writes down its process id and never ends.
fn endless(folder: &Path) -> (PathBuf, PathBuf) {
    let note = folder.join("process");
    let script = format!("echo $$ > {0}.part; mv {0}.part {0}; exec sleep 600", note.display());
    (compiler(folder, &script), note)
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process exists and is no zombie, which may stay uncollected in a container.
fn lives(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state comes after the name, which is in parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

fn signal(name: &str, child: &Child) {
    let kill = format!("kill {name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_signal_and_a_timeout_are_fails_with_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let crash = compiler(folder.path(), "kill -ABRT $PPID; sleep 600");
    let output = command().args(["test", path(&case)]).env("CC", crash).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with("add: fail: killed by signal 6"), "{text}");
    assert_eq!(output.status.code(), Some(1));

    let (cc, note) = endless(folder.path());
    let args = ["test", path(&case), "--timeout", "1"];
    let output = command().args(args).env("CC", &cc).output().unwrap();
    assert_eq!(stdout(&output), "add: fail: timeout after 1 s\n0 passed, 1 failed, 0 skipped\n");
    let process = fs::read_to_string(&note).unwrap();
    wait_for("the end of the compiler", || !lives(process.trim()));

    let model = case.join("model.onnx");
    let args = ["bench", path(&model), "--timeout", "1"];
    let output = command().args(args).env("CC", &cc).output().unwrap();
    assert!(stderr(&output).contains("not done after 1 s"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn cases_of_a_process_that_crashed_are_run_again_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases");
    for name in ["add", "more"] {
        case(&cases, name, "Add", &doubled());
    }
    let test = |script: &str| {
        let cc = compiler(folder.path(), script);
        let args = ["test", path(&cases), "--batch", "2"];
        stdout(&command().args(args).env("CC", cc).output().unwrap())
    };
    let once = folder.path().join("once");
    let crash = "{ kill -ABRT $PPID; sleep 600; }";
    let text = test(&format!("mkdir {} 2>/dev/null && {crash}\nexec cc \"$@\"", once.display()));
    assert_eq!(text, "2 passed, 0 failed, 0 skipped\n");
    assert!(once.exists(), "the process of both cases did not crash");
    let text = test(crash);
    assert_eq!(text.matches("fail: killed by signal 6").count(), 2, "{text}");
}

/// Whether the command is interrupted, terminated or killed: its child processes end with it.
#[test]
fn no_process_and_no_file_is_left_behind() {
    for (name, status) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let case = case(folder.path(), "add", "Add", &doubled());
        let (cc, note) = endless(folder.path());
        let mut child = command()
            .args(["test", path(&case)])
            .env("CC", cc)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the start of the compiler", || note.exists());
        signal(name, &child);
        assert_eq!(child.wait().unwrap().code(), status, "{name}");
        let process = fs::read_to_string(&note).unwrap();
        wait_for("the end of the compiler", || !lives(process.trim()));
        if status.is_some() {
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{name}");
        }
    }
}
