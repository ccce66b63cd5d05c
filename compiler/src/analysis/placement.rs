//! The scope in which each expression is needed.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

use super::property::{bound_values, kernel_scopes};
use crate::graph::{Expr, ExprId, Function, ScopeId, ScopeKind};

/// Where the expressions of a function are needed.
pub(crate) struct Placement {
    scope: SecondaryMap<ExprId, PackedOption<ScopeId>>,
    shared: SecondaryMap<ExprId, bool>,
    bound: SecondaryMap<ExprId, bool>,
    kernels: SecondaryMap<ScopeId, bool>,
}

impl Placement {
    /// One sweep from users to operands: when an expression is reached, the places of its users are
    /// known.
    ///
    /// The place of an expression is the innermost scope around all its uses, but what stands
    /// outside of a loop or of a closure stays there: it is computed once, not once a turn or a
    /// call. Bound expressions, variables and what is in kernels stay where they are.
    pub(crate) fn of(function: &Function) -> Placement {
        let live = function.live();
        let bound = bound_values(function, &live);
        let mut sweep = Sweep {
            function,
            around: SecondaryMap::new(),
            depth: SecondaryMap::new(),
            needed: SecondaryMap::with_capacity(function.len()),
            uses: SecondaryMap::with_capacity(function.len()),
        };
        let kernels = kernel_scopes(function);
        let mut placement = Placement {
            scope: SecondaryMap::with_capacity(function.len()),
            shared: SecondaryMap::with_capacity(function.len()),
            bound,
            kernels,
        };
        sweep.use_in(function.result(), function.body());
        for id in function.ids().rev().filter(|&id| live[id]) {
            let data = function.data_of(id);
            let stays = placement.bound[id]
                || placement.kernels[data.scope]
                || matches!(data.expr, Expr::Var(_));
            let scope = match sweep.needed[id].expand() {
                Some(needed) if !stays => sweep.outside_of_loops(needed, data.scope),
                _ => data.scope,
            };
            placement.scope[id] = scope.into();
            placement.shared[id] = match sweep.uses[id] {
                Uses::None => false,
                Uses::In(used) => used != scope,
                Uses::InSeveral => true,
            };
            for operand in data.expr.operands() {
                sweep.use_in(operand, scope);
            }
            for inner in data.expr.scopes() {
                sweep.around[inner] = scope.into();
                sweep.depth[inner] = sweep.depth[scope] + 1;
                sweep.use_in(function.scope(inner).result, inner);
            }
        }
        placement
    }

    /// The innermost scope in which an expression can stand.
    pub(crate) fn scope(&self, function: &Function, id: ExprId) -> ScopeId {
        self.scope[id].expand().unwrap_or(function.data_of(id).scope)
    }

    /// Whether a scope within that one uses the expression.
    pub(crate) fn is_used_within(&self, id: ExprId) -> bool {
        self.shared[id]
    }

    /// Whether the expression is bound, or is in a kernel, or is a variable or a global: what has a
    /// name or needs none.
    pub(crate) fn is_named(&self, function: &Function, id: ExprId) -> bool {
        let data = function.data_of(id);
        self.bound[id]
            || self.kernels[data.scope]
            || matches!(data.expr, Expr::Var(_) | Expr::GlobalVar(_))
    }

    /// Whether every live expression stands in its place already.
    pub(crate) fn is_kept(&self, function: &Function) -> bool {
        function
            .iter()
            .all(|(id, data)| self.scope[id].expand().is_none_or(|scope| scope == data.scope))
    }
}

/// The scopes that use an expression.
#[derive(Clone, Copy, Default)]
enum Uses {
    #[default]
    None,
    In(ScopeId),
    InSeveral,
}

struct Sweep<'a> {
    function: &'a Function,
    /// The scope around each one, where its owner is placed.
    around: SecondaryMap<ScopeId, PackedOption<ScopeId>>,
    depth: SecondaryMap<ScopeId, u32>,
    /// The innermost scope around the uses so far.
    needed: SecondaryMap<ExprId, PackedOption<ScopeId>>,
    uses: SecondaryMap<ExprId, Uses>,
}

impl Sweep<'_> {
    fn use_in(&mut self, id: ExprId, scope: ScopeId) {
        self.uses[id] = match self.uses[id] {
            Uses::None => Uses::In(scope),
            Uses::In(other) if other == scope => Uses::In(scope),
            Uses::In(_) | Uses::InSeveral => Uses::InSeveral,
        };
        self.needed[id] = match self.needed[id].expand() {
            Some(other) => self.common(other, scope).into(),
            None => scope.into(),
        };
    }

    fn common(&self, mut a: ScopeId, mut b: ScopeId) -> ScopeId {
        while a != b {
            let inner = if self.depth[a] >= self.depth[b] { &mut a } else { &mut b };
            match self.around[*inner].expand() {
                Some(outer) => *inner = outer,
                None => return self.function.body(),
            }
        }
        a
    }

    /// The innermost of `inner` and the scopes around it up to `outer` that is in no loop and no
    /// closure within `outer`.
    fn outside_of_loops(&self, inner: ScopeId, outer: ScopeId) -> ScopeId {
        let (mut place, mut scope) = (inner, inner);
        while scope != outer {
            let Some(around) = self.around[scope].expand() else { return outer };
            if matches!(self.function.scope(scope).kind, ScopeKind::Loop | ScopeKind::Closure) {
                place = around;
            }
            scope = around;
        }
        place
    }
}
