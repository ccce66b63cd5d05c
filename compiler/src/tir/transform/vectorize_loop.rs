//! Vectorisation of loops.

use std::collections::BTreeMap;

use cranelift_entity::PrimaryMap;

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::{Buffer, BufferId, ForKind, PrimExpr, PrimFunc, PrimType, Stmt, VarDecl, VarId};

/// Turns `vectorized` loops into vector statements no wider than the target's registers.
///
/// A loop that is wider is cut into full vectors and then narrower ones, by powers of two. What
/// cannot be vectorised (a branch that depends on the loop variable, or a guarded load, a scalar
/// that all iterations write) becomes a serial loop.
#[prim_func_pass(opt_level = 0, name = "tir.VectorizeLoop", crate = crate)]
pub fn vectorize_loop(
    mut func: PrimFunc,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<PrimFunc> {
    let mut any = false;
    func.body.walk(&mut |stmt| {
        any |= matches!(stmt, Stmt::For { kind: ForKind::Vectorized, .. });
    });
    if !any {
        return Ok(func);
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut vectorizer = Vectorizer {
        buffers: &data.buffers,
        vars: &mut data.vars,
        vector_bits: cx.target().vector_bits(),
        dynamic: None,
    };
    let body = body.rewrite(&mut |stmt| vectorizer.stmt(stmt));
    let dynamic = vectorizer.dynamic;
    data.body = body;
    match dynamic {
        None => Ok(func),
        Some(var) => Err(format!("the vectorized loop over `{var}` has no constant extent").into()),
    }
}

struct Vectorizer<'a> {
    buffers: &'a PrimaryMap<BufferId, Buffer>,
    vars: &'a mut PrimaryMap<VarId, VarDecl>,
    vector_bits: u64,
    /// A loop whose extent is not constant.
    dynamic: Option<String>,
}

impl Vectorizer<'_> {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind: ForKind::Vectorized, annotations, body } = stmt
        else {
            return stmt;
        };
        let Some(extent) = extent.as_int() else {
            self.dynamic = Some(self.vars[var].name.clone());
            return Stmt::nop();
        };
        let bits = self.widest_element(var, &body);
        let lanes = i64::try_from(self.vector_bits / u64::from(bits)).unwrap_or(1).max(1);
        // One trial tells whether it can be done at all.
        if lanes == 1 || extent == 1 || self.vectors(var, &min, 2, &body).is_none() {
            let (extent, kind) = (PrimExpr::index(extent), ForKind::Serial);
            return Stmt::For { var, min, extent, kind, annotations, body };
        }
        let mut parts = Vec::new();
        let full = extent / lanes;
        let mut start = 0;
        if full > 1 {
            let chunk = self.vars.push(self.vars[var].clone());
            let base = PrimExpr::var(chunk, PrimType::INDEX) * lanes + min.clone();
            if let Some(body) = self.vectors(var, &base, lanes, &body) {
                let first = PrimExpr::index(0);
                // Register tiles and short rows are written out; longer ones are loops.
                let kind = if uses_registers(&body, self.buffers) {
                    ForKind::Unrolled
                } else {
                    ForKind::Serial
                };
                parts.push(Stmt::For {
                    var: chunk,
                    min: first,
                    extent: full.into(),
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
                Some((*body).clone().substitute(&BTreeMap::from([(var, base)])))
            } else {
                self.vectors(var, &base, width, &body)
            };
            parts.extend(part);
            start += width;
            rest -= width;
        }
        Stmt::seq(parts)
    }

    /// Bits of the widest element that becomes a vector: of everything in the loop that is not an
    /// index.
    fn widest_element(&self, var: VarId, body: &Stmt) -> u32 {
        let mut bits = 8;
        body.walk(&mut |stmt| match stmt {
            Stmt::Store { buffer, indices: _, value } => {
                bits = bits.max(self.buffers[*buffer].dtype.bits());
                widest_value(value, var, &mut bits);
            }
            Stmt::Let { value, .. } if value.dtype() != DType::I64 => {
                widest_value(value, var, &mut bits);
            }
            _ => {}
        });
        bits
    }

    /// The loop's body for `lanes` iterations from `base` at once, or `None` if that is impossible.
    fn vectors(&mut self, var: VarId, base: &PrimExpr, lanes: i64, body: &Stmt) -> Option<Stmt> {
        let lanes = u32::try_from(lanes).ok()?;
        let ramp = PrimExpr::ramp(base.clone(), 1, lanes);
        let mut widened = Widen { vars: self.vars, values: BTreeMap::from([(var, ramp)]), lanes };
        widened.stmt(body)
    }
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

/// Widest data type in an expression, indices of loads aside.
fn widest_value(expr: &PrimExpr, var: VarId, bits: &mut u32) {
    match expr {
        PrimExpr::Load { dtype, .. } => *bits = (*bits).max(dtype.bits()),
        PrimExpr::Var { var: used, ty } if *used != var && !ty.is_scalar() => {
            *bits = (*bits).max(ty.dtype.bits());
        }
        PrimExpr::Var { var: used, ty } => {
            // Lanes of the loop variable itself, or of a name that becomes a vector.
            if *used == var || ty.dtype != DType::I64 {
                *bits = (*bits).max(ty.dtype.bits());
            }
        }
        other => {
            if matches!(other, PrimExpr::Cast { .. } | PrimExpr::Reinterpret { .. }) {
                *bits = (*bits).max(other.dtype().bits());
            }
            // A condition that is scalar for all lanes does not become a vector.
            if let PrimExpr::Compare { lhs, rhs, .. } = other
                && !lhs.uses(var)
                && !rhs.uses(var)
            {
                return;
            }
            other.for_each_child(&mut |child| widest_value(child, var, bits));
        }
    }
}

/// Rewrites statements and expressions for several values of some variables at once.
struct Widen<'a> {
    vars: &'a mut PrimaryMap<VarId, VarDecl>,
    /// Vectors that stand for scalar variables.
    values: BTreeMap<VarId, PrimExpr>,
    lanes: u32,
}

impl Widen<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Option<Stmt> {
        Some(match stmt {
            Stmt::Seq(stmts) => {
                Stmt::Seq(stmts.iter().map(|stmt| self.stmt(stmt)).collect::<Option<_>>()?)
            }
            // Blocks are lowered before.
            Stmt::BlockRealize(_) => return None,
            Stmt::Block { name, body } => {
                Stmt::Block { name: name.clone(), body: Box::new(self.stmt(body)?) }
            }
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let (min, extent) = (self.scalar(min)?, self.scalar(extent)?);
                let body = Box::new(self.stmt(body)?);
                let annotations = annotations.clone();
                Stmt::For { var: *var, min, extent, kind: *kind, annotations, body }
            }
            Stmt::Store { buffer, indices, value } => {
                let indices: Vec<_> =
                    indices.iter().map(|index| self.expr(index)).collect::<Option<_>>()?;
                // All iterations at one place: only the order of a loop says which one wins.
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
                let cond = self.scalar(cond)?;
                let then = self.stmt(then)?;
                let otherwise = match otherwise {
                    Some(otherwise) => Some(Box::new(self.stmt(otherwise)?)),
                    None => None,
                };
                Stmt::If { cond, then: Box::new(then), otherwise }
            }
            // Each iteration has a buffer of its own.
            Stmt::Allocate { .. } => return None,
            Stmt::Prefetch { buffer, indices, locality, write } => {
                let indices = indices
                    .iter()
                    .map(|index| Some(self.expr(index)?.lane_expr(0)))
                    .collect::<Option<_>>()?;
                let (locality, write) = (*locality, *write);
                Stmt::Prefetch { buffer: *buffer, indices, locality, write }
            }
            Stmt::Assert { cond, message } => {
                Stmt::Assert { cond: self.scalar(cond)?, message: message.clone() }
            }
        })
    }

    /// A name that holds a vector now, or the same one if it does not.
    fn rename(&mut self, var: VarId, ty: PrimType) -> VarId {
        if self.vars[var].ty == ty {
            return var;
        }
        let name = self.vars[var].name.clone();
        let wide = self.vars.push(VarDecl { name, ty });
        self.values.insert(var, PrimExpr::Var { var: wide, ty });
        wide
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
                let on_indices = cond.any(&mut |node| match node {
                    PrimExpr::Compare { lhs, .. } => lhs.dtype() == DType::I64,
                    _ => false,
                });
                if !cond.ty().is_scalar() && on_indices && (has_load(then) || has_load(otherwise)) {
                    return None;
                }
                PrimExpr::select(cond, self.expr(then)?, self.expr(otherwise)?)
            }
            PrimExpr::Cast { value, dtype } => self.expr(value)?.cast(*dtype),
            PrimExpr::Reinterpret { value, dtype } => self.expr(value)?.reinterpret(*dtype),
            PrimExpr::Load { buffer, dtype, indices } => PrimExpr::Load {
                buffer: *buffer,
                dtype: *dtype,
                indices: indices.iter().map(|index| self.expr(index)).collect::<Option<_>>()?,
            },
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
            // Vectors already: only if they are the same in all iterations.
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
mod tests {
    use super::*;
    use crate::ir::BufferSpec;
    use crate::pass::Pass;
    use crate::target::Target;
    use crate::tir::PrimFuncData;

