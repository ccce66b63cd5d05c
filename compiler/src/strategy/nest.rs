//! Loop nests over the elements of a layout, and which of them can be vectors.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{BufferSpec, DType};
use crate::target::CHANNEL_BLOCK;
use crate::tir::{
    Affine, BinaryOp, Bounds, BufferId, BufferScope, ForKind, ParamKind, PrimExpr, PrimFuncData,
    Range, Stmt, VarId,
};

/// Loops over the logical elements of a layout, in the order of memory: the part of them that one
/// width of vectors covers.
#[derive(Clone)]
pub(super) struct Nest {
    /// Variable and extent, outermost first, but for the innermost one: the same ones in all nests
    /// of a layout.
    outer: Vec<(VarId, i64)>,
    /// The loop over the innermost physical dimension, if it has more than one iteration.
    inner: Option<(VarId, i64)>,
    /// The logical index; along the lane axis, of lane 0.
    index: Vec<PrimExpr>,
    /// What must hold for the index to be within the shape, besides the loops.
    guards: Vec<PrimExpr>,
    /// The axis along which one iteration covers several elements, and how many.
    pub(super) lane: Option<(usize, i64)>,
    /// Whether lanes may go beyond the shape, into padding lanes.
    pub(super) overruns: bool,
}

/// A part of the innermost dimension of a layout: `count` times as many elements as a vector has
/// lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) start: i64,
    pub(super) count: i64,
    pub(super) lanes: i64,
}

impl Nest {
    /// Elements of the innermost physical dimension, without a border.
    pub(super) fn inner(spec: &BufferSpec) -> i64 {
        let extents = Self::extents(spec).1;
        innermost(spec).map_or(1, |position| extents[position])
    }

    fn extents(spec: &BufferSpec) -> (Vec<(usize, i64)>, Vec<i64>) {
        let dims: Vec<(usize, i64)> = spec.dims().iter().map(|dim| (dim.axis, dim.step)).collect();
        let extents = BufferSpec::packed(spec.shape(), &dims).physical_shape();
        (dims, extents)
    }

    /// How pieces of the innermost dimension, each a start and a length, are covered: in vectors of
    /// the first of `widths` elements, what is left in vectors of the next and so on; without
    /// widths, element by element. The last width must be 1, or divide what the others leave.
    pub(super) fn runs(pieces: &[(i64, i64)], widths: &[i64]) -> Vec<Run> {
        let mut runs = Vec::new();
        for &(mut start, len) in pieces {
            let end = start + len;
            for &lanes in if widths.is_empty() { &[1] } else { widths } {
                let count = (end - start) / lanes;
                if count > 0 {
                    runs.push(Run { start, count, lanes });
                    start += count * lanes;
                }
            }
        }
        runs
    }

    /// How an innermost dimension is covered in vectors of some widths, widest first, where elements may
    /// be covered twice: what the widest leaves is in one vector that ends with it.
    pub(super) fn overlapping(extent: i64, widths: &[i64]) -> Vec<Run> {
        let Some(&lanes) = widths.first() else { return Nest::runs(&[(0, extent)], widths) };
        let (count, rest) = (extent / lanes, extent % lanes);
        let mut runs = vec![Run { start: 0, count, lanes }];
        let last = widths.iter().rev().find(|&&width| width >= rest && width <= extent);
        match last {
            _ if count == 0 => return Nest::runs(&[(0, extent)], widths),
            Some(&lanes) if rest > 0 => runs.push(Run { start: extent - lanes, count: 1, lanes }),
            _ => {}
        }
        runs
    }

