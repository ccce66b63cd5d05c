//! Operators that only training needs, in terms of simpler ones.

use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, IRModule};
use crate::ops::nn::{BATCH_NORM, BatchNormAttrs, DROPOUT};
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs};
use crate::ops::{Op, elementwise};
use crate::pass::{PassContext, PassError, Result, function_pass};
use crate::transform::InferType;

/// Expands batch normalisation into a multiplication and an addition, and drops dropout.
///
/// `batch_norm(x, gamma, beta, mean, var).0` becomes `x · s + (-mean · s + beta)` with
/// `s = 1 / √(var + epsilon) · gamma`: with constant statistics, one factor and one summand for
/// each channel. `dropout(x).0` becomes `x`.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn simplify_inference(
    function: Function,
    _module: &IRModule,
    _cx: &PassContext,
) -> Result<Function> {
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        let &Expr::TupleGet { tuple, index: 0 } = rewriter.old().expr(id) else { continue };
        let tuple = rewriter.mapped(tuple);
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) =
            rewriter.builder().expr(tuple).clone()
        else {
            continue;
        };
        let args: Option<Vec<ExprId>> = args.into_iter().collect();
        match args.as_deref() {
            Some(&[x]) if op.is(&DROPOUT) => rewriter.replace(x),
            Some(&[x, gamma, beta, mean, var]) if op.is(&BATCH_NORM) => {
                let attrs = attrs.parse()?;
                let y = batch_norm(rewriter.builder(), [x, gamma, beta, mean, var], &attrs)?;
                rewriter.replace(y);
            }
            _ => {}
        }
    }
    Ok(rewriter.finish()?)
}

/// The normalised tensor.
fn batch_norm(
    b: &mut FunctionBuilder,
    [x, gamma, beta, mean, var]: [ExprId; 5],
    BatchNormAttrs { axis, epsilon }: &BatchNormAttrs,
) -> Result<ExprId> {
    let ty = b.ty(x).as_tensor().cloned().ok_or("batch_norm takes a tensor")?;
    let axis = ty.shape.axis(*axis).ok_or("the axis of batch_norm is out of range")?;
    let scalar = |value| {
        Constant::scalar(value, ty.dtype)
            .ok_or_else(|| PassError::new(format!("batch_norm cannot be of {}", ty.dtype)))
    };
    let (one, epsilon) = (b.constant(scalar(1.0)?), b.constant(scalar(*epsilon)?));
    let mut call =
        |op: &'static crate::ops::OpDef, args: &[ExprId]| b.call(Op::new(op), args, Attrs::new());
    let shifted = call(&elementwise::ADD, &[var, epsilon])?;
    let deviation = call(&elementwise::SQRT, &[shifted])?;
    let inverse = call(&elementwise::DIVIDE, &[one, deviation])?;
    let scale = call(&elementwise::MULTIPLY, &[inverse, gamma])?;
    let negative = call(&elementwise::NEGATIVE, &[mean])?;
    let offset = call(&elementwise::MULTIPLY, &[negative, scale])?;
    let shift = call(&elementwise::ADD, &[offset, beta])?;
    let (scale, shift) = (
        along_axis(b, scale, axis, ty.shape.rank())?,
        along_axis(b, shift, axis, ty.shape.rank())?,
    );
    let scaled = b.call(Op::new(&elementwise::MULTIPLY), &[x, scale], Attrs::new())?;
    Ok(b.call(Op::new(&elementwise::ADD), &[scaled, shift], Attrs::new())?)
}

/// A vector with as many axes of one after it as make it run along `axis` of `rank` axes.
fn along_axis(b: &mut FunctionBuilder, vector: ExprId, axis: usize, rank: usize) -> Result<ExprId> {
    if axis + 1 == rank {
        return Ok(vector);
    }
    let attrs = ExpandDimsAttrs { axis: (1..(rank - axis) as i64).collect() };
    Ok(b.call(Op::new(&EXPAND_DIMS), &[vector], Attrs::from_struct(&attrs)?)?)
}
