//! The proof that iterations of a loop may run at the same time.
//!
//! What [`VerifyMemory`](super::super::VerifyMemory) finds are races that surely happen; here a loop
//! counts as independent only if no two iterations surely touch an element that one of them stores.

use std::collections::{BTreeMap, BTreeSet};

use crate::tir::{
    Affine, BinaryOp, Bounds, BufferId, BufferScope, PrimExpr, PrimFuncData, PrimType, Range, Stmt,
    VarId,
};

/// Most accesses of one buffer, times the iterations after which their indices repeat, that are
/// compared pair by pair.
const MAX_ACCESSES: usize = 512;

/// Most iterations after which indices repeat.
const MAX_PERIOD: i64 = 64;

/// Most multiples of a modulus that are tried.
const MAX_MULTIPLES: i128 = 64;

/// The buffers of which different iterations of the loop over `var`, `count` of them, may touch an
/// element that one of them stores; `None` if there is a reason for which the loop cannot be
/// parallel at all.
///
/// `bounds` are the ranges of variables around the loop.
pub(super) fn conflicts(
    func: &PrimFuncData,
    (var, min, count): (VarId, i64, i64),
    body: &Stmt,
    bounds: &Bounds,
) -> Option<BTreeSet<BufferId>> {
    let mut bounds = bounds.clone();
    bounds.insert(var, Range { min, max: min.checked_add(count - 1)? });
    let mut accesses = Accesses {
        func,
        var,
        bounds,
        values: BTreeMap::new(),
        moving: BTreeSet::from([var]),
        own: BTreeSet::new(),
        found: BTreeMap::new(),
        possible: true,
    };
    accesses.stmt(body);
    let found = accesses.found.into_iter().filter(|(_, forms)| collide(forms, count));
    accesses.possible.then(|| found.map(|(buffer, _)| buffer).collect())
}

/// Whether two accesses of a buffer, one of them a store, may meet in different iterations.
fn collide(forms: &BTreeSet<(Option<Form>, bool)>, count: i64) -> bool {
    let stores: Vec<_> = forms.iter().filter(|(_, is_store)| *is_store).collect();
    if stores.is_empty() {
        return false;
    }
    let period =
        |(form, _): &(Option<Form>, bool)| form.as_ref().map_or(1, |it| it.own.values.len());
    forms.len() * forms.iter().map(period).max().unwrap_or(1) > MAX_ACCESSES
        || stores.iter().any(|(store, _)| {
            forms.iter().any(|(other, _)| match (store, other) {
                (Some(store), Some(other)) => !store.is_apart_from(other, count),
                _ => true,
            })
        })
}

/// A function of the loop's variable that grows by the same step each time the variable grows by the
/// number of its values: `own · variable`, and what division of that by constants makes of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Periodic {
    step: i64,
    /// Its values where the variable is 0, 1 and so on; not empty.
    values: Vec<i64>,
}

impl Periodic {
    fn period(&self) -> i64 {
        self.values.len() as i64
    }

    /// The quotient of `factor · variable + offset` by a positive number, rounded down, or its rest.
    fn divided(factor: i64, offset: i64, divisor: i64, is_rest: bool) -> Option<Self> {
        let period =
            divisor / gcd(factor.unsigned_abs().into(), divisor.unsigned_abs().into()) as i64;
        (period <= MAX_PERIOD).then_some(())?;
        let value = |at: i64| {
            let value = factor.checked_mul(at)?.checked_add(offset)?;
            Some(if is_rest { value.rem_euclid(divisor) } else { value.div_euclid(divisor) })
        };
        let step = if is_rest { 0 } else { factor.checked_mul(period)? / divisor };
        Some(Periodic { step, values: (0..period).map(value).collect::<Option<_>>()? })
    }

    /// The same function by more of its values.
    fn over(&self, period: i64) -> Option<Self> {
        let value = |at: i64| {
            let times = at / self.period();
            self.step.checked_mul(times)?.checked_add(self.values[(at % self.period()) as usize])
        };
        let step = self.step.checked_mul(period / self.period())?;
        Some(Periodic { step, values: (0..period).map(value).collect::<Option<_>>()? })
    }

    /// Two functions by equally many values.
    fn aligned(&self, other: &Self) -> Option<(Self, Self)> {
        let common = gcd(self.values.len() as u128, other.values.len() as u128) as i64;
        let period = self.period() / common * other.period();
        (period <= MAX_PERIOD).then_some(())?;
        Some((self.over(period)?, other.over(period)?))
    }

