//! Factors and summands of channels, folded into weights.

use super::channels::{per_channel, scale_weights, vector};
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, IRModule, TensorType, normalize_axis};
use crate::ops::elementwise::{ADD, MULTIPLY, SUBTRACT};
use crate::ops::nn::{
    BIAS_ADD, BiasAddAttrs, CONV1D, CONV2D, CONV3D, Conv1dAttrs, Conv2dAttrs, Conv3dAttrs, DENSE,
};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Folds constant factors and summands of channels into the weights and biases of convolutions and
/// dense layers.
///
/// `conv(x, w, b) · s + t` becomes `conv(x, w · s, b · s + t)`, `conv(x · s, w)` becomes
/// `conv(x, w · s)`; `s` and `t` have one element for each channel. The convolution, or the product
/// before it, must have no other use.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn fold_scale_axis(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let uses = function.use_counts();
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some(call) = old.expr(id).as_call() else { continue };
        let Callee::Op(op) = call.callee else { continue };
        let folded = if let Some(layer) = Layer::of(op) {
            // The factor of what goes in.
            match call.args[0] {
                Some(x) if uses[x] == 1 => fold_into_input(&mut rewriter, layer, call)?,
                _ => None,
            }
        } else {
            match (change_of(op), call.args.as_slice()) {
                (Some(change), &[Some(lhs), Some(rhs)]) => {
                    let (value, other) = if change.commutes() && is_layer(&mut rewriter, rhs) {
                        (rhs, lhs)
                    } else {
                        (lhs, rhs)
                    };
                    if is_layer(&mut rewriter, value) && uses[value] != 1 {
                        cx.missed(id, "what the layer computes is used elsewhere, too");
                        None
                    } else {
                        fold_into_output(&mut rewriter, change, call, value, other)?
                    }
                }
                _ => None,
            }
        };
        if let Some(new) = folded {
            cx.count("folded", 1);
            rewriter.replace(new);
        }
    }
    Ok(rewriter.finish()?)
}

/// What is done to the result of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Scale,
    Add,
    Subtract,
    /// `nn.bias_add`, whose axis is an attribute.
    Bias,
}

impl Change {
    fn commutes(self) -> bool {
        matches!(self, Change::Scale | Change::Add)
    }
}

fn change_of(op: Op) -> Option<Change> {
    let changes: [(&OpDef, Change); 4] = [
        (&MULTIPLY, Change::Scale),
        (&ADD, Change::Add),
        (&SUBTRACT, Change::Subtract),
        (&BIAS_ADD, Change::Bias),
    ];
    changes.into_iter().find(|(def, _)| op.is(def)).map(|(_, change)| change)
}

/// A layer with weights, whose first axis is that of its output channels and whose second that of
/// its input channels in a group.
#[derive(Clone, Copy)]
struct Layer {
    op: Op,
    /// Number of axes after that of the channels, in `x` and in the result.
    spatial: usize,
    /// Whether there may be a bias.
    bias: bool,
}

impl Layer {
    fn of(op: Op) -> Option<Layer> {
        let layers: [(&OpDef, usize); 4] = [(&CONV1D, 1), (&CONV2D, 2), (&CONV3D, 3), (&DENSE, 0)];
        let (_, spatial) = layers.into_iter().find(|(def, _)| op.is(def))?;
        Some(Layer { op, spatial, bias: spatial > 0 })
    }

    fn groups(self, attrs: &Attrs) -> Result<i64> {
        Ok(match self.spatial {
            1 => attrs.parse::<Conv1dAttrs>()?.groups,
            2 => attrs.parse::<Conv2dAttrs>()?.groups,
            3 => attrs.parse::<Conv3dAttrs>()?.groups,
            _ => 1,
        })
    }
}

/// A layer of the new function, and its constant weights.
struct Found {
    layer: Layer,
    x: ExprId,
    weight: Constant,
    bias: Option<ExprId>,
    attrs: Attrs,
    /// Number of axes of the result.
    rank: usize,
    /// Where the weights came from.
    weight_id: ExprId,
}

fn is_layer(rewriter: &mut Rewriter, old: ExprId) -> bool {
    let new = rewriter.mapped(old);
    match rewriter.builder().expr(new) {
        Expr::Call(Call { callee: Callee::Op(op), .. }) => Layer::of(*op).is_some(),
        _ => false,
    }
}

fn find_layer(rewriter: &mut Rewriter, new: ExprId) -> Option<Found> {
    let b = rewriter.builder();
    let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = b.expr(new).clone() else {
        return None;
    };
    let layer = Layer::of(op)?;
    let (x, weight_id) = (args.first().copied()??, args.get(1).copied()??);
    let weight = b.expr(weight_id).as_constant()?.clone();
    let rank = b.ty(new).as_tensor()?.shape.rank();
    let bias = args.get(2).copied().flatten();
    (!weight.is_opaque()).then_some(Found { layer, x, weight, bias, attrs, rank, weight_id })
}

