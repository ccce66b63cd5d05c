//! Fused kernels as functions of the module.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;

use crate::analysis::{Fused, Liveness};
use crate::graph::{
    Callee, Closure, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId, ScopeKind,
};
use crate::ir::{Attrs, Definition, GlobalVar, IRModule, Type};
use crate::pass::{PassContext, Result, is_optimizable, module_pass};

/// Longest name of an outlined function; a longer one is cut, and made unique if need be.
///
/// Names become symbols and lines of profiles. Some linkers and debuggers stop at 255 bytes.
const MAX_NAME: usize = 80;

/// Makes each fused kernel a function of the module, named after its operators.
///
/// Closures with the attribute `Primitive` become globals such as `@fused_nn_conv2d_nn_relu`; equal
/// closures share one. Closures that capture values stay where they are.
#[module_pass(opt_level = 0, requires = [Fused])]
pub fn outline_primitives(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let mut outlined: IndexMap<Shape, GlobalVar> = IndexMap::new();
    for (global, function) in module.clone().functions() {
        if !is_optimizable(function.attrs()) || function.attrs().flag("Primitive") {
            continue;
        }
        let closures = closures(function, &cx.analysis::<Liveness>(function));
        if closures.is_empty() {
            continue;
        }
        let mut names: SecondaryMap<ExprId, Option<GlobalVar>> = SecondaryMap::new();
        for OpenClosure { id, members } in closures {
            let Some(outline) = Outline::new(function, id, &members) else {
                cx.missed_in(function, id, "the kernel uses what is defined around it");
                continue;
            };
            names[id] = Some(match outlined.get(&outline.shape) {
                Some(global) => global.clone(),
                None => {
                    let name = module.fresh_global(&outline.name);
                    module.insert(name.clone(), Definition::Graph(outline.build(function)?));
                    outlined.insert(outline.shape, name.clone());
                    name
                }
            });
        }
        let mut rewriter = Rewriter::new(function.clone());
        while let Some(id) = rewriter.next_expr()? {
            let Some(name) = names[id].take() else { continue };
            let Type::Func(ty) = rewriter.old().ty(id).clone() else { continue };
            let reference = rewriter.builder().global(name, (*ty).clone());
            rewriter.replace(reference);
        }
        module.insert(global.clone(), Definition::Graph(rewriter.finish()?));
    }
    Ok(module)
}

/// A closure with the attribute `Primitive`, and its expressions in order.
struct OpenClosure {
    id: ExprId,
    members: Vec<ExprId>,
}

/// The live primitive closures of a function.
fn closures(function: &Function, live: &SecondaryMap<ExprId, bool>) -> Vec<OpenClosure> {
    let mut of_scope: SecondaryMap<ScopeId, Option<u32>> = SecondaryMap::new();
    let mut closures = Vec::new();
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        if let Expr::Func(Closure { scope, recursive: None, attrs }) = &data.expr
            && attrs.flag("Primitive")
            && attrs.get("Compiler").is_none()
        {
            of_scope[*scope] = Some(closures.len() as u32);
            closures.push(OpenClosure { id, members: Vec::new() });
        }
    }
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        if let Some(closure) = of_scope[data.scope] {
            closures[closure as usize].members.push(id);
        }
    }
    closures
}

/// The structure that distinguishes closures: attributes and types of the parameters, and the
/// expressions, with operands by position.
type Shape = (Attrs, Vec<Type>, Vec<Expr>, u32);

/// A closure that can stand alone.
struct Outline {
    shape: Shape,
    name: String,
    scope: ScopeId,
    members: Vec<ExprId>,
    attrs: Attrs,
}

impl Outline {
    /// `None` if the closure captures values, or has scopes within it.
    fn new(function: &Function, id: ExprId, members: &[ExprId]) -> Option<Outline> {
        let Expr::Func(Closure { scope, recursive: _, attrs }) = function.expr(id) else {
            return None;
        };
        let data = function.scope(*scope);
        // Parameters come first, whatever their order among the expressions.
        let is_param = |id: &ExprId| data.params.contains(id);
        let inner = members.iter().copied().filter(|id| !is_param(id));
        let members: Vec<ExprId> = data.params.iter().copied().chain(inner).collect();
        // Of the size of the closure, not of the function: there may be as many closures as nodes.
        let position: BTreeMap<ExprId, u32> = members.iter().copied().zip(0..).collect();
        let mut exprs = Vec::with_capacity(members.len());
        let mut name = "fused".to_owned();
        for &member in &members[data.params.len()..] {
            let expr = function.expr(member);
            let closed = expr.operands().all(|operand| position.contains_key(&operand));
            if !closed || expr.scopes().next().is_some() {
                return None;
            }
            match expr {
                Expr::Call(call) => {
                    let Callee::Op(op) = call.callee else { return None };
                    name.push('_');
                    name.push_str(&op.name.replace('.', "_"));
                }
                Expr::Var(_) | Expr::GlobalVar(_) => return None,
                Expr::Constant(_) | Expr::Tuple(_) | Expr::TupleGet { .. } => {}
                Expr::If(_) | Expr::While(_) | Expr::Func(_) => return None,
            }
            exprs.push(expr.map(|operand| ExprId::from_u32(position[&operand]), |scope| scope));
        }
        let result = *position.get(&data.result)?;
        if !data.bindings.is_empty() {
            return None;
        }
        name.truncate(MAX_NAME);
        let types = data.params.iter().map(|&param| function.ty(param).clone()).collect();
        let attrs = attrs.clone();
        let shape = (attrs.clone(), types, exprs, result);
        Some(Outline { shape, name, scope: *scope, members, attrs })
    }

