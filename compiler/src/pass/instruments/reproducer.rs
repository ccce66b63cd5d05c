//! Reproducers: files with a pipeline, a module and a context that make a pass fail.
//!
//! The file is the text of the module behind header lines, which are comments of the text format,
//! so it can be read like any other module. Large constants are in a sidecar beside it.
//!
//! ```text
//! ; niello reproducer 1
//! ; pipeline: FuseOps{max_depth=2}
//! ; context: {"opt_level":3,"required":[],"disabled":[],"config":{},"verify":false,…}
//! ; definitions: ["main"]
//! ; failure: "panicked: index out of bounds"
//!
//! def @main(…
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::diagnostics::{Diagnostic, Problem, Report};
use crate::graph::{PrintOptions, Sidecar, VerifyErrors, parse_module_with, print_with_sidecar};
use crate::ir::{GlobalVar, IRModule, SharedBytes};
use crate::pass::{
    InstrumentRef, Pass, PassContext, PassError, PassErrorKind, PipelineText, Registry, Result,
};

/// The first line of a file, after the comment sign.
const MAGIC: &str = "niello reproducer 1";
/// A pipeline, a module and a context that repeat a failure.
#[derive(Clone, Debug)]
pub struct Reproducer {
    /// The pipeline to run, as text.
    pub pipeline: String,
    /// Whether the pipeline runs as a list, with its requirements and under the context's levels;
    /// else its passes run directly, because the module is already prepared for them.
    pub whole_pipeline: bool,
    /// The level of the context.
    pub opt_level: u8,
    /// Passes that the context runs whatever their level.
    pub required: Vec<String>,
    /// Passes that the context does not run.
    pub disabled: Vec<String>,
    /// Options that the context sets.
    pub config: BTreeMap<String, serde_json::Value>,
    /// Whether the module is verified after each pass.
    pub verify: bool,
    /// The failure, as text.
    pub failure: String,
    /// The module on which the pipeline runs.
    pub module: IRModule,
}

/// The header line about the context.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextHeader {
    opt_level: u8,
    required: Vec<String>,
    disabled: Vec<String>,
    config: BTreeMap<String, serde_json::Value>,
    verify: bool,
    whole_pipeline: bool,
}

/// The outcome of running a reproducer.
#[derive(Debug)]
pub enum Replay {
    /// The same failure.
    SameFailure(PassError),
    /// Another failure.
    OtherFailure(PassError),
    /// No failure; the resulting module.
    NoFailure(IRModule),
}

/// A failure as text, without the source places that a module loses on its way through a file.
pub(super) fn failure_text(error: &PassError) -> String {
    let what = match (verify_errors(error), error.kind()) {
        // A verifier's error counts as the same, whether the context or an instrument called it.
        (Some(errors), _) => format!("a malformed module: {errors}"),
        (None, PassErrorKind::Diagnostics(diagnostics)) => {
            let message =
                |diagnostic: &Diagnostic| format!("{}: {}", diagnostic.level, diagnostic.message);
            let failures = diagnostics.iter().filter(|diagnostic| diagnostic.level.is_failure());
            failures.map(message).collect::<Vec<_>>().join("; ")
        }
        (None, kind) => kind.to_string(),
    };
    match error.function() {
        Some(function) => format!("function {function}: {what}"),
        None => what,
    }
}

/// The verifier's errors, if the failure consists of them.
pub(super) fn verify_errors(error: &PassError) -> Option<&VerifyErrors> {
    match error.kind() {
        PassErrorKind::Verify(source) | PassErrorKind::Instrument { source, .. } => {
            source.downcast_ref()
        }
        _ => None,
    }
}

fn sidecar_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sidecar");
    name.into()
}

