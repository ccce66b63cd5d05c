//! Operators that move elements, where each result element is one element of an argument, and those
//! that tell about a tensor.

use super::{Compute, ComputeError, Stages, broadcast};
use crate::ir::DType;
use crate::ops::tensor::{
    ConcatenateAttrs, OneHotAttrs, SplitAttrs, StridedSliceAttrs, TakeAttrs, TakeMode,
    TransposeAttrs,
};
use crate::te::StageId;
use crate::tir::PrimExpr;

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "reshape" | "squeeze" | "expand_dims" | "nn.batch_flatten" => reshape(cx),
        "transpose" => transpose(cx),
        "broadcast_to" => broadcast_to(cx),
        "concatenate" => concatenate(cx),
        "split" => split(cx),
        "strided_slice" => strided_slice(cx),
        "take" => take(cx),
        "full" => full(cx),
        "one_hot" => one_hot(cx),
        "shape_of" => shape_of(cx),
        "ndarray_size" => ndarray_size(cx),
        _ => return None,
    })
}

fn reshape(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let input = cx.dag.shape(x).to_vec();
    let (output, _) = cx.result();
    cx.element(|dag, index| dag.at(x, &reshaped(&input, &output, index)))
}

/// The index of the same element under another shape. Runs of dimensions that hold the same number
/// of elements on both sides are translated on their own, so that a dimension that stays as it is
/// keeps its index.
pub(super) fn reshaped(input: &[i64], output: &[i64], index: &[PrimExpr]) -> Vec<PrimExpr> {
    let mut at: Vec<PrimExpr> = Vec::with_capacity(input.len());
    let (mut i, mut o) = (0, 0);
    while i < input.len() || o < output.len() {
        // Dimensions of one element need no partner.
        if input.get(i) == Some(&1) {
            at.push(PrimExpr::index(0));
            i += 1;
            continue;
        }
        if output.get(o) == Some(&1) {
            o += 1;
            continue;
        }
        let (first_in, first_out) = (i, o);
        let (mut in_size, mut out_size) = (1i64, 1i64);
        loop {
            if in_size <= out_size && i < input.len() {
                in_size = in_size.saturating_mul(input[i]);
                i += 1;
            } else if o < output.len() {
                out_size = out_size.saturating_mul(output[o]);
                o += 1;
            } else {
                break;
            }
            if in_size == out_size || (i == input.len() && o == output.len()) {
                break;
            }
        }
        let (ins, outs) = (&input[first_in..i], &output[first_out..o]);
        if let ([_], [_]) = (ins, outs) {
            at.push(index[first_out].clone());
            continue;
        }
        let flat = outs
            .iter()
            .zip(&index[first_out..o])
            .fold(PrimExpr::index(0), |flat, (&extent, i)| flat * extent + i.clone());
        let mut stride = ins.iter().fold(1i64, |n, &extent| n.saturating_mul(extent));
        for (position, &extent) in ins.iter().enumerate() {
            stride = if extent == 0 { 0 } else { stride / extent };
            let digit = flat.clone().floordiv(stride.max(1));
            at.push(if position == 0 { digit } else { digit.floormod(extent.max(1)) });
        }
    }
    at
}

fn transpose(cx: &mut Compute<'_>) -> Stages {
    let attrs: TransposeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let rank = cx.dag.shape(x).len();
    let axes: Vec<usize> = if attrs.axes.is_empty() {
        (0..rank).rev().collect()
    } else {
        attrs.axes.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<_, _>>()?
    };
    cx.element(|dag, index| {
        let mut at = vec![PrimExpr::index(0); rank];
        for (i, &axis) in index.iter().zip(&axes) {
            at[axis] = i.clone();
        }
        dag.at(x, &at)
    })
}

fn broadcast_to(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let (shape, _) = cx.result();
    cx.element(|dag, index| dag.at(x, &broadcast(dag.shape(x), &shape, index)))
}

fn concatenate(cx: &mut Compute<'_>) -> Stages {
    let attrs: ConcatenateAttrs = cx.attrs()?;
    let parts: Vec<StageId> =
        (0..cx.args.len()).map(|index| cx.arg(index)).collect::<Result<_, _>>()?;
    let rank = cx.results[0].0.len();
    let axis = cx.axis(attrs.axis, rank)?;
    // A part without elements has no index to be read at.
    let parts: Vec<StageId> =
        parts.into_iter().filter(|&part| !cx.dag.shape(part).contains(&0)).collect();
    if parts.is_empty() {
        let (_, dtype) = cx.result();
        return cx.element(|_, _| PrimExpr::zero(dtype));
    }
    Ok(vec![cx.dag.concat(cx.op.name, axis, &parts)])
}

