//! Whole compilations and runs of models, compared with handwritten values and the interpreter.

#[cfg(feature = "llvm")]
mod aarch64;
mod control_flow;
mod counted;
mod external;
mod graph_executor;
mod growing;
mod in_place;
mod layouts;
mod lowering;
mod parts;
mod quantised;
mod run_time;
mod states;
mod statistics;
mod tuned;

use super::*;
use crate::codegen::CodegenError;
use crate::diagnostics::Problem;
use crate::executor::aot::Listing;
use crate::executor::{LoadedModel, write_shared_library};
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};
use crate::onnx::{ModelBuilder, ModelDim, ModelFile};
use crate::options::{Backend, Budget};
use crate::pass::PassContext;
use crate::target::LEVELS_FOR_BYTES;
use crate::target::{CpuLevel, Target};

fn options() -> CompileOptions {
    let mut options = CompileOptions::new(Target::host());
    options.package = "app".to_owned();
    options.version = "1.2.3".to_owned();
    options.jobs = 2;
    options
}

/// `y = relu(x · w + b)` with a symbolic batch.
fn dense() -> Model {
    let weight = Constant::from_f32(&[3, 2], &[1.0, -1.0, 2.0, 0.5, 0.0, 3.0]).unwrap();
    let bias = Constant::from_f32(&[2], &[0.5, -10.0]).unwrap();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(3)])
        .initializer("w", &weight)
        .initializer("b", &bias)
        .node("MatMul", &["x", "w"], &["xw"], &[])
        .node("Add", &["xw", "b"], &["sum"], &[])
        .node("Relu", &["sum"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(2)])
        .build();
    Model::from_onnx("dense", ModelFile { proto, folder: None, store: None })
}

fn run(model: &Model, options: &CompileOptions) -> Result<Compilation, Report> {
    compile(model, options, &Passes::new(options)?)
}

/// Loads a model for this machine in every possible way.
fn load(model: &CompiledModel, options: &CompileOptions) -> Vec<LoadedModel> {
    vec![
        load_library(model, options),
        #[cfg(feature = "llvm")]
        LoadedModel::jit(model).unwrap(),
    ]
}

fn load_library(model: &CompiledModel, options: &CompileOptions) -> LoadedModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.so");
    write_shared_library(model, &options.target, &path).unwrap();
    LoadedModel::load(model, &path).unwrap()
}

/// Loads a model for this machine in the way that takes least time.
#[cfg(feature = "llvm")]
fn load_one(model: &CompiledModel, _: &CompileOptions) -> LoadedModel {
    LoadedModel::jit(model).unwrap()
}

#[cfg(not(feature = "llvm"))]
use load_library as load_one;

fn pinned(batch: u64) -> CompileOptions {
    CompileOptions { dims: [("batch".to_owned(), batch.into())].into(), ..options() }
}

#[test]
fn a_model_runs_as_native_code() {
    for (opt_level, &backend) in
        [0, 3].into_iter().flat_map(|l| Backend::ALL.iter().map(move |b| (l, b)))
    {
        let options = CompileOptions { opt_level, backend, ..pinned(2) };
        let compilation = run(&dense(), &options).unwrap();
        let model = &compilation.model;
        assert_eq!(model.macs, 12);
        assert!(model.symbol.starts_with("niello_app_1_2_3_dense_"), "{}", model.symbol);
        for loaded in load(model, &options) {
            let x = Constant::from_f32(&[2, 3], &[1.0, 2.0, 3.0, -1.0, 0.0, 5.0]).unwrap();
            // 1+4+0+0.5, -1+1+9-10; -1+0+0+0.5, 1+0+15-10
            let expected = Constant::from_f32(&[2, 2], &[5.5, 0.0, 0.0, 6.0]).unwrap();
            assert_eq!(loaded.run(&[x]).unwrap(), [expected]);
        }
    }
}

