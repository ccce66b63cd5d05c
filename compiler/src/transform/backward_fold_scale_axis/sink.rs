//! Factors that have to go through other operators to get to the layers before those.

use cranelift_entity::SecondaryMap;

use crate::analysis::UseCounts;
use crate::graph::{Call, ExprId, Function, Rewriter};
use crate::ir::normalize_axis;
use crate::ops::elementwise::{ADD, MULTIPLY, SUBTRACT};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs};
use crate::pass::{PassContext, Result};
use crate::transform::calls::{call, op_of};
use crate::transform::channels::{ChannelAxis, along, of_vector, per_channel, vector};
use crate::transform::layers::{Layer, Passing, passing};

/// What factors of a tensor's channels need to get to the layers that they can be folded into.
#[derive(Clone, Copy)]
struct Reach {
    axis: ChannelAxis,
    channels: i64,
    passing: Passing,
}

/// What becomes of a call.
#[derive(Clone)]
enum Change {
    /// A multiplication whose factor has gone on.
    Drop(ExprId),
    /// The first operand times these factors in the place of a multiplication.
    Multiply(ExprId, Vec<f64>),
    /// The call with its constant operand scaled.
    Constant(Vec<f64>),
    /// A multiplication after the call, a layer.
    Scale(Vec<f64>),
}

/// Moves factors to the layers, so that each is right behind one.
///
/// One sweep finds where factors can go, one from the result back decides which do, and one rewrites:
/// the factors of a chain of multiplications are collected on the way.
pub(super) fn sink(function: Function, cx: &PassContext) -> Result<Function> {
    let uses = cx.analysis::<UseCounts>(&function);
    let live = function.live();
    let mut paths = Paths { function: &function, uses: &uses, reach: SecondaryMap::new() };
    let mut any = false;
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        let Some((op, _)) = op_of(&data.expr) else { continue };
        any |= op.is(&MULTIPLY);
        paths.reach[id] = paths.reach_of(id)?;
    }
    if !any {
        return Ok(function);
    }
    let mut changes: SecondaryMap<ExprId, Option<Change>> = SecondaryMap::new();
    let mut pending: SecondaryMap<ExprId, Option<Vec<f64>>> = SecondaryMap::new();
    let mut moved = 0;
    for (id, data) in function.iter().collect::<Vec<_>>().into_iter().rev() {
        let Some((op, call)) = op_of(&data.expr).filter(|_| live[id]) else { continue };
        let above = pending[id].take();
        if op.is(&MULTIPLY) {
            let Some((x, own)) = paths.factor(id, call) else { continue };
            let total = match &above {
                Some(above) => above.iter().zip(&own).map(|(a, b)| a * b).collect(),
                None => own,
            };
            // A factor right behind a layer is where it should be.
            let is_there = above.is_none() && paths.is_layer(x)?;
            if !is_there && paths.can_go(id, x, &total) {
                pending[x] = Some(total);
                changes[id] = Some(Change::Drop(x));
                moved += 1;
            } else if above.is_some() {
                changes[id] = Some(Change::Multiply(x, total));
            }
            continue;
        }
        let Some(above) = above else { continue };
        if Layer::of(op, &call.attrs)?.is_some() {
            changes[id] = Some(Change::Scale(above));
            continue;
        }
        let operands: Vec<ExprId> = call
            .args
            .iter()
            .flatten()
            .copied()
            .filter(|&x| paths.through(id, x).is_some())
            .collect();
        let is_sum = [&ADD, &SUBTRACT, &BIAS_ADD].iter().any(|def| op.is(def));
        if is_sum && operands.len() == 1 {
            changes[id] = Some(Change::Constant(above.clone()));
        }
        for x in operands {
            pending[x] = Some(above.clone());
        }
    }
    if moved == 0 {
        return Ok(function);
    }
    cx.count("moved", moved);
    rewrite(&function, &changes, &paths.reach)
}

struct Paths<'a> {
    function: &'a Function,
    uses: &'a SecondaryMap<ExprId, u32>,
    reach: SecondaryMap<ExprId, Option<Reach>>,
}

