//! Lowering of the blocks that schedules move.

use std::collections::BTreeMap;

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BlockRealize, ForKind, IterKind, PrimExpr, PrimFunc, Stmt};

/// Replaces block variables by their values, and puts conditions around blocks and inits.
///
/// A block runs under its predicate, its init only where each reduction begins.
#[prim_func_pass(opt_level = 0, name = "tir.LowerBlocks", crate = crate)]
pub fn lower_blocks(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let mut any = false;
    func.body.walk(&mut |stmt| any |= matches!(stmt, Stmt::BlockRealize(_)));
    if !any {
        return func;
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.rewrite(&mut |stmt| match stmt {
        Stmt::BlockRealize(block) => lower(*block),
        // One name for all copies.
        Stmt::For { var, min, extent, kind, annotations, body }
            if matches!(kind, ForKind::Unrolled | ForKind::Vectorized) =>
        {
            let around = |body| Stmt::For { var, min, extent, kind, annotations, body };
            match *body {
                Stmt::Block { name, body } => Stmt::block(name, around(body)),
                body => around(Box::new(body)),
            }
        }
        other => other,
    });
    func
}

fn lower(block: BlockRealize) -> Stmt {
    let BlockRealize { name, iters, predicate, annotations: _, init, body } = block;
    let is_first = iters
        .iter()
        .filter(|iter| iter.kind == IterKind::Reduce)
        .map(|iter| iter.value.clone().equal(0))
        .fold(PrimExpr::bool(true), |all, first| match all.as_int() {
            Some(1) => first,
            _ => all.and(first),
        });
    let values: BTreeMap<_, _> = iters.into_iter().map(|iter| (iter.var, iter.value)).collect();
    let init = init.map(|init| conditional(is_first, init.substitute(&values)));
    let body = Stmt::seq(init.into_iter().chain([body.substitute(&values)]));
    conditional(predicate, Stmt::block(name, body))
}

fn conditional(cond: PrimExpr, stmt: Stmt) -> Stmt {
    match cond.as_int() {
        Some(1) => stmt,
        Some(_) => Stmt::nop(),
        None => Stmt::if_then(cond, stmt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{interpret, parse, verify};

    const SUM: &str = r#"prim_func @sum(x: input float32[3, 5], y: output float32[3]) {
  for i in serial(3) {
    for ko in serial(2) {
      for ki in serial(3) {
        block "sum"(vi: spatial(3) = i, vk: reduce(5) = ko * 3 + ki) where ko * 3 + ki < 5 {
          init {
            y[vi] = 0.0
          }
          y[vi] = y[vi] + x[vi, vk]
        }
      }
    }
  }
}
"#;

    #[test]
    fn a_reduction_begins_once_and_ends_at_its_extent() {
        let func = parse(SUM).unwrap();
        assert_eq!(func.to_string(), SUM);
        verify(&func).unwrap();
        let lowered = LowerBlocks.run_on_prim_func(func.clone(), &PassContext::default()).unwrap();
        verify(&lowered).unwrap();
        for func in [func, lowered] {
            let x: Vec<u8> = (0..15u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
            let mut args = [x, vec![0; 12]];
            interpret(&func, &mut args, &[]).unwrap();
            let sums: Vec<f32> =
                args[1].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            assert_eq!(sums, [10.0, 35.0, 60.0]);
        }
    }
}
