//! The printer of functions and modules. `docs/text-format.md` describes the language.

mod body;
mod constant;
mod excerpt;
mod names;

use std::fmt::{self, Write};

pub use excerpt::excerpt;
pub(super) use excerpt::of_line;

use cranelift_entity::SecondaryMap;

use super::sidecar::Sidecar;
use super::{ExprId, Function};
use crate::ir::text::{Name, is_dotted_identifier};
use crate::ir::{Attrs, Constant, Definition, ExternFunction, GlobalVar, IRModule};
use crate::tir::print_as;

/// Elements up to which a constant prints with its values; a larger one prints by its digest.
///
/// Axes, shapes, pads and the biases of small examples fit a line; weights never do.
pub const INLINE_ELEMENTS: u64 = 16;

/// Options of the printer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrintOptions {
    /// Print the type of each value, also where no declaration is required.
    pub types: bool,
    /// Print the ONNX node that a value came from, as a comment.
    pub spans: bool,
    /// Elements up to which a constant prints with its values.
    pub inline_elements: u64,
}

impl Default for PrintOptions {
    /// Options for text that can be parsed: no comments, types only in declarations.
    fn default() -> PrintOptions {
        PrintOptions { types: false, spans: false, inline_elements: INLINE_ELEMENTS }
    }
}

/// The text of a module.
pub fn print_module(module: &IRModule, options: &PrintOptions) -> String {
    let mut out = String::new();
    write_module(&mut out, module, options, &mut None);
    out
}

/// The text of a module, and the elements of its constants that the text names by digest alone.
pub fn print_with_sidecar(module: &IRModule, options: &PrintOptions) -> (String, Sidecar) {
    let mut out = String::new();
    let mut sidecar = Some(Sidecar::new());
    write_module(&mut out, module, options, &mut sidecar);
    (out, sidecar.unwrap_or_default())
}

/// The text of a function: a definition of `global`, or `fn (…) … { … }` without one.
pub fn print_function(
    function: &Function,
    global: Option<&GlobalVar>,
    options: &PrintOptions,
) -> String {
    let mut out = String::new();
    body::write_function(&mut out, function, global, options, &mut None);
    out
}

/// The text of a constant, with its elements if it has no more than `inline_elements` of them.
pub fn print_constant(constant: &Constant, inline_elements: u64) -> String {
    let mut out = String::new();
    constant::write_constant(&mut out, constant, inline_elements);
    out
}

fn write_module(
    out: &mut String,
    module: &IRModule,
    options: &PrintOptions,
    sidecar: &mut Option<Sidecar>,
) {
    if !module.attrs().is_empty() {
        let _ = writeln!(out, "#[{}]", module.attrs());
    }
    for (global, definition) in module.iter() {
        if !out.is_empty() {
            out.push('\n');
        }
        match definition {
            Definition::Graph(function) => {
                body::write_function(out, function, Some(global), options, sidecar);
            }
            Definition::Extern(function) => write_extern(out, global, function),
            Definition::Prim(function) => out.push_str(&print_as(function, global.name(), &[])),
        }
    }
}

fn write_extern(out: &mut String, global: &GlobalVar, function: &ExternFunction) {
    let ExternFunction { ty, attrs } = function;
    let _ = write!(out, "extern def {}(", GlobalText(global));
    for (index, param) in ty.params.iter().enumerate() {
        let _ = write!(out, "{}{param}", if index == 0 { "" } else { ", " });
    }
    let _ = writeln!(out, ") -> {}{};", ty.ret, AttrsText(attrs));
}

/// A global as text: in quotes unless it is identifiers joined by dots.
pub(super) struct GlobalText<'a>(pub(super) &'a GlobalVar);

impl fmt::Display for GlobalText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.name() {
            name if is_dotted_identifier(name) => write!(f, "@{name}"),
            name => write!(f, "@{:?}", name),
        }
    }
}

/// The attributes of a definition as text: ` {Primitive=true}`, or nothing if there are none.
struct AttrsText<'a>(&'a Attrs);

impl fmt::Display for AttrsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " {{{}}}", self.0) }
    }
}

/// A variable as text.
fn local_text(name: &str) -> String {
    format!("%{}", Name(name))
}

/// A function's text, and the line, from 0, of each expression.
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) lines: SecondaryMap<ExprId, Option<u32>>,
}

/// The text of a function with the lines of its expressions, for messages under them.
pub(super) fn print_with_lines(function: &Function, global: Option<&GlobalVar>) -> Printed {
    let mut text = String::new();
    let options = PrintOptions::default();
    let lines = body::write_function(&mut text, function, global, &options, &mut None);
    Printed { text, lines }
}

impl fmt::Display for IRModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_module(self, &PrintOptions::default()))
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_function(self, None, &PrintOptions::default()))
    }
}