    /// `self + factor · other`.
    fn plus(&self, other: &Self, factor: i64) -> Option<Self> {
        let (a, b) = self.aligned(other)?;
        let sum = |a: i64, b: i64| a.checked_add(b.checked_mul(factor)?);
        let values = a.values.iter().zip(&b.values).map(|(&a, &b)| sum(a, b));
        Some(Periodic { step: sum(a.step, b.step)?, values: values.collect::<Option<_>>()? })
    }
}

/// An index: `own(variable of the loop) + Σ factor · fixed + Σ moving + constant`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    own: Periodic,
    /// Terms that are the same in all iterations: a key of the expression, and the factor.
    fixed: Vec<(String, i64)>,
    /// Terms that may differ: the factor, and the range of what it multiplies.
    moving: Vec<(i64, Option<(i64, i64)>)>,
    constant: i64,
}

impl Form {
    /// Whether this index in one iteration surely differs from another index in another iteration.
    fn is_apart_from(&self, other: &Form, count: i64) -> bool {
        let Some((own, others)) = self.own.aligned(&other.own) else { return false };
        if own.step != others.step || self.fixed != other.fixed {
            return false;
        }
        let negative = other.moving.iter().map(|&(factor, range)| (-i128::from(factor), range));
        let moving = self.moving.iter().map(|&(factor, range)| (i128::from(factor), range));
        let moving: Vec<_> = moving.chain(negative).collect();
        let constant = i128::from(self.constant) - i128::from(other.constant);
        own.values.iter().enumerate().all(|(place, &a)| {
            others.values.iter().enumerate().all(|(other_place, &b)| {
                let differs = i64::from(place != other_place);
                let distances = Distances {
                    step: i128::from(own.step).abs(),
                    last: i128::from((count - 1 + differs * (own.period() - 1)) / own.period()),
                    with_none: place != other_place,
                };
                distances.are_apart(&moving, i128::from(a) - i128::from(b) + constant)
            })
        })
    }
}

/// How far apart two iterations may be that are each at a place of its own in a period: `last` periods
/// at most, forwards or backwards, each a step of the index.
#[derive(Clone, Copy)]
struct Distances {
    step: i128,
    last: i128,
    /// Whether they may be of the same period: at the same place they would be the same iteration.
    with_none: bool,
}

impl Distances {
    /// Whether `step · t + Σ moving + constant` is other than 0 for all distances `t`.
    ///
    /// By a modulus each factor is a multiple of it and a rest, so that the sum is a multiple as well
    /// and what the ranges allow for the rests. Which modulus tells is tried: none, the factors, and
    /// what the largest of them have in common.
    fn are_apart(self, moving: &[(i128, Option<(i64, i64)>)], constant: i128) -> bool {
        let mut factors: Vec<u128> =
            moving.iter().map(|(factor, _)| factor.unsigned_abs()).collect();
        factors.sort_unstable_by(|a, b| b.cmp(a));
        let common = factors.iter().scan(0, |common, &factor| {
            *common = gcd(*common, factor);
            Some(*common)
        });
        let moduli: BTreeSet<u128> = common.chain(factors.iter().copied()).chain([0]).collect();
        moduli.into_iter().any(|modulus| {
            let modulus = modulus as i128;
            let (mut low, mut high) = (constant, constant);
            for &(factor, range) in moving {
                let rest = match modulus {
                    0 => factor,
                    _ => (factor + modulus / 2).rem_euclid(modulus) - modulus / 2,
                };
                if rest != 0 {
                    let Some((min, max)) = range else { return false };
                    let (a, b) = (rest * i128::from(min), rest * i128::from(max));
                    low += a.min(b);
                    high += a.max(b);
                }
            }
            !self.meets_multiples(low, high, modulus)
        })
    }

    /// Whether `step · t + m` is in `-high..=-low` for a distance `t` and a multiple `m` of the divisor.
    fn meets_multiples(self, low: i128, high: i128, divisor: i128) -> bool {
        if divisor == 0 {
            return self.meets(low, high);
        }
        // All that both reach are multiples of what they have in common.
        let common = gcd(divisor.unsigned_abs(), self.step.unsigned_abs()) as i128;
        if low.div_euclid(common) == high.div_euclid(common) && low.rem_euclid(common) > 0 {
            return false;
        }
        // The multiples that can make up for the rest.
        let reach = self.step * self.last;
        let first = (-reach - high).div_euclid(divisor);
        let end = (reach - low).div_euclid(divisor) + 1;
        end - first > MAX_MULTIPLES
            || (first..=end).any(|m| self.meets(low + m * divisor, high + m * divisor))
    }

