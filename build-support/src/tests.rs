//! Tests of what build-support reads, prints and writes; real builds are in `tests/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use niello::compile::{Model, Passes, Stages};
use niello::diagnostics::{Problem, ProblemNode, Report};
use niello::executor::aot::{SharedWeights, UsedWeights};
use niello::executor::{CompiledModel, ObjectFile, TensorInfo};
use niello::graph::parse_module;
use niello::ir::{Constant, DType, IRModule};
use niello::onnx::ModelBuilder;
use niello::options::CompileOptions;
use niello::pass::instruments::IrStatistics;
use niello::pass::{
    InstrumentRef, ModulePass, PassContext, PassContextBuilder, PassInfo, PassTiming,
};
use niello::samples::formats;
use niello::target::{CpuLevel, Target};
use niello::transform::pipeline::PipelineExtensions;

use crate::cargo::{Directives, Environment};
use crate::last_build::LastBuild;
use crate::quantize::quantised;
use crate::sharing::ForOthers;
use crate::{Artifacts, Calibration, Config, Errors, Method, Quantization, Weights, configure};

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
        states: Vec::new(),
        sizes: Default::default(),
        inputs: vec![TensorInfo {
            name: "image".to_owned(),
            dtype: DType::F32,
            shape: vec![1, 64],
            run_time: Vec::new(),
            dim_names: vec![Some("batch".to_owned()), None],
        }],
        outputs: Vec::new(),
        workspace_bytes: 0,
        scratch_offset: 0,
        scratch_stride: 0,
        threads: 1,
        workers: 1,
        weights: Default::default(),
        constants: Default::default(),
        other_weights: None,
        macs: 0,
        kernels: Default::default(),
        calls: 0,
        external_symbols: Vec::new(),
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
    let compile = |path: &Path, options: &CompileOptions, _: &[InstrumentRef]| {
        compile(path, options).map(|model| (model, Stages::default()))
    };
    let result = config.run(&mut environment, &mut directives, false, compile);
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
        assert_eq!(options.levels, CpuLevel::ALL[1..5]);
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
             cargo::rerun-if-env-changed=NIELLO_CACHE_DIR\n\
             cargo::rerun-if-env-changed=NIELLO_CACHE_SIZE\n\
             cargo::rerun-if-env-changed=NIELLO_DUMP_DIR\n\
             cargo::rerun-if-env-changed=NIELLO_MEMORY_LIMIT\n\
             cargo::rerun-if-env-changed=NIELLO_OPT_LEVEL\n\
             cargo::rerun-if-env-changed=NIELLO_PRINT_AFTER\n\
             cargo::rerun-if-env-changed=NIELLO_STUB\n\
             cargo::rerun-if-env-changed=NIELLO_TARGET_CPU\n\
             cargo::rerun-if-env-changed=NIELLO_TIME_PASSES\n\
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
        assert_eq!(options.dims["n"], 2.into());
        Ok(model(options))
    });
    let artifacts = result.unwrap();
    assert!(artifacts.stub && artifacts.archives.is_empty());
    assert!(!lines.contains("link-search"), "{lines}");
    let bindings = fs::read_to_string(artifacts.bindings).unwrap();
    assert!(bindings.contains("__niello::stub(NAME)") && !bindings.contains("call_model!"));
}

