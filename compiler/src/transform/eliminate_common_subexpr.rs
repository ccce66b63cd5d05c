//! Common subexpressions.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;

use crate::graph::{Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId};
use crate::ir::IRModule;
use crate::ops::Effect;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Computes equal calls of operators once.
///
/// Calls are equal if operator, attributes and arguments are. Constants are the same argument if
/// they are the same expression or equal scalars: comparing weights would cost more than it gains.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn eliminate_common_subexpr(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let before = function.len();
    let function = eliminate_common_subexpr_except(function, |_, _| false)?;
    cx.count("shared calls", before.saturating_sub(function.len()) as u64);
    Ok(function)
}

/// [`eliminate_common_subexpr`], but for expressions that `skip` chooses: those are neither
/// replaced, nor do they replace others. `skip` sees the rewritten operands.
///
/// # Errors
///
/// If the function does not type.
pub fn eliminate_common_subexpr_except(
    function: Function,
    mut skip: impl FnMut(&FunctionBuilder, &Expr) -> bool,
) -> Result<Function> {
    let mut rewriter = Rewriter::new(function);
    // Expressions of the new function by the hash of what they are; those whose operands are the
    // same but for scalars and tuples are looked at one by one.
    let mut seen: IndexMap<u64, Vec<(Expr, ExprId)>> = IndexMap::new();
    // For scalars and tuples of the new function, the first equal one.
    let mut first: SecondaryMap<ExprId, Option<ExprId>> = SecondaryMap::new();
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        let expr = old.expr(id).map(|operand| rewriter.mapped(operand), |scope| scope);
        let Some(kind) = kind_of(&expr) else { continue };
        if kind == Kind::Shared && skip(rewriter.builder(), &expr) {
            continue;
        }
        let key = expr.map(|operand| first[operand].unwrap_or(operand), |scope| scope);
        let hash = hash_of(&key);
        let same = seen.get(&hash).into_iter().flatten().find(|(other, other_id)| {
            *other == key && encloses(&old, &mut rewriter, *other_id, old.data_of(id).scope)
        });
        match (kind, same.map(|(_, id)| *id)) {
            (Kind::Shared, Some(same)) => {
                // The name of the first one stays.
                rewriter.unbind(id);
                rewriter.replace(same);
            }
            (Kind::Compared, Some(same)) => {
                // Stays, but counts as the first one where it is used.
                let copy = rewriter.copy()?;
                first[copy] = Some(same);
            }
            (Kind::Shared | Kind::Compared, None) => {
                let copy = rewriter.copy()?;
                seen.entry(hash).or_default().push((key, copy));
            }
        }
    }
    Ok(rewriter.finish()?)
}

/// What is done with an expression that occurred before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is replaced by the first one.
    Shared,
    /// It stays, but what uses it is compared as if it used the first one.
    Compared,
}

fn kind_of(expr: &Expr) -> Option<Kind> {
    match expr {
        Expr::Call(call) => match call.callee {
            Callee::Op(op) => {
                let shared = op.effect == Effect::Pure && call.args.iter().any(Option::is_some);
                shared.then_some(Kind::Shared)
            }
            Callee::Expr(_) => None,
        },
        Expr::TupleGet { .. } => Some(Kind::Shared),
        Expr::Tuple(_) => Some(Kind::Compared),
        Expr::Constant(constant) => (constant.ty().shape.rank() == 0).then_some(Kind::Compared),
        Expr::Var(_) | Expr::GlobalVar(_) | Expr::If(_) | Expr::While(_) | Expr::Func(_) => None,
    }
}

fn hash_of(expr: &Expr) -> u64 {
    // Fixed keys: the same in every run.
    let mut hasher = DefaultHasher::new();
    expr.hash(&mut hasher);
    hasher.finish()
}

/// Whether an expression of the new function stands in `scope` or in one around it.
fn encloses(old: &Function, rewriter: &mut Rewriter, new: ExprId, scope: ScopeId) -> bool {
    let target = rewriter.builder().data_of(new).scope;
    let mut scope = Some(scope);
    while let Some(current) = scope {
        if current == target {
            return true;
        }
        scope = old.scope(current).parent;
    }
    false
}
