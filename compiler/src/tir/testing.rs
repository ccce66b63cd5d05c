//! Random loop functions for tests.

pub(crate) mod loops;
pub(crate) mod programs;

use super::{
    BinaryOp, BufferId, CompareOp, Intrinsic, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt,
    UnaryOp,
};
use crate::ir::{BufferSpec, DType};

const DTYPES: [DType; 11] = [
    DType::F32,
    DType::I32,
    DType::F64,
    DType::I64,
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

/// Elements of each input.
pub(crate) const ELEMENTS: i64 = 72;

/// Stores of one function, so that one compilation tests many expressions.
const STORES: i64 = 24;

/// Makes well-typed expressions from a sequence of random numbers.
struct Generator<'a> {
    numbers: &'a [u32],
    next: usize,
    inputs: Vec<BufferId>,
    /// Widest vector in bits.
    vector_bits: u64,
}

impl Generator<'_> {
    fn number(&mut self, below: usize) -> usize {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        number as usize % below
    }

    fn dtype_of_width(&mut self, lanes: u32) -> DType {
        loop {
            let dtype = DTYPES[self.number(DTYPES.len())];
            if lanes == 1 || u64::from(dtype.bits() * lanes) <= self.vector_bits {
                return dtype;
            }
            // The generator must end even if the numbers are used up.
            if self.next > self.numbers.len() {
                return DType::U8;
            }
        }
    }

    fn leaf(&mut self, func: &PrimFuncData, ty: PrimType) -> PrimExpr {
        let position = DTYPES.iter().position(|dtype| *dtype == ty.dtype).unwrap();
        let first = self.number(8) as i64;
        match self.number(4) {
            0 => {
                let value = [0, 1, -1, 3, 100, -128, 255, 40_000][first as usize];
                let constant = if ty.dtype.is_float() {
                    PrimExpr::float(value as f64 / 3.0, ty.dtype)
                } else {
                    PrimExpr::int(value, ty.dtype)
                };
                constant.broadcast_to(ty.lanes)
            }
            1 => func
                .load(
                    self.inputs[position],
                    [PrimExpr::ramp(first.into(), self.number(3) as i64, ty.lanes)],
                )
                .broadcast_to(ty.lanes),
            _ => func.load(self.inputs[position], [PrimExpr::ramp(first.into(), 1, ty.lanes)]),
        }
    }

    fn expr(&mut self, func: &PrimFuncData, ty: PrimType, depth: u32) -> PrimExpr {
        if depth == 0 {
            return self.leaf(func, ty);
        }
        let below = depth - 1;
        let operand = |this: &mut Self| this.expr(func, ty, below);
        match self.number(13) {
            0 => self.leaf(func, ty),
            1 if ty.dtype == DType::Bool => {
                let dtype = self.dtype_of_width(ty.lanes);
                let op = CompareOp::ALL[self.number(6)].0;
                let compared = ty.with_dtype(dtype);
                let (lhs, rhs) =
                    (self.expr(func, compared, below), self.expr(func, compared, below));
                PrimExpr::compare(op, lhs, rhs)
            }
            1 | 2 => {
                let dtype = self.dtype_of_width(ty.lanes);
                self.expr(func, ty.with_dtype(dtype), below).cast(ty.dtype)
            }
            3 => {
                let lanes = [1, ty.lanes][self.number(2)];
                let cond = self.expr(func, PrimType::vector(DType::Bool, lanes), below);
                let (then, otherwise) = (operand(self), operand(self));
                PrimExpr::select(cond, then, otherwise)
            }
            4 if ty.dtype == DType::Bool => !operand(self),
            4 => {
                let value = operand(self);
                let op = [UnaryOp::Neg, UnaryOp::Not][self.number(2)];
                PrimExpr::unary(if ty.dtype.is_float() { UnaryOp::Neg } else { op }, value)
            }
            5 if ty.dtype.is_float() => {
                let intrinsics = [
                    Intrinsic::Sqrt,
                    Intrinsic::Floor,
                    Intrinsic::Ceil,
                    Intrinsic::Trunc,
                    Intrinsic::Round,
                    Intrinsic::Abs,
                ];
                PrimExpr::call(intrinsics[self.number(6)], operand(self))
            }
            5 if ty.dtype == DType::I32 || ty.dtype == DType::F32 => {
                let from = if ty.dtype == DType::I32 { DType::F32 } else { DType::I32 };
                let value = self.expr(func, ty.with_dtype(from), below);
                // The bits of what is no number, and of what may count as zero, are nobody's
                // promise.
                let value = match from {
                    DType::F32 => {
                        let constant = |value| PrimExpr::float(value, from).broadcast_to(ty.lanes);
                        let magnitude = PrimExpr::call(Intrinsic::Abs, value.clone());
                        let least = constant(f32::MIN_POSITIVE.into());
                        let is_normal = PrimExpr::compare(CompareOp::Ge, magnitude, least);
                        PrimExpr::select(is_normal, value, constant(0.0))
                    }
                    _ => value,
                };
                value.reinterpret(ty.dtype)
            }
            6 if ty.dtype.is_float() => {
                let (a, b, c) = (operand(self), operand(self), operand(self));
                PrimExpr::mul_add(a, b, c)
            }
            7 if ty.lanes == 1 && u64::from(ty.dtype.bits()) * 2 <= self.vector_bits => {
                let ops = if ty.dtype == DType::Bool {
                    [BinaryOp::And, BinaryOp::Or]
                } else {
                    [BinaryOp::Add, BinaryOp::Max]
                };
                let op = ops[self.number(2)];
                self.expr(func, ty.with_lanes(2), below).vector_reduce(op)
            }
            7 if ty.lanes > 1 => {
                let vectors = vec![operand(self), operand(self)];
                let lanes =
                    (0..ty.lanes).map(|_| self.number(2 * ty.lanes as usize) as u32).collect();
                PrimExpr::Shuffle { vectors, lanes }
            }
            8 if ty.dtype == DType::I32 && ty.bits() <= self.vector_bits => {
                let (factors, group) =
                    [([DType::U8, DType::I8], 4), ([DType::I16; 2], 2)][self.number(2)];
                let factors = factors.map(|dtype| PrimType::vector(dtype, ty.lanes * group));
                let [a, b] = factors.map(|ty| self.expr(func, ty, below));
                PrimExpr::dot_add(a, b, operand(self))
            }
            8 if ty.dtype == DType::I16 && ty.bits() <= self.vector_bits => {
                let dtype = [DType::I8, DType::U8][self.number(2)];
                let bytes = self.expr(func, PrimType::vector(dtype, ty.lanes * 2), below);
                bytes.alternate_words(self.number(2) as u32)
            }
            _ => {
                let op = BinaryOp::ALL[self.number(14)].0;
                let op = match op {
                    _ if ty.dtype == DType::Bool => {
                        [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor][op as usize % 3]
                    }
                    // Only the remainder of floats is a library function.
                    BinaryOp::Rem
                    | BinaryOp::FloorDiv
                    | BinaryOp::FloorMod
                    | BinaryOp::And
                    | BinaryOp::Or
                    | BinaryOp::Xor
                    | BinaryOp::Shl
                    | BinaryOp::Shr
                        if ty.dtype.is_float() =>
                    {
                        BinaryOp::Mul
                    }
                    op => op,
                };
                let (lhs, rhs) = (operand(self), operand(self));
                PrimExpr::binary(op, lhs, rhs)
            }
        }
    }
}

