//! The primitive that replaces loops by a processor's instruction.

use std::collections::BTreeMap;

use super::error::Rewrite;
use super::inline::named;
use super::tree::{LoopInfo, Tree, is_loop, loop_info};
use super::{Result, Rv, Schedule};
use crate::ir::DType;
use crate::te;
use crate::tir::print::expr_text;
use crate::tir::{
    Affine, BlockRealize, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt,
    VarId, verify,
};

/// A pattern of loops and its implementation by an instruction (TVM's `TensorIntrin`).
#[derive(Clone, Debug)]
pub struct TensorIntrin {
    name: String,
    desc: PrimFunc,
    implementation: PrimFunc,
}

impl TensorIntrin {
    /// An intrinsic of two functions with the same parameters.
    ///
    /// `desc` is loops around one block with one store. If the block is a reduction, its init is
    /// ignored: both functions add to the present contents. The parameters have the shapes of the
    /// part of a tensor that is computed at once; tensors may have more axes, outside of these.
    ///
    /// # Errors
    ///
    /// The parameters differ, or the description is not of that form.
    pub fn new(
        name: &str,
        desc: PrimFunc,
        implementation: PrimFunc,
    ) -> std::result::Result<TensorIntrin, String> {
        let problem = |what: &str| Err(format!("intrinsic `{name}`: {what}"));
        let params = |func: &PrimFunc| -> Vec<(DType, Vec<i64>)> {
            let buffers = func.params.iter().map(|param| &func.buffers[param.buffer]);
            buffers.map(|buffer| (buffer.dtype, buffer.shape().to_vec())).collect()
        };
        if params(&desc) != params(&implementation) {
            return problem("the implementation has other parameters than the description");
        }
        if [&desc, &implementation].iter().any(|func| !func.dims.is_empty()) {
            return problem("a function has dimensions; an instruction has constant extents");
        }
        if verify(&desc).is_err() || verify(&implementation).is_err() {
            return problem("a function is not well-formed");
        }
        if nest(&desc.body).is_none_or(|(_, block)| !matches!(block.body, Stmt::Store { .. })) {
            return problem("the description is not loops around one block with one store");
        }
        Ok(TensorIntrin { name: name.to_owned(), desc, implementation })
    }

    /// An intrinsic of niello by its name: `dot_u8i8i32_4`, `_8` or `_16`, see
    /// [`dot_u8i8i32`](Self::dot_u8i8i32).
    pub fn get(name: &str) -> Option<TensorIntrin> {
        match name {
            "dot_u8i8i32_4" => Self::dot_u8i8i32(4),
            "dot_u8i8i32_8" => Self::dot_u8i8i32(8),
            "dot_u8i8i32_16" => Self::dot_u8i8i32(16),
            _ => None,
        }
    }

    /// `C[j] += A[k] * B[k, j]` for `lanes` values of `j` and four of `k`, of `uint8` and `int8`
    /// into `int32`: one [`PrimExpr::DotAdd`]. If the layout of `B` has the four `k` innermost, one
    /// load reads all of `B`. `None` if no vector has that many lanes.
    pub fn dot_u8i8i32(lanes: u32) -> Option<TensorIntrin> {
        if !matches!(lanes, 4 | 8 | 16) {
            return None;
        }
        let n = i64::from(lanes);
        let mut te = te::Builder::new("dot_u8i8i32");
        let a = te.placeholder("A", [4], DType::U8);
        let b = te.placeholder("B", [4, n], DType::I8);
        let k = te.reduce_axis("k", 4);
        let c = te.compute("C", [n], |[j]| {
            let wide = |element: PrimExpr| element.cast(DType::I32);
            te::sum(wide(a.at([k])) * wide(b.at([PrimExpr::from(k), j.into()])), [k])
        });
        let desc = te.prim_func(&[a, b, c]).ok()?;
        let mut data = PrimFuncData::new("dot_u8i8i32");
        data.buffers = desc.buffers.clone();
        data.params = desc.params.clone();
        let [a, b, c] = [0, 1, 2].map(|place| desc.params[place].buffer);
        let place = PrimExpr::ramp(0.into(), 1, lanes);
        let lane = || PrimExpr::ramp(0.into(), 1, lanes * 4);
        let fours = data.load(a, [PrimExpr::ramp(0.into(), 1, 4)]);
        let fours = fours.shuffle((0..lanes * 4).map(|lane| lane % 4).collect());
        let columns = data.load(b, [lane().floormod(4), lane().floordiv(4)]);
        let sum = PrimExpr::dot_add(fours, columns, data.load(c, [place.clone()]));
        data.body = data.store(c, [place], sum);
        TensorIntrin::new(&format!("dot_u8i8i32_{lanes}"), desc, PrimFunc::new(data)).ok()
    }