/// `x` and a number in every place of a shape, plus one; of that the first elements, if the shape is
/// too large to be an output.
fn number_everywhere(extent: i64, kept: Option<i64>) -> Model {
    let dims = Constant::from_i64(&[2], &[extent, extent]).unwrap();
    let (one, zero) = (Constant::from_f32(&[], &[1.0]), Constant::from_i64(&[2], &[0, 0]));
    let size = kept.unwrap_or(extent);
    let mut model = ModelBuilder::new(13)
        .input("x", DType::F32, &[size, 1])
        .initializer("dims", &dims)
        .initializer("one", &one.unwrap())
        .initializer("zero", &zero.unwrap())
        .initializer("kept", &Constant::from_i64(&[2], &[size, size]).unwrap())
        .node("ConstantOfShape", &["dims"], &["all"], &[])
        .node("Add", &["all", "one"], &["sum"], &[]);
    if kept.is_some() {
        model = model.node("Slice", &["sum", "zero", "kept"], &["part"], &[]);
    }
    let part = if kept.is_some() { "part" } else { "sum" };
    let model = model.node("Mul", &["x", part], &["y"], &[]).output("y", DType::F32, &[size, size]);
    Model::from_onnx("full", ModelFile { proto: model.build(), folder: None, store: None })
}

#[test]
fn a_number_in_every_place_takes_no_room() {
    let x = Constant::from_f32(&[2, 1], &[3.0, 4.0]).unwrap();
    for opt_level in [1, 3] {
        let options = CompileOptions { opt_level, ..options() };
        let model = run(&number_everywhere(512, None), &options).unwrap().model;
        assert!(model.weights.len() < 1024, "{} bytes at -O{opt_level}", model.weights.len());
    }
    // 2^56 elements, of which four are needed.
    let options = CompileOptions { opt_level: 3, ..options() };
    let model = run(&number_everywhere(1 << 28, Some(2)), &options).unwrap().model;
    let expected = [Constant::from_f32(&[2, 2], &[3.0, 3.0, 4.0, 4.0]).unwrap()];
    for loaded in load(&model, &options) {
        assert_eq!(loaded.run(std::slice::from_ref(&x)).unwrap(), expected);
    }
}

/// Floats of 16 bits are twice as wide in registers as in memory.
#[test]
fn halves_move_between_channels_at_every_level() {
    let half = |shape: &[usize], values: &[f64]| {
        Tensor::from_floats(DType::F16, shape, values.to_vec()).unwrap().to_constant().unwrap()
    };
    let pads = vec![0, 1, 0, 0, 0, 1, 0, 0];
    let weights: Vec<f64> = (1..=8).map(f64::from).collect();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F16, &[1, 1, 1, 2])
        .initializer("w", &half(&[8, 1, 1, 1], &weights))
        .initializer("pads", &Constant::from_i64(&[8], &pads).unwrap())
        .node("Conv", &["x", "w"], &["c"], &[])
        .node("Pad", &["c", "pads"], &["y"], &[("mode", "edge".into())])
        .output("y", DType::F16, &[1, 10, 1, 2])
        .build();
    let model = Model::from_onnx("halves", ModelFile { proto, folder: None, store: None });
    for opt_level in [0, 3] {
        let mut options = CompileOptions { opt_level, ..options() };
        options.set_target_cpu("portable").unwrap();
        let compiled = run(&model, &options).unwrap().model;
        for mut loaded in load(&compiled, &options) {
            for level in 0..compiled.levels.len() {
                loaded.limit_level(level);
                let found = loaded.run(&[half(&[1, 1, 1, 2], &[1.0, -2.0])]).unwrap();
                let channels = [1, 1, 2, 3, 4, 5, 6, 7, 8, 8].map(f64::from);
                let expected: Vec<f64> = channels.iter().flat_map(|c| [*c, -2.0 * c]).collect();
                assert_eq!(found[0].to_f64_vec().unwrap(), expected, "-O{opt_level}, {level}");
            }
        }
    }
}

