//! Calls that move, repeat, leave out or convert elements.

use super::Site;
use crate::graph::visit::Users;
use crate::graph::{Call, ExprId, Function, FunctionBuilder};
use crate::ir::{Attrs, DType, TensorType, normalize_axis};
use crate::ops::elementwise::{CAST, CastAttrs, WHERE};
use crate::ops::nn::{PAD, PadAttrs, PadMode};
use crate::ops::reduce::{MAX, MEAN, MIN, PROD, ReduceAttrs, SUM};
use crate::ops::tensor::{
    BROADCAST_TO, BroadcastToAttrs, CONCATENATE, ConcatenateAttrs, EXPAND_DIMS, LAYOUT_TRANSFORM,
    LayoutTransformAttrs, RESHAPE, ReshapeAttrs, SQUEEZE, STRIDED_SLICE, StridedSliceAttrs,
    TRANSPOSE, TransposeAttrs,
};
use crate::ops::{Op, OpDef};
use crate::pass::Result;
use crate::transform::calls::{call_of, call_with, uniform_of};

/// The operators that keep the elements in their order.
pub(super) const RESHAPES: [&OpDef; 3] = [&RESHAPE, &SQUEEZE, &EXPAND_DIMS];

/// The operators for which the order of the elements along reduced axes is of no account.
const REDUCTIONS: [&OpDef; 5] = [&SUM, &MEAN, &MAX, &MIN, &PROD];

/// A simpler form of a call that moves elements.
///
/// Arguments have their simplest form already, so that a look at the argument's own argument is
/// enough for a chain of any length.
pub(super) fn simpler(b: &mut FunctionBuilder, site: &Site<'_>) -> Result<Option<ExprId>> {
    let Some(x) = site.arg(0) else { return Ok(None) };
    let op = site.op;
    if op.is(&TRANSPOSE) {
        transpose(b, x, site.attrs)
    } else if RESHAPES.iter().any(|def| op.is(def)) {
        reshape(b, x, site.ty)
    } else if site.reads_alone && !site.strict && REDUCTIONS.iter().any(|def| op.is(def)) {
        // What else is made of the transposed tensor, as in a norm, may go with the reduction.
        reduced(b, x, site)
    } else if op.is(&LAYOUT_TRANSFORM) {
        layout_transform(b, x, site.attrs)
    } else if op.is(&CAST) {
        cast(b, x, site.attrs)
    } else if op.is(&PAD) {
        pad(b, x, site)
    } else if op.is(&STRIDED_SLICE) {
        let StridedSliceAttrs { strides, .. } = site.attrs.parse()?;
        // As many elements as there are, in steps of one, are all.
        Ok((is_of(b, x, site.ty) && strides.iter().all(|&stride| stride == 1)).then_some(x))
    } else if op.is(&BROADCAST_TO) {
        Ok(is_of(b, x, site.ty).then_some(x))
    } else if op.is(&WHERE) {
        chosen(b, x, site)
    } else {
        Ok(None)
    }
}

/// The side that a constant chooses everywhere.
fn chosen(b: &mut FunctionBuilder, condition: ExprId, site: &Site<'_>) -> Result<Option<ExprId>> {
    let Some(condition) = uniform_of(b, condition) else { return Ok(None) };
    let Some(side) = site.arg(if condition != 0.0 { 1 } else { 2 }) else { return Ok(None) };
    if is_of(b, side, site.ty) {
        return Ok(Some(side));
    }
    let shape = site.ty.shape.iter().cloned().collect();
    let attrs = Attrs::from_struct(&BroadcastToAttrs { shape })?;
    // The other side or the condition may be why an extent with symbols is one of the result's.
    Ok(b.call(Op::new(&BROADCAST_TO), &[side], attrs).ok())
}

fn is_of(b: &FunctionBuilder, x: ExprId, ty: &TensorType) -> bool {
    b.ty(x).as_tensor() == Some(ty)
}