    /// Nests that cover these runs of the innermost physical dimension of a layout.
    ///
    /// The first axes of the index are `rows`: the layout has one element along each of them.
    pub(super) fn cover(
        func: &mut PrimFuncData,
        spec: &BufferSpec,
        runs: &[Run],
        rows: &[PrimExpr],
    ) -> Vec<Nest> {
        let (dims, extents) = Self::extents(spec);
        if extents.contains(&0) {
            return Vec::new();
        }
        let innermost = innermost(spec);
        let mut outer = Vec::new();
        let mut digits = Vec::new();
        for (position, (&(axis, _), &extent)) in dims.iter().zip(&extents).enumerate() {
            digits.push(if Some(position) == innermost || extent == 1 {
                PrimExpr::index(0)
            } else {
                let var = func.index_var(format!("i{axis}"));
                outer.push((var, extent));
                func.var_expr(var)
            });
        }
        let nests = runs.iter().map(|&run| {
            let mut nest = Nest::build(func, spec, &dims, &digits, innermost, run);
            nest.outer.clone_from(&outer);
            for (index, row) in nest.index.iter_mut().zip(rows) {
                index.clone_from(row);
            }
            nest
        });
        nests.collect()
    }

    /// `run` says how the innermost dimension is covered; `digits` are the places in the other
    /// dimensions, and 0 there.
    fn build(
        func: &mut PrimFuncData,
        spec: &BufferSpec,
        dims: &[(usize, i64)],
        digits: &[PrimExpr],
        innermost: Option<usize>,
        run: Run,
    ) -> Nest {
        let shape = spec.shape();
        let mut nest = Nest {
            outer: Vec::new(),
            inner: None,
            index: vec![PrimExpr::index(0); shape.len()],
            guards: Vec::new(),
            lane: None,
            overruns: false,
        };
        for (position, (&(axis, step), digit)) in dims.iter().zip(digits).enumerate() {
            let value = if Some(position) == innermost {
                let Run { start, count, lanes } = run;
                nest.lane = (lanes > 1).then_some((axis, lanes));
                let digit = if count == 1 {
                    PrimExpr::index(0)
                } else {
                    let var = func.index_var(format!("i{axis}"));
                    nest.inner = Some((var, count));
                    func.var_expr(var)
                };
                digit * (step * lanes) + start * step
            } else {
                digit.clone() * step
            };
            let so_far = std::mem::replace(&mut nest.index[axis], PrimExpr::index(0));
            nest.index[axis] = so_far + value;
        }
        for (axis, &extent) in shape.iter().enumerate() {
            let outer = dims.iter().find(|dim| dim.0 == axis).map_or(1, |dim| dim.1);
            if extent % outer == 0 {
                continue;
            }
            match nest.lane {
                Some((lane_axis, _)) if lane_axis == axis => nest.overruns = true,
                _ => nest.guards.push(nest.index[axis].clone().less(extent)),
            }
        }
        nest
    }

    /// Its loops.
    pub(super) fn loops(&self) -> impl Iterator<Item = (VarId, i64)> {
        self.outer.iter().chain(&self.inner).copied()
    }

    /// The index, along the lane axis that of `lane`.
    pub(super) fn index_at(&self, lane: &PrimExpr) -> Vec<PrimExpr> {
        let mut index = self.index.clone();
        if let Some((axis, _)) = self.lane {
            let first = std::mem::replace(&mut index[axis], PrimExpr::index(0));
            index[axis] = first + lane.clone();
        }
        index
    }

    /// The same with another index along an axis, which is not that of the lanes.
    pub(super) fn with_index(&self, axis: usize, index: impl FnOnce(PrimExpr) -> PrimExpr) -> Nest {
        let mut nest = self.clone();
        nest.index[axis] = index(nest.index[axis].clone());
        nest
    }

    /// The loops around the bodies of all nests of a layout.
    pub(super) fn wrap(bodies: Vec<(Nest, Stmt)>) -> Stmt {
        let outer = bodies.first().map(|(nest, _)| nest.outer.clone()).unwrap_or_default();
        let parts = bodies.into_iter().map(|(nest, body)| {
            let guarded =
                nest.guards.into_iter().fold(body, |body, guard| Stmt::if_then(guard, body));
            nest.inner.into_iter().fold(guarded, in_loop)
        });
        let parts = Stmt::seq(parts);
        outer.into_iter().rev().fold(parts, in_loop)
    }
}

