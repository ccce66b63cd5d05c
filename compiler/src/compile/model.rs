//! What can be compiled: ONNX files and texts of modules.

use std::path::{Path, PathBuf};

use crate::diagnostics::{Problem, Report};
use crate::files;
use crate::graph::{self, Sidecar};
use crate::ir::{IRModule, SharedBytes, TensorType, Type};
use crate::onnx::{self, ImportOptions, Imported, ModelFile, ModelInfo, ModelPort};
use crate::options::CompileOptions;

/// Largest text that is read: weights belong into the sidecar.
const MAX_TEXT_BYTES: u64 = 1 << 30;

/// A model as it was read, before anything is decided about it.
#[derive(Clone, Debug)]
pub struct Model {
    /// The file's name without folder and ending; what the model is called unless options say.
    pub stem: String,
    pub(super) contents: Contents,
}

#[derive(Clone, Debug)]
pub(super) enum Contents {
    Onnx(Box<ModelFile>),
    Text(IRModule),
}

impl Model {
    /// Reads a file: the text of a module if it is named `.relay` or `.tir` or is such a text, else ONNX.
    ///
    /// The elements of a text's large constants are in a sidecar, which has the name of the text
    /// with `.sidecar` added.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is neither.
    pub fn read(path: &Path) -> Result<Model, Report> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let stem = stem.unwrap_or_default();
        let contents = match text(path)? {
            Some(text) => Contents::Text(parse(path, &text)?),
            None => Contents::Onnx(Box::new(onnx::load(path)?)),
        };
        Ok(Model { stem, contents })
    }

    /// A model that was read as ONNX already.
    pub fn from_onnx(stem: impl Into<String>, file: ModelFile) -> Model {
        Model { stem: stem.into(), contents: Contents::Onnx(Box::new(file)) }
    }

    /// A module that was made by other means.
    pub fn from_module(stem: impl Into<String>, module: IRModule) -> Model {
        Model { stem: stem.into(), contents: Contents::Text(module) }
    }

    /// The file, if the model is ONNX.
    pub fn as_onnx(&self) -> Option<&ModelFile> {
        match &self.contents {
            Contents::Onnx(file) => Some(file),
            Contents::Text(_) => None,
        }
    }

    /// Names of the inputs that a caller passes, in the model's order.
    ///
    /// # Errors
    ///
    /// The model is a text whose function `main` has no tensors as parameters.
    pub fn input_names(&self) -> Result<Vec<String>, Report> {
        match &self.contents {
            Contents::Onnx(file) => Ok(onnx::input_names(&file.proto)),
            Contents::Text(module) => {
                Ok(from_text(module)?.inputs.into_iter().map(|port| port.name).collect())
            }
        }
    }

    /// How a size of an input is said: `pin` says it of a model whose sizes options can fix.
    pub(crate) fn how_to_say_size(&self, pin: String) -> String {
        match self.as_onnx() {
            Some(_) => pin,
            None => "write a number in its place, or give it bounds, as in 1..=16".to_owned(),
        }
    }

    /// The model as a module of the graph IR, with its interface.
    ///
    /// # Errors
    ///
    /// Every problem of the model.
    pub fn import(&self, options: &CompileOptions) -> Result<Imported, Report> {
        match &self.contents {
            Contents::Onnx(file) => {
                let folders = options.external_folders.iter().chain(&file.store);
                let pinned = ImportOptions {
                    external_folders: folders.cloned().collect(),
                    dims: options.dims.clone(),
                    input_shapes: options.input_shapes.clone(),
                    input_values: options.input_values.clone(),
                };
                onnx::import(&file.proto, file.folder.as_deref(), &pinned)
            }
            Contents::Text(module) => {
                if options.dims.values().any(|size| size.bounds().is_none())
                    || !options.input_shapes.is_empty()
                    || !options.input_values.is_empty()
                {
                    return Err(Problem::new(
                        "inputs of a text cannot be fixed by options; write types and constants into it",
                    )
                    .help("sizes may have bounds, as in 1..=16")
                    .into());
                }
                from_text(module)
            }
        }
    }
}