/// The first argument of a call of one of some operators.
pub(super) fn argument_of(b: &FunctionBuilder, id: ExprId, defs: &[&OpDef]) -> Option<ExprId> {
    defs.iter().find_map(|def| call_of(b, id, def))?.args.first().copied().flatten()
}

fn axes_of(attrs: &Attrs) -> Result<Option<Vec<usize>>> {
    let TransposeAttrs { axes } = attrs.parse()?;
    Ok(axes.iter().map(|&axis| normalize_axis(axis, axes.len())).collect())
}

fn transpose(b: &mut FunctionBuilder, x: ExprId, attrs: &Attrs) -> Result<Option<ExprId>> {
    let Some(mut axes) = axes_of(attrs)? else { return Ok(None) };
    let mut source = x;
    if let Some(Call { args, attrs, .. }) = call_of(b, x, &TRANSPOSE)
        && let (Some(&Some(inner)), Some(inner_axes)) = (args.first(), axes_of(attrs)?)
    {
        axes.iter_mut().for_each(|axis| *axis = inner_axes[*axis]);
        source = inner;
    }
    if axes.iter().enumerate().all(|(index, &axis)| index == axis) {
        return Ok(Some(source));
    }
    if source == x {
        return Ok(None);
    }
    let axes = axes.into_iter().map(|axis| axis as i64).collect();
    call_with(b, &TRANSPOSE, &[source], &TransposeAttrs { axes }).map(Some)
}

/// The reduction of what a transpose reads, where the axes that are left are in the same order.
fn reduced(b: &mut FunctionBuilder, x: ExprId, site: &Site<'_>) -> Result<Option<ExprId>> {
    let Some(Call { args, attrs, .. }) = call_of(b, x, &TRANSPOSE) else { return Ok(None) };
    let (Some(&Some(source)), Some(order)) = (args.first(), axes_of(attrs)?) else {
        return Ok(None);
    };
    let ReduceAttrs { axis, keepdims } = site.attrs.parse()?;
    let over: Vec<_> = axis.iter().map(|&axis| normalize_axis(axis, order.len())).collect();
    let is_reduced = |at: usize| over.is_empty() || over.contains(&Some(at));
    let part = |reduced: bool| {
        let chosen = order.iter().enumerate().filter(move |&(at, _)| is_reduced(at) == reduced);
        chosen.map(|(_, &axis)| axis as i64)
    };
    if !part(false).is_sorted() {
        return Ok(None);
    }
    let mut axis: Vec<i64> = part(true).collect();
    axis.sort_unstable();
    let attrs = Attrs::from_struct(&ReduceAttrs { axis, keepdims })?;
    let reduced = b.call(site.op, &[source], attrs)?;
    if is_of(b, reduced, site.ty) {
        return Ok(Some(reduced));
    }
    reshape_to(b, reduced, site.ty)
}

fn layout_transform(b: &mut FunctionBuilder, x: ExprId, attrs: &Attrs) -> Result<Option<ExprId>> {
    let LayoutTransformAttrs { mut src_layout, dst_layout } = attrs.parse()?;
    let mut source = x;
    if let Some(Call { args, attrs, .. }) = call_of(b, x, &LAYOUT_TRANSFORM)
        && let Some(&Some(inner)) = args.first()
    {
        let before: LayoutTransformAttrs = attrs.parse()?;
        // Letters alone say which axis is which.
        if before.dst_layout == src_layout {
            (src_layout, source) = (before.src_layout, inner);
        }
    }
    if src_layout == dst_layout {
        return Ok(Some(source));
    }
    if source == x {
        return Ok(None);
    }
    let attrs = Attrs::from_struct(&LayoutTransformAttrs { src_layout, dst_layout })?;
    // Blocks of an extent with symbols may be known to fit only after those in between.
    Ok(b.call(Op::new(&LAYOUT_TRANSFORM), &[source], attrs).ok())
}

