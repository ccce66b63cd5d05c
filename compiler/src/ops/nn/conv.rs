//! Convolutions: `nn.conv1d`, `nn.conv2d` and `nn.conv3d` (ONNX `Conv`).
//!
//! As in all of machine learning, what is computed is a cross-correlation: the kernel is not
//! mirrored.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::window::{Window, spatial};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Shape, TensorType, Type};
use crate::ops::compute::{Compute, ComputeError, Stages, within};
use crate::ops::eval::{EvalCx, floats, ints, num_elements};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::{Anchor, StageId};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes that describe a convolution of any number of spatial axes.
trait ConvAttrs: DeserializeOwned {
    /// Number of spatial axes.
    const RANK: usize;
    /// Layout of the argument, in messages.
    const LAYOUT: &'static str;
    /// Layout of the weights, in messages.
    const KERNEL_LAYOUT: &'static str;

    /// The window, for a kernel of these extents.
    fn window(&self, kernel: &[i64]) -> Window;

    /// Number of groups.
    fn groups(&self) -> i64;
}

macro_rules! conv_attrs {
    ($($(#[$doc:meta])* $name:ident, $rank:literal, $pads:literal, $layout:literal, $kernel:literal, $order:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Distance between windows along each spatial axis.
            pub strides: [i64; $rank],
            #[doc = concat!("Zeros around the argument: ", $order, ".")]
            pub padding: [i64; $pads],
            /// Distance between taps along each spatial axis.
            pub dilation: [i64; $rank],
            /// Number of groups that channels of the argument and of the result are divided into.
            pub groups: i64,
        }

        impl Default for $name {
            /// Windows next to each other, no padding, one group.
            fn default() -> $name {
                $name {
                    strides: [1; $rank],
                    padding: [0; $pads],
                    dilation: [1; $rank],
                    groups: 1,
                }
            }
        }

        impl ConvAttrs for $name {
            const RANK: usize = $rank;
            const LAYOUT: &'static str = $layout;
            const KERNEL_LAYOUT: &'static str = $kernel;

            fn window(&self, kernel: &[i64]) -> Window {
                Window::new(kernel, &self.strides, &self.padding, &self.dilation)
            }

            fn groups(&self) -> i64 {
                self.groups
            }
        }
    )*};
}

conv_attrs! {
    /// Attributes of `nn.conv1d`.
    Conv1dAttrs, 1, 2, "(N, C, W)", "(O, I, W)", "left, right";
    /// Attributes of `nn.conv2d`.
    Conv2dAttrs, 2, 4, "(N, C, H, W)", "(O, I, H, W)", "top, left, bottom, right";
    /// Attributes of `nn.conv3d`.
    Conv3dAttrs, 3, 6, "(N, C, D, H, W)", "(O, I, D, H, W)",
        "front, top, left, back, bottom, right";
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("weight"), Input::optional("bias")];

/// Convolution of `(N, C, W)` with `(O, C / groups, W)` and an optional bias `(O)`.
pub static CONV1D: OpDef = OpDef::new(
    "nn.conv1d",
    "convolution along one axis",
    INPUTS,
    infer::<Conv1dAttrs>,
    |attrs, args| eval::<Conv1dAttrs>(&CONV1D, attrs, args),
    compute_conv1d,
)
.pattern(OpPattern::OutElemWiseFusable);

/// Convolution of `(N, C, H, W)` with `(O, C / groups, H, W)` and an optional bias `(O)`.
pub static CONV2D: OpDef = OpDef::new(
    "nn.conv2d",
    "convolution along two axes",
    INPUTS,
    infer::<Conv2dAttrs>,
    |attrs, args| eval::<Conv2dAttrs>(&CONV2D, attrs, args),
    compute_conv2d,
)
.pattern(OpPattern::OutElemWiseFusable);

/// Convolution of `(N, C, D, H, W)` with `(O, C / groups, D, H, W)` and an optional bias `(O)`.
pub static CONV3D: OpDef = OpDef::new(
    "nn.conv3d",
    "convolution along three axes",
    INPUTS,
    infer::<Conv3dAttrs>,
    |attrs, args| eval::<Conv3dAttrs>(&CONV3D, attrs, args),
    compute_conv3d,
)
.pattern(OpPattern::OutElemWiseFusable);