#[test]
fn every_problem_of_the_options_is_reported_before_the_model_is_read() {
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
    use CpuLevel::{Baseline, X86_64V3, X86_64V4, X86_64V4Amx, X86_64V4Vnni};
    let default = configure("levels.onnx");
    check(&default, "sse,sse2", &[Baseline, X86_64V3, X86_64V4, X86_64V4Vnni, X86_64V4Amx]);
    check(&default, v3, &[X86_64V3, X86_64V4, X86_64V4Vnni, X86_64V4Amx]);
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

/// A model with one constant of 64 bytes.
fn weighted(options: &CompileOptions) -> CompiledModel {
    let constants = [([7; 32], 0..64)].into();
    CompiledModel {
        weights: vec![1; 64].into(),
        constants,
        objects: vec![code()],
        ..model(options)
    }
}

fn code() -> ObjectFile {
    let mut object = object::write::Object::new(
        object::BinaryFormat::Elf,
        object::Architecture::X86_64,
        object::Endianness::Little,
    );
    object.section_id(object::write::StandardSection::Text);
    ObjectFile { name: "code.o".to_owned(), bytes: object.write().unwrap() }
}

#[test]
fn a_model_is_handed_the_weights_of_one_that_was_compiled_before() {
    let out = tempfile::tempdir().unwrap();
    let variables = environment(out.path(), &[]);
    let first = configure("first.onnx").name("first");
    run(&first, &variables, |_, options| {
        assert_eq!(options.weights_of, None);
        Ok(weighted(options))
    })
    .0
    .unwrap();
    let second = configure("second.onnx").name("second").weights_of("first");
    let artifacts = run(&second, &variables, |_, options| {
        let other = options.weights_of.as_ref().unwrap();
        assert_eq!(other.symbol, "niello_app_0_1_0_digits_00112233_weights");
        assert_eq!((other.bytes, &other.constants[&[7; 32]]), (64, &(0..64)));
        let other_weights = UsedWeights { symbol: other.symbol.clone(), bytes: 64, used_bytes: 60 };
        let symbol = "niello_app_0_1_0_second_44556677".to_owned();
        Ok(CompiledModel { symbol, other_weights: Some(other_weights), ..model(options) })
    });
    let artifacts = artifacts.0.unwrap();
    assert_eq!((artifacts.weight_bytes, artifacts.shared_weight_bytes), (0, 60));
    let log = fs::read_to_string(artifacts.log).unwrap();
    assert!(log.contains("shared     60 bytes of niello_app_0_1_0_digits_"), "{log}");
    let bindings = fs::read_to_string(artifacts.bindings).unwrap();
    let link = "link_weights! { \"niello_app_0_1_0_digits_00112233_weights\" }";
    assert!(bindings.contains(link), "{bindings}");
}

#[test]
fn weights_that_cannot_be_shared_are_told_with_the_reason() {
    let out = tempfile::tempdir().unwrap();
    let variables = environment(out.path(), &[]);
    let refused = |config: &Config| {
        let compiled = run(config, &variables, |_, _| panic!("the model is compiled all the same"));
        compiled.0.unwrap_err().to_string()
    };
    let second = configure("second.onnx").name("second");
    let text = refused(&second.clone().weights_of("first"));
    let expected = "the weights of the model `first` cannot be shared: no model of that name has been \
                    compiled into ";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("help: compile `first` before"), "{text}");

    let external = configure("x.onnx").name("far").weights(Weights::External("far.bin".into()));
    run(&external, &variables, |_, options| Ok(weighted(options))).0.unwrap();
    let text = refused(&second.clone().weights_of("far"));
    assert!(text.contains("not in the binary but in a file"), "{text}");
    assert!(text.contains("help: compile `far` without `.weights("), "{text}");

    let text = refused(&second.clone().weights_of("frist"));
    assert!(text.contains("help: so far there are: far"), "{text}");
    let text = refused(&external.clone().name("near").weights_of("far"));
    assert!(text.contains("those of this model go into a file"), "{text}");

    let by_hand = configure("x.onnx").name("by-hand");
    let unknown = |options: &CompileOptions| CompiledModel {
        constants: Default::default(),
        ..weighted(options)
    };
    run(&by_hand, &variables, |_, options| Ok(unknown(options))).0.unwrap();
    let text = refused(&second.clone().weights_of("by-hand"));
    assert!(text.contains("was not niello that compiled"), "{text}");

    // A model without weights has nothing to share, and of a stub nothing is linked.
    let bare = configure("x.onnx").name("bare");
    run(&bare, &variables, |_, options| Ok(model(options))).0.unwrap();
    let (result, _) = run(&second.weights_of("bare"), &variables, |_, options| {
        assert_eq!(options.weights_of, None);
        Ok(model(options))
    });
    result.unwrap();
}

#[test]
fn external_weights_are_a_file_of_their_own() {
    let out = tempfile::tempdir().unwrap();
    let config = configure("x.onnx").name("far").weights(Weights::External("far.bin".into()));
    let (result, _) = run(&config, &environment(out.path(), &[]), |_, options| {
        Ok(CompiledModel { weights: vec![1, 2, 3].into(), ..model(options) })
    });
    let artifacts = result.unwrap();
    assert_eq!(artifacts.weights, Some(out.path().join("far.bin")));
    assert_eq!(fs::read(out.path().join("far.bin")).unwrap(), [1, 2, 3]);
    let bindings = fs::read_to_string(artifacts.bindings).unwrap();
    assert!(bindings.contains("pub fn with_weights(") && !bindings.contains("pub fn new("));
}

