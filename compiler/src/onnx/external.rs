//! Tensor elements in files beside the model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use prost::bytes::Bytes;

use super::proto::StringStringEntryProto;
use super::tensor::TensorError;
use crate::diagnostics::Setting;
use crate::files;
use crate::ir::SharedBytes;

/// What a Git-LFS pointer begins with.
pub(crate) const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The files beside a model, mapped when a tensor first needs them.
#[derive(Debug, Default)]
pub struct ExternalData {
    folder: Option<PathBuf>,
    /// Folders that links in the model's folder may lead to.
    link_targets: Vec<PathBuf>,
    files: BTreeMap<String, (PathBuf, SharedBytes)>,
}

impl ExternalData {
    /// No files: a tensor whose elements are elsewhere is an error.
    pub fn none() -> ExternalData {
        ExternalData::default()
    }

    /// The files in the model's folder and below it; no others are opened.
    pub fn in_folder(folder: &Path) -> ExternalData {
        // The folder of a bare file name is the empty path.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        ExternalData { folder: Some(folder.to_owned()), ..ExternalData::default() }
    }

    /// Also follows links in the model's folder to files in these folders, and below them.
    #[must_use]
    pub fn with_link_targets(mut self, folders: &[PathBuf]) -> ExternalData {
        self.link_targets.extend_from_slice(folders);
        self
    }

    /// The files that tensors needed, in the order of their names in the model.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.values().map(|(path, _)| path.as_path())
    }

    /// The elements that a tensor's `external_data` entries point at.
    pub(super) fn bytes(
        &mut self,
        entries: &[StringStringEntryProto],
        expected: u64,
    ) -> Result<SharedBytes, TensorError> {
        let entry = |key: &str| entries.iter().find(|entry| entry.key() == key);
        let number = |key: &str| -> Result<Option<u64>, TensorError> {
            let Some(entry) = entry(key) else { return Ok(None) };
            let number = entry.value().trim().parse().map_err(|_| {
                TensorError::new(format!("external data: {key} `{}` is no size", entry.value()))
            })?;
            Ok(Some(number))
        };
        let location = entry("location").map(StringStringEntryProto::value).unwrap_or_default();
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or(expected);
        if length != expected {
            return Err(TensorError::new(format!(
                "external data: {length} bytes of `{location}` are named, but the tensor takes {expected}"
            )));
        }
        let file = self.file(location)?;
        usize::try_from(offset)
            .ok()
            .zip(usize::try_from(length).ok())
            .and_then(|(offset, length)| file.slice(offset, length))
            .ok_or_else(|| {
                TensorError::new(format!(
                    "external data: `{location}` has {} bytes, but {length} bytes at {offset} are named",
                    file.len()
                ))
            })
    }

    fn file(&mut self, location: &str) -> Result<&SharedBytes, TensorError> {
        if !self.files.contains_key(location) {
            let (path, real) = self.resolve(location)?;
            let bytes = map_file(&real).map_err(|error| {
                TensorError::new(format!("external data: cannot read {}: {error}", path.display()))
            })?;
            if bytes.starts_with(LFS_POINTER) {
                return Err(TensorError::new(format!(
                    "external data: {} is a Git LFS pointer; run `git lfs pull` to fetch the file",
                    path.display()
                )));
            }
            self.files.insert(location.to_owned(), (path, SharedBytes::new(bytes)));
        }
        Ok(&self.files[location].1)
    }

    /// The path of the file that a location names in the model's folder, and the same after symbolic
    /// links, which may leave that folder for no others than those that are allowed.
    fn resolve(&self, location: &str) -> Result<(PathBuf, PathBuf), TensorError> {
        let Some(folder) = &self.folder else {
            return Err(TensorError::new(format!(
                "the elements are in the file `{location}`, but the model was not read from a folder"
            )));
        };
        let outside = || {
            TensorError::new(format!(
                "external data: `{location}` is not a path within the model's folder"
            ))
        };
        let relative = Path::new(location);
        // A backslash separates folders on some systems and not on others, so none may be there.
        if location.is_empty()
            || location.contains(['\\', '\0'])
            || !relative.components().all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(outside());
        }
        let path = folder.join(relative);
        let cannot_read = |error| {
            TensorError::new(format!("external data: cannot read {}: {error}", path.display()))
        };
        let real = fs::canonicalize(&path).map_err(cannot_read)?;
        let real_folder = fs::canonicalize(folder).map_err(cannot_read)?;
        let allowed = |folder: &PathBuf| {
            fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder))
        };
        if !real.starts_with(&real_folder) && !self.link_targets.iter().any(allowed) {
            let target = real.parent().unwrap_or(&real).display().to_string();
            return Err(TensorError::new(format!(
                "external data: `{location}` is a link that leaves the model's folder, to {}; if that \
                 is as it should be, allow it: {}",
                real.display(),
                Setting::ExternalDataFolder.of(&target)
            )));
        }
        Ok((path, real))
    }
}

