//! Attribute macros with which compiler passes are written for niello; use them through
//! `niello::pass`.
//!
//! ```ignore
//! use niello::graph::{Function, Rewriter};
//! use niello::ir::IRModule;
//! use niello::pass::{PassContext, Result, function_pass};
//! use niello::transform::InferType;
//!
//! /// Replaces what I know better.
//! #[function_pass(opt_level = 2, required = [InferType])]
//! pub fn know_better(function: Function, module: &IRModule, cx: &PassContext) -> Result<Function> {
//!     let mut rewriter = Rewriter::new(function);
//!     // …
//!     Ok(rewriter.finish()?)
//! }
//! ```
//!
//! An attribute on a function keeps the function as it is and adds a unit struct named like it in
//! `UpperCamelCase`, here `KnowBetter`: the pass, to be run, listed in pipelines and named in other
//! passes' `required`. It is registered under that name (or `name = ".."`), and the first line of
//! the documentation is what `niello passes` prints.
//!
//! An attribute on an inherent `impl` block makes a pass of the block's type, so that a pass can
//! have configuration: the block has a method `transform_module`, `transform_function` or
//! `transform_prim_func`, which takes `&self` first. It is registered if the type is `Default`.
//!
//! Arguments, of which only `opt_level` is needed:
//!
//! - `opt_level = 2`: the least level of the context at which the pass is enabled;
//! - `name = "tir.MyPass"`: the registered name;
//! - `required = [InferType, "OtherPass"]`: what must have run before, by path or by name;
//! - `requires = [Fused]`: properties that the module must have; the one pass that sets it runs
//!   before, if no other pass has set it;
//! - `sets = [Fused]`, `clears = [Anf]`: properties that the module has, or may have lost, after the
//!   pass;
//! - `preserves = [InferType, UseCounts]`, `preserves = all` or `preserves = none` (if it is left
//!   out): which results of passes, and which analyses, still hold although the pass changed the
//!   module;
//! - `analyses = [CallGraph]`: analyses of the module that are computed before the pass begins;
//! - `before = [..]`, `after = [..]`, `conflicts = [..]`: passes that may only come after or before
//!   it in one list, or not at all;
//! - `holds = path::to::function`: a `fn(&IRModule) -> bool` that says that there is nothing to do;
//! - `crate = path`: where niello is, if it is not `::niello`.
//!
//! `#[pass_instrument]` makes an instrument of an inherent `impl` block:
//!
//! ```ignore
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! use niello::ir::IRModule;
//! use niello::pass::{PassInfo, pass_instrument};
//!
//! #[derive(Default)]
//! pub struct CountPasses(AtomicUsize);
//!
//! #[pass_instrument]
//! impl CountPasses {
//!     fn run_before_pass(&self, _module: &IRModule, _info: &PassInfo) {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!     }
//! }
//! ```

mod args;
mod check;
mod expand;
mod instrument;
mod kind;

use proc_macro::TokenStream;

use kind::Kind;

/// Makes a pass of `fn(IRModule, &PassContext) -> IRModule`, or a `Result` of it, or of an `impl`
/// block with such a method `transform_module`. See the crate's documentation for the arguments.
#[proc_macro_attribute]
pub fn module_pass(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::pass(Kind::Module, args.into(), item.into()).into()
}

/// Makes a pass of `fn(Function, &IRModule, &PassContext) -> Function`, or a `Result` of it, or of
/// an `impl` block with such a method `transform_function`. The function is called for every graph
/// function of the module that may be optimised; several calls may run side by side. See the
/// crate's documentation for the arguments.
#[proc_macro_attribute]
pub fn function_pass(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::pass(Kind::Function, args.into(), item.into()).into()
}

/// Makes a pass of `fn(PrimFunc, &IRModule, &PassContext) -> PrimFunc`, or an `Option` or `Result`
/// of it, or of an `impl` block with such a method `transform_prim_func`. Returning none deletes
/// the function. See the crate's documentation for the arguments.
#[proc_macro_attribute]
pub fn prim_func_pass(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::pass(Kind::PrimFunc, args.into(), item.into()).into()
}

/// Makes an instrument of the type of an inherent `impl` block, whose methods may be any of the
/// hooks of `PassInstrument`: `enter_pass_ctx`, `exit_pass_ctx`, `should_run`, `run_before_pass`,
/// `run_after_pass`, and the rarer ones of its documentation. Each takes `&self`. A hook may
/// return nothing (`should_run` a `bool`) or a `Result` of it with any error. Other methods are left
/// alone; one whose name is almost a hook's needs `#[not_a_hook]`.
///
/// Arguments: `name = ".."` for the instrument's name in messages, and `crate = path`.
#[proc_macro_attribute]
pub fn pass_instrument(args: TokenStream, item: TokenStream) -> TokenStream {
    instrument::instrument(args.into(), item.into()).into()
}
