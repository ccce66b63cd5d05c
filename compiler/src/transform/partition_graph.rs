//! What other code generators compute, as functions of the module.

use super::external::{COMPILER, Closed};
use crate::graph::{Expr, Function, FunctionBuilder, Rewriter, ScopeId, Splice};
use crate::ir::{Definition, IRModule};
use crate::pass::{PassContext, Result, is_optimizable, module_pass};

/// Makes each closure with the attribute `Compiler` a function of the module.
///
/// It has the attribute `global_symbol`, its name: the code generator's, the function's around it and
/// a number. Closures that capture values stay where they are.
#[module_pass(opt_level = 0)]
pub fn partition_graph(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    for (global, function) in module.clone().functions() {
        if !is_optimizable(function.attrs()) || function.attrs().flag("Primitive") {
            continue;
        }
        let closures = Closed::of(function, COMPILER);
        let mut rewriter = Rewriter::new(function.clone());
        let mut count = 0;
        while let Some(id) = rewriter.next_expr()? {
            let Expr::Func(closure) = function.expr(id) else { continue };
            let Some(compiler) = closure.attrs.str(COMPILER) else { continue };
            let Some((_, scope)) = closures.get(id) else {
                cx.missed_in(function, id, "the closure uses what is defined around it");
                continue;
            };
            let Some(ty) = function.ty(id).as_func().cloned() else { continue };
            let stem = symbol(&format!("{compiler}_{}_{count}", global.name()));
            count += 1;
            let name = module.fresh_global(&stem);
            let attrs = closure.attrs.clone().with("global_symbol", name.name());
            let part = alone(function, &closures, scope)?.with_attrs(attrs);
            module.insert(name.clone(), Definition::Graph(part));
            let reference = rewriter.builder().global(name, ty);
            rewriter.replace(reference);
        }
        cx.count("external functions", count);
        module.insert(global.clone(), Definition::Graph(rewriter.finish()?));
    }
    Ok(module)
}

/// A name with which linkers, C and Rust agree.
fn symbol(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The closure of a scope as a function.
fn alone(function: &Function, closures: &Closed<'_>, scope: ScopeId) -> Result<Function> {
    let mut b = FunctionBuilder::new();
    *b.facts_mut() = function.facts().clone();
    let mut splice = Splice::new(function, scope, &b);
    for &param in &function.scope(scope).params {
        b.set_span(function.span(param).clone());
        let name = function.var_name(param).unwrap_or("p");
        splice.set(param, b.param(name, function.ty(param).clone()));
    }
    closures.copy(&mut splice, &mut b, scope)?;
    let result = splice.result(&mut b, scope)?;
    for binding in splice.bindings(scope) {
        b.bind(&binding.name, binding.value);
    }
    Ok(b.finish(result))
}
