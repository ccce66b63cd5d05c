//! Products, convolutions and functions with what ONNX Runtime's optimiser joined to them, and
//! operators of the first ONNX versions that it still has.

use super::{channels_first, channels_last, single};
use crate::graph::ExprId;
use crate::ir::Constant;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::recurrent::Activation;
use crate::onnx::ops::{missing, nn, tensor, window};
use crate::ops::elementwise::{
    CLIP, ClipAttrs, GELU, GeluApproximation, GeluAttrs, MULTIPLY, SIGMOID, SOFTPLUS, TANH,
};
use crate::ops::nn::{MATMUL, MatmulAttrs};

/// The activation that the attribute `activation` names, if there is one, of parameters in their
/// order.
fn activated(node: &mut Node<'_, '_>, x: ExprId, parameters: &[f64]) -> Result<ExprId, NodeError> {
    let Some(name) = node.attrs.string("activation")?.filter(|name| !name.is_empty()) else {
        return Ok(x);
    };
    let parameter = |index: usize| parameters.get(index).copied();
    if name == "Clip" {
        let attrs = ClipAttrs { min: parameter(0), max: parameter(1) };
        return node.call_with(&CLIP, &[x], &attrs);
    }
    let (mut alphas, mut betas) = (parameter(0).into_iter(), parameter(1).into_iter());
    Activation::new(name, &mut alphas, &mut betas)?.apply(node, x)
}

/// `FusedGemm`: `Gemm` and an activation.
pub(super) fn gemm(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("activation_alpha")?;
    let beta = node.attrs.float("activation_beta")?;
    node.attrs.float("activation_gamma")?;
    let inputs = (0..node.input_count()).map(|index| node.optional(index)).collect();
    let product = node.on_inputs(13, inputs, |node| nn::gemm(node))?;
    let parameters: Vec<f64> = alpha.into_iter().chain(beta).collect();
    Ok(vec![activated(node, product[0], &parameters)?])
}

/// `FusedConv`: `Conv`, the sum with a fourth input, and an activation.
pub(super) fn conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, sum) = (node.input(0)?, node.optional(3));
    Ok(vec![fused_conv(node, x, sum)?])
}

fn fused_conv(
    node: &mut Node<'_, '_>,
    x: ExprId,
    sum: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    let (weight, bias) = (node.input(1)?, node.optional(2));
    let mut y = window::convolve(node, x, weight, bias)?;
    if let Some(sum) = sum {
        y = node.add(y, sum)?;
    }
    let parameters = node.attrs.floats("activation_params")?.unwrap_or_default();
    let parameters: Vec<f64> = parameters.iter().map(|&number| f64::from(number)).collect();
    activated(node, y, &parameters)
}

/// `NhwcConv`: `Conv` of `(N, spatial…, C)`; the weights are as ever.
pub(super) fn nhwc_conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight, bias) = (node.input(0)?, node.input(1)?, node.optional(2));
    let x = channels_first(node, x)?;
    let y = window::convolve(node, x, weight, bias)?;
    Ok(vec![channels_last(node, y)?])
}

/// `NhwcFusedConv`: `FusedConv` of `(N, spatial…, C)`.
pub(super) fn nhwc_fused_conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x = channels_first(node, x)?;
    let sum = match node.optional(3) {
        Some(sum) => Some(channels_first(node, sum)?),
        None => None,
    };
    let y = fused_conv(node, x, sum)?;
    Ok(vec![channels_last(node, y)?])
}

/// `NhwcMaxPool`: `MaxPool` of `(N, spatial…, C)`.
pub(super) fn nhwc_max_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x = channels_first(node, x)?;
    let y = single(node, 12, &[x], |node| window::max_pool(node))?;
    Ok(vec![channels_last(node, y)?])
}

/// `FusedMatMul`: `MatMul` of transposed matrices, times a factor. With `transBatchA` the rows of `A`
/// come before its batch axes.
pub(super) fn matmul(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut operands = [node.input(0)?, node.input(1)?];
    let mut transposed = [false; 2];
    for (index, [matrix, batch]) in
        [["transA", "transBatchA"], ["transB", "transBatchB"]].into_iter().enumerate()
    {
        let rank = node.shape(operands[index])?.rank();
        // A vector is no matrix that could be transposed.
        transposed[index] = node.attrs.flag(matrix, false)? && rank > 1;
        if node.attrs.flag(batch, false)? && rank > 2 {
            let axes: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
            operands[index] = node.transposed(operands[index], &axes)?;
        }
    }
    let [transpose_a, transpose_b] = transposed;
    let attrs = MatmulAttrs { transpose_a, transpose_b, ..MatmulAttrs::default() };
    let product = node.call_with(&MATMUL, &operands, &attrs)?;
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    Ok(vec![if alpha == 1.0 { product } else { node.with_scalar(&MULTIPLY, product, alpha)? }])
}

