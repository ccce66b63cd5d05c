//! Sizes that each run of a compiled model has of its own.
//!
//! Memory is planned, and kernels are made, for the greatest sizes: an element has the same place in
//! all runs, and what belongs to a run is the beginning of each axis. Callers have tensors of the
//! run's own sizes, so inputs and outputs are copied.
//!
//! Where units of the only size, as the images of a batch, have nothing to do with each other, and
//! each takes much work for the weights that it reads, the program is one for a unit instead, which
//! a run repeats: it needs memory for one, and what a layer leaves is in the caches for the next.

use std::collections::BTreeMap;

use super::{Kernel, TensorInfo, ValueId};
use crate::arith::{Atom, Facts, Interval, Symbol, View};
use crate::diagnostics::{Problem, ProblemNode, Report};
use crate::graph::{Call, Callee, Expr, ExprId, Function};
use crate::ir::{Dim, IRModule, Shape};
use crate::ops::nn;
use crate::ops::tensor::{TRUNCATE, TruncateAttrs};
use crate::options::DimSize;
use crate::tir::extent::extent_of;
use crate::tir::transform::{RunTimeLength, RunTimeLengths, SizeBuckets};
use crate::tir::{PrimExpr, PrimFuncData};

/// A dimension of inputs whose size each run has of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunTimeSize {
    /// The symbol in the model.
    pub name: String,
    /// The least size.
    pub min: u64,
    /// The greatest size, for which memory is planned.
    pub max: u64,
    /// Sizes for which kernels have versions of their own.
    pub buckets: Vec<u64>,
    /// Whether a run computes it, instead of being told: see [`Count`].
    pub counted: bool,
}

impl RunTimeSize {
    /// Whether there is a greatest size, and not only the greatest number.
    pub fn is_bounded(&self) -> bool {
        self.max != DimSize::UNBOUNDED
    }

    /// The sizes in words, as `1 to 32` or `1 or more`.
    pub(crate) fn in_words(&self) -> String {
        match self.is_bounded() {
            true => format!("{} to {}", self.min, self.max),
            false => format!("{} or more", self.min),
        }
    }
}

/// A size that a run computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Count {
    /// The number of the size.
    pub size: usize,
    /// The value, a scalar of type `int64`: from the step on that computes it, it is the size, but no
    /// less than the least and no more than the greatest.
    pub value: ValueId,
}

/// An axis whose extent depends on sizes of the run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunTimeAxis {
    /// The axis.
    pub axis: usize,
    /// The extent, over the names of [`RunTimeSizes`].
    pub extent: Dim,
}

/// Where the tensors of a unit are, if a run does one unit of its only size after the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Units {
    /// Bytes of a unit in each of the model's inputs; 0 for what all units read.
    pub inputs: Vec<u64>,
    /// Bytes of a unit in each of the model's outputs; 0 for what is the same for all units.
    pub outputs: Vec<u64>,
}

/// A call of `truncate`.
pub(crate) struct Truncation {
    /// The name of the size that it defines.
    pub(crate) size: String,
    /// What it may be at most.
    pub(crate) extent: Dim,
    /// What the function takes it to be.
    expected: Option<Dim>,
    /// The scalar that says what it is.
    pub(crate) count: ExprId,
}

impl Truncation {
    /// What an expression is, if it is such a call.
    pub(crate) fn of(function: &Function, id: ExprId) -> Option<Truncation> {
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = function.expr(id) else {
            return None;
        };
        let &[Some(x), Some(count)] = args.as_slice() else { return None };
        if !op.is(&TRUNCATE) {
            return None;
        }
        let TruncateAttrs { axis, size, expected } = attrs.parse().ok()?;
        let shape = &function.ty(x).as_tensor()?.shape;
        Some(Truncation { size, extent: shape[shape.axis(axis)?].clone(), expected, count })
    }
}

