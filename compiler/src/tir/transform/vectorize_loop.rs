//! Vectorisation of loops.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::PrimaryMap;

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::print::expr_text;
use crate::tir::{
    Annotations, BinaryOp, Buffer, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc,
    PrimFuncData, PrimType, Stmt, VarDecl, VarId,
};

crate::register_pass_config_option! {
    /// Whether `vectorized` loops become serial ones.
    pub DISABLE_VECTORIZE: bool = "tir.disable_vectorize";
}

/// Turns `vectorized` loops into vector statements no wider than the target's registers.
///
/// A wider loop is divided into full vectors and then narrower ones, by powers of two. A branch on
/// the loop variable becomes a serial loop over the lanes. A body that cannot be vectorised at all
/// (a guarded load, a scalar that all iterations write) becomes a serial loop.
///
/// # Errors
///
/// The extent of a `vectorized` loop is not constant, or below 1.
#[prim_func_pass(opt_level = 0, name = "tir.VectorizeLoop", crate = crate)]
pub fn vectorize_loop(
    mut func: PrimFunc,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<PrimFunc> {
    let mut any = false;
    let mut wrong = None;
    func.body.walk(&mut |stmt| {
        if let Stmt::For { extent, kind: ForKind::Vectorized, .. } = stmt {
            any = true;
            if extent.as_int().is_none_or(|extent| extent < 1) {
                wrong = Some(extent);
            }
        }
    });
    let is_disabled = cx.get(&DISABLE_VECTORIZE);
    if let Some(extent) = wrong.filter(|_| !is_disabled) {
        let extent = expr_text(&func, extent);
        return Err(format!("Failed to vectorize loop with extent {extent}").into());
    }
    if !any {
        return Ok(func);
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut vectorizer = Vectorizer { func: data, vector_bits: cx.target().vector_bits() };
    data.body = body.rewrite(&mut |stmt| match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Vectorized, annotations, body } => {
            match extent.as_int().filter(|_| !is_disabled) {
                Some(count) => vectorizer.vectorized(var, min, count, annotations, &body),
                None => Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body },
            }
        }
        other => other,
    });
    Ok(func)
}

struct Vectorizer<'a> {
    func: &'a mut PrimFuncData,
    vector_bits: u64,
}

