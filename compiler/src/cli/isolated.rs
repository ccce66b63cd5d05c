//! Work in child processes: whatever happens there ends nothing but the child, and no child
//! outlives this process.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Failure;
use crate::codegen::c::TempFolder;
use crate::diagnostics::Problem;

/// Most bytes that are kept of what a child writes; a result is a line of a few hundred.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// How long the text of a child that has ended may take to arrive.
///
/// It is there at once, unless a process that the child started has the pipe and lives on.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Exit status after an interruption, as shells have it.
const INTERRUPTED: i32 = 130;

/// The children that run, and where they put temporary files. It is global because the handler of
/// an interruption is.
static RUNNING: Mutex<Running> = Mutex::new(Running { children: BTreeSet::new(), folder: None });

struct Running {
    children: BTreeSet<u32>,
    folder: Option<PathBuf>,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself.
    Exited {
        status: ExitStatus,
        /// What it wrote to its standard output.
        output: String,
        /// What it wrote to its standard error.
        errors: String,
    },
    /// By the signal of this number.
    Signal { number: i32, errors: String },
    /// It was killed after so many seconds.
    Timeout(u64),
}

/// What starts child processes that are this program again, or another build of it.
pub(super) struct Isolated {
    /// The program, and arguments that come before all others.
    command: Vec<OsString>,
    timeout: Duration,
    folder: TempFolder,
}

impl Isolated {
    /// Children that may run for `timeout` each: of this program.
    ///
    /// # Errors
    ///
    /// The system does not tell which program this is, or gives no temporary folder.
    pub(super) fn new(timeout: Duration) -> Result<Isolated, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Problem::new(format!("cannot find the program of this command: {error}"))
        })?;
        Self::of(vec![program.into()], timeout)
    }

    /// Children that may run for `timeout` each: of a program, with arguments before all others.
    ///
    /// # Errors
    ///
    /// The system gives no temporary folder.
    pub(super) fn of(command: Vec<OsString>, timeout: Duration) -> Result<Isolated, Failure> {
        let folder = TempFolder::new().map_err(|error| Problem::new(error.to_string()))?;
        running().folder = Some(folder.path().to_owned());
        // An error means that there is a handler already: this one.
        let _ = ctrlc::set_handler(end_with_children);
        Ok(Isolated { command, timeout, folder })
    }

    /// Runs one child to its end.
    ///
    /// # Errors
    ///
    /// It cannot be started or waited for.
    pub(super) fn run(&self, args: &[impl AsRef<OsStr>]) -> io::Result<End> {
        let (program, first) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in ["TMPDIR", "TMP", "TEMP"] {
            command.env(variable, self.folder.path());
        }
        let mut process = Process::start(command)?;
        let start = Instant::now();
        let output = read_to_end(process.child.stdout.take());
        let errors = read_to_end(process.child.stderr.take());
        let mut text = None;
        let mut pause = Duration::from_micros(100);
        let status = loop {
            if let Some(status) = process.try_wait()? {
                break status;
            }
            let Some(left) = self.timeout.checked_sub(start.elapsed()).filter(|t| !t.is_zero())
            else {
                process.kill();
                return Ok(End::Timeout(self.timeout.as_secs()));
            };
            // A process that closes its output is about to end.
            if text.is_none() {
                text = output.recv_timeout(left.min(Duration::from_millis(100))).ok();
            } else {
                std::thread::sleep(pause.min(left));
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        };
        let last = |receiver: Receiver<Vec<u8>>| receiver.recv_timeout(LAST_WORDS).ok();
        let output = text.or_else(|| last(output)).unwrap_or_default();
        let errors = last(errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors).trim().to_owned();
        Ok(match signal_of(status) {
            Some(number) => End::Signal { number, errors },
            None => {
                let output = String::from_utf8_lossy(&output).into_owned();
                End::Exited { status, output, errors }
            }
        })
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        running().folder = None;
    }
}

/// A child that runs, with its place among the running ones.
struct Process {
    child: Child,
    ended: bool,
}

