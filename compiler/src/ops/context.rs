//! What type relations and evaluations are given.

use std::cell::RefCell;
use std::fmt;

use serde::de::DeserializeOwned;

use super::OpDef;
use crate::arith::Facts;
use crate::graph::TypeError;
use crate::graph::interp::TensorError;
use crate::ir::{Attrs, Constant, Dim, TensorType, Type};

/// One argument of a call whose type is being inferred.
#[derive(Clone, Copy, Debug)]
pub struct InferArg<'a> {
    /// Its type.
    pub ty: &'a Type,
    /// Its elements as dimensions, if it is a small integer tensor for which they are known.
    pub shape_value: Option<&'a [Dim]>,
    /// Its elements, if it is a constant.
    pub constant: Option<&'a Constant>,
}

/// A call whose type is being inferred.
#[derive(Clone, Copy)]
pub struct InferCx<'a> {
    /// The operator.
    pub op: &'static OpDef,
    /// The arguments; as many as the operator's inputs allow.
    pub args: &'a [Option<InferArg<'a>>],
    /// The attributes.
    pub attrs: &'a Attrs,
    /// What is known about the symbols in the types.
    pub facts: &'a Facts,
    /// Where dimensions go that may be equal, and that the relation needs to be. Without it they count
    /// as different.
    pub(crate) equal: Option<&'a RefCell<Vec<(Dim, Dim)>>>,
}

impl<'a> InferCx<'a> {
    /// The attributes as the operator's struct.
    ///
    /// # Errors
    ///
    /// If an attribute is missing, unknown or of another type.
    pub fn attrs<T: DeserializeOwned>(&self) -> Result<T, TypeError> {
        self.attrs.parse().map_err(|error| TypeError::new(format!("attributes: {error}")))
    }

    /// An argument, if it is there.
    pub fn arg(&self, index: usize) -> Option<&InferArg<'a>> {
        self.args.get(index)?.as_ref()
    }

    /// The tensor type of an optional argument.
    ///
    /// # Errors
    ///
    /// If the argument is no tensor.
    pub fn optional_tensor(&self, index: usize) -> Result<Option<&'a TensorType>, TypeError> {
        let Some(arg) = self.arg(index) else { return Ok(None) };
        match arg.ty.as_tensor() {
            Some(tensor) => Ok(Some(tensor)),
            None => Err(TypeError::new(format!(
                "input `{}` must be a tensor, but it is {}",
                self.input_name(index),
                arg.ty
            ))),
        }
    }

    /// The tensor type of an argument that must be there.
    ///
    /// # Errors
    ///
    /// If the argument is absent or no tensor.
    pub fn tensor(&self, index: usize) -> Result<&'a TensorType, TypeError> {
        self.optional_tensor(index)?
            .ok_or_else(|| TypeError::new(format!("input `{}` is missing", self.input_name(index))))
    }

    /// The name of an input in messages; a repeated one is numbered.
    pub fn input_name(&self, index: usize) -> String {
        match self.op.inputs.get(index) {
            Some(input) => input.name.to_owned(),
            None => {
                let last = self.op.inputs.last().map_or("input", |input| input.name);
                format!("{last}[{}]", (index + 1).saturating_sub(self.op.inputs.len()))
            }
        }
    }
}

/// Why an operator could not be evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvalError(pub String);

impl EvalError {
    /// An error of that message.
    pub fn new(message: impl Into<String>) -> EvalError {
        EvalError(message.into())
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EvalError {}

impl From<TypeError> for EvalError {
    fn from(error: TypeError) -> EvalError {
        EvalError(error.to_string())
    }
}

impl From<TensorError> for EvalError {
    fn from(error: TensorError) -> EvalError {
        EvalError(error.to_string())
    }
}
