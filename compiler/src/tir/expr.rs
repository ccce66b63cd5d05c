//! Scalar and vector expressions.

use std::fmt;

use super::{BufferId, PrimType, VarId};
use crate::ir::DType;

/// A floating-point constant, compared by its bits: a NaN equals itself and −0 is not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FloatImm(u64);

impl FloatImm {
    /// Wraps a value that is exact in the constant's data type.
    pub fn new(value: f64) -> Self {
        FloatImm(value.to_bits())
    }

    /// The value.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl fmt::Debug for FloatImm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

/// Operators with one operand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnaryOp {
    /// Arithmetic negation; integers wrap, floats flip the sign bit.
    Neg,
    /// Logical negation of a `Bool`, bitwise of an integer.
    Not,
}

/// Operators with two operands of one type, which is also the type of the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BinaryOp {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Quotient; integers truncate towards zero, and a zero divisor gives 0.
    Div,
    /// Remainder of [`Div`](Self::Div), with the dividend's sign; C's `fmod` for floats; 0 for a
    /// zero integer divisor.
    Rem,
    /// Integer quotient rounded down; 0 for a zero divisor.
    FloorDiv,
    /// Remainder of [`FloorDiv`](Self::FloorDiv), with the divisor's sign; 0 for a zero divisor.
    FloorMod,
    /// `lhs < rhs ? lhs : rhs`: the right operand if unordered or equal, as `minps` does. So
    /// `min(constant, x)` hands on a NaN in `x` at no cost.
    Min,
    /// `lhs > rhs ? lhs : rhs`: the right operand if unordered or equal.
    Max,
    /// Logical on `Bool`, bitwise on integers.
    And,
    /// Logical on `Bool`, bitwise on integers.
    Or,
    /// Logical on `Bool`, bitwise on integers.
    Xor,
    /// Left shift; 0 if the amount, taken as unsigned, is not below the width.
    Shl,
    /// Right shift, arithmetic on signed integers; an amount not below the width, taken as
    /// unsigned, gives 0, or −1 for a negative value.
    Shr,
}

/// Comparisons; the result is a `Bool` for each lane. Unordered floats compare false, except by
/// `Ne`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CompareOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// Mathematical functions, lane by lane, on floats; and conversions that some processors have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Intrinsic {
    /// e to the power x.
    Exp,
    /// Natural logarithm.
    Log,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// Square root, correctly rounded.
    Sqrt,
    /// Largest integer not above.
    Floor,
    /// Smallest integer not below.
    Ceil,
    /// Towards zero.
    Trunc,
    /// Nearest integer, ties to even.
    Round,
    /// Absolute value; the sign bit cleared.
    Abs,
    /// x to the power y.
    Pow,
    /// `x · 2^n`, rounded once where the target has an instruction for it. If `n` is not integral,
    /// its floor is used.
    Ldexp,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// Arc sine.
    Asin,
    /// Arc cosine.
    Acos,
    /// Arc tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// The `float32` of the same value as the bits of a `float16`, a `uint16`.
    FromFp16,
    /// The bits of the nearest `float16` of a `float32`, ties to even, as a `uint16`.
    ToFp16,
}

