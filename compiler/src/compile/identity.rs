//! The name under which a compiled model links.

use super::interface::Interface;
use crate::bindings::symbol_name;
use crate::executor::Program;
use crate::options::CompileOptions;

/// `niello_<package>_<version>_<model>_<hash>`.
///
/// The hash covers model, program, options, target and niello's own version: whatever can make two
/// objects differ makes their symbols differ.
pub(super) fn symbol(interface: &Interface, program: &Program, options: &CompileOptions) -> String {
    // Dimensions, shapes and values of inputs are in the model as imported; neither the number of
    // jobs nor the process shows in the objects, nor does their absence.
    let CompileOptions {
        name: _,
        package,
        version,
        dims: _,
        input_shapes: _,
        input_values: _,
        opt_level,
        disabled_passes,
        backend,
        target,
        levels: _,
        threads,
        jobs: _,
        isolate: _,
        stub,
        without_objects: _,
    } = options;
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(&interface.digest);
    hasher.update(&program.digest());
    // Of the levels that were asked for those that the target does not have already.
    let levels: Vec<&str> = options.targets().iter().map(|t| t.cpu_level().name()).collect();
    let decided = (opt_level, disabled_passes, backend, target, levels, threads, stub);
    hasher.update(format!("{decided:?}").as_bytes());
    let name = interface.name(options);
    symbol_name(package, version, name, hasher.finalize().as_bytes())
}