    /// The name, as in traces.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Schedule {
    /// Replaces a loop with its body by the implementation of an intrinsic, if they match the
    /// intrinsic's description; given a block, as many of its innermost loops as the description
    /// has. Names and the part's position in the tensors do not matter.
    ///
    /// # Errors
    ///
    /// The loops differ from the description, there is a condition, or the block has an init.
    pub fn tensorize(&mut self, of: impl Into<Rv>, intrinsic: &TensorIntrin) -> Result<()> {
        let of = of.into();
        self.apply("tensorize", |this, func| {
            let target = match of {
                Rv::Loop(rv) => this.loop_var(rv)?,
                Rv::Block(rv) => {
                    let name = this.block_name(rv)?;
                    func.block(&name)?;
                    let loops = func.loops_around(&named(&name));
                    let count = nest(&intrinsic.desc.body).map_or(0, |(loops, _)| loops.len());
                    let first = loops.len().checked_sub(count).and_then(|at| loops.get(at));
                    let too_few = || format!("block `{name}` is not in {count} loops");
                    first.ok_or_else(too_few)?.var
                }
            };
            tensorize(func, target, intrinsic)
        })?;
        self.record("tensorize", vec![of.into(), intrinsic.name.as_str().into()], Vec::new());
        Ok(())
    }
}

/// Loops that contain nothing but each other and a block, outermost first.
fn nest(stmt: &Stmt) -> Option<(Vec<LoopInfo>, &BlockRealize)> {
    let mut loops = Vec::new();
    let mut stmt = stmt;
    loop {
        match stmt {
            Stmt::For { body, min, .. } if min.as_int() == Some(0) => {
                loops.push(loop_info(stmt)?);
                stmt = body;
            }
            Stmt::BlockRealize(block) => return Some((loops, block)),
            _ => return None,
        }
    }
}

/// The function's buffer for one of the description: which buffer, and the part's first index along
/// each axis, in terms of the variables of the block.
struct Bound {
    buffer: BufferId,
    offsets: Vec<PrimExpr>,
}

struct Matcher<'a> {
    func: &'a PrimFuncData,
    desc: &'a PrimFuncData,
    /// The function's loop for each loop of the description.
    loops: BTreeMap<VarId, PrimExpr>,
    /// Values of the variables of both blocks.
    values: BTreeMap<VarId, PrimExpr>,
    desc_values: BTreeMap<VarId, PrimExpr>,
    bound: BTreeMap<BufferId, Bound>,
}

