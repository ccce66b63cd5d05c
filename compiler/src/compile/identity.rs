//! The name under which a compiled model links.

use super::interface::Interface;
use crate::bindings::symbol_name;
use crate::executor::Program;
use crate::ir::{Blake3, Digest};
use crate::options::{CompileOptions, Executor};
use crate::pass::PassContext;
use crate::tir::ADD_LOWER_PASS;

/// `niello_<package>_<version>_<model>_<hash>`.
///
/// The hash covers model, program, options, target and niello's own version: whatever can make two
/// objects differ makes their symbols differ. `scheduled` is the digest of the program before it
/// was lowered, from which the lowered one follows but for the passes that the context adds.
pub(super) fn symbol(
    interface: &Interface,
    scheduled: &Digest,
    lowered: &Program,
    options: &CompileOptions,
    cx: &PassContext,
) -> String {
    // Dimensions, shapes and values of inputs are in the model as imported, states and what tuned
    // choices led to in the program; neither the number of jobs nor folder or process shows in the objects, nor does their absence, nor functions beside
    // them. The context has the options of passes, and the program the code of other code generators.
    let CompileOptions {
        name: _,
        package,
        version,
        dims: _,
        input_shapes: _,
        input_values: _,
        states: _,
        external_folders: _,
        opt_level,
        disabled_passes,
        config: _,
        external: _,
        denormals,
        numerics,
        backend,
        target,
        levels: _,
        threads,
        jobs: _,
        code_folder: _,
        kernel_cache: _,
        isolate: _,
        weights_of,
        tuned: _,
        stub,
        without_objects: _,
        single_calls: _,
        executor,
        budget: _,
    } = options;
    let mut hasher = Blake3::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(&interface.digest);
    hasher.update(scheduled);
    if !cx.get(&ADD_LOWER_PASS).is_empty() {
        hasher.update(&lowered.digest());
    }
    hasher.update(format!("{:?}", cx.config_json()).as_bytes());
    // Of the levels that were asked for those that the target does not have already.
    let levels: Vec<&str> = options.targets().iter().map(|t| t.cpu_level().name()).collect();
    let numerics = (denormals, numerics);
    let decided = (opt_level, disabled_passes, numerics, backend, target, levels, threads, stub);
    hasher.update(format!("{decided:?}").as_bytes());
    if *executor == Executor::Graph {
        hasher.update(executor.name().as_bytes());
    }
    // The symbol of the other model's weights has the digest of that model.
    if let Some(other) = weights_of {
        hasher.update(other.symbol.as_bytes());
    }
    let name = interface.name(options);
    symbol_name(package, version, name, &hasher.finalize())
}
