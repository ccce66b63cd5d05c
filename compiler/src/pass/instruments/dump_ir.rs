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
/// Every pass counts, so that a number stands for the same pass whatever is written.
#[derive(Debug)]
pub struct DumpIr {
    folder: PathBuf,
    before: bool,
    only_changed: bool,
    constants: bool,
    started: AtomicBool,
    count: AtomicUsize,
    threads: PerThread<Vec<Open>>,
}

/// A pass that is running.
#[derive(Debug)]
struct Open {
    /// `None` for lists of passes, so that the numbers are the order of the passes proper.
    number: Option<usize>,
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
        if let Some(foreign) = entries.iter().find(|entry| !is_dump(&entry.path())) {
            return Err(io::Error::other(format!(
                "`{}` was not written by a dump, so the folder is not emptied",
                foreign.path().display()
            )));
        }
        entries.iter().try_for_each(|entry| fs::remove_file(entry.path()))?;
        Ok(self)
    }

    fn write(&self, stem: &str, module: &IRModule) -> HookResult {
        let path = self.folder.join(format!("{}.{EXTENSION}", file_name(stem)));
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
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

/// The name of the file of a pass, without its ending.
fn stem(number: usize, info: &PassInfo, which: &str) -> String {
    format!("{number:03}_{}{which}", info.text())
}

/// Whether a file is named like a dump or the sidecar of one.
fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let name = name.strip_suffix(".sidecar").unwrap_or(name);
    let Some(name) = name.strip_suffix(&format!(".{EXTENSION}")) else { return false };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    (name == START || (digits >= 3 && name[digits..].starts_with('_'))) && path.is_file()
}

/// A name with all characters replaced that file systems treat specially.
fn file_name(name: &str) -> String {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "<>:\"/\\|?*".contains(c);
    name.chars().map(|c| if odd(c) { '_' } else { c }).collect()
}

impl PassInstrument for DumpIr {
    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.write(START, module)?;
        }
        let is_list = info.kind() == PassKind::Sequential;
        let number = (!is_list).then(|| self.count.fetch_add(1, Ordering::Relaxed));
        if let Some(number) = number
            && self.before
            && !self.only_changed
        {
            self.write(&stem(number, info, ".before"), module)?;
        }
        self.threads.with(|open| open.push(Open { number, module: module.clone() }));
        Ok(())
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let Some(Open { number: Some(number), module: before }) = self.threads.with(Vec::pop)
        else {
            return Ok(());
        };
        if self.only_changed {
            if before.same(module) || before.to_string() == module.to_string() {
                return Ok(());
            }
            if self.before {
                self.write(&stem(number, info, ".before"), &before)?;
            }
        }
        self.write(&stem(number, info, ""), module)
    }

    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        match self.threads.with(Vec::pop) {
            Some(Open { number: Some(number), module }) => {
                self.write(&stem(number, info, ".failed"), &module)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }
}