/// The physical dimension, counted from the outermost, along which elements are adjacent: the last
/// one that has several, or the last one.
pub(super) fn innermost(spec: &BufferSpec) -> Option<usize> {
    let extents = spec.physical_shape();
    extents.iter().rposition(|&extent| extent != 1).or(extents.len().checked_sub(1))
}

/// A loop from 0 around a body.
pub(super) fn in_loop(body: Stmt, (var, extent): (VarId, i64)) -> Stmt {
    in_run(body, (var, PrimExpr::index(extent)))
}

/// The same with an extent that may be a run's own.
pub(super) fn in_run(body: Stmt, (var, extent): (VarId, PrimExpr)) -> Stmt {
    Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Serial, body)
}

/// Whether the body of a loop over `lanes` lanes can be one of vectors: what it loads and stores is
/// the same for each lane or contiguous. Where types of several widths meet, the widest decides how
/// many lanes a vector has: `VectorizeLoop` cuts the loop accordingly.
///
/// With `overrun`, lanes beyond the shape must be padding lanes in every buffer; constants are
/// given a layout that has them, which is noted in `padding`. `extents` are those of the loops
/// around, which begin at zero.
pub(super) fn can_vectorize(
    func: &mut PrimFuncData,
    padding: &mut Padding,
    extents: &BTreeMap<VarId, i64>,
    stmt: &Stmt,
    lane: VarId,
    lanes: i64,
    overrun: bool,
) -> bool {
    let range = |(&var, &extent): (&VarId, &i64)| (var, Range { min: 0, max: extent - 1 });
    let bounds = if overrun { extents.iter().map(range).collect() } else { Bounds::new() };
    let mut check = LaneCheck {
        func,
        lane,
        lanes,
        overrun,
        bounds,
        lane_is_value: false,
        varying: BTreeSet::new(),
        padding: Padding::default(),
        packs: true,
    };
    let fits = check.stmt(stmt);
    let found = check.padding;
    if fits {
        found.apply(func);
        padding.0.extend(found.0);
    }
    fits
}

/// The same without padding lanes, for a body that may also use the lane itself as a value.
pub(super) fn can_vectorize_values(
    func: &PrimFuncData,
    stmt: &Stmt,
    lane: VarId,
    lanes: i64,
) -> bool {
    let mut check = LaneCheck {
        func,
        lane,
        lanes,
        overrun: false,
        bounds: Bounds::new(),
        lane_is_value: true,
        varying: BTreeSet::new(),
        padding: Padding::default(),
        packs: false,
    };
    check.stmt(stmt)
}

/// Dense constants that get padding lanes: along which axis, and the elements of a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Padding(pub(super) BTreeMap<BufferId, (usize, i64)>);

impl Padding {
    /// Gives the constants their padding lanes.
    pub(super) fn apply(&self, func: &mut PrimFuncData) {
        for (&buffer, &(axis, lanes)) in &self.0 {
            let spec = padded(func.buffers[buffer].shape(), axis, lanes);
            func.buffers[buffer].spec = spec;
        }
    }
}

/// A layout in blocks of `lanes` along one axis, the block innermost.
fn padded(shape: &[i64], axis: usize, lanes: i64) -> BufferSpec {
    let rest = (0..shape.len()).filter(|&other| other != axis).map(|other| (other, 1));
    let dims: Vec<(usize, i64)> =
        std::iter::once((axis, lanes)).chain(rest).chain([(axis, 1)]).collect();
    BufferSpec::packed(shape, &dims)
}

/// Elements from one lane of a load to the next: more apart, vectors would be mostly of what is not
/// read.
pub(super) const MOST_APART: i64 = 2;

/// What lanes do with a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

