//! Dimensions of a function whose buffers have extents that are not constant: where a call takes
//! them from, and what must hold of the shapes of its arrays (TVM's `ArgBinder`).

use std::collections::BTreeMap;

use super::error::{ArgumentProblem, CallErrorKind, WrongExtent, WrongType};
use super::function::{Arg, Parameter};
use crate::codegen::{PackedDim, PackedExtent, Size};
use crate::ir::BufferSpec;
use crate::tir::extent::value_of;
use crate::tir::print::expr_text;
use crate::tir::{PrimExpr, PrimFunc, Stmt, VarId};

/// An expression over dimensions.
#[derive(Clone, Debug)]
struct Extent {
    value: PrimExpr,
    /// For people.
    text: String,
}

impl Extent {
    fn new(func: &PrimFunc, value: PrimExpr) -> Extent {
        let text = expr_text(func, &value);
        Extent { value, text }
    }
}

/// A dimension of the function.
#[derive(Clone, Debug)]
struct Dim {
    var: VarId,
    name: String,
    source: Source,
}

/// Where a dimension comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The extent of the parameter at a position, along an axis.
    Shape(usize, usize),
    /// The caller passes it; its number among those.
    Argument(usize),
}

/// The dimensions of a function and what they must be.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    dims: Vec<Dim>,
    /// The extents of each parameter, where one is not constant.
    extents: Vec<Option<Vec<Extent>>>,
    /// Extents of reductions that begin with their first element: there must be one.
    reduced: Vec<Extent>,
}

/// What a call is made with.
pub(super) struct Bound {
    /// The dimensions, in order.
    pub(super) dims: Vec<i64>,
    /// The layout of each parameter that has none of its own.
    pub(super) specs: Vec<Option<BufferSpec>>,
}

impl Sizes {
    /// Those of a function that was not lowered. A dimension that is an extent of some parameter is
    /// taken from its shape, from the first one; the caller passes the others.
    pub(super) fn of(func: &PrimFunc) -> Sizes {
        let buffers: Vec<_> = func.params.iter().map(|param| &func.buffers[param.buffer]).collect();
        let extents = buffers
            .iter()
            .map(|buffer| {
                let extents = buffer.symbolic.clone()?;
                Some(extents.into_iter().map(|extent| Extent::new(func, extent)).collect())
            })
            .collect();
        let mut passed = 0;
        let dims = func.dims.iter().map(|&var| {
            let shape = buffers.iter().enumerate().find_map(|(position, buffer)| {
                let is_it = |extent: &PrimExpr| *extent == func.var_expr(var);
                Some((position, buffer.symbolic.as_ref()?.iter().position(is_it)?))
            });
            let source = match shape {
                Some((position, axis)) => Source::Shape(position, axis),
                None => {
                    passed += 1;
                    Source::Argument(passed - 1)
                }
            };
            Dim { var, name: func.vars[var].name.clone(), source }
        });
        let dims = dims.collect();
        Sizes { dims, extents, reduced: reduced(func) }
    }

    /// Names of the dimensions that the caller passes.
    pub(super) fn passed(&self) -> Vec<String> {
        let is_passed = |dim: &&Dim| matches!(dim.source, Source::Argument(_));
        self.dims.iter().filter(is_passed).map(|dim| dim.name.clone()).collect()
    }

    /// The extents of a parameter as text, where one is not constant.
    pub(super) fn texts(&self, position: usize) -> Option<Vec<String>> {
        let extents = self.extents.get(position)?.as_ref()?;
        Some(extents.iter().map(|extent| extent.text.clone()).collect())
    }

