//! Measures how many runs of a model a machine makes in a second: by one caller whose runs several
//! threads share, and by as many callers on one thread each. `cargo xtask bench throughput` builds
//! and runs it.

#![allow(clippy::print_stdout, reason = "what a benchmark has to say goes to standard output")]

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use niello::compile::{Model, Passes, compile};
use niello::executor::{CompiledModel, LoadedCall, LoadedModel, TensorInfo, write_shared_library};
use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::onnx::{self, TestValue};
use niello::options::{Backend, CompileOptions};
use niello::target::Target;

/// Measures runs of models in a second.
#[derive(Parser)]
struct Options {
    /// Models to measure: files, or folders with `model.onnx`
    #[arg(required = true)]
    model: Vec<PathBuf>,
    /// Backend of niello
    #[arg(long, default_value_t = Backend::default())]
    backend: Backend,
    /// Number of threads; may be given more than once [default: 1, 2, 4 … and all that there are]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Vec<u16>,
    /// Rounds in which both ways take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Length of a turn in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200)]
    turn: u64,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The failure of one model, as a sentence for the reader.
type Result<T> = std::result::Result<T, String>;

/// After a pool had its turn: its threads look for work for a while before they sleep.
const REST: Duration = Duration::from_millis(5);

/// A model on some threads: medians of the rounds.
struct Row {
    model: String,
    threads: usize,
    /// Runs in a second of one caller.
    shared: f64,
    /// Runs in a second of as many callers as threads, together.
    apart: f64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = match options.threads.as_slice() {
        [] => up_to(cores),
        given => given.iter().copied().map(usize::from).collect(),
    };
    for threads in threads.iter().filter(|&&threads| threads > cores) {
        eprintln!("warning: {threads} threads share {cores} cores");
    }
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for path in &options.model {
        match measure(options, path, &threads) {
            Ok(new) => rows.extend(new),
            // One that fails says so, and the others are measured nevertheless.
            Err(why) => failures.push(format!("{}: {why}", title(path))),
        }
    }
    let table = table(&rows, &failures);
    print!("{table}");
    if let Some(path) = &options.markdown {
        fs::write(path, table).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if rows.is_empty() { Err("nothing was measured".to_owned()) } else { Ok(()) }
}

/// 1, 2, 4 and so on, and the number of cores.
fn up_to(cores: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |threads| Some(threads * 2));
    doubled.take_while(|&threads| threads < cores).chain([cores]).collect()
}

/// What the model is called: its folder, if its file is called as all others.
fn title(path: &Path) -> String {
    let is_named = !path.is_dir() && path.file_name().is_none_or(|name| name != "model.onnx");
    let name = if is_named || path.is_dir() { Some(path) } else { path.parent() };
    let stem = name.and_then(if is_named { Path::file_stem } else { Path::file_name });
    stem.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The rows of a model.
///
/// # Errors
///
/// It cannot be compiled or run, or threads change its results.
fn measure(options: &Options, path: &Path, threads: &[usize]) -> Result<Vec<Row>> {
    let file = if path.is_dir() { path.join("model.onnx") } else { path.to_owned() };
    let most = threads.iter().copied().max().unwrap_or(1);
    let turn = Duration::from_millis(options.turn);
    let [serial, parallel] =
        [1, most].map(|threads| Code::new(&file, options.backend, threads, most));
    let (serial, parallel) = (serial?, parallel?);
    let inputs = inputs(file.parent(), &serial.model.inputs)?;
    let mut shared = parallel.load(0)?;
    let expected = bytes(&serial.load(0)?.run(&inputs).map_err(said)?);
    let mut rows = Vec::new();
    for &threads in threads {
        shared.set_threads(threads);
        if bytes(&shared.run(&inputs).map_err(said)?) != expected {
            return Err(format!("{threads} threads change the results"));
        }
        let (mut one, mut several) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            one.push(rate(&mut shared.call(&inputs).map_err(said)?, turn)?);
            thread::sleep(REST);
            several.push(rate_of_callers(&serial, threads, &inputs, turn)?);
        }
        let (shared, apart) = (median(&mut one), median(&mut several));
        rows.push(Row { model: title(path), threads, shared, apart });
    }
    Ok(rows)
}

/// A model's code, in as many files as there are callers: the memory of a run belongs to a library,
/// and the system tells libraries apart by their files.
struct Code {
    model: CompiledModel,
    folder: tempfile::TempDir,
}

impl Code {
    fn new(file: &Path, backend: Backend, threads: usize, copies: usize) -> Result<Code> {
        let mut options = CompileOptions::new(Target::host());
        options.set_target_cpu("native").map_err(said)?;
        (options.backend, options.threads) = (backend, threads);
        if let Some(text) = file.parent().and_then(|it| fs::read(it.join("dims.json")).ok()) {
            let dims: BTreeMap<String, u64> = serde_json::from_slice(&text).map_err(said)?;
            options.dims = dims.into_iter().map(|(name, size)| (name, size.into())).collect();
        }
        let model = Model::read(file).map_err(said)?;
        let passes = Passes::new(&options).map_err(said)?;
        let model = compile(&model, &options, &passes).map_err(said)?.model;
        let code = Code { model, folder: tempfile::tempdir().map_err(said)? };
        write_shared_library(&code.model, &options.target, &code.path(0)).map_err(said)?;
        for copy in 1..copies {
            fs::copy(code.path(0), code.path(copy)).map_err(said)?;
        }
        Ok(code)
    }

    fn path(&self, copy: usize) -> PathBuf {
        self.folder.path().join(format!("model{copy}.so"))
    }

