//! `niello test`.

use std::fs;

use niello::ir::{Constant, DType};
use niello::onnx::proto::{TensorTypeProto, TypeProto, TypeValue};
use niello::onnx::{ModelBuilder, test_value_to_bytes};
use serde_json::Value;

use super::{
    as_sequence, case, cases, doubled, fails, niello, path, stderr, stdout, succeeds, write,
};

#[test]
fn failing_cases_are_listed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    for backend in ["c", "interp"] {
        let output = niello(&["test", path(folder.path()), "--backend", backend]);
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("unknown: fail: ") && lines[0].contains("NoSuchOperator"));
        // Code is that of a build script, which has several levels on some machines.
        let level = match (backend, std::env::consts::ARCH) {
            ("c", "x86_64") => "at CPU level baseline: ",
            _ => "",
        };
        let wrong = format!("wrong: fail: {level}output 0: 3 of 3 elements differ");
        assert!(lines[1].starts_with(&wrong), "{text}");
        assert_eq!(lines[2], "1 passed, 2 failed, 0 skipped");
        assert_eq!(output.status.code(), Some(1));
        let is_level = |line: &str| line.starts_with("warning: this machine cannot run ");
        assert!(stderr(&output).lines().all(is_level), "no progress without a terminal");
    }
}

#[test]
fn a_single_case_passes_with_status_zero() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let graph = &["--executor", "graph"];
    for (threads, executor) in [("1", &[][..]), ("auto", &["--executor", "aot"]), ("1", graph)] {
        let args = [&["test", path(&case), "-O0", "--threads", threads], executor].concat();
        assert_eq!(succeeds(&args), "1 passed, 0 failed, 0 skipped\n");
    }
}

#[cfg(unix)]
#[test]
fn another_build_runs_the_cases_behind_what_starts_it() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let by = |command: &str| niello(&["test", path(&case), "-O0", "--by", command]);
    let other = format!("env NIELLO_CPU_LEVEL=baseline {}", env!("CARGO_BIN_EXE_niello"));
    assert_eq!(stdout(&by(&other)), "1 passed, 0 failed, 0 skipped\n");
    let missing = stdout(&by("no-such-program niello"));
    assert!(missing.starts_with("add: fail: the test process cannot be run: "), "{missing}");
    // Which CPUs there are says the program that runs the cases, and what else is wrong the one that starts it.
    let cpu =
        |cpu: &str| stdout(&niello(&["test", path(&case), "--target-cpu", cpu, "--by", &other]));
    assert_eq!(cpu("native"), "1 passed, 0 failed, 0 skipped\n");
    let unknown = cpu("z80");
    assert!(unknown.starts_with("add: fail: ") && unknown.contains("z80"), "{unknown}");
    let nothing = fails(&["test", path(&case), "--by", " "]);
    assert!(nothing.contains("--by names no program"), "{nothing}");
}

#[test]
fn code_that_the_machine_cannot_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    assert_eq!(
        succeeds(&["test", path(&case), "--target-cpu", "native"]),
        "1 passed, 0 failed, 0 skipped\n"
    );
    #[cfg(target_arch = "x86_64")]
    {
        let output = niello(&["test", path(&case), "--target-cpu", "x86-64-v4"]);
        if std::is_x86_feature_detected!("avx512vl") {
            assert_eq!(stdout(&output), "1 passed, 0 failed, 0 skipped\n");
        } else {
            let text = stderr(&output);
            assert!(text.contains("this machine cannot run x86-64-v4"), "{text}");
            let model = case.join("model.onnx");
            for command in ["bench", "run"] {
                let text = fails(&[command, path(&model), "--target-cpu", "x86-64-v4"]);
                assert!(text.contains("this machine cannot run x86-64-v4"), "{text}");
            }
        }
    }
}

