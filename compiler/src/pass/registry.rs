//! The registry: every attributed pass of every linked crate, for look-up, listing and help.
//!
//! The order of passes is never taken from the registry; it is one explicit list,
//! `transform::pipeline`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{NamedPass, PassError, PassErrorKind, PassRef, Result, config, names};
use crate::diagnostics::{Origin, Problem, Report, suggest};

/// A registered pass.
#[derive(Clone, Copy)]
pub struct PassEntry {
    name: &'static str,
    doc: &'static str,
    origin: Origin,
    make: fn() -> Option<PassRef>,
}

inventory::collect!(PassEntry);

impl PassEntry {
    /// The entry of a pass with its documentation.
    pub const fn of<P: NamedPass>(doc: &'static str, origin: Origin) -> PassEntry {
        PassEntry { name: P::NAME, doc, origin, make: P::make_default }
    }

    /// The pass's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The pass's documentation.
    pub fn doc(&self) -> &'static str {
        self.doc
    }

    /// Where the pass is defined.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The pass; `None` if it needs configuration, so that a name is not enough to make it.
    pub fn pass(&self) -> Option<PassRef> {
        (self.make)()
    }
}

impl fmt::Debug for PassEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassEntry({} at {})", self.name, self.origin)
    }
}

/// Passes by name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registry(Arc<BTreeMap<String, Vec<PassEntry>>>);

impl Registry {
    /// Every attributed pass of every linked crate. A crate that nothing names is not linked:
    /// `use my_passes as _;` names it.
    pub fn global() -> Registry {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(|| Registry::of(inventory::iter::<PassEntry>().copied())).clone()
    }

    /// A registry of the given passes alone, for programs that cannot rely on the linker's list.
    pub fn of(entries: impl IntoIterator<Item = PassEntry>) -> Registry {
        let mut passes: BTreeMap<String, Vec<PassEntry>> = BTreeMap::new();
        // A pass that needs configuration is used by value.
        for entry in entries.into_iter().filter(|entry| entry.pass().is_some()) {
            passes.entry(names::canonical(entry.name)).or_default().push(entry);
        }
        for same in passes.values_mut() {
            // The linker's order is not specified.
            same.sort_by_key(|entry| (entry.name, entry.origin));
        }
        Registry(Arc::new(passes))
    }

    /// The entries, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &PassEntry> {
        self.0.values().flatten()
    }

    /// The entry of that name, or of a name that differs in case, `-`, `_` or in TVM's prefixes.
    ///
    /// # Errors
    ///
    /// If there is none, with the nearest name, or more than one.
    pub fn entry(&self, name: &str) -> Result<&PassEntry> {
        match self.0.get(&names::canonical(name)).map(Vec::as_slice) {
            Some([entry]) => Ok(entry),
            Some(entries) if !entries.is_empty() => Err(duplicate(entries)),
            _ => Err(self.unknown(name, None)),
        }
    }

    /// The pass of that name; see [`entry`](Self::entry).
    ///
    /// # Errors
    ///
    /// If there is none, with the nearest name, or more than one.
    pub fn get(&self, name: &str) -> Result<PassRef> {
        self.entry(name)?.pass().ok_or_else(|| self.unknown(name, None))
    }

    /// The error for a name that nothing has.
    pub(super) fn unknown(&self, name: &str, required_by: Option<&str>) -> PassError {
        let known: Vec<&str> = self.entries().map(|entry| entry.name).collect();
        PassErrorKind::UnknownPass {
            name: name.to_owned(),
            required_by: required_by.map(str::to_owned),
            suggestion: suggest(name, known.iter().copied()).map(str::to_owned),
        }
        .into()
    }

    /// Checks that names are unique, that every requirement is known and that none is circular;
    /// and that no option is registered twice.
    ///
    /// # Errors
    ///
    /// All problems there are.
    pub fn verify(&self) -> Result<(), Report> {
        let mut report = config::duplicates();
        for entries in self.0.values() {
            if let [_, _, ..] = entries.as_slice() {
                report.push(Problem::new(duplicate(entries).to_string()));
            }
        }
        for entry in self.entries() {
            let Some(pass) = entry.pass() else { continue };
            if let Err(error) = super::plan::requirements(&pass, self) {
                report.push(Problem::new(error.to_string()));
            }
        }
        report.into_result(())
    }
}

fn duplicate(entries: &[PassEntry]) -> PassError {
    PassErrorKind::DuplicatePass {
        name: entries[0].name.to_owned(),
        origins: entries.iter().map(|entry| entry.origin.to_string()).collect(),
    }
    .into()
}