impl Vectorizer<'_> {
    /// A loop of `extent` iterations as vector statements, or as a serial loop.
    fn vectorized(
        &mut self,
        var: VarId,
        min: PrimExpr,
        extent: i64,
        annotations: Annotations,
        body: &Stmt,
    ) -> Stmt {
        let bits = self.widest_element(var, body);
        let lanes = i64::try_from(self.vector_bits / u64::from(bits)).unwrap_or(1).max(1);
        // One trial shows whether vectors are possible at all.
        if lanes == 1 || extent == 1 || self.vectors(var, &min, 2, body).is_none() {
            let kind = kind_of(body, &self.func.buffers);
            let (extent, body) = (PrimExpr::int(extent, min.dtype()), Box::new(body.clone()));
            return Stmt::For { var, min, extent, kind, annotations, body };
        }
        let mut parts = Vec::new();
        let full = extent / lanes;
        let mut start = 0;
        if full > 1 {
            let chunk = self.func.vars.push(self.func.vars[var].clone());
            let base = self.func.var_expr(chunk) * lanes + min.clone();
            if let Some(body) = self.vectors(var, &base, lanes, body) {
                let first = PrimExpr::zero(min.ty());
                let kind = kind_of(&body, &self.func.buffers);
                parts.push(Stmt::For {
                    var: chunk,
                    min: first,
                    extent: PrimExpr::int(full, min.dtype()),
                    kind,
                    annotations,
                    body: Box::new(body),
                });
            }
            start = full * lanes;
        }
        let mut rest = extent - start;
        let mut width = lanes;
        while rest > 0 {
            while width > rest {
                width /= 2;
            }
            let base = min.clone() + start;
            let part = if width == 1 {
                Some(self.func.copy_of(body, &BTreeMap::from([(var, base)])))
            } else {
                self.vectors(var, &base, width, body)
            };
            parts.extend(part);
            start += width;
            rest -= width;
        }
        Stmt::seq(parts)
    }

    /// Bits of the widest element that becomes a vector: of everything in the loop that is not an
    /// index. A name of 64 bits is one unless it is loaded or stored, or a part of what is stored.
    fn widest_element(&self, var: VarId, body: &Stmt) -> u32 {
        let mut stmts = Vec::new();
        body.walk(&mut |stmt| stmts.push(stmt));
        // The loop variable, and what has another value in each iteration.
        let mut varying = BTreeSet::from([var]);
        for stmt in &stmts {
            if let Stmt::Let { var: name, value, .. } = stmt
                && uses_any(value, &varying)
            {
                varying.insert(*name);
            }
        }
        let mut bits = 8;
        let mut stored: BTreeSet<VarId> = BTreeSet::new();
        // Names are bound before they are used.
        for stmt in stmts.into_iter().rev() {
            let value = match stmt {
                Stmt::Store { buffer, indices: _, value } => {
                    bits = bits.max(self.func.buffers[*buffer].dtype.bits());
                    value
                }
                Stmt::Let { var: name, value, .. }
                    if value.dtype() != DType::I64
                        || stored.contains(name)
                        || loads_lanes(value, var) =>
                {
                    value
                }
                _ => continue,
            };
            widest_value(value, var, &varying, &mut bits);
            names_of_value(value, &mut stored);
        }
        bits
    }

    /// The loop's body for `lanes` iterations from `base` at once, or `None` if that is impossible.
    fn vectors(&mut self, var: VarId, base: &PrimExpr, lanes: i64, body: &Stmt) -> Option<Stmt> {
        let lanes = u32::try_from(lanes).ok()?;
        let ramp = PrimExpr::ramp(base.clone(), 1, lanes);
        let values = BTreeMap::from([(var, ramp)]);
        let base = base.clone();
        let mut widen = Widen { func: self.func, var, base, values, lanes, scalarized: false };
        let widened = widen.stmt(body)?;
        // Vectors would be of no use if all statements run lane by lane.
        let mut vectors = !widen.scalarized;
        widened.walk(&mut |stmt| {
            vectors |= matches!(stmt, Stmt::Store { value, .. } if !value.ty().is_scalar());
        });
        vectors.then_some(widened)
    }
}

/// The kind of a loop over vectors or elements: register tiles are written out.
fn kind_of(body: &Stmt, buffers: &PrimaryMap<BufferId, Buffer>) -> ForKind {
    if uses_registers(body, buffers) { ForKind::Unrolled } else { ForKind::Serial }
}

fn uses_registers(body: &Stmt, buffers: &PrimaryMap<BufferId, Buffer>) -> bool {
    let is_register = |id: BufferId| buffers[id].scope == crate::tir::BufferScope::Register;
    let mut found = false;
    body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, .. } = stmt {
            found |= is_register(*buffer);
        }
    });
    body.walk_exprs(&mut |expr| {
        if let PrimExpr::Load { buffer, .. } = expr {
            found |= is_register(*buffer);
        }
    });
    found
}

/// A load of every second element, by position, as two of adjacent ones. The second ends with the
/// last element that is wanted: what is behind it may not be there.
fn every_second(buffer: BufferId, dtype: DType, indices: &[PrimExpr]) -> Option<PrimExpr> {
    let [PrimExpr::Ramp { base, stride, lanes }] = indices else { return None };
    // A vector of truth values is a mask, of which lanes are not taken.
    if !stride.is_const(2) || dtype == DType::Bool {
        return None;
    }
    let load = |first: PrimExpr| {
        let indices = vec![PrimExpr::ramp(first, 1, *lanes)];
        PrimExpr::Load { buffer, dtype, indices }
    };
    let count = i64::from(*lanes);
    let vectors = vec![load((**base).clone()), load((**base).clone() + (count - 1))];
    let picks = (0..*lanes).map(|lane| match 2 * lane {
        near if near < *lanes => near,
        far => far + 1,
    });
    Some(PrimExpr::Shuffle { vectors, lanes: picks.collect() })
}

