//! Rewriting: one forward sweep from an old function to a new one.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::function::{FunctionData, live};
use super::visit::ScopeTree;
use super::{Binding, Call, Expr, ExprId, Function, FunctionBuilder, Scope, ScopeId, TypeError};
use crate::ir::{Attrs, Constant};

/// The new id of each expression of an old function that is still in the new one.
pub type IdMap = SecondaryMap<ExprId, PackedOption<ExprId>>;

/// Rewrites a function in one forward sweep.
///
/// [`next_expr`](Self::next_expr) and [`next_call`](Self::next_call) go through the live
/// expressions in order and copy the ones they pass, with operands mapped to their new ids.
/// The current one may be replaced by any expression pushed through
/// [`builder`](Self::builder). [`finish`](Self::finish) drops expressions that became dead, and
/// returns the old handle if nothing was replaced.
pub struct Rewriter {
    old: Function,
    builder: FunctionBuilder,
    map: IdMap,
    live: SecondaryMap<ExprId, bool>,
    next: u32,
    current: Option<ExprId>,
    unbound: SecondaryMap<ExprId, bool>,
    /// Where the expressions of a dissolved scope go.
    dissolved: SecondaryMap<ScopeId, PackedOption<ScopeId>>,
    /// Bindings that come into a scope, each before those of the expression or of later ones.
    inserted: BTreeMap<ScopeId, Vec<(ExprId, Vec<Binding>)>>,
    changed: bool,
    /// The scopes of the old function, once something asks which of them are around another.
    tree: Option<ScopeTree>,
}

impl Rewriter {
    /// A rewriter before the first expression.
    pub fn new(function: Function) -> Rewriter {
        Rewriter {
            builder: FunctionBuilder::with_scopes_of(&function),
            map: SecondaryMap::with_capacity(function.len()),
            live: function.live(),
            old: function,
            next: 0,
            current: None,
            unbound: SecondaryMap::new(),
            dissolved: SecondaryMap::new(),
            inserted: BTreeMap::new(),
            changed: false,
            tree: None,
        }
    }

    /// The old function.
    pub fn old(&self) -> &Function {
        &self.old
    }