    /// Whether `step · t` is in `-high..=-low` for a distance `t`.
    fn meets(self, low: i128, high: i128) -> bool {
        let (step, last) = (self.step, self.last);
        if step == 0 {
            return low <= 0 && high >= 0 && (self.with_none || last > 0);
        }
        // The multiples of the step between these bounds.
        let least = (-high + step - 1).div_euclid(step).max(-last);
        let most = (-low).div_euclid(step).min(last);
        least <= most && (self.with_none || (least, most) != (0, 0))
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The accesses of one iteration.
struct Accesses<'a> {
    func: &'a PrimFuncData,
    var: VarId,
    bounds: Bounds,
    /// Values of the variables of `Let`.
    values: BTreeMap<VarId, PrimExpr>,
    /// Variables whose values may differ between two iterations.
    moving: BTreeSet<VarId>,
    /// Buffers that belong to one iteration.
    own: BTreeSet<BufferId>,
    /// By buffer the indices, and whether it is stored there.
    found: BTreeMap<BufferId, BTreeSet<(Option<Form>, bool)>>,
    possible: bool,
}

impl Accesses<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, min, extent, body, .. } => {
                self.expr(min);
                self.expr(extent);
                self.bind_loop(*var, min, extent);
                self.stmt(body);
            }
            Stmt::Let { var, value, body } => {
                self.expr(value);
                self.bind(*var, value);
                self.stmt(body);
            }
            Stmt::Allocate { buffer, body } => {
                self.own.insert(*buffer);
                self.stmt(body);
            }
            Stmt::Store { buffer, indices, value } => {
                indices.iter().chain([value]).for_each(|expr| self.expr(expr));
                self.access(*buffer, indices, true);
            }
            Stmt::Prefetch { buffer, .. } => {
                self.possible &= !self.is_register(*buffer);
            }
            // Before `LowerBlocks` nothing is known of a block.
            Stmt::BlockRealize(_) => self.possible = false,
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::If { .. } | Stmt::Assert { .. } => {
                stmt.for_each_expr(&mut |expr| self.expr(expr));
                stmt.for_each_child(&mut |child| self.stmt(child));
            }
        }
    }

    fn bind_loop(&mut self, var: VarId, min: &PrimExpr, extent: &PrimExpr) {
        self.moving.insert(var);
        self.values.remove(&var);
        let first = self.affine(min).range(&self.bounds);
        let count = extent.as_int().filter(|count| *count > 0);
        let range = first.zip(count).and_then(|(first, count)| {
            Some(Range { min: first.min, max: first.max.checked_add(count - 1)? })
        });
        match range {
            Some(range) => self.bounds.insert(var, range),
            None => self.bounds.remove(&var),
        };
    }

    fn bind(&mut self, var: VarId, value: &PrimExpr) {
        self.moving.insert(var);
        self.bounds.remove(&var);
        match value.ty() == PrimType::INDEX {
            true => self.values.insert(var, value.clone().substitute(&self.values)),
            false => self.values.remove(&var),
        };
    }

    fn affine(&self, expr: &PrimExpr) -> Affine {
        Affine::of(&expr.clone().substitute(&self.values))
    }

    fn expr(&mut self, expr: &PrimExpr) {
        match expr {
            PrimExpr::Load { buffer, dtype: _, indices } => {
                indices.iter().for_each(|index| self.expr(index));
                self.access(*buffer, indices, false);
            }
            PrimExpr::Let { var, value, body } => {
                self.expr(value);
                self.bind(*var, value);
                self.expr(body);
            }
            other => other.for_each_child(&mut |child| self.expr(child)),
        }
    }

    fn is_register(&self, buffer: BufferId) -> bool {
        self.func.buffers[buffer].scope == BufferScope::Register && !self.own.contains(&buffer)
    }

    fn access(&mut self, buffer: BufferId, indices: &[PrimExpr], is_store: bool) {
        if self.own.contains(&buffer) {
            return;
        }
        self.possible &= !self.is_register(buffer);
        let form = match indices {
            [index] => self.form(index),
            _ => None,
        };
        self.found.entry(self.place(buffer)).or_default().insert((form, is_store));
    }

    /// The buffer whose memory a buffer may be.
    fn place(&self, buffer: BufferId) -> BufferId {
        let params = &self.func.params;
        let pair = self.func.inplace.iter().find(|&&(_, input)| params[input].buffer == buffer);
        pair.map_or(buffer, |&(output, _)| params[output].buffer)
    }

    fn form(&self, index: &PrimExpr) -> Option<Form> {
        let mut moving = Vec::new();
        let base = match index {
            PrimExpr::Ramp { base, stride, lanes } => {
                moving.push((stride.as_int()?, Some((0, i64::from(*lanes) - 1))));
                base
            }
            PrimExpr::Broadcast { value, lanes: _ } => &**value,
            index => index,
        };
        if base.ty() != PrimType::INDEX {
            return None;
        }
        let affine = self.affine(base);
        let (mut own, mut fixed) = (Periodic { step: 0, values: vec![0] }, Vec::new());
        for (atom, factor) in affine.terms {
            if let Some(sum) = self.periodic(&atom).and_then(|term| own.plus(&term, factor)) {
                own = sum;
                continue;
            }
            let is_moving = atom.any(&mut |expr| match expr {
                PrimExpr::Var { var, .. } | PrimExpr::Let { var, .. } => self.moving.contains(var),
                PrimExpr::Load { .. } => true,
                _ => false,
            });
            if is_moving {
                let term = Affine { terms: vec![(atom, 1)], constant: 0 };
                let range = term.range(&self.bounds).map(|range| (range.min, range.max));
                moving.push((factor, range));
            } else {
                fixed.push((format!("{atom:?}"), factor));
            }
        }
        fixed.sort();
        moving.sort();
        Some(Form { own, fixed, moving, constant: affine.constant })
    }

    /// A term that is the loop's variable, or the quotient or rest of a multiple of it.
    fn periodic(&self, atom: &PrimExpr) -> Option<Periodic> {
        let is_own =
            |atom: &PrimExpr| matches!(atom, PrimExpr::Var { var, .. } if *var == self.var);
        if is_own(atom) {
            return Some(Periodic { step: 1, values: vec![0] });
        }
        let PrimExpr::Binary { op, lhs, rhs } = atom else { return None };
        let is_rest = match op {
            BinaryOp::FloorDiv => false,
            BinaryOp::FloorMod => true,
            _ => return None,
        };
        let inner = Affine::of(lhs);
        let [(own, factor)] = &inner.terms[..] else { return None };
        let divisor = rhs.as_int().filter(|divisor| *divisor > 0 && is_own(own))?;
        Periodic::divided(*factor, inner.constant, divisor, is_rest)
    }
}