/// The file as the text of a module, if it is one.
fn text(path: &Path) -> Result<Option<String>, Report> {
    let named = path.extension().is_some_and(|ending| ending == "relay" || ending == "tir");
    let problem = |error: &dyn std::fmt::Display| {
        Problem::new(format!("{}: cannot read the file: {error}", path.display()))
    };
    // What is no file, the ONNX loader has the better words for.
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if !metadata.is_file() || (metadata.len() > MAX_TEXT_BYTES && !named) {
        return Ok(None);
    }
    if metadata.len() > MAX_TEXT_BYTES {
        return Err(problem(&format_args!("it has more than {MAX_TEXT_BYTES} bytes")).into());
    }
    if !named && !starts_as_text(path) {
        return Ok(None);
    }
    let bytes = files::read(path).map_err(|error| problem(&error))?;
    match String::from_utf8(bytes) {
        Ok(text) if named || text.contains("def @") || text.contains("prim_func @") => {
            Ok(Some(text))
        }
        Ok(_) => Ok(None),
        Err(_) if named => Err(problem(&"it is not UTF-8 text").into()),
        Err(_) => Ok(None),
    }
}

/// Whether the first bytes are printable; those of a protobuf message are not.
fn starts_as_text(path: &Path) -> bool {
    use std::io::Read;
    let mut start = Vec::new();
    let read = files::open(path).and_then(|(file, _)| file.take(64).read_to_end(&mut start));
    read.is_ok() && start.iter().all(|&byte| byte >= b' ' || byte.is_ascii_whitespace())
}

/// The file as the text of a module, with the elements of its large constants, if it is one.
///
/// # Errors
///
/// The file or its sidecar cannot be read.
#[cfg(feature = "cli")]
pub(crate) fn read_text(path: &Path) -> Result<Option<(String, Sidecar)>, Report> {
    match text(path)? {
        Some(text) => Ok(Some((text, sidecar(path)?))),
        None => Ok(None),
    }
}

fn parse(path: &Path, text: &str) -> Result<IRModule, Report> {
    let sidecar = sidecar(path)?;
    graph::parse_module_with(text, &sidecar).map_err(|errors| {
        let problem = |error| Problem::new(format!("{}:{error}", path.display()));
        Report { problems: errors.0.iter().map(problem).collect() }
    })
}

/// The path of a text's sidecar.
pub(crate) fn sidecar_path(text: &Path) -> PathBuf {
    let mut name = text.as_os_str().to_owned();
    name.push(".sidecar");
    name.into()
}

fn sidecar(path: &Path) -> Result<Sidecar, Report> {
    let path = sidecar_path(path);
    let problem = |error: &dyn std::fmt::Display| {
        Problem::new(format!("{}: cannot read the sidecar: {error}", path.display()))
    };
    match files::read(&path) {
        Ok(bytes) => Ok(Sidecar::read(&SharedBytes::new(bytes)).map_err(|error| problem(&error))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Sidecar::new()),
        Err(error) => Err(problem(&error).into()),
    }
}

/// The interface of a text is that of its function `main`.
fn from_text(module: &IRModule) -> Result<Imported, Report> {
    let Some(main) = module.function("main") else {
        return Err(Problem::new("the module has no function `@main`").into());
    };
    let mut report = Report::new();
    let mut tensor = |name: String, ty: &Type| -> Option<ModelPort> {
        let Some(ty) = ty.as_tensor() else {
            report.push(Problem::new(format!("`{name}` of `@main` is no tensor but {ty}")));
            return None;
        };
        let ty: TensorType = ty.clone();
        Some(ModelPort { name, ty })
    };
    let inputs = main.params().iter().enumerate().filter_map(|(position, &param)| {
        let name = main.var_name(param).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("input_{position}"), str::to_owned);
        tensor(name, main.ty(param))
    });
    let inputs: Vec<ModelPort> = inputs.collect();
    let result = main.ty(main.result());
    let outputs: Vec<ModelPort> = match result.as_tuple() {
        Some(fields) => fields
            .iter()
            .enumerate()
            .filter_map(|(position, ty)| tensor(format!("output_{position}"), ty))
            .collect(),
        None => tensor("output".to_owned(), result).into_iter().collect(),
    };
    report.into_result(Imported {
        module: module.clone(),
        inputs,
        outputs,
        info: ModelInfo::default(),
        external_files: Vec::new(),
        followed: Default::default(),
    })
}
