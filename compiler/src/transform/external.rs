//! Closures for other code generators: what the passes that partition graphs have in common.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::fuse_ops::is_simple;
use crate::graph::{
    Call, Callee, Closure, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId, ScopeKind,
    Splice, regions,
};
use crate::ir::Attrs;
use crate::pass::Result;

/// The attribute of a closure that is an instance of a pattern: the pattern's name.
pub(super) const COMPOSITE: &str = "Composite";

/// The attribute of what another code generator compiles: the code generator's name.
pub(super) const COMPILER: &str = "Compiler";

/// The scopes of kernels, of patterns and of other code generators, with those within them.
pub(super) fn taken_scopes(function: &Function) -> SecondaryMap<ScopeId, bool> {
    let mut taken = crate::analysis::kernel_scopes(function);
    for (_, data) in function.iter() {
        if let Expr::Func(closure) = &data.expr {
            taken[closure.scope] |= closure.attrs.get(COMPOSITE).is_some();
        }
    }
    for (scope, data) in function.scopes() {
        if let Some(parent) = data.parent {
            taken[scope] |= taken[parent];
        }
    }
    taken
}

/// The closures of a function that use nothing from around them but constants and globals and have
/// a certain attribute, with their expressions.
pub(super) struct Closed<'a> {
    function: &'a Function,
    attr: &'static str,
    members: BTreeMap<ScopeId, Vec<ExprId>>,
}

impl<'a> Closed<'a> {
    /// Those with the attribute `attr`, a string.
    pub(super) fn of(function: &'a Function, attr: &'static str) -> Closed<'a> {
        let live = function.live();
        let closures = function.iter().filter(|(id, _)| live[*id]);
        let scopes = closures.filter_map(|(_, data)| match &data.expr {
            Expr::Func(Closure { scope, recursive: None, attrs }) => {
                attrs.str(attr).map(|_| *scope)
            }
            _ => None,
        });
        let scopes: Vec<ScopeId> = scopes.collect();
        let mut members = match scopes.is_empty() {
            true => BTreeMap::new(),
            false => regions(function, scopes),
        };
        members.retain(|&scope, members| is_closed(function, scope, members));
        Closed { function, attr, members }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The value of the attribute and the scope of a closure, if it is one of these.
    pub(super) fn get(&self, closure: ExprId) -> Option<(&'a str, ScopeId)> {
        match self.function.expr(closure) {
            Expr::Func(Closure { scope, recursive: None, attrs }) => {
                let value = attrs.str(self.attr)?;
                self.members.contains_key(scope).then_some((value, *scope))
            }
            _ => None,
        }
    }

    /// The closure that an expression calls, if it is one of these.
    pub(super) fn called(&self, id: ExprId) -> Option<(&'a str, ExprId)> {
        match self.function.expr(id).as_call()?.callee {
            Callee::Expr(callee) => self.get(callee).map(|(value, _)| (value, callee)),
            Callee::Op(_) => None,
        }
    }

    /// Copies what the closure of a scope computes to the scope that the builder is in. Parameters
    /// must have been [set](Splice::set).
    pub(super) fn copy(
        &self,
        splice: &mut Splice<'_>,
        b: &mut FunctionBuilder,
        scope: ScopeId,
    ) -> Result<()> {
        for &member in &self.members[&scope] {
            if splice.get(member).is_none() {
                splice.copy(b, member)?;
            }
        }
        Ok(())
    }
}

/// Whether all that the expressions use is among them, or can be copied anywhere.
fn is_closed(function: &Function, scope: ScopeId, members: &[ExprId]) -> bool {
    let inside: BTreeSet<ExprId> = members.iter().copied().collect();
    let is_known = |id: ExprId| {
        inside.contains(&id) || matches!(function.expr(id), Expr::Constant(_) | Expr::GlobalVar(_))
    };
    is_known(function.scope(scope).result)
        && members.iter().all(|&id| {
            let expr = function.expr(id);
            expr.operands().all(is_known)
                && expr.scopes().all(|inner| is_known(function.scope(inner).result))
        })
}