impl Paths<'_> {
    fn rank(&self, id: ExprId) -> usize {
        self.function.ty(id).as_tensor().map_or(0, |ty| ty.shape.rank())
    }

    fn is_layer(&self, id: ExprId) -> Result<bool> {
        let Some((op, call)) = op_of(self.function.expr(id)) else { return Ok(false) };
        Ok(Layer::of(op, &call.attrs)?.is_some())
    }

    /// The reach of an operand that a call alone uses.
    fn through(&self, user: ExprId, operand: ExprId) -> Option<Reach> {
        let scope = |id| self.function.data_of(id).scope;
        let alone = self.uses[operand] == 1 && scope(user) == scope(operand);
        self.reach[operand].filter(|_| alone)
    }

    /// The elements of a constant, one for each channel of a tensor of `rank` axes.
    fn elements(&self, id: ExprId, rank: usize, reach: Reach) -> Option<Vec<f64>> {
        let constant = self.function.expr(id).as_constant()?;
        per_channel(constant, rank, reach.axis, reach.channels)
    }

    /// The operand of a multiplication that a constant scales, and the factors.
    fn factor(&self, id: ExprId, call: &Call) -> Option<(ExprId, Vec<f64>)> {
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return None };
        [(lhs, rhs), (rhs, lhs)].into_iter().find_map(|(x, other)| {
            let reach = self.reach[x]?;
            let same = self.function.ty(x) == self.function.ty(id);
            let own = self.elements(other, self.rank(x), reach).filter(|_| same)?;
            own.iter().all(|factor| factor.is_finite()).then_some((x, own))
        })
    }

    /// Whether factors of a call's result can be those of its operand.
    fn can_go(&self, user: ExprId, operand: ExprId, factors: &[f64]) -> bool {
        self.through(user, operand).is_some_and(|reach| match reach.passing {
            Passing::Any => factors.iter().all(|factor| factor.is_finite()),
            Passing::Positive => factors.iter().all(|&factor| factor > 0.0 && factor.is_finite()),
        })
    }

    fn reach_of(&self, id: ExprId) -> Result<Option<Reach>> {
        let Some((op, call)) = op_of(self.function.expr(id)) else { return Ok(None) };
        if let Some(layer) = Layer::of(op, &call.attrs)? {
            return Ok(self.reach_of_layer(id, &layer, call));
        }
        let rank = self.rank(id);
        if op.is(&MULTIPLY) {
            // Its own factor takes any other, whether that can go on or not.
            let own = self.factor(id, call).and_then(|(x, _)| self.reach[x]);
            return Ok(own.map(|reach| Reach { passing: Passing::Any, ..reach }));
        }
        let args: Vec<ExprId> = call.args.iter().flatten().copied().collect();
        if op.is(&ADD) || op.is(&SUBTRACT) {
            let &[lhs, rhs] = args.as_slice() else { return Ok(None) };
            let same = |x: ExprId| self.function.ty(x) == self.function.ty(id);
            let arm = |x: ExprId| self.through(id, x).filter(|_| same(x));
            return Ok(match (arm(lhs), arm(rhs)) {
                (Some(a), Some(b)) => {
                    let positive = [a, b].into_iter().find(|r| r.passing == Passing::Positive);
                    (a.axis == b.axis && a.channels == b.channels).then(|| positive.unwrap_or(a))
                }
                (Some(reach), None) => self.elements(rhs, rank, reach).map(|_| reach),
                (None, Some(reach)) => self.elements(lhs, rank, reach).map(|_| reach),
                (None, None) => None,
            });
        }
        let Some(&x) = args.first() else { return Ok(None) };
        let Some(reach) = self.through(id, x) else { return Ok(None) };
        if op.is(&BIAS_ADD) {
            let BiasAddAttrs { axis } = call.attrs.parse()?;
            let along = normalize_axis(axis, rank);
            let fits = along.is_some() && along == reach.axis.as_whole();
            let bias = args.get(1).and_then(|&bias| self.function.expr(bias).as_constant());
            let known = bias.is_some_and(|bias| of_vector(bias, reach.channels).is_some());
            return Ok((fits && known).then_some(reach));
        }
        Ok(passing(op, call, reach.axis)?.map(|passing| match passing {
            Passing::Any => reach,
            Passing::Positive => Reach { passing, ..reach },
        }))
    }

    fn reach_of_layer(&self, id: ExprId, layer: &Layer, call: &Call) -> Option<Reach> {
        let constant = |index: usize| {
            let constant = self.function.expr(call.args.get(index).copied()??).as_constant()?;
            Some(constant).filter(|constant| !constant.is_opaque())
        };
        let weight = constant(1).filter(|weight| layer.has_rank_of(weight))?;
        let channels = layer.outputs(weight)?;
        let unbiased = call.args.get(2).copied().flatten().is_none();
        let known = unbiased || of_vector(constant(2)?, channels).is_some();
        let axis = layer.channel_axis(self.rank(id))?;
        (known && weight.ty().dtype.is_float()).then_some(Reach {
            axis,
            channels,
            passing: Passing::Any,
        })
    }
}

fn rewrite(
    function: &Function,
    changes: &SecondaryMap<ExprId, Option<Change>>,
    reach: &SecondaryMap<ExprId, Option<Reach>>,
) -> Result<Function> {
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_call()? {
        let Some(change) = &changes[id] else { continue };
        let (Some((op, expr)), Some(ty)) = (op_of(function.expr(id)), function.ty(id).as_tensor())
        else {
            continue;
        };
        let (Some(Reach { axis, channels, .. }), rank) = (reach[id], ty.shape.rank()) else {
            continue;
        };
        let constant = |factors: &[f64]| along(factors, axis, rank, ty.dtype);
        let mut args = rewriter.args(expr);
        let new = match change {
            Change::Drop(x) => rewriter.mapped(*x),
            Change::Multiply(x, factors) => {
                let x = rewriter.mapped(*x);
                let Some(factors) = constant(factors) else { continue };
                let b = rewriter.builder();
                let factors = b.constant(factors);
                call(b, &MULTIPLY, &[x, factors])?
            }
            Change::Scale(factors) => {
                let Some(factors) = constant(factors) else { continue };
                let b = rewriter.builder();
                let layer = b.call_optional(op, args, expr.attrs.clone())?;
                let factors = b.constant(factors);
                call(b, &MULTIPLY, &[layer, factors])?
            }
            Change::Constant(factors) => {
                let is_bias = op.is(&BIAS_ADD);
                let b = rewriter.builder();
                let scaled = args
                    .iter()
                    .position(|arg| arg.is_some_and(|arg| b.expr(arg).as_constant().is_some()));
                let Some(index) = scaled else { continue };
                let given = args[index].and_then(|arg| b.expr(arg).as_constant());
                let elements = given.and_then(|given| match is_bias {
                    true => of_vector(given, channels),
                    false => per_channel(given, rank, axis, channels),
                });
                let Some(elements) = elements else { continue };
                let elements: Vec<f64> =
                    elements.iter().zip(factors).map(|(value, factor)| value * factor).collect();
                let new = match is_bias {
                    true => vector(&elements, ty.dtype),
                    false => constant(&elements),
                };
                let Some(new) = new else { continue };
                args[index] = Some(b.constant(new));
                b.call_optional(op, args, expr.attrs.clone())?
            }
        };
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}
