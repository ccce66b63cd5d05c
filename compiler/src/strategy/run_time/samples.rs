//! Tensor expressions that were made for several values of sizes, as one that has the sizes in it.
//!
//! What differs between samples are numbers: extents, and constants of expressions. Each is taken for
//! a dimension that the function has, times a number and plus another one, if that holds for
//! all samples; among them are sizes near the least and beyond the greatest.

use std::collections::BTreeMap;

use crate::executor::RunTimeSizes;
use crate::graph::{Expr, Function};
use crate::ir::{DType, Dim};
use crate::te::{AxisLimit, ComputeDag, ReduceAxis, Stage, StageId, StageKind};
use crate::tir::{PrimExpr, VarId};

use super::super::primitive::Primitive;
use super::tensor_types;

/// The dimensions that numbers can be, with their values in all samples.
pub(super) struct Known {
    dims: Vec<(Vec<i64>, PrimExpr)>,
}

/// How far runs go along the axes of a dag, and the expressions of its elements.
#[derive(Default)]
pub(super) struct Limits {
    stages: BTreeMap<StageId, Vec<AxisLimit>>,
    reductions: Vec<(VarId, PrimExpr)>,
    kinds: BTreeMap<StageId, StageKind>,
}

/// How often a number is halved at most.
const MOST_HALVED: u32 = 10;

/// Most sizes that are tried for a sample.
const MOST_TRIED: usize = 1 << 16;

/// The dimensions that the types and attributes of a function have and that depend on sizes, and the
/// sizes.
fn dims(function: &Function, sizes: &RunTimeSizes) -> Vec<Dim> {
    let mut dims: Vec<Dim> = sizes.iter().map(|size| Dim::symbol(size.name.as_str())).collect();
    let mut add = |dim: &Dim| {
        if !dim.is_const() && !dims.contains(dim) {
            dims.push(dim.clone());
        }
    };
    for id in function.ids() {
        let types = tensor_types(function.ty(id));
        types.iter().flat_map(|tensor| tensor.shape.iter()).for_each(&mut add);
        if let Expr::Call(call) = function.expr(id) {
            call.attrs.dims().for_each(&mut add);
        }
    }
    dims
}

/// A multiple of every small number. Sizes around it leave the remainders by which quotients that are
/// rounded differ.
const OF_MANY_DIVISORS: i64 = 840;

/// How many of them are tried.
const SEVERAL: usize = 4;

/// Values of sizes for which the tensor expressions of a function are made, to see how they depend on
/// them: the greatest first, then others of one size each. What is made for one element has another
/// form, so an extent is 1 only if it always is. `None` if there are no others, or the greatest are
/// beyond 63 bits.
pub(super) fn samples(function: &Function, sizes: &RunTimeSizes) -> Option<Vec<Vec<i64>>> {
    let greatest = sizes.greatest_sizes()?;
    let dims = dims(function, sizes);
    let large = |dim: &&Dim| sizes.value(dim, &greatest).is_some_and(|extent| extent > 1);
    let dims: Vec<&Dim> = dims.iter().filter(large).collect();
    let mut samples = vec![greatest.clone()];
    for (number, size) in sizes.iter().enumerate() {
        let (min, max) = (i64::try_from(size.min).ok()?, greatest[number]);
        if max == 1 {
            continue;
        }
        let sample = |value: i64| {
            let mut sample = greatest.clone();
            sample[number] = value;
            sample
        };
        let is_general = |sample: &Vec<i64>| {
            sizes.unequal(sample).is_none()
                && dims.iter().all(|dim| sizes.value(dim, sample).is_none_or(|extent| extent > 1))
        };
        let general_in =
            |range: std::ops::Range<i64>| range.take(MOST_TRIED).map(sample).filter(is_general);
        let beyond = max.checked_mul(2)?.checked_add(1)?;
        let even = (beyond / OF_MANY_DIVISORS + 1).checked_mul(OF_MANY_DIVISORS)?;
        let ranges = [even - 1..i64::MAX, beyond..i64::MAX, min.max(2)..max];
        let several = ranges.into_iter().map(|range| general_in(range).take(SEVERAL).collect());
        samples.extend(several.into_iter().find(|found: &Vec<_>| !found.is_empty())?);
        let small = general_in(min.max(2)..max).next();
        samples.push(small.or_else(|| general_in(max.saturating_add(1)..i64::MAX).next())?);
    }
    Some(samples)
}

