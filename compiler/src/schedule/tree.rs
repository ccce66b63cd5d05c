//! Finding loops and blocks in a function's body, and taking nests out of it.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Rewrite;
use crate::tir::region::Outside;
use crate::tir::{BinaryOp, BlockRealize, BufferId, ForKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// A loop without its body.
#[derive(Clone, Debug)]
pub(super) struct LoopInfo {
    pub(super) var: VarId,
    pub(super) extent: PrimExpr,
    pub(super) kind: ForKind,
}

/// Whether a statement is the loop of that variable.
pub(super) fn is_loop(stmt: &Stmt, wanted: VarId) -> bool {
    matches!(stmt, Stmt::For { var, .. } if *var == wanted)
}

/// Whether a statement is the block of that name.
pub(super) fn is_block(stmt: &Stmt, wanted: &str) -> bool {
    matches!(stmt, Stmt::BlockRealize(block) if block.name == wanted)
}

/// The statements from the root to the first that satisfies the predicate, both included.
pub(super) fn path<'a>(root: &'a Stmt, is: &dyn Fn(&Stmt) -> bool) -> Option<Vec<&'a Stmt>> {
    if is(root) {
        return Some(vec![root]);
    }
    let mut found = None;
    root.for_each_child(&mut |child| {
        if found.is_none() {
            found = path(child, is);
        }
    });
    found.map(|mut path| {
        path.insert(0, root);
        path
    })
}

/// The first statement that satisfies the predicate.
pub(super) fn find_mut<'a>(root: &'a mut Stmt, is: &dyn Fn(&Stmt) -> bool) -> Option<&'a mut Stmt> {
    if is(root) {
        return Some(root);
    }
    let mut found = None;
    root.for_each_child_mut(&mut |child| {
        if found.is_none() {
            found = find_mut(child, is);
        }
    });
    found
}

/// All blocks below a statement, in order.
pub(super) fn blocks(stmt: &Stmt) -> Vec<&BlockRealize> {
    let mut blocks = Vec::new();
    stmt.walk(&mut |stmt| {
        if let Stmt::BlockRealize(block) = stmt {
            blocks.push(&**block);
        }
    });
    blocks
}

/// Calls `visit` with each block below a statement.
pub(super) fn for_each_block_mut(stmt: &mut Stmt, visit: &mut dyn FnMut(&mut BlockRealize)) {
    if let Stmt::BlockRealize(block) = stmt {
        visit(block);
    }
    stmt.for_each_child_mut(&mut |child| for_each_block_mut(child, visit));
}

/// Look-ups in a function that is being scheduled.
pub(super) trait Tree {
    /// A block by its name.
    fn block(&self, name: &str) -> Rewrite<&BlockRealize>;
    /// A block by its name, to change it.
    fn block_mut(&mut self, name: &str) -> Rewrite<&mut BlockRealize>;
    /// A loop's statement.
    fn loop_stmt(&self, var: VarId) -> Rewrite<&Stmt>;
    /// A loop's statement, to change it.
    fn loop_stmt_mut(&mut self, var: VarId) -> Rewrite<&mut Stmt>;
    /// The loops around a statement that satisfies the predicate, outermost first.
    fn loops_around(&self, is: &dyn Fn(&Stmt) -> bool) -> Vec<LoopInfo>;
    /// The name of a variable, for messages.
    fn var_name(&self, var: VarId) -> &str;
    /// The name of a buffer, for messages.
    fn buffer_name(&self, buffer: BufferId) -> &str;
    /// Blocks that store to a buffer, in order.
    fn writers(&self, buffer: BufferId) -> Vec<&BlockRealize>;
    /// Blocks that load from a buffer and do not store to it, in order.
    fn readers(&self, buffer: BufferId) -> Vec<&BlockRealize>;
    /// An unused block name.
    fn unique_block(&self, wanted: &str) -> String;
    /// Removes a block, with the loops that contain nothing else.
    fn take_nest(&mut self, name: &str) -> Rewrite<Stmt>;
}

impl Tree for PrimFuncData {
    fn block(&self, name: &str) -> Rewrite<&BlockRealize> {
        match path(&self.body, &|stmt| is_block(stmt, name)).and_then(|path| path.last().copied()) {
            Some(Stmt::BlockRealize(block)) => Ok(block),
            _ => Err(format!("there is no block `{name}` any more")),
        }
    }

    fn block_mut(&mut self, name: &str) -> Rewrite<&mut BlockRealize> {
        match find_mut(&mut self.body, &|stmt| is_block(stmt, name)) {
            Some(Stmt::BlockRealize(block)) => Ok(block),
            _ => Err(format!("there is no block `{name}` any more")),
        }
    }

    fn loop_stmt(&self, var: VarId) -> Rewrite<&Stmt> {
        path(&self.body, &|stmt| is_loop(stmt, var))
            .and_then(|path| path.last().copied())
            .ok_or_else(|| format!("there is no loop `{}` any more", self.var_name(var)))
    }

    fn loop_stmt_mut(&mut self, var: VarId) -> Rewrite<&mut Stmt> {
        let gone = format!("there is no loop `{}` any more", self.var_name(var));
        find_mut(&mut self.body, &|stmt| is_loop(stmt, var)).ok_or(gone)
    }

    fn loops_around(&self, is: &dyn Fn(&Stmt) -> bool) -> Vec<LoopInfo> {
        let path = path(&self.body, is).unwrap_or_default();
        let around = path.split_last().map_or(&[][..], |(_, around)| around);
        around.iter().filter_map(|stmt| loop_info(stmt)).collect()
    }

    fn var_name(&self, var: VarId) -> &str {
        self.vars.get(var).map_or("?", |decl| &decl.name)
    }

