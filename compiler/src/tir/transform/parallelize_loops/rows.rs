//! Loops over blocks of channels that threads share by rows of the image in each block.
//!
//! Kernels of large images are shared by rows. Where one that goes over blocks of channels first is
//! shared by rows as well, a thread reads what it has stored itself, in its own caches.

use std::collections::{BTreeMap, BTreeSet};

use crate::tir::{Buffer, BufferId, ForKind, ParamKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// Fewest rows that are done at once: windows of neighbouring rows overlap, and weights are read for
/// each part.
const FEWEST: i64 = 4;

/// Parts for each thread.
const PARTS: i64 = 4;

/// Bytes of images for each byte of weights, of which each thread reads all.
const IMAGES: u64 = 2;

/// Fewest bytes of one channel block that a thread has side by side. Processors fetch lines ahead, up to
/// the end of a page: of shorter runs, many of these are another thread's.
const RUN: u64 = 4096;

/// Loops over the rows of an image, which make up the body of a loop over its channels.
pub(super) struct Rows {
    /// Their variables.
    pub(super) vars: BTreeSet<VarId>,
    /// The first row, and how many there are.
    pub(super) min: i64,
    pub(super) count: i64,
    /// How many are done at once.
    pub(super) part: i64,
}

impl Rows {
    /// The rows in each iteration of a loop, for so many threads.
    pub(super) fn of(head: &Stmt, threads: i64) -> Option<Rows> {
        let Stmt::For { kind: ForKind::Serial, body, .. } = head else { return None };
        let mut rows = Rows { vars: BTreeSet::new(), min: 0, count: 0, part: 0 };
        rows.collect(body)?;
        let each = |parts: i64| (rows.count + parts - 1) / parts;
        let parts = (1..=PARTS).rev().filter_map(|parts| threads.checked_mul(parts)).map(each);
        let parts = parts.filter(|&part| part >= FEWEST);
        rows.part = parts.min_by_key(|&part| most_of_thread(rows.count, part, threads))?;
        (rows.part < rows.count).then_some(rows)
    }

    /// A buffer around several of the loops is none of one row: the rows of another part may be read of it.
    fn collect(&mut self, stmt: &Stmt) -> Option<()> {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.collect(stmt)),
            Stmt::Block { body, .. } => self.collect(body),
            Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body: _ } => {
                let (min, count) = (min.as_int()?, extent.as_int()?);
                let is_like = self.vars.is_empty() || (self.min, self.count) == (min, count);
                (self.min, self.count) = (min, count);
                self.vars.insert(*var);
                (is_like && annotations.is_empty()).then_some(())
            }
            _ => None,
        }
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> i64 {
        (self.count + self.part - 1) / self.part
    }

    /// Most rows of one of so many threads.
    pub(super) fn of_thread(&self, threads: i64) -> i64 {
        most_of_thread(self.count, self.part, threads)
    }

    /// The loop with something else in the place of each loop over rows: its variable and body.
    fn with(&self, head: &Stmt, of_rows: &mut dyn FnMut(VarId, Stmt) -> Stmt) -> Stmt {
        head.clone().rewrite(&mut |stmt| match stmt {
            Stmt::For { var, body, .. } if self.vars.contains(&var) => of_rows(var, *body),
            other => other,
        })
    }

    /// What is done for one row, which is that of the variable returned.
    pub(super) fn of_one(&self, func: &PrimFuncData, head: &Stmt) -> Option<(VarId, Stmt)> {
        let row = *self.vars.first()?;
        let value = func.var_expr(row);
        let body = self.with(head, &mut |var, body| {
            let values: BTreeMap<VarId, PrimExpr> = [(var, value.clone())].into();
            if var == row { body } else { body.substitute(&values) }
        });
        Some((row, body))
    }

    /// The loop for a part of the rows.
    pub(super) fn of_part(&self, head: &Stmt, part: &PrimExpr) -> Stmt {
        let first = part.clone() * self.part;
        let left = PrimExpr::index(self.count) - first.clone();
        let count = match self.count % self.part {
            0 => PrimExpr::index(self.part),
            _ => left.min(self.part),
        };
        self.with(head, &mut |var, body| {
            let first = first.clone() + self.min;
            Stmt::for_loop(var, first, count.clone(), ForKind::Serial, body)
        })
    }

    /// Whether the loop goes over channels, which weights have, what is read and written by rows is
    /// so much more than the weights that it matters where it is, and each of so many threads has enough
    /// of it side by side.
    pub(super) fn are_of_channels(&self, func: &PrimFuncData, head: &Stmt, threads: i64) -> bool {
        let Stmt::For { var: channel, extent, body, .. } = head else { return false };
        let (mut of_channel, mut of_row) = (BTreeSet::from([*channel]), self.vars.clone());
        body.walk(&mut |stmt| {
            if let Stmt::Let { var, value, .. } = stmt {
                for vars in [&mut of_channel, &mut of_row] {
                    if mentions(value, vars) {
                        vars.insert(*var);
                    }
                }
            }
        });
        // By buffer: whether places depend on the channel, and on the row.
        let mut accesses: BTreeMap<BufferId, [bool; 2]> = BTreeMap::new();
        let mut access = |buffer: BufferId, indices: &[PrimExpr]| {
            let depends = accesses.entry(buffer).or_default();
            for (depends, vars) in depends.iter_mut().zip([&of_channel, &of_row]) {
                *depends |= indices.iter().any(|index| mentions(index, vars));
            }
        };
        body.walk(&mut |stmt| {
            if let Stmt::Store { buffer, indices, .. } = stmt {
                access(*buffer, indices);
            }
            stmt.for_each_expr(&mut |expr| {
                expr.walk(&mut |expr| {
                    if let PrimExpr::Load { buffer, indices, .. } = expr {
                        access(*buffer, indices);
                    }
                });
            });
        });
        let rows = extent.as_int().unwrap_or(1).saturating_mul(self.count).max(1).unsigned_abs();
        let of_thread = self.of_thread(threads).unsigned_abs();
        let (mut images, mut weights, mut has_channels) = (0u64, 0u64, false);
        for param in &func.params {
            let Some(&[by_channel, by_row]) = accesses.get(&param.buffer) else { continue };
            let bytes = bytes(&func.buffers[param.buffer]);
            match by_row {
                true => images = images.saturating_add(bytes),
                false => weights = weights.saturating_add(bytes),
            }
            if by_row && by_channel && (bytes / rows).saturating_mul(of_thread) < RUN {
                return false;
            }
            has_channels |= param.kind == ParamKind::Constant && by_channel && !by_row;
        }
        has_channels && images >= weights.saturating_mul(IMAGES)
    }
}

/// Most of `count` rows that one of so many threads does, if as many as `part` are done at once.
fn most_of_thread(count: i64, part: i64, threads: i64) -> i64 {
    let parts = (count + part - 1) / part;
    (parts + threads - 1) / threads * part
}

/// Whether an expression reads one of the variables.
pub(super) fn mentions(expr: &PrimExpr, vars: &BTreeSet<VarId>) -> bool {
    let mut found = false;
    expr.walk(&mut |expr| found |= matches!(expr, PrimExpr::Var { var, .. } if vars.contains(var)));
    found
}

fn bytes(buffer: &Buffer) -> u64 {
    let elements = buffer.spec.num_elements().and_then(|elements| u64::try_from(elements).ok());
    elements.unwrap_or(0).saturating_mul(u64::from(buffer.dtype.bits())) / 8
}
