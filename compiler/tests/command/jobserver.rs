//! Compilations under a jobserver: a script in place of the C compiler counts how many run at a
//! time.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread::available_parallelism;

use jobserver::Client;

use super::isolation::compiler;
use super::{command, path, scores, stderr};

/// What each C compiler saw when it began: how many there were, with itself. It went on as soon as
/// there had been `wanted`.
fn counts(
    folder: &Path,
    wanted: usize,
    variables: impl FnOnce(&mut std::process::Command),
) -> Vec<usize> {
    let (at_work, log) = (folder.join("at-work"), folder.join("counts"));
    fs::create_dir(&at_work).unwrap();
    let script = format!(
        "case \" $* \" in *\" -c \"*) ;; *) exec cc \"$@\";; esac
mkdir {at}/$$; ls {at} | wc -l >> {log}; sleep 0.1
left=600
while [ $(sort -n {log} | tail -n 1) -lt {wanted} ] && [ $left -gt 0 ]; do
  sleep 0.05; left=$((left - 1))
done
cc \"$@\"; status=$?
rmdir {at}/$$; exit $status",
        at = at_work.display(),
        log = log.display(),
    );
    let cc = compiler(folder, &script);
    let model = scores(folder);
    let out = folder.join("out");
    let mut command = command();
    command.args(["compile", path(&model), "--dim", "batch=4", "-o", path(&out)]).env("CC", cc);
    command.env_remove("NIELLO_CACHE_DIR");
    variables(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let counts = fs::read_to_string(log).unwrap();
    counts.lines().map(|line| line.trim().parse().unwrap()).collect()
}

#[test]
fn each_compiler_but_the_first_has_a_token() {
    let processors = available_parallelism().map_or(1, NonZero::get);
    for tokens in [0, 1] {
        if tokens >= processors {
            eprintln!("skipped: one processor compiles one file at a time");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let server = Client::new(tokens).unwrap();
        let counts = counts(folder.path(), tokens + 1, |command| server.configure(command));
        assert!(counts.len() > 2, "{counts:?}");
        assert_eq!(counts.iter().max(), Some(&(tokens + 1)), "{counts:?}");
        assert_eq!(server.available().unwrap(), tokens, "tokens that were not given back");
    }
}

#[test]
fn a_jobserver_that_cannot_be_used_is_none() {
    let processors = available_parallelism().map_or(1, NonZero::get);
    for server in ["98,99", "fifo:/nonexistent/fifo", "nonsense", "-1,-1"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = format!("-j --jobserver-auth={server}");
        let wanted = processors.min(2);
        let counts = counts(folder.path(), wanted, |command| {
            command.env("CARGO_MAKEFLAGS", flags);
        });
        assert!(counts.iter().max() >= Some(&wanted), "{server}: {counts:?}");
    }
}
