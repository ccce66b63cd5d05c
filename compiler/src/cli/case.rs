//! Test cases on disk: where they are, their data, tolerances and dimensions.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::diagnostics::Problem;
use crate::files;
use crate::graph::interp::Tolerance;
use crate::ir::DType;
use crate::onnx::proto::{ModelProto, TypeProto};
use crate::onnx::{TestValue, input_types, output_types, test_value_of_type};
use crate::options::DimSize;

/// The model's file in a case.
pub(super) const MODEL: &str = "model.onnx";

/// What the name of a data set's folder begins with; its number follows.
const DATA_SET: &str = "test_data_set_";

/// The cases that arguments name: folders with a model, or folders of such, in order of their
/// names.
///
/// # Errors
///
/// A folder cannot be read, or holds no case.
pub(super) fn find(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Problem> {
    let mut cases = Vec::new();
    for folder in folders {
        if folder.join(MODEL).is_file() {
            cases.push(folder.clone());
            continue;
        }
        let mut inside = subfolders(folder)?;
        inside.retain(|path| path.join(MODEL).is_file());
        if inside.is_empty() {
            return Err(Problem::new(format!(
                "{}: neither this folder nor one in it has a file {MODEL}",
                folder.display()
            )));
        }
        cases.extend(inside);
    }
    Ok(cases)
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => {
            Problem::new(format!("{}: there is no such folder", folder.display()))
        }
        ErrorKind::NotADirectory => {
            Problem::new(format!("{}: this is no folder", folder.display()))
                .help("name the folder that the model and its test data are in")
        }
        _ => Problem::new(format!("{}: cannot read the folder: {error}", folder.display())),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The name of a case: that of its folder.
pub(super) fn name(case: &Path) -> String {
    let named = case.file_name().map(|name| name.to_string_lossy().into_owned());
    named.unwrap_or_else(|| case.display().to_string())
}

/// One line of an `index.json`; other keys are for people.
#[derive(Deserialize)]
struct IndexEntry {
    name: String,
    rtol: Option<f64>,
    atol: Option<f64>,
}

/// How near the outputs of a case must be to what is expected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CaseTolerance {
    floats: Tolerance,
    bfloats: Tolerance,
    /// Integers and booleans.
    exact_types: Tolerance,
}

impl CaseTolerance {
    /// The tolerance for elements of a type.
    pub(super) fn of(&self, dtype: DType) -> Tolerance {
        match dtype {
            DType::BF16 => self.bfloats,
            dtype if dtype.is_float() => self.floats,
            _ => self.exact_types,
        }
    }
}

/// The tolerance of a case: its own in the `index.json` beside its folder, which is for all types,
/// or the default, which integers and booleans have none of.
///
/// # Errors
///
/// The file is there and malformed.
pub(super) fn tolerance(case: &Path) -> Result<CaseTolerance, String> {
    // The parent of `.` and the like is only known of the absolute path.
    let absolute = fs::canonicalize(case).map_err(|error| error.to_string())?;
    let default = CaseTolerance {
        floats: Tolerance::CASES,
        bfloats: Tolerance::BF16_CASES,
        exact_types: Tolerance::EXACT,
    };
    let Some(folder) = absolute.parent() else { return Ok(default) };
    let entries: Vec<IndexEntry> = read_json(&folder.join("index.json"))?.unwrap_or_default();
    let name = name(&absolute);
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else { return Ok(default) };
    let own = |default: Tolerance| Tolerance {
        rtol: entry.rtol.unwrap_or(default.rtol),
        atol: entry.atol.unwrap_or(default.atol),
    };
    Ok(CaseTolerance {
        floats: own(default.floats),
        bfloats: own(default.bfloats),
        exact_types: own(default.exact_types),
    })
}

/// Sizes of symbolic dimensions, from the case's `dims.json` if it has one.
///
/// # Errors
///
/// The file is there and malformed.
pub(super) fn dims(case: &Path) -> Result<BTreeMap<String, DimSize>, String> {
    let file = case.join("dims.json");
    let dims: BTreeMap<String, serde_json::Value> = read_json(&file)?.unwrap_or_default();
    let size = |(name, value): (String, serde_json::Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let size = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
        Ok((name, size))
    };
    dims.into_iter().map(size).collect()
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, String> {
    let text = match files::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// Inputs and the outputs that are expected for them.
#[derive(Debug)]
pub(super) struct DataSet {
    /// The number in the name of its folder.
    pub(super) number: u64,
    pub(super) inputs: Vec<TestValue>,
    pub(super) outputs: Vec<TestValue>,
}

/// The folder of a case's data set.
pub(super) fn data_set(case: &Path, number: u64) -> PathBuf {
    case.join(format!("{DATA_SET}{number}"))
}

/// Whether a folder has test data.
pub(super) fn has_data(case: &Path) -> bool {
    let is_set = |path: &PathBuf| name(path).starts_with(DATA_SET);
    subfolders(case).is_ok_and(|folders| folders.iter().any(is_set))
}

/// The data sets of a case, `test_data_set_0` first. The model says which of the values are tensors
/// and which sequences: their files do not.
///
/// # Errors
///
/// There is none, or one of its files cannot be read.
pub(super) fn data_sets(case: &Path, model: &ModelProto) -> Result<Vec<DataSet>, String> {
    let mut folders = Vec::new();
    for path in subfolders(case).map_err(|problem| problem.message)? {
        let number = name(&path).strip_prefix(DATA_SET).and_then(|n| n.parse::<u64>().ok());
        if let Some(number) = number {
            folders.push((number, path));
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Err("there is no folder test_data_set_0".to_owned());
    }
    folders
        .iter()
        .map(|(number, folder)| {
            Ok(DataSet {
                number: *number,
                inputs: values(folder, "input", &input_types(model))?,
                outputs: values(folder, "output", &output_types(model))?,
            })
        })
        .collect()
}

/// `input_0.pb`, `input_1.pb` and so on, as far as they go.
fn values(
    folder: &Path,
    kind: &str,
    types: &[Option<&TypeProto>],
) -> Result<Vec<TestValue>, String> {
    let mut values = Vec::new();
    loop {
        let path = folder.join(format!("{kind}_{}.pb", values.len()));
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(values),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let ty = types.get(values.len()).copied().flatten();
        let value = test_value_of_type(bytes.into(), ty);
        values.push(value.map_err(|error| format!("{}: {error}", path.display()))?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Constant;
    use crate::onnx::test_value_to_bytes;

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn cases_are_folders_or_in_folders_in_order() {
        let root = tempfile::tempdir().unwrap();
        for case in ["b", "a", "c"] {
            write(&root.path().join(case).join(MODEL), b"");
        }
        write(&root.path().join("notes").join("readme"), b"");
        let found = find(&[root.path().to_owned(), root.path().join("b")]).unwrap();
        let names: Vec<String> = found.iter().map(|case| name(case)).collect();
        assert_eq!(names, ["a", "b", "c", "b"]);
        let error = find(&[root.path().join("notes")]).unwrap_err();
        assert!(error.message.contains("neither this folder nor one in it"), "{error}");
        let error = find(&[root.path().join("nowhere")]).unwrap_err();
        assert!(error.message.ends_with("there is no such folder"), "{error}");
        let error = find(&[root.path().join("a").join(MODEL)]).unwrap_err();
        assert!(error.message.ends_with("this is no folder"), "{error}");
    }

    #[test]
    fn tolerances_and_dimensions_are_the_cases_own() {
        let root = tempfile::tempdir().unwrap();
        let case = root.path().join("case");
        write(&case.join(MODEL), b"");
        let default = tolerance(&case).unwrap();
        assert_eq!(default.of(DType::F32), Tolerance::CASES);
        assert_eq!(default.of(DType::BF16), Tolerance::BF16_CASES);
        assert_eq!(default.of(DType::I64), Tolerance::EXACT);
        assert_eq!(default.of(DType::Bool), Tolerance::EXACT);
        assert_eq!(dims(&case), Ok(BTreeMap::new()));

        let index = br#"[{"name": "other", "rtol": 7}, {"name": "case", "atol": 0.5, "ops": []}]"#;
        write(&root.path().join("index.json"), index);
        write(&case.join("dims.json"), br#"{"batch": 2}"#);
        let own = tolerance(&case).unwrap();
        assert_eq!(own.of(DType::F32), Tolerance { rtol: 1e-3, atol: 0.5 });
        assert_eq!(own.of(DType::U8), Tolerance { rtol: 0.0, atol: 0.5 });
        assert_eq!(dims(&case), Ok([("batch".to_owned(), 2.into())].into()));

        write(&case.join("dims.json"), b"[]");
        assert!(dims(&case).is_err());
    }

    #[test]
    fn data_sets_are_read_by_their_numbers() {
        let root = tempfile::tempdir().unwrap();
        assert!(
            data_sets(root.path(), &ModelProto::default()).unwrap_err().contains("test_data_set_0")
        );
        for set in [10, 9] {
            let constant = Constant::from_i64(&[1], &[set]).unwrap();
            let bytes = test_value_to_bytes(&constant, "x").unwrap();
            let folder = root.path().join(format!("test_data_set_{set}"));
            write(&folder.join("input_0.pb"), &bytes);
            write(&folder.join("output_0.pb"), &bytes);
            write(&folder.join("output_1.pb"), &bytes);
        }
        let sets = data_sets(root.path(), &ModelProto::default()).unwrap();
        assert_eq!(sets.len(), 2);
        assert_eq!((sets[0].inputs.len(), sets[0].outputs.len()), (1, 2));
        let TestValue::Tensor(first) = &sets[0].inputs[0] else { panic!("not a tensor") };
        assert_eq!(first.to_i64_vec(), Some(vec![9]));
    }
}