/// All such dimensions of a model: those of inputs in the order of their names, then counted ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunTimeSizes {
    sizes: Vec<RunTimeSize>,
    /// Pairs of extents that are equal in every run, of sizes that it is told.
    pub equal: Vec<(Dim, Dim)>,
    /// Sizes that it computes, and what the model takes them to be: a run that finds others has no
    /// result.
    pub equal_counts: Vec<(Dim, Dim)>,
}

impl RunTimeSizes {
    /// Those of options; sizes that are fixed are left out.
    pub fn of(dims: &BTreeMap<String, DimSize>) -> RunTimeSizes {
        let open = dims.iter().filter_map(|(name, size)| {
            let bounds = size.bounds()?;
            let (name, min, max) = (name.clone(), *bounds.start(), *bounds.end());
            let buckets = size.buckets().to_vec();
            Some(RunTimeSize { name, min, max, buckets, counted: false })
        });
        RunTimeSizes { sizes: open.collect(), ..RunTimeSizes::default() }
    }

    /// Leaves out the sizes that follow from others by what a function's facts say, has the bounds of
    /// the others that they say, and what is equal in every run.
    pub(crate) fn settle(&mut self, facts: &Facts) {
        self.sizes.retain(|size| facts.definition(&Symbol::new(&size.name)).is_none());
        for size in &mut self.sizes {
            let Interval { lower, upper } = facts.symbol_bounds(&Symbol::new(&size.name));
            let bound = |bound: i64| u64::try_from(bound).unwrap_or(0);
            size.min = lower.map_or(size.min, |lower| size.min.max(bound(lower)));
            size.max = upper.map_or(size.max, |upper| size.max.min(bound(upper)));
            size.buckets.retain(|bucket| (size.min..=size.max).contains(bucket));
        }
        self.equal = facts.equations().collect();
    }

    /// Leaves out sizes for which a value of a function would have an extent below 0, as has what is left of
    /// fewer elements than a window spans, or no window: the least size is greater then, or what takes
    /// several sizes is checked before each run.
    ///
    /// # Errors
    ///
    /// Extents that may be too small for sizes that a run computes, or are for the greatest size. What has
    /// to be equal and holds for some of the sizes that a run computes.
    pub(crate) fn leave_out_negative(&mut self, function: &Function) -> Result<(), Report> {
        let mut extents = BTreeMap::new();
        for id in function.ids() {
            let mut types = vec![function.ty(id)];
            while let Some(ty) = types.pop() {
                types.extend(ty.as_tuple().into_iter().flatten());
                for extent in ty.as_tensor().into_iter().flat_map(|ty| ty.shape.iter()) {
                    extents.entry(extent).or_insert((0, id));
                }
            }
            for extent in windows(function, id) {
                extents.insert(extent, (1, id));
            }
        }
        let mut report = self.open_equations();
        let mut facts = function.facts().clone();
        let is_size = |facts: &Facts, extent: &Dim| facts.bounds_of(extent).lower >= Some(0);
        for (whole, (least, id)) in extents {
            let symbols: Vec<Symbol> = whole.symbols().into_iter().collect();
            let numbers = symbols
                .iter()
                .map(|symbol| self.sizes.iter().position(|size| size.name == symbol.name()));
            let Some(numbers) = numbers.collect::<Option<Vec<usize>>>() else { continue };
            // Of what a run finds there may be too little for a window.
            let is_counted = numbers.iter().any(|&number| self.sizes[number].counted);
            let least = if is_counted { 0 } else { least };
            let above = whole - &Dim::from(least);
            let extent = &above;
            if is_size(&facts, extent) {
                continue;
            }
            let mut refuse = |when: &str, help: &str| {
                let of = if least == 0 { "elements" } else { "windows" };
                let what = format!("there are `{whole}` {of}, which {when}");
                let problem = Problem::new(what).help(help);
                report.push(match ProblemNode::of(function.span(id)) {
                    Some(node) => problem.at(node),
                    None => problem,
                });
            };
            if is_counted {
                let when = "may be below 0 for sizes that a run computes";
                refuse(when, "pad what is shorter than a window");
                continue;
            }
            if let (&[number], [symbol]) = (numbers.as_slice(), symbols.as_slice()) {
                let Some(least) = self.least(number, extent) else {
                    let when = format!("is below {least} for the greatest size");
                    refuse(&when, "choose another greatest size");
                    continue;
                };
                let size = &mut self.sizes[number];
                size.min = least;
                size.buckets.retain(|&bucket| bucket >= least);
                let bounds = Interval { lower: i64::try_from(least).ok(), upper: None };
                if facts.assume_bounds(symbol, bounds).is_ok() && is_size(&facts, extent) {
                    continue;
                }
            }
            let (more, less) = extent.sides();
            self.equal.push((more.clone(), more.maximum(&less)));
        }
        report.into_result(())
    }