/// Whether each element of a local buffer that a statement reads was surely stored before by the
/// same statement, whatever the buffer held: then iterations that each run the statement may have a
/// buffer of their own. What is in `left_out` counts as if it were not there.
pub(super) fn is_written_first(
    stmt: &Stmt,
    buffer: BufferId,
    bounds: &Bounds,
    left_out: Option<&Stmt>,
) -> bool {
    let mut walk = Written {
        buffer,
        bounds: bounds.clone(),
        values: BTreeMap::new(),
        left_out,
        boxes: Vec::new(),
        scope: 0,
        holds: true,
    };
    walk.stmt(stmt);
    walk.holds
}

/// Elements that were surely stored: `base + 0..len + Σ factor · 0..count`.
#[derive(Clone)]
struct Stored {
    base: Affine,
    len: i64,
    /// Factors and counts of loops that have ended.
    steps: Vec<(i64, i64)>,
}

impl Stored {
    /// The number of adjacent elements from the base on.
    fn adjacent(&self) -> i64 {
        let mut steps = self.steps.clone();
        steps.sort_unstable();
        let mut len = self.len;
        for (factor, count) in steps {
            if factor > len {
                break;
            }
            len = len.saturating_add(factor.saturating_mul(count - 1));
        }
        len
    }
}

struct Written<'a> {
    buffer: BufferId,
    bounds: Bounds,
    values: BTreeMap<VarId, PrimExpr>,
    left_out: Option<&'a Stmt>,
    boxes: Vec<Stored>,
    /// Number of boxes that were stored before the innermost loop or branch began.
    scope: usize,
    holds: bool,
}

