//! Products and convolutions of floats, whose constant weights stay as they are stored.

use super::Lowering;
use super::affine::Affine;
use crate::graph::{Call, ExprId};
use crate::ir::{Attrs, Constant, DType, SharedBytes, TensorType, normalize_axis};
use crate::ops::Op;
use crate::ops::elementwise::{ADD, CAST, MULTIPLY};
use crate::ops::nn::{ConvAttrs, MATMUL, MatmulAttrs};
use crate::ops::qnn::{DEQUANTIZE, DEQUANTIZE_MATMUL, DequantizeAttrs, DequantizeMatmulAttrs};
use crate::pass::Result;
use crate::transform::calls::{along_axis, extents, stays_narrow};

impl Lowering<'_> {
    /// A convolution of floats without groups, with large constant weights of fewer bits: if each output
    /// channel has a scale, scales are those of the result.
    pub(super) fn widened_conv(&mut self, op: Op, call: &Call) -> Result<Option<ExprId>> {
        let attrs: ConvAttrs = call.attrs.parse()?;
        let args = self.rewriter.args(call);
        let &[Some(x), Some(_), ref bias @ ..] = args.as_slice() else { return Ok(None) };
        if self.dtype(x) != DType::F32 || attrs.groups != 1 {
            return Ok(None);
        }
        let Some((weight, scale)) = self.narrow_weights(call, 0)? else { return Ok(None) };
        let rank = 2 + attrs.strides.len();
        let bias = bias.first().copied().flatten();
        let attrs = Attrs::from_struct(&ConvAttrs { out_dtype: Some(DType::F32), ..attrs })?;
        let b = self.rewriter.builder();
        let Some(scale) = scale else {
            let args = vec![Some(x), Some(weight), bias];
            return Ok(Some(b.call_optional(op, args, attrs)?));
        };
        let sums = b.call(op, &[x, weight], attrs)?;
        let scale = match b.ty(scale).as_tensor().map(|ty| ty.shape.rank()) {
            Some(1) => along_axis(b, scale, 1, rank)?,
            _ => scale,
        };
        let scaled = self.call(&MULTIPLY, &[sums, scale], &())?;
        let Some(bias) = bias else { return Ok(Some(scaled)) };
        let bias = along_axis(self.rewriter.builder(), bias, 1, rank)?;
        self.call(&ADD, &[scaled, bias], &()).map(Some)
    }

    /// A product of floats with a large constant matrix of fewer bits, which stays as it is stored: if
    /// each column has a scale, scales are those of the result.
    pub(super) fn widened_product(
        &mut self,
        call: &Call,
        attrs: &MatmulAttrs,
        axis: usize,
    ) -> Result<Option<ExprId>> {
        let Some(x) = call.args[0].map(|x| self.rewriter.mapped(x)) else { return Ok(None) };
        if self.dtype(x) != DType::F32 || self.rank(x) < 2 {
            return Ok(None);
        }
        let blocks = self.blocks_of(call, 1 - axis).filter(|_| !attrs.transpose_a);
        if let Some((matrix, block_size)) = blocks {
            let transpose_b = attrs.transpose_b;
            let halves = in_halves(&matrix, 1 - axis, block_size);
            let bits = if halves.is_some() { 4 } else { 8 };
            let attrs = DequantizeMatmulAttrs { transpose_b, block_size, bits };
            let matrix = halves.unwrap_or(matrix);
            let b = self.rewriter.builder();
            let matrix: Vec<ExprId> = matrix.into_iter().map(|part| b.constant(part)).collect();
            let args: Vec<ExprId> = std::iter::once(x).chain(matrix).collect();
            return self.call(&DEQUANTIZE_MATMUL, &args, &attrs).map(Some);
        }
        let Some((weight, scale)) = self.narrow_weights(call, axis)? else { return Ok(None) };
        let attrs = MatmulAttrs { out_dtype: Some(DType::F32), ..attrs.clone() };
        let product = self.call(&MATMUL, &[x, weight], &attrs)?;
        match scale {
            Some(scale) => self.call(&MULTIPLY, &[product, scale], &()).map(Some),
            None => Ok(Some(product)),
        }
    }

    /// Large constant weights that stay as they are stored: those that are cast, or bytes with a scale for
    /// each output channel, which go along an axis, or for all.
    fn narrow_weights(
        &mut self,
        call: &Call,
        axis: usize,
    ) -> Result<Option<(ExprId, Option<ExprId>)>> {
        let is_narrow = |this: &Self, weight| {
            this.constant(weight).is_some_and(|weight| stays_narrow(weight.ty(), this.cx))
        };
        let built =
            call.args[1].map(|weight| self.rewriter.built().expr(self.rewriter.mapped(weight)));
        let cast =
            built.filter(|built| built.is_call_of(&CAST)).and_then(|cast| cast.as_call()?.args[0]);
        if let Some(weight) = cast.filter(|&weight| is_narrow(self, weight)) {
            return Ok(Some((weight, None)));
        }
        let affine: Option<Affine> = self.affine_arg(call, 1);
        if !affine.is_some_and(|weights| is_narrow(self, weights.q)) {
            return Ok(None);
        }
        let Some(weights) = self.weights(call, axis) else { return Ok(None) };
        let scale = self.float(&weights.scale)?;
        let weight = self.rewriter.builder().constant(weights.signed.weight);
        Ok(Some((weight, Some(scale))))
    }

    /// A large constant matrix in bytes, its scales, and its zero points, if it has some, for blocks of
    /// so many neighbours along an axis.
    fn blocks_of(&self, call: &Call, axis: usize) -> Option<(Vec<Constant>, i64)> {
        let matrix = self.rewriter.mapped(call.args[1]?);
        let call = self.rewriter.built().expr(matrix).as_call()?;
        let is_dequantized = self.rewriter.built().expr(matrix).is_call_of(&DEQUANTIZE);
        let attrs: DequantizeAttrs = is_dequantized.then(|| call.attrs.parse().ok())??;
        let parts = call.args.iter().flatten().map(|&part| self.constant(part));
        let mut parts = parts.collect::<Option<Vec<Constant>>>()?;
        for part in &mut parts {
            *part = part.in_bytes()?;
        }
        let is_plain = attrs.block_size > 0
            && attrs.dtype == DType::F32
            && normalize_axis(attrs.axis, 2) == Some(axis)
            && parts.iter().all(|part| part.ty().shape.rank() == 2)
            && parts.get(1)?.ty().dtype == DType::F32;
        // There may be one zero point for all.
        let fits = parts.get(2).is_none_or(|zero| zero.ty().shape == parts[1].ty().shape);
        let takes = is_plain && fits && stays_narrow(parts[0].ty(), self.cx);
        takes.then_some((parts, attrs.block_size))
    }
}

