//! Reading files that users and models name, whatever they are.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

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
}
