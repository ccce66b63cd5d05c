//! Writes a compiled model as the files that a program is linked with.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CompiledModel, Contents};
use crate::bindings::{self, BindingsOptions, WeightsPlacement};
use crate::codegen::c::LIBM_FUNCTIONS;
use crate::codegen::object::{ArchiveKind, Member, archive, check_undefined, weights_object};
use crate::diagnostics::{Problem, Report};

/// How a model's files are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackageOptions {
    /// What the Rust bindings need to know.
    pub bindings: BindingsOptions,
    /// What the target's linker expects of archives.
    pub archive_kind: ArchiveKind,
    /// Undefined symbols that code may have beside memory functions: those of a libm, say.
    pub allowed_symbols: Vec<String>,
    /// Where external weights go, relative to the folder; `None` is `<model>.weights`.
    pub weights_file: Option<PathBuf>,
}

impl PackageOptions {
    /// Embedded weights, archives for the target `triple`; on a hosted one code may call the
    /// system's libm.
    pub fn for_triple(triple: &str) -> Self {
        let hosted = !triple.split('-').any(|part| part == "none");
        PackageOptions {
            bindings: BindingsOptions::default(),
            archive_kind: ArchiveKind::for_triple(triple),
            allowed_symbols: LIBM_FUNCTIONS
                .iter()
                .filter(|_| hosted)
                .map(|name| (*name).to_owned())
                .collect(),
            weights_file: None,
        }
    }
}

/// The files of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// The Rust bindings.
    pub bindings: PathBuf,
    /// The static archives that the bindings link: code, then embedded weights if there are any.
    pub archives: Vec<PathBuf>,
    /// The weights, if they are external.
    pub weights: Option<PathBuf>,
}

/// Writes `model` into `folder`:
///
/// ```text
/// folder
/// ├── digits.rs                                      Rust bindings
/// ├── libniello_app_0_1_0_digits_<hash>.a            code
/// ├── libniello_app_0_1_0_digits_<hash>_weights.a    weights, if they are embedded
/// └── digits.weights                                 weights, if they are external
/// ```
///
/// A file is touched only if its contents differ, and is never seen half-written. Archives of the
/// same model from earlier builds are removed, and what builds of it left that were killed.
///
/// # Errors
///
/// The model's name is not a file name, its code needs symbols that it must not need, or a file
/// cannot be written.
pub fn write_package(
    model: &CompiledModel,
    folder: &Path,
    options: &PackageOptions,
) -> Result<Package, Report> {
    check_file_stem(&model.name)?;
    let stub = options.bindings.stub;
    let external = options.bindings.weights == WeightsPlacement::External;
    let mut written = Package {
        bindings: folder.join(format!("{}.rs", model.name)),
        archives: Vec::new(),
        weights: None,
    };
    if !stub {
        let other = model.other_weights.as_ref().map(|other| other.symbol.as_str());
        let allowed = options.allowed_symbols.iter().chain(&model.external_symbols);
        let allowed = allowed.map(String::as_str).chain(other);
        let allowed: Vec<_> = allowed.collect();
        check_undefined(&model.objects, &allowed)?;
        let mut write = |stem: &str, objects: Vec<Member<'_>>| -> Result<(), Report> {
            let path = folder.join(archive_name(options.archive_kind, stem));
            let contents = archive(options.archive_kind, objects)?;
            write_if_changed(&path, contents).map_err(|error| cannot_write(&path, &error))?;
            written.archives.push(path);
            Ok(())
        };
        write(&model.symbol, model.objects.iter().map(Member::of).collect::<Result<_, _>>()?)?;
        if !external && !model.weights.is_empty() {
            let code = model.objects.first().ok_or_else(|| {
                Problem::new(format!("the model `{}` has weights but no code", model.name))
            })?;
            let symbol = format!("{}_weights", model.symbol);
            write(&symbol, vec![weights_object(code, &symbol, &model.weights)?])?;
        }
    }
    if external {
        let name = match &options.weights_file {
            Some(file) => Cow::Borrowed(file.as_path()),
            None => Cow::Owned(PathBuf::from(format!("{}.weights", model.name))),
        };
        let path = folder.join(name);
        if !stub {
            write_if_changed(&path, &model.weights).map_err(|error| cannot_write(&path, &error))?;
        }
        written.weights = Some(path);
    }
    // The bindings go last: whoever sees them finds what they link.
    let text = bindings::rust(model, &options.bindings)?;
    write_if_changed(&written.bindings, text.as_bytes())
        .map_err(|error| cannot_write(&written.bindings, &error))?;
    remove_stale_files(folder, model, &written);
    Ok(written)
}

