//! The operators of the graph IR: a closed table.
//!
//! Each operator (or tight family) is one file with its attributes, type relation, reference evaluation
//! and tensor expression, and one line in `table.rs`. The type relation is the only place that checks a call:
//! evaluation runs it on the concrete types first, and takes the shape of its result from there.

mod attributes;
#[macro_use]
mod check;
mod compute;
mod context;
pub mod elementwise;
mod eval;
mod heap;
mod layouts;
pub mod nn;
pub mod qnn;
pub mod reduce;
mod registered;
mod relation;
mod table;
pub mod tensor;
pub(crate) mod values;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::DeserializeOwned;

pub use attributes::Attribute;
pub(crate) use compute::broadcast;
pub use compute::{Compute, ComputeError, Stages};
pub use context::{EvalError, InferArg, InferCx};
pub use eval::EvalCx;
pub(crate) use registered::ambiguous;
pub use registered::{OpEntry, assert_name_is_free, registered};
pub(crate) use registered::{compute, infer};
pub use relation::DTypes;
pub use table::all;

use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{AttrError, Attrs, Dim, Type};

/// How an operator's result elements depend on its arguments' elements: what fusion goes by.
/// The order is TVM's: a later pattern is harder to fuse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OpPattern {
    /// Element by element, equal shapes.
    ElemWise,
    /// Element by element with broadcasting.
    Broadcast,
    /// Each result element reads one place of an argument: reshape, transpose, concat.
    Injective,
    /// Each result element reads many places: sum, max.
    CommReduce,
    /// A heavy operator into which elementwise ones can be fused: convolution, matrix product.
    OutElemWiseFusable,
    /// Makes a tuple.
    Tuple,
    /// Cannot be fused.
    Opaque,
}

/// One input of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    /// The name in messages.
    pub name: &'static str,
    /// How often it occurs.
    pub kind: InputKind,
}

/// How often an input occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Exactly once.
    Required,
    /// At most once.
    Optional,
    /// Any number of times, at least once; only the last input.
    Variadic,
}

impl Input {
    /// An input that must be given.
    pub const fn required(name: &'static str) -> Input {
        Input { name, kind: InputKind::Required }
    }

    /// An input that may be absent.
    pub const fn optional(name: &'static str) -> Input {
        Input { name, kind: InputKind::Optional }
    }

    /// One or more inputs.
    pub const fn variadic(name: &'static str) -> Input {
        Input { name, kind: InputKind::Variadic }
    }
}

