//! Matrix products, normalisation, softmax and dropout.

use super::random;
use crate::graph::ExprId;
use crate::ir::{DType, Dim, TensorType};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::OpDef;
use crate::ops::elementwise::{ADD, DIVIDE, MULTIPLY, SQRT, SUBTRACT};
use crate::ops::nn::{
    BATCH_NORM, BatchNormAttrs, DENSE, DROPOUT, DropoutAttrs, GROUP_NORM, GroupNormAttrs,
    INSTANCE_NORM, InstanceNormAttrs, LAYER_NORM, LRN, LayerNormAttrs, LrnAttrs, MATMUL,
    MatmulAttrs, RMS_NORM, RmsNormAttrs, SoftmaxAttrs,
};
use crate::ops::reduce::{MEAN, ReduceAttrs};
use crate::ops::tensor::{BROADCAST_TO, BroadcastToAttrs};

/// What ONNX adds to a variance unless a node says otherwise.
pub(super) const EPSILON: f64 = 1e-5f32 as f64;

/// `MatMul`-1, -9 (integers), -13 (more types).
pub(super) fn matmul(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    let attrs = MatmulAttrs::default();
    Ok(vec![node.call_with(&MATMUL, &[a, b], &attrs)?])
}

/// `Gemm`-7 (broadcasting), -9 (integers), -11 (`C` is optional), -13 (more types):
/// `alpha·A'·B' + beta·C`.
pub(super) fn gemm(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (a, b, c) = (node.input(0)?, node.input(1)?, node.optional(2));
    if node.version < 11 && c.is_none() {
        return Err(NodeError::new("input 2 is missing; it is optional since version 11"));
    }
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let beta = node.attrs.float("beta")?.unwrap_or(1.0);
    let (trans_a, trans_b) = (node.attrs.flag("transA", false)?, node.attrs.flag("transB", false)?);
    for (value, name) in [(a, "A"), (b, "B")] {
        let shape = node.shape(value)?;
        if shape.rank() != 2 {
            return Err(NodeError::new(format!("`{name}` must be a matrix, but it is {shape}")));
        }
    }
    let dtype = node.tensor(a)?.dtype;
    if dtype.is_int() && [alpha, beta].iter().any(|factor| factor.fract() != 0.0) {
        return Err(NodeError::new(format!(
            "factors {alpha} and {beta} of {dtype} matrices must be integers"
        )));
    }
    let mut product = if trans_b && !trans_a {
        node.call(&DENSE, &[a, b])?
    } else {
        let attrs =
            MatmulAttrs { transpose_a: trans_a, transpose_b: trans_b, ..MatmulAttrs::default() };
        node.call_with(&MATMUL, &[a, b], &attrs)?
    };
    product = scale(node, product, alpha)?;
    // With a factor of zero `C` is not read, as in BLAS: it may hold NaN.
    let Some(c) = c.filter(|_| beta != 0.0) else { return Ok(vec![product]) };
    let c = scale(node, c, beta)?;
    let sum = node.call(&ADD, &[product, c])?;
    if node.shape(sum)? != node.shape(product)? {
        return Err(NodeError::new(format!(
            "`C` must broadcast to the product's shape {}, but it is {}",
            node.shape(product)?,
            node.shape(c)?
        )));
    }
    Ok(vec![sum])
}

fn scale(node: &mut Node<'_, '_>, value: ExprId, factor: f64) -> Result<ExprId, NodeError> {
    if factor == 1.0 {
        return Ok(value);
    }
    let dtype = node.tensor(value)?.dtype;
    let factor = node.scalar(factor, dtype)?;
    node.call(&MULTIPLY, &[value, factor])
}

