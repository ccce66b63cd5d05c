//! Failures of passes as diagnostics.

use super::{PassError, PassErrorKind};
use crate::diagnostics::Diagnostic;
use crate::graph::VerifyErrors;

impl PassError {
    /// The diagnostics of a failure: those of the pass or of the verifier, or else a single error.
    /// Notes name the pass and the function, and add errors that followed.
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

#[cfg(test)]
mod tests {
    use crate::diagnostics::{Renderer, SnippetRenderer, Source};
    use crate::graph::{Function, parse_module};
    use crate::ir::{GlobalVar, IRModule};
    use crate::pass::instruments::VerifyEach;
    use crate::pass::{
        FunctionPass, ModulePass, Pass, PassContext, PassContextBuilder, PassInfo, PassRef,
        Sequential,
    };

    const TEXT: &str = "\
def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  %0 = nn.relu(%x);
  @other(%0)
}
def @other(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  exp(%x)
}
";

    fn info() -> PassInfo {
        PassInfo::new("P", 0).unwrap()
    }

    /// The diagnostics as text, after a pass has failed on the text.
    fn shown(pass: PassRef, cx: PassContextBuilder) -> String {
        let module = parse_module(TEXT).unwrap();
        let cx = cx.build().unwrap();
        let list = Sequential::new([pass]);
        let error = cx.scope(|cx| list.run(module, cx)).unwrap_err();
        let source = Source::new("a.relay", TEXT);
        let renderer = SnippetRenderer::default();
        let texts = error.diagnostics().into_iter();
        texts.map(|diagnostic| renderer.render(&diagnostic, Some(&source))).collect()
    }

    #[test]
    fn an_error_at_an_expression_shows_its_line() {
        let pass = FunctionPass::new(info(), |f: Function, _: &IRModule, cx: &PassContext| {
            cx.warning_at(f.params()[0], "unusual");
            cx.error_at(f.result(), "too slow");
            f
        });
        let text = shown(PassRef::new(pass), PassContext::builder());
        let expected = "\
error: too slow
 --> @main:3:3
  |
2 |   %0 = nn.relu(%x);
3 |   @other(%0)
  |   ^^^^^^^^^^
4 | }
 ::: a.relay:3:3
  = note: in pass sequential > P
";
        assert!(text.contains("warning: unusual\n"), "{text}");
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn an_error_of_a_span_shows_the_file() {
        let pass = ModulePass::new(info(), |module: IRModule, cx: &PassContext| {
            let other = module.function("other").unwrap();
            cx.error(other.span(other.result()).clone(), "too slow");
            module
        });
        let expected = "\
error: too slow
 --> a.relay:6:3
  |
6 |   exp(%x)
  |   ^^^
  |
  = note: in pass sequential > P
";
        assert_eq!(shown(PassRef::new(pass), PassContext::builder()), expected);
    }

    #[test]
    fn a_pass_that_spoils_the_module_is_named_under_the_guilty_line() {
        let pass = || {
            PassRef::new(ModulePass::new(info(), |mut module: IRModule, _: &PassContext| {
                module.remove(&GlobalVar::new("other"));
                module
            }))
        };
        for cx in [
            PassContext::builder().verify_each(true),
            PassContext::builder().instrument(VerifyEach::new()),
        ] {
            let text = shown(pass(), cx);
            assert!(text.starts_with("error: ") && text.contains("@other"), "{text}");
            assert!(text.contains("3 |   @other(%0)\n  |   ^^^^^^^^^^\n"), "{text}");
            assert!(
                text.ends_with("note: the module is malformed after pass sequential > P\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn other_failures_are_one_error() {
        let fails = ModulePass::new(
            info(),
            |_: IRModule, _: &PassContext| -> crate::pass::Result<IRModule> {
                Err("it cannot".into())
            },
        );
        assert_eq!(
            shown(PassRef::new(fails), PassContext::builder()),
            "error: it cannot\n |\n = note: in pass sequential > P\n"
        );
    }
}
