//! Factors and summands right behind a layer, folded into its weights and bias.

use cranelift_entity::SecondaryMap;

use crate::analysis::UseCounts;
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, normalize_axis};
use crate::ops::elementwise::{ADD, MULTIPLY, SUBTRACT};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result};
use crate::transform::channels::{of_vector, per_channel, vector};
use crate::transform::layers::Layer;

/// Folds constant factors and summands of what a layer computes into the layer.
pub(super) fn fold(function: Function, cx: &PassContext) -> Result<Function> {
    let uses = cx.analysis::<UseCounts>(&function);
    let mut folder = Folder { rewriter: Rewriter::new(function), biased: SecondaryMap::new() };
    while let Some(id) = folder.rewriter.next_call()? {
        let old = folder.rewriter.old().clone();
        let Some(call) = old.expr(id).as_call() else { continue };
        let Callee::Op(op) = call.callee else { continue };
        let folded = match folder.change(op, call) {
            Some((_, value, _)) if uses[value] != 1 => {
                cx.missed(id, "what the layer computes is used elsewhere, too");
                None
            }
            Some((change, value, other)) => folder.fold_into_output(change, call, value, other)?,
            None => None,
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
            Some(bias) => Some(of_vector(&self.constant(bias)?, layer.outputs(&weights)?)?),
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
        let (Some(outputs), Some(axis)) = (layer.outputs(&weights), layer.channel_axis(rank))
        else {
            return Ok(None);
        };
        let operand = if change == Change::Bias {
            let BiasAddAttrs { axis: bias_axis } = call.attrs.parse()?;
            let along = normalize_axis(bias_axis, rank);
            let fits = along.is_some() && along == axis.as_whole();
            fits.then(|| of_vector(&other, outputs)).flatten()
        } else {
            per_channel(&other, rank, axis, outputs)
        };
        // An infinite factor of a weight meets inputs of zero before they are added up.
        let Some(operand) = operand.filter(|all| all.iter().all(|v| v.is_finite())) else {
            return Ok(None);
        };
        if bias.is_none() && change == Change::Add && !layer.takes_bias {
            // Stays as it is, but is known as a layer from here on, whichever way round it is.
            return self.add_bias(&layer, new, &other, &operand, call);
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
        layer: &Layer,
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
}

/// A function of two values of each channel.
fn zip(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    debug_assert_eq!(a.len(), b.len(), "one element for each channel");
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}
