//! One call of every operator of the table, for tests that go over all of them.

use serde::Serialize;

use crate::graph::interp::{Elements, Tensor};
use crate::graph::{FunctionBuilder, TypeError};
use crate::ir::{Attrs, DType, Dim, TensorType, Type};
use crate::ops::elementwise::{
    CastAttrs, CeluAttrs, ClipAttrs, EluAttrs, GeluApproximation, GeluAttrs, HardsigmoidAttrs,
    LeakyReluAttrs, ReinterpretAttrs, SeluAttrs, ThresholdedReluAttrs,
};
use crate::ops::nn::{
    AvgPoolAttrs, BatchNormAttrs, BatchToSpaceAttrs, BiasAddAttrs, ConvAttrs, DropoutAttrs,
    GroupNormAttrs, InstanceNormAttrs, L2NormalizeAttrs, LayerNormAttrs, LrnAttrs, MatmulAttrs,
    MaxPoolAttrs, MaxPoolIndicesAttrs, NonMaxSuppressionAttrs, PadAttrs, PadMode, RmsNormAttrs,
    RoiAlignAttrs, RoiAlignMode, SoftmaxAttrs, SpaceToBatchAttrs, WinogradConv2dAttrs,
};
use crate::ops::qnn::{DequantizeAttrs, DequantizeMatmulAttrs, QuantizeAttrs, RequantizeAttrs};
use crate::ops::reduce::{ArgReduceAttrs, ReduceAttrs};
use crate::ops::tensor::{
    AppendAttrs, ArangeAttrs, BroadcastToAttrs, ConcatenateAttrs, CoordinateTransformation,
    CumulativeAttrs, DeviceCopyAttrs, ExpandDimsAttrs, FullAttrs, GatherAttrs, GatherNdAttrs,
    GridCoordinates, GridPadding, GridSampleAttrs, LayoutTransformAttrs, NearestRounding,
    OnDeviceAttrs, OneHotAttrs, ReshapeAttrs, Resize2dAttrs, ResizeMethod, ScatterElementsAttrs,
    ScatterNdAttrs, ScatterReduction, ShapeOfAttrs, SplitAttrs, SqueezeAttrs, StridedSliceAttrs,
    TakeAttrs, TakeMode, TopkAttrs, TransposeAttrs, TreeForm, TreeSumAttrs, TreeTraverseAttrs,
    TruncateAttrs,
};
use crate::ops::{Op, OpDef};

/// The shapes of the arguments of a call; `None` stands for one that is absent.
pub(crate) type Shapes = &'static [Option<&'static [i64]>];

const UNARY: Shapes = &[Some(&[2, 3])];
const BINARY: Shapes = &[Some(&[2, 1, 3]), Some(&[4, 1])];
const IMAGE: Shapes = &[Some(&[1, 2, 4, 5])];

fn attrs<A: Serialize>(attrs: A) -> Attrs {
    Attrs::from_struct(&attrs).unwrap()
}

fn dims(extents: &[i64]) -> Vec<Dim> {
    extents.iter().copied().map(Dim::from).collect()
}