/// A number as a constant of that type has it.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

impl Known {
    /// Those of a function's types, and the sizes themselves, of which `vars` are the expressions.
    pub(super) fn new(
        function: &Function,
        sizes: &RunTimeSizes,
        samples: &[Vec<i64>],
        vars: &[PrimExpr],
    ) -> Known {
        let mut dims = dims(function, sizes);
        // Numbers of elements, of an image for example.
        let products =
            dims.iter().enumerate().flat_map(|(at, a)| dims[at..].iter().map(move |b| a * b));
        let products: Vec<Dim> = products.collect();
        dims.extend(products);
        let known = dims.iter().filter_map(|dim| {
            let values: Option<Vec<i64>> =
                samples.iter().map(|sample| sizes.value(dim, sample)).collect();
            Some((values?, sizes.extent(dim, vars)?))
        });
        Known { dims: known.collect() }
    }

    /// What a dag for the greatest sizes has to know of them, seen from those for other sizes.
    ///
    /// # Errors
    ///
    /// The operator of a stage that differs in something else than numbers, or in numbers that are no
    /// sums and products of dimensions.
    pub(super) fn limits(
        &self,
        greatest: &ComputeDag,
        others: &[ComputeDag],
    ) -> Result<Limits, String> {
        let mut limits = Limits::default();
        for (id, stage) in &greatest.stages {
            let beside: Option<Vec<&Stage>> =
                others.iter().map(|other| other.stages.get(id)).collect();
            let found = beside.and_then(|beside| {
                let shapes = others.iter().map(|other| other.shape(id));
                let shapes: Vec<&[i64]> =
                    std::iter::once(greatest.shape(id)).chain(shapes).collect();
                self.stage(greatest, id, &beside, &shapes, &mut limits)
            });
            found.ok_or_else(|| stage.op.clone())?;
        }
        Ok(limits)
    }

    fn stage(
        &self,
        dag: &ComputeDag,
        id: StageId,
        beside: &[&Stage],
        shapes: &[&[i64]],
        limits: &mut Limits,
    ) -> Option<()> {
        let stage = &dag.stages[id];
        let rank = shapes[0].len();
        let alike = beside.iter().all(|other| stage.is_like(other));
        if !alike || shapes.iter().any(|shape| shape.len() != rank) {
            return None;
        }
        for axis in 0..rank {
            let extents: Vec<i64> = shapes.iter().map(|shape| shape[axis]).collect();
            if extents.iter().any(|extent| *extent != extents[0]) {
                let extent = self.number(&extents)?;
                limits.stages.entry(id).or_default().push(AxisLimit { axis, extent });
            }
        }
        let all = || std::iter::once(&stage).chain(beside);
        let reduced: Vec<&[ReduceAxis]> = all().map(|stage| stage.kind.reduced()).collect();
        for (number, axis) in reduced[0].iter().enumerate() {
            let extents: Vec<i64> = reduced.iter().map(|axes| axes[number].extent).collect();
            if extents.iter().any(|extent| *extent != extents[0]) {
                limits.reductions.push((axis.var, self.number(&extents)?));
            }
        }
        let values: Vec<Vec<&PrimExpr>> = all().map(|stage| stage.kind.values()).collect();
        let merged: Option<Vec<PrimExpr>> = (0..values[0].len())
            .map(|number| self.merged(&values.iter().map(|v| v[number]).collect::<Vec<_>>()))
            .collect();
        let merged = merged?;
        if merged.iter().ne(values[0].iter().copied()) {
            limits.kinds.insert(id, stage.kind.clone().with_values(merged));
        }
        if let Some(joined) = self.joined(dag, id, &all().collect::<Vec<_>>())? {
            limits.kinds.insert(id, StageKind::Compute(joined));
        }
        Some(())
    }

