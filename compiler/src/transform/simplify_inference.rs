//! Operators that only training needs, in terms of simpler ones.

use super::calls::{along_axis, call, call_with, cast, op_of, tensor};
use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, IRModule};
use crate::ops::nn::{BATCH_NORM, BatchNormAttrs, DROPOUT, LAYER_NORM, LayerNormAttrs};
use crate::ops::reduce::{MEAN, ReduceAttrs};
use crate::ops::{Op, elementwise};
use crate::pass::{PassContext, PassError, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Whether layer normalisation is expanded, too, which has a kernel of its own.
    pub UNPACK_LAYER_NORM: bool = "relay.SimplifyInference.unpack_layer_norm";
}

/// Expands batch normalisation into a multiplication and an addition, and drops dropout.
///
/// `batch_norm(x, gamma, beta, mean, var).0` becomes `x · s + (-mean · s + beta)` with
/// `s = 1 / √(var + epsilon) · gamma`: with constant statistics, one factor and one summand for
/// each channel. Those of 16-bit floats are computed in `float32`. `dropout(x).0` becomes `x`. With
/// `relay.SimplifyInference.unpack_layer_norm`, `layer_norm` becomes means, a root and a quotient.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn simplify_inference(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let unpacks = cx.get(&UNPACK_LAYER_NORM);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        if let Some((op, norm)) = op_of(old.expr(id)).filter(|_| unpacks)
            && op.is(&LAYER_NORM)
        {
            let (args, attrs) = (rewriter.args(norm), norm.attrs.parse()?);
            let y = layer_norm(rewriter.builder(), &args, &attrs)?;
            rewriter.replace(y);
            continue;
        }
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
    BatchNormAttrs { axis, epsilon, center, scale: scales }: &BatchNormAttrs,
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
    let mut call = |op: &'static crate::ops::OpDef, args: &[ExprId]| call(b, op, args);
    let shifted = call(&elementwise::ADD, &[var, epsilon])?;
    let deviation = call(&elementwise::SQRT, &[shifted])?;
    let inverse = call(&elementwise::DIVIDE, &[one, deviation])?;
    let scale = if *scales { call(&elementwise::MULTIPLY, &[inverse, gamma])? } else { inverse };
    let negative = call(&elementwise::NEGATIVE, &[mean])?;
    let offset = call(&elementwise::MULTIPLY, &[negative, scale])?;
    let shift = if *center { call(&elementwise::ADD, &[offset, beta])? } else { offset };
    let (scale, shift) = (
        along_axis(b, scale, axis, ty.shape.rank())?,
        along_axis(b, shift, axis, ty.shape.rank())?,
    );
    let scaled = b.call(Op::new(&elementwise::MULTIPLY), &[x, scale], Attrs::new())?;
    let sum = b.call(Op::new(&elementwise::ADD), &[scaled, shift], Attrs::new())?;
    if wide == ty.dtype { Ok(sum) } else { cast(b, sum, ty.dtype) }
}

/// `layer_norm` of `x`, `gamma` and `beta`, of which all but the first may be absent.
fn layer_norm(
    b: &mut FunctionBuilder,
    args: &[Option<ExprId>],
    LayerNormAttrs { axis, epsilon }: &LayerNormAttrs,
) -> Result<ExprId> {
    let arg = |index: usize| args.get(index).copied().flatten();
    let x = arg(0).ok_or("layer_norm takes a tensor")?;
    let ty = tensor(b, x)?;
    let rank = ty.shape.rank();
    let first = ty.shape.axis(*axis).ok_or("the axis of layer_norm is out of range")?;
    let wide = ty.dtype.accumulator();
    let epsilon = Constant::scalar(*epsilon, wide)
        .ok_or_else(|| PassError::new(format!("layer_norm cannot be of {}", ty.dtype)))?;
    let over = ReduceAttrs { axis: (first as i64..rank as i64).collect(), keepdims: true };
    let x = cast(b, x, wide)?;
    let mean = call_with(b, &MEAN, &[x], &over)?;
    let centred = call(b, &elementwise::SUBTRACT, &[x, mean])?;
    let squares = call(b, &elementwise::MULTIPLY, &[centred, centred])?;
    let variance = call_with(b, &MEAN, &[squares], &over)?;
    let epsilon = b.constant(epsilon);
    let variance = call(b, &elementwise::ADD, &[variance, epsilon])?;
    let deviation = call(b, &elementwise::SQRT, &[variance])?;
    let mut y = call(b, &elementwise::DIVIDE, &[centred, deviation])?;
    for (index, op) in [(1, &elementwise::MULTIPLY), (2, &elementwise::ADD)] {
        if let Some(operand) = arg(index) {
            let operand = cast(b, operand, wide)?;
            y = call(b, op, &[y, operand])?;
        }
    }
    cast(b, y, ty.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::nn::DropoutAttrs;
    use crate::ops::tensor::EXPAND_DIMS;
    use crate::transform::tests::support::{Net, after, count, show};

    fn norm(net: &mut Net, x: ExprId, axis: i64) -> ExprId {
        let args: Vec<ExprId> = (0..4).map(|i| net.tensor(&[3], i as f32 + 0.5)).collect();
        let attrs = BatchNormAttrs::new(axis, 0.5);
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
