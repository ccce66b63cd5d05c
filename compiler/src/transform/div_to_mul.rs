//! Divisions by constants, as multiplications.

use super::calls::{call, op_of};
use super::channels::of_elements;
use crate::graph::{Function, Rewriter};
use crate::ir::{Constant, DType, IRModule};
use crate::ops::elementwise::{DIVIDE, MULTIPLY};
use crate::pass::{PassContext, Result, function_pass};
use crate::tir::transform::STRICT_MATH;
use crate::transform::InferType;

/// Multiplies floats by the reciprocals of constants instead of dividing by the constants.
///
/// A quotient is rounded once, a product with a rounded reciprocal twice: with `tir.strict_math`
/// only divisions by powers of two, whose reciprocals are exact, become multiplications.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn div_to_mul(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let strict = cx.get(&STRICT_MATH);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, division)) = op_of(old.expr(id)) else { continue };
        if !op.is(&DIVIDE) {
            continue;
        }
        let &[Some(x), Some(divisor)] = rewriter.args(division).as_slice() else { continue };
        let b = rewriter.builder();
        let Some(constant) = b.expr(divisor).as_constant() else { continue };
        let Some(reciprocals) = reciprocals(constant, strict) else { continue };
        let reciprocals = b.constant(reciprocals);
        let product = call(b, &MULTIPLY, &[x, reciprocals])?;
        rewriter.replace(product);
        cx.count("divisions", 1);
    }
    Ok(rewriter.finish()?)
}

/// One divided by each element, unless one of those is no number that can be multiplied by, or, if
/// they have to be `exact`, is rounded.
fn reciprocals(constant: &Constant, exact: bool) -> Option<Constant> {
    let ty = constant.ty();
    let divisors = constant.to_f64_vec()?;
    let inverse: Vec<f64> = divisors.iter().map(|divisor| 1.0 / divisor).collect();
    let reciprocals = of_elements(&ty.shape, &inverse, ty.dtype)?;
    let least = least_normal(ty.dtype)?;
    let rounded = reciprocals.to_f64_vec()?;
    let fits = divisors.iter().zip(&rounded).all(|(divisor, reciprocal)| {
        // Next to zero a reciprocal has few digits, and counts as zero.
        let usable = reciprocal.is_finite() && reciprocal.abs() >= least && divisor.is_finite();
        usable && (!exact || divisor * reciprocal == 1.0 && is_power_of_two(*divisor))
    });
    fits.then_some(reciprocals)
}

fn is_power_of_two(value: f64) -> bool {
    value.to_bits() << 12 == 0
}

/// The least normal number of the data type.
fn least_normal(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F16 => Some(half::f16::MIN_POSITIVE.to_f64()),
        DType::BF16 => Some(half::bf16::MIN_POSITIVE.to_f64()),
        DType::F32 => Some(f64::from(f32::MIN_POSITIVE)),
        DType::F64 => Some(f64::MIN_POSITIVE),
        _ => None,
    }
}
