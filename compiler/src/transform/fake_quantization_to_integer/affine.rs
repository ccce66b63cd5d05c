//! Numbers with a scale and a zero point: what is known of an expression of the new function.

use super::{FLIP, Lowering};
use crate::graph::{Call, Callee, Expr, ExprId};
use crate::ir::{Attrs, Constant, DType, normalize_axis};
use crate::ops::Op;
use crate::ops::qnn::weights::int32s;
use crate::ops::qnn::{DEQUANTIZE, DequantizeAttrs, QuantizeAttrs};
use crate::pass::Result;

/// `(q − zero) · scale`, in `float32`.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    /// Integers of 8 or 32 bits.
    pub(super) q: ExprId,
    /// One scale, or one for each index of `axis`.
    pub(super) scale: Vec<f64>,
    pub(super) axis: usize,
    /// One zero point, or one for each index of `axis`.
    pub(super) zeros: Vec<i64>,
}

impl Affine {
    /// Whether there is one scale and one zero point.
    pub(super) fn is_single(&self) -> bool {
        self.scale.len() == 1 && self.zeros.len() == 1
    }
}

/// What elements are quantised to.
#[derive(Clone, Debug)]
pub(super) struct To {
    pub(super) scale: f64,
    pub(super) zero: i64,
    pub(super) dtype: DType,
}

impl To {
    /// The least and the greatest element.
    pub(super) fn range(&self) -> (i64, i64) {
        let (low, high) = self.dtype.int_range().unwrap_or((0, 0));
        (low as i64, high as i64)
    }

    /// The element of a number, as `qnn.quantize` has it.
    pub(super) fn of(&self, value: f64) -> i64 {
        let (low, high) = self.range();
        let quotient = value as f32 / self.scale as f32;
        // The cast saturates.
        (quotient.round_ties_even() as i64).saturating_add(self.zero).clamp(low, high)
    }
}

