//! Sums of products of signed bytes and constant weights, as sums of unsigned ones: there are
//! instructions for products of an unsigned and a signed byte.
//!
//! Σ x·w = Σ (x + 128)·w − 128 Σ w, and the second sum is known.

use super::pair::Bytes;
use super::product::MAX_PRODUCT;
use super::{FLIP, Lowering};
use crate::graph::{Call, ExprId};
use crate::ir::{Attrs, DType};
use crate::ops::Op;
use crate::ops::nn::{ConvAttrs, MATMUL, MatmulAttrs};
use crate::ops::qnn::weights::{SignedWeights, int32s};
use crate::ops::qnn::{REQUANTIZE, RequantizeAttrs};
use crate::pass::Result;

impl Lowering<'_> {
    /// A convolution of signed bytes.
    pub(super) fn signed_conv(&mut self, op: Op, call: &Call) -> Result<Option<ExprId>> {
        let attrs: ConvAttrs = call.attrs.parse()?;
        let args = self.rewriter.args(call);
        let &[Some(x), Some(weight), ref bias @ ..] = args.as_slice() else { return Ok(None) };
        let bias = match bias.first().copied().flatten() {
            None => None,
            Some(bias) => match self.constant(bias).and_then(|bias| bias.to_i64_vec()) {
                Some(bias) => Some(bias),
                None => return Ok(None),
            },
        };
        let bias = self.bias_of_signed(x, weight, 0, attrs.out_dtype, bias.as_deref());
        let Some(bias) = bias.and_then(|bias| int32s(&[bias.len() as i64], &bias)) else {
            return Ok(None);
        };
        let x = self.flipped(Bytes::new(x, 0), DType::U8, FLIP)?.q;
        let attrs = ConvAttrs { pad_value: attrs.pad_value + FLIP, ..attrs };
        let b = self.rewriter.builder();
        let bias = b.constant(bias);
        b.call(op, &[x, weight, bias], Attrs::from_struct(&attrs)?).map(Some).map_err(Into::into)
    }

    /// A product of signed bytes with a constant matrix.
    pub(super) fn signed_product(
        &mut self,
        call: &Call,
        attrs: &MatmulAttrs,
    ) -> Result<Option<ExprId>> {
        let args = self.rewriter.args(call);
        let &[Some(x), Some(weight)] = args.as_slice() else { return Ok(None) };
        if attrs.transpose_a || self.rank(x) < 2 || self.rank(weight) != 2 {
            return Ok(None);
        }
        let axis = if attrs.transpose_b { 0 } else { 1 };
        let Some(bias) = self.bias_of_signed(x, weight, axis, attrs.out_dtype, None) else {
            return Ok(None);
        };
        let x = self.flipped(Bytes::new(x, 0), DType::U8, FLIP)?.q;
        let sums = self.call(&MATMUL, &[x, weight], attrs)?;
        self.add_to(sums, &bias).map(Some)
    }

    /// What sums of products with unsigned bytes lack, for signed ones with constant weights whose
    /// output channels run along an axis. `None` for others, and if sums could be beyond 32 bits.
    fn bias_of_signed(
        &self,
        x: ExprId,
        weight: ExprId,
        axis: usize,
        out_dtype: Option<DType>,
        bias: Option<&[i64]>,
    ) -> Option<Vec<i32>> {
        let is_signed = |id| self.dtype(id) == DType::I8;
        if out_dtype != Some(DType::I32) || !is_signed(x) || !is_signed(weight) {
            return None;
        }
        let constant = self.constant(weight)?;
        let weights = SignedWeights::new(&constant, &[0], axis)?;
        if bias.is_some_and(|bias| bias.len() != weights.sums.len()) {
            return None;
        }
        let depth = constant.ty().num_elements()? / weights.sums.len().max(1) as u64;
        let most = i64::try_from(depth).ok()?.checked_mul(MAX_PRODUCT)?;
        let all = weights.bias(FLIP, bias)?;
        let fits = |&b: &i32| i64::from(b).abs().saturating_add(most) <= i64::from(i32::MAX);
        all.iter().all(fits).then_some(all)
    }

    /// Sums that are quantised to signed bytes: those are made of unsigned ones, which products read.
    pub(super) fn signed_requantize(&mut self, call: &Call) -> Result<Option<ExprId>> {
        let attrs: RequantizeAttrs = call.attrs.parse()?;
        let args = self.rewriter.args(call);
        let &[Some(sums), Some(scale), ref zero @ ..] = args.as_slice() else { return Ok(None) };
        let zero = match zero.first().copied().flatten() {
            None => Some(vec![0]),
            Some(zero) => self.constant(zero).and_then(|zero| zero.to_i64_vec()),
        };
        let Some(&[zero]) = zero.as_deref().filter(|_| attrs.dtype == DType::I8) else {
            return Ok(None);
        };
        let zero = self.int(zero + FLIP, DType::U8)?;
        let attrs = RequantizeAttrs { dtype: DType::U8, ..attrs };
        let unsigned = self.call(&REQUANTIZE, &[sums, scale, zero], &attrs)?;
        self.signed_of(unsigned).map(Some)
    }
}