/// A matrix of numbers of 4 bits, scales and zero points, with two neighbours along an axis in each
/// byte; `None` if some number takes more, or blocks of neighbours are not whole.
fn in_halves(parts: &[Constant], axis: usize, block: i64) -> Option<Vec<Constant>> {
    let (matrix, scale) = (parts.first()?, parts.get(1)?);
    let extents = extents(matrix.ty())?;
    let &[_, columns] = extents.as_slice() else { return None };
    if block % 2 != 0 || extents[axis] % block != 0 {
        return None;
    }
    // Signed ones become unsigned, as their zero points do.
    let offset = if matrix.ty().dtype == DType::I8 { 8 } else { 0 };
    let codes = |constant: &Constant| -> Option<Vec<u8>> {
        let mut codes = constant.to_bytes()?.to_vec();
        if offset != 0 {
            codes.iter_mut().for_each(|code| *code = code.wrapping_add(offset));
        }
        Some(codes)
    };
    let codes_of_matrix = codes(matrix)?;
    if codes_of_matrix.iter().any(|&code| code > 15) {
        return None;
    }
    let zeros = match parts.get(2) {
        Some(zero) => codes(zero)?,
        None => vec![offset; usize::try_from(scale.ty().num_elements()?).ok()?],
    };
    // Those that share bytes lie one row apart, or side by side.
    let apart = if axis == 0 { usize::try_from(columns).ok()? } else { 1 };
    let mut bytes = Vec::with_capacity(codes_of_matrix.len() / 2);
    for pairs in codes_of_matrix.chunks_exact(2 * apart) {
        let (lower, upper) = pairs.split_at(apart);
        bytes.extend(lower.iter().zip(upper).map(|(lower, upper)| lower | upper << 4));
    }
    let mut halved = extents.clone();
    halved[axis] /= 2;
    let constant = |extents: &[i64], bytes: Vec<u8>| {
        Constant::new(TensorType::from_consts(extents, DType::U8), SharedBytes::new(bytes)).ok()
    };
    let zero = constant(&self::extents(scale.ty())?, zeros)?;
    Some(vec![constant(&halved, bytes)?, scale.clone(), zero])
}
