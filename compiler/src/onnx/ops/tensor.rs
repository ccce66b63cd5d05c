//! Operators that move elements or tell about a tensor: shapes, slices, joins, padding.

use super::{broadcast, counted, missing};
use crate::arith::Facts;
use crate::graph::ExprId;
use crate::ir::{Constant, DType, Dim, Shape, TensorType};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::MAX_RANK;
use crate::ops::tensor::{
    ARANGE, ArangeAttrs, CONCATENATE, ConcatenateAttrs, EXPAND_DIMS, ExpandDimsAttrs, FULL,
    FullAttrs, NDARRAY_SIZE, ONE_HOT, OneHotAttrs, SHAPE_OF, SQUEEZE, STRIDED_SLICE, ShapeOfAttrs,
    SqueezeAttrs, StridedSliceAttrs, TAKE, TRANSPOSE, TakeAttrs, TakeMode, TransposeAttrs,
};

/// Most elements of a `Range` that is computed while compiling.
///
/// Positions and the like have some thousands. Three numbers of a file can ask for any amount of
/// memory, so there must be a bound.
const MAX_RANGE: usize = 1 << 20;

/// `Identity`-1, -13, -14 (sequences), -16 (optional values), -19 and later (more types).
pub(super) fn identity(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    Ok(vec![node.input(0)?])
}

/// `Reshape`-5, -13 (more types), -14 (`allowzero`), -19 and later (more types). In the shape, 0 is
/// the input's extent at that place unless `allowzero` is set, and one -1 is what is left.
pub(super) fn reshape(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let allow_zero = node.version >= 14 && node.attrs.flag("allowzero", false)?;
    let x = node.input(0)?;
    let mut dims = node.dims_input(1)?.ok_or_else(|| missing("shape"))?;
    let from = node.shape(x)?;
    let mut inferred = None;
    for (index, dim) in dims.iter_mut().enumerate() {
        match dim.as_const() {
            Some(0) if !allow_zero => match from.get(index) {
                Some(kept) => *dim = kept.clone(),
                None => {
                    return Err(NodeError::new(format!(
                        "the shape keeps dimension {index}, but the input has {} dimensions",
                        from.rank()
                    )));
                }
            },
            Some(-1) if inferred.is_none() => inferred = Some(index),
            Some(-1) => return Err(NodeError::new("the shape has more than one -1")),
            Some(extent) if extent < -1 => {
                return Err(NodeError::new(format!("the shape has the negative extent {extent}")));
            }
            Some(_) | None => {}
        }
    }
    if let Some(index) = inferred {
        if allow_zero && dims.iter().any(|dim| dim.as_const() == Some(0)) {
            return Err(NodeError::new("a shape with an extent of 0 cannot have a -1"));
        }
        dims.remove(index);
        let rest = rest_of(&from, &dims)?;
        dims.insert(index, rest);
    }
    Ok(vec![node.reshape(x, dims)?])
}

/// The extent with which `dims` have as many elements as `from`.
fn rest_of(from: &Shape, dims: &[Dim]) -> Result<Dim, NodeError> {
    // Extents on both sides cancel out, so that symbols need not be divided.
    let mut have: Vec<Dim> = from.to_vec();
    let mut taken = Dim::from(1i64);
    for dim in dims {
        match have.iter().position(|extent| extent == dim) {
            Some(at) => {
                have.remove(at);
            }
            None => taken *= dim,
        }
    }
    let total: Dim = have.iter().product();
    match (total.as_const(), taken.as_const()) {
        (_, Some(0)) => Err(NodeError::new("-1 cannot be told in a shape that has an extent of 0")),
        (Some(total), Some(taken)) if total % taken != 0 => Err(NodeError::new(format!(
            "the shape does not divide the input's elements: {total} are left for extents of {taken}"
        ))),
        _ => Ok(total.floor_div(&taken)),
    }
}

/// `Flatten`-1, -9 (more types), -11 (negative axes), -13 and later (more types): a matrix, whose rows
/// are the dimensions before `axis`.
pub(super) fn flatten(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let axis = node.attrs.int("axis")?.unwrap_or(1);
    let shape = node.shape(x)?;
    let split =
        if axis == shape.rank() as i64 { shape.rank() } else { node.axis(axis, shape.rank())? };
    let dims = vec![shape[..split].iter().product(), shape[split..].iter().product()];
    Ok(vec![node.reshape(x, dims)?])
}