/// Whether an expression of the loop variable becomes a ramp.
fn is_ramp(expr: &PrimExpr, var: VarId, varying: &BTreeSet<VarId>) -> bool {
    match expr {
        PrimExpr::Var { var: used, .. } => *used == var,
        PrimExpr::Binary { op: BinaryOp::Add, lhs, rhs } => {
            let pair = |ramp, other| is_ramp(ramp, var, varying) && !uses_any(other, varying);
            pair(lhs, rhs) || pair(rhs, lhs)
        }
        PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => {
            rhs.as_int().is_some() && is_ramp(lhs, var, varying)
        }
        _ => false,
    }
}

/// Widest data type in an expression, indices of loads aside.
fn widest_value(expr: &PrimExpr, var: VarId, varying: &BTreeSet<VarId>, bits: &mut u32) {
    match expr {
        PrimExpr::Load { dtype, indices, .. } => {
            *bits = (*bits).max(dtype.bits());
            // Positions that were loaded are a vector of their own.
            for index in indices.iter().filter(|index| loads_lanes(index, var)) {
                widest_value(index, var, varying, bits);
            }
        }
        PrimExpr::Var { var: used, ty } if *used != var && !ty.is_scalar() => {
            *bits = (*bits).max(ty.dtype.bits());
        }
        PrimExpr::Var { var: used, ty } => {
            // Lanes of the loop variable itself, or of a name that becomes a vector.
            if *used == var || ty.dtype != DType::I64 {
                *bits = (*bits).max(ty.dtype.bits());
            }
        }
        // A lane as a narrow number.
        PrimExpr::Cast { value, dtype } if dtype.is_int() && is_ramp(value, var, varying) => {
            *bits = (*bits).max(dtype.bits());
        }
        other => {
            if matches!(
                other,
                PrimExpr::Cast { .. } | PrimExpr::Reinterpret { .. } | PrimExpr::Call { .. }
            ) {
                *bits = (*bits).max(other.dtype().bits());
            }
            // A condition that is scalar for all lanes does not become a vector.
            if let PrimExpr::Compare { lhs, rhs, .. } = other
                && !uses_any(lhs, varying)
                && !uses_any(rhs, varying)
            {
                return;
            }
            other.for_each_child(&mut |child| widest_value(child, var, varying, bits));
        }
    }
}

/// Whether one of some variables is in an expression.
fn uses_any(expr: &PrimExpr, vars: &BTreeSet<VarId>) -> bool {
    expr.any(&mut |expr| matches!(expr, PrimExpr::Var { var, .. } if vars.contains(var)))
}

/// Whether an expression loads from another place in each iteration.
fn loads_lanes(expr: &PrimExpr, var: VarId) -> bool {
    expr.any(&mut |expr| matches!(expr, PrimExpr::Load { .. }) && expr.uses(var))
}

/// The variables in an expression, indices of loads aside.
fn names_of_value(expr: &PrimExpr, names: &mut BTreeSet<VarId>) {
    match expr {
        PrimExpr::Var { var, .. } => {
            names.insert(*var);
        }
        PrimExpr::Load { .. } => {}
        other => other.for_each_child(&mut |child| names_of_value(child, names)),
    }
}

/// Rewrites statements and expressions for several values of some variables at once.
struct Widen<'a> {
    func: &'a mut PrimFuncData,
    /// The loop's variable, and its value in the first lane.
    var: VarId,
    base: PrimExpr,
    /// The vectors that replace scalar variables.
    values: BTreeMap<VarId, PrimExpr>,
    lanes: u32,
    /// Whether a statement runs lane by lane.
    scalarized: bool,
}

