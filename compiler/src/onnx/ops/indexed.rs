//! Operators that find elements through indices, ranks or conditions.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::OpDef;
use crate::ops::elementwise::{EQUAL, GREATER_EQUAL, LESS, LESS_EQUAL, SUBTRACT};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs};
use crate::ops::tensor::{
    CumulativeAttrs, GATHER, GATHER_ND, GatherAttrs, GatherNdAttrs, ONE_HOT, OneHotAttrs,
    SCATTER_ELEMENTS, SCATTER_ND, ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction, TOPK,
    TopkAttrs,
};

/// `GatherElements`-11, -13 (more types).
pub(super) fn gather_elements(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    Ok(vec![node.call_with(&GATHER, &[x, indices], &GatherAttrs { axis })?])
}

/// `GatherND`-11, -12 (`batch_dims`), -13 (more types).
pub(super) fn gather_nd(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let batch_dims =
        if node.version >= 12 { node.attrs.int("batch_dims")?.unwrap_or(0) } else { 0 };
    Ok(vec![node.call_with(&GATHER_ND, &[x, indices], &GatherNdAttrs { batch_dims })?])
}

/// The attribute `reduction` of scattering, which came with -16; minimum and maximum with -18, but
/// PyTorch writes them for -16, and ONNX Runtime reads them.
fn reduction(node: &mut Node<'_, '_>) -> Result<ScatterReduction, NodeError> {
    if node.version < 16 {
        return Ok(ScatterReduction::Update);
    }
    match node.attrs.string("reduction")?.unwrap_or("none") {
        "none" => Ok(ScatterReduction::Update),
        "add" => Ok(ScatterReduction::Add),
        "mul" => Ok(ScatterReduction::Mul),
        "min" => Ok(ScatterReduction::Min),
        "max" => Ok(ScatterReduction::Max),
        other => Err(NodeError::new(format!(
            "attribute `reduction` `{other}` is not one of version {} of the operator",
            node.version
        ))),
    }
}

/// `Scatter`-9, -11; `ScatterElements`-11, -13 (more types), -16 (`reduction`), -18.
pub(super) fn scatter_elements(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let args = [node.input(0)?, node.input(1)?, node.input(2)?];
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    let attrs = ScatterElementsAttrs { axis, reduction: reduction(node)? };
    Ok(vec![node.call_with(&SCATTER_ELEMENTS, &args, &attrs)?])
}

/// `ScatterND`-11, -13 (more types), -16 (`reduction`), -18.
pub(super) fn scatter_nd(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let args = [node.input(0)?, node.input(1)?, node.input(2)?];
    let attrs = ScatterNdAttrs { reduction: reduction(node)? };
    Ok(vec![node.call_with(&SCATTER_ND, &args, &attrs)?])
}

/// `TopK`-1 (`k` is an attribute), -10 (an input), -11 (`largest`, `sorted`), -24 (more types). Results
/// are sorted whether or not they must be.
pub(super) fn topk(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let axis = node.attrs.int("axis")?.unwrap_or(-1);
    let mut largest = true;
    if node.version >= 11 {
        largest = node.attrs.flag("largest", true)?;
        node.attrs.flag("sorted", true)?;
    }
    if let (10.., Some(k)) = (node.version, node.optional(1))
        && node.builder.data_of(k).shape_value.is_none()
        && node.known_value(k).is_none()
    {
        return super::counted::topk(node, axis, largest);
    }
    let k =
        if node.version < 10 { node.attrs.int("k")?.map(Dim::from) } else { node.dim_input(1)? };
    let k = k.ok_or_else(|| missing("k"))?;
    let both = node.call_with(&TOPK, &[x], &TopkAttrs { k, axis, largest })?;
    Ok(vec![node.field(both, 0)?, node.field(both, 1)?])
}

/// `CumSum`-11, -14 (more types); `CumProd`-26.
pub(super) fn cumulative(
    node: &mut Node<'_, '_>,
    op: &'static OpDef,
) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let axis = node.int_input(1)?.ok_or_else(|| missing("axis"))?;
    let exclusive = node.attrs.flag("exclusive", false)?;
    let reverse = node.attrs.flag("reverse", false)?;
    Ok(vec![node.call_with(op, &[x], &CumulativeAttrs { axis, exclusive, reverse })?])
}

/// The places along an axis for which the condition of `Compress` holds, which is known.
pub(super) fn kept_places(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: usize,
) -> Result<ExprId, NodeError> {
    let condition = node.ints_input(1)?.ok_or_else(|| missing("condition"))?;
    let kept: Vec<i64> =
        (0..).zip(&condition).filter(|(_, holds)| **holds != 0).map(|(index, _)| index).collect();
    let extent = node.known_extent(x, axis)?;
    if let Some(last) = kept.last().filter(|last| **last >= extent) {
        return Err(NodeError::new(format!(
            "the condition holds for slice {last}, but there are {extent}"
        )));
    }
    node.integers(&[kept.len() as i64], &kept)
}

