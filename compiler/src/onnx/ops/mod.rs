//! The ONNX operators that can be imported: one table, handlers by family.
//!
//! A handler reads every attribute that its operator has at the version in effect, and builds calls
//! of graph operators. Its comment has the operator's history: `-13` is the version of ONNX's
//! operator set that changed it.

pub(super) mod attention;
mod calls;
mod conv_transpose;
mod counted;
mod einsum;
mod elementwise;
mod fractions;
mod indexed;
mod loss;
mod microsoft;
mod ml;
mod ngrams;
mod nn;
mod norm;
mod pad;
mod quantize;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod registered;
pub(super) mod repeat;
mod resize;
mod sampling;
mod selected;
mod sequence;
mod signal;
mod slice;
mod tensor;
mod training;
mod unique;
mod window;

pub use registered::{ImportFn, OnnxOp, OnnxOpEntry};

use std::collections::{BTreeMap, BTreeSet};

use super::import::{Node, NodeError, Outputs};
use crate::ir::Dim;
use crate::ops::{elementwise as e, nn as n, reduce as r, tensor as t};

/// How an ONNX operator is imported.
pub(super) struct OpImport {
    /// The name.
    pub(super) name: &'static str,
    /// The versions of the operator set in which it appeared or changed, ascending.
    since: &'static [i64],
    /// Least and greatest number of inputs, over all versions that are supported.
    pub(super) inputs: (usize, usize),
    /// The inputs that must be known while compiling.
    known: &'static [usize],
    /// Builds the node's outputs.
    pub(super) import: Handler,
}

/// What builds the outputs of a node.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// A function of the node alone.
    Calls(ImportFn),
    /// `If`, whose branches are graphs.
    If,
    /// `Loop`, whose body is a graph.
    Loop,
    /// `Scan`, whose body is a graph.
    Scan,
    /// `SequenceMap`, whose body is a graph.
    SequenceMap,
    /// `Optional`, which may be nothing.
    Optional,
    /// `FlexAttention`, whose scores and weights go through graphs.
    FlexAttention,
}

impl OpImport {
    /// The version of the operator in a version of the operator set: the newest that is not newer.
    pub(super) fn version(&self, opset: i64) -> Option<i64> {
        self.since.iter().copied().rfind(|&since| since <= opset)
    }
}

/// The inputs of an operator that must be known while compiling, by position.
pub(super) fn known_inputs(domain: &str, name: &str) -> &'static [usize] {
    find(domain, name, i64::MAX).ok().flatten().map_or(&[], |op| op.known)
}

/// The import of the operator of that domain and name; that of another crate comes first. Where
/// ONNX's own domain does not have it at that version of the operator set, it may be one that ONNX
/// Runtime has there.
///
/// # Errors
///
/// The places where other crates register it, if they are several.
pub(super) fn find(
    domain: &str,
    name: &str,
    opset: i64,
) -> Result<Option<&'static OpImport>, String> {
    if let Some(op) = registered::find(domain, name)? {
        return Ok(Some(op));
    }
    let table = match domain {
        "" => TABLE,
        "ai.onnx.preview" => PREVIEW,
        "ai.onnx.preview.training" => TRAINING,
        "ai.onnx.ml" => ml::TABLE,
        "com.microsoft" => microsoft::TABLE,
        _ => return Ok(None),
    };
    let of = |table: &'static [OpImport]| {
        table.binary_search_by(|op| op.name.cmp(name)).ok().map(|index| &table[index])
    };
    let standard = of(table);
    if domain.is_empty() && standard.is_none_or(|op| op.version(opset).is_none()) {
        return Ok(of(microsoft::IN_ONNX).or(standard));
    }
    Ok(standard)
}

const fn op(
    name: &'static str,
    since: &'static [i64],
    inputs: (usize, usize),
    import: fn(&mut Node<'_, '_>) -> Result<Outputs, NodeError>,
) -> OpImport {
    OpImport { name, since, inputs, known: &[], import: Handler::Calls(import) }
}