impl Widen<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Option<Stmt> {
        Some(match stmt {
            Stmt::Seq(stmts) => {
                Stmt::Seq(stmts.iter().map(|stmt| self.stmt(stmt)).collect::<Option<_>>()?)
            }
            // Blocks are lowered earlier.
            Stmt::BlockRealize(_) => return None,
            Stmt::Block { name, body } => {
                Stmt::Block { name: name.clone(), body: Box::new(self.stmt(body)?) }
            }
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let (min, extent) = (self.scalar(min)?, self.scalar(extent)?);
                let var = self.rename(*var, min.ty());
                let body = Box::new(self.stmt(body)?);
                let annotations = annotations.clone();
                Stmt::For { var, min, extent, kind: *kind, annotations, body }
            }
            Stmt::Store { buffer, indices, value } => {
                let indices: Vec<_> =
                    indices.iter().map(|index| self.expr(index)).collect::<Option<_>>()?;
                // All lanes store to one element: the order of the loop decides which value
                // remains.
                let lanes = indices.iter().map(|index| index.ty().lanes).max().unwrap_or(1);
                if lanes != self.lanes {
                    return None;
                }
                let value = self.expr(value)?.broadcast_to(lanes);
                Stmt::Store { buffer: *buffer, indices, value }
            }
            Stmt::Let { var, value, body } => {
                let value = self.expr(value)?;
                let ty = value.ty();
                let var = self.rename(*var, ty);
                Stmt::Let { var, value, body: Box::new(self.stmt(body)?) }
            }
            Stmt::If { cond, then, otherwise } => {
                let Some(cond) = self.scalar(cond) else { return self.lane_by_lane(stmt) };
                let then = self.stmt(then)?;
                let otherwise = match otherwise {
                    Some(otherwise) => Some(Box::new(self.stmt(otherwise)?)),
                    None => None,
                };
                Stmt::If { cond, then: Box::new(then), otherwise }
            }
            // Each iteration has a buffer of its own.
            Stmt::Allocate { .. } => return None,
            Stmt::Prefetch { buffer, indices, offset, locality, write } => {
                let mut first = |index: &PrimExpr| Some(self.expr(index)?.lane_expr(0));
                let indices = indices.iter().map(&mut first).collect::<Option<_>>()?;
                let (offset, locality, write) = (first(offset)?, *locality, *write);
                Stmt::Prefetch { buffer: *buffer, indices, offset, locality, write }
            }
            Stmt::Assert { cond, message } => {
                Stmt::Assert { cond: self.scalar(cond)?, message: message.clone() }
            }
        })
    }

    /// A statement as a serial loop over the lanes; `None` if the order of that loop and the loops
    /// around it could matter, because lanes write to one place, or if the statement reads lanes of
    /// a vector.
    fn lane_by_lane(&mut self, stmt: &Stmt) -> Option<Stmt> {
        let mut possible = true;
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { indices, .. } = stmt {
                possible &= indices.iter().any(|index| index.uses(self.var));
            }
        });
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                let is_vector = |value: &PrimExpr| !value.ty().is_scalar();
                possible &= *var == self.var || !self.values.get(var).is_some_and(is_vector);
            }
        });
        if !possible {
            return None;
        }
        self.scalarized = true;
        let name = format!("{}_lane", self.func.vars[self.var].name);
        let ty = self.base.ty();
        let lane = self.func.vars.push(VarDecl { name, ty });
        let mut values = self.values.clone();
        values.insert(self.var, self.base.clone() + PrimExpr::var(lane, ty));
        let body = self.func.copy_of(stmt, &values);
        let extent = PrimExpr::int(i64::from(self.lanes), ty.dtype);
        Some(Stmt::for_loop(lane, PrimExpr::zero(ty), extent, ForKind::Serial, body))
    }

    /// A new name for this part of the loop, which may hold a vector.
    fn rename(&mut self, var: VarId, ty: PrimType) -> VarId {
        let name = self.func.vars[var].name.clone();
        let renamed = self.func.vars.push(VarDecl { name, ty });
        self.values.insert(var, PrimExpr::Var { var: renamed, ty });
        renamed
    }

    /// An expression that must be the same in all lanes.
    fn scalar(&mut self, expr: &PrimExpr) -> Option<PrimExpr> {
        let expr = self.expr(expr)?;
        expr.ty().is_scalar().then_some(expr)
    }

    fn expr(&mut self, expr: &PrimExpr) -> Option<PrimExpr> {
        Some(match expr {
            PrimExpr::Int { .. } | PrimExpr::Float { .. } => expr.clone(),
            PrimExpr::Var { var, .. } => {
                self.values.get(var).cloned().unwrap_or_else(|| expr.clone())
            }
            PrimExpr::Unary { op, value } => PrimExpr::unary(*op, self.expr(value)?),
            PrimExpr::Binary { op, lhs, rhs } => {
                PrimExpr::binary(*op, self.expr(lhs)?, self.expr(rhs)?)
            }
            PrimExpr::Compare { op, lhs, rhs } => {
                PrimExpr::compare(*op, self.expr(lhs)?, self.expr(rhs)?)
            }
            PrimExpr::Select { cond, then, otherwise } => {
                let cond = self.expr(cond)?;
                // A vector condition evaluates both sides, so it cannot guard a load. A condition on
                // indices may be meant to; one on data is not.
                let has_load =
                    |side: &PrimExpr| side.any(&mut |node| matches!(node, PrimExpr::Load { .. }));
                let is_narrow = self.base.dtype() == DType::I32;
                let on_indices = cond.any(&mut |node| match node {
                    PrimExpr::Compare { lhs, rhs, .. } => match lhs.dtype() {
                        DType::I64 => true,
                        DType::I32 => is_narrow && !has_load(lhs) && !has_load(rhs),
                        _ => false,
                    },
                    _ => false,
                });
                if !cond.ty().is_scalar() && on_indices && (has_load(then) || has_load(otherwise)) {
                    return None;
                }
                PrimExpr::select(cond, self.expr(then)?, self.expr(otherwise)?)
            }
            PrimExpr::Cast { value, dtype } => match self.expr(value)? {
                // Lanes as narrow numbers.
                PrimExpr::Ramp { base, stride, lanes }
                    if dtype.is_int() && dtype.bits() < base.dtype().bits() =>
                {
                    PrimExpr::ramp(base.cast(*dtype), stride.cast(*dtype), lanes)
                }
                value => value.cast(*dtype),
            },
            PrimExpr::Reinterpret { value, dtype } => self.expr(value)?.reinterpret(*dtype),
            PrimExpr::Load { buffer, dtype, indices } => {
                let indices: Vec<_> =
                    indices.iter().map(|index| self.expr(index)).collect::<Option<_>>()?;
                let in_memory = self.func.buffers[*buffer].scope != BufferScope::Register;
                let pair = in_memory.then(|| every_second(*buffer, *dtype, &indices)).flatten();
                pair.unwrap_or(PrimExpr::Load { buffer: *buffer, dtype: *dtype, indices })
            }
            PrimExpr::MulAdd { a, b, c } => {
                PrimExpr::mul_add(self.expr(a)?, self.expr(b)?, self.expr(c)?)
            }
            PrimExpr::Call { intrinsic, args } => {
                let args: Vec<_> = args.iter().map(|arg| self.expr(arg)).collect::<Option<_>>()?;
                let lanes = args.iter().map(|arg| arg.ty().lanes).max().unwrap_or(1);
                let args = args.into_iter().map(|arg| arg.broadcast_to(lanes)).collect();
                PrimExpr::Call { intrinsic: *intrinsic, args }
            }
            PrimExpr::Let { var, value, body } => {
                let value = self.expr(value)?;
                let var = self.rename(*var, value.ty());
                let body = self.expr(body)?;
                PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) }
            }
            // Vectors must be the same in all iterations.
            PrimExpr::Ramp { .. }
            | PrimExpr::Broadcast { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::DotAdd { .. } => {
                let mut depends = false;
                for var in self.values.keys() {
                    depends |= expr.uses(*var);
                }
                if depends || !expr.ty().is_scalar() {
                    return None;
                }
                expr.clone()
            }
        })
    }
}

#[cfg(test)]
mod tests;
