//! Type inference across functions.
//!
//! Within a function, types are computed when an expression is pushed. Only the type with which a
//! function refers to another one can become stale.

use super::{FuseOps, SimplifyInference};
use crate::analysis::{CallGraph, Callees, Pure, Typed, Types, declared, types_hold};
use crate::graph::{Expr, Function, Rewriter};
use crate::ir::{Definition, IRModule};
use crate::pass::{PassContext, PassError, Result, module_pass};

/// Gives every reference to a global the type of its definition.
#[module_pass(
    opt_level = 0,
    sets = [Typed],
    preserves = [SimplifyInference, FuseOps, Callees, CallGraph, Pure],
    holds = types_hold,
)]
pub fn infer_type(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    // A changed result type reaches a caller in the next round: as many rounds as calls nest.
    for _ in 0..=module.len() {
        let stale = cx.analysis::<Types>(&module);
        if stale.is_empty() {
            return Ok(module);
        }
        let before = module.clone();
        for global in stale.iter() {
            let Some(function) = before.get(global).and_then(Definition::as_graph) else {
                continue;
            };
            let function = with_types_of(function.clone(), &module)?;
            module.insert(global.clone(), Definition::Graph(function));
        }
    }
    Err(PassError::new("the types of functions that call each other do not settle"))
}

fn with_types_of(function: Function, module: &IRModule) -> Result<Function> {
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        if let Expr::GlobalVar(global) = old.expr(id)
            && let Some(ty) = declared(module, global)
            && old.ty(id).as_func() != Some(&ty)
        {
            let global = rewriter.builder().global(global.clone(), ty);
            rewriter.replace(global);
        }
    }
    Ok(rewriter.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::FunctionBuilder;
    use crate::ir::{Attrs, DType, FuncType, GlobalVar, Type};
    use crate::ops::Op;
    use crate::pass::{Pass, Sequential};

    fn relu_of(dims: &[i64]) -> Function {
        let mut b = FunctionBuilder::new();
        let x = b.param("x", Type::tensor(dims, DType::F32));
        let y = b.call(Op::get("nn.relu").unwrap(), &[x], Attrs::new()).unwrap();
        b.finish(y)
    }

    /// A function of no parameters that calls `callee` on an argument of that type.
    fn caller(callee: &str, ty: &FuncType) -> Function {
        let mut b = FunctionBuilder::new();
        let x = b.param("x", ty.params[0].clone());
        let callee = b.global(GlobalVar::new(callee), ty.clone());
        let y = b.call_function(callee, &[x]).unwrap();
        b.finish(y)
    }

    #[test]
    fn references_follow_their_definitions_through_chains_of_calls() {
        let mut module = IRModule::new();
        let old = relu_of(&[4]).func_type();
        let g = relu_of(&[4]);
        module.insert(GlobalVar::new("main"), Definition::Graph(caller("f", &old)));
        module.insert(GlobalVar::new("f"), Definition::Graph(caller("g", &old)));
        module.insert(GlobalVar::new("g"), Definition::Graph(g));
        assert!(types_hold(&module));
        assert!(InferType.apply(module.clone()).unwrap().same(&module));

        // The same parameter, another result.
        let mut b = FunctionBuilder::new();
        let x = b.param("x", Type::tensor(&[4], DType::F32));
        let pair = b.tuple(&[x, x]);
        module.insert(GlobalVar::new("g"), Definition::Graph(b.finish(pair)));
        assert!(!types_hold(&module));
        let inferred = InferType.apply(module).unwrap();
        assert!(types_hold(&inferred));
        let x = Type::tensor(&[4], DType::F32);
        assert_eq!(inferred.function("main").unwrap().func_type().ret, Type::tuple([x.clone(), x]));
    }

    #[test]
    fn a_definition_that_no_longer_takes_the_arguments_is_an_error() {
        let mut module = IRModule::from_function(caller("f", &relu_of(&[4]).func_type()));
        module.insert(GlobalVar::new("f"), Definition::Graph(relu_of(&[5])));
        let error = InferType.apply(module).unwrap_err().to_string();
        assert!(error.contains("argument 0 must be Tensor[(5), float32]"), "{error}");
    }

    #[test]
    fn in_a_list_it_runs_only_if_types_do_not_hold() {
        // Types hold already, so the pass does not run and instruments do not see it.
        let module = IRModule::from_function(relu_of(&[4]));
        let after = Sequential::default().then(InferType).apply(module.clone()).unwrap();
        assert!(after.same(&module));
    }
}