/// The channels from 116 on end in the middle of a block; what they are copied to has padding lanes
/// that would be read from behind the last block.
#[test]
fn copies_of_channels_read_no_further_than_the_last_block() {
    let weights: Vec<f32> = (0..232).map(|value| value as f32).collect();
    let index = |value: i64| Constant::from_i64(&[1], &[value]).unwrap();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 1, 2, 3])
        .initializer("w", &Constant::from_f32(&[232, 1, 1, 1], &weights).unwrap())
        .initializer("v", &Constant::from_f32(&[1, 116, 1, 1], &[1.0; 116]).unwrap())
        .initializer("first", &index(116))
        .initializer("end", &index(232))
        .initializer("axis", &index(1))
        .node("Conv", &["x", "w"], &["c"], &[])
        .node("Slice", &["c", "first", "end", "axis"], &["s"], &[])
        .node("Conv", &["s", "v"], &["y"], &[])
        .output("y", DType::F32, &[1, 1, 2, 3])
        .build();
    let model = Model::from_onnx("channels", ModelFile { proto, folder: None, store: None });
    let mut options = CompileOptions { opt_level: 1, ..options() };
    options.set_target_cpu("portable").unwrap();
    let levels = options.targets();
    let module = run(&model, &options).unwrap().module;
    let program =
        strategy::program(&module, &levels, &Default::default(), &Default::default()).unwrap();
    let x = Constant::from_f32(&[1, 1, 2, 3], &[1.0; 6]).unwrap();
    let expected = f64::from((116..232).sum::<u16>());
    for level in 0..levels.len() {
        // The interpreter refuses to read what a buffer does not have.
        let found = crate::executor::interpret(&program, level, std::slice::from_ref(&x)).unwrap();
        assert_eq!(found[0].to_f64_vec().unwrap(), [expected; 6]);
    }
}

#[test]
fn constants_that_blocks_of_channels_are_computed_of_are_as_large_as_blocks() {
    let numbers = |shape: &[i64]| {
        let count = shape.iter().product::<i64>();
        Constant::from_i64(shape, &(0..count).map(|at| at % 7 - 3).collect::<Vec<i64>>()).unwrap()
    };
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[1])
        .initializer("c", &numbers(&[2, 8, 1, 9]))
        .initializer("w", &numbers(&[16, 8, 1, 2]))
        .initializer("s", &Constant::from_f32(&[], &[0.0625]).unwrap())
        .node("Cast", &["c"], &["d"], &[("to", 1.into())])
        .node("Mul", &["d", "s"], &["f"], &[])
        .node("Cast", &["w"], &["v"], &[("to", 1.into())])
        .node("Conv", &["f", "v"], &["y"], &[])
        .node("Acos", &["f"], &["z"], &[])
        .node("Abs", &["x"], &["m"], &[])
        .output("y", DType::F32, &[2, 16, 1, 8])
        .output("z", DType::F32, &[2, 8, 1, 9])
        .output("m", DType::F32, &[1])
        .build();
    let model = Model::from_onnx("blocks", ModelFile { proto, folder: None, store: None });
    let mut options = CompileOptions { opt_level: 1, ..options() };
    options.set_target_cpu("x86-64-v2").unwrap();
    let levels = options.targets();
    let module = run(&model, &options).unwrap().module;
    let program =
        strategy::program(&module, &levels, &Default::default(), &Default::default()).unwrap();
    let x = Constant::from_f32(&[1], &[1.0]).unwrap();
    for level in 0..levels.len() {
        // The interpreter refuses to read what a buffer does not have.
        crate::executor::interpret(&program, level, std::slice::from_ref(&x)).unwrap();
    }
}

#[test]
fn the_interface_keeps_names_and_symbols() {
    let compilation = run(&dense(), &CompileOptions { stub: true, ..pinned(4) }).unwrap();
    let model = compilation.model;
    let input = &model.inputs[0];
    assert_eq!((input.name.as_str(), input.shape.as_slice()), ("x", &[4, 3][..]));
    assert_eq!(input.dim_names, [Some("batch".to_owned()), None]);
    assert_eq!(model.outputs[0].shape, [4, 2]);
    assert!(model.objects.is_empty() && model.weights.is_empty());
    assert_eq!(model.name, "dense");
}

#[test]
fn an_unknown_size_is_reported_once_with_the_remedy() {
    let report = run(&dense(), &options()).unwrap_err();
    assert_eq!(report.problems.len(), 1);
    let text = report.to_string();
    assert!(text.contains("the size of `batch` is not known"), "{text}");
    assert!(text.contains(".dim(\"batch\", N)"), "{text}");
}