/// As [`op`], for one some of whose inputs must be known while compiling.
const fn shaped(
    name: &'static str,
    since: &'static [i64],
    inputs: (usize, usize),
    known: &'static [usize],
    import: fn(&mut Node<'_, '_>) -> Result<Outputs, NodeError>,
) -> OpImport {
    OpImport { name, since, inputs, known, import: Handler::Calls(import) }
}

/// An operator that has graphs as attributes.
const fn control(
    name: &'static str,
    since: &'static [i64],
    inputs: (usize, usize),
    known: &'static [usize],
    import: Handler,
) -> OpImport {
    OpImport { name, since, inputs, known, import }
}

/// Every operator, by name.
static TABLE: &[OpImport] = &[
    op("Abs", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::ABS)),
    op("Acos", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::ACOS)),
    op("Acosh", &[9, 22], (1, 1), |node| elementwise::unary(node, &e::ACOSH)),
    op("Add", &[1, 6, 7, 13, 14], (2, 2), |node| elementwise::binary(node, &e::ADD)),
    shaped("AffineGrid", &[20], (2, 2), &[1], sampling::affine_grid),
    op("And", &[1, 7], (2, 2), |node| elementwise::binary(node, &e::LOGICAL_AND)),
    op("ArgMax", &[1, 11, 12, 13], (1, 1), |node| reduce::arg(node, &r::ARGMAX)),
    op("ArgMin", &[1, 11, 12, 13], (1, 1), |node| reduce::arg(node, &r::ARGMIN)),
    op("Asin", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::ASIN)),
    op("Asinh", &[9, 22], (1, 1), |node| elementwise::unary(node, &e::ASINH)),
    op("Atan", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::ATAN)),
    op("Atanh", &[9, 22], (1, 1), |node| elementwise::unary(node, &e::ATANH)),
    op("Attention", &[23, 24, 25], (3, 7), attention::attention),
    op("AveragePool", &[1, 7, 10, 11, 19, 22], (1, 1), window::average_pool),
    op("BatchNormalization", &[1, 6, 7, 9, 14, 15], (5, 5), nn::batch_normalization),
    op("Bernoulli", &[15, 22], (1, 1), random::bernoulli),
    op("BitCast", &[26], (1, 1), rearrange::bit_cast),
    op("BitShift", &[11, 28], (2, 2), elementwise::bit_shift),
    op("BitwiseAnd", &[18], (2, 2), |node| elementwise::binary(node, &e::BITWISE_AND)),
    op("BitwiseNot", &[18], (1, 1), |node| elementwise::unary(node, &e::BITWISE_NOT)),
    op("BitwiseOr", &[18], (2, 2), |node| elementwise::binary(node, &e::BITWISE_OR)),
    op("BitwiseXor", &[18], (2, 2), |node| elementwise::binary(node, &e::BITWISE_XOR)),
    shaped("BlackmanWindow", &[17], (1, 1), &[0], signal::blackman_window),
    op("Cast", &[1, 6, 9, 13, 19, 21, 23, 24, 25, 28], (1, 1), elementwise::cast),
    op("CastLike", &[15, 19, 21, 23, 24, 25], (2, 2), elementwise::cast_like),
    op("CausalConvWithState", &[27], (2, 4), attention::causal_conv_with_state),
    op("Ceil", &[1, 6, 13], (1, 1), elementwise::ceil),
    op("Celu", &[12, 28], (1, 1), elementwise::celu),
    shaped("CenterCropPad", &[18], (2, 2), &[1], rearrange::center_crop_pad),
    op("Clip", &[1, 6, 11, 12, 13], (1, 3), elementwise::clip),
    shaped("Col2Im", &[18], (3, 3), &[1, 2], rearrange::col2im),
    op("Compress", &[9, 11], (2, 2), counted::compress),
    op("Concat", &[1, 4, 11, 13], (1, usize::MAX), tensor::concat),
    op("ConcatFromSequence", &[11], (1, 1), sequence::concat),
    op("Constant", &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25], (0, 0), elementwise::constant),
    shaped("ConstantOfShape", &[9, 20, 21, 23, 24, 25], (1, 1), &[0], tensor::constant_of_shape),
    op("Conv", &[1, 11, 22], (2, 3), window::conv),
    op("ConvInteger", &[10], (2, 4), quantize::conv_integer),
    op("ConvTranspose", &[1, 11, 22], (2, 3), conv_transpose::conv_transpose),
    op("Cos", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::COS)),
    op("Cosh", &[9, 22], (1, 1), |node| elementwise::unary(node, &e::COSH)),
    shaped("CumProd", &[26], (2, 2), &[1], |node| indexed::cumulative(node, &t::CUMPROD)),
    shaped("CumSum", &[11, 14], (2, 2), &[1], |node| indexed::cumulative(node, &t::CUMSUM)),
    shaped("DFT", &[17, 20], (1, 3), &[1, 2], signal::dft),
    op("DeformConv", &[19, 22], (3, 5), sampling::deform_conv),
    op("DepthToSpace", &[1, 11, 13, 28], (1, 1), tensor::depth_to_space),
    op("DequantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], (2, 3), quantize::dequantize_linear),
    op("Det", &[11, 22], (1, 1), rearrange::det),
    op("Div", &[1, 6, 7, 13, 14], (2, 2), |node| elementwise::binary(node, &e::DIVIDE)),
    shaped("Dropout", &[1, 6, 7, 10, 12, 13, 22], (1, 3), &[1, 2], nn::dropout),
    op("DynamicQuantizeLinear", &[11], (1, 1), quantize::dynamic_quantize_linear),
    op("Einsum", &[12], (1, usize::MAX), einsum::einsum),
    op("Elu", &[1, 6, 22], (1, 1), elementwise::elu),
    op("Equal", &[1, 7, 11, 13, 19], (2, 2), |node| elementwise::binary(node, &e::EQUAL)),
    op("Erf", &[9, 13], (1, 1), |node| elementwise::unary(node, &e::ERF)),
    op("Exp", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::EXP)),
    shaped("Expand", &[8, 13], (2, 2), &[1], tensor::expand),
    op("EyeLike", &[9, 22], (1, 1), indexed::eye_like),
    op("Flatten", &[1, 9, 11, 13, 21, 23, 24, 25], (1, 1), tensor::flatten),
    op("Floor", &[1, 6, 13], (1, 1), elementwise::floor),
    op("GRU", &[1, 3, 7, 14, 22], (3, 6), recurrent::gru),
    op("Gather", &[1, 11, 13], (2, 2), tensor::gather),
    op("GatherElements", &[11, 13], (2, 2), indexed::gather_elements),
    op("GatherND", &[11, 12, 13], (2, 2), indexed::gather_nd),
    op("Gelu", &[20], (1, 1), elementwise::gelu),
    op("Gemm", &[1, 6, 7, 9, 11, 13], (2, 3), nn::gemm),
    op("GlobalAveragePool", &[1, 22], (1, 1), window::global_average_pool),
    op("GlobalLpPool", &[1, 2, 22], (1, 1), norm::global_lp_pool),
    op("GlobalMaxPool", &[1, 22], (1, 1), window::global_max_pool),
    op("Greater", &[1, 7, 9, 13], (2, 2), |node| elementwise::binary(node, &e::GREATER)),
    op("GreaterOrEqual", &[12, 16], (2, 2), |node| elementwise::binary(node, &e::GREATER_EQUAL)),
    op("GridSample", &[16, 20, 22], (2, 2), sampling::grid_sample),
    op("GroupNormalization", &[18, 21], (3, 3), nn::group_normalization),
    shaped("HammingWindow", &[17], (1, 1), &[0], signal::hamming_window),
    shaped("HannWindow", &[17], (1, 1), &[0], signal::hann_window),
    op("HardSigmoid", &[1, 6, 22], (1, 1), elementwise::hard_sigmoid),
    op("HardSwish", &[14, 22], (1, 1), |node| elementwise::unary(node, &e::HARDSWISH)),
    op("Hardmax", &[1, 11, 13], (1, 1), indexed::hardmax),
    op("Identity", &[1, 13, 14, 16, 19, 21, 23, 24, 25], (1, 1), tensor::identity),
    control("If", &[1, 11, 13, 16, 19, 21, 23, 24, 25], (1, 1), &[0], Handler::If),
    op("InstanceNormalization", &[1, 6, 22], (3, 3), nn::instance_normalization),
    op("IsInf", &[10, 20], (1, 1), elementwise::is_inf),
    op("IsNaN", &[9, 13, 20], (1, 1), |node| elementwise::unary(node, &e::ISNAN)),
    op("LRN", &[1, 13], (1, 1), nn::lrn),
    op("LSTM", &[1, 7, 14, 22], (3, 8), recurrent::lstm),
    op("LayerNormalization", &[17], (2, 3), nn::layer_normalization),
    op("LeakyRelu", &[1, 6, 16], (1, 1), elementwise::leaky_relu),
    op("Less", &[1, 7, 9, 13], (2, 2), |node| elementwise::binary(node, &e::LESS)),
    op("LessOrEqual", &[12, 16], (2, 2), |node| elementwise::binary(node, &e::LESS_EQUAL)),
    op("LinearAttention", &[27], (3, 6), attention::linear_attention),
    op("Log", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::LOG)),
    op("LogSoftmax", &[1, 11, 13], (1, 1), |node| nn::softmax(node, &n::LOG_SOFTMAX)),
    control("Loop", &[1, 11, 13, 16, 19, 21, 23, 24, 25], (2, usize::MAX), &[0, 1], Handler::Loop),
    op("LpNormalization", &[1, 22], (1, 1), norm::lp_normalization),
    op("LpPool", &[1, 2, 11, 18, 22], (1, 1), window::lp_pool),
    op("MatMul", &[1, 9, 13], (2, 2), nn::matmul),
    op("MatMulInteger", &[10], (2, 4), quantize::matmul_integer),
    op("Max", &[1, 6, 8, 12, 13], (1, usize::MAX), |node| elementwise::variadic(node, &e::MAXIMUM)),
    op("MaxPool", &[1, 8, 10, 11, 12, 22], (1, 1), window::max_pool),
    shaped("MaxUnpool", &[9, 11, 22], (2, 3), &[2], rearrange::max_unpool),
    op("Mean", &[1, 6, 8, 13], (1, usize::MAX), elementwise::mean),
    op("MeanVarianceNormalization", &[9, 13], (1, 1), norm::mean_variance),
    shaped("MelWeightMatrix", &[17], (5, 5), &[0, 1, 2, 3, 4], signal::mel_weight_matrix),
    op("Min", &[1, 6, 8, 12, 13], (1, usize::MAX), |node| elementwise::variadic(node, &e::MINIMUM)),
    op("Mish", &[18, 22], (1, 1), |node| elementwise::unary(node, &e::MISH)),
    op("Mod", &[10, 13, 28], (2, 2), elementwise::modulo),
    op("Mul", &[1, 6, 7, 13, 14], (2, 2), |node| elementwise::binary(node, &e::MULTIPLY)),
    op("Multinomial", &[7, 22], (1, 1), random::multinomial),
    op("Neg", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::NEGATIVE)),
    op("NegativeLogLikelihoodLoss", &[12, 13, 22], (2, 3), loss::negative_log_likelihood),
    shaped("NonMaxSuppression", &[10, 11], (2, 5), &[2, 3, 4], counted::non_max_suppression),
    op("NonZero", &[9, 13], (1, 1), counted::non_zero),
    op("Not", &[1], (1, 1), |node| elementwise::unary(node, &e::LOGICAL_NOT)),
    shaped("OneHot", &[9, 11, 28], (3, 3), &[1], tensor::one_hot),
    control("Optional", &[15, 28], (0, 1), &[], Handler::Optional),
    op("OptionalGetElement", &[15, 18, 28], (1, 1), sequence::get_element),
    op("OptionalHasElement", &[15, 18, 28], (0, 1), sequence::has_element),
    op("Or", &[1, 7], (2, 2), |node| elementwise::binary(node, &e::LOGICAL_OR)),
    op("PRelu", &[1, 6, 7, 9, 16], (2, 2), elementwise::prelu),
    shaped("Pad", &[1, 2, 11, 13, 18, 19, 21, 23, 24, 25], (1, 4), &[1, 3], pad::pad),
    op("Pow", &[1, 7, 12, 13, 15], (2, 2), elementwise::pow),
    op("QLinearConv", &[10], (8, 9), quantize::qlinear_conv),
    op("QLinearMatMul", &[10, 21], (8, 8), quantize::qlinear_matmul),
    op("QuantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], (2, 3), quantize::quantize_linear),
    op("RMSNormalization", &[23], (2, 2), nn::rms_normalization),
    op("RNN", &[1, 7, 14, 22], (3, 6), recurrent::rnn),
    op("RandomNormal", &[1, 22], (0, 0), |node| random::random_normal(node, false)),
    op("RandomNormalLike", &[1, 22], (1, 1), |node| random::random_normal(node, true)),
    op("RandomUniform", &[1, 22], (0, 0), |node| random::random_uniform(node, false)),
    op("RandomUniformLike", &[1, 22], (1, 1), |node| random::random_uniform(node, true)),
    shaped("Range", &[11, 27], (3, 3), &[0, 1, 2], tensor::range),
    op("Reciprocal", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::RECIPROCAL)),
    shaped("ReduceL1", &[1, 11, 13, 18], (1, 2), &[1], reduce::l1),
    shaped("ReduceL2", &[1, 11, 13, 18], (1, 2), &[1], reduce::l2),
    shaped("ReduceLogSum", &[1, 11, 13, 18, 28], (1, 2), &[1], reduce::log_sum),
    shaped("ReduceLogSumExp", &[1, 11, 13, 18, 28], (1, 2), &[1], reduce::log_sum_exp),
    shaped("ReduceMax", &[1, 11, 12, 13, 18, 20], (1, 2), &[1], |node| {
        reduce::simple(node, &r::MAX, 18)
    }),
    shaped("ReduceMean", &[1, 11, 13, 18], (1, 2), &[1], |node| reduce::simple(node, &r::MEAN, 18)),
    shaped("ReduceMin", &[1, 11, 12, 13, 18, 20], (1, 2), &[1], |node| {
        reduce::simple(node, &r::MIN, 18)
    }),
    shaped("ReduceProd", &[1, 11, 13, 18], (1, 2), &[1], |node| reduce::simple(node, &r::PROD, 18)),
    shaped("ReduceSum", &[1, 11, 13], (1, 2), &[1], |node| reduce::simple(node, &r::SUM, 13)),
    shaped("ReduceSumSquare", &[1, 11, 13, 18], (1, 2), &[1], reduce::sum_square),
    op("Relu", &[1, 6, 13, 14], (1, 1), |node| elementwise::unary(node, &e::RELU)),
    shaped("Reshape", &[1, 5, 13, 14, 19, 21, 23, 24, 25], (2, 2), &[1], tensor::reshape),
    shaped("Resize", &[10, 11, 13, 18, 19], (1, 4), &[1, 2, 3], resize::resize),
    op("ReverseSequence", &[10], (2, 2), indexed::reverse_sequence),
    op("RoiAlign", &[10, 16, 22], (3, 3), sampling::roi_align),
    op("RotaryEmbedding", &[23], (3, 4), attention::rotary_embedding),
    op("Round", &[11, 22], (1, 1), |node| elementwise::unary(node, &e::ROUND)),
    shaped("STFT", &[17], (2, 4), &[1, 3], signal::stft),
    control("Scan", &[8, 9, 11, 16, 19, 21, 23, 24, 25], (1, usize::MAX), &[], Handler::Scan),
    op("Scatter", &[9, 11], (3, 3), indexed::scatter_elements),
    op("ScatterElements", &[11, 13, 16, 18], (3, 3), indexed::scatter_elements),
    op("ScatterND", &[11, 13, 16, 18], (3, 3), indexed::scatter_nd),
    op("Selu", &[1, 6, 22], (1, 1), elementwise::selu),
    shaped("SequenceAt", &[11], (2, 2), &[1], sequence::at),
    op("SequenceConstruct", &[11], (1, usize::MAX), sequence::construct),
    op("SequenceEmpty", &[11], (0, 0), sequence::empty),
    shaped("SequenceErase", &[11], (1, 2), &[1], sequence::erase),
    shaped("SequenceInsert", &[11], (2, 3), &[2], sequence::insert),
    op("SequenceLength", &[11], (1, 1), sequence::length),
    control("SequenceMap", &[17], (1, usize::MAX), &[], Handler::SequenceMap),
    op("Shape", &[1, 13, 15, 19, 21, 23, 24, 25], (1, 1), tensor::shape),
    op("Shrink", &[9], (1, 1), elementwise::shrink),
    op("Sigmoid", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::SIGMOID)),
    op("Sign", &[9, 13], (1, 1), |node| elementwise::unary(node, &e::SIGN)),
    op("Sin", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::SIN)),
    op("Sinh", &[9, 22], (1, 1), |node| elementwise::unary(node, &e::SINH)),
    op("Size", &[1, 13, 19, 21, 23, 24, 25], (1, 1), tensor::size),
    shaped("Slice", &[1, 10, 11, 13], (1, 5), &[1, 2, 3, 4], slice::slice),
    op("Softmax", &[1, 11, 13], (1, 1), |node| nn::softmax(node, &n::SOFTMAX)),
    op("SoftmaxCrossEntropyLoss", &[12, 13], (2, 3), loss::softmax_cross_entropy),
    op("Softplus", &[1, 22], (1, 1), |node| elementwise::unary(node, &e::SOFTPLUS)),
    op("Softsign", &[1, 22], (1, 1), |node| elementwise::unary(node, &e::SOFTSIGN)),
    op("SpaceToDepth", &[1, 13, 28], (1, 1), tensor::space_to_depth),
    shaped("Split", &[1, 2, 11, 13, 18], (1, 2), &[1], slice::split),
    shaped("SplitToSequence", &[11, 24], (1, 2), &[1], sequence::split),
    op("Sqrt", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::SQRT)),
    shaped("Squeeze", &[1, 11, 13, 21, 23, 24, 25], (1, 2), &[1], tensor::squeeze),
    op("Sub", &[1, 6, 7, 13, 14], (2, 2), |node| elementwise::binary(node, &e::SUBTRACT)),
    op("Sum", &[1, 6, 8, 13], (1, usize::MAX), |node| elementwise::variadic(node, &e::ADD)),
    op("SwiGLU", &[28], (2, 2), elementwise::swiglu),
    op("Swish", &[24], (1, 1), elementwise::swish),
    op("Tan", &[7, 22], (1, 1), |node| elementwise::unary(node, &e::TAN)),
    op("Tanh", &[1, 6, 13], (1, 1), |node| elementwise::unary(node, &e::TANH)),
    op("TensorScatter", &[24], (2, 3), rearrange::tensor_scatter),
    op("TfIdfVectorizer", &[9], (1, 1), ngrams::tf_idf_vectorizer),
    op("ThresholdedRelu", &[10, 22], (1, 1), elementwise::thresholded_relu),
    shaped("Tile", &[1, 6, 13], (2, 2), &[1], tensor::tile),
    shaped("TopK", &[1, 10, 11, 24], (1, 2), &[1], indexed::topk),
    op("Transpose", &[1, 13, 21, 23, 24, 25], (1, 1), tensor::transpose),
    shaped("Trilu", &[14], (1, 2), &[1], indexed::trilu),
    op("Unique", &[11, 28], (1, 1), unique::unique),
    shaped("Unsqueeze", &[1, 11, 13, 21, 23, 24, 25], (1, 2), &[1], tensor::unsqueeze),
    shaped("Upsample", &[1, 7, 9, 10], (1, 2), &[1], resize::upsample),
    op("Where", &[9, 16], (3, 3), elementwise::select),
    op("Xor", &[1, 7], (2, 2), |node| elementwise::binary(node, &e::LOGICAL_XOR)),
];