/// `BiasGelu`: `Gelu` of a sum.
pub(super) fn bias_gelu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    gelu_of_sum(node, GeluApproximation::None)
}

/// `FastGelu`: `Gelu` by the hyperbolic tangent, of a sum if there is a bias.
pub(super) fn fast_gelu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    gelu_of_sum(node, GeluApproximation::Tanh)
}

fn gelu_of_sum(
    node: &mut Node<'_, '_>,
    approximate: GeluApproximation,
) -> Result<Outputs, NodeError> {
    let mut x = node.input(0)?;
    if let Some(bias) = node.optional(1) {
        x = node.add(x, bias)?;
    }
    Ok(vec![node.call_with(&GELU, &[x], &GeluAttrs { approximate })?])
}

/// `QuickGelu`: `x·sigmoid(alpha·x)`.
pub(super) fn quick_gelu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(f64::from(1.702f32));
    let x = node.input(0)?;
    let scaled = node.with_scalar(&MULTIPLY, x, alpha)?;
    let gate = node.call(&SIGMOID, &[scaled])?;
    Ok(vec![node.multiply(x, gate)?])
}

/// `Range`: its step is one if left out.
pub(super) fn range(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (start, limit) = (node.input(0)?, node.input(1)?);
    let step = match node.optional(2) {
        Some(step) => step,
        None => {
            let dtype = node.tensor(start)?.dtype;
            node.scalar(1.0, dtype)?
        }
    };
    Ok(vec![single(node, 11, &[start, limit, step], |node| tensor::range(node))?])
}

/// `ImageScaler`-1: `scale·x`, and a bias for each channel.
pub(super) fn image_scaler(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let scale = node.attrs.float("scale")?.unwrap_or(1.0);
    let bias = node.attrs.floats("bias")?.unwrap_or_default();
    let rank = node.shape(x)?.rank();
    if rank != 4 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, H, W)"));
    }
    if bias.len() as i64 != node.known_extent(x, 1)? {
        return Err(NodeError::new(format!(
            "attribute `bias` must have a number for each channel, but it has {}",
            bias.len()
        )));
    }
    let bias = Constant::from_f32(&[bias.len() as i64, 1, 1], bias)
        .map_err(|error| NodeError::new(error.to_string()))?;
    let dtype = node.tensor(x)?.dtype;
    let bias = node.constant(bias);
    let bias = node.cast(bias, dtype)?;
    let scaled = node.with_scalar(&MULTIPLY, x, scale)?;
    Ok(vec![node.add(scaled, bias)?])
}

/// `Crop`-1: without a border, and of the extents `scale` if it is there.
pub(super) fn crop(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.shape(x)?.rank() != 4 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, H, W)"));
    }
    let border = node.attrs.ints("border")?.ok_or_else(|| missing("border"))?;
    let &[left, top, right, bottom] = border else {
        return Err(NodeError::new(format!(
            "attribute `border` must have 4 values, left, top, right and bottom, but it is {border:?}"
        )));
    };
    let scale = node.attrs.ints("scale")?;
    let mut y = x;
    for (axis, before, after) in [(2, top, bottom), (3, left, right)] {
        let extent = node.known_extent(x, axis)?;
        let end = match scale {
            None => extent.saturating_sub(after),
            Some(&[height, width]) => before.saturating_add(if axis == 2 { height } else { width }),
            Some(other) => {
                return Err(NodeError::new(format!(
                    "attribute `scale` must have 2 values, height and width, but it is {other:?}"
                )));
            }
        };
        if before < 0 || after < 0 || end <= before || end > extent {
            return Err(NodeError::new(format!(
                "elements {before} to {end} of the {extent} of axis {axis} are asked for"
            )));
        }
        y = node.slice(y, axis, before, end)?;
    }
    Ok(vec![y])
}

/// `ScaledTanh`-1: `alpha·tanh(beta·x)`.
pub(super) fn scaled_tanh(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.ok_or_else(|| missing("alpha"))?;
    let beta = node.attrs.float("beta")?.ok_or_else(|| missing("beta"))?;
    let x = node.input(0)?;
    let inner = node.with_scalar(&MULTIPLY, x, beta)?;
    let tanh = node.call(&TANH, &[inner])?;
    Ok(vec![node.with_scalar(&MULTIPLY, tanh, alpha)?])
}

/// `ParametricSoftplus`-1: `alpha·ln(1 + exp(beta·x))`.
pub(super) fn parametric_softplus(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.ok_or_else(|| missing("alpha"))?;
    let beta = node.attrs.float("beta")?.ok_or_else(|| missing("beta"))?;
    let x = node.input(0)?;
    let inner = node.with_scalar(&MULTIPLY, x, beta)?;
    let softplus = node.call(&SOFTPLUS, &[inner])?;
    Ok(vec![node.with_scalar(&MULTIPLY, softplus, alpha)?])
}