#[test]
fn whatever_changes_the_code_changes_the_symbol() {
    let symbol = |options: &CompileOptions| run(&dense(), options).unwrap().model.symbol;
    let base = symbol(&pinned(1));
    assert_eq!(symbol(&CompileOptions { jobs: 1, ..pinned(1) }), base);
    assert_ne!(symbol(&pinned(2)), base);
    assert_ne!(symbol(&CompileOptions { opt_level: 0, ..pinned(1) }), base);
    assert_ne!(symbol(&CompileOptions { threads: 2, ..pinned(1) }), base);
}

#[test]
fn two_compilations_are_equal_byte_for_byte() {
    for &backend in Backend::ALL {
        let options = |jobs| CompileOptions { jobs, backend, ..pinned(2) };
        let once = |jobs| run(&dense(), &options(jobs)).unwrap().model;
        assert_eq!(once(1), once(3));
    }
}

#[test]
fn code_can_be_read_and_is_the_same_each_time() {
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, ..pinned(2) };
        let code = run(&dense(), &options).unwrap().code;
        for listing in [Listing::LlvmIr, Listing::Assembly] {
            let text = code.listing(listing, &options);
            if backend == Backend::C && listing == Listing::LlvmIr {
                let report = text.unwrap_err().to_string();
                assert!(report.contains("--backend llvm"), "{report}");
                continue;
            }
            let text = text.unwrap();
            assert_eq!(text, code.listing(listing, &options).unwrap());
            // The kernels, then the function that calls them.
            let (name, entry) = &text[1];
            let ending = if listing == Listing::LlvmIr { ".ll" } else { ".s" };
            assert!(name.ends_with(ending) && entry.contains("_run"), "{name}: {entry}");
        }
    }
}

#[cfg(feature = "llvm")]
#[test]
fn llvm_makes_the_same_code_in_a_child_process() {
    let options = |isolate| CompileOptions { backend: Backend::Llvm, isolate, ..pinned(2) };
    let model = |isolate| run(&dense(), &options(isolate)).unwrap().model;
    assert_eq!(model(true), model(false));
}

#[test]
fn a_text_compiles_as_the_model_it_was_printed_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dense.relay");
    let imported = dense().import(&pinned(2)).unwrap();
    let print = crate::graph::PrintOptions { inline_elements: 0, ..Default::default() };
    let (text, sidecar) = crate::graph::print_with_sidecar(&imported.module, &print);
    std::fs::write(&path, text).unwrap();
    let mut bytes = Vec::new();
    sidecar.write_to(&mut bytes).unwrap();
    std::fs::write(sidecar_path(&path), bytes).unwrap();
    let from_text = run(&Model::read(&path).unwrap(), &options()).unwrap();
    let from_onnx = run(&dense(), &pinned(2)).unwrap();
    assert_eq!(from_text.model.weights, from_onnx.model.weights);
    assert_eq!(from_text.program.digest(), from_onnx.program.digest());
    assert_eq!(from_text.model.inputs[0].name, "x");
}

#[test]
fn a_file_that_is_no_model_is_refused_by_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    let report = compile_file(&path, &options()).unwrap_err();
    assert!(report.to_string().contains("Git LFS pointer"), "{report}");
    let path = folder.path().join("model.relay");
    std::fs::write(&path, "def @main(").unwrap();
    let report = compile_file(&path, &options()).unwrap_err();
    assert!(report.to_string().contains("model.relay:"), "{report}");
}

