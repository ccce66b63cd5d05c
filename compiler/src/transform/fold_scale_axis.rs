//! Factors and summands of channels, folded into weights.

use cranelift_entity::SecondaryMap;

use super::channels::{per_channel, scale_weights, vector};
use crate::analysis::UseCounts;
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, IRModule, normalize_axis};
use crate::ops::elementwise::{ADD, MULTIPLY, SUBTRACT};
use crate::ops::nn::{
    BIAS_ADD, BiasAddAttrs, CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE, MATMUL, MatmulAttrs,
};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Folds constant factors and summands of channels into weights and biases.
///
/// Those of convolutions, dense layers and products with a constant matrix.
/// `conv(x, w, b) · s + t` becomes `conv(x, w · s, b · s + t)`, `(dense(x, w) + b) · s` becomes
/// `dense(x, w · s) + b · s`, and `conv(x · s, w)` becomes `conv(x, w · s)`; `s` and `t` have one
/// element for each channel. What is folded into must have no other use.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn fold_scale_axis(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let uses = cx.analysis::<UseCounts>(&function);
    let mut folder = Folder { rewriter: Rewriter::new(function), biased: SecondaryMap::new() };
    while let Some(id) = folder.rewriter.next_call()? {
        let old = folder.rewriter.old().clone();
        let Some(call) = old.expr(id).as_call() else { continue };
        let Callee::Op(op) = call.callee else { continue };
        let folded = if let Some(layer) = Layer::of(op, &call.attrs)? {
            match call.args[0] {
                Some(x) if uses[x] == 1 => folder.fold_into_input(layer, call)?,
                _ => None,
            }
        } else {
            match folder.change(op, call) {
                Some((_, value, _)) if uses[value] != 1 => {
                    cx.missed(id, "what the layer computes is used elsewhere, too");
                    None
                }
                Some((change, value, other)) => {
                    folder.fold_into_output(change, call, value, other)?
                }
                None => None,
            }
        };
        if let Some(new) = folded {
            cx.count("folded", 1);
            folder.rewriter.replace(new);
        }
    }
    Ok(folder.rewriter.finish()?)
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
    fn of(op: Op) -> Option<Change> {
        let changes: [(&OpDef, Change); 4] = [
            (&MULTIPLY, Change::Scale),
            (&ADD, Change::Add),
            (&SUBTRACT, Change::Subtract),
            (&BIAS_ADD, Change::Bias),
        ];
        changes.into_iter().find(|(def, _)| op.is(def)).map(|(_, change)| change)
    }

    fn commutes(self) -> bool {
        matches!(self, Change::Scale | Change::Add)
    }
}

/// A linear layer. The first two axes of its weights are those of the output channels and of the
/// input channels of a group.
#[derive(Clone, Copy)]
struct Layer {
    op: Op,
    /// Number of axes after that of the channels, in `x` and in the result.
    spatial: usize,
    /// Whether there may be a third argument, the bias.
    takes_bias: bool,
    /// The axis of the weights, 0 or 1, that the output channels run along.
    output_axis: usize,
    groups: i64,
}

impl Layer {
    fn of(op: Op, attrs: &Attrs) -> Result<Option<Layer>> {
        let product =
            |output_axis| Layer { op, spatial: 0, takes_bias: false, output_axis, groups: 1 };
        Ok(if [&CONV1D, &CONV2D, &CONV3D].iter().any(|def| op.is(def)) {
            let ConvAttrs { strides, groups, .. } = attrs.parse()?;
            let spatial = strides.len();
            Some(Layer { op, spatial, takes_bias: true, output_axis: 0, groups })
        } else if op.is(&DENSE) {
            Some(product(0))
        } else if op.is(&MATMUL) {
            let MatmulAttrs { transpose_a, transpose_b } = attrs.parse()?;
            (!transpose_a).then(|| product(if transpose_b { 0 } else { 1 }))
        } else {
            None
        })
    }

    /// Whether weights have the axes that this one's must have.
    fn has_rank_of(self, weight: &Constant) -> bool {
        weight.ty().shape.rank() == 2 + self.spatial
    }

    /// Number of output channels.
    fn outputs(self, weight: &Constant) -> Option<i64> {
        weight.ty().shape.get(self.output_axis)?.as_const()
    }

    /// Weights with each output channel multiplied by its factor.
    fn scale_outputs(self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        match self.output_axis {
            0 => scale_weights(weight, factors, |output, _| output),
            _ => scale_weights(weight, factors, |_, output| output),
        }
    }

