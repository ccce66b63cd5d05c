//! What the reference evaluations share: access to arguments and results, and index arithmetic.

use std::iter;

use serde::de::DeserializeOwned;

use super::{EvalError, InferArg, InferCx, InputKind, OpDef};
use crate::arith::{Facts, Symbol};
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, TensorType, Type};

/// Most elements that one result may have.
///
/// An element takes 8 or 16 bytes here. The largest weights of common vision models have 2^27
/// elements, so this leaves room for them, and an evaluation of a hostile model is refused before
/// it takes the machine's memory.
pub(super) const MAX_ELEMENTS: u64 = 1 << 28;

/// A call being evaluated, which the operator's type relation has accepted.
pub struct EvalCx<'a> {
    def: &'static OpDef,
    attrs: &'a Attrs,
    args: &'a [Option<&'a Tensor>],
    results: Vec<(DType, Vec<usize>)>,
}

impl<'a> EvalCx<'a> {
    /// Runs the type relation on the types of the arguments.
    ///
    /// # Errors
    ///
    /// If the relation does not hold, an extent is not a number, or a result has more than
    /// [`MAX_ELEMENTS`].
    pub(super) fn new(
        def: &'static OpDef,
        attrs: &'a Attrs,
        args: &'a [Option<&'a Tensor>],
    ) -> Result<EvalCx<'a>, EvalError> {
        let variadic = def.inputs.last().is_some_and(|input| input.kind == InputKind::Variadic);
        if args.len() > def.inputs.len() && !variadic {
            return Err(EvalError::new(format!(
                "`{}` takes at most {} inputs, but {} are given",
                def.name,
                def.inputs.len(),
                args.len()
            )));
        }
        let types: Vec<Option<Type>> =
            args.iter().map(|arg| arg.map(|tensor| tensor.ty().into())).collect();
        let infer_args: Vec<Option<InferArg<'_>>> = types
            .iter()
            .map(|ty| ty.as_ref().map(|ty| InferArg { ty, shape_value: None, constant: None }))
            .collect();
        // Extents are numbers here, so there is nothing to know about symbols.
        static FACTS: Facts = Facts::new();
        let cx = InferCx { op: def, args: &infer_args, attrs, facts: &FACTS, equal: None };
        let ty = super::infer(&cx)?;
        let size = super::tensor::size_of(def, attrs, args);
        let results = match &ty {
            Type::Tensor(tensor) => vec![concrete(def, tensor, size.as_ref())?],
            Type::Tuple(fields) => fields
                .iter()
                .filter_map(Type::as_tensor)
                .map(|tensor| concrete(def, tensor, size.as_ref()))
                .collect::<Result<_, _>>()?,
            Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => Vec::new(),
        };
        Ok(EvalCx { def, attrs, args, results })
    }

    /// The operator.
    pub(super) fn op(&self) -> &'static OpDef {
        self.def
    }

    /// The attributes.
    pub(super) fn attributes(&self) -> &'a Attrs {
        self.attrs
    }

    /// The attributes as the operator's struct.
    ///
    /// # Errors
    ///
    /// If they do not fit.
    pub fn attrs<T: DeserializeOwned>(&self) -> Result<T, EvalError> {
        self.attrs.parse().map_err(|error| EvalError::new(format!("attributes: {error}")))
    }

    /// An argument that the type relation requires.
    ///
    /// # Errors
    ///
    /// If it is absent.
    pub fn arg(&self, index: usize) -> Result<&'a Tensor, EvalError> {
        self.optional(index).ok_or_else(|| {
            EvalError::new(format!("input {index} of `{}` is missing", self.def.name))
        })
    }

    /// An argument that may be absent.
    pub fn optional(&self, index: usize) -> Option<&'a Tensor> {
        self.args.get(index).copied().flatten()
    }

    /// All arguments that are there.
    pub fn args(&self) -> impl Iterator<Item = &'a Tensor> {
        self.args.iter().copied().flatten()
    }

    /// The elements of a floating-point argument.
    ///
    /// # Errors
    ///
    /// If it is absent or of another type.
    pub fn floats(&self, index: usize) -> Result<&'a [f64], EvalError> {
        floats(self.arg(index)?)
    }

    /// The elements of an integer or boolean argument.
    ///
    /// # Errors
    ///
    /// If it is absent or of another type.
    pub fn ints(&self, index: usize) -> Result<&'a [i128], EvalError> {
        ints(self.arg(index)?)
    }

    /// The extents of the first result.
    pub fn shape(&self) -> &[usize] {
        self.results.first().map_or(&[], |(_, shape)| shape)
    }

    /// Number of elements of the first result.
    pub(super) fn len(&self) -> usize {
        num_elements(self.shape())
    }

    /// The extents of each result.
    pub(super) fn shapes(&self) -> impl Iterator<Item = &[usize]> {
        self.results.iter().map(|(_, shape)| shape.as_slice())
    }

    /// The only result, from its elements, which are rounded to its data type.
    ///
    /// # Errors
    ///
    /// If they are not as many as the result has, or of another kind.
    pub fn result(&self, elements: Elements) -> Result<Vec<Tensor>, EvalError> {
        self.results(iter::once(elements))
    }

    /// The only result, from elements of an argument of its type, at these offsets.
    pub(super) fn picked(
        &self,
        from: &Tensor,
        offsets: impl Iterator<Item = usize>,
    ) -> Result<Vec<Tensor>, EvalError> {
        Ok(vec![from.pick(self.shape(), offsets)?])
    }

    /// The results, from their elements.
    pub(super) fn results(
        &self,
        elements: impl IntoIterator<Item = Elements>,
    ) -> Result<Vec<Tensor>, EvalError> {
        iter::zip(&self.results, elements)
            .map(|((dtype, shape), elements)| Ok(Tensor::from_elements(*dtype, shape, elements)?))
            .collect()
    }
}

