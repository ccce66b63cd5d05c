//! The checks of the verifier.

use cranelift_entity::SecondaryMap;

use super::{VerifyError, VerifyPlace};
use crate::graph::function::FunctionData;
use crate::graph::typing;
use crate::graph::visit::ScopeTree;
use crate::graph::{Binding, Closure, Expr, ExprData, ExprId, Function, Scope, ScopeId, ScopeKind};
use crate::ir::{Definition, Dim, FuncType, GlobalVar, IRModule, Type};

/// All violations in a function, in the order of its expressions.
pub(super) fn check(function: &Function, module: Option<&IRModule>) -> Vec<VerifyError> {
    let mut checker = Checker { data: function.data(), module, errors: Vec::new() };
    checker.ranges();
    // Functions with ids out of range cannot be checked further.
    if checker.errors.is_empty() {
        let tree = ScopeTree::new(function);
        checker.scopes(&tree);
        checker.exprs(&tree);
    }
    let mut errors = checker.errors;
    errors.sort_by_key(|error| error.place);
    errors
}

/// Whether all ids refer to existing expressions and scopes, so that the function can be printed.
pub(super) fn ids_are_in_range(function: &Function) -> bool {
    let mut checker = Checker { data: function.data(), module: None, errors: Vec::new() };
    checker.ranges();
    checker.errors.is_empty()
}

struct Checker<'a> {
    data: &'a FunctionData,
    module: Option<&'a IRModule>,
    errors: Vec<VerifyError>,
}

impl<'a> Checker<'a> {
    fn at_expr(&mut self, id: ExprId, message: impl Into<String>) {
        self.errors.push(VerifyError { place: VerifyPlace::Expr(id), message: message.into() });
    }

    fn at_scope(&mut self, scope: ScopeId, message: impl Into<String>) {
        self.errors.push(VerifyError { place: VerifyPlace::Scope(scope), message: message.into() });
    }

    fn has(&self, id: ExprId) -> bool {
        self.data.exprs.is_valid(id)
    }

    fn ranges(&mut self) {
        let data = self.data;
        let mut owned: SecondaryMap<ScopeId, bool> = SecondaryMap::new();
        let body = ScopeId::from_u32(0);
        if !data.scopes.is_valid(body) {
            return self.at_scope(body, "the function has no body");
        }
        owned[body] = true;
        for (id, ExprData { expr, ty: _, shape_value: _, scope, span: _ }) in &data.exprs {
            if !data.scopes.is_valid(*scope) {
                self.at_expr(id, format!("it stands in {scope}, which does not exist"));
            }
            let recursive = match expr {
                Expr::Func(Closure { scope: _, recursive, attrs: _ }) => *recursive,
                Expr::Var(_)
                | Expr::GlobalVar(_)
                | Expr::Constant(_)
                | Expr::Tuple(_)
                | Expr::TupleGet { .. }
                | Expr::Call(_)
                | Expr::If(_)
                | Expr::While(_) => None,
            };
            for operand in expr.operands().chain(recursive) {
                if !self.has(operand) {
                    self.at_expr(id, format!("it uses {operand:?}, which does not exist"));
                }
            }
            for scope in expr.scopes() {
                match data.scopes.is_valid(scope) {
                    true => owned[scope] = true,
                    false => self.at_expr(id, format!("it has {scope}, which does not exist")),
                }
            }
        }
        for (id, Scope { kind: _, parent, params, bindings, result }) in &data.scopes {
            if parent.is_none() != (id == body) || parent.is_some_and(|parent| parent >= id) {
                self.at_scope(id, "it is not in the tree of scopes: only the body has no parent");
            }
            // A scope without an owner may have no result.
            let result = Some(*result).filter(|_| owned[id]);
            let values = bindings.iter().map(|Binding { name: _, value }| *value);
            for value in params.iter().copied().chain(values).chain(result) {
                if !self.has(value) {
                    self.at_scope(id, format!("it uses {value:?}, which does not exist"));
                }
            }
        }
    }

