//! Checks of memory accesses.

mod races;

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::IRModule;
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::affine::{Affine, Bounds, Range};
use crate::tir::{
    BufferId, BufferScope, ForKind, ParamKind, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt,
    VarId, VerifyError, print_with_errors, verify,
};
use races::Races;

/// Fails if a function surely makes an invalid memory access.
///
/// The error names the buffer and the statement. Beyond the violations that [`verify`] finds
/// without knowing values, these are: an index outside its buffer; local memory or an output that
/// is read before any store to it; and iterations of a parallel loop that access the same element
/// while one of them stores to it. Accesses that depend on data or on a branch are not decided
/// here; `tir.InstrumentBoundCheckers` checks indices at run time.
#[prim_func_pass(opt_level = 0, name = "tir.VerifyMemory", preserves = all, crate = crate)]
pub fn verify_memory(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> Result<PrimFunc> {
    let errors = verify(&func).err().unwrap_or_else(|| memory_errors(&func));
    if errors.is_empty() {
        return Ok(func);
    }
    Err(describe(&func, &errors).into())
}

/// Each violation with the statement that it is about.
fn describe(func: &PrimFunc, errors: &[VerifyError]) -> String {
    let text = print_with_errors(func, errors);
    let mut guilty = "";
    let mut messages = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("; error: ") {
            Some(message) => messages.push(format!("{message}: {}", guilty.trim_end_matches(" {"))),
            None => guilty = line,
        }
    }
    messages.join("\n")
}

/// Every violation, in the order of the statements.
fn memory_errors(func: &PrimFunc) -> Vec<VerifyError> {
    let mut walk = Walk {
        func,
        errors: Vec::new(),
        count: 0,
        bounds: Bounds::new(),
        guards: 0,
        allocated: BTreeMap::new(),
        stored: BTreeSet::new(),
        races: None,
    };
    for param in &func.params {
        match param.kind {
            ParamKind::Output => walk.allocated.insert(param.buffer, 0),
            ParamKind::Input | ParamKind::Constant => None,
        };
    }
    walk.stmt(&func.body);
    let mut errors = walk.errors;
    errors.sort_by_key(|error| error.statement);
    errors.dedup();
    errors
}

struct Walk<'a> {
    func: &'a PrimFuncData,
    errors: Vec<VerifyError>,
    /// The number of statements so far, in the order in which they are printed.
    count: usize,
    /// The enclosing loops with constant bounds.
    bounds: Bounds,
    /// The number of enclosing branches, and of loops with symbolic bounds: statements in them may
    /// not run.
    guards: usize,
    /// The number of guards around the `Allocate` of each buffer whose contents are undefined at
    /// first.
    allocated: BTreeMap<BufferId, usize>,
    /// Buffers that may have been stored to.
    stored: BTreeSet<BufferId>,
    /// The enclosing parallel loop.
    races: Option<Races>,
}

impl<'a> Walk<'a> {
    fn error(&mut self, message: String) {
        let statement = Some(self.count - 1);
        self.errors.push(VerifyError { statement, message });
    }

    fn name(&self, id: BufferId) -> &'a str {
        &self.func.buffers[id].name
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Seq(stmts) = stmt {
            // A sequence has no line of its own.
            return stmts.iter().for_each(|stmt| self.stmt(stmt));
        }
        self.count += 1;
        stmt.for_each_expr(&mut |expr| self.expr(expr));
        match stmt {
            Stmt::For { var, min, extent, kind, annotations: _, body } => {
                self.for_loop(*var, (min, extent), *kind, body);
            }
            Stmt::Store { buffer, indices, value: _ } => {
                self.access(*buffer, indices, true);
                self.stored.insert(*buffer);
            }
            Stmt::Let { var, value: _, body } => {
                self.races.iter_mut().for_each(|races| races.hide(*var));
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => {
                self.allocated.insert(*buffer, self.guards);
                self.stored.remove(buffer);
                self.races.iter_mut().for_each(|races| races.own(*buffer));
                self.stmt(body);
                self.allocated.remove(buffer);
            }
            Stmt::If { cond: _, then, otherwise } => {
                self.guarded(|walk| {
                    walk.stmt(then);
                    otherwise.iter().for_each(|stmt| walk.stmt(stmt));
                });
            }
            Stmt::BlockRealize(block) => self.guarded(|walk| {
                block.iters.iter().for_each(|iter| {
                    walk.races.iter_mut().for_each(|races| races.hide(iter.var));
                });
                block.init.iter().for_each(|init| walk.stmt(init));
                walk.stmt(&block.body);
            }),
            Stmt::Block { name: _, body } => self.stmt(body),
            Stmt::Seq(_) | Stmt::Prefetch { .. } | Stmt::Assert { .. } => {}
        }
    }

