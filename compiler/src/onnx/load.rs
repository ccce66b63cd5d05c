//! Reading model files, and saying what a file is when it is none.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;

use super::budget;
use super::external::{LFS_POINTER, map_file};
use super::proto::{ModelProto, TensorProto};
use crate::diagnostics::{Problem, Report, options_are_arguments};

/// Largest file that can be one protobuf message.
pub(super) const MAX_MODEL_BYTES: u64 = (1 << 31) - 1;

/// A model as it is in its file.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// The model; the elements of its tensors stay in the mapped file.
    pub proto: ModelProto,
    /// The folder that external data is looked for in; none for a model that was read from memory.
    pub folder: Option<PathBuf>,
    /// The folder of the file that the model's path is a link to, if it is one. Caches link a model
    /// and its external data to files in one store, so links to that folder are followed.
    pub store: Option<PathBuf>,
}

/// Reads a model from a file, which is mapped, not copied.
///
/// # Errors
///
/// If the file cannot be read, or is no ONNX model: one problem, which says what it is instead as
/// far as that can be told.
pub fn load(path: &Path) -> Result<ModelFile, Report> {
    let name = path.display().to_string();
    let bytes = read(path, &name)?;
    let proto = parse(bytes, &name)?;
    Ok(ModelFile { proto, folder: path.parent().map(Path::to_owned), store: store(path) })
}

/// Reads a model from memory. External data cannot be resolved.
///
/// # Errors
///
/// As [`load`].
pub fn load_bytes(bytes: impl Into<Bytes>) -> Result<ModelFile, Report> {
    let proto = parse(bytes.into(), "the model")?;
    Ok(ModelFile { proto, folder: None, store: None })
}

/// The folder of the file that a path leads to, if the path is a link.
fn store(path: &Path) -> Option<PathBuf> {
    fs::symlink_metadata(path).ok().filter(|metadata| metadata.is_symlink())?;
    fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

fn read(path: &Path, name: &str) -> Result<Bytes, Problem> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let problem = Problem::new(format!("{name}: there is no such file"));
            match options_are_arguments() {
                true => problem,
                false => {
                    problem.help("paths are relative to the folder of the package's Cargo.toml")
                }
            }
        }
        _ => Problem::new(format!("{name}: cannot read the file: {error}")),
    })?;
    if metadata.is_dir() {
        let problem = Problem::new(format!("{name}: this is a folder, not an ONNX file"));
        return Err(if path.join("saved_model.pb").exists() {
            problem.help("it is a TensorFlow SavedModel; convert it with tf2onnx")
        } else {
            problem.help("name the .onnx file in it")
        });
    }
    if metadata.len() > MAX_MODEL_BYTES {
        return Err(Problem::new(format!(
            "{name}: the file has {} bytes, but a protobuf message has at most {MAX_MODEL_BYTES}",
            metadata.len()
        ))
        .help("save the model with its weights as external data: onnx.save(model, path, save_as_external_data=True)"));
    }
    map_file(path).map_err(|error| Problem::new(format!("{name}: cannot read the file: {error}")))
}

fn parse(bytes: Bytes, name: &str) -> Result<ModelProto, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(format!("{name}: the file is empty")));
    }
    if let Some((what, help)) = foreign_format(&bytes) {
        return Err(Problem::new(format!("{name}: this is {what}, not an ONNX model"))
            .help(help.to_owned()));
    }
    budget::check(&bytes, budget::limit()?, name)?;
    match ModelProto::decode(bytes.clone()) {
        Ok(model) if model.graph.is_some() => Ok(model),
        _ if is_tensor(&bytes) => {
            Err(Problem::new(format!("{name}: this holds a single tensor, not an ONNX model"))
                .help("files such as input_0.pb are test data; name the .onnx file beside them"))
        }
        Ok(_) => Err(Problem::new(format!("{name}: this is no ONNX model: it has no graph"))),
        Err(error) => Err(Problem::new(format!(
            "{name}: this is no ONNX model, or it is damaged or cut short: {}",
            short(&error.to_string())
        ))
        .help("check it with onnx.checker.check_model, or fetch or export it again")),
    }
}

/// What the decoder says, with the way to the place cut in the middle: it names every message
/// around it.
fn short(error: &str) -> String {
    let parts: Vec<&str> = error.split(": ").collect();
    match parts.as_slice() {
        [first, second, .., a, b, c] if parts.len() > 7 => {
            format!("{first}: {second}: …: {a}: {b}: {c}")
        }
        _ => error.to_owned(),
    }
}

