//! Filetests: text IR and its expectation in one file.
//!
//! A file starts with a header, lines `; key: value`, of which exactly one is a command:
//!
//! - `; test: roundtrip`: the text prints as it is written;
//! - `; test: print`: the text prints as expected;
//! - `; test: verify`: the parser and the verifier find what lines say behind `; error:`, and
//!   nothing else;
//! - `; test: interp`: the function `main` yields the expected values for each `; args:` line;
//! - `; run: pass-a, pass-b{option=1}`: the passes make of the text what is expected. The module is
//!   verified before and after each pass, and `main` and loop functions yield the same on made-up
//!   inputs before and after. `; config: key=json` sets an option, `; opt_level: 3` the level of the
//!   context, `; target: x86_64 x86-64-v3` the machine: an architecture, and a CPU if need be.
//!
//! The text follows, and what is expected as comment lines at the end. With `BLESS=1` in the
//! environment it is written there instead of compared. Other lines that start with `;` are
//! remarks. Unknown keys, empty files and expectations that nothing reads are failures.

mod file;
mod interp;
mod passes;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

pub use file::TestFile;
use niello::diagnostics::{Diagnostic, Source, renderer};
use niello::graph::{parse_module, verify_module};
use niello::ir::IRModule;

/// How the name of a filetest may end.
const EXTENSIONS: [&str; 2] = ["relay", "tir"];

/// The outcome of the files of a folder.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that were run.
    pub files: usize,
    /// A message for each failure; starts with the file.
    pub failures: Vec<String>,
}

/// Runs every filetest in a folder and the folders in it, in the order of their names. With `bless`,
/// expectations are rewritten. `filter` keeps the files whose path contains it.
pub fn run_folder(folder: &Path, bless: bool, filter: Option<&str>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        let entries = match entries(&current) {
            Ok(entries) => entries,
            Err(error) => {
                outcome.failures.push(format!("{}: {error}", current.display()));
                continue;
            }
        };
        for path in entries {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            if filter.is_some_and(|filter| !name.contains(filter)) {
                continue;
            }
            outcome.files += 1;
            if let Err(message) = run_path(&path, bless) {
                outcome.failures.push(format!("{name}: {message}"));
            }
        }
    }
    outcome
}

fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    Ok(entries)
}

fn run_path(path: &Path, bless: bool) -> Result<(), String> {
    let is_known = |ending: &std::ffi::OsStr| EXTENSIONS.iter().any(|known| ending == *known);
    if !path.extension().is_some_and(is_known) {
        let known = EXTENSIONS.map(|known| format!("`.{known}`")).join(" or ");
        return Err(format!("not a filetest: its name does not end with {known}"));
    }
    let contents = fs::read_to_string(path).map_err(|error| error.to_string())?;
    match run(&contents)? {
        Verdict::Pass => Ok(()),
        Verdict::Expected { blessed, difference: _ } if bless => {
            fs::write(path, blessed).map_err(|error| error.to_string())
        }
        Verdict::Expected { blessed: _, difference } => Err(difference),
    }
}

/// The outcome of one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result is as expected.
    Pass,
    /// The result differs from the expectation, and may be the new expectation.
    Expected {
        /// The file with the result as its expectation.
        blessed: String,
        /// The difference.
        difference: String,
    },
}

/// Runs the contents of one filetest.
///
/// # Errors
///
/// If the file is malformed, or fails in a way that no other expectation would mend.
pub fn run(contents: &str) -> Result<Verdict, String> {
    let mut file = TestFile::parse(contents)?;
    let passes = file.take("run")?;
    let test = file.take("test")?;
    let found = match (test.as_deref(), passes) {
        (Some("roundtrip"), None) => {
            file.finish()?;
            text::roundtrip(&file)?;
            None
        }
        (Some("verify"), None) => {
            file.finish()?;
            text::verify(&file)?;
            None
        }
        (Some("print"), None) => {
            file.finish()?;
            Some(text::print(&file)?)
        }
        (Some("interp"), None) => {
            let args = file.take_all("args");
            file.finish()?;
            Some(interp::values(&file, &args)?)
        }
        (None, Some(passes)) => {
            let options = passes::Options {
                opt_level: file.take("opt_level")?,
                config: file.take_all("config"),
                target: file.take("target")?,
            };
            file.finish()?;
            Some(passes::run(&file, &passes, &options)?)
        }
        (Some(other), None) => return Err(format!("there is no test `{other}`")),
        (None, None) => return Err("the header has neither `; test:` nor `; run:`".to_owned()),
        (Some(_), Some(_)) => {
            return Err("the header has both `; test:` and `; run:`".to_owned());
        }
    };
    match found {
        Some(found) => Ok(file.compare(&found)),
        None if file.expected.is_empty() => Ok(Verdict::Pass),
        None => Err("comment lines at the end, but the test expects nothing".to_owned()),
    }
}

/// The module of a file, which must verify.
fn valid_module(file: &TestFile) -> Result<IRModule, String> {
    let module =
        parse_module(&file.text).map_err(|errors| shown(&errors.diagnostics(), &file.text))?;
    verify_module(&module).map_err(|errors| shown(&errors.diagnostics(), &file.text))?;
    Ok(module)
}

/// Diagnostics about a file, as the command prints them, starting on a new line.
fn shown(diagnostics: &[Diagnostic], text: &str) -> String {
    let source = Source::new("the file", text);
    let renderer = renderer(false);
    let texts = diagnostics.iter().map(|found| renderer.render(found, Some(&source)));
    texts.fold("\n".to_owned(), |all, text| all + &text)
}
