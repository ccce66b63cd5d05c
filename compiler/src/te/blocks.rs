//! From stages to a loop function with a block for each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{ComputeDag, JointReduction, StageId, StageKind, combined};
use crate::tir::{
    Annotations, BinaryOp, BlockIter, BlockRealize, BufferId, BufferScope, ForKind, IterKind,
    Param, ParamKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId, verify,
};

/// Why stages are not a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TeError(pub String);

impl fmt::Display for TeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TeError {}

/// A function with one block for each stage that the outputs among `params` need (TVM's
/// `create_prim_func`). Tensors between stages are local.
///
/// A sum of products of floats is made of fused multiply-adds; targets without them compute both
/// operations.
///
/// # Errors
///
/// A placeholder that is needed is not among `params`, there is no output, or an expression uses a
/// variable that is not an axis of its stage.
pub fn lower_to_blocks(
    dag: &ComputeDag,
    params: &[(StageId, ParamKind)],
) -> Result<PrimFunc, TeError> {
    let mut needed: BTreeSet<StageId> = BTreeSet::new();
    for &(stage, kind) in params {
        if kind == ParamKind::Output {
            needed.insert(stage);
        }
    }
    if needed.is_empty() {
        return Err(TeError(format!("function `{}` has no output", dag.func.name)));
    }
    for stage in dag.ids().rev() {
        if needed.contains(&stage) {
            needed.extend(dag.computed_with(stage));
            needed.extend(dag.reads(stage));
        }
    }
    let mut func = dag.func.clone();
    for &(stage, kind) in params {
        let buffer = dag.stages[stage].buffer;
        func.buffers[buffer].scope = BufferScope::Param;
        func.params.push(Param { buffer, kind });
    }
    let mut lowering = Lowering { dag, func, names: BTreeMap::new() };
    let mut stmts = Vec::new();
    let mut locals = Vec::new();
    for &stage in &needed {
        let buffer = dag.stages[stage].buffer;
        let is_param = params.iter().any(|param| param.0 == stage);
        if dag.stages[stage].kind == StageKind::Placeholder {
            if !is_param {
                let name = &lowering.func.buffers[buffer].name;
                return Err(TeError(format!("tensor `{name}` is needed, but not a parameter")));
            }
            continue;
        }
        stmts.push(lowering.stage(stage));
        if !is_param {
            locals.push(buffer);
        }
    }
    let mut func = lowering.func;
    func.body = locals
        .into_iter()
        .rev()
        .fold(Stmt::seq(stmts), |body, buffer| Stmt::allocate(buffer, body));
    let func = PrimFunc::new(func);
    verify(&func).map_err(|errors| {
        let messages: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
        TeError(format!("function `{}`: {}", func.name, messages.join("; ")))
    })?;
    Ok(func)
}

/// One stage in loops of its own, its block in them, for `func`, which declares what the dag does.
pub(crate) fn stage_nest(dag: &ComputeDag, func: &mut PrimFuncData, stage: StageId) -> Stmt {
    let declared = std::mem::replace(func, PrimFuncData::new(""));
    let mut lowering = Lowering { dag, func: declared, names: BTreeMap::new() };
    let nest = lowering.stage(stage);
    *func = lowering.func;
    nest
}

struct Lowering<'a> {
    dag: &'a ComputeDag,
    func: PrimFuncData,
    /// How often each name of a block was used.
    names: BTreeMap<String, usize>,
}

