//! Handwritten programs, compiled by every backend, loaded and run.

use std::ffi::c_void;

use super::*;
use crate::codegen::c::{self, SourceFile};
#[cfg(feature = "llvm")]
use crate::codegen::llvm;
use crate::codegen::object::{check_undefined, weights_object};
use crate::executor::dynamic::DynamicLibrary;
use crate::executor::testing::ProgramBuilder;
use crate::executor::{
    CompiledModel, LoadedModel, ObjectFile, Step, TensorInfo, ValueId, write_shared_library,
};
use crate::ir::{BufferSpec, Constant, DType, TensorType};
use crate::memory::{self, Storage};
use crate::options::{Backend, CompileOptions};
use crate::pass::PassContext;
use crate::target::Target;
use crate::tir::PrimExpr;

/// The stages from a program to a model for the host's narrowest level.
fn compile(program: Program, symbol: &str, backend: Backend) -> CompiledModel {
    compile_for(&[Target::host()], program, symbol, backend, None)
}

/// The stages from a program to a model.
fn compile_for(
    levels: &[Target],
    mut program: Program,
    symbol: &str,
    backend: Backend,
    other: Option<&SharedWeights>,
) -> CompiledModel {
    let options = CompileOptions { jobs: 2, backend, ..CompileOptions::new(levels[0].clone()) };
    program.verify().unwrap();
    program.merge_equal_kernels();
    let storage = Storage::of(&program).unwrap();
    program.insert_border_steps(&storage);
    program.lower_kernels(levels, &PassContext::default()).unwrap();
    let generator = Generator::of(&options).unwrap().digest();
    let functions = KernelFunctions::of(&program, &generator, levels);
    let scratch = Scratch::of(&program, &functions, 1).unwrap();
    let plan = memory::plan(&program, &storage, &scratch.bytes).unwrap();
    let weights = PackedWeights::pack(&program, &storage, &plan, other).unwrap();
    let entry = Entry::new(&program, &storage, &plan, &weights, symbol, &functions, &scratch);
    let single_calls = entry.single_calls();
    let calls = single_calls.len();
    let entries = std::iter::once(entry).chain(single_calls).collect();
    let code = Code::new(backend, &program, &functions, entries);
    let (objects, _) = code.compile(&options, levels).unwrap();
    let allowed = other.map(|other| other.symbol.as_str());
    check_undefined(&objects, allowed.as_slice()).unwrap();
    let infos = |values: &[ValueId]| -> Vec<TensorInfo> {
        let info = |&id: &ValueId| {
            let value = &program.values[id];
            let shape: Vec<u64> = value.spec.shape().iter().map(|&extent| extent as u64).collect();
            TensorInfo::new(&value.name, value.dtype, &shape)
        };
        values.iter().map(info).collect()
    };
    CompiledModel {
        name: symbol.to_owned(),
        symbol: symbol.to_owned(),
        inputs: infos(&program.inputs),
        outputs: infos(&program.outputs),
        states: Vec::new(),
        sizes: program.sizes.clone(),
        workspace_bytes: plan.arena_bytes,
        scratch_offset: plan.arena_bytes,
        scratch_stride: 0,
        threads: 1,
        workers: 1,
        weights: weights.bytes,
        constants: weights.constants,
        other_weights: weights.other,
        macs: 0,
        kernels: Default::default(),
        calls,
        external_symbols: Vec::new(),
        levels: levels.iter().map(Target::cpu_level).collect(),
        digest: [0; 32],
        metadata: Vec::new(),
        external_data: Vec::new(),
        objects,
    }
}

