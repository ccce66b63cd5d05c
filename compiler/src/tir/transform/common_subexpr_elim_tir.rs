//! Common subexpressions of the loop IR.

mod cost;

use indexmap::IndexMap;

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BufferId, MAX_DEPTH, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt, VarId};
use cost::{cost, is_worth_a_name};

crate::register_pass_config_option! {
    /// Whether equal subexpressions of loop functions are computed once.
    pub ENABLE_CSE_TIR: bool = "tir.enable_cse_tir", default = true;
}

/// Maximum number of names for one sequence of statements. Each is a level of nesting, and a search
/// of the rest of the sequence.
const MAX_NAMES: usize = 16;

/// Gives names to scalar subexpressions that are computed several times.
///
/// Candidates are address arithmetic, loads whose memory is not stored to in between, and calls of
/// mathematical functions. The name is bound before the first statement that surely computes the
/// expression, so that no computation and no load is added. Sums with constants stay, because
/// addressing modes compute them for free. Vectors stay too: the schedule decides which of them are
/// in registers, and for how long.
#[prim_func_pass(opt_level = 0, name = "tir.CommonSubexprElimTIR", crate = crate)]
pub fn common_subexpr_elim_tir(func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    if !cx.get(&ENABLE_CSE_TIR) {
        return func;
    }
    let mut movable = false;
    func.body.walk(&mut |stmt| movable |= matches!(stmt, Stmt::BlockRealize(_)));
    // A block's computation must not depend on names around it.
    if movable {
        return func;
    }
    let mut data = (*func).clone();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut names = 0;
    data.body = Sharing { data: &mut data, names: &mut names }.stmt(body);
    // A name adds a level of nesting, for which the function may have no room.
    if names == 0 || depth(&data.body) > MAX_DEPTH {
        return func;
    }
    cx.count("shared subexpressions", names);
    PrimFunc::new(data)
}

/// Nodes on the longest path from a statement to a leaf.
fn depth(stmt: &Stmt) -> usize {
    let mut deepest = 0;
    stmt.for_each_child(&mut |child| deepest = deepest.max(depth(child)));
    stmt.for_each_expr(&mut |expr| deepest = deepest.max(expr.depth()));
    deepest + 1
}

/// An item of a sequence.
enum Item {
    /// A name for a value that later items compute.
    Name(VarId, PrimExpr),
    Stmt(Stmt),
}

impl Item {
    /// Calls `visit` with the expressions that are evaluated when the item is reached.
    fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        match self {
            Item::Name(_, value) => visit(value),
            Item::Stmt(stmt) => stmt.for_each_expr(visit),
        }
    }

    /// Calls `visit` with every node of every expression in the item.
    fn walk_exprs<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        match self {
            Item::Name(_, value) => value.walk(visit),
            Item::Stmt(stmt) => stmt.walk_exprs(visit),
        }
    }

    fn map_exprs(&mut self, map: &mut dyn FnMut(PrimExpr) -> PrimExpr) {
        match self {
            Item::Name(_, value) => {
                let taken = std::mem::replace(value, PrimExpr::index(0));
                *value = map(taken);
            }
            Item::Stmt(stmt) => {
                let taken = std::mem::replace(stmt, Stmt::nop());
                *stmt = taken.map_exprs(map);
            }
        }
    }

    /// Whether the item stores to one of some buffers, and if so, whether its expressions are all
    /// evaluated before.
    fn stores(&self, buffers: &[BufferId]) -> Option<StoresWhen> {
        let Item::Stmt(stmt) = self else { return None };
        let mut found = None;
        stmt.walk(&mut |inner| {
            if let Stmt::Store { buffer, .. } = inner
                && buffers.contains(buffer)
            {
                found = Some(StoresWhen::Meanwhile);
            }
        });
        match stmt {
            Stmt::Store { .. } if found.is_some() => Some(StoresWhen::AtItsEnd),
            _ => found,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoresWhen {
    AtItsEnd,
    Meanwhile,
}

struct Sharing<'a> {
    data: &'a mut PrimFuncData,
    /// Names given so far.
    names: &'a mut u64,
}

impl Sharing<'_> {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let mut items: Vec<Item> = match stmt {
            Stmt::Seq(stmts) => stmts.into_iter().map(Item::Stmt).collect(),
            stmt => vec![Item::Stmt(stmt)],
        };
        let before = *self.names;
        for expr in candidates(&items) {
            if *self.names - before == MAX_NAMES as u64 {
                break;
            }
            self.name(&mut items, &expr);
        }
        let mut stmts = Vec::new();
        let mut named = Vec::new();
        for item in items {
            match item {
                Item::Name(var, value) => named.push((var, value, std::mem::take(&mut stmts))),
                Item::Stmt(stmt) => stmts.push(self.inside(stmt)),
            }
        }
        let mut body = stmts;
        for (var, value, before) in named.into_iter().rev() {
            let rest = Stmt::let_(var, value, Stmt::seq(body));
            body = before;
            body.push(rest);
        }
        Stmt::seq(body)
    }

    /// The sequences inside a statement.
    fn inside(&mut self, mut stmt: Stmt) -> Stmt {
        stmt.for_each_child_mut(&mut |child| {
            let taken = std::mem::replace(child, Stmt::nop());
            *child = self.stmt(taken);
        });
        stmt
    }

    /// Names the expression wherever that still saves a computation.
    fn name(&mut self, items: &mut Vec<Item>, expr: &PrimExpr) {
        let mut memory = Vec::new();
        expr.walk(&mut |node| {
            if let PrimExpr::Load { buffer, .. } = node {
                memory.push(*buffer);
                memory.extend(self.data.same_memory(*buffer));
            }
        });
        let surely = |item: &Item| {
            let mut found = false;
            item.for_each_expr(&mut |own| for_each_sure(own, &mut |node| found |= node == expr));
            found
        };
        let mut start = 0;
        while let Some(distance) = items.iter().skip(start).position(surely) {
            let first = start + distance;
            let end = unchanged(items, first, &memory);
            let mut uses = 0;
            for item in items.iter().take(end).skip(first) {
                item.walk_exprs(&mut |node| uses += usize::from(node == expr));
            }
            start = end.max(first + 1);
            if uses < 2 {
                continue;
            }
            let ty = expr.ty();
            let var = self.data.var("common", ty);
            for item in items.iter_mut().take(end).skip(first) {
                item.map_exprs(&mut |whole| {
                    whole.rewrite(&mut |node| match node == *expr {
                        true => PrimExpr::Var { var, ty },
                        false => node,
                    })
                });
            }
            items.insert(first, Item::Name(var, expr.clone()));
            *self.names += 1;
            start += 1;
        }
    }
}

