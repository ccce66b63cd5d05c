//! Checks of indices at run time.

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::print::expr_text;
use crate::tir::{BufferId, BufferScope, CompareOp, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

crate::register_pass_config_option! {
    /// Whether generated code checks every index, at the cost of speed.
    pub INSTRUMENT_BOUND_CHECKERS: bool = "tir.instrument_bound_checkers";
}

/// Asserts in front of every statement that the indices in it are inside their buffers.
///
/// An access behind the guard of a scalar select is checked under that guard. Registers are not
/// checked, because their indices are constant, and prefetches are not, because they may be
/// anywhere.
#[prim_func_pass(opt_level = 0, name = "tir.InstrumentBoundCheckers", crate = crate)]
pub fn instrument_bound_checkers(
    mut func: PrimFunc,
    _module: &IRModule,
    cx: &PassContext,
) -> PrimFunc {
    if !cx.get(&INSTRUMENT_BOUND_CHECKERS) {
        return func;
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.rewrite(&mut |stmt| check(data, stmt));
    func
}

/// The statement after its checks.
fn check(data: &mut PrimFuncData, stmt: Stmt) -> Stmt {
    let mut checks = Checks { data, found: Vec::new() };
    stmt.for_each_expr(&mut |expr| checks.expr(expr));
    if let Stmt::Store { buffer, indices, value: _ } = &stmt {
        checks.access("stored to", *buffer, indices);
    }
    let mut asserts: Vec<Stmt> = Vec::new();
    for (cond, message) in checks.found {
        let assert = Stmt::Assert { cond, message };
        if !asserts.contains(&assert) {
            asserts.push(assert);
        }
    }
    Stmt::seq(asserts.into_iter().chain([stmt]))
}

/// What the message of every check says.
const OUTSIDE: &str = " outside ";

/// Whether an assertion with this message may be a check of an index.
pub(crate) fn is_bound_check(message: &str) -> bool {
    message.contains(OUTSIDE)
}

struct Checks<'a> {
    data: &'a mut PrimFuncData,
    /// The conditions with their messages, in the order of evaluation.
    found: Vec<(PrimExpr, String)>,
}

impl Checks<'_> {
    fn expr(&mut self, expr: &PrimExpr) {
        match expr {
            PrimExpr::Load { buffer, dtype: _, indices } => {
                indices.iter().for_each(|index| self.expr(index));
                self.access("loaded from", *buffer, indices);
            }
            PrimExpr::Select { cond, then, otherwise } if cond.ty().is_scalar() => {
                self.expr(cond);
                self.under(then, |holds| PrimExpr::select((**cond).clone(), holds, true_()));
                self.under(otherwise, |holds| PrimExpr::select((**cond).clone(), true_(), holds));
            }
            PrimExpr::Let { var, value, body } => {
                self.expr(value);
                let before = self.found.len();
                self.expr(body);
                for position in before..self.found.len() {
                    if self.found[position].0.uses(*var) {
                        self.name(position, *var, value);
                    }
                }
            }
            other => other.for_each_child(&mut |child| self.expr(child)),
        }
    }

    /// The checks of an expression that is evaluated under a condition.
    fn under(&mut self, expr: &PrimExpr, guarded: impl Fn(PrimExpr) -> PrimExpr) {
        let before = self.found.len();
        self.expr(expr);
        for (cond, _) in &mut self.found[before..] {
            let holds = std::mem::replace(cond, true_());
            *cond = guarded(holds);
        }
    }

    /// Binds the name that a check uses, as a new variable.
    fn name(&mut self, position: usize, var: VarId, value: &PrimExpr) {
        let fresh = self.data.vars.push(self.data.vars[var].clone());
        let using = PrimExpr::Var { var: fresh, ty: value.ty() };
        let cond = &mut self.found[position].0;
        let body = std::mem::replace(cond, true_()).substitute(&[(var, using)].into());
        *cond = PrimExpr::Let { var: fresh, value: Box::new(value.clone()), body: Box::new(body) };
    }

    fn access(&mut self, what: &str, id: BufferId, indices: &[PrimExpr]) {
        let buffer = &self.data.buffers[id];
        if buffer.scope == BufferScope::Register {
            return;
        }
        for (axis, index) in indices.iter().enumerate() {
            let (start, end) = match &buffer.symbolic {
                Some(extents) => (0, extents.get(axis).cloned().unwrap_or(PrimExpr::index(0))),
                None => {
                    let allowed = buffer.spec.addressable_range(axis);
                    (allowed.start, allowed.end.into())
                }
            };
            let last = expr_text(self.data, &(end.clone() - 1));
            let mut message = format!("`{}` is {what}{OUTSIDE}{start} to {last}", buffer.name);
            if indices.len() > 1 {
                message.push_str(&format!(" of axis {axis}"));
            }
            for index in extremes(index) {
                // The bounds may exceed a narrow index.
                let index = index.cast(DType::I64);
                let low = PrimExpr::compare(CompareOp::Ge, index.clone(), start.into());
                let high = PrimExpr::compare(CompareOp::Lt, index, end.clone());
                self.found.push((low.and(high), message.clone()));
            }
        }
    }
}