/// `BatchNormalization`-7 (`spatial`), -9, -14 (`training_mode`), -15 (types of statistics differ from
/// the input's: what is wider than the input's type is computed with as it is).
pub(super) fn batch_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(EPSILON);
    let momentum = node.attrs.float("momentum")?.unwrap_or(f64::from(0.9f32));
    if node.version < 9 && !node.attrs.flag("spatial", true)? {
        return Err(NodeError::new("statistics for each element, `spatial` 0, are not supported"));
    }
    if node.version >= 14 && node.attrs.flag("training_mode", false)? {
        return super::norm::batch_in_training(node, epsilon, momentum);
    }
    if (1..node.output_count()).any(|index| node.wants_output(index)) {
        return Err(NodeError::new(
            "only batch normalisation in training mode puts out statistics",
        )
        .help("export the model for inference: model.eval(), or torch.onnx.TrainingMode.EVAL"));
    }
    let inputs = node.all_inputs()?;
    let types: Vec<DType> = inputs
        .iter()
        .map(|&input| Ok(node.tensor(input)?.dtype))
        .collect::<Result<_, NodeError>>()?;
    let dtype = types[0];
    let one_type = types.iter().all(|&other| other == dtype);
    let wide = types.iter().map(|dtype| dtype.accumulator()).max_by_key(|dtype| dtype.bits());
    let wide = wide.filter(|_| !one_type).unwrap_or(dtype);
    let inputs: Vec<ExprId> =
        inputs.into_iter().map(|input| node.cast(input, wide)).collect::<Result<_, _>>()?;
    let tuple = node.call_with(&BATCH_NORM, &inputs, &BatchNormAttrs::new(1, epsilon))?;
    let normal = node.field(tuple, 0)?;
    Ok(vec![node.cast(normal, dtype)?])
}

/// `Dropout`-7, -10 (a boolean mask), -12 (`ratio` and `training_mode` as inputs), -13, -22 (more
/// types). Only where nothing is dropped: in inference, or with a ratio of zero.
pub(super) fn dropout(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let rate = if node.version >= 12 {
        let seed = node.attrs.int("seed")?;
        let training = match node.optional(2) {
            Some(_) => node.ints_input(2)?.is_some_and(|flag| flag != [0]),
            None => false,
        };
        let drops_nothing = node.number_input(1).is_ok_and(|ratio| ratio == Some(0.0));
        if training && !drops_nothing {
            let ratio = node.number_input(1)?.unwrap_or(0.5);
            if !(0.0..1.0).contains(&ratio) {
                return Err(NodeError::new(format!(
                    "input `ratio` must be from 0 up to but not 1, but it is {ratio}"
                )));
            }
            let kept = random::kept(node, x, ratio, seed)?;
            let dtype = node.tensor(x)?.dtype;
            let scaled = node.with_scalar(&MULTIPLY, x, 1.0 / (1.0 - ratio))?;
            let zero = node.scalar(0.0, dtype)?;
            return Ok(vec![node.choose(kept, scaled, zero)?, kept]);
        }
        // Of no effect, so a computed one does not matter.
        node.number_input(1).ok().flatten().unwrap_or(0.5)
    } else {
        node.attrs.float("ratio")?.unwrap_or(0.5)
    };
    let tuple = node.call_with(&DROPOUT, &[x], &DropoutAttrs { rate })?;
    let mut outputs = vec![node.field(tuple, 0)?];
    if node.wants_output(1) {
        let mask = node.field(tuple, 1)?;
        let dtype = if node.version < 10 { node.tensor(x)?.dtype } else { DType::Bool };
        outputs.push(node.cast(mask, dtype)?);
    }
    Ok(outputs)
}

/// `Softmax` and `LogSoftmax`: -1 and -11 normalise over all dimensions from `axis` on, -13 over
/// `axis` alone, which is the last by default.
pub(super) fn softmax(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let default = if node.version >= 13 { -1 } else { 1 };
    let axis = node.attrs.int("axis")?.unwrap_or(default);
    // As far as the result goes, an axis at the very end is one of extent one.
    let at_end = node.version < 13 && axis == shape.rank() as i64;
    let split = if at_end { shape.rank() } else { node.axis(axis, shape.rank())? };
    let attrs = |axis: usize| SoftmaxAttrs { axis: axis as i64 };
    let one = |dim: &Dim| dim.as_const() == Some(1);
    if !at_end && (node.version >= 13 || shape[split + 1..].iter().all(one)) {
        return Ok(vec![node.call_with(op, &[x], &attrs(split))?]);
    }
    let flat = vec![shape[..split].iter().product(), shape[split..].iter().product()];
    let matrix = node.reshape(x, flat)?;
    let result = node.call_with(op, &[matrix], &attrs(1))?;
    Ok(vec![node.reshape(result, shape.to_vec())?])
}

/// `LRN`-1, -13 (more types).
pub(super) fn lrn(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let size = node.attrs.int("size")?;
    let attrs = LrnAttrs {
        size: size.ok_or_else(|| NodeError::new("attribute `size` is missing"))?,
        alpha: node.attrs.float("alpha")?.unwrap_or(f64::from(1e-4f32)),
        beta: node.attrs.float("beta")?.unwrap_or(0.75),
        bias: node.attrs.float("bias")?.unwrap_or(1.0),
    };
    let x = node.input(0)?;
    Ok(vec![node.call_with(&LRN, &[x], &attrs)?])
}

