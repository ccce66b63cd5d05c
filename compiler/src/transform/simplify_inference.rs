//! Operators that only training needs, in terms of simpler ones.

use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule};
use crate::ops::elementwise::CastAttrs;
use crate::ops::nn::{BATCH_NORM, BatchNormAttrs, DROPOUT};
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs};
use crate::ops::{Op, elementwise};
use crate::pass::{PassContext, PassError, Result, function_pass};
use crate::transform::InferType;

/// Expands batch normalisation into a multiplication and an addition, and drops dropout.
///
/// `batch_norm(x, gamma, beta, mean, var).0` becomes `x · s + (-mean · s + beta)` with
/// `s = 1 / √(var + epsilon) · gamma`: with constant statistics, one factor and one summand for
/// each channel. Those of 16-bit floats are computed in `float32`. `dropout(x).0` becomes `x`.
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
    let wide = ty.dtype.accumulator();
    let scalar = |value| {
        Constant::scalar(value, wide)
            .ok_or_else(|| PassError::new(format!("batch_norm cannot be of {}", ty.dtype)))
    };
    let mut given = [x, gamma, beta, mean, var];
    for value in given.iter_mut().filter(|_| wide != ty.dtype) {
        *value = cast(b, *value, wide)?;
    }
    let [x, gamma, beta, mean, var] = given;
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
    let sum = b.call(Op::new(&elementwise::ADD), &[scaled, shift], Attrs::new())?;
    if wide == ty.dtype { Ok(sum) } else { cast(b, sum, ty.dtype) }
}

fn cast(b: &mut FunctionBuilder, value: ExprId, dtype: DType) -> Result<ExprId> {
    let attrs = Attrs::from_struct(&CastAttrs::to(dtype))?;
    Ok(b.call(Op::new(&elementwise::CAST), &[value], attrs)?)
}

/// A vector with enough axes of extent one after it to run along `axis` of `rank` axes.
fn along_axis(b: &mut FunctionBuilder, vector: ExprId, axis: usize, rank: usize) -> Result<ExprId> {
    if axis + 1 == rank {
        return Ok(vector);
    }
    let attrs = ExpandDimsAttrs { axis: (1..(rank - axis) as i64).collect() };
    Ok(b.call(Op::new(&EXPAND_DIMS), &[vector], Attrs::from_struct(&attrs)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::nn::DropoutAttrs;
    use crate::transform::tests::support::{Net, after, count, show};

    fn norm(net: &mut Net, x: ExprId, axis: i64) -> ExprId {
        let args: Vec<ExprId> = (0..4).map(|i| net.tensor(&[3], i as f32 + 0.5)).collect();
        let attrs = BatchNormAttrs { axis, epsilon: 0.5 };
        net.op_with("nn.batch_norm", &[x, args[0], args[1], args[2], args[3]], &attrs)
    }

    #[test]
    fn batch_norm_becomes_a_factor_and_a_summand() {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let bn = norm(&mut net, x, 1);
        let y = net.0.tuple_get(bn, 0).unwrap();
        let function = after(&SimplifyInference, net.finish(y));
        let s = "multiply(divide(1, sqrt(add(c(3), 0.5))), c(3))";
        assert_eq!(
            show(&function),
            format!("add(multiply(x, {s}), add(multiply(negative(c(3)), {s}), c(3)))")
        );
        // The factor is computed once.
        assert_eq!(count(&function, "sqrt"), 1);
    }

    #[test]
    fn per_channel_vectors_are_expanded_along_their_axis() {
        for (axis, expanded) in [(0, [3, 1, 1, 1].as_slice()), (-2, &[3, 1])] {
            let mut net = Net::default();
            let x = net.input("x", &[3, 2, 3, 2]);
            let bn = norm(&mut net, x, axis);
            let y = net.0.tuple_get(bn, 0).unwrap();
            let function = after(&SimplifyInference, net.finish(y));
            let shapes: Vec<_> = function
                .iter()
                .filter(|(_, data)| data.expr.is_call_of(&EXPAND_DIMS))
                .map(|(_, data)| data.ty.as_tensor().unwrap().shape.as_consts().unwrap())
                .collect();
            let expanded: Vec<u64> = expanded.iter().map(|&d| d as u64).collect();
            assert_eq!(shapes, [expanded.clone(), expanded]);
        }
    }

    #[test]
    fn a_batch_norm_with_other_results_in_use_stays() {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let bn = norm(&mut net, x, 1);
        let fields: Vec<ExprId> = (0..2).map(|i| net.0.tuple_get(bn, i).unwrap()).collect();
        let both = net.0.tuple(&fields);
        let function = after(&SimplifyInference, net.finish(both));
        assert_eq!(count(&function, "nn.batch_norm"), 1);
        assert_eq!(count(&function, "sqrt"), 1);
    }

    #[test]
    fn dropout_is_removed() {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let dropout = net.op_with("nn.dropout", &[x], &DropoutAttrs { rate: 0.5 });
        let y = net.0.tuple_get(dropout, 0).unwrap();
        let z = net.op("nn.relu", &[y]);
        assert_eq!(show(&after(&SimplifyInference, net.finish(z))), "nn.relu(x)");
    }
}
