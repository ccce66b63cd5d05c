//! `niello opt --bisect`: which pass is to blame, by halving.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::output::Output;
use crate::diagnostics::Problem;
use crate::ir::IRModule;
use crate::pass::instruments::{OptBisect, TextOutput};
use crate::pass::{PassContextBuilder, PassError};

use super::write_module;

/// Finds the first optional pass whose result a command does not like.
///
/// `context` makes the context of a run, and `passes` is the run. The command is called with the
/// path of the module's text, and likes it if its exit status is 0; a pass that fails is not liked
/// either.
pub(super) fn run(
    command: &Path,
    context: &dyn Fn() -> PassContextBuilder,
    passes: &dyn Fn(PassContextBuilder) -> Result<IRModule, PassError>,
) -> Result<(), Failure> {
    let file = TemporaryFile::new();
    let lines = TextOutput::default();
    let liked = |limit: Option<u64>, lines: TextOutput| -> Result<(bool, u64), Failure> {
        let bisect = Arc::new(OptBisect::new(limit).output(lines));
        let module = passes(context().shared_instrument(bisect.clone()));
        let is_liked = match module {
            Err(_) => false,
            Ok(module) => {
                write_module(&module, &Default::default(), &file.0)?;
                likes(command, &file.0)?
            }
        };
        let verdict = if is_liked { "good" } else { "bad" };
        let which = limit.map_or_else(|| "all".to_owned(), |limit| limit.to_string());
        Output::error(&format!("bisect: limit {which}: {verdict}"));
        Ok((is_liked, bisect.count()))
    };
    let (all_is_well, count) = liked(None, lines.clone())?;
    if all_is_well {
        let text = format!("`{}` likes the result of all {count} passes", command.display());
        return Err(Problem::new(text).help("there is nothing to find").into());
    }
    let (nothing_is_well, _) = liked(Some(0), TextOutput::default())?;
    if !nothing_is_well {
        let text = format!(
            "`{}` does not like the module without any of the {count} passes that can be left out",
            command.display()
        );
        return Err(Problem::new(text)
            .help("the fault is in the model, in a pass of level 0, or in the command")
            .into());
    }
    // Good up to `good`, bad from `bad` on.
    let (mut good, mut bad) = (0, count);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match liked(Some(middle), TextOutput::default())?.0 {
            true => good = middle,
            false => bad = middle,
        }
    }
    let kept = lines.kept();
    let line = kept.lines().find(|line| line.contains(&format!("({bad}) ")));
    let name = line.and_then(|line| line.rsplit(' ').next()).unwrap_or("a pass");
    let text = format!("pass ({bad}) {name} is the first whose result is bad\n");
    Output::stdout().text(&text);
    Output::error(&format!("bisect: --opt-bisect-limit {good} is good, {bad} is bad"));
    Ok(())
}

/// Whether a command likes a file.
fn likes(command: &Path, file: &Path) -> Result<bool, Problem> {
    let status = Command::new(command).arg(file).stdout(Stdio::null()).status();
    let status = status.map_err(|error| {
        Problem::new(format!("cannot run `{}`: {error}", command.display()))
            .help("--bisect takes the path of a program, which is called with the path of a module")
    })?;
    Ok(status.success())
}

/// A file, and its sidecar, that go when they are no longer needed.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> TemporaryFile {
        let name = format!("niello-bisect-{}.relay", std::process::id());
        TemporaryFile(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // One that was never written cannot be removed either.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(crate::compile::sidecar_path(&self.0));
    }
}