/// The mean and `√(variance + epsilon)`, over some axes that stay.
fn moments(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: Vec<i64>,
    epsilon: f64,
) -> Result<(ExprId, ExprId), NodeError> {
    let dtype = node.tensor(x)?.dtype;
    let attrs = ReduceAttrs { axis, keepdims: true };
    let mean = node.call_with(&MEAN, &[x], &attrs)?;
    let centred = node.call(&SUBTRACT, &[x, mean])?;
    let square = node.call(&MULTIPLY, &[centred, centred])?;
    let variance = node.call_with(&MEAN, &[square], &attrs)?;
    let epsilon = node.scalar(epsilon, dtype)?;
    let variance = node.call(&ADD, &[variance, epsilon])?;
    Ok((mean, node.call(&SQRT, &[variance])?))
}

/// `LayerNormalization`-17: over all axes from `axis` on. Mean and inverse deviation are computed
/// apart where the node wants them.
pub(super) fn layer_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, gamma, beta) = (node.input(0)?, node.input(1)?, node.optional(2));
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(EPSILON);
    let axis = node.attrs.int("axis")?.unwrap_or(-1);
    let stash_type = stash_type(node)?;
    let TensorType { shape, dtype } = node.tensor(x)?;
    let rank = shape.rank();
    let first = node.axis(axis, rank)?;
    let attrs = LayerNormAttrs { axis, epsilon };
    let mut outputs = Vec::new();
    if stash_type.bits() > dtype.accumulator().bits() {
        // Scale and bias come after the statistics, in the input's type.
        let wide = node.cast(x, stash_type)?;
        let normal = node.call_with(&LAYER_NORM, &[wide], &attrs)?;
        let normal = node.cast(normal, dtype)?;
        let scaled = node.multiply(normal, gamma)?;
        outputs.push(match beta {
            Some(beta) => node.add(scaled, beta)?,
            None => scaled,
        });
    } else {
        let args = vec![Some(x), Some(gamma), beta];
        outputs.push(node.call_optional(&LAYER_NORM, args, &attrs)?);
    }
    if node.wants_output(1) || node.wants_output(2) {
        let wide = node.cast(x, stash_type)?;
        let axes = (first as i64..rank as i64).collect();
        let (mean, deviation) = moments(node, wide, axes, epsilon)?;
        let one = node.scalar(1.0, stash_type)?;
        let inverse = node.call(&DIVIDE, &[one, deviation])?;
        outputs.extend([mean, inverse]);
    }
    Ok(outputs)
}

/// The type that statistics are computed in: `stash_type`, 32-bit floats by default.
pub(super) fn stash_type(node: &mut Node<'_, '_>) -> Result<DType, NodeError> {
    match node.attrs.int("stash_type")?.unwrap_or(1) {
        1 => Ok(DType::F32),
        11 => Ok(DType::F64),
        other => Err(NodeError::new(format!("attribute `stash_type` {other} is not supported"))),
    }
}

/// `RMSNormalization`-23: elements by the root of their mean square over all axes from `axis` on.
pub(super) fn rms_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, gamma) = (node.input(0)?, node.input(1)?);
    let attrs = rms_attrs(node)?;
    let stash_type = stash_type(node)?;
    Ok(vec![by_root_mean_square(node, x, gamma, &attrs, stash_type)?])
}

/// The attributes `axis` and `epsilon`.
pub(super) fn rms_attrs(node: &mut Node<'_, '_>) -> Result<RmsNormAttrs, NodeError> {
    let axis = node.attrs.int("axis")?.unwrap_or(-1);
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(EPSILON);
    Ok(RmsNormAttrs { axis, epsilon })
}

/// The elements by the root of their mean square, computed in `stash_type` at least, times `gamma`.
pub(super) fn by_root_mean_square(
    node: &mut Node<'_, '_>,
    x: ExprId,
    gamma: ExprId,
    attrs: &RmsNormAttrs,
    stash_type: DType,
) -> Result<ExprId, NodeError> {
    let dtype = node.tensor(x)?.dtype;
    if stash_type.bits() <= dtype.accumulator().bits() {
        return node.call_with(&RMS_NORM, &[x, gamma], attrs);
    }
    // The factors come after the statistics, in the input's type.
    let wide = node.cast(x, stash_type)?;
    let normal = node.call_with(&RMS_NORM, &[wide], attrs)?;
    let normal = node.cast(normal, dtype)?;
    node.multiply(normal, gamma)
}

