//! Closures as functions of the module.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use crate::analysis::{Scopes, kernel_scopes};
use crate::graph::visit::captures;
use crate::graph::{
    Closure, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId, ScopeKind, Splice,
    regions, structural_equal, structural_hash,
};
use crate::ir::{Attrs, Definition, FuncType, GlobalVar, IRModule, Type};
use crate::pass::{PassContext, Result, is_optimizable, module_pass};

/// The beginning of the names of lifted functions; as in TVM, the rest is the structural hash.
const STEM: &str = "lifted_name";

/// How much of the hash the name has.
const HASH_BYTES: usize = 8;

/// Makes each closure a function of the module; equal ones share one.
///
/// A closure that uses nothing from around it becomes a reference to a global. One that does becomes
/// a call of a global with the attribute `Closure`, whose parameters are the captured values and
/// whose result is the closure. Closures that call themselves then call the global. Kernels stay.
#[module_pass(opt_level = 1)]
pub fn lambda_lift(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let before = module.clone();
    let mut lifted = Lifted::default();
    for (global, function) in before.functions() {
        if !is_optimizable(function.attrs()) || function.attrs().flag("Primitive") {
            continue;
        }
        let Some(mut lift) = Lift::of(function, cx) else { continue };
        let closures = std::mem::take(&mut lift.closures);
        for &(id, scope) in &closures {
            lift.lift(id, scope, &mut lifted, &mut module)?;
        }
        cx.count("lifted closures", closures.len() as u64);
        let mut rewriter = Rewriter::new(function.clone());
        while let Some(id) = rewriter.next_expr()? {
            let Some(target) = lift.targets.get(&id) else { continue };
            let args = target.captured.iter().map(|&id| rewriter.mapped(id)).collect();
            let new = target.refer(rewriter.builder(), args)?;
            rewriter.replace(new);
        }
        module.insert(global.clone(), Definition::Graph(rewriter.finish()?));
    }
    Ok(module)
}

/// The functions that were made of closures so far, as they were when they called themselves by the
/// stem.
#[derive(Default)]
struct Lifted(BTreeMap<GlobalVar, Function>);

/// What becomes of a closure.
struct Target {
    global: GlobalVar,
    ty: FuncType,
    /// What it uses from around it, in order.
    captured: Vec<ExprId>,
}

impl Target {
    /// The reference to the function, or the call that captures.
    fn refer(&self, b: &mut FunctionBuilder, captured: Vec<ExprId>) -> Result<ExprId> {
        let global = b.global(self.global.clone(), self.ty.clone());
        match captured.is_empty() {
            true => Ok(global),
            false => Ok(b.call_function(global, &captured)?),
        }
    }
}

/// The closures of one function.
struct Lift<'a> {
    function: &'a Function,
    /// Those to be lifted with their scopes, each after those within it.
    closures: Vec<(ExprId, ScopeId)>,
    captures: SecondaryMap<ScopeId, Vec<ExprId>>,
    /// The expressions of each closure that are in no closure within it.
    members: BTreeMap<ScopeId, Vec<ExprId>>,
    targets: BTreeMap<ExprId, Target>,
}

