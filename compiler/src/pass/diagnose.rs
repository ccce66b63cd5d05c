//! Failures of passes as diagnostics.

use super::{PassError, PassErrorKind};
use crate::diagnostics::Diagnostic;
use crate::graph::VerifyErrors;

impl PassError {
    /// What went wrong, place by place: what the pass said, what the verifier found, or else one
    /// error. Notes say in which pass and function, and what followed.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut diagnostics = match self.kind() {
            PassErrorKind::Diagnostics(said) => said.clone(),
            PassErrorKind::Verify(errors) => match errors.downcast_ref::<VerifyErrors>() {
                Some(errors) => errors.diagnostics(),
                None => vec![Diagnostic::error(errors.to_string())],
            },
            PassErrorKind::Instrument { instrument, hook, source } => {
                match source.downcast_ref::<VerifyErrors>() {
                    Some(errors) => errors.diagnostics(),
                    None => {
                        let note = format!("instrument `{instrument}` failed in {hook}");
                        vec![Diagnostic::error(source.to_string()).note(note)]
                    }
                }
            }
            PassErrorKind::Invalid(report) => report.problems.iter().map(Into::into).collect(),
            kind => vec![Diagnostic::error(kind.to_string())],
        };
        if diagnostics.is_empty() {
            diagnostics.push(Diagnostic::error(self.kind().to_string()));
        }
        let spoilt = |hook: &super::Hook| *hook != super::Hook::RunBeforePass;
        let after = match self.kind() {
            PassErrorKind::Verify(_) => true,
            PassErrorKind::Instrument { hook, source, .. } => {
                source.is::<VerifyErrors>() && spoilt(hook)
            }
            _ => false,
        };
        if !self.passes().is_empty() {
            let passes = self.passes().join(" > ");
            let function =
                self.function().map(|global| format!(", function {global}")).unwrap_or_default();
            let which = if after { "the module is malformed after" } else { "in" };
            let note = format!("{which} pass {passes}{function}");
            for diagnostic in diagnostics.iter_mut().filter(|d| d.level.is_failure()) {
                *diagnostic = diagnostic.clone().note(&note);
            }
        }
        diagnostics.extend(self.secondary().iter().flat_map(PassError::diagnostics));
        diagnostics
    }
}