/// A function that stores many random expressions over inputs and outputs of every data type,
/// with vectors of up to `vector_bits`.
pub(crate) fn random_function(numbers: &[u32], vector_bits: u64) -> PrimFunc {
    let mut func = PrimFuncData::new("random");
    let inputs: Vec<_> = DTYPES
        .iter()
        .map(|dtype| func.input(format!("x_{dtype}"), *dtype, BufferSpec::dense(&[ELEMENTS])))
        .collect();
    let outputs: Vec<_> = DTYPES
        .iter()
        .map(|dtype| {
            func.output(format!("y_{dtype}"), *dtype, BufferSpec::dense(&[STORES, ELEMENTS]))
        })
        .collect();
    let mut generator = Generator { numbers, next: 0, inputs, vector_bits };
    let mut stores = Vec::new();
    for row in 0..STORES {
        let lanes = [1, 2, 4, 8][generator.number(4)];
        let dtype = generator.dtype_of_width(lanes);
        let lanes = lanes.min((vector_bits / u64::from(dtype.bits())).max(1) as u32);
        let value = generator.expr(&func, PrimType::vector(dtype, lanes), 4);
        let position = DTYPES.iter().position(|other| *other == dtype).unwrap();
        let at = [PrimExpr::index(row), PrimExpr::ramp(0.into(), 1, lanes)];
        stores.push(func.store(outputs[position], at, value));
    }
    func.body = Stmt::Seq(stores);
    PrimFunc::new(func)
}
