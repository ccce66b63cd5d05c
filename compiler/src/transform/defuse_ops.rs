//! Fusion undone.

use crate::analysis::Fused;
use crate::graph::visit::used_as_values;
use crate::graph::{Call, Callee, Closure, Expr, Function, Rewriter, Splice, regions};
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, function_pass};

/// Puts what kernels compute where they are called: what `FuseOps` did is undone.
///
/// A kernel is a closure with the attribute `Primitive`, called where it is defined. Those that
/// other code generators compile, and those that have become functions of the module, stay.
#[function_pass(opt_level = 3, clears = [Fused])]
pub fn defuse_ops(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    let values = used_as_values(&function);
    let kernel = |callee| match function.expr(callee) {
        Expr::Func(Closure { scope, recursive: None, attrs })
            if attrs.flag("Primitive") && attrs.get("Compiler").is_none() && !values[callee] =>
        {
            Some(*scope)
        }
        _ => None,
    };
    let scopes: Vec<_> = function.ids().filter_map(kernel).collect();
    if scopes.is_empty() {
        return Ok(function);
    }
    let members = regions(&function, scopes);
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_call()? {
        let Some(call @ Call { callee: Callee::Expr(callee), .. }) = function.expr(id).as_call()
        else {
            continue;
        };
        let Some(scope) = kernel(*callee) else { continue };
        let args = rewriter.args(call);
        let mut splice = Splice::new(&function, scope, rewriter.built());
        for (&param, arg) in function.scope(scope).params.iter().zip(args) {
            if let Some(arg) = arg {
                splice.set(param, arg);
            }
        }
        for &member in &members[&scope] {
            for operand in function.expr(member).operands() {
                // What the kernel takes from around it.
                if splice.get(operand).is_none()
                    && let Some(new) = rewriter.new_of(operand)
                    && function.data_of(operand).scope != function.data_of(member).scope
                {
                    splice.set(operand, new);
                }
            }
            if splice.get(member).is_none() {
                splice.copy(rewriter.builder(), member)?;
            }
        }
        let outside = function.scope(scope).result;
        if splice.get(outside).is_none()
            && let Some(new) = rewriter.new_of(outside)
        {
            splice.set(outside, new);
        }
        let result = splice.result(rewriter.builder(), scope)?;
        rewriter.insert_bindings(splice.bindings(scope));
        cx.count("kernels undone", 1);
        rewriter.replace(result);
    }
    Ok(rewriter.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::structural_equal;
    use crate::transform::FuseOps;
    use crate::transform::tests::support::{Net, after};

    #[test]
    fn what_was_fused_is_the_graph_again() {
        let mut net = Net::default();
        let (mut x, y) = (net.input("x", &[2]), net.input("y", &[2]));
        for index in 0..50_000 {
            x = net.op("exp", &[x]);
            let half = net.scalar(0.5);
            x = net.op("add", &[x, half]);
            if index % 10 == 0 {
                x = net.op("multiply", &[x, y]);
            }
        }
        let graph = net.finish(x);
        let fused = after(&FuseOps, graph.clone());
        assert!(structural_equal(&fused, &graph).is_err());
        let defused = after(&DefuseOps, fused);
        structural_equal(&defused, &graph).unwrap();
        assert!(after(&DefuseOps, defused.clone()).same(&defused));
    }
}
