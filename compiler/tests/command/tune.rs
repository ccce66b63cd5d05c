//! `niello tune`.

use std::fs;

use super::{fails, path, scores, succeeds, write};

const HEADER: &str = "niello tuned choices, version 1\n";

#[test]
fn choices_are_measured_written_and_taken() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let file = folder.path().join("scores.tuned");
    let tune = |seconds: &str| {
        let args = ["tune", path(&model), "-o", path(&file), "--dim", "batch=64"];
        succeeds(&[&args[..], &["--seconds", seconds]].concat())
    };
    // Out of time at once: the file is there, and the next run goes on.
    let text = tune("0");
    assert!(text.ends_with(&format!("{}\n", path(&file))), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    tune("5");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.starts_with(HEADER), "{written}");
    let entries: Vec<Vec<&str>> =
        written.lines().skip(2).map(|line| line.split(" | ").collect()).collect();
    assert_eq!(entries.len(), 1, "{written}");
    assert!(entries[0][1].starts_with("matmul 1x64x2 by 2x3, float32 x float32, packed"));
    assert!(entries[0][4].parse::<usize>().unwrap() >= 2, "{written}");

    // A choice that was written by hand.
    let chosen = entries[0][..2].join(" | ") + " | panels of 1 vectors, panels outside | 90 | 2";
    let other = "1 bits x 1 | matmul | panels of 9 vectors | 50 | 9";
    write(&file, format!("{HEADER}{chosen}\n{other}\n").as_bytes());
    let out = folder.path().join("out");
    let compile = ["compile", path(&model), "-o", path(&out), "--dim", "batch=64"];
    let text = succeeds(&[&compile[..], &["--tuned", path(&file), "--emit", "tir"]].concat());
    let remark = "1 tuned choices are taken, 1 are for another machine or other work\n";
    assert!(text.contains(remark), "{text}");
}

#[test]
fn mistakes_are_told_and_no_file_is_harmed() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let file = folder.path().join("scores.tuned");
    let tune = |args: &[&str]| {
        let tune = ["tune", path(&model), "-o", path(&file), "--dim", "batch=64"];
        fails(&[&tune[..], args].concat())
    };
    let text = fails(&["tune", "no.onnx", "-o", path(&file)]);
    assert!(text.contains("no.onnx: there is no such file") && !file.exists(), "{text}");
    assert!(tune(&["--backend", "interp"]).contains("the interpreter is not tuned"));
    assert!(tune(&["--disable-pass", "Nope"]).contains("there is no pass `Nope`"));
    assert!(tune(&["--input-shape", "bias=1,3"]).contains("`bias`"));
    assert!(!file.exists(), "what is refused leaves no file");
    let text = tune(&["--executor", "graph"]);
    assert!(text.contains("leave out --executor"), "{text}");
    if cfg!(target_arch = "x86_64") {
        let text = tune(&["--target-cpu", "portable"]);
        assert!(text.contains("one CPU level at a time"), "{text}");
    }
    let text = tune(&["--tuned", "no.tuned"]);
    assert!(text.contains("no.tuned: there is no such file"), "{text}");
    write(&file, HEADER.as_bytes());
    let line = "1 bits x 1 | matmul | rows outside | 50 | 9\n";
    let other = folder.path().join("other.tuned");
    write(&other, format!("{HEADER}{line}").as_bytes());
    assert!(tune(&["--tuned", path(&other)]).contains("leave out --tuned"));
    write(&file, b"some notes\n");
    let text = tune(&[]);
    assert!(text.contains("scores.tuned: the first line is `some notes`"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"some notes\n");
    let text = fails(&["bench", path(&model), "--dim", "batch=2", "--tuned", "no.tuned"]);
    let help = "no.tuned: there is no such file; help: `niello tune MODEL -o FILE` makes a file";
    assert!(text.contains(help), "{text}");
}
