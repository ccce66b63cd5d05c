//! `niello compile`.

use std::fs;

use super::{case, command, doubled, fails, names, niello, path, scores, stderr, succeeds};

#[test]
fn requested_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let out = folder.path().join("out");
    let model = case.join("model.onnx");
    let args = ["compile", path(&model), "-o", path(&out), "--name", "adder"];
    let text =
        succeeds(&[&args[..], &["--emit", "obj,c,graph,tir,header,bindings,shared"]].concat());
    let written = names(&out);
    for suffix in [".o", ".c", "adder.relay", "adder.tir", "adder.h", "adder.rs"] {
        assert!(written.iter().any(|name| name.ends_with(suffix)), "{suffix}: {written:?}");
    }
    assert!(written.iter().any(|name| name.contains("adder") && name.starts_with("lib")));
    assert!(written.iter().all(|name| text.contains(name.as_str())), "{text}");
    assert!(written.iter().all(|name| !name.ends_with(".tmp")), "{written:?}");
    // The graph reads back, and compiles to the same program.
    let graph = out.join("adder.relay");
    succeeds(&["compile", path(&graph), "-o", path(&out), "--emit", "header"]);
}

/// LLVM's texts and objects; or the message on how to get a build with LLVM.
#[test]
fn llvm_is_a_backend_where_it_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let out = folder.path().join("out");
    let model = case.join("model.onnx");
    let args = ["compile", path(&model), "-o", path(&out), "--backend", "llvm", "--emit"];
    if !cfg!(feature = "llvm") {
        let error = fails(&[&args[..], &["obj"]].concat());
        assert!(error.contains("no LLVM backend") && error.contains("llvm-19-dev"), "{error}");
        return;
    }
    // No C compiler is needed, but for the set-up and the linking of a shared library.
    let output = command()
        .args(args)
        .args(["obj,llvm-ir,asm", "--json", "-"])
        .env("CC", "/nonexistent/cc")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    succeeds(&[&args[..], &["shared"]].concat());
    let written = names(&out);
    for suffix in [".o", ".ll", ".s"] {
        assert!(written.iter().any(|name| name.ends_with(suffix)), "{suffix}: {written:?}");
    }
    let error = fails(&[&args[..], &["c"]].concat());
    assert!(error.contains("add --backend c"), "{error}");
    succeeds(&["test", path(&case), "--backend", "llvm"]);
    let error = fails(&["compile", path(&model), "-o", path(&out), "--emit", "llvm-ir"]);
    assert!(error.contains("add --backend llvm"), "{error}");
}

/// Large constants go into a sidecar, without which the graph would lack its weights.
#[test]
fn a_graph_has_its_constants_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/digits/models/digits.onnx");
    let out = folder.path().join("out");
    succeeds(&["compile", digits, "-o", path(&out), "--emit", "graph"]);
    assert_eq!(names(&out), ["digits.relay", "digits.relay.sidecar"]);
    let model = out.join("digits.relay");
    let again = succeeds(&["bench", path(&model), "--seconds", "0"]);
    assert!(again.ends_with("\tinterpreter\n"), "{again}");
}

