//! One width for all accesses of a register buffer.

use std::collections::BTreeMap;

use crate::ir::{BufferSpec, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::transform::{UnrollLoop, VectorizeLoop};
use crate::tir::{BufferId, BufferScope, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Makes vectors of one width of all accesses to a register buffer.
///
/// A register has no address, so code generators split a register buffer into variables of one type.
/// `VectorizeLoop` cuts each loop into vectors of what its widest type leaves room for: a product in
/// `float32` and a following cast to `int64` access the same sums with different numbers of lanes.
/// Here the widest access of a buffer becomes the width of its variables. A narrower load picks lanes
/// of a variable, a narrower store replaces some.
///
/// A buffer is left as it is if an index is not constant or an access straddles two variables. Code
/// generation refuses it then.
#[prim_func_pass(
    opt_level = 0,
    name = "tir.LegalizeRegisterAccess",
    after = [VectorizeLoop, UnrollLoop],
    crate = crate
)]
pub fn legalize_register_access(
    mut func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> PrimFunc {
    let mixed: BTreeMap<BufferId, u32> = (accesses(&func).iter())
        .filter_map(|(&buffer, accesses)| Some((buffer, common_width(accesses)?)))
        .collect();
    if mixed.is_empty() {
        return func;
    }
    let data = func.make_mut();
    for (&buffer, &width) in &mixed {
        // The last variable may have lanes beyond the elements.
        let elements: i64 = data.buffers[buffer].shape().iter().product();
        let width = i64::from(width);
        let variables = (elements + width - 1) / width;
        data.buffers[buffer].spec = BufferSpec::dense(&[variables * width]);
    }
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let body = body.map_exprs(&mut |expr| expr.rewrite(&mut |expr| load(data, &mixed, expr)));
    data.body = body.rewrite(&mut |stmt| store(data, &mixed, stmt));
    func
}

/// An access to a register buffer.
struct Access {
    /// Position of the first element, if it is constant and the lanes are consecutive.
    position: Option<i64>,
    lanes: u32,
}

/// All accesses to one-dimensional register buffers.
fn accesses(func: &PrimFuncData) -> BTreeMap<BufferId, Vec<Access>> {
    let mut found: BTreeMap<BufferId, Vec<Access>> = BTreeMap::new();
    let mut note = |buffer: BufferId, indices: &[PrimExpr]| {
        if func.buffers[buffer].scope != BufferScope::Register {
            return;
        }
        let access = match indices {
            [index] => Access { position: index.first_position(), lanes: index.ty().lanes },
            _ => Access { position: None, lanes: 1 },
        };
        found.entry(buffer).or_default().push(access);
    };
    func.body.walk_exprs(&mut |expr| {
        if let PrimExpr::Load { buffer, indices, .. } = expr {
            note(*buffer, indices);
        }
    });
    func.body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, indices, .. } = stmt {
            note(*buffer, indices);
        }
    });
    found
}

/// The widest of several widths, if each access is within one aligned vector of it.
fn common_width(accesses: &[Access]) -> Option<u32> {
    let width = accesses.iter().map(|access| access.lanes).max()?;
    let is_mixed = accesses.iter().any(|access| access.lanes != width);
    let fits = accesses.iter().all(|access| {
        let lanes = i64::from(access.lanes);
        width.is_multiple_of(access.lanes)
            && access.position.is_some_and(|position| position >= 0 && position % lanes == 0)
    });
    (is_mixed && fits).then_some(width)
}

/// A narrower access: the variable that it is in, and its first lane there.
fn part(
    func: &PrimFuncData,
    mixed: &BTreeMap<BufferId, u32>,
    buffer: BufferId,
    indices: &[PrimExpr],
) -> Option<(PrimExpr, u32)> {
    let width = *mixed.get(&buffer)?;
    let [index] = indices else { return None };
    if index.ty().lanes == width {
        return None;
    }
    let position = index.first_position()?;
    let first = u32::try_from(position % i64::from(width)).ok()?;
    let start = PrimExpr::int(position - i64::from(first), index.dtype());
    Some((func.load(buffer, [PrimExpr::ramp(start, 1, width)]), first))
}

/// A narrower load as lanes of a variable.
fn load(func: &PrimFuncData, mixed: &BTreeMap<BufferId, u32>, expr: PrimExpr) -> PrimExpr {
    let PrimExpr::Load { buffer, indices, .. } = &expr else { return expr };
    match part(func, mixed, *buffer, indices) {
        Some((whole, first)) => whole.shuffle((first..first + expr.ty().lanes).collect()),
        None => expr,
    }
}

/// A narrower store as one of a whole variable, the other lanes of which stay what they are.
fn store(func: &PrimFuncData, mixed: &BTreeMap<BufferId, u32>, stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Store { buffer, indices, value } => match part(func, mixed, buffer, &indices) {
            Some((whole, first)) => {
                let (width, lanes) = (whole.ty().lanes, value.ty().lanes);
                // Of the variable's width, as processors blend vectors of one type.
                let value = match lanes {
                    1 => value.broadcast_to(width),
                    _ => value.shuffle((0..width).map(|lane| lane % lanes).collect()),
                };
                let is_replaced = |lane: u32| (first..first + lanes).contains(&lane);
                let picks =
                    (0..width).map(|lane| if is_replaced(lane) { width + lane } else { lane });
                let indices = match &whole {
                    PrimExpr::Load { indices, .. } => indices.clone(),
                    _ => Vec::new(),
                };
                let vectors = vec![whole, value];
                let value = PrimExpr::Shuffle { vectors, lanes: picks.collect() };
                Stmt::Store { buffer, indices, value }
            }
            None => Stmt::Store { buffer, indices, value },
        },
        Stmt::Allocate { buffer, body } => match mixed.get(&buffer) {
            // The lanes around the first narrow store are defined before it reads them.
            Some(&width) => {
                let decl = &func.buffers[buffer];
                let elements: i64 = decl.shape().iter().product();
                let zero = PrimExpr::zero(decl.dtype).broadcast_to(width);
                let clear = (0..elements).step_by(width as usize).map(|start| {
                    let place = PrimExpr::ramp(PrimExpr::index(start), 1, width);
                    func.store(buffer, [place], zero.clone())
                });
                Stmt::allocate(buffer, Stmt::seq(clear.chain([*body])))
            }
            None => Stmt::Allocate { buffer, body },
        },
        other => other,
    }
}