/// A convolution with odd sizes, pooling and a dense layer: blocked layouts, halos, padding lanes.
fn small_network() -> Model {
    let values = |n: usize, scale: f32| -> Vec<f32> {
        (0..n).map(|i| ((i * 7919 + 13) % 101) as f32 * scale - 50.0 * scale).collect()
    };
    let conv = Constant::from_f32(&[20, 3, 3, 3], &values(540, 0.01)).unwrap();
    let bias = Constant::from_f32(&[20], &values(20, 0.1)).unwrap();
    let second = Constant::from_f32(&[18, 20, 3, 3], &values(3240, 0.003)).unwrap();
    let dense = Constant::from_f32(&[18 * 4, 10], &values(720, 0.01)).unwrap();
    let shape = Constant::from_i64(&[2], &[1, -1]).unwrap();
    let pads = [("pads", crate::onnx::ModelAttr::from(vec![1i64, 1, 1, 1]))];
    let pool = [
        ("kernel_shape", crate::onnx::ModelAttr::from(vec![2i64, 2])),
        ("strides", crate::onnx::ModelAttr::from(vec![2i64, 2])),
    ];
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 3, 5, 5])
        .initializer("conv", &conv)
        .initializer("bias", &bias)
        .initializer("second", &second)
        .initializer("dense", &dense)
        .initializer("shape", &shape)
        .node("Conv", &["x", "conv", "bias"], &["c"], &pads)
        .node("Relu", &["c"], &["r"], &[])
        .node("Conv", &["r", "second"], &["d"], &pads)
        .node("MaxPool", &["d"], &["p"], &pool)
        .node("Reshape", &["p", "shape"], &["flat"], &[])
        .node("MatMul", &["flat", "dense"], &["y"], &[])
        .output("y", DType::F32, &[1, 10])
        .build();
    Model::from_onnx("small", ModelFile { proto, folder: None, store: None })
}

#[test]
fn graph_interpreter_loop_interpreter_and_native_code_agree() {
    use crate::executor::interpret;
    use crate::graph::interp::{Tensor, Value, evaluate};

    let pixels: Vec<f32> = (0..75).map(|i| ((i * 31) % 17) as f32 * 0.1 - 0.8).collect();
    let x = Constant::from_f32(&[1, 3, 5, 5], &pixels).unwrap();
    let model = small_network();
    let imported = model.import(&options()).unwrap();
    let input = Value::from(Tensor::from_constant(&x).unwrap());
    let expected = evaluate(&imported.module, "main", &[input]).unwrap();
    let expected = expected.as_tensor().unwrap().floats().unwrap().to_vec();
    let near = |found: &[Constant], what: &str| {
        for (found, expected) in found[0].to_f64_vec().unwrap().iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{what}: {found}, expected {expected}");
        }
    };
    for (opt_level, cpu) in [(0, None), (3, None), (3, Some("native"))] {
        let mut options = CompileOptions { opt_level, ..options() };
        options.levels = levels_of_floats(&options);
        if let Some(cpu) = cpu {
            options.target = options.target.with_cpu(cpu).unwrap();
        }
        let levels = options.targets();
        let passes = Passes::new(&options).unwrap();
        let module = passes.run(imported.module.clone()).unwrap();
        let mut program =
            strategy::program(&module, &levels, &Default::default(), &Default::default()).unwrap();
        program.verify().unwrap();
        let mut runs = Vec::new();
        for level in 0..levels.len() {
            let scheduled = interpret(&program, level, std::slice::from_ref(&x)).unwrap();
            near(&scheduled, "scheduled loops");
        }
        program.lower_kernels(&levels, &passes.context).unwrap();
        for level in 0..levels.len() {
            let lowered = interpret(&program, level, std::slice::from_ref(&x)).unwrap();
            near(&lowered, "lowered loops");
            runs.push(lowered);
        }

        for &backend in Backend::ALL {
            let options = CompileOptions { backend, ..options.clone() };
            let compilation = run(&model, &options).unwrap();
            for mut loaded in load(&compilation.model, &options) {
                for (level, lowered) in runs.iter().enumerate() {
                    if loaded.limit_level(level) != level {
                        let name = compilation.model.levels[level];
                        eprintln!("skipped: this machine cannot run {name}");
                        continue;
                    }
                    let native = loaded.run(std::slice::from_ref(&x)).unwrap();
                    // The same operations in the same order, bit for bit.
                    assert_eq!(native, *lowered, "{backend}, -O{opt_level} {cpu:?}, level {level}");
                }
            }
        }
    }
}

/// Every level that a model without tensors of bytes has code for.
fn levels_of_floats(options: &CompileOptions) -> Vec<CpuLevel> {
    let levels = options.target.wider_levels().into_iter();
    levels.filter(|level| !LEVELS_FOR_BYTES.contains(level)).collect()
}

