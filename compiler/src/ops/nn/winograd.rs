//! Convolution with weights that were transformed for Winograd's minimal filtering (Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks", CVPR 2016).

use serde::{Deserialize, Serialize};

use super::conv::add_bias;
use super::window::Window;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, floats};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::topi::winograd::conv2d;
use crate::te::{Anchor, Builder, ComputeDag};
use crate::tir::PrimExpr;

/// Taps of the filter along one axis.
const TAPS: usize = 3;

/// Which algorithm: outputs of a tile along one axis, of a 3x3 filter with steps of 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Winograd {
    /// F(2x2, 3x3): 16 multiplications for 36.
    F2,
    /// F(4x4, 3x3): 36 multiplications for 144; errors are about ten times those of `F2`.
    F4,
}

const F2_DATA: [&[f64]; 4] =
    [&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]];
const F2_FILTER: [[f64; TAPS]; 4] =
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
const F2_OUTPUT: [&[f64]; 2] = [&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]];

const F4_DATA: [&[f64]; 6] = [
    &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
    &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
    &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
    &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
    &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
    &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
];
const F4_FILTER: [[f64; TAPS]; 6] = [
    [1.0 / 4.0, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];
const F4_OUTPUT: [&[f64]; 4] = [
    &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
    &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
    &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
];

impl Winograd {
    /// The algorithm whose tiles have that many outputs along an axis.
    pub fn of_outputs(outputs: i64) -> Option<Winograd> {
        [Winograd::F2, Winograd::F4].into_iter().find(|algorithm| algorithm.outputs() == outputs)
    }

    /// Outputs of a tile along one axis.
    pub fn outputs(self) -> i64 {
        match self {
            Winograd::F2 => 2,
            Winograd::F4 => 4,
        }
    }

    /// Inputs of a tile along one axis.
    pub fn inputs(self) -> i64 {
        self.outputs() + TAPS as i64 - 1
    }

    /// The matrix that transforms a tile of inputs, row by row.
    pub fn data(self) -> &'static [&'static [f64]] {
        match self {
            Winograd::F2 => &F2_DATA,
            Winograd::F4 => &F4_DATA,
        }
    }

    fn filter(self) -> &'static [[f64; TAPS]] {
        match self {
            Winograd::F2 => &F2_FILTER,
            Winograd::F4 => &F4_FILTER,
        }
    }

    /// The matrix that makes a tile of outputs of products, row by row.
    pub fn output(self) -> &'static [&'static [f64]] {
        match self {
            Winograd::F2 => &F2_OUTPUT,
            Winograd::F4 => &F4_OUTPUT,
        }
    }

    /// The transformed weights `[n, n, in, out]`, n being the inputs of a tile, of weights
    /// `[out, in, 3, 3]`; computed in `f64` and rounded once. Fewer weights than the extents say are
    /// taken as zero.
    ///
    /// Weights are the bulk of a model, and build scripts run unoptimised: plain loops, and a thread
    /// for each row of the tiles.
    pub fn transform_weights(self, weights: &[f32], [out, input]: [usize; 2]) -> Vec<f32> {
        let filter = self.filter();
        let n = filter.len();
        let mut transformed = vec![0.0f32; n * n * input * out];
        let row_len = n * input * out;
        if row_len == 0 {
            return transformed;
        }
        std::thread::scope(|scope| {
            for (row, by_row) in transformed.chunks_exact_mut(row_len).zip(filter) {
                scope.spawn(move || transform_row(row, *by_row, filter, weights, [out, input]));
            }
        });
        transformed
    }
}

/// One row of all transformed filters: `[n, in, out]`.
fn transform_row(
    row: &mut [f32],
    by_row: [f64; TAPS],
    filter: &[[f64; TAPS]],
    weights: &[f32],
    [out, input]: [usize; 2],
) {
    for (index, taps) in weights.chunks_exact(TAPS * TAPS).take(out * input).enumerate() {
        let (o, c) = (index / input, index % input);
        let mut sums = [0.0f64; TAPS];
        let mut x = 0;
        while x < TAPS {
            sums[x] = by_row[0] * f64::from(taps[x])
                + by_row[1] * f64::from(taps[TAPS + x])
                + by_row[2] * f64::from(taps[2 * TAPS + x]);
            x += 1;
        }
        let mut place = c * out + o;
        for column in filter {
            row[place] = (sums[0] * column[0] + sums[1] * column[1] + sums[2] * column[2]) as f32;
            place += input * out;
        }
    }
}

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
    let mut dims = vec![x.shape[0].clone(), outputs];
    for (axis, window) in window(&attrs).last(2).iter().enumerate() {
        window.check("weight's extent")?;
        let windows = window.outputs(&x.shape[axis + 2], false);
        ensure!(
            windows.as_const().is_none_or(|windows| windows >= 1),
            "three taps do not fit into dimension {} of input `x`, which is {x}, with padding {} \
             and {}",
            axis + 2,
            window.before,
            window.after
        );
        dims.push(windows);
    }
    cx.result(dims, x.dtype)
}

fn window(attrs: &WinogradConv2dAttrs) -> Window {
    Window::new(&[TAPS as i64; 2], &[1, 1], &attrs.padding, &[1, 1])
}

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&CONV2D_WINOGRAD, attrs, args)?;
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