impl<'a> Lift<'a> {
    /// `None` if there is nothing to lift.
    fn of(function: &'a Function, cx: &PassContext) -> Option<Lift<'a>> {
        let live = function.live();
        let kernels = kernel_scopes(function);
        // What a function with this attribute returns is the closure that it is there for.
        let made = function.attrs().flag("Closure").then(|| function.result());
        let closure = |id: ExprId| match function.expr(id) {
            Expr::Func(Closure { scope, .. })
                if live[id] && !kernels[*scope] && made != Some(id) =>
            {
                Some((id, *scope))
            }
            _ => None,
        };
        let closures: Vec<(ExprId, ScopeId)> = function.ids().filter_map(closure).collect();
        if closures.is_empty() {
            return None;
        }
        let captures = captures(function, &cx.analysis::<Scopes>(function));
        let members = regions(function, closures.iter().map(|(_, scope)| *scope));
        Some(Lift { function, closures, captures, members, targets: BTreeMap::new() })
    }

    fn lift(
        &mut self,
        id: ExprId,
        scope: ScopeId,
        lifted: &mut Lifted,
        module: &mut IRModule,
    ) -> Result<()> {
        let is_copied =
            |id: &ExprId| matches!(self.function.expr(*id), Expr::Constant(_) | Expr::GlobalVar(_));
        let captured: Vec<ExprId> =
            self.captures[scope].iter().copied().filter(|id| !is_copied(id)).collect();
        let Some(of_closure) = self.function.ty(id).as_func().cloned() else { return Ok(()) };
        let ty = match captured.is_empty() {
            true => of_closure,
            false => FuncType {
                params: captured.iter().map(|&id| self.function.ty(id).clone()).collect(),
                ret: Type::Func(of_closure.into()),
            },
        };
        let mut target = Target { global: GlobalVar::new(STEM), ty, captured };
        let plain = self.build(id, scope, &target)?;
        let hash = structural_hash(&plain);
        let digits: String =
            hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
        let name = GlobalVar::new(&format!("{STEM}{digits}"));
        let is_same = |global: &GlobalVar| {
            lifted.0.get(global).is_some_and(|other| structural_equal(other, &plain).is_ok())
        };
        target.global = name.clone();
        if !is_same(&name) {
            let function = self.build(id, scope, &target)?;
            let there = module.get(&name).and_then(Definition::as_graph);
            let is_there = there.is_some_and(|other| structural_equal(other, &function).is_ok());
            if !is_there && module.get(&name).is_some() {
                // Another function has the name.
                target.global = module.fresh_global(name.name());
            }
            if !is_there {
                let function = self.build(id, scope, &target)?;
                module.insert(target.global.clone(), Definition::Graph(function));
            }
            lifted.0.insert(target.global.clone(), plain);
        }
        self.targets.insert(id, target);
        Ok(())
    }

    /// The function that a closure becomes.
    fn build(&self, id: ExprId, scope: ScopeId, target: &Target) -> Result<Function> {
        let Expr::Func(Closure { scope: _, recursive, attrs }) = self.function.expr(id) else {
            return Err("a closure is expected".to_owned().into());
        };
        let mut b = FunctionBuilder::new();
        *b.facts_mut() = self.function.facts().clone();
        let mut outer = Vec::with_capacity(target.captured.len());
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (index, &captured) in target.captured.iter().enumerate() {
            b.set_span(self.function.span(captured).clone());
            let name = self.function.var_name(captured).map(str::to_owned);
            let name = name.filter(|name| taken.insert(name.clone()));
            let name = name.unwrap_or_else(|| format!("c{index}"));
            outer.push(b.param(&name, self.function.ty(captured).clone()));
        }
        let inner = (!outer.is_empty()).then(|| b.open_scope(ScopeKind::Closure));
        let mut splice = Splice::new(self.function, scope, &b);
        for (&captured, &param) in target.captured.iter().zip(&outer) {
            splice.set(captured, param);
        }
        for &param in &self.function.scope(scope).params {
            b.set_span(self.function.span(param).clone());
            let name = self.function.var_name(param).unwrap_or("p");
            splice.set(param, b.param(name, self.function.ty(param).clone()));
        }
        if let Some(recursive) = recursive {
            let itself = target.refer(&mut b, outer.clone())?;
            splice.set(*recursive, itself);
        }
        for &member in &self.members[&scope] {
            if splice.get(member).is_some() {
                continue;
            }
            match self.targets.get(&member) {
                None => {
                    splice.copy(&mut b, member)?;
                }
                Some(inner) => {
                    let captured: Option<Vec<ExprId>> =
                        inner.captured.iter().map(|&id| splice.get(id)).collect();
                    let captured = captured.ok_or_else(|| {
                        "a closure captures what is not defined around it".to_owned()
                    })?;
                    let within = self.function.data_of(member).scope;
                    let new = splice.within(&mut b, within, |b| inner.refer(b, captured))?;
                    splice.set(member, new);
                }
            }
        }
        let result = splice.result(&mut b, scope)?;
        for binding in splice.bindings(scope) {
            b.bind(&binding.name, binding.value);
        }
        match inner {
            None => {
                b.set_attrs(attrs.clone());
                Ok(b.finish(result))
            }
            Some(inner) => {
                b.close_scope(result);
                let closure = b.closure(inner, None, attrs.clone())?;
                b.set_attrs(Attrs::new().with("Closure", 1));
                Ok(b.finish(closure))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_module;
    use crate::pass::Pass;
    use crate::transform::tests::support::{Net, verifying};

    fn lifted(text: &str) -> IRModule {
        LambdaLift.run(parse_module(text).unwrap(), &verifying().build().unwrap()).unwrap()
    }

    #[test]
    fn a_second_run_finds_nothing_to_lift() {
        let once = lifted(
            "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
               %f = fn (%y: Tensor[(2), float32]) -> fn (Tensor[(2), float32]) -> Tensor[(2), float32] {
                 fn (%z: Tensor[(2), float32]) -> Tensor[(2), float32] { add(%y, add(%x, %z)) }
               };
               %g = %f(%x);
               %g(%x)
             }",
        );
        assert_eq!(once.len(), 3);
        assert!(LambdaLift.run(once.clone(), &verifying().build().unwrap()).unwrap().same(&once));
    }

    #[test]
    fn equal_ones_of_ten_thousand_closures_are_one_function() {
        let mut net = Net::default();
        let mut x = net.input("x", &[2]);
        for index in 0..10_000 {
            let scope = net.0.open_scope(ScopeKind::Closure);
            let y = net.input("y", &[2]);
            let c = net.scalar(f64::from(index % 100));
            let sum = net.op("add", &[y, c]);
            net.0.close_scope(sum);
            let closure = net.0.closure(scope, None, Attrs::new()).unwrap();
            x = net.0.call_function(closure, &[x]).unwrap();
        }
        let module = IRModule::from_function(net.finish(x));
        let after = LambdaLift.run(module, &verifying().build().unwrap()).unwrap();
        assert_eq!(after.len(), 101);
    }
}
