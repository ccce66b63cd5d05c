//! Tests of what build-support reads, prints and writes; real builds are in `tests/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use niello::compile::Stages;
use niello::diagnostics::{Problem, ProblemNode, Report};
use niello::executor::{CompiledModel, TensorInfo};
use niello::ir::DType;
use niello::options::CompileOptions;
use niello::target::{CpuLevel, Target};

use crate::cargo::{Directives, Environment};
use crate::{Artifacts, Config, Errors, Weights, configure};

/// A build script's environment for a 64-bit Linux machine, with some variables of the user's.
fn environment(out_dir: &Path, user: &[(&str, &str)]) -> BTreeMap<String, String> {
    let cargo = [
        ("OUT_DIR", out_dir.to_str().unwrap()),
        ("TARGET", "x86_64-unknown-linux-gnu"),
        ("CARGO_CFG_TARGET_ARCH", "x86_64"),
        ("CARGO_CFG_TARGET_OS", "linux"),
        ("CARGO_CFG_TARGET_POINTER_WIDTH", "64"),
        ("CARGO_CFG_TARGET_ENDIAN", "little"),
        ("CARGO_CFG_TARGET_FEATURE", "fxsr,sse,sse2"),
        ("CARGO_PKG_NAME", "app"),
        ("CARGO_PKG_VERSION", "0.1.0"),
        ("NUM_JOBS", "3"),
    ];
    cargo.iter().chain(user).map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// A model without kernels or weights, as a compiler would leave it.
fn model(options: &CompileOptions) -> CompiledModel {
    CompiledModel {
        name: options.name.clone().unwrap_or_else(|| "digits".to_owned()),
        symbol: "niello_app_0_1_0_digits_00112233".to_owned(),
        inputs: vec![TensorInfo {
            name: "image".to_owned(),
            dtype: DType::F32,
            shape: vec![1, 64],
            dim_names: vec![Some("batch".to_owned()), None],
        }],
        outputs: Vec::new(),
        workspace_bytes: 0,
        scratch_offset: 0,
        scratch_stride: 0,
        weights: Vec::new(),
        macs: 0,
        levels: options.targets().iter().map(Target::cpu_level).collect(),
        digest: [0; 32],
        metadata: Vec::new(),
        external_data: Vec::new(),
        objects: Vec::new(),
    }
}

fn run(
    config: &Config,
    variables: &BTreeMap<String, String>,
    compile: impl FnOnce(&Path, &CompileOptions) -> Result<CompiledModel, Report>,
) -> (Result<Artifacts, Errors>, String) {
    let mut environment = Environment::new(|name| variables.get(name).cloned());
    let mut directives = Directives::default();
    let compile = |path: &Path, options: &CompileOptions| {
        compile(path, options).map(|model| (model, Stages::default()))
    };
    let result = config.run(&mut environment, &mut directives, compile);
    (result, directives.text())
}

#[test]
fn cargo_is_told_what_to_watch_and_where_to_search() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let path = folder.path().join("digits.onnx");
    fs::write(&path, "model").unwrap();
    let data = folder.path().join("digits.data");
    fs::write(&data, "constants").unwrap();
    let (result, lines) = run(&configure(&path), &environment(&out, &[]), |_, options| {
        assert_eq!((options.package.as_str(), options.version.as_str()), ("app", "0.1.0"));
        assert_eq!((options.jobs, options.opt_level, options.stub), (3, 3, false));
        assert_eq!(options.target.triple, "x86_64-unknown-linux-gnu");
        assert_eq!(options.levels, [CpuLevel::X86_64V3, CpuLevel::X86_64V4]);
        Ok(CompiledModel { external_data: vec![data.clone()], ..model(options) })
    });
    let artifacts = result.unwrap();
    let (path, data, out) = (path.display(), data.display(), out.display());
    let host = Target::host().triple == "x86_64-unknown-linux-gnu";
    let role = if host { "HOST_CC" } else { "TARGET_CC" };
    assert_eq!(
        lines,
        format!(
            "cargo::rerun-if-changed={path}\n\
             cargo::rerun-if-changed={data}\n\
             cargo::rerun-if-env-changed=CC\n\
             cargo::rerun-if-env-changed=CC_x86_64-unknown-linux-gnu\n\
             cargo::rerun-if-env-changed=CC_x86_64_unknown_linux_gnu\n\
             cargo::rerun-if-env-changed=DOCS_RS\n\
             cargo::rerun-if-env-changed={role}\n\
             cargo::rerun-if-env-changed=NIELLO_BACKEND\n\
             cargo::rerun-if-env-changed=NIELLO_OPT_LEVEL\n\
             cargo::rerun-if-env-changed=NIELLO_STUB\n\
             cargo::rerun-if-env-changed=NIELLO_TARGET_CPU\n\
             cargo::rustc-link-search=native={out}\n"
        )
    );
    let log = fs::read_to_string(artifacts.log).unwrap();
    assert!(log.contains("input      \"image\": float32 [1, 64]"), "{log}");
    assert!(artifacts.bindings.ends_with("digits.rs") && artifacts.archives.len() == 1);
}