/// The layer with a change of its result folded in, if there is such a layer.
fn fold_into_output(
    rewriter: &mut Rewriter,
    change: Change,
    call: &Call,
    value: ExprId,
    other: ExprId,
) -> Result<Option<ExprId>> {
    let (value, other) = (rewriter.mapped(value), rewriter.mapped(other));
    let Some(found) = find_layer(rewriter, value) else { return Ok(None) };
    let Some(operand) = rewriter.builder().expr(other).as_constant().cloned() else {
        return Ok(None);
    };
    let Some(channels) = dim(found.weight.ty(), 0) else { return Ok(None) };
    let channel_axis = found.rank - 1 - found.layer.spatial;
    let operand = if change == Change::Bias {
        let BiasAddAttrs { axis } = call.attrs.parse()?;
        let runs_along = normalize_axis(axis, found.rank) == Some(channel_axis);
        runs_along.then(|| operand.to_f64_vec()).flatten()
    } else {
        per_channel(&operand, found.rank, channel_axis, channels)
    };
    let Some(operand) = operand else { return Ok(None) };
    let dtype = found.weight.ty().dtype;
    let bias = match found.bias {
        None => None,
        Some(bias) => {
            match rewriter.builder().expr(bias).as_constant().and_then(Constant::to_f64_vec) {
                Some(bias) => Some(bias),
                None => return Ok(None),
            }
        }
    };
    let (weight, bias) = match change {
        Change::Scale => {
            let weight = scale_weights(&found.weight, &operand, |output, _| output);
            let Some(weight) = weight else { return Ok(None) };
            (Some(weight), bias.map(|bias| zip(&bias, &operand, |b, s| b * s)))
        }
        Change::Add | Change::Subtract | Change::Bias if !found.layer.bias => return Ok(None),
        Change::Add | Change::Subtract | Change::Bias => {
            let sign = if change == Change::Subtract { -1.0 } else { 1.0 };
            let bias = bias.unwrap_or_else(|| vec![0.0; operand.len()]);
            (None, Some(zip(&bias, &operand, |b, t| b + sign * t)))
        }
    };
    let weight = weight.map_or(found.weight_id, |weight| rewriter.builder().constant(weight));
    let mut args = vec![Some(found.x), Some(weight)];
    if let Some(bias) = bias {
        let Some(bias) = vector(&bias, dtype) else { return Ok(None) };
        args.push(Some(rewriter.builder().constant(bias)));
    }
    let call = rewriter.builder().call_optional(found.layer.op, args, found.attrs)?;
    Ok(Some(call))
}

/// The layer with a factor of its input folded in, if its input is a product of one.
fn fold_into_input(rewriter: &mut Rewriter, layer: Layer, call: &Call) -> Result<Option<ExprId>> {
    let args = rewriter.args(call);
    let &[Some(product), Some(weight_id), ..] = args.as_slice() else { return Ok(None) };
    let b = rewriter.builder();
    let Expr::Call(Call { callee: Callee::Op(op), args: factors, attrs: _ }) = b.expr(product)
    else {
        return Ok(None);
    };
    let &[Some(lhs), Some(rhs)] = factors.as_slice() else { return Ok(None) };
    if !op.is(&MULTIPLY) {
        return Ok(None);
    }
    let constant = |id: ExprId| b.expr(id).as_constant().filter(|c| !c.is_opaque()).cloned();
    let (x, scale) = match (constant(lhs), constant(rhs)) {
        (None, Some(scale)) => (lhs, scale),
        (Some(scale), None) => (rhs, scale),
        _ => return Ok(None),
    };
    let Some(weight) = constant(weight_id) else { return Ok(None) };
    let (Some(ty), Some(outputs), Some(per_group)) =
        (b.ty(x).as_tensor().cloned(), dim(weight.ty(), 0), dim(weight.ty(), 1))
    else {
        return Ok(None);
    };
    let (rank, groups) = (ty.shape.rank(), layer.groups(&call.attrs)?);
    // The product may be larger than what it is a product of.
    if b.ty(product) != b.ty(x) || rank < layer.spatial + 1 || groups < 1 {
        return Ok(None);
    }
    let axis = rank - 1 - layer.spatial;
    let Some(scale) = per_channel(&scale, rank, axis, per_group * groups) else {
        return Ok(None);
    };
    let outputs_of_group = (outputs / groups).max(1) as usize;
    let channel =
        |output: usize, input: usize| output / outputs_of_group * per_group as usize + input;
    let Some(weight) = scale_weights(&weight, &scale, channel) else { return Ok(None) };
    let mut args = args;
    args[0] = Some(x);
    args[1] = Some(rewriter.builder().constant(weight));
    Ok(Some(rewriter.builder().call_optional(layer.op, args, call.attrs.clone())?))
}

