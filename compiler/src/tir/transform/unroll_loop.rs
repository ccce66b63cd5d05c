//! Unrolling of loops.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ir::IRModule;
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::transform::VectorizeLoop;
use crate::tir::{
    Annotations, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId,
};

/// Maximum number of iterations that are written out; a longer loop stays serial.
///
/// Schedules unroll register tiles of up to 32 accumulators and the taps of a kernel; beyond, the
/// code no longer fits the instruction cache.
const MAX_ITERATIONS: i64 = 256;

/// Maximum number of steps to which a loop is written out; a larger loop stays serial. Nested loops
/// of [`MAX_ITERATIONS`] would need more memory than there is.
const MAX_STEPS: i64 = 1 << 16;

/// Unrolls the loop and the loops in it up to that many steps, whatever the options say.
pub const PRAGMA_AUTO_UNROLL_MAX_STEP: &str = "pragma_auto_unroll_max_step";

/// Whether to write out the loop and the loops in it, whatever the options say.
pub const PRAGMA_UNROLL_EXPLICIT: &str = "pragma_unroll_explicit";

/// The choice of loops that are unrolled without a mark, as in TVM.
///
/// A step is a store, a prefetch or an assertion. Only serial loops of constant extent are unrolled
/// without a mark, and only if all loops in them are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnrollLoopConfig {
    /// A loop is unrolled if that makes at most so many steps.
    pub auto_max_step: i64,
    /// Maximum nesting of unrolled loops within a loop that is unrolled without a mark.
    pub auto_max_depth: i64,
    /// A loop is unrolled if it has at most so many iterations, however many steps that makes.
    pub auto_max_extent: i64,
    /// Whether loops are written out. Otherwise they are marked as unrolled, which leaves the
    /// unrolling to the compiler of the generated code, except for loops over registers, which have
    /// no addresses.
    pub explicit_unroll: bool,
    /// Whether each loop is unrolled whose variable indexes scratch memory or registers.
    pub unroll_local_access: bool,
}

impl Default for UnrollLoopConfig {
    fn default() -> UnrollLoopConfig {
        UnrollLoopConfig {
            auto_max_step: 0,
            auto_max_depth: 8,
            auto_max_extent: 0,
            explicit_unroll: true,
            unroll_local_access: false,
        }
    }
}

crate::register_pass_config_option! {
    /// The choice of loops that are unrolled without a mark.
    pub UNROLL_LOOP: UnrollLoopConfig = "tir.UnrollLoop";
}

/// Writes out `unrolled` loops, and serial ones as far as the options say, innermost first.
///
/// The annotations [`PRAGMA_AUTO_UNROLL_MAX_STEP`] and [`PRAGMA_UNROLL_EXPLICIT`] of a loop are
/// options for the loop and its body. Copies of the body declare names and buffers of their own.
///
/// # Errors
///
/// An `unrolled` loop has no constant extent, or an annotation no number.
#[prim_func_pass(opt_level = 0, name = "tir.UnrollLoop", after = [VectorizeLoop], crate = crate)]
pub fn unroll_loop(func: PrimFunc, _module: &IRModule, cx: &PassContext) -> Result<PrimFunc> {
    let config = cx.get(&UNROLL_LOOP);
    let candidates = Candidates::of(&func.body, &config);
    if candidates == Candidates::None {
        return Ok(func);
    }
    // A function that may stay unchanged is copied first, to be returned as it was.
    let (kept, mut data) = match candidates {
        Candidates::Marked => (None, func.into_data()),
        Candidates::None | Candidates::Possible => (Some(func.clone()), (*func).clone()),
    };
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut unroller = Unroller {
        func: &mut data,
        config,
        local: BTreeSet::new(),
        registers: BTreeSet::new(),
        depths: Depths::default(),
        changed: false,
    };
    let body = unroller.stmt(body)?;
    let changed = unroller.changed;
    data.body = body;
    Ok(kept.filter(|_| !changed).unwrap_or_else(|| PrimFunc::new(data)))
}

/// Whether a function has loops to unroll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Candidates {
    None,
    /// Only loops without a mark, which may be unrolled.
    Possible,
    /// A loop with a mark, which is written out.
    Marked,
}