#[test]
fn without_rerun_only_the_search_path_is_printed() {
    let out = tempfile::tempdir().unwrap();
    let config = configure("quiet.onnx").name("quiet").emit_rerun(false);
    let (_, lines) = run(&config, &environment(out.path(), &[]), |_, options| Ok(model(options)));
    assert_eq!(lines, format!("cargo::rustc-link-search=native={}\n", out.path().display()));
}

#[test]
fn variables_win_over_the_build_script() {
    let out = tempfile::tempdir().unwrap();
    let user =
        [("NIELLO_OPT_LEVEL", "1"), ("NIELLO_TARGET_CPU", "x86-64-v3"), ("NIELLO_STUB", "1")];
    let config = configure("v.onnx").name("v").opt_level(4).target_cpu("x86-64-v4").dim("n", 2);
    let (result, lines) = run(&config, &environment(out.path(), &user), |_, options| {
        assert_eq!((options.opt_level, options.stub), (1, true));
        assert_eq!(options.target.cpu.as_deref(), Some("x86-64-v3"));
        assert!(options.target.has_feature("avx2") && !options.target.has_feature("avx512f"));
        assert_eq!(options.targets().len(), 1, "a CPU by its name is the only one");
        assert_eq!(options.dims["n"], 2);
        Ok(model(options))
    });
    let artifacts = result.unwrap();
    assert!(artifacts.stub && artifacts.archives.is_empty());
    assert!(!lines.contains("link-search"), "{lines}");
    let bindings = fs::read_to_string(artifacts.bindings).unwrap();
    assert!(bindings.contains("__niello::stub(NAME)") && !bindings.contains("#[link"));
}

