//! Convolution along any number of axes: `nn.conv1d`, `nn.conv2d` and `nn.conv3d` (ONNX `Conv`) are
//! names of one definition.
//!
//! As in all of machine learning, what is computed is a cross-correlation: the kernel is not
//! mirrored.

use serde::{Deserialize, Serialize};

use super::window::{Window, layout};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, floats, ints, num_elements};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::{Anchor, ComputeDag, StageId};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `nn.conv1d`, `nn.conv2d` and `nn.conv3d`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvAttrs {
    /// Distance between windows along each spatial axis.
    pub strides: Vec<i64>,
    /// Elements of padding around the argument: before each spatial axis, then after each. Along two
    /// axes top, left, bottom, right.
    pub padding: Vec<i64>,
    /// Distance between taps along each spatial axis.
    pub dilation: Vec<i64>,
    /// Number of groups that channels of the argument and of the result are divided into.
    pub groups: i64,
    /// What is around the argument: the number that padding reads as. A quantised image has its zero
    /// point around it; floats have zeros.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pad_value: i64,
    /// The data type of the sums: `int32` for operands of 8-bit integers, which may differ in sign;
    /// `float32` for a `float32` argument and weights of fewer bits, each of which stands for the number
    /// that it is; that of the operands if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_dtype: Option<DType>,
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl ConvAttrs {
    /// Windows next to each other along so many spatial axes, no padding, one group.
    pub fn of_rank(rank: usize) -> ConvAttrs {
        ConvAttrs {
            strides: vec![1; rank],
            padding: vec![0; 2 * rank],
            dilation: vec![1; rank],
            groups: 1,
            pad_value: 0,
            out_dtype: None,
        }
    }

    /// A convolution by that window.
    pub fn new(window: &Window, groups: i64) -> ConvAttrs {
        ConvAttrs {
            strides: window.strides(),
            padding: window.padding(),
            dilation: window.dilation(),
            groups,
            ..ConvAttrs::of_rank(0)
        }
    }

    /// The window, for a kernel of these extents.
    ///
    /// # Errors
    ///
    /// If an attribute has another number of axes than the kernel.
    pub fn window(&self, kernel: &[i64]) -> Result<Window, TypeError> {
        Window::new(kernel, &self.strides, &self.padding, &self.dilation)
    }
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("weight"), Input::optional("bias")];

/// The convolution of `RANK` spatial axes: of `(N, C, spatial…)` with `(O, C / groups, taps…)` and
/// an optional bias `(O)`.
const fn define<const RANK: usize>(name: &'static str, summary: &'static str) -> OpDef {
    OpDef::new(name, summary, INPUTS, infer::<RANK>, eval, compute)
        .attributes::<ConvAttrs>()
        .defaults(|| {
            Attrs::new()
                .with("strides", vec![1; RANK])
                .with("padding", vec![0; 2 * RANK])
                .with("dilation", vec![1; RANK])
                .with("groups", 1)
        })
        .layouts(&["data_layout", "kernel_layout"])
        .pattern(OpPattern::OutElemWiseFusable)
}

/// Convolution of `(N, C, W)` with `(O, C / groups, W)` and an optional bias `(O)`.
pub static CONV1D: OpDef = define::<1>("nn.conv1d", "convolution along one axis");

/// Convolution of `(N, C, H, W)` with `(O, C / groups, H, W)` and an optional bias `(O)`.
pub static CONV2D: OpDef = define::<2>("nn.conv2d", "convolution along two axes");

/// Convolution of `(N, C, D, H, W)` with `(O, C / groups, D, H, W)` and an optional bias `(O)`.
pub static CONV3D: OpDef = define::<3>("nn.conv3d", "convolution along three axes");

/// The convolution of so many spatial axes, if there is one.
pub fn conv(rank: usize) -> Option<&'static OpDef> {
    [&CONV1D, &CONV2D, &CONV3D].get(rank.checked_sub(1)?).copied()
}

