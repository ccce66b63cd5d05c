//! Tensor expressions that were made for several values of sizes, as one that has the sizes in it.
//!
//! What differs between samples are numbers: extents, and constants of expressions. Each is taken for
//! a dimension that the function has, times a number and plus another one, if that holds for
//! all samples; among them are sizes near the least and beyond the greatest. An extent that is the lesser
//! of two, or a difference that is never below zero, differs from others for small sizes alone: what is made
//! for these, the edges, has another form where an extent is one, so they are seen as far as forms agree.

use std::collections::BTreeMap;

use crate::executor::RunTimeSizes;
use crate::graph::{Expr, Function};
use crate::ir::{DType, Dim};
use crate::te::{AxisLimit, ComputeDag, ReduceAxis, Stage, StageId, StageKind};
use crate::tir::{PrimExpr, PrimFuncData, Stmt, VarId};

use super::super::primitive::Primitive;
use super::tensor_types;

/// The dimensions that numbers can be, with their values in all samples and at all edges.
pub(super) struct Known {
    dims: Vec<KnownDim>,
    /// How many of these values are of samples.
    samples: usize,
}

struct KnownDim {
    values: Vec<i64>,
    expr: PrimExpr,
    /// Whether the function has the dimension, and not others alone that depend on the same sizes.
    is_own: bool,
}

/// A number that has the values that are seen.
struct Fitting {
    expr: PrimExpr,
    /// Its values where they are not seen.
    unseen: Vec<Option<i64>>,
    is_own: bool,
}

/// What is seen of a number in all samples, and at the edges that have it.
type Seen<T> = Vec<Option<T>>;

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