    /// The element of a concatenation whose parts begin where a run says, of the part that it is in;
    /// the inner `None` for other stages. The outer `None` if it is not known where parts begin.
    fn joined(&self, dag: &ComputeDag, id: StageId, all: &[&&Stage]) -> Option<Option<PrimExpr>> {
        let StageKind::Concat { axis, parts } = &dag.stages[id].kind else { return Some(None) };
        let mut offsets = Vec::with_capacity(parts.len());
        for number in 0..parts.len() {
            let offset = |stage: &&&Stage| match &stage.kind {
                StageKind::Concat { parts, .. } => Some(parts.get(number)?.offset),
                _ => None,
            };
            let values: Option<Vec<i64>> = all.iter().map(offset).collect();
            let values = values?;
            offsets.push(match values.iter().all(|value| *value == values[0]) {
                true => PrimExpr::index(values[0]),
                false => self.number(&values)?,
            });
        }
        if offsets.iter().all(|offset| offset.as_int().is_some()) {
            return Some(None);
        }
        let index: Vec<PrimExpr> =
            dag.stages[id].axes.iter().map(|&var| dag.func.var_expr(var)).collect();
        let element = |number: usize| {
            let mut at = index.clone();
            at[*axis] = at[*axis].clone() - offsets[number].clone();
            dag.at(parts[number].stage, &at)
        };
        let last = parts.len().checked_sub(1)?;
        let joined = (0..last).rev().fold(element(last), |rest, number| {
            let inside = index[*axis].clone().less(offsets[number + 1].clone());
            PrimExpr::select(inside, element(number), rest)
        });
        Some(Some(joined))
    }

    /// The number that has these values.
    fn number(&self, values: &[i64]) -> Option<PrimExpr> {
        self.dims.iter().find_map(|(known, expr)| {
            let (first, second) =
                known.iter().zip(values).fold((None, None), |pair, it| match pair {
                    (None, _) => (Some(it), None),
                    (Some(first), None) if first.0 != it.0 => (Some(first), Some(it)),
                    pair => pair,
                });
            let ((x, a), (y, b)) = (first?, second?);
            let (run, rise) = (y.checked_sub(*x)?, b.checked_sub(*a)?);
            let factor = (rise != 0 && rise % run == 0).then(|| rise / run)?;
            let summand = a.checked_sub(factor.checked_mul(*x)?)?;
            let holds = known.iter().zip(values).all(|(x, a)| {
                factor.checked_mul(*x).and_then(|product| product.checked_add(summand)) == Some(*a)
            });
            holds.then(|| expr.clone() * factor + summand)
        })
    }

    /// Expressions that differ in numbers as one.
    fn merged(&self, exprs: &[&PrimExpr]) -> Option<PrimExpr> {
        let first = *exprs.first()?;
        if exprs.iter().all(|expr| *expr == first) {
            return Some(first.clone());
        }
        match first {
            PrimExpr::Int { dtype, .. } => {
                let of_type = |expr: &&PrimExpr| (expr.dtype() == *dtype).then(|| expr.as_int())?;
                let values: Option<Vec<i64>> = exprs.iter().map(of_type).collect();
                Some(self.number(&values?)?.cast(*dtype))
            }
            PrimExpr::Float { dtype, .. } => {
                let of_type =
                    |expr: &&PrimExpr| (expr.dtype() == *dtype).then(|| expr.as_float())?;
                let values: Option<Vec<f64>> = exprs.iter().map(of_type).collect();
                self.float(&values?, *dtype)
            }
            _ => {
                let frame = |expr: &PrimExpr| {
                    expr.clone().map_children(&mut |child| PrimExpr::zero(child.dtype()))
                };
                let frames = frame(first);
                let children = |expr: &PrimExpr| {
                    let mut children = Vec::new();
                    expr.for_each_child(&mut |child| children.push(child.clone()));
                    children
                };
                let all: Vec<Vec<PrimExpr>> = exprs.iter().map(|expr| children(expr)).collect();
                let count = all[0].len();
                let alike = count > 0
                    && exprs.iter().all(|expr| frame(expr) == frames)
                    && all.iter().all(|children| children.len() == count);
                if !alike {
                    return None;
                }
                let merged: Option<Vec<PrimExpr>> = (0..count)
                    .map(|place| self.merged(&all.iter().map(|c| &c[place]).collect::<Vec<_>>()))
                    .collect();
                let mut merged = merged?.into_iter();
                Some(first.clone().map_children(&mut |child| merged.next().unwrap_or(child)))
            }
        }
    }