fn infer<const RANK: usize>(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ConvAttrs = cx.attrs()?;
    let x = cx.tensor_of_rank(0, DTypes::Numeric, RANK + 2, &layout("N, C", RANK))?;
    let weight = cx.tensor_of_rank(1, DTypes::Numeric, RANK + 2, &layout("O, I", RANK))?;
    let dtype = sum_dtype(cx, attrs.out_dtype)?;
    let range = x.dtype.int_range().unwrap_or((0, 0));
    ensure!(
        (range.0..=range.1).contains(&attrs.pad_value.into()),
        "attribute `pad_value` must be an element of input `x`, which is {x}, and 0 for floats, but \
         it is {}",
        attrs.pad_value
    );
    let groups = attrs.groups;
    at_least("groups", groups, 1)?;
    let kernel = weight.shape.as_consts().and_then(|dims| {
        dims.into_iter().map(|d| i64::try_from(d).ok()).collect::<Option<Vec<i64>>>()
    });
    let Some(kernel) = kernel else {
        bail!("input `weight` must have constant extents, but it is {weight}");
    };
    let (outputs, inputs) = (kernel[0], kernel[1]);
    ensure!(
        inputs.checked_mul(groups).is_some_and(|total| cx.same(&Dim::from(total), &x.shape[1])),
        "input `weight`, which is {weight}, takes {inputs} channels in each of {groups} groups, \
         but input `x`, which is {x}, has {} channels",
        x.shape[1]
    );
    ensure!(
        outputs % groups == 0,
        "the {outputs} output channels of input `weight`, which is {weight}, \
         cannot be divided into {groups} groups"
    );
    let bias = TensorType::new(Shape::from_consts(&[outputs]), dtype);
    cx.expect_type(2, &bias, "the output channels of input `weight`")?;
    let places = attrs.window(&kernel[2..])?.places(x, false, ["kernel", "weight's extent"])?;
    cx.result([x.shape[0].clone(), Dim::from(outputs)].into_iter().chain(places), dtype)
}

/// Whether sums of `float32` may have weights of this type, which are widened where they are read.
pub(crate) fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::I8 | DType::U8)
}

/// The data type of sums of products of the first two inputs: theirs, which is the same, unless the
/// attribute `out_dtype` says `int32` for integers of 8 bits, or `float32` for one of `float32` and one
/// of fewer bits.
pub(super) fn sum_dtype(cx: &InferCx<'_>, out_dtype: Option<DType>) -> Result<DType, TypeError> {
    let Some(dtype) = out_dtype else {
        cx.same_dtype(0, 1)?;
        return Ok(cx.tensor(0)?.dtype);
    };
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let bytes = [x, weight].iter().all(|ty| matches!(ty.dtype, DType::I8 | DType::U8));
    let widens = x.dtype == DType::F32 && is_narrow(weight.dtype);
    ensure!(
        (dtype == DType::I32 && bytes) || (dtype == DType::F32 && widens),
        "attribute `out_dtype` is {dtype} for inputs `{}`, {x}, and `{}`, {weight}, but there are \
         sums of int32 of 8-bit integers, and of float32 of float32 and fewer bits",
        cx.input_name(0),
        cx.input_name(1)
    );
    Ok(dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ConvAttrs = cx.attrs()?;
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let kernel: Vec<i64> = weight.shape()[2..].iter().map(|&extent| extent as i64).collect();
    let conv = Conv {
        window: attrs.window(&kernel)?,
        groups: usize::try_from(attrs.groups).unwrap_or(1),
        input: &x.shape()[2..],
        output: &cx.shape()[2..],
        channels: x.shape()[1],
    };
    let outputs = weight.shape()[0];
    if let Some(x) = x.floats() {
        let widened: Vec<f64>;
        let weight = match weight.elements() {
            Elements::Int(weight) => {
                widened = weight.iter().map(|&weight| weight as f64).collect();
                &widened
            }
            _ => cx.floats(1)?,
        };
        let bias = cx.optional(2).map(floats).transpose()?;
        let tensors = Tensors { x, weight, bias, outputs };
        let add = |sum: f64, x: f64, weight: f64| sum + weight * x;
        return cx.result(Elements::Float(conv.run(&tensors, cx.len(), 0.0, add)));
    }
    let (x, weight) = (cx.ints(0)?, cx.ints(1)?);
    let bias = cx.optional(2).map(ints).transpose()?;
    let tensors = Tensors { x, weight, bias, outputs };
    // Taps in the padding are left out: they add nothing to the sums of differences from it.
    let padding = i128::from(attrs.pad_value);
    let add = |sum: i128, x: i128, weight: i128| sum.wrapping_add(weight.wrapping_mul(x - padding));
    let mut sums = conv.run(&tensors, cx.len(), 0, add);
    if padding != 0 {
        let plane_len = num_elements(conv.output).max(1);
        let taps = (weight.len() / outputs.max(1)).max(1);
        let of_padding: Vec<i128> = weight.chunks(taps).map(|taps| taps.iter().sum()).collect();
        for (index, plane) in sums.chunks_mut(plane_len).enumerate() {
            let all = padding.wrapping_mul(of_padding[index % outputs]);
            plane.iter_mut().for_each(|sum| *sum = sum.wrapping_add(all));
        }
    }
    cx.result(Elements::Int(sums))
}

/// The elements that a convolution goes over.
struct Tensors<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    /// Number of output channels.
    outputs: usize,
}