/// `Transpose`-1, -13 and later (more types): reverses the axes by default.
pub(super) fn transpose(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let rank = node.shape(x)?.rank() as i64;
    let axes = match node.attrs.ints("perm")? {
        Some(axes) => axes.to_vec(),
        None => (0..rank).rev().collect(),
    };
    Ok(vec![node.call_with(&TRANSPOSE, &[x], &TransposeAttrs { axes })?])
}

/// The axes of `Squeeze` and `Unsqueeze`: an attribute, and an input since -13.
fn squeeze_axes(node: &mut Node<'_, '_>) -> Result<Option<Vec<i64>>, NodeError> {
    if node.version >= 13 {
        return node.ints_input(1);
    }
    if node.input_count() > 1 {
        return Err(NodeError::new("the axes are an attribute until version 13 of the operator"));
    }
    Ok(node.attrs.ints("axes")?.map(<[i64]>::to_vec))
}

/// `Squeeze`-1, -11 (negative axes), -13 (axes as an input), -21 and later (more types). Without axes,
/// every axis of extent one goes.
pub(super) fn squeeze(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let axis = match squeeze_axes(node)? {
        Some(axes) => axes,
        None => {
            if let Some(dim) = shape.iter().find(|dim| dim.as_const().is_none()) {
                return Err(NodeError::new(format!(
                    "without axes, every dimension must be known, but one is {dim}"
                ))
                .pin([dim]));
            }
            (0..)
                .zip(shape.iter())
                .filter(|(_, dim)| dim.as_const() == Some(1))
                .map(|(i, _)| i)
                .collect()
        }
    };
    if axis.is_empty() {
        return Ok(vec![x]);
    }
    Ok(vec![node.call_with(&SQUEEZE, &[x], &SqueezeAttrs { axis })?])
}

/// `Unsqueeze`-1, -11 (negative axes), -13 (axes as an input), -21 and later (more types).
pub(super) fn unsqueeze(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let axis = squeeze_axes(node)?.ok_or_else(|| missing("axes"))?;
    if axis.is_empty() {
        return Ok(vec![x]);
    }
    if node.shape(x)?.rank().saturating_add(axis.len()) > MAX_RANK {
        return Err(NodeError::new(format!(
            "the result would have more than {MAX_RANK} dimensions"
        )));
    }
    Ok(vec![node.call_with(&EXPAND_DIMS, &[x], &ExpandDimsAttrs { axis })?])
}

/// `Concat`-4, -11 (negative axes), -13 (more types).
pub(super) fn concat(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let axis =
        node.attrs.int("axis")?.ok_or_else(|| NodeError::new("attribute `axis` is missing"))?;
    let inputs = node.all_inputs()?;
    if let &[single] = inputs.as_slice() {
        node.axis(axis, node.shape(single)?.rank())?;
        return Ok(vec![single]);
    }
    Ok(vec![node.call_with(&CONCATENATE, &inputs, &ConcatenateAttrs { axis })?])
}

/// `Gather`-1, -11 (negative indices), -13 (more types).
pub(super) fn gather(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    Ok(vec![node.call_with(&TAKE, &[x, indices], &TakeAttrs { axis, mode: TakeMode::Fast })?])
}

/// `Shape`-1, -13, -15 (`start` and `end`), -19 and later (more types).
pub(super) fn shape(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let all = node.call_with(&SHAPE_OF, &[x], &ShapeOfAttrs { dtype: DType::I64 })?;
    if node.version < 15 {
        return Ok(vec![all]);
    }
    let start = node.attrs.int("start")?.unwrap_or(0);
    let end = node.attrs.int("end")?;
    if start == 0 && end.is_none() {
        return Ok(vec![all]);
    }
    let attrs = StridedSliceAttrs {
        begin: vec![start],
        end: vec![end.unwrap_or(i64::MAX)],
        strides: vec![1],
        axes: vec![0],
    };
    Ok(vec![node.call_with(&STRIDED_SLICE, &[all], &attrs)?])
}