/// The committed model, with every level in one binary and loaded in every possible way.
#[test]
fn digits_is_the_same_bit_for_bit_by_every_backend() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/digits/models/digits.onnx");
    let model = Model::read(path.as_ref()).unwrap();
    let pixels: Vec<f32> = (0..64).map(|i| ((i * 37) % 17) as f32 / 16.0).collect();
    let image = Constant::from_f32(&[1, 1, 8, 8], &pixels).unwrap();
    let mut options = options();
    options.levels = levels_of_floats(&options);
    let mut first: Vec<Option<Vec<Constant>>> = vec![None; options.targets().len()];
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, ..options.clone() };
        let compilation = run(&model, &options).unwrap();
        for mut loaded in load(&compilation.model, &options) {
            for (level, first) in first.iter_mut().enumerate() {
                if loaded.limit_level(level) != level {
                    eprintln!(
                        "skipped: this machine cannot run {}",
                        compilation.model.levels[level]
                    );
                    continue;
                }
                let found = loaded.run(std::slice::from_ref(&image)).unwrap();
                let first = first.get_or_insert_with(|| found.clone());
                assert_eq!(found, *first, "{backend}, level {level}");
            }
        }
    }
}

#[test]
fn a_defect_names_the_node_that_the_kernel_was_made_of() {
    let options = CompileOptions { without_objects: true, ..pinned(2) };
    let compilation = run(&dense(), &options).unwrap();
    for kernel in compilation.program.kernels.values() {
        let error = CodegenError {
            kernel: kernel.signature().name.clone(),
            message: "9 lanes for 8".to_owned(),
        };
        let text = locate(Problem::from(error).into(), &compilation.module).to_string();
        assert!(text.starts_with("node `"), "{text}");
        assert!(text.contains(": a defect of niello, not of the model: kernel `"), "{text}");
        assert!(text.contains(".opt_level(0)"), "{text}");
    }
}

/// Only models of bytes have code for dot products of bytes, and all levels read the same weights.
#[test]
fn models_of_bytes_have_a_level_of_their_own() {
    let of = |triple: &str, dtype: &str| {
        let text = format!(
            "def @main(%x: Tensor[(2, 8), {dtype}]) -> Tensor[(2, 8), {dtype}] {{ maximum(%x, %x) }}"
        );
        let mut options = options();
        options.target = Target::from_triple(triple).unwrap();
        options.set_target_cpu(crate::options::PORTABLE).unwrap();
        options.without_objects = true;
        options.numerics = Numerics::Float16;
        let model = Model::from_module("bytes", crate::graph::parse_module(&text).unwrap());
        run(&model, &options).unwrap().model.levels
    };
    assert_eq!(of("x86_64-unknown-linux-gnu", "uint8"), CpuLevel::ALL[..5]);
    assert_eq!(of("x86_64-unknown-linux-gnu", "float32"), CpuLevel::ALL[..3]);
    let [dotprod, i8mm] = [CpuLevel::Aarch64Dotprod, CpuLevel::Aarch64I8mm];
    assert_eq!(of("aarch64-unknown-linux-gnu", "int8"), [CpuLevel::Baseline, dotprod, i8mm]);
    let fp16 = CpuLevel::Aarch64Fp16;
    assert_eq!(of("aarch64-unknown-linux-gnu", "float16"), [CpuLevel::Baseline, fp16]);
    assert_eq!(of("aarch64-unknown-linux-gnu", "float32"), [CpuLevel::Baseline]);
}

#[test]
fn what_is_picked_on_one_level_is_picked_on_all() {
    // Longer than as many vectors as the narrowest level picks, shorter than those of the widest.
    let text = "def @main(%x: Tensor[(2, 700), float32]) -> Tensor[(2, 764), float32] {
        nn.pad(%x, pad_width=[[0, 0], [0, 64]], mode=\"reflect\")
    }";
    let mut options = options();
    options.target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
    options.set_target_cpu(crate::options::PORTABLE).unwrap();
    options.without_objects = true;
    let model = Model::from_module("reflected", crate::graph::parse_module(text).unwrap());
    assert_eq!(run(&model, &options).unwrap().model.levels, CpuLevel::ALL[..3]);
}

#[test]
fn no_thread_waits_for_a_model_without_loops_to_share() {
    let serial = run(&dense(), &pinned(2)).unwrap().model;
    let asked = run(&dense(), &CompileOptions { threads: 4, ..pinned(2) }).unwrap().model;
    assert_eq!((asked.threads, asked.workers), (4, 1));
    assert_eq!(asked.workspace_bytes, serial.workspace_bytes);
    let mut options = CompileOptions { threads: 4, ..pinned(64) };
    options.config.insert("tir.parallel_min_share".to_owned(), 1.into());
    assert_eq!(run(&dense(), &options).unwrap().model.workers, 4);
}