    /// A float that is a number divided by a dimension or by one less, or the other way round.
    fn quotient(&self, values: &[f64], dtype: DType) -> Option<PrimExpr> {
        let rounded = |value| rounded(value, dtype);
        let number = |numbers: &[i64]| match numbers.iter().all(|number| *number == numbers[0]) {
            true => Some(PrimExpr::index(numbers[0])),
            false => self.number(numbers),
        };
        self.dims.iter().flat_map(|dim| [(dim, 0), (dim, 1)]).find_map(|((dim, expr), less)| {
            let dim: Vec<f64> = dim.iter().map(|&extent| (extent - less) as f64).collect();
            let expr = expr.clone() - less;
            [true, false].into_iter().find_map(|divides| {
                let pairs = || dim.iter().zip(values);
                let other: Vec<f64> = match divides {
                    true => pairs().map(|(dim, value)| (dim * value).round()).collect(),
                    false => pairs().map(|(dim, value)| (dim / value).round()).collect(),
                };
                let holds = pairs().zip(&other).all(|((dim, value), other)| {
                    let (numerator, denominator) =
                        if divides { (other, dim) } else { (dim, other) };
                    other.abs() < 9e15
                        && *denominator != 0.0
                        && rounded(numerator / denominator) == rounded(*value)
                });
                if !holds {
                    return None;
                }
                let other: Vec<i64> = other.iter().map(|&other| other as i64).collect();
                let other = number(&other)?.cast(dtype);
                let expr = expr.clone().cast(dtype);
                Some(if divides { other / expr } else { expr / other })
            })
        })
    }

    /// A float that is a whole number or halves of one, a quotient, or one divided by a number.
    fn float(&self, values: &[f64], dtype: DType) -> Option<PrimExpr> {
        let whole = |values: Vec<f64>| -> Option<PrimExpr> {
            let fits = |value: &f64| value.fract() == 0.0 && value.abs() < 9e15;
            let values: Option<Vec<i64>> =
                values.iter().map(|value| fits(value).then_some(*value as i64)).collect();
            Some(self.number(&values?)?.cast(dtype))
        };
        let parts = (0..=MOST_HALVED).find_map(|power| {
            let unit = f64::from(1u32 << power);
            let number = whole(values.iter().map(|value| value * unit).collect())?;
            Some(if power == 0 { number } else { number * PrimExpr::float(unit.recip(), dtype) })
        });
        if parts.is_some() {
            return parts;
        }
        if let Some(quotient) = self.quotient(values, dtype) {
            return Some(quotient);
        }
        let divisors: Vec<f64> = values.iter().map(|value| value.recip().round()).collect();
        let rounded = |value| rounded(value, dtype);
        let same =
            values.iter().zip(&divisors).all(|(value, by)| rounded(by.recip()) == rounded(*value));
        same.then(|| Some(PrimExpr::float(1.0, dtype) / whole(divisors)?))?
    }
}

impl Limits {
    /// Whether these are the outermost axes of tensors of more than one element along them, and
    /// elements do not depend on them otherwise.
    pub(super) fn are_outermost(&self, dag: &ComputeDag) -> bool {
        let is_first = |(&stage, limits): (&StageId, &Vec<AxisLimit>)| match limits.as_slice() {
            [limit] => dag.shape(stage)[..limit.axis].iter().all(|&extent| extent == 1),
            _ => false,
        };
        self.reductions.is_empty() && self.kinds.is_empty() && self.stages.iter().all(is_first)
    }

    /// Whether elements of a stage, or what they are sums of, depend on sizes.
    pub(super) fn changes(&self, stage: &Stage, id: StageId) -> bool {
        let is_limited =
            |axis: &ReduceAxis| self.reductions.iter().any(|(limited, _)| *limited == axis.var);
        self.kinds.contains_key(&id) || stage.kind.reduced().iter().any(is_limited)
    }

    /// Tells a primitive.
    pub(super) fn set(self, primitive: &mut Primitive) {
        let dag = &mut primitive.dag;
        for (stage, limits) in self.stages {
            dag.set_limits(stage, limits);
        }
        for (axis, extent) in self.reductions {
            dag.set_reduce_limit(axis, extent);
        }
        // Elements whose place depends on sizes do not stay where they are.
        primitive.reshape_only &= self.kinds.is_empty();
        for (id, kind) in self.kinds {
            dag.stages[id].kind = kind;
        }
    }
}
