//! Conversion to single assignment.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::copy::{Bound, Renamer};
use crate::tir::{PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Binds every variable and every local buffer in one place only.
///
/// Copies of a statement, for example from unrolling, bind the same names again, which is well
/// formed as long as their scopes are disjoint. Passes that move statements into each other need
/// unique names.
#[prim_func_pass(opt_level = 0, name = "tir.ConvertSSA", crate = crate)]
pub fn convert_ssa(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    if is_ssa(&func) {
        return func;
    }
    let data = func.make_mut();
    let mut body = std::mem::replace(&mut data.body, Stmt::nop());
    let bound = Bound::outside(data);
    Renamer::new(data, Some(bound)).stmt(&mut body);
    data.body = body;
    func
}

/// Whether every variable and every local buffer is bound in one place at most.
pub(crate) fn is_ssa(func: &PrimFuncData) -> bool {
    let mut bound = Bound::outside(func);
    let mut once = true;
    func.body.walk(&mut |stmt| match stmt {
        Stmt::For { var, .. } | Stmt::Let { var, .. } => once &= bound.vars.insert(*var),
        Stmt::Allocate { buffer, .. } => once &= bound.buffers.insert(*buffer),
        Stmt::BlockRealize(block) => {
            block.iters.iter().for_each(|iter| once &= bound.vars.insert(iter.var));
        }
        Stmt::Seq(_)
        | Stmt::Block { .. }
        | Stmt::Store { .. }
        | Stmt::If { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. } => {}
    });
    func.body.walk_exprs(&mut |expr| {
        if let PrimExpr::Let { var, .. } = expr {
            once &= bound.vars.insert(*var);
        }
    });
    once
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::verify;

    #[test]
    fn names_bound_twice_are_renamed() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[8]));
        let scratch = func.local("scratch", DType::I64, BufferSpec::dense(&[1]));
        let step = func.serial("i", 4, |f, i| {
            let value = f.let_expr("t", i.clone() * 3, |_, t| t.clone() * t);
            let fill = f.store(scratch, [0], value);
            let read = f.store(y, [i], f.load(scratch, [0]));
            Stmt::allocate(scratch, Stmt::seq([fill, read]))
        });
        func.body = Stmt::Seq(vec![step.clone(), step]);
        let func = PrimFunc::new(func);
        assert!(!is_ssa(&func));
        verify(&func).unwrap();
        let cx = PassContext::default();
        let ssa = ConvertSsa.run_on_prim_func(func.clone(), &cx).unwrap();
        assert!(is_ssa(&ssa));
        verify(&ssa).unwrap();
        assert_eq!(ssa.vars.len(), func.vars.len() + 2);
        assert_eq!(ssa.buffers.len(), func.buffers.len() + 1);
        assert!(ssa.structural_eq(&func));
        assert!(ConvertSsa.run_on_prim_func(ssa.clone(), &cx).unwrap().same(&ssa));
    }

    #[test]
    fn a_fresh_copy_shares_no_bound_names() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[4]));
        let step = func.serial("i", 4, |f, i| f.store(y, [i.clone()], i));
        let copy = func.copy_of(&step, &BTreeMap::new());
        assert_ne!(copy, step);
        func.body = Stmt::Seq(vec![step, copy]);
        assert!(is_ssa(&func));
    }
}
