//! The canonical order of quotients and remainders.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BinaryOp, PrimExpr, PrimFunc};

/// Divides before it takes remainders.
///
/// `(x floormod 64) floordiv 4` becomes `(x floordiv 4) floormod 16`.
///
/// In that form, fused and split loops share quotients. `Simplify` writes the other form, so this
/// pass comes after it.
#[prim_func_pass(opt_level = 0, name = "tir.RenormalizeSplitPattern", crate = crate)]
pub fn renormalize_split_pattern(
    mut func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> PrimFunc {
    let mut any = false;
    func.body.walk_exprs(&mut |expr| any |= renormalized(expr).is_some());
    if !any {
        return func;
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, crate::tir::Stmt::nop());
    data.body =
        body.map_exprs(&mut |expr| expr.rewrite(&mut |expr| renormalized(&expr).unwrap_or(expr)));
    func
}

fn renormalized(expr: &PrimExpr) -> Option<PrimExpr> {
    let PrimExpr::Binary { op: BinaryOp::FloorDiv, lhs, rhs } = expr else { return None };
    let divisor = rhs.as_int().filter(|divisor| *divisor > 0)?;
    let PrimExpr::Binary { op: inner, lhs: whole, rhs: by } = &**lhs else { return None };
    let by = by.as_int().filter(|by| *by > 0)?;
    let constant = |value: i64| PrimExpr::int(value, rhs.dtype()).broadcast_to(rhs.ty().lanes);
    match inner {
        BinaryOp::FloorMod if by % divisor == 0 => {
            let quotient = (**whole).clone().floordiv((**rhs).clone());
            let quotient = renormalized(&quotient).unwrap_or(quotient);
            Some(quotient.floormod(constant(by / divisor)))
        }
        BinaryOp::FloorDiv => {
            let product = by.checked_mul(divisor).filter(|product| {
                rhs.dtype().int_range().is_some_and(|(_, last)| i128::from(*product) <= last)
            })?;
            Some((**whole).clone().floordiv(constant(product)))
        }
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::FloorMod
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::parse;

    #[test]
    fn quotients_come_before_remainders() {
        let text = |value: &str| {
            format!("prim_func @f(y: output int64[8], n: dim) {{\n  y[0] = {value}\n}}\n")
        };
        for (before, after) in [
            ("floordiv(floormod(n, 64), 4)", "floormod(floordiv(n, 4), 16)"),
            ("floordiv(floormod(floordiv(n, 2), 64), 4)", "floormod(floordiv(n, 8), 16)"),
            ("floordiv(floordiv(n, 3), 5)", "floordiv(n, 15)"),
            ("floordiv(floormod(n, 6), 4)", "floordiv(floormod(n, 6), 4)"),
        ] {
            let func = parse(&text(before)).unwrap();
            let changed =
                RenormalizeSplitPattern.run_on_prim_func(func.clone(), &PassContext::default());
            let changed = changed.unwrap();
            assert_eq!(changed.to_string(), text(after));
            assert_eq!(changed.same(&func), before == after);
        }
    }
}
