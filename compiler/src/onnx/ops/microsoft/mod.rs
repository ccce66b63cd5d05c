//! Operators of ONNX Runtime's domain, com.microsoft: what its optimiser and its quantisation tools
//! write. Most are made of operators of ONNX, whose handlers build them.

mod attention;
mod fused;
mod norm;
pub(super) mod quantized;

use super::{OpImport, elementwise, indexed, op, pad, quantize, recurrent, shaped, tensor};
use crate::graph::ExprId;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise as e;

/// Every operator, by name.
pub(super) static TABLE: &[OpImport] = &[
    op("Attention", &[1], (2, 7), attention::attention),
    op("BiasGelu", &[1], (2, 2), fused::bias_gelu),
    op("DequantizeLinear", &[1], (2, 3), |node| at(node, 21, quantize::dequantize_linear)),
    op("DynamicQuantizeLSTM", &[1], (3, 12), recurrent::dynamic_quantize_lstm),
    op("DynamicQuantizeMatMul", &[1], (3, 5), quantized::dynamic_quantize_matmul),
    op("EmbedLayerNormalization", &[1], (7, 9), norm::embed_layer_normalization),
    shaped("ExpandDims", &[1], (2, 2), &[1], |node| at(node, 13, tensor::unsqueeze)),
    op("FastGelu", &[1], (1, 2), fused::fast_gelu),
    op("FusedConv", &[1], (2, 4), fused::conv),
    op("FusedGemm", &[1], (2, 3), fused::gemm),
    op("FusedMatMul", &[1], (2, 2), fused::matmul),
    op("GatherND", &[1], (2, 2), indexed::gather_nd),
    op("Gelu", &[1], (1, 1), elementwise::gelu),
    shaped("GroupQueryAttention", &[1], (7, 12), &[6], attention::group_query_attention),
    op("LayerNormalization", &[1], (2, 3), super::nn::layer_normalization),
    op("MatMulIntegerToFloat", &[1], (4, 7), quantized::matmul_integer_to_float),
    op("MatMulNBits", &[1], (3, 6), quantized::matmul_n_bits),
    op("MultiHeadAttention", &[1], (1, 10), attention::multi_head_attention),
    op("NhwcConv", &[1], (2, 3), fused::nhwc_conv),
    op("NhwcFusedConv", &[1], (2, 4), fused::nhwc_fused_conv),
    op("NhwcMaxPool", &[1], (1, 1), fused::nhwc_max_pool),
    shaped("Pad", &[1], (2, 3), &[1], |node| at(node, 13, pad::pad)),
    op("QAttention", &[1], (5, 9), attention::quantized_attention),
    op("QGemm", &[1], (6, 9), quantized::gemm),
    op("QLinearAdd", &[1], (7, 8), |node| quantized::binary(node, &e::ADD)),
    op("QLinearAveragePool", &[1], (4, 5), quantized::average_pool),
    op("QLinearConcat", &[1], (3, usize::MAX), quantized::concat),
    op("QLinearConv", &[1], (8, 9), quantized::conv),
    op("QLinearGlobalAveragePool", &[1], (5, 5), quantized::global_average_pool),
    op("QLinearLeakyRelu", &[1], (4, 5), |node| quantized::function(node, elementwise::leaky_relu)),
    op("QLinearMul", &[1], (7, 8), |node| quantized::binary(node, &e::MULTIPLY)),
    op("QLinearReduceMean", &[1], (4, 5), quantized::reduce_mean),
    op("QLinearSigmoid", &[1], (4, 5), |node| {
        quantized::function(node, |node| elementwise::unary(node, &e::SIGMOID))
    }),
    op("QLinearSoftmax", &[1], (5, 5), quantized::softmax),
    op("QLinearWhere", &[1], (9, 9), quantized::select),
    op("QuantizeLinear", &[1], (2, 3), |node| at(node, 21, quantize::quantize_linear)),
    op("QuickGelu", &[1], (1, 1), fused::quick_gelu),
    shaped("Range", &[1], (2, 3), &[0, 1, 2], fused::range),
    op("RotaryEmbedding", &[1], (4, 4), attention::rotary_embedding),
    op("SimplifiedLayerNormalization", &[1], (2, 2), norm::simplified_layer_normalization),
    op("SkipLayerNormalization", &[1], (3, 5), norm::skip_layer_normalization),
    op("SkipSimplifiedLayerNormalization", &[1], (3, 4), norm::skip_simplified),
    op("TransposeMatMul", &[1], (2, 2), fused::matmul),
    shaped("Trilu", &[1], (1, 2), &[1], indexed::trilu),
];

/// Operators that ONNX Runtime has in ONNX's own domain besides the standard's, for models from
/// before the standard had them.
pub(super) static IN_ONNX: &[OpImport] = &[
    op("Crop", &[1], (1, 1), fused::crop),
    op("ImageScaler", &[1], (1, 1), fused::image_scaler),
    op("LayerNormalization", &[1], (2, 3), super::nn::layer_normalization),
    op("ParametricSoftplus", &[1], (1, 1), fused::parametric_softplus),
    op("ScaledTanh", &[1], (1, 1), fused::scaled_tanh),
    op("SimplifiedLayerNormalization", &[1], (2, 2), norm::simplified_layer_normalization),
    op("ThresholdedRelu", &[1], (1, 1), elementwise::thresholded_relu),
];

/// What a handler of ONNX's own domain makes of the node, as of one of its operator's versions.
fn at(
    node: &mut Node<'_, '_>,
    version: i64,
    handler: fn(&mut Node<'_, '_>) -> Result<Outputs, NodeError>,
) -> Result<Outputs, NodeError> {
    let inputs = (0..node.input_count()).map(|index| node.optional(index)).collect();
    node.on_inputs(version, inputs, |node| handler(node))
}

/// The only output of a handler on other inputs.
fn single<'a, 'b>(
    node: &mut Node<'a, 'b>,
    version: i64,
    inputs: &[ExprId],
    handler: impl FnOnce(&mut Node<'a, 'b>) -> Result<Outputs, NodeError>,
) -> Result<ExprId, NodeError> {
    let inputs = inputs.iter().copied().map(Some).collect();
    let outputs = node.on_inputs(version, inputs, handler)?;
    outputs.first().copied().ok_or_else(|| NodeError::new("there is no output"))
}

/// `(N, spatial…, C)` as `(N, C, spatial…)`.
fn channels_first(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    let rank = node.shape(x)?.rank();
    let axes: Vec<usize> =
        [0, rank.saturating_sub(1)].into_iter().chain(1..rank.max(1) - 1).collect();
    if rank < 3 {
        return Err(NodeError::new("input 0 must have dimensions (N, spatial…, C)"));
    }
    node.transposed(x, &axes)
}

/// `(N, C, spatial…)` as `(N, spatial…, C)`.
fn channels_last(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    let rank = node.shape(x)?.rank();
    let axes: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    node.transposed(x, &axes)
}