    /// Weights with each input channel multiplied by its factor, one for each channel of `x`.
    fn scale_inputs(self, weight: &Constant, factors: &[f64]) -> Option<Constant> {
        if self.output_axis == 1 {
            return scale_weights(weight, factors, |input, _| input);
        }
        let groups = usize::try_from(self.groups).ok()?;
        let outputs_of_group = (usize::try_from(self.outputs(weight)?).ok()? / groups).max(1);
        let inputs_of_group = factors.len() / groups;
        scale_weights(weight, factors, |output, input| {
            output / outputs_of_group * inputs_of_group + input
        })
    }
}

/// A layer of the new function whose weights, and bias if it has one, are constants.
struct Found {
    layer: Layer,
    attrs: Attrs,
    x: ExprId,
    weight: ExprId,
    bias: Option<Vec<f64>>,
}

struct Folder {
    rewriter: Rewriter,
    /// Sums, in the new function, of a layer that takes no bias and a constant, where nothing else
    /// uses the layer.
    biased: SecondaryMap<ExprId, bool>,
}

impl Folder {
    /// What a call does to the result of a layer, which argument that is, and the other one.
    fn change(&mut self, op: Op, call: &Call) -> Option<(Change, ExprId, ExprId)> {
        let change = Change::of(op)?;
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return None };
        if self.find(lhs).is_some() {
            return Some((change, lhs, rhs));
        }
        (change.commutes() && self.find(rhs).is_some()).then_some((change, rhs, lhs))
    }

    /// The layer that an expression of the old function is by now, with a bias added or not.
    fn find(&mut self, old: ExprId) -> Option<Found> {
        let mut new = self.rewriter.mapped(old);
        let mut added = None;
        if self.biased[new] {
            let &[Some(lhs), Some(rhs)] =
                self.rewriter.builder().expr(new).as_call()?.args.as_slice()
            else {
                return None;
            };
            new = lhs;
            added = Some(rhs);
        }
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) =
            self.rewriter.builder().expr(new).clone()
        else {
            return None;
        };
        let layer = Layer::of(op, &attrs).ok()??;
        let (&x, &weight) = (args.first()?.as_ref()?, args.get(1)?.as_ref()?);
        let weights = self.constant(weight).filter(|weights| layer.has_rank_of(weights))?;
        let bias = match args.get(2).copied().flatten().or(added) {
            // A vector; one element stands for all channels.
            Some(bias) => Some(per_channel(&self.constant(bias)?, 1, 0, layer.outputs(&weights)?)?),
            None => None,
        };
        Some(Found { layer, attrs, x, weight, bias })
    }

    /// A constant of the new function whose elements are known.
    fn constant(&mut self, new: ExprId) -> Option<Constant> {
        self.rewriter.builder().expr(new).as_constant().filter(|c| !c.is_opaque()).cloned()
    }

    /// The layer with a change of its result folded in, if it can be.
    fn fold_into_output(
        &mut self,
        change: Change,
        call: &Call,
        value: ExprId,
        other: ExprId,
    ) -> Result<Option<ExprId>> {
        let Some(Found { layer, attrs, x, weight, bias }) = self.find(value) else {
            return Ok(None);
        };
        let other = self.rewriter.mapped(other);
        let (Some(weights), Some(other)) = (self.constant(weight), self.constant(other)) else {
            return Ok(None);
        };
        let new = self.rewriter.mapped(value);
        let rank = self.rewriter.builder().ty(new).as_tensor().map_or(0, |ty| ty.shape.rank());
        let (Some(outputs), true) = (layer.outputs(&weights), rank > layer.spatial) else {
            return Ok(None);
        };
        let axis = rank - 1 - layer.spatial;
        let operand = if change == Change::Bias {
            let BiasAddAttrs { axis: bias_axis } = call.attrs.parse()?;
            let fits = normalize_axis(bias_axis, rank) == Some(axis);
            fits.then(|| per_channel(&other, 1, 0, outputs)).flatten()
        } else {
            per_channel(&other, rank, axis, outputs)
        };
        // An infinite factor of a weight meets inputs of zero before they are added up.
        let Some(operand) = operand.filter(|all| all.iter().all(|v| v.is_finite())) else {
            return Ok(None);
        };
        if bias.is_none() && change == Change::Add && !layer.takes_bias {
            // Stays as it is, but is known as a layer from here on, whichever way round it is.
            return self.add_bias(layer, new, &other, &operand, call);
        }
        let (weight, bias) = match change {
            Change::Scale => {
                let Some(scaled) = layer.scale_outputs(&weights, &operand) else { return Ok(None) };
                let bias = bias.map(|bias| zip(&bias, &operand, |b, s| b * s));
                (self.rewriter.builder().constant(scaled), bias)
            }
            Change::Add | Change::Subtract | Change::Bias => {
                let sign = if change == Change::Subtract { -1.0 } else { 1.0 };
                let bias = bias.unwrap_or_else(|| vec![0.0; operand.len()]);
                (weight, Some(zip(&bias, &operand, |b, t| b + sign * t)))
            }
        };
        let bias = match bias {
            None => None,
            Some(bias) => match vector(&bias, weights.ty().dtype) {
                Some(bias) => Some(self.rewriter.builder().constant(bias)),
                None => return Ok(None),
            },
        };
        let b = self.rewriter.builder();
        let mut args = vec![Some(x), Some(weight)];
        args.extend(bias.filter(|_| layer.takes_bias).map(Some));
        let mut result = b.call_optional(layer.op, args, attrs)?;
        if let Some(bias) = bias.filter(|_| !layer.takes_bias) {
            result = b.call(Op::new(&ADD), &[result, bias], Attrs::new())?;
            self.biased[result] = true;
        }
        Ok(Some(result))
    }

    /// Notes the sum of a layer and its bias; replaced only if the layer is not its first operand
    /// or the bias is no vector.
    fn add_bias(
        &mut self,
        layer: Layer,
        sum_of: ExprId,
        given: &Constant,
        bias: &[f64],
        call: &Call,
    ) -> Result<Option<ExprId>> {
        debug_assert!(!layer.takes_bias);
        let first = call.args[0].map(|first| self.rewriter.mapped(first));
        if first == Some(sum_of) && given.ty().shape.rank() == 1 {
            let copy = self.rewriter.copy()?;
            self.biased[copy] = true;
            return Ok(None);
        }
        let Some(bias) = vector(bias, given.ty().dtype) else { return Ok(None) };
        let b = self.rewriter.builder();
        let bias = b.constant(bias);
        let sum = b.call(Op::new(&ADD), &[sum_of, bias], Attrs::new())?;
        self.biased[sum] = true;
        Ok(Some(sum))
    }

    /// The layer with a factor of its input folded in, if its input is a product of one.
    fn fold_into_input(&mut self, layer: Layer, call: &Call) -> Result<Option<ExprId>> {
        let mut args = self.rewriter.args(call);
        let &[Some(product), Some(weight), ..] = args.as_slice() else { return Ok(None) };
        let Expr::Call(Call { callee: Callee::Op(op), args: factors, attrs: _ }) =
            self.rewriter.builder().expr(product)
        else {
            return Ok(None);
        };
        let &[Some(lhs), Some(rhs)] = factors.as_slice() else { return Ok(None) };
        if !op.is(&MULTIPLY) {
            return Ok(None);
        }
        let (x, scale) = match (self.constant(lhs), self.constant(rhs)) {
            (None, Some(scale)) => (lhs, scale),
            (Some(scale), None) => (rhs, scale),
            _ => return Ok(None),
        };
        let Some(weights) = self.constant(weight).filter(|w| layer.has_rank_of(w)) else {
            return Ok(None);
        };
        let b = self.rewriter.builder();
        // The product may be larger than what it is a product of.
        let Some(ty) = b.ty(x).as_tensor().filter(|_| b.ty(x) == b.ty(product)) else {
            return Ok(None);
        };
        let rank = ty.shape.rank();
        let inputs = weights.ty().shape.get(1 - layer.output_axis).and_then(|dim| dim.as_const());
        let channels = inputs.and_then(|inputs| inputs.checked_mul(layer.groups));
        let (Some(channels), true) = (channels, rank > layer.spatial) else { return Ok(None) };
        let scale = per_channel(&scale, rank, rank - 1 - layer.spatial, channels);
        let Some(scale) = scale.filter(|all| all.iter().all(|v| v.is_finite())) else {
            return Ok(None);
        };
        let Some(scaled) = layer.scale_inputs(&weights, &scale) else { return Ok(None) };
        args[0] = Some(x);
        args[1] = Some(self.rewriter.builder().constant(scaled));
        Ok(Some(self.rewriter.builder().call_optional(layer.op, args, call.attrs.clone())?))
    }
}