    /// What has to be equal and no check of a run tells, as it computes some of it.
    fn open_equations(&self) -> Report {
        let is_counted = |symbol: &Symbol| {
            self.sizes.iter().any(|size| size.counted && size.name == symbol.name())
        };
        let mut report = Report::new();
        for (left, right) in &self.equal {
            if left.symbols().iter().chain(&right.symbols()).any(is_counted) {
                let what = format!(
                    "`{left}` has to be `{right}` in the model, but a run computes them and may find \
                     others"
                );
                let help = "let the model compute one of them alone, and use it for both";
                report.push(Problem::new(what).help(help));
            }
        }
        report
    }

    /// The least size of that number for which an extent that grows with it is not below 0.
    fn least(&self, number: usize, extent: &Dim) -> Option<u64> {
        let size = &self.sizes[number];
        let is_size = |size: u64| {
            let mut sizes = vec![0; self.sizes.len()];
            sizes[number] = i64::try_from(size).unwrap_or(i64::MAX);
            self.value(extent, &sizes).is_none_or(|value| value >= 0)
        };
        let (mut least, mut fits) = (size.min, size.max);
        if !is_size(fits) {
            return None;
        }
        while least < fits {
            let middle = least + (fits - least) / 2;
            if is_size(middle) { fits = middle } else { least = middle + 1 }
        }
        Some(fits)
    }

    /// The first of the pairs that is not equal for sizes, with its values.
    pub(crate) fn unequal(&self, sizes: &[i64]) -> Option<(&(Dim, Dim), [i64; 2])> {
        self.first_unequal(&self.equal, sizes)
    }

    /// Whether sizes are as the model takes them to be, when a run has computed some of them.
    ///
    /// # Errors
    ///
    /// They are not: the results have no meaning.
    pub(crate) fn check_counts(&self, sizes: &[i64]) -> Result<(), Problem> {
        self.first_unequal(&self.equal_counts, sizes).map_or(Ok(()), |unequal| Err(differ(unequal)))
    }

