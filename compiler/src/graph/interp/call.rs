//! One call of an operator.

use std::sync::Arc;

use super::{Tensor, Value};
use crate::ir::{Attrs, Type};
use crate::ops::Op;

/// Evaluates an operator; `ty` is the type of the call.
///
/// # Errors
///
/// If the operator has an effect, or its evaluation fails.
pub(super) fn call_op(
    op: Op,
    attrs: &Attrs,
    args: &[Option<Value>],
    ty: &Type,
) -> Result<Value, String> {
    let mut tensors: Vec<Option<&Tensor>> = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        match arg {
            None => tensors.push(None),
            Some(Value::Tensor(tensor)) => tensors.push(Some(tensor)),
            Some(Value::Tuple(_) | Value::Function(_)) => {
                return Err(format!("argument {index} is no tensor"));
            }
        }
    }
    let results = op.definition().evaluate(attrs, &tensors).map_err(|error| error.to_string())?;
    let mut results = results.into_iter().map(|tensor| Value::Tensor(Arc::new(tensor)));
    match ty {
        Type::Tuple(_) => Ok(Value::tuple(results)),
        Type::Tensor(_) | Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => {
            match (results.next(), results.next()) {
                (Some(result), None) => Ok(result),
                _ => Err("the operator did not yield one result".to_owned()),
            }
        }
    }
}