impl Reproducer {
    /// Writes the file, and its sidecar if there are large constants.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let (text, sidecar) = print_with_sidecar(&self.module, &PrintOptions::default());
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, format!("{}\n{text}", self.header()?))?;
        let constants = sidecar_path(path);
        if sidecar.is_empty() {
            // A sidecar of an earlier failure would be read with this file.
            return match fs::remove_file(constants) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let mut file = io::BufWriter::new(fs::File::create(constants)?);
        sidecar.write_to(&mut file)?;
        file.flush()
    }

    fn header(&self) -> Result<String, serde_json::Error> {
        let context = ContextHeader {
            opt_level: self.opt_level,
            required: self.required.clone(),
            disabled: self.disabled.clone(),
            config: self.config.clone(),
            verify: self.verify,
            whole_pipeline: self.whole_pipeline,
        };
        let names: Vec<&str> = self.module.iter().map(|(global, _)| global.name()).collect();
        Ok(format!(
            "; {MAGIC}\n; pipeline: {}\n; context: {}\n; definitions: {}\n; failure: {}\n",
            // A pipeline may be spread over lines.
            self.pipeline.split_whitespace().collect::<Vec<_>>().join(" "),
            serde_json::to_string(&context)?,
            serde_json::to_string(&names)?,
            serde_json::to_string(&self.failure)?,
        ))
    }

    /// Reads a file that [`write`](Self::write) wrote.
    ///
    /// # Errors
    ///
    /// If the file or its sidecar cannot be read, is not a reproducer, or its module is malformed.
    pub fn read(path: &Path) -> Result<Reproducer, Report> {
        let problem = |error: &dyn fmt::Display| {
            Problem::new(format!("{}: cannot read the reproducer: {error}", path.display()))
        };
        let text = fs::read_to_string(path).map_err(|error| problem(&error))?;
        let constants = sidecar_path(path);
        let sidecar = match fs::read(&constants) {
            Ok(bytes) => {
                Sidecar::read(&SharedBytes::new(bytes)).map_err(|error| problem(&error))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Sidecar::new(),
            Err(error) => return Err(problem(&error).into()),
        };
        if text.lines().next() != Some(&format!("; {MAGIC}")) {
            return Err(problem(&format_args!("its first line is not `; {MAGIC}`")).into());
        }
        let json = |key: &str| {
            header(&text, key).ok_or_else(|| problem(&format_args!("there is no line `; {key}:`")))
        };
        let context: ContextHeader = serde_json::from_str(json("context")?)
            .map_err(|error| problem(&format_args!("in the line `; context:`: {error}")))?;
        let names: Vec<String> = serde_json::from_str(json("definitions")?)
            .map_err(|error| problem(&format_args!("in the line `; definitions:`: {error}")))?;
        let failure: String = serde_json::from_str(json("failure")?)
            .map_err(|error| problem(&format_args!("in the line `; failure:`: {error}")))?;
        Ok(Reproducer {
            pipeline: json("pipeline")?.to_owned(),
            whole_pipeline: context.whole_pipeline,
            opt_level: context.opt_level,
            required: context.required,
            disabled: context.disabled,
            config: context.config,
            verify: context.verify,
            failure,
            module: module(&text, &sidecar, &names)
                .map_err(|error| problem(&format_args!("its module is malformed: {error}")))?,
        })
    }

    /// Runs the pipeline on the module, watched by these instruments.
    ///
    /// # Errors
    ///
    /// If the context or the pipeline cannot be made, as when a pass is not linked into this
    /// program.
    pub fn run(&self, instruments: impl IntoIterator<Item = InstrumentRef>) -> Result<Replay> {
        let mut builder = PassContext::builder().opt_level(self.opt_level).verify_each(self.verify);
        builder = self.required.iter().fold(builder, |builder, name| builder.require_pass(name));
        builder = self.disabled.iter().fold(builder, |builder, name| builder.disable_pass(name));
        for (name, value) in &self.config {
            builder = builder.config_value(name, value.clone());
        }
        builder =
            instruments.into_iter().fold(builder, |b, instrument| b.shared_instrument(instrument));
        let cx = builder.build()?;
        let list = PipelineText::parse(&self.pipeline)?.build(&Registry::global())?;
        let module = self.module.clone();
        let result = cx.scope(|cx| match self.whole_pipeline {
            true => list.run(module, cx),
            false => list.passes().iter().try_fold(module, |module, pass| pass.run(module, cx)),
        });
        Ok(match result {
            Ok(module) => Replay::NoFailure(module),
            Err(error) if failure_text(&error) == self.failure => Replay::SameFailure(error),
            Err(error) => Replay::OtherFailure(error),
        })
    }
}

/// The rest of the header line that begins with `; key: `.
fn header<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().take_while(|line| line.starts_with(';'));
    lines.filter_map(|line| line.strip_prefix("; ")?.strip_prefix(key)?.strip_prefix(": ")).next()
}

/// The module of a text, with its definitions in the given order.
fn module(text: &str, sidecar: &Sidecar, names: &[String]) -> Result<IRModule, String> {
    let read = parse_module_with(text, sidecar).map_err(|errors| errors.to_string())?;
    let mut ordered = IRModule::new();
    ordered.set_attrs(read.attrs().clone());
    for name in names.iter().map(|name| GlobalVar::new(name)) {
        let definition = read.get(&name);
        let definition = definition.ok_or_else(|| format!("there is no definition of {name}"))?;
        ordered.insert(name, definition.clone());
    }
    Ok(ordered)
}
