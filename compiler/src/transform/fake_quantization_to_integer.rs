//! Islands of dequantised numbers, computed in integers.
//!
//! Two kinds of rewrites meet in the middle. `qnn.dequantize` moves past what is linear in it:
//! convolutions, products, sums, and operators that move elements. `qnn.quantize` moves up past what
//! is monotone: bounds, maxima, concatenations, and moves again. Where one meets the other, both are
//! one `qnn.requantize`, or nothing.

mod affine;
mod pair;
mod product;
mod signed;
mod widened;

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use serde::Serialize;

use self::affine::{Affine, To};
use crate::analysis::UseCounts;
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule};
use crate::ops::elementwise::{ADD, CAST, CLIP, CastAttrs, ClipAttrs, RELU, SUBTRACT};
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, CONV1D, CONV2D, CONV3D, DENSE, GLOBAL_AVG_POOL2D,
    GLOBAL_MAX_POOL2D, MATMUL, MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MaxPoolAttrs, PAD, PadAttrs,
    PadMode,
};
use crate::ops::qnn::{DEQUANTIZE, QUANTIZE, QuantizeAttrs, REQUANTIZE, RequantizeAttrs};
use crate::ops::reduce::{MEAN, ReduceAttrs};
use crate::ops::tensor::{
    CONCATENATE, EXPAND_DIMS, RESHAPE, SPLIT, SQUEEZE, STRIDED_SLICE, TRANSPOSE,
};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Operators of one argument that give each element another place.
const MOVES: [&OpDef; 5] = [&RESHAPE, &SQUEEZE, &EXPAND_DIMS, &TRANSPOSE, &STRIDED_SLICE];

/// Pools of the greatest element.
const MAX_POOLS: [&OpDef; 4] = [&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D, &GLOBAL_MAX_POOL2D];

/// Most operators that a `qnn.quantize` moves up past, counted along a path.
const MAX_PATH: usize = 16;

/// The zero point of an unsigned byte that stands for a signed one.
const FLIP: i64 = 128;

/// Computes what lies between `qnn.dequantize` and `qnn.quantize` in integers.
///
/// Convolutions and products become exact sums of 32 bits of 8-bit activations and `int8` weights,
/// with the zero point of the activations and the bias in one vector, and one `qnn.requantize`.
/// Activations are unsigned: signed ones are greater by 128 where constant weights meet them. So
/// do products of two tensors of bytes that are quantised again, as attention's, and those of
/// `int32` that were bytes.
/// Pools, clips, concatenations and what moves elements take the bytes themselves. Sums of two
/// dequantised tensors stay: they are one loop over bytes. A result differs by at most one step from
/// what the operators of the model give, as sums are not rounded on the way.
///
/// Products of floats with large constant matrices that are dequantised, or cast from 16 bits, are
/// sums of floats, but read the matrices as they are stored: `nn.matmul` with a right operand of fewer
/// bits where columns have a scale, `qnn.dequantize_matmul` where blocks of them have. So do
/// convolutions without groups, where output channels have a scale.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn fake_quantization_to_integer(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let uses = cx.analysis::<UseCounts>(&function);
    let rewriter = Rewriter::new(function);
    let mut lowering = Lowering { rewriter, uses: &uses, cx, unsigned: SecondaryMap::new() };
    while let Some(id) = lowering.rewriter.next_expr()? {
        if let Some(new) = lowering.expr(id)? {
            cx.count("calls in integers", 1);
            lowering.rewriter.replace(new);
        }
    }
    Ok(lowering.rewriter.finish()?)
}

struct Lowering<'a> {
    rewriter: Rewriter,
    /// Uses of expressions of the old function.
    uses: &'a SecondaryMap<ExprId, u32>,
    cx: &'a PassContext,
    /// Of `int8` expressions of the new function: the same numbers as `uint8`, greater by [`FLIP`].
    unsigned: SecondaryMap<ExprId, PackedOption<ExprId>>,
}

