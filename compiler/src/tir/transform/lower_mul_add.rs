//! Multiplications and additions where the target cannot fuse them.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::transform::UnrollLoop;
use crate::tir::{PrimExpr, PrimFunc};

/// Makes fused multiply-adds two operations if the target has none.
///
/// The reverse is never done, here or by a code generator: an operator's own definition says which
/// products are added in one rounding, so that results do not depend on what is fused into a kernel.
#[prim_func_pass(opt_level = 0, name = "tir.LowerMulAdd", after = [UnrollLoop], crate = crate)]
pub fn lower_mul_add(func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    if cx.target().has_fma() {
        return func;
    }
    func.map_body(|body| body.map_exprs(&mut |expr| expr.rewrite(&mut expand)))
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
        let fused_sum = PrimExpr::mul_add(a, b, c);
        let body = |value: &PrimExpr| func.store(y, [0], value.clone());
        let run = |value: &PrimExpr, target: &Target| {
            let mut func = func.clone();
            func.body = body(value);
            let cx = PassContext::builder().target(target.clone()).build().unwrap();
            LowerMulAdd.run_on_prim_func(PrimFunc::new(func), &cx).unwrap().body.clone()
        };
        assert_eq!(run(&fused_sum, &with_fma), body(&fused_sum));
        assert_eq!(run(&sum, &with_fma), body(&sum));
        assert_eq!(run(&fused_sum, &without), body(&sum));
        assert_eq!(run(&sum, &without), body(&sum));

        let mut fused = func.clone();
        fused.body = body(&fused_sum);
        let fused = PrimFunc::new(fused);
        let cx = PassContext::builder().target(with_fma.clone()).build().unwrap();
        assert!(LowerMulAdd.run_on_prim_func(fused.clone(), &cx).unwrap().same(&fused));
    }
}
