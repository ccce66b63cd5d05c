//! The sink of diagnostics, missed rewrites and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::PassError;
use super::analysis::Claim;
use crate::diagnostics::Diagnostic;
use crate::ir::{GlobalVar, Span};

/// A rewrite that a pass did not make, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The pass.
    pub pass: String,
    /// The function that the pass worked on.
    pub function: Option<GlobalVar>,
    /// The operator's name, or the kind of expression, that was not rewritten.
    pub what: String,
    /// The origin of that expression in the model.
    pub span: Span,
    /// Why it was not rewritten.
    pub reason: String,
}

impl fmt::Display for Remark {
    /// `FoldConstant: @main: `add` at Add `node` (opset 13): the result is too large`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.pass)?;
        if let Some(function) = &self.function {
            write!(f, "{function}: ")?;
        }
        write!(f, "`{}`", self.what)?;
        match &self.span {
            Span::Unknown => {}
            span @ (Span::Onnx(_) | Span::Text { .. }) => write!(f, " at {span}")?,
        }
        write!(f, ": {}", self.reason)
    }
}

/// Counts by pass and by counter.
pub type Statistics = BTreeMap<(String, &'static str), u64>;

/// Everything that a pass reports, in order.
#[derive(Default, Debug)]
pub(super) struct Records {
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) remarks: Vec<Remark>,
    pub(super) statistics: Statistics,
    /// The analyses that the pass claims to preserve or abandon while it runs, of one function or
    /// of all.
    pub(super) claims: Vec<(Option<GlobalVar>, Claim)>,
    /// Errors that could not be returned where they arose.
    pub(super) failures: Vec<PassError>,
}

/// Collects the records of one pass, or of one function of a pass.
#[derive(Default, Debug)]
pub(super) struct Sink(Mutex<Records>);

impl Sink {
    pub(super) fn lock(&self) -> MutexGuard<'_, Records> {
        // Records are only appended to: a panic elsewhere leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the records of another sink.
    pub(super) fn absorb(&self, other: Records) {
        let Records { mut diagnostics, mut remarks, statistics, mut claims, mut failures } = other;
        let mut records = self.lock();
        records.claims.append(&mut claims);
        records.failures.append(&mut failures);
        records.diagnostics.append(&mut diagnostics);
        records.remarks.append(&mut remarks);
        for (what, count) in statistics {
            *records.statistics.entry(what).or_default() += count;
        }
    }

    /// Removes and returns all records.
    pub(super) fn take(&self) -> Records {
        std::mem::take(&mut *self.lock())
    }
}
