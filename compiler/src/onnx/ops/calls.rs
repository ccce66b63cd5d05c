//! Short forms of calls that decompositions are made of.

use super::slice::places;
use crate::graph::ExprId;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Constant, DType, Dim};
use crate::onnx::import::{Node, NodeError};
use crate::ops::OpDef;
use crate::ops::elementwise::{ADD, CLIP, ClipAttrs, DIVIDE, MULTIPLY, SUBTRACT, WHERE};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{
    ARANGE, ArangeAttrs, BROADCAST_TO, BroadcastToAttrs, CONCATENATE, ConcatenateAttrs, FULL,
    FullAttrs, STRIDED_SLICE, StridedSliceAttrs, TAKE, TRANSPOSE, TakeAttrs, TakeMode,
    TransposeAttrs,
};

impl Node<'_, '_> {
    pub(super) fn add(&mut self, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
        self.call(&ADD, &[a, b])
    }

    pub(super) fn subtract(&mut self, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
        self.call(&SUBTRACT, &[a, b])
    }

    pub(super) fn multiply(&mut self, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
        self.call(&MULTIPLY, &[a, b])
    }

    pub(super) fn divide(&mut self, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
        self.call(&DIVIDE, &[a, b])
    }

    /// `yes` where the condition holds, else `no`.
    pub(super) fn choose(
        &mut self,
        condition: ExprId,
        yes: ExprId,
        no: ExprId,
    ) -> Result<ExprId, NodeError> {
        self.call(&WHERE, &[condition, yes, no])
    }

    /// The value in the type that sums and statistics of its elements are computed in.
    pub(super) fn widened(&mut self, value: ExprId) -> Result<ExprId, NodeError> {
        let dtype = self.tensor(value)?.dtype;
        self.cast(value, dtype.accumulator())
    }

    /// The value and a scalar of its type.
    pub(super) fn with_scalar(
        &mut self,
        op: &'static OpDef,
        value: ExprId,
        scalar: f64,
    ) -> Result<ExprId, NodeError> {
        let dtype = self.tensor(value)?.dtype;
        let scalar = self.scalar(scalar, dtype)?;
        self.call(op, &[value, scalar])
    }

    /// A scalar less the value.
    pub(super) fn scalar_less(&mut self, scalar: f64, value: ExprId) -> Result<ExprId, NodeError> {
        let dtype = self.tensor(value)?.dtype;
        let scalar = self.scalar(scalar, dtype)?;
        self.subtract(scalar, value)
    }

    /// The value within `-bound..=bound`.
    pub(super) fn clip_to(&mut self, value: ExprId, bound: f64) -> Result<ExprId, NodeError> {
        self.call_with(&CLIP, &[value], &ClipAttrs { min: Some(-bound), max: Some(bound) })
    }

    /// A reduction over axes.
    pub(super) fn reduce(
        &mut self,
        op: &'static OpDef,
        value: ExprId,
        axes: impl IntoIterator<Item = usize>,
        keepdims: bool,
    ) -> Result<ExprId, NodeError> {
        let axis: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
        if axis.is_empty() {
            // To the operator, no axes are all of them.
            return Ok(value);
        }
        self.call_with(op, &[value], &ReduceAttrs { axis, keepdims })
    }

    /// The elements `begin..end` along an axis; the value itself if that is all of them.
    pub(in crate::onnx) fn slice(
        &mut self,
        value: ExprId,
        axis: usize,
        begin: i64,
        end: i64,
    ) -> Result<ExprId, NodeError> {
        let extent = self.shape(value)?.get(axis).and_then(Dim::as_const);
        if begin == 0 && extent == Some(end) {
            return Ok(value);
        }
        let attrs = StridedSliceAttrs {
            begin: vec![begin],
            end: vec![end],
            strides: vec![1],
            axes: vec![axis as i64],
        };
        self.call_with(&STRIDED_SLICE, &[value], &attrs)
    }

