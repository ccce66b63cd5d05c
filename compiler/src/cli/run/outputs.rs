//! Which output goes into which file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::diagnostics::{Problem, Report};
use crate::ir::Constant;
use crate::samples::formats::{self, Format};
use crate::samples::inputs::{Port, names};

/// A file and the positions of the outputs that go into it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    path: PathBuf,
    outputs: Vec<usize>,
}

/// What the arguments `[NAME=]FILE` ask for.
///
/// # Errors
///
/// A file's ending is of no format; or files of one tensor without a name are not as many as the
/// outputs that are left.
pub(super) fn targets(args: &[String], ports: &[Port]) -> Result<Vec<Target>, Report> {
    let mut report = Report::new();
    let mut targets: Vec<Target> = Vec::new();
    let mut unnamed = 0;
    let mut named = false;
    for text in args {
        let split = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
        let by_name = split.into_iter().find_map(|(name, path)| {
            Some((ports.iter().position(|port| port.name == name)?, path))
        });
        let (position, path) = match by_name {
            Some((position, path)) => (Some(position), Path::new(path)),
            None => (None, Path::new(text)),
        };
        let outputs = match (Format::of(path), position) {
            (Err(problem), _) => {
                report.push(problem);
                continue;
            }
            (Ok(_), Some(position)) => {
                named = true;
                vec![position]
            }
            (Ok(Format::Npz), None) => (0..ports.len()).collect(),
            (Ok(Format::Npy | Format::Pb), None) => {
                unnamed += 1;
                vec![unnamed - 1]
            }
        };
        targets.push(Target { path: path.to_owned(), outputs });
    }
    let mut paths: BTreeMap<&Path, usize> = BTreeMap::new();
    targets.iter().for_each(|target| *paths.entry(&target.path).or_default() += 1);
    for (path, _) in paths.iter().filter(|(_, count)| **count > 1) {
        report.push(Problem::new(format!("{}: two outputs go into this file", path.display())));
    }
    if unnamed > ports.len() || (unnamed > 0 && unnamed < ports.len() && !named) {
        report.push(
            Problem::new(format!(
                "the model has {} outputs ({}), but {unnamed} files are named for them",
                ports.len(),
                names(ports)
            ))
            .help("name a file for each, say NAME=FILE, or write all of them into one .npz"),
        );
    }
    report.into_result(targets)
}

/// Checks that arguments `NAME=FILE` name tensors, where a declared output is a sequence of several:
/// with another name, all of it is a file's.
///
/// # Errors
///
/// A file is named for a sequence.
pub(super) fn refuse_sequences(
    args: &[String],
    declared: &[Port],
    tensors: &[Port],
) -> Result<(), Problem> {
    let is_for = |text: &str, port: &Port| {
        text.strip_prefix(port.name.as_str()).is_some_and(|rest| rest.starts_with('='))
    };
    let mut sequences = declared.iter().filter(|port| tensors.iter().all(|t| t.name != port.name));
    match sequences.find(|port| args.iter().any(|text| is_for(text, port))) {
        None => Ok(()),
        Some(Port { name, .. }) => {
            let what = format!("output `{name}` is no tensor, but a sequence");
            let help = format!("the outputs are {}; a .npz takes all of them", names(tensors));
            Err(Problem::new(what).help(help))
        }
    }
}

/// Writes the files; returns their paths.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn write<'a>(
    targets: &'a [Target],
    values: &[(&str, &Constant)],
) -> Result<Vec<&'a Path>, Problem> {
    let mut written = Vec::with_capacity(targets.len());
    for target in targets {
        let tensors: Vec<(&str, &Constant)> =
            target.outputs.iter().filter_map(|&position| values.get(position).copied()).collect();
        formats::write(&target.path, &tensors)?;
        written.push(target.path.as_path());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str], ports: &[&str]) -> Result<Vec<(String, Vec<usize>)>, String> {
        let port = |name: &&str| Port { name: (*name).to_owned(), dtype: None };
        let ports: Vec<Port> = ports.iter().map(port).collect();
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let targets = targets(&args, &ports).map_err(|report| report.to_string())?;
        Ok(targets.into_iter().map(|t| (t.path.display().to_string(), t.outputs)).collect())
    }

    fn target(path: &str, outputs: &[usize]) -> (String, Vec<usize>) {
        (path.to_owned(), outputs.to_vec())
    }

    #[test]
    fn files_take_one_output_or_all() {
        assert_eq!(of(&["o.npz"], &["a", "b"]), Ok(vec![target("o.npz", &[0, 1])]));
        assert_eq!(
            of(&["a.npy", "b.pb"], &["a", "b"]),
            Ok(vec![target("a.npy", &[0]), target("b.pb", &[1])])
        );
        assert_eq!(of(&["b=x.npy"], &["a", "b"]), Ok(vec![target("x.npy", &[1])]));
        // What is before the sign is a name only if the model has it.
        assert_eq!(of(&["run=1/o.npy"], &["a"]), Ok(vec![target("run=1/o.npy", &[0])]));
        assert_eq!(of(&["b=x.npz"], &["a", "b"]), Ok(vec![target("x.npz", &[1])]));
        assert_eq!(of(&[], &["a"]), Ok(vec![]));
    }

    #[test]
    fn mistakes_are_reported_before_anything_runs() {
        let error = of(&["a.npy"], &["a", "b"]).unwrap_err();
        assert!(error.starts_with("the model has 2 outputs (`a`, `b`), but 1 files"), "{error}");
        assert!(of(&["a.npy", "b.npy"], &["a"]).is_err());
        assert!(of(&["a.txt"], &["a"]).unwrap_err().contains("is .npy, .npz or .pb"));
        assert!(of(&["a=x.npy", "b=x.npy"], &["a", "b"]).unwrap_err().contains("two outputs"));
    }
}