fn true_() -> PrimExpr {
    PrimExpr::bool(true)
}

/// Scalars whose range is that of all lanes of an index.
fn extremes(index: &PrimExpr) -> Vec<PrimExpr> {
    match index {
        _ if index.ty().is_scalar() => vec![index.clone()],
        // The first and the last lane are the least and the greatest.
        PrimExpr::Ramp { lanes, .. } => vec![index.lane_expr(0), index.lane_expr(lanes - 1)],
        PrimExpr::Broadcast { value, .. } => vec![(**value).clone()],
        other => (0..other.ty().lanes).map(|lane| other.lane_expr(lane)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{interpret, parse, verify};

    #[test]
    fn no_access_outside_a_buffer_passes_the_checks() {
        let checked = |statement: &str| {
            let func = parse(&format!(
                "prim_func @f(x: input float32[4, 8], k: input int64[4], y: output float32[8], n: dim) \
                 {{ {statement} }}"
            ));
            let cx =
                PassContext::builder().config(&INSTRUMENT_BOUND_CHECKERS, true).build().unwrap();
            let func = InstrumentBoundCheckers.run_on_prim_func(func.unwrap(), &cx).unwrap();
            verify(&func).unwrap();
            move |n: i64| {
                let k = [3i64, -1, 100, 2].into_iter().flat_map(i64::to_le_bytes).collect();
                let mut args = [vec![0; 128], k, vec![0; 32]];
                interpret(&func, &mut args, &[n]).map_err(|error| error.message)
            }
        };
        let store = checked("y[n] = 1.0");
        assert_eq!((store(0), store(7)), (Ok(()), Ok(())));
        assert_eq!(store(8).unwrap_err(), "`y` is stored to outside 0 to 7");
        let load = checked("y[0] = x[n, 2] + x[3, n]");
        assert_eq!(load(3), Ok(()));
        assert_eq!(load(4).unwrap_err(), "`x` is loaded from outside 0 to 3 of axis 0");
        let guarded = checked("y[0] = select(n < 4, x[n, 2], select(n < 6, x[0, n], 0.0))");
        assert_eq!((guarded(3), guarded(5), guarded(9)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(guarded(-1).unwrap_err(), "`x` is loaded from outside 0 to 3 of axis 0");
        let vector = checked("y[ramp(n, 1, 4)] = x[0, ramp(n * 2, 2, 4)]");
        assert_eq!(vector(0), Ok(()));
        assert_eq!(vector(1).unwrap_err(), "`x` is loaded from outside 0 to 7 of axis 1");
        let gather = checked("y[ramp(0, 1, 2)] = x[k[ramp(n, 3, 2)], 0]");
        assert_eq!(gather(0), Ok(()));
        assert_eq!(gather(1).unwrap_err(), "`k` is loaded from outside 0 to 3");
        let indirect = checked("y[k[n]] = (let at = k[n] in x[at, at * at])");
        assert_eq!(indirect(3), Ok(()));
        assert_eq!(indirect(0).unwrap_err(), "`x` is loaded from outside 0 to 7 of axis 1");
        assert_eq!(indirect(2).unwrap_err(), "`x` is loaded from outside 0 to 3 of axis 0");
        assert_eq!(indirect(4).unwrap_err(), "`k` is loaded from outside 0 to 3");
    }
}