    /// The slice at one index of the first axis, without that axis.
    pub(super) fn first_axis_at(&mut self, value: ExprId, index: i64) -> Result<ExprId, NodeError> {
        let dims = self.shape(value)?.iter().skip(1).cloned().collect();
        let slice = self.slice(value, 0, index, index + 1)?;
        self.reshape(slice, dims)
    }

    /// The slice at one index of an axis, without that axis. The index is an argument of the kernel,
    /// so that the slices of all steps of a loop are one kernel.
    pub(in crate::onnx) fn step_of(
        &mut self,
        value: ExprId,
        axis: usize,
        index: i64,
    ) -> Result<ExprId, NodeError> {
        let mut dims = self.shape(value)?.to_vec();
        if dims.get(axis).and_then(Dim::as_const) == Some(1) {
            dims.remove(axis);
            return self.reshape(value, dims);
        }
        let at = Constant::from_i64(&[1], &[index]);
        let at = self.constant(at.map_err(|error| NodeError::new(error.to_string()))?);
        let attrs = TakeAttrs { axis: axis as i64, mode: TakeMode::Fast };
        let slice = self.call_with(&TAKE, &[value, at], &attrs)?;
        dims.remove(axis);
        self.reshape(slice, dims)
    }

    /// Values of one shape side by side along a new axis.
    pub(in crate::onnx) fn stack(
        &mut self,
        values: &[ExprId],
        axis: i64,
    ) -> Result<ExprId, NodeError> {
        let rank = match values.first() {
            Some(&first) => self.shape(first)?.rank(),
            None => return Err(NodeError::new("there is nothing to put side by side")),
        };
        let axis = self.axis(axis, rank + 1)?;
        let mut with_axis = Vec::with_capacity(values.len());
        for &value in values {
            let mut dims = self.shape(value)?.to_vec();
            dims.insert(axis.min(dims.len()), Dim::from(1i64));
            with_axis.push(self.reshape(value, dims)?);
        }
        self.concatenate(&with_axis, axis)
    }

    /// The slices along an axis at such places: the axes of `places` take its place, so that one
    /// place leaves the slice alone.
    pub(in crate::onnx) fn taken(
        &mut self,
        value: ExprId,
        places: ExprId,
        axis: usize,
    ) -> Result<ExprId, NodeError> {
        let attrs = TakeAttrs { axis: axis as i64, mode: TakeMode::Clip };
        self.call_with(&TAKE, &[value, places], &attrs)
    }

    /// The values one after the other along an axis. Many are joined in groups first: C compilers
    /// take far too long over a function of a thousand arguments, and equal groups are one kernel.
    pub(in crate::onnx) fn concatenate(
        &mut self,
        values: &[ExprId],
        axis: usize,
    ) -> Result<ExprId, NodeError> {
        const GROUP: usize = 32;
        match values {
            &[value] => Ok(value),
            values if values.len() > GROUP => {
                let groups: Vec<ExprId> = values
                    .chunks(GROUP)
                    .map(|group| self.concatenate(group, axis))
                    .collect::<Result<_, _>>()?;
                self.concatenate(&groups, axis)
            }
            values => self.call_with(&CONCATENATE, values, &ConcatenateAttrs { axis: axis as i64 }),
        }
    }

    /// The axes in another order; the value itself if it is theirs.
    pub(in crate::onnx) fn transposed(
        &mut self,
        value: ExprId,
        axes: &[usize],
    ) -> Result<ExprId, NodeError> {
        if axes.iter().enumerate().all(|(index, &axis)| index == axis) {
            return Ok(value);
        }
        let axes = axes.iter().map(|&axis| axis as i64).collect();
        self.call_with(&TRANSPOSE, &[value], &TransposeAttrs { axes })
    }

    /// The value repeated to a shape, unless it has that shape already.
    pub(super) fn broadcast_to(
        &mut self,
        value: ExprId,
        shape: Vec<Dim>,
    ) -> Result<ExprId, NodeError> {
        if self.shape(value)?[..] == shape[..] {
            return Ok(value);
        }
        self.call_with(&BROADCAST_TO, &[value], &BroadcastToAttrs { shape })
    }

