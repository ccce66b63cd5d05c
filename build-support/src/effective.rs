//! The options of a model with what the environment says.

use std::path::Path;

use niello::codegen::c::compiler_variables;
use niello::diagnostics::{Problem, Report};
use niello::executor::aot::KernelCache;
use niello::options::{CompileOptions, MAX_OPT_LEVEL, PORTABLE};
use niello::target::{CpuLevel, Target};
use niello::tuned::Tuned;

use crate::cargo::Environment;
use crate::config::Config;

impl Config {
    /// The builder's options with what the environment says; problems go into `report`.
    pub(crate) fn effective_options(
        &self,
        environment: &mut Environment<'_>,
        report: &mut Report,
    ) -> CompileOptions {
        let mut options = self.options.clone();
        options.package = environment.cargo("CARGO_PKG_NAME").unwrap_or_default();
        options.version = environment.cargo("CARGO_PKG_VERSION").unwrap_or_default();
        let jobs = environment.cargo("NUM_JOBS").and_then(|jobs| jobs.parse().ok());
        options.jobs = jobs.unwrap_or(1).max(1);
        // LLVM ends the process that it fails in, which would be the build script without a word.
        options.isolate = true;

        if environment.is_build_script() {
            match Target::from_cargo_env(|name| environment.cargo(name)) {
                Ok(target) => options.target = target,
                Err(error) => report.push(Problem::new(error.to_string())),
            }
        }
        match self.tuned.as_deref().map(Tuned::read) {
            None => {}
            Some(Ok(tuned)) => options.tuned = tuned,
            Some(Err(problem)) => report.push(problem),
        }
        environment.watch("NIELLO_MEMORY_LIMIT");
        let folder =
            environment.cargo("OUT_DIR").map(|folder| Path::new(&folder).join("niello-kernels"));
        match KernelCache::of_variables(folder, |name| environment.user(name)) {
            Ok(cache) => options.kernel_cache = cache,
            Err(problem) => report.push(problem),
        }
        for variable in compiler_variables(&options.target) {
            environment.watch(&variable);
        }
        let from_environment = environment.user("NIELLO_TARGET_CPU");
        let levels = self.cpu_levels.as_deref().filter(|_| from_environment.is_none());
        let cpu = from_environment.or_else(|| self.target_cpu.clone());
        match options.set_target_cpu(cpu.as_deref().unwrap_or(PORTABLE)) {
            Ok(()) => {}
            Err(error) => report.push(Problem::new(error.to_string())),
        }
        if let Some(names) = levels {
            options.levels.clear();
            for name in names {
                match CpuLevel::from_name(name) {
                    Some(level) => options.levels.push(level),
                    None => {
                        let known = CpuLevel::ALL.map(CpuLevel::name).join(", ");
                        report.push(
                            Problem::new(format!("`{name}` is not a CPU level"))
                                .help(format!("the levels are {known}")),
                        );
                    }
                }
            }
        }
        if let Some(name) = environment.user("NIELLO_BACKEND") {
            match name.parse() {
                Ok(backend) => options.backend = backend,
                Err(error) => report.push(Problem::new(format!("NIELLO_BACKEND: {error}"))),
            }
        }
        let level = environment.user("NIELLO_OPT_LEVEL");
        let level_text = level.unwrap_or_else(|| options.opt_level.to_string());
        match level_text.parse() {
            Ok(level) if level <= MAX_OPT_LEVEL => options.opt_level = level,
            _ => report.push(Problem::new(format!(
                "`{level_text}` is not an optimisation level; they are 0 to {MAX_OPT_LEVEL}"
            ))),
        }
        let on_docs_rs = environment.user("DOCS_RS").is_some();
        options.stub = match environment.user("NIELLO_STUB").as_deref() {
            Some("1" | "true") => true,
            Some("0" | "false") => false,
            None | Some("") => on_docs_rs,
            Some(other) => {
                report.push(Problem::new(format!("NIELLO_STUB is `{other}`; it can be 0 or 1")));
                false
            }
        };
        options
    }
}