/// Runs niello's passes and one more on a small module, and takes what comes out for a model.
fn run_passes(
    config: &Config,
    variables: &BTreeMap<String, String>,
    last: fn() -> Result<(), &'static str>,
) -> Result<Artifacts, Errors> {
    let compile = |_: &Path, options: &CompileOptions, instruments: &[InstrumentRef]| {
        let text = "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
              nn.relu(add(%x, add(const([1], f32), const([2], f32))))
            }";
        let watched = |builder: PassContextBuilder, instrument: &InstrumentRef| {
            builder.shared_instrument(instrument.clone())
        };
        let context = instruments.iter().fold(Passes::context(options), watched).build()?;
        let info = PassInfo::new("Last", 0).unwrap();
        let mut extensions = PipelineExtensions::new();
        extensions.at_end(ModulePass::new(info, move |module: IRModule, _: &PassContext| {
            last().map(|()| module)
        }));
        Passes { context, extensions }.run(parse_module(text).unwrap())?;
        Ok((model(options), Stages::default()))
    };
    let mut environment = Environment::new(|name| variables.get(name).cloned());
    config.run(&mut environment, &mut Directives::default(), false, compile)
}

/// The names of the files in a folder that begin with `start`, in order.
fn files(folder: &Path, start: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[test]
fn instruments_leave_files_beside_the_model() {
    let out = tempfile::tempdir().unwrap();
    let dump = out.path().join("dump");
    let user = [
        ("NIELLO_TIME_PASSES", "json"),
        ("NIELLO_PRINT_AFTER", "fold-constant"),
        ("NIELLO_DUMP_DIR", dump.to_str().unwrap()),
    ];
    let config = configure("w.onnx")
        .name("w")
        .instrument(PassTiming::default())
        .instrument(PassTiming::default())
        .instrument(IrStatistics::new());
    run_passes(&config, &environment(out.path(), &user), || Ok(())).unwrap();
    let expected =
        ["w.2.timing.txt", "w.ir-statistics.txt", "w.ir.txt", "w.timing.json", "w.timing.txt"];
    let mut found = files(out.path(), "w.");
    found.retain(|name| expected.contains(&name.as_str()));
    assert_eq!(found, expected);
    let read = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
    assert!(read("w.timing.txt").starts_with("GraphPipeline: "), "{}", read("w.timing.txt"));
    assert!(read("w.ir.txt").starts_with("; *** IR dump after FoldConstant ***\ndef @main"));
    assert!(read("w.ir-statistics.txt").contains("    add 2 -> 1\n"));
    assert!(files(&dump.join("w"), "").contains(&"start.relay".to_owned()));
    assert!(!dump.join("w.reproducer.relay").exists());
}

#[test]
fn instruments_leave_their_files_when_a_pass_fails() {
    let out = tempfile::tempdir().unwrap();
    let dump = out.path().join("dump");
    let user = [("NIELLO_TIME_PASSES", "1"), ("NIELLO_DUMP_DIR", dump.to_str().unwrap())];
    let config = configure("f.onnx").name("f");
    let failed =
        run_passes(&config, &environment(out.path(), &user), || Err("it cannot")).unwrap_err();
    assert!(failed.report.problems[0].to_string().contains("Last: it cannot"), "{failed:?}");
    let timing = fs::read_to_string(out.path().join("f.timing.txt")).unwrap();
    assert!(timing.lines().last().unwrap().ends_with(" failed"), "{timing}");
    let reproducer = fs::read_to_string(dump.join("f.reproducer.relay")).unwrap();
    assert!(reproducer.contains("; pipeline: Last\n"), "{reproducer}");
}

#[test]
fn variables_about_passes_are_checked() {
    let out = tempfile::tempdir().unwrap();
    let dump = out.path().join("dump");
    fs::create_dir_all(dump.join("m")).unwrap();
    fs::write(dump.join("m/mine.txt"), "").unwrap();
    let user = [
        ("NIELLO_TIME_PASSES", "xml"),
        ("NIELLO_PRINT_AFTER", "FoldConstnat,FuseOps"),
        ("NIELLO_DUMP_DIR", dump.to_str().unwrap()),
    ];
    let config = configure("m.onnx").name("m");
    let failed = run_passes(&config, &environment(out.path(), &user), || Ok(())).unwrap_err();
    let told: Vec<String> = failed.report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].contains("NIELLO_TIME_PASSES is `xml`"), "{told:?}");
    assert!(told[1].contains("did you mean `FoldConstant`?"), "{told:?}");
    assert!(told[2].contains("mine.txt` was not written by a dump"), "{told:?}");
    // Empty and 0 ask for nothing.
    let user = [("NIELLO_TIME_PASSES", "0"), ("NIELLO_PRINT_AFTER", ""), ("NIELLO_DUMP_DIR", "")];
    run_passes(&config, &environment(out.path(), &user), || Ok(())).unwrap();
    assert!(files(out.path(), "m.").iter().all(|name| !name.contains("timing")));
}