/// An expression. Every value is a scalar or a vector; nothing has side effects.
///
/// Operands of one node have equal lanes: constructors broadcast a scalar that meets a vector.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PrimExpr {
    /// An integer or `Bool` constant, normalised into the range of `dtype`; `UInt64` holds its
    /// bits.
    Int {
        /// The value.
        value: i64,
        /// Its type.
        dtype: DType,
    },
    /// A floating-point constant, exact in `dtype`.
    Float {
        /// The value.
        value: FloatImm,
        /// Its type.
        dtype: DType,
    },
    /// A variable.
    Var {
        /// The variable.
        var: VarId,
        /// Its declared type.
        ty: PrimType,
    },
    /// An operator with one operand.
    Unary {
        /// The operator.
        op: UnaryOp,
        /// The operand.
        value: Box<PrimExpr>,
    },
    /// An operator with two operands of one type.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left operand.
        lhs: Box<PrimExpr>,
        /// Right operand.
        rhs: Box<PrimExpr>,
    },
    /// A comparison of two operands of one type.
    Compare {
        /// The comparison.
        op: CompareOp,
        /// Left operand.
        lhs: Box<PrimExpr>,
        /// Right operand.
        rhs: Box<PrimExpr>,
    },
    /// One of two values. A scalar condition evaluates only the chosen side, so it may guard a
    /// load; a vector condition evaluates both and chooses lane by lane.
    Select {
        /// `Bool`, scalar or with the lanes of the values.
        cond: Box<PrimExpr>,
        /// The value where the condition holds.
        then: Box<PrimExpr>,
        /// The value elsewhere.
        otherwise: Box<PrimExpr>,
    },
    /// Conversion of value. Float to integer truncates and saturates, or wraps if the integer is
    /// narrower than a byte; NaN gives 0; integer to narrower integer wraps; anything to `Bool` is
    /// `!= 0`.
    Cast {
        /// The operand.
        value: Box<PrimExpr>,
        /// The resulting data type.
        dtype: DType,
    },
    /// The same bits as another data type of equal width.
    Reinterpret {
        /// The operand.
        value: Box<PrimExpr>,
        /// The resulting data type.
        dtype: DType,
    },
    /// An element, or a vector of elements if an index is a vector.
    Load {
        /// The buffer.
        buffer: BufferId,
        /// Its data type.
        dtype: DType,
        /// One logical index for each axis; after `FlattenBuffer` one physical index.
        indices: Vec<PrimExpr>,
    },
    /// `base + stride * lane`.
    Ramp {
        /// Lane 0: a scalar integer.
        base: Box<PrimExpr>,
        /// Distance between lanes: a scalar of the same type.
        stride: Box<PrimExpr>,
        /// Number of lanes, at least 2.
        lanes: u32,
    },
    /// The same scalar in every lane.
    Broadcast {
        /// The scalar.
        value: Box<PrimExpr>,
        /// Number of lanes, at least 2.
        lanes: u32,
    },
    /// Lanes chosen from the concatenation of vectors of one data type.
    Shuffle {
        /// The operands.
        vectors: Vec<PrimExpr>,
        /// For each lane of the result its position in the concatenation; one lane is a scalar.
        lanes: Vec<u32>,
    },
    /// All lanes combined into a scalar: the upper half with the lower half, until one is left.
    VectorReduce {
        /// `Add`, `Mul`, `Min`, `Max`, `And`, `Or` or `Xor`.
        op: BinaryOp,
        /// A vector whose lanes are a power of two.
        value: Box<PrimExpr>,
    },
    /// `a * b + c`, rounded once.
    MulAdd {
        /// First factor.
        a: Box<PrimExpr>,
        /// Second factor.
        b: Box<PrimExpr>,
        /// Addend.
        c: Box<PrimExpr>,
    },
    /// `c + a · b` in groups: lane i of the result is `c[i]` plus the products of the four lanes of
    /// `a` and `b` that take its place, if they are bytes, or of the two, if they are words; sums wrap.
    DotAdd {
        /// Four times the lanes of `c`, `uint8`, or twice, `int16`.
        a: Box<PrimExpr>,
        /// As many lanes, `int8` or `int16`.
        b: Box<PrimExpr>,
        /// Addend, `int32`.
        c: Box<PrimExpr>,
    },
    /// A mathematical function.
    Call {
        /// The function.
        intrinsic: Intrinsic,
        /// Its arguments, of one float type.
        args: Vec<PrimExpr>,
    },
    /// A value used several times in an expression.
    Let {
        /// Its name.
        var: VarId,
        /// The value.
        value: Box<PrimExpr>,
        /// The expression that uses the name, whose value is the result.
        body: Box<PrimExpr>,
    },
}