#[test]
fn json_has_every_case_and_leaves_the_standard_output_alone() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    let file = folder.path().join("result.json");
    for (backend, runs_kernels) in [("c", true), ("interp", false)] {
        let args = ["test", path(folder.path()), "--backend", backend, "--json"];
        let to_file = niello(&[&args[..], &[path(&file)]].concat());
        assert!(stdout(&to_file).ends_with("1 passed, 2 failed, 0 skipped\n"));
        let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            (&json["passed"], &json["failed"], &json["skipped"]),
            (&1.into(), &2.into(), &0.into())
        );
        let cases = json["cases"].as_array().unwrap();
        let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["add", "unknown", "wrong"]);
        assert_eq!(cases[0]["result"], "pass");
        assert_eq!(cases[0]["reason"], "");
        assert_eq!(cases[0]["kernels"].as_u64().unwrap() > 0, runs_kernels);
        assert_eq!(cases[2]["result"], "fail");
        assert!(cases[2]["reason"].as_str().unwrap().contains("elements differ"));

        for to_stdout in ["-", "/dev/stdout"] {
            let output = niello(&[&args[..], &[to_stdout]].concat());
            let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(json["passed"], 1);
            assert!(stderr(&output).ends_with("1 passed, 2 failed, 0 skipped\n"));
        }
    }
}

#[test]
fn cases_that_share_a_process_have_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    let args = ["test", path(folder.path()), "--backend", "interp"];
    let alone = stdout(&niello(&args));
    assert!(alone.ends_with("1 passed, 2 failed, 0 skipped\n"), "{alone}");
    for batch in ["2", "3", "100"] {
        assert_eq!(stdout(&niello(&[&args[..], &["--batch", batch]].concat())), alone);
    }
}

#[test]
fn outputs_are_saved_as_those_of_a_case_whether_they_are_expected_or_not() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    let saved = folder.path().join("saved");
    for backend in ["c", "interp"] {
        let args = ["test", path(folder.path()), "--backend", backend, "--save-outputs"];
        niello(&[&args[..], &[path(&saved)]].concat());
        let output = |name: &str| fs::read(saved.join(name).join("test_data_set_0/output_0.pb"));
        assert_eq!(output("add").unwrap(), test_value_to_bytes(&doubled(), "y").unwrap());
        let squared = Constant::from_f32(&[3], &[1.0, 4.0, 0.25]).unwrap();
        assert_eq!(output("wrong").unwrap(), test_value_to_bytes(&squared, "y").unwrap());
        assert!(output("unknown").is_err());
        fs::remove_dir_all(&saved).unwrap();
    }
}

#[test]
fn a_case_has_tolerances_and_dimensions_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    // Off by one in the last element.
    let off = Constant::from_f32(&[3], &[2.0, -4.0, 2.0]).unwrap();
    case(folder.path(), "off", "Add", &off);
    let wrong = niello(&["test", path(folder.path())]);
    assert!(stdout(&wrong).contains("1 of 3 elements differ, the first at [2]"));
    write(&folder.path().join("index.json"), br#"[{"name": "off", "rtol": 0, "atol": 1.5}]"#);
    assert_eq!(succeeds(&["test", path(folder.path())]), "1 passed, 0 failed, 0 skipped\n");
    write(&folder.path().join("off/dims.json"), br#"{"nothing": 2}"#);
    let pinned = stdout(&niello(&["test", path(folder.path())]));
    assert!(pinned.contains("dimension `nothing` is pinned"), "{pinned}");
    write(&folder.path().join("off/dims.json"), b"{");
    assert!(stdout(&niello(&["test", path(folder.path())])).contains("off: fail: "));
}

#[test]
fn integers_must_be_equal_unless_the_case_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "ints", "Add", &doubled());
    let model = ModelBuilder::new(13)
        .input("x", DType::I64, &[1])
        .node("Add", &["x", "x"], &["y"], &[])
        .output("y", DType::I64, &[1])
        .to_bytes();
    write(&case.join("model.onnx"), &model);
    let number = |value: i64| {
        test_value_to_bytes(&Constant::from_i64(&[1], &[value]).unwrap(), "value").unwrap()
    };
    write(&case.join("test_data_set_0/input_0.pb"), &number(500));
    write(&case.join("test_data_set_0/output_0.pb"), &number(1001));
    let wrong = niello(&["test", path(folder.path()), "--backend", "interp"]);
    assert!(stdout(&wrong).contains("1000, expected 1001"), "{}", stdout(&wrong));
    write(&folder.path().join("index.json"), br#"[{"name": "ints", "atol": 1}]"#);
    let args = ["test", path(folder.path()), "--backend", "interp"];
    assert_eq!(succeeds(&args), "1 passed, 0 failed, 0 skipped\n");
}

