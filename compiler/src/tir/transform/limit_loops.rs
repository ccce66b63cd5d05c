//! Loops that end where the elements of a run end.

use std::collections::BTreeMap;

use crate::arith::{Atom, Symbol, View};
use crate::ir::{Dim, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::extent::extent_of;
use crate::tir::{
    Affine, Bounds, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Range, Stmt,
    VarId,
};

/// The attribute that says how many elements of parameters a run uses: see [`RunTimeLengths`].
pub const RUN_TIME_LENGTHS_ATTR: &str = "tir.run_time_lengths";

/// Most conditions of one loop: functions that need more are left as they are.
const MOST_CONDITIONS: usize = 4;

/// Iterations of a loop of which nothing is known: more than any has.
const ANY_COUNT: i64 = 1 << 40;

/// How many elements a run uses of parameters that have room for the greatest sizes. Nobody reads
/// what is behind.
///
/// The text is `0.0=1200*batch; 2.1=ceildiv(width, 2)`: the position of a parameter, one of its axes,
/// and the elements along it, by the function's dimensions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunTimeLengths(pub Vec<RunTimeLength>);

/// How many elements a run uses along an axis of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunTimeLength {
    /// The position among the parameters.
    pub param: usize,
    /// The axis.
    pub axis: usize,
    /// How many.
    pub extent: Dim,
}

impl RunTimeLengths {
    /// Those of a function; what is no such text says nothing.
    pub fn of(func: &PrimFuncData) -> RunTimeLengths {
        let text = func.attrs.get(RUN_TIME_LENGTHS_ATTR).map_or("", String::as_str);
        let length = |entry: &str| {
            let (place, extent) = entry.split_once('=')?;
            let (param, axis) = place.trim().split_once('.')?;
            let (param, axis) = (param.parse().ok()?, axis.parse().ok()?);
            Some(RunTimeLength { param, axis, extent: Dim::parse(extent).ok()? })
        };
        RunTimeLengths(text.split(';').filter_map(length).collect())
    }

    /// Notes them in a function.
    pub fn annotate(&self, func: &mut PrimFuncData) {
        let text = |RunTimeLength { param, axis, extent }: &RunTimeLength| {
            format!("{param}.{axis}={extent}")
        };
        let entries: Vec<String> = self.0.iter().map(text).collect();
        func.attrs.insert(RUN_TIME_LENGTHS_ATTR.to_owned(), entries.join("; "));
    }
}

/// Has loops leave out iterations that store nothing but elements behind those that a run uses.
///
/// [`RUN_TIME_LENGTHS_ATTR`] says how many those are. A loop whose iterations are whole units of a
/// dimension, as images of a batch, gets a condition around its body, so that its bounds stay
/// constant; one of shorter steps, or without loops inside, gets another extent. Other loops stay,
/// and store more than a run needs.
#[prim_func_pass(opt_level = 0, name = "tir.LimitLoops", crate = crate)]
pub fn limit_loops(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let mut limits: BTreeMap<BufferId, Vec<Limit>> = BTreeMap::new();
    for RunTimeLength { param, axis, extent } in RunTimeLengths::of(&func).0 {
        if let (Some(param), Some(limit)) = (func.params.get(param), limit(&func, axis, &extent)) {
            limits.entry(param.buffer).or_default().push(limit);
        }
    }
    if limits.is_empty() {
        return func;
    }
    let limiter = Limiter { func: &func.clone(), limits };
    func.map_body(|body| limiter.stmt(body))
}

/// The same for a statement that fills buffers, of which nobody reads what is behind `ends`: an axis
/// of each and the elements along it.
pub(crate) fn limit_fill(
    func: &PrimFuncData,
    stmt: Stmt,
    ends: impl IntoIterator<Item = (BufferId, usize, PrimExpr)>,
) -> Stmt {
    let mut limits: BTreeMap<BufferId, Vec<Limit>> = BTreeMap::new();
    for (buffer, axis, count) in ends {
        limits.entry(buffer).or_default().push(Limit { axis, count, unit: 1 });
    }
    if limits.is_empty() {
        return stmt;
    }
    Limiter { func, limits }.stmt(stmt)
}

