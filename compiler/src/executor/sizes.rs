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

use super::{Kernel, TensorInfo};
use crate::arith::{Atom, Symbol, View};
use crate::diagnostics::Problem;
use crate::ir::{Dim, Shape};
use crate::options::DimSize;
use crate::tir::{PrimExpr, PrimFuncData};
use crate::tir::transform::{RunTimeLength, RunTimeLengths};

/// A dimension of inputs whose size each run has of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunTimeSize {
    /// The symbol in the model.
    pub name: String,
    /// The least size: at least 1.
    pub min: u64,
    /// The greatest size, for which memory is planned.
    pub max: u64,
}

/// An axis whose extent depends on a size of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunTimeAxis {
    /// The axis.
    pub axis: usize,
    /// The number of the size among [`RunTimeSizes`].
    pub size: usize,
    /// The extent is so many times the size.
    pub factor: u64,
}

/// Where the tensors of a unit are, if a run does one unit of its only size after the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Units {
    /// Bytes of a unit in each of the model's inputs; 0 for what all units read.
    pub inputs: Vec<u64>,
    /// Bytes of a unit in each of the model's outputs; 0 for what is the same for all units.
    pub outputs: Vec<u64>,
}

/// All such dimensions of a model, in the order of their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunTimeSizes {
    sizes: Vec<RunTimeSize>,
}

impl RunTimeSizes {
    /// Those of options; sizes that are fixed are left out.
    pub fn of(dims: &BTreeMap<String, DimSize>) -> RunTimeSizes {
        let open = dims.iter().filter_map(|(name, size)| {
            let bounds = size.bounds()?;
            Some(RunTimeSize { name: name.clone(), min: *bounds.start(), max: *bounds.end() })
        });
        RunTimeSizes { sizes: open.collect() }
    }

    /// The sizes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RunTimeSize> {
        self.sizes.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there is none: every run is like the others.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The sizes of a run, of whose inputs these are the shapes, by what the compiled model says of
    /// them.
    ///
    /// # Errors
    ///
    /// An input has another shape than the model's for any sizes within their bounds, or two inputs
    /// do not agree.
    pub(crate) fn of_run(
        &self,
        infos: &[TensorInfo],
        shapes: &[Vec<u64>],
    ) -> Result<Vec<i64>, Problem> {
        let mut found: Vec<Option<(u64, &str)>> = vec![None; self.len()];
        for (info, shape) in infos.iter().zip(shapes) {
            let name = &info.name;
            let is_open = |axis| info.run_time.iter().any(|open| open.axis == axis);
            let fits = |(axis, (is, should)): (usize, (&u64, &u64))| is == should || is_open(axis);
            let same = shape.len() == info.shape.len()
                && shape.iter().zip(&info.shape).enumerate().all(fits);
            if !same {
                let what =
                    format!("input `{name}` has the shape {shape:?}; it is {}", info.ty_text(self));
                return Err(Problem::new(what));
            }
            for &RunTimeAxis { axis, size: number, factor } in &info.run_time {
                let (Some(size), Some(extent)) = (self.sizes.get(number), shape.get(axis).copied())
                else {
                    continue;
                };
                let is = extent / factor.max(1);
                if extent % factor.max(1) != 0 || !(size.min..=size.max).contains(&is) {
                    let times = if factor == 1 { String::new() } else { format!("{factor} times ") };
                    return Err(Problem::new(format!(
                        "axis {axis} of input `{name}` is {extent}; {times}`{}` is {}..={}",
                        size.name,
                        size.min * factor,
                        size.max * factor
                    )));
                }
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
        // Each size is one of some input, and fits `i64`.
        let value = |of: Option<(u64, &str)>| of.and_then(|(is, _)| i64::try_from(is).ok());
        Ok(found.into_iter().map(|of| value(of).unwrap_or(1)).collect())
    }

    /// The shape of a tensor in a run of these sizes.
    pub(crate) fn shape_of(&self, info: &TensorInfo, sizes: &[i64]) -> Vec<u64> {
        let mut shape = info.shape.clone();
        for &RunTimeAxis { axis, size, factor } in &info.run_time {
            if let (Some(extent), Some(&size)) = (shape.get_mut(axis), sizes.get(size)) {
                *extent = size.unsigned_abs().saturating_mul(factor);
            }
        }
        shape
    }

    /// Gives a function a dimension for each size, in order.
    pub(crate) fn declare(&self, func: &mut PrimFuncData) -> Vec<PrimExpr> {
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
            let length = |&(param, RunTimeAxis { axis, size, factor }): &(usize, RunTimeAxis)| {
                let spec = &func.buffers[func.params.get(param)?.buffer].spec;
                let unit = i64::try_from(factor).ok()?;
                if axis < spec.shape().len() && spec.shape().len() > 1 {
                    return Some(RunTimeLength { param, axis, dim: size, unit });
                }
                // All in one axis, as the extent that is open is the outermost.
                let max = i64::try_from(self.sizes.get(size)?.max).ok()?;
                let elements = spec.num_elements()?;
                let unit = elements / max;
                (elements % max == 0).then_some(RunTimeLength { param, axis: 0, dim: size, unit })
            };
            let lengths = RunTimeLengths(axes.iter().filter_map(length).collect());
            lengths.annotate(func);
        }
    }

    /// The value of an extent for the greatest sizes.
    pub(crate) fn greatest(&self, dim: &Dim) -> Option<i64> {
        self.eval(dim, |size| i64::try_from(size.max).ok())
    }

    /// The value of an extent for the greatest sizes but one, of which it has [another](Self::another).
    pub(crate) fn other(&self, number: usize, dim: &Dim) -> Option<i64> {
        let changed = self.sizes.get(number)?;
        self.eval(dim, |size| match size == changed {
            true => self.another(number),
            false => i64::try_from(size.max).ok(),
        })
    }

    /// Another size than the greatest, but for one that is always 1: what is made for one element has
    /// another form.
    pub(crate) fn another(&self, number: usize) -> Option<i64> {
        match i64::try_from(self.sizes.get(number)?.max).ok()? {
            1 => Some(1),
            max => max.checked_mul(2)?.checked_add(1),
        }
    }

    fn eval(&self, dim: &Dim, value: impl Fn(&RunTimeSize) -> Option<i64>) -> Option<i64> {
        let of = |symbol: &Symbol| value(self.sizes.iter().find(|s| s.name == symbol.name())?);
        dim.eval(&of).ok()
    }

    /// The axes of a shape that depend on sizes.
    ///
    /// # Errors
    ///
    /// An extent is no multiple of a size.
    pub fn axes(&self, shape: &Shape) -> Result<Vec<RunTimeAxis>, Problem> {
        let open = shape.iter().enumerate().filter(|(_, dim)| !dim.is_const());
        let axis = |(axis, dim): (usize, &Dim)| match self.multiple(dim) {
            Some((size, factor)) => Ok(RunTimeAxis { axis, size, factor }),
            None => Err(Problem::new(format!(
                "a tensor has the shape {shape}: {dim} is no multiple of a size that is known at run \
                 time"
            ))),
        };
        open.map(axis).collect()
    }

    /// The size and the factor of which an extent is the product.
    fn multiple(&self, dim: &Dim) -> Option<(usize, u64)> {
        let View::Poly(poly) = dim.view() else { return None };
        let ([term], 0) = (poly.terms(), poly.constant()) else { return None };
        let Some(Atom::Symbol(symbol)) = term.as_atom() else { return None };
        let size = self.sizes.iter().position(|size| size.name == symbol.name())?;
        Some((size, u64::try_from(term.coefficient()).ok()?))
    }
}