/// A function of two values of each channel.
fn zip(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    debug_assert_eq!(a.len(), b.len(), "one element for each channel");
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::support::{Net, after, after_in, count, show};

    fn conv(net: &mut Net, x: ExprId, groups: i64) -> ExprId {
        let w = net.tensor(&[4, 4 / groups, 1, 1], 0.5);
        net.op_with("nn.conv2d", &[x, w], &ConvAttrs { groups, ..ConvAttrs::of_rank(2) })
    }

    #[test]
    fn factors_and_summands_of_the_result_are_folded() {
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
    fn factors_of_the_argument_are_folded_group_by_group() {
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
    fn dense_layers_and_products_keep_their_bias_outside() {
        for transposed in [None, Some(false), Some(true)] {
            let mut net = Net::default();
            let x = net.input("x", &[2, 3]);
            let dims = if transposed == Some(false) { [3, 4] } else { [4, 3] };
            let w = net.tensor(&dims, 0.5);
            let a = net.tensor(&[3], 1.0);
            let (s, t) = (net.tensor(&[4], 2.0), net.tensor(&[1, 4], 1.0));
            let x = net.op("multiply", &[x, a]);
            let y = match transposed {
                None => net.op("nn.dense", &[x, w]),
                Some(transpose_b) => {
                    let attrs = MatmulAttrs { transpose_a: false, transpose_b };
                    net.op_with("nn.matmul", &[x, w], &attrs)
                }
            };
            let y = net.op("add", &[t, y]);
            let y = net.op("multiply", &[y, s]);
            let y = net.op("subtract", &[y, t]);
            let function = after(&FoldScaleAxis, net.finish(y));
            let op = if transposed.is_none() { "nn.dense" } else { "nn.matmul" };
            assert_eq!(show(&function), format!("add({op}(x, c({}, {})), c(4))", dims[0], dims[1]));
            let constants: Vec<Vec<f64>> = function
                .iter()
                .filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec())
                .collect();
            // Input 1, output 2.
            let at = if transposed == Some(false) { 4 + 2 } else { 2 * 3 + 1 };
            assert_eq!(constants[0][at], (0.5 + at as f64 / 4.0) * 1.25 * 2.5);
            assert_eq!(constants[1][2], 1.5 * 2.5 - 1.5);
        }
    }

    #[test]
    fn a_layer_with_its_bias_is_left_as_it_is() {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let (w, b) = (net.tensor(&[4, 3], 0.5), net.tensor(&[4], 1.0));
        let y = net.op("nn.dense", &[x, w]);
        let y = net.op("add", &[y, b]);
        let function = net.finish(y);
        assert!(after(&FoldScaleAxis, function.clone()).same(&function));
    }

    #[test]
    fn a_bias_of_one_element_is_that_of_every_channel() {
        for (dims, then) in [([1].as_slice(), "multiply"), (&[1, 1], "add"), (&[], "subtract")] {
            let mut net = Net::default();
            let x = net.input("x", &[2, 3]);
            let (w, b, c) =
                (net.tensor(&[4, 3], 0.5), net.tensor(dims, 5.0), net.tensor(&[4], 1.0));
            let y = net.op("nn.dense", &[x, w]);
            let y = net.op("add", &[y, b]);
            let y = net.op(then, &[y, c]);
            let function = after(&FoldScaleAxis, net.finish(y));
            assert_eq!(show(&function), "add(nn.dense(x, c(4, 3)), c(4))");
            let bias = function
                .iter()
                .filter_map(|(_, data)| data.expr.as_constant()?.to_f64_vec())
                .find(|elements| elements.len() == 4)
                .unwrap();
            let expected = [1.0, 1.25, 1.5, 1.75].map(|c| match then {
                "multiply" => 5.0 * c,
                "add" => 5.0 + c,
                _ => 5.0 - c,
            });
            assert_eq!(bias, expected);
        }
    }

    #[test]
    fn values_with_other_uses_are_not_folded() {
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
        // A factor that is no number, or infinite.
        for factor in [f32::INFINITY, f32::NAN] {
            let mut net = Net::default();
            let x = net.input("x", &[1, 4, 2, 2]);
            let s = net.0.constant(Constant::from_f32(&[1], &[factor]).unwrap());
            let y = conv(&mut net, x, 1);
            let z = net.op("multiply", &[y, s]);
            let function = net.finish(z);
            assert!(after(&FoldScaleAxis, function.clone()).same(&function));
        }
    }
}