/// What a file is that begins like none of ONNX, and what to do about it.
fn foreign_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const EXPORT: &str = "export the model with torch.onnx.export";
    let at = |offset: usize, magic: &[u8]| {
        bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic))
    };
    let text = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    Some(if at(0, LFS_POINTER) {
        ("a Git LFS pointer", "run `git lfs pull` to fetch the file")
    } else if at(0, b"PK\x03\x04") {
        ("a zip archive, which is how PyTorch saves a .pt file", EXPORT)
    } else if at(0, b"\x80\x02") || at(0, b"\x80\x04") {
        ("a Python pickle, which is how PyTorch saved a .pth file", EXPORT)
    } else if at(4, b"TFL3") {
        ("a TensorFlow Lite model", "convert it with `python -m tf2onnx.convert --tflite`")
    } else if at(4, b"ORTM") {
        ("a model in the format of ONNX Runtime", "name the .onnx file that it was made from")
    } else if at(0, b"\x89HDF\r\n\x1a\n") {
        ("an HDF5 file, which is how Keras saves weights", "convert the model with tf2onnx")
    } else if at(0, b"GGUF") {
        ("a GGUF file", "export the model it was made from to ONNX")
    } else if at(0, b"\x1f\x8b") {
        ("a gzip file", "unpack it first")
    } else if is_safetensors(bytes) {
        (
            "a safetensors file, which has weights and no graph",
            "export the model that the weights belong to: torch.onnx.export",
        )
    } else if at(text, b"<?xml") || at(text, b"<!DOCTYPE") || at(text, b"<html") {
        (
            "an XML or HTML file",
            "if it was downloaded, the server may have answered with an error page",
        )
    } else if at(text, b"{\"") {
        ("a JSON file", "name the .onnx file")
    } else {
        return None;
    })
}

/// A safetensors file begins with the length of its header, which is a JSON object.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return false };
    rest.starts_with(b"{\"") && u64::from_le_bytes(*length) <= rest.len() as u64
}