impl Written<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        if self.left_out.is_some_and(|left_out| std::ptr::eq(left_out, stmt)) {
            return;
        }
        match stmt {
            Stmt::For { var, min, extent, body, .. } => {
                self.expr(min);
                self.expr(extent);
                let bounds = min.as_int().zip(extent.as_int().filter(|count| *count > 0));
                self.values.remove(var);
                self.bounds.remove(var);
                if let Some((min, count)) = bounds {
                    self.bounds.insert(*var, Range { min, max: min.saturating_add(count - 1) });
                }
                let inside = self.inside(body);
                if let Some((min, count)) = bounds {
                    let after = inside.into_iter().filter_map(|it| after(it, *var, min, count));
                    after.for_each(|stored| self.add(stored));
                }
            }
            Stmt::Let { var, value, body } => {
                self.expr(value);
                let value = value.clone().substitute(&self.values);
                self.values.insert(*var, value);
                self.stmt(body);
            }
            Stmt::Store { buffer, indices, value } => {
                indices.iter().chain([value]).for_each(|expr| self.expr(expr));
                if *buffer == self.buffer
                    && let Some((base, len)) = self.place(indices)
                {
                    self.add(Stored { base, len, steps: Vec::new() });
                }
            }
            Stmt::If { cond, then, otherwise } => {
                self.expr(cond);
                for branch in [Some(then), otherwise.as_ref()].into_iter().flatten() {
                    self.inside(branch);
                }
            }
            Stmt::BlockRealize(_) => self.holds = false,
            Stmt::Prefetch { .. } => {}
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::Allocate { .. } | Stmt::Assert { .. } => {
                stmt.for_each_expr(&mut |expr| self.expr(expr));
                stmt.for_each_child(&mut |child| self.stmt(child));
            }
        }
    }

    /// What one run of a loop's body, or of a branch, stores.
    fn inside(&mut self, body: &Stmt) -> Vec<Stored> {
        let outer = std::mem::replace(&mut self.scope, self.boxes.len());
        self.stmt(body);
        let inside = self.boxes.split_off(self.scope);
        self.scope = outer;
        inside
    }

    fn expr(&mut self, expr: &PrimExpr) {
        expr.walk(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && *buffer == self.buffer
            {
                self.holds &= self.place(indices).is_some_and(|(base, len)| {
                    self.boxes.iter().any(|stored| self.covers(stored, &base, len))
                });
            }
        });
    }

    /// The first element of an access and the number of adjacent ones.
    fn place(&self, indices: &[PrimExpr]) -> Option<(Affine, i64)> {
        let [index] = indices else { return None };
        let (base, len) = match index {
            PrimExpr::Ramp { base, stride, lanes } => {
                stride.is_const(1).then_some(())?;
                (&**base, i64::from(*lanes))
            }
            PrimExpr::Broadcast { value, lanes: _ } => (&**value, 1),
            index => (index, 1),
        };
        let is_index = base.ty() == PrimType::INDEX;
        is_index.then(|| (Affine::of(&base.clone().substitute(&self.values)), len))
    }

    fn covers(&self, stored: &Stored, base: &Affine, len: i64) -> bool {
        let offset = base.clone().plus(&stored.base, -1);
        let range = offset.and_then(|offset| offset.range(&self.bounds));
        range.is_some_and(|range| {
            range.min >= 0 && range.max.checked_add(len).is_some_and(|end| end <= stored.adjacent())
        })
    }

    /// Adds a box; adjacent ones of the same scope become one.
    fn add(&mut self, mut stored: Stored) {
        let joined = |one: &Stored, other: &Stored| {
            let distance = other.base.clone().plus(&one.base, -1)?.as_const()?;
            let is_whole = one.steps.is_empty() && other.steps.is_empty();
            let is_next = (0..=one.len).contains(&distance) && is_whole;
            is_next.then(|| Stored { len: one.len.max(distance + other.len), ..one.clone() })
        };
        let scope = self.scope;
        while let Some((at, both)) =
            (self.boxes.iter().enumerate().skip(scope)).find_map(|(at, other)| {
                Some((at, joined(other, &stored).or_else(|| joined(&stored, other))?))
            })
        {
            self.boxes.remove(at);
            stored = both;
        }
        self.boxes.push(stored);
    }
}

/// What is stored once a loop has ended of what each of its iterations stores.
fn after(mut stored: Stored, var: VarId, min: i64, count: i64) -> Option<Stored> {
    let position = stored
        .base
        .terms
        .iter()
        .position(|(atom, _)| matches!(atom, PrimExpr::Var { var: used, .. } if *used == var));
    let mut factor = 0;
    if let Some(position) = position {
        factor = stored.base.terms.remove(position).1;
    }
    if stored.base.terms.iter().any(|(atom, _)| atom.uses(var)) {
        return None;
    }
    // From the iteration with the lowest elements on.
    let first = if factor < 0 { min.checked_add(count - 1)? } else { min };
    stored.base.constant = stored.base.constant.checked_add(factor.checked_mul(first)?)?;
    if factor != 0 {
        stored.steps.push((factor.checked_abs()?, count));
        let adjacent = Stored { steps: stored.steps.clone(), ..stored.clone() }.adjacent();
        let full: i64 = stored.steps.iter().map(|(factor, count)| factor * (count - 1)).sum();
        if adjacent == stored.len + full {
            stored.len = adjacent;
            stored.steps.clear();
        }
    }
    Some(stored)
}
