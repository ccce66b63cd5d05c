//! Loops that run: the state goes from step to step, and steps store rows of tensors.

use crate::graph::{Expr, ExprId, ScopeId, ScopeKind};
use crate::ir::{Constant, DType, Dim, Shape, TensorType, Type};
use crate::onnx::import::{Node, NodeError};
use crate::ops::elementwise::{LESS, LOGICAL_AND};
use crate::ops::tensor::{SCATTER_ND, SHAPE_OF, ScatterNdAttrs, ScatterReduction, ShapeOfAttrs};

/// Most nodes, all steps taken together, of a loop of a known number of steps that is unrolled:
/// there, steps are fused with what is around them.
pub(in crate::onnx) const UNROLLED_NODES: usize = 128;

/// A loop whose body is being imported: what is built now is a step of it.
pub(in crate::onnx) struct Repeat {
    /// How many steps have been made, an `int64` scalar.
    pub(in crate::onnx) step: ExprId,
    /// The states as the step before left them.
    pub(in crate::onnx) states: Vec<ExprId>,
    /// What they are first.
    first: Vec<ExprId>,
    /// The scope around the loop.
    around: ScopeId,
}

/// When a loop ends.
#[derive(Clone, Copy, Default)]
pub(in crate::onnx) struct Until {
    /// After so many steps, an `int64` scalar from outside of the loop.
    pub(in crate::onnx) count: Option<ExprId>,
    /// When this state, a boolean scalar, is false.
    pub(in crate::onnx) state: Option<usize>,
}

/// A row that each step stores to a tensor.
pub(in crate::onnx) struct Row {
    /// What is stored.
    pub(in crate::onnx) value: ExprId,
    /// Where along the first axis: an `int64` scalar within the loop.
    pub(in crate::onnx) at: ExprId,
    /// Rows of the tensor.
    pub(in crate::onnx) rows: Dim,
}

impl Node<'_, '_> {
    /// An `int64` scalar.
    pub(in crate::onnx) fn int(&mut self, value: i64) -> ExprId {
        let scalar = Constant::scalar(value as f64, DType::I64);
        self.constant(scalar.expect("there is arithmetic on int64"))
    }

    /// The extent of an axis, as it is in a run: an `int64` scalar.
    pub(in crate::onnx) fn extent(
        &mut self,
        value: ExprId,
        axis: usize,
    ) -> Result<ExprId, NodeError> {
        if let Some(extent) = self.shape(value)?[axis].as_const() {
            return Ok(self.int(extent));
        }
        let attrs = ShapeOfAttrs { dtype: DType::I64 };
        let extents = self.call_with(&SHAPE_OF, &[value], &attrs)?;
        let at = axis as i64;
        let extent = self.slice(extents, 0, at, at + 1)?;
        self.reshape(extent, Vec::new())
    }

    /// The place of a step of `count`, counted from the last.
    pub(in crate::onnx) fn counted_back(
        &mut self,
        count: ExprId,
        step: ExprId,
    ) -> Result<ExprId, NodeError> {
        let one = self.int(1);
        let last = self.subtract(count, one)?;
        self.subtract(last, step)
    }

    /// Begins a loop: until [`end_loop`](Self::end_loop) or [`leave_loop`](Self::leave_loop), what is
    /// built is its body.
    pub(in crate::onnx) fn begin_loop(&mut self, states: &[ExprId]) -> Repeat {
        let around = self.builder.current_scope();
        let first = self.int(0);
        let types: Vec<Type> = states.iter().map(|&state| self.builder.ty(state).clone()).collect();
        self.builder.open_scope(ScopeKind::Loop);
        let step = self.builder.param("step", Type::tensor(&[], DType::I64));
        let params = types.into_iter().enumerate();
        let params = params.map(|(at, ty)| self.builder.param(&format!("state{at}"), ty)).collect();
        let first = std::iter::once(first).chain(states.iter().copied()).collect();
        Repeat { step, states: params, first, around }
    }

