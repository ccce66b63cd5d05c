//! Random expressions: results of the analyser, compared with all values.

use proptest::prelude::*;

use super::Analyzer;
use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimFuncData, PrimType, UnaryOp, VarId, scalar};

/// Extents of the variables; each begins at -2, 0 or 3.
const EXTENTS: [i64; 4] = [2, 5, 8, 16];

/// The value for given values of the variables, or `None` if the expression is no integer
/// arithmetic.
fn evaluate(expr: &PrimExpr, values: &dyn Fn(VarId) -> i64) -> Option<i64> {
    let of = |expr: &PrimExpr| evaluate(expr, values);
    Some(match expr {
        PrimExpr::Int { value, .. } => *value,
        PrimExpr::Var { var, .. } => values(*var),
        PrimExpr::Unary { op, value } => {
            scalar::unary(*op, value.dtype(), of(value)? as u64)? as i64
        }
        PrimExpr::Binary { op, lhs, rhs } => {
            scalar::binary(*op, lhs.dtype(), of(lhs)? as u64, of(rhs)? as u64)? as i64
        }
        PrimExpr::Compare { op, lhs, rhs } => {
            i64::from(scalar::compare(*op, lhs.dtype(), of(lhs)? as u64, of(rhs)? as u64)?)
        }
        PrimExpr::Select { cond, then, otherwise } => {
            if of(cond)? != 0 {
                of(then)?
            } else {
                of(otherwise)?
            }
        }
        _ => return None,
    })
}

struct Generator<'a> {
    numbers: std::slice::Iter<'a, u32>,
    vars: Vec<VarId>,
    dtype: DType,
}

impl Generator<'_> {
    fn number(&mut self, below: u32) -> u32 {
        self.numbers.next().copied().unwrap_or(0) % below
    }

    fn constant(&mut self) -> PrimExpr {
        let value = [-7, -1, 1, 2, 3, 4, 5, 8, 12, 16, 17, 64][self.number(12) as usize];
        PrimExpr::int(value, self.dtype)
    }

    fn index(&mut self, depth: u32) -> PrimExpr {
        if depth == 0 {
            return match self.number(4) {
                0 => self.constant(),
                at => PrimExpr::var(self.vars[at as usize % self.vars.len()], self.dtype),
            };
        }
        let left = self.index(depth - 1);
        match self.number(14) {
            0..=2 => left + self.index(depth - 1),
            3 => left - self.index(depth - 1),
            4 | 5 => left * self.constant(),
            6 | 7 => left.floordiv(self.constant()),
            8 | 9 => left.floormod(self.constant()),
            10 => {
                let op = [BinaryOp::Div, BinaryOp::Rem, BinaryOp::Mul, BinaryOp::FloorDiv];
                let op = op[self.number(4) as usize];
                PrimExpr::binary(op, left, self.index(depth - 1))
            }
            11 => left.min(self.index(depth - 1)),
            12 => left.max(self.index(depth - 1)),
            _ => PrimExpr::select(self.condition(depth - 1), left, self.index(depth - 1)),
        }
    }

    fn condition(&mut self, depth: u32) -> PrimExpr {
        let below = depth.saturating_sub(1);
        match self.number(if depth == 0 { 3 } else { 6 }) {
            3 => self.condition(below).and(self.condition(below)),
            4 => self.condition(below).or(self.condition(below)),
            5 => PrimExpr::unary(UnaryOp::Not, self.condition(below)),
            _ => {
                let op = CompareOp::ALL[self.number(6) as usize].0;
                PrimExpr::compare(op, self.index(below), self.index(below))
            }
        }
    }
}

/// Every assignment of the variables.
fn points(starts: &[i64]) -> Vec<Vec<i64>> {
    let mut points = vec![Vec::new()];
    for (start, extent) in starts.iter().zip(EXTENTS) {
        points = points
            .into_iter()
            .flat_map(|point: Vec<i64>| {
                (0..extent).map(move |at| [point.clone(), vec![start + at]].concat())
            })
            .collect();
    }
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn values_bounds_and_conditions_are_right(
        numbers in proptest::collection::vec(any::<u32>(), 64),
        narrow in any::<bool>(),
    ) {
        let dtype = if narrow { DType::I32 } else { DType::I64 };
        let mut func = PrimFuncData::new("f");
        let vars: Vec<VarId> =
            EXTENTS.iter().map(|extent| func.var(format!("v{extent}"), dtype)).collect();
        let mut random = Generator { numbers: numbers.iter(), vars: vars.clone(), dtype };
        let starts: Vec<i64> =
            EXTENTS.iter().map(|_| [0, 0, -2, 3][random.number(4) as usize]).collect();
        let mut analyzer = Analyzer::new();
        for ((var, start), extent) in vars.iter().zip(&starts).zip(EXTENTS) {
            analyzer.bind(*var, PrimExpr::int(*start, dtype), PrimExpr::int(extent, dtype));
        }
        let assumed = random.condition(2);
        analyzer.assume(&assumed);
        let value = random.index(4);
        let cond = random.condition(3);
        let simple = [analyzer.simplify(&value), analyzer.simplify(&cond)];
        prop_assert_eq!(simple[0].ty(), PrimType::scalar(dtype));
        let (least, greatest) = analyzer.const_int_bound(&value);
        let modular = analyzer.modular_set(&value);
        let proven = analyzer.can_prove(&cond);
        for point in points(&starts) {
            let at = |var: VarId| {
                vars.iter().position(|other| *other == var).map_or(0, |index| point[index])
            };
            if evaluate(&assumed, &at) != Some(1) {
                continue;
            }
            prop_assert!(!analyzer.is_contradiction(), "{:?} at {:?}", assumed, point);
            let expected = [evaluate(&value, &at).unwrap(), evaluate(&cond, &at).unwrap()];
            for (simple, expected) in simple.iter().zip(expected) {
                prop_assert_eq!(
                    evaluate(simple, &at), Some(expected),
                    "\n{:?}\n{:?}\nunder {:?} at {:?}", value, simple, assumed, point
                );
            }
            prop_assert!((least..=greatest).contains(&expected[0]), "{} {}", least, greatest);
            prop_assert!(modular.contains(expected[0]), "{:?}", modular);
            prop_assert!(!proven || expected[1] == 1, "{:?} at {:?}", cond, point);
        }
    }
}
