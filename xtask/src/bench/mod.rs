//! `cargo xtask bench models`: latency of compiled models beside ONNX Runtime and OpenVINO, in one run.
//! `cargo xtask bench kernels`: single kernels beside the processor's peak and the same engines.
//! `cargo xtask bench sweep`: random small models beside these engines.
//! `cargo xtask bench throughput`: runs in a second by one caller on several threads, and by as many callers.
//! `cargo xtask bench passes`: what the pass infrastructure costs.

mod kernels;
mod sweep;
mod throughput;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{self, Backend};
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Latency of whole models
    Models(Models),
    /// Speed of single kernels beside the processor's peak
    Kernels(kernels::Kernels),
    /// Speed of random models of one to three operators, the slowest first
    Sweep(sweep::Sweep),
    /// Runs in a second on 1, 2, 4 … threads: shared by them, and one on each
    Throughput(throughput::Throughput),
    /// What a pass costs beside its own work, and what function passes gain from two threads
    Passes,
}

#[derive(clap::Args)]
struct Models {
    /// Folders with `model.onnx`, or model files [default: the digits model]
    model: Vec<PathBuf>,
    /// A folder of such folders; measures the large networks of the package `onnx`, too
    /// [default: ../shared/models, if it exists and no model is given]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Backend to measure; may be given more than once [default: all]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// Threads of all engines; above one, niello is measured on one as well, for its speed-up
    #[arg(long, default_value_t = 1)]
    threads: u16,
    /// Rounds in which the engines take turns
    #[arg(long, default_value_t = 11)]
    rounds: u16,
    /// Length of a round in seconds
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Write each model's ratios to the best peer to a file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables to docs/benchmarks.md as well
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Measures, prints, and writes the document if asked to.
pub(crate) fn run(options: &Options) -> Result {
    let options = match &options.what {
        What::Models(models) => models,
        What::Kernels(options) => return kernels::run(options),
        What::Sweep(options) => return sweep::run(options),
        What::Throughput(options) => return throughput::run(options),
        What::Passes => {
            let mut bench = process::cargo();
            return process::run(bench.args(["bench", "--package", "niello", "--bench", "passes"]));
        }
    };
    let environment = setup::prepare(&options.setup)?;
    let mut backends = command::backends(&options.backend, &environment)?;
    backends.retain(|&backend| backend != Backend::Interp);
    let python = environment.python()?;
    setup::add_packages(python, "requirements-bench.txt")?;
    let niello = command::build(&environment)?;

    let mut measure = Command::new(python);
    measure.arg("-B").arg(workspace::root().join("tests/bench/latency.py"));
    measure.args(backends.iter().map(|backend| format!("--backend={}", backend.name())));
    measure.arg(format!("--threads={}", options.threads));
    measure.arg(format!("--rounds={}", options.rounds));
    measure.arg(format!("--seconds={}", options.seconds));
    if let Some(folder) = folder_of_models(options) {
        measure.arg("--models").arg(folder);
    }
    if let Some(json) = &options.json {
        measure.arg("--json").arg(json);
    }
    measure.arg(&niello).args(models(options));
    // Progress goes to the terminal at once, the tables when they are complete.
    let output = measure.stderr(Stdio::inherit()).output()?;
    let tables = String::from_utf8(output.stdout)?;
    std::io::stdout().write_all(tables.as_bytes())?;
    if !output.status.success() {
        return Err(format!("{}: {}", process::shown(&measure), output.status).into());
    }
    if options.write {
        write("models", &format!("{}\n\n{}", heading(options), tables.trim()))?;
    }
    Ok(())
}

/// The code generator that is measured: the one that was asked for, or the fastest one.
fn code_generator(asked: Option<Backend>, environment: &setup::Environment) -> Result<Backend> {
    let fastest = if environment.llvm.is_some() { Backend::Llvm } else { Backend::C };
    let backend = asked.unwrap_or(fastest);
    if backend == Backend::Interp {
        return Err("the interpreter is not measured; name a code generator".into());
    }
    command::backends(&[backend], environment)?;
    Ok(backend)
}

fn models(options: &Models) -> Vec<PathBuf> {
    let digits = workspace::root().join("examples/digits/models/digits.onnx");
    if options.model.is_empty() { vec![digits] } else { options.model.clone() }
}

fn folder_of_models(options: &Models) -> Option<PathBuf> {
    let beside = workspace::root().parent().map(|parent| parent.join("shared/models"));
    let default = beside.filter(|folder| options.model.is_empty() && folder.is_dir());
    options.models.clone().or(default)
}

/// What was run where, as a paragraph.
fn heading(options: &Models) -> String {
    let mut command = "cargo xtask bench models --write".to_owned();
    for backend in &options.backend {
        command += &format!(" --backend {}", backend.name());
    }
    if options.threads != 1 {
        command += &format!(" --threads {}", options.threads);
    }
    command += &format!(" --rounds {}", options.rounds);
    if options.models.is_some() {
        command += " --models DIR";
    }
    if !options.model.is_empty() {
        command += " MODEL…";
    }
    format!("`{command}` on {}:", machine())
}

/// The processor's name and the number of its cores that can be used.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processor(&info).unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {cores} cores")
}

fn processor(info: &str) -> Option<String> {
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// Puts tables into docs/benchmarks.md, between the marks with that name.
fn write(name: &str, tables: &str) -> Result {
    let path = workspace::root().join("docs/benchmarks.md");
    let text = fs::read_to_string(&path)?;
    Ok(fs::write(&path, replaced(&text, name, tables)?)?)
}

/// The document with the tables between its marks.
fn replaced(text: &str, name: &str, tables: &str) -> Result<String> {
    let [begin, end] = ["begin", "end"].map(|place| format!("<!-- {name}: {place} -->"));
    let lost = || format!("docs/benchmarks.md has lost its marks for {name}");
    let (before, rest) = text.split_once(&begin).ok_or_else(lost)?;
    let (_, after) = rest.split_once(&end).ok_or_else(lost)?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_go_between_their_marks() {
        let text =
            "a\n<!-- t: begin -->\nold\n<!-- t: end -->\nb\n<!-- u: begin --><!-- u: end -->";
        let new = replaced(text, "t", "| t |\n").unwrap();
        assert_eq!(new, text.replace("\nold\n", "\n\n| t |\n\n"));
        assert!(replaced(text, "v", "t").is_err());
    }

    #[test]
    fn the_processor_has_the_name_that_the_system_tells() {
        let info = "processor\t: 0\nmodel name\t: AMD EPYC 9B45\nmodel name\t: other\n";
        assert_eq!(processor(info).as_deref(), Some("AMD EPYC 9B45"));
        assert_eq!(processor("processor\t: 0\n"), None);
    }
}
