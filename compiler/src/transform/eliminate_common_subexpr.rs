//! Common subexpressions.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;

use crate::graph::{Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId};
use crate::ir::IRModule;
use crate::ops::Op;
use crate::pass::{FunctionPass, PassBody, PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Operators whose calls neither are replaced nor replace others.
    pub FSKIP: Vec<String> = "relay.EliminateCommonSubexpr.fskip";
}

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
    let mut skipped = Vec::new();
    for name in cx.get(&FSKIP).iter() {
        let op = Op::get(name).ok_or_else(|| format!("`{name}` is no operator to skip"))?;
        skipped.push(op);
    }
    let is_skipped = |_: &FunctionBuilder, expr: &Expr| {
        skipped.iter().any(|op| expr.is_call_of(op.definition()))
    };
    eliminate(function, cx, is_skipped)
}

impl EliminateCommonSubexpr {
    /// The pass, except for expressions that `skip` chooses: they neither are replaced nor replace
    /// others. `skip` sees the rewritten operands.
    pub fn except(
        skip: impl Fn(&FunctionBuilder, &Expr) -> bool + Send + Sync + 'static,
    ) -> FunctionPass {
        let info = EliminateCommonSubexpr.info().clone();
        FunctionPass::new(info, move |function: Function, _: &IRModule, cx: &PassContext| {
            match function.attrs().flag("Primitive") {
                true => Ok(function),
                false => eliminate(function, cx, &skip),
            }
        })
    }
}

fn eliminate(
    function: Function,
    cx: &PassContext,
    skip: impl FnMut(&FunctionBuilder, &Expr) -> bool,
) -> Result<Function> {
    let (function, shared) = share(function, skip)?;
    cx.count("shared calls", shared);
    Ok(function)
}

/// [`eliminate_common_subexpr`], except for expressions that `skip` chooses: they neither are
/// replaced nor replace others. `skip` sees the rewritten operands.
///
/// # Errors
///
/// If the function does not type.
pub fn eliminate_common_subexpr_except(
    function: Function,
    skip: impl FnMut(&FunctionBuilder, &Expr) -> bool,
) -> Result<Function> {
    Ok(share(function, skip)?.0)
}

/// The function, and how many calls others have taken the place of.
fn share(
    function: Function,
    mut skip: impl FnMut(&FunctionBuilder, &Expr) -> bool,
) -> Result<(Function, u64)> {
    let mut shared = 0;
    let mut rewriter = Rewriter::new(function);
    // Expressions of the new function by the hash of their contents; expressions whose operands are
    // the same apart from scalars and tuples are compared one by one.
    let mut seen: IndexMap<u64, Vec<(Expr, ExprId)>> = IndexMap::new();
    // For scalars and tuples of the new function, the first equal expression.
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
                // The name of the first expression stays.
                shared += u64::from(matches!(expr, Expr::Call(_)));
                rewriter.unbind(id);
                rewriter.replace(same);
            }
            (Kind::Compared, Some(same)) => {
                // The copy stays, but users are compared as if they used the first expression.
                let copy = rewriter.copy()?;
                first[copy] = Some(same);
            }
            (Kind::Shared | Kind::Compared, None) => {
                let copy = rewriter.copy()?;
                seen.entry(hash).or_default().push((key, copy));
            }
        }
    }
    Ok((rewriter.finish()?, shared))
}

/// The treatment of an expression that has occurred before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first expression replaces it.
    Shared,
    /// It stays, but its users are compared as if they used the first expression.
    Compared,
}

fn kind_of(expr: &Expr) -> Option<Kind> {
    match expr {
        Expr::Call(call) => match call.callee {
            Callee::Op(_) => call.args.iter().any(Option::is_some).then_some(Kind::Shared),
            Callee::Expr(_) => None,
        },
        Expr::TupleGet { .. } => Some(Kind::Shared),
        Expr::Tuple(_) => Some(Kind::Compared),
        Expr::Constant(constant) => (constant.ty().shape.rank() == 0).then_some(Kind::Compared),
        Expr::Var(_) | Expr::GlobalVar(_) | Expr::If(_) | Expr::While(_) | Expr::Func(_) => None,
    }
}

fn hash_of(expr: &Expr) -> u64 {
    // Fixed keys: equal in every run.
    let mut hasher = DefaultHasher::new();
    expr.hash(&mut hasher);
    hasher.finish()
}