#[test]
fn every_problem_of_the_options_is_told_before_the_model_is_read() {
    let out = tempfile::tempdir().unwrap();
    let user = [
        ("NIELLO_BACKEND", "cuda"),
        ("NIELLO_OPT_LEVEL", "9"),
        ("NIELLO_STUB", "maybe"),
        ("NIELLO_TARGET_CPU", "z80"),
    ];
    let (result, _) = run(&configure("x.onnx"), &environment(out.path(), &user), |_, _| {
        panic!("the model is compiled in spite of the problems")
    });
    let text = result.unwrap_err().to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
    for word in ["`cuda`", "`9`", "`maybe`", "`z80`"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn problems_are_one_cargo_error_each_and_whole_in_the_log() {
    let out = tempfile::tempdir().unwrap();
    let config = configure("models/bad.onnx");
    let (result, lines) = run(&config, &environment(out.path(), &[]), |_, _| {
        let node = ProblemNode { name: "conv\n1".into(), op: "Conv".into(), ..Default::default() };
        let mut report = Report::new();
        report.push(Problem::new("kernel is [3]\nstride is [0]").at(node).help("use a stride"));
        report.push(Problem::new("second"));
        Err(report)
    });
    assert_eq!(lines, "");
    let errors = result.unwrap_err();
    let (text, status) = errors.last_words();
    assert_eq!(status, 0);
    assert_eq!(
        text,
        "cargo::error=models/bad.onnx: node `conv; 1` (Conv): kernel is [3]; stride is [0]; help: use a stride\n\
         cargo::error=models/bad.onnx: second\n"
    );
    assert_eq!(errors.log(), Some(out.path().join("bad.log").as_path()));
    let log = fs::read_to_string(errors.log().unwrap()).unwrap();
    assert!(log.contains("  kernel is [3]\n  stride is [0]\n  help: use a stride\n"), "{log}");
    assert!(log.contains("problem 2 of 2"), "{log}");
}

#[test]
fn levels_are_chosen_by_name_and_start_at_what_cargo_allows() {
    let check = |config: &Config, features: &str, expected: &[CpuLevel]| {
        let out = tempfile::tempdir().unwrap();
        let mut variables = environment(out.path(), &[]);
        variables.insert("CARGO_CFG_TARGET_FEATURE".to_owned(), features.to_owned());
        let (result, _) = run(config, &variables, |_, options| {
            let levels: Vec<CpuLevel> = options.targets().iter().map(Target::cpu_level).collect();
            assert_eq!(levels, expected);
            Ok(model(options))
        });
        result.unwrap();
    };
    let v3 =
        "sse,sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,xsave";
    use CpuLevel::{Baseline, X86_64V3, X86_64V4};
    let default = configure("levels.onnx");
    check(&default, "sse,sse2", &[Baseline, X86_64V3, X86_64V4]);
    check(&default, v3, &[X86_64V3, X86_64V4]);
    check(&default, "", &[Baseline]);
    let one = configure("levels.onnx").cpu_levels(["avx512"]);
    check(&one, "sse,sse2", &[Baseline, X86_64V4]);
    check(&one.clone().target_cpu("haswell"), "sse,sse2", &[X86_64V3, X86_64V4]);
    check(&configure("levels.onnx").cpu_levels(["baseline"]), "sse,sse2", &[Baseline]);

    let out = tempfile::tempdir().unwrap();
    let wrong = configure("wrong.onnx").cpu_levels(["sse9"]);
    let (result, _) = run(&wrong, &environment(out.path(), &[]), |_, _| panic!("not compiled"));
    let text = result.unwrap_err().to_string();
    assert!(text.contains("`sse9` is not a CPU level"), "{text}");
}

#[test]
fn outside_a_build_script_there_must_be_a_folder_and_errors_have_a_status() {
    let variables = BTreeMap::new();
    let (result, _) = run(&configure("x.onnx"), &variables, |_, _| panic!("there is no folder"));
    let (text, status) = result.unwrap_err().last_words();
    assert_eq!(status, 1);
    assert!(text.contains(".out_dir(folder)") && !text.contains("cargo::"), "{text}");

    let out = tempfile::tempdir().unwrap();
    let (result, _) = run(&configure("x.onnx").out_dir(out.path()), &variables, |_, options| {
        assert_eq!(options.target, Target::host());
        Ok(model(options))
    });
    assert!(result.unwrap().bindings.starts_with(out.path()));
}

#[test]
fn two_models_of_one_name_are_refused() {
    let out = tempfile::tempdir().unwrap();
    let variables = environment(out.path(), &[]);
    let compile = |path: &str| run(&configure(path), &variables, |_, o| Ok(model(o))).0;
    compile("a/digits.onnx").unwrap();
    let text = compile("b/digits.onnx").unwrap_err().to_string();
    assert!(text.contains("`a/digits.onnx`") && text.contains(".name("), "{text}");
}

#[test]
fn external_weights_are_a_file_of_their_own() {
    let out = tempfile::tempdir().unwrap();
    let config = configure("x.onnx").name("far").weights(Weights::External("far.bin".into()));
    let (result, _) = run(&config, &environment(out.path(), &[]), |_, options| {
        Ok(CompiledModel { weights: vec![1, 2, 3], ..model(options) })
    });
    let artifacts = result.unwrap();
    assert_eq!(artifacts.weights, Some(out.path().join("far.bin")));
    assert_eq!(fs::read(out.path().join("far.bin")).unwrap(), [1, 2, 3]);
    let bindings = fs::read_to_string(artifacts.bindings).unwrap();
    assert!(bindings.contains("pub fn with_weights(") && !bindings.contains("pub fn new("));
}