fn split(cx: &mut Compute<'_>) -> Stages {
    let attrs: SplitAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axis = cx.axis(attrs.axis, cx.dag.shape(x).len())?;
    let mut start = 0;
    let mut stages = Vec::with_capacity(cx.results.len());
    for (shape, dtype) in cx.results {
        let offset = start;
        start += shape[axis];
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |dag, index| {
            let mut at = index.to_vec();
            at[axis] = at[axis].clone() + offset;
            dag.at(x, &at)
        }));
    }
    Ok(stages)
}

fn strided_slice(cx: &mut Compute<'_>) -> Stages {
    let attrs: StridedSliceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let shape = cx.dag.shape(x).to_vec();
    let mut starts = vec![(0i64, 1i64); shape.len()];
    for (position, &axis) in attrs.axes.iter().enumerate() {
        let axis = cx.axis(axis, shape.len())?;
        let stride = attrs.strides.get(position).copied().unwrap_or(1);
        let missing = || ComputeError("`strided_slice` has fewer starts than axes".into());
        let begin = attrs.begin.get(position).copied().ok_or_else(missing)?;
        let extent = shape[axis];
        let begin = if begin < 0 { begin.saturating_add(extent) } else { begin };
        // Where a slice that goes backwards may start is one less.
        let begin = if stride > 0 { begin.clamp(0, extent) } else { begin.clamp(-1, extent - 1) };
        starts[axis] = (begin, stride);
    }
    cx.element(|dag, index| {
        let at: Vec<PrimExpr> = index
            .iter()
            .zip(&starts)
            .map(|(i, &(begin, stride))| i.clone() * stride + begin)
            .collect();
        dag.at(x, &at)
    })
}

fn take(cx: &mut Compute<'_>) -> Stages {
    let attrs: TakeAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let taken = cx.dag.shape(indices).len();
    let extent = shape[axis];
    let dtype = cx.dag.dtype(indices);
    cx.element(|dag, index| {
        let which = dag.at(indices, &index[axis..axis + taken]);
        let which = match attrs.mode {
            TakeMode::Fast => from_either_end(which, extent),
            // Brought into the range of an index while it is still what it was.
            TakeMode::Clip if dtype == DType::U64 => {
                which.min(PrimExpr::int(extent - 1, dtype)).cast(DType::I64)
            }
            TakeMode::Wrap if dtype == DType::U64 => {
                which.floormod(PrimExpr::int(extent.max(1), dtype)).cast(DType::I64)
            }
            TakeMode::Clip => which.cast(DType::I64),
            TakeMode::Wrap => which.cast(DType::I64).floormod(extent.max(1)),
        };
        let which = within(which, extent);
        let mut at = index[..axis].to_vec();
        at.push(which);
        at.extend_from_slice(&index[axis + taken..]);
        dag.at(x, &at)
    })
}

/// A position that is data, such that it does not lead outside of the tensor.
pub(super) fn within(which: PrimExpr, extent: i64) -> PrimExpr {
    PrimExpr::index(0).max(which).min(extent - 1)
}

/// An index that is data, as a position; a negative one counts from the end.
pub(super) fn from_either_end(which: PrimExpr, extent: i64) -> PrimExpr {
    let is_signed = which.dtype().is_signed_int();
    let which = which.cast(DType::I64);
    if !is_signed {
        return which;
    }
    let from_end = which.clone() + extent;
    PrimExpr::select(which.clone().less(0), from_end, which)
}

fn full(cx: &mut Compute<'_>) -> Stages {
    let fill = cx.arg(0)?;
    cx.element(|dag, _| dag.at(fill, &[]))
}

fn one_hot(cx: &mut Compute<'_>) -> Stages {
    let attrs: OneHotAttrs = cx.attrs()?;
    let (indices, on, off) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, _) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    cx.element(|dag, index| {
        let at: Vec<PrimExpr> = [&index[..axis], &index[axis + 1..]].concat();
        let which = from_either_end(dag.at(indices, &at), attrs.depth);
        PrimExpr::select(index[axis].clone().equal(which), dag.at(on, &[]), dag.at(off, &[]))
    })
}

fn shape_of(cx: &mut Compute<'_>) -> Stages {
    let extents = cx.dag.shape(cx.arg(0)?).to_vec();
    let (_, dtype) = cx.result();
    let op = cx.op.name;
    let parts: Vec<StageId> = extents
        .into_iter()
        .map(|extent| cx.dag.compute(op, &[1], dtype, |_, _| PrimExpr::int(extent, dtype)))
        .collect();
    if parts.is_empty() {
        return cx.element(|_, _| PrimExpr::zero(dtype));
    }
    Ok(vec![cx.dag.concat(op, 0, &parts)])
}

fn ndarray_size(cx: &mut Compute<'_>) -> Stages {
    let (_, dtype) = cx.result();
    let extents = cx.dag.shape(cx.arg(0)?);
    // A tensor without elements may have any other extents.
    let size = if extents.contains(&0) {
        0
    } else {
        extents.iter().fold(1i64, |size, &extent| size.saturating_mul(extent))
    };
    cx.element(|_, _| PrimExpr::int(size, dtype))
}
