//! Where what passes say is collected: diagnostics, missed rewrites, counts.

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
    /// The function it worked on.
    pub function: Option<GlobalVar>,
    /// What it left as it was: the operator's name, or the kind of expression.
    pub what: String,
    /// Where that came from.
    pub span: Span,
    /// Why it was left.
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

/// How often passes did what they count, by pass and by what.
pub type Statistics = BTreeMap<(String, &'static str), u64>;

/// What was said, in order.
#[derive(Default, Debug)]
pub(super) struct Records {
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) remarks: Vec<Remark>,
    pub(super) statistics: Statistics,
    /// What the pass says that it preserves, and of which function if not of all.
    pub(super) claims: Vec<(Option<GlobalVar>, Claim)>,
    /// Errors that could not be returned where they came up.
    pub(super) failures: Vec<PassError>,
}

/// Collects what one pass, or one function of a pass, says.
#[derive(Default, Debug)]
pub(super) struct Sink(Mutex<Records>);

impl Sink {
    pub(super) fn lock(&self) -> MutexGuard<'_, Records> {
        // Records are only appended to: a panic elsewhere leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves everything that another one has collected to the end of this one.
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

    /// Everything that was collected; nothing is left.
    pub(super) fn take(&self) -> Records {
        std::mem::take(&mut *self.lock())
    }
}