#[test]
fn the_last_build_stands_as_long_as_nothing_differs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &str| {
        let path = folder.path().join(name);
        fs::write(&path, contents).unwrap();
        path
    };
    let model = file("m.onnx", "model");
    let external = file("m.data", "numbers");
    let artifacts = Artifacts {
        name: "m".to_owned(),
        bindings: file("m.rs", "bindings"),
        archives: vec![file("libm.a", "code"), file("libm_weights.a", "weights")],
        weights: None,
        external_data: vec![external.clone()],
        log: file("m.log", "log"),
        stub: false,
        workspace_bytes: 1,
        weight_bytes: 2,
        code_bytes: 3,
        macs: 4,
        shared_weight_bytes: 5,
        for_others: ForOthers::Weights(SharedWeights {
            symbol: "niello_m_weights".to_owned(),
            bytes: 6,
            constants: Arc::new([([7; 32], 0..4), ([0xab; 32], 64..1 << 40)].into()),
        }),
    };
    let options = CompileOptions { stub: true, ..CompileOptions::new(Target::host()) };
    let build = |config: &Config, options: &CompileOptions| {
        LastBuild::of(config, folder.path(), options).unwrap()
    };
    let config = configure(&model);
    let same = build(&config, &options);
    assert_eq!(same.artifacts(), None);
    same.keep(&artifacts);
    assert_eq!(same.artifacts().as_ref(), Some(&artifacts));

    // What was only touched is the same; the number of jobs makes no difference.
    let touched = fs::File::options().write(true).open(&model).unwrap();
    touched.set_modified(std::time::UNIX_EPOCH).unwrap();
    let busy = CompileOptions { jobs: 7, ..options.clone() };
    assert_eq!(build(&config, &busy).artifacts().as_ref(), Some(&artifacts));

    let opt_level = CompileOptions { opt_level: 1, ..options.clone() };
    assert_eq!(build(&config, &opt_level).artifacts(), None);
    let apart = configure(&model).weights(Weights::External("w".into()));
    assert_eq!(build(&apart, &options).artifacts(), None);
    for symbol in ["niello_other_00_weights", "niello_other_11_weights"] {
        let constants = Arc::default();
        let other = SharedWeights { symbol: symbol.to_owned(), bytes: 64, constants };
        let sharing = CompileOptions { weights_of: Some(other), ..options.clone() };
        assert_eq!(build(&config, &sharing).artifacts(), None);
        build(&config, &sharing).keep(&artifacts);
    }
    same.keep(&artifacts);
    for path in [&model, &external, &artifacts.bindings, &artifacts.archives[1], &artifacts.log] {
        let contents = fs::read(path).unwrap();
        let mut other = contents.clone();
        other[0] ^= 1;
        fs::write(path, other).unwrap();
        assert_eq!(build(&config, &options).artifacts(), None, "{}", path.display());
        fs::remove_file(path).unwrap();
        let without = LastBuild::of(&config, folder.path(), &options);
        assert_eq!(without.and_then(|build| build.artifacts()), None, "{}", path.display());
        fs::write(path, contents).unwrap();
        same.keep(&artifacts);
        assert_eq!(build(&config, &options).artifacts().as_ref(), Some(&artifacts));
    }

    let record = folder.path().join("m.niello-build");
    let text = fs::read_to_string(&record).unwrap();
    for end in 0..text.len() {
        fs::write(&record, &text[..end]).unwrap();
        // Nothing depends on the last line's break.
        assert!(same.artifacts().is_none() || end + 1 == text.len());
    }
}