/// `Size`-1, -13 and later (more types).
pub(super) fn size(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    Ok(vec![node.call_with(&NDARRAY_SIZE, &[x], &ShapeOfAttrs { dtype: DType::I64 })?])
}

/// `Expand`-8, -13 (more types): broadcasts both ways between the input and the shape given.
pub(super) fn expand(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let (shape, dims) = (node.shape(x)?, node.dims_input(1)?.ok_or_else(|| missing("shape"))?);
    let is_same = |a: &Dim, b: &Dim| node.is_same(std::slice::from_ref(a), std::slice::from_ref(b));
    let shape = broadcast(&shape, &dims, is_same)?;
    Ok(vec![node.broadcast_to(x, shape)?])
}

/// `Tile`-6, -13 (more types): each axis gets one before it, which is broadcast and joined with it.
pub(super) fn tile(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let repeats = node.dims_input(1)?.ok_or_else(|| missing("repeats"))?;
    if 2 * shape.rank() > MAX_RANK {
        return Err(NodeError::new(format!(
            "tensors of at most {} dimensions can be repeated, but the input has {}",
            MAX_RANK / 2,
            shape.rank()
        )));
    }
    if repeats.len() != shape.rank() {
        return Err(NodeError::new(format!(
            "{} repeats are given for {} dimensions",
            repeats.len(),
            shape.rank()
        )));
    }
    let pairs = |first: &dyn Fn(usize) -> Dim| -> Vec<Dim> {
        (0..shape.rank()).flat_map(|axis| [first(axis), shape[axis].clone()]).collect()
    };
    let apart = node.reshape(x, pairs(&|_| Dim::from(1i64)))?;
    let repeated = node.broadcast_to(apart, pairs(&|axis| repeats[axis].clone()))?;
    let joined = shape.iter().zip(&repeats).map(|(extent, repeat)| extent * repeat).collect();
    Ok(vec![node.reshape(repeated, joined)?])
}

/// `ConstantOfShape`-9, -20 and later (more types): zeros of 32-bit floats by default.
pub(super) fn constant_of_shape(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let value = match node.attrs.tensor("value")? {
        Some(tensor) => node.read_constant(tensor)?,
        None => Constant::from_f32(&[1], &[0.0]).map_err(|e| NodeError::new(e.to_string()))?,
    };
    if value.ty().num_elements() != Some(1) {
        return Err(NodeError::new(format!(
            "attribute `value` must have one element, but it is {}",
            value.ty()
        )));
    }
    let dims = node.dims_input(0)?.ok_or_else(|| missing("input"))?;
    if dims.len() > MAX_RANK {
        return Err(NodeError::new(format!(
            "the result would have more than {MAX_RANK} dimensions"
        )));
    }
    let dtype = value.ty().dtype;
    let ty = TensorType::new(Shape::new(dims), dtype);
    let element = value.to_bytes().ok_or_else(|| NodeError::new("the value is not known"))?;
    // However large it is, the file says but one number; a small one becomes a constant in a pass.
    let scalar = Constant::splat(TensorType::scalar(dtype), &element)
        .map_err(|e| NodeError::new(e.to_string()))?;
    let scalar = node.constant(scalar);
    Ok(vec![node.call_with(&FULL, &[scalar], &FullAttrs { shape: ty.shape.to_vec() })?])
}

