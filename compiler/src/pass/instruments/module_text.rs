//! The text of a whole module: graph functions, and loop functions behind them.

use std::fmt::Write as _;

use crate::graph::{PrintOptions, Sidecar, print_module, print_with_sidecar};
use crate::ir::IRModule;

/// The text of the graph functions, as they read back, then that of the loop functions.
pub(super) fn module_text(module: &IRModule) -> String {
    with_loop_functions(print_module(module, &PrintOptions::default()), module)
}

/// The same with the elements of large constants.
pub(super) fn module_text_with_sidecar(module: &IRModule) -> (String, Sidecar) {
    let (text, sidecar) = print_with_sidecar(module, &PrintOptions::default());
    (with_loop_functions(text, module), sidecar)
}

fn with_loop_functions(mut text: String, module: &IRModule) -> String {
    for (global, function) in module.prim_funcs() {
        let _ = write!(text, "\n; {global}\n{function}");
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}