/// A convolution of known extents.
struct Conv<'a> {
    window: Window,
    groups: usize,
    /// Spatial extents.
    input: &'a [usize],
    output: &'a [usize],
    channels: usize,
}

impl Conv<'_> {
    /// Computes plane by plane of the result, and in each tap by tap, so that the innermost loop
    /// runs along a row of the argument and one of the result.
    fn run<T: Copy>(
        &self,
        &Tensors { x, weight, bias, outputs }: &Tensors<'_, T>,
        len: usize,
        zero: T,
        add: impl Fn(T, T, T) -> T,
    ) -> Vec<T> {
        let mut result = vec![zero; len];
        let plane_len = num_elements(self.output);
        if len == 0 {
            return result;
        }
        let (image_len, taps) = (num_elements(self.input), self.window.len());
        let group_channels = self.channels / self.groups;
        let group_outputs = outputs / self.groups;
        for (index, plane) in result.chunks_exact_mut(plane_len).enumerate() {
            let (image, output) = (index / outputs, index % outputs);
            if let Some(bias) = bias {
                plane.fill(bias[output]);
            }
            let first = image * self.channels + output / group_outputs * group_channels;
            for channel in 0..group_channels {
                let x = &x[(first + channel) * image_len..][..image_len];
                let kernel = &weight[(output * group_channels + channel) * taps..][..taps];
                self.add_channel(plane, x, kernel, &add);
            }
        }
        result
    }

    /// Adds the correlation of one channel with its kernel.
    fn add_channel<T: Copy>(
        &self,
        plane: &mut [T],
        x: &[T],
        kernel: &[T],
        add: &impl Fn(T, T, T) -> T,
    ) {
        let stride = self.window.column_stride();
        for (tap, &weight) in kernel.iter().enumerate() {
            self.window.rows(tap, self.input, self.output, |places, at| {
                let (out, row) = (&mut plane[places], &x[at..]);
                if stride == 1 {
                    for (out, &x) in out.iter_mut().zip(row) {
                        *out = add(*out, x, weight);
                    }
                } else {
                    for (out, &x) in out.iter_mut().zip(row.iter().step_by(stride)) {
                        *out = add(*out, x, weight);
                    }
                }
            });
        }
    }
}

