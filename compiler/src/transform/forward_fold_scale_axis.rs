//! Factors of what layers read, folded into the layers.

#[cfg(test)]
mod tests;

use cranelift_entity::SecondaryMap;

use super::calls::{call, op_of};
use super::channels::{ChannelAxis, along, of_vector, per_channel, vector};
use super::layers::{Layer, Passing, passing};
use crate::analysis::Uses;
use crate::graph::visit::Users;
use crate::graph::{Call, ExprId, Function, Rewriter};
use crate::ir::{Constant, IRModule, normalize_axis};
use crate::ops::Op;
use crate::ops::elementwise::{ADD, MULTIPLY, SUBTRACT};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Folds constant factors of channels into the weights of the layers after them.
///
/// `conv(x · s, w)` becomes `conv(x, w · s)`, where `s` has one element for each channel; so for dense
/// layers and products with a constant matrix, and for any number of them that read `x · s`. Factors go
/// through rectifiers and maxima, if they are positive, through means, pads of zeros and sums with
/// constants: `conv(relu(x · s) + b, w)` becomes `conv(relu(x) + b / s, w · s)`. Nothing else may use
/// what is scaled.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn forward_fold_scale_axis(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let users = cx.analysis::<Uses>(&function);
    let readers = Readers::new(&function, &users)?;
    let mut folder =
        Folder { readers, carried: SecondaryMap::new(), rewriter: Rewriter::new(function.clone()) };
    let mut folded = 0;
    while let Some(id) = folder.rewriter.next_call()? {
        let Some((op, call)) = op_of(function.expr(id)) else { continue };
        if op.is(&MULTIPLY) {
            folded += u64::from(folder.multiplication(id, call)?);
        } else if let Some(&x) = call.args.iter().flatten().find(|&&x| folder.carried[x].is_some())
        {
            folder.reader(id, op, call, x)?;
        }
    }
    if folded > 0 {
        cx.count("folded", folded);
    }
    Ok(folder.rewriter.finish()?)
}

/// What factors must be like so that the readers of a tensor can make up for the lack of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Finite,
    /// Constants are divided by them.
    NotZero,
    Positive,
}

impl Needs {
    fn allow(self, factors: &[f64]) -> bool {
        factors.iter().all(|&factor| {
            factor.is_finite()
                && match self {
                    Needs::Finite => true,
                    Needs::NotZero => factor != 0.0,
                    Needs::Positive => factor > 0.0,
                }
        })
    }
}

/// The channels of a tensor all whose readers can do without its factors.
#[derive(Clone, Copy)]
struct Channels {
    axis: ChannelAxis,
    count: i64,
    needs: Needs,
}

struct Readers {
    function: Function,
    channels: SecondaryMap<ExprId, Option<Channels>>,
}

impl Readers {
    fn new(function: &Function, users: &Users) -> Result<Readers> {
        let mut results: SecondaryMap<ExprId, bool> = SecondaryMap::new();
        for (_, scope) in function.scopes() {
            results[scope.result] = true;
        }
        let mut readers = Readers { function: function.clone(), channels: SecondaryMap::new() };
        for id in (0..function.len()).rev().map(|index| ExprId::from_u32(index as u32)) {
            if !results[id] && function.ty(id).as_tensor().is_some() {
                readers.channels[id] = readers.of_all(id, users.of(id))?;
            }
        }
        Ok(readers)
    }

    fn of_all(&self, id: ExprId, users: &[ExprId]) -> Result<Option<Channels>> {
        let scope = |id| self.function.data_of(id).scope;
        let mut all: Option<Channels> = None;
        for &user in users {
            let found = match scope(user) == scope(id) {
                true => self.of_one(id, user)?,
                false => None,
            };
            let Some(found) = found else { return Ok(None) };
            all = match all {
                None => Some(found),
                Some(Channels { axis, count, needs })
                    if (axis, count) == (found.axis, found.count) =>
                {
                    Some(Channels { needs: needs.max(found.needs), ..found })
                }
                Some(_) => return Ok(None),
            };
        }
        Ok(all)
    }

