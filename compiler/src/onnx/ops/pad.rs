//! Elements around a tensor.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{ABS, FLOOR_MOD, GREATER_EQUAL, LESS, LOGICAL_AND, MAXIMUM, MINIMUM};
use crate::ops::nn::{PAD, PadAttrs, PadMode};
use crate::ops::tensor::{TAKE, TakeAttrs, TakeMode};

/// `Pad`-2 (attributes), -11 (inputs), -13, -18 (`axes`), -19 (`wrap`), -21 and later (more types).
/// Negative widths cut off.
pub(super) fn pad(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let ty = node.tensor(x)?;
    let rank = ty.shape.rank();
    let mode = match node.attrs.string("mode")?.unwrap_or("constant") {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" if node.version >= 19 => PadMode::Wrap,
        other => return Err(NodeError::new(format!("attribute `mode` cannot be `{other}`"))),
    };
    let (pads, fill) = if node.version < 11 {
        let pads = node.attrs.ints("pads")?.map(|pads| pads.iter().map(|&n| n.into()).collect());
        let value = node.attrs.float("value")?.unwrap_or(0.0);
        let fill = if value == 0.0 { None } else { Some(node.scalar(value, ty.dtype)?) };
        (pads, fill)
    } else {
        let fill = node.optional(2).map(|fill| node.reshape(fill, Vec::new())).transpose()?;
        (node.dims_input(1)?, fill)
    };
    let pads: Vec<Dim> = pads.ok_or_else(|| missing("pads"))?;
    let axes = match if node.version >= 18 { node.ints_input(3)? } else { None } {
        Some(axes) => node.axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(NodeError::new(format!(
            "{} axes take {} widths, but {} are given",
            axes.len(),
            2 * axes.len(),
            pads.len()
        )));
    }
    // The fill matters in constant mode alone; a zero of any type is what there is without it.
    let fill = fill.filter(|_| mode == PadMode::Constant);
    let mut pad_width = vec![[0; 2]; rank];
    let mut result = x;
    for (place, &axis) in axes.iter().enumerate() {
        let widths = [&pads[place], &pads[axes.len() + place]];
        if let [Some(before), Some(after)] = widths.map(Dim::as_const) {
            pad_width[axis] = [before, after];
            continue;
        }
        let extent = &ty.shape[axis] + widths[0] + widths[1];
        let all = node.input(1)?;
        let before = node.first_axis_at(all, place as i64)?;
        result = padded(node, result, axis, (before, extent), (mode, fill))?;
    }
    if pad_width.iter().flatten().any(|&width| width != 0) {
        let args = vec![Some(result), fill];
        result = node.call_optional(&PAD, args, &PadAttrs { pad_width, mode })?;
    }
    Ok(vec![result])
}

/// A tensor with elements around it along one axis, as many before it as a scalar says, and with that
/// extent: where these depend on the size of an input.
pub(super) fn padded(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: usize,
    (before, extent): (ExprId, Dim),
    (mode, fill): (PadMode, Option<ExprId>),
) -> Result<ExprId, NodeError> {
    let ty = node.tensor(x)?;
    let place = node.arange(0, extent)?;
    let before = node.cast(before, DType::I64)?;
    let place = node.subtract(place, before)?;
    let given = node.extent(x, axis)?;
    let from = match mode {
        PadMode::Constant | PadMode::Edge => place,
        PadMode::Wrap => node.call(&FLOOR_MOD, &[place, given])?,
        PadMode::Reflect => {
            // Both ends of the axis are where it turns.
            let one = node.int(1);
            let last = node.subtract(given, one)?;
            let turn = node.add(last, last)?;
            let far = node.call(&ABS, &[place])?;
            let round = node.call(&MAXIMUM, &[turn, one])?;
            let far = node.call(&FLOOR_MOD, &[far, round])?;
            let back = node.subtract(turn, far)?;
            node.call(&MINIMUM, &[far, back])?
        }
    };
    let attrs = TakeAttrs { axis: axis as i64, mode: TakeMode::Clip };
    let taken = node.call_with(&TAKE, &[x, from], &attrs)?;
    if mode != PadMode::Constant {
        return Ok(taken);
    }
    let zero = node.int(0);
    let begun = node.call(&GREATER_EQUAL, &[place, zero])?;
    let left = node.call(&LESS, &[place, given])?;
    let inside = node.call(&LOGICAL_AND, &[begun, left])?;
    let length = node.shape(place)?[0].clone();
    let shape = (0..ty.shape.rank())
        .map(|other| if other == axis { length.clone() } else { Dim::from(1i64) })
        .collect();
    let inside = node.reshape(inside, shape)?;
    let fill = match fill {
        Some(fill) => fill,
        None => node.scalar(0.0, ty.dtype)?,
    };
    node.choose(inside, taken, fill)
}