/// The extents of a type as numbers, of which one symbol may have a value.
fn concrete(
    def: &OpDef,
    ty: &TensorType,
    size: Option<&(Symbol, i64)>,
) -> Result<(DType, Vec<usize>), EvalError> {
    let value = |symbol: &Symbol| size.filter(|(of, _)| of == symbol).map(|&(_, value)| value);
    let extent = |dim: &Dim| usize::try_from(dim.eval(&value).ok()?).ok();
    let shape: Option<Vec<usize>> = ty.shape.iter().map(extent).collect();
    let shape = shape.ok_or_else(|| {
        EvalError::new(format!(
            "the result of `{}` is {ty}: its symbols have no values here",
            def.name
        ))
    })?;
    let product = || shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent as u64));
    let elements = if shape.contains(&0) { Some(0) } else { product() };
    match elements {
        Some(n) if n <= MAX_ELEMENTS => Ok((ty.dtype, shape)),
        _ => Err(EvalError::new(format!(
            "the result of `{}` is {ty}: more than the {MAX_ELEMENTS} elements that an evaluation may have",
            def.name
        ))),
    }
}

/// The elements of a floating-point tensor.
pub(super) fn floats(tensor: &Tensor) -> Result<&[f64], EvalError> {
    tensor.floats().ok_or_else(|| {
        EvalError::new(format!("floats are needed, but a tensor is {}", tensor.ty()))
    })
}

/// The elements of an integer or boolean tensor.
pub(super) fn ints(tensor: &Tensor) -> Result<&[i128], EvalError> {
    tensor.ints().ok_or_else(|| {
        EvalError::new(format!("integers are needed, but a tensor is {}", tensor.ty()))
    })
}

/// The product of the extents.
///
/// A tensor without elements may have any other extents, so the product must not overflow on the
/// way; those of tensors with elements were checked.
pub(super) fn num_elements(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(1usize, |product, &extent| product.saturating_mul(extent))
}

/// The distance between neighbours along each axis of a dense row-major tensor.
pub(super) fn dense_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1usize;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        strides[axis] = stride as isize;
        // An empty tensor has no elements to be reached, whatever its other extents.
        stride = stride.saturating_mul(extent.max(1));
    }
    strides
}

/// The strides by which a dense tensor of `shape` is read when it is broadcast to `to`, which has
/// at least as many dimensions.
pub(super) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; to.len().saturating_sub(shape.len())];
    let dense = dense_strides(shape);
    strides.extend(
        iter::zip(shape, dense).map(|(&extent, stride)| if extent == 1 { 0 } else { stride }),
    );
    strides
}

/// The offsets of the elements of a strided view in row-major order.
pub(super) struct Offsets<'a> {
    shape: &'a [usize],
    strides: &'a [isize],
    index: Vec<usize>,
    offset: isize,
    left: usize,
}

/// Walks a view of `shape` whose element at the origin is at `start`.
pub(super) fn offsets<'a>(shape: &'a [usize], strides: &'a [isize], start: usize) -> Offsets<'a> {
    Offsets {
        shape,
        strides,
        index: vec![0; shape.len()],
        offset: start as isize,
        left: num_elements(shape),
    }
}

impl Iterator for Offsets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.offset as usize;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            self.offset = self.offset.wrapping_add(self.strides[axis]);
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.index[axis] = 0;
            let span = self.strides[axis].wrapping_mul(self.shape[axis] as isize);
            self.offset = self.offset.wrapping_sub(span);
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Offsets<'_> {}

/// A shape seen from one axis: the number of positions before it, along it and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AxisSplit {
    /// Product of the extents before the axis.
    pub(super) outer: usize,
    /// The axis's extent.
    pub(super) extent: usize,
    /// Product of the extents after the axis: the stride along it.
    pub(super) inner: usize,
}

impl AxisSplit {
    pub(super) fn new(shape: &[usize], axis: usize) -> AxisSplit {
        AxisSplit {
            outer: num_elements(&shape[..axis]),
            extent: shape[axis],
            inner: num_elements(&shape[axis + 1..]),
        }
    }

    /// The offset of the first element of each line along the axis; none if lines are empty.
    pub(super) fn starts(self) -> impl Iterator<Item = usize> {
        let outer = if self.extent == 0 || self.inner == 0 { 0 } else { self.outer };
        (0..outer).flat_map(move |outer| {
            (0..self.inner).map(move |inner| outer * self.extent * self.inner + inner)
        })
    }

    /// The offsets of a line that starts there.
    pub(super) fn line(self, start: usize) -> impl Iterator<Item = usize> {
        (0..self.extent).map(move |index| start + index * self.inner)
    }
}

/// Turns an axis of an argument, which the type relation has checked, into an index.
pub(super) fn axis_of(tensor: &Tensor, axis: i64) -> Result<usize, EvalError> {
    crate::ir::normalize_axis(axis, tensor.shape().len()).ok_or_else(|| {
        EvalError::new(format!("axis {axis} is out of range for a tensor {}", tensor.ty()))
    })
}