    /// The function vectorised for AVX2.
    fn run(func: PrimFuncData) -> PrimFunc {
        let host = Target { arch: "x86_64".to_owned(), ..Target::host() };
        let avx2 = host.with_cpu("x86-64-v3").unwrap();
        let cx = PassContext::builder().target(avx2).build().unwrap();
        VectorizeLoop.run_on_prim_func(PrimFunc::new(func), &cx).unwrap()
    }

    fn copy(extent: i64) -> Stmt {
        let mut func = PrimFuncData::new("f");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[extent]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[extent]));
        func.body = func.for_("i", extent, ForKind::Vectorized, |f, i| {
            let value = f.load(x, [i.clone()]);
            f.store(y, [i], value)
        });
        run(func).body.clone()
    }

    #[test]
    fn a_long_row_is_cut_into_vectors_and_a_tail() {
        let mut widths = Vec::new();
        let body = copy(8 * 5 + 4 + 1);
        body.walk(&mut |stmt| match stmt {
            Stmt::For { extent, kind, .. } => {
                assert_eq!((extent.as_int(), *kind), (Some(5), ForKind::Serial));
            }
            Stmt::Store { value, .. } => widths.push(value.ty().lanes),
            _ => {}
        });
        assert_eq!(widths, [8, 4, 1]);
    }

    #[test]
    fn what_depends_on_the_order_stays_a_loop() {
        let mut func = PrimFuncData::new("f");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[16]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[16]));
        let sum = func.for_("i", 16, ForKind::Vectorized, |f, i| {
            let value = f.load(y, [0]) + f.load(x, [i]);
            f.store(y, [0], value)
        });
        let guarded = func.for_("i", 16, ForKind::Vectorized, |f, i| {
            let value = PrimExpr::select(
                i.clone().less(15),
                f.load(x, [i.clone() + 1]),
                PrimExpr::f32(0.0),
            );
            f.store(y, [i], value)
        });
        func.body = Stmt::seq([sum, guarded]);
        let func = run(func);
        let mut serial = 0;
        func.body.walk(&mut |stmt| {
            if let Stmt::For { kind, .. } = stmt {
                assert_eq!(*kind, ForKind::Serial);
                serial += 1;
            }
        });
        assert_eq!(serial, 2);
    }

    #[test]
    fn a_mask_without_loads_becomes_a_vector_select() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::F32, BufferSpec::dense(&[8]));
        func.body = func.for_("i", 8, ForKind::Vectorized, |f, i| {
            let position = i.clone().cast(DType::F32);
            let value = PrimExpr::select(
                position.clone().less(PrimExpr::f32(3.0)),
                position,
                PrimExpr::f32(0.0),
            );
            f.store(y, [i], value)
        });
        let func = run(func);
        // The loop variable is 64 bits wide, so four lanes at a time.
        let mut stores = Vec::new();
        func.body.walk(&mut |stmt| {
            if let Stmt::Store { value, .. } = stmt {
                stores.push(value.ty());
            }
        });
        assert_eq!(stores, [PrimType::vector(DType::F32, 4)]);
    }
}