/// Without a caller's threads, a library starts its own, and stops them when it is closed.
#[cfg(unix)]
#[test]
fn a_shared_library_has_threads_of_its_own() {
    use std::ffi::c_void;

    use crate::executor::SHARED_ENTRY;
    use crate::executor::dynamic::DynamicLibrary;

    type Entry = unsafe extern "C" fn(*const *const c_void, *const *mut c_void) -> i32;

    let weight: Vec<f32> = (0..64 * 48).map(|i| (i % 17) as f32 - 8.0).collect();
    let weight = Constant::from_f32(&[64, 48], &weight).unwrap();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from(56), ModelDim::from(64)])
        .initializer("w", &weight)
        .node("MatMul", &["x", "w"], &["xw"], &[])
        .node("Softmax", &["xw"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from(56), ModelDim::from(48)])
        .build();
    let model = Model::from_onnx("product", ModelFile { proto, folder: None, store: None });
    let x: Vec<f32> = (0..56 * 64).map(|i| (i % 23) as f32 / 23.0).collect();
    let run_all = |threads: usize, runs: usize| {
        let mut options = CompileOptions { threads, ..options() };
        options.config.insert("tir.parallel_min_share".to_owned(), 1.into());
        let compiled = run(&model, &options).unwrap().model;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.so");
        write_shared_library(&compiled, &options.target, &path).unwrap();
        let library = DynamicLibrary::open(&path).unwrap();
        // SAFETY: the library's text defines the function with this signature.
        let entry: Entry = unsafe { std::mem::transmute(library.symbol(SHARED_ENTRY).unwrap()) };
        let mut outputs = Vec::new();
        for _ in 0..runs {
            let mut y = vec![0f32; 56 * 48];
            let (inputs, taken) = ([x.as_ptr().cast()], [y.as_mut_ptr().cast()]);
            // SAFETY: the arrays are as large as the model's tensors.
            assert_eq!(unsafe { entry(inputs.as_ptr(), taken.as_ptr()) }, 0);
            outputs.push(y.iter().map(|y| y.to_bits()).collect::<Vec<u32>>());
        }
        outputs
    };
    let serial = run_all(1, 1);
    let shared = run_all(4, 300);
    assert!(shared.iter().all(|bits| *bits == serial[0]));
}

#[test]
fn each_limit_that_a_model_exceeds_is_told_with_what_takes_most_of_it() {
    let model = dense();
    let all = |n| Budget {
        workspace_bytes: Some(n),
        weight_bytes: Some(n),
        code_bytes: Some(n),
        macs: Some(n),
    };
    let enough = CompileOptions { budget: all(1 << 20), ..pinned(4) };
    let compiled = run(&model, &enough).unwrap().model;
    assert_eq!(compiled.macs, 24);
    let weights = compiled.weights.len();
    let exact = Budget { macs: Some(24), weight_bytes: Some(weights as u64), ..all(1 << 20) };
    assert!(run(&model, &CompileOptions { budget: exact, ..pinned(4) }).is_ok());

    let report = run(&model, &CompileOptions { budget: all(8), ..pinned(4) }).unwrap_err();
    let problems: Vec<String> = report.problems.iter().map(Problem::to_string).collect();
    let [weight_bytes, code_bytes, macs] = problems.as_slice() else { panic!("{problems:?}") };
    let expected = format!("the weights take {weights} bytes, but `.max_weight_bytes(8)` allows");
    assert!(weight_bytes.starts_with(&expected), "{weight_bytes}");
    assert!(code_bytes.contains("`.max_code_bytes(8)`"), "{code_bytes}");
    assert!(code_bytes.contains("the greatest parts are `niello_kernel_"), "{code_bytes}");
    assert_eq!(
        macs,
        "an inference takes 24 multiply-accumulates, but `.max_macs(8)` allows no more; help: the \
         greatest parts are `fused_nn_matmul_add_nn_relu` (24)"
    );
}
