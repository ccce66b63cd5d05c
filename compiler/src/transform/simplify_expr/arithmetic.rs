//! Arithmetic with constants that leave the other operand as it is, and powers.

use super::Site;
use crate::graph::{Callee, ExprId, FunctionBuilder};
use crate::ops::elementwise::{
    ABS, ADD, DIVIDE, EXP, MULTIPLY, POWER, RECIPROCAL, RELU, RSQRT, SIGMOID, SQRT, SUBTRACT,
};
use crate::ops::reduce::{MEAN, SUM};
use crate::pass::Result;
use crate::transform::calls::{call, uniform_of};

/// How far operands are looked at for their sign.
const MAX_DEPTH: usize = 6;

/// A simpler form of a call of an arithmetic operator.
pub(super) fn simpler(b: &mut FunctionBuilder, site: &Site<'_>) -> Result<Option<ExprId>> {
    let (Some(lhs), Some(rhs)) = (site.arg(0), site.arg(1)) else { return Ok(None) };
    if site.op.is(&POWER) {
        return power(b, site, lhs, rhs);
    }
    let neutral = |value: Option<f64>| match value {
        Some(value) if site.op.is(&ADD) => {
            // The sum of -0 and 0 is 0; that of -0 and -0 is -0.
            value == 0.0 && (!site.strict || !site.ty.dtype.is_float() || value.is_sign_negative())
        }
        Some(value) if site.op.is(&SUBTRACT) => {
            value == 0.0 && (!site.strict || value.is_sign_positive())
        }
        Some(value) if site.op.is(&MULTIPLY) || site.op.is(&DIVIDE) => value == 1.0,
        _ => false,
    };
    let commutes = site.op.is(&ADD) || site.op.is(&MULTIPLY);
    for (x, other) in [(lhs, rhs), (rhs, lhs)].into_iter().take(if commutes { 2 } else { 1 }) {
        // The other operand may have repeated it.
        if b.ty(x).as_tensor() == Some(site.ty) && neutral(uniform_of(b, other)) {
            return Ok(Some(x));
        }
    }
    Ok(None)
}

fn power(
    b: &mut FunctionBuilder,
    site: &Site<'_>,
    x: ExprId,
    exponent: ExprId,
) -> Result<Option<ExprId>> {
    let Some(exponent) = uniform_of(b, exponent) else { return Ok(None) };
    if b.ty(x).as_tensor() != Some(site.ty) {
        return Ok(None);
    }
    let is_float = site.ty.dtype.is_float();
    if exponent == 1.0 {
        return Ok(Some(x));
    } else if exponent == 2.0 {
        return call(b, &MULTIPLY, &[x, x]).map(Some);
    } else if exponent == -1.0 && is_float {
        return call(b, &RECIPROCAL, &[x]).map(Some);
    }
    // Powers of what is less than 0 are infinite or no numbers where roots are not, and the powers
    // of -0 have another sign.
    let root = match exponent {
        0.5 => &SQRT,
        -0.5 => &RSQRT,
        _ => return Ok(None),
    };
    if !is_float || site.strict || !is_not_negative(b, x, MAX_DEPTH) {
        return Ok(None);
    }
    call(b, root, &[x]).map(Some)
}

/// Whether no element can be less than zero, as far as a few operators tell.
fn is_not_negative(b: &FunctionBuilder, id: ExprId, depth: usize) -> bool {
    if let Some(value) = uniform_of(b, id) {
        return value >= 0.0;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(expr) = b.expr(id).as_call() else { return false };
    let Callee::Op(op) = expr.callee else { return false };
    let args: Vec<ExprId> = expr.args.iter().flatten().copied().collect();
    let is_any = |defs: &[&crate::ops::OpDef]| defs.iter().any(|def| op.is(def));
    if is_any(&[&ABS, &EXP, &RELU, &SQRT, &SIGMOID]) {
        return true;
    }
    if op.is(&POWER) {
        return args.get(1).and_then(|&exponent| uniform_of(b, exponent)) == Some(2.0);
    }
    if op.is(&MULTIPLY) && args.first() == args.last() {
        return true;
    }
    is_any(&[&ADD, &MULTIPLY, &DIVIDE, &SUM, &MEAN])
        && args.iter().all(|&arg| is_not_negative(b, arg, depth))
}
