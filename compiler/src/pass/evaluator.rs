//! Computing calls of operators while compiling.

use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Constant};
use crate::ops::{EvalError, Op};

/// Computes calls of operators whose arguments are constants.
///
/// A context has [`ReferenceEvaluator`] unless its builder is given another one.
pub trait Evaluator: Send + Sync {
    /// The results of a call: one, or as many as the operator's result tuple has fields.
    ///
    /// # Errors
    ///
    /// If the operator cannot be computed on these arguments.
    fn eval_call(
        &self,
        op: Op,
        attrs: &Attrs,
        args: &[Option<Constant>],
    ) -> Result<Vec<Constant>, EvalError>;
}

/// Computes with the operators' reference definitions: exact, never fast.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReferenceEvaluator;

impl Evaluator for ReferenceEvaluator {
    fn eval_call(
        &self,
        op: Op,
        attrs: &Attrs,
        args: &[Option<Constant>],
    ) -> Result<Vec<Constant>, EvalError> {
        let failed = |error: &dyn std::error::Error| EvalError::new(error.to_string());
        let tensors: Vec<Option<Tensor>> = args
            .iter()
            .map(|arg| arg.as_ref().map(Tensor::from_constant).transpose())
            .collect::<Result<_, _>>()
            .map_err(|error| failed(&error))?;
        let tensors: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_ref).collect();
        let results = op.definition().evaluate(attrs, &tensors)?;
        results.iter().map(|tensor| tensor.to_constant().map_err(|error| failed(&error))).collect()
    }
}
