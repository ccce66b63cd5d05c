//! Values of the interpreter, and operators on them.

use super::super::{BinaryOp, CompareOp, Intrinsic, UnaryOp, scalar};
use super::Result;
use super::arithmetic::Arithmetic;
use crate::ir::DType;

/// A value with its data type; each lane in the form of [`scalar`].
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Scalar(DType, u64),
    Vector(DType, Vec<u64>),
}

impl Value {
    pub(super) fn dtype(&self) -> DType {
        match self {
            Value::Scalar(dtype, _) | Value::Vector(dtype, _) => *dtype,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        match self {
            Value::Scalar(..) => 1,
            Value::Vector(_, lanes) => lanes.len(),
        }
    }

    pub(super) fn lane(&self, index: usize) -> Result<u64> {
        match self {
            Value::Scalar(_, bits) => Ok(*bits),
            Value::Vector(_, lanes) => lanes
                .get(index)
                .copied()
                .ok_or_else(|| format!("there is no lane {index} of {}", lanes.len())),
        }
    }

    pub(super) fn from_lanes(dtype: DType, mut lanes: Vec<u64>) -> Value {
        if lanes.len() == 1 {
            Value::Scalar(dtype, lanes.remove(0))
        } else {
            Value::Vector(dtype, lanes)
        }
    }
}

pub(super) fn same_type(a: &Value, b: &Value) -> Result<DType> {
    if a.dtype() == b.dtype() && a.lanes() == b.lanes() {
        return Ok(a.dtype());
    }
    Err(format!("operands differ: {}x{} and {}x{}", a.dtype(), a.lanes(), b.dtype(), b.lanes()))
}

pub(super) fn float(value: f64, dtype: DType) -> Result<Value> {
    scalar::float_bits(value, dtype)
        .map(|bits| Value::Scalar(dtype, bits))
        .ok_or_else(|| unsupported("a constant", dtype))
}

pub(super) fn unary(op: UnaryOp, value: &Value) -> Result<Value> {
    let dtype = value.dtype();
    map_lanes(&[value], dtype, |lanes| scalar::unary(op, dtype, lanes[0]))
        .map_err(|()| unsupported(&format!("{op:?}"), dtype))
}

pub(super) fn binary(
    arithmetic: Arithmetic,
    op: BinaryOp,
    lhs: &Value,
    rhs: &Value,
) -> Result<Value> {
    let dtype = same_type(lhs, rhs)?;
    map_lanes(&[lhs, rhs], dtype, |lanes| arithmetic.binary(op, dtype, lanes[0], lanes[1]))
        .map_err(|()| unsupported(op.symbol(), dtype))
}

pub(super) fn compare(
    arithmetic: Arithmetic,
    op: CompareOp,
    lhs: &Value,
    rhs: &Value,
) -> Result<Value> {
    let dtype = same_type(lhs, rhs)?;
    map_lanes(&[lhs, rhs], DType::Bool, |lanes| {
        arithmetic.compare(op, dtype, lanes[0], lanes[1]).map(u64::from)
    })
    .map_err(|()| unsupported(op.symbol(), dtype))
}

pub(super) fn choose(mask: &[u64], then: &Value, otherwise: &Value) -> Result<Value> {
    let dtype = same_type(then, otherwise)?;
    if then.lanes() != mask.len() {
        return Err("a mask has other lanes than its values".to_owned());
    }
    let lanes = mask
        .iter()
        .enumerate()
        .map(|(i, bit)| if *bit != 0 { then.lane(i) } else { otherwise.lane(i) })
        .collect::<Result<_>>()?;
    Ok(Value::Vector(dtype, lanes))
}

pub(super) fn cast(arithmetic: Arithmetic, value: &Value, to: DType) -> Result<Value> {
    let from = value.dtype();
    map_lanes(&[value], to, |lanes| arithmetic.cast(from, to, lanes[0]))
        .map_err(|()| unsupported(&format!("a cast to {to}"), from))
}

pub(super) fn reinterpret(value: &Value, to: DType) -> Result<Value> {
    let from = value.dtype();
    map_lanes(&[value], to, |lanes| scalar::reinterpret(from, to, lanes[0]))
        .map_err(|()| unsupported(&format!("the bits as {to}"), from))
}

pub(super) fn ramp(base: &Value, stride: &Value, lanes: u32) -> Result<Value> {
    let dtype = same_type(base, stride)?;
    let (base, stride) = (base.lane(0)? as i64, stride.lane(0)? as i64);
    let lane = |i: i64| scalar::wrap_int(base.wrapping_add(stride.wrapping_mul(i)), dtype) as u64;
    Ok(Value::Vector(dtype, (0..i64::from(lanes)).map(lane).collect()))
}

pub(super) fn broadcast(value: &Value, lanes: u32) -> Result<Value> {
    match value {
        Value::Scalar(dtype, bits) => Ok(Value::Vector(*dtype, vec![*bits; lanes as usize])),
        Value::Vector(..) => Err("a vector is broadcast".to_owned()),
    }
}

pub(super) fn shuffle(vectors: &[Value], lanes: &[u32]) -> Result<Value> {
    let dtype = vectors.first().ok_or("a shuffle of nothing")?.dtype();
    let mut all = Vec::new();
    for vector in vectors {
        for lane in 0..vector.lanes() {
            all.push(vector.lane(lane)?);
        }
    }
    let picked = lanes
        .iter()
        .map(|lane| all.get(*lane as usize).copied())
        .collect::<Option<Vec<_>>>()
        .ok_or("a shuffle picks a lane that does not exist")?;
    Ok(Value::from_lanes(dtype, picked))
}

pub(super) fn reduce(arithmetic: Arithmetic, op: BinaryOp, value: &Value) -> Result<Value> {
    let dtype = value.dtype();
    let mut lanes: Vec<u64> =
        (0..value.lanes()).map(|lane| value.lane(lane)).collect::<Result<_>>()?;
    while lanes.len() > 1 {
        if !lanes.len().is_multiple_of(2) {
            return Err("the lanes of a reduction are no power of two".to_owned());
        }
        let upper = lanes.split_off(lanes.len() / 2);
        lanes = lanes
            .iter()
            .zip(upper)
            .map(|(low, high)| arithmetic.binary(op, dtype, *low, high))
            .collect::<Option<_>>()
            .ok_or_else(|| unsupported(op.symbol(), dtype))?;
    }
    Ok(Value::from_lanes(dtype, lanes))
}

pub(super) fn call(arithmetic: Arithmetic, intrinsic: Intrinsic, args: &[Value]) -> Result<Value> {
    let first = args.first().ok_or("a call without arguments")?;
    let dtype = first.dtype();
    for value in args {
        same_type(first, value)?;
    }
    let args: Vec<&Value> = args.iter().collect();
    let result = intrinsic.conversion().map_or(dtype, |(_, result)| result);
    map_lanes(&args, result, |lanes| arithmetic.call(intrinsic, dtype, lanes))
        .map_err(|()| unsupported(intrinsic.name(), dtype))
}

pub(super) fn map_lanes(
    values: &[&Value],
    dtype: DType,
    op: impl Fn(&[u64]) -> Option<u64>,
) -> Result<Value, ()> {
    let mut operands = [0; 3];
    let lanes = values[0].lanes();
    let mut one = |lane: usize| {
        for (operand, value) in operands.iter_mut().zip(values) {
            *operand = value.lane(lane).ok()?;
        }
        op(&operands[..values.len()])
    };
    if let Value::Scalar(..) = values[0] {
        return one(0).map(|bits| Value::Scalar(dtype, bits)).ok_or(());
    }
    let lanes = (0..lanes).map(one).collect::<Option<_>>().ok_or(())?;
    Ok(Value::Vector(dtype, lanes))
}

pub(super) fn unsupported(what: &str, dtype: DType) -> String {
    format!("{what} is not defined on {dtype}")
}