    /// What one reader of a tensor asks of factors that it is to do without.
    fn of_one(&self, x: ExprId, user: ExprId) -> Result<Option<Channels>> {
        let Some((op, call)) = op_of(self.function.expr(user)) else { return Ok(None) };
        if call.args.iter().flatten().filter(|&&arg| arg == x).count() != 1 {
            return Ok(None);
        }
        let is_first = call.args.first() == Some(&Some(x));
        if let Some(layer) = Layer::of(op, &call.attrs)? {
            return Ok(if is_first { self.of_layer(x, &layer, call) } else { None });
        }
        let Some(channels) = self.channels[user] else { return Ok(None) };
        let keeps_type = self.function.ty(x) == self.function.ty(user);
        let needing = |needs: Needs| Channels { needs: needs.max(channels.needs), ..channels };
        if op.is(&MULTIPLY) || op.is(&ADD) || op.is(&SUBTRACT) || op.is(&BIAS_ADD) {
            let known = keeps_type && self.operand(op, call, x, channels)?.is_some();
            let needs = if op.is(&MULTIPLY) { Needs::Finite } else { Needs::NotZero };
            return Ok(known.then(|| needing(needs)));
        }
        if !is_first {
            return Ok(None);
        }
        Ok(passing(op, call, channels.axis)?.map(|passing| match passing {
            Passing::Any => channels,
            Passing::Positive => needing(Needs::Positive),
        }))
    }

    fn of_layer(&self, x: ExprId, layer: &Layer, call: &Call) -> Option<Channels> {
        let weight = self.constant(call.args.get(1).copied()??)?;
        let rank = self.function.ty(x).as_tensor()?.shape.rank();
        let fits = layer.has_rank_of(weight) && weight.ty().dtype.is_float();
        Some(Channels {
            axis: layer.channel_axis(rank)?,
            count: layer.inputs(weight).filter(|_| fits)?,
            needs: Needs::Finite,
        })
    }

    fn constant(&self, id: ExprId) -> Option<&Constant> {
        self.function.expr(id).as_constant().filter(|constant| !constant.is_opaque())
    }

    /// The constant that a sum or a product has beside `x`, as one element for each channel, and its
    /// index among the arguments.
    fn operand(
        &self,
        op: Op,
        call: &Call,
        x: ExprId,
        Channels { axis, count, .. }: Channels,
    ) -> Result<Option<(usize, Vec<f64>)>> {
        let found = call.args.iter().position(|&arg| arg != Some(x));
        let Some((index, other)) = found.and_then(|index| Some((index, call.args[index]?))) else {
            return Ok(None);
        };
        let rank = self.function.ty(x).as_tensor().map_or(0, |ty| ty.shape.rank());
        let elements = match self.constant(other) {
            None => None,
            Some(constant) if op.is(&BIAS_ADD) => {
                let attrs: BiasAddAttrs = call.attrs.parse()?;
                let along = normalize_axis(attrs.axis, rank);
                let fits = index == 1 && along.is_some() && along == axis.as_whole();
                if fits { of_vector(constant, count) } else { None }
            }
            Some(constant) => per_channel(constant, rank, axis, count),
        };
        Ok(elements.map(|elements| (index, elements)))
    }
}

struct Folder {
    readers: Readers,
    /// What an expression of the old function is divided by in the new one.
    carried: SecondaryMap<ExprId, Option<Vec<f64>>>,
    rewriter: Rewriter,
}