/// Elements along an axis of a parameter: so many times a number of the run's own.
#[derive(Clone, PartialEq, Debug)]
struct Limit {
    axis: usize,
    count: PrimExpr,
    unit: i64,
}

fn limit(func: &PrimFuncData, axis: usize, extent: &Dim) -> Option<Limit> {
    let symbol = |symbol: &Symbol| {
        let dim = func.dims.iter().find(|&&dim| func.vars[dim].name == symbol.name())?;
        Some(func.var_expr(*dim))
    };
    if let View::Poly(poly) = extent.view()
        && let ([term], 0) = (poly.terms(), poly.constant())
        && let (Some(Atom::Symbol(name)), unit @ 1..) = (term.as_atom(), term.coefficient())
    {
        return Some(Limit { axis, count: symbol(name)?, unit });
    }
    Some(Limit { axis, count: extent_of(extent, &symbol)?, unit: 1 })
}

struct Limiter<'a> {
    func: &'a PrimFuncData,
    limits: BTreeMap<BufferId, Vec<Limit>>,
}

/// The first place along an axis of a parameter at which an iteration stores, and where the elements
/// end.
#[derive(Clone, PartialEq, Debug)]
struct First {
    at: Affine,
    limit: Limit,
    /// From the first to the last place of the iteration.
    span: i64,
}

impl Limit {
    /// The number of elements that a run uses.
    fn end(&self) -> PrimExpr {
        self.count.clone() * self.unit
    }
}

impl First {
    /// Whether all of it is behind the first unit.
    fn is_behind(&self) -> bool {
        self.at.constant >= self.limit.unit
    }
}