impl Candidates {
    fn of(body: &Stmt, config: &UnrollLoopConfig) -> Candidates {
        let by_itself =
            config.auto_max_step > 0 || config.auto_max_extent > 0 || config.unroll_local_access;
        let mut found = Candidates::None;
        body.walk(&mut |stmt| {
            let Stmt::For { kind, extent, annotations, .. } = stmt else { return };
            let has_pragma = [PRAGMA_AUTO_UNROLL_MAX_STEP, PRAGMA_UNROLL_EXPLICIT]
                .iter()
                .any(|key| annotations.contains_key(*key));
            if *kind == ForKind::Unrolled && config.explicit_unroll {
                found = Candidates::Marked;
            } else if found == Candidates::None
                && (has_pragma
                    || *kind == ForKind::Unrolled
                    || (*kind == ForKind::Serial && (by_itself || extent.as_int() == Some(0))))
            {
                found = Candidates::Possible;
            }
        });
        found
    }
}

/// TVM's counters for the loop at hand.
#[derive(Clone, Copy, Default)]
struct Depths {
    /// The number of steps.
    steps: i64,
    /// The nesting of unrolled loops.
    unrolled: i64,
    /// The nesting of other loops.
    normal: i64,
}

struct Unroller<'a> {
    func: &'a mut PrimFuncData,
    config: UnrollLoopConfig,
    /// Variables in indices of scratch memory and registers.
    local: BTreeSet<VarId>,
    /// Variables in indices of registers, which must become constants.
    registers: BTreeSet<VarId>,
    depths: Depths,
    changed: bool,
}

