//! Flattening of buffers.

use crate::ir::IRModule;
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::transform::LowerBlocks;
use crate::tir::{Buffer, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Makes every buffer one-dimensional and every access one physical index.
///
/// Layouts are applied here: afterwards each buffer is dense, with as many elements as its layout
/// had. A flattened function is unchanged.
///
/// # Errors
///
/// A local buffer has an extent that is not constant.
#[prim_func_pass(opt_level = 0, name = "tir.FlattenBuffer", after = [LowerBlocks], crate = crate)]
pub fn flatten_buffer(
    mut func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> Result<PrimFunc> {
    let is_flat = |buffer: &Buffer| {
        (buffer.spec.is_dense() || buffer.symbolic.is_some()) && buffer.shape().len() == 1
    };
    if let Some(local) = symbolic_local(&func) {
        return Err(local.into());
    }
    if func.buffers.values().all(is_flat) {
        return Ok(func);
    }
    let data = func.make_mut();
    let mut body = std::mem::replace(&mut data.body, Stmt::nop());
    body = body.map_exprs(&mut |expr| flatten_loads(expr, data));
    let mut wrong_rank = None;
    body = body.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer, indices, .. } | Stmt::Prefetch { buffer, indices, .. } =
            &mut stmt
        {
            let decl = &data.buffers[*buffer];
            if indices.len() != decl.shape().len() {
                wrong_rank = Some(decl.name.clone());
            }
            *indices = vec![decl.address(indices)];
        }
        if let Stmt::Prefetch { indices, offset, .. } = &mut stmt
            && let [index] = indices.as_mut_slice()
        {
            *index = index.behind(offset);
            *offset = PrimExpr::index(0);
        }
        stmt
    });
    if let Some(buffer) = wrong_rank {
        return Err(format!("a store to `{buffer}` has not one index for each axis").into());
    }
    data.body = body;
    for buffer in data.buffers.values_mut() {
        let len = match buffer.symbolic.take() {
            Some(extents) => {
                extents.into_iter().fold(PrimExpr::index(1), |len, extent| len * extent)
            }
            None => {
                let len = buffer.spec.physical_len().map_err(|problem| problem.to_string())?;
                PrimExpr::index(len)
            }
        };
        buffer.set_extents(vec![len]);
    }
    Ok(func)
}

/// The error for a buffer whose memory cannot be reserved before the function runs.
fn symbolic_local(func: &PrimFuncData) -> Option<String> {
    let mut problem = None;
    func.body.walk(&mut |stmt| {
        if let Stmt::Allocate { buffer, .. } = stmt
            && problem.is_none()
        {
            let buffer = &func.buffers[*buffer];
            let extents = buffer.symbolic_text(func);
            problem = (!extents.is_empty()).then(|| {
                format!(
                    "buffer `{}` is local, and its extents {extents} are not constant: compute it \
                     at a loop that uses a constant part of it, inline it, or make it a parameter",
                    buffer.name
                )
            });
        }
    });
    problem
}

fn flatten_loads(expr: PrimExpr, data: &PrimFuncData) -> PrimExpr {
    expr.rewrite(&mut |expr| match expr {
        PrimExpr::Load { buffer, dtype, indices } => {
            let index = data.buffers[buffer].address(&indices);
            PrimExpr::Load { buffer, dtype, indices: vec![index] }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::transform::Simplify;

    #[test]
    fn local_memory_is_of_a_constant_size() {
        let func = crate::tir::parse(
            "prim_func @f(y: output float32[n], n: dim, m: dim) {
               allocate t: local float32[m + n, 4]
               for i in serial(n) { y[i] = t[i, 0] }
             }",
        );
        let error = FlattenBuffer.run_on_prim_func(func.unwrap(), &PassContext::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`t` is local, and its extents m + n are not constant"), "{error}");
    }

    #[test]
    fn a_blocked_layout_gives_affine_positions() {
        let mut func = PrimFuncData::new("f");
        let x =
            func.input("x", DType::F32, BufferSpec::nchwc(&[1, 32, 6, 6], 16, &[(1, 1), (1, 1)]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[2, 16]));
        func.body = func.serial("co", 2, |f, co| {
            f.serial("ci", 16, |f, ci| {
                let channel = co.clone() * 16 + ci.clone();
                let value = f.load(x, [PrimExpr::index(0), channel, PrimExpr::index(-1), 2.into()]);
                f.store(y, [co, ci], value)
            })
        });
        let cx = PassContext::default();
        let func = FlattenBuffer.run_on_prim_func(PrimFunc::new(func), &cx).unwrap();
        let func = Simplify.run_on_prim_func(func, &cx).unwrap();
        assert_eq!(func.buffers[x].shape(), [2 * 8 * 8 * 16]);
        let mut loads = Vec::new();
        func.body.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { indices, .. } = expr {
                loads.push(indices.clone());
            }
        });
        let [co, ci] = [0, 1].map(|i| func.var_expr(func.vars.keys().nth(i).unwrap()));
        // Row -1 is the first of the halo, and column 2 the fourth.
        assert_eq!(loads, [vec![co * (8 * 8 * 16) + ci + 3 * 16]]);
        let again = FlattenBuffer.run_on_prim_func(func.clone(), &cx).unwrap();
        assert!(again.same(&func));
    }
}
