//! Sums of products of bytes of which neither operand has to be known, as attention has them.
//!
//! With zero points a₀ and b₀, and sums over the k terms of a product,
//! Σ (a − a₀)(b − b₀) = Σ a·b − a₀ Σ b − b₀ Σ a + k·a₀·b₀. The first sum is one of unsigned and signed
//! bytes, for which there are instructions; the others are vectors along columns and rows.

use super::affine::Affine;
use super::{FLIP, Lowering};
use crate::graph::{Call, ExprId};
use crate::ir::DType;
use crate::ops::elementwise::{ADD, CAST, MULTIPLY, SUBTRACT};
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::reduce::{ReduceAttrs, SUM};
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs};
use crate::pass::Result;
use crate::strategy::MIN_PACKED_ROWS;

/// Greatest number of terms of which the sums with all corrections have 32 bits.
const MAX_TERMS: i64 = i32::MAX as i64 / (4 * 255 * 255);

/// Greatest magnitude of a number that is taken from bytes: more than any zero point.
const MAX_ZERO: i64 = 1 << 16;

/// Bytes less their zero point: a number, and a scalar of `int32` if some of it is computed.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub(super) q: ExprId,
    pub(super) zero: i64,
    computed: Option<ExprId>,
}

impl Bytes {
    /// Bytes with a zero point that is known.
    pub(super) fn new(q: ExprId, zero: i64) -> Bytes {
        Bytes { q, zero, computed: None }
    }
}

