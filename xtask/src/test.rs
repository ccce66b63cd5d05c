//! `cargo xtask test`: every test of the workspace, the models of the thread pool, then the examples that classify.

use std::fmt;
use std::io::IsTerminal;
use std::ops::AddAssign;
use std::process::Command;

use crate::process::Source;
use crate::{Result, process, setup, workspace};

/// An example that classifies a test set, and prints how much of it is right.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Example {
    /// The package, and the program that is firmware.
    pub(crate) name: &'static str,
    /// Accuracy in percent under which it is broken.
    least: u8,
    /// Lines that it prints besides.
    prints: &'static [&'static str],
}

/// The committed model reaches 98.61.
pub(crate) const DIGITS: Example = Example { name: "digits", least: 98, prints: &[] };

/// The committed model reaches 95.00. Three sounds go through the front end as well.
pub(crate) const KEYWORDS: Example =
    Example { name: "keywords", least: 94, prints: &["heard: yes", "heard: stop", "heard: go"] };

/// Sets up as far as possible, runs all tests, and ends with the sum over all test programs on a line of its own.
pub(crate) fn run(options: &setup::Options) -> Result {
    let environment = setup::prepare(options)?;

    let mut command = process::cargo();
    // The command and the LLVM backend are features, and their tests come with them.
    command.args(["test", "--workspace", "--features", environment.features(), "--no-fail-fast"]);
    environment.tell_prefix(&mut command);
    if let Some(python) = &environment.python {
        command.env("NIELLO_TEST_PYTHON", python);
    }
    let mut total = Counts::default();
    let mut skipped = Vec::new();
    let mut tests: Result = Ok(());
    for mut command in [command, loom()] {
        if std::io::stderr().is_terminal() {
            command.args(["--color", "always"]);
        }
        let status = process::stream(&mut command, |source, line| {
            match source {
                Source::Stdout => println!("{line}"),
                Source::Stderr => eprintln!("{line}"),
            }
            if let Some(counts) = Counts::of(line) {
                total += counts;
            } else if line.starts_with("skipped: ") {
                skipped.push(line.to_owned());
            }
        })?;
        // A build that fails runs no test, and no test says so.
        if !status.success() {
            tests = Err(format!("{}: {status}", process::shown(&command)).into());
        }
    }

    let mut examples: Result = Ok(());
    for example in [DIGITS, KEYWORDS] {
        let mut command = process::cargo();
        command.args(["run", "--quiet", "--release", "--package", example.name]);
        match example.judge(&mut command) {
            Ok(printed) => {
                println!("{}: {}", example.name, printed.join(", "));
                total.passed += 1;
            }
            Err(error) => {
                eprintln!("{}: {error}", example.name);
                total.failed += 1;
                examples = Err(error);
            }
        }
    }

    for line in environment.missing.iter().chain(&skipped) {
        println!("WARNING: {line}");
    }
    // To the test runner a test that skipped itself has passed.
    total.passed = total.passed.saturating_sub(skipped.len());
    total.skipped += skipped.len();
    println!("{total}");
    tests?;
    examples
}

/// The models of the thread pool under loom, which are built with a flag and so by themselves.
fn loom() -> Command {
    let mut command = process::cargo();
    command.args(["test", "--package", "niello-runtime", "--lib", "--release"]);
    command.env("RUSTFLAGS", "--cfg loom").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", workspace::target().join("loom"));
    command
}

impl Example {
    /// Runs the example by a command and returns what it prints, of which one line is the one on accuracy.
    ///
    /// # Errors
    ///
    /// The command fails, less of the test set is right than should be, or a line is not printed.
    pub(crate) fn judge(&self, command: &mut Command) -> Result<Vec<String>> {
        let mut printed = Vec::new();
        let status = process::stream(command, |source, line| match source {
            Source::Stdout => printed.push(line.to_owned()),
            Source::Stderr => eprintln!("{line}"),
        })?;
        if !status.success() {
            return Err(format!("{}: {status}", process::shown(command)).into());
        }
        if let Some(missing) =
            self.prints.iter().find(|line| !printed.iter().any(|found| found == *line))
        {
            return Err(format!("expected a line `{missing}`, found {printed:?}").into());
        }
        let Some(line) = printed.iter().find(|line| line.starts_with("accuracy: ")) else {
            return Err(format!("expected a line `accuracy: …`, found {printed:?}").into());
        };
        match percent(line) {
            Some(value) if value >= f64::from(self.least) => Ok(printed),
            Some(_) => Err(format!("{line}, expected at least {}%", self.least).into()),
            None => Err(format!("`{line}` is not of the form `accuracy: 12.34%`").into()),
        }
    }
}

fn percent(line: &str) -> Option<f64> {
    line.strip_prefix("accuracy: ")?.strip_suffix('%')?.parse().ok()
}

/// How many tests went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    /// The counts in a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn of(line: &str) -> Option<Self> {
        let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
        let mut result = Self::default();
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            match what {
                "passed" => result.passed = number.parse().ok()?,
                "failed" => result.failed = number.parse().ok()?,
                "ignored" => result.skipped = number.parse().ok()?,
                _ => {}
            }
        }
        Some(result)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up() {
        let lines = [
            "running 5 tests",
            "test a ... ok",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ];
        let mut total = Counts::default();
        for counts in lines.into_iter().filter_map(Counts::of) {
            total += counts;
        }
        assert_eq!(total, Counts { passed: 7, failed: 1, skipped: 3 });
        assert_eq!(total.to_string(), "7 passed, 1 failed, 3 skipped");
        assert_eq!(Counts { passed: 2, ..Counts::default() }.to_string(), "2 passed, 0 failed");
    }

    #[test]
    fn accuracy_is_read_as_printed() {
        assert_eq!(percent("accuracy: 98.61%"), Some(98.61));
        assert_eq!(percent("accuracy: 98.61"), None);
        assert_eq!(percent("accuracy: high%"), None);
    }
}
