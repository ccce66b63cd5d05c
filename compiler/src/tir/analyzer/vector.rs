//! Vectors of indices: ramps over linear forms.

use cranelift_entity::EntityRef;

use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, VarId};

use super::Analyzer;
use super::linear::{Linear, gcd};
use super::range::Range;

/// `base + stride · lane`; a broadcast has the stride 0.
pub(super) struct Ramp {
    pub(super) base: Linear,
    stride: i64,
    pub(super) lanes: u32,
    dtype: DType,
}

impl Ramp {
    /// The range of `stride · lane`.
    pub(super) fn spread(&self) -> Range {
        let last = self.stride.saturating_mul(i64::from(self.lanes) - 1);
        Range::new(last.min(0), last.max(0))
    }
}

/// A lane of a vector of indices, as an expression of its number; `None` of vectors that are no
/// arithmetic on ramps.
fn at_lane(index: &PrimExpr, lane: &PrimExpr) -> Option<PrimExpr> {
    match index {
        scalar if scalar.ty().is_scalar() => Some(scalar.clone()),
        PrimExpr::Ramp { base, stride, lanes: _ } => {
            Some((**base).clone() + (**stride).clone() * lane.clone())
        }
        PrimExpr::Broadcast { value, lanes: _ } => Some((**value).clone()),
        PrimExpr::Binary { op, lhs, rhs } => {
            Some(PrimExpr::binary(*op, at_lane(lhs, lane)?, at_lane(rhs, lane)?))
        }
        _ => None,
    }
}

impl Analyzer {
    /// Reads a simplified vector of indices.
    pub(super) fn ramp(&mut self, expr: &PrimExpr) -> Option<Ramp> {
        let dtype = expr.dtype();
        match expr {
            PrimExpr::Ramp { base, stride, lanes } => {
                let (base, stride, lanes) = (self.linear(base), stride.as_int()?, *lanes);
                self.is_exact(&base, dtype).then_some(Ramp { base, stride, lanes, dtype })
            }
            PrimExpr::Broadcast { value, lanes } if self.is_index_arithmetic(value) => {
                let (base, lanes) = (self.linear(value), *lanes);
                self.is_exact(&base, dtype).then_some(Ramp { base, stride: 0, lanes, dtype })
            }
            _ => None,
        }
    }

    /// A vector of indices as a ramp, if its lanes are equidistant although the digits that it is
    /// the sum of are no ramps.
    pub(in crate::tir) fn lanes_as_ramp(&mut self, index: PrimExpr) -> PrimExpr {
        let is_digit = |expr: &PrimExpr| match expr {
            PrimExpr::Binary { op: BinaryOp::FloorDiv | BinaryOp::FloorMod, lhs, .. } => {
                !lhs.ty().is_scalar()
            }
            _ => false,
        };
        if index.dtype() != DType::I64 || !index.any(&mut |expr| is_digit(expr)) {
            return index;
        }
        let lanes = index.ty().lanes;
        let mut lane = |lane| {
            let place = self.expr(index.lane_expr(lane));
            self.linear(&place)
        };
        let first = lane(0);
        let distance = |place: Linear| place.plus(&first, -1)?.as_const();
        let Some(stride) = distance(lane(1)) else { return index };
        let is_there = |number: u32, place: Linear| {
            let distance = distance(place);
            distance.is_some() && distance == stride.checked_mul(i64::from(number))
        };
        // The last lane first: mostly it is elsewhere, if any is.
        let is_ramp = is_there(lanes - 1, lane(lanes - 1))
            && (self.are_ramp(&index, &first, stride)
                || (2..lanes - 1).all(|number| {
                    let place = self.expr(index.lane_expr(number));
                    is_there(number, self.linear(&place))
                }));
        match is_ramp {
            true => PrimExpr::ramp(self.write(&first, DType::I64), stride, lanes),
            false => index,
        }
    }

