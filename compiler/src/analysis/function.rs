//! Analyses of graph functions: live expressions, use counts, users and scopes.

use cranelift_entity::SecondaryMap;

use crate::graph::visit::{ScopeTree, Users};
use crate::graph::{ExprId, Function};
use crate::pass::{Analyses, Analysis};

/// For each expression, whether the result, the bindings or the parameters need it.
///
/// ```
/// use niello::analysis::Liveness;
/// use niello::entity::SecondaryMap;
/// use niello::graph::{ExprId, Function};
/// use niello::pass::PassContext;
///
/// fn dead(function: &Function, cx: &PassContext) -> usize {
///     let live: &SecondaryMap<ExprId, bool> = &cx.analysis::<Liveness>(function);
///     function.ids().filter(|&id| !live[id]).count()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Liveness;

impl Analysis for Liveness {
    const NAME: &'static str = "Liveness";
    type Unit = Function;
    type Output = SecondaryMap<ExprId, bool>;

    fn compute(function: &Function, _: &Analyses<'_>) -> Self::Output {
        function.live()
    }
}

/// The number of uses of each expression by live ones; the result of a scope counts as one use,
/// bindings do not count.
#[derive(Clone, Copy, Debug)]
pub struct UseCounts;

impl Analysis for UseCounts {
    const NAME: &'static str = "UseCounts";
    type Unit = Function;
    type Output = SecondaryMap<ExprId, u32>;

    fn compute(function: &Function, analyses: &Analyses<'_>) -> Self::Output {
        function.use_counts_among(&analyses.get::<Liveness>(function))
    }
}

/// The live users of each expression.
#[derive(Clone, Copy, Debug)]
pub struct Uses;

impl Analysis for Uses {
    const NAME: &'static str = "Uses";
    type Unit = Function;
    type Output = Users;

    fn compute(function: &Function, analyses: &Analyses<'_>) -> Users {
        Users::among(function, &analyses.get::<Liveness>(function))
    }
}

/// The tree of scopes, with the expressions of each.
#[derive(Clone, Copy, Debug)]
pub struct Scopes;

impl Analysis for Scopes {
    const NAME: &'static str = "Scopes";
    type Unit = Function;
    type Output = ScopeTree;

    fn compute(function: &Function, _: &Analyses<'_>) -> ScopeTree {
        ScopeTree::new(function)
    }
}