fn infer<A: ConvAttrs>(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: A = cx.attrs()?;
    let x = cx.tensor_of_rank(0, DTypes::Numeric, A::RANK + 2, A::LAYOUT)?;
    let weight = cx.tensor_of_rank(1, DTypes::Numeric, A::RANK + 2, A::KERNEL_LAYOUT)?;
    cx.same_dtype(0, 1)?;
    let groups = attrs.groups();
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
    let bias = TensorType::new(Shape::from_consts(&[outputs]), x.dtype);
    cx.expect_type(2, &bias, "the output channels of input `weight`")?;
    let window = attrs.window(&kernel[2..]);
    let mut dims = vec![x.shape[0].clone(), Dim::from(outputs)];
    for (index, axis) in window.last(A::RANK).iter().enumerate() {
        axis.check("weight's extent")?;
        let extent = &x.shape[index + 2];
        let windows = axis.outputs(extent, false);
        ensure!(
            windows.as_const().is_none_or(|windows| windows >= 1),
            "a kernel that spans {} elements does not fit into dimension {} of input `x`, \
             which is {x}, with padding {} and {}",
            axis.span(),
            index + 2,
            axis.before,
            axis.after
        );
        dims.push(windows);
    }
    cx.result(dims, x.dtype)
}

fn eval<A: ConvAttrs>(
    def: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(def, attrs, args)?;
    let attrs: A = cx.attrs()?;
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let kernel: Vec<i64> = weight.shape()[2..].iter().map(|&extent| extent as i64).collect();
    let conv = Conv {
        window: attrs.window(&kernel),
        groups: usize::try_from(attrs.groups()).unwrap_or(1),
        input: spatial(x.shape()),
        output: spatial(cx.shape()),
        channels: x.shape()[1],
    };
    let outputs = weight.shape()[0];
    if let (Some(x), Some(weight)) = (x.floats(), weight.floats()) {
        let bias = cx.optional(2).map(floats).transpose()?;
        let tensors = Tensors { x, weight, bias, outputs };
        let add = |sum: f64, x: f64, weight: f64| sum + weight * x;
        return cx.result(Elements::Float(conv.run(&tensors, cx.len(), 0.0, add)));
    }
    let (x, weight) = (cx.ints(0)?, cx.ints(1)?);
    let bias = cx.optional(2).map(ints).transpose()?;
    let tensors = Tensors { x, weight, bias, outputs };
    let add = |sum: i128, x: i128, weight: i128| sum.wrapping_add(weight.wrapping_mul(x));
    cx.result(Elements::Int(conv.run(&tensors, cx.len(), 0, add)))
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
struct Conv {
    window: Window,
    groups: usize,
    input: [usize; 3],
    output: [usize; 3],
    channels: usize,
}

impl Conv {
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
        let plane_len = num_elements(&self.output);
        if len == 0 {
            return result;
        }
        let (image_len, taps) = (num_elements(&self.input), num_elements(&self.window.taps()));
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
        let [depth_window, row_window, column_window] = self.window.0;
        let [depth, height, width] = self.input;
        let [out_depth, out_height, out_width] = self.output;
        let [_, row_taps, column_taps] = self.window.taps();
        for (tap, &weight) in kernel.iter().enumerate() {
            let (tap, column_tap) = (tap / column_taps, tap % column_taps);
            let (depth_tap, row_tap) = (tap / row_taps, tap % row_taps);
            let (z_first, z_end, z_at) = depth_window.valid(depth_tap, depth, out_depth);
            let (y_first, y_end, y_at) = row_window.valid(row_tap, height, out_height);
            let (x_first, x_end, x_at) = column_window.valid(column_tap, width, out_width);
            let stride = column_window.stride as usize;
            if x_first == x_end {
                continue;
            }
            for (step_z, out_z) in (z_first..z_end).enumerate() {
                let z = z_at + step_z * depth_window.stride as usize;
                for (step_y, out_y) in (y_first..y_end).enumerate() {
                    let y = y_at + step_y * row_window.stride as usize;
                    let row = &x[(z * height + y) * width..][..width][x_at..];
                    let out = &mut plane[(out_z * out_height + out_y) * out_width..][..out_width]
                        [x_first..x_end];
                    if stride == 1 {
                        for (out, &x) in out.iter_mut().zip(row) {
                            *out = add(*out, x, weight);
                        }
                    } else {
                        for (out, &x) in out.iter_mut().zip(row.iter().step_by(stride)) {
                            *out = add(*out, x, weight);
                        }
                    }
                }
            }
        }
    }
}