/// Operators of ONNX that are being tried out, by name.
static PREVIEW: &[OpImport] =
    &[control("FlexAttention", &[1], (3, 3), &[], Handler::FlexAttention)];

/// Optimisers, by name.
static TRAINING: &[OpImport] = &[
    op("Adagrad", &[1], (2, usize::MAX), training::adagrad),
    op("Adam", &[1], (2, usize::MAX), training::adam),
    op("Momentum", &[1], (2, usize::MAX), training::momentum),
];

/// The names of ONNX's own operators that can be imported, sorted.
pub fn supported_operators() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|op| op.name)
}

/// The versions of the operator set in which the operators that can be imported appeared or
/// changed, by name; each version ascending. None is newer than the newest set that is known.
pub fn operator_versions() -> impl Iterator<Item = (&'static str, &'static [i64])> {
    TABLE.iter().map(|op| (op.name, op.since))
}

/// The names of the operators of other domains that can be imported, and of those that crates
/// register in ONNX's own, `ai.onnx`; by domain, both sorted.
pub fn operators_by_domain() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let names = |table: &'static [OpImport]| table.iter().map(|op| op.name).collect();
    let mut domains: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::from([
        ("ai.onnx.ml", names(ml::TABLE)),
        ("ai.onnx.preview", names(PREVIEW)),
        ("ai.onnx.preview.training", names(TRAINING)),
        ("com.microsoft", names(microsoft::TABLE)),
    ]);
    for (domain, name) in registered::all() {
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        domains.entry(domain).or_default().insert(name);
    }
    domains
}