#[test]
fn sequences_are_compared_element_by_element() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("sequence");
    let mut model = ModelBuilder::new(13)
        .input("s", DType::F32, &[1])
        .node("Identity", &["s"], &["t"], &[])
        .output("t", DType::F32, &[1])
        .build();
    let graph = model.graph.as_mut().unwrap();
    graph.input.iter_mut().chain(&mut graph.output).for_each(as_sequence);
    let sequence = |numbers: &[f32]| {
        let mut bytes = Vec::new();
        for &number in numbers {
            let constant = Constant::from_f32(&[1], &[number]).unwrap();
            let tensor = test_value_to_bytes(&constant, "value").unwrap();
            // The field `tensor_values`, and how many bytes follow.
            bytes.extend([0x1A, tensor.len() as u8]);
            bytes.extend(tensor);
        }
        bytes
    };
    write(&case.join("model.onnx"), &model.to_bytes());
    write(&case.join("test_data_set_0/input_0.pb"), &sequence(&[1.0, 2.0]));
    let args = ["test", path(&case), "--backend", "interp"];
    for (expected, text) in [
        (&[1.0, 2.0][..], "1 passed, 0 failed, 0 skipped\n"),
        (&[1.0, 3.0], "output 1: 1 of 1 elements differ"),
        (&[1.0], "the model has 2 outputs, but the data set has 1"),
    ] {
        write(&case.join("test_data_set_0/output_0.pb"), &sequence(expected));
        let output = stdout(&niello(&args));
        assert!(output.contains(text), "{output}");
    }
}

/// The declared type decides how a file is read: read as tensors, some maps look damaged.
#[test]
fn maps_and_strings_are_recognised_by_their_declared_types() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let tensor = |elem_type: i32| TypeProto {
        value: Some(TypeValue::Tensor(TensorTypeProto { elem_type: Some(elem_type), shape: None })),
        denotation: None,
    };
    let map = TypeProto { value: Some(TypeValue::Map(Box::default())), denotation: None };
    // 8 is ONNX's number for strings.
    for (ty, expected) in [
        (
            map,
            "add: fail: input 0 is a map, which is not supported\n0 passed, 1 failed, 0 skipped\n",
        ),
        (tensor(8), "add: skip: `x` holds strings\n0 passed, 0 failed, 1 skipped\n"),
    ] {
        let mut model = ModelBuilder::new(13)
            .input("x", DType::F32, &[3])
            .node("Identity", &["x"], &["y"], &[])
            .output("y", DType::F32, &[3])
            .build();
        model.graph.as_mut().unwrap().input[0].r#type = Some(ty);
        write(&case.join("model.onnx"), &model.to_bytes());
        let output = niello(&["test", path(&case)]);
        assert_eq!(stdout(&output), expected);
        // No case that ran has passed.
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_folder_without_cases_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = fails(&["test", path(folder.path())]);
    assert!(empty.contains("neither this folder nor one in it has a file model.onnx"), "{empty}");
    let case = case(folder.path(), "add", "Add", &doubled());
    fs::remove_dir_all(case.join("test_data_set_0")).unwrap();
    let output = stdout(&niello(&["test", path(&case)]));
    assert!(output.starts_with("add: fail: there is no folder test_data_set_0\n"), "{output}");
}