    fn guarded(&mut self, inside: impl FnOnce(&mut Self)) {
        self.guards += 1;
        inside(self);
        self.guards -= 1;
    }

    fn for_loop(
        &mut self,
        var: VarId,
        (min, extent): (&'a PrimExpr, &'a PrimExpr),
        kind: ForKind,
        body: &'a Stmt,
    ) {
        let bounds = min.as_int().zip(extent.as_int()).filter(|(_, extent)| *extent > 0);
        let range =
            bounds.and_then(|(min, count)| Some(Range { min, max: min.checked_add(count - 1)? }));
        let is_parallel = kind == ForKind::Parallel && extent.as_int().is_none_or(|it| it > 1);
        // The number of iterations of a parallel loop does not affect the accesses of a single one.
        let guards = usize::from(range.is_none());
        self.guards += guards;
        if is_parallel {
            self.races = Some(Races::new(var, extent.as_int(), self.guards));
        }
        if let Some(range) = range {
            self.bounds.insert(var, range);
        }
        self.stmt(body);
        self.bounds.remove(&var);
        self.guards -= guards;
        if let Some(races) = self.races.take_if(|_| is_parallel) {
            let name = &self.func.vars[var].name;
            let found = races.find(self.func).into_iter().map(|(at, what)| VerifyError {
                statement: Some(at),
                message: format!("iterations of the parallel loop over `{name}` {what}"),
            });
            self.errors.extend(found);
        }
    }

    fn expr(&mut self, expr: &'a PrimExpr) {
        match expr {
            PrimExpr::Select { cond, then, otherwise } if cond.ty().is_scalar() => {
                self.expr(cond);
                self.guarded(|walk| {
                    walk.expr(then);
                    walk.expr(otherwise);
                });
            }
            PrimExpr::Let { var, value, body } => {
                self.expr(value);
                self.races.iter_mut().for_each(|races| races.hide(*var));
                self.expr(body);
            }
            PrimExpr::Load { buffer, dtype: _, indices } => {
                indices.iter().for_each(|index| self.expr(index));
                self.access(*buffer, indices, false);
            }
            other => other.for_each_child(&mut |child| self.expr(child)),
        }
    }

    fn access(&mut self, id: BufferId, indices: &'a [PrimExpr], is_store: bool) {
        let buffer = &self.func.buffers[id];
        let certain = self.allocated.get(&id) == Some(&self.guards);
        if !is_store && certain && !self.stored.contains(&id) && !buffer.spec.has_padding_lanes() {
            self.error(format!("`{}` is read before anything is stored to it", buffer.name));
        }
        if self.guards == 0 && buffer.symbolic.is_none() {
            for (axis, index) in indices.iter().enumerate() {
                let allowed = buffer.spec.addressable_range(axis);
                let Some(range) = self.exact_range(index) else { continue };
                let outside = [range.min, range.max].into_iter().find(|at| !allowed.contains(at));
                if let Some(at) = outside {
                    let (first, last) = (allowed.start, allowed.end - 1);
                    self.error(format!(
                        "axis {axis} of `{}` goes from {first} to {last}, but an index is {at}",
                        buffer.name
                    ));
                }
            }
        }
        if let Some(races) = &mut self.races {
            if buffer.scope == BufferScope::Register && races.is_shared(id) {
                let name = self.name(id);
                self.error(format!(
                    "register buffer `{name}` is used in a parallel loop inside its Allocate"
                ));
            } else if self.guards == races.guards() {
                races.note(self.count - 1, id, indices, is_store);
            }
        }
    }

    /// The least and the greatest value of an index, both of which occur in some iteration.
    fn exact_range(&self, index: &PrimExpr) -> Option<Range> {
        let (base, span) = match index {
            PrimExpr::Ramp { base, stride, lanes } => {
                (&**base, stride.as_int()?.checked_mul(i64::from(*lanes) - 1)?)
            }
            PrimExpr::Broadcast { value, lanes: _ } => (&**value, 0),
            index => (index, 0),
        };
        if base.ty() != PrimType::INDEX {
            return None;
        }
        let affine = Affine::of(base);
        if !affine.terms.iter().all(|(atom, _)| matches!(atom, PrimExpr::Var { .. })) {
            return None;
        }
        let range = affine.range(&self.bounds)?;
        Some(Range {
            min: range.min.checked_add(span.min(0))?,
            max: range.max.checked_add(span.max(0))?,
        })
    }
}

#[cfg(test)]
mod tests;
