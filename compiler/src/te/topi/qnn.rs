//! Quantisation: from numbers to small types and back.

use super::elementwise::cast;
use super::{Compute, Stages};
use crate::ir::DType;
use crate::ops::elementwise::CastAttrs;
use crate::ops::qnn::{DequantizeAttrs, QuantizeAttrs, RequantizeAttrs, computed_in};
use crate::te::{ComputeDag, StageId};
use crate::tir::{Intrinsic, PrimExpr};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "qnn.quantize" => quantize(cx),
        "qnn.dequantize" => dequantize(cx),
        "qnn.requantize" => requantize(cx),
        _ => return None,
    })
}

/// Where the scales of elements are.
struct Scales {
    axis: usize,
    /// Elements of one scale along the axis; 0 without blocks.
    block_size: i64,
}

impl Scales {
    fn new(cx: &Compute<'_>, axis: i64, block_size: i64) -> Result<Scales, super::ComputeError> {
        let (x, scale) = (cx.arg(0)?, cx.arg(1)?);
        let single = cx.dag.shape(scale).iter().all(|&extent| extent == 1);
        // One scale may come without an axis that the tensor has.
        let axis = if single { 0 } else { cx.axis(axis, cx.dag.shape(x).len())? };
        Ok(Scales { axis, block_size })
    }

    /// The scale or zero point of the element at an index.
    fn at(&self, dag: &ComputeDag, stage: StageId, index: &[PrimExpr]) -> PrimExpr {
        let shape = dag.shape(stage);
        if shape.iter().all(|&extent| extent == 1) {
            return dag.at(stage, &vec![PrimExpr::index(0); shape.len()]);
        }
        if self.block_size == 0 {
            return dag.at(stage, &index[self.axis..=self.axis]);
        }
        let mut at = index.to_vec();
        at[self.axis] = at[self.axis].clone().floordiv(self.block_size);
        dag.at(stage, &at)
    }
}

/// The nearest integer, moved by the zero point, within the range of the type.
fn to_range(value: PrimExpr, zero: Option<PrimExpr>, dtype: DType, held: DType) -> PrimExpr {
    let wide = value.dtype();
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let nearest = PrimExpr::call(Intrinsic::Round, value);
    // Numbers near the range are exact in floats, and others are cut off on the right side.
    let moved = match zero {
        Some(zero) => nearest + zero.cast(wide),
        None => nearest,
    };
    let bound = |value: i128| PrimExpr::float(value as f64, wide);
    // The operand is on the right: a NaN passes, and becomes zero.
    bound(high).min(bound(low).max(moved)).cast(held)
}

fn quantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: QuantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, attrs.block_size)?;
    let precision = attrs.precision.unwrap_or(cx.dag.dtype(scale));
    let wide = computed_in(precision);
    let (_, held) = cx.result();
    cx.element(|dag, index| {
        // A cast to a type that is computed in a wider one rounds.
        let rounded = |value: PrimExpr| value.cast(precision).cast(wide);
        let x = rounded(dag.at(x, index));
        let quotient = x / rounded(scales.at(dag, scale, index));
        let quotient = rounded(quotient);
        let zero = zero.map(|zero| scales.at(dag, zero, index));
        if attrs.dtype.is_int() {
            return to_range(quotient, zero, attrs.dtype, held);
        }
        let moved = match zero {
            Some(zero) => quotient + zero.cast(wide),
            None => quotient,
        };
        let to = CastAttrs { saturate: attrs.saturate, ..CastAttrs::to(attrs.dtype) };
        cast(moved, &to)
    })
}

fn dequantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: DequantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, attrs.block_size)?;
    let wide = computed_in(cx.dag.dtype(scale));
    // Differences of small integers are exact in integers and in floats.
    let between = if cx.dag.dtype(x).is_int() { DType::I32 } else { wide };
    cx.element(|dag, index| {
        let x = dag.at(x, index).cast(between);
        let difference = match zero {
            Some(zero) => x - scales.at(dag, zero, index).cast(between),
            None => x,
        };
        let scale = scales.at(dag, scale, index).cast(wide);
        (difference.cast(wide) * scale).cast(attrs.dtype)
    })
}

fn requantize(cx: &mut Compute<'_>) -> Stages {
    let attrs: RequantizeAttrs = cx.attrs()?;
    let (x, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.optional(2));
    let scales = Scales::new(cx, attrs.axis, 0)?;
    let wide = computed_in(cx.dag.dtype(scale));
    let (_, held) = cx.result();
    cx.element(|dag, index| {
        let scale = scales.at(dag, scale, index).cast(wide);
        let product = dag.at(x, index).cast(wide) * scale;
        let zero = zero.map(|zero| scales.at(dag, zero, index));
        to_range(product, zero, attrs.dtype, held)
    })
}
