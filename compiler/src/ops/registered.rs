//! Operators that other crates define.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use super::{Compute, ComputeError, InferCx, Op, OpDef, Stages, layouts, table};
use crate::diagnostics::Origin;
use crate::graph::TypeError;
use crate::ir::Type;
use crate::pass::panic_message;
use crate::te::{StageId, StageKind, lower_to_blocks};
use crate::tir::ParamKind;

/// An operator of another crate; [`register_op!`](crate::register_op) makes one.
pub struct OpEntry {
    op: &'static OpDef,
    origin: Origin,
}

impl OpEntry {
    #[doc(hidden)]
    pub const fn new(op: &'static OpDef, origin: Origin) -> OpEntry {
        OpEntry { op, origin }
    }
}

inventory::collect!(OpEntry);

/// Registers a static [`OpDef`](crate::ops::OpDef) of the calling crate, so that the text format
/// knows its name. A build fails to compile if niello has an operator of that name.
///
/// A crate that nothing names is not linked: `use my_operators as _;` in the build script names it.
#[macro_export]
macro_rules! register_op {
    ($op:path) => {
        const _: () = $crate::ops::assert_name_is_free($op.name);
        $crate::pass::__private::inventory::submit! {
            $crate::ops::OpEntry::new(
                &$op,
                $crate::diagnostics::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
            )
        }
    };
}

#[doc(hidden)]
pub const fn assert_name_is_free(name: &str) {
    let table = table::all();
    let mut index = 0;
    while index < table.len() {
        assert!(!equal(table[index].name, name), "niello has an operator of this name");
        index += 1;
    }
}

/// `a == b`, which constants cannot say.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

fn entries() -> &'static BTreeMap<&'static str, Vec<&'static OpEntry>> {
    static ENTRIES: OnceLock<BTreeMap<&'static str, Vec<&'static OpEntry>>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let mut entries: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in inventory::iter::<OpEntry>() {
            entries.entry(entry.op.name).or_default().push(entry);
        }
        entries
    })
}

/// The registered operator of that name, if there is exactly one.
pub(super) fn find(name: &str) -> Option<Op> {
    match entries().get(name).map(Vec::as_slice) {
        Some([entry]) => Some(Op::new(entry.op)),
        _ => None,
    }
}

/// The names that are registered, in order.
pub fn registered() -> impl Iterator<Item = &'static str> {
    entries().keys().copied()
}

/// The places where operators of that name are registered, if they are several: which one is meant
/// is not known then.
pub(crate) fn ambiguous(name: &str) -> Option<String> {
    let entries = entries().get(name).filter(|entries| entries.len() > 1)?;
    // The linker's order is not specified.
    let mut origins: Vec<String> = entries.iter().map(|entry| entry.origin.to_string()).collect();
    origins.sort();
    Some(origins.join(" and at "))
}

/// The type of a call.
pub(crate) fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    if !Op::new(cx.op).is_registered() {
        return layouts::infer(cx);
    }
    catch_unwind(AssertUnwindSafe(|| layouts::infer(cx))).unwrap_or_else(|payload| {
        let message = panic_message(&*payload);
        Err(TypeError::new(format!("the type relation of `{}` panicked: {message}", cx.op.name)))
    })
}

/// The stages of a call. Those of another crate's operator are checked, as what is wrong with them would
/// come up far from here, or not at all.
pub(crate) fn compute(cx: &mut Compute<'_>) -> Stages {
    if !cx.op.is_registered() {
        return layouts::compute(cx);
    }
    let op = cx.op;
    let error = |what: String| ComputeError(format!("the tensor expression of `{op}` {what}"));
    let stages = catch_unwind(AssertUnwindSafe(|| layouts::compute(cx)))
        .map_err(|payload| error(format!("panicked: {}", panic_message(&*payload))))??;
    if stages.len() != cx.results.len() {
        let (made, wanted) = (stages.len(), cx.results.len());
        return Err(error(format!("has {made} stages for {wanted} results")));
    }
    for (&stage, (shape, dtype)) in stages.iter().zip(cx.results) {
        let (made, of) = (cx.dag.shape(stage), cx.dag.dtype(stage));
        if (made, of) != (shape, *dtype) {
            return Err(error(format!(
                "is {of} of {made:?}, where the type is {dtype} of {shape:?}"
            )));
        }
    }
    let is_placeholder = |id: &StageId| cx.dag.stages[*id].kind == StageKind::Placeholder;
    let inputs = cx.dag.ids().filter(is_placeholder).map(|id| (id, ParamKind::Input));
    let outputs = stages.iter().filter(|id| !is_placeholder(id)).map(|&id| (id, ParamKind::Output));
    let params: BTreeMap<StageId, ParamKind> = inputs.chain(outputs).collect();
    if params.values().any(|kind| *kind == ParamKind::Output) {
        let params: Vec<(StageId, ParamKind)> = params.into_iter().collect();
        lower_to_blocks(cx.dag, &params)
            .map_err(|problem| error(format!("is wrong: {problem}")))?;
    }
    Ok(stages)
}