    /// Goes on to the next live expression of the old function; its operands have new ids, and
    /// expressions pushed now go to its scope.
    ///
    /// # Errors
    ///
    /// If the former expression does not type with its new operands.
    pub fn next_expr(&mut self) -> Result<Option<ExprId>, TypeError> {
        self.copy_current()?;
        while (self.next as usize) < self.old.len() {
            let id = ExprId::from_u32(self.next);
            self.next += 1;
            if self.live[id] {
                let old = self.old.clone();
                let data = old.data_of(id);
                for scope in data.expr.scopes() {
                    self.map_scope(scope);
                }
                let scope = self.outermost(data.scope);
                self.builder.enter(scope, data.span.clone());
                self.current = Some(id);
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Goes on to the next live call of an operator.
    ///
    /// # Errors
    ///
    /// If an expression on the way does not type with its new operands.
    pub fn next_call(&mut self) -> Result<Option<ExprId>, TypeError> {
        while let Some(id) = self.next_expr()? {
            if self.old.expr(id).as_call().is_some() {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The new id of an expression of the old function that the sweep has passed.
    ///
    /// # Panics
    ///
    /// If the sweep has not passed the expression, or it is dead, or not of the old function.
    #[track_caller]
    pub fn mapped(&self, old: ExprId) -> ExprId {
        self.mapped_for("mapped", old)
    }

    /// The new ids of the arguments of a call of the old function.
    ///
    /// # Panics
    ///
    /// As [`mapped`](Self::mapped), for each argument.
    #[track_caller]
    pub fn args(&self, call: &Call) -> Vec<Option<ExprId>> {
        let mut args = Vec::with_capacity(call.args.len());
        for &arg in &call.args {
            // A closure would be the place of the panic.
            let Some(id) = arg else {
                args.push(None);
                continue;
            };
            args.push(Some(self.mapped_for("args", id)));
        }
        args
    }

    /// The arguments of a call, if all that are present are constants by now.
    ///
    /// # Panics
    ///
    /// As [`mapped`](Self::mapped), for each argument.
    #[track_caller]
    pub fn constant_args(&self, call: &Call) -> Option<Vec<Option<Constant>>> {
        let mut args = Vec::with_capacity(call.args.len());
        for &arg in &call.args {
            args.push(match arg {
                Some(id) => {
                    let new = self.mapped_for("constant_args", id);
                    Some(self.builder.expr(new).as_constant()?.clone())
                }
                None => None,
            });
        }
        Some(args)
    }

    /// The new id of an expression of the old function, for the method of that name.
    #[track_caller]
    fn mapped_for(&self, method: &str, old: ExprId) -> ExprId {
        if let Some(new) = self.map[old].expand() {
            return new;
        }
        let index = old.as_u32();
        let why = if index as usize >= self.old.len() {
            format!(
                "the old function has {} expressions; this id is of another function, or it is a new one",
                self.old.len()
            )
        } else if !self.live[old] {
            "nothing uses this expression, so the sweep leaves it out".to_owned()
        } else if self.current == Some(old) {
            "this is the current expression, which has no new id before it is replaced or copied"
                .to_owned()
        } else if index >= self.next {
            "the sweep has not come to this expression yet; only what it has passed has a new id"
                .to_owned()
        } else {
            "the copy of this expression failed with an error".to_owned()
        };
        panic!("`Rewriter::{method}` asks for the new id of {old} of the old function: {why}")
    }

    /// The current expression, for the method of that name.
    #[track_caller]
    fn current_for(&self, method: &str) -> ExprId {
        if let Some(current) = self.current {
            return current;
        }
        let why = match self.next.checked_sub(1).map(ExprId::from_u32) {
            None => "call `next_expr` or `next_call` first".to_owned(),
            Some(last) if self.map[last].is_some() => {
                format!("{last}, the last one, was replaced or copied already")
            }
            Some(_) => "the sweep is past the last one".to_owned(),
        };
        panic!("`Rewriter::{method}` needs a current expression, and there is none: {why}")
    }

    /// Pushes expressions to the current expression's scope, with its span.
    pub fn builder(&mut self) -> &mut FunctionBuilder {
        &mut self.builder
    }

    /// The new function as far as it is built.
    pub fn built(&self) -> &FunctionBuilder {
        &self.builder
    }

    /// Puts a new expression in the place of the current one.
    ///
    /// # Panics
    ///
    /// If there is no current expression, or it was replaced already; if the new one is not in the
    /// [`builder`](Self::builder), or in a scope that is not around the current one: what a branch
    /// computes cannot be used outside of the branch.
    #[track_caller]
    pub fn replace(&mut self, new: ExprId) {
        self.replace_for("replace", new);
    }

    #[track_caller]
    fn replace_for(&mut self, method: &str, new: ExprId) {
        let current = self.current_for(method);
        if new.as_u32() as usize >= self.builder.len() {
            panic!(
                "`Rewriter::{method}` puts {new} in the place of {current}, but the new function has \
                 only {} expressions: an id of the old one must go through `mapped`",
                self.builder.len()
            );
        }
        let (from, to) = (self.builder.data_of(new).scope, self.old.data_of(current).scope);
        if !self.is_visible(from, to) {
            panic!(
                "`Rewriter::{method}` puts {new}, a value of {from}, in the place of {current} in {to}: \
                 what a branch, a loop or a closure computes cannot be used outside of it"
            );
        }
        self.current = None;
        self.map[current] = new.into();
        self.changed = true;
    }

    /// Whether new expressions of the scope `from` can be used where the old ones of `to` were.
    fn is_visible(&mut self, from: ScopeId, to: ScopeId) -> bool {
        from == self.outermost(to)
            || self.old.data().scopes.is_valid(from)
                && self.tree.get_or_insert_with(|| ScopeTree::new(&self.old)).is_within(to, from)
    }

    /// Copies the current expression, with its operands mapped, and returns its new id; going on to
    /// the next expression does the same.
    ///
    /// # Errors
    ///
    /// If the expression does not type with its new operands.
    ///
    /// # Panics
    ///
    /// If there is no current expression, or it was replaced already.
    #[track_caller]
    pub fn copy(&mut self) -> Result<ExprId, TypeError> {
        let current = self.current_for("copy");
        self.copy_current()?;
        Ok(self.mapped(current))
    }

    /// Gives the current expression, a call, other attributes.
    ///
    /// # Errors
    ///
    /// If the call does not type with them, and its new operands.
    ///
    /// # Panics
    ///
    /// As [`replace`](Self::replace), and if the current expression is no call.
    #[track_caller]
    pub fn replace_attrs(&mut self, attrs: Attrs) -> Result<(), TypeError> {
        let current = self.current_for("replace_attrs");
        let mut expr = self.old.expr(current).map(|operand| self.mapped(operand), |scope| scope);
        let Expr::Call(call) = &mut expr else {
            panic!("`Rewriter::replace_attrs` gives attributes to {current}, which is no call")
        };
        call.attrs = attrs;
        let new = self.builder.push(expr)?;
        self.replace_for("replace_attrs", new);
        Ok(())
    }

    /// Puts a constant in the place of the current expression.
    ///
    /// # Panics
    ///
    /// As [`replace`](Self::replace).
    #[track_caller]
    pub fn replace_with_constant(&mut self, constant: Constant) {
        let new = self.builder.constant(constant);
        self.replace_for("replace_with_constant", new);
    }

    /// Drops the bindings of an expression of the old function, so that it is computed where it is
    /// used, if at all. Call this before the sweep passes the expression that owns the scope.
    pub fn unbind(&mut self, old: ExprId) {
        self.unbound[old] = true;
        self.changed = true;
    }

    /// Puts what a branch computes into the scope around it; its bindings go, unless they are
    /// [inserted](Self::insert_bindings) where the branch was. To be called before the sweep comes
    /// to the first expression of the branch, whose owner must be replaced.
    ///
    /// # Panics
    ///
    /// If the scope is not of the old function.
    #[track_caller]
    pub fn dissolve(&mut self, branch: ScopeId) {
        self.check_scope("dissolve", branch);
        self.dissolved[branch] = self.old.scope(branch).parent.into();
        self.changed = true;
    }

    /// Adds bindings of new expressions to the current expression's scope, before its own binding
    /// and those of later expressions.
    pub fn insert_bindings(&mut self, bindings: Vec<Binding>) {
        let Some(last) = self.next.checked_sub(1) else { return };
        if !bindings.is_empty() {
            let before = ExprId::from_u32(last);
            let scope = self.old.data_of(before).scope;
            self.inserted.entry(scope).or_default().push((before, bindings));
            self.changed = true;
        }
    }

    /// The bindings of a scope of the old function whose values `keep` chooses, with those that were
    /// inserted there; for a scope that was [dissolved](Self::dissolve), once the sweep is past it.
    ///
    /// # Panics
    ///
    /// If the scope is not of the old function, or the sweep has not passed a value that is kept.
    #[track_caller]
    pub fn bindings_of(&mut self, scope: ScopeId, keep: impl Fn(ExprId) -> bool) -> Vec<Binding> {
        self.check_scope("bindings_of", scope);
        let old = self.old.clone();
        let mut inserted = self.inserted.remove(&scope).unwrap_or_default().into_iter().peekable();
        let mut bindings = Vec::new();
        for Binding { name, value } in &old.scope(scope).bindings {
            while let Some((_, list)) = inserted.next_if(|(before, _)| before <= value) {
                bindings.extend(list);
            }
            if keep(*value) {
                let value = self.mapped_for("bindings_of", *value);
                bindings.push(Binding { name: name.clone(), value });
            }
        }
        bindings.extend(inserted.flat_map(|(_, list)| list));
        bindings
    }

    /// Checks that a scope is one of the old function, for the method of that name.
    #[track_caller]
    fn check_scope(&self, method: &str, scope: ScopeId) {
        let scopes = &self.old.data().scopes;
        if !scopes.is_valid(scope) {
            panic!(
                "`Rewriter::{method}` is about {scope}, but the old function has {} scopes: this one \
                 is of another function, or it is a new one",
                scopes.len()
            );
        }
    }

    /// The scope that the expressions of a scope of the old function go to.
    fn outermost(&self, mut scope: ScopeId) -> ScopeId {
        while let Some(around) = self.dissolved[scope].expand() {
            scope = around;
        }
        scope
    }

    /// Where an expression of the old function went, if it was replaced or passed.
    pub fn new_of(&self, old: ExprId) -> Option<ExprId> {
        self.map[old].expand()
    }

    /// Gives the function other attributes.
    pub fn set_attrs(&mut self, attrs: Attrs) {
        if self.old.attrs() != &attrs {
            self.builder.set_attrs(attrs);
            self.changed = true;
        }
    }

    /// Copies the remaining expressions and returns the new function without dead ones, or the old
    /// handle if nothing was replaced.
    ///
    /// # Errors
    ///
    /// If an expression does not type with its new operands.
    pub fn finish(mut self) -> Result<Function, TypeError> {
        while self.next_expr()?.is_some() {}
        if !self.changed {
            return Ok(self.old);
        }
        self.map_scope(self.old.body());
        let result = self.mapped(self.old.result());
        self.builder.enter(self.old.body(), crate::ir::Span::Unknown);
        Ok(compact(self.builder.finish(result)))
    }

    fn copy_current(&mut self) -> Result<(), TypeError> {
        let Some(id) = self.current.take() else { return Ok(()) };
        let old = self.old.clone();
        let data = old.data_of(id);
        let expr = data.expr.map(|operand| self.mapped(operand), |scope| scope);
        // The old type is still right if the operands have the types they had.
        let unchanged = data.expr.scopes().next().is_none()
            && data.expr.operands().all(|operand| {
                let (old, new) = (old.data_of(operand), self.builder.data_of(self.mapped(operand)));
                old.ty == new.ty
                    && old.shape_value == new.shape_value
                    && old.expr.as_constant() == new.expr.as_constant()
            });
        let new = if unchanged {
            self.builder.push_typed(expr, (data.ty.clone(), data.shape_value.clone()))
        } else {
            self.builder.push(expr)?
        };
        self.map[id] = new.into();
        Ok(())
    }

    fn map_scope(&mut self, scope: ScopeId) {
        let old = self.old.clone();
        let old = old.scope(scope);
        // Of a dissolved scope nothing is left: whoever replaces its owner asks for its bindings.
        let bindings = match self.dissolved[scope].is_some() {
            true => Vec::new(),
            false => {
                let unbound = std::mem::take(&mut self.unbound);
                let bindings = self.bindings_of(scope, |value| !unbound[value]);
                self.unbound = unbound;
                bindings
            }
        };
        let new = Scope {
            kind: old.kind,
            parent: old.parent.map(|parent| self.outermost(parent)),
            params: old.params.iter().map(|&param| self.mapped(param)).collect(),
            bindings,
            result: self.mapped(old.result),
        };
        self.builder.data.scopes[scope] = new;
    }
}

/// The function without dead expressions; the same handle if all are live.
pub fn compact(function: Function) -> Function {
    let data = function.data();
    let live = live(data);
    if data.exprs.keys().all(|id| live[id]) {
        return function;
    }
    let mut kept_scopes: SecondaryMap<ScopeId, bool> = SecondaryMap::new();
    kept_scopes[function.body()] = true;
    for (_, expr) in data.exprs.iter().filter(|(id, _)| live[*id]) {
        for scope in expr.expr.scopes() {
            kept_scopes[scope] = true;
        }
    }
    // Ids are handed out in order, so both maps are complete before the copying starts.
    let mut ids = IdMap::with_capacity(data.exprs.len());
    for (new, old) in data.exprs.keys().filter(|&id| live[id]).enumerate() {
        ids[old] = ExprId::from_u32(new as u32).into();
    }
    let mut scope_ids: SecondaryMap<ScopeId, PackedOption<ScopeId>> = SecondaryMap::new();
    for (new, old) in data.scopes.keys().filter(|&scope| kept_scopes[scope]).enumerate() {
        scope_ids[old] = ScopeId::from_u32(new as u32).into();
    }
    let id = |old: ExprId| ids[old].expect("what a live expression needs is live");
    let scope_id = |old: ScopeId| scope_ids[old].expect("a live expression's scopes are kept");

    let mut exprs = PrimaryMap::with_capacity(data.exprs.len());
    for (_, old) in data.exprs.iter().filter(|(id, _)| live[*id]) {
        let mut new = old.clone();
        new.expr = old.expr.map(id, scope_id);
        new.scope = scope_id(old.scope);
        exprs.push(new);
    }
    let mut scopes = PrimaryMap::new();
    for (_, old) in data.scopes.iter().filter(|(scope, _)| kept_scopes[*scope]) {
        let Scope { kind, parent, params, bindings, result } = old;
        scopes.push(Scope {
            kind: *kind,
            parent: parent.map(scope_id),
            params: params.iter().map(|&param| id(param)).collect(),
            bindings: bindings
                .iter()
                .map(|Binding { name, value }| Binding { name: name.clone(), value: id(*value) })
                .collect(),
            result: id(*result),
        });
    }
    Function::from_data(FunctionData {
        exprs,
        scopes,
        attrs: data.attrs.clone(),
        facts: data.facts.clone(),
        global_refs: OnceLock::new(),
    })
}

#[cfg(test)]
mod tests;
