//! Small analyses that several tools need: scopes with their contents, users, free variables.

use std::collections::BTreeSet;

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};

use super::{Call, Callee, Expr, ExprId, Function, ScopeId};

/// The scopes of a function as a tree, with the expressions of each.
///
/// It can be made for any function whose ids are in range, even if the verifier refuses it.
#[derive(PartialEq, Debug)]
pub struct ScopeTree {
    exprs: SecondaryMap<ScopeId, Vec<ExprId>>,
    children: SecondaryMap<ScopeId, Vec<ScopeId>>,
    owner: SecondaryMap<ScopeId, PackedOption<ExprId>>,
    /// Numbers on entering and leaving a scope in one walk of the tree: those of nested scopes lie
    /// between. Zero for a scope that cannot be reached from the body.
    enter: SecondaryMap<ScopeId, u32>,
    leave: SecondaryMap<ScopeId, u32>,
    depth: SecondaryMap<ScopeId, u32>,
}

impl ScopeTree {
    /// The tree of a function's scopes.
    pub fn new(function: &Function) -> ScopeTree {
        let mut tree = ScopeTree {
            exprs: SecondaryMap::new(),
            children: SecondaryMap::new(),
            owner: SecondaryMap::new(),
            enter: SecondaryMap::new(),
            leave: SecondaryMap::new(),
            depth: SecondaryMap::new(),
        };
        for (id, data) in function.iter() {
            tree.exprs[data.scope].push(id);
            for scope in data.expr.scopes() {
                if tree.owner[scope].is_none() {
                    tree.owner[scope] = id.into();
                }
            }
        }
        for (id, scope) in function.scopes() {
            if let Some(parent) = scope.parent
                && parent < id
            {
                tree.children[parent].push(id);
            }
        }
        tree.number(function.body());
        tree
    }

    fn number(&mut self, root: ScopeId) {
        let mut clock = 1;
        self.enter[root] = clock;
        let mut stack = vec![(root, 0)];
        while let Some((scope, child)) = stack.pop() {
            clock += 1;
            match self.children[scope].get(child) {
                Some(&inner) => {
                    stack.push((scope, child + 1));
                    self.enter[inner] = clock;
                    self.depth[inner] = stack.len() as u32;
                    stack.push((inner, 0));
                }
                None => self.leave[scope] = clock,
            }
        }
    }

    /// The expressions directly in a scope, in order.
    pub fn exprs(&self, scope: ScopeId) -> &[ExprId] {
        &self.exprs[scope]
    }

    /// The scopes directly within a scope, in order.
    pub fn children(&self, scope: ScopeId) -> &[ScopeId] {
        &self.children[scope]
    }

    /// The expression that owns a scope; `None` for the body, and for scopes that no expression
    /// owns any more.
    pub fn owner(&self, scope: ScopeId) -> Option<ExprId> {
        self.owner[scope].expand()
    }

    /// The number of scopes around a scope.
    pub fn depth(&self, scope: ScopeId) -> u32 {
        self.depth[scope]
    }

    /// Whether `inner` is `outer` or lies within it.
    pub fn is_within(&self, inner: ScopeId, outer: ScopeId) -> bool {
        inner == outer
            || (self.enter[outer] != 0
                && self.enter[outer] <= self.enter[inner]
                && self.leave[inner] <= self.leave[outer])
    }

    /// `scope` and every scope within it, each after its parent.
    pub fn subtree(&self, scope: ScopeId) -> Vec<ScopeId> {
        let mut scopes = vec![scope];
        let mut next = 0;
        while let Some(&scope) = scopes.get(next) {
            scopes.extend(self.children(scope));
            next += 1;
        }
        scopes
    }
}

/// The live expressions that use each expression as an operand.
///
/// The result and the bindings of a scope are no users: see [`Scope`](super::Scope).
#[derive(PartialEq, Debug)]
pub struct Users {
    /// Users of `id` are `users[starts[id]..starts[id + 1]]`.
    starts: Vec<u32>,
    users: Vec<ExprId>,
}

impl Users {
    /// The users of each expression of a function.
    pub fn new(function: &Function) -> Users {
        Users::among(function, &function.live())
    }