/// The bytes of a file, mapped.
pub(super) fn map_file(path: &Path) -> std::io::Result<Bytes> {
    let (file, metadata) = files::open(path)?;
    if metadata.len() == 0 {
        // An empty file cannot be mapped on every system.
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is private and read-only, and nothing here writes the file. Were another
    // process to cut the file short meanwhile, reading would end the process with a signal, as with
    // every memory-mapped input.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        pairs.iter().map(entry).collect()
    }

    fn read(folder: &Path, pairs: &[(&str, &str)], expected: u64) -> Result<Vec<u8>, String> {
        let mut data = ExternalData::in_folder(folder);
        let bytes = data.bytes(&entries(pairs), expected).map_err(|error| error.to_string())?;
        Ok(bytes.to_vec())
    }

    #[test]
    fn parts_of_files_in_the_folder_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/w.bin"), [1, 2, 3, 4]).unwrap();
        let location = ("location", "sub/w.bin");
        let part = [location, ("offset", "1"), ("length", "2")];
        assert_eq!(read(dir.path(), &part, 2), Ok(vec![2, 3]));
        assert_eq!(read(dir.path(), &[location], 4), Ok(vec![1, 2, 3, 4]));
        assert_eq!(
            read(dir.path(), &part, 3).unwrap_err(),
            "external data: 2 bytes of `sub/w.bin` are named, but the tensor takes 3"
        );
        assert_eq!(
            read(dir.path(), &[location, ("offset", "3")], 2).unwrap_err(),
            "external data: `sub/w.bin` has 4 bytes, but 2 bytes at 3 are named"
        );
        assert_eq!(
            read(dir.path(), &[location, ("offset", "-1")], 2).unwrap_err(),
            "external data: offset `-1` is no size"
        );
    }

    #[test]
    fn nothing_outside_the_folder_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(dir.path().join("secret"), [1]).unwrap();
        let absolute = dir.path().join("secret");
        for location in
            ["../secret", "", "a/../../secret", "..\\secret", absolute.to_str().unwrap()]
        {
            assert_eq!(
                read(&inner, &[("location", location)], 1).unwrap_err(),
                format!("external data: `{location}` is not a path within the model's folder")
            );
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("../secret", inner.join("link")).unwrap();
            assert_eq!(
                read(&inner, &[("location", "link")], 1).unwrap_err(),
                format!(
                    "external data: `link` is a link that leaves the model's folder, to {}; if that is as \
                     it should be, allow it: .external_data_folder({:?})",
                    fs::canonicalize(&absolute).unwrap().display(),
                    fs::canonicalize(dir.path()).unwrap().display().to_string(),
                )
            );
            let mut data =
                ExternalData::in_folder(&inner).with_link_targets(&[dir.path().to_owned()]);
            let bytes = data.bytes(&entries(&[("location", "link")]), 1).unwrap();
            assert_eq!(*bytes, [1]);
            // A path that leaves the folder by itself stays refused.
            assert!(data.bytes(&entries(&[("location", "../secret")]), 1).is_err());
        }
    }

    #[cfg(unix)]
    #[test]
    fn pipes_loops_of_links_and_folders_are_no_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let error = |location| read(dir.path(), &[("location", location)], 1).unwrap_err();
        assert!(error("pipe").ends_with("it is a pipe, not a regular file"), "{}", error("pipe"));
        assert!(error("folder").ends_with("it is a folder, not a regular file"));
        assert!(error("loop").contains("cannot read"));
    }

    #[test]
    fn a_pointer_in_place_of_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("w"), [LFS_POINTER, b"v1\noid sha256:0\nsize 1\n"].concat())
            .unwrap();
        let error = read(dir.path(), &[("location", "w")], 1).unwrap_err();
        assert!(error.ends_with("is a Git LFS pointer; run `git lfs pull` to fetch the file"));
        assert!(read(dir.path(), &[("location", "none")], 1).unwrap_err().contains("cannot read"));
    }
}
