//! Packages outside the workspace, and Cargo in them as a new user runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use niello_tests::{packages_outside, workspace};

use crate::snippets::Snippet;

/// Path of the repository in the documents, as seen from a package.
const REPOSITORY: &str = "../niello/";

/// A folder outside the workspace, for packages side by side.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        assert!(!folder.path().starts_with(workspace()), "{folder:?} is in the workspace");
        Folder(folder)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file, with the real path of the repository.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let root = format!("{}/", workspace().display()).replace('\\', "/");
        self.write_bytes(path, text.replace(REPOSITORY, &root));
    }

    pub(crate) fn write_bytes(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("files lie in the folder")).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// Writes files, and continuations of files, that a document marks.
    pub(crate) fn write_marked(&self, snippets: &[Snippet]) {
        for Snippet { marker, text, .. } in snippets {
            match marker.as_ref().map(|(key, value)| (key.as_str(), value.as_str())) {
                Some(("file", path)) => self.write(path, text),
                Some(("append", path)) => {
                    let before = fs::read_to_string(self.path(path)).unwrap();
                    self.write(path, &format!("{before}\n{text}"));
                }
                _ => {}
            }
        }
    }

    /// Runs Cargo in a package. The dependencies are those of the repository's lock file, so that
    /// there is nothing to fetch.
    pub(crate) fn cargo(&self, package: &str, arguments: &[&str]) -> Output {
        let folder = self.path(package);
        let lock = folder.join("Cargo.lock");
        if !lock.exists() {
            fs::copy(workspace().join("Cargo.lock"), lock).unwrap();
        }
        let mut command = Command::new(env!("CARGO"));
        // Variables of the outer Cargo do not concern the package, but for how long a build takes.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let own =
                ["CARGO_HOME", "CARGO_TERM_COLOR", "CARGO_INCREMENTAL", "CARGO_PROFILE_DEV_DEBUG"]
                    .contains(&&*text);
            let outer = text.starts_with("CARGO_") || text.starts_with("NIELLO_");
            if (outer && !own) || text == "RUSTFLAGS" {
                command.env_remove(name);
            }
        }
        command.env("CARGO_TARGET_DIR", target()).env("RUSTDOCFLAGS", "-Dwarnings");
        let (before, after) = arguments
            .split_at(arguments.iter().position(|&word| word == "--").unwrap_or(arguments.len()));
        command.args(before).arg("--offline").args(after).current_dir(folder).output().unwrap()
    }

    /// Runs the program of a package that was built, in its folder.
    pub(crate) fn run(&self, package: &str, arguments: &[&str]) -> Output {
        let program = target().join("debug").join(package);
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path(package)).env_remove("RUST_BACKTRACE");
        command.output().unwrap()
    }

    /// Runs Cargo, which must succeed, and returns its standard output.
    #[track_caller]
    pub(crate) fn cargo_ok(&self, package: &str, arguments: &[&str]) -> String {
        let output = self.cargo(package, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "cargo {arguments:?} in {package}:\n{stdout}\n{stderr}");
        stdout.into_owned()
    }
}

/// Where Cargo builds the packages.
fn target() -> PathBuf {
    packages_outside(env!("CARGO_TARGET_TMPDIR"))
}