impl Process {
    fn start(mut command: Command) -> io::Result<Process> {
        // With its own group, what the child starts can be ended with it. The C compiler is one.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        // The lock is held meanwhile, so that an interruption finds the child.
        let mut running = running();
        let child = command.spawn()?;
        running.children.insert(child.id());
        Ok(Process { child, ended: false })
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // Once waited for, the number may be that of another process.
        let mut running = running();
        let status = self.child.try_wait()?;
        if status.is_some() {
            running.children.remove(&self.child.id());
            self.ended = true;
        }
        Ok(status)
    }

    fn kill(&mut self) {
        let mut running = running();
        if !self.ended {
            kill(self.child.id());
            // For systems without groups; on others it has no effect any more.
            let _ = self.child.kill();
            let _ = self.child.wait();
            running.children.remove(&self.child.id());
            self.ended = true;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads in a thread of its own until the other side closes the pipe.
fn read_to_end(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        let Some(mut pipe) = pipe else { return };
        // What is too much is read nevertheless, as the child would wait for ever.
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let room = MAX_OUTPUT_BYTES - kept.len();
            kept.extend_from_slice(&buffer[..count.min(room)]);
        }
        // Nobody may be waiting any more.
        let _ = sender.send(kept);
    });
    receiver
}

/// Ends the children, deletes their files and ends this process.
fn end_with_children() {
    let running = running();
    for &child in &running.children {
        kill(child);
    }
    if let Some(folder) = &running.folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    std::process::exit(INTERRUPTED);
}

/// In a child: ends it, and what it started, as soon as the process that started it is gone, for
/// whatever reason.
pub(super) fn end_with_parent() {
    std::thread::spawn(|| {
        // Nothing is ever written there; the system closes the pipe with its other side.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        kill_own_group();
        std::process::exit(INTERRUPTED);
    });
}

#[cfg(unix)]
fn kill(child: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        // The group is gone if the child has just ended.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Without groups, a child ends when it finds its input closed.
#[cfg(not(unix))]
fn kill(_: u32) {}

#[cfg(unix)]
fn kill_own_group() {
    use rustix::process::{Signal, getpgrp, getpid, kill_process_group};
    // Whoever starts a child by hand may have it in a group with other processes.
    if getpgrp() == getpid() {
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_own_group() {}

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
    use super::*;

    fn run(script: &str, timeout: Duration) -> End {
        Isolated::of(vec!["/bin/sh".into()], timeout).unwrap().run(&["-c", script]).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_exit_of_a_child_is_reported() {
        let End::Exited { status, output, errors } = run("echo a; echo b >&2; exit 3", LONG) else {
            panic!("it exited")
        };
        assert_eq!((status.code(), output.as_str(), errors.as_str()), (Some(3), "a\n", "b"));
        let segv = End::Signal { number: 11, errors: String::new() };
        assert_eq!(run("kill -SEGV $$", LONG), segv);
        assert_eq!(run("sleep 60", Duration::from_millis(50)), End::Timeout(0));
    }

    #[test]
    fn much_output_does_not_block_the_child_and_is_cut() {
        let End::Exited { output, .. } = run("head -c 3000000 /dev/zero", LONG) else {
            panic!("it exited")
        };
        assert_eq!(output.len(), MAX_OUTPUT_BYTES);
    }

    #[test]
    fn processes_started_by_a_child_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let late = folder.path().join("late");
        // The grandchild would write the file after the child's time is over.
        let script = format!("(sleep 0.4; echo > {}) & sleep 60", late.display());
        assert_eq!(run(&script, Duration::from_millis(50)), End::Timeout(0));
        std::thread::sleep(Duration::from_millis(700));
        assert!(!late.exists());
    }

    #[test]
    fn temporary_files_of_children_are_gone_afterwards() {
        let isolated = Isolated::of(vec!["/bin/sh".into()], LONG).unwrap();
        let script = r#"touch "$TMPDIR/left"; ls "$TMPDIR"; kill -KILL $$"#;
        assert!(matches!(isolated.run(&["-c", script]).unwrap(), End::Signal { number: 9, .. }));
        let folder = isolated.folder.path().to_owned();
        assert!(folder.join("left").exists());
        drop(isolated);
        assert!(!folder.exists());
    }
}
