//! What the readers of tensors ask of them.

use cranelift_entity::SecondaryMap;

use crate::graph::{Call, Callee, Expr, ExprId, Function};
use crate::ir::GlobalVar;

/// What readers ask of a tensor; the default is what is asked of one that nothing reads.
pub(crate) trait Demand: Clone + Default {
    /// What `self` and another reader ask for together.
    fn merge(&mut self, other: &Self);
}

/// What is asked of each tensor of each expression, the fields of tuples one by one. `of_arg` says
/// what a call asks of the tensor of that number among its arguments, tuples flattened; what else
/// takes a tensor, such as the caller of the function, asks for `otherwise`.
pub(crate) fn demands<D: Demand>(
    function: &Function,
    of_arg: impl Fn(&Call, usize) -> D,
    otherwise: &D,
) -> SecondaryMap<ExprId, Vec<D>> {
    let mut demands: SecondaryMap<ExprId, Vec<D>> = SecondaryMap::new();
    for id in function.ids() {
        let count = function.ty(id).as_tuple().map_or(1, <[_]>::len);
        demands[id] = vec![D::default(); count];
    }
    let merge = |demands: &mut [D], field: usize, other: &D| {
        if let Some(demand) = demands.get_mut(field) {
            demand.merge(other);
        }
    };
    let inner = function.iter().flat_map(|(_, data)| data.expr.scopes());
    for scope in inner.chain([function.body()]) {
        let result = function.scope(scope).result;
        demands[result].iter_mut().for_each(|demand| demand.merge(otherwise));
    }
    // Users come after what they use, so demands are complete when they are handed on.
    for id in function.ids().rev() {
        match function.expr(id) {
            Expr::Tuple(fields) => {
                for (position, &field) in fields.iter().enumerate() {
                    let demand = demands[id].get(position).cloned().unwrap_or_default();
                    merge(&mut demands[field], 0, &demand);
                }
            }
            Expr::TupleGet { tuple, index } => {
                let demand = demands[id].first().cloned().unwrap_or_default();
                merge(&mut demands[*tuple], *index as usize, &demand);
            }
            Expr::Call(call) => {
                let args = call.args.iter().flatten();
                let fields = args.flat_map(|&arg| (0..demands[arg].len()).map(move |f| (arg, f)));
                for (position, (arg, field)) in fields.collect::<Vec<_>>().into_iter().enumerate() {
                    merge(&mut demands[arg], field, &of_arg(call, position));
                }
            }
            Expr::While(loops) => {
                for &init in &loops.init {
                    demands[init].iter_mut().for_each(|demand| demand.merge(otherwise));
                }
            }
            Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) | Expr::If(_) | Expr::Func(_) => {
            }
        }
    }
    demands
}

/// The global that a call calls.
pub(crate) fn called<'a>(function: &'a Function, call: &Call) -> Option<&'a GlobalVar> {
    let Callee::Expr(callee) = call.callee else { return None };
    if let Expr::GlobalVar(global) = function.expr(callee) { Some(global) } else { None }
}
