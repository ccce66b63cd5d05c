//! ONNX operators that other crates import.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::{Handler, OpImport};
use crate::diagnostics::Origin;
use crate::onnx::import::{Node, NodeError, Outputs, normal_domain};

/// Builds the outputs of a node out of graph operators.
pub type ImportFn = fn(&mut Node<'_, '_>) -> Result<Outputs, NodeError>;

/// How a crate imports an operator; [`register_onnx_op!`](crate::register_onnx_op) registers it.
pub struct OnnxOp {
    domain: &'static str,
    op: OpImport,
}

impl OnnxOp {
    /// The operator `name` of a domain. `since` has the versions of the domain's operator set in
    /// which it appeared or changed, ascending; `inputs` is the least and the greatest number of
    /// its inputs.
    ///
    /// # Panics
    ///
    /// If `since` is empty or not ascending; while compiling, where it is a constant.
    pub const fn new(
        domain: &'static str,
        name: &'static str,
        since: &'static [i64],
        inputs: (usize, usize),
        import: ImportFn,
    ) -> OnnxOp {
        assert!(!since.is_empty(), "an operator has a version");
        let mut index = 1;
        while index < since.len() {
            assert!(since[index - 1] < since[index], "versions are ascending");
            index += 1;
        }
        let op = OpImport { name, since, inputs, known: &[], import: Handler::Calls(import) };
        OnnxOp { domain, op }
    }

    /// With the inputs that must be known while compiling, by position: [`Node::ints_input`] and
    /// its like read them. Models may then be compiled with values for them.
    #[must_use]
    pub const fn known(mut self, inputs: &'static [usize]) -> OnnxOp {
        self.op.known = inputs;
        self
    }
}

/// A registered [`OnnxOp`].
pub struct OnnxOpEntry {
    op: OnnxOp,
    origin: Origin,
}

impl OnnxOpEntry {
    #[doc(hidden)]
    pub const fn new(op: OnnxOp, origin: Origin) -> OnnxOpEntry {
        OnnxOpEntry { op, origin }
    }
}

inventory::collect!(OnnxOpEntry);

/// Registers an [`OnnxOp`](crate::onnx::OnnxOp) of the calling crate: models that have it are then
/// imported in each program that the crate is linked into. It comes before an operator of niello's
/// own of that domain and name.
///
/// A crate that nothing names is not linked: `use my_operators as _;` in the build script names it.
#[macro_export]
macro_rules! register_onnx_op {
    ($op:expr) => {
        $crate::pass::__private::inventory::submit! {
            $crate::onnx::OnnxOpEntry::new(
                $op,
                $crate::diagnostics::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
            )
        }
    };
}

fn entries(domain: &str, name: &str) -> &'static [&'static OnnxOpEntry] {
    type Entries = BTreeMap<&'static str, BTreeMap<&'static str, Vec<&'static OnnxOpEntry>>>;
    static ENTRIES: OnceLock<Entries> = OnceLock::new();
    let entries = ENTRIES.get_or_init(|| {
        let mut entries = Entries::new();
        for entry in inventory::iter::<OnnxOpEntry>() {
            let names = entries.entry(normal_domain(entry.op.domain)).or_default();
            names.entry(entry.op.op.name).or_default().push(entry);
        }
        entries
    });
    entries.get(domain).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
}

/// The registered import of the operator of that domain and name, if there is one.
///
/// # Errors
///
/// The places of the registrations, if they are several: which one is meant is not known then.
pub(super) fn find(domain: &str, name: &str) -> Result<Option<&'static OpImport>, String> {
    match entries(domain, name) {
        [] => Ok(None),
        [entry] => Ok(Some(&entry.op.op)),
        several => {
            // The linker's order is not specified.
            let mut origins: Vec<String> =
                several.iter().map(|entry| entry.origin.to_string()).collect();
            origins.sort();
            Err(origins.join(" and at "))
        }
    }
}

/// Domain and name of every registered operator; ONNX's own domain is empty.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    inventory::iter::<OnnxOpEntry>().map(|entry| (normal_domain(entry.op.domain), entry.op.op.name))
}