impl Matcher<'_> {
    fn stmt(&mut self, ours: &Stmt, theirs: &Stmt) -> Rewrite<()> {
        match (ours, theirs) {
            (
                Stmt::Store { buffer, indices, value },
                Stmt::Store { buffer: other, indices: places, value: wanted },
            ) => {
                self.access((*buffer, indices), (*other, places))?;
                self.expr(value, wanted)
            }
            _ => Err("the block does more than to store one value".to_owned()),
        }
    }

    fn expr(&mut self, ours: &PrimExpr, theirs: &PrimExpr) -> Rewrite<()> {
        if let (
            PrimExpr::Load { buffer, indices, .. },
            PrimExpr::Load { buffer: other, indices: places, .. },
        ) = (ours, theirs)
        {
            return self.access((*buffer, indices), (*other, places));
        }
        let head = |expr: &PrimExpr| expr.clone().map_children(&mut |_| PrimExpr::index(0));
        let is_leaf = matches!(ours, PrimExpr::Var { .. });
        if is_leaf || head(ours) != head(theirs) {
            return Err("the block computes something else than the intrinsic".to_owned());
        }
        let (mut left, mut right) = (Vec::new(), Vec::new());
        ours.for_each_child(&mut |child| left.push(child));
        theirs.for_each_child(&mut |child| right.push(child));
        left.into_iter().zip(right).try_for_each(|(ours, theirs)| self.expr(ours, theirs))
    }

    fn access(
        &mut self,
        (buffer, indices): (BufferId, &[PrimExpr]),
        (other, places): (BufferId, &[PrimExpr]),
    ) -> Rewrite<()> {
        let (decl, wanted) = (&self.func.buffers[buffer], &self.desc.buffers[other]);
        let name = &decl.name;
        if decl.dtype != wanted.dtype {
            return Err(format!(
                "`{name}` is {}, and the intrinsic has {}",
                decl.dtype, wanted.dtype
            ));
        }
        let Some(outer) = indices.len().checked_sub(places.len()) else {
            return Err(format!("`{name}` has fewer axes than `{}` of the intrinsic", wanted.name));
        };
        let first: BTreeMap<VarId, PrimExpr> =
            self.loops.keys().map(|&var| (var, PrimExpr::index(0))).collect();
        let mut offsets = Vec::new();
        for (axis, index) in indices.iter().enumerate() {
            let place = axis.checked_sub(outer).and_then(|axis| places.get(axis));
            let place = place.map(|place| place.clone().substitute(&self.desc_values));
            let place = place.unwrap_or(PrimExpr::index(0));
            let here = index.clone().substitute(&self.values);
            let there = place.clone().substitute(&self.loops);
            let rest = Affine::of(&here).plus(&Affine::of(&there), -1);
            let moves = rest.map(Affine::into_expr).is_none_or(|rest| {
                self.loops.values().any(|var| match var {
                    PrimExpr::Var { var, .. } => rest.uses(*var),
                    _ => false,
                })
            });
            if moves {
                return Err(format!(
                    "axis {axis} of `{name}` is not indexed as in the intrinsic; reorder the \
                     loops, or choose others"
                ));
            }
            let begin = Affine::of(&place.substitute(&first));
            let offset = Affine::of(index).plus(&begin, -1).map(Affine::into_expr);
            offsets.push(offset.ok_or("an index exceeds 2^63")?);
        }
        match self.bound.get(&other) {
            None => {
                self.bound.insert(other, Bound { buffer, offsets });
                Ok(())
            }
            Some(bound) if bound.buffer == buffer && bound.offsets == offsets => Ok(()),
            Some(_) => Err(format!(
                "`{}` of the intrinsic would be two parts of tensors, one of `{name}`",
                wanted.name
            )),
        }
    }
}

fn tensorize(func: &mut PrimFuncData, target: VarId, intrinsic: &TensorIntrin) -> Rewrite<()> {
    let TensorIntrin { name, desc, implementation } = intrinsic;
    let at = func.var_name(target).to_owned();
    let (loops, block) = nest(func.loop_stmt(target)?).ok_or_else(|| {
        format!("loop `{at}` is not a nest of loops around one block; reorder them before")
    })?;
    let block = block.clone();
    let (wanted, theirs) = nest(&desc.body).ok_or("the intrinsic has no block")?;
    let extents = |func: &PrimFuncData, loops: &[LoopInfo]| {
        let extents: Vec<String> = loops.iter().map(|info| expr_text(func, &info.extent)).collect();
        format!("[{}]", extents.join(", "))
    };
    let differ = |(one, other): (&LoopInfo, &LoopInfo)| one.extent != other.extent;
    if loops.len() != wanted.len() || loops.iter().zip(&wanted).any(differ) {
        return Err(format!(
            "`{name}` is loops of {} iterations, and `{at}` begins loops of {}; split and \
             reorder them",
            extents(desc, &wanted),
            extents(func, &loops)
        ));
    }
    if loops.iter().any(|info| info.kind != ForKind::Serial) {
        return Err(format!("the loops from `{at}` on are not all serial"));
    }
    if block.init.is_some() {
        return Err(format!("block `{}` has an init; use decompose_reduction before", block.name));
    }
    if loops.iter().any(|info| block.predicate.uses(info.var)) {
        return Err(format!(
            "block `{}` runs under a condition on these loops; choose factors that divide the \
             extents, or use pad_einsum before",
            block.name
        ));
    }
    let values = |block: &BlockRealize| {
        block.iters.iter().map(|iter| (iter.var, iter.value.clone())).collect()
    };
    let mut matcher = Matcher {
        func,
        desc,
        loops: wanted.iter().zip(&loops).map(|(w, l)| (w.var, func.var_expr(l.var))).collect(),
        values: values(&block),
        desc_values: values(theirs),
        bound: BTreeMap::new(),
    };
    matcher.stmt(&block.body, &theirs.body).map_err(|why| format!("`{name}`: {why}"))?;
    // Parameters of the implementation correspond to those of the description by position.
    let mut bound = BTreeMap::new();
    for (param, own) in desc.params.iter().zip(&implementation.params) {
        if let Some(part) = matcher.bound.remove(&param.buffer) {
            bound.insert(own.buffer, part);
        }
    }
    let body = instance(func, implementation, &bound)?;
    let first: BTreeMap<VarId, PrimExpr> =
        loops.iter().map(|info| (info.var, PrimExpr::index(0))).collect();
    let mut block = block;
    for iter in &mut block.iters {
        iter.value = Affine::of(&iter.value.clone().substitute(&first)).into_expr();
    }
    block.body = body;
    let is = |stmt: &Stmt| is_loop(stmt, target);
    if let Some(stmt) = super::tree::find_mut(&mut func.body, &is) {
        *stmt = Stmt::BlockRealize(Box::new(block));
    }
    Ok(())
}