/// File name of the archive that `-l<stem>` finds.
fn archive_name(kind: ArchiveKind, stem: &str) -> String {
    match kind {
        ArchiveKind::Gnu | ArchiveKind::Darwin => format!("lib{stem}.a"),
        ArchiveKind::Coff => format!("{stem}.lib"),
    }
}

/// Checks that files can be called `name`, with an extension.
fn check_file_stem(name: &str) -> Result<(), Problem> {
    let bad = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    if name.is_empty() || name.starts_with('.') || name.contains(bad) {
        return Err(Problem::new(format!(
            "`{name}` cannot be a model's name, as files are called by it"
        ))
        .help("give it another one: `.name(\"model\")`"));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    Problem::new(format!("`{}` cannot be written: {error}", path.display()))
}

/// How the names of files end that are being written; the number of the process is before it.
const TEMPORARY: &str = ".tmp";

/// Writes `contents` to `path` unless they are already there; says whether it wrote.
///
/// Builds go by times of change, so an equal file must stay untouched. A new one appears whole
/// under its name or not at all.
///
/// # Errors
///
/// Those of the file system.
pub fn write_if_changed<'a>(path: &Path, contents: impl Into<Contents<'a>>) -> io::Result<bool> {
    let contents: Contents<'_> = contents.into();
    if contents.are_those_of(path).unwrap_or(false) {
        return Ok(false);
    }
    let name = path.file_name().unwrap_or(OsStr::new("file"));
    let mut temporary = OsStr::new(".").to_owned();
    temporary.push(name);
    temporary.push(format!(".{}{TEMPORARY}", std::process::id()));
    let temporary = path.with_file_name(temporary);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let written = contents.write_file(&temporary).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        // The error is reported; a file that is left over as well would only confuse.
        let _ = fs::remove_file(&temporary);
    })?;
    Ok(true)
}