    fn scopes(&mut self, tree: &ScopeTree) {
        let data = self.data;
        let mut owners: SecondaryMap<ScopeId, u32> = SecondaryMap::new();
        for (id, expr) in &data.exprs {
            let expected = match &expr.expr {
                Expr::If(_) => ScopeKind::Branch,
                Expr::While(_) => ScopeKind::Loop,
                Expr::Func(_) => ScopeKind::Closure,
                Expr::Var(_)
                | Expr::GlobalVar(_)
                | Expr::Constant(_)
                | Expr::Tuple(_)
                | Expr::TupleGet { .. }
                | Expr::Call(_) => continue,
            };
            for scope in expr.expr.scopes() {
                owners[scope] += 1;
                let Scope { kind, parent, params, bindings: _, result: _ } = &data.scopes[scope];
                if *kind != expected {
                    self.at_expr(id, format!("its {scope} is a {kind:?}, not a {expected:?}"));
                }
                if *parent != Some(expr.scope) {
                    self.at_expr(id, format!("its {scope} is not directly within its own scope"));
                }
                if *kind == ScopeKind::Branch && !params.is_empty() {
                    self.at_expr(id, "a branch has no parameters");
                }
                let later = tree.exprs(scope).iter().find(|&&inner| inner >= id);
                if let Some(&later) = later {
                    self.at_expr(later, "it comes after the expression whose scope it stands in");
                }
            }
        }
        for (id, Scope { kind: _, parent: _, params: _, bindings, result }) in &data.scopes {
            if owners[id] > 1 {
                self.at_scope(id, format!("it belongs to {} expressions", owners[id]));
            }
            let owner = tree.owner(id);
            if owner.is_none() && id != ScopeId::from_u32(0) {
                continue;
            }
            let values = bindings.iter().map(|binding| (binding.value, "a bound value"));
            for (value, what) in values.chain([(*result, "its result")]) {
                if !tree.is_within(id, data.exprs[value].scope) {
                    self.at_scope(id, format!("{what} is not visible in it"));
                } else if owner.is_some_and(|owner| value >= owner) {
                    self.at_scope(id, format!("{what} comes after the expression it belongs to"));
                }
            }
        }
        self.variables();
    }

    /// Checks that every variable is a parameter of its scope, or a closure's name for itself.
    fn variables(&mut self) {
        let data = self.data;
        let mut declared: SecondaryMap<ExprId, u32> = SecondaryMap::new();
        for (id, scope) in &data.scopes {
            for &param in &scope.params {
                declared[param] += 1;
                let param_data = &data.exprs[param];
                if !matches!(param_data.expr, Expr::Var(_)) {
                    self.at_expr(param, "a parameter must be a variable");
                } else if param_data.scope != id {
                    self.at_expr(param, format!("it is a parameter of {id}, but stands elsewhere"));
                }
            }
        }
        for (id, expr) in &data.exprs {
            if let Expr::Func(Closure { scope, recursive: Some(recursive), attrs: _ }) = &expr.expr
            {
                declared[*recursive] += 1;
                let variable = &data.exprs[*recursive];
                if !matches!(variable.expr, Expr::Var(_)) || variable.scope != *scope {
                    self.at_expr(id, "a closure's name for itself must be a variable of its scope");
                }
            }
        }
        for (id, expr) in &data.exprs {
            if !matches!(expr.expr, Expr::Var(_)) {
                continue;
            }
            match declared[id] {
                1 => {}
                0 => self.at_expr(id, "the variable is no parameter"),
                times => self.at_expr(id, format!("the variable is declared {times} times")),
            }
        }
    }

