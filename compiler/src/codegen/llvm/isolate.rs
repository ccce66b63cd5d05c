//! Compilation in a child process.
//!
//! When LLVM meets something it cannot handle, it ends the process it runs in: by `exit`, `abort`
//! or a signal. In a build script that would look as if the script itself had failed, so there LLVM
//! runs in a child, and its end becomes an error that says which kernels it was about.
//!
//! The child is a `fork` of this process, as a build script cannot be started a second time to do
//! something else. A fork has one thread; what other threads had locked stays locked in it for
//! ever. So the parent forks before it starts any thread itself, and while none is in LLVM, and the
//! child uses nothing of the parent's but memory that was finished before: the C library takes care
//! of its own locks, the standard library's `stdout` is left alone. The child starts threads of its
//! own.

use std::ffi::c_int;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};

use jobserver::Client;

use super::machine::end_on_fatal_errors;
use super::{AT_WORK, Compiled, Source, compile_one, gather};
use crate::codegen::CodegenError;
use crate::diagnostics::{Problem, Report};
use crate::executor::ObjectFile;
use crate::parallel;
use crate::target::Target;

// The standard library links what has these functions.
unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Exit status of a child that panicked; the message is on its standard error.
const PANICKED: c_int = 101;

type Outcome = Result<Compiled, Vec<CodegenError>>;

/// Compiles sources as [`compile`](super::compile) does, in a child process.
///
/// # Errors
///
/// One problem for each kernel that cannot be compiled; or LLVM ended the child.
pub fn compile_isolated(
    sources: &[Source],
    targets: &[Target],
    jobs: usize,
) -> Result<Vec<Compiled>, Report> {
    let work = |source: &Source| compile_one(source, targets, false);
    let outcomes = in_child(sources, jobs, parallel::jobserver(), &work)?;
    gather(outcomes).map_err(|errors| {
        let problems = errors.into_iter().map(Problem::from);
        Report { problems: problems.collect() }
    })
}

/// Applies `work` to each source in a child process with up to `jobs` threads, for which it takes
/// tokens of `server`. The token of this process, which waits, is the child's first.
fn in_child(
    sources: &[Source],
    jobs: usize,
    server: Option<&Client>,
    work: &(dyn Fn(&Source) -> Outcome + Sync),
) -> Result<Vec<Outcome>, Problem> {
    let failed = |error: io::Error| {
        Problem::new(format!("cannot run LLVM in a process of its own: {error}"))
    };
    let (results, to_parent) = io::pipe().map_err(failed)?;
    let (messages, stderr) = io::pipe().map_err(failed)?;
    let idle = AT_WORK.write().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: see the module's documentation; the child's branch ends in `_exit`.
    let child = unsafe { fork() };
    // Parent and child have a lock each from here on.
    drop(idle);
    if child < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    if child == 0 {
        // Both ends that the parent reads belong to it alone.
        drop((results, messages));
        let status = match catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: both are open file descriptors.
            unsafe { dup2(stderr.as_raw_fd(), 2) };
            end_on_fatal_errors();
            serve(sources, jobs, server, work, to_parent)
        })) {
            Ok(Ok(())) => 0,
            Ok(Err(_)) => 1,
            Err(_) => PANICKED,
        };
        // SAFETY: ends the process without running what the parent has registered for its own end.
        unsafe { _exit(status) }
    }
    drop((to_parent, stderr));
    let (received, said) = std::thread::scope(|scope| {
        // A full pipe that nobody empties would stop the child.
        let said = scope.spawn(|| read_text(messages));
        (receive(results, sources.len()), said.join().unwrap_or_default())
    });
    let mut status = 0;
    // SAFETY: the child was started above and has not been waited for.
    while unsafe { waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(failed(error));
        }
    }
    received.finish(sources, ExitStatus::from_raw(status), &said)
}

fn read_text(mut pipe: PipeReader) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still worth telling.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Kinds of messages from child to parent; each is followed by the place of the source.
#[derive(Clone, Copy)]
enum Kind {
    Begun = 0,
    Compiled = 1,
    Failed = 2,
}

