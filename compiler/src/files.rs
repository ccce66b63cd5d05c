//! Reading and writing files that users and models name, whatever they are.

use std::ffi::OsString;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::diagnostics::Problem;
use crate::executor::Contents;

/// Opens a regular file. Anything else is an error that says what it is: a pipe would block for as
/// long as nobody writes to it, and a device may not end.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe without this waits for its writer. Regular files are read as ever.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!(
            "it is {}, not a regular file",
            kind(metadata.file_type())
        )));
    }
    Ok((file, metadata))
}

/// The bytes of a regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, metadata) = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn kind(file: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if file.is_fifo() {
            return "a pipe";
        }
        if file.is_char_device() || file.is_block_device() {
            return "a device";
        }
        if file.is_socket() {
            return "a socket";
        }
    }
    if file.is_dir() { "a folder" } else { "a special file" }
}

/// Writes a file, which appears whole under its name or not at all.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn write_file<'a>(
    path: &Path,
    contents: impl Into<Contents<'a>>,
) -> Result<(), Problem> {
    let contents: Contents<'_> = contents.into();
    let failed = |error: io::Error| {
        Problem::new(format!("{}: cannot write the file: {error}", path.display()))
    };
    // A device or a pipe cannot be replaced by a file, and must not.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return contents.write_file(path).map_err(failed);
    }
    // The file that a link leads to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = beside(&target);
    let written = contents.write_file(&temporary).and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|error| {
        // The error is told; a file that is left over as well would only confuse.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

/// A name in the folder of `path` that no other process takes.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_files_are_read_and_folders_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        assert_eq!(read(&path).unwrap(), [1, 2, 3]);
        // Windows refuses to open a folder with words of its own.
        #[cfg(unix)]
        assert_eq!(read(dir.path()).unwrap_err().to_string(), "it is a folder, not a regular file");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_without_a_writer_and_devices_without_an_end_are_told_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe).unwrap_err().to_string(), "it is a pipe, not a regular file");
        let device = Path::new("/dev/zero");
        assert_eq!(read(device).unwrap_err().to_string(), "it is a device, not a regular file");
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_file(&path, b"old".as_slice()).unwrap();
        // What has the file open goes on reading the old one.
        let mut open = fs::File::open(&path).unwrap();
        write_file(&path, b"new".as_slice()).unwrap();
        let mut old = Vec::new();
        io::Read::read_to_end(&mut open, &mut old).unwrap();
        assert_eq!((old, fs::read(&path).unwrap()), (b"old".to_vec(), b"new".to_vec()));
        assert!(write_file(&folder.path().join("none/file"), b"".as_slice()).is_err());
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        let error = write_file(&taken, b"".as_slice()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot write the file: ", taken.display())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, b"old".as_slice()).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_file(&link, b"new".as_slice()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write_file(Path::new("/dev/null"), b"text".as_slice()).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