    fn exprs(&mut self, tree: &ScopeTree) {
        let data = self.data;
        for (id, expr) in &data.exprs {
            for operand in expr.expr.operands() {
                if operand >= id {
                    self.at_expr(id, "it uses an expression that comes after it, or itself");
                } else if !tree.is_within(expr.scope, data.exprs[operand].scope) {
                    self.at_expr(id, "it uses an expression of a scope that is not around it");
                }
            }
            match &expr.expr {
                Expr::Var(_) => self.dims(id, &expr.ty),
                Expr::GlobalVar(global) => self.global(id, global, &expr.ty),
                Expr::Call(_) | Expr::Constant(_) => {
                    self.dims(id, &expr.ty);
                    self.types(id, expr);
                }
                Expr::Tuple(_)
                | Expr::TupleGet { .. }
                | Expr::If(_)
                | Expr::While(_)
                | Expr::Func(_) => self.types(id, expr),
            }
        }
    }

    /// Checks that inferring the type again gives the same type.
    fn types(&mut self, id: ExprId, expr: &ExprData) {
        match typing::infer(self.data, &expr.expr, None) {
            Err(error) => self.at_expr(id, error.to_string()),
            Ok((ty, _)) if ty != expr.ty => {
                self.at_expr(id, format!("its type is recorded as {}, but it is {ty}", expr.ty));
            }
            Ok((_, value)) if value != expr.shape_value => {
                let show = |value: &Option<std::sync::Arc<[Dim]>>| match value {
                    Some(value) => format!("{value:?}"),
                    None => "unknown".to_owned(),
                };
                let (recorded, found) = (show(&expr.shape_value), show(&value));
                self.at_expr(id, format!("its value is recorded as {recorded}, but it is {found}"));
            }
            Ok(_) => {}
        }
    }

    fn global(&mut self, id: ExprId, global: &GlobalVar, ty: &Type) {
        let Some(func) = ty.as_func() else {
            return self.at_expr(id, format!("a global has a function type, not {ty}"));
        };
        let Some(module) = self.module else { return };
        match module.get(global) {
            None => self.at_expr(id, format!("the module does not define {global}")),
            Some(definition) => match declared_type(definition) {
                Some(declared) if declared == *func => {}
                Some(declared) => {
                    let declared = Type::Func(declared.into());
                    self.at_expr(id, format!("{global} is used as {ty}, but it is {declared}"));
                }
                None => self.at_expr(id, format!("{global} has no type, because it is broken")),
            },
        }
    }

    /// Checks that every extent is a number that is not negative, or an expression that has a
    /// value.
    fn dims(&mut self, id: ExprId, ty: &Type) {
        let mut stack = vec![ty];
        while let Some(ty) = stack.pop() {
            match ty {
                Type::Tensor(tensor) => {
                    for dim in tensor.shape.iter() {
                        if let Some(poison) = dim.poison() {
                            let why = poison.keyword();
                            self.at_expr(id, format!("an extent of {tensor} has no value: {why}"));
                        } else if dim.as_const().is_some_and(|dim| dim < 0) {
                            self.at_expr(id, format!("an extent of {tensor} is negative"));
                        }
                    }
                }
                Type::Tuple(fields) => stack.extend(fields.iter()),
                Type::Func(func) => {
                    stack.extend(&func.params);
                    stack.push(&func.ret);
                }
                Type::Sequence(element) | Type::Optional(element) => stack.push(element),
            }
        }
    }
}

/// The type of a definition; `None` for a function whose parameters or result do not exist.
fn declared_type(definition: &Definition) -> Option<FuncType> {
    match definition {
        Definition::Extern(function) => Some(function.ty.clone()),
        // The graph does not call loop functions.
        Definition::Prim(_) => None,
        Definition::Graph(function) => {
            let data = function.data();
            let body = data.scopes.get(function.body())?;
            let ty = |id: ExprId| data.exprs.get(id).map(|expr| expr.ty.clone());
            let params = body.params.iter().map(|&param| ty(param)).collect::<Option<_>>()?;
            Some(FuncType { params, ret: ty(body.result)? })
        }
    }
}