/// A folder with a model that multiplies by a matrix, and another one with a sample of its input.
fn with_samples() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let f32s = |dims: &[i64], values: &[f32]| Constant::from_f32(dims, values).unwrap();
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 2])
        .initializer("w", &f32s(&[2, 2], &[1.0, -0.5, 0.25, 2.0]))
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[1, 2]);
    fs::write(folder.path().join("m.onnx"), model.to_bytes()).unwrap();
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).unwrap();
    formats::write(&samples.join("x.npy"), &[("x", &f32s(&[1, 2], &[1.0, -1.0]))]).unwrap();
    folder
}

#[test]
fn a_model_is_quantised_by_its_samples_on_the_way() {
    let folder = with_samples();
    let model = || Model::read(&folder.path().join("m.onnx")).unwrap();
    let how = Quantization::new(Method::Static).samples(folder.path().join("samples"));
    let options = CompileOptions::new(Target::host());
    let (quantized, external) = quantised(model(), &how, &options).unwrap();
    let graph = quantized.as_onnx().unwrap().proto.graph.as_ref().unwrap();
    let ops: Vec<_> = graph.node.iter().map(|node| node.op_type()).collect();
    assert_eq!(ops, ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "MatMul"]);
    assert_eq!((quantized.stem.as_str(), external.len()), ("m", 0));

    let error = |how: &Quantization| quantised(model(), how, &options).unwrap_err().to_string();
    let none = error(&Quantization::new(Method::Static));
    assert!(none.contains("from sample inputs, and none are given"), "{none}");
    let percentile = Calibration::Percentile(0.0);
    let none = error(&how.clone().calibration(percentile));
    assert!(none.starts_with("the percentile is 0"), "{none}");
    let skipped = error(&how.skip("MatMul"));
    assert!(skipped.starts_with("there is nothing to quantise"), "{skipped}");
}

#[test]
fn samples_are_watched_and_decide_whether_the_last_build_stands() {
    let folder = with_samples();
    let (path, samples) = (folder.path().join("m.onnx"), folder.path().join("samples"));
    let out = folder.path().join("out");
    let config =
        configure(&path).quantize(Quantization::new(Method::Static).samples(samples.clone()));
    let (result, lines) = run(&config, &environment(&out, &[]), |_, o| Ok(model(o)));
    let artifacts = result.unwrap();
    let watched = format!("cargo::rerun-if-changed={}\n", samples.display());
    assert!(lines.contains(&watched), "{lines}");

    let options = CompileOptions::new(Target::host());
    let build = |config: &Config| LastBuild::of(config, &out, &options).unwrap();
    build(&config).keep(&artifacts);
    assert!(build(&config).artifacts().is_some());
    assert!(build(&configure(&path)).artifacts().is_none());
    let symmetric = Quantization::new(Method::Static).samples(samples.clone()).symmetric(true);
    assert!(build(&configure(&path).quantize(symmetric)).artifacts().is_none());
    let other = Constant::from_f32(&[1, 2], &[0.5, -1.0]).unwrap();
    formats::write(&samples.join("x.npy"), &[("x", &other)]).unwrap();
    assert!(build(&config).artifacts().is_none());
    build(&config).keep(&artifacts);
    formats::write(&samples.join("y.npy"), &[("x", &other)]).unwrap();
    assert!(build(&config).artifacts().is_none());
}

#[test]
fn tuned_choices_are_read_and_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("m.onnx"), folder.path().join("out"));
    fs::write(&path, "model").unwrap();
    let file = folder.path().join("m.tuned");
    let config = configure(&path).tuned(&file);
    let (result, _) = run(&config, &environment(&out, &[]), |_, o| Ok(model(o)));
    let text = result.unwrap_err().to_string();
    assert!(text.contains("m.tuned") && text.contains("`niello tune MODEL -o FILE`"), "{text}");
    let choice = "512 bits x 32 | matmul | rows outside | 90 | 4";
    fs::write(&file, format!("niello tuned choices, version 1\n{choice}\n")).unwrap();
    let (result, lines) = run(&config, &environment(&out, &[]), |_, options| {
        assert_eq!(options.tuned.choices().count(), 1);
        Ok(model(options))
    });
    let log = fs::read_to_string(result.unwrap().log).unwrap();
    let remark = "tuned      0 tuned choices are taken, 1 are for another machine or other work\n";
    assert!(log.contains(remark), "{log}");
    assert!(lines.contains(&format!("cargo::rerun-if-changed={}\n", file.display())), "{lines}");
}
