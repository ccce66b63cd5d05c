//! Expressions.

use super::super::kernel::{alternate_words, repeated, turns_quarters};
use super::convert::convert;
use super::kernel::{Binding, Emitter, Result};
use super::text::{Piece, Prec, float_constant, int_constant, mask_dtype, scalar_type};
use super::{bytes, halves, helpers};
use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimType, UnaryOp, VarId};

/// A value in C: its text, and for a vector of `Bool` the width of the mask's lanes.
pub(super) struct Value {
    pub(super) piece: Piece,
    pub(super) ty: PrimType,
    pub(super) mask_bits: u32,
}

/// Whether C's own operator does what the operator of the loop IR does; `constant` is the right
/// operand if it is one.
fn is_infix(op: BinaryOp, ty: PrimType, constant: Option<i64>) -> bool {
    match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => true,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => true,
        BinaryOp::Div if ty.dtype.is_float() => true,
        // Neither a zero divisor nor the overflow of −1.
        BinaryOp::Div | BinaryOp::Rem => {
            ty.is_scalar() && !ty.dtype.is_float() && constant.is_some_and(|d| d > 0)
        }
        BinaryOp::Shl | BinaryOp::Shr => {
            constant.is_some_and(|n| (0..i64::from(ty.dtype.bits())).contains(&n))
        }
        BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Min | BinaryOp::Max => false,
    }
}

/// Takes the suffix off a constant whose type C takes from the other operand.
fn plain(expr: &PrimExpr, other: &PrimExpr, value: &mut Value) {
    let is_int = |expr: &PrimExpr| matches!(expr, PrimExpr::Int { .. });
    if is_int(expr)
        && !is_int(other)
        && let Some(text) = value.piece.text.strip_suffix("ll")
        && !text.ends_with('u')
    {
        value.piece.text.truncate(text.len());
    }
}

/// Whether all bits of a number are zero, also of one in every lane.
pub(super) fn is_zero(expr: &PrimExpr) -> bool {
    match expr {
        PrimExpr::Int { value, dtype } => *value == 0 && *dtype != DType::Bool,
        PrimExpr::Float { value, .. } => value.get().to_bits() == 0,
        PrimExpr::Broadcast { value, .. } => is_zero(value),
        _ => false,
    }
}

/// The scalar of a vector that C's operators make of it: compilers differ in what they do with
/// types narrower than `int`, in which C computes.
fn splatted(expr: &PrimExpr) -> Option<&PrimExpr> {
    match expr {
        PrimExpr::Broadcast { value, .. } => {
            let dtype = value.dtype();
            (dtype.bits() >= 32 || dtype.is_float()).then_some(value)
        }
        _ => None,
    }
}

/// The four bytes that a vector has over and over.
fn repeated_four(expr: &PrimExpr) -> Option<&PrimExpr> {
    let PrimExpr::Shuffle { vectors, lanes } = expr else { return None };
    let [four] = vectors.as_slice() else { return None };
    repeated(four.ty(), lanes).filter(|word| *word == DType::U32).map(|_| four)
}

impl Value {
    pub(super) fn new(piece: Piece, ty: PrimType) -> Self {
        Value { piece, ty, mask_bits: 0 }
    }

    pub(super) fn mask(piece: Piece, lanes: u32, mask_bits: u32) -> Self {
        Value { piece, ty: PrimType::vector(DType::Bool, lanes), mask_bits }
    }
}

