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
    /// LLVM 19, if it is there with its headers and its shared library.
    pub(super) llvm: Option<Llvm>,
    /// A Python that can make environments, as typed in a shell.
    pub(super) python: Option<String>,
    /// The Python environment's interpreter, there or not.
    pub(super) environment: PathBuf,
    /// The environment has the pinned packages.
    pub(super) environment_is_current: bool,
    /// The environment's folder is a link to another one.
    pub(super) environment_is_link: bool,
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
            llvm: Llvm::look(),
            python: usable_python(),
            environment_is_current: is_current(&environment),
            environment_is_link: folder(&environment).is_symlink(),
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

/// The folder of an environment with that interpreter.
pub(super) fn folder(interpreter: &Path) -> &Path {
    interpreter.parent().and_then(Path::parent).unwrap_or(Path::new("."))
}

/// The committed list of pinned packages.
pub(super) fn requirements() -> PathBuf {
    workspace::root().join("xtask/requirements.txt")
}

fn is_current(python: &Path) -> bool {
    let mut command = Command::new(python);
    process::output(command.args(["-c", VERSIONS_MATCH]).arg(requirements())).is_some()
}

/// Where LLVM 19 is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Llvm {
    /// Where the build of the crate llvm-sys finds it: in PATH, or in the folder that `LLVM_SYS_191_PREFIX` names.
    Known,
    /// In a folder to which `LLVM_SYS_191_PREFIX` has to be set.
    Prefix(PathBuf),
}

/// Folders of packages that put nothing into PATH: Debian's and Ubuntu's, Fedora's, Homebrew's.
const USUAL_PREFIXES: [&str; 4] = [
    "/usr/lib/llvm-19",
    "/usr/lib64/llvm19",
    "/opt/homebrew/opt/llvm@19",
    "/usr/local/opt/llvm@19",
];

impl Llvm {
    /// Looks where llvm-sys looks, then in the usual folders.
    fn look() -> Option<Self> {
        if let Some(prefix) = std::env::var_os("LLVM_SYS_191_PREFIX") {
            // Whoever sets it wants that one and no other.
            return is_llvm(&Path::new(&prefix).join("bin/llvm-config")).then_some(Self::Known);
        }
        if ["llvm-config", "llvm-config-19"].iter().any(|name| is_llvm(Path::new(name))) {
            return Some(Self::Known);
        }
        let usual = USUAL_PREFIXES.iter().map(Path::new);
        usual
            .filter(|prefix| is_llvm(&prefix.join("bin/llvm-config")))
            .map(|prefix| Self::Prefix(prefix.to_path_buf()))
            .next()
    }
}

/// Whether this `llvm-config` is of an LLVM 19 with headers and a shared library.
fn is_llvm(config: &Path) -> bool {
    let ask = |arguments: &[&str]| process::output(Command::new(config).args(arguments));
    ask(&["--version"]).is_some_and(|version| version.starts_with("19."))
        && ask(&["--link-shared", "--libs"]).is_some()
        && ask(&["--includedir"])
            .is_some_and(|folder| Path::new(folder.trim()).join("llvm-c/Core.h").exists())
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