struct LaneCheck<'a> {
    func: &'a PrimFuncData,
    lane: VarId,
    lanes: i64,
    overrun: bool,
    /// The values of loop variables, if lanes may go beyond the shape.
    bounds: Bounds,
    /// Whether the lane may be a value and not an index only.
    lane_is_value: bool,
    /// Variables whose values differ from lane to lane.
    varying: BTreeSet<VarId>,
    /// Constants that need padding lanes, or lanes side by side.
    padding: Padding,
    /// Whether constants can be packed in another layout.
    packs: bool,
}

impl LaneCheck<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().all(|stmt| self.stmt(stmt)),
            Stmt::Block { name: _, body } => self.stmt(body),
            Stmt::Let { var, value, body } => self.binding(*var, value) && self.stmt(body),
            Stmt::Store { buffer, indices, value } => {
                self.access(*buffer, indices, Access::Write) && self.expr(value)
            }
            Stmt::For { var: _, min, extent, kind: ForKind::Unrolled, annotations: _, body } => {
                !self.varies(min) && !self.varies(extent) && self.stmt(body)
            }
            Stmt::BlockRealize(_)
            | Stmt::For { .. }
            | Stmt::If { .. }
            | Stmt::Allocate { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. } => false,
        }
    }

    fn binding(&mut self, var: VarId, value: &PrimExpr) -> bool {
        let ok = self.expr(value);
        if self.varies(value) {
            self.varying.insert(var);
        }
        ok
    }

    fn varies(&self, expr: &PrimExpr) -> bool {
        expr.any(&mut |e| {
            matches!(e, PrimExpr::Var { var, .. } if *var == self.lane || self.varying.contains(var))
        })
    }

    /// Whether an expression has a vector form. One that is the same in every lane always has.
    fn expr(&mut self, expr: &PrimExpr) -> bool {
        if !self.varies(expr) {
            return true;
        }
        match expr {
            PrimExpr::Load { buffer, dtype: _, indices } => {
                self.access(*buffer, indices, Access::Read)
            }
            // The lane itself as a value: indices that are data.
            PrimExpr::Var { var, .. } => {
                self.varying.contains(var) || (self.lane_is_value && *var == self.lane)
            }
            PrimExpr::Let { var, value, body } => self.binding(*var, value) && self.expr(body),
            PrimExpr::Select { cond, then, otherwise } => {
                let guards = self.varies(cond) && guards_loads(cond, then, otherwise);
                !guards && self.expr(cond) && self.expr(then) && self.expr(otherwise)
            }
            PrimExpr::Cast { value, .. } => self.expr(value),
            PrimExpr::Unary { .. }
            | PrimExpr::Binary { .. }
            | PrimExpr::Compare { .. }
            | PrimExpr::Reinterpret { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::Call { .. } => {
                let mut ok = true;
                expr.for_each_child(&mut |child| ok = ok && self.expr(child));
                ok
            }
            PrimExpr::Int { .. }
            | PrimExpr::Float { .. }
            | PrimExpr::Ramp { .. }
            | PrimExpr::Broadcast { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::DotAdd { .. } => false,
        }
    }

    /// Whether lanes read or write the same element, or adjacent ones that do not cross a block, or read
    /// every so many.
    fn access(&mut self, buffer: BufferId, indices: &[PrimExpr], access: Access) -> bool {
        let apart = if access == Access::Read { MOST_APART } else { 1 };
        let mut lane_axis = None;
        let mut step = 1;
        for (axis, index) in indices.iter().enumerate() {
            match coefficient(index, self.lane) {
                Some(0) if !self.varies(index) => {}
                Some(by) if lane_axis.is_none() && (1..=apart).contains(&by) => {
                    lane_axis = Some(axis);
                    step = by;
                }
                _ => return false,
            }
        }
        let Some(axis) = lane_axis else { return true };
        if step > 1 {
            let data = &self.func.buffers[buffer];
            let plain = data.scope != BufferScope::Register && data.dtype != DType::Bool;
            let whole = block(&data.spec, axis).is_none();
            return plain && whole && !self.overrun && contiguous(&data.spec, axis, &0.into(), 1);
        }
        let first = indices[axis].clone().substitute(&[(self.lane, PrimExpr::index(0))].into());
        // What is read beyond the shape has no meaning; what is written there is another's, or padding.
        let is_harmless = access == Access::Read && self.has_all(buffer, axis, &first);
        if self.overrun && !is_harmless {
            let is_padded = self.pad(buffer, axis);
            if !is_padded || !self.is_inside(buffer, axis, &first) {
                return false;
            }
        }
        let is_contiguous =
            |check: &Self| contiguous(&check.spec(buffer), axis, &first, check.lanes);
        // A constant is packed as it is read.
        let may_be_packed = access == Access::Read && self.packs;
        is_contiguous(self) || may_be_packed && self.pad(buffer, axis) && is_contiguous(self)
    }

    /// The layout of a buffer, with the padding lanes that it gets.
    fn spec(&self, buffer: BufferId) -> Cow<'_, BufferSpec> {
        let data = &self.func.buffers[buffer];
        match self.padding.0.get(&buffer) {
            Some(&(along, block)) => Cow::Owned(padded(data.shape(), along, block)),
            None => Cow::Borrowed(&data.spec),
        }
    }

    /// Whether lanes from an index on are elements of a dense buffer.
    fn has_all(&self, buffer: BufferId, axis: usize, first: &PrimExpr) -> bool {
        let spec = &self.func.buffers[buffer].spec;
        let first = Affine::of(first).range(&self.bounds);
        let is_within =
            |first: Range| first.min >= 0 && first.max + self.lanes <= spec.shape()[axis];
        spec.is_dense() && first.is_some_and(is_within)
    }

    /// Whether lanes from an index on are in a block that the buffer has, be it one of padding lanes.
    fn is_inside(&self, buffer: BufferId, axis: usize, first: &PrimExpr) -> bool {
        let spec = self.spec(buffer);
        let Some(block) = block(&spec, axis) else { return true };
        let end = (spec.shape()[axis] + block - 1) / block * block;
        let first = Affine::of(first).range(&self.bounds);
        first.is_some_and(|first| first.min >= 0 && first.max + self.lanes <= end)
    }

    /// Whether the buffer has padding lanes along an axis; a constant gets them.
    fn pad(&mut self, buffer: BufferId, axis: usize) -> bool {
        let data = &self.func.buffers[buffer];
        if data.scope == BufferScope::Register {
            return true;
        }
        if block(&data.spec, axis).is_some_and(|block| block % self.lanes == 0) {
            return true;
        }
        let constant =
            self.func.param_of(buffer).is_some_and(|param| param.kind == ParamKind::Constant);
        if !constant || !data.spec.is_dense() {
            return false;
        }
        // Tensors with blocks of channels have as many lanes beyond the shape.
        let block = self.lanes.max(CHANNEL_BLOCK);
        *self.padding.0.entry(buffer).or_insert((axis, block)) == (axis, block)
    }
}

