//! Convolution with weights that were transformed for Winograd's algorithm.

use super::conv::add_bias;
use super::within;
use crate::ops::nn::{Winograd, WinogradConv2dAttrs};
use crate::te::topi::winograd::conv2d;
use crate::te::topi::{Compute, Stages};
use crate::te::{Anchor, Builder, ComputeDag};
use crate::tir::PrimExpr;

pub(super) fn conv2d_winograd(cx: &mut Compute<'_>) -> Stages {
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
