//! 3x3 convolutions by Winograd's minimal filtering.

use std::collections::BTreeMap;

use crate::diagnostics::Problem;
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule, SharedBytes, TensorType};
use crate::ops::Op;
use crate::ops::nn::{CONV2D, CONV2D_WINOGRAD, ConvAttrs, Winograd, WinogradConv2dAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::strategy::algorithm_workload;
use crate::target::{CHANNEL_BLOCK, ConvCosts};
use crate::transform::InferType;
use crate::transform::calls::extents;

crate::register_pass_config_option! {
    /// Most outputs of a tile along an axis: 4, 2 for smaller errors, or 0 for none.
    pub MAX_TILE: i64 = "relay.ApplyWinograd.max_tile", default = 4;
    /// Algorithms that were measured to be the fastest, by convolutions in words: set by compilations
    /// with tuned choices.
    pub MEASURED_ALGORITHMS: BTreeMap<String, String> = "relay.ApplyWinograd.measured";
}

/// Most bytes of transformed weights: what a few bytes of a model can ask for has no bounds.
const MAX_WEIGHT_BYTES: u64 = 1 << 30;

/// Computes 3x3 convolutions with steps of 1 by Winograd's algorithm, where that is faster.
///
/// Weights must be constant; they are transformed here, and take 1.8 or 4 times the room. Results
/// differ by rounding: by F(2x2, 3x3) errors are as those of a direct convolution, by F(4x4, 3x3)
/// some ten times as large (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
/// CVPR 2016).
#[function_pass(opt_level = 3, required = [InferType])]
pub fn apply_winograd(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let max_tile = cx.get(&MAX_TILE);
    if ![0, 2, 4].contains(&max_tile) {
        let name = MAX_TILE.name();
        return Err(Problem::new(format!("{name} is {max_tile}; it can be 0, 2 or 4")).into());
    }
    let costs = cx.target().conv_costs();
    let measured = cx.get(&MEASURED_ALGORITHMS);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some(conv) = Conv::of(&old, id)? else { continue };
        let Some(algorithm) = conv.algorithm(max_tile, &costs, &measured) else { continue };
        let Some(weight) = transformed(&conv.weight, algorithm) else { continue };
        let args: Vec<Option<ExprId>> =
            conv.args.iter().map(|arg| arg.map(|arg| rewriter.mapped(arg))).collect();
        let builder = rewriter.builder();
        let weight = builder.constant(weight);
        let attrs = WinogradConv2dAttrs { tile_size: algorithm.outputs(), padding: conv.padding };
        let args = vec![args[0], Some(weight), args.get(2).copied().flatten()];
        let new =
            builder.call_optional(Op::new(&CONV2D_WINOGRAD), args, Attrs::from_struct(&attrs)?)?;
        cx.count("convolutions", 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}

/// A convolution that the algorithm can compute.
struct Conv {
    args: Vec<Option<ExprId>>,
    padding: [i64; 4],
    weight: Constant,
    batch: i64,
    channels: i64,
    outputs: i64,
    size: [i64; 2],
}

impl Conv {
    fn of(function: &Function, id: ExprId) -> Result<Option<Conv>> {
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = function.expr(id) else {
            return Ok(None);
        };
        if !op.is(&CONV2D) || !op.is_plain(attrs) {
            return Ok(None);
        }
        let ConvAttrs { strides, padding, dilation, groups, .. } = attrs.parse()?;
        let weight =
            args.get(1).copied().flatten().and_then(|arg| function.expr(arg).as_constant());
        let result = function.ty(id).as_tensor();
        let (Some(weight), Some(result)) = (weight, result) else { return Ok(None) };
        let (Some(kernel), Some(result_dims)) = (extents(weight.ty()), extents(result)) else {
            return Ok(None);
        };
        let (&[outputs, channels, 3, 3], &[batch, _, height, width]) =
            (&kernel[..], &result_dims[..])
        else {
            return Ok(None);
        };
        let Ok(padding) = padding.try_into() else { return Ok(None) };
        let plain = strides == [1, 1] && dilation == [1, 1] && groups == 1;
        if !plain || result.dtype != DType::F32 || weight.is_opaque() {
            return Ok(None);
        }
        let (args, weight, size) = (args.clone(), weight.clone(), [height, width]);
        Ok(Some(Conv { args, padding, weight, batch, channels, outputs, size }))
    }

    /// The fastest algorithm whose tiles have at most that many outputs along an axis, as was measured
    /// or by its cost; `None` if it is the direct one.
    fn algorithm(
        &self,
        max_tile: i64,
        costs: &ConvCosts,
        measured: &BTreeMap<String, String>,
    ) -> Option<Winograd> {
        // Schedules go over whole blocks.
        if self.channels % CHANNEL_BLOCK != 0 || self.outputs % CHANNEL_BLOCK != 0 {
            return None;
        }
        let allowed = |algorithm: &Winograd| algorithm.outputs() <= max_tile;
        let mut candidates = [Winograd::F2, Winograd::F4].into_iter().filter(allowed);
        let extents = [self.batch, self.channels, self.outputs];
        if let Some(measured) = measured.get(&algorithm_workload(extents, self.size)) {
            return candidates.find(|algorithm| algorithm.to_string() == *measured);
        }
        let best =
            candidates.min_by(|a, b| self.cost(*a, costs).total_cmp(&self.cost(*b, costs)))?;
        (self.cost(best, costs) < self.direct_cost(costs)).then_some(best)
    }

    /// Nanoseconds: transforms of tiles, products, and the transformed weights.
    fn cost(&self, algorithm: Winograd, costs: &ConvCosts) -> f64 {
        let [input, output] = match algorithm {
            Winograd::F2 => costs.transform_f2,
            Winograd::F4 => costs.transform_f4,
        };
        let m = algorithm.outputs();
        let along = |extent: &i64| ((extent + m - 1) / m) as f64;
        let tiles = self.batch as f64 * self.size.iter().map(along).product::<f64>();
        let (c, k) = (self.channels as f64, self.outputs as f64);
        let points = (algorithm.inputs() * algorithm.inputs()) as f64;
        tiles * (c / 16.0 * input + k / 16.0 * output)
            + costs.products(points * tiles * c * k)
            + costs.streamed(points * c * k)
    }

    fn direct_cost(&self, costs: &ConvCosts) -> f64 {
        let pixels: f64 =
            [&[self.batch], &self.size[..]].concat().iter().map(|&n| n as f64).product();
        let weights = 9.0 * self.channels as f64 * self.outputs as f64;
        costs.products(pixels * weights) + costs.streamed(weights)
    }
}

/// The weights `[out, in, 3, 3]` transformed, `[n, n, in, out]`.
fn transformed(weight: &Constant, algorithm: Winograd) -> Option<Constant> {
    let dims = weight.ty().shape.as_consts()?;
    let &[out, input, ..] = dims.as_slice() else { return None };
    let n = algorithm.inputs();
    let points = (n * n) as u64;
    let grown = out.checked_mul(input)?.checked_mul(points * DType::F32.bytes()? as u64)?;
    if grown > MAX_WEIGHT_BYTES {
        return None;
    }
    let extents = [usize::try_from(out).ok()?, usize::try_from(input).ok()?];
    let weights: Vec<f32> = match weight.to_f64_vec() {
        Some(weights) => weights.into_iter().map(|weight| weight as f32).collect(),
        None => weight.to_i64_vec()?.into_iter().map(|weight| weight as f32).collect(),
    };
    let transformed = algorithm.transform_weights(&weights, extents);
    let mut bytes = Vec::with_capacity(transformed.len() * 4);
    for value in transformed {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    let shape = [n, n, input as i64, out as i64].map(crate::ir::Dim::from);
    let ty = TensorType::new(crate::ir::Shape::new(shape), DType::F32);
    Constant::new(ty, SharedBytes::new(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(size: i64, channels: i64, outputs: i64) -> Option<Winograd> {
        measured_choice(size, channels, outputs, &BTreeMap::new())
    }

    fn measured_choice(
        size: i64,
        channels: i64,
        outputs: i64,
        measured: &BTreeMap<String, String>,
    ) -> Option<Winograd> {
        let weight = Constant::scalar(0.0, DType::F32).unwrap();
        let conv = Conv {
            args: Vec::new(),
            padding: [1; 4],
            weight,
            batch: 1,
            channels,
            outputs,
            size: [size, size],
        };
        conv.algorithm(4, &crate::target::Target::host().conv_costs(), measured)
    }

    #[test]
    fn tiles_are_chosen_by_cost() {
        assert_eq!(choice(56, 64, 64), Some(Winograd::F4));
        assert_eq!(choice(28, 128, 128), Some(Winograd::F4));
        assert_eq!(choice(14, 128, 128), Some(Winograd::F4));
        assert_eq!(choice(7, 512, 512), Some(Winograd::F2));
        // Few pixels for each weight.
        assert_eq!(choice(2, 512, 512), None);
        // Blocks of channels must be full.
        assert_eq!(choice(56, 3, 64), None);
        assert_eq!(choice(56, 64, 20), None);
    }

    #[test]
    fn what_was_measured_counts_where_it_is_an_algorithm_that_may_be_taken() {
        let measured = |algorithm: &str| {
            let what = "algorithm of conv2d 1x64 by 3x3 to 64x56x56".to_owned();
            [(what, algorithm.to_owned())].into()
        };
        let choice = |algorithm| measured_choice(56, 64, 64, &measured(algorithm));
        assert_eq!(choice("F(2x2, 3x3)"), Some(Winograd::F2));
        assert_eq!(choice("F(4x4, 3x3)"), Some(Winograd::F4));
        assert_eq!(choice("direct"), None);
        // Of another convolution.
        assert_eq!(measured_choice(28, 64, 64, &measured("direct")), Some(Winograd::F4));
    }
}
