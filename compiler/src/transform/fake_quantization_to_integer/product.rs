//! Sums of products of dequantised numbers, and means, as sums of 32-bit integers.

use super::affine::Affine;
use super::pair::Bytes;
use super::{FLIP, Lowering};
use crate::graph::{Call, ExprId};
use crate::ir::{Attrs, Constant, DType, Dim, TensorType, normalize_axis};
use crate::ops::Op;
use crate::ops::elementwise::ADD;
use crate::ops::nn::{self, AvgPoolAttrs, ConvAttrs, DENSE, MATMUL, MatmulAttrs};
use crate::ops::qnn::weights::{SignedWeights, int32s};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs};
use crate::pass::Result;
use crate::transform::calls::along_axis;

/// Greatest magnitude of a product of an unsigned and a signed byte.
pub(super) const MAX_PRODUCT: i64 = 255 * 128;

/// Greatest magnitude of a sum with its bias: half of what 32 bits hold, so that another vector may
/// be added.
const MAX_SUM: i64 = (i32::MAX / 2) as i64;

/// Weights, and the scale of each output channel or of all.
pub(super) struct Weights {
    pub(super) signed: SignedWeights,
    pub(super) scale: Vec<f64>,
    /// Elements that go into one sum.
    depth: i64,
}

impl Lowering<'_> {
    /// Activations: bytes of one scale and zero point.
    fn activations(&self, call: &Call) -> Option<Affine> {
        let x = self.affine_arg(call, 0)?;
        (x.is_single() && self.dtype(x.q).bits() == 8).then_some(x)
    }

    /// Activations as unsigned bytes.
    fn unsigned_activations(&mut self, x: Affine) -> Result<Affine> {
        let bytes = self.flipped(Bytes::new(x.q, x.zeros[0]), DType::U8, FLIP)?;
        Ok(Affine { q: bytes.q, zeros: vec![bytes.zero], ..x })
    }

    /// Constant weights whose output channels run along an axis.
    pub(super) fn weights(&self, call: &Call, axis: usize) -> Option<Weights> {
        let Affine { q, scale, axis: along, zeros } = self.affine_arg(call, 1)?;
        if (scale.len() > 1 || zeros.len() > 1) && along != axis {
            return None;
        }
        let constant = self.constant(q)?;
        let signed = SignedWeights::new(&constant, &zeros, axis)?;
        let elements = i64::try_from(constant.ty().num_elements()?).ok()?;
        let depth = elements / i64::try_from(signed.sums.len()).ok()?.max(1);
        Some(Weights { signed, scale, depth })
    }

    /// What the sums of a product lack, with a bias in their scales; `None` if a sum could be beyond
    /// 32 bits.
    fn bias_of(&self, x: &Affine, weights: &Weights, bias: Option<Vec<f64>>) -> Option<Vec<i32>> {
        let rounded = match bias {
            None => None,
            Some(bias) => {
                let channels = weights.signed.sums.len();
                let mut rounded = Vec::with_capacity(channels);
                for channel in 0..channels {
                    let value = bias.get(if bias.len() == 1 { 0 } else { channel })?;
                    let scale = weights.scale[if weights.scale.len() == 1 { 0 } else { channel }];
                    let sum = (value / (x.scale[0] * scale)).round_ties_even();
                    if sum.is_nan() || sum.abs() > MAX_SUM as f64 {
                        return None;
                    }
                    rounded.push(sum as i64);
                }
                Some(rounded)
            }
        };
        let bias = weights.signed.bias(x.zeros[0], rounded.as_deref())?;
        let most = weights.depth.checked_mul(MAX_PRODUCT)?;
        let fits = |&b: &i32| i64::from(b).abs().saturating_add(most) <= MAX_SUM;
        bias.iter().all(fits).then_some(bias)
    }

    /// The numbers that sums stand for.
    fn sums(&mut self, q: ExprId, x: &Affine, weights: &Weights, axis: usize) -> Result<ExprId> {
        let scale = weights.scale.iter().map(|scale| scale * x.scale[0]).collect();
        self.dequantize(&Affine { q, scale, axis, zeros: vec![0] })
    }

    /// A convolution of dequantised images with dequantised weights.
    pub(super) fn conv(&mut self, id: ExprId, op: Op, call: &Call) -> Result<Option<ExprId>> {
        let Some(x) = self.activations(call) else {
            return match self.signed_conv(op, call)? {
                Some(sums) => Ok(Some(sums)),
                None => self.widened_conv(op, call),
            };
        };
        let Some(weights) = self.weights(call, 0) else {
            self.cx.missed(id, "the weights are no constant that can be int8 without a zero point");
            return Ok(None);
        };
        let x = self.unsigned_activations(x)?;
        let given = call.args.get(2).copied().flatten().map(|bias| self.rewriter.mapped(bias));
        // A bias that is computed, or beyond what sums hold, is added to the numbers they stand for.
        let known = given.and_then(|bias| self.numbers(bias));
        let within = known.and_then(|bias| self.bias_of(&x, &weights, Some(bias)));
        let added = given.filter(|_| within.is_none());
        let Some(bias) = within.or_else(|| self.bias_of(&x, &weights, None)) else {
            self.cx.missed(id, "sums may be beyond 32 bits");
            return Ok(None);
        };
        let attrs: ConvAttrs = call.attrs.parse()?;
        let attrs = ConvAttrs { pad_value: x.zeros[0], out_dtype: Some(DType::I32), ..attrs };
        let bias = int32s(&[bias.len() as i64], &bias).ok_or("a bias has one axis")?;
        let b = self.rewriter.builder();
        let (weight, bias) = (b.constant(weights.signed.weight.clone()), b.constant(bias));
        let args = vec![Some(x.q), Some(weight), Some(bias)];
        let rank = 2 + attrs.strides.len();
        let sums = b.call_optional(op, args, Attrs::from_struct(&attrs)?)?;
        let sums = self.sums(sums, &x, &weights, 1)?;
        let Some(bias) = added else { return Ok(Some(sums)) };
        let bias = along_axis(self.rewriter.builder(), bias, 1, rank)?;
        self.call(&ADD, &[sums, bias], &()).map(Some)
    }

    /// A product of a dequantised tensor with a dequantised constant matrix.
    pub(super) fn product(&mut self, id: ExprId, op: Op, call: &Call) -> Result<Option<ExprId>> {
        let attrs = match op.is(&DENSE) {
            true => MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() },
            false => call.attrs.parse()?,
        };
        let matrix = call.args[1].is_some_and(|b| self.rank(self.rewriter.mapped(b)) == 2);
        let axis = if attrs.transpose_b { 0 } else { 1 };
        if let Some(sums) = self.widened_pair(call, &attrs)? {
            return Ok(Some(sums));
        }
        if let Some(sums) = self.signed_product(call, &attrs)? {
            return Ok(Some(sums));
        }
        let Some(x) = self.activations(call).filter(|x| self.rank(x.q) >= 2) else {
            return if matrix { self.widened_product(call, &attrs, axis) } else { Ok(None) };
        };
        let weights = if matrix && !attrs.transpose_a { self.weights(call, axis) } else { None };
        let Some(weights) = weights else {
            let is_known = self.affine_arg(call, 1).is_some_and(|b| self.constant(b.q).is_some());
            if is_known && let Some(sums) = self.pair(call, &attrs)? {
                return self.dequantize(&sums).map(Some);
            }
            let what = "the right operand is no constant matrix of one zero point";
            self.cx.missed(id, what);
            return Ok(None);
        };
        let x = self.unsigned_activations(x)?;
        let Some(bias) = self.bias_of(&x, &weights, None) else {
            self.cx.missed(id, "sums may be beyond 32 bits");
            return Ok(None);
        };
        let last = self.rank(x.q) - 1;
        let attrs = MatmulAttrs { out_dtype: Some(DType::I32), ..attrs };
        let weight = self.rewriter.builder().constant(weights.signed.weight.clone());
        let mut sums = self.call(&MATMUL, &[x.q, weight], &attrs)?;
        if bias.iter().any(|&b| b != 0) {
            sums = self.add_to(sums, &bias)?;
        }
        self.sums(sums, &x, &weights, last).map(Some)
    }

    /// Sums of 32 bits, and a vector along their last axis, which may have one already.
    pub(super) fn add_to(&mut self, sums: ExprId, vector: &[i32]) -> Result<ExprId> {
        let expr = self.rewriter.built().expr(sums);
        let known = expr.as_call().filter(|_| expr.is_call_of(&ADD)).and_then(|call| {
            let &[Some(product), Some(bias)] = call.args.as_slice() else { return None };
            let bias = self.constant(bias)?.to_i64_vec()?;
            let both = |(&a, &b): (&i64, &i32)| i32::try_from(a + i64::from(b)).ok();
            let all: Option<Vec<i32>> = bias.iter().zip(vector).map(both).collect();
            (bias.len() == vector.len()).then_some((product, all?))
        });
        let (sums, vector) = known.unwrap_or_else(|| (sums, vector.to_vec()));
        let vector = int32s(&[vector.len() as i64], &vector).ok_or("a bias has one axis")?;
        let vector = self.rewriter.builder().constant(vector);
        self.call(&ADD, &[sums, vector], &())
    }

    /// Sums of a product and a constant vector.
    pub(super) fn add(&mut self, call: &Call) -> Result<Option<ExprId>> {
        let &[Some(a), Some(b)] = call.args.as_slice() else { return Ok(None) };
        let (a, b) = (self.rewriter.mapped(a), self.rewriter.mapped(b));
        let of_sums = |this: &Self, new| {
            let x = this.affine(new).filter(|x| this.constant(x.q).is_none())?;
            (this.dtype(x.q) == DType::I32 && x.zeros == [0]).then_some(x)
        };
        let (sums, vector) = match (of_sums(self, a), of_sums(self, b)) {
            (Some(sums), None) => (sums, b),
            (None, Some(sums)) => (sums, a),
            _ => return Ok(None),
        };
        let Some(columns) = self
            .rewriter
            .built()
            .ty(sums.q)
            .as_tensor()
            .and_then(|ty| usize::try_from(ty.shape.last()?.as_const()?).ok())
        else {
            return Ok(None);
        };
        let last = self.rank(sums.q).saturating_sub(1);
        let is_vector = self.rewriter.built().ty(vector).as_tensor().is_some_and(|ty| {
            ty.shape.rank() <= last + 1
                && ty.shape.iter().rev().skip(1).all(|dim| dim.as_const() == Some(1))
        });
        if !is_vector || (sums.scale.len() > 1 && sums.axis != last) {
            return Ok(None);
        }
        let Some(values) = self.numbers(vector) else { return Ok(None) };
        if values.len() != 1 && values.len() != columns {
            return Ok(None);
        }
        let mut rounded = Vec::with_capacity(columns);
        for column in 0..columns {
            let scale = sums.scale[if sums.scale.len() == 1 { 0 } else { column }];
            let value = values[if values.len() == 1 { 0 } else { column }] / scale;
            if value.is_nan() || value.abs() > MAX_SUM as f64 {
                return Ok(None);
            }
            rounded.push(value.round_ties_even() as i32);
        }
        let q = self.add_to(sums.q, &rounded)?;
        self.dequantize(&Affine { q, ..sums }).map(Some)
    }

    /// Means along the last axes, as products with a column of ones.
    pub(super) fn mean(&mut self, id: ExprId, call: &Call, axes: &[i64]) -> Result<Option<ExprId>> {
        let Some(x) = self.activations(call) else { return Ok(None) };
        let result = self.rewriter.old().ty(id).as_tensor().map(|ty| ty.shape.to_vec());
        let (Some(shape), Some(result)) = (self.extents(x.q), result) else { return Ok(None) };
        let rank = shape.len();
        let mut axes: Vec<usize> =
            axes.iter().filter_map(|&axis| normalize_axis(axis, rank)).collect();
        axes.sort_unstable();
        let kept = rank - axes.len();
        if axes.is_empty() || !axes.iter().copied().eq(kept..rank) {
            return Ok(None);
        }
        let (rows, count) = (shape[..kept].iter().product(), shape[kept..].iter().product());
        let Ok(ones) = Constant::splat(TensorType::from_consts(&[count, 1], DType::I8), &[1])
        else {
            return Ok(None);
        };
        let x = self.unsigned_activations(x)?;
        let newshape = [rows, count].map(Dim::from).to_vec();
        let matrix = self.call(&RESHAPE, &[x.q], &ReshapeAttrs { newshape })?;
        let ones = self.rewriter.builder().constant(ones);
        let attrs = MatmulAttrs { out_dtype: Some(DType::I32), ..MatmulAttrs::default() };
        let sums = self.call(&MATMUL, &[matrix, ones], &attrs)?;
        let sums = self.call(&RESHAPE, &[sums], &ReshapeAttrs { newshape: result })?;
        self.mean_of(sums, &x, count)
    }

    /// Windows' means, as depthwise convolutions with ones.
    pub(super) fn avg_pool(&mut self, call: &Call) -> Result<Option<ExprId>> {
        let attrs: AvgPoolAttrs = call.attrs.parse()?;
        let padded = attrs.padding.iter().any(|&by| by != 0);
        // Windows of fewer elements have other scales.
        if attrs.ceil_mode || (padded && !attrs.count_include_pad) {
            return Ok(None);
        }
        let Some(x) = self.activations(call) else { return Ok(None) };
        let (Some(shape), Some(op)) = (self.extents(x.q), nn::conv(attrs.pool_size.len())) else {
            return Ok(None);
        };
        let groups = shape[1];
        let dims: Vec<i64> =
            [groups, 1].into_iter().chain(attrs.pool_size.iter().copied()).collect();
        let Ok(ones) = Constant::splat(TensorType::from_consts(&dims, DType::I8), &[1]) else {
            return Ok(None);
        };
        let x = self.unsigned_activations(x)?;
        let conv = ConvAttrs {
            strides: attrs.strides,
            padding: attrs.padding,
            dilation: attrs.dilation,
            groups,
            pad_value: x.zeros[0],
            out_dtype: Some(DType::I32),
        };
        let ones = self.rewriter.builder().constant(ones);
        let sums = self.call(op, &[x.q, ones], &conv)?;
        self.mean_of(sums, &x, attrs.pool_size.iter().product())
    }

    /// Sums of so many bytes as means of what they stand for.
    fn mean_of(&mut self, sums: ExprId, x: &Affine, count: i64) -> Result<Option<ExprId>> {
        let zero = x.zeros[0].saturating_mul(count);
        if count < 1 || count.saturating_mul(255) > i64::from(i32::MAX) {
            return Ok(None);
        }
        let scale = vec![x.scale[0] / count as f64];
        self.dequantize(&Affine { q: sums, scale, axis: 0, zeros: vec![zero] }).map(Some)
    }

    /// The extents of a tensor of the new function, if they are known.
    fn extents(&self, new: ExprId) -> Option<Vec<i64>> {
        self.rewriter.built().ty(new).as_tensor()?.shape.iter().map(|dim| dim.as_const()).collect()
    }
}