/// The dimensions that the types and attributes of a function have and that depend on sizes.
fn own_dims(function: &Function) -> Vec<Dim> {
    let mut dims: Vec<Dim> = Vec::new();
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

/// How many elements there are along the last three or more open axes of a tensor, closed ones left out.
fn open_elements(function: &Function) -> Vec<Dim> {
    let mut found: Vec<Dim> = Vec::new();
    for id in function.ids() {
        for tensor in tensor_types(function.ty(id)) {
            let open: Vec<&Dim> = tensor.shape.iter().filter(|dim| !dim.is_const()).collect();
            for last in 3..=open.len() {
                let elements: Dim = open[open.len() - last..].iter().copied().product();
                if !found.contains(&elements) {
                    found.push(elements);
                }
            }
        }
    }
    found
}

/// The sizes, and the dimensions that a function has.
fn dims(function: &Function, sizes: &RunTimeSizes) -> Vec<Dim> {
    let mut dims: Vec<Dim> = sizes.iter().map(|size| Dim::symbol(size.name.as_str())).collect();
    let own = own_dims(function).into_iter().filter(|own| !dims.contains(own));
    let own: Vec<Dim> = own.collect();
    dims.extend(own);
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

/// Most edges, and how far they are looked for one by one.
const MOST_EDGES: usize = 4;
const NEAR: i64 = 16;

/// Sizes for which a dimension is not what it seems to be from the samples: see the module's documentation.
pub(super) fn edges(
    function: &Function,
    sizes: &RunTimeSizes,
    samples: &[Vec<i64>],
) -> Vec<Vec<i64>> {
    let Some(greatest) = samples.first() else { return Vec::new() };
    let dims = dims(function, sizes);
    let values = |sample: &Vec<i64>| -> Option<Vec<i64>> {
        dims.iter().map(|dim| sizes.value(dim, sample).filter(|&value| value >= 0)).collect()
    };
    let seen: Option<Vec<Vec<i64>>> = samples.iter().map(values).collect();
    let Some(seen) = seen else { return Vec::new() };
    // What each dimension seems to be: a number, or another dimension's multiple and a number.
    let column = |dim: usize| seen.iter().map(|row| row[dim]).collect::<Vec<i64>>();
    let columns: Vec<Vec<i64>> = (0..dims.len()).map(column).collect();
    let mut seems: Vec<(usize, Option<usize>, [i64; 2])> = Vec::new();
    for (dim, column) in columns.iter().enumerate() {
        if column.iter().all(|value| *value == column[0]) {
            seems.push((dim, None, [0, column[0]]));
        }
        let values: Seen<i64> = column.iter().copied().map(Some).collect();
        let others = columns.iter().enumerate().filter(|(other, _)| *other != dim);
        seems.extend(
            others.filter_map(|(other, column)| Some((dim, Some(other), law(column, &values)?))),
        );
    }
    let is_edge = |row: &Vec<i64>| {
        seems.iter().any(|&(dim, other, [factor, summand])| {
            let of = other.map_or(0, |other| row[other]);
            factor.checked_mul(of).and_then(|of| of.checked_add(summand)) != Some(row[dim])
        })
    };
    let mut found = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let Ok(min) = i64::try_from(size.min) else { continue };
        let near = min..min.saturating_add(NEAR);
        let far = (NEAR.ilog2() + 1..62).map(|power| min.saturating_add(1 << power));
        let mut of_size: Vec<Vec<i64>> = (near.chain(far))
            .take_while(|&value| value <= greatest[number])
            .map(|value| {
                let mut sample = greatest.clone();
                sample[number] = value;
                sample
            })
            .filter(|sample| sizes.unequal(sample).is_none() && !samples.contains(sample))
            .filter(|sample| values(sample).is_some_and(|row| is_edge(&row)))
            .collect();
        // The least ones, and those next to where dimensions are what they seem.
        let between = of_size.len().saturating_sub(MOST_EDGES / 2).max(MOST_EDGES / 2);
        of_size.drain((MOST_EDGES / 2).min(of_size.len())..between.min(of_size.len()));
        found.extend(of_size);
    }
    found
}

/// The factor and the summand by which all values that are seen come of a dimension's.
fn law(known: &[i64], values: &[Option<i64>]) -> Option<[i64; 2]> {
    let mut pairs = known.iter().zip(values).filter_map(|(x, value)| Some((*x, (*value)?)));
    let (x, a) = pairs.clone().next()?;
    let (y, b) = pairs.clone().find(|(y, _)| *y != x)?;
    let (run, rise) = (y.checked_sub(x)?, b.checked_sub(a)?);
    let factor = (rise != 0 && rise % run == 0).then(|| rise / run)?;
    let summand = a.checked_sub(factor.checked_mul(x)?)?;
    let holds = pairs.all(|(x, a)| {
        factor.checked_mul(x).and_then(|product| product.checked_add(summand)) == Some(a)
    });
    holds.then_some([factor, summand])
}

/// Whether a number is the same wherever it is seen.
fn is_one<T: PartialEq>(values: &[Option<T>]) -> bool {
    let mut values = values.iter().flatten();
    let first = values.next();
    values.all(|value| Some(value) == first)
}

/// What becomes of a number wherever it is seen; `None` if it cannot become that somewhere.
fn each<T, U>(values: &[Option<T>], of: impl Fn(&T) -> Option<U>) -> Option<Seen<U>> {
    let all = values.iter().map(|value| match value {
        Some(value) => of(value).map(Some),
        None => Some(None),
    });
    all.collect()
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
        edges: &[Vec<i64>],
        vars: &[PrimExpr],
    ) -> Known {
        let own = own_dims(function);
        let single: Vec<(Dim, bool)> = dims(function, sizes)
            .into_iter()
            .map(|dim| {
                let is_own = own.contains(&dim);
                (dim, is_own)
            })
            .collect();
        // Numbers of elements, of an image for example.
        let products = single.iter().enumerate().flat_map(|(at, (a, is_own))| {
            single[at..].iter().map(move |(b, both)| (a * b, *is_own && *both))
        });
        let whole = open_elements(function).into_iter().map(|elements| (elements, true));
        let known = single.iter().cloned().chain(products).chain(whole);
        let known = known.filter_map(|(dim, is_own)| {
            let values: Option<Vec<i64>> =
                samples.iter().chain(edges).map(|sample| sizes.value(&dim, sample)).collect();
            Some(KnownDim { values: values?, expr: sizes.extent(&dim, vars)?, is_own })
        });
        Known { dims: known.collect(), samples: samples.len() }
    }

    /// What a dag for the greatest sizes has to know of them, seen from those for other sizes, and from those
    /// at the edges that could be made.
    ///
    /// # Errors
    ///
    /// The operator of a stage that differs in something else than numbers, or in numbers that are no
    /// sums and products of dimensions.
    pub(super) fn limits(
        &self,
        greatest: &ComputeDag,
        others: &[ComputeDag],
        edges: &[Option<ComputeDag>],
    ) -> Result<Limits, String> {
        let mut limits = Limits::default();
        for (id, stage) in &greatest.stages {
            let rank = greatest.shape(id).len();
            let is_like = |other: &&ComputeDag| {
                let like = |like: &Stage| stage.is_like(like) && other.shape(id).len() == rank;
                other.stages.get(id).is_some_and(like)
            };
            let found = others.iter().all(|other| is_like(&other)).then(|| {
                let edges = edges.iter().map(|edge| {
                    let alike = |edge: &&ComputeDag| {
                        edge.stages.len() == greatest.stages.len() && is_like(edge)
                    };
                    edge.as_ref().filter(alike)
                });
                let all: Seen<&ComputeDag> =
                    std::iter::once(greatest).chain(others).map(Some).chain(edges).collect();
                self.stage(id, &all, &mut limits)
            });
            found.flatten().ok_or_else(|| stage.op.clone())?;
        }
        Ok(limits)
    }

    fn stage(&self, id: StageId, all: &[Option<&ComputeDag>], limits: &mut Limits) -> Option<()> {
        let dag = (*all.first()?)?;
        let stage = &dag.stages[id];
        for axis in 0..dag.shape(id).len() {
            let extents = each(all, |dag| Some(dag.shape(id)[axis]))?;
            if !is_one(&extents) {
                let extent = self.number(&extents)?;
                limits.stages.entry(id).or_default().push(AxisLimit { axis, extent });
            }
        }
        // Where a tensor has no elements, it does not matter what these would be.
        let matters =
            |at: usize, dag: &ComputeDag| at < self.samples || !dag.shape(id).contains(&0);
        let all: Seen<&Stage> = (all.iter().enumerate())
            .map(|(at, dag)| dag.filter(|dag| matters(at, dag)).map(|dag| &dag.stages[id]))
            .collect();
        for (number, axis) in stage.kind.reduced().iter().enumerate() {
            let of_axis = |stage: &&Stage| Some(stage.kind.reduced().get(number)?.extent);
            let extents = each(&all, of_axis)?;
            if !is_one(&extents) {
                limits.reductions.push((axis.var, self.number(&extents)?));
            }
        }
        let values: Seen<Vec<&PrimExpr>> = each(&all, |stage| Some(stage.kind.values()))?;
        let own = stage.kind.values();
        let merged: Option<Vec<PrimExpr>> = (0..own.len())
            .map(|number| {
                let of_all = values.iter().enumerate().map(|(at, values)| match values {
                    Some(values) if at < self.samples => values.get(number).copied().map(Some),
                    Some(values) => Some(values.get(number).copied()),
                    None => Some(None),
                });
                self.merged(&of_all.collect::<Option<Seen<&PrimExpr>>>()?)
            })
            .collect();
        let merged = merged?;
        if merged.iter().ne(own) {
            limits.kinds.insert(id, stage.kind.clone().with_values(merged));
        }
        if let Some(joined) = self.joined(dag, id, &all)? {
            limits.kinds.insert(id, StageKind::Compute(joined));
        }
        Some(())
    }

    /// The element of a concatenation whose parts begin where a run says, of the part that it is in;
    /// the inner `None` for other stages. The outer `None` if it is not known where parts begin.
    fn joined(
        &self,
        dag: &ComputeDag,
        id: StageId,
        all: &[Option<&Stage>],
    ) -> Option<Option<PrimExpr>> {
        let StageKind::Concat { axis, parts } = &dag.stages[id].kind else { return Some(None) };
        let offset = |stage: &&Stage, number: usize| match &stage.kind {
            StageKind::Concat { parts, .. } => Some(parts.get(number)?.offset),
            _ => None,
        };
        let known = |values: Seen<i64>| match is_one(&values) {
            true => Some(PrimExpr::index(values[0]?)),
            false => self.number(&values),
        };
        let mut offsets: Vec<PrimExpr> = Vec::with_capacity(parts.len());
        for number in 0..parts.len() {
            let next = known(each(all, |stage| offset(stage, number))?).or_else(|| {
                // The part before is a dimension, if all up to it are none.
                let before = number.checked_sub(1)?;
                let extent = |stage: &&Stage| Some(offset(stage, number)? - offset(stage, before)?);
                Some(offsets[before].clone() + known(each(all, extent)?)?)
            });
            offsets.push(next?);
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

    /// The number that has these values: a dimension, or else a multiple of one and a number. `None` if it is
    /// not seen which one of them.
    fn number(&self, values: &[Option<i64>]) -> Option<PrimExpr> {
        let is_same = |known: &[i64]| {
            known.iter().zip(values).all(|(x, value)| value.is_none_or(|value| value == *x))
        };
        let mut found = self.fitting(values, |known| is_same(known).then_some([1, 0]));
        if found.is_empty() {
            found = self.fitting(values, |known| law(known, values));
        }
        if found.iter().any(|fitting| fitting.is_own) {
            found.retain(|fitting| fitting.is_own);
        }
        let first = found.first()?;
        found.iter().all(|other| other.unseen == first.unseen).then(|| first.expr.clone())
    }

    /// The dimensions that are a number by a factor and a summand, and what they are where it is not seen.
    fn fitting(
        &self,
        values: &[Option<i64>],
        law: impl Fn(&[i64]) -> Option<[i64; 2]>,
    ) -> Vec<Fitting> {
        let fitting = self.dims.iter().filter_map(|dim| {
            let [factor, summand] = law(&dim.values)?;
            let unseen = dim.values.iter().zip(values).filter(|(_, value)| value.is_none());
            let unseen = unseen.map(|(x, _)| factor.checked_mul(*x)?.checked_add(summand));
            let expr = dim.expr.clone() * factor + summand;
            Some(Fitting { unseen: unseen.collect(), expr, is_own: dim.is_own })
        });
        fitting.collect()
    }

    /// Expressions that differ in numbers as one. Those at edges count as far as they have the same form.
    fn merged(&self, exprs: &[Option<&PrimExpr>]) -> Option<PrimExpr> {
        let first = (*exprs.first()?)?;
        let same = |exprs: &[Option<&PrimExpr>]| {
            is_one(exprs).then(|| (!self.may_differ(first, exprs)).then(|| first.clone()))
        };
        if let Some(same) = same(exprs) {
            return same;
        }
        let own = frame(first);
        let is_alike = |expr: &PrimExpr| match first {
            PrimExpr::Int { dtype, .. } => expr.as_int().is_some() && expr.dtype() == *dtype,
            PrimExpr::Float { dtype, .. } => expr.as_float().is_some() && expr.dtype() == *dtype,
            _ => !first.is_leaf() && frame(expr) == own,
        };
        let is_sample = |at: usize| at < self.samples;
        if exprs.iter().take(self.samples).flatten().any(|expr| !is_alike(expr)) {
            return None;
        }
        let exprs: Seen<&PrimExpr> = (exprs.iter().enumerate())
            .map(|(at, expr)| expr.filter(|expr| is_sample(at) || is_alike(expr)))
            .collect();
        if let Some(same) = same(&exprs) {
            return same;
        }
        match first {
            PrimExpr::Int { dtype, .. } => {
                let values = each(&exprs, |expr| expr.as_int())?;
                Some(self.number(&values)?.cast(*dtype))
            }
            PrimExpr::Float { dtype, .. } => {
                self.float(&each(&exprs, |expr| expr.as_float())?, *dtype)
            }
            _ => {
                let all: Seen<Vec<PrimExpr>> = each(&exprs, |expr| Some(children(expr)))?;
                let merged: Option<Vec<PrimExpr>> = (0..children(first).len())
                    .map(|place| {
                        let of_all = all.iter().map(|of| of.as_ref().map(|of| &of[place]));
                        self.merged(&of_all.collect::<Vec<_>>())
                    })
                    .collect();
                let mut merged = merged?.into_iter();
                Some(first.clone().map_children(&mut |child| merged.next().unwrap_or(child)))
            }
        }
    }

    /// Whether an expression has a number, or its reciprocal, that a dimension has in all samples and not at an
    /// edge where it is not seen: it may be that dimension.
    fn may_differ(&self, expr: &PrimExpr, seen: &[Option<&PrimExpr>]) -> bool {
        let unseen = |known: &[i64]| {
            let at_edges = known.iter().zip(seen).filter(|(_, expr)| expr.is_none());
            at_edges.map(|(value, _)| *value).any(|value| value != known[0])
        };
        let is_constant = |known: &[i64]| known[..self.samples].iter().all(|x| *x == known[0]);
        let dims = self.dims.iter().map(|dim| &dim.values);
        let mut numbers =
            dims.filter(|known| is_constant(known) && unseen(known)).map(|known| known[0]);
        numbers.any(|number| {
            expr.any(&mut |expr| {
                let is_number = expr.as_int() == Some(number);
                let float = expr.as_float().map(|value| [value, value.recip().round()]);
                is_number || float.is_some_and(|floats| floats.contains(&(number as f64)))
            })
        })
    }

    /// A float that is a number divided by a dimension or by one less, or the other way round.
    fn quotient(&self, values: &[Option<f64>], dtype: DType) -> Option<PrimExpr> {
        let rounded = |value| rounded(value, dtype);
        let number = |numbers: &[Option<i64>]| match is_one(numbers) {
            true => Some(PrimExpr::index(numbers[0]?)),
            false => self.number(numbers),
        };
        self.dims.iter().flat_map(|dim| [(dim, 0), (dim, 1)]).find_map(|(dim, less)| {
            let expr = dim.expr.clone() - less;
            let pairs: Seen<(f64, f64)> = (dim.values.iter().zip(values))
                .map(|(extent, value)| value.map(|value| ((extent - less) as f64, value)))
                .collect();
            [true, false].into_iter().find_map(|divides| {
                let other = each(&pairs, |&(dim, value)| {
                    let other = if divides { dim * value } else { dim / value }.round();
                    let (numerator, denominator) =
                        if divides { (other, dim) } else { (dim, other) };
                    let holds = other.abs() < 9e15
                        && denominator != 0.0
                        && rounded(numerator / denominator) == rounded(value);
                    holds.then_some(other as i64)
                })?;
                let other = number(&other)?.cast(dtype);
                let expr = expr.clone().cast(dtype);
                Some(if divides { other / expr } else { expr / other })
            })
        })
    }

    /// A float that is a whole number or halves of one, a quotient, or one divided by a number.
    fn float(&self, values: &[Option<f64>], dtype: DType) -> Option<PrimExpr> {
        let whole = |unit: f64| -> Option<PrimExpr> {
            let values = each(values, |value| {
                let value = value * unit;
                (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
            })?;
            Some(self.number(&values)?.cast(dtype))
        };
        let parts = (0..=MOST_HALVED).find_map(|power| {
            let unit = f64::from(1u32 << power);
            let number = whole(unit)?;
            Some(if power == 0 { number } else { number * PrimExpr::float(unit.recip(), dtype) })
        });
        if parts.is_some() {
            return parts;
        }
        if let Some(quotient) = self.quotient(values, dtype) {
            return Some(quotient);
        }
        let rounded = |value| rounded(value, dtype);
        let divisors = each(values, |value| {
            let by = value.recip().round();
            (rounded(by.recip()) == rounded(*value) && by.abs() < 9e15).then_some(by as i64)
        })?;
        Some(PrimExpr::float(1.0, dtype) / self.number(&divisors)?.cast(dtype))
    }
}

/// An expression without its operands.
fn frame(expr: &PrimExpr) -> PrimExpr {
    expr.clone().map_children(&mut |child| PrimExpr::zero(child.dtype()))
}

fn children(expr: &PrimExpr) -> Vec<PrimExpr> {
    let mut children = Vec::new();
    expr.for_each_child(&mut |child| children.push(child.clone()));
    children
}

/// Whether a statement says with sizes of the run how far its loops go, and nothing else.
fn sizes_are_bounds(func: &PrimFuncData, stmt: &Stmt) -> bool {
    let mut are_bounds = true;
    let is_size =
        |expr: &PrimExpr| matches!(expr, PrimExpr::Var { var, .. } if func.dims.contains(var));
    stmt.walk(&mut |stmt| {
        let bound = match stmt {
            Stmt::For { extent, .. } => Some(extent),
            _ => None,
        };
        stmt.for_each_expr(&mut |expr| {
            are_bounds &= Some(expr) == bound || !expr.any(&mut |expr| is_size(expr));
        });
    });
    are_bounds
}

impl Limits {
    /// Whether these are the outermost axes of tensors of more than one element along them, and
    /// elements do not depend on them otherwise: statements have loops that go so far.
    pub(super) fn are_outermost(&self, dag: &ComputeDag) -> bool {
        let is_first = |(&stage, limits): (&StageId, &Vec<AxisLimit>)| match limits.as_slice() {
            [limit] => dag.shape(stage)[..limit.axis].iter().all(|&extent| extent == 1),
            _ => false,
        };
        let are_bounds = |kind: &StageKind| match kind {
            StageKind::Extern { statement, .. } => sizes_are_bounds(&dag.func, &statement.body),
            _ => false,
        };
        self.reductions.is_empty()
            && self.kinds.values().all(are_bounds)
            && self.stages.iter().all(is_first)
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