/// Whether a choice may keep loads within their buffers: its condition is one on indices. One on data,
/// wherever they are read, does not.
pub(super) fn guards_loads(cond: &PrimExpr, then: &PrimExpr, otherwise: &PrimExpr) -> bool {
    fn on_indices(cond: &PrimExpr) -> bool {
        match cond {
            PrimExpr::Load { .. } => false,
            PrimExpr::Compare { lhs, .. } if lhs.dtype() == DType::I64 => true,
            other => {
                let mut found = false;
                other.for_each_child(&mut |child| found |= on_indices(child));
                found
            }
        }
    }
    let has_load = |expr: &PrimExpr| expr.any(&mut |e| matches!(e, PrimExpr::Load { .. }));
    on_indices(cond) && (has_load(then) || has_load(otherwise))
}

/// Elements of the innermost block of an axis, if the axis is blocked.
pub(super) fn block(spec: &BufferSpec, axis: usize) -> Option<i64> {
    spec.blocking().into_iter().find(|block| block.0 == axis).map(|block| block.1)
}

/// Whether `lanes` elements along `axis` from index `first` on are adjacent in memory.
pub(super) fn contiguous(spec: &BufferSpec, axis: usize, first: &PrimExpr, lanes: i64) -> bool {
    // Not necessarily the last dimension: those after it may have one element.
    let strides = spec.strides();
    let unit = spec.dims().iter().rposition(|dim| dim.axis == axis && dim.step == 1);
    if unit.is_none_or(|position| strides[position] != 1) {
        return false;
    }
    match block(spec, axis) {
        None => true,
        Some(block) => {
            let halo = spec.halo()[axis].before;
            block % lanes == 0 && multiple_of(first, lanes) && halo % lanes == 0
        }
    }
}

