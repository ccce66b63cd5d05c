//! Which file is which input.

use std::path::{Path, PathBuf};

use super::formats;
use crate::compile::Model;
use crate::diagnostics::{Problem, Report, suggest};
use crate::ir::{Constant, DType};
use crate::onnx;
use crate::options::CompileOptions;

/// An input or output as the model declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The name.
    pub name: String,
    /// `None` if it is not declared, or niello has no such type: the compiler tells.
    pub dtype: Option<DType>,
}

/// The inputs found so far, by position, with the file that each is from.
struct Inputs<'a> {
    ports: &'a [Port],
    found: Vec<Option<(Constant, String)>>,
    /// Whether inputs can be given by name, outside of archives.
    takes_names: bool,
    report: Report,
}

/// Reads the model's inputs from files, by position and by name; `named` are arguments `NAME=FILE` of
/// commands that have such.
///
/// # Errors
///
/// Every problem: files that cannot be read, names that the model does not have, types that are
/// not its types, inputs that are given twice or not at all.
pub fn read(
    files: &[PathBuf],
    named: Option<&[String]>,
    ports: &[Port],
) -> Result<Vec<Constant>, Report> {
    let found = ports.iter().map(|_| None).collect();
    let takes_names = named.is_some();
    let mut inputs = Inputs { ports, found, takes_names, report: Report::new() };
    for text in named.unwrap_or_default() {
        inputs.read_named(text);
    }
    for file in files {
        inputs.read_file(file);
    }
    inputs.finish()
}

impl Inputs<'_> {
    fn position(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name)
    }

    /// The names as a list for people.
    fn names(&self) -> String {
        names(self.ports)
    }

    /// An argument `NAME=FILE`.
    fn read_named(&mut self, text: &str) {
        // Names and paths may contain the sign as well: what counts is where a name ends.
        let split = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
        let matching = split.clone().find_map(|(name, path)| Some((self.position(name)?, path)));
        let Some((position, path)) = matching else {
            let name = split.clone().next().map_or(text, |(name, _)| name);
            let problem = match text.contains('=') {
                true => Problem::new(format!(
                    "--input {text}: the model has no input `{name}`; it has {}",
                    self.names()
                )),
                false => Problem::new(format!("--input {text}: an input is given as NAME=FILE")),
            };
            let nearest = suggest(name, self.ports.iter().map(|port| port.name.as_str()));
            self.report.push(match nearest {
                Some(nearest) => problem.help(format!("was `{nearest}` meant?")),
                None => problem,
            });
            return;
        };
        let path = Path::new(path);
        match formats::read(path) {
            Ok(tensors) => match <[_; 1]>::try_from(tensors) {
                Ok([(_, tensor)]) => self.set(position, tensor, path.display().to_string()),
                Err(tensors) => self.report.push(Problem::new(format!(
                    "{}: the file has {} tensors, but one is needed for input `{}`",
                    path.display(),
                    tensors.len(),
                    self.ports[position].name
                ))),
            },
            Err(problem) => self.report.push(problem),
        }
    }

    /// A file by its position, or an archive whose names are the inputs'.
    fn read_file(&mut self, path: &Path) {
        let tensors = match formats::read(path) {
            Ok(tensors) => tensors,
            Err(problem) => return self.report.push(problem),
        };
        for (key, tensor) in tensors {
            let Some(key) = key else {
                match self.found.iter().position(Option::is_none) {
                    Some(position) => self.set(position, tensor, path.display().to_string()),
                    None => self.report.push(Problem::new(format!(
                        "{}: the model has no further input; it has {}",
                        path.display(),
                        self.names()
                    ))),
                }
                continue;
            };
            // numpy.savez calls arrays without a name arr_0, arr_1 and so on.
            let by_number = || key.strip_prefix("arr_").and_then(|number| number.parse().ok());
            let position = self.position(&key).or_else(by_number);
            match position.filter(|&position| position < self.ports.len()) {
                Some(position) => {
                    self.set(position, tensor, format!("{} ({key})", path.display()));
                }
                None => self.report.push(Problem::new(format!(
                    "{}: `{key}` is no input of the model; it has {}",
                    path.display(),
                    self.names()
                ))),
            }
        }
    }

    fn set(&mut self, position: usize, tensor: Constant, origin: String) {
        let port = &self.ports[position];
        if let Some((_, former)) = &self.found[position] {
            self.report.push(Problem::new(format!(
                "input `{}` is given twice: {former}, {origin}",
                port.name
            )));
            return;
        }
        let dtype = tensor.ty().dtype;
        if let Some(expected) = port.dtype.filter(|&expected| expected != dtype) {
            self.report.push(
                Problem::new(format!(
                    "{origin}: input `{}` has elements of type {expected}, but the file has {dtype}",
                    port.name
                ))
                .help(format!("numpy converts with array.astype(\"{expected}\")")),
            );
        }
        self.found[position] = Some((tensor, origin));
    }

    fn finish(mut self) -> Result<Vec<Constant>, Report> {
        // What could not be read is missing for a reason that is told already.
        if self.report.is_empty() {
            for (port, found) in self.ports.iter().zip(&self.found) {
                if found.is_none() {
                    let name = &port.name;
                    let help = match self.takes_names {
                        true => format!("name its file: --input {name}=FILE"),
                        false => {
                            format!("an archive has all of a run: numpy.savez(file, {name}=...)")
                        }
                    };
                    let message = format!("input `{name}` is not given");
                    self.report.push(Problem::new(message).help(help));
                }
            }
        }
        let tensors = self.found.into_iter().flatten().map(|(tensor, _)| tensor).collect();
        self.report.into_result(tensors)
    }
}