/// Compiles by every backend and runs twice, then call by call: the first run must not affect the
/// others, and all must agree.
fn run(program: Program, inputs: &[Constant]) -> Vec<Vec<f32>> {
    let mut results: Vec<Vec<Constant>> = Vec::new();
    for &backend in Backend::ALL {
        let model = compile(program.clone(), "niello_test", backend);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.so");
        write_shared_library(&model, &Target::host(), &path).unwrap();
        let library = LoadedModel::load(&model, &path).unwrap();
        let ways = [
            library,
            #[cfg(feature = "llvm")]
            LoadedModel::jit(&model).unwrap(),
        ];
        for loaded in ways {
            for _ in 0..2 {
                results.push(loaded.run(inputs).unwrap());
            }
            let mut call = loaded.call(inputs).unwrap();
            (0..model.calls).for_each(|number| call.run_call(number).unwrap());
            assert!(call.run_call(model.calls).is_err(), "there is no such call");
            results.push(call.outputs().unwrap());
        }
    }
    assert!(results.iter().all(|result| *result == results[0]));
    results[0].iter().map(floats).collect()
}

fn floats(constant: &Constant) -> Vec<f32> {
    constant.to_f64_vec().unwrap().into_iter().map(|value| value as f32).collect()
}

fn tensor(shape: &[i64], value: impl Fn(usize) -> f32) -> Constant {
    let elements = shape.iter().product::<i64>() as usize;
    Constant::from_f32(shape, &(0..elements).map(value).collect::<Vec<_>>()).unwrap()
}

#[test]
fn steps_run_in_order_on_inputs_constants_and_the_arena() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[2, 3]);
    let spec = BufferSpec::packed(&[2, 3], &[(1, 1), (0, 1)]);
    let w = b.constant("w", tensor(&[2, 3], |i| 10.0 * i as f32));
    b.program.values[w].spec = spec;
    let sum = b.map("sum", &[x, w], BufferSpec::dense(&[2, 3]), |x| x[0].clone() + x[1].clone());
    let product =
        b.map("product", &[sum, x], BufferSpec::dense(&[2, 3]), |x| x[0].clone() * x[1].clone());
    b.output(product);
    let outputs = run(b.program, &[tensor(&[2, 3], |i| i as f32)]);
    let expected: Vec<f32> = (0..6).map(|i| (11 * i * i) as f32).collect();
    assert_eq!(outputs, [expected]);
}

/// A constant that another model has is read from that one's weights, which are linked beside the
/// code.
#[test]
fn constants_of_another_model_are_read_where_they_are() {
    let program = |own: f32| {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[40]);
        let both = b.constant("both", tensor(&[40], |i| i as f32));
        let own = b.constant("own", tensor(&[40], |i| own + i as f32));
        let dense = BufferSpec::dense(&[40]);
        let y = b.map("sum", &[x, own], dense.clone(), |x| x[0].clone() + x[1].clone());
        let y = b.map("product", &[y, both], dense, |x| x[0].clone() * x[1].clone());
        b.output(y);
        b.output(both);
        b.program
    };
    for &backend in Backend::ALL {
        let first = compile(program(100.0), "first", backend);
        let other = SharedWeights {
            symbol: "first_weights".to_owned(),
            bytes: first.weights.len() as u64,
            constants: std::sync::Arc::new(first.constants),
        };
        let host = [Target::host()];
        let mut second = compile_for(&host, program(5.0), "second", backend, Some(&other));
        assert_eq!((first.weights.len(), second.weights.len()), (384, 192));
        let used = second.other_weights.as_ref().unwrap();
        assert_eq!((used.symbol.as_str(), used.used_bytes), ("first_weights", 160));
        let problem = check_undefined(&second.objects, &[]).unwrap_err();
        assert!(problem.to_string().contains("first_weights"), "{problem}");

        let code = &second.objects[0];
        let weights = weights_object(code, "first_weights", &first.weights).unwrap();
        let bytes = weights.contents.to_bytes().unwrap();
        second.objects.push(ObjectFile { name: weights.name.into_owned(), bytes });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.so");
        write_shared_library(&second, &Target::host(), &path).unwrap();
        let loaded = LoadedModel::load(&second, &path).unwrap();
        let outputs = loaded.run(&[tensor(&[40], |_| 1.0)]).unwrap();
        let expected: Vec<f32> = (0..40u16).map(|i| f32::from((6 + i) * i)).collect();
        assert_eq!(floats(&outputs[0]), expected, "{backend}");
        assert_eq!(outputs[1], tensor(&[40], |i| i as f32), "{backend}");
    }
}