impl Lowering<'_> {
    fn stage(&mut self, id: StageId) -> Stmt {
        let dag = self.dag;
        let stage = &dag.stages[id];
        let name = dag.func.buffers[stage.buffer].name.clone();
        let spatial: Vec<(VarId, PrimExpr, IterKind)> = stage
            .axes
            .iter()
            .zip(dag.extents(id))
            .map(|(&var, extent)| (var, extent, IterKind::Spatial))
            .collect();
        let index: Vec<PrimExpr> = stage.axes.iter().map(|&var| self.func.var_expr(var)).collect();
        let place = self.func.load(stage.buffer, &index);
        match &stage.kind {
            StageKind::Placeholder => Stmt::nop(),
            StageKind::Compute(value) => {
                let body = self.func.store(stage.buffer, &index, value.clone());
                self.nest(&name, spatial, None, body)
            }
            StageKind::Reduce { combiner, init, axes, value } => {
                let mut iters = spatial;
                iters.extend(
                    axes.iter().map(|axis| (axis.var, dag.extent_of(axis), IterKind::Reduce)),
                );
                let init = self.func.store(stage.buffer, &index, init.clone());
                let next = combine(*combiner, place, value.clone());
                let body = self.func.store(stage.buffer, &index, next);
                self.nest(&name, iters, Some(init), body)
            }
            StageKind::Concat { axis, parts } => {
                let parts: Vec<Stmt> = parts
                    .iter()
                    .map(|part| {
                        let iters: Vec<_> = dag
                            .extents(part.stage)
                            .into_iter()
                            .map(|extent| (self.func.index_var("v"), extent, IterKind::Spatial))
                            .collect();
                        let from: Vec<PrimExpr> =
                            iters.iter().map(|iter| self.func.var_expr(iter.0)).collect();
                        let mut to = from.clone();
                        to[*axis] = to[*axis].clone() + part.offset;
                        let value = dag.at(part.stage, &from);
                        let body = self.func.store(stage.buffer, &to, value);
                        self.nest(&name, iters, None, body)
                    })
                    .collect();
                Stmt::seq(parts)
            }
            // All results are computed with the first.
            StageKind::Joint { position: 1.., .. } | StageKind::Extern { position: 1.., .. } => {
                Stmt::nop()
            }
            StageKind::Joint { reduction, position: 0 } => {
                let mut iters = spatial;
                let axes = reduction.axes.iter();
                iters.extend(axes.map(|axis| (axis.var, dag.extent_of(axis), IterKind::Reduce)));
                let (init, body) = self.joint(reduction, &index);
                self.nest(&name, iters, Some(init), body)
            }
            StageKind::Extern { statement, position: 0 } => {
                self.nest(&name, Vec::new(), None, statement.body.clone())
            }
        }
    }

    /// Init and update of several values: all new ones are computed before one is stored.
    fn joint(&mut self, reduction: &JointReduction, index: &[PrimExpr]) -> (Stmt, Stmt) {
        let JointReduction { reducer, axes: _, values, results } = reduction;
        let buffers: Vec<BufferId> =
            results.iter().map(|&stage| self.dag.stages[stage].buffer).collect();
        let mut operands: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
        for (var, &buffer) in reducer.lhs.iter().zip(&buffers) {
            operands.insert(*var, self.func.load(buffer, index));
        }
        operands.extend(reducer.rhs.iter().copied().zip(values.iter().cloned()));
        let store = |func: &PrimFuncData, values: &[PrimExpr]| {
            let pairs = buffers.iter().zip(values);
            Stmt::seq(pairs.map(|(&buffer, value)| func.store(buffer, index, value.clone())))
        };
        let init = store(&self.func, &reducer.identity);
        let next: Vec<(VarId, PrimExpr)> = reducer
            .result
            .iter()
            .map(|value| {
                let value = value.clone().substitute(&operands);
                (self.func.var("next", value.ty()), value)
            })
            .collect();
        let named: Vec<PrimExpr> = next.iter().map(|(var, _)| self.func.var_expr(*var)).collect();
        let body = store(&self.func, &named);
        let body =
            next.into_iter().rev().fold(body, |body, (var, value)| Stmt::let_(var, value, body));
        (init, body)
    }

    /// Loops over all values of `iters`, with a block in which they are the variables.
    fn nest(
        &mut self,
        name: &str,
        iters: Vec<(VarId, PrimExpr, IterKind)>,
        init: Option<Stmt>,
        body: Stmt,
    ) -> Stmt {
        let mut loops = Vec::with_capacity(iters.len());
        let iters = iters
            .into_iter()
            .map(|(var, extent, kind)| {
                let axis = self.dag.func.vars.get(var).map_or("i", |decl| &decl.name).to_owned();
                let around = self.func.index_var(axis.clone());
                self.func.vars[var].name = format!("v{axis}");
                loops.push((around, extent.clone()));
                let value = self.func.var_expr(around);
                BlockIter { var, extent, kind, value }
            })
            .collect();
        let block = BlockRealize {
            name: self.unique(name),
            iters,
            predicate: PrimExpr::bool(true),
            annotations: Annotations::new(),
            init,
            body,
        };
        loops.into_iter().rev().fold(Stmt::BlockRealize(Box::new(block)), |body, (var, extent)| {
            Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Serial, body)
        })
    }

    fn unique(&mut self, name: &str) -> String {
        let count = self.names.entry(name.to_owned()).or_default();
        *count += 1;
        match *count {
            1 => name.to_owned(),
            count => format!("{name}_{}", count - 1),
        }
    }
}

/// `sum` combined with one more value.
fn combine(combiner: BinaryOp, sum: PrimExpr, value: PrimExpr) -> PrimExpr {
    match value {
        PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs }
            if combiner == BinaryOp::Add && lhs.dtype().is_float() =>
        {
            PrimExpr::mul_add(*lhs, *rhs, sum)
        }
        value => combined(combiner, sum, value),
    }
}