fn reshape(b: &mut FunctionBuilder, x: ExprId, ty: &TensorType) -> Result<Option<ExprId>> {
    if is_of(b, x, ty) {
        return Ok(Some(x));
    }
    let Some(source) = argument_of(b, x, &RESHAPES) else { return Ok(None) };
    if is_of(b, source, ty) {
        return Ok(Some(source));
    }
    reshape_to(b, source, ty)
}

/// A tensor in the shape of a type, if it is known to have as many elements.
pub(super) fn reshape_to(
    b: &mut FunctionBuilder,
    source: ExprId,
    ty: &TensorType,
) -> Result<Option<ExprId>> {
    let attrs = Attrs::from_struct(&ReshapeAttrs { newshape: ty.shape.to_vec() })?;
    // What is known of a shape in between need not follow from the two others.
    Ok(b.call(Op::new(&RESHAPE), &[source], attrs).ok())
}

fn cast(b: &mut FunctionBuilder, x: ExprId, attrs: &Attrs) -> Result<Option<ExprId>> {
    let outer: CastAttrs = attrs.parse()?;
    let dtype = |id: ExprId| b.ty(id).as_tensor().map(|ty| ty.dtype);
    let Some(from) = dtype(x) else { return Ok(None) };
    if from == outer.dtype && !is_small_float(from) {
        return Ok(Some(x));
    }
    let Some(source) = argument_of(b, x, &[&CAST]) else { return Ok(None) };
    let Some(first) = dtype(source) else { return Ok(None) };
    if !holds(from, first) || !converts_alike(first, from, outer.dtype) {
        return Ok(None);
    }
    if first == outer.dtype {
        return Ok(Some(source));
    }
    call_with(b, &CAST, &[source], &outer).map(Some)
}

/// Floats of 8 bits or fewer, which attributes of a cast say how to round.
fn is_small_float(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8
}

/// Bits of the significand of a float.
fn precision(dtype: DType) -> Option<u32> {
    match dtype {
        DType::BF16 => Some(8),
        DType::F16 => Some(11),
        DType::F32 => Some(24),
        DType::F64 => Some(53),
        _ => None,
    }
}

/// Whether each value of one type is one of another, wider type.
fn holds(wide: DType, narrow: DType) -> bool {
    if wide == narrow {
        return !is_small_float(wide);
    }
    match (wide, narrow) {
        (DType::F32 | DType::F64, DType::F16 | DType::BF16) | (DType::F64, DType::F32) => true,
        (DType::Bool, _) => false,
        (_, DType::Bool) => wide.is_int() || precision(wide).is_some(),
        _ => match (wide.int_range(), narrow.int_range(), precision(wide)) {
            (Some((low, high)), Some((least, greatest)), _) => low <= least && greatest <= high,
            (None, Some(_), Some(precision)) => {
                // An integer of `bits` is a float of as many bits of significand.
                narrow.bits() <= precision
            }
            _ => false,
        },
    }
}

/// Whether values of `first` become the same values of `last` when they are cast to it at once
/// instead of from `between`, which holds them: integers wrap in narrower ones, floats saturate.
fn converts_alike(first: DType, between: DType, last: DType) -> bool {
    let same_kind = first.is_float() == between.is_float();
    same_kind || !last.is_int() || first == DType::Bool || holds(last, first)
}