/// The child's side: works, and tells of each source when it begins and what came of it.
fn serve(
    sources: &[Source],
    jobs: usize,
    server: Option<&Client>,
    work: &(dyn Fn(&Source) -> Outcome + Sync),
    to_parent: PipeWriter,
) -> io::Result<()> {
    let to_parent = Mutex::new(to_parent);
    let send = |kind: Kind, index: usize, fields: &[&[u8]]| -> io::Result<()> {
        let mut message = vec![kind as u8];
        message.extend((index as u64).to_le_bytes());
        message.extend((fields.len() as u64).to_le_bytes());
        for field in fields {
            message.extend((field.len() as u64).to_le_bytes());
            message.extend(*field);
        }
        // A panic of another thread leaves whole messages behind.
        let mut pipe = to_parent.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        pipe.write_all(&message)
    };
    let indices: Vec<usize> = (0..sources.len()).collect();
    let sent = parallel::map_under(server, &indices, jobs, |&index| {
        send(Kind::Begun, index, &[])?;
        match work(&sources[index]) {
            Ok(Compiled { object, text: _ }) => {
                send(Kind::Compiled, index, &[object.name.as_bytes(), &object.bytes])
            }
            Err(errors) => {
                let texts = errors.iter().flat_map(|error| [&error.kernel, &error.message]);
                let fields: Vec<&[u8]> = texts.map(|text| text.as_bytes()).collect();
                send(Kind::Failed, index, &fields)
            }
        }
    });
    sent.into_iter().collect()
}

/// What the parent has been told.
struct Received {
    outcomes: Vec<Option<Outcome>>,
    begun: Vec<bool>,
}

