//! `cargo xtask sanitize`: the node tests and models under sanitizers, and with checks of every index.
//!
//! - Generated C under gcc's address and undefined behaviour sanitizers, which see reads and writes beside the tensors of
//!   a call and beside the workspace.
//! - Code of every CPU level with the checks of `tir.InstrumentBoundCheckers`, which see an index that leaves a tensor
//!   within the workspace or the weights.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, Backend};
use crate::conformance::{self, Suite};
use crate::{Result, process, setup, workspace};

/// Of how many node tests `--subset` runs one.
const SUBSET: usize = 12;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// CPU to compile for [default: x86-64-v3 by C, every level of a build script for the checks of indices]
    #[arg(long, value_name = "CPU")]
    target_cpu: Option<String>,
    /// Folder of models, left out if there is none
    #[arg(long, value_name = "DIR", default_value = "../shared/models")]
    models: PathBuf,
    /// Run a twelfth of the node tests, and no models
    #[arg(long)]
    subset: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Runs everything; fails if a case fails that passes without sanitizers.
pub(crate) fn run(options: &Options) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let python = environment.python()?;
    let all = conformance::generate(python)?;
    let niello = command::build(&environment)?;
    let folder = workspace::target().join("sanitize");
    fs::create_dir_all(&folder)?;
    let nodes = match options.subset {
        true => conformance::some_of(&all, SUBSET, &folder)?,
        false => all,
    };
    let models = match options.subset {
        true => None,
        false => conformance::folder_of_models(&options.models),
    };
    let cpu = options.target_cpu.as_deref();

    let mut failed = 0;
    match Sanitizer::find(&folder)? {
        None => println!("skipped: sanitizers: gcc or its sanitizers are missing"),
        Some(sanitizer) => {
            for (name, cases) in suites(&nodes, models.as_deref()) {
                let name = format!("sanitize-{name}");
                let mut suite = Suite::of(Backend::C, cpu, cases, &name);
                suite.environment = sanitizer.environment();
                // Large kernels with a check of each access keep gcc busy.
                suite.args = vec!["--timeout", "3600"];
                failed += suite.run(&niello)?.told_failures_among(Backend::C, cases);
            }
        }
    }
    let backends = command::backends(&[], &environment)?;
    let backend = if backends.contains(&Backend::Llvm) { Backend::Llvm } else { Backend::C };
    for (name, cases) in suites(&nodes, models.as_deref()) {
        let name = format!("bounds-{name}");
        let mut suite = Suite::of(backend, cpu, cases, &name);
        suite.args = vec!["--config", "tir.instrument_bound_checkers=true", "--timeout", "3600"];
        failed += suite.run(&niello)?.told_failures_among(backend, cases);
    }
    if failed > 0 {
        return Err(format!("{failed} cases fail under sanitizers or checks of indices").into());
    }
    Ok(())
}

fn suites<'a>(nodes: &'a Path, models: Option<&'a Path>) -> Vec<(&'static str, &'a Path)> {
    [("node", nodes)].into_iter().chain(models.map(|models| ("models", models))).collect()
}

/// What makes the C backend's compiler one that adds checks, and the command a process that has the sanitizers.
struct Sanitizer {
    compiler: PathBuf,
    library: PathBuf,
}

impl Sanitizer {
    /// Writes the compiler into a folder; none if gcc has no sanitizers.
    fn find(folder: &Path) -> Result<Option<Sanitizer>> {
        let mut gcc = Command::new("gcc");
        let found = process::output(gcc.arg("-print-file-name=libasan.so")).unwrap_or_default();
        let Ok(library) = fs::canonicalize(found.trim()) else { return Ok(None) };
        let compiler = folder.join("cc");
        // The compiler itself runs without sanitizers, and optimises little: checks are many, and
        // calls of functions, which make less code.
        let script = "#!/bin/sh\nunset LD_PRELOAD\nexec gcc \"$@\" -O1 -g1 \
            -fsanitize=address,undefined -fno-sanitize-recover=all \
            --param asan-instrumentation-with-call-threshold=0\n";
        fs::write(&compiler, script)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Some(Sanitizer { compiler, library }))
    }

    fn environment(&self) -> Vec<(&str, &std::ffi::OsStr)> {
        vec![
            ("CC", self.compiler.as_os_str()),
            ("LD_PRELOAD", self.library.as_os_str()),
            // The command ends without tidying up.
            ("ASAN_OPTIONS", std::ffi::OsStr::new("detect_leaks=0")),
            ("UBSAN_OPTIONS", std::ffi::OsStr::new("print_stacktrace=1")),
        ]
    }
}