    /// The closure as a function.
    fn build(&self, function: &Function) -> Result<Function> {
        let scope = function.scope(self.scope);
        let mut b = FunctionBuilder::new();
        *b.facts_mut() = function.facts().clone();
        b.set_attrs(self.attrs.clone());
        let mut map: BTreeMap<ExprId, ExprId> = BTreeMap::new();
        let (params, inner) = self.members.split_at(scope.params.len());
        for (index, &param) in params.iter().enumerate() {
            let name = function.var_name(param).map_or_else(|| format!("p{index}"), str::to_owned);
            b.set_span(function.span(param).clone());
            map.insert(param, b.param(&name, function.ty(param).clone()));
        }
        for &member in inner {
            b.set_span(function.span(member).clone());
            let new = b.push(function.expr(member).map(|operand| map[&operand], |scope| scope))?;
            map.insert(member, new);
        }
        debug_assert_eq!(scope.kind, ScopeKind::Closure);
        Ok(b.finish(map[&scope.result]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Pass, Sequential};
    use crate::transform::FuseOps;
    use crate::transform::tests::support::{Net, show};

    fn outlined(function: Function) -> IRModule {
        let list = Sequential::default().then(FuseOps).then(OutlinePrimitives);
        list.apply(IRModule::from_function(function)).unwrap()
    }

    #[test]
    fn kernels_become_functions_and_equal_ones_are_one() {
        let mut net = Net::default();
        let (x, y) = (net.input("x", &[2]), net.input("y", &[2]));
        let halves: Vec<ExprId> = [x, y]
            .into_iter()
            .map(|value| {
                let relu = net.op("nn.relu", &[value]);
                net.op("exp", &[relu])
            })
            .collect();
        let joined =
            net.op_with("concatenate", &halves, &crate::ops::tensor::ConcatenateAttrs { axis: 0 });
        let z = net.op_with("nn.softmax", &[joined], &crate::ops::nn::SoftmaxAttrs { axis: 0 });
        let both = net.0.tuple(&[halves[0], halves[1], z]);
        let module = outlined(net.finish(both));
        let names: Vec<&str> = module.iter().map(|(global, _)| global.name()).collect();
        assert_eq!(names, ["main", "fused_nn_relu_exp", "fused_concatenate", "fused_nn_softmax"]);
        let e = |x: &str| format!("@fused_nn_relu_exp({x})");
        let (a, b) = (e("x"), e("y"));
        assert_eq!(
            show(module.function("main").unwrap()),
            format!("({a}, {b}, @fused_nn_softmax(@fused_concatenate({a}, {b})))")
        );
        let kernel = module.function("fused_nn_relu_exp").unwrap();
        assert_eq!(show(kernel), "exp(nn.relu(p0))");
        assert!(kernel.attrs().flag("Primitive"));
        assert!(outlined(module.function("main").unwrap().clone()).len() == 1);
    }

    #[test]
    fn kernels_that_differ_in_type_have_names_of_their_own() {
        let mut net = Net::default();
        let (x, y) = (net.input("x", &[2]), net.input("y", &[3]));
        let values = [net.op("exp", &[x]), net.op("exp", &[y])];
        let both = net.0.tuple(&values);
        let module = outlined(net.finish(both));
        assert_eq!(show(module.function("main").unwrap()), "(@fused_exp(x), @fused_exp_1(y))");
    }

    #[test]
    fn a_kernel_that_captures_values_stays() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let scope = net.0.open_scope(ScopeKind::Closure);
        let y = net.op("exp", &[x]);
        net.0.close_scope(y);
        let kernel = net.0.closure(scope, None, Attrs::new().with("Primitive", 1)).unwrap();
        let z = net.0.call_function(kernel, &[]).unwrap();
        let cx = PassContext::builder().remarks(true).build().unwrap();
        let module = IRModule::from_function(net.finish(z));
        let after = OutlinePrimitives.run(module.clone(), &cx).unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(cx.remarks()[0].what, "closure");
    }
}