/// The parent's side: reads messages until the child has ended.
fn receive(mut pipe: PipeReader, count: usize) -> Received {
    let mut received =
        Received { outcomes: (0..count).map(|_| None).collect(), begun: vec![false; count] };
    // The last message of a child that crashed may be cut short.
    while let Ok((kind, index, mut fields)) = message(&mut pipe) {
        let (Some(outcome), Some(begun)) =
            (received.outcomes.get_mut(index), received.begun.get_mut(index))
        else {
            continue;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        *begun = true;
        if kind == Kind::Compiled as u8 && fields.len() == 2 {
            let (bytes, name) = (fields.remove(1), text(&fields[0]));
            *outcome = Some(Ok(Compiled { object: ObjectFile { name, bytes }, text: None }));
        } else if kind == Kind::Failed as u8 {
            let (pairs, _) = fields.as_chunks::<2>();
            let error = |[kernel, message]: &[Vec<u8>; 2]| CodegenError {
                kernel: text(kernel),
                message: text(message),
            };
            *outcome = Some(Err(pairs.iter().map(error).collect()));
        }
    }
    received
}

/// One message: its kind, the place of the source, the fields.
fn message(pipe: &mut PipeReader) -> io::Result<(u8, usize, Vec<Vec<u8>>)> {
    let mut kind = [0];
    pipe.read_exact(&mut kind)?;
    let number = |pipe: &mut PipeReader| -> io::Result<u64> {
        let mut bytes = [0; 8];
        pipe.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (index, count) = (number(pipe)?, number(pipe)?);
    let mut fields = Vec::new();
    for _ in 0..count {
        let len = number(pipe)?;
        let mut field = Vec::new();
        if pipe.take(len).read_to_end(&mut field)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        fields.push(field);
    }
    Ok((kind[0], index as usize, fields))
}

impl Received {
    /// The outcomes, if the child came to its end.
    fn finish(
        self,
        sources: &[Source],
        status: ExitStatus,
        said: &str,
    ) -> Result<Vec<Outcome>, Problem> {
        let unfinished = sources.iter().zip(&self.outcomes).zip(&self.begun);
        let unfinished: Vec<String> = unfinished
            .filter(|((_, outcome), begun)| outcome.is_none() && **begun)
            .map(|((source, _), _)| source.contents())
            .collect();
        let outcomes: Option<Vec<Outcome>> = self.outcomes.into_iter().collect();
        if let Some(outcomes) = outcomes.filter(|_| status.success()) {
            return Ok(outcomes);
        }
        let end = match status.signal() {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("ended with status {}", status.code().unwrap_or_default()),
        };
        let what = match unfinished.is_empty() {
            true => String::new(),
            false => format!(" while it compiled {}", unfinished.join(", ")),
        };
        let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        Err(Problem::defect(format!("LLVM {end}{what}{said}")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::codegen::llvm::Kernel;
    use crate::ir::{BufferSpec, DType};
    use crate::tir::{PrimExpr, PrimFunc, PrimFuncData};

    /// A source with one kernel that stores a constant.
    fn source(name: &str) -> Source {
        let mut func = PrimFuncData::new(name);
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        func.body = func.store(y, [PrimExpr::index(0)], PrimExpr::f32(1.0));
        let kernel = Kernel { func: PrimFunc::new(func), symbol: name.to_owned() };
        Source {
            name: name.to_owned(),
            kernels: vec![kernel],
            wrappers: vec![],
            entry: None,
            level: 0,
        }
    }

    fn sources() -> Vec<Source> {
        ["one", "two", "three"].map(source).to_vec()
    }

    #[test]
    fn a_child_process_makes_the_same_objects() {
        let targets = [Target::host()];
        let here = super::super::compile(&sources(), &targets, 2, false).unwrap();
        assert_eq!(compile_isolated(&sources(), &targets, 2).unwrap(), here);
    }

    #[test]
    fn the_threads_of_a_child_process_have_tokens() {
        // Of two at work at the same time, each waits for the other. The counters are the child's.
        let (working, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let together = |wanted: usize| {
            let (working, most) = (&working, &most);
            move |source: &Source| -> Outcome {
                most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let begun = Instant::now();
                while most.load(Ordering::SeqCst) < wanted && begun.elapsed().as_secs() < 60 {
                    std::thread::yield_now();
                }
                working.fetch_sub(1, Ordering::SeqCst);
                let bytes = vec![most.load(Ordering::SeqCst) as u8];
                let object = ObjectFile { name: source.name.clone(), bytes };
                Ok(Compiled { object, text: None })
            }
        };
        for tokens in [0, 1] {
            let server = Client::new(tokens).unwrap();
            let work = together(tokens + 1);
            let outcomes = in_child(&sources(), 3, Some(&server), &work).unwrap();
            let most = outcomes.into_iter().map(|outcome| outcome.unwrap().object.bytes[0]).max();
            assert_eq!(most, Some(tokens as u8 + 1));
            assert_eq!(server.available().unwrap(), tokens, "tokens that were not given back");
        }
    }

    #[test]
    fn errors_of_kernels_arrive_whole() {
        let mut bad = sources();
        let data = bad[1].kernels[0].func.make_mut();
        let buffer = data.params[0].buffer;
        data.buffers[buffer].dtype = DType::F16;
        let report = compile_isolated(&bad, &[Target::host()], 1).unwrap_err();
        assert_eq!(report.problems.len(), 1);
        assert!(report.to_string().contains("kernel `two`: buffer `y`"), "{report}");
    }

    #[test]
    fn the_exit_of_the_child_is_an_error_that_names_its_kernel() {
        let compiled = |source: &Source| -> Outcome {
            let object = ObjectFile { name: source.name.clone(), bytes: vec![7; 1 << 20] };
            Ok(Compiled { object, text: None })
        };
        let abort = |source: &Source| -> Outcome {
            if source.name == "two" {
                std::process::abort();
            }
            compiled(source)
        };
        let problem = in_child(&sources(), 1, None, &abort).unwrap_err();
        let message = problem.message;
        assert_eq!(
            message,
            "a defect of niello, not of the model: LLVM was ended by signal 6 while it compiled the kernel \
             `two`"
        );

        let exit = |source: &Source| -> Outcome {
            if source.name == "three" {
                let _ = io::stderr().write_all(b"LLVM ERROR: out of registers\n");
                // SAFETY: ends the child.
                unsafe { _exit(70) };
            }
            compiled(source)
        };
        let message = in_child(&sources(), 1, None, &exit).unwrap_err().message;
        assert!(message.contains("LLVM ended with status 70 while it compiled"), "{message}");
        assert!(message.contains("`three`; it said: LLVM ERROR: out of registers"), "{message}");

        assert_eq!(in_child(&sources(), 2, None, &compiled).unwrap().len(), 3);
    }
}