impl Emitter<'_> {
    /// Writes an expression. Each kind has a function of its own, split where it recurs, so that
    /// the frames of the recursion stay small in unoptimised builds.
    pub(super) fn expr(&mut self, expr: &PrimExpr) -> Result<Value> {
        match expr {
            PrimExpr::Int { value, dtype } => self.int(*value, *dtype),
            PrimExpr::Float { value, dtype } => self.float(value.get(), *dtype),
            PrimExpr::Var { var, ty } => self.var(*var, *ty),
            PrimExpr::Unary { op, value } => {
                self.expr(value).map(|value| self.unary_of(*op, value))
            }
            PrimExpr::Binary { op, lhs, rhs } => self.binary(*op, lhs, rhs),
            PrimExpr::Compare { op, lhs, rhs } => self.compare(*op, lhs, rhs),
            PrimExpr::Select { cond, then, otherwise } => {
                self.expr(cond).and_then(|cond| self.select(cond, then, otherwise))
            }
            PrimExpr::Cast { value, dtype } => {
                if let Some((bytes, first)) = alternate_words(value, *dtype, self.target) {
                    return self.alternate_words(bytes, first);
                }
                self.expr(value).and_then(|value| self.cast_of(value, *dtype))
            }
            PrimExpr::Reinterpret { value, dtype } => {
                self.expr(value).and_then(|value| self.reinterpret_of(value, *dtype))
            }
            PrimExpr::Load { buffer, dtype, indices } => self.load(*buffer, *dtype, indices),
            PrimExpr::Ramp { base, stride, lanes } => self.ramp(base, stride, *lanes),
            PrimExpr::Broadcast { value, lanes } if is_zero(value) => {
                let ty = value.ty().with_lanes(*lanes);
                let ctype = self.value_type(ty, 0)?;
                Ok(Value::new(Piece::primary(format!("({ctype}){{0}}")), ty))
            }
            PrimExpr::Broadcast { value, lanes } => {
                self.expr(value).and_then(|value| self.broadcast_of(value, *lanes))
            }
            PrimExpr::Shuffle { vectors, lanes } => {
                self.all(vectors).and_then(|values| self.shuffle_of(values, lanes))
            }
            PrimExpr::VectorReduce { .. } => {
                Err("a reduction of lanes must be lowered before code is generated".to_owned())
            }
            PrimExpr::MulAdd { a, b, c } => self.mul_add(a, b, c),
            PrimExpr::DotAdd { a, b, c } => self.dot_add(a, b, c),
            PrimExpr::Call { intrinsic, args } => {
                self.all(args).and_then(|values| self.call_of(*intrinsic, values))
            }
            PrimExpr::Let { var, value, body } => {
                let outer = self.expr(value).and_then(|value| self.bind(*var, value))?;
                let result = self.expr(body);
                self.restore(*var, outer);
                result
            }
        }
    }

    fn pair(&mut self, a: &PrimExpr, b: &PrimExpr) -> Result<(Value, Value)> {
        let a = self.expr(a)?;
        let b = self.expr(b)?;
        Ok((a, b))
    }

    fn all(&mut self, exprs: &[PrimExpr]) -> Result<Vec<Value>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn int(&mut self, value: i64, dtype: DType) -> Result<Value> {
        self.check_type(dtype.into())?;
        let piece = if self.in_index && dtype == DType::I64 && value != i64::MIN {
            let prec = if value < 0 { Prec::Unary } else { Prec::Primary };
            Piece::new(value.to_string(), prec)
        } else {
            int_constant(value, dtype)
        };
        Ok(Value::new(piece, dtype.into()))
    }

    fn float(&mut self, value: f64, dtype: DType) -> Result<Value> {
        self.check_type(dtype.into())?;
        Ok(Value::new(float_constant(value, dtype), dtype.into()))
    }

    fn var(&mut self, var: VarId, ty: PrimType) -> Result<Value> {
        let Some(binding) = self.vars.get(&var) else {
            let name = &self.func.vars[var].name;
            return Err(format!("variable `{name}` is used outside its scope"));
        };
        Ok(Value { piece: Piece::primary(&binding.name), ty, mask_bits: self.mask_bits[var] })
    }

    fn reinterpret_of(&mut self, value: Value, dtype: DType) -> Result<Value> {
        let ty = value.ty.with_dtype(dtype);
        self.check_type(ty)?;
        let piece = if ty.is_scalar() {
            let helper = helpers::reinterpret(&mut self.preamble, value.ty.dtype, dtype);
            Piece::primary(format!("{helper}({})", value.piece.text))
        } else {
            let ctype = self.value_type(ty, 0)?;
            Piece::new(format!("({ctype}){}", value.piece.tight()), Prec::Unary)
        };
        Ok(Value::new(piece, ty))
    }

    fn ramp(&mut self, base: &PrimExpr, stride: &PrimExpr, lanes: u32) -> Result<Value> {
        let ty = base.ty().with_lanes(lanes);
        let ctype = self.value_type(ty, 0)?;
        let mut elements = Vec::new();
        if base.as_int().is_none() && stride.as_int().is_some() {
            // The lanes of a constant behind the first one.
            let lanes = self.ramp(&PrimExpr::zero(ty.dtype), stride, lanes)?;
            let (helper, base) = (self.splat(ty)?, self.expr(base)?);
            let text = format!("{helper}({}) + {}", base.piece.text, lanes.piece.text);
            return Ok(Value::new(Piece::new(text, Prec::Sum), ty));
        }
        for lane in 0..lanes {
            let factor = PrimExpr::int(i64::from(lane), ty.dtype);
            let lane = base.clone() + stride.clone() * factor;
            elements.push(self.expr(&lane)?.piece.text);
        }
        let text = format!("({ctype}){{{}}}", elements.join(", "));
        Ok(Value::new(Piece::primary(text), ty))
    }

    fn broadcast_of(&mut self, value: Value, lanes: u32) -> Result<Value> {
        let ty = value.ty.with_lanes(lanes);
        if ty.dtype == DType::Bool {
            // The narrowest mask: it fits any register, and widens where it must.
            let helper = self.splat(PrimType::vector(DType::I8, lanes))?;
            let text = format!("{helper}(-{})", value.piece.tight());
            return Ok(Value::mask(Piece::primary(text), lanes, 8));
        }
        let helper = self.splat(ty)?;
        Ok(Value::new(Piece::primary(format!("{helper}({})", value.piece.text)), ty))
    }

    fn mul_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let ty = c.ty();
        self.check_type(ty)?;
        if !self.target.has_fma() {
            return Err("the target has no fused multiply-add: lower it first".to_owned());
        }
        let with_scalar = splatted(a).map(|a| (a, b)).or_else(|| splatted(b).map(|b| (b, a)));
        let of_scalar = with_scalar.and_then(|factors| {
            Some((helpers::fma_scalar(&mut self.preamble, ty, self.target)?, factors))
        });
        let (helper, (a, b)) = of_scalar
            .unwrap_or_else(|| (helpers::fma(&mut self.preamble, ty, self.target), (a, b)));
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let text = format!("{helper}({}, {}, {})", a.piece.text, b.piece.text, c.piece.text);
        Ok(Value::new(Piece::primary(text), ty))
    }

    fn dot_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let ty = c.ty();
        if a.dtype() == DType::I16 {
            return self.dot_add_words(a, b, c);
        }
        if !self.target.has_dot_add(ty.lanes) && !self.target.has_pair_add(ty.lanes) {
            return Err("the target has no dot product of bytes: lower it first".to_owned());
        }
        let four = repeated_four(a).and_then(|four| {
            Some((bytes::dot_add_four(&mut self.preamble, ty, self.target)?, four))
        });
        let (helper, a) =
            four.unwrap_or_else(|| (bytes::dot_add(&mut self.preamble, ty, self.target), a));
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let text = format!("{helper}({}, {}, {})", a.piece.text, b.piece.text, c.piece.text);
        Ok(Value::new(Piece::primary(text), ty))
    }

    fn dot_add_words(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let ty = c.ty();
        if !self.target.has_word_dot_add(ty.lanes) {
            return Err("the target has no dot product of words: lower it first".to_owned());
        }
        let helper = bytes::add_pairs(&mut self.preamble, ty, self.target);
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let text =
            format!("{} + {helper}({}, {})", c.piece.at(Prec::Sum), a.piece.text, b.piece.text);
        Ok(Value::new(Piece::new(text, Prec::Sum), ty))
    }

    fn alternate_words(&mut self, bytes: &PrimExpr, first: u32) -> Result<Value> {
        let value = self.expr(bytes)?;
        let helper = bytes::alternate_words(&mut self.preamble, value.ty, first);
        let text = format!("{helper}({})", value.piece.text);
        Ok(Value::new(Piece::primary(text), PrimType::vector(DType::I16, value.ty.lanes / 2)))
    }

    /// Declares a variable with a value; returns what [`restore`](Self::restore) is to be handed.
    pub(super) fn bind(&mut self, var: VarId, value: Value) -> Result<Option<Binding>> {
        let ctype = self.value_type(value.ty, value.mask_bits)?;
        let name = self.names.unique(&self.func.vars[var].name);
        self.line(format!("const {ctype} {name} = {};", value.piece.text));
        self.mask_bits[var] = value.mask_bits;
        Ok(self.vars.insert(var, Binding { ctype: format!("{ctype} "), name }))
    }

    /// Ends the scope of a variable.
    pub(super) fn restore(&mut self, var: VarId, outer: Option<Binding>) {
        match outer {
            Some(binding) => self.vars.insert(var, binding),
            None => self.vars.remove(&var),
        };
    }

    /// A value in a variable, unless it is one.
    fn named(&mut self, value: Value, name: &str) -> Result<Value> {
        let is_name = value.piece.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name {
            return Ok(value);
        }
        let ctype = self.value_type(value.ty, value.mask_bits)?;
        let name = self.names.unique(name);
        self.line(format!("const {ctype} {name} = {};", value.piece.text));
        Ok(Value { piece: Piece::primary(name), ..value })
    }

    pub(super) fn splat(&mut self, ty: PrimType) -> Result<String> {
        self.check_type(ty)?;
        Ok(helpers::splat(&mut self.preamble, ty))
    }

    /// A mask with lanes of another width.
    fn with_mask_bits(&mut self, value: Value, bits: u32) -> Result<Piece> {
        if value.mask_bits == bits {
            return Ok(value.piece);
        }
        let ctype = self.value_type(value.ty, bits)?;
        Ok(Piece::primary(format!("__builtin_convertvector({}, {ctype})", value.piece.text)))
    }

    /// A mask as bytes that are 0 or 1.
    pub(super) fn mask_to_bytes(&mut self, value: Value) -> Result<Piece> {
        Ok(self.cast_of(value, DType::U8)?.piece)
    }

    /// C computes in `int`: a narrower result is brought back.
    fn narrowed(&self, piece: Piece, ty: PrimType) -> Piece {
        if ty.is_scalar() && ty.dtype.is_int() && ty.dtype.bits() < 32 {
            let ctype = scalar_type(ty.dtype).unwrap_or("int");
            return Piece::new(format!("({ctype}){}", piece.tight()), Prec::Unary);
        }
        piece
    }

    fn unary_of(&mut self, op: UnaryOp, value: Value) -> Value {
        let operand = value.piece.tight();
        if op == UnaryOp::Neg
            && value.ty.dtype.is_float()
            && let Some(helper) = helpers::neg(&mut self.preamble, value.ty, self.target)
        {
            let piece = Piece::primary(format!("{helper}({})", value.piece.text));
            return Value { piece, ..value };
        }
        let text = match op {
            UnaryOp::Neg => format!("-{operand}"),
            UnaryOp::Not if value.ty == PrimType::BOOL => format!("!{operand}"),
            UnaryOp::Not => format!("~{operand}"),
        };
        let piece = self.narrowed(Piece::new(text, Prec::Unary), value.ty);
        Value { piece, ..value }
    }

    fn binary(&mut self, op: BinaryOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Result<Value> {
        let constant = rhs.as_int();
        let operands = if is_infix(op, lhs.ty(), constant) {
            let is_shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
            self.infix_operands(lhs, rhs).map(|(mut left, mut right)| {
                plain(rhs, lhs, &mut right);
                // The type of a shift is that of its left operand.
                if !is_shift {
                    plain(lhs, rhs, &mut left);
                }
                (left, right)
            })
        } else {
            self.pair(lhs, rhs)
        };
        operands.and_then(|(lhs, rhs)| self.binary_of(op, lhs, rhs, constant))
    }

    fn compare(&mut self, op: CompareOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Result<Value> {
        let (mut left, mut right) = match lhs.dtype() {
            DType::F16 => self.pair(lhs, rhs)?,
            _ => self.infix_operands(lhs, rhs)?,
        };
        plain(lhs, rhs, &mut left);
        plain(rhs, lhs, &mut right);
        self.compare_of(op, left, right)
    }

    /// The operands of an operator of C, which takes a scalar for a vector of it.
    fn infix_operands(&mut self, lhs: &PrimExpr, rhs: &PrimExpr) -> Result<(Value, Value)> {
        if let Some(scalar) = splatted(rhs) {
            let (lhs, rhs) = self.pair(lhs, scalar)?;
            let ty = lhs.ty;
            return Ok((lhs, Value { ty, ..rhs }));
        }
        match splatted(lhs) {
            Some(scalar) => {
                let (lhs, rhs) = self.pair(scalar, rhs)?;
                let ty = rhs.ty;
                Ok((Value { ty, ..lhs }, rhs))
            }
            None => self.pair(lhs, rhs),
        }
    }

    /// `constant` is the right operand if it is one.
    fn binary_of(
        &mut self,
        op: BinaryOp,
        lhs: Value,
        rhs: Value,
        constant: Option<i64>,
    ) -> Result<Value> {
        let ty = lhs.ty;
        if ty.dtype == DType::Bool && !ty.is_scalar() {
            let bits = lhs.mask_bits;
            let right = self.with_mask_bits(rhs, bits)?;
            let text =
                format!("{} {} {}", lhs.piece.at(Prec::Unary), op.symbol(), right.at(Prec::Unary));
            return Ok(Value::mask(Piece::new(text, Prec::Bitwise), ty.lanes, bits));
        }
        self.check_type(ty)?;
        let infix = |left: Prec, right: Prec, result: Prec| {
            let text = format!("{} {} {}", lhs.piece.at(left), op.symbol(), rhs.piece.at(right));
            Piece::new(text, result)
        };
        let call = |helper: String| {
            Piece::primary(format!("{helper}({}, {})", lhs.piece.text, rhs.piece.text))
        };
        let is_float = ty.dtype.is_float();
        let in_c = is_infix(op, ty, constant);
        let piece = match op {
            BinaryOp::Add | BinaryOp::Sub => infix(Prec::Sum, Prec::Product, Prec::Sum),
            BinaryOp::Mul => infix(Prec::Product, Prec::Unary, Prec::Product),
            BinaryOp::Div | BinaryOp::Rem if in_c => {
                infix(Prec::Product, Prec::Unary, Prec::Product)
            }
            BinaryOp::Rem if is_float => {
                let scalar = self.libm("fmod", ty.dtype)?;
                if ty.is_scalar() {
                    call(scalar)
                } else {
                    call(helpers::vector_libm(&mut self.preamble, &scalar, ty, 2))
                }
            }
            BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod => {
                call(helpers::int_division(&mut self.preamble, op, ty))
            }
            BinaryOp::Min | BinaryOp::Max => {
                call(helpers::min_max(&mut self.preamble, op, ty, self.target))
            }
            BinaryOp::And | BinaryOp::Or if ty.dtype == DType::Bool => {
                // Expressions have no effects, so it does not matter that C may leave out the right
                // operand.
                let (symbol, prec) = match op {
                    BinaryOp::And => ("&&", Prec::And),
                    _ => ("||", Prec::Or),
                };
                let side = |piece: &Piece| match piece.prec {
                    Prec::And | Prec::Or if piece.prec != prec => piece.tight(),
                    _ => piece.at(Prec::Or),
                };
                let text = format!("{} {symbol} {}", side(&lhs.piece), side(&rhs.piece));
                Piece::new(text, prec)
            }
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                infix(Prec::Unary, Prec::Unary, Prec::Bitwise)
            }
            BinaryOp::Shl | BinaryOp::Shr if in_c => infix(Prec::Unary, Prec::Unary, Prec::Shift),
            BinaryOp::Shl | BinaryOp::Shr => call(helpers::shift(&mut self.preamble, op, ty)),
        };
        Ok(Value::new(self.narrowed(piece, ty), ty))
    }

    fn compare_of(&mut self, op: CompareOp, lhs: Value, rhs: Value) -> Result<Value> {
        let ty = lhs.ty;
        let bits = if ty.dtype == DType::Bool { lhs.mask_bits } else { ty.dtype.bits() };
        let right = if ty.dtype == DType::Bool && !ty.is_scalar() {
            self.with_mask_bits(rhs, bits)?
        } else {
            self.check_type(ty)?;
            rhs.piece
        };
        let (left, right) = (lhs.piece.at(Prec::Sum), right.at(Prec::Sum));
        if ty.is_scalar() {
            let text = format!("{left} {} {right}", op.symbol());
            return Ok(Value::new(Piece::new(text, Prec::Compare), PrimType::BOOL));
        }
        let mask = self.value_type(ty.with_dtype(mask_dtype(bits)), 0)?;
        if let Some(helper) = halves::compare(&mut self.preamble, op, ty, self.target) {
            let text = format!("{helper}({left}, {right})");
            return Ok(Value::mask(Piece::primary(text), ty.lanes, bits));
        }
        // True is -1 in a mask, and so less than false.
        let (left, right) = if ty.dtype == DType::Bool { (right, left) } else { (left, right) };
        let text = format!("{left} {} {right}", op.symbol());
        Ok(Value::mask(Piece::new(format!("({mask})({text})"), Prec::Unary), ty.lanes, bits))
    }

    fn select(&mut self, cond: Value, then: &PrimExpr, otherwise: &PrimExpr) -> Result<Value> {
        if !cond.ty.is_scalar() {
            return self.pair(then, otherwise).and_then(|(a, b)| self.blend_of(cond, a, b));
        }
        // Only the chosen side may be evaluated: what it needs beforehand goes into an `if`.
        self.indent += 1;
        let start = self.lines.len();
        let then = self.expr(then)?;
        let then_lines = self.lines.split_off(start);
        let otherwise = self.expr(otherwise)?;
        let otherwise_lines = self.lines.split_off(start);
        self.indent -= 1;
        self.choose_of(cond, (then, then_lines), (otherwise, otherwise_lines))
    }

    /// A choice lane by lane.
    fn blend_of(&mut self, cond: Value, then: Value, otherwise: Value) -> Result<Value> {
        let ty = then.ty;
        if ty.dtype == DType::Bool {
            let bits = then.mask_bits;
            let mask = self.with_mask_bits(cond, bits)?;
            let other = self.with_mask_bits(otherwise, bits)?;
            let helper = helpers::select(&mut self.preamble, ty.with_dtype(mask_dtype(bits)));
            let text = format!("{helper}({}, {}, {})", mask.text, then.piece.text, other.text);
            return Ok(Value::mask(Piece::primary(text), ty.lanes, bits));
        }
        self.check_type(ty)?;
        let mask = self.with_mask_bits(cond, ty.dtype.bits())?;
        let helper = helpers::select(&mut self.preamble, ty);
        let text =
            format!("{helper}({}, {}, {})", mask.text, then.piece.text, otherwise.piece.text);
        Ok(Value::new(Piece::primary(text), ty))
    }

    /// A choice between two values, each with the lines that compute it.
    fn choose_of(
        &mut self,
        cond: Value,
        (then, then_lines): (Value, Vec<String>),
        (otherwise, otherwise_lines): (Value, Vec<String>),
    ) -> Result<Value> {
        let ty = then.ty;
        let bits = then.mask_bits;
        let other = if ty.dtype == DType::Bool && !ty.is_scalar() {
            self.with_mask_bits(otherwise, bits)?
        } else {
            otherwise.piece
        };
        if then_lines.is_empty() && otherwise_lines.is_empty() {
            // Both sides must be of one type, and memory has a type of its own for vectors.
            let (then, other) = if ty.is_scalar() {
                (then.piece.at(Prec::Or), other.at(Prec::Or))
            } else {
                let ctype = self.value_type(ty, bits)?;
                (format!("({ctype}){}", then.piece.tight()), format!("({ctype}){}", other.tight()))
            };
            let text = format!("{} ? {then} : {other}", cond.piece.condition());
            let piece = Piece::new(text, Prec::Conditional);
            return Ok(Value { piece: self.narrowed(piece, ty), ty, mask_bits: bits });
        }
        let ctype = self.value_type(ty, bits)?;
        let name = self.names.unique("chosen");
        self.line(format!("{ctype} {name};"));
        self.line(format!("if ({}) {{", cond.piece.text));
        self.lines.extend(then_lines);
        self.line(format!("    {name} = {};", then.piece.text));
        self.line("} else {");
        self.lines.extend(otherwise_lines);
        self.line(format!("    {name} = {};", other.text));
        self.line("}");
        Ok(Value { piece: Piece::primary(name), ty, mask_bits: bits })
    }

    fn cast_of(&mut self, value: Value, dtype: DType) -> Result<Value> {
        let from = value.ty;
        let to = from.with_dtype(dtype);
        if from == to {
            return Ok(value);
        }
        if from.is_scalar() {
            self.check_type(from)?;
            self.check_type(to)?;
            let piece = if dtype == DType::Bool {
                Piece::new(format!("{} != 0", value.piece.at(Prec::Sum)), Prec::Compare)
            } else if from.dtype.is_float() && dtype.is_int() {
                let helper = helpers::float_to_int(&mut self.preamble, from, dtype, self.target);
                Piece::primary(format!("{helper}({})", value.piece.text))
            } else {
                let ctype = self.value_type(to, 0)?;
                Piece::new(format!("({ctype}){}", value.piece.tight()), Prec::Unary)
            };
            return Ok(Value::new(piece, to));
        }
        if dtype == DType::Bool {
            let bits = from.dtype.bits();
            let mask = self.value_type(from.with_dtype(mask_dtype(bits)), 0)?;
            let text = format!("({mask})({} != 0)", value.piece.at(Prec::Sum));
            return Ok(Value::mask(Piece::new(text, Prec::Unary), from.lanes, bits));
        }
        if from.dtype == DType::Bool {
            let ones = Piece::new(format!("{} & 1", value.piece.at(Prec::Unary)), Prec::Bitwise);
            let mask = from.with_dtype(mask_dtype(value.mask_bits));
            return self.cast_of(Value::new(ones, mask), dtype);
        }
        let ctype = self.value_type(to, 0)?;
        self.check_type(from)?;
        let text = if from.dtype.is_float() && dtype.is_int() {
            let helper = helpers::float_to_int(&mut self.preamble, from, dtype, self.target);
            format!("{helper}({})", value.piece.text)
        } else if from.dtype.is_int() && dtype.is_int() && from.dtype.bits() != dtype.bits() {
            convert(&mut self.preamble, &value.piece.text, from, dtype, self.target)
        } else if from.dtype.is_int() && from.dtype.bits() < 32 && dtype == DType::F32 {
            let wide =
                convert(&mut self.preamble, &value.piece.text, from, DType::I32, self.target);
            format!("__builtin_convertvector({wide}, {ctype})")
        } else {
            format!("__builtin_convertvector({}, {ctype})", value.piece.text)
        };
        Ok(Value::new(Piece::primary(text), to))
    }

    fn shuffle_of(&mut self, values: Vec<Value>, lanes: &[u32]) -> Result<Value> {
        let Some(first) = values.first() else { return Err("a shuffle of nothing".to_owned()) };
        let (dtype, bits) = (first.ty.dtype, first.mask_bits);
        let is_mask = dtype == DType::Bool && values.iter().any(|value| !value.ty.is_scalar());
        let element = if is_mask { mask_dtype(bits.max(8)) } else { dtype };
        let widths: Vec<u32> = values.iter().map(|value| value.ty.lanes).collect();
        let mut pieces = Vec::new();
        for value in values {
            let piece = if is_mask && !value.ty.is_scalar() {
                let piece = self.with_mask_bits(value, element.bits())?;
                Value::new(piece, PrimType::scalar(element))
            } else {
                value
            };
            pieces.push(piece.piece);
        }
        let operand = PrimType::vector(element, widths[0]);
        let same = widths.iter().all(|width| *width == widths[0]) && widths[0] > 1;
        let piece = if same && widths.len() <= 2 && lanes.len() > 1 {
            self.check_type(operand)?;
            self.check_type(operand.with_lanes(lanes.len() as u32))?;
            let is_one = widths.len() == 1;
            let helper = match repeated(operand, lanes) {
                Some(word) if is_one => {
                    bytes::repeat(&mut self.preamble, operand, word, lanes.len() as u32)
                }
                _ if is_one && turns_quarters(operand, lanes, self.target) => {
                    bytes::turn(&mut self.preamble, operand)
                }
                _ => helpers::shuffle(&mut self.preamble, operand, widths.len(), lanes),
            };
            let args: Vec<_> = pieces.iter().map(|piece| piece.text.clone()).collect();
            Piece::primary(format!("{helper}({})", args.join(", ")))
        } else {
            // Each lane by itself.
            let mut names = Vec::new();
            for (piece, &width) in pieces.into_iter().zip(&widths) {
                let value = Value::new(piece, PrimType::vector(element, width));
                names.push(self.named(value, "part")?.piece);
            }
            let mut elements = Vec::new();
            for &lane in lanes {
                let mut rest = lane;
                let mut part = 0;
                while part + 1 < widths.len() && rest >= widths[part] {
                    rest -= widths[part];
                    part += 1;
                }
                let name = &names[part].text;
                elements.push(if widths[part] == 1 {
                    name.clone()
                } else {
                    format!("{name}[{rest}]")
                });
            }
            if elements.len() == 1 {
                let text = elements.remove(0);
                if is_mask {
                    let piece = Piece::new(format!("{text} != 0"), Prec::Compare);
                    return Ok(Value::new(piece, PrimType::BOOL));
                }
                Piece::primary(text)
            } else {
                let ctype = self.value_type(PrimType::vector(element, lanes.len() as u32), 0)?;
                Piece::primary(format!("({ctype}){{{}}}", elements.join(", ")))
            }
        };
        let ty = PrimType::vector(dtype, lanes.len() as u32);
        Ok(Value { piece, ty, mask_bits: if is_mask { element.bits() } else { 0 } })
    }
}