/// An input or attribute that must be there and is not.
fn missing(name: &str) -> NodeError {
    NodeError::new(format!("`{name}` is missing"))
}

/// The extents that two shapes broadcast to, as in numpy; `is_same` says whether symbols are equal.
fn broadcast(
    a: &[Dim],
    b: &[Dim],
    mut is_same: impl FnMut(&Dim, &Dim) -> bool,
) -> Result<Vec<Dim>, NodeError> {
    let rank = a.len().max(b.len());
    let one = Dim::from(1i64);
    let at = |dims: &[Dim], axis: usize| {
        axis.checked_sub(rank - dims.len()).map_or_else(|| one.clone(), |axis| dims[axis].clone())
    };
    (0..rank)
        .map(|axis| {
            let (x, y) = (at(a, axis), at(b, axis));
            if x == y || y == one {
                Ok(x)
            } else if x == one {
                Ok(y)
            } else if is_same(&x, &y) {
                Ok(x)
            } else {
                Err(NodeError::new(format!("dimensions {x} and {y} do not broadcast"))
                    .pin([&x, &y]))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_places;
#[cfg(test)]
mod tests_sequences;
#[cfg(test)]
mod tests_shapes;
#[cfg(test)]
mod tests_signals;
#[cfg(test)]
mod tests_values;