impl Lowering<'_> {
    /// What takes the place of an expression of the old function, if something does.
    fn expr(&mut self, id: ExprId) -> Result<Option<ExprId>> {
        let old = self.rewriter.old().clone();
        let call = match old.expr(id) {
            Expr::Call(call) => call,
            &Expr::TupleGet { tuple, index } => return self.field(tuple, index),
            _ => return Ok(None),
        };
        let Callee::Op(op) = call.callee else { return Ok(None) };
        if !op.is_plain(&call.attrs) {
            return Ok(None);
        }
        let is_any = |defs: &[&OpDef]| defs.iter().any(|def| op.is(def));
        if op.is(&QUANTIZE) {
            return self.quantize(id, call);
        }
        if op.is(&DEQUANTIZE) {
            return self.of_unsigned(call);
        }
        if op.is(&REQUANTIZE) {
            return self.signed_requantize(call);
        }
        if is_any(&[&CONV1D, &CONV2D, &CONV3D]) {
            return self.conv(id, op, call);
        }
        if is_any(&[&DENSE, &MATMUL]) {
            return self.product(id, op, call);
        }
        if is_any(&[&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D]) {
            return self.avg_pool(call);
        }
        if op.is(&GLOBAL_AVG_POOL2D) {
            return self.mean(id, call, &[2, 3]);
        }
        if op.is(&MEAN) {
            let ReduceAttrs { axis, keepdims: _ } = call.attrs.parse()?;
            return self.mean(id, call, &axis);
        }
        if op.is(&ADD) {
            return self.add(call);
        }
        if op.is(&PAD) {
            return self.pad(call);
        }
        let moves = is_any(&MOVES) || (is_any(&MAX_POOLS) && never_empty(op, &call.attrs)?);
        if moves && let Some(x) = self.affine_arg(call, 0).filter(Affine::is_single) {
            return self.moved(op, &call.attrs, x).map(Some);
        }
        Ok(None)
    }

    /// The argument of a call of the old function as numbers with a scale.
    fn affine_arg(&self, call: &Call, index: usize) -> Option<Affine> {
        let arg = (*call.args.get(index)?)?;
        self.affine(self.rewriter.mapped(arg))
    }

    /// Calls an operator in the new function.
    fn call(
        &mut self,
        def: &'static OpDef,
        args: &[ExprId],
        attrs: &impl Serialize,
    ) -> Result<ExprId> {
        let attrs = Attrs::from_struct(attrs)?;
        Ok(self.rewriter.builder().call(Op::new(def), args, attrs)?)
    }

    fn cast(&mut self, x: ExprId, dtype: DType) -> Result<ExprId> {
        self.call(&CAST, &[x], &CastAttrs::to(dtype))
    }

    /// A scalar constant of an integer type.
    fn int(&mut self, value: i64, dtype: DType) -> Result<ExprId> {
        let constant = Constant::scalar(value as f64, dtype)
            .ok_or_else(|| format!("there is no constant {value} of type {dtype}"))?;
        Ok(self.rewriter.builder().constant(constant))
    }

    /// Dequantised elements in other places.
    fn moved(&mut self, op: Op, attrs: &Attrs, x: Affine) -> Result<ExprId> {
        let q = match self.constant(x.q) {
            Some(constant) => match self.evaluated(op, attrs, &[constant]) {
                Some(moved) => self.rewriter.builder().constant(moved),
                None => self.rewriter.builder().call(op, &[x.q], attrs.clone())?,
            },
            None => self.rewriter.builder().call(op, &[x.q], attrs.clone())?,
        };
        self.dequantize(&Affine { q, ..x })
    }

    /// A field of a split of dequantised elements.
    fn field(&mut self, tuple: ExprId, index: u32) -> Result<Option<ExprId>> {
        let old = self.rewriter.old().clone();
        let Some(call) = old.expr(tuple).as_call().filter(|_| old.expr(tuple).is_call_of(&SPLIT))
        else {
            return Ok(None);
        };
        let Some(x) = self.affine_arg(call, 0).filter(Affine::is_single) else { return Ok(None) };
        let b = self.rewriter.builder();
        let parts = b.call(Op::new(&SPLIT), &[x.q], call.attrs.clone())?;
        let q = b.tuple_get(parts, index)?;
        self.dequantize(&Affine { q, ..x }).map(Some)
    }

    /// Padding of zeros, which are zero points among quantised elements.
    fn pad(&mut self, call: &Call) -> Result<Option<ExprId>> {
        let attrs: PadAttrs = call.attrs.parse()?;
        let Some(x) = self.affine_arg(call, 0).filter(Affine::is_single) else { return Ok(None) };
        let fill = call.args.get(1).copied().flatten();
        let fill = fill.map(|fill| self.numbers(self.rewriter.mapped(fill)));
        if attrs.mode == PadMode::Constant && fill.is_some_and(|f| f.is_none_or(|f| f != [0.0])) {
            return Ok(None);
        }
        let mut args = vec![x.q];
        if attrs.mode == PadMode::Constant {
            args.push(self.int(x.zeros[0], self.dtype(x.q))?);
        }
        let q = self.call(&PAD, &args, &attrs)?;
        self.dequantize(&Affine { q, ..x }).map(Some)
    }

    /// Quantisation of what is known by the scales it is made of.
    fn quantize(&mut self, id: ExprId, call: &Call) -> Result<Option<ExprId>> {
        let attrs: QuantizeAttrs = call.attrs.parse()?;
        let args = self.rewriter.args(call);
        let &[Some(x), Some(_), ..] = args.as_slice() else { return Ok(None) };
        if let Some(constant) = self.constant(x) {
            // Weights that a model holds as floats.
            let rest: Option<Vec<Constant>> =
                args[1..].iter().flatten().map(|&arg| self.constant(arg)).collect();
            let all = rest.map(|rest| [vec![constant], rest].concat());
            let op = Op::new(&QUANTIZE);
            let known = all.and_then(|all| self.evaluated(op, &call.attrs, &all));
            return Ok(known.map(|known| self.rewriter.builder().constant(known)));
        }
        let Some(to) = self.to(&attrs, &args) else { return Ok(None) };
        let Some(arg) = call.args[0] else { return Ok(None) };
        if to.dtype != DType::I8 {
            return self.quantized(id, arg, &to, 0);
        }
        // Signed bytes are what unsigned ones are made of in place: those that read them dequantised
        // read the unsigned ones.
        let to = To { zero: to.zero + FLIP, dtype: DType::U8, ..to };
        let unsigned = match self.quantized(id, arg, &to, 0)? {
            Some(unsigned) => unsigned,
            None => self.rounded(x, &to)?,
        };
        self.signed_of(unsigned).map(Some)
    }

    /// Signed bytes as what unsigned ones stand for.
    fn signed_of(&mut self, unsigned: ExprId) -> Result<ExprId> {
        let wide = self.cast(unsigned, DType::I32)?;
        let flip = self.int(FLIP, DType::I32)?;
        let lower = self.call(&SUBTRACT, &[wide, flip], &())?;
        let signed = self.cast(lower, DType::I8)?;
        self.unsigned[signed] = unsigned.into();
        Ok(signed)
    }

    /// A value of the old function, quantised; `None` if there is nothing better than a call of
    /// `qnn.quantize`. `at` is the quantisation that this begins at.
    fn quantized(
        &mut self,
        at: ExprId,
        value: ExprId,
        to: &To,
        path: usize,
    ) -> Result<Option<ExprId>> {
        let new = self.rewriter.mapped(value);
        if let Some(from) = self.affine(new) {
            return self.requantized(from, to).map(Some);
        }
        let old = self.rewriter.old().clone();
        let same_scope = old.data_of(value).scope == old.data_of(at).scope;
        if self.uses[value] != 1 || !same_scope || path == MAX_PATH {
            return Ok(None);
        }
        let Some(call) = old.expr(value).as_call() else { return Ok(None) };
        let (&Callee::Op(op), Some(&Some(x))) = (&call.callee, call.args.first()) else {
            return Ok(None);
        };
        let is_any = |defs: &[&OpDef]| defs.iter().any(|def| op.is(def));
        if op.is(&RELU) || op.is(&CLIP) {
            let bounds = match op.is(&CLIP) {
                true => call.attrs.parse()?,
                false => ClipAttrs { min: Some(0.0), max: None },
            };
            let inner = self.quantized_or_rounded(at, x, to, path)?;
            return self.bounded(inner, &bounds, to).map(Some);
        }
        if op.is(&MATMUL) {
            let Some(sums) = self.pair(call, &call.attrs.parse()?)? else { return Ok(None) };
            return self.requantized(sums, to).map(Some);
        }
        if is_any(&MOVES) || is_any(&MAX_POOLS) {
            let Some(inner) = self.quantized(at, x, to, path + 1)? else { return Ok(None) };
            return Ok(Some(self.rewriter.builder().call(op, &[inner], call.attrs.clone())?));
        }
        if op.is(&CONCATENATE) {
            let fields: Vec<ExprId> = call.args.iter().flatten().copied().collect();
            // Several kernels of floats instead of one would gain nothing.
            if !fields.iter().any(|&field| self.affine(self.rewriter.mapped(field)).is_some()) {
                return Ok(None);
            }
            let mut parts = Vec::with_capacity(fields.len());
            for field in fields {
                parts.push(self.quantized_or_rounded(at, field, to, path)?);
            }
            return Ok(Some(self.rewriter.builder().call(op, &parts, call.attrs.clone())?));
        }
        Ok(None)
    }

    fn quantized_or_rounded(
        &mut self,
        at: ExprId,
        value: ExprId,
        to: &To,
        path: usize,
    ) -> Result<ExprId> {
        match self.quantized(at, value, to, path + 1)? {
            Some(quantized) => Ok(quantized),
            None => self.rounded(self.rewriter.mapped(value), to),
        }
    }

    /// Quantised elements within bounds of the numbers they stand for: quantisation is monotone, so
    /// that it may come before.
    fn bounded(&mut self, q: ExprId, bounds: &ClipAttrs, to: &To) -> Result<ExprId> {
        let (low, high) = to.range();
        let min = bounds.min.map(|min| to.of(min)).filter(|&min| min > low);
        let max = bounds.max.map(|max| to.of(max)).filter(|&max| max < high);
        if min.is_none() && max.is_none() {
            return Ok(q);
        }
        let attrs = ClipAttrs { min: min.map(|v| v as f64), max: max.map(|v| v as f64) };
        self.call(&CLIP, &[q], &attrs)
    }

    /// A call of `qnn.quantize` with one scale.
    fn rounded(&mut self, x: ExprId, to: &To) -> Result<ExprId> {
        let scale = self.float(&[to.scale])?;
        let zero = self.int(to.zero, to.dtype)?;
        let attrs = QuantizeAttrs {
            axis: 0,
            block_size: 0,
            dtype: to.dtype,
            precision: None,
            saturate: true,
        };
        self.call(&QUANTIZE, &[x, scale, zero], &attrs)
    }

    /// Quantised elements of one scale and zero point as those of another.
    fn requantized(&mut self, from: Affine, to: &To) -> Result<ExprId> {
        let Affine { q, scale, axis, zeros } = from;
        let dtype = self.dtype(q);
        if scale == [to.scale] && zeros == [to.zero] && dtype == to.dtype {
            return Ok(q);
        }
        let mut sums = if dtype == DType::I32 { q } else { self.cast(q, DType::I32)? };
        if zeros.iter().any(|&zero| zero != 0) {
            let rank = self.rank(q);
            let zeros: Option<Vec<i32>> =
                zeros.iter().map(|&zero| i32::try_from(zero).ok()).collect();
            let zeros = zeros.ok_or("a zero point is beyond 32 bits")?;
            let zeros = self.along_axis(&zeros, axis, rank)?;
            sums = self.call(&SUBTRACT, &[sums, zeros], &())?;
        }
        let factors: Vec<f64> = scale.iter().map(|scale| scale / to.scale).collect();
        let scale = self.float(&factors)?;
        let zero = self.int(to.zero, to.dtype)?;
        let attrs = RequantizeAttrs { axis: axis as i64, dtype: to.dtype };
        self.call(&REQUANTIZE, &[sums, scale, zero], &attrs)
    }
}

/// Whether each element of the result of a pool or a move is one of the argument. A window that is
/// all padding has none.
fn never_empty(op: Op, attrs: &Attrs) -> Result<bool> {
    if op.is(&GLOBAL_MAX_POOL2D) {
        return Ok(true);
    }
    let MaxPoolAttrs { pool_size, padding, dilation, .. } = attrs.parse()?;
    let rank = pool_size.len();
    let within = padding.iter().enumerate().all(|(i, &by)| by < pool_size[i % rank.max(1)]);
    Ok(within && dilation.iter().all(|&dilation| dilation == 1))
}

#[cfg(test)]
mod tests;