impl Limiter<'_> {
    fn stmt(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For {
                var,
                min,
                extent,
                kind: kind @ (ForKind::Serial | ForKind::Parallel),
                annotations,
                body,
            } => {
                let (extent, body) = self.limited(var, &min, extent, *body);
                Stmt::For { var, min, extent, kind, annotations, body: Box::new(body) }
            }
            // Lanes and rows of a tile are computed together.
            Stmt::For { .. }
            | Stmt::Store { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. }
            | Stmt::BlockRealize(_) => stmt,
            Stmt::Seq(stmts) => {
                Stmt::Seq(stmts.into_iter().map(|stmt| self.in_sequence(stmt)).collect())
            }
            Stmt::Block { name, body } => Stmt::block(name, self.stmt(*body)),
            Stmt::Let { var, value, body } => Stmt::let_(var, value, self.stmt(*body)),
            Stmt::If { cond, then, otherwise } => Stmt::If {
                cond,
                then: Box::new(self.stmt(*then)),
                otherwise: otherwise.map(|stmt| Box::new(self.stmt(*stmt))),
            },
            Stmt::Allocate { buffer, body } => Stmt::allocate(buffer, self.stmt(*body)),
        }
    }

    /// A statement beside others: what begins behind the first unit is left out where it is not used,
    /// as the rows that are left after whole tiles.
    fn in_sequence(&self, stmt: Stmt) -> Stmt {
        match self.firsts(None, &stmt) {
            Some(firsts) => {
                let conditions = firsts.iter().map(|first| self.is_used(first));
                let stmt = self.stmt(stmt);
                match conditions.reduce(PrimExpr::or) {
                    Some(condition) => Stmt::if_then(condition, stmt),
                    None => stmt,
                }
            }
            None => self.stmt(stmt),
        }
    }

    /// Extent and body of a loop.
    fn limited(
        &self,
        var: VarId,
        min: &PrimExpr,
        extent: PrimExpr,
        body: Stmt,
    ) -> (PrimExpr, Stmt) {
        let Some(firsts) = self.firsts(Some(var), &body) else { return (extent, self.stmt(body)) };
        let step = |first: &First| factor(&first.at, var);
        let only = match &firsts[..] {
            [first] => Some(first).zip(min.as_int()),
            _ => None,
        };
        let is_innermost = only.is_some() && is_innermost(&body);
        if !is_innermost && firsts.iter().all(|first| step(first) >= first.limit.unit) {
            let conditions = firsts.iter().map(|first| self.is_used(first));
            let Some(condition) = conditions.reduce(PrimExpr::or) else { return (extent, body) };
            let whole = firsts.iter().all(|first| step(first) == first.limit.unit);
            let body = if whole { self.without(&firsts).stmt(body) } else { self.stmt(body) };
            return (extent, Stmt::if_then(condition, body));
        }
        // Loops of longer steps may be inside of this one, as rows in a panel of columns.
        let is_narrow = |first: &First| first.span < first.limit.unit;
        let Some((first, min)) = only.filter(|(first, _)| is_innermost || is_narrow(first)) else {
            return (extent, self.stmt(body));
        };
        let step = step(first);
        let mut rest = first.at.clone();
        rest.terms.retain(|(atom, _)| *atom != self.func.var_expr(var));
        let behind = first.limit.end() - rest.into_expr() + (step - 1);
        (extent.min(behind.floordiv(step) - min), body)
    }

    /// The same without limits that hold in the body of a loop: its iterations are whole units.
    fn without(&self, firsts: &[First]) -> Limiter<'_> {
        let holds = |limit: &Limit| firsts.iter().any(|first| first.limit == *limit);
        let rest = |limits: &Vec<Limit>| limits.iter().filter(|l| !holds(l)).cloned().collect();
        let limits = self.limits.iter().map(|(&buffer, limits)| (buffer, rest(limits)));
        Limiter { func: self.func, limits: limits.collect() }
    }

    /// What a statement stores first of each parameter, or the iterations of the loop whose body it
    /// is; `None` if it has to run whatever the sizes are, or that is not seen.
    fn firsts(&self, var: Option<VarId>, body: &Stmt) -> Option<Vec<First>> {
        let mut stores = Stores { limiter: self, var, inner: Bounds::new(), firsts: Vec::new() };
        stores.stmt(body, &BTreeMap::new())?;
        let firsts = stores.firsts;
        (!firsts.is_empty() && firsts.len() <= MOST_CONDITIONS).then_some(firsts)
    }

    /// Whether an element is among those that a run uses.
    fn is_used(&self, first: &First) -> PrimExpr {
        let First { at, limit, span: _ } = first;
        let whole = at.terms.iter().all(|(_, factor)| factor % limit.unit == 0);
        if whole && (0..limit.unit).contains(&at.constant) {
            let terms = at.terms.iter().map(|(atom, factor)| (atom.clone(), factor / limit.unit));
            let unit = Affine { terms: terms.collect(), constant: 0 };
            return unit.into_expr().less(limit.count.clone());
        }
        at.clone().into_expr().less(limit.end())
    }
}

/// Whether a loop with this body has none inside but over lanes and rows of a tile.
fn is_innermost(body: &Stmt) -> bool {
    let mut innermost = true;
    body.walk(&mut |stmt| {
        innermost &= !matches!(stmt, Stmt::For { kind: ForKind::Serial | ForKind::Parallel, .. });
    });
    innermost
}

/// The factor of a variable in a sum.
fn factor(at: &Affine, var: VarId) -> i64 {
    let is_it = |atom: &PrimExpr| matches!(atom, PrimExpr::Var { var: found, .. } if *found == var);
    at.terms.iter().find(|(atom, _)| is_it(atom)).map_or(0, |(_, factor)| *factor)
}

/// Looks at what the body of a loop stores.
struct Stores<'a> {
    limiter: &'a Limiter<'a>,
    /// The loop's variable, if what is looked at is the body of one.
    var: Option<VarId>,
    /// Variables of the loops in its body.
    inner: Bounds,
    firsts: Vec<First>,
}