/// Whether an expression of the new function is in `scope` or in an enclosing one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ScopeKind;
    use crate::graph::structural_equal;
    use crate::ir::{DType, Type};
    use crate::ops::elementwise::ADD;
    use crate::ops::tensor::ConcatenateAttrs;
    use crate::pass::Pass;
    use crate::transform::tests::support::{Net, after, after_in, count, verifying};

    /// `add(add(relu x, 1), add(relu x, 1))`, with every part twice.
    fn twice(net: &mut Net, x: ExprId) -> ExprId {
        let sums: Vec<ExprId> = (0..2)
            .map(|_| {
                let (relu, one) = (net.op("nn.relu", &[x]), net.scalar(1.0));
                net.op("add", &[relu, one])
            })
            .collect();
        net.op("add", &sums)
    }

    #[test]
    fn equal_calls_become_one() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let y = twice(&mut net, x);
        let function = after(&EliminateCommonSubexpr, net.finish(y));
        assert_eq!((count(&function, "add"), count(&function, "nn.relu")), (2, 1));
    }

    #[test]
    fn skipped_calls_are_neither_replaced_nor_remembered() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let y = twice(&mut net, x);
        let is_add = |_: &FunctionBuilder, expr: &Expr| expr.is_call_of(&ADD);
        let before = net.finish(y);
        let function = eliminate_common_subexpr_except(before.clone(), is_add).unwrap();
        assert_eq!((count(&function, "add"), count(&function, "nn.relu")), (3, 1));
        // The same as a pass that is made in Rust, and by the option.
        let pass = EliminateCommonSubexpr::except(is_add);
        assert_eq!(pass.info().name(), "EliminateCommonSubexpr");
        structural_equal(&after(&pass, before.clone()), &function).unwrap();
        let with = |skipped: &str| {
            let builder = verifying().config(&FSKIP, vec![skipped.to_owned()]);
            builder.build().unwrap()
        };
        let optioned = after_in(&EliminateCommonSubexpr, before.clone(), &with("add"));
        structural_equal(&optioned, &function).unwrap();
        let error = EliminateCommonSubexpr.run(IRModule::from_function(before), &with("ad"));
        assert!(error.unwrap_err().to_string().contains("`ad` is no operator to skip"));
    }

    #[test]
    fn shared_calls_are_counted_and_nothing_else() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        // Dead code is dropped with the rewriting, but was not shared.
        for _ in 0..5 {
            net.op("exp", &[x]);
        }
        let sums = [twice(&mut net, x), twice(&mut net, x)];
        let y = net.0.tuple(&sums);
        let cx = verifying().build().unwrap();
        after_in(&EliminateCommonSubexpr, net.finish(y), &cx);
        // Of ten calls, three are left.
        let statistics = cx.statistics();
        assert_eq!(statistics.values().copied().collect::<Vec<_>>(), [7], "{statistics:?}");
    }

    #[test]
    fn arguments_are_compared_one_by_one() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let c = net.tensor(&[2], 1.0);
        let joined: Vec<ExprId> = (0..2)
            .map(|_| {
                let y = net.op("nn.relu", &[x]);
                net.op_with("concatenate", &[y, c], &ConcatenateAttrs { axis: 0 })
            })
            .collect();
        let z = net.op("add", &joined);
        let function = after(&EliminateCommonSubexpr, net.finish(z));
        assert_eq!(count(&function, "concatenate"), 1);
    }

    #[test]
    fn equal_scalar_constants_are_equal_and_tensor_constants_are_not() {
        for (dims, left) in [([].as_slice(), 1), (&[2], 2)] {
            let mut net = Net::default();
            let x = net.input("x", &[2]);
            let sums: Vec<ExprId> = (0..2)
                .map(|_| {
                    let c = net.tensor(dims, 1.0);
                    net.op("add", &[x, c])
                })
                .collect();
            let y = net.0.tuple(&sums);
            let function = after(&EliminateCommonSubexpr, net.finish(y));
            assert_eq!(count(&function, "add"), left);
        }
    }

    #[test]
    fn branches_do_not_share_with_each_other() {
        let mut net = Net::default();
        let cond = net.0.param("c", Type::tensor(&[], DType::Bool));
        let x = net.input("x", &[2]);
        let before = net.op("nn.relu", &[x]);
        let branch = |net: &mut Net| {
            net.0.open_scope(ScopeKind::Branch);
            let relu = net.op("nn.relu", &[x]);
            let y = net.op("exp", &[relu]);
            net.0.close_scope(y)
        };
        let (yes, no) = (branch(&mut net), branch(&mut net));
        let choice = net.0.if_else(cond, yes, no).unwrap();
        let both = net.0.tuple(&[before, choice]);
        let function = after(&EliminateCommonSubexpr, net.finish(both));
        // Both branches use the call around them; each has its own exponential.
        assert_eq!((count(&function, "nn.relu"), count(&function, "exp")), (1, 2));
    }

    #[test]
    fn nothing_in_common_changes_nothing() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let y = net.op("nn.relu", &[x]);
        let function = net.finish(y);
        assert!(after(&EliminateCommonSubexpr, function.clone()).same(&function));
    }
}