/// `Range`-11, -27 (more types, and `stash_type` for 16-bit floats): `start`, `limit` and `delta` must
/// be constants, but a range by a whole number may begin and end with sizes of inputs, or with what a run
/// computes.
pub(super) fn range(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let dtype = node.tensor(node.input(0)?)?.dtype;
    if node.version >= 27 {
        // Positions of 16-bit floats are computed in 64 bits here in any case.
        node.attrs.int("stash_type")?;
    }
    let too_long = || NodeError::new(format!("more than {MAX_RANGE} elements are not supported"));
    if let Some(attrs) = open_range(node)? {
        let range = node.call_with(&ARANGE, &[], &attrs)?;
        return Ok(vec![node.cast(range, dtype)?]);
    }
    if let Some(range) = counted::range(node)? {
        return Ok(vec![range]);
    }
    let constant = if dtype.is_int() {
        let [start, limit, delta] = [node.int_input(0)?, node.int_input(1)?, node.int_input(2)?]
            .map(|value| i128::from(value.unwrap_or_default()));
        if delta == 0 {
            return Err(NodeError::new("the step is zero"));
        }
        // As many steps as stay on this side of the limit.
        let span = (limit - start) * delta.signum();
        let count = usize::try_from(span.max(0).unsigned_abs().div_ceil(delta.unsigned_abs()));
        let count = count.ok().filter(|&count| count <= MAX_RANGE).ok_or_else(too_long)?;
        let width = dtype.bytes().ok_or_else(|| NodeError::new(format!("a range of {dtype}")))?;
        let bytes: Vec<u8> = (0..count as i128)
            .flat_map(|step| (start + step * delta).to_le_bytes().into_iter().take(width))
            .collect();
        let ty = TensorType::from_consts(&[count as i64], dtype);
        Constant::new(ty, crate::ir::SharedBytes::new(bytes))
    } else {
        let [start, limit, delta] =
            [node.number_input(0)?, node.number_input(1)?, node.number_input(2)?]
                .map(Option::unwrap_or_default);
        let count = ((limit - start) / delta).ceil().max(0.0);
        if !count.is_finite() || count > MAX_RANGE as f64 {
            return Err(too_long());
        }
        let values = (0..count as usize).map(|step| start + step as f64 * delta);
        let bytes: Vec<u8> = match dtype {
            DType::F32 => values.flat_map(|value| (value as f32).to_le_bytes()).collect(),
            DType::F64 => values.flat_map(f64::to_le_bytes).collect(),
            DType::F16 => values.flat_map(|v| half::f16::from_f64(v).to_le_bytes()).collect(),
            DType::BF16 => values.flat_map(|v| half::bf16::from_f64(v).to_le_bytes()).collect(),
            other => return Err(NodeError::new(format!("a range of {other} is not supported"))),
        };
        Constant::new(
            TensorType::from_consts(&[count as i64], dtype),
            crate::ir::SharedBytes::new(bytes),
        )
    };
    let constant = constant.map_err(|error| NodeError::new(error.to_string()))?;
    Ok(vec![node.constant(constant)])
}

/// A range of whole numbers, if its first or last element depends on the size of an input.
fn open_range(node: &mut Node<'_, '_>) -> Result<Option<ArangeAttrs>, NodeError> {
    let dtype = node.tensor(node.input(0)?)?.dtype;
    let ends = [node.whole_number(0)?, node.whole_number(1)?, node.whole_number(2)?];
    let [Some(start), Some(limit), Some(step)] = ends else { return Ok(None) };
    let Some(step) = step.as_const().filter(|&step| step != 0) else { return Ok(None) };
    if start.is_const() && limit.is_const() {
        return Ok(None);
    }
    let span = if step > 0 { limit - &start } else { &start - &limit };
    let length = span.ceil_div(&Dim::from(step.saturating_abs()));
    let is_some = Facts::dims().bounds_of(&length).lower.is_some_and(|lower| lower >= 0);
    let length = if is_some { length } else { length.maximum(&Dim::from(0i64)) };
    let dtype = if dtype.is_float() { DType::I64 } else { dtype };
    Ok(Some(ArangeAttrs { start, step, length, dtype }))
}