    fn load(&self, copy: usize) -> Result<LoadedModel> {
        LoadedModel::load(&self.model, &self.path(copy)).map_err(said)
    }
}

/// Recorded inputs beside the model, or numbers that are always the same.
fn inputs(folder: Option<&Path>, ports: &[TensorInfo]) -> Result<Vec<Constant>> {
    let recorded = folder.map(|folder| folder.join("test_data_set_0"));
    ports
        .iter()
        .enumerate()
        .map(|(index, port)| {
            let file = recorded.as_ref().map(|folder| folder.join(format!("input_{index}.pb")));
            let Some(bytes) = file.and_then(|file| fs::read(file).ok()) else {
                return made_up(port);
            };
            match onnx::test_value_from_bytes(bytes.into()).map_err(said)? {
                TestValue::Tensor(tensor) => Ok(tensor),
                _ => Err(format!("the recorded input `{}` is no tensor", port.name)),
            }
        })
        .collect()
}

/// Floats from -1 to 1; zeros of all other types.
fn made_up(port: &TensorInfo) -> Result<Constant> {
    let shape: Vec<i64> = port.shape.iter().map(|&extent| extent as i64).collect();
    let ty = TensorType::from_consts(&shape, port.dtype);
    let bytes = ty.bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let mut bytes = vec![0; bytes.ok_or("an input does not fit in memory")?];
    if port.dtype == DType::F32 {
        for (index, element) in bytes.chunks_exact_mut(4).enumerate() {
            let number = (index as u32).wrapping_mul(2_654_435_761) as i32;
            element.copy_from_slice(&(number as f32 / i32::MIN as f32).to_ne_bytes());
        }
    }
    Constant::new(ty, SharedBytes::new(bytes)).map_err(said)
}

/// How many runs a call makes in a second.
fn rate(call: &mut LoadedCall<'_>, turn: Duration) -> Result<f64> {
    call.run().map_err(said)?;
    let (begin, mut runs) = (Instant::now(), 0u32);
    loop {
        call.run().map_err(said)?;
        runs += 1;
        let spent = begin.elapsed();
        if spent >= turn {
            return Ok(f64::from(runs) / spent.as_secs_f64());
        }
    }
}

/// How many runs so many callers make in a second together.
fn rate_of_callers(
    code: &Code,
    callers: usize,
    inputs: &[Constant],
    turn: Duration,
) -> Result<f64> {
    let barrier = Barrier::new(callers);
    let caller = |copy: usize| {
        let model = code.load(copy);
        let call = model.as_ref().map_err(String::clone);
        let call = call.and_then(|model| model.call(inputs).map_err(said));
        // Whoever fails lets the others begin all the same.
        barrier.wait();
        rate(&mut call?, turn)
    };
    thread::scope(|scope| {
        let caller = &caller;
        let callers: Vec<_> = (0..callers).map(|copy| scope.spawn(move || caller(copy))).collect();
        let rates = callers.into_iter().map(|caller| caller.join());
        rates.map(|rate| rate.map_err(|_| "a caller panicked".to_owned())?).sum()
    })
}

fn bytes(outputs: &[Constant]) -> Vec<Option<Vec<u8>>> {
    outputs.iter().map(|output| Some(output.to_bytes()?.to_vec())).collect()
}

/// The value in the middle, of at least one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2] + values[(values.len() - 1) / 2]) / 2.0
}

fn said(error: impl Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The table, and what could not be measured.
fn table(rows: &[Row], failures: &[String]) -> String {
    let mut text = String::from(
        "| model | threads | 1 caller, µs a run | times as fast | 1 caller, runs/s | n callers, runs/s \
         | times as many | n callers / 1 caller |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let Row { model, threads, shared, apart } = row;
        let base = rows.iter().find(|base| base.threads == 1 && base.model == *model);
        let times = |rate: f64, of: &dyn Fn(&Row) -> f64| {
            base.map_or_else(|| "–".to_owned(), |base| format!("{:.2}", rate / of(base)))
        };
        let faster = times(*shared, &|row| row.shared);
        let more = times(*apart, &|row| row.apart);
        let (micros, ratio) = (1e6 / shared, apart / shared);
        // A string can always be written to.
        let _ = writeln!(
            text,
            "| {model} | {threads} | {micros:.1} | {faster} | {shared:.1} | {apart:.1} | {more} \
             | {ratio:.2} |"
        );
    }
    if !failures.is_empty() {
        text += "\nNot measured:\n\n";
    }
    for failure in failures {
        text += &format!("- {failure}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn thread_counts_double_up_to_the_cores() {
        assert_eq!(up_to(1), [1]);
        assert_eq!(up_to(2), [1, 2]);
        assert_eq!(up_to(6), [1, 2, 4, 6]);
        assert_eq!(up_to(8), [1, 2, 4, 8]);
    }

    #[test]
    fn models_are_called_what_tells_them_apart() {
        assert_eq!(title(Path::new("models/digits.onnx")), "digits");
        assert_eq!(title(Path::new("models/rnn/model.onnx")), "rnn");
        assert_eq!(title(Path::new(env!("CARGO_MANIFEST_DIR"))), "bench");
    }

    #[test]
    fn a_model_has_a_row_for_each_number_of_threads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let model = folder.join("../../examples/digits/models/digits.onnx");
        let options = Options {
            model: Vec::new(),
            backend: Backend::default(),
            threads: Vec::new(),
            rounds: 1,
            turn: 0,
            markdown: None,
        };
        let rows = measure(&options, &model, &[1, 2]).unwrap();
        let text = table(&rows, &["odd: no model".to_owned()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert!(lines[2].starts_with("| digits | 1 | ") && lines[3].starts_with("| digits | 2 | "));
        assert!(lines[..4].iter().all(|line| line.matches('|').count() == 9), "{text}");
        assert_eq!(lines[7], "- odd: no model");
        assert!(measure(&options, &folder.join("no.onnx"), &[1]).is_err());
    }
}
