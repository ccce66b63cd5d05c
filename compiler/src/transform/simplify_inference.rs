//! Normalisations, and operators that only training needs, in terms of simpler ones.

use super::calls::{along_axis, call, call_with, cast, op_of, tensor};
use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, DType, Dim, IRModule, TensorType};
use crate::ops::nn::{
    BATCH_NORM, BatchNormAttrs, DROPOUT, GROUP_NORM, GroupNormAttrs, INSTANCE_NORM,
    InstanceNormAttrs, L2_NORMALIZE, L2NormalizeAttrs, LAYER_NORM, LayerNormAttrs, RMS_NORM,
    RmsNormAttrs,
};
use crate::ops::reduce::{MEAN, ReduceAttrs, SUM};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs};
use crate::ops::{Op, OpDef, elementwise};
use crate::pass::{PassContext, PassError, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Whether layer normalisation is expanded, too, which has a kernel of its own.
    pub UNPACK_LAYER_NORM: bool = "relay.SimplifyInference.unpack_layer_norm";
}

/// Expands normalisations into arithmetic, and drops dropout.
///
/// `batch_norm(x, gamma, beta, mean, var).0` becomes `x · s + (-mean · s + beta)` with
/// `s = 1 / √(var + epsilon) · gamma`: with constant statistics, one factor and one summand for
/// each channel. Those of 16-bit floats are computed in `float32`. `dropout(x).0` becomes `x`.
/// `group_norm`, `instance_norm`, `rms_norm` and `l2_normalize` become means or sums, a root and a
/// quotient, and so does `layer_norm` with `relay.SimplifyInference.unpack_layer_norm`.
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
        if let Some((op, norm)) = op_of(old.expr(id)) {
            let args = rewriter.args(norm);
            if let Some(y) = by_statistics(rewriter.builder(), op, &args, &norm.attrs, unpacks)? {
                rewriter.replace(y);
            }
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

/// What a normalisation by an argument's own statistics is, if the operator is one.
pub(super) fn by_statistics(
    b: &mut FunctionBuilder,
    op: Op,
    args: &[Option<ExprId>],
    attrs: &Attrs,
    unpacks_layer_norm: bool,
) -> Result<Option<ExprId>> {
    let y = if op.is(&LAYER_NORM) && unpacks_layer_norm {
        layer_norm(b, args, &attrs.parse()?)?
    } else if op.is(&GROUP_NORM) {
        let GroupNormAttrs { num_groups, axis, epsilon } = attrs.parse()?;
        group_norm(b, args, axis, Some(num_groups), epsilon)?
    } else if op.is(&INSTANCE_NORM) {
        let InstanceNormAttrs { axis, epsilon } = attrs.parse()?;
        group_norm(b, args, axis, None, epsilon)?
    } else if op.is(&RMS_NORM) {
        rms_norm(b, args, &attrs.parse()?)?
    } else if let (true, &[Some(x)]) = (op.is(&L2_NORMALIZE), args) {
        l2_normalize(b, x, attrs.parse()?)?
    } else {
        return Ok(None);
    };
    Ok(Some(y))
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
    let wide = ty.dtype.accumulator();
    let x = cast(b, x, wide)?;
    let y = standardised(b, x, from_axis(&ty, *axis)?, *epsilon, None)?;
    let y = scaled(b, y, arg(1), arg(2))?;
    cast(b, y, ty.dtype)
}

/// `group_norm` of `x`, `gamma` and `beta`, of which all but the first may be absent; without a number
/// of groups `instance_norm`.
fn group_norm(
    b: &mut FunctionBuilder,
    args: &[Option<ExprId>],
    axis: i64,
    groups: Option<i64>,
    epsilon: f64,
) -> Result<ExprId> {
    let arg = |index: usize| args.get(index).copied().flatten();
    let x = arg(0).ok_or("group_norm takes a tensor")?;
    let ty = tensor(b, x)?;
    let rank = ty.shape.rank();
    let axis = ty.shape.axis(axis).ok_or("the axis of group_norm is out of range")?;
    let wide = ty.dtype.accumulator();
    let mut y = cast(b, x, wide)?;
    let mut dims = ty.shape.to_vec();
    if let Some(groups) = groups {
        let of_group = dims[axis].floor_div(&Dim::from(groups));
        dims.splice(axis..=axis, [Dim::from(groups), of_group]);
        let newshape = dims.clone();
        y = call_with(b, &RESHAPE, &[y], &ReshapeAttrs { newshape })?;
    }
    let over = (1..dims.len()).filter(|&other| other != axis).map(|other| other as i64).collect();
    let mut along = |index| -> Result<Option<ExprId>> {
        arg(index).map(|vector| along_axis(b, vector, axis, rank)).transpose()
    };
    let (gamma, beta) = (along(1)?, along(2)?);
    let (early, late) = if groups.is_some() { (None, gamma) } else { (gamma, None) };
    y = standardised(b, y, over, epsilon, early)?;
    if groups.is_some() {
        let newshape = ty.shape.to_vec();
        y = call_with(b, &RESHAPE, &[y], &ReshapeAttrs { newshape })?;
    }
    let y = scaled(b, y, late, beta)?;
    cast(b, y, ty.dtype)
}

/// `rms_norm` of `x` and `gamma`, which may be absent.
fn rms_norm(
    b: &mut FunctionBuilder,
    args: &[Option<ExprId>],
    RmsNormAttrs { axis, epsilon }: &RmsNormAttrs,
) -> Result<ExprId> {
    let arg = |index: usize| args.get(index).copied().flatten();
    let x = arg(0).ok_or("rms_norm takes a tensor")?;
    let ty = tensor(b, x)?;
    let x = cast(b, x, ty.dtype.accumulator())?;
    let squares = call(b, &elementwise::MULTIPLY, &[x, x])?;
    let over = ReduceAttrs { axis: from_axis(&ty, *axis)?, keepdims: true };
    let mean = call_with(b, &MEAN, &[squares], &over)?;
    let root = root_of_sum(b, mean, &elementwise::ADD, *epsilon)?;
    let y = call(b, &elementwise::DIVIDE, &[x, root])?;
    let y = scaled(b, y, arg(1), None)?;
    cast(b, y, ty.dtype)
}

fn l2_normalize(
    b: &mut FunctionBuilder,
    x: ExprId,
    L2NormalizeAttrs { eps, axis }: L2NormalizeAttrs,
) -> Result<ExprId> {
    let dtype = tensor(b, x)?.dtype;
    let x = cast(b, x, dtype.accumulator())?;
    let squares = call(b, &elementwise::MULTIPLY, &[x, x])?;
    let sum = call_with(b, &SUM, &[squares], &ReduceAttrs { axis, keepdims: true })?;
    let root = root_of_sum(b, sum, &elementwise::MAXIMUM, eps)?;
    let y = call(b, &elementwise::DIVIDE, &[x, root])?;
    cast(b, y, dtype)
}

/// The axes from `axis` on.
fn from_axis(ty: &TensorType, axis: i64) -> Result<Vec<i64>> {
    let first = ty.shape.axis(axis).ok_or("the axis of a normalisation is out of range")?;
    Ok((first as i64..ty.shape.rank() as i64).collect())
}

/// `(x - mean) · (gamma / √(variance + epsilon))`, with mean and variance along some axes, and a `gamma` for
/// each of them, or none.
fn standardised(
    b: &mut FunctionBuilder,
    x: ExprId,
    axis: Vec<i64>,
    epsilon: f64,
    gamma: Option<ExprId>,
) -> Result<ExprId> {
    let over = ReduceAttrs { axis, keepdims: true };
    let mean = call_with(b, &MEAN, &[x], &over)?;
    let centred = call(b, &elementwise::SUBTRACT, &[x, mean])?;
    let squares = call(b, &elementwise::MULTIPLY, &[centred, centred])?;
    let variance = call_with(b, &MEAN, &[squares], &over)?;
    let deviation = root_of_sum(b, variance, &elementwise::ADD, epsilon)?;
    let dtype = tensor(b, x)?.dtype;
    let factor = match gamma {
        Some(gamma) => cast(b, gamma, dtype)?,
        None => number(b, 1.0, dtype)?,
    };
    let factor = call(b, &elementwise::DIVIDE, &[factor, deviation])?;
    // The same difference in other words: one that is read twice would be stored in between.
    let opposite = call(b, &elementwise::NEGATIVE, &[mean])?;
    let centred = call(b, &elementwise::ADD, &[x, opposite])?;
    call(b, &elementwise::MULTIPLY, &[centred, factor])
}

/// The root of a value to which a number was added, or whatever else `op` does.
fn root_of_sum(
    b: &mut FunctionBuilder,
    value: ExprId,
    op: &'static OpDef,
    number: f64,
) -> Result<ExprId> {
    let dtype = tensor(b, value)?.dtype;
    let number = self::number(b, number, dtype)?;
    let value = call(b, op, &[value, number])?;
    call(b, &elementwise::SQRT, &[value])
}

fn number(b: &mut FunctionBuilder, value: f64, dtype: DType) -> Result<ExprId> {
    let number = Constant::scalar(value, dtype)
        .ok_or_else(|| PassError::new(format!("a normalisation cannot be of {dtype}")))?;
    Ok(b.constant(number))
}

/// `value · gamma + beta` in the type of the value.
fn scaled(
    b: &mut FunctionBuilder,
    mut value: ExprId,
    gamma: Option<ExprId>,
    beta: Option<ExprId>,
) -> Result<ExprId> {
    let dtype = tensor(b, value)?.dtype;
    for (operand, op) in [(gamma, &elementwise::MULTIPLY), (beta, &elementwise::ADD)] {
        if let Some(operand) = operand {
            let operand = cast(b, operand, dtype)?;
            value = call(b, op, &[value, operand])?;
        }
    }
    Ok(value)
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
