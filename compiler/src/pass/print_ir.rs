//! A pass that prints the module at its place in a list.

use super::{ModulePass, PassContext, PassInfo, PassRef, Preserves};
use crate::diagnostics::{Diagnostic, Level};
use crate::ir::{IRModule, Span};

/// A pass, `PrintIR`, that emits the text of the module as a note under a header, and returns the
/// module unchanged. To print before and after passes without touching the list, see
/// [`PrintIr`](super::instruments::PrintIr).
pub fn print_ir(header: impl Into<String>) -> PassRef {
    let header = header.into();
    let info = PassInfo::new("PrintIR", 0).expect("the name is valid");
    let info = info.preserving(Preserves::All).describing("Shows the module.");
    PassRef::new(ModulePass::new(info, move |module: IRModule, cx: &PassContext| {
        let message = format!("PrintIR({header}):\n{module}");
        cx.emit(Diagnostic::new(Level::Note, Span::Unknown, message));
        module
    }))
}