    /// Whether all lanes of an index are at such distances from the first one, by a variable that stands
    /// for the lane. `false` says nothing.
    fn are_ramp(&mut self, index: &PrimExpr, first: &Linear, stride: i64) -> bool {
        let mut unused = self.vars.keys().len();
        index.walk(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                unused = unused.max(var.index() + 1);
            }
        });
        let var = VarId::new(unused);
        let lane = PrimExpr::var(var, DType::I64);
        let Some(place) = at_lane(index, &lane) else { return false };
        self.scope(|analyzer| {
            analyzer.bind(var, 0, i64::from(index.ty().lanes));
            let place = analyzer.expr(place);
            let ramp = first.plus(&analyzer.linear(&lane), stride);
            let rest = ramp.and_then(|ramp| analyzer.linear(&place).plus(&ramp, -1));
            rest.and_then(|rest| rest.as_const()) == Some(0)
        })
    }

    fn write_ramp(&self, base: &Linear, stride: i64, like: &Ramp) -> PrimExpr {
        let stride = PrimExpr::int(stride, like.dtype);
        PrimExpr::ramp(self.write(base, like.dtype), stride, like.lanes)
    }

    /// An operator on simplified operands: vectors, and scalars that are no indices.
    pub(super) fn vector_binary(&mut self, op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        let is_index = matches!(lhs.dtype(), DType::I64 | DType::I32) && !lhs.ty().is_scalar();
        if is_index
            && lhs.dtype() == rhs.dtype()
            && let Some(left) = self.ramp(&lhs)
            && let Some(right) = self.ramp(&rhs)
            && let Some(result) = self.ramp_binary(op, &left, &right)
        {
            return result;
        }
        PrimExpr::binary(op, lhs, rhs)
    }

    fn ramp_binary(&mut self, op: BinaryOp, left: &Ramp, right: &Ramp) -> Option<PrimExpr> {
        match op {
            BinaryOp::Add => {
                let stride = left.stride.checked_add(right.stride)?;
                Some(self.write_ramp(&left.base.plus(&right.base, 1)?, stride, left))
            }
            BinaryOp::Sub => {
                let stride = left.stride.checked_sub(right.stride)?;
                Some(self.write_ramp(&left.base.plus(&right.base, -1)?, stride, left))
            }
            BinaryOp::FloorDiv | BinaryOp::FloorMod if right.stride == 0 => {
                let divisor = right.base.as_const().filter(|divisor| *divisor > 0)?;
                self.divide_ramp(op, left, divisor)
            }
            BinaryOp::Min | BinaryOp::Max => {
                let at_most = |a, b| self.decide_lanes(CompareOp::Le, a, b) == Some(true);
                let (least, greatest) = match () {
                    () if at_most(left, right) => (left, right),
                    () if at_most(right, left) => (right, left),
                    () => return None,
                };
                let chosen = if op == BinaryOp::Min { least } else { greatest };
                Some(self.write_ramp(&chosen.base, chosen.stride, chosen))
            }
            BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::FloorDiv
            | BinaryOp::FloorMod
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr => None,
        }
    }

    /// Floor division of a ramp whose lanes are in one block, or each in a block of its own.
    fn divide_ramp(&mut self, op: BinaryOp, ramp: &Ramp, divisor: i64) -> Option<PrimExpr> {
        let quotients = op == BinaryOp::FloorDiv;
        let Ramp { base, stride, lanes, .. } = ramp;
        if stride % divisor == 0 {
            // Every lane has the same remainder as the base.
            return Some(if quotients {
                let base = self.floor_div(base, divisor)?;
                self.write_ramp(&base, stride / divisor, ramp)
            } else {
                let base = self.floor_mod(base, divisor)?;
                self.write_ramp(&base, 0, ramp)
            });
        }
        let span = stride.checked_mul(i64::from(*lanes) - 1)?;
        // All lanes must be in one block. They are if blocks consist of steps, the base is at the
        // start of one, and the lanes end before the next; or as far as the base's remainder is
        // known.
        let step = gcd(gcd(divisor, base.common_factor()), base.constant);
        let rest = self.floor_mod(base, divisor)?;
        let ends = self.range(&rest).add(ramp.spread());
        let in_block = ends.min >= 0 && ends.max < divisor.into();
        if !in_block && !(0..step).contains(&span) {
            return None;
        }
        Some(if quotients {
            let base = self.floor_div(base, divisor)?;
            self.write_ramp(&base, 0, ramp)
        } else {
            self.write_ramp(&rest, *stride, ramp)
        })
    }

    /// Whether a comparison is the same in all lanes, and for all values of the variables.
    pub(super) fn decide_lanes(&self, op: CompareOp, left: &Ramp, right: &Ramp) -> Option<bool> {
        let stride = left.stride.checked_sub(right.stride)?;
        let last = stride.checked_mul(i64::from(left.lanes) - 1)?;
        if left.lanes != right.lanes {
            return None;
        }
        let ends = [0, last].map(|distance| {
            let shifted = left.base.scaled(1, distance)?;
            self.decide(op, &shifted, &right.base, 1)
        });
        match (op, ends) {
            // Equal at both ends is equal between only if nothing moves.
            (CompareOp::Eq | CompareOp::Ne, _) if stride != 0 => None,
            (_, [first, last]) => first.filter(|_| first == last),
        }
    }
}
