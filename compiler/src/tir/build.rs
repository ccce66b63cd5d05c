//! Constructors of expressions. They fold constants, drop neutral elements and broadcast a scalar
//! that meets a vector; they never fail, as the verifier reports operands that do not match.

use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

use super::{BinaryOp, CompareOp, FloatImm, Intrinsic, PrimExpr, PrimType, UnaryOp, VarId, scalar};
use crate::ir::DType;

impl PrimExpr {
    /// An integer or `Bool` constant, wrapped into the range of `dtype`; a float if it is one.
    pub fn int(value: i64, dtype: DType) -> Self {
        if dtype.is_float() {
            return PrimExpr::float(value as f64, dtype);
        }
        PrimExpr::Int { value: scalar::wrap_int(value, dtype), dtype }
    }

    /// An `int64` constant.
    pub const fn index(value: i64) -> Self {
        PrimExpr::Int { value, dtype: DType::I64 }
    }

    /// A `Bool` constant.
    pub const fn bool(value: bool) -> Self {
        PrimExpr::Int { value: value as i64, dtype: DType::Bool }
    }

    /// A float constant, rounded to `dtype`.
    pub fn float(value: f64, dtype: DType) -> Self {
        let rounded = scalar::float_bits(value, dtype)
            .and_then(|bits| scalar::float_value(bits, dtype))
            .unwrap_or(value);
        PrimExpr::Float { value: FloatImm::new(rounded), dtype }
    }

    /// A `float32` constant.
    pub fn f32(value: f32) -> Self {
        PrimExpr::Float { value: FloatImm::new(f64::from(value)), dtype: DType::F32 }
    }

    /// Zero of any type.
    pub fn zero(ty: impl Into<PrimType>) -> Self {
        let ty = ty.into();
        PrimExpr::int(0, ty.dtype).broadcast_to(ty.lanes)
    }

    /// A use of a variable of the given type.
    pub fn var(var: VarId, ty: impl Into<PrimType>) -> Self {
        PrimExpr::Var { var, ty: ty.into() }
    }

    /// A constant from the bits of [`scalar`].
    pub(crate) fn from_bits(bits: u64, dtype: DType) -> Option<Self> {
        if dtype.is_float() {
            let value = FloatImm::new(scalar::float_value(bits, dtype)?);
            return Some(PrimExpr::Float { value, dtype });
        }
        Some(PrimExpr::Int { value: bits as i64, dtype })
    }

    /// The bits of a scalar constant.
    pub(crate) fn const_bits(&self) -> Option<u64> {
        match self {
            PrimExpr::Int { value, .. } => Some(*value as u64),
            PrimExpr::Float { value, dtype } => scalar::float_bits(value.get(), *dtype),
            _ => None,
        }
    }

    /// Whether copying this costs nothing: a constant, a variable, or one of them broadcast.
    pub fn is_leaf(&self) -> bool {
        match self {
            PrimExpr::Int { .. } | PrimExpr::Float { .. } | PrimExpr::Var { .. } => true,
            PrimExpr::Broadcast { value, .. } => value.is_leaf(),
            _ => false,
        }
    }

    /// Whether this is the number, in every lane; −0 is not 0.
    pub fn is_const(&self, number: i64) -> bool {
        self.as_int() == Some(number)
            || self.as_float().is_some_and(|f| f.to_bits() == (number as f64).to_bits())
    }

    /// This scalar in every lane; a vector, or a single lane, unchanged.
    pub fn broadcast_to(self, lanes: u32) -> Self {
        if lanes <= 1 || !self.ty().is_scalar() {
            return self;
        }
        PrimExpr::Broadcast { value: Box::new(self), lanes }
    }

    /// `base + stride * lane`; one lane is the base.
    pub fn ramp(base: PrimExpr, stride: impl Into<PrimExpr>, lanes: u32) -> Self {
        let stride = typed_as(&base, stride.into());
        if lanes <= 1 {
            return base;
        }
        if stride.is_const(0) {
            return base.broadcast_to(lanes);
        }
        PrimExpr::Ramp { base: Box::new(base), stride: Box::new(stride), lanes }
    }

