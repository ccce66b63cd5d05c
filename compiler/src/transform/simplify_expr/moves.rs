//! Calls that move, repeat, leave out or convert elements.

use super::Site;
use crate::graph::visit::Users;
use crate::graph::{Call, ExprId, Function, FunctionBuilder, Rewriter};
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
pub(in crate::transform) const RESHAPES: [&OpDef; 3] = [&RESHAPE, &SQUEEZE, &EXPAND_DIMS];

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
        transpose(b, x, site)
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

fn transpose(b: &mut FunctionBuilder, x: ExprId, site: &Site<'_>) -> Result<Option<ExprId>> {
    let Some(mut axes) = axes_of(site.attrs)? else { return Ok(None) };
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
    // What moves axes of one element alone, moves no element.
    if let Some(extents) = site.ty.shape.as_consts()
        && let moved = axes.iter().zip(extents).filter(|&(_, extent)| extent != 1)
        && moved.is_sorted_by_key(|(axis, _)| *axis)
    {
        let simpler = reshape(b, source, site.ty)?;
        return simpler.map_or_else(|| reshape_to(b, source, site.ty), |id| Ok(Some(id)));
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

/// What a tensor in the shape of a type is made of instead, if it was reshaped before.
pub(in crate::transform) fn reshape(
    b: &mut FunctionBuilder,
    x: ExprId,
    ty: &TensorType,
) -> Result<Option<ExprId>> {
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
        Ok(is_read_by(old, uses, part, whole)
            && concatenated_along(old, part)? == concatenated_along(old, whole)?)
    };
    if let &[user] = uses.of(id)
        && is_part(id, user)?
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
        let is_nested = concatenated_along(old, operand)? == Some(axis) && is_part(operand, user)?;
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

/// Concatenations in concatenations whose parts are transposed one by one.
const MOST_NESTED: usize = 4;

/// The concatenation of transposed parts that stands for a transposed concatenation, if that is read by
/// the transpose alone and channels become the last axis: as outputs of detectors are put together.
pub(super) fn turned(rewriter: &mut Rewriter, uses: &Users, id: ExprId) -> Result<Option<ExprId>> {
    let old = rewriter.old().clone();
    let Some(Call { args, attrs, .. }) = call_of_old(&old, id, &TRANSPOSE) else { return Ok(None) };
    let (&[Some(x)], Some(axes)) = (args.as_slice(), axes_of(attrs)?) else { return Ok(None) };
    let is_last = matches!(axes.as_slice(), [0, 2, 1] | [0, 2, 3, 1]);
    let source = pixels_of(&old, x).filter(|&source| is_read_by(&old, uses, source, x));
    let is_concatenation = concatenated_along(&old, source.unwrap_or(x))?.is_some();
    if !is_last || !is_concatenation || !is_read_by(&old, uses, x, id) {
        return Ok(None);
    }
    channels_last(rewriter, uses, (x, id), MOST_NESTED).map(Some)
}

/// A tensor of the old function, and who reads it, with its second axis behind the others.
fn channels_last(
    rewriter: &mut Rewriter,
    uses: &Users,
    (x, user): (ExprId, ExprId),
    depth: usize,
) -> Result<ExprId> {
    let old = rewriter.old().clone();
    let rank = old.ty(x).as_tensor().map_or(0, |ty| ty.shape.rank());
    if depth > 0 && is_read_by(&old, uses, x, user) {
        if let Some(axis) = concatenated_along(&old, x)? {
            let parts: Vec<ExprId> = (old.expr(x).operands())
                .map(|part| channels_last(rewriter, uses, (part, x), depth - 1))
                .collect::<Result<_>>()?;
            let axis = match axis {
                0 => 0,
                1 => rank - 1,
                axis => axis - 1,
            };
            let attrs = ConcatenateAttrs { axis: axis as i64 };
            return call_with(rewriter.builder(), &CONCATENATE, &parts, &attrs);
        }
        if let (Some(source), Some(ty)) = (pixels_of(&old, x), old.ty(x).as_tensor()) {
            let source = channels_last(rewriter, uses, (source, x), depth - 1)?;
            let newshape = [0, 2, 1].map(|axis| ty.shape[axis].clone()).to_vec();
            return call_with(rewriter.builder(), &RESHAPE, &[source], &ReshapeAttrs { newshape });
        }
    }
    let axes = [0].into_iter().chain(2..rank as i64).chain([1]).collect();
    let x = rewriter.mapped(x);
    call_with(rewriter.builder(), &TRANSPOSE, &[x], &TransposeAttrs { axes })
}

/// What a reshape makes one axis of the last two of, if it does no more. Of extents with symbols, it may be
/// known for this order of the axes alone that they fit.
fn pixels_of(old: &Function, id: ExprId) -> Option<ExprId> {
    let source = call_of_old(old, id, &RESHAPE)?.args.first().copied().flatten()?;
    let shape = |id| old.ty(id).as_tensor()?.shape.as_consts();
    let (from, to) = (shape(source)?, shape(id)?);
    (from.len() == 4 && to.len() == 3 && from[..2] == to[..2]).then_some(source)
}

/// Whether a value is read by one call alone, in its scope.
fn is_read_by(old: &Function, uses: &Users, id: ExprId, user: ExprId) -> bool {
    let scope = old.data_of(id).scope;
    uses.of(id) == [user] && scope == old.data_of(user).scope && old.scope(scope).result != id
}

fn call_of_old<'a>(old: &'a Function, id: ExprId, def: &OpDef) -> Option<&'a Call> {
    old.expr(id).as_call().filter(|_| old.expr(id).is_call_of(def))
}