impl UnaryOp {
    /// Every operator with its text form.
    pub const ALL: [(UnaryOp, &'static str); 2] = [(UnaryOp::Neg, "-"), (UnaryOp::Not, "!")];
}

impl BinaryOp {
    /// Every operator with its text form: infix, or the name of a call.
    pub const ALL: [(BinaryOp, &'static str); 14] = [
        (BinaryOp::Add, "+"),
        (BinaryOp::Sub, "-"),
        (BinaryOp::Mul, "*"),
        (BinaryOp::Div, "/"),
        (BinaryOp::Rem, "%"),
        (BinaryOp::FloorDiv, "floordiv"),
        (BinaryOp::FloorMod, "floormod"),
        (BinaryOp::Min, "min"),
        (BinaryOp::Max, "max"),
        (BinaryOp::And, "&"),
        (BinaryOp::Or, "|"),
        (BinaryOp::Xor, "^"),
        (BinaryOp::Shl, "<<"),
        (BinaryOp::Shr, ">>"),
    ];

    /// Text form: infix, or the name of a call.
    pub fn symbol(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether the text form is a call such as `min(a, b)`.
    pub fn is_call(self) -> bool {
        self.symbol().starts_with(|c: char| c.is_ascii_alphabetic())
    }

    /// Whether `VectorReduce` accepts the operator.
    pub fn reduces(self) -> bool {
        matches!(
            self,
            BinaryOp::Add
                | BinaryOp::Mul
                | BinaryOp::Min
                | BinaryOp::Max
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
        )
    }
}

impl CompareOp {
    /// Every comparison with its text form.
    pub const ALL: [(CompareOp, &'static str); 6] = [
        (CompareOp::Eq, "=="),
        (CompareOp::Ne, "!="),
        (CompareOp::Lt, "<"),
        (CompareOp::Le, "<="),
        (CompareOp::Gt, ">"),
        (CompareOp::Ge, ">="),
    ];

    /// Text form.
    pub fn symbol(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The opposite comparison, which holds if and only if this one does not; for floats only if
    /// they are ordered.
    pub fn negated(self) -> Self {
        match self {
            CompareOp::Eq => CompareOp::Ne,
            CompareOp::Ne => CompareOp::Eq,
            CompareOp::Lt => CompareOp::Ge,
            CompareOp::Le => CompareOp::Gt,
            CompareOp::Gt => CompareOp::Le,
            CompareOp::Ge => CompareOp::Lt,
        }
    }

    /// The same comparison with its operands exchanged.
    pub fn swapped(self) -> Self {
        match self {
            CompareOp::Eq | CompareOp::Ne => self,
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
        }
    }
}

impl Intrinsic {
    /// Every intrinsic with its name.
    pub const ALL: [(Intrinsic, &'static str); 26] = [
        (Intrinsic::Exp, "exp"),
        (Intrinsic::Log, "log"),
        (Intrinsic::Tanh, "tanh"),
        (Intrinsic::Erf, "erf"),
        (Intrinsic::Sigmoid, "sigmoid"),
        (Intrinsic::Sqrt, "sqrt"),
        (Intrinsic::Floor, "floor"),
        (Intrinsic::Ceil, "ceil"),
        (Intrinsic::Trunc, "trunc"),
        (Intrinsic::Round, "round"),
        (Intrinsic::Abs, "abs"),
        (Intrinsic::Pow, "pow"),
        (Intrinsic::Ldexp, "ldexp"),
        (Intrinsic::Sin, "sin"),
        (Intrinsic::Cos, "cos"),
        (Intrinsic::Tan, "tan"),
        (Intrinsic::Asin, "asin"),
        (Intrinsic::Acos, "acos"),
        (Intrinsic::Atan, "atan"),
        (Intrinsic::Sinh, "sinh"),
        (Intrinsic::Cosh, "cosh"),
        (Intrinsic::Asinh, "asinh"),
        (Intrinsic::Acosh, "acosh"),
        (Intrinsic::Atanh, "atanh"),
        (Intrinsic::FromFp16, "from_fp16"),
        (Intrinsic::ToFp16, "to_fp16"),
    ];

    /// Name in text.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The types of argument and result of a conversion; `None` for functions of floats, whose
    /// result is of their arguments' type.
    pub fn conversion(self) -> Option<(DType, DType)> {
        match self {
            Intrinsic::FromFp16 => Some((DType::U16, DType::F32)),
            Intrinsic::ToFp16 => Some((DType::F32, DType::U16)),
            _ => None,
        }
    }

    /// Number of arguments.
    pub fn arity(self) -> usize {
        match self {
            Intrinsic::Pow | Intrinsic::Ldexp => 2,
            _ => 1,
        }
    }
}

impl PrimExpr {
    /// The type of the value. Costs a walk down one operand, as only leaves carry types.
    pub fn ty(&self) -> PrimType {
        let mut expr = self;
        // Changes of the type by the nodes above the current one.
        let mut dtype = None;
        let mut lanes = None;
        loop {
            let leaf = match expr {
                PrimExpr::Int { dtype, .. } | PrimExpr::Float { dtype, .. } => {
                    PrimType::scalar(*dtype)
                }
                PrimExpr::Var { ty, .. } => *ty,
                PrimExpr::Load { dtype, indices, .. } => PrimType::vector(
                    *dtype,
                    indices.iter().map(|index| index.ty().lanes).max().unwrap_or(1),
                ),
                PrimExpr::Unary { value, .. } => {
                    expr = value;
                    continue;
                }
                PrimExpr::Binary { lhs, .. } => {
                    expr = lhs;
                    continue;
                }
                PrimExpr::MulAdd { a, .. } => {
                    expr = a;
                    continue;
                }
                PrimExpr::DotAdd { c, .. } => {
                    expr = c;
                    continue;
                }
                PrimExpr::Select { then, .. } => {
                    expr = then;
                    continue;
                }
                PrimExpr::Let { body, .. } => {
                    expr = body;
                    continue;
                }
                PrimExpr::Compare { lhs, .. } => {
                    dtype = dtype.or(Some(DType::Bool));
                    expr = lhs;
                    continue;
                }
                PrimExpr::Cast { value, dtype: to }
                | PrimExpr::Reinterpret { value, dtype: to } => {
                    dtype = dtype.or(Some(*to));
                    expr = value;
                    continue;
                }
                PrimExpr::Ramp { base, lanes: count, .. } => {
                    lanes = lanes.or(Some(*count));
                    expr = base;
                    continue;
                }
                PrimExpr::Broadcast { value, lanes: count } => {
                    lanes = lanes.or(Some(*count));
                    expr = value;
                    continue;
                }
                PrimExpr::VectorReduce { value, .. } => {
                    lanes = lanes.or(Some(1));
                    expr = value;
                    continue;
                }
                PrimExpr::Shuffle { vectors, lanes: picks } => {
                    lanes = lanes.or(Some(picks.len() as u32));
                    let Some(first) = vectors.first() else { break PrimType::scalar(DType::Bool) };
                    expr = first;
                    continue;
                }
                PrimExpr::Call { intrinsic, args } => {
                    dtype = dtype.or(intrinsic.conversion().map(|(_, result)| result));
                    let Some(first) = args.first() else { break PrimType::scalar(DType::F32) };
                    expr = first;
                    continue;
                }
            };
            break PrimType {
                dtype: dtype.unwrap_or(leaf.dtype),
                lanes: lanes.unwrap_or(leaf.lanes),
            };
        }
    }

    /// Data type of each lane.
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// The value of an integer constant, or of a broadcast one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            PrimExpr::Int { value, .. } => Some(*value),
            PrimExpr::Broadcast { value, .. } => value.as_int(),
            _ => None,
        }
    }

    /// The value of a float constant, or of a broadcast one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            PrimExpr::Float { value, .. } => Some(value.get()),
            PrimExpr::Broadcast { value, .. } => value.as_float(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_the_variants() {
        assert!(UnaryOp::ALL.iter().enumerate().all(|(i, row)| row.0 as usize == i));
        assert!(BinaryOp::ALL.iter().enumerate().all(|(i, row)| row.0 as usize == i));
        assert!(CompareOp::ALL.iter().enumerate().all(|(i, row)| row.0 as usize == i));
        assert!(Intrinsic::ALL.iter().enumerate().all(|(i, row)| row.0 as usize == i));
    }
}
