//! Folders for files that do not outlive a compilation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::toolchain::CompileError;

/// How long folders stay that were kept, or left by a process that was killed: nothing compiles for
/// so long, and who wants to look at a failure does so earlier.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How the names of folders in the system's temporary folder begin.
const PREFIX: &str = "niello-";

/// A folder that is deleted with its owner.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// A new folder in the system's temporary folder. The first one of a process removes those that
    /// earlier processes left.
    pub(crate) fn new() -> Result<Self, CompileError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        static SWEEP: Once = Once::new();
        let parent = std::env::temp_dir();
        SWEEP.call_once(|| sweep(&parent, KEPT_FOR));
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(TempFolder(path)),
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot_create(&path, error)),
            }
        }
    }

    /// The folder `path`, without what an earlier process left there.
    pub(crate) fn at(path: &Path) -> Result<Self, CompileError> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("cannot empty the folder {}", path.display());
                return Err(CompileError::Io(what, error));
            }
            Ok(()) | Err(_) => {}
        }
        fs::create_dir_all(path).map_err(|error| cannot_create(path, error))?;
        Ok(TempFolder(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the folder for people to look at.
    pub(crate) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What cannot be deleted is left to a later compilation.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn cannot_create(path: &Path, error: io::Error) -> CompileError {
    CompileError::Io(format!("cannot create the folder {}", path.display()), error)
}

/// Removes the folders in `parent` that were made by [`TempFolder::new`] longer than `age` ago.
fn sweep(parent: &Path, age: Duration) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let is_ours = numbers.is_some_and(|(pid, number)| is_number(pid) && is_number(number));
        // Of the entry itself: a link is left alone.
        let Some(metadata) = is_ours.then(|| entry.metadata().ok()).flatten() else { continue };
        let elapsed = metadata.modified().ok().and_then(|time| time.elapsed().ok());
        if metadata.is_dir() && elapsed.is_some_and(|elapsed| elapsed >= age) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_processes_that_were_killed_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["niello-12-0", "niello-12", "niello-x-0", "niello-4-5x", "other-1-2"] {
            fs::create_dir_all(parent.path().join(name).join("inner")).unwrap();
        }
        fs::write(parent.path().join("niello-1-1"), "a file").unwrap();
        let names = || {
            let entries = fs::read_dir(parent.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let before = names();
        sweep(parent.path(), KEPT_FOR);
        assert_eq!(names(), before);
        sweep(parent.path(), Duration::ZERO);
        let rest = ["niello-1-1", "niello-12", "niello-4-5x", "niello-x-0", "other-1-2"];
        assert_eq!(names(), rest);
    }

    #[test]
    fn a_named_folder_is_emptied_and_goes_unless_it_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new/digits.niello-c");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("left.c"), "").unwrap();
        let folder = TempFolder::at(&path).unwrap();
        assert!(path.is_dir() && !path.join("left.c").exists());
        drop(folder);
        assert!(!path.exists());
        assert_eq!(TempFolder::at(&path).unwrap().keep(), path);
        assert!(path.is_dir());
    }
}