/// The root of the mean square, which keeps the axes, in `stash_type`.
pub(super) fn root_mean_square(
    node: &mut Node<'_, '_>,
    x: ExprId,
    attrs: &RmsNormAttrs,
    stash_type: DType,
) -> Result<ExprId, NodeError> {
    let rank = node.shape(x)?.rank();
    let first = node.axis(attrs.axis, rank)?;
    let wide = node.cast(x, stash_type)?;
    let square = node.multiply(wide, wide)?;
    let mean = node.reduce(&MEAN, square, first..rank, true)?;
    let mean = node.with_scalar(&ADD, mean, attrs.epsilon)?;
    node.call(&SQRT, &[mean])
}

/// `InstanceNormalization`-6, -22 (more types): each channel of each example by its own statistics.
pub(super) fn instance_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, gamma, beta) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(EPSILON);
    if node.shape(x)?.rank() < 3 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, spatial…)"));
    }
    let attrs = InstanceNormAttrs { axis: 1, epsilon };
    Ok(vec![node.call_with(&INSTANCE_NORM, &[x, gamma, beta], &attrs)?])
}

/// `value·gamma + beta` in the value's type, with one of each for each channel, the axis 1 of the
/// value.
pub(super) fn per_channel(
    node: &mut Node<'_, '_>,
    value: ExprId,
    gamma: ExprId,
    beta: ExprId,
) -> Result<ExprId, NodeError> {
    let TensorType { shape, dtype } = node.tensor(value)?;
    let rank = shape.rank();
    let column = |node: &mut Node<'_, '_>, vector: ExprId| {
        let vector = node.cast(vector, dtype)?;
        let shape = node.shape(vector)?;
        let [channels] = &shape[..] else {
            return Err(NodeError::new(format!(
                "scale and bias must be vectors, but one is {shape}"
            )));
        };
        let mut dims = vec![Dim::from(1i64); rank.saturating_sub(1)];
        if let Some(first) = dims.first_mut() {
            *first = channels.clone();
        }
        node.reshape(vector, dims)
    };
    let gamma = column(node, gamma)?;
    let beta = column(node, beta)?;
    let scaled = node.call(&MULTIPLY, &[value, gamma])?;
    node.call(&ADD, &[scaled, beta])
}

/// `GroupNormalization`-18 (scale and bias for each group), -21 (for each channel): groups of
/// channels by their statistics.
pub(super) fn group_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, gamma, beta) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(EPSILON);
    let num_groups = node
        .attrs
        .int("num_groups")?
        .filter(|&groups| groups > 0)
        .ok_or_else(|| NodeError::new("attribute `num_groups` must be a positive number"))?;
    let TensorType { shape, dtype } = node.tensor(x)?;
    let attrs = GroupNormAttrs { num_groups, axis: 1, epsilon };
    if node.version < 21 {
        let channels = shape.get(1).and_then(Dim::as_const);
        let of_group = channels.filter(|channels| channels % num_groups == 0);
        let Some(of_group) = of_group.map(|channels| channels / num_groups) else {
            return Err(NodeError::new(format!(
                "{num_groups} groups do not divide the channels of {shape}"
            )));
        };
        let gamma = for_each_channel(node, gamma, num_groups, of_group)?;
        let beta = for_each_channel(node, beta, num_groups, of_group)?;
        return Ok(vec![node.call_with(&GROUP_NORM, &[x, gamma, beta], &attrs)?]);
    }
    let stash_type = stash_type(node)?;
    if stash_type.bits() <= dtype.accumulator().bits() {
        return Ok(vec![node.call_with(&GROUP_NORM, &[x, gamma, beta], &attrs)?]);
    }
    // Scale and bias come after the statistics, in the input's type.
    let wide = node.cast(x, stash_type)?;
    let normal = node.call_with(&GROUP_NORM, &[wide], &attrs)?;
    let normal = node.cast(normal, dtype)?;
    Ok(vec![per_channel(node, normal, gamma, beta)?])
}

/// A vector with one element for each group as one with the same for each channel of it.
fn for_each_channel(
    node: &mut Node<'_, '_>,
    vector: ExprId,
    groups: i64,
    of_group: i64,
) -> Result<ExprId, NodeError> {
    let column = node.reshape(vector, vec![groups.into(), 1i64.into()])?;
    let shape = vec![groups.into(), of_group.into()];
    let rows = node.call_with(&BROADCAST_TO, &[column], &BroadcastToAttrs { shape })?;
    node.reshape(rows, vec![(groups * of_group).into()])
}