impl Lowering<'_> {
    /// Dequantised bytes of one scale as what is multiplied.
    fn bytes_of(&self, x: &Affine) -> Option<Bytes> {
        let is_bytes = x.is_single() && self.dtype(x.q).bits() == 8;
        is_bytes.then(|| Bytes::new(x.q, x.zeros[0]))
    }

    /// Bytes that were cast to `int32`, less a scalar if one is taken from them.
    fn widened_bytes(&self, new: ExprId) -> Option<Bytes> {
        let expr = self.rewriter.built().expr(new);
        if !expr.is_call_of(&SUBTRACT) {
            return self.cast_bytes(new);
        }
        let &[Some(wide), Some(zero)] = expr.as_call()?.args.as_slice() else { return None };
        let bytes = self.cast_bytes(wide)?;
        let shape = &self.rewriter.built().ty(zero).as_tensor()?.shape;
        let is_one = shape.iter().all(|dim| dim.as_const() == Some(1));
        if !is_one || shape.rank() > self.rank(wide) {
            return None;
        }
        match self.constant(zero) {
            Some(known) => {
                let zero = known.to_i64_vec()?.first().copied()?;
                (zero.abs() <= MAX_ZERO).then_some(Bytes { zero, ..bytes })
            }
            None => (shape.rank() == 0).then_some(Bytes { computed: Some(zero), ..bytes }),
        }
    }

    /// Bytes that were cast to `int32`.
    fn cast_bytes(&self, new: ExprId) -> Option<Bytes> {
        let expr = self.rewriter.built().expr(new);
        let q = expr.as_call().filter(|_| expr.is_call_of(&CAST))?.args.first().copied()??;
        let is_byte = matches!(self.dtype(q), DType::I8 | DType::U8);
        (is_byte && self.dtype(new) == DType::I32).then(|| Bytes::new(q, 0))
    }

    /// A product of dequantised bytes of one scale each.
    pub(super) fn pair(&mut self, call: &Call, attrs: &MatmulAttrs) -> Result<Option<Affine>> {
        let (Some(a), Some(b)) = (self.affine_arg(call, 0), self.affine_arg(call, 1)) else {
            return Ok(None);
        };
        let (Some(left), Some(right)) = (self.bytes_of(&a), self.bytes_of(&b)) else {
            return Ok(None);
        };
        let Some(q) = self.sums_of_pair(left, right, attrs)? else { return Ok(None) };
        let scale = vec![a.scale[0] * b.scale[0]];
        Ok(Some(Affine { q, scale, axis: 0, zeros: vec![0] }))
    }

    /// A product of bytes that were cast to `int32`.
    pub(super) fn widened_pair(
        &mut self,
        call: &Call,
        attrs: &MatmulAttrs,
    ) -> Result<Option<ExprId>> {
        let &[Some(a), Some(b)] = call.args.as_slice() else { return Ok(None) };
        let [a, b] = [a, b].map(|arg| self.widened_bytes(self.rewriter.mapped(arg)));
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        self.sums_of_pair(a, b, attrs)
    }

    fn sums_of_pair(&mut self, a: Bytes, b: Bytes, attrs: &MatmulAttrs) -> Result<Option<ExprId>> {
        let dims = |x: &Bytes| {
            let ty = self.rewriter.built().ty(x.q).as_tensor()?;
            Some(ty.shape.iter().map(|dim| dim.as_const()).collect::<Vec<_>>())
        };
        let (Some(left), Some(right)) = (dims(&a), dims(&b)) else { return Ok(None) };
        if attrs.transpose_a || left.len() < 2 || right.len() < 2 {
            return Ok(None);
        }
        let (outer, terms) = left.split_at(left.len() - 1);
        let one_matrix = right[..right.len() - 2].iter().all(|&dim| dim == Some(1));
        let rows = if one_matrix { outer } else { &outer[outer.len() - 1..] };
        let has_rows = rows.iter().any(|rows| rows.is_none_or(|rows| rows >= MIN_PACKED_ROWS));
        let Some(terms) = terms[0].filter(|terms| (1..=MAX_TERMS).contains(terms)) else {
            return Ok(None);
        };
        if !has_rows {
            return Ok(None);
        }
        let a = self.flipped(a, DType::U8, FLIP)?;
        let b = self.flipped(b, DType::I8, -FLIP)?;
        let product = MatmulAttrs { out_dtype: Some(DType::I32), ..attrs.clone() };
        let mut sums = self.call(&MATMUL, &[a.q, b.q], &product)?;
        let [a_zero, b_zero] = [self.zero_of(&a)?, self.zero_of(&b)?];
        if let Some(zero) = a_zero {
            let columns = self.added(b.q, if attrs.transpose_b { -1 } else { -2 }, -2)?;
            sums = self.less(sums, columns, zero)?;
        }
        if let Some(zero) = b_zero {
            let rows = self.added(a.q, -1, -1)?;
            sums = self.less(sums, rows, zero)?;
        }
        if let (Some(a), Some(b)) = (a_zero, b_zero) {
            let terms = self.int(terms, DType::I32)?;
            let both = self.call(&MULTIPLY, &[a, b], &())?;
            let both = self.call(&MULTIPLY, &[both, terms], &())?;
            sums = self.call(&ADD, &[sums, both], &())?;
        }
        Ok(Some(sums))
    }

    /// Bytes of a type, which are others by so much if the type is another one.
    pub(super) fn flipped(&mut self, x: Bytes, dtype: DType, by: i64) -> Result<Bytes> {
        if self.dtype(x.q) == dtype {
            return Ok(x);
        }
        let zero = x.zero + by;
        if let Some(unsigned) = self.unsigned[x.q].expand() {
            return Ok(Bytes { q: unsigned, zero, ..x });
        }
        let wide = self.cast(x.q, DType::I32)?;
        let by = self.int(by, DType::I32)?;
        let moved = self.call(&ADD, &[wide, by], &())?;
        Ok(Bytes { q: self.cast(moved, dtype)?, zero, ..x })
    }

    /// A zero point as a scalar, unless it is 0.
    fn zero_of(&mut self, x: &Bytes) -> Result<Option<ExprId>> {
        let known = match x.zero {
            0 => None,
            zero => Some(self.int(zero, DType::I32)?),
        };
        Ok(match (x.computed, known) {
            (Some(computed), Some(known)) => Some(self.call(&ADD, &[computed, known], &())?),
            (computed, known) => computed.or(known),
        })
    }

    /// Sums of bytes along an axis, with one of extent 1 at another place.
    fn added(&mut self, q: ExprId, along: i64, at: i64) -> Result<ExprId> {
        let wide = self.cast(q, DType::I32)?;
        let attrs = ReduceAttrs { axis: vec![along], keepdims: along == at };
        let sums = self.call(&SUM, &[wide], &attrs)?;
        match along == at {
            true => Ok(sums),
            false => self.call(&EXPAND_DIMS, &[sums], &ExpandDimsAttrs { axis: vec![at] }),
        }
    }

    /// Sums less so many times others.
    fn less(&mut self, sums: ExprId, others: ExprId, times: ExprId) -> Result<ExprId> {
        let others = self.call(&MULTIPLY, &[others, times], &())?;
        self.call(&SUBTRACT, &[sums, others], &())
    }
}