    /// One number in every place.
    pub(in crate::onnx) fn full(
        &mut self,
        number: f64,
        dtype: DType,
        shape: Vec<Dim>,
    ) -> Result<ExprId, NodeError> {
        let scalar = self.scalar(number, dtype)?;
        self.call_with(&FULL, &[scalar], &FullAttrs { shape })
    }

    /// A constant of these numbers, rounded to a type.
    pub(super) fn numbers(
        &mut self,
        dims: &[i64],
        values: Vec<f64>,
        dtype: DType,
    ) -> Result<ExprId, NodeError> {
        let shape: Vec<usize> = dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
        let constant = Tensor::from_elements(dtype, &shape, Elements::Float(values))
            .map_err(|error| NodeError::new(error.to_string()))?
            .to_constant();
        Ok(self.constant(constant.map_err(|error| NodeError::new(error.to_string()))?))
    }

    /// A constant of 64-bit integers.
    pub(super) fn integers(&mut self, dims: &[i64], values: &[i64]) -> Result<ExprId, NodeError> {
        let constant = Constant::from_i64(dims, values);
        Ok(self.constant(constant.map_err(|error| NodeError::new(error.to_string()))?))
    }

    /// So many numbers from `start` on, as 64-bit integers.
    pub(super) fn arange(
        &mut self,
        start: impl Into<Dim>,
        length: Dim,
    ) -> Result<ExprId, NodeError> {
        let attrs = ArangeAttrs { start: start.into(), step: 1, length, dtype: DType::I64 };
        self.call_with(&ARANGE, &[], &attrs)
    }

    /// The numbers `0..count` as 64-bit integers.
    pub(super) fn counting(&mut self, count: impl Into<Dim>) -> Result<ExprId, NodeError> {
        let count = count.into();
        match count.as_const() {
            Some(count) => self.integers(&[count], &(0..count).collect::<Vec<i64>>()),
            None => self.arange(0, count),
        }
    }

    /// A size, as it is in a run: an `int64` scalar.
    pub(in crate::onnx) fn size_scalar(&mut self, size: &Dim) -> Result<ExprId, NodeError> {
        if let Some(size) = size.as_const() {
            return Ok(self.int(size));
        }
        let size = self.arange(size.clone(), Dim::from(1i64))?;
        self.reshape(size, Vec::new())
    }

    /// The first elements along an axis, as many as a size says, of which there must be enough.
    pub(super) fn first_of(
        &mut self,
        value: ExprId,
        axis: usize,
        count: &Dim,
    ) -> Result<ExprId, NodeError> {
        let extent = self.shape(value)?[axis].clone();
        if extent == *count {
            return Ok(value);
        }
        if !self.is_at_least(&extent, count) {
            return Err(NodeError::new(format!(
                "{count} elements are needed, but there are {extent}"
            ))
            .pin([count, &extent]));
        }
        match count.as_const() {
            Some(count) => self.slice(value, axis, 0, count),
            None => places(self, value, axis, Dim::from(0i64), 1, count.clone()),
        }
    }

    /// Whether a size is another or more. If it may be, and extents are found out, it is.
    pub(super) fn is_at_least(&mut self, size: &Dim, least: &Dim) -> bool {
        match self.facts().prove_le(least, size) {
            Some(is) => is,
            None => self.is_same(&[size.maximum(least)], std::slice::from_ref(size)),
        }
    }

    /// The extent of an axis, which must be known.
    pub(in crate::onnx) fn known_extent(
        &self,
        value: ExprId,
        axis: usize,
    ) -> Result<i64, NodeError> {
        let shape = self.shape(value)?;
        let Some(dim) = shape.get(axis) else {
            return Err(NodeError::new(format!(
                "more than {axis} dimensions are expected, but the shape is {shape}"
            )));
        };
        dim.as_const().ok_or_else(|| {
            NodeError::new(format!("dimension {axis} of {shape} must be known while compiling"))
                .pin([dim])
        })
    }
}
