//! A child process that runs one test case, and what its end says.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::Outcome;

/// How child processes are started.
pub(super) struct Child {
    pub(super) program: PathBuf,
    /// Everything before the case.
    pub(super) args: Vec<String>,
    pub(super) timeout: Duration,
}

impl Child {
    /// Runs a case in a process of its own, so that whatever it does ends nothing but that process.
    pub(super) fn run(&self, case: &Path) -> Outcome {
        match self.try_run(case) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::fail(format!("the test process cannot be run: {error}")),
        }
    }

    fn try_run(&self, case: &Path) -> std::io::Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .arg(case)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let start = Instant::now();
        // The result is a line of a few hundred bytes, which the pipe holds until it is read.
        let mut pause = Duration::from_micros(500);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() >= self.timeout {
                child.kill()?;
                child.wait()?;
                return Ok(Outcome::fail(format!("timeout after {} s", self.timeout.as_secs())));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        let mut text = String::new();
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_string(&mut text)?;
        }
        if let Some(signal) = signal_of(status) {
            return Ok(Outcome::fail(format!("killed by signal {signal}")));
        }
        match serde_json::from_str(text.trim()) {
            Ok(outcome) if status.success() => Ok(outcome),
            _ => Ok(Outcome::fail(format!("the test process left no result: {status}"))),
        }
    }
}

/// The number of the signal that ended a process.
#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// The number of the signal that ended a process.
#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn run(script: &str, timeout: Duration) -> Outcome {
        let args = vec!["-c".to_owned(), script.to_owned()];
        Child { program: "/bin/sh".into(), args, timeout }.run(Path::new("case"))
    }

    #[test]
    fn the_end_of_the_process_decides() {
        let long = Duration::from_secs(60);
        let pass = run(r#"echo '{"result":"pass","reason":"","kernels":3}'"#, long);
        assert_eq!((pass.result, pass.kernels), (Verdict::Pass, 3));
        assert_eq!(run("kill -SEGV $$", long).reason, "killed by signal 11");
        // A result that was printed before the crash does not count.
        let crash = run(r#"echo '{"result":"pass","reason":"","kernels":3}'; kill -ABRT $$"#, long);
        assert_eq!(crash.reason, "killed by signal 6");
        assert!(run("exit 3", long).reason.contains("left no result"));
        assert!(run("echo nonsense", long).reason.contains("left no result"));
        assert_eq!(run("sleep 60", Duration::from_millis(50)).reason, "timeout after 0 s");
    }
}
