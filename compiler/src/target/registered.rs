//! Processors that other crates describe.

use super::{CPUS, Target, TargetError};
use crate::diagnostics::Origin;

/// A processor by its name; [`register_cpu!`](crate::register_cpu) makes it known to
/// [`Target::with_cpu`], and so to `--target-cpu` and `.target_cpu(..)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuDef {
    /// The architecture as in `cfg(target_arch)`.
    pub arch: &'static str,
    /// The name, which niello does not have for this architecture.
    pub name: &'static str,
    /// What code may use, in rustc's words, with all that these features need.
    pub features: &'static [&'static str],
    /// Bytes of the first and of the second cache level of a core, by which tiles are cut: 4096 or
    /// more, and the first again where there is one level.
    pub caches: [i64; 2],
}

/// A processor of another crate; [`register_cpu!`](crate::register_cpu) makes one.
pub struct CpuEntry {
    def: CpuDef,
    origin: Origin,
}

impl CpuEntry {
    #[doc(hidden)]
    pub const fn new(def: CpuDef, origin: Origin) -> CpuEntry {
        let [first, second] = def.caches;
        assert!(
            4096 <= first && first <= second,
            "cache levels are of 4096 bytes or more, in order"
        );
        CpuEntry { def, origin }
    }
}

inventory::collect!(CpuEntry);

/// Registers a [`CpuDef`](crate::target::CpuDef) of the calling crate.
///
/// A crate that nothing names is not linked: `use my_board as _;` in the build script names it.
#[macro_export]
macro_rules! register_cpu {
    ($def:expr) => {
        $crate::pass::__private::inventory::submit! {
            $crate::target::CpuEntry::new(
                $def,
                $crate::diagnostics::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
            )
        }
    };
}

/// The entries of a name, or of all names, in the order of names and places.
fn entries(arch: &str, name: Option<&str>) -> Vec<&'static CpuEntry> {
    let mut entries: Vec<&CpuEntry> = inventory::iter::<CpuEntry>()
        .filter(|entry| entry.def.arch == arch && name.is_none_or(|name| name == entry.def.name))
        .collect();
    entries.sort_by_cached_key(|entry| (entry.def.name, entry.origin.to_string()));
    entries
}

/// Names of an architecture's processors of other crates, in order.
pub(super) fn names(arch: &str) -> impl Iterator<Item = &'static str> {
    entries(arch, None).into_iter().map(|entry| entry.def.name)
}

/// The processor of that name, if a crate has registered one.
///
/// # Errors
///
/// Several have, or niello knows the name as another one's.
pub(super) fn find(arch: &str, name: &str) -> Result<Option<CpuDef>, TargetError> {
    let own = CPUS.iter().any(|row| row.0 == arch && row.1 == name);
    match entries(arch, Some(name))[..] {
        [] => Ok(None),
        [entry] if !own => Ok(Some(entry.def)),
        ref several => {
            let mut places: Vec<String> =
                several.iter().map(|entry| entry.origin.to_string()).collect();
            places.extend(own.then(|| "in niello itself".to_owned()));
            Err(TargetError::AmbiguousCpu(name.to_owned(), places.join(" and at ")))
        }
    }
}

impl Target {
    /// What another crate says of this target's CPU.
    pub(crate) fn registered_cpu(&self) -> Option<CpuDef> {
        find(&self.arch, self.cpu.as_deref()?).ok().flatten()
    }
}
