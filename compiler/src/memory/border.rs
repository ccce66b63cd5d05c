//! The kernel that zeroes the halo of a tensor.

use std::cmp::Ordering;
use std::ops::Range;

use crate::ir::{BufferSpec, DType};
use crate::tir::{ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// One axis, in indices counted from the start of its halo.
struct Axis {
    before: i64,
    /// The elements.
    inside: Range<i64>,
    /// The end of the halo behind them.
    halo_end: i64,
    /// Elements, halo and padding lanes.
    all: Range<i64>,
}

impl Axis {
    fn has_halo(&self) -> bool {
        self.before > 0 || self.halo_end > self.inside.end
    }
}

/// A function with one output, of which it zeroes the halo. Padding lanes may hold anything: some are
/// zeroed, some are left as they are.
///
/// Loops over what has no halo, as channels have none, are around all others: workers that share them
/// zero the border of what they compute.
///
/// The layout must be well formed.
pub fn zero_border(name: impl Into<String>, dtype: DType, spec: &BufferSpec) -> PrimFunc {
    let axes: Vec<Axis> = spec.shape().iter().enumerate().map(|(a, &n)| axis(spec, a, n)).collect();
    let mut func = PrimFuncData::new(name);
    let buffer = func.output("border", dtype, spec.clone());
    func.origin.push(format!("zeroes the halo of {spec}"));
    let digits = spec.dims().iter().zip(spec.physical_shape()).enumerate();
    let outer = digits.take_while(|(_, (dim, _))| !axes[dim.axis].has_halo());
    let outer: Vec<(VarId, i64)> =
        outer.map(|(place, (_, extent))| (func.index_var(format!("o{place}")), extent)).collect();
    // What is outside along one axis, inside along those before it and anywhere along the others:
    // disjoint, and together everything outside.
    let mut stmts = Vec::new();
    for (outside, axis) in axes.iter().enumerate() {
        for part in [axis.all.start..axis.inside.start, axis.inside.end..axis.halo_end] {
            let ranges: Vec<Range<i64>> = axes
                .iter()
                .enumerate()
                .map(|(other, axis)| match other.cmp(&outside) {
                    Ordering::Less if axis.has_halo() => axis.inside.clone(),
                    Ordering::Equal => part.clone(),
                    Ordering::Less | Ordering::Greater => axis.all.clone(),
                })
                .collect();
            if ranges.iter().all(|range| range.start < range.end) {
                stmts.push(zero_region(
                    &mut func,
                    spec,
                    &axes,
                    (&ranges, &outer),
                    |func, index| func.store(buffer, index, PrimExpr::int(0, dtype)),
                ));
            }
        }
    }
    func.body = outer.into_iter().rev().fold(Stmt::seq(stmts), |body, (var, extent)| {
        let (first, extent) = (PrimExpr::index(0), PrimExpr::index(extent));
        Stmt::for_loop(var, first, extent, ForKind::Serial, body)
    });
    PrimFunc::new(func)
}

fn axis(spec: &BufferSpec, axis: usize, extent: i64) -> Axis {
    let halo = spec.halo()[axis];
    let outer = spec.dims().iter().find(|dim| dim.axis == axis).map_or(1, |dim| dim.step.max(1));
    let range = extent.saturating_add(halo.before).saturating_add(halo.after);
    Axis {
        before: halo.before,
        inside: halo.before..halo.before + extent,
        halo_end: range,
        all: 0..range.saturating_add(outer - 1) / outer * outer,
    }
}

/// Loops over a box of indices in the order of memory, as far as whole axes are concerned, inside of the
/// `outer` ones.
fn zero_region(
    func: &mut PrimFuncData,
    spec: &BufferSpec,
    axes: &[Axis],
    (ranges, outer): (&[Range<i64>], &[(VarId, i64)]),
    store: impl FnOnce(&PrimFuncData, Vec<PrimExpr>) -> Stmt,
) -> Stmt {
    let mut index: Vec<PrimExpr> = axes
        .iter()
        .zip(ranges)
        .map(|(axis, range)| PrimExpr::index(range.start - axis.before))
        .collect();
    let mut loops = Vec::new();
    // How far the index along an axis runs inside the digits already looped over.
    let mut rest: Vec<i64> = ranges.iter().map(|range| range.end - range.start).collect();
    // The loop over adjacent elements, if there is one.
    let mut unit = None;
    for (position, dim) in spec.dims().iter().enumerate() {
        let range = &ranges[dim.axis];
        let is_whole = *range == axes[dim.axis].all;
        // Part of an axis is one loop, where its innermost digit is.
        if !is_whole && dim.step != 1 {
            continue;
        }
        let extent = rest[dim.axis] / dim.step;
        rest[dim.axis] = dim.step;
        let known = outer.get(position).map(|(var, _)| *var);
        if extent == 1 && known.is_none() {
            continue;
        }
        let var = known.unwrap_or_else(|| func.index_var(format!("i{}", loops.len())));
        let offset = func.var_expr(var) * dim.step;
        index[dim.axis] = index[dim.axis].clone() + offset;
        if known.is_none() {
            loops.push((var, extent));
        }
        if position + 1 == spec.dims().len() {
            unit = Some(var);
        }
    }
    let body = store(func, index);
    let innermost = loops.len().checked_sub(1);
    loops.into_iter().enumerate().rev().fold(body, |body, (position, (var, extent))| {
        // The last digit of a layout is contiguous, and so is a part of it.
        let vectors = Some(position) == innermost && unit == Some(var);
        let kind = if vectors { ForKind::Vectorized } else { ForKind::Serial };
        let (min, extent) = (PrimExpr::index(0), PrimExpr::index(extent));
        Stmt::for_loop(var, min, extent, kind, body)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tir::VarId;
    use std::collections::BTreeMap;

    /// Value of an index: sums of constants and multiples of loop variables.
    fn value(expr: &PrimExpr, vars: &BTreeMap<VarId, i64>) -> i64 {
        match expr {
            PrimExpr::Int { value, .. } => *value,
            PrimExpr::Var { var, .. } => vars[var],
            PrimExpr::Binary { op, lhs, rhs } => {
                let (lhs, rhs) = (value(lhs, vars), value(rhs, vars));
                match op {
                    crate::tir::BinaryOp::Add => lhs + rhs,
                    crate::tir::BinaryOp::Mul => lhs * rhs,
                    other => panic!("unexpected {other:?}"),
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn run(stmt: &Stmt, vars: &mut BTreeMap<VarId, i64>, stored: &mut Vec<Vec<i64>>) {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().for_each(|stmt| run(stmt, vars, stored)),
            Stmt::For { var, extent, body, .. } => {
                for i in 0..value(extent, vars) {
                    vars.insert(*var, i);
                    run(body, vars, stored);
                }
            }
            Stmt::Store { indices, .. } => {
                stored.push(indices.iter().map(|index| value(index, vars)).collect());
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Indices of a box: the product of ranges.
    fn indices(ranges: &[Range<i64>]) -> Vec<Vec<i64>> {
        ranges.iter().fold(vec![Vec::new()], |all, range| {
            let longer = |index: Vec<i64>| range.clone().map(move |i| [&index[..], &[i]].concat());
            all.into_iter().flat_map(longer).collect()
        })
    }

    /// Everything in the halo is zeroed once, and no element.
    fn check(spec: &BufferSpec) {
        let func = zero_border("zero", DType::F32, spec);
        let mut stored = Vec::new();
        run(&func.body, &mut BTreeMap::new(), &mut stored);
        let mut found: Vec<i64> = Vec::new();
        for index in stored {
            assert!(spec.is_addressable(&index), "{spec} at {index:?}");
            found.push(spec.element_offset(&index));
        }
        found.sort_unstable();
        assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "{spec}");
        let with_halo: Vec<Range<i64>> = spec
            .shape()
            .iter()
            .zip(spec.halo())
            .map(|(&extent, halo)| -halo.before..extent + halo.after)
            .collect();
        for index in indices(&with_halo) {
            let mut places = index.iter().zip(spec.shape());
            let is_element = places.all(|(i, extent)| (0..*extent).contains(i));
            let is_zeroed = found.binary_search(&spec.element_offset(&index)).is_ok();
            assert_eq!(is_zeroed, !is_element, "{spec} at {index:?}");
        }
    }

    #[test]
    fn the_halo_is_zeroed_once() {
        check(&BufferSpec::dense(&[2, 3]));
        check(&BufferSpec::dense(&[]));
        check(&BufferSpec::dense(&[2, 3, 4]).with_halo(1, 1, 2).with_halo(2, 0, 1));
        check(&BufferSpec::nchwc(&[2, 32, 5, 4], 16, &[(1, 1), (1, 1)]));
        check(&BufferSpec::nchwc(&[1, 20, 3, 3], 8, &[(1, 1), (2, 0)]));
        check(&BufferSpec::nchwc(&[1, 3, 2, 2], 16, &[]));
        check(&BufferSpec::packed(&[5, 7], &[(0, 4), (1, 4), (1, 2), (0, 1), (1, 1)]));
        check(&BufferSpec::packed(&[5], &[(0, 4), (0, 1)]).with_halo(0, 2, 3));
        check(&BufferSpec::nchwc(&[1, 0, 3, 3], 8, &[(1, 1), (1, 1)]));
    }
}