fn pad(b: &mut FunctionBuilder, x: ExprId, site: &Site<'_>) -> Result<Option<ExprId>> {
    let outer: PadAttrs = site.attrs.parse()?;
    if outer.pad_width.iter().all(|&width| width == [0, 0]) {
        return Ok(Some(x));
    }
    let Some(Call { args, attrs, .. }) = call_of(b, x, &PAD).cloned() else { return Ok(None) };
    let inner: PadAttrs = attrs.parse()?;
    let fill = |args: &[Option<ExprId>]| args.get(1).copied().flatten();
    let (given, inner_given) = (fill(site.args), fill(&args));
    let number = |fill: Option<ExprId>| match fill {
        None => Some(0.0),
        Some(fill) => uniform_of(b, fill),
    };
    // Zeros of either sign are equal numbers, but not the same elements.
    let bits = |fill| number(fill).map(f64::to_bits);
    let same_fill = given == inner_given
        || matches!((bits(given), bits(inner_given)), (Some(a), Some(b)) if a == b);
    let both = outer.pad_width.iter().chain(&inner.pad_width);
    let composes = outer.mode == inner.mode
        && match outer.mode {
            PadMode::Constant => same_fill,
            PadMode::Edge => true,
            PadMode::Reflect | PadMode::Wrap => false,
        }
        && both.flatten().all(|&width| width >= 0);
    if !composes {
        return Ok(None);
    }
    let sums = outer.pad_width.iter().zip(&inner.pad_width);
    let pad_width: Option<Vec<[i64; 2]>> = sums
        .map(|([before, after], [more_before, more_after])| {
            Some([before.checked_add(*more_before)?, after.checked_add(*more_after)?])
        })
        .collect();
    let (Some(pad_width), Some(&source)) = (pad_width, args.first()) else { return Ok(None) };
    let args = vec![source, inner_given.or(given)];
    let attrs = Attrs::from_struct(&PadAttrs { pad_width, mode: outer.mode })?;
    Ok(Some(b.call_optional(Op::new(&PAD), args, attrs)?))
}

/// The tensors, in the old function, that a concatenation puts together with those that it alone
/// uses; `None` if there are none of those, or if it is itself part of another one.
pub(super) fn joined_tensors(
    old: &Function,
    uses: &Users,
    id: ExprId,
) -> Result<Option<Vec<ExprId>>> {
    let Some(axis) = concatenated_along(old, id)? else { return Ok(None) };
    let is_part = |part: ExprId, whole: ExprId| -> Result<bool> {
        Ok(uses.of(part) == [whole]
            && old.data_of(part).scope == old.data_of(whole).scope
            && concatenated_along(old, part)? == concatenated_along(old, whole)?)
    };
    if let &[user] = uses.of(id)
        && is_part(id, user)?
        && old.scope(old.data_of(id).scope).result != id
    {
        return Ok(None);
    }
    let args = |id: ExprId| -> Vec<ExprId> { old.expr(id).operands().collect() };
    let mut tensors = Vec::new();
    // The operand that comes next is on top, with the call that it is an operand of.
    let mut stack: Vec<(ExprId, ExprId)> =
        args(id).into_iter().rev().map(|arg| (arg, id)).collect();
    let mut found = stack.len() == 1;
    while let Some((operand, user)) = stack.pop() {
        let is_nested = concatenated_along(old, operand)? == Some(axis)
            && old.scope(old.data_of(operand).scope).result != operand
            && is_part(operand, user)?;
        if is_nested {
            found = true;
            stack.extend(args(operand).into_iter().rev().map(|arg| (arg, operand)));
        } else {
            tensors.push(operand);
        }
    }
    Ok(found.then_some(tensors))
}

/// The axis along which an expression is a concatenation.
fn concatenated_along(old: &Function, id: ExprId) -> Result<Option<usize>> {
    let expr = old.expr(id);
    if !expr.is_call_of(&CONCATENATE) {
        return Ok(None);
    }
    let Some(Call { attrs, .. }) = expr.as_call() else { return Ok(None) };
    let ConcatenateAttrs { axis } = attrs.parse()?;
    Ok(old.ty(id).as_tensor().and_then(|ty| ty.shape.axis(axis)))
}

pub(super) fn concatenate(
    b: &mut FunctionBuilder,
    tensors: &[ExprId],
    attrs: &Attrs,
) -> Result<Option<ExprId>> {
    if let &[only] = tensors {
        return Ok(Some(only));
    }
    Ok(Some(b.call(Op::new(&CONCATENATE), tensors, attrs.clone())?))
}