    /// Ends a loop: the states that a step leaves, and the rows that it stores. Returns the number of
    /// steps, the last states, and the tensors of rows, of which those that no step stores are zero.
    ///
    /// # Errors
    ///
    /// A state changes its type.
    pub(in crate::onnx) fn end_loop(
        &mut self,
        repeat: Repeat,
        next: &[ExprId],
        rows: &[Row],
        until: Until,
    ) -> Result<Repeated, NodeError> {
        for (&before, &after) in repeat.states.iter().zip(next) {
            let (before, after) = (self.builder.ty(before), self.builder.ty(after));
            if before != after {
                return Err(NodeError::new(format!(
                    "a step of the loop makes a value of type {after} of one of type {before}"
                )));
            }
        }
        let one = self.int(1);
        let mut results = vec![self.add(repeat.step, one)?];
        results.extend(next);
        let mut params = vec![repeat.step];
        params.extend(&repeat.states);
        let mut tensors = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let TensorType { shape, dtype } = self.tensor(row.value)?.clone();
            let dims = |first: Dim| [vec![first], shape.to_vec()].concat();
            let all = TensorType::new(Shape::new(dims(row.rows.clone())), dtype);
            let tensor = self.builder.param(&format!("rows{number}"), all.clone());
            let at = self.reshape(row.at, vec![Dim::from(1i64); 2])?;
            let slice = self.reshape(row.value, dims(Dim::from(1i64)))?;
            let attrs = ScatterNdAttrs { reduction: ScatterReduction::Update };
            results.push(self.call_with(&SCATTER_ND, &[tensor, at, slice], &attrs)?);
            params.push(tensor);
            tensors.push(all);
        }
        let result = self.builder.tuple(&results);
        let body = self.builder.close_scope(result);

        self.builder.open_scope(ScopeKind::Loop);
        for param in &mut params {
            let Expr::Var(name) = self.builder.expr(*param).clone() else { continue };
            let ty = self.builder.ty(*param).clone();
            *param = self.builder.param(&name, ty);
        }
        let is_within = match until.count {
            Some(count) => Some(self.call(&LESS, &[params[0], count])?),
            None => None,
        };
        let goes_on = match (is_within, until.state.map(|at| params[at + 1])) {
            (Some(within), Some(state)) => self.call(&LOGICAL_AND, &[within, state])?,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.scalar(1.0, DType::Bool)?,
        };
        let cond = self.builder.close_scope(goes_on);

        let mut first = repeat.first;
        for TensorType { shape, dtype } in tensors {
            first.push(self.full(0.0, dtype, shape.to_vec())?);
        }
        let last = self.builder.while_loop(&first, cond, body)?;
        let mut fields = (0..first.len() as u32).map(|field| self.builder.tuple_get(last, field));
        let steps = fields.next().unwrap_or(Ok(last))?;
        let mut last = fields.collect::<Result<Vec<ExprId>, _>>()?;
        let rows = last.split_off(next.len());
        Ok(Repeated { steps, last, rows })
    }

    /// Gives up a loop of which a step cannot be built, and whatever is open within it.
    pub(in crate::onnx) fn leave_loop(&mut self, around: ScopeId) {
        while self.builder.current_scope() != around {
            let nothing = self.builder.tuple(&[]);
            self.builder.close_scope(nothing);
        }
    }
}

/// What a loop leaves.
pub(in crate::onnx) struct Repeated {
    /// How many steps there were.
    pub(in crate::onnx) steps: ExprId,
    /// The last states.
    pub(in crate::onnx) last: Vec<ExprId>,
    /// Tensors of rows.
    pub(in crate::onnx) rows: Vec<ExprId>,
}

impl Repeat {
    /// The scope around the loop.
    pub(in crate::onnx) fn around(&self) -> ScopeId {
        self.around
    }
}