/// A type relation: the result type from argument types and attributes.
pub type InferFn = fn(&InferCx<'_>) -> Result<Type, TypeError>;

/// The elements of a small integer result as dimensions, where the arguments allow it.
pub type ShapeValueFn = fn(&InferCx<'_>) -> Option<Vec<Dim>>;

/// A reference evaluation: one tensor, or as many as the result type has fields.
pub type EvalFn = fn(&EvalCx<'_>) -> Result<Vec<Tensor>, EvalError>;

/// A tensor expression: adds the stages of a call to a dag, and returns one for each result.
pub type ComputeFn = fn(&mut Compute<'_>) -> Stages;

/// The definition of an operator. No operator has effects: its results depend on arguments and
/// attributes alone.
pub struct OpDef {
    /// Name in the text format: `nn.conv2d`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The inputs, in order.
    pub inputs: &'static [Input],
    /// Pattern for fusion.
    pub pattern: OpPattern,
    attributes: fn() -> Result<Vec<Attribute>, AttrError>,
    /// Names of the attributes that say in which layouts the first inputs are, if they are in others
    /// than the functions of this definition are about.
    pub layouts: &'static [&'static str],
    /// The values of attributes that the text format may leave out.
    pub defaults: fn() -> Attrs,
    /// The type relation: the result type from argument types and attributes.
    pub infer: InferFn,
    /// The elements of a small integer result as dimensions, where the arguments allow it.
    pub shape_value: Option<ShapeValueFn>,
    /// Reference evaluation: plain, exact where it can be, never fast. The result has as many
    /// tensors as the result type has fields.
    pub eval: EvalFn,
    /// The tensor expression, from which code is generated.
    pub compute: ComputeFn,
}

impl OpDef {
    /// An opaque operator without attributes, to be refined by the methods below.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        inputs: &'static [Input],
        infer: InferFn,
        eval: EvalFn,
        compute: ComputeFn,
    ) -> OpDef {
        OpDef {
            name,
            summary,
            inputs,
            attributes: attributes::of::<()>,
            layouts: &[],
            defaults: Attrs::new,
            pattern: OpPattern::Opaque,
            infer,
            shape_value: None,
            eval,
            compute,
        }
    }

    /// Evaluates a call. The type relation checks the arguments first.
    ///
    /// # Errors
    ///
    /// If the type relation does not hold, a result is too large, or there is none for these
    /// elements.
    pub fn evaluate(
        &'static self,
        attrs: &Attrs,
        args: &[Option<&Tensor>],
    ) -> Result<Vec<Tensor>, EvalError> {
        layouts::eval(&EvalCx::new(self, attrs, args)?)
    }

    /// The attributes of calls: those of their struct, in its order, then layouts.
    ///
    /// # Errors
    ///
    /// If one is of a type that attributes do not have.
    pub fn attrs(&self) -> Result<Vec<Attribute>, AttrError> {
        let mut listed = (self.attributes)()?;
        let defaults = (self.defaults)();
        for attribute in &mut listed {
            attribute.default = defaults.get(attribute.name).cloned();
        }
        listed.extend(self.layouts.iter().map(|name| Attribute::layout(name)));
        Ok(listed)
    }

    /// With the attributes that a struct has.
    pub const fn attributes<A: DeserializeOwned>(mut self) -> OpDef {
        self.attributes = attributes::of::<A>;
        self
    }

    /// With values for attributes that the text format may leave out. Calls in the IR have them all.
    pub const fn defaults(mut self, defaults: fn() -> Attrs) -> OpDef {
        self.defaults = defaults;
        self
    }

    /// With a pattern for fusion.
    pub const fn pattern(mut self, pattern: OpPattern) -> OpDef {
        self.pattern = pattern;
        self
    }

    /// With the elements of a small integer result as dimensions.
    pub const fn shape_value(mut self, f: ShapeValueFn) -> OpDef {
        self.shape_value = Some(f);
        self
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An operator: a reference to its definition. Equal if the names are.
#[derive(Clone, Copy)]
pub struct Op(&'static OpDef);

impl Op {
    /// The operator of that name, one of another crate included.
    pub fn get(name: &str) -> Option<Op> {
        match all().binary_search_by(|def| def.name.cmp(name)) {
            Ok(index) => Some(Op(all()[index])),
            Err(_) => registered::find(name),
        }
    }

    /// The definition.
    pub fn definition(self) -> &'static OpDef {
        self.0
    }

    /// The operator of a definition.
    pub const fn new(def: &'static OpDef) -> Op {
        Op(def)
    }

    /// Whether another crate has the definition.
    pub(crate) fn is_registered(self) -> bool {
        all().binary_search_by(|def| def.name.cmp(self.name)).is_err()
    }

    /// Whether this is the operator of that definition: `op.is(&nn::CONV2D)`.
    pub fn is(self, def: &OpDef) -> bool {
        self.0.name == def.name
    }
}

impl From<&'static OpDef> for Op {
    fn from(def: &'static OpDef) -> Op {
        Op(def)
    }
}

impl std::ops::Deref for Op {
    type Target = OpDef;

    fn deref(&self) -> &OpDef {
        self.0
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Op {}

impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialOrd for Op {
    fn partial_cmp(&self, other: &Op) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Op {
    fn cmp(&self, other: &Op) -> std::cmp::Ordering {
        self.0.name.cmp(other.0.name)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}
