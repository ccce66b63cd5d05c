//! ONNX Runtime and OpenVINO, which run in a Python process that does what it is told line by line: see `peers.py`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use niello::ir::{Constant, DType, SharedBytes, TensorType};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kernel::{Case, Result};

/// The engines, in the order of the report: names in requests, names for people.
pub(crate) const ENGINES: [(&str, &str); 2] =
    [("onnxruntime", "ONNX Runtime"), ("openvino", "OpenVINO")];

/// The process. It is begun when it is first needed, and again if an engine has ended it.
pub(crate) struct Peers {
    python: PathBuf,
    process: Option<Process>,
}

struct Process {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peers {
    /// Engines that are packages of this Python.
    pub(crate) fn new(python: &Path) -> Peers {
        Peers { python: python.to_owned(), process: None }
    }

    /// Makes each engine ready for a model and runs it; hands back how far off its output is, or why it cannot run.
    ///
    /// # Errors
    ///
    /// The process cannot be run.
    pub(crate) fn load(&mut self, case: &Case, threads: usize) -> Result<[Result<()>; 2]> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let model = folder.path().join("model.onnx");
        fs::write(&model, &case.model).map_err(|error| error.to_string())?;
        let mut inputs = Vec::new();
        for (position, input) in case.inputs.iter().enumerate() {
            let path = folder.path().join(format!("input_{position}.bin"));
            let bytes = input.to_bytes().ok_or("an input has no elements")?;
            fs::write(&path, &bytes[..]).map_err(|error| error.to_string())?;
            inputs.push(path);
        }
        let answer = self.ask(&json!({
            "do": "load",
            "model": model,
            "inputs": inputs,
            "outputs": folder.path(),
            "threads": threads,
        }))?;
        Ok(ENGINES.map(|(engine, _)| match answer.get(engine) {
            Some(Value::Null) => check(case, &folder, engine),
            Some(Value::String(why)) => Err(why.clone()),
            _ => Err(format!("the peers' process answered {answer}")),
        }))
    }

    /// Lets an engine run the model for about that long; the median time of a call in seconds.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub(crate) fn time(&mut self, engine: &str, length: Duration) -> Result<f64> {
        let seconds = length.as_secs_f64();
        let answer = self.ask(&json!({ "do": "time", "engine": engine, "seconds": seconds }))?;
        let us = answer.get("us").and_then(Value::as_f64);
        us.map(|us| us / 1e6).ok_or_else(|| format!("the peers' process answered {answer}"))
    }

    /// Lets the engines forget the model.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.ask(&json!({ "do": "drop" })).map(drop)
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let process = match &mut self.process {
            Some(process) => process,
            none => none.insert(Process::begin(&self.python)?),
        };
        let answer = process.ask(request);
        if answer.is_err() {
            self.process = None;
        }
        answer
    }
}

impl Process {
    fn begin(python: &Path) -> Result<Process> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.py");
        let mut child = Command::new(python)
            .arg("-B")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", python.display()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the peers' process has no pipes".to_owned());
        };
        Ok(Process { child, requests, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let ended = |_| "the peers' process has ended".to_owned();
        writeln!(self.requests, "{request}").map_err(ended)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(ended)?;
        serde_json::from_str(&line).map_err(|_| "the peers' process has ended".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already; its last output does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether an engine's output is right: the time of a wrong one would say nothing.
fn check(case: &Case, folder: &TempDir, engine: &str) -> Result<()> {
    let path = folder.path().join(format!("{engine}.bin"));
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let elements = (bytes.len() / 4) as i64;
    let whole = case.inputs.iter().all(|input| input.ty().dtype == DType::U8);
    let dtype = if whole { DType::I32 } else { DType::F32 };
    let output =
        Constant::new(TensorType::from_consts(&[elements], dtype), SharedBytes::new(bytes))
            .map_err(|error| error.to_string())?;
    case.expected.error(&output).map(drop)
}