    /// As [`new`](Self::new), given the live expressions.
    pub(crate) fn among(function: &Function, live: &SecondaryMap<ExprId, bool>) -> Users {
        let operands = || {
            function
                .iter()
                .filter(|(user, _)| live[*user])
                .flat_map(|(user, data)| data.expr.operands().map(move |operand| (operand, user)))
        };
        let mut starts = vec![0u32; function.len() + 1];
        for (operand, _) in operands() {
            starts[operand.index() + 1] += 1;
        }
        for index in 0..function.len() {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut users = vec![ExprId::from_u32(0); starts[function.len()] as usize];
        for (operand, user) in operands() {
            let place = &mut next[operand.index()];
            users[*place as usize] = user;
            *place += 1;
        }
        Users { starts, users }
    }

    /// The live users of an expression in order, once for each use.
    pub fn of(&self, id: ExprId) -> &[ExprId] {
        let (start, end) = (self.starts[id.index()], self.starts[id.index() + 1]);
        &self.users[start as usize..end as usize]
    }
}

/// For each expression, whether a live one uses it otherwise than to call it: as an argument, in a
/// tuple, as the result of a scope.
pub(crate) fn used_as_values(function: &Function) -> SecondaryMap<ExprId, bool> {
    let live = function.live();
    let mut values = SecondaryMap::with_capacity(function.len());
    values[function.result()] = true;
    for (_, data) in function.iter().filter(|(id, _)| live[*id]) {
        let callee = match &data.expr {
            Expr::Call(Call { callee: Callee::Expr(_), .. }) => 1,
            _ => 0,
        };
        for operand in data.expr.operands().skip(callee) {
            values[operand] = true;
        }
        for scope in data.expr.scopes() {
            values[function.scope(scope).result] = true;
        }
    }
    values
}

/// The expressions from outside that each closure captures: those used by live expressions of its
/// scope and of nested scopes, in order.
pub fn captures(function: &Function, tree: &ScopeTree) -> SecondaryMap<ScopeId, Vec<ExprId>> {
    let live = function.live();
    let mut captures: SecondaryMap<ScopeId, Vec<ExprId>> = SecondaryMap::new();
    let mut free: SecondaryMap<ScopeId, BTreeSet<ExprId>> = SecondaryMap::new();
    // Scopes come after their parent, so in reverse order the free expressions of nested scopes are
    // known first.
    let scopes: Vec<ScopeId> = function.scopes().map(|(scope, _)| scope).collect();
    for &scope in scopes.iter().rev() {
        let Some(owner) = tree.owner(scope).filter(|&owner| live[owner]) else { continue };
        let data = function.scope(scope);
        let mut used = std::mem::take(&mut free[scope]);
        used.insert(data.result);
        used.extend(data.bindings.iter().map(|binding| binding.value));
        for &id in tree.exprs(scope).iter().filter(|&&id| live[id]) {
            used.extend(function.expr(id).operands());
        }
        used.retain(|&id| function.data_of(id).scope != scope);
        if matches!(function.expr(owner), Expr::Func(_)) {
            captures[scope] = used.iter().copied().collect();
        }
        let outer = &mut free[function.data_of(owner).scope];
        if outer.len() < used.len() {
            std::mem::swap(outer, &mut used);
        }
        outer.extend(used);
    }
    captures
}

/// Whether an expression is written where it is used rather than on a line of its own, and compared
/// by content rather than by sharing: variables, globals, constants and fields.
pub fn is_trivial(expr: &Expr) -> bool {
    match expr {
        Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) | Expr::TupleGet { .. } => true,
        Expr::Tuple(_) | Expr::Call(_) | Expr::If(_) | Expr::While(_) | Expr::Func(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{FunctionBuilder, ScopeKind};
    use crate::ir::{Attrs, DType, Type};
    use crate::ops::Op;

    #[test]
    fn closures_capture_what_they_use_from_outside_at_any_depth() {
        let relu = Op::get("nn.relu").unwrap();
        let mut b = FunctionBuilder::new();
        let cond = b.param("c", Type::tensor(&[], DType::Bool));
        let x = b.param("x", Type::tensor(&[2], DType::F32));
        let unused = b.call(relu, &[x], Attrs::new()).unwrap();
        let closure = b.open_scope(ScopeKind::Closure);
        let y = b.param("y", Type::tensor(&[2], DType::F32));
        let inner = b.open_scope(ScopeKind::Branch);
        let then_scope = b.close_scope(x);
        b.open_scope(ScopeKind::Branch);
        b.call(relu, &[unused], Attrs::new()).unwrap();
        let z = b.call(relu, &[y], Attrs::new()).unwrap();
        let else_scope = b.close_scope(z);
        let choice = b.if_else(cond, then_scope, else_scope).unwrap();
        b.close_scope(choice);
        let func = b.closure(closure, None, Attrs::new()).unwrap();
        let result = b.call_function(func, &[x]).unwrap();
        let function = b.finish(result);

        let tree = ScopeTree::new(&function);
        let captures = captures(&function, &tree);
        assert_eq!(captures[closure], [cond, x]);
        assert!(captures[else_scope].is_empty(), "a branch is no closure");
        assert!(tree.is_within(inner, closure) && !tree.is_within(closure, inner));
        assert!(!tree.is_within(then_scope, else_scope));
        assert_eq!((tree.owner(closure), tree.owner(else_scope)), (Some(func), Some(choice)));
        assert_eq!((tree.depth(function.body()), tree.depth(else_scope)), (0, 2));
        assert_eq!(tree.exprs(closure), [y, choice]);

        let users = Users::new(&function);
        assert_eq!(users.of(x), [result], "the dead call does not count");
        assert_eq!(users.of(unused), []);
        assert_eq!(users.of(y), [z]);
    }
}
