//! Rust's operators and conversions for expressions.

use std::iter;
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use super::canonical::Rules;
use super::expr::IntExpr;
use super::symbol::Symbol;

impl From<i64> for IntExpr {
    fn from(value: i64) -> IntExpr {
        IntExpr::constant(value)
    }
}

impl From<i32> for IntExpr {
    fn from(value: i32) -> IntExpr {
        IntExpr::constant(value.into())
    }
}

impl From<u64> for IntExpr {
    /// The number, or [`IntExpr::overflow`] beyond `i64`.
    fn from(value: u64) -> IntExpr {
        i64::try_from(value).map_or(IntExpr::overflow(), IntExpr::constant)
    }
}

impl From<usize> for IntExpr {
    /// The number, or [`IntExpr::overflow`] beyond `i64`.
    fn from(value: usize) -> IntExpr {
        i64::try_from(value).map_or(IntExpr::overflow(), IntExpr::constant)
    }
}

impl From<Symbol> for IntExpr {
    fn from(symbol: Symbol) -> IntExpr {
        IntExpr::symbol(symbol)
    }
}

impl From<&Symbol> for IntExpr {
    fn from(symbol: &Symbol) -> IntExpr {
        IntExpr::symbol(symbol)
    }
}

impl From<&IntExpr> for IntExpr {
    fn from(expr: &IntExpr) -> IntExpr {
        expr.clone()
    }
}

macro_rules! binary_operator {
    ($trait:ident, $method:ident, $assign:ident, $assign_method:ident, $rule:ident) => {
        binary_operator!(@ $trait, $method, $rule, IntExpr, IntExpr, |it| it);
        binary_operator!(@ $trait, $method, $rule, IntExpr, &IntExpr, |it| it);
        binary_operator!(@ $trait, $method, $rule, &IntExpr, IntExpr, |it| it);
        binary_operator!(@ $trait, $method, $rule, &IntExpr, &IntExpr, |it| it);
        binary_operator!(@ $trait, $method, $rule, IntExpr, i64, |it| &IntExpr::constant(*it));
        binary_operator!(@ $trait, $method, $rule, &IntExpr, i64, |it| &IntExpr::constant(*it));

        impl<R> $assign<R> for IntExpr
        where
            for<'a> &'a IntExpr: $trait<R, Output = IntExpr>,
        {
            fn $assign_method(&mut self, other: R) {
                *self = (&*self).$method(other);
            }
        }
    };
    (@ $trait:ident, $method:ident, $rule:ident, $left:ty, $right:ty, |$it:ident| $borrow:expr) => {
        impl $trait<$right> for $left {
            type Output = IntExpr;
            fn $method(self, other: $right) -> IntExpr {
                let $it = &other;
                Rules::PLAIN.$rule(&self, $borrow)
            }
        }
    };
}

binary_operator!(Add, add, AddAssign, add_assign, add);
binary_operator!(Sub, sub, SubAssign, sub_assign, sub);
binary_operator!(Mul, mul, MulAssign, mul_assign, mul);

impl Neg for &IntExpr {
    type Output = IntExpr;
    fn neg(self) -> IntExpr {
        Rules::PLAIN.scale(self, -1)
    }
}

impl Neg for IntExpr {
    type Output = IntExpr;
    fn neg(self) -> IntExpr {
        -&self
    }
}

impl iter::Sum for IntExpr {
    fn sum<I: Iterator<Item = IntExpr>>(exprs: I) -> IntExpr {
        exprs.fold(IntExpr::ZERO, |sum, expr| sum + expr)
    }
}

impl iter::Product for IntExpr {
    fn product<I: Iterator<Item = IntExpr>>(exprs: I) -> IntExpr {
        exprs.fold(IntExpr::ONE, |product, expr| product * expr)
    }
}

impl<'a> iter::Sum<&'a IntExpr> for IntExpr {
    fn sum<I: Iterator<Item = &'a IntExpr>>(exprs: I) -> IntExpr {
        exprs.fold(IntExpr::ZERO, |sum, expr| sum + expr)
    }
}

impl<'a> iter::Product<&'a IntExpr> for IntExpr {
    fn product<I: Iterator<Item = &'a IntExpr>>(exprs: I) -> IntExpr {
        exprs.fold(IntExpr::ONE, |product, expr| product * expr)
    }
}