/// The position of an element of a dense tensor in memory.
pub(super) fn position(extents: &[i64], indices: Vec<PrimExpr>) -> PrimExpr {
    let axes = indices.into_iter().zip(extents);
    axes.fold(PrimExpr::index(0), |at, (index, &extent)| match undivided(&at, &index, extent) {
        Some(whole) => whole,
        None => at * extent + index,
    })
}

/// What `at * extent + index` is if both are digits of one number, as behind a change of shape.
fn undivided(at: &PrimExpr, index: &PrimExpr, extent: i64) -> Option<PrimExpr> {
    let PrimExpr::Binary { op: BinaryOp::FloorMod, lhs: digits, rhs } = index else { return None };
    let (whole, divisor) = quotient(digits);
    let (more, by) = quotient(at);
    let fits = rhs.as_int() == Some(extent)
        && more == whole
        && divisor > 0
        && divisor.checked_mul(extent) == Some(by);
    fits.then(|| (**digits).clone())
}

/// A number that is divided, and by what.
fn quotient(expr: &PrimExpr) -> (&PrimExpr, i64) {
    match expr {
        PrimExpr::Binary { op: BinaryOp::FloorDiv, lhs, rhs } => match rhs.as_int() {
            Some(divisor) => (lhs, divisor),
            None => (expr, 1),
        },
        _ => (expr, 1),
    }
}

/// How much an index grows with a variable, if it is linear in it.
pub(super) fn coefficient(expr: &PrimExpr, var: VarId) -> Option<i64> {
    match expr {
        PrimExpr::Var { var: used, .. } => Some(i64::from(*used == var)),
        PrimExpr::Binary { op: BinaryOp::Add, lhs, rhs } => {
            coefficient(lhs, var)?.checked_add(coefficient(rhs, var)?)
        }
        PrimExpr::Binary { op: BinaryOp::Sub, lhs, rhs } => {
            coefficient(lhs, var)?.checked_sub(coefficient(rhs, var)?)
        }
        PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => match (lhs.as_int(), rhs.as_int()) {
            (Some(factor), _) => coefficient(rhs, var)?.checked_mul(factor),
            (_, Some(factor)) => coefficient(lhs, var)?.checked_mul(factor),
            (None, None) => (!expr.uses(var)).then_some(0),
        },
        _ => (!expr.uses(var)).then_some(0),
    }
}

/// Whether an index is certainly a multiple of `divisor`.
pub(super) fn multiple_of(expr: &PrimExpr, divisor: i64) -> bool {
    fn factor(expr: &PrimExpr) -> i64 {
        fn gcd(a: i64, b: i64) -> i64 {
            if b == 0 { a } else { gcd(b, a % b) }
        }
        match expr {
            PrimExpr::Int { value, .. } => value.saturating_abs(),
            PrimExpr::Binary { op: BinaryOp::Add | BinaryOp::Sub, lhs, rhs } => {
                gcd(factor(lhs), factor(rhs))
            }
            PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => {
                factor(lhs).saturating_mul(factor(rhs))
            }
            _ => 1,
        }
    }
    factor(expr) % divisor.max(1) == 0
}