/// Pushes a closure that computes calls of the old function, which stand in one scope, and a call of
/// it. The last of the calls is its result, and nothing but them uses the others.
///
/// What the calls use becomes parameters; scalar constants go inside, as `FuseOps` has it. A call of
/// one of `opened` is replaced by what it computes; other closures that are called go inside.
pub(super) fn enclose(
    rewriter: &mut Rewriter,
    calls: &[ExprId],
    opened: Option<&Closed<'_>>,
    composites: Option<&Closed<'_>>,
    attrs: Attrs,
) -> Result<ExprId> {
    let old = rewriter.old().clone();
    let members: BTreeSet<ExprId> = calls.iter().copied().collect();
    let callee = |id: ExprId| match old.expr(id) {
        Expr::Call(Call { callee: Callee::Expr(callee), .. }) => Some(*callee),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    let outside: Vec<ExprId> = calls
        .iter()
        .flat_map(|&id| old.expr(id).operands().filter(move |&operand| Some(operand) != callee(id)))
        .filter(|operand| !members.contains(operand) && seen.insert(*operand))
        .collect();
    let goes_in = |id: ExprId| old.expr(id).as_constant().is_some_and(is_simple);
    let args: Vec<ExprId> =
        outside.iter().filter(|&&id| !goes_in(id)).map(|&id| rewriter.mapped(id)).collect();

    let b = rewriter.builder();
    b.open_scope(ScopeKind::Closure);
    // Of the size of the closure, not of the function: there may be as many closures as nodes.
    let mut inside: BTreeMap<ExprId, ExprId> = BTreeMap::new();
    let mut params = 0;
    for &id in &outside {
        b.set_span(old.span(id).clone());
        let new = match old.expr(id).as_constant() {
            Some(constant) if goes_in(id) => b.constant(constant.clone()),
            _ => {
                params += 1;
                b.param(&format!("p{}", params - 1), old.ty(id).clone())
            }
        };
        inside.insert(id, new);
    }
    let mut result = None;
    for &id in calls {
        b.set_span(old.span(id).clone());
        let closure = callee(id);
        let opening = closure
            .and_then(|closure| opened.and_then(|opened| Some((opened, opened.get(closure)?.1))));
        let new = if let Some((opened, scope)) = opening {
            let mut splice = Splice::new(&old, scope, b);
            let args = old.expr(id).operands().skip(1);
            for (&param, arg) in old.scope(scope).params.iter().zip(args) {
                splice.set(param, inside[&arg]);
            }
            opened.copy(&mut splice, b, scope)?;
            let new = splice.result(b, scope)?;
            for binding in splice.bindings(scope) {
                b.bind(&binding.name, binding.value);
            }
            new
        } else {
            if let (Some(closure), Some(composites)) = (closure, composites)
                && let Some((_, scope)) = composites.get(closure)
            {
                let mut splice = Splice::new(&old, old.data_of(closure).scope, b);
                composites.copy(&mut splice, b, scope)?;
                inside.insert(closure, splice.copy(b, closure)?);
            }
            b.push(old.expr(id).map(|operand| inside[&operand], |scope| scope))?
        };
        inside.insert(id, new);
        result = Some(new);
    }
    let result = result.ok_or_else(|| "a closure of no calls".to_owned())?;
    let scope = b.close_scope(result);
    let closure = b.closure(scope, None, attrs)?;
    Ok(b.call_function(closure, &args)?)
}

#[cfg(test)]
mod tests {
    use crate::graph::interp::evaluate;
    use crate::ir::IRModule;
    use crate::pass::Pass;
    use crate::strategy;
    use crate::target::Target;
    use crate::transform::tests::support::{Net, verifying};
    use crate::transform::{
        AnnotateTarget, COMPOSITE_PATTERNS, EXTERNAL_TARGETS, MergeCompilerRegions, MergeComposite,
        PartitionGraph,
    };

    fn partitioned(module: IRModule) -> IRModule {
        let patterns = [("dsp.sum_exp", "exp(add(*, *))"), ("dsp.scale", "multiply(*, const)")];
        let own = |text: &str| text.to_owned();
        let patterns = patterns.map(|(name, pattern)| (own(name), own(pattern))).to_vec();
        let targets = vec![(own("dsp"), vec![own("tanh")])];
        let cx = verifying().config(&COMPOSITE_PATTERNS, patterns);
        let cx = cx.config(&EXTERNAL_TARGETS, targets).build().unwrap();
        let module = MergeComposite.run(module, &cx).unwrap();
        let module = AnnotateTarget.run(module, &cx).unwrap();
        let module = MergeCompilerRegions.run(module, &cx).unwrap();
        PartitionGraph.run(module, &cx).unwrap()
    }

    /// A chain of the operators, all of them or those that others take.
    fn chain(length: usize, with_others: bool) -> IRModule {
        let mut net = Net::default();
        let mut x = net.tensor(&[3], 0.5);
        for index in 0..length {
            let half = net.scalar(0.5);
            let sum = net.op("add", &[x, half]);
            x = net.op("exp", &[sum]);
            x = net.op("multiply", &[half, x]);
            x = net.op("tanh", &[x]);
            if with_others && index % 2 == 0 {
                x = net.op("sigmoid", &[x]);
            }
        }
        IRModule::from_function(net.finish(x))
    }

    #[test]
    fn partitioned_modules_compute_the_same() {
        let module = chain(6, true);
        let after = partitioned(module.clone());
        // Three sigmoids cut the chain after the first, third and fifth link.
        assert_eq!(after.len(), 1 + 4);
        let value = |module: &IRModule| format!("{:?}", evaluate(module, "main", &[]).unwrap());
        assert_eq!(value(&after), value(&module));
        assert_eq!(partitioned(after.clone()).len(), after.len());
    }

    #[test]
    fn a_long_chain_is_one_function() {
        assert_eq!(partitioned(chain(10_000, false)).len(), 2);
    }

    #[test]
    fn what_is_for_unknown_code_generators_is_not_compiled() {
        let report = strategy::program(
            &partitioned(chain(1, false)),
            &[Target::host()],
            &Default::default(),
            &Default::default(),
        );
        let error = report.unwrap_err().to_string();
        let expected = "`@dsp_main_0` is for the code generator `dsp`, which is not known";
        assert!(error.contains(expected), "{error}");
    }
}
