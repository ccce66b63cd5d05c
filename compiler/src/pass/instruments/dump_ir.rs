//! Writes the module to numbered files before and after passes.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::per_thread::PerThread;
use crate::graph::{PrintOptions, print_with_sidecar};
use crate::ir::IRModule;
use crate::pass::{HookResult, PassError, PassInfo, PassInstrument, PassKind};

/// The extension of dumped files, which also identifies them.
const EXTENSION: &str = "relay";
/// The name of the file of the module before the first pass.
const START: &str = "start";

/// Writes the module to files of a folder: `start.relay` before the first pass, `000_FoldConstant.relay`
/// and so on after each, `003_FuseOps.failed.relay` as it was before a pass that failed.
///
/// Every pass counts, so that a number stands for the same pass whatever is written. As a
/// [tree](DumpIr::tree), what the passes of a list write is in a folder of its own,
/// `002_FoldScaleAxis/000_BackwardFoldScaleAxis.relay`, and each folder counts from zero.
#[derive(Debug)]
pub struct DumpIr {
    folder: PathBuf,
    before: bool,
    only_changed: bool,
    constants: bool,
    tree: bool,
    started: AtomicBool,
    count: AtomicUsize,
    threads: PerThread<Vec<Open>>,
}

/// A pass that is running.
#[derive(Debug)]
struct Open {
    /// The name of its files without the ending, in the folder; `None` for lists of passes unless
    /// they have folders, so that the numbers are the order of the passes proper.
    stem: Option<PathBuf>,
    /// The number of passes that it has run, if they have a folder.
    passes: usize,
    /// Whether it is a list, of which the passes write.
    is_list: bool,
    module: IRModule,
}

impl DumpIr {
    /// Writes to that folder, which is made if it does not exist.
    pub fn new(folder: impl Into<PathBuf>) -> DumpIr {
        DumpIr {
            folder: folder.into(),
            before: false,
            only_changed: false,
            constants: false,
            tree: false,
            started: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            threads: PerThread::default(),
        }
    }

    /// Writes the module before each pass too, as `000_FoldConstant.before.relay`.
    #[must_use]
    pub fn before(mut self, before: bool) -> DumpIr {
        self.before = before;
        self
    }

    /// Leaves out passes that did not change the module's text.
    #[must_use]
    pub fn only_changed(mut self, only: bool) -> DumpIr {
        self.only_changed = only;
        self
    }

    /// Writes the elements of large constants too, in a sidecar beside each file.
    #[must_use]
    pub fn constants(mut self, constants: bool) -> DumpIr {
        self.constants = constants;
        self
    }

    /// Writes what the passes of a list do to a folder for the list; that of the outermost list is
    /// the dump's folder.
    #[must_use]
    pub fn tree(mut self, tree: bool) -> DumpIr {
        self.tree = tree;
        self
    }

    /// Empties the folder, if it exists.
    ///
    /// # Errors
    ///
    /// If the folder contains a file that is not a dump; nothing is deleted then.
    pub fn refresh(self) -> io::Result<DumpIr> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            Err(error) => return Err(error),
        };
        let mut pending: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        while let Some(path) = pending.pop() {
            if is_folder_of_list(&path) {
                for entry in fs::read_dir(&path)? {
                    pending.push(entry?.path());
                }
                folders.push(path);
            } else if is_dump(&path) {
                files.push(path);
            } else {
                return Err(io::Error::other(format!(
                    "`{}` was not written by a dump, so the folder is not emptied",
                    path.display()
                )));
            }
        }
        files.iter().try_for_each(fs::remove_file)?;
        // A folder comes before those in it.
        folders.iter().rev().try_for_each(fs::remove_dir)?;
        Ok(self)
    }

    /// Notes that a pass begins, and says what its files are called.
    fn open(&self, module: &IRModule, info: &PassInfo) -> Option<PathBuf> {
        let is_list = info.kind() == PassKind::Sequential;
        self.threads.with(|open| {
            let next = || Some(self.count.fetch_add(1, Ordering::Relaxed));
            let (folder, number) = match open.last_mut().filter(|_| self.tree) {
                None if is_list => (PathBuf::new(), None),
                None => (PathBuf::new(), next()),
                Some(Open { stem: None, .. }) => (PathBuf::new(), next()),
                Some(Open { stem: Some(folder), passes, .. }) => {
                    *passes += 1;
                    (folder.clone(), Some(*passes - 1))
                }
            };
            let stem = number
                .map(|number| folder.join(file_name(&format!("{number:03}_{}", info.text()))));
            open.push(Open { stem: stem.clone(), passes: 0, is_list, module: module.clone() });
            stem.filter(|_| !is_list)
        })
    }

    fn write(&self, stem: &Path, which: &str, module: &IRModule) -> HookResult {
        let mut path = self.folder.join(stem).into_os_string();
        path.push(format!("{which}.{EXTENSION}"));
        let path = PathBuf::from(path);
        let write = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
            if !self.constants {
                return fs::write(&path, module.to_string());
            }
            let (text, sidecar) = print_with_sidecar(module, &PrintOptions::default());
            fs::write(&path, text)?;
            let mut file = io::BufWriter::new(fs::File::create(sidecar_path(&path))?);
            sidecar.write_to(&mut file)?;
            file.flush()
        };
        write().map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
    }
}

/// The path of the sidecar that holds the constants of a dump.
fn sidecar_path(text: &Path) -> PathBuf {
    let mut name = text.as_os_str().to_owned();
    name.push(".sidecar");
    name.into()
}

/// Whether a file is named like a dump or the sidecar of one.
fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let name = name.strip_suffix(".sidecar").unwrap_or(name);
    let Some(name) = name.strip_suffix(&format!(".{EXTENSION}")) else { return false };
    (name == START || is_numbered(name)) && path.is_file()
}

/// Whether a folder is named like that of a list of passes.
fn is_folder_of_list(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    is_numbered(name) && path.is_dir() && !path.is_symlink()
}

fn is_numbered(name: &str) -> bool {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 3 && name[digits..].starts_with('_')
}

/// A name with all characters replaced that file systems treat specially.
fn file_name(name: &str) -> String {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "<>:\"/\\|?*".contains(c);
    name.chars().map(|c| if odd(c) { '_' } else { c }).collect()
}

impl PassInstrument for DumpIr {
    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        // First of all, as a failure of this hook is told to this instrument, too.
        let stem = self.open(module, info);
        if !self.started.swap(true, Ordering::Relaxed) {
            self.write(Path::new(START), "", module)?;
        }
        match stem.filter(|_| self.before && !self.only_changed) {
            Some(stem) => self.write(&stem, ".before", module),
            None => Ok(()),
        }
    }

    fn run_after_pass(&self, module: &IRModule, _: &PassInfo) -> HookResult {
        let Some(Open { stem: Some(stem), module: before, is_list: false, .. }) =
            self.threads.with(Vec::pop)
        else {
            return Ok(());
        };
        if self.only_changed {
            if before.same(module) || before.to_string() == module.to_string() {
                return Ok(());
            }
            if self.before {
                self.write(&stem, ".before", &before)?;
            }
        }
        self.write(&stem, "", module)
    }

    fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
        match self.threads.with(Vec::pop) {
            Some(Open { stem: Some(stem), module, is_list: false, .. }) => {
                self.write(&stem, ".failed", &module)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }
}
