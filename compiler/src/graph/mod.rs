//! The graph IR: functions over one arena of expressions.
//!
//! Operands come before their users, so the order of the ids is a topological order: every analysis
//! is one loop and a dense side table, and nothing recurses. Types are computed when an expression
//! is pushed. Edits go through [`Rewriter`], one forward sweep from an old function to a new one.

mod builder;
mod dot;
mod expr;
mod find_symbols;
mod function;
pub mod interp;
mod parse;
mod pattern;
mod print;
mod rearrange;
mod rewriter;
mod sidecar;
mod splice;
mod structural;
mod typing;
mod verify;
pub mod visit;

pub use builder::FunctionBuilder;
pub use dot::dot;
pub use expr::{Call, Callee, Closure, Expr, ExprId, If, ScopeId, While};
pub use find_symbols::INFER_SHAPES;
pub use function::{Binding, ExprData, Function, Scope, ScopeKind};
pub use parse::{
    ParseError, ParseErrors, parse_constants, parse_function, parse_module, parse_module_with,
    statement_lines,
};
pub use pattern::{Match, Pattern};
pub use print::{
    INLINE_ELEMENTS, PrintOptions, excerpt, print_constant, print_function, print_module,
    print_with_sidecar,
};
pub(crate) use rearrange::rearranged;
pub use rewriter::{IdMap, Rewriter, compact};
pub use sidecar::{Sidecar, SidecarError};
pub(crate) use splice::{Splice, regions};
pub use structural::{Mismatch, module_hash, modules_equal, structural_equal, structural_hash};
pub(crate) use typing::MAX_SHAPE_VALUE;
pub use typing::TypeError;
pub use verify::{
    FunctionErrors, PrimFuncErrors, VerifyError, VerifyErrors, VerifyPlace, verify_function,
    verify_module,
};

#[cfg(test)]
mod tests;