fn zip(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn dim(ty: &TensorType, axis: usize) -> Option<i64> {
    ty.shape.get(axis)?.as_const()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::support::{Net, after, after_in, count, show};

    fn conv(net: &mut Net, x: ExprId, groups: i64) -> ExprId {
        let w = net.tensor(&[4, 4 / groups, 1, 1], 0.5);
        net.op_with("nn.conv2d", &[x, w], &Conv2dAttrs { groups, ..Default::default() })
    }

    #[test]
    fn case_6_factors_and_summands_of_the_result_are_folded() {
        let mut net = Net::default();
        let x = net.input("x", &[1, 4, 2, 2]);
        let y = conv(&mut net, x, 1);
        let (b, s, t) =
            (net.tensor(&[4, 1, 1], 1.0), net.tensor(&[1, 4, 1, 1], 2.0), net.tensor(&[4], 3.0));
        let y = net.op("add", &[b, y]);
        let y = net.op("multiply", &[y, s]);
        let y = net.op_with("nn.bias_add", &[y, t], &BiasAddAttrs { axis: 1 });
        let two = net.scalar(2.0);
        let y = net.op("subtract", &[y, two]);
        let function = after(&FoldScaleAxis, net.finish(y));
        assert_eq!(show(&function), "nn.conv2d(x, c(4, 4, 1, 1), c(4))");
        // Channel 1: weights 1.5 … · 2.25; bias 1.25 · 2.25 + 3.25 - 2.
        let constants: Vec<Vec<f64>> =
            function.iter().filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec()).collect();
        assert_eq!(constants[0][4], 1.5 * 2.25);
        assert_eq!(constants[1][1], 1.25 * 2.25 + 3.25 - 2.0);
    }

    #[test]
    fn case_1_factors_of_the_argument_are_folded_group_by_group() {
        for groups in [1, 2, 4] {
            let mut net = Net::default();
            let x = net.input("x", &[1, 4, 2, 2]);
            let s = net.tensor(&[4, 1, 1], 2.0);
            let scaled = net.op("multiply", &[x, s]);
            let y = conv(&mut net, scaled, groups);
            let function = after(&FoldScaleAxis, net.finish(y));
            assert_eq!(count(&function, "multiply"), 0);
            let weight = function
                .iter()
                .find_map(|(_, data)| data.expr.as_constant()?.to_f64_vec())
                .unwrap();
            // Output 3 reads its group's first input, which is channel 3 / (4 / groups) · 4 / groups.
            let per_group = 4 / groups as usize;
            let channel = 3 / per_group * per_group;
            let w = 0.5 + ((3 * per_group) % 9) as f64 / 4.0;
            assert_eq!(weight[3 * per_group], w * (2.0 + channel as f64 / 4.0));
        }
    }

    #[test]
    fn case_5_dense_layers_are_scaled_and_have_no_bias() {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let w = net.tensor(&[4, 3], 0.5);
        let (a, s, t) = (net.tensor(&[3], 1.0), net.tensor(&[4], 1.0), net.tensor(&[4], 1.0));
        let x = net.op("multiply", &[x, a]);
        let y = net.op("nn.dense", &[x, w]);
        let y = net.op("multiply", &[y, s]);
        let y = net.op("add", &[y, t]);
        let function = after(&FoldScaleAxis, net.finish(y));
        assert_eq!(show(&function), "add(nn.dense(x, c(4, 3)), c(4))");
    }

    #[test]
    fn case_8_what_is_used_elsewhere_stays() {
        let mut net = Net::default();
        let x = net.input("x", &[1, 4, 2, 2]);
        let y = conv(&mut net, x, 1);
        let s = net.tensor(&[4, 1, 1], 1.0);
        let z = net.op("multiply", &[y, s]);
        let both = net.0.tuple(&[y, z]);
        let function = net.finish(both);
        let cx = PassContext::builder().remarks(true).build().unwrap();
        assert!(after_in(&FoldScaleAxis, function.clone(), &cx).same(&function));
        assert_eq!(cx.remarks().len(), 1);
        // A factor that is no constant, and one that differs along another axis.
        for dims in [[1, 4, 1, 1], [1, 1, 2, 1]] {
            let mut net = Net::default();
            let x = net.input("x", &[1, 4, 2, 2]);
            let s = if dims[2] == 2 { net.tensor(&dims, 1.0) } else { net.input("s", &dims) };
            let y = conv(&mut net, x, 1);
            let z = net.op("multiply", &[y, s]);
            let function = net.finish(z);
            assert!(after(&FoldScaleAxis, function.clone()).same(&function));
        }
    }
}
