//! Running other programs.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::{Result, workspace};

/// The Cargo that runs this task, at the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root());
    command
}

/// Runs `command` with this program's own input and output; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command)).into()) }
}

/// The standard output of `command`, if it exists and succeeds.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Where a line of a program's output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

/// Runs `command` and hands over each line of its output, without the line's end, as soon as it is there.
///
/// The two streams are read by a thread each: a full pipe that nobody empties would stop the program.
pub(crate) fn stream(
    command: &mut Command,
    mut line: impl FnMut(Source, &str),
) -> Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    let (sender, lines) = mpsc::channel();
    let forward = |source: Source, pipe: Box<dyn Read + Send>| {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut bytes = Vec::new();
            while matches!(pipe.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
                let text =
                    String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
                bytes.clear();
                if sender.send((source, text)).is_err() {
                    break;
                }
            }
        })
    };
    if let Some(pipe) = child.stdout.take() {
        forward(Source::Stdout, Box::new(pipe));
    }
    if let Some(pipe) = child.stderr.take() {
        forward(Source::Stderr, Box::new(pipe));
    }
    drop(sender);
    for (source, text) in lines {
        line(source, &text);
    }
    Ok(child.wait()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("python3");
        command.args(["-c", "print('x')", "--a=b/c.txt", ""]);
        assert_eq!(shown(&command), r"python3 -c 'print('\''x'\'')' --a=b/c.txt ''");
    }

    #[test]
    fn both_streams_and_the_status_arrive() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; printf three; exit 7"]);
        let mut lines = Vec::new();
        let status = stream(&mut command, |source, text| lines.push((source, text.to_owned())));
        assert_eq!(status.unwrap().code(), Some(7));
        lines.sort_by_key(|(source, _)| *source == Source::Stderr);
        let expected =
            [(Source::Stdout, "one"), (Source::Stdout, "three"), (Source::Stderr, "two")];
        assert_eq!(lines, expected.map(|(source, text)| (source, text.to_owned())));
    }

    #[test]
    fn a_program_that_fails_or_is_missing_has_no_output() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo hello"])), Some("hello\n".into()));
        assert_eq!(output(Command::new("sh").args(["-c", "echo hello; false"])), None);
        assert_eq!(output(&mut Command::new("no-such-program-anywhere")), None);
    }
}