    /// Takes the dimensions from the arguments of a call, and checks that shapes agree.
    ///
    /// # Errors
    ///
    /// An array has another type, number of axes or extent than its parameter with these
    /// dimensions, or a reduction has no element.
    pub(super) fn bind(
        &self,
        parameters: &[Parameter],
        args: &[Arg<'_>],
    ) -> Result<Bound, CallErrorKind> {
        let problem = |position: usize, problem| {
            let name = parameters.get(position).map(|parameter| parameter.name.clone());
            let name = name.unwrap_or_default();
            CallErrorKind::Argument { position, name, problem }
        };
        let mut shapes: Vec<&[i64]> = Vec::with_capacity(parameters.len());
        let mut specs = Vec::with_capacity(parameters.len());
        for (position, (parameter, extents)) in parameters.iter().zip(&self.extents).enumerate() {
            let (found, shape) = match args.get(position) {
                Some(Arg::Read(view)) => (view.dtype, view.shape),
                Some(Arg::Write(view)) => (view.dtype, view.shape),
                // Said with the argument itself.
                Some(Arg::Int(_)) | None => {
                    return Err(problem(position, ArgumentProblem::NotAnArray));
                }
            };
            shapes.push(shape);
            specs.push(extents.as_ref().map(|_| BufferSpec::dense(shape)));
            if let Some(extents) = extents
                && (found != parameter.dtype || shape.len() != extents.len())
            {
                let expected = self.texts(position).unwrap_or_default();
                let expected = (parameter.dtype, expected);
                let found = (found, shape.to_vec());
                let wrong = Box::new(WrongType { expected, found });
                return Err(problem(position, ArgumentProblem::SymbolicType(wrong)));
            }
        }
        let passed: Vec<i64> = args
            .iter()
            .skip(parameters.len())
            .filter_map(|arg| if let Arg::Int(value) = arg { Some(*value) } else { None })
            .collect();
        let value = |dim: &Dim| match dim.source {
            Source::Shape(position, axis) => shapes.get(position)?.get(axis).copied(),
            Source::Argument(number) => passed.get(number).copied(),
        };
        let dims: Vec<i64> = self.dims.iter().map(|dim| value(dim).unwrap_or(0)).collect();
        let values = self.dims.iter().map(|dim| dim.var).zip(dims.iter().copied()).collect();
        for (position, (extents, shape)) in self.extents.iter().zip(&shapes).enumerate() {
            for (axis, (extent, &found)) in extents.iter().flatten().zip(*shape).enumerate() {
                let expected = value_of(&extent.value, &values);
                if expected != Some(found) {
                    let because = self.because(&extent.value, &values, parameters);
                    let extent = extent.text.clone();
                    let wrong = WrongExtent { axis, extent, expected, found, because };
                    let wrong = ArgumentProblem::Extent(Box::new(wrong));
                    return Err(problem(position, wrong));
                }
            }
        }
        for extent in &self.reduced {
            if value_of(&extent.value, &values).is_some_and(|count| count < 1) {
                let because = self.because(&extent.value, &values, parameters);
                let extent = extent.text.clone();
                return Err(CallErrorKind::EmptyReduction { extent, because });
            }
        }
        Ok(Bound { dims, specs })
    }

    /// The values of an extent's variables, and where they come from.
    fn because(
        &self,
        extent: &PrimExpr,
        values: &BTreeMap<VarId, i64>,
        parameters: &[Parameter],
    ) -> String {
        let used = self.dims.iter().filter(|dim| extent.uses(dim.var));
        let reasons = used.map(|dim| {
            let value = values.get(&dim.var).copied().unwrap_or(0);
            match dim.source {
                Source::Shape(position, axis) => {
                    let name = parameters.get(position).map_or("?", |it| &it.name);
                    format!("{} is {value}, axis {axis} of `{name}`", dim.name)
                }
                Source::Argument(_) => format!("{} is {value}", dim.name),
            }
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// The dimensions, as a packed function takes them.
    pub(super) fn packed_dims(&self) -> Vec<PackedDim> {
        let dims = self.dims.iter();
        dims.map(|dim| PackedDim { name: dim.name.clone(), size: size(dim.source) }).collect()
    }

    /// The extents of a parameter, as a packed function checks them.
    pub(super) fn packed_extents(&self, position: usize) -> Option<Vec<PackedExtent>> {
        let extents = self.extents.get(position)?.as_ref()?;
        extents.iter().map(|extent| self.packed_extent(extent)).collect()
    }

    /// The extents of reductions that must have an element, as a packed function checks them.
    pub(super) fn packed_reduced(&self) -> Vec<PackedExtent> {
        self.reduced.iter().filter_map(|extent| self.packed_extent(extent)).collect()
    }

    fn packed_extent(&self, extent: &Extent) -> Option<PackedExtent> {
        let dims = self.dims.iter().map(|dim| (dim.var, size(dim.source))).collect();
        Some(PackedExtent { size: Size::of(&extent.value, &dims)?, text: extent.text.clone() })
    }
}

fn size(source: Source) -> Size {
    match source {
        Source::Shape(position, axis) => Size::Extent(position, axis),
        Source::Argument(number) => Size::Argument(number),
    }
}

/// The extents, where not constant, along which blocks reduce that have their init with them: it
/// runs with the first element.
fn reduced(func: &PrimFunc) -> Vec<Extent> {
    let mut found: Vec<PrimExpr> = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::BlockRealize(block) = stmt
            && block.init.is_some()
        {
            let extents = block.iters_of(crate::tir::IterKind::Reduce).map(|iter| &iter.extent);
            let is_new = |extent: &&PrimExpr| extent.as_int().is_none() && !found.contains(extent);
            let new: Vec<PrimExpr> = extents.filter(is_new).cloned().collect();
            found.extend(new);
        }
    });
    // The verifier lets an extent be made of dimensions and of variables of blocks around; of the
    // latter nothing is known here.
    let known = |extent: &PrimExpr| {
        let mut known = true;
        extent.walk(&mut |expr| {
            known &= !matches!(expr, PrimExpr::Var { var, .. } if !func.dims.contains(var));
        });
        known
    };
    found.into_iter().filter(known).map(|extent| Extent::new(func, extent)).collect()
}