/// Attributes and argument shapes of a call of the operator; `None` if there is none.
pub(crate) fn sample(name: &str) -> Option<(Attrs, Shapes)> {
    let reduction = || attrs(ReduceAttrs { axis: vec![-1], keepdims: true });
    Some(match name {
        "abs" | "acos" | "acosh" | "asin" | "asinh" | "atan" | "atanh" | "bitwise_not" | "ceil"
        | "cos" | "cosh" | "erf" | "exp" | "floor" | "isinf" | "isnan" | "log" | "logical_not"
        | "negative" | "nn.hardswish" | "nn.mish" | "nn.relu" | "nn.softplus" | "nn.softsign"
        | "reciprocal" | "round" | "rsqrt" | "sigmoid" | "sign" | "sin" | "sinh" | "sqrt"
        | "tan" | "tanh" => (Attrs::new(), UNARY),
        "add" | "bitwise_and" | "bitwise_or" | "bitwise_xor" | "divide" | "equal" | "floor_mod"
        | "greater" | "greater_equal" | "left_shift" | "less" | "less_equal" | "logical_and"
        | "logical_or" | "logical_xor" | "maximum" | "minimum" | "mod" | "multiply"
        | "not_equal" | "power" | "right_shift" | "subtract" => (Attrs::new(), BINARY),
        "argmax" | "argmin" => {
            let axis = ArgReduceAttrs { axis: 1, keepdims: false, select_last_index: false };
            (attrs(axis), UNARY)
        }
        "annotation.stop_fusion" => (Attrs::new(), UNARY),
        "device_copy" => (attrs(DeviceCopyAttrs { src_dev_type: 1, dst_dev_type: 2 }), UNARY),
        "on_device" => (attrs(OnDeviceAttrs { device_type: 2 }), UNARY),
        "broadcast_to" => (attrs(BroadcastToAttrs { shape: dims(&[4, 2, 3]) }), UNARY),
        "cast" => (attrs(CastAttrs::to(DType::I16)), UNARY),
        "clip" => (attrs(ClipAttrs { min: Some(0.0), max: None }), UNARY),
        "concatenate" => {
            (attrs(ConcatenateAttrs { axis: 1 }), &[Some(&[2, 3]), Some(&[2, 0]), Some(&[2, 4])])
        }
        "cumprod" | "cumsum" => {
            (attrs(CumulativeAttrs { axis: 1, exclusive: false, reverse: true }), UNARY)
        }
        "expand_dims" => (attrs(ExpandDimsAttrs { axis: vec![0, -1] }), UNARY),
        "append" => {
            let append = AppendAttrs { axis: 1, length: Dim::from(5i64) };
            (attrs(append), &[Some(&[2, 7, 3]), Some(&[2, 2, 3])])
        }
        "arange" => {
            let length = Dim::from(5i64);
            (attrs(ArangeAttrs { start: 3.into(), step: -2, length, dtype: DType::I32 }), &[])
        }
        "full" => (attrs(FullAttrs { shape: dims(&[2, 0, 3]) }), &[Some(&[])]),
        "image.grid_sample" => {
            let sample = GridSampleAttrs {
                method: ResizeMethod::Linear,
                padding: GridPadding::Zeros,
                coordinates: GridCoordinates::Pixels,
            };
            (attrs(sample), &[Some(&[1, 2, 4, 5]), Some(&[1, 2, 3, 2])])
        }
        "image.resize2d" => {
            let resize = Resize2dAttrs {
                size: [Dim::from(8), Dim::from(3)],
                scale: None,
                method: ResizeMethod::NearestNeighbor,
                coordinate_transformation_mode: CoordinateTransformation::HalfPixel,
                rounding_method: NearestRounding::Floor,
                cubic_alpha: -0.75,
                cubic_exclude: false,
                antialias: false,
                roi: None,
                extrapolation_value: 0.0,
            };
            (attrs(resize), IMAGE)
        }
        "max" | "mean" | "min" | "prod" | "sum" => (reduction(), UNARY),
        "ndarray_size" | "shape_of" => (attrs(ShapeOfAttrs { dtype: DType::I32 }), UNARY),
        "nn.avg_pool1d" => {
            let pool = AvgPoolAttrs::of_size(&[2]);
            (attrs(pool), &[Some(&[1, 2, 5])])
        }
        "nn.avg_pool2d" => (attrs(AvgPoolAttrs::of_size(&[2, 3])), IMAGE),
        "nn.avg_pool3d" => {
            let pool = AvgPoolAttrs::of_size(&[1, 2, 2]);
            (attrs(pool), &[Some(&[1, 1, 2, 3, 3])])
        }
        "nn.batch_norm" => (
            attrs(BatchNormAttrs::new(1, 1e-5)),
            &[Some(&[2, 3, 2]), Some(&[3]), Some(&[3]), Some(&[3]), Some(&[3])],
        ),
        "nn.bias_add" => (attrs(BiasAddAttrs { axis: -2 }), &[Some(&[2, 3, 2]), Some(&[3])]),
        "nn.celu" => (attrs(CeluAttrs { alpha: 0.5 }), UNARY),
        "nn.conv1d" => {
            let conv = ConvAttrs { strides: vec![2], ..ConvAttrs::of_rank(1) };
            (attrs(conv), &[Some(&[1, 2, 6]), Some(&[3, 2, 3]), None])
        }
        "nn.conv2d" => {
            let conv = ConvAttrs { groups: 2, padding: vec![1, 0, 2, 3], ..ConvAttrs::of_rank(2) };
            (attrs(conv), &[Some(&[2, 4, 5, 6]), Some(&[6, 2, 3, 2]), Some(&[6])])
        }
        "nn.conv3d" => {
            let conv = ConvAttrs { dilation: vec![1, 2, 1], ..ConvAttrs::of_rank(3) };
            (attrs(conv), &[Some(&[1, 1, 2, 3, 3]), Some(&[2, 1, 2, 2, 2])])
        }
        "nn.contrib_conv2d_winograd_without_weight_transform" => {
            let conv = WinogradConv2dAttrs { tile_size: 2, padding: [1, 0, 1, 1] };
            (attrs(conv), &[Some(&[2, 2, 5, 6]), Some(&[4, 4, 2, 3]), Some(&[3])])
        }
        "nn.dense" => (Attrs::new(), &[Some(&[2, 2, 3]), Some(&[4, 3])]),
        "nn.dropout" => (attrs(DropoutAttrs { rate: 0.5 }), UNARY),
        "nn.elu" => (attrs(EluAttrs { alpha: 0.5 }), UNARY),
        "nn.gelu" => (attrs(GeluAttrs { approximate: GeluApproximation::Tanh }), UNARY),
        "nn.global_avg_pool2d" | "nn.global_max_pool2d" => (Attrs::new(), IMAGE),
        "nn.hardsigmoid" => (attrs(HardsigmoidAttrs { alpha: 0.2, beta: 0.5 }), UNARY),
        "layout_transform" => {
            let layouts =
                LayoutTransformAttrs { src_layout: "NC6c".into(), dst_layout: "CN4c".into() };
            (attrs(layouts), &[Some(&[2, 2, 6])])
        }
        "nn.group_norm" => {
            let norm = GroupNormAttrs { num_groups: 2, axis: 1, epsilon: 1e-5 };
            (attrs(norm), &[Some(&[2, 4, 3]), Some(&[4]), None])
        }
        "nn.instance_norm" => {
            let norm = InstanceNormAttrs { axis: -1, epsilon: 1e-5 };
            (attrs(norm), &[Some(&[2, 3, 4]), None, Some(&[4])])
        }
        "nn.l2_normalize" => {
            let norm = L2NormalizeAttrs { eps: 1e-12, axis: vec![0, -1] };
            (attrs(norm), &[Some(&[2, 3, 4])])
        }
        "nn.rms_norm" => {
            (attrs(RmsNormAttrs { axis: 1, epsilon: 1e-5 }), &[Some(&[2, 3, 4]), Some(&[4])])
        }
        "nn.layer_norm" => {
            let norm = LayerNormAttrs { axis: -1, epsilon: 1e-5 };
            (attrs(norm), &[Some(&[2, 3]), None, Some(&[3])])
        }
        "nn.leaky_relu" => (attrs(LeakyReluAttrs { alpha: 0.1 }), UNARY),
        "nn.lrn" => (attrs(LrnAttrs { size: 3, alpha: 1e-4, beta: 0.75, bias: 1.0 }), IMAGE),
        "nn.log_softmax" | "nn.softmax" => (attrs(SoftmaxAttrs { axis: -1 }), UNARY),
        "nn.matmul" => {
            let product = MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() };
            (attrs(product), &[Some(&[2, 1, 2, 3]), Some(&[5, 4, 3])])
        }
        "nn.max_pool1d" => {
            let pool = MaxPoolAttrs::of_size(&[2]);
            (attrs(pool), &[Some(&[1, 2, 5])])
        }
        "nn.max_pool2d" => {
            let pool = MaxPoolAttrs {
                pool_size: vec![2, 3],
                strides: vec![2, 3],
                padding: vec![1, 0, 0, 1],
                dilation: vec![2, 1],
                ceil_mode: true,
            };
            (attrs(pool), IMAGE)
        }
        "nn.max_pool3d" => {
            let pool = MaxPoolAttrs::of_size(&[1, 2, 2]);
            (attrs(pool), &[Some(&[1, 1, 2, 3, 3])])
        }
        "nn.max_pool_indices" => {
            let pool = MaxPoolIndicesAttrs {
                pool_size: vec![2, 3],
                strides: vec![2, 3],
                padding: vec![1, 0, 0, 1],
                dilation: vec![2, 1],
                ceil_mode: true,
                column_major: true,
            };
            (attrs(pool), IMAGE)
        }
        "nn.pad" => {
            let pad = PadAttrs { pad_width: vec![[1, -1], [0, 2]], mode: PadMode::Constant };
            (attrs(pad), &[Some(&[2, 3]), Some(&[])])
        }
        "nn.prelu" => (Attrs::new(), &[Some(&[2, 3, 4]), Some(&[3, 1])]),
        "nn.batch_to_space_nd" => {
            let blocks = BatchToSpaceAttrs { block_shape: vec![2, 3], crops: vec![[0, 1], [2, 0]] };
            (attrs(blocks), &[Some(&[12, 2, 3, 2])])
        }
        "nn.space_to_batch_nd" => {
            let (block_shape, paddings) = (vec![2, 3], vec![[1, 2], [0, 1]]);
            (attrs(SpaceToBatchAttrs { block_shape, paddings }), &[Some(&[2, 3, 5, 2])])
        }
        "nn.selu" => (attrs(SeluAttrs { alpha: 1.67, gamma: 1.05 }), UNARY),
        "nn.thresholded_relu" => (attrs(ThresholdedReluAttrs { alpha: 1.0 }), UNARY),
        "one_hot" => {
            let one_hot = OneHotAttrs { depth: 4.into(), axis: 0 };
            (attrs(one_hot), &[Some(&[2, 3]), Some(&[]), Some(&[])])
        }
        "qnn.dequantize" => {
            let by_axis = DequantizeAttrs { axis: 1, block_size: 0, dtype: DType::F16 };
            (attrs(by_axis), &[Some(&[2, 3]), Some(&[3]), Some(&[3])])
        }
        "qnn.dequantize_matmul" => {
            let blocked = DequantizeMatmulAttrs { transpose_b: true, block_size: 2, bits: 8 };
            (attrs(blocked), &[Some(&[2, 4]), Some(&[3, 4]), Some(&[3, 2]), Some(&[3, 2])])
        }
        "qnn.quantize" => {
            let blocked = QuantizeAttrs {
                axis: -2,
                block_size: 2,
                dtype: DType::I8,
                precision: None,
                saturate: true,
            };
            (attrs(blocked), &[Some(&[2, 3, 2]), Some(&[2, 2, 2]), Some(&[2, 2, 2])])
        }
        "qnn.requantize" => {
            let by_axis = RequantizeAttrs { axis: 0, dtype: DType::U8 };
            (attrs(by_axis), &[Some(&[2, 3]), Some(&[2]), Some(&[])])
        }
        "reinterpret" => (attrs(ReinterpretAttrs { dtype: DType::I32 }), UNARY),
        "reshape" => (attrs(ReshapeAttrs { newshape: dims(&[3, 1, 2]) }), UNARY),
        "split" => (attrs(SplitAttrs { axis: 1, sections: vec![1, 2] }), UNARY),
        "squeeze" => (attrs(SqueezeAttrs { axis: vec![1] }), &[Some(&[2, 1, 3])]),
        "strided_slice" => {
            let slice = StridedSliceAttrs {
                begin: vec![-1],
                end: vec![i64::MIN],
                strides: vec![-2],
                axes: vec![1],
            };
            (attrs(slice), UNARY)
        }
        "gather" => (attrs(GatherAttrs { axis: 1 }), &[Some(&[2, 7]), Some(&[1, 4])]),
        "gather_nd" => {
            (attrs(GatherNdAttrs { batch_dims: 1 }), &[Some(&[2, 7, 3]), Some(&[2, 4, 1])])
        }
        "scatter_elements" => {
            let scatter = ScatterElementsAttrs { axis: 1, reduction: ScatterReduction::Update };
            (attrs(scatter), &[Some(&[2, 7]), Some(&[1, 4]), Some(&[1, 4])])
        }
        "scatter_nd" => {
            let scatter = ScatterNdAttrs { reduction: ScatterReduction::Update };
            (attrs(scatter), &[Some(&[7, 3]), Some(&[4, 1]), Some(&[4, 3])])
        }
        "topk" => (attrs(TopkAttrs { k: 2.into(), axis: 1, largest: true }), UNARY),
        "take" => {
            let take = TakeAttrs { axis: 1, mode: TakeMode::Wrap };
            (attrs(take), &[Some(&[2, 3]), Some(&[2, 2])])
        }
        "transpose" => (attrs(TransposeAttrs { axes: vec![1, 0] }), UNARY),
        "tree_sum" => {
            let shapes: Shapes = &[Some(&[2, 3]), Some(&[4, 7]), Some(&[4, 7]), Some(&[4, 8, 2])];
            (attrs(TreeSumAttrs { form: TreeForm::Chains, levels: 2, at_least: false }), shapes)
        }
        "tree_traverse" => {
            let shapes: Shapes =
                &[Some(&[2, 3]), Some(&[7]), Some(&[7]), Some(&[7, 2]), Some(&[4])];
            (attrs(TreeTraverseAttrs { depth: 3 }), shapes)
        }
        "truncate" => {
            let truncate = TruncateAttrs { axis: 0, size: "kept".to_owned(), expected: None };
            (attrs(truncate), &[Some(&[4, 3]), Some(&[])])
        }
        "vision.non_max_suppression" => {
            let suppress = NonMaxSuppressionAttrs {
                max_output_boxes: 3,
                iou_threshold: 0.5,
                score_threshold: Some(0.1),
                center_point_box: false,
            };
            (attrs(suppress), &[Some(&[2, 5, 4]), Some(&[2, 3, 5])])
        }
        "vision.roi_align" => {
            let align = RoiAlignAttrs {
                pooled_size: [2, 3],
                spatial_scale: 0.5,
                sample_ratio: 2,
                aligned: true,
                mode: RoiAlignMode::Avg,
            };
            (attrs(align), &[Some(&[6, 2, 4, 5]), Some(&[3, 4]), Some(&[3])])
        }
        "where" => (Attrs::new(), &[Some(&[2, 1]), Some(&[3]), Some(&[])]),
        _ => return None,
    })
}

