//! Computes a network by every stage, backend and level, and compares the results.

use std::fmt::Display;
use std::thread::available_parallelism;

use niello::compile::{Compilation, Model, Passes, compile};
use niello::executor::{LoadedModel, interpret, write_shared_library};
use niello::graph::interp::{Tensor, Tolerance, Value, compare, evaluate};
use niello::graph::verify_module;
use niello::ir::{Constant, IRModule};
use niello::options::{Backend, CompileOptions, DEFAULT_OPT_LEVEL, PORTABLE};
use niello::strategy;
use niello::target::Target;
use niello_tests::random::network::Network;

/// Compares all results at one level with the interpretation of the imported network.
///
/// # Errors
///
/// The first difference: the stage, the backend and the output.
pub(crate) fn check(network: &Network, level: u8) -> Result<(), String> {
    verify_module(&network.module).map_err(|errors| format!("the module: {errors}"))?;
    let expected = interpretation(&network.module, &network.inputs)?;
    let inputs = constants(&network.inputs);
    let agree = |found: &[Constant], stage: &dyn Display| {
        differing(found, &expected, &network.tolerances)
            .map_or(Ok(()), |difference| Err(format!("{stage}: {difference}")))
    };
    let mut options = CompileOptions::new(Target::host());
    options.opt_level = level;
    options.set_target_cpu(cpu(level)).map_err(|error| error.to_string())?;
    let targets = options.targets();
    let mut results: Vec<(Backend, Vec<Vec<Constant>>)> = Vec::new();
    for &backend in Backend::ALL {
        let stage = format!("backend {backend}");
        options.backend = backend;
        let (compilation, found) = native(&network.module, &options, &inputs)
            .map_err(|error| format!("{stage}: {error}"))?;
        if results.is_empty() {
            let stage = "interpreter after the passes";
            agree(&interpretation(&compilation.module, &network.inputs)?, &stage)?;
            let stage = "interpreter of the loop program";
            // Before lowering: afterwards, padding lanes cannot be told from elements that were
            // never written.
            let program = strategy::program(
                &compilation.module,
                &targets,
                &Default::default(),
                &Default::default(),
            )
            .map_err(|error| format!("{stage}: {error}"))?;
            for (place, target) in targets.iter().enumerate() {
                let stage = format!("{stage} for {}", target.cpu_level());
                let found = interpret(&program, place, &inputs)
                    .map_err(|error| format!("{stage}: {error}"))?;
                agree(&found, &stage)?;
            }
        }
        for (found, target) in found.iter().zip(&targets) {
            agree(found, &format!("{stage} for {}", target.cpu_level()))?;
        }
        results.push((backend, found));
    }
    // Numerics are decided in the loop IR, so backends must agree bit for bit.
    for pair in results.windows(2) {
        let [(a, left), (b, right)] = pair else { continue };
        for ((left, right), target) in left.iter().zip(right).zip(&targets) {
            let exact = vec![Tolerance::EXACT; left.len()];
            if let Some(difference) = differing(right, left, &exact) {
                let level = target.cpu_level();
                return Err(format!("backends {a} and {b} for {level}: {difference}"));
            }
        }
    }
    Ok(())
}

/// Compares the C that a machine without vectors gets with the interpretation: this machine runs it
/// as well.
///
/// # Errors
///
/// The first difference.
pub(crate) fn check_without_vectors(network: &Network) -> Result<(), String> {
    let expected = interpretation(&network.module, &network.inputs)?;
    let mut target = Target::host();
    target.features.clear();
    if target.vector_bits() != 0 {
        return Err(format!("{} has vectors without a feature", target.triple));
    }
    let options = CompileOptions { backend: Backend::C, ..CompileOptions::new(target) };
    let (_, found) = native(&network.module, &options, &constants(&network.inputs))?;
    found.iter().try_for_each(|found| {
        let difference = differing(found, &expected, &network.tolerances);
        difference.map_or(Ok(()), Err)
    })
}

/// The CPU that is compiled for at an optimisation level: at the default one all that a build script
/// makes code for, at the others one that this machine has, so that each is compiled for by itself.
fn cpu(level: u8) -> &'static str {
    if level == DEFAULT_OPT_LEVEL {
        return PORTABLE;
    }
    let cpu = ["x86-64", "x86-64-v2", "x86-64-v3"].get(usize::from(level)).copied();
    let host = Target::host();
    let native = host.clone().with_cpu("native").map(|native| native.features).unwrap_or_default();
    cpu.filter(|cpu| {
        host.clone().with_cpu(cpu).is_ok_and(|target| target.features.is_subset(&native))
    })
    .unwrap_or("native")
}

/// The outputs of `main` by the interpreter.
fn interpretation(module: &IRModule, inputs: &[Tensor]) -> Result<Vec<Constant>, String> {
    let inputs: Vec<Value> = inputs.iter().cloned().map(Value::from).collect();
    let result = evaluate(module, "main", &inputs).map_err(|error| error.to_string())?;
    let fields = result.as_tuple().ok_or("the result is no tuple")?;
    let tensors: Option<Vec<Tensor>> =
        fields.iter().map(|field| field.as_tensor().cloned()).collect();
    Ok(constants(&tensors.ok_or("a field of the result is no tensor")?))
}

pub(crate) fn constants(tensors: &[Tensor]) -> Vec<Constant> {
    let constant = |tensor: &Tensor| tensor.to_constant().expect("the tensor is of its type");
    tensors.iter().map(constant).collect()
}

/// The outputs by compiled code, at each CPU level that the machine has.
pub(crate) fn native(
    module: &IRModule,
    options: &CompileOptions,
    inputs: &[Constant],
) -> Result<(Compilation, Vec<Vec<Constant>>), String> {
    let text = |error: &dyn Display| error.to_string();
    let mut options = options.clone();
    options.jobs = available_parallelism().map_or(1, usize::from);
    let mut passes = Passes::new(&options).map_err(|report| text(&report))?;
    passes.context = Passes::context(&options)
        .verify_with(|module| verify_module(module).map_err(Into::into))
        .build()
        .map_err(|report| text(&report))?;
    let model = Model::from_module("network", module.clone());
    let compilation = compile(&model, &options, &passes).map_err(|report| text(&report))?;
    let folder = tempfile::tempdir().map_err(|error| text(&error))?;
    let path = folder.path().join("network.so");
    write_shared_library(&compilation.model, &options.target, &path)
        .map_err(|report| text(&report))?;
    let mut loaded = LoadedModel::load(&compilation.model, &path).map_err(|error| text(&error))?;
    let mut outputs = Vec::new();
    for (place, level) in compilation.model.levels.iter().enumerate() {
        if loaded.limit_level(place) != place {
            eprintln!("skipped: this machine cannot run {level}");
            continue;
        }
        outputs.push(loaded.run(inputs).map_err(|error| text(&error))?);
    }
    Ok((compilation, outputs))
}

/// The first output that differs by more than its tolerance.
pub(crate) fn differing(
    found: &[Constant],
    expected: &[Constant],
    tolerances: &[Tolerance],
) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("there are {} outputs, not {}", found.len(), expected.len()));
    }
    let outputs = found.iter().zip(expected).zip(tolerances).enumerate();
    outputs.into_iter().find_map(|(position, ((found, expected), &tolerance))| {
        compare(found, expected, tolerance)
            .err()
            .map(|difference| format!("output {position}: {difference}"))
    })
}
