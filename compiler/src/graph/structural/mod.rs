//! Structural hash and equality.
//!
//! Two functions are equal if they compute the same in the same way from the same parameters: ids,
//! names of values, spans and dead code do not matter. Operators matter, and so does which values
//! are shared and which are computed twice, in which scope a value is computed, and the order of
//! bindings. Constants, globals and fields of tuples are compared by content, wherever they stand.
//! Symbols of dimensions are compared by name: they are part of the interface.

mod canonical;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use canonical::{Canonical, Token};

use super::{ExprId, Function};
use crate::ir::{Blake3, Definition, Digest, ExternFunction, GlobalVar, IRModule};

/// The first difference of two functions or modules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The function that differs, if modules were compared.
    pub global: Option<GlobalVar>,
    /// The expression of the left function that differs, if one does.
    pub left: Option<ExprId>,
    /// The expression of the right function that differs, if one does.
    pub right: Option<ExprId>,
    /// The contents of each side.
    pub message: String,
}

impl Mismatch {
    fn of_modules(global: Option<&GlobalVar>, message: impl Into<String>) -> Mismatch {
        Mismatch { global: global.cloned(), left: None, right: None, message: message.into() }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(global) = &self.global {
            write!(f, "{global}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mismatch {}

/// Whether two functions have the same structure.
///
/// # Errors
///
/// The first difference, in the order of evaluation.
pub fn structural_equal(left: &Function, right: &Function) -> Result<(), Mismatch> {
    if left.same(right) {
        return Ok(());
    }
    let (mut lefts, mut rights) = (Canonical::new(left), Canonical::new(right));
    loop {
        match (lefts.next(), rights.next()) {
            (None, None) => return Ok(()),
            (Some((a, _)), Some((b, _))) if a == b => {}
            (a, b) => {
                let side = |step: &Option<(Token<'_>, _)>| match step {
                    Some((token, _)) => token.to_string(),
                    None => "nothing".to_owned(),
                };
                let message = format!("left has {}, right has {}", side(&a), side(&b));
                let (left, right) = (a.and_then(|step| step.1), b.and_then(|step| step.1));
                return Err(Mismatch { global: None, left, right, message });
            }
        }
    }
}

/// A digest of a function's structure: equal exactly if [`structural_equal`] holds, in every run
/// and on every platform.
pub fn structural_hash(function: &Function) -> Digest {
    let mut hasher = Hasher::new();
    hasher.function(function);
    hasher.finish()
}

/// Whether two modules have the same attributes, and functions of the same names and structure. The
/// order of definitions does not matter.
///
/// # Errors
///
/// The first difference, in the order of the names.
pub fn modules_equal(left: &IRModule, right: &IRModule) -> Result<(), Mismatch> {
    if left.same(right) {
        return Ok(());
    }
    if left.attrs() != right.attrs() {
        let (left, right) = (left.attrs(), right.attrs());
        let message = format!("left has the attributes {left:?}, right has {right:?}");
        return Err(Mismatch::of_modules(None, message));
    }
    for (global, a) in by_name(left) {
        let Some(b) = right.get(global) else {
            return Err(Mismatch::of_modules(Some(global), "right does not define it"));
        };
        definitions_equal(a, b)
            .map_err(|mismatch| Mismatch { global: Some(global.clone()), ..mismatch })?;
    }
    match by_name(right).into_keys().find(|global| left.get(global).is_none()) {
        Some(global) => Err(Mismatch::of_modules(Some(global), "left does not define it")),
        None => Ok(()),
    }
}

/// A digest of a module's structure: equal exactly if [`modules_equal`] holds, in every run and on
/// every platform.
pub fn module_hash(module: &IRModule) -> Digest {
    let mut hasher = Hasher::new();
    hasher.text(&module.attrs().to_string());
    for (global, definition) in by_name(module) {
        hasher.text(global.name());
        match definition {
            Definition::Graph(function) => {
                hasher.tag(0);
                hasher.function(function);
            }
            Definition::Extern(function) => {
                let ExternFunction { ty, attrs } = &**function;
                hasher.tag(1);
                hasher.text(&crate::ir::Type::Func(ty.clone().into()).to_string());
                hasher.text(&attrs.to_string());
            }
            Definition::Prim(function) => {
                hasher.tag(2);
                hasher.0.update(&function.structural_digest());
            }
        }
    }
    hasher.finish()
}

fn by_name(module: &IRModule) -> BTreeMap<&GlobalVar, &Definition> {
    module.iter().collect()
}

fn definitions_equal(left: &Definition, right: &Definition) -> Result<(), Mismatch> {
    let different = |message: &str| Err(Mismatch::of_modules(None, message));
    match (left, right) {
        (Definition::Graph(a), Definition::Graph(b)) => structural_equal(a, b),
        (Definition::Extern(a), Definition::Extern(b)) => match a == b {
            true => Ok(()),
            false => different("the declarations differ"),
        },
        (Definition::Prim(a), Definition::Prim(b)) => match a.structural_eq(b) {
            true => Ok(()),
            false => different("the loop functions differ"),
        },
        (Definition::Graph(_) | Definition::Extern(_) | Definition::Prim(_), _) => {
            different("the definitions are of different kinds")
        }
    }
}

/// Feeds tokens to BLAKE3 as bytes that differ for different sequences.
struct Hasher(Blake3);

impl Hasher {
    fn new() -> Hasher {
        let mut hasher = Hasher(Blake3::new());
        hasher.text("niello structure 1");
        hasher
    }

    fn finish(self) -> Digest {
        self.0.finalize()
    }

    fn tag(&mut self, tag: u8) {
        self.0.update(&[tag]);
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn function(&mut self, function: &Function) {
        for (token, _) in Canonical::new(function) {
            self.token(&token);
        }
        self.tag(u8::MAX);
    }

    fn token(&mut self, token: &Token<'_>) {
        match token {
            Token::Function { attrs, facts } => {
                self.tag(0);
                self.text(&attrs.to_string());
                self.text(&facts.to_string());
            }
            Token::Scope(kind, params) => {
                self.tag(1);
                self.tag(*kind as u8);
                self.number(*params as u64);
            }
            Token::Param(ty) => {
                self.tag(2);
                self.text(&ty.to_string());
            }
            Token::Bind => self.tag(3),
            Token::Result => self.tag(4),
            Token::Use(number) => {
                self.tag(5);
                self.number((*number).into());
            }
            Token::Global(global) => {
                self.tag(6);
                self.text(global.name());
            }
            Token::Constant(constant) => {
                self.tag(7);
                self.text(&constant.ty().to_string());
                self.0.update(constant.digest());
            }
            Token::Field(index) => {
                self.tag(8);
                self.number((*index).into());
            }
            Token::Absent => self.tag(9),
            Token::Tuple { depth, fields } => {
                self.node(10, *depth, *fields);
            }
            Token::Op { depth, op, attrs, args } => {
                self.node(11, *depth, *args);
                self.text(op.name);
                self.text(&attrs.to_string());
            }
            Token::Call { depth, attrs, args } => {
                self.node(12, *depth, *args);
                self.text(&attrs.to_string());
            }
            Token::If { depth } => self.node(13, *depth, 0),
            Token::While { depth, state } => self.node(14, *depth, *state),
            Token::Func { depth, attrs, recursive } => {
                self.node(15, *depth, usize::from(*recursive));
                self.text(&attrs.to_string());
            }
            Token::Undefined => self.tag(16),
        }
    }

    fn node(&mut self, tag: u8, depth: u32, count: usize) {
        self.tag(tag);
        self.number(depth.into());
        self.number(count as u64);
    }
}