/// What a rule scheduled has its blocks and steps, what none did its rule alone.
#[test]
fn traces_say_how_kernels_were_scheduled() {
    let folder = tempfile::tempdir().unwrap();
    let nested = |of: String, count: usize| format!("[{}]", vec![of; count].join(", "));
    let weights = [16, 16, 4, 4].into_iter().fold("0.5".to_owned(), nested);
    let model = folder.path().join("small.relay");
    let text = format!(
        "def @main(%x: Tensor[(1, 16, 8, 8), float32]) -> Tensor[(1, 16, 8, 8), float32] {{
          let %y = nn.contrib_conv2d_winograd_without_weight_transform(
              %x, const({weights}, float32), _, padding=[1, 1, 1, 1], tile_size=2);
          nn.softmax(%y, axis=3)
        }}"
    );
    fs::write(&model, text).unwrap();
    let out = folder.path().join("out");
    let cpu = ["--target-cpu", "portable"];
    succeeds(&[&["compile", path(&model), "-o", path(&out), "--emit", "trace"], &cpu[..]].concat());
    let text = fs::read_to_string(out.join("small.trace")).unwrap();
    let is_scheduled = |line: &&str| line.starts_with("# ") && line.contains(": Winograd conv");
    assert_eq!(text.lines().filter(is_scheduled).count(), 1, "{text}");
    assert!(text.lines().any(|line| line.starts_with("# fused_nn_softmax: ")), "{text}");
    assert_eq!(text.matches("block \"products\"").count(), 1, "{text}");
    let levels = text.matches("# for ").count();
    assert!(levels <= 1 || levels == text.matches("= get_block(\"products\")").count(), "{text}");
    assert!(text.contains("vectorize("), "{text}");
}

/// Outputs without machine code need no C compiler.
#[test]
fn texts_are_written_without_a_c_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let out = folder.path().join("out");
    let output = command()
        .args(["compile", path(&model), "-o", path(&out), "--dim", "batch=2"])
        .args(["--emit", "c,graph,tir,header,bindings"])
        .env("CC", "/nonexistent/cc")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(names(&out).contains(&"scores.h".to_owned()));
}

#[test]
fn json_has_the_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let out = folder.path().join("out");
    let args = ["compile", path(&model), "-o", path(&out), "--dim", "batch=2", "--emit", "header"];
    let json = succeeds(&[&args[..], &["--json", "-"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["macs"], 2 * 2 * 3);
    assert!(json["code_bytes"].as_u64().unwrap() > 0, "{json}");
}

/// A compiler that was requested by name is used, or the compilation fails.
#[test]
fn a_missing_c_compiler_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let output = command()
        .args(["compile", path(&case.join("model.onnx")), "-o", path(&folder.path().join("out"))])
        .env("CC", "/nonexistent/cc")
        .output()
        .unwrap();
    let text = stderr(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    let expected = "error: the C compiler that the environment variable CC names cannot be used: /nonexistent/cc (not installed)";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let args = |out| ["compile", path(&model), "-o", out, "--dim", "batch=2", "--emit", "header"];
    let below = file.join("out");
    let error = fails(&args(path(&below)));
    assert!(error.contains("file/out: cannot create the folder: "), "{error}");
    // A folder is in the place of the output file.
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("scores.h")).unwrap();
    let error = fails(&args(path(&out)));
    assert!(error.contains("scores.h: cannot write the file: "), "{error}");
    assert_eq!(names(&out), ["scores.h"]);
}