#[test]
fn halos_and_padding_lanes_read_as_zero_though_their_memory_was_used_before() {
    let mut b = ProgramBuilder::default();
    let shape = [1, 3, 2, 2];
    let x = b.input("x", &shape);
    // A large value dies before the padded one is computed in its place.
    let junk = b.map("junk", &[x], BufferSpec::nchwc(&shape, 64, &[]), |x| {
        x[0].clone() + PrimExpr::f32(100.0)
    });
    let dense =
        b.map("dense", &[junk], BufferSpec::dense(&shape), |x| x[0].clone() - PrimExpr::f32(100.0));
    let padded = BufferSpec::nchwc(&shape, 8, &[(1, 1), (1, 1)]);
    let y = b.map("pad", &[dense], padded, |x| x[0].clone());
    // Sums the neighbours to the left of and above each element, and the lane five channels on.
    let out = b.step("sum", &[y], BufferSpec::dense(&shape), &[], |func, inputs, output| {
        crate::executor::testing::loops(func, &shape, &mut Vec::new(), &mut |func, i| {
            let at = |c: i64, y: i64, x: i64| {
                let index =
                    vec![i[0].clone(), i[1].clone() + c, i[2].clone() + y, i[3].clone() + x];
                func.load(inputs[0], index)
            };
            let sum = at(0, 0, -1) + at(0, -1, 0) + at(5, 0, 0);
            func.store(output, i.to_vec(), sum)
        })
    });
    b.output(out);
    let outputs = run(b.program, &[tensor(&shape, |i| i as f32 + 1.0)]);
    let expected: Vec<f32> = (0..3)
        .flat_map(|c| {
            let base = 4.0 * c as f32;
            [0.0, base + 1.0, base + 1.0, 2.0 * base + 5.0]
        })
        .collect();
    assert_eq!(outputs, [expected]);
}

#[test]
fn outputs_may_be_inputs_constants_views_and_each_other() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[4]);
    let w = b.constant(
        "w",
        Constant::splat(TensorType::from_consts(&[3], DType::F32), &7f32.to_le_bytes()).unwrap(),
    );
    let y = b.add(x, x);
    let view = b.view(y, &[2, 2]);
    let z = b.add(y, x);
    for output in [x, w, view, y, z] {
        b.output(output);
    }
    let outputs = run(b.program, &[tensor(&[4], |i| i as f32)]);
    let doubled = vec![0.0, 2.0, 4.0, 6.0];
    assert_eq!(
        outputs,
        [
            vec![0.0, 1.0, 2.0, 3.0],
            vec![7.0; 3],
            doubled.clone(),
            doubled,
            vec![0.0, 3.0, 6.0, 9.0]
        ]
    );
}

#[test]
fn a_model_without_steps_and_one_with_empty_tensors_run() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[2]);
    b.output(x);
    assert_eq!(run(b.program, &[tensor(&[2], |_| 3.0)]), [[3.0, 3.0]]);

    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[0, 2]);
    let y = b.add(x, x);
    b.output(y);
    b.output(x);
    assert_eq!(run(b.program, &[tensor(&[0, 2], |_| 3.0)]), [vec![0f32; 0], vec![]]);
}

#[test]
fn long_programs_are_cut_into_functions() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[4]);
    let mut y = x;
    for _ in 0..1234 {
        y = b.add(y, x);
    }
    b.output(y);
    let mut program = b.program;
    program.merge_equal_kernels();
    assert_eq!(program.kernels.len(), 1);
    let outputs = run(program, &[tensor(&[4], |i| i as f32)]);
    assert_eq!(outputs, [[0.0, 1235.0, 2470.0, 3705.0]]);
}

