//! What is on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{process, workspace};

/// Oldest Python that has wheels of the pinned packages.
pub(super) const OLDEST_PYTHON: (u32, u32) = (3, 11);

/// Fails unless each `name==version` line of the file in its argument is what is installed.
const VERSIONS_MATCH: &str = "
import sys
from importlib.metadata import version
for line in open(sys.argv[1]):
    name, pin, wanted = line.split('#')[0].strip().partition('==')
    if pin and version(name) != wanted:
        sys.exit(1)
";

/// Prints the version if the interpreter can make environments with pip inside. Debian leaves `ensurepip` to the package
/// python3-venv.
const CAN_MAKE_ENVIRONMENTS: &str = "
import sys, venv, ensurepip
print(sys.version_info.major, sys.version_info.minor)
";

/// The facts that a plan is made from.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// LLVM 19 is there with headers and its shared library.
    pub(super) has_llvm: bool,
    /// A Python that can make environments, as typed in a shell.
    pub(super) python: Option<String>,
    /// The Python environment's interpreter, there or not.
    pub(super) environment: PathBuf,
    /// The environment has the pinned packages.
    pub(super) environment_is_current: bool,
    /// The system's packages come by apt.
    pub(super) has_apt: bool,
    /// This process may install system packages.
    pub(super) is_root: bool,
    /// There is a `sudo` to become root with.
    pub(super) has_sudo: bool,
}

impl Machine {
    pub(super) fn look() -> Self {
        let environment = environment();
        Self {
            has_llvm: has_llvm(),
            python: usable_python(),
            environment_is_current: is_current(&environment),
            environment,
            has_apt: process::output(Command::new("apt-get").arg("--version")).is_some(),
            is_root: process::output(Command::new("id").arg("-u"))
                .is_some_and(|id| id.trim() == "0"),
            has_sudo: process::output(Command::new("sudo").arg("--version")).is_some(),
        }
    }
}

/// The interpreter of the environment under the target folder.
fn environment() -> PathBuf {
    let folder = workspace::target().join("python");
    if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") }
}

/// The committed list of pinned packages.
pub(super) fn requirements() -> PathBuf {
    workspace::root().join("xtask/requirements.txt")
}

fn is_current(python: &Path) -> bool {
    let mut command = Command::new(python);
    process::output(command.args(["-c", VERSIONS_MATCH]).arg(requirements())).is_some()
}

/// Debian's name first; elsewhere the folder may be given as llvm-sys takes it, or the plain command may be it.
fn has_llvm() -> bool {
    let prefix = std::env::var_os("LLVM_SYS_191_PREFIX");
    let prefixed = prefix.map(|folder| Path::new(&folder).join("bin/llvm-config"));
    let names = [Path::new("llvm-config-19"), Path::new("llvm-config")];
    prefixed.iter().map(PathBuf::as_path).chain(names).any(|config| {
        let ask = |arguments: &[&str]| process::output(Command::new(config).args(arguments));
        ask(&["--version"]).is_some_and(|version| version.starts_with("19."))
            && ask(&["--link-shared", "--libs"]).is_some()
    })
}

/// The first Python that is new enough and can make environments. A version manager's shim may come first in `PATH` and
/// be broken or old, so the system's own is tried as well.
fn usable_python() -> Option<String> {
    ["python3", "/usr/bin/python3", "python3.13", "python3.12", "python3.11", "python"]
        .into_iter()
        .find(|name| {
            let printed = process::output(Command::new(name).args(["-c", CAN_MAKE_ENVIRONMENTS]));
            printed.as_deref().and_then(version).is_some_and(|version| version >= OLDEST_PYTHON)
        })
        .map(str::to_owned)
}

fn version(printed: &str) -> Option<(u32, u32)> {
    let (major, minor) = printed.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version("3 9\n") < Some(OLDEST_PYTHON));
        assert!(version("3 13\n") > Some(OLDEST_PYTHON));
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn every_requirement_is_pinned_exactly() {
        let text = fs::read_to_string(requirements()).unwrap();
        let lines: Vec<_> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(lines.iter().any(|line| line.starts_with("onnx==")), "{lines:?}");
        for line in lines {
            let (name, version) = line.split_once("==").expect(line);
            assert!(
                !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()),
                "{line}"
            );
        }
    }
}
