//! `niello bench`: how long a model takes to compile and to run, and how much memory it needs.

mod check;
mod child;
mod measure;
mod profile;
mod sizes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::code::{self, CodeArgs, Engine};
use super::isolated::{End, Isolated};
use super::output::{Output, write_json};
use super::progress::Progress;
use super::{Failure, Problem};
use sizes::SizeArgs;

pub(super) use check::data as data_of;
pub(super) use child::{Args as ChildArgs, run as run_child};
pub(super) use measure::{Times, WARM_UP};

/// The subcommand that measures.
pub(super) const CHILD: &str = "__bench-child";

/// Compile a model, check it and measure how fast it is.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    /// What generates code
    #[arg(long, value_enum, default_value_t = Engine::C)]
    backend: Engine,
    #[command(flatten)]
    code: CodeArgs,
    #[command(flatten)]
    sizes: SizeArgs,
    /// How long to measure, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Time each call of a kernel by itself too, and print what became of the kernels beside it
    #[arg(long)]
    profile: bool,
    /// Seconds after which compiling, checking and measuring together have failed
    #[arg(long, value_name = "S", default_value_t = 900)]
    timeout: u64,
    /// Write the row to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Longest measurement: a day.
const MAX_SECONDS: f64 = 86_400.0;

pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    match (0.0..=MAX_SECONDS).contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("{text} is not within 0 and {MAX_SECONDS}")),
    }
}

/// What the outputs were compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Checked {
    /// The outputs in `test_data_set_*` beside the model.
    TestData,
    /// The reference interpreter's.
    Interpreter,
    /// Nothing.
    Unchecked,
}

impl Checked {
    fn name(self) -> &'static str {
        match self {
            Checked::TestData => "test_data",
            Checked::Interpreter => "interpreter",
            Checked::Unchecked => "unchecked",
        }
    }
}

/// One row. The fields' names are the columns'.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Row {
    model: String,
    threads: u64,
    compile_ms: f64,
    median_us: f64,
    min_us: f64,
    workspace_bytes: u64,
    weight_bytes: u64,
    code_bytes: u64,
    checked: Checked,
}

/// The columns, in the order of a row.
const COLUMNS: [&str; 9] = [
    "model",
    "threads",
    "compile_ms",
    "median_us",
    "min_us",
    "workspace_bytes",
    "weight_bytes",
    "code_bytes",
    "checked",
];

impl Row {
    /// The cells, in the order of [`COLUMNS`].
    fn cells(&self) -> [String; COLUMNS.len()] {
        [
            // A tab or a line break would be another cell or row.
            self.model.replace(['\t', '\n', '\r'], " "),
            self.threads.to_string(),
            format!("{:.1}", self.compile_ms),
            format!("{:.2}", self.median_us),
            format!("{:.2}", self.min_us),
            self.workspace_bytes.to_string(),
            self.weight_bytes.to_string(),
            self.code_bytes.to_string(),
            self.checked.name().to_owned(),
        ]
    }
}

/// What a child prints: the row, or every problem.
#[derive(Serialize, Deserialize)]
enum Outcome {
    /// The row, and the profile as text if one was asked for.
    Measured(Row, Option<String>),
    Failed(Vec<String>),
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.backend.backend()?.is_none() {
        return Err(Problem::new("the interpreter is not measured")
            .help("leave out --backend, or name a code generator")
            .into());
    }
    // What is wrong with the options is told without a child.
    let options = args.code.options()?;
    code::beyond_machine(args.backend, &options)?;
    args.sizes.fixed(&options)?;
    let out = Output::beside(args.json.as_deref());
    let progress = Progress::spinner(args.json.as_deref(), "compiling, checking, measuring");
    let isolated = Isolated::new(Duration::from_secs(args.timeout))?;
    let end = isolated.run(&child_args(args)).map_err(|error| {
        Problem::new(format!("the process that measures cannot be run: {error}"))
    })?;
    progress.finish();
    let (row, profile) = row_of(end)?;
    out.line(&COLUMNS.join("\t"));
    out.line(&row.cells().join("\t"));
    if let Some(profile) = profile {
        out.text(&profile);
    }
    match &args.json {
        Some(path) => write_json(path, &row),
        None => Ok(()),
    }
}

fn child_args(args: &Args) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![CHILD.into()];
    all.push(format!("--backend={}", args.backend.name()).into());
    all.push(format!("--seconds={}", args.seconds).into());
    all.extend(args.profile.then(|| "--profile".into()));
    all.extend(args.code.to_args());
    all.extend(args.sizes.to_args());
    all.push("--".into());
    all.push(args.model.clone().into_os_string());
    all
}

fn row_of(end: End) -> Result<(Row, Option<String>), Failure> {
    let crashed = |what: String, errors: &str| {
        if !errors.is_empty() {
            Output::error(errors);
        }
        Failure::from(Problem::new(what))
    };
    match end {
        End::Timeout(seconds) => {
            Err(Problem::new(format!("the measurement was not done after {seconds} s"))
                .help("allow more with --timeout")
                .into())
        }
        End::Signal { number, errors } => {
            Err(crashed(format!("the model's process was killed by signal {number}"), &errors))
        }
        End::Exited { status, output, errors } => match serde_json::from_str(output.trim()) {
            Ok(Outcome::Measured(row, profile)) if status.success() => Ok((row, profile)),
            Ok(Outcome::Failed(problems)) => {
                problems.iter().for_each(|problem| Output::error(&format!("error: {problem}")));
                Err(Failure::Told)
            }
            Ok(Outcome::Measured(..)) | Err(_) => {
                Err(crashed(format!("the model's process left no result: {status}"), &errors))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column_and_json_the_same_keys() {
        let row = Row {
            model: "a\tb".to_owned(),
            threads: 1,
            compile_ms: 12.345,
            median_us: 0.5,
            min_us: 0.25,
            workspace_bytes: 64,
            weight_bytes: 0,
            code_bytes: 1000,
            checked: Checked::TestData,
        };
        let cells = row.cells();
        assert_eq!(cells.join("|"), "a b|1|12.3|0.50|0.25|64|0|1000|test_data");
        let json = serde_json::to_value(&row).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = COLUMNS;
        columns.sort_unstable();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, columns);
        assert_eq!(json["checked"], "test_data");
    }

    #[test]
    fn seconds_are_checked() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["-1", "nan", "inf", "x", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