impl Lowering<'_> {
    pub(super) fn dtype(&self, new: ExprId) -> DType {
        self.rewriter.built().ty(new).as_tensor().map_or(DType::Bool, |ty| ty.dtype)
    }

    pub(super) fn rank(&self, new: ExprId) -> usize {
        self.rewriter.built().ty(new).as_tensor().map_or(0, |ty| ty.shape.rank())
    }

    /// A constant of the new function whose elements are known.
    pub(super) fn constant(&self, new: ExprId) -> Option<Constant> {
        self.rewriter.built().expr(new).as_constant().filter(|c| !c.is_opaque()).cloned()
    }

    /// A call on constants.
    pub(super) fn evaluated(&self, op: Op, attrs: &Attrs, args: &[Constant]) -> Option<Constant> {
        let args: Vec<Option<Constant>> = args.iter().cloned().map(Some).collect();
        self.cx.evaluator().eval_call(op, attrs, &args).ok()?.into_iter().next()
    }

    /// What an expression of the new function is, if it is a call of `qnn.dequantize` with known
    /// scales.
    pub(super) fn affine(&self, new: ExprId) -> Option<Affine> {
        let expr = self.rewriter.built().expr(new);
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = expr else { return None };
        if op.is(&DEQUANTIZE) { self.affine_call(args, attrs) } else { None }
    }

    /// The same of arguments in the new function.
    fn affine_call(&self, args: &[Option<ExprId>], attrs: &Attrs) -> Option<Affine> {
        let DequantizeAttrs { axis, block_size, dtype } = attrs.parse().ok()?;
        let q = (*args.first()?)?;
        let held = self.dtype(q);
        let scale = self.constant((*args.get(1)?)?)?;
        let is_plain = block_size == 0 && dtype == DType::F32 && scale.ty().dtype == DType::F32;
        if !is_plain || !matches!(held, DType::I8 | DType::U8 | DType::I32) {
            return None;
        }
        let scale = scale.to_f64_vec()?;
        let mut zeros = match args.get(2).copied().flatten() {
            Some(zero) => self.constant(zero)?.to_i64_vec()?,
            None => vec![0],
        };
        if zeros.windows(2).all(|pair| pair[0] == pair[1]) {
            zeros.truncate(1);
        }
        if scale.is_empty() || zeros.is_empty() || !scale.iter().all(|&scale| usable(scale)) {
            return None;
        }
        let single = scale.len() == 1 && zeros.len() == 1;
        let axis = if single { 0 } else { normalize_axis(axis, self.rank(q))? };
        let unsigned = self.unsigned[q].expand();
        if unsigned.is_some() {
            zeros.iter_mut().for_each(|zero| *zero += FLIP);
        }
        Some(Affine { q: unsigned.unwrap_or(q), scale, axis, zeros })
    }

    /// Dequantised signed bytes that are made of unsigned ones, by these.
    pub(super) fn of_unsigned(&mut self, call: &Call) -> Result<Option<ExprId>> {
        let args = self.rewriter.args(call);
        let is_made = args.first().copied().flatten().is_some_and(|q| self.unsigned[q].is_some());
        let x = self.affine_call(&args, &call.attrs).filter(|x| is_made && x.zeros.len() == 1);
        x.map(|x| self.dequantize(&x)).transpose()
    }

    /// The numbers of a constant, dequantised or not.
    pub(super) fn numbers(&self, new: ExprId) -> Option<Vec<f64>> {
        if let Some(constant) = self.constant(new) {
            return constant.to_f64_vec();
        }
        let Affine { q, scale, axis, zeros } = self.affine(new)?;
        let constant = self.constant(q)?;
        let shape = constant.ty().shape.as_consts()?;
        let inner: u64 = shape.get(axis + 1..).map_or(1, |after| after.iter().product());
        let extent = shape.get(axis).copied().unwrap_or(1).max(1);
        let at = |index: usize, len: usize| match len {
            1 => 0,
            _ => (index as u64 / inner.max(1) % extent) as usize,
        };
        let values = constant.to_i64_vec()?;
        let number = |(index, value): (usize, &i64)| {
            (value - zeros[at(index, zeros.len())]) as f64 * scale[at(index, scale.len())]
        };
        Some(values.iter().enumerate().map(number).collect())
    }

    /// What a quantisation of `float32` quantises to, if it has one known scale.
    pub(super) fn to(&self, attrs: &QuantizeAttrs, args: &[Option<ExprId>]) -> Option<To> {
        let is_plain = attrs.block_size == 0
            && attrs.precision.is_none_or(|precision| precision == DType::F32)
            && attrs.dtype.is_int()
            && attrs.dtype.bits() >= 8;
        let scale = self.constant((*args.get(1)?)?).filter(|_| is_plain)?;
        let floats = self.dtype((*args.first()?)?) == DType::F32 && scale.ty().dtype == DType::F32;
        let zeros = match args.get(2).copied().flatten() {
            Some(zero) => self.constant(zero)?.to_i64_vec()?,
            None => vec![0],
        };
        let scales = scale.to_f64_vec()?;
        let (&[scale], &[zero]) = (scales.as_slice(), zeros.as_slice()) else { return None };
        (floats && usable(scale)).then_some(To { scale, zero, dtype: attrs.dtype })
    }

    /// A constant of `float32`: a scalar, or a vector.
    pub(super) fn float(&mut self, values: &[f64]) -> Result<ExprId> {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        let dims: &[i64] = if values.len() == 1 { &[] } else { &[values.len() as i64] };
        let constant = Constant::from_f32(dims, &values).map_err(|error| error.to_string())?;
        Ok(self.rewriter.builder().constant(constant))
    }

    /// Integers of 32 bits, one or one for each index of an axis, in a shape that broadcasts to so
    /// many axes.
    pub(super) fn along_axis(
        &mut self,
        values: &[i32],
        axis: usize,
        rank: usize,
    ) -> Result<ExprId> {
        let mut dims = Vec::new();
        if values.len() > 1 {
            dims.push(values.len() as i64);
            dims.resize(rank.saturating_sub(axis).max(1), 1);
        }
        let constant = int32s(&dims, values).ok_or("integers do not fill their shape")?;
        Ok(self.rewriter.builder().constant(constant))
    }

    /// The call of `qnn.dequantize` that a description is of; there is one zero point.
    pub(super) fn dequantize(&mut self, x: &Affine) -> Result<ExprId> {
        let scale = self.float(&x.scale)?;
        let mut args = vec![x.q, scale];
        if let [zero] = x.zeros[..]
            && zero != 0
        {
            args.push(self.int(zero, self.dtype(x.q))?);
        }
        let attrs = DequantizeAttrs { axis: x.axis as i64, block_size: 0, dtype: DType::F32 };
        self.call(&DEQUANTIZE, &args, &attrs)
    }
}

/// Whether a scale is a number to multiply with and to divide by.
fn usable(scale: f64) -> bool {
    scale.is_finite() && scale >= f64::from(f32::MIN_POSITIVE)
}
