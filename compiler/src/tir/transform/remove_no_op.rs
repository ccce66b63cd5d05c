//! Removal of statements that do nothing.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{PrimFunc, Stmt};

/// Drops empty loops, branches and blocks, unused names and untouched buffers.
#[prim_func_pass(opt_level = 0, name = "tir.RemoveNoOp", crate = crate)]
pub fn remove_no_op(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.rewrite(&mut |stmt| match stmt {
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        Stmt::For { ref body, .. } | Stmt::Block { ref body, .. } if body.is_nop() => Stmt::nop(),
        Stmt::If { cond, then, otherwise } => {
            let otherwise = otherwise.filter(|stmt| !stmt.is_nop());
            match otherwise {
                None if then.is_nop() => Stmt::nop(),
                Some(otherwise) if then.is_nop() => Stmt::if_then(!cond, *otherwise),
                otherwise => Stmt::If { cond, then, otherwise },
            }
        }
        Stmt::Allocate { buffer, body } if !body.touches(buffer) => *body,
        Stmt::Let { var, value, body } => {
            let mut used = false;
            body.walk_exprs(&mut |expr| {
                used |= matches!(expr, crate::tir::PrimExpr::Var { var: v, .. } if *v == var);
            });
            if used { Stmt::Let { var, value, body } } else { *body }
        }
        other => other,
    });
    func
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::{PrimExpr, PrimFuncData};

    #[test]
    fn only_what_has_an_effect_stays() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        let scratch = func.local("scratch", DType::F32, BufferSpec::dense(&[4]));
        let unused = func.var("unused", DType::F32);
        let n = func.dim("n");
        let store = func.store(y, [0], PrimExpr::f32(1.0));
        let empty = func.serial("i", n.clone(), |_, _| Stmt::Seq(vec![Stmt::nop()]));
        let cond = n.clone().less(3);
        func.body = Stmt::allocate(
            scratch,
            Stmt::Seq(vec![
                empty,
                Stmt::let_(
                    unused,
                    PrimExpr::f32(2.0),
                    Stmt::if_then_else(cond.clone(), Stmt::nop(), store.clone()),
                ),
            ]),
        );
        let func =
            RemoveNoOp.run_on_prim_func(PrimFunc::new(func), &PassContext::default()).unwrap();
        assert_eq!(func.body, Stmt::if_then(!cond, store));
    }
}