/// Versions of a kernel with different results, which no strategy makes, show which version is
/// called.
#[test]
fn each_level_calls_its_own_functions() {
    let host = Target::host();
    let wider = host.wider_levels().into_iter().filter_map(|level| host.with_level(level));
    let levels: Vec<Target> = std::iter::once(host.clone()).chain(wider).collect();
    let spec = BufferSpec::dense(&[4]);
    let version = |level: usize| {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[4]);
        b.map("own", &[x], spec.clone(), |x| x[0].clone() + PrimExpr::f32(level as f32));
        b.program.kernels.values().next().unwrap().signature().clone()
    };
    let lengths = [2, CALLS_PER_FUNCTION + 2];
    let cases = lengths.iter().flat_map(|&calls| Backend::ALL.iter().map(move |&b| (calls, b)));
    for (calls, backend) in cases {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[4]);
        let mut y = b.map("own", &[x], spec.clone(), |x| x[0].clone());
        for _ in 1..calls {
            y = b.add(y, x);
        }
        b.output(y);
        b.output(x);
        let mut program = b.program;
        program.merge_equal_kernels();
        for (id, kernel) in &mut program.kernels {
            let shared = kernel.signature().clone();
            kernel.versions = match id.as_u32() {
                0 => (0..levels.len()).map(version).collect(),
                _ => vec![shared; levels.len()],
            };
        }
        let model = compile_for(&levels, program, "niello_levels", backend, None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.so");
        write_shared_library(&model, &host, &path).unwrap();
        let mut loaded = LoadedModel::load(&model, &path).unwrap();
        for level in 0..levels.len() {
            if loaded.limit_level(level) != level {
                eprintln!("skipped: this machine cannot run {}", model.levels[level]);
                continue;
            }
            let outputs = loaded.run(&[tensor(&[4], |i| i as f32)]).unwrap();
            let expected = |i: usize| (calls * i + level) as f32;
            assert_eq!(floats(&outputs[0]), [0, 1, 2, 3].map(expected));
            assert_eq!(floats(&outputs[1]), [0.0, 1.0, 2.0, 3.0]);
        }
        let most = loaded.limit_level(usize::MAX);
        let best = niello_runtime::cpu_level();
        assert_eq!(model.levels.iter().rposition(|level| *level <= best), Some(most));
    }
}

#[test]
fn objects_depend_on_the_program_alone() {
    let program = || {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[4]);
        let y = b.add(x, x);
        b.output(y);
        b.program
    };
    for &backend in Backend::ALL {
        let once = || compile(program(), "niello_a", backend);
        assert_eq!(once(), once());
    }
}

#[test]
fn a_hundred_thousand_steps_take_linear_time_and_two_places() {
    let mut b = ProgramBuilder::default();
    let x = b.input("x", &[4]);
    let mut y = b.add(x, x);
    let kernel = b.program.steps[0].kernel;
    // Never in place: the kernel reads the value before the last as well.
    b.program.kernels[kernel].versions[0].make_mut().inplace.clear();
    for _ in 0..100_000 {
        let value = b.program.values[y].clone();
        let next = b.program.values.push(value);
        b.program.steps.push(Step { kernel, args: vec![y, x, next] });
        y = next;
    }
    b.output(y);
    let mut program = b.program;
    program.verify().unwrap();
    let storage = Storage::of(&program).unwrap();
    program.insert_border_steps(&storage);
    let levels = [Target::host()];
    program.lower_kernels(&levels, &PassContext::default()).unwrap();
    let functions = KernelFunctions::of(&program, &[0; 32], &levels);
    let scratch = Scratch::of(&program, &functions, 1).unwrap();
    let plan = memory::plan(&program, &storage, &scratch.bytes).unwrap();
    assert_eq!(plan.arena_bytes, 128);
    let weights = PackedWeights::pack(&program, &storage, &plan, None).unwrap();
    let entry = Entry::new(&program, &storage, &plan, &weights, "long", &functions, &scratch);
    let files = Code::new(Backend::C, &program, &functions, vec![entry])
        .c_files(&levels, 1)
        .unwrap()
        .unwrap();
    assert_eq!(files.len(), 2);
    let text = &files.last().unwrap().text;
    let call = format!("{}(ctx, ", functions.functions[0].symbol);
    assert_eq!(text.matches(&call).count(), 100_001);
    assert_eq!(text.matches("noinline").count(), 201);
}