/// The body of an implementation with parts of the function's tensors in place of its parameters,
/// and with new variables and buffers.
fn instance(
    func: &mut PrimFuncData,
    implementation: &PrimFunc,
    bound: &BTreeMap<BufferId, Bound>,
) -> Rewrite<Stmt> {
    let vars: BTreeMap<VarId, VarId> =
        implementation.vars.iter().map(|(var, decl)| (var, func.vars.push(decl.clone()))).collect();
    let values = vars.iter().map(|(&old, &new)| (old, func.var_expr(new))).collect();
    let mut locals = BTreeMap::new();
    for (id, decl) in &implementation.buffers {
        if decl.scope != BufferScope::Param {
            locals.insert(id, func.buffers.push(decl.clone()));
        }
    }
    let mut unbound = false;
    let mut place = |buffer: &mut BufferId, indices: &mut Vec<PrimExpr>| {
        if let Some(part) = bound.get(&*buffer) {
            *buffer = part.buffer;
            let outer = part.offsets.len().saturating_sub(indices.len());
            let inner = std::mem::take(indices);
            indices.extend(part.offsets.iter().take(outer).cloned());
            let shifted = inner.into_iter().zip(part.offsets.iter().skip(outer));
            indices.extend(shifted.map(|(index, offset)| shift(index, offset)));
        } else if let Some(local) = locals.get(&*buffer) {
            *buffer = *local;
        } else {
            unbound = true;
        }
    };
    let body = implementation.body.clone().substitute(&values);
    let body = body.map_exprs(&mut |expr| {
        expr.rewrite(&mut |mut expr| {
            match &mut expr {
                PrimExpr::Load { buffer, indices, .. } => place(buffer, indices),
                PrimExpr::Let { var, .. } => *var = vars.get(&*var).copied().unwrap_or(*var),
                _ => {}
            }
            expr
        })
    });
    let body = body.rewrite(&mut |mut stmt| {
        match &mut stmt {
            Stmt::Store { buffer, indices, .. } | Stmt::Prefetch { buffer, indices, .. } => {
                place(buffer, indices);
            }
            Stmt::Allocate { buffer, .. } => {
                if let Some(local) = locals.get(&*buffer) {
                    *buffer = *local;
                }
            }
            Stmt::For { var, .. } | Stmt::Let { var, .. } => {
                if let Some(own) = vars.get(&*var) {
                    *var = *own;
                }
            }
            Stmt::BlockRealize(block) => {
                for iter in &mut block.iters {
                    iter.var = vars.get(&iter.var).copied().unwrap_or(iter.var);
                }
            }
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::If { .. } | Stmt::Assert { .. } => {}
        }
        stmt
    });
    if unbound {
        return Err("the implementation uses what the description does not".to_owned());
    }
    Ok(body)
}

/// Translates an index in a part of a tensor to an index in the tensor.
fn shift(index: PrimExpr, offset: &PrimExpr) -> PrimExpr {
    match index {
        PrimExpr::Ramp { base, stride, lanes } => {
            PrimExpr::ramp(Affine::of(&(*base + offset.clone())).into_expr(), *stride, lanes)
        }
        index => index + offset.clone(),
    }
}

#[cfg(test)]
mod tests;