/// `OneHot`-9, -11 (negative indices and axes), -28: `depth` is a constant or of sizes; `values` are
/// those for off and on.
pub(super) fn one_hot(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let axis = node.attrs.int("axis")?.unwrap_or(-1);
    let (indices, values) = (node.input(0)?, node.input(2)?);
    let depth = match node.optional(1) {
        Some(depth) if node.builder.data_of(depth).shape_value.is_some() => node.dim_input(1)?,
        _ => node.number_input(1)?.map(|depth| Dim::from(depth as i64)),
    };
    let depth = depth.ok_or_else(|| missing("depth"))?;
    let ty = node.tensor(values)?;
    if ty.shape.as_consts().is_some_and(|shape| shape != [2]) {
        return Err(NodeError::new(format!(
            "input `values` must have two elements, the one of other places and the one of each index, \
             but it is {ty}"
        )));
    }
    let scalar = |node: &mut Node<'_, '_>, index: i64| {
        let attrs = StridedSliceAttrs {
            begin: vec![index],
            end: vec![index + 1],
            strides: vec![1],
            axes: vec![0],
        };
        let element = node.call_with(&STRIDED_SLICE, &[values], &attrs)?;
        node.reshape(element, Vec::new())
    };
    let off = scalar(node, 0)?;
    let on = scalar(node, 1)?;
    let indices = if node.tensor(indices)?.dtype.is_float() {
        node.cast(indices, DType::I64)?
    } else {
        indices
    };
    let attrs = OneHotAttrs { depth, axis };
    Ok(vec![node.call_with(&ONE_HOT, &[indices, on, off], &attrs)?])
}

/// `DepthToSpace`-1, -11 (`mode`), -13 (more types): blocks of channels become blocks of pixels.
pub(super) fn depth_to_space(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, [n, c, h, w], block) = image_and_block(node)?;
    let columns_first = match node.attrs.string("mode")?.unwrap_or("DCR") {
        "CRD" if node.version >= 11 => true,
        "DCR" => false,
        other => return Err(NodeError::new(format!("attribute `mode` cannot be `{other}`"))),
    };
    divides("channels", &c, block * block)?;
    let b = Dim::from(block);
    let depth = c.floor_div(&(&b * &b));
    let (apart, axes) = if columns_first {
        (
            vec![n.clone(), depth.clone(), b.clone(), b.clone(), h.clone(), w.clone()],
            [0, 1, 4, 2, 5, 3],
        )
    } else {
        (
            vec![n.clone(), b.clone(), b.clone(), depth.clone(), h.clone(), w.clone()],
            [0, 3, 4, 1, 5, 2],
        )
    };
    let apart = node.reshape(x, apart)?;
    let moved = node.call_with(&TRANSPOSE, &[apart], &TransposeAttrs { axes: axes.to_vec() })?;
    Ok(vec![node.reshape(moved, vec![n, depth, h * &b, w * &b])?])
}

/// `SpaceToDepth`-1, -13 (more types), -28 (`mode`): blocks of pixels become blocks of channels.
pub(super) fn space_to_depth(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, [n, c, h, w], block) = image_and_block(node)?;
    let mode = if node.version >= 28 { node.attrs.string("mode")? } else { None };
    let axes = match mode.unwrap_or("DCR") {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        other => return Err(NodeError::new(format!("attribute `mode` cannot be `{other}`"))),
    };
    divides("rows", &h, block)?;
    divides("columns", &w, block)?;
    let b = Dim::from(block);
    let (rows, columns) = (h.floor_div(&b), w.floor_div(&b));
    let apart = vec![n.clone(), c.clone(), rows.clone(), b.clone(), columns.clone(), b.clone()];
    let apart = node.reshape(x, apart)?;
    let moved = node.call_with(&TRANSPOSE, &[apart], &TransposeAttrs { axes })?;
    Ok(vec![node.reshape(moved, vec![n, c * &b * &b, rows, columns])?])
}

fn image_and_block(node: &mut Node<'_, '_>) -> Result<(ExprId, [Dim; 4], i64), NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let dims = <[Dim; 4]>::try_from(shape.to_vec())
        .map_err(|_| NodeError::new("input 0 must have dimensions (N, C, H, W)"))?;
    // The square of a larger block leaves 64 bits.
    let block = node.attrs.int("blocksize")?.filter(|block| (1..1 << 31).contains(block));
    let block = block
        .ok_or_else(|| NodeError::new("attribute `blocksize` must be positive and below 2³¹"))?;
    Ok((x, dims, block))
}

/// Checks that an extent can be divided into blocks, if it is known.
fn divides(what: &str, extent: &Dim, by: i64) -> Result<(), NodeError> {
    match extent.as_const() {
        Some(extent) if extent % by != 0 => {
            Err(NodeError::new(format!("the {extent} {what} of input 0 are no multiple of {by}")))
        }
        _ => Ok(()),
    }
}
