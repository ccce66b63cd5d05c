//! Runs networks on several numbers of threads, which must not change a bit.

use niello::compile::{Model, Passes, compile};
use niello::executor::{LoadedModel, write_shared_library};
use niello::ir::Constant;
use niello::options::{Backend, CompileOptions};
use niello::target::Target;
use niello_tests::random::network::Network;

use crate::stages::constants;

/// How many threads the networks are compiled for, and how many run them.
const COMPILED_FOR: usize = 7;
const RUN_BY: [usize; 5] = [1, 2, 3, 4, 7];

/// Compares the outputs of each backend's code for several threads with those of its code for one.
/// Returns how many functions have parallel loops.
///
/// # Errors
///
/// The first backend and number of threads with another output.
pub(crate) fn check(network: &Network) -> Result<usize, String> {
    let inputs = constants(&network.inputs);
    let model = Model::from_module("network", network.module.clone());
    let mut parallel = 0;
    for &backend in Backend::ALL {
        let mut options = CompileOptions::new(Target::host());
        options.set_target_cpu("native").map_err(|error| error.to_string())?;
        options.backend = backend;
        options.jobs = 2;
        let (expected, _) = run(&model, &options, &inputs, &[1])?;
        options.threads = COMPILED_FOR;
        // Networks are small: each loop counts as if it were worth it.
        options.config.insert("tir.parallel_min_share".to_owned(), 1.into());
        let (found, functions) = run(&model, &options, &inputs, &RUN_BY)?;
        parallel += functions;
        for (found, threads) in found.iter().zip(RUN_BY) {
            for (position, (found, expected)) in found.iter().zip(&expected[0]).enumerate() {
                if found.to_bytes().as_deref() != expected.to_bytes().as_deref() {
                    return Err(format!(
                        "backend {backend}: output {position} differs on {threads} threads"
                    ));
                }
            }
        }
    }
    Ok(parallel)
}

/// The outputs by each number of threads, and how many functions have parallel loops.
fn run(
    model: &Model,
    options: &CompileOptions,
    inputs: &[Constant],
    threads: &[usize],
) -> Result<(Vec<Vec<Constant>>, usize), String> {
    let passes = Passes::new(options).map_err(|report| report.to_string())?;
    let compilation = compile(model, options, &passes).map_err(|report| report.to_string())?;
    let versions = compilation.program.kernels.values().flat_map(|kernel| &kernel.versions);
    let parallel = versions.filter(|func| func.has_parallel_loops()).count();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("network.so");
    write_shared_library(&compilation.model, &options.target, &path)
        .map_err(|report| report.to_string())?;
    let mut loaded =
        LoadedModel::load(&compilation.model, &path).map_err(|error| error.to_string())?;
    let mut outputs = Vec::new();
    for &threads in threads {
        loaded.set_threads(threads);
        outputs.push(loaded.run(inputs).map_err(|error| error.to_string())?);
    }
    Ok((outputs, parallel))
}
