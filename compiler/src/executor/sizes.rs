//! Sizes that each run of a compiled model has of its own.
//!
//! Memory is planned, and kernels are made, for the greatest sizes. What belongs to a run is then the
//! beginning of each tensor: so the outermost axis alone may have such a size, and no element may
//! depend on those behind.
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
use crate::tir::PrimFuncData;
use crate::tir::transform::RunTimeLengths;

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
    /// The axis: those before it have one element.
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
            let open = info.run_time.map(|open| open.axis);
            let fits =
                |(axis, (is, should)): (usize, (&u64, &u64))| is == should || open == Some(axis);
            let same = shape.len() == info.shape.len()
                && shape.iter().zip(&info.shape).enumerate().all(fits);
            if !same {
                let what =
                    format!("input `{name}` has the shape {shape:?}; it is {}", info.ty_text(self));
                return Err(Problem::new(what));
            }
            let Some(RunTimeAxis { axis, size: number, factor: _ }) = info.run_time else {
                continue;
            };
            let (Some(size), Some(is)) = (self.sizes.get(number), shape.get(axis).copied()) else {
                continue;
            };
            if !(size.min..=size.max).contains(&is) {
                return Err(Problem::new(format!(
                    "axis {axis} of input `{name}` is {is}; `{}` is {}..={}",
                    size.name, size.min, size.max
                )));
            }
            match found[number] {
                Some((other, first)) if other != is => {
                    return Err(Problem::new(format!(
                        "axis {axis} of input `{name}` is {is}, but `{}` is {other} in input `{first}`",
                        size.name
                    )));
                }
                _ => found[number] = Some((is, name)),
            }
        }
        // Each size is one of some input, and fits `i64`.
        let value = |of: Option<(u64, &str)>| of.and_then(|(is, _)| i64::try_from(is).ok());
        Ok(found.into_iter().map(|of| value(of).unwrap_or(1)).collect())
    }

    /// The shape of a tensor in a run of these sizes.
    pub(crate) fn shape_of(&self, info: &TensorInfo, sizes: &[i64]) -> Vec<u64> {
        let mut shape = info.shape.clone();
        if let Some(RunTimeAxis { axis, size, factor }) = info.run_time
            && let (Some(extent), Some(&size)) = (shape.get_mut(axis), sizes.get(size))
        {
            *extent = size.unsigned_abs().saturating_mul(factor);
        }
        shape
    }

    /// Gives a function a dimension for each size, in order.
    pub(crate) fn declare(&self, func: &mut PrimFuncData) {
        for size in &self.sizes {
            func.dim(&size.name);
        }
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
            let length = |&(position, RunTimeAxis { size, .. }): &(usize, RunTimeAxis)| {
                let spec = &func.buffers[func.params.get(position)?.buffer].spec;
                let max = i64::try_from(self.sizes.get(size)?.max).ok()?;
                let elements = spec.physical_len().ok()?;
                (elements % max == 0).then_some((position, size, elements / max))
            };
            let lengths = RunTimeLengths(axes.iter().filter_map(length).collect());
            lengths.annotate(func);
        }
    }

    /// The value of an extent for the greatest sizes.
    pub(crate) fn greatest(&self, dim: &Dim) -> Option<i64> {
        self.eval(dim, |size| i64::try_from(size.max).ok())
    }

    /// The value of an extent for other sizes than the greatest, but for those that are always 1:
    /// what is made for one element has another form.
    pub(crate) fn other(&self, dim: &Dim) -> Option<i64> {
        self.eval(dim, |size| match i64::try_from(size.max).ok()? {
            1 => Some(1),
            max => max.checked_mul(2)?.checked_add(1),
        })
    }

    fn eval(&self, dim: &Dim, value: impl Fn(&RunTimeSize) -> Option<i64>) -> Option<i64> {
        let of = |symbol: &Symbol| value(self.sizes.iter().find(|s| s.name == symbol.name())?);
        dim.eval(&of).ok()
    }

    /// The axis of a shape that depends on a size, if there is one.
    ///
    /// # Errors
    ///
    /// It is not the outermost one of more than one element, or not the only one, or no multiple of
    /// a size.
    pub fn axis(&self, shape: &Shape) -> Result<Option<RunTimeAxis>, Problem> {
        let mut open = shape.iter().enumerate().filter(|(_, dim)| !dim.is_const());
        let Some((axis, dim)) = open.next() else { return Ok(None) };
        let refuse =
            |why: String| Err(Problem::new(format!("a tensor has the shape {shape}: {why}")));
        let outermost = shape.iter().take(axis).all(|dim| dim.as_const() == Some(1));
        if let Some((axis, dim)) = if outermost { open.next() } else { Some((axis, dim)) } {
            return refuse(format!(
                "only the outermost axis can have an extent that is known at run time alone; axis \
                 {axis} is {dim}"
            ));
        }
        match self.multiple(dim) {
            Some((size, factor)) => Ok(Some(RunTimeAxis { axis, size, factor })),
            None => refuse(format!("{dim} is no multiple of a size that is known at run time")),
        }
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