/// Removes archives whose name differs from those of the model in the hash alone, and files of the
/// model that a process was writing when it was killed.
///
/// What cannot be removed stays: an old file costs space, not correctness.
fn remove_stale_files(folder: &Path, model: &CompiledModel, written: &Package) {
    let Some((prefix, hash)) = model.symbol.rsplit_once('_') else { return };
    let is_archive = |name: &str| {
        let stem = name.strip_suffix(".a").or_else(|| name.strip_suffix(".lib"));
        let stem = stem.map(|stem| stem.strip_suffix("_weights").unwrap_or(stem));
        let stem = stem.map(|stem| stem.strip_prefix("lib").unwrap_or(stem));
        let old = stem.and_then(|stem| stem.strip_prefix(prefix)?.strip_prefix('_'));
        old.is_some_and(|old| {
            old.len() == hash.len() && old.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let is_own = |name: &str| {
        let ending = name.strip_prefix(model.name.as_str());
        let weights = written.weights.as_ref().and_then(|path| path.file_name());
        ending.is_some_and(|ending| [".rs", ".log"].contains(&ending))
            || weights == Some(OsStr::new(name))
            || is_archive(name)
    };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        let stale = match being_written(name) {
            Some((name, process)) => is_own(name) && is_gone(process),
            None => is_archive(name) && !written.archives.contains(&path),
        };
        if stale {
            let _ = fs::remove_file(path);
        }
    }
}

/// The file that a temporary one of [`write_if_changed`] becomes, and the process that writes it.
fn being_written(name: &str) -> Option<(&str, u32)> {
    let (name, process) = name.strip_prefix('.')?.strip_suffix(TEMPORARY)?.rsplit_once('.')?;
    Some((name, process.parse().ok()?))
}

/// Whether a process has ended, as far as can be told: where the system does not list processes,
/// all others count as gone, since Cargo lets one build at a time write to a folder.
fn is_gone(process: u32) -> bool {
    process != std::process::id() && !Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::ObjectFile;
    use crate::executor::TensorInfo;
    use crate::ir::DType;

    fn model(symbol: &str) -> CompiledModel {
        let code = object::write::Object::new(
            object::BinaryFormat::Elf,
            object::Architecture::X86_64,
            object::Endianness::Little,
        );
        let tensor = |name: &str| TensorInfo::new(name, DType::F32, &[2]);
        CompiledModel {
            name: "m".to_owned(),
            symbol: symbol.to_owned(),
            inputs: vec![tensor("x")],
            outputs: vec![tensor("y")],
            states: Vec::new(),
            sizes: Default::default(),
            workspace_bytes: 64,
            scratch_offset: 64,
            scratch_stride: 0,
            threads: 1,
            workers: 1,
            weights: vec![1, 2, 3].into(),
            constants: Default::default(),
            other_weights: None,
            macs: 1,
            kernels: Default::default(),
            calls: 0,
            levels: vec![niello_runtime::CpuLevel::Baseline],
            digest: [0; 32],
            metadata: Vec::new(),
            external_data: Vec::new(),
            external_symbols: Vec::new(),
            objects: vec![ObjectFile { name: "m.o".to_owned(), bytes: code.write().unwrap() }],
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_files_of_a_model_are_its_own_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let options = PackageOptions::for_triple("x86_64-unknown-linux-gnu");
        // A model whose name begins like the other's, and one of another package: both stay.
        for kept in ["libniello_p_1_m_x_00ff.a", "libniello_q_1_m_00ff.a"] {
            fs::write(folder.join(kept), "").unwrap();
        }
        write_package(&model("niello_p_1_m_00ff"), folder, &options).unwrap();
        let package = write_package(&model("niello_p_1_m_11ee"), folder, &options).unwrap();
        assert_eq!(
            names(folder),
            [
                "libniello_p_1_m_11ee.a",
                "libniello_p_1_m_11ee_weights.a",
                "libniello_p_1_m_x_00ff.a",
                "libniello_q_1_m_00ff.a",
                "m.rs"
            ]
        );
        assert_eq!(package.archives.len(), 2);
        assert_eq!(package.weights, None);
    }

    #[test]
    fn what_builds_left_that_were_killed_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // No process has a number as large as that.
        let (gone, own) = (u32::MAX, std::process::id());
        let left = [
            format!(".libniello_p_1_m_00ff.a.{gone}.tmp"),
            format!(".libniello_p_1_m_00ff_weights.a.{gone}.tmp"),
            format!(".m.rs.{gone}.tmp"),
        ];
        let others = [
            format!(".libniello_p_1_n_00ff.a.{gone}.tmp"),
            format!(".m.log.{own}.tmp"),
            format!(".notes.{gone}.tmp"),
        ];
        left.iter().chain(&others).for_each(|name| fs::write(folder.join(name), "").unwrap());
        let options = PackageOptions::for_triple("x86_64-unknown-linux-gnu");
        write_package(&model("niello_p_1_m_11ee"), folder, &options).unwrap();
        let names = names(folder);
        assert!(left.iter().all(|name| !names.contains(name)), "{names:?}");
        assert!(others.iter().all(|name| names.contains(name)), "{names:?}");
    }

    #[test]
    fn external_weights_are_a_file_and_a_stub_links_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = PackageOptions::for_triple("x86_64-pc-windows-msvc");
        options.bindings.weights = WeightsPlacement::External;
        let package = write_package(&model("niello_m_0"), folder.path(), &options).unwrap();
        assert_eq!(names(folder.path()), ["m.rs", "m.weights", "niello_m_0.lib"]);
        assert_eq!(fs::read(package.weights.unwrap()).unwrap(), [1, 2, 3]);

        options.bindings.stub = true;
        let mut stub = model("niello_m_0");
        stub.objects.clear();
        let folder = tempfile::tempdir().unwrap();
        write_package(&stub, folder.path(), &options).unwrap();
        assert_eq!(names(folder.path()), ["m.rs"]);
    }

    #[test]
    fn equal_files_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        let write = |pieces: &[&[u8]]| {
            let mut contents = Contents::default();
            pieces.iter().for_each(|piece| contents.push(*piece));
            write_if_changed(&path, contents).unwrap()
        };
        let large = vec![7; (1 << 16) + 5];
        assert!(write(&[b"ab", &large]));
        assert!(!write(&[b"a", b"b", &large]));
        assert!(write(&[b"ac", &large]));
        assert!(write(&[b"a"]));
        assert_eq!(fs::read(&path).unwrap(), b"a");
        assert_eq!(names(path.parent().unwrap()), ["file"]);
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = PackageOptions::for_triple("x86_64-unknown-linux-gnu");
        for name in ["", "a/b", "..", "a\nb", "c:d"] {
            let mut model = model("niello_m_0");
            model.name = name.to_owned();
            let report = write_package(&model, folder.path(), &options).unwrap_err();
            assert!(report.to_string().contains(".name("), "{report}");
        }
    }
}
