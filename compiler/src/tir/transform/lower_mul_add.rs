//! Fused multiply-add where the target has it.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::transform::UnrollLoop;
use crate::tir::{BinaryOp, PrimExpr, PrimFunc};

/// Makes sums of a float and a product fused operations, or the reverse if the target has none.
///
/// These are `a * b + c`, `a * b - c` and `c - a * b`.
/// This is the one place where sums and products are contracted; code generators never do it.
#[prim_func_pass(opt_level = 0, name = "tir.LowerMulAdd", after = [UnrollLoop], crate = crate)]
pub fn lower_mul_add(func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let fused = cx.target().has_fma();
    func.map_body(|body| {
        body.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| if fused { contract(expr) } else { expand(expr) })
        })
    })
}

fn contract(expr: PrimExpr) -> PrimExpr {
    let PrimExpr::Binary { op, lhs, rhs } = expr else { return expr };
    let is_product = |side: &PrimExpr| matches!(side, PrimExpr::Binary { op: BinaryOp::Mul, .. });
    let has_fused = matches!(lhs.dtype(), crate::ir::DType::F32 | crate::ir::DType::F64);
    if !has_fused || !matches!(op, BinaryOp::Add | BinaryOp::Sub) {
        return PrimExpr::Binary { op, lhs, rhs };
    }
    let subtract = op == BinaryOp::Sub;
    match (*lhs, *rhs) {
        (PrimExpr::Binary { op: BinaryOp::Mul, lhs: a, rhs: b }, c) => {
            PrimExpr::mul_add(*a, *b, if subtract { -c } else { c })
        }
        (c, product) if is_product(&product) => match product {
            PrimExpr::Binary { lhs: a, rhs: b, .. } => {
                PrimExpr::mul_add(if subtract { -*a } else { *a }, *b, c)
            }
            other => PrimExpr::Binary { op, lhs: Box::new(c), rhs: Box::new(other) },
        },
        (lhs, rhs) => PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) },
    }
}

fn expand(expr: PrimExpr) -> PrimExpr {
    match expr {
        PrimExpr::MulAdd { a, b, c } => *a * *b + *c,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::target::Target;
    use crate::tir::PrimFuncData;

    #[test]
    fn the_target_decides() {
        let mut host = Target::host();
        host.arch = "x86_64".to_owned();
        let with_fma = host.clone().with_cpu("x86-64-v3").unwrap();
        let without = host.with_cpu("x86-64").unwrap();

        let mut func = PrimFuncData::new("f");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[3]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        let [a, b, c] = [0, 1, 2].map(|i| func.load(x, [i]));
        let sum = a.clone() * b.clone() + c.clone();
        let difference = c.clone() - a.clone() * b.clone();
        let fused_sum = PrimExpr::mul_add(a.clone(), b.clone(), c.clone());
        let fused_difference = PrimExpr::mul_add(-a, b, c);
        let body = |value: &PrimExpr| func.store(y, [0], value.clone());
        let run = |value: &PrimExpr, target: &Target| {
            let mut func = func.clone();
            func.body = body(value);
            let cx = PassContext::builder().target(target.clone()).build().unwrap();
            LowerMulAdd.run_on_prim_func(PrimFunc::new(func), &cx).unwrap().body.clone()
        };
        assert_eq!(run(&sum, &with_fma), body(&fused_sum));
        assert_eq!(run(&difference, &with_fma), body(&fused_difference));
        assert_eq!(run(&fused_sum, &without), body(&sum));
        assert_eq!(run(&sum, &without), body(&sum));

        let mut fused = func.clone();
        fused.body = body(&fused_sum);
        let fused = PrimFunc::new(fused);
        let cx = PassContext::builder().target(with_fma.clone()).build().unwrap();
        assert!(LowerMulAdd.run_on_prim_func(fused.clone(), &cx).unwrap().same(&fused));
    }
}