/// The end of the items from `first` on that read the same contents of some buffers.
fn unchanged(items: &[Item], first: usize, memory: &[BufferId]) -> usize {
    for (position, item) in items.iter().enumerate().skip(first) {
        match item.stores(memory) {
            None => {}
            Some(StoresWhen::AtItsEnd) => return position + 1,
            Some(StoresWhen::Meanwhile) => return position,
        }
    }
    items.len()
}

/// Expressions that are computed at least twice, and surely at the first place; the most costly
/// ones first.
fn candidates(items: &[Item]) -> Vec<PrimExpr> {
    let mut counts: IndexMap<&PrimExpr, usize> = IndexMap::new();
    for item in items {
        item.for_each_expr(&mut |own| {
            for_each_sure(own, &mut |node| {
                if !node.is_leaf() && is_worth_a_name(node) {
                    counts.entry(node).or_default();
                }
            });
        });
        item.walk_exprs(&mut |node| {
            if let Some(count) = counts.get_mut(node) {
                *count += 1;
            }
        });
    }
    let mut repeated: Vec<(&PrimExpr, u32)> = counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(expr, _)| (expr, cost(expr)))
        .collect();
    repeated.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    repeated.into_iter().map(|(expr, _)| expr.clone()).collect()
}

/// Calls `visit` with the nodes that are evaluated whenever the expression is, and that use no name
/// bound within it.
fn for_each_sure<'a>(expr: &'a PrimExpr, visit: &mut dyn FnMut(&'a PrimExpr)) {
    match expr {
        PrimExpr::Select { cond, .. } if cond.ty() == PrimType::BOOL => {
            visit(expr);
            for_each_sure(cond, visit);
        }
        PrimExpr::Let { var: _, value, body: _ } => for_each_sure(value, visit),
        other => {
            visit(other);
            other.for_each_child(&mut |child| for_each_sure(child, visit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::parse;

    fn shared(body: &str, expected: &str) {
        let text = |body: &str| {
            format!(
                "prim_func @f(x: input float32[64], y: output float32[64], n: dim) inplace(1, 0) {{\n\
                 {body}\n}}\n"
            )
        };
        let func = parse(&text(body)).unwrap();
        let cx = PassContext::default();
        let found = CommonSubexprElimTir.run_on_prim_func(func.clone(), &cx).unwrap();
        let expected = parse(&text(expected)).unwrap();
        assert_eq!(found.to_string(), expected.to_string());
        if func.to_string() == expected.to_string() {
            assert!(found.same(&func));
        }
    }

    #[test]
    fn a_name_stands_where_the_value_is_first_surely_computed() {
        shared(
            "if n > 2 { y[n * 8 + n] = 1.0 }
             for i in serial(n) { y[n * 8 + n] = x[n * 8 + n + 1] y[n * 8 + n + 2] = 0.0 }",
            "if n > 2 { y[n * 8 + n] = 1.0 }
             for i in serial(n) {
               let common = n * 8 + n
               y[common] = x[common + 1] y[common + 2] = 0.0
             }",
        );
    }

    #[test]
    fn loads_are_shared_until_something_is_stored() {
        shared(
            "y[0] = x[n] * x[n] y[1] = x[n] * x[n]",
            "let common = x[n]
             y[0] = common * common
             let common = x[n]
             y[1] = common * common",
        );
    }

    #[test]
    fn cheap_expressions_and_vectors_stay() {
        let cheap = "y[n + 1] = x[n + 1] + x[ramp(n + 1, 1, 4)][0]";
        let _ = cheap;
        shared(
            "y[n + 1] = x[n + 1] y[n + 2] = x[n + 1]",
            "y[n + 1] = x[n + 1] y[n + 2] = x[n + 1]",
        );
    }
}