    fn first_unequal<'a>(
        &self,
        pairs: &'a [(Dim, Dim)],
        sizes: &[i64],
    ) -> Option<(&'a (Dim, Dim), [i64; 2])> {
        pairs.iter().find_map(|pair| {
            let value = |dim| self.value(dim, sizes).unwrap_or(0);
            let values = [value(&pair.0), value(&pair.1)];
            (values[0] != values[1]).then_some((pair, values))
        })
    }

    /// The greatest sizes.
    pub(crate) fn greatest_sizes(&self) -> Option<Vec<i64>> {
        self.sizes.iter().map(|size| i64::try_from(size.max).ok()).collect()
    }

    /// Adds the sizes that calls of `truncate` in a module define, in its order: each is 0 at least,
    /// and what is truncated at most. What has to be equal to them is known when a run has computed
    /// them.
    pub(crate) fn add_counted(&mut self, module: &IRModule) {
        for (_, function) in module.functions() {
            for id in function.ids() {
                let Some(found) = Truncation::of(function, id) else { continue };
                // An extent that is not known is that of an input, of which interfaces tell.
                let max = self.greatest(&found.extent).map_or(0, |max| max.max(0).unsigned_abs());
                if let Some(expected) = found.expected {
                    self.equal_counts.push((Dim::symbol(found.size.as_str()), expected));
                }
                // Bounds that an option gives are those of what is truncated.
                self.sizes.retain(|size| size.counted || size.name != found.size);
                if let Some(known) = self.sizes.iter_mut().find(|size| size.name == found.size) {
                    known.max = known.max.max(max);
                } else {
                    let (name, buckets) = (found.size, Vec::new());
                    self.sizes.push(RunTimeSize { name, min: 0, max, buckets, counted: true });
                }
            }
        }
    }

    /// The sizes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RunTimeSize> {
        self.sizes.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// The greatest value of the size of that number.
    pub(crate) fn max(&self, number: usize) -> i64 {
        self.sizes.get(number).map_or(0, |size| i64::try_from(size.max).unwrap_or(i64::MAX))
    }

    /// Whether there is none: every run is like the others.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The sizes of a run, of whose inputs these are the shapes, by what the compiled model says of
    /// them, with those that are `given` by their names.
    ///
    /// # Errors
    ///
    /// An input has another shape than the model's for any sizes within their bounds, or two inputs
    /// do not agree; a size that no input says is not given. Sizes that a run computes are the
    /// greatest before it.
    pub(crate) fn of_run(
        &self,
        infos: &[TensorInfo],
        shapes: &[Vec<u64>],
        given: &[(&str, u64)],
    ) -> Result<Vec<i64>, Problem> {
        let mut found: Vec<Option<(u64, &str)>> = vec![None; self.len()];
        for (name, is) in given {
            let number = self.sizes.iter().position(|size| size.name == *name && !size.counted);
            let Some(number) =
                number.filter(|&n| (self.sizes[n].min..=self.sizes[n].max).contains(is))
            else {
                return Err(Problem::new(format!("`{name}` cannot be {is} in a run")));
            };
            found[number] = Some((*is, "sizes"));
        }
        for (info, shape) in infos.iter().zip(shapes) {
            let name = &info.name;
            let is_open = |axis| info.run_time.iter().any(|open| open.axis == axis);
            let fits = |(axis, (is, should)): (usize, (&u64, &u64))| is == should || is_open(axis);
            let same = shape.len() == info.shape.len()
                && shape.iter().zip(&info.shape).enumerate().all(fits);
            if !same {
                let what =
                    format!("input `{name}` has the shape {shape:?}; it is {}", info.ty_text());
                return Err(Problem::new(what));
            }
            for RunTimeAxis { axis, extent: dim } in &info.run_time {
                let Some((number, factor, offset)) = self.linear(dim) else { continue };
                let (size, extent) = (&self.sizes[number], shape[*axis]);
                let over = i64::try_from(extent).unwrap_or(i64::MAX).checked_sub(offset);
                let is = over.filter(|over| over % factor == 0).map(|over| over / factor);
                let is = is.and_then(|is| u64::try_from(is).ok());
                let Some(is) = is.filter(|is| (size.min..=size.max).contains(is)) else {
                    let of = if dim.as_symbol().is_some() {
                        String::new()
                    } else {
                        format!("it is {dim}, and ")
                    };
                    return Err(Problem::new(format!(
                        "axis {axis} of input `{name}` is {extent}; {of}`{}` is {}..={}",
                        size.name, size.min, size.max
                    )));
                };
                match found[number] {
                    Some((other, first)) if other != is => {
                        return Err(Problem::new(format!(
                            "axis {axis} of input `{name}` is {extent}, but `{}` is {other} in input \
                             `{first}`",
                            size.name
                        )));
                    }
                    _ => found[number] = Some((is, name)),
                }
            }
        }
        let value = |(of, size): (Option<(u64, &str)>, &RunTimeSize)| match of {
            None if !size.counted => {
                Err(Problem::new(format!("no input says the size `{}` of the run", size.name)))
            }
            of => Ok(i64::try_from(of.map_or(size.max, |(is, _)| is)).unwrap_or(i64::MAX)),
        };
        let sizes: Vec<i64> =
            found.into_iter().zip(&self.sizes).map(value).collect::<Result<_, _>>()?;
        if let Some(unequal) = self.unequal(&sizes) {
            return Err(differ(unequal));
        }
        for (info, shape) in infos.iter().zip(shapes) {
            let expected = self.shape_of(info, &sizes);
            if *shape != expected {
                let name = &info.name;
                return Err(Problem::new(format!(
                    "input `{name}` has the shape {shape:?}; for the sizes that other extents say, \
                     it is {expected:?}"
                )));
            }
        }
        Ok(sizes)
    }

    /// The shape of a tensor in a run of these sizes.
    pub(crate) fn shape_of(&self, info: &TensorInfo, sizes: &[i64]) -> Vec<u64> {
        let mut shape = info.shape.clone();
        let value = |symbol: &Symbol| {
            let number = self.sizes.iter().position(|size| size.name == symbol.name())?;
            sizes.get(number).copied()
        };
        for RunTimeAxis { axis, extent } in &info.run_time {
            if let (Some(place), Ok(extent)) = (shape.get_mut(*axis), extent.eval(&value)) {
                *place = extent.max(0).unsigned_abs();
            }
        }
        shape
    }

    /// Gives a function a dimension for each size, in order.
    pub(crate) fn declare(&self, func: &mut PrimFuncData) -> Vec<PrimExpr> {
        let buckets = self.sizes.iter().filter(|size| !size.buckets.is_empty());
        let buckets = buckets.map(|size| (size.name.clone(), size.buckets.clone()));
        SizeBuckets(buckets.collect()).annotate(func);
        self.sizes.iter().map(|size| func.dim(&size.name)).collect()
    }

    /// Tells a kernel, whose parameters with such axes are at these positions, how much of them a run
    /// uses. All sizes are dimensions of the kernel, in order.
    pub(crate) fn limit(&self, kernel: &mut Kernel, axes: &[(usize, RunTimeAxis)]) {
        if axes.is_empty() {
            return;
        }
        for version in &mut kernel.versions {
            let func = version.make_mut();
            if func.dims.is_empty() {
                self.declare(func);
            }
            let length = |(param, RunTimeAxis { axis, extent }): &(usize, RunTimeAxis)| {
                let (param, axis) = (*param, *axis);
                let spec = &func.buffers[func.params.get(param)?.buffer].spec;
                if axis < spec.shape().len() && spec.shape().len() > 1 {
                    return Some(RunTimeLength { param, axis, extent: extent.clone() });
                }
                // All in one axis, as the extent that is open is the outermost.
                let max = self.greatest(extent)?.max(1);
                let elements = spec.num_elements()?;
                let extent = extent * (elements / max);
                (elements % max == 0).then_some(RunTimeLength { param, axis: 0, extent })
            };
            let lengths = RunTimeLengths(axes.iter().filter_map(length).collect());
            lengths.annotate(func);
        }
    }

    /// The value of an extent for the greatest sizes.
    pub(crate) fn greatest(&self, dim: &Dim) -> Option<i64> {
        self.eval(dim, |size| i64::try_from(size.max).ok())
    }

    /// The value of an extent for these sizes.
    pub(crate) fn value(&self, dim: &Dim, sizes: &[i64]) -> Option<i64> {
        let of = |symbol: &Symbol| {
            let number = self.sizes.iter().position(|size| size.name == symbol.name())?;
            sizes.get(number).copied()
        };
        dim.eval(&of).ok()
    }

    /// An extent over the dimensions of a function that [has them](Self::declare).
    pub(crate) fn extent(&self, dim: &Dim, dims: &[PrimExpr]) -> Option<PrimExpr> {
        let symbol = |symbol: &Symbol| {
            let number = self.sizes.iter().position(|size| size.name == symbol.name())?;
            dims.get(number).cloned()
        };
        extent_of(dim, &symbol)
    }

    fn eval(&self, dim: &Dim, value: impl Fn(&RunTimeSize) -> Option<i64>) -> Option<i64> {
        let of = |symbol: &Symbol| value(self.sizes.iter().find(|s| s.name == symbol.name())?);
        dim.eval(&of).ok()
    }

    /// The axes of a shape that depend on sizes.
    ///
    /// # Errors
    ///
    /// An extent has another symbol, or may be greater for other sizes than the greatest.
    pub fn axes(&self, shape: &Shape) -> Result<Vec<RunTimeAxis>, Problem> {
        let open = shape.iter().enumerate().filter(|(_, dim)| !dim.is_const());
        let mut bounds = Facts::dims();
        self.assume(&mut bounds);
        let axis = |(axis, dim): (usize, &Dim)| {
            let (greatest, upper) = (self.greatest(dim), bounds.bounds_of(dim).upper);
            match greatest.filter(|&greatest| upper.is_some_and(|upper| upper <= greatest)) {
                Some(_) => Ok(RunTimeAxis { axis, extent: dim.clone() }),
                None => Err(Problem::new(format!(
                    "a tensor has the shape {shape}: {dim} need not be greatest for the greatest sizes"
                ))),
            }
        };
        open.map(axis).collect()
    }

    /// Adds what the sizes are between, of which nothing else is known yet.
    pub(crate) fn assume(&self, facts: &mut Facts) {
        for size in &self.sizes {
            let [lower, upper] = [size.min, size.max].map(|bound| i64::try_from(bound).ok());
            // Bounds that are upside down are found when the interface is made.
            let _ = facts.assume_bounds(&Symbol::new(&size.name), Interval { lower, upper });
        }
    }

    /// The number of a size, a factor of at least 1 and a summand, if an extent is so many times the
    /// size and so many more.
    pub(crate) fn linear(&self, dim: &Dim) -> Option<(usize, i64, i64)> {
        let View::Poly(poly) = dim.view() else { return None };
        let [term] = poly.terms() else { return None };
        let Some(Atom::Symbol(symbol)) = term.as_atom() else { return None };
        let size = self.sizes.iter().position(|size| size.name == symbol.name())?;
        (term.coefficient() > 0).then_some((size, term.coefficient(), poly.constant()))
    }
}

/// How many windows a call of a convolution or pool has along axes, where that is not as many as there are
/// elements.
fn windows(function: &Function, id: ExprId) -> impl Iterator<Item = &Dim> {
    let of = |id| function.ty(id).as_tensor().map_or(&[][..], |ty| &ty.shape[..]);
    let (windows, elements) = match function.expr(id) {
        Expr::Call(Call { callee: Callee::Op(op), args, .. }) if nn::has_windows(*op) => {
            (of(id), args.first().copied().flatten().map_or(&[][..], of))
        }
        _ => (&[][..], &[][..]),
    };
    let along = windows.iter().zip(elements).skip(2);
    along.filter(|(windows, elements)| windows != elements).map(|(windows, _)| windows)
}

/// The problem of extents that are equal in the model, but not in a run.
fn differ(((left, right), [is, other]): (&(Dim, Dim), [i64; 2])) -> Problem {
    Problem::new(match right.is_const() {
        true => format!("`{left}` is {is}, but the model takes it to be {other}"),
        false => {
            format!("`{left}` is {is}, but `{right}` is {other}; they are equal in the model")
        }
    })
}
