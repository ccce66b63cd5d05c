//! Convolution with weights that were transformed for Winograd's minimal filtering (Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks", CVPR 2016).

use serde::{Deserialize, Serialize};

use super::conv::add_bias;
use super::window::Window;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Dim, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, floats};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::topi::winograd::{TAPS, Winograd, conv2d};
use crate::te::{Anchor, Builder, ComputeDag};
use crate::tir::PrimExpr;

/// Attributes of `nn.contrib_conv2d_winograd_without_weight_transform`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WinogradConv2dAttrs {
    /// Outputs of a tile along one axis: 2 or 4.
    pub tile_size: i64,
    /// Zeros around the argument: top, left, bottom, right.
    pub padding: [i64; 4],
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("weight"), Input::optional("bias")];

/// Convolution of `(N, C, H, W)` with 3x3 taps and steps of 1. The weights were transformed,
/// `(t + 2, t + 2, C, O)` for tiles of `t` outputs; the bias is `(O)`.
pub static CONV2D_WINOGRAD: OpDef = OpDef::new(
    "nn.contrib_conv2d_winograd_without_weight_transform",
    "3x3 convolution with weights that were transformed for Winograd's algorithm",
    INPUTS,
    infer,
    eval,
    compute,
)
.attributes::<WinogradConv2dAttrs>()
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: WinogradConv2dAttrs = cx.attrs()?;
    let x = cx.tensor_of_rank(0, DTypes::Float, 4, "(N, C, H, W)")?;
    let weight = cx.tensor_of_rank(1, DTypes::Float, 4, "(T, T, C, O)")?;
    cx.same_dtype(0, 1)?;
    let Some(algorithm) = Winograd::of_outputs(attrs.tile_size) else {
        bail!("tile_size is {}, but there are tiles of 2 and of 4", attrs.tile_size);
    };
    let inputs = Dim::from(algorithm.inputs());
    ensure!(
        weight.shape[0] == inputs && weight.shape[1] == inputs,
        "input `weight`, which is {weight}, must begin with {inputs}, {inputs} for tiles of {}",
        attrs.tile_size
    );
    ensure!(
        cx.same(&weight.shape[2], &x.shape[1]),
        "input `weight`, which is {weight}, takes {} channels, but input `x`, which is {x}, has {}",
        weight.shape[2],
        x.shape[1]
    );
    let outputs = weight.shape[3].clone();
    let bias = TensorType::new(Shape::new([outputs.clone()]), x.dtype);
    cx.expect_type(2, &bias, "the output channels of input `weight`")?;
    let places = window(&attrs)?.places(x, false, ["kernel", "weight's extent"])?;
    cx.result([x.shape[0].clone(), outputs].into_iter().chain(places), x.dtype)
}

fn window(attrs: &WinogradConv2dAttrs) -> Result<Window, TypeError> {
    Window::new(&[TAPS as i64; 2], &[1, 1], &attrs.padding, &[1, 1])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let WinogradConv2dAttrs { tile_size, padding } = cx.attrs()?;
    let algorithm = Winograd::of_outputs(tile_size)
        .ok_or_else(|| EvalError::new(format!("there are no tiles of {tile_size}")))?;
    let (x, weight) = (cx.floats(0)?, cx.floats(1)?);
    let bias = cx.optional(2).map(floats).transpose()?;
    let &[_, outputs, height, width] = cx.shape() else {
        return cx.result(Elements::Float(Vec::new()));
    };
    let &[images, channels, in_height, in_width] = cx.arg(0)?.shape() else {
        return cx.result(Elements::Float(Vec::new()));
    };
    let (m, n) = (algorithm.outputs() as usize, algorithm.inputs() as usize);
    let mut result = vec![0.0; cx.len()];
    let mut tile = vec![0.0; n * n];
    let mut products = vec![0.0; outputs * n * n];
    for image in 0..images {
        for top in (0..height).step_by(m) {
            for left in (0..width).step_by(m) {
                products.fill(0.0);
                for channel in 0..channels {
                    let plane = &x[(image * channels + channel) * in_height * in_width..];
                    for (place, element) in tile.iter_mut().enumerate() {
                        let y = (top + place / n).checked_sub(padding[0] as usize);
                        let x = (left + place % n).checked_sub(padding[1] as usize);
                        *element = match (y, x) {
                            (Some(y), Some(x)) if y < in_height && x < in_width => {
                                plane[y * in_width + x]
                            }
                            _ => 0.0,
                        };
                    }
                    for (place, value) in transform(algorithm.data(), &tile).iter().enumerate() {
                        let weights = &weight[(place * channels + channel) * outputs..][..outputs];
                        for (output, weight) in weights.iter().enumerate() {
                            products[output * n * n + place] += value * weight;
                        }
                    }
                }
                for (output, products) in products.chunks_exact(n * n).enumerate() {
                    let first = bias.map_or(0.0, |bias| bias[output]);
                    let plane = &mut result[(image * outputs + output) * height * width..];
                    for (place, value) in transform(algorithm.output(), products).iter().enumerate()
                    {
                        let (y, x) = (top + place / m, left + place % m);
                        if y < height && x < width {
                            plane[y * width + x] = first + value;
                        }
                    }
                }
            }
        }
    }
    cx.result(Elements::Float(result))
}

/// A matrix times a square tile times the transposed matrix, row by row.
fn transform(matrix: &[&[f64]], tile: &[f64]) -> Vec<f64> {
    let n = matrix.first().map_or(0, |row| row.len());
    let mut result = Vec::with_capacity(matrix.len() * matrix.len());
    for by_row in matrix {
        for by_column in matrix {
            let mut sum = 0.0;
            for (y, row) in by_row.iter().enumerate() {
                for (x, column) in by_column.iter().enumerate() {
                    sum += row * tile[y * n + x] * column;
                }
            }
            result.push(sum);
        }
    }
    result
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let WinogradConv2dAttrs { tile_size, padding } = cx.attrs()?;
    let Some(algorithm) = Winograd::of_outputs(tile_size) else {
        return cx.unsupported(format!("with tiles of {tile_size}"));
    };
    let (data, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let size = [shape[2], shape[3]];
    let before = [padding[0], padding[1]];
    let input = cx.dag.shape(data).to_vec();
    let [height, width] = size.map(|extent| {
        let m = algorithm.outputs();
        (extent + m - 1) / m * m + algorithm.inputs() - m
    });
    // The image with its border: where a layout has one, it is the image itself.
    let bordered = [input[0], input[1], height, width];
    let image = cx.dag.compute("image", &bordered, dtype, |dag, index| {
        let (y, x) = (index[2].clone() - before[0], index[3].clone() - before[1]);
        let inside = within(&y, 0, input[2]).and(within(&x, 0, input[3]));
        let element = dag.at(data, &[index[0].clone(), index[1].clone(), y, x]);
        PrimExpr::select(inside, element, PrimExpr::zero(dtype))
    });
    let mut te = Builder::over(std::mem::replace(cx.dag, ComputeDag::new("")));
    let (x, weights) = (te.tensor(image), te.tensor(weight));
    let stages = conv2d(&mut te, algorithm, x, weights, [0, 0], size, |sum, _| sum);
    *cx.dag = te.into_dag();
    for tensor in [stages.columns, stages.tiles, stages.products, stages.rows] {
        cx.dag.set_stored(tensor.stage());
    }
    cx.dag.set_stored(image);
    let output = stages.output.stage();
    cx.dag.set_anchor(output, Anchor::Winograd { data, image, weight, algorithm, padding: before });
    add_bias(cx, output)
}