/// The attributes of a convolution of any number of spatial axes.
struct TeConv {
    strides: Vec<i64>,
    /// Zeros before each axis.
    padding: Vec<i64>,
    /// Whether there are zeros on any side.
    is_padded: bool,
    dilation: Vec<i64>,
    groups: i64,
}

impl TeConv {
    /// `padding` has all that is before the axes, then all that is after them.
    fn new(strides: &[i64], padding: &[i64], dilation: &[i64], groups: i64) -> TeConv {
        TeConv {
            strides: strides.to_vec(),
            padding: padding[..strides.len()].to_vec(),
            is_padded: padding.iter().any(|&p| p != 0),
            dilation: dilation.to_vec(),
            groups,
        }
    }
}

fn compute_conv1d(cx: &mut Compute<'_>) -> Stages {
    let Conv1dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let conv = convolve(cx, &TeConv::new(&strides, &padding, &dilation, groups))?;
    add_bias(cx, conv)
}

fn compute_conv2d(cx: &mut Compute<'_>) -> Stages {
    let Conv2dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let (data, weight) = (cx.arg(0)?, cx.arg(1)?);
    let conv = convolve(cx, &TeConv::new(&strides, &padding, &dilation, groups))?;
    let padding = [padding[0], padding[1]];
    cx.dag.set_anchor(conv, Anchor::Conv2d { data, weight, strides, padding, dilation, groups });
    add_bias(cx, conv)
}

fn compute_conv3d(cx: &mut Compute<'_>) -> Stages {
    let Conv3dAttrs { strides, padding, dilation, groups } = cx.attrs()?;
    let conv = convolve(cx, &TeConv::new(&strides, &padding, &dilation, groups))?;
    add_bias(cx, conv)
}

/// The sum over the input channels of a group and the taps of the kernel.
fn convolve(cx: &mut Compute<'_>, conv: &TeConv) -> Result<StageId, ComputeError> {
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (input, over) = (cx.dag.shape(x).to_vec(), cx.dag.shape(weight)[1..].to_vec());
    let group_out = (shape[1] / conv.groups).max(1);
    let op = cx.op.name;
    Ok(cx.dag.reduce(op, &shape, dtype, BinaryOp::Add, &over, |dag, index, by| {
        let channel = if conv.groups == 1 {
            by[0].clone()
        } else {
            index[1].clone().floordiv(group_out) * over[0] + by[0].clone()
        };
        let mut at = vec![index[0].clone(), channel];
        let mut inside = PrimExpr::bool(true);
        for (axis, tap) in by[1..].iter().enumerate() {
            let place = index[axis + 2].clone() * conv.strides[axis]
                + tap.clone() * conv.dilation[axis]
                - conv.padding[axis];
            inside = inside.and(within(&place, 0, input[axis + 2]));
            at.push(place);
        }
        let element = dag.at(x, &at);
        let element = if conv.is_padded {
            PrimExpr::select(inside, element, PrimExpr::zero(dtype))
        } else {
            element
        };
        let mut tap = vec![index[1].clone()];
        tap.extend_from_slice(by);
        element * dag.at(weight, &tap)
    }))
}

/// What a convolution computes, and the bias, if there is one.
pub(super) fn add_bias(cx: &mut Compute<'_>, conv: StageId) -> Stages {
    let Some(bias) = cx.optional(2) else { return Ok(vec![conv]) };
    cx.element(|dag, index| dag.at(conv, index) + dag.at(bias, &index[1..2]))
}