impl Stores<'_> {
    /// `None` if the body does something for all sizes. `lets` are the values of names in it.
    fn stmt(&mut self, stmt: &Stmt, lets: &BTreeMap<VarId, PrimExpr>) -> Option<()> {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt, lets)),
            Stmt::Block { body, .. } | Stmt::Allocate { body, .. } => self.stmt(body, lets),
            Stmt::Let { var, value, body } => {
                let mut lets = lets.clone();
                let value = value.clone().substitute(&lets);
                lets.insert(*var, value);
                self.stmt(body, &lets)
            }
            Stmt::If { then, otherwise, .. } => {
                self.stmt(then, lets)?;
                otherwise.iter().try_for_each(|stmt| self.stmt(stmt, lets))
            }
            Stmt::For { var, min, extent, body, .. } => {
                let min = Affine::of(&min.clone().substitute(lets));
                let min = min.range(&self.inner)?;
                let count = extent.as_int().map_or(ANY_COUNT, |extent| extent.max(1));
                let (min, max) = (min.min, min.max.checked_add(count - 1)?);
                self.inner.insert(*var, Range { min, max });
                self.stmt(body, lets)
            }
            Stmt::Store { buffer, indices, .. } => self.store(*buffer, indices, lets),
            Stmt::Prefetch { .. } => Some(()),
            Stmt::Assert { .. } | Stmt::BlockRealize(_) => None,
        }
    }

    fn store(
        &mut self,
        buffer: BufferId,
        indices: &[PrimExpr],
        lets: &BTreeMap<VarId, PrimExpr>,
    ) -> Option<()> {
        let Some(limits) = self.limiter.limits.get(&buffer) else {
            // What nobody else sees is for what is stored in the same iteration.
            let scope = self.limiter.func.buffers[buffer].scope;
            return (scope != BufferScope::Param).then_some(());
        };
        let first = limits.iter().find_map(|limit| {
            let index = indices.get(limit.axis)?.clone().substitute(lets);
            self.first(&index, limit)
        })?;
        let greatest = first.at.constant.checked_add(first.span)?;
        let alike =
            |other: &&mut First| other.at.terms == first.at.terms && other.limit == first.limit;
        match self.firsts.iter_mut().find(alike) {
            Some(other) => {
                let end = (other.at.constant.checked_add(other.span)?).max(greatest);
                other.at.constant = other.at.constant.min(first.at.constant);
                other.span = end.checked_sub(other.at.constant)?;
            }
            None => self.firsts.push(first),
        }
        Some(())
    }

    /// The first place of an index along a limited axis; `None` if the loop does not move it, or the
    /// statement is among the first of a run.
    fn first(&self, index: &PrimExpr, limit: &Limit) -> Option<First> {
        let index = match index {
            PrimExpr::Ramp { base, stride, .. } if stride.as_int().is_some_and(|s| s >= 0) => base,
            PrimExpr::Ramp { .. } => return None,
            scalar => scalar,
        };
        let mut at = Affine::of(index);
        let (mut least, mut greatest) = (at.constant, at.constant);
        let mut terms = Vec::new();
        for (atom, factor) in std::mem::take(&mut at.terms) {
            if !self.changes(&atom) {
                terms.push((atom, factor));
                continue;
            }
            let range = Affine { terms: vec![(atom, factor)], constant: 0 }.range(&self.inner)?;
            least = least.checked_add(range.min)?;
            greatest = greatest.checked_add(range.max)?;
        }
        let span = greatest.checked_sub(least)?;
        let at = Affine { terms, constant: least };
        let first = First { at, limit: limit.clone(), span };
        let ends = match self.var {
            Some(var) => factor(&first.at, var) > 0,
            None => first.is_behind(),
        };
        ends.then_some(first)
    }

    /// Whether an atom changes in the body, or with the loop's variable without being that.
    fn changes(&self, atom: &PrimExpr) -> bool {
        if let PrimExpr::Var { var, .. } = atom {
            return self.inner.contains_key(var);
        }
        let mut found = false;
        atom.walk(&mut |expr| {
            found |= match expr {
                PrimExpr::Var { var, .. } => Some(*var) == self.var || self.inner.contains_key(var),
                PrimExpr::Load { .. } => true,
                _ => false,
            }
        });
        found
    }
}