impl Unroller<'_> {
    fn stmt(&mut self, stmt: Stmt) -> Result<Stmt> {
        match stmt {
            Stmt::Seq(stmts) => {
                let stmts = stmts.into_iter().map(|stmt| self.member(stmt));
                Ok(Stmt::seq(stmts.collect::<Result<Vec<_>>>()?))
            }
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let outer = self.config.clone();
                self.obey(&annotations)?;
                let body = self.stmt(*body)?;
                let unrolled = self.for_loop(var, min, extent, kind, annotations, body);
                self.config = outer;
                unrolled
            }
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Assert { .. } => {
                if self.config.unroll_local_access || !self.config.explicit_unroll {
                    self.note_local(&stmt);
                }
                self.depths.steps += 1;
                Ok(stmt)
            }
            Stmt::Block { .. }
            | Stmt::BlockRealize(_)
            | Stmt::Let { .. }
            | Stmt::If { .. }
            | Stmt::Allocate { .. } => {
                let (mut stmt, mut result) = (stmt, Ok(()));
                stmt.for_each_child_mut(&mut |child| {
                    let taken = std::mem::replace(child, Stmt::nop());
                    match self.stmt(taken) {
                        Ok(stmt) => *child = stmt,
                        Err(error) => result = Err(error),
                    }
                });
                result.map(|()| stmt)
            }
        }
    }

    /// A statement of a sequence; the counters of earlier statements do not affect its unrolling.
    fn member(&mut self, stmt: Stmt) -> Result<Stmt> {
        let before = std::mem::take(&mut self.depths);
        let stmt = self.stmt(stmt)?;
        self.depths = Depths {
            steps: before.steps.saturating_add(self.depths.steps),
            unrolled: before.unrolled.max(self.depths.unrolled),
            normal: before.normal.max(self.depths.normal),
        };
        Ok(stmt)
    }

    /// Takes the annotations of a loop as options.
    fn obey(&mut self, annotations: &Annotations) -> Result<()> {
        let wrong = |key: &str, value: &str, wanted: &str| {
            format!("the annotation `{key}` of a loop is \"{value}\", which is no {wanted}")
        };
        if let Some(value) = annotations.get(PRAGMA_AUTO_UNROLL_MAX_STEP) {
            self.config.auto_max_step = value
                .parse()
                .map_err(|_| wrong(PRAGMA_AUTO_UNROLL_MAX_STEP, value, "number of steps"))?;
        }
        if let Some(value) = annotations.get(PRAGMA_UNROLL_EXPLICIT) {
            self.config.explicit_unroll = match value.as_str() {
                "1" | "true" => true,
                "0" | "false" => false,
                _ => return Err(wrong(PRAGMA_UNROLL_EXPLICIT, value, "`true` or `false`").into()),
            };
        }
        Ok(())
    }

    /// Records the variables in indices of scratch memory and registers.
    fn note_local(&mut self, stmt: &Stmt) {
        let (func, local, registers) = (&*self.func, &mut self.local, &mut self.registers);
        let mut note = |buffer, indices: &[PrimExpr]| {
            let scope = func.buffers.get(buffer).map(|decl| decl.scope);
            let Some(scope @ (BufferScope::Local | BufferScope::Register)) = scope else { return };
            for index in indices {
                index.walk(&mut |expr| {
                    if let PrimExpr::Var { var, .. } = expr {
                        local.insert(*var);
                        if scope == BufferScope::Register {
                            registers.insert(*var);
                        }
                    }
                });
            }
        };
        if let Stmt::Store { buffer, indices, .. } = stmt {
            note(*buffer, indices);
        }
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr {
                note(*buffer, indices);
            }
        });
    }

    /// A loop whose body has been unrolled.
    fn for_loop(
        &mut self,
        var: VarId,
        min: PrimExpr,
        extent: PrimExpr,
        kind: ForKind,
        annotations: Annotations,
        body: Stmt,
    ) -> Result<Stmt> {
        let count = extent.as_int();
        if kind == ForKind::Unrolled && count.is_none() {
            let name = self.func.vars.get(var).map_or("", |decl| &decl.name);
            return Err(format!("Cannot unroll non-constant loop over `{name}`").into());
        }
        let unrolled = count.is_some_and(|count| self.is_unrolled(var, count, kind));
        if unrolled {
            self.depths.steps = self.depths.steps.saturating_mul(count.unwrap_or(0).max(0));
            self.depths.unrolled += 1;
        } else {
            self.depths.normal += 1;
        }
        if let Some(count) = count {
            // As in TVM, loops of one iteration are unrolled whatever they contain.
            let is_trivial = self.config.auto_max_extent == 1 && (0..=1).contains(&count);
            let is_explicit = self.config.explicit_unroll || self.registers.contains(&var);
            if (unrolled && is_explicit) || is_trivial {
                self.changed = true;
                return Ok(self.copies(var, &min, count, body));
            }
        }
        let marked = match (kind, unrolled) {
            (ForKind::Serial | ForKind::Unrolled, true) => ForKind::Unrolled,
            (ForKind::Serial | ForKind::Unrolled, false) => ForKind::Serial,
            (ForKind::Parallel | ForKind::Vectorized, _) => kind,
        };
        self.changed |= marked != kind;
        Ok(Stmt::For { var, min, extent, kind: marked, annotations, body: Box::new(body) })
    }

    /// Whether a loop of `count` iterations is unrolled.
    fn is_unrolled(&self, var: VarId, count: i64, kind: ForKind) -> bool {
        let UnrollLoopConfig { auto_max_step, auto_max_depth, auto_max_extent, .. } = self.config;
        let Depths { steps, unrolled, normal } = self.depths;
        let result = steps.saturating_mul(count.max(0));
        let fits = count.max(result) <= MAX_STEPS;
        match kind {
            ForKind::Parallel | ForKind::Vectorized => false,
            ForKind::Unrolled => fits && count <= MAX_ITERATIONS,
            ForKind::Serial if count <= 0 => true,
            ForKind::Serial if self.config.unroll_local_access && self.local.contains(&var) => fits,
            ForKind::Serial => {
                let small = count <= auto_max_extent || (steps > 0 && result <= auto_max_step);
                fits && small && normal == 0 && unrolled <= auto_max_depth
            }
        }
    }

    /// The iterations, one after the other.
    fn copies(&mut self, var: VarId, min: &PrimExpr, count: i64, body: Stmt) -> Stmt {
        let iteration = |i: i64| BTreeMap::from([(var, min.clone() + i)]);
        Stmt::seq((0..count).map(|i| self.func.copy_of(&body, &iteration(i))))
    }
}

#[cfg(test)]
mod tests;