/// The sum over the input channels of a group and the taps of the kernel. Along two axes it is an
/// anchor, for which there are schedules.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: ConvAttrs = cx.attrs()?;
    let groups = attrs.groups;
    let (data, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let over = cx.dag.shape(weight)[1..].to_vec();
    let mut window = attrs.window(&over[1..])?;
    let pad_value = attrs.pad_value;
    // Rules have the padding in the layout of the image.
    let is_depthwise = groups > 1 && over[0] == 1 && shape[1] == groups;
    let is_windows = is_depthwise && window.axes.len() != 2;
    let is_float = matches!(dtype, DType::F32 | DType::F16);
    let has_rule = match is_windows {
        true => dtype == DType::F32,
        false => window.axes.len() == 2 && (is_float || attrs.out_dtype.is_some()),
    };
    let (data, is_padded) = match attrs.padding.iter().any(|&padding| padding != 0) {
        true if !has_rule => (with_border(cx.dag, data, &mut window, pad_value), false),
        is_padded => (data, is_padded),
    };
    let input = cx.dag.shape(data).to_vec();
    let group_out = (shape[1] / groups).max(1);
    let op = cx.op.name;
    let conv = cx.dag.reduce(op, &shape, dtype, BinaryOp::Add, &over, |dag, index, by| {
        let channel = if groups == 1 {
            by[0].clone()
        } else if is_depthwise {
            index[1].clone()
        } else {
            index[1].clone().floordiv(group_out) * over[0] + by[0].clone()
        };
        let (places, inside) = window.read(&index[2..], &by[1..], &input[2..]);
        let element = dag.at(data, &[&[index[0].clone(), channel][..], &places].concat());
        let element = if is_padded {
            let padding = padding_of(pad_value, element.dtype());
            PrimExpr::select(inside, element, padding)
        } else {
            element
        };
        element.cast(dtype) * dag.at(weight, &[&index[1..2], by].concat()).cast(dtype)
    });
    if let [rows, columns] = window.axes[..] {
        let strides = [rows.stride, columns.stride];
        let padding = [rows.before, columns.before];
        let dilation = [rows.dilation, columns.dilation];
        let anchor = Anchor::Conv2d { data, weight, strides, padding, pad_value, dilation, groups };
        cx.dag.set_anchor(conv, anchor);
    } else if is_windows && has_rule {
        let (taps, strides, dilation) = (window.taps(), window.strides(), window.dilation());
        let padding = window.axes.iter().map(|axis| axis.before).collect();
        cx.dag.set_anchor(conv, Anchor::Window { data, taps, strides, padding, dilation });
    }
    add_bias(cx, conv)
}

/// What padding reads as, in the data type of an image.
fn padding_of(pad_value: i64, dtype: DType) -> PrimExpr {
    if dtype.is_int() { PrimExpr::int(pad_value, dtype) } else { PrimExpr::zero(dtype) }
}

/// A stored copy of an image with its padding, which a window then no longer has: no tap is tested
/// for it.
fn with_border(
    dag: &mut ComputeDag,
    data: StageId,
    window: &mut Window,
    pad_value: i64,
) -> StageId {
    let (input, dtype) = (dag.shape(data).to_vec(), dag.dtype(data));
    let mut shape = input.clone();
    for (extent, axis) in shape[2..].iter_mut().zip(&window.axes) {
        *extent += axis.before + axis.after;
    }
    let padded = dag.compute("pad", &shape, dtype, |dag, index| {
        let mut inside = PrimExpr::bool(true);
        let mut at = index[..2].to_vec();
        for ((axis, i), &extent) in window.axes.iter().zip(&index[2..]).zip(&input[2..]) {
            let place = i.clone() - axis.before;
            inside = inside.and(within(&place, 0, extent));
            at.push(place);
        }
        PrimExpr::select(inside, dag.at(data, &at), padding_of(pad_value, dtype))
    });
    dag.set_stored(padded);
    for axis in &mut window.axes {
        (axis.before, axis.after) = (0, 0);
    }
    padded
}

/// What a convolution computes, and the bias, if there is one.
pub(super) fn add_bias(cx: &mut Compute<'_>, conv: StageId) -> Stages {
    let Some(bias) = cx.optional(2) else { return Ok(vec![conv]) };
    cx.element(|dag, index| dag.at(conv, index) + dag.at(bias, &index[1..2]))
}