/// A model planned for two workers runs its loops on two, and alone where a context has more: there
/// is no scratch memory for the others.
#[test]
fn contexts_of_more_workers_than_were_planned_for_run_serially() {
    use niello_runtime::abi::{Body, Context};

    unsafe extern "C" fn parallel_for(_: *mut c_void, _: Body, _: *mut c_void, _: i64) {}
    type Run = unsafe extern "C" fn(*const Context, *const *const c_void, *const *mut c_void);

    let kernel = KernelId::from_u32(0);
    let mut functions: SecondaryMap<KernelId, Vec<String>> = SecondaryMap::new();
    functions[kernel] = vec!["t_kernel".to_owned()];
    let call = Call {
        kernel,
        scratch: Some((64, 128)),
        args: Vec::new(),
        sizes: 0,
        counts: Vec::new(),
        external: false,
    };
    let entry = Entry {
        symbol: "t".to_owned(),
        calls: vec![call],
        parts: vec![crate::executor::Part::Step(0)],
        functions,
        levels: 1,
        workers: 2,
        copies: Vec::new(),
        sizes_input: 0,
        units: None,
        other_weights: None,
        flush_denormals: false,
    };
    // The kernel notes whether it has a `parallel_for`.
    let text = "
void t_run(const struct niello_context *ctx, const void *const *inputs, void *const *outputs);
void t_kernel(const struct niello_context *ctx) {
    *(u8 *)ctx->workspace = ctx->parallel_for != 0;
}
__attribute__((visibility(\"default\")))
void run(const struct niello_context *ctx, const void *const *inputs, void *const *outputs) {
    t_run(ctx, inputs, outputs);
}
";
    let file = |name: &str, text: String| SourceFile { name: name.to_owned(), text, level: 0 };
    let targets = [Target::host()];
    let compile = |file| c::compile_c(&[file], &targets, 1, None).unwrap().remove(0);
    let kernel = compile(file("kernel", c::declarations(text, true) + text));
    let entries = [
        compile(file("entry", entry.c_text())),
        #[cfg(feature = "llvm")]
        {
            let name = "entry".to_owned();
            let entry = Some(entry);
            let source = llvm::Source { name, kernels: vec![], wrappers: vec![], entry, level: 0 };
            llvm::compile(&[source], &targets, 1, false).unwrap().remove(0).object
        },
    ];
    for entry in entries {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.so");
        c::link_shared(&[entry, kernel.clone()], &targets[0], &path).unwrap();
        let library = DynamicLibrary::open(&path).unwrap();
        // SAFETY: the text above defines the function with this signature.
        let run: Run =
            unsafe { std::mem::transmute::<*mut c_void, Run>(library.symbol("run").unwrap()) };
        for (workers, expected) in [(1, 1), (2, 1), (3, 0)] {
            let mut workspace = vec![7u8; 64 + 2 * 128];
            let context = Context {
                weights: std::ptr::null(),
                workspace: workspace.as_mut_ptr(),
                scratch: std::ptr::null_mut(),
                scratch_stride: 0,
                parallel_for: Some(parallel_for),
                pool: std::ptr::null_mut(),
                workers,
                level: 0,
            };
            // SAFETY: the kernel writes to the first byte of the workspace.
            unsafe { run(&raw const context, std::ptr::null(), std::ptr::null()) };
            assert_eq!(workspace[0], expected, "{workers} workers");
        }
    }
}

#[test]
fn floats_that_round_otherwise_are_refused() {
    let target = |triple| CompileOptions::new(Target::from_triple(triple).unwrap());
    let refused = Generator::of(&target("i586-unknown-linux-gnu")).unwrap_err().to_string();
    assert!(refused.contains("i586-unknown-linux-gnu") && refused.contains("i686"), "{refused}");
}