#[test]
fn unknown_kinds_of_files_are_refused_with_a_list() {
    let output = niello(&["compile", "model.onnx", "-o", "out", "--emit", "obj,elf"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("'elf'") && text.contains("obj, c, "), "{text}");
    let interp = fails(&["compile", "model.onnx", "-o", "out", "--backend", "interp"]);
    assert!(interp.contains("the interpreter makes no code"), "{interp}");
}

/// A second model has the kernel of the first one, though its weights and names are others.
#[test]
fn kernels_are_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let cache = folder.path().join("cache");
    let run = |args: &[&str]| {
        let output = command().args(args).env("NIELLO_CACHE_DIR", &cache).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["cache", "stats"]).ends_with(" holds 0 functions, 0 bytes\n"));
    let model = case.join("model.onnx");
    let compile = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let args = ["compile", path(&model), "-o", path(&out), "--name", name];
        let text = run(&[&args[..], more].concat());
        let files = names(&out).into_iter().map(|file| {
            let bytes = fs::read(out.join(&file)).unwrap();
            (file, bytes)
        });
        (text, files.collect::<Vec<_>>())
    };
    let (text, first) = compile("one", &[]);
    assert!(text.contains("(1 compiled, 0 in the kernel cache)"), "{text}");
    let (text, second) = compile("two", &[]);
    assert!(text.contains("(0 compiled, 1 in the kernel cache)"), "{text}");
    let kernel = |files: &[(String, Vec<u8>)]| {
        files.iter().find(|(name, _)| name.starts_with("niello_kernel_")).unwrap().clone()
    };
    assert_eq!(kernel(&first), kernel(&second));
    // Another processor's kernels are others.
    let (text, _) = compile("three", &["--target-cpu", "baseline", "-O0"]);
    assert!(text.contains("in the kernel cache)"), "{text}");
    let stats = run(&["cache", "stats", "--json", "-"]);
    assert!(stats.contains("\"functions\":") && stats.contains("\"bytes\":"), "{stats}");

    // What is damaged is compiled again.
    let shard =
        |path: &std::path::Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    for file in shard(&cache).flat_map(|folder| shard(&folder).collect::<Vec<_>>()) {
        fs::write(file, "niello kernel 1\nnonsense").unwrap();
    }
    let (text, again) = compile("one", &[]);
    assert!(text.contains("(1 compiled, 0 in the kernel cache)"), "{text}");
    assert_eq!(again, first);

    assert!(run(&["cache", "clear"]).contains("is rid of "));
    assert!(run(&["cache", "stats"]).ends_with(" holds 0 functions, 0 bytes\n"));
    let missing = folder.path().join("missing");
    for action in ["stats", "clear"] {
        let error = fails(&["cache", action, "--dir", path(&missing)]);
        assert_eq!(
            error,
            format!("error: there is no cache {}: it is no folder\n", missing.display())
        );
    }
    let error = fails(&["cache", "stats"]);
    assert!(
        error.contains("NIELLO_CACHE_DIR is not set") && error.contains("--dir DIR"),
        "{error}"
    );
    let mut mistaken = command();
    mistaken
        .args(["cache", "stats"])
        .env("NIELLO_CACHE_DIR", &cache)
        .env("NIELLO_CACHE_SIZE", "lots");
    let error = stderr(&mistaken.output().unwrap());
    assert!(error.contains("NIELLO_CACHE_SIZE is `lots`"), "{error}");
}

#[test]
fn a_model_beyond_its_limits_is_an_error_and_no_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (scores(folder.path()), folder.path().join("out"));
    let args = ["compile", path(&model), "-o", path(&out), "--dim", "batch=2", "--emit", "c"];
    let error = fails(&[&args[..], &["--max-weight-bytes", "1", "--max-macs=1"]].concat());
    assert!(error.contains("`--max-weight-bytes 1` allows no more"), "{error}");
    assert!(error.contains("`--max-macs 1` allows no more"), "{error}");
    assert!(names(&out).is_empty());
}

#[test]
fn the_graph_for_an_executor_and_metadata_are_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let emit = |kinds: &str, more: &[&'static str]| {
        let args = ["compile", path(&model), "-o", path(folder.path()), "--dim", "batch=2"];
        [&args.map(str::to_owned)[..], &["--emit".to_owned(), kinds.to_owned()]]
            .concat()
            .into_iter()
            .chain(more.iter().map(|&arg| arg.to_owned()))
            .collect::<Vec<String>>()
    };
    let all = emit("graph-json,metadata", &["--executor", "graph"]);
    succeeds(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.path().join(name)).unwrap()).unwrap()
    };
    let stem = model.file_stem().unwrap().to_str().unwrap();
    let graph = read(&format!("{stem}.graph.json"));
    assert_eq!(graph["nodes"][0]["name"], "x");
    assert_eq!(graph["heads"].as_array().unwrap().len(), 2);
    let metadata = read(&format!("{stem}.metadata.json"));
    assert_eq!(
        (&metadata["executor"], &metadata["outputs"][1]["name"]),
        (&"graph".into(), &"total".into())
    );
    let alone = emit("graph-json", &[]);
    let error = fails(&alone.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(error.contains("add --executor graph"), "{error}");
}