    fn buffer_name(&self, buffer: BufferId) -> &str {
        self.buffers.get(buffer).map_or("?", |decl| &decl.name)
    }

    fn writers(&self, buffer: BufferId) -> Vec<&BlockRealize> {
        blocks(&self.body).into_iter().filter(|block| written(block).contains(&buffer)).collect()
    }

    fn readers(&self, buffer: BufferId) -> Vec<&BlockRealize> {
        blocks(&self.body)
            .into_iter()
            .filter(|block| read(block).contains(&buffer) && !written(block).contains(&buffer))
            .collect()
    }

    fn unique_block(&self, wanted: &str) -> String {
        let used: BTreeSet<&str> =
            blocks(&self.body).into_iter().map(|block| block.name.as_str()).collect();
        if !used.contains(wanted) {
            return wanted.to_owned();
        }
        let mut number = 1;
        while used.contains(format!("{wanted}_{number}").as_str()) {
            number += 1;
        }
        format!("{wanted}_{number}")
    }

    fn take_nest(&mut self, name: &str) -> Rewrite<Stmt> {
        let alone = |stmt: &Stmt| {
            let blocks = blocks(stmt);
            let is_nest = matches!(stmt, Stmt::For { .. } | Stmt::BlockRealize(_));
            is_nest && blocks.len() == 1 && blocks.iter().all(|block| block.name == name)
        };
        let nest = find_mut(&mut self.body, &alone)
            .ok_or_else(|| format!("there is no block `{name}` any more"))?;
        let nest = std::mem::replace(nest, Stmt::nop());
        tidy(&mut self.body);
        Ok(nest)
    }
}

/// Drops empty statements, and splices sequences in sequences.
pub(super) fn tidy(body: &mut Stmt) {
    let taken = std::mem::replace(body, Stmt::nop());
    *body = taken.rewrite(&mut |stmt| match stmt {
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        Stmt::For { ref body, .. } if body.is_nop() => Stmt::nop(),
        other => other,
    });
}

/// The variable, extent and kind of a loop from 0.
pub(super) fn loop_info(stmt: &Stmt) -> Option<LoopInfo> {
    match stmt {
        Stmt::For { var, extent, kind, .. } => {
            Some(LoopInfo { var: *var, extent: extent.clone(), kind: *kind })
        }
        _ => None,
    }
}

/// Known ranges of loop variables.
pub(super) fn outside_of<'a>(
    func: &PrimFuncData,
    loops: impl IntoIterator<Item = &'a LoopInfo>,
) -> Outside {
    let mut outside = Outside::of(func);
    for info in loops {
        outside.push(info.var, PrimExpr::index(0), info.extent.clone());
    }
    outside
}

/// The buffers a block stores to, in order of first use.
pub(super) fn written(block: &BlockRealize) -> Vec<BufferId> {
    let mut buffers = Vec::new();
    for stmt in block.init.iter().chain([&block.body]) {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt
                && !buffers.contains(buffer)
            {
                buffers.push(*buffer);
            }
        });
    }
    buffers
}

/// The buffers a block loads from, in order of first use.
pub(super) fn read(block: &BlockRealize) -> Vec<BufferId> {
    let mut buffers = Vec::new();
    for stmt in block.init.iter().chain([&block.body]) {
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, .. } = expr
                && !buffers.contains(buffer)
            {
                buffers.push(*buffer);
            }
        });
    }
    buffers
}

/// The terms of a conjunction; empty for `true`.
pub(super) fn conjuncts(predicate: &PrimExpr) -> Vec<PrimExpr> {
    match predicate {
        PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } => {
            let mut parts = conjuncts(lhs);
            parts.extend(conjuncts(rhs));
            parts
        }
        PrimExpr::Int { value, .. } if *value != 0 => Vec::new(),
        other => vec![other.clone()],
    }
}

/// The conjunction of conditions, each once.
pub(super) fn all(conditions: impl IntoIterator<Item = PrimExpr>) -> PrimExpr {
    let mut distinct: Vec<PrimExpr> = Vec::new();
    for condition in conditions {
        if condition.as_int() != Some(1) && !distinct.contains(&condition) {
            distinct.push(condition);
        }
    }
    let mut conditions = distinct.into_iter();
    let first = conditions.next().unwrap_or(PrimExpr::bool(true));
    conditions.fold(first, PrimExpr::and)
}

/// Renames the loop and block variables bound in a statement, so that none is bound elsewhere.
pub(super) fn refresh(func: &mut PrimFuncData, stmt: Stmt) -> Stmt {
    let mut fresh: BTreeMap<VarId, VarId> = BTreeMap::new();
    stmt.walk(&mut |stmt| {
        let bound: Vec<VarId> = match stmt {
            Stmt::For { var, .. } | Stmt::Let { var, .. } => vec![*var],
            Stmt::BlockRealize(block) => block.iters.iter().map(|iter| iter.var).collect(),
            _ => Vec::new(),
        };
        for var in bound {
            let decl = func.vars[var].clone();
            fresh.insert(var, func.vars.push(decl));
        }
    });
    let values: BTreeMap<VarId, PrimExpr> =
        fresh.iter().map(|(&old, &new)| (old, func.var_expr(new))).collect();
    let renamed = |var: &mut VarId| {
        if let Some(&new) = fresh.get(var) {
            *var = new;
        }
    };
    stmt.substitute(&values).rewrite(&mut |mut stmt| {
        match &mut stmt {
            Stmt::For { var, .. } | Stmt::Let { var, .. } => renamed(var),
            Stmt::BlockRealize(block) => {
                block.iters.iter_mut().for_each(|iter| renamed(&mut iter.var));
            }
            _ => {}
        }
        stmt
    })
}
