//! Files of tensors: numpy's `.npy` and `.npz`, and ONNX's `.pb`.
//!
//! Readers trust nothing that a file says: sizes are checked before memory is taken, and every
//! mistake has an error that names what was found.

mod header;
mod npy;
mod npz;
mod pb;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use crate::diagnostics::Problem;
use crate::files::{self, write_file};
use crate::ir::Constant;
use crate::onnx::LFS_POINTER;

/// Most bytes of elements that one file may hold.
///
/// A few bytes of a compressed archive can claim any size. Inputs of real models are some hundred
/// megabytes at most; this leaves room and still fits the memory of the machines they run on.
const MAX_BYTES: u64 = 4 << 30;

/// How tensors are stored in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// One tensor, by numpy.
    Npy,
    /// Several tensors with names: a zip archive of `.npy` files.
    Npz,
    /// One tensor as ONNX's `TensorProto`.
    Pb,
}

impl Format {
    /// The format that the ending of a file's name stands for.
    ///
    /// # Errors
    ///
    /// It stands for none.
    pub fn of(path: &Path) -> Result<Format, Problem> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("npy") => Ok(Format::Npy),
            Some("npz") => Ok(Format::Npz),
            Some("pb") => Ok(Format::Pb),
            _ => Err(Problem::new(format!(
                "{}: the ending of a file of tensors is .npy, .npz or .pb",
                path.display()
            ))
            .help("numpy.save writes .npy, numpy.savez .npz")),
        }
    }
}

/// The tensors of a file, with their names if the file is an archive.
///
/// # Errors
///
/// The file cannot be read, is of another format than its ending says, or holds what is no tensor
/// of niello's.
pub fn read(path: &Path) -> Result<Vec<(Option<String>, Constant)>, Problem> {
    let format = Format::of(path)?;
    let problem = |what: &str| Problem::new(format!("{}: {what}", path.display()));
    let mut file = open(path).map_err(|what| problem(&what))?;
    if let Some((what, help)) = foreign(&mut file, format).map_err(|error| problem(&error))? {
        return Err(problem(&format!("this is {what}")).help(help));
    }
    let tensors = match format {
        Format::Npy => npy::read_file(file).map(|tensor| vec![(None, tensor)]),
        Format::Pb => pb::read(file).map(|tensor| vec![(None, tensor)]),
        Format::Npz => npz::read_file(file).map(|entries| {
            entries.into_iter().map(|(name, tensor)| (Some(name), tensor)).collect()
        }),
    };
    tensors.map_err(|what| problem(&what))
}

fn open(path: &Path) -> Result<File, String> {
    if path.is_dir() {
        return Err("this is a folder, not a file of tensors".to_owned());
    }
    let file = files::open(path).map(|(file, _)| file);
    file.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot read the file: {error}"),
    })
}

/// What a file is whose first bytes are not those of its format, and what to do about it.
fn foreign(
    file: &mut File,
    format: Format,
) -> Result<Option<(&'static str, &'static str)>, String> {
    let mut start = Vec::new();
    let read = file.take(LFS_POINTER.len() as u64).read_to_end(&mut start);
    read.and_then(|_| file.rewind()).map_err(|error| format!("cannot read the file: {error}"))?;
    Ok(if start.is_empty() && format != Format::Pb {
        Some(("an empty file", "write it again"))
    } else if start == LFS_POINTER {
        Some(("a Git LFS pointer, not a file of tensors", "run `git lfs pull` to fetch the file"))
    } else if start.starts_with(npy::MAGIC) && format != Format::Npy {
        Some(("an array that numpy.save wrote", "let its name end in .npy"))
    } else if start.starts_with(b"PK\x03\x04") && format != Format::Npz {
        Some(("a zip archive, as numpy.savez writes", "let its name end in .npz"))
    } else if start.starts_with(b"\x80") && format != Format::Pb {
        Some(("a Python pickle", "write the array with numpy.save"))
    } else {
        None
    })
}

/// Writes tensors under their names. Only an archive holds another number than one.
///
/// # Errors
///
/// The format has no such data type, or the file cannot be written.
pub fn write(path: &Path, tensors: &[(&str, &Constant)]) -> Result<(), Problem> {
    let format = Format::of(path)?;
    let problem = |what: String| Problem::new(format!("{}: {what}", path.display()));
    let bytes = match (format, tensors) {
        (Format::Npz, _) => npz::to_bytes(tensors),
        (Format::Npy, [(_, tensor)]) => npy::to_bytes(tensor),
        (Format::Pb, [(name, tensor)]) => pb::to_bytes(name, tensor),
        (Format::Npy | Format::Pb, _) => {
            Err(format!("the file holds one tensor, but there are {}", tensors.len()))
        }
    };
    write_file(path, bytes.map_err(problem)?)
}

/// A reader of a file and the number of bytes it has.
fn buffered(file: File) -> Result<(BufReader<File>, u64), String> {
    let length = file.metadata().map_err(|error| format!("cannot read the file: {error}"))?.len();
    Ok((BufReader::new(file), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str, bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    }

    #[test]
    fn errors_name_the_actual_kind_of_a_file() {
        let pointer = [LFS_POINTER, b"v1\noid sha256:0\nsize 1\n"].concat();
        for name in ["x.npy", "x.npz", "x.pb"] {
            assert_eq!(
                error(name, &pointer),
                "this is a Git LFS pointer, not a file of tensors; help: run `git lfs pull` to fetch the file"
            );
        }
        let npy = npy::to_bytes(&Constant::from_f32(&[1], &[1.0]).unwrap()).unwrap();
        assert!(error("x.npz", &npy).ends_with("let its name end in .npy"));
        assert!(error("x.pb", &npy).ends_with("let its name end in .npy"));
        assert!(error("x.npy", b"PK\x03\x04").ends_with("let its name end in .npz"));
        assert!(error("x.npy", b"").starts_with("this is an empty file"));
        assert!(error("x.npy", b"\x80\x04\x95").starts_with("this is a Python pickle"));
        let folder = tempfile::tempdir().unwrap();
        let missing = read(&folder.path().join("none.npy")).unwrap_err().to_string();
        assert!(missing.ends_with("there is no such file"), "{missing}");
        let ending = read(&folder.path().join("x.bin")).unwrap_err().to_string();
        assert!(ending.contains("is .npy, .npz or .pb"), "{ending}");
    }

    #[test]
    fn every_format_reads_back_written_arrays() {
        let folder = tempfile::tempdir().unwrap();
        let tensor = Constant::from_f32(&[2, 2], &[1.0, -2.0, 3.5, f32::INFINITY]).unwrap();
        for name in ["x.npy", "x.npz", "x.pb", "x.NPY"] {
            let path = folder.path().join(name);
            write(&path, &[("x", &tensor)]).unwrap();
            let [(_, read)] = read(&path).unwrap().try_into().unwrap();
            assert_eq!(read, tensor, "{name}");
        }
        let two = [("a", &tensor), ("b", &tensor)];
        let error = write(&folder.path().join("two.npy"), &two).unwrap_err().to_string();
        assert!(error.ends_with("the file holds one tensor, but there are 2"), "{error}");
        assert!(!folder.path().join("two.npy").exists());
    }
}