/// `Hardmax`-1, -11 (negative axes), -13: 1 where the first greatest element stands. Until -13 all
/// axes from `axis` on are one.
pub(super) fn hardmax(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let ty = node.tensor(x)?;
    let rank = ty.shape.rank();
    let default = if node.version < 13 { 1 } else { -1 };
    let axis = node.attrs.int("axis")?.unwrap_or(default);
    let axis = node.axis(axis, rank)?;
    let flat = if node.version < 13 {
        node.reshape(x, vec![ty.shape[..axis].iter().product(), ty.shape[axis..].iter().product()])?
    } else {
        x
    };
    let axis = if node.version < 13 { 1 } else { axis };
    let (depth, axis) = (node.shape(flat)?[axis].clone(), axis as i64);
    let first = ArgReduceAttrs { axis, keepdims: false, select_last_index: false };
    let best = node.call_with(&ARGMAX, &[flat], &first)?;
    let (one, zero) = (node.scalar(1.0, ty.dtype)?, node.scalar(0.0, ty.dtype)?);
    let marked = node.call_with(&ONE_HOT, &[best, one, zero], &OneHotAttrs { depth, axis })?;
    Ok(vec![node.reshape(marked, ty.shape.to_vec())?])
}

/// How far the elements of a matrix are above its diagonal, `(rows, columns)`.
fn diagonals(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    let shape = node.shape(x)?;
    let [.., rows, columns] = &shape[..] else {
        return Err(NodeError::new(format!("a matrix is expected, but the shape is {shape}")));
    };
    let row = node.arange(0, rows.clone())?;
    let row = node.reshape(row, vec![rows.clone(), Dim::from(1i64)])?;
    let column = node.arange(0, columns.clone())?;
    node.subtract(column, row)
}

/// `Trilu`-14: one triangle of each matrix, the rest zero.
pub(super) fn trilu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let upper = node.attrs.flag("upper", true)?;
    let k = node.int_input(1)?.unwrap_or(0);
    let ty = node.tensor(x)?;
    let diagonal = diagonals(node, x)?;
    let bound = node.int(k);
    let keep = node.call(if upper { &GREATER_EQUAL } else { &LESS_EQUAL }, &[diagonal, bound])?;
    let zero = node.scalar(0.0, ty.dtype)?;
    Ok(vec![node.choose(keep, x, zero)?])
}

/// `EyeLike`-9, -22: ones on a diagonal, in the shape of the input.
pub(super) fn eye_like(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let k = node.attrs.int("k")?.unwrap_or(0);
    let dtype = match node.attrs.int("dtype")? {
        Some(code) => dtype_from_onnx(i32::try_from(code).unwrap_or(0))?,
        None => node.tensor(x)?.dtype,
    };
    if node.shape(x)?.rank() != 2 {
        return Err(NodeError::new(format!("a matrix is expected, but it is {}", node.tensor(x)?)));
    }
    let diagonal = diagonals(node, x)?;
    let at = node.int(k);
    let ones = node.call(&EQUAL, &[diagonal, at])?;
    Ok(vec![node.cast(ones, dtype)?])
}

/// `ReverseSequence`-10: the first elements of each sequence in reverse.
pub(super) fn reverse_sequence(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, lengths) = (node.input(0)?, node.input(1)?);
    let batch_axis = node.attrs.int("batch_axis")?.unwrap_or(1);
    let time_axis = node.attrs.int("time_axis")?.unwrap_or(0);
    let shape = node.shape(x)?;
    let batch = node.axis(batch_axis, shape.rank())?;
    let time = node.axis(time_axis, shape.rank())?;
    if batch == time {
        return Err(NodeError::new("`batch_axis` and `time_axis` are the same axis"));
    }
    let one = Dim::from(1i64);
    let along = |axis: usize| -> Vec<Dim> {
        (0..shape.rank()).map(|a| if a == axis { shape[a].clone() } else { one.clone() }).collect()
    };
    let step = node.arange(0, shape[time].clone())?;
    let step = node.reshape(step, along(time))?;
    let length = node.cast(lengths, DType::I64)?;
    let length = node.reshape(length, along(batch))?;
    // Within the sequence, the place as far from its end as this one is from its beginning.
    let last = node.with_scalar(&SUBTRACT, length, 1.0)?;
    let mirrored = node.subtract(last, step)?;
    let within = node.call(&LESS, &[step, length])?;
    let from = node.choose(within, mirrored, step)?;
    let from = node.broadcast_to(from, shape.to_vec())?;
    Ok(vec![node.call_with(&GATHER, &[x, from], &GatherAttrs { axis: time as i64 })?])
}