/// Which data types the inputs of an operator have when the one that decides has `dtype`.
pub(crate) fn dtype_of_input(op: &OpDef, input: usize, dtype: DType) -> DType {
    match (op.name, input) {
        ("take" | "gather" | "gather_nd" | "scatter_elements" | "scatter_nd", 1)
        | ("one_hot", 0)
        | ("tree_sum", 1)
        | ("tree_traverse", 1 | 3 | 4)
        | ("truncate", 1)
        | ("vision.roi_align", 2) => DType::I64,
        ("where", 0) => DType::Bool,
        ("qnn.requantize", 0) => DType::I32,
        ("qnn.requantize", 2) => DType::U8,
        ("qnn.quantize", 2) => DType::I8,
        ("qnn.dequantize", 1) => DType::F32,
        ("qnn.dequantize_matmul", 1 | 3) => DType::U8,
        _ => dtype,
    }
}

/// The type of a call.
pub(crate) fn infer(
    op: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<TensorType>],
) -> Result<Type, TypeError> {
    let mut b = FunctionBuilder::new();
    let args: Vec<_> = args.iter().map(|ty| ty.clone().map(|ty| b.param("x", ty))).collect();
    let call = b.call_optional(Op::new(op), args, attrs.clone())?;
    Ok(b.ty(call).clone())
}

/// A tensor of small positive values.
pub(crate) fn tensor(ty: &TensorType) -> Tensor {
    let shape: Vec<usize> = ty.shape.as_consts().unwrap().iter().map(|&d| d as usize).collect();
    let values = (0..ty.num_elements().unwrap()).map(|i| i as i128 % 5 + 1).collect();
    Tensor::from_elements(ty.dtype, &shape, Elements::Int(values)).unwrap()
}

/// The argument types of the operator's sample call with `dtype`, if that is well-typed, and the
/// type of the result.
pub(crate) fn types(
    op: &'static OpDef,
    (attrs, shapes): &(Attrs, Shapes),
    dtype: DType,
) -> Option<(Vec<Option<TensorType>>, Type)> {
    let types: Vec<Option<TensorType>> = (shapes.iter().enumerate())
        .map(|(input, shape)| {
            shape.map(|s| TensorType::from_consts(s, dtype_of_input(op, input, dtype)))
        })
        .collect();
    let result = infer(op, attrs, &types).ok()?;
    Some((types, result))
}