/// Whether the bytes are a tensor of a known type with elements.
fn is_tensor(bytes: &Bytes) -> bool {
    TensorProto::decode(bytes.clone()).is_ok_and(|tensor| {
        tensor.data_type.is_some_and(|number| number > 0)
            && tensor.data_type().is_some()
            && !tensor.has_segment
            && (tensor.raw_data.is_some()
                || !tensor.float_data.is_empty()
                || !tensor.int32_data.is_empty()
                || !tensor.int64_data.is_empty()
                || !tensor.string_data.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::ModelBuilder;
    use super::super::tensor::test_value_to_bytes;
    use super::*;
    use crate::ir::{Constant, DType};

    fn error(bytes: impl Into<Bytes>) -> String {
        load_bytes(bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_model_comes_back_from_its_bytes() {
        let model = ModelBuilder::new(13)
            .input("x", DType::F32, &[2])
            .node("Relu", &["x"], &["y"], &[])
            .output("y", DType::F32, &[2])
            .build();
        assert_eq!(load_bytes(model.encode_to_vec()).unwrap().proto, model);
    }

    #[test]
    fn files_of_other_kinds_are_named() {
        assert_eq!(error(vec![]), "the model: the file is empty");
        assert_eq!(
            error(&b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"[..]),
            "the model: this is a Git LFS pointer, not an ONNX model; help: run `git lfs pull` to fetch the file"
        );
        for (bytes, what) in [
            (&b"PK\x03\x04...."[..], "PyTorch saves a .pt file"),
            (b"\x80\x02}q\x00", "a Python pickle"),
            (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
            (b"\x1c\0\0\0ORTM", "the format of ONNX Runtime"),
            (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
            (b"\x02\0\0\0\0\0\0\0{\"", "a safetensors file"),
            (b"\n <!DOCTYPE html>", "an XML or HTML file"),
            (b"{\"model\": 1}", "a JSON file"),
        ] {
            let error = error(bytes);
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_tensor_is_no_model() {
        let constant = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
        let error = error(test_value_to_bytes(&constant, "x").unwrap());
        assert!(error.starts_with("the model: this holds a single tensor, not an ONNX model"));
    }

    #[test]
    fn damaged_files_say_where_they_break() {
        let model = ModelBuilder::new(13)
            .input("x", DType::F32, &[2])
            .node("Relu", &["x"], &["y"], &[])
            .output("y", DType::F32, &[2]);
        let mut bytes = model.build().encode_to_vec();
        bytes.truncate(bytes.len() - 9);
        let error = error(bytes);
        assert!(error.contains("damaged or cut short"), "{error}");
        // Unknown fields alone decode to an empty model.
        assert_eq!(
            self::error(vec![0xC8, 0x3E, 1]),
            "the model: this is no ONNX model: it has no graph"
        );
    }

    #[test]
    fn graphs_that_nest_too_deeply_are_told_in_a_short_line() {
        let nested = |depth: usize| {
            let mut graph = ModelBuilder::new(13).node("Relu", &["x"], &["y"], &[]).output(
                "y",
                DType::F32,
                &[2],
            );
            for _ in 0..depth {
                graph = ModelBuilder::new(13)
                    .node("If", &["c"], &["y"], &[("then_branch", graph.build_graph().into())])
                    .output("y", DType::F32, &[2]);
            }
            load_bytes(graph.to_bytes())
        };
        assert!(nested(30).is_ok());
        for depth in [31, 32, 33, 34, 40, 100] {
            let Err(report) = nested(depth) else { continue };
            let error = report.to_string();
            assert!(error.contains("graphs are nested too deeply"), "{depth}: {error}");
            assert!(error.len() < 300, "{error}");
        }
        assert!(nested(40).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_no_models() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.onnx");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = |path: &Path| load(path).unwrap_err().to_string();
        assert!(error(&pipe).ends_with("it is a pipe, not a regular file"), "{}", error(&pipe));
        assert!(error(Path::new("/dev/zero")).ends_with("it is a device, not a regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn external_data_of_a_linked_model_is_found_in_the_same_store() {
        use std::os::unix::fs::symlink;

        use super::super::{ImportOptions, import};
        // The layout of a cache: links in folders of versions, files in one store.
        let dir = tempfile::tempdir().unwrap();
        let version = dir.path().join("snapshots/1/onnx");
        let (store, elsewhere) = (dir.path().join("blobs"), dir.path().join("elsewhere"));
        for folder in [&version, &store, &elsewhere] {
            fs::create_dir_all(folder).unwrap();
        }
        let weight = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
        let mut model = ModelBuilder::new(13)
            .input("x", DType::F32, &[2])
            .initializer("w", &weight)
            .node("Add", &["x", "w"], &["y"], &[])
            .output("y", DType::F32, &[2])
            .build();
        let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
        let bytes = tensor.raw_data.take().unwrap();
        tensor.data_location = Some(1);
        tensor.external_data = vec![crate::onnx::proto::StringStringEntryProto {
            key: Some("location".to_owned()),
            value: Some("model.onnx_data".to_owned()),
        }];
        fs::write(store.join("abc"), model.encode_to_vec()).unwrap();
        fs::write(store.join("def"), &bytes).unwrap();
        fs::write(elsewhere.join("def"), &bytes).unwrap();
        let (path, data) = (version.join("model.onnx"), version.join("model.onnx_data"));
        symlink("../../../blobs/abc", &path).unwrap();
        let imported = |folders: &[PathBuf]| {
            let file = load(&path).unwrap();
            let folders = folders.iter().chain(&file.store).cloned().collect();
            let options = ImportOptions { external_folders: folders, ..ImportOptions::default() };
            import(&file.proto, file.folder.as_deref(), &options)
                .map_err(|report| report.to_string())
        };
        symlink("../../../blobs/def", &data).unwrap();
        assert_eq!(imported(&[]).unwrap().external_files, std::slice::from_ref(&data));
        fs::remove_file(&data).unwrap();
        symlink("../../../elsewhere/def", &data).unwrap();
        let error = imported(&[]).unwrap_err();
        assert!(error.contains("is a link that leaves the model's folder"), "{error}");
        assert!(imported(&[elsewhere]).is_ok());
        // A model that is no link has no store.
        fs::remove_file(&path).unwrap();
        fs::copy(store.join("abc"), &path).unwrap();
        fs::remove_file(&data).unwrap();
        symlink("../../../blobs/def", &data).unwrap();
        assert!(imported(&[]).is_err());
    }

    #[test]
    fn files_beyond_the_size_of_a_message_are_refused_unread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.onnx");
        // A hole, which takes no space.
        std::fs::File::create(&path).unwrap().set_len(MAX_MODEL_BYTES + 1).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("the file has 2147483648 bytes, but a protobuf message"), "{error}");
        assert!(error.contains("save_as_external_data=True"), "{error}");
    }

    #[test]
    fn missing_files_and_folders_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| load(path).unwrap_err().to_string();
        let path = dir.path().join("none.onnx");
        assert_eq!(
            error(&path),
            format!(
                "{}: there is no such file; help: paths are relative to the folder of the package's Cargo.toml",
                path.display()
            )
        );
        assert!(error(dir.path()).contains("this is a folder, not an ONNX file"));
        std::fs::write(dir.path().join("saved_model.pb"), "").unwrap();
        assert!(error(dir.path()).ends_with("convert it with tf2onnx"));
    }
}
