//! Unrolling of loops.

use std::collections::BTreeMap;

use crate::ir::IRModule;
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::transform::VectorizeLoop;
use crate::tir::{ForKind, PrimExpr, PrimFunc, Stmt};

/// Most iterations that are written out; a longer loop stays a serial one.
///
/// Schedules unroll register tiles of up to 32 accumulators and the taps of a kernel; beyond, the
/// code no longer fits the instruction cache.
const MAX_UNROLLED_ITERATIONS: i64 = 256;

/// Writes out `unrolled` loops of constant extent, innermost first.
#[prim_func_pass(opt_level = 0, name = "tir.UnrollLoop", after = [VectorizeLoop], crate = crate)]
pub fn unroll_loop(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> Result<PrimFunc> {
    let mut any = false;
    func.body.walk(&mut |stmt| {
        any |= matches!(stmt, Stmt::For { kind: ForKind::Unrolled, .. });
    });
    if !any {
        return Ok(func);
    }
    let mut dynamic = None;
    let data = func.make_mut();
    let vars = &data.vars;
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let body = body.rewrite(&mut |stmt| match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Unrolled, annotations, body } => {
            match extent.as_int() {
                Some(count) if count <= MAX_UNROLLED_ITERATIONS => Stmt::seq((0..count).map(|i| {
                    let value = BTreeMap::from([(var, min.clone() + PrimExpr::index(i))]);
                    refold((*body).clone().substitute(&value))
                })),
                Some(_) => Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body },
                None => {
                    dynamic = Some(vars[var].name.clone());
                    Stmt::nop()
                }
            }
        }
        other => other,
    });
    data.body = body;
    match dynamic {
        None => Ok(func),
        Some(var) => Err(format!("the unrolled loop over `{var}` has no constant extent").into()),
    }
}

/// Folds constants that substitution made, so that copies do not grow.
fn refold(stmt: Stmt) -> Stmt {
    stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Binary { op, lhs, rhs } => PrimExpr::binary(op, *lhs, *rhs),
            other => other,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::PrimFuncData;

    #[test]
    fn nested_loops_become_one_sequence() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[6]));
        func.body = func.for_("i", 2, ForKind::Unrolled, |f, i| {
            f.for_("j", 3, ForKind::Unrolled, |f, j| {
                let at = i.clone() * 3 + j;
                f.store(y, [at.clone()], at)
            })
        });
        let func =
            UnrollLoop.run_on_prim_func(PrimFunc::new(func), &PassContext::default()).unwrap();
        let expected: Vec<_> =
            (0..6).map(|i| func.store(y, [PrimExpr::index(i)], PrimExpr::index(i))).collect();
        assert_eq!(func.body, Stmt::Seq(expected));
    }
}