    /// An operator with one operand.
    pub fn unary(op: UnaryOp, value: PrimExpr) -> Self {
        if let PrimExpr::Broadcast { value, lanes } = value {
            return PrimExpr::unary(op, *value).broadcast_to(lanes);
        }
        let dtype = value.dtype();
        if let Some(folded) = value
            .const_bits()
            .and_then(|bits| scalar::unary(op, dtype, bits))
            .and_then(|bits| PrimExpr::from_bits(bits, dtype))
        {
            return folded;
        }
        PrimExpr::Unary { op, value: Box::new(value) }
    }

    /// An operator with two operands.
    pub fn binary(op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> Self {
        let (lhs, rhs) = match_lanes(lhs, rhs);
        if let (PrimExpr::Broadcast { value: l, lanes }, PrimExpr::Broadcast { value: r, .. }) =
            (&lhs, &rhs)
        {
            let lanes = *lanes;
            return PrimExpr::binary(op, (**l).clone(), (**r).clone()).broadcast_to(lanes);
        }
        match fold_binary(op, &lhs, &rhs) {
            Some(folded) => folded,
            None => PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) },
        }
    }

    /// A comparison.
    pub fn compare(op: CompareOp, lhs: PrimExpr, rhs: PrimExpr) -> Self {
        let (lhs, rhs) = match_lanes(lhs, rhs);
        if let (PrimExpr::Broadcast { value: l, lanes }, PrimExpr::Broadcast { value: r, .. }) =
            (&lhs, &rhs)
        {
            let lanes = *lanes;
            return PrimExpr::compare(op, (**l).clone(), (**r).clone()).broadcast_to(lanes);
        }
        let dtype = lhs.dtype();
        if dtype == rhs.dtype()
            && let (Some(l), Some(r)) = (lhs.const_bits(), rhs.const_bits())
            && let Some(result) = scalar::compare(op, dtype, l, r)
        {
            return PrimExpr::bool(result);
        }
        PrimExpr::Compare { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }
    }

    /// `self == other`.
    pub fn equal(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Eq, self, other.into())
    }

    /// `self != other`.
    pub fn not_equal(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Ne, self, other.into())
    }

    /// `self < other`.
    pub fn less(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Lt, self, other.into())
    }

    /// `self <= other`.
    pub fn less_equal(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Le, self, other.into())
    }

    /// `self > other`.
    pub fn greater(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Gt, self, other.into())
    }

    /// `self >= other`.
    pub fn greater_equal(self, other: impl Into<PrimExpr>) -> Self {
        compare_beside(CompareOp::Ge, self, other.into())
    }

    /// Logical or bitwise and.
    pub fn and(self, other: PrimExpr) -> Self {
        PrimExpr::binary(BinaryOp::And, self, other)
    }

    /// Logical or bitwise or.
    pub fn or(self, other: PrimExpr) -> Self {
        PrimExpr::binary(BinaryOp::Or, self, other)
    }

    /// Quotient rounded down.
    pub fn floordiv(self, other: impl Into<PrimExpr>) -> Self {
        beside(BinaryOp::FloorDiv, self, other.into())
    }

    /// Remainder of [`floordiv`](Self::floordiv).
    pub fn floormod(self, other: impl Into<PrimExpr>) -> Self {
        beside(BinaryOp::FloorMod, self, other.into())
    }

    /// The smaller one; `other` if unordered.
    pub fn min(self, other: impl Into<PrimExpr>) -> Self {
        beside(BinaryOp::Min, self, other.into())
    }

    /// The larger one; `other` if unordered.
    pub fn max(self, other: impl Into<PrimExpr>) -> Self {
        beside(BinaryOp::Max, self, other.into())
    }

    /// `cond ? then : otherwise`.
    pub fn select(cond: PrimExpr, then: PrimExpr, otherwise: PrimExpr) -> Self {
        let (then, otherwise) = match_lanes(then, otherwise);
        match cond.as_int() {
            Some(0) if cond.ty().is_scalar() => return otherwise,
            Some(_) if cond.ty().is_scalar() => return then,
            _ => {}
        }
        let lanes = cond.ty().lanes;
        PrimExpr::Select {
            cond: Box::new(cond),
            then: Box::new(then.broadcast_to(lanes)),
            otherwise: Box::new(otherwise.broadcast_to(lanes)),
        }
    }

    /// The value converted to another data type.
    pub fn cast(self, dtype: DType) -> Self {
        let from = self.dtype();
        if from == dtype {
            return self;
        }
        if let PrimExpr::Broadcast { value, lanes } = self {
            return value.cast(dtype).broadcast_to(lanes);
        }
        if let Some(folded) = self
            .const_bits()
            .and_then(|bits| scalar::cast(from, dtype, bits))
            .and_then(|bits| PrimExpr::from_bits(bits, dtype))
        {
            return folded;
        }
        PrimExpr::Cast { value: Box::new(self), dtype }
    }

    /// The same bits as another data type.
    pub fn reinterpret(self, dtype: DType) -> Self {
        let from = self.dtype();
        if from == dtype {
            return self;
        }
        if let Some(folded) = self
            .const_bits()
            .and_then(|bits| scalar::reinterpret(from, dtype, bits))
            .and_then(|bits| PrimExpr::from_bits(bits, dtype))
        {
            return folded;
        }
        PrimExpr::Reinterpret { value: Box::new(self), dtype }
    }

    /// `a * b + c`, rounded once. Not folded: only lowering knows what the target has.
    pub fn mul_add(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> Self {
        let lanes = a.ty().lanes.max(b.ty().lanes).max(c.ty().lanes);
        PrimExpr::MulAdd {
            a: Box::new(a.broadcast_to(lanes)),
            b: Box::new(b.broadcast_to(lanes)),
            c: Box::new(c.broadcast_to(lanes)),
        }
    }

    /// `c` plus the products of `a` and `b` in groups; see [`DotAdd`](Self::DotAdd).
    pub fn dot_add(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> Self {
        PrimExpr::DotAdd { a: Box::new(a), b: Box::new(b), c: Box::new(c) }
    }

    /// A mathematical function of one argument.
    pub fn call(intrinsic: Intrinsic, arg: PrimExpr) -> Self {
        PrimExpr::Call { intrinsic, args: vec![arg] }
    }

    /// `self` to the power `exponent`.
    pub fn pow(self, exponent: PrimExpr) -> Self {
        let (base, exponent) = match_lanes(self, exponent);
        PrimExpr::Call { intrinsic: Intrinsic::Pow, args: vec![base, exponent] }
    }

    /// Lanes chosen from one vector.
    pub fn shuffle(self, lanes: Vec<u32>) -> Self {
        PrimExpr::Shuffle { vectors: vec![self], lanes }
    }

    /// Every second one of a vector of bytes as words, the first of all among them or the second.
    pub fn alternate_words(self, first: u32) -> Self {
        let words = self.ty().lanes / 2;
        self.shuffle((0..words).map(|word| 2 * word + first).collect()).cast(DType::I16)
    }

    /// One lane as a scalar.
    pub fn lane(self, lane: u32) -> Self {
        match self {
            PrimExpr::Broadcast { value, .. } => *value,
            vector => vector.shuffle(vec![lane]),
        }
    }

    /// All lanes combined; a scalar unchanged.
    pub fn vector_reduce(self, op: BinaryOp) -> Self {
        if self.ty().is_scalar() {
            return self;
        }
        PrimExpr::VectorReduce { op, value: Box::new(self) }
    }
}

/// A right operand; an `int64` constant takes the left operand's integer type, so that numbers can
/// be written beside indices of either width.
fn typed_as(lhs: &PrimExpr, rhs: PrimExpr) -> PrimExpr {
    match rhs {
        PrimExpr::Int { value, dtype: DType::I64 } => {
            let dtype = lhs.dtype();
            let fits = dtype.is_int() && scalar::wrap_int(value, dtype) == value;
            PrimExpr::Int { value, dtype: if fits { dtype } else { DType::I64 } }
        }
        other => other,
    }
}

/// An operator written in Rust, with the right operand's type adjusted.
fn beside(op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
    let rhs = typed_as(&lhs, rhs);
    PrimExpr::binary(op, lhs, rhs)
}

fn compare_beside(op: CompareOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
    let rhs = typed_as(&lhs, rhs);
    PrimExpr::compare(op, lhs, rhs)
}

/// Broadcasts the scalar one of two operands.
fn match_lanes(lhs: PrimExpr, rhs: PrimExpr) -> (PrimExpr, PrimExpr) {
    let (left, right) = (lhs.ty().lanes, rhs.ty().lanes);
    (lhs.broadcast_to(right), rhs.broadcast_to(left))
}

fn fold_binary(op: BinaryOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Option<PrimExpr> {
    let dtype = lhs.dtype();
    if dtype != rhs.dtype() {
        return None;
    }
    if let (Some(l), Some(r)) = (lhs.const_bits(), rhs.const_bits()) {
        return scalar::binary(op, dtype, l, r).and_then(|bits| PrimExpr::from_bits(bits, dtype));
    }
    if dtype.is_float() {
        // x + 0 is not x for −0, so only multiplication and division have a neutral element.
        return match op {
            BinaryOp::Mul if lhs.is_const(1) => Some(rhs.clone()),
            BinaryOp::Mul | BinaryOp::Div if rhs.is_const(1) => Some(lhs.clone()),
            _ => None,
        };
    }
    let zero = || PrimExpr::zero(lhs.ty());
    match op {
        BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor if lhs.is_const(0) => Some(rhs.clone()),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
            if rhs.is_const(0) =>
        {
            Some(lhs.clone())
        }
        BinaryOp::Mul if lhs.is_const(1) => Some(rhs.clone()),
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv if rhs.is_const(1) => Some(lhs.clone()),
        BinaryOp::Mul | BinaryOp::And if lhs.is_const(0) || rhs.is_const(0) => Some(zero()),
        BinaryOp::Rem | BinaryOp::FloorMod if rhs.is_const(1) => Some(zero()),
        BinaryOp::And if dtype == DType::Bool && lhs.is_const(1) => Some(rhs.clone()),
        BinaryOp::And if dtype == DType::Bool && rhs.is_const(1) => Some(lhs.clone()),
        BinaryOp::Or if dtype == DType::Bool && (lhs.is_const(1) || rhs.is_const(1)) => {
            Some(PrimExpr::bool(true).broadcast_to(lhs.ty().lanes))
        }
        // The index arithmetic every schedule makes: (x + 1) + 2, ramps plus scalars.
        BinaryOp::Add => add_ints(lhs, rhs).or_else(|| add_ints(rhs, lhs)),
        BinaryOp::Sub => match (lhs, rhs) {
            (PrimExpr::Ramp { base, stride, lanes }, PrimExpr::Broadcast { value, .. }) => {
                let base = PrimExpr::binary(BinaryOp::Sub, (**base).clone(), (**value).clone());
                Some(PrimExpr::ramp(base, (**stride).clone(), *lanes))
            }
            _ => None,
        },
        BinaryOp::Mul => scale_ramp(lhs, rhs).or_else(|| scale_ramp(rhs, lhs)),
        _ => None,
    }
}

fn add_ints(lhs: &PrimExpr, rhs: &PrimExpr) -> Option<PrimExpr> {
    match (lhs, rhs) {
        (PrimExpr::Binary { op: BinaryOp::Add, lhs: x, rhs: c }, d)
            if c.as_int().is_some() && d.as_int().is_some() =>
        {
            Some(PrimExpr::binary(
                BinaryOp::Add,
                (**x).clone(),
                PrimExpr::binary(BinaryOp::Add, (**c).clone(), d.clone()),
            ))
        }
        (PrimExpr::Ramp { base, stride, lanes }, PrimExpr::Broadcast { value, .. }) => {
            let base = PrimExpr::binary(BinaryOp::Add, (**base).clone(), (**value).clone());
            Some(PrimExpr::ramp(base, (**stride).clone(), *lanes))
        }
        _ => None,
    }
}

fn scale_ramp(lhs: &PrimExpr, rhs: &PrimExpr) -> Option<PrimExpr> {
    match (lhs, rhs) {
        (PrimExpr::Ramp { base, stride, lanes }, PrimExpr::Broadcast { value, .. }) => {
            let scale =
                |x: &PrimExpr| PrimExpr::binary(BinaryOp::Mul, x.clone(), (**value).clone());
            Some(PrimExpr::ramp(scale(base), scale(stride), *lanes))
        }
        _ => None,
    }
}

impl From<i64> for PrimExpr {
    /// An index.
    fn from(value: i64) -> Self {
        PrimExpr::index(value)
    }
}

impl From<&PrimExpr> for PrimExpr {
    fn from(expr: &PrimExpr) -> Self {
        expr.clone()
    }
}

impl<E: Into<PrimExpr>> Add<E> for PrimExpr {
    type Output = PrimExpr;
    fn add(self, other: E) -> PrimExpr {
        beside(BinaryOp::Add, self, other.into())
    }
}

impl<E: Into<PrimExpr>> Sub<E> for PrimExpr {
    type Output = PrimExpr;
    fn sub(self, other: E) -> PrimExpr {
        beside(BinaryOp::Sub, self, other.into())
    }
}

impl<E: Into<PrimExpr>> Mul<E> for PrimExpr {
    type Output = PrimExpr;
    fn mul(self, other: E) -> PrimExpr {
        beside(BinaryOp::Mul, self, other.into())
    }
}

/// Truncating on integers, as ONNX's `Div`.
impl<E: Into<PrimExpr>> Div<E> for PrimExpr {
    type Output = PrimExpr;
    fn div(self, other: E) -> PrimExpr {
        beside(BinaryOp::Div, self, other.into())
    }
}

/// The remainder of truncating division.
impl<E: Into<PrimExpr>> Rem<E> for PrimExpr {
    type Output = PrimExpr;
    fn rem(self, other: E) -> PrimExpr {
        beside(BinaryOp::Rem, self, other.into())
    }
}

impl Neg for PrimExpr {
    type Output = PrimExpr;
    fn neg(self) -> PrimExpr {
        PrimExpr::unary(UnaryOp::Neg, self)
    }
}

impl Not for PrimExpr {
    type Output = PrimExpr;
    fn not(self) -> PrimExpr {
        PrimExpr::unary(UnaryOp::Not, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tir::PrimFuncData;

    #[test]
    fn constants_fold_and_neutral_elements_vanish() {
        let mut func = PrimFuncData::new("f");
        let var = func.index_var("i");
        let i = func.var_expr(var);
        assert_eq!(PrimExpr::index(2) * 3 + 1, PrimExpr::index(7));
        assert_eq!((i.clone() * 1 + 0).floordiv(1), i);
        assert_eq!(i.clone() + 1 + 2, i.clone() + 3);
        assert_eq!(PrimExpr::index(0) * i.clone(), PrimExpr::index(0));
        assert_eq!(
            PrimExpr::ramp(i.clone(), 1, 4) * 2 + 5,
            PrimExpr::ramp(i.clone() * 2 + 5, 2, 4)
        );
        assert_eq!(PrimExpr::ramp(i.clone(), 1, 4) - 5, PrimExpr::ramp(i.clone() - 5, 1, 4));
        assert_eq!(i.clone().floormod(1), PrimExpr::index(0));
    }

    #[test]
    fn integer_constants_take_the_type_of_the_other_operand() {
        let mut func = PrimFuncData::new("f");
        let [i, u] = [("i", DType::I32), ("u", DType::U8)].map(|(name, ty)| {
            let var = func.var(name, ty);
            func.var_expr(var)
        });
        let int32 = |value| PrimExpr::int(value, DType::I32);
        assert_eq!(i.clone() + 3, i.clone() + int32(3));
        assert_eq!(i.clone().less(8).ty(), PrimType::BOOL);
        assert_eq!(PrimExpr::ramp(i.clone(), 2, 4), PrimExpr::ramp(i.clone(), int32(2), 4));
        // Constants out of range are left for the verifier to report.
        let sum = u + 256;
        assert!(matches!(sum, PrimExpr::Binary { rhs, .. } if *rhs == PrimExpr::index(256)));
    }

    #[test]
    fn float_zero_is_not_neutral_and_scalars_broadcast() {
        let mut func = PrimFuncData::new("f");
        let x = func.var("x", PrimType::vector(DType::F32, 8));
        let x = func.var_expr(x);
        let sum = x.clone() + PrimExpr::f32(0.0);
        assert_eq!(sum.ty(), PrimType::vector(DType::F32, 8));
        assert_ne!(sum, x);
        assert_eq!(x.clone() * PrimExpr::f32(1.0), x);
        let mask = x.clone().less(PrimExpr::f32(0.0));
        assert_eq!(mask.ty(), PrimType::vector(DType::Bool, 8));
        assert_eq!(PrimExpr::select(mask, x.clone(), -x.clone()).ty(), x.ty());
        assert_eq!(PrimExpr::f32(2.5).cast(DType::I32), PrimExpr::int(2, DType::I32));
    }
}