impl Folder {
    /// Drops a multiplication if its readers can do without; returns whether they can.
    fn multiplication(&mut self, id: ExprId, expr: &Call) -> Result<bool> {
        let &[Some(lhs), Some(rhs)] = expr.args.as_slice() else { return Ok(false) };
        let Some(channels) = self.readers.channels[id] else { return Ok(false) };
        let is_constant = |id| self.readers.constant(id).is_some();
        let x = match (is_constant(lhs), is_constant(rhs)) {
            (false, true) => lhs,
            (true, false) => rhs,
            _ => return Ok(false),
        };
        // The product may be larger than the tensor that it is a product of.
        if self.readers.function.ty(x) != self.readers.function.ty(id) {
            return Ok(false);
        }
        let op = Op::new(&MULTIPLY);
        let Some((_, own)) = self.readers.operand(op, expr, x, channels)? else { return Ok(false) };
        let before = self.carried[x].clone();
        let total = match &before {
            Some(before) => own.iter().zip(before).map(|(a, b)| a * b).collect(),
            None => own,
        };
        if channels.needs.allow(&total) {
            let x = self.rewriter.mapped(x);
            self.carried[id] = Some(total);
            self.rewriter.replace(x);
            return Ok(true);
        }
        if let Some(before) = before {
            self.multiplied(expr, Op::new(&MULTIPLY), x, &before)?;
        }
        Ok(false)
    }

    /// A call that reads a tensor without its factors.
    fn reader(&mut self, id: ExprId, op: Op, expr: &Call, x: ExprId) -> Result<()> {
        let Some(factors) = self.carried[x].clone() else { return Ok(()) };
        let mut args = self.rewriter.args(expr);
        if let Some(layer) = Layer::of(op, &expr.attrs)? {
            let weight = expr.args[1].and_then(|weight| self.readers.constant(weight));
            let Some(scaled) = weight.and_then(|weight| layer.scale_inputs(weight, &factors))
            else {
                return self.multiplied(expr, op, x, &factors);
            };
            let b = self.rewriter.builder();
            args[1] = Some(b.constant(scaled));
            let new = b.call_optional(op, args, expr.attrs.clone())?;
            self.rewriter.replace(new);
            return Ok(());
        }
        if [&ADD, &SUBTRACT, &BIAS_ADD].iter().any(|def| op.is(def)) {
            let Some(channels) = self.readers.channels[id] else {
                return self.multiplied(expr, op, x, &factors);
            };
            let divided = self.readers.operand(op, expr, x, channels)?.map(|(index, elements)| {
                let divided = elements.iter().zip(&factors).map(|(value, factor)| value / factor);
                (index, divided.collect::<Vec<f64>>())
            });
            let constant = divided.and_then(|(index, elements)| {
                let ty = self.readers.function.ty(id).as_tensor()?;
                let constant = match op.is(&BIAS_ADD) {
                    true => vector(&elements, ty.dtype)?,
                    false => along(&elements, channels.axis, ty.shape.rank(), ty.dtype)?,
                };
                // A quotient may be too large for the data type.
                let finite = constant.to_f64_vec()?.iter().all(|value| value.is_finite());
                finite.then_some((index, constant))
            });
            let Some((index, constant)) = constant else {
                return self.multiplied(expr, op, x, &factors);
            };
            let b = self.rewriter.builder();
            args[index] = Some(b.constant(constant));
            let new = b.call_optional(op, args, expr.attrs.clone())?;
            self.rewriter.replace(new);
        }
        self.carried[id] = Some(factors);
        Ok(())
    }

    /// The call of the old function, with its factors put back where it reads `x`.
    fn multiplied(&mut self, expr: &Call, op: Op, x: ExprId, factors: &[f64]) -> Result<()> {
        let function = &self.readers.function;
        let (Some(channels), Some(ty)) = (self.readers.channels[x], function.ty(x).as_tensor())
        else {
            return Ok(());
        };
        let factors = along(factors, channels.axis, ty.shape.rank(), ty.dtype)
            .ok_or("factors are of the data type of what they scale")?;
        let value = self.rewriter.mapped(x);
        let mut args = self.rewriter.args(expr);
        let b = self.rewriter.builder();
        let factors = b.constant(factors);
        let product = call(b, &MULTIPLY, &[value, factors])?;
        for (arg, old) in args.iter_mut().zip(&expr.args) {
            if *old == Some(x) {
                *arg = Some(product);
            }
        }
        let new = b.call_optional(op, args, expr.attrs.clone())?;
        self.rewriter.replace(new);
        Ok(())
    }
}
