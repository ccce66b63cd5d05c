//! Safe loads in vector selects.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::access::{Ranges, is_inside};
use crate::tir::{BinaryOp, PrimExpr, PrimFunc, PrimFuncData};

/// Makes vector selects safe whose branches may load from outside of a buffer.
///
/// A vector select evaluates both sides, so its condition guards nothing: see [`PrimExpr::Select`].
/// If the ranges of the loops do not prove that a load on one side is inside its buffer, each lane
/// for which the other side is chosen loads the first element instead. That turns the load into one
/// of single elements, so other loads stay as they are. Scalar selects evaluate one side and are
/// safe.
#[prim_func_pass(opt_level = 0, name = "tir.RewriteUnsafeSelect", crate = crate)]
pub fn rewrite_unsafe_select(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let mut any = false;
    func.body.walk_exprs(&mut |expr| {
        any |= matches!(expr, PrimExpr::Select { cond, .. } if !cond.ty().is_scalar());
    });
    if !any {
        return func;
    }
    let before = func.clone();
    let data = &*before;
    func.map_body(|mut body| {
        Ranges::of(data).visit(&mut body, &mut |ranges, stmt| {
            stmt.for_each_expr_mut(&mut |expr| {
                let taken = std::mem::replace(expr, PrimExpr::index(0));
                *expr = Rewriter { data, ranges }.expr(taken, None);
            });
        });
        body
    })
}

struct Rewriter<'a> {
    data: &'a PrimFuncData,
    ranges: &'a Ranges,
}

impl Rewriter<'_> {
    /// `guard` has the lanes for which the value is chosen; `None` for all lanes.
    fn expr(&self, expr: PrimExpr, guard: Option<&PrimExpr>) -> PrimExpr {
        match expr {
            PrimExpr::Select { cond, then, otherwise } if !cond.ty().is_scalar() => {
                let cond = self.expr(*cond, guard);
                let chosen = |part: PrimExpr| match guard {
                    Some(guard) => at_lanes(guard, part.ty().lanes).and(part),
                    None => part,
                };
                let then = self.expr(*then, Some(&chosen(cond.clone())));
                let otherwise = self.expr(*otherwise, Some(&chosen(!cond.clone())));
                PrimExpr::select(cond, then, otherwise)
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                let mut indices: Vec<_> =
                    indices.into_iter().map(|index| self.expr(index, guard)).collect();
                if let Some(guard) = guard
                    && !is_inside(&self.data.buffers[buffer], &indices, self.ranges)
                {
                    for index in &mut indices {
                        let (lanes, first) = (index.ty().lanes, PrimExpr::zero(index.ty()));
                        let taken = std::mem::replace(index, PrimExpr::index(0));
                        *index = PrimExpr::select(at_lanes(guard, lanes), taken, first);
                    }
                }
                PrimExpr::Load { buffer, dtype, indices }
            }
            other => other.map_children(&mut |child| self.expr(child, guard)),
        }
    }
}

/// A guard for a value of other lanes, such as a scalar that all lanes share: whether any lane is
/// chosen.
fn at_lanes(guard: &PrimExpr, lanes: u32) -> PrimExpr {
    let own = guard.ty().lanes;
    if own == lanes {
        return guard.clone();
    }
    let any = if own.is_power_of_two() {
        guard.clone().vector_reduce(BinaryOp::Or)
    } else {
        let lanes = (1..own).map(|lane| guard.lane_expr(lane));
        lanes.fold(guard.lane_expr(0), |any, lane| PrimExpr::binary(BinaryOp::Or, any, lane))
    };
    any.broadcast_to(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{interpret, parse};

    const GATHER: &str = r#"prim_func @gather(x: input float32[8], k: input int32[4], y: output float32[4]) {
  y[ramp(0, 1, 4)] = select(k[ramp(0, 1, 4)] >= broadcast(int32(0), 4), x[cast<int64>(k[ramp(0, 1, 4)])] + broadcast(x[cast<int64>(k[3])], 4), x[ramp(4, 1, 4)])
}
"#;

    #[test]
    fn only_chosen_lanes_load_from_their_own_index() {
        let func = parse(GATHER).unwrap();
        let x: Vec<u8> = (0..8).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let indices = |values: [i32; 4]| values.into_iter().flat_map(i32::to_le_bytes).collect();
        let run = |func: &PrimFunc, k: Vec<u8>| {
            let mut args = [x.clone(), k, vec![0; 16]];
            interpret(func, &mut args, &[]).map(|()| args[2].clone())
        };
        let safe =
            RewriteUnsafeSelect.run_on_prim_func(func.clone(), &PassContext::default()).unwrap();
        let inside: Vec<u8> = indices([3, 1, 0, 7]);
        assert_eq!(run(&safe, inside.clone()), run(&func, inside));
        for outside in [[3, -1, 0, 7], [-5, -1, -9, -2]] {
            run(&func, indices(outside)).unwrap_err();
            let result = run(&safe, indices(outside)).unwrap();
            let expected = outside.iter().enumerate().map(|(lane, &k)| match k {
                0.. => (k + 7) as f32,
                _ => (4 + lane) as f32,
            });
            let expected: Vec<u8> = expected.flat_map(f32::to_le_bytes).collect();
            assert_eq!(result, expected);
        }
    }
}