/// All inputs of a model from one file, but for those whose value an option fixes.
///
/// # Errors
///
/// Those of [`read`].
pub fn inputs_of(
    model: &Model,
    options: &CompileOptions,
    file: &Path,
) -> Result<Vec<Constant>, Report> {
    let (mut ports, _) = ports(model, options)?;
    ports.retain(|port| !options.input_values.contains_key(&port.name));
    read(&[file.to_owned()], None, &ports)
}

/// Inputs and outputs of a model, before it is compiled.
///
/// # Errors
///
/// The model is a text that cannot be compiled.
pub fn ports(model: &Model, options: &CompileOptions) -> Result<(Vec<Port>, Vec<Port>), Report> {
    if let Some(file) = model.as_onnx() {
        let summary = onnx::summary(&file.proto);
        let port = |port: onnx::DeclaredPort| Port { name: port.name, dtype: port.dtype };
        let (inputs, outputs) = (summary.inputs, summary.outputs);
        return Ok((
            inputs.into_iter().map(port).collect(),
            outputs.into_iter().map(port).collect(),
        ));
    }
    // Everything that a text says of its interface is in its types; nothing is left to import.
    let imported = model.import(options)?;
    let (inputs, outputs) = (imported.inputs, imported.outputs);
    let port = |port: onnx::ModelPort| Port { name: port.name, dtype: Some(port.ty.dtype) };
    Ok((inputs.into_iter().map(port).collect(), outputs.into_iter().map(port).collect()))
}

/// Names of inputs or outputs, as a list for people.
pub fn names(ports: &[Port]) -> String {
    if ports.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> [Port; 2] {
        let port = |name: &str, dtype| Port { name: name.to_owned(), dtype: Some(dtype) };
        [port("a=b", DType::F32), port("n", DType::I64)]
    }

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Files {
            let files = Files(tempfile::tempdir().unwrap());
            let (a, n) = (files.a(), files.n());
            formats::write(&files.path("a.npy"), &[("a", &a)]).unwrap();
            formats::write(&files.path("n.pb"), &[("n", &n)]).unwrap();
            formats::write(&files.path("both.npz"), &[("n", &n), ("a=b", &a)]).unwrap();
            formats::write(&files.path("plain.npz"), &[("arr_0", &a), ("arr_1", &n)]).unwrap();
            files
        }

        fn a(&self) -> Constant {
            Constant::from_f32(&[1], &[0.5]).unwrap()
        }

        fn n(&self) -> Constant {
            Constant::from_i64(&[2], &[1, 2]).unwrap()
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn read(&self, files: &[&str], named: &[(&str, &str)]) -> Result<Vec<Constant>, String> {
            let files: Vec<PathBuf> = files.iter().map(|name| self.path(name)).collect();
            let named: Vec<String> = named
                .iter()
                .map(|(name, file)| format!("{name}={}", self.path(file).display()))
                .collect();
            let text = |report: Report| {
                report.to_string().replace(&format!("{}/", self.0.path().display()), "")
            };
            read(&files, Some(&named), &ports()).map_err(text)
        }
    }

    #[test]
    fn inputs_are_found_by_position_by_name_and_in_archives() {
        let files = Files::new();
        let expected = Ok(vec![files.a(), files.n()]);
        assert_eq!(files.read(&["a.npy", "n.pb"], &[]), expected);
        assert_eq!(files.read(&[], &[("n", "n.pb"), ("a=b", "a.npy")]), expected);
        assert_eq!(files.read(&["a.npy"], &[("n", "n.pb")]), expected);
        assert_eq!(files.read(&["n.pb"], &[("a=b", "a.npy")]), expected);
        assert_eq!(files.read(&["both.npz"], &[]), expected);
        assert_eq!(files.read(&["plain.npz"], &[]), expected);
    }

    #[test]
    fn every_problem_with_the_inputs_is_reported() {
        let files = Files::new();
        let error = |positional: &[&str], named: &[(&str, &str)]| {
            files.read(positional, named).unwrap_err()
        };
        assert_eq!(
            error(&["a.npy"], &[]),
            "input `n` is not given; help: name its file: --input n=FILE"
        );
        assert_eq!(
            error(&["n.pb", "a.npy"], &[]),
            "n.pb: input `a=b` has elements of type float32, but the file has int64; help: numpy converts with array.astype(\"float32\")\n\
             a.npy: input `n` has elements of type int64, but the file has float32; help: numpy converts with array.astype(\"int64\")"
        );
        assert_eq!(
            error(&["a.npy", "n.pb", "n.pb"], &[]),
            "n.pb: the model has no further input; it has `a=b`, `n`"
        );
        assert_eq!(
            error(&["both.npz"], &[("n", "n.pb")]),
            "input `n` is given twice: n.pb, both.npz (n)"
        );
        assert_eq!(error(&[], &[("m", "n.pb")]).lines().count(), 1);
        assert!(error(&[], &[("m", "n.pb")]).contains("the model has no input `m`"));
        assert!(error(&["none.npy"], &[]).starts_with("none.npy: there is no such file"));
        assert!(error(&[], &[("n", "both.npz")]).contains("has 2 tensors, but one is needed"));
    }
}
