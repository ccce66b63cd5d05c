//! Stages and the graph they form.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};

use crate::ir::{BufferSpec, DType};
use crate::ops::nn::Winograd;
use crate::tir::{
    BinaryOp, Buffer, BufferId, BufferScope, ForKind, PrimExpr, PrimFuncData, PrimType, Stmt, VarId,
};

/// A stage of a dag; prints as `stage3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(u32);
entity_impl!(StageId, "stage");

/// An axis that a reduction goes over.
#[derive(Clone, PartialEq, Debug)]
pub struct ReduceAxis {
    /// Its variable.
    pub var: VarId,
    /// Its extent, from 0; [`Buffer::SYMBOLIC`] if it is not constant.
    pub extent: i64,
}

/// One input of a concatenation.
#[derive(Clone, PartialEq, Debug)]
pub struct ConcatPart {
    /// The stage.
    pub stage: StageId,
    /// Where it starts along the axis.
    pub offset: i64,
}

/// How the elements of a stage come about.
#[derive(Clone, PartialEq, Debug)]
pub enum StageKind {
    /// Handed over by the caller.
    Placeholder,
    /// An expression of the index.
    Compute(PrimExpr),
    /// `combiner` over all of `axes`, starting from `init`.
    Reduce {
        /// `Add`, `Mul`, `Min` or `Max`.
        combiner: BinaryOp,
        /// The neutral element.
        init: PrimExpr,
        /// What the reduction goes over, outermost first.
        axes: Vec<ReduceAxis>,
        /// What is combined, by the index and the axes.
        value: PrimExpr,
    },
    /// Tensors side by side along an axis.
    Concat {
        /// The axis.
        axis: usize,
        /// The parts in order.
        parts: Vec<ConcatPart>,
    },
    /// One of the results of a reduction of several values at once.
    Joint {
        /// All of it, which the stages of its results share.
        reduction: Arc<JointReduction>,
        /// Which result this is.
        position: usize,
    },
    /// One of the results of a statement.
    Extern {
        /// All of it, which the stages of its results share.
        statement: Arc<ExternStatement>,
        /// Which result this is.
        position: usize,
    },
}

/// A reduction of several values at once, such as the greatest value and where it is.
#[derive(Clone, PartialEq, Debug)]
pub struct JointReduction {
    /// How two tuples of values are combined, and what changes none.
    pub reducer: CommReducer,
    /// What the reduction goes over, outermost first.
    pub axes: Vec<ReduceAxis>,
    /// What is combined, by the index and the axes.
    pub values: Vec<PrimExpr>,
    /// The stages of the results, in order.
    pub results: Vec<StageId>,
}

/// How tuples of values are combined: an associative, commutative operation with a neutral element.
#[derive(Clone, PartialEq, Debug)]
pub struct CommReducer {
    /// Variables for the values so far.
    pub lhs: Vec<VarId>,
    /// Variables for the values that come to them.
    pub rhs: Vec<VarId>,
    /// The combined values.
    pub result: Vec<PrimExpr>,
    /// The neutral element.
    pub identity: Vec<PrimExpr>,
}

/// A statement that computes tensors from tensors, for what has no expression.
#[derive(Clone, PartialEq, Debug)]
pub struct ExternStatement {
    /// Loads from the inputs' buffers and stores to those of the results.
    pub body: Stmt,
    /// The stages it reads.
    pub inputs: Vec<StageId>,
    /// The stages of the results, in order.
    pub results: Vec<StageId>,
}

/// What a reduction is as a whole: strategies know schedules for these.
#[derive(Clone, PartialEq, Debug)]
pub enum Anchor {
    /// Nothing in particular.
    None,
    /// A two-dimensional convolution, NCHW with OIHW weights.
    Conv2d {
        /// The image.
        data: StageId,
        /// The weights.
        weight: StageId,
        /// Steps along height and width.
        strides: [i64; 2],
        /// Padding before height and width.
        padding: [i64; 2],
        /// What padding reads as.
        pad_value: i64,
        /// Distances of taps along height and width.
        dilation: [i64; 2],
        /// Number of groups of channels.
        groups: i64,
    },
    /// A reduction of windows that slide over a tensor of `(N, C, spatial..)`, of which what is outside
    /// counts as the neutral element. Elements may be multiplied with those of a tensor `(C, 1, taps..)`.
    Window {
        /// The tensor.
        data: StageId,
        /// Taps along each spatial axis.
        taps: Vec<i64>,
        /// Steps from window to window.
        strides: Vec<i64>,
        /// Elements of the first window before the first element.
        padding: Vec<i64>,
        /// Distances of taps.
        dilation: Vec<i64>,
    },
    /// The last stage of a 3x3 convolution by Winograd's algorithm.
    Winograd {
        /// The image.
        data: StageId,
        /// The image with its border: what the first stage reads.
        image: StageId,
        /// The transformed weights, `[n, n, in, out]`.
        weight: StageId,
        /// The algorithm.
        algorithm: Winograd,
        /// Zeros before height and width.
        padding: [i64; 2],
    },
    /// A matrix product of `[.., m, k]` or `[.., k, m]` with `[.., n, k]` or `[.., k, n]`, whose first
    /// axes are broadcast in numpy's manner.
    MatMul {
        /// The rows.
        lhs: StageId,
        /// The matrix, or several.
        rhs: StageId,
        /// Whether the rows are `[k, m]`.
        transpose_a: bool,
        /// Whether a matrix is `[n, k]`.
        transpose_b: bool,
    },
}

impl StageKind {
    /// The axes that a reduction goes over; none of what is no reduction.
    pub(crate) fn reduced(&self) -> &[ReduceAxis] {
        match self {
            StageKind::Reduce { axes, .. } => axes,
            StageKind::Joint { reduction, .. } => &reduction.axes,
            StageKind::Placeholder
            | StageKind::Compute(_)
            | StageKind::Concat { .. }
            | StageKind::Extern { .. } => &[],
        }
    }

    /// The expressions that elements are made of, other than neutral ones; of a statement all that it
    /// has, extents of loops among them.
    pub(crate) fn values(&self) -> Vec<&PrimExpr> {
        match self {
            StageKind::Compute(value) | StageKind::Reduce { value, .. } => vec![value],
            StageKind::Joint { reduction, .. } => reduction.values.iter().collect(),
            StageKind::Extern { statement, .. } => {
                let mut values = Vec::new();
                statement.body.walk(&mut |stmt| stmt.for_each_expr(&mut |expr| values.push(expr)));
                values
            }
            StageKind::Placeholder | StageKind::Concat { .. } => Vec::new(),
        }
    }

    /// The same with other [values](Self::values), which are as many.
    pub(crate) fn with_values(mut self, values: Vec<PrimExpr>) -> StageKind {
        match &mut self {
            StageKind::Compute(value) | StageKind::Reduce { value, .. } => {
                if let Some(other) = values.into_iter().next() {
                    *value = other;
                }
            }
            StageKind::Joint { reduction, .. } => Arc::make_mut(reduction).values = values,
            StageKind::Extern { statement, .. } => {
                let mut values = values.into_iter();
                let statement = Arc::make_mut(statement);
                let body = std::mem::replace(&mut statement.body, Stmt::nop());
                let body = body.map_exprs(&mut |old| values.next().unwrap_or(old));
                // Lanes, and copies of a body, are as many as are known.
                statement.body = body.rewrite(&mut |mut stmt| {
                    if let Stmt::For { extent, kind, .. } = &mut stmt
                        && extent.as_int().is_none()
                    {
                        *kind = ForKind::Serial;
                    }
                    stmt
                });
            }
            StageKind::Placeholder | StageKind::Concat { .. } => {}
        }
        self
    }

    /// What is left without values, the extents of what is reduced, and the places of parts.
    fn frame(&self) -> StageKind {
        let values = vec![PrimExpr::index(0); self.values().len()];
        let mut kind = self.clone().with_values(values);
        let axes = match &mut kind {
            StageKind::Reduce { axes, .. } => axes,
            StageKind::Joint { reduction, .. } => &mut Arc::make_mut(reduction).axes,
            StageKind::Concat { parts, .. } => {
                parts.iter_mut().for_each(|part| part.offset = 0);
                return kind;
            }
            StageKind::Placeholder | StageKind::Compute(_) | StageKind::Extern { .. } => {
                return kind;
            }
        };
        axes.iter_mut().for_each(|axis| axis.extent = 0);
        kind
    }
}

/// A tensor and how its elements come about.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// Its buffer; the layout is the strategy's to choose.
    pub buffer: BufferId,
    /// The logical index, one variable for each axis.
    pub axes: Vec<VarId>,
    /// Where the elements come from.
    pub kind: StageKind,
    /// What the stage is as a whole.
    pub anchor: Anchor,
    /// Whether it is stored even if it could be computed where it is read.
    pub is_stored: bool,
    /// Whether a reduction to an extreme may pass over NaNs: who reads it finds them again.
    pub ignores_nan: bool,
    /// The operator it came from.
    pub op: String,
}

impl Stage {
    /// Whether another stage is the same but for the expressions of its elements, the places of what
    /// is concatenated, and how far its axes and reductions go.
    pub(crate) fn is_like(&self, other: &Stage) -> bool {
        let frame = |stage: &Stage| Stage { kind: stage.kind.frame(), ..stage.clone() };
        frame(self) == frame(other)
    }
}

/// Stages in topological order, with the variables and buffers their expressions use.
#[derive(Clone, Debug)]
pub struct ComputeDag {
    /// Declares variables and buffers; a strategy goes on with it.
    pub func: PrimFuncData,
    /// The stages.
    pub stages: PrimaryMap<StageId, Stage>,
    by_buffer: SecondaryMap<BufferId, cranelift_entity::packed_option::PackedOption<StageId>>,
    /// Extents of axes of reductions that are not constant, or that a run has of its own.
    symbolic: BTreeMap<VarId, PrimExpr>,
    /// Axes of stages of whose elements each run has as many as it says itself.
    limits: BTreeMap<StageId, Vec<AxisLimit>>,
    /// Elements of placeholders of one axis that are constants.
    known: BTreeMap<StageId, Vec<i64>>,
}

/// An axis whose extent is the greatest that a run can have.
#[derive(Clone, PartialEq, Debug)]
pub struct AxisLimit {
    /// The axis.
    pub axis: usize,
    /// The extent in a run, by the function's dimensions.
    pub extent: PrimExpr,
}

impl ComputeDag {
    /// No stages; `name` is the kernel's.
    pub fn new(name: &str) -> ComputeDag {
        ComputeDag {
            func: PrimFuncData::new(name),
            stages: PrimaryMap::new(),
            by_buffer: SecondaryMap::new(),
            symbolic: BTreeMap::new(),
            limits: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Makes a stage of one axis a constant that is handed over.
    pub(crate) fn set_constant(&mut self, stage: StageId, elements: Option<Vec<i64>>) {
        self.stages[stage].kind = StageKind::Placeholder;
        self.known.extend(elements.map(|elements| (stage, elements)));
    }

    /// The elements of a stage of one axis that are whole numbers known already.
    pub(crate) fn known(&self, stage: StageId) -> Option<&[i64]> {
        self.known.get(&stage).map(Vec::as_slice)
    }

    /// Says how much of a stage's axes a run has.
    pub(crate) fn set_limits(&mut self, stage: StageId, limits: Vec<AxisLimit>) {
        self.limits.insert(stage, limits);
    }

    /// The axes of a stage of which a run has as much as it says itself.
    pub fn limits(&self, stage: StageId) -> &[AxisLimit] {
        self.limits.get(&stage).map_or(&[], Vec::as_slice)
    }

    /// Says how far a run goes along an axis of a reduction.
    pub(crate) fn set_reduce_limit(&mut self, axis: VarId, extent: PrimExpr) {
        self.symbolic.insert(axis, extent);
    }

    /// How far a run goes along an axis of a reduction, if it says that itself.
    pub fn reduce_limit(&self, axis: &ReduceAxis) -> Option<&PrimExpr> {
        self.symbolic.get(&axis.var)
    }

    fn push(
        &mut self,
        name: &str,
        shape: &[i64],
        dtype: DType,
        op: &str,
        kind: impl FnOnce(&mut ComputeDag, &[PrimExpr]) -> StageKind,
    ) -> StageId {
        let extents = shape.iter().copied().map(PrimExpr::index).collect();
        self.push_of(name, extents, dtype, op, kind)
    }

    fn push_of(
        &mut self,
        name: &str,
        extents: Vec<PrimExpr>,
        dtype: DType,
        op: &str,
        kind: impl FnOnce(&mut ComputeDag, &[PrimExpr]) -> StageKind,
    ) -> StageId {
        let axes: Vec<VarId> =
            (0..extents.len()).map(|axis| self.func.index_var(format!("i{axis}"))).collect();
        let index: Vec<PrimExpr> = axes.iter().map(|&var| self.func.var_expr(var)).collect();
        let kind = kind(self, &index);
        let stage = self.define(name, extents, dtype, axes, kind);
        self.stages[stage].op = op.to_owned();
        stage
    }

    /// A stage whose axes are declared already.
    pub(super) fn define(
        &mut self,
        name: &str,
        extents: Vec<PrimExpr>,
        dtype: DType,
        axes: Vec<VarId>,
        kind: StageKind,
    ) -> StageId {
        let buffer = self.func.dense_buffer(name, dtype, extents, BufferScope::Local);
        self.define_at(buffer, name, axes, kind)
    }

    /// A stage whose axes and buffer are declared already.
    pub(super) fn define_at(
        &mut self,
        buffer: BufferId,
        name: &str,
        axes: Vec<VarId>,
        kind: StageKind,
    ) -> StageId {
        let stage = self.stages.push(Stage {
            buffer,
            axes,
            kind,
            anchor: Anchor::None,
            is_stored: false,
            ignores_nan: false,
            op: name.to_owned(),
        });
        self.by_buffer[buffer] = stage.into();
        stage
    }

    /// A tensor the caller hands over.
    pub fn placeholder(&mut self, name: &str, shape: &[i64], dtype: DType) -> StageId {
        self.push(name, shape, dtype, "", |_, _| StageKind::Placeholder)
    }

    /// As [`placeholder`](Self::placeholder), of extents by the function's dimensions.
    pub(super) fn placeholder_of(
        &mut self,
        name: &str,
        extents: Vec<PrimExpr>,
        dtype: DType,
    ) -> StageId {
        self.push_of(name, extents, dtype, "", |_, _| StageKind::Placeholder)
    }

    /// A tensor whose element at an index is what `body` returns for it.
    pub fn compute(
        &mut self,
        op: &str,
        shape: &[i64],
        dtype: DType,
        body: impl FnOnce(&mut ComputeDag, &[PrimExpr]) -> PrimExpr,
    ) -> StageId {
        self.push(op, shape, dtype, op, |dag, index| StageKind::Compute(body(dag, index)))
    }

    /// A tensor whose element at an index is `combiner` over the axes of extents `over`, of what
    /// `value` returns for the index and those axes.
    #[allow(
        clippy::too_many_arguments,
        reason = "what a reduction is; a struct for them would be built at each call and read once"
    )]
    pub fn reduce(
        &mut self,
        op: &str,
        shape: &[i64],
        dtype: DType,
        combiner: BinaryOp,
        over: &[i64],
        value: impl FnOnce(&mut ComputeDag, &[PrimExpr], &[PrimExpr]) -> PrimExpr,
    ) -> StageId {
        self.push(op, shape, dtype, op, |dag, index| {
            let axes: Vec<ReduceAxis> = over
                .iter()
                .enumerate()
                .map(|(axis, &extent)| ReduceAxis {
                    var: dag.func.index_var(format!("r{axis}")),
                    extent,
                })
                .collect();
            let by: Vec<PrimExpr> = axes.iter().map(|axis| dag.func.var_expr(axis.var)).collect();
            let init = identity(combiner, dtype);
            StageKind::Reduce { combiner, init, axes, value: value(dag, index, &by) }
        })
    }

    /// A tensor that a statement computes of `inputs`, which are stored before it runs; `body` is
    /// handed the buffer of the result.
    pub fn statement(
        &mut self,
        op: &str,
        shape: &[i64],
        dtype: DType,
        inputs: &[StageId],
        body: impl FnOnce(&mut ComputeDag, BufferId) -> Stmt,
    ) -> StageId {
        for &input in inputs {
            self.set_stored(input);
        }
        let axes = (0..shape.len()).map(|axis| self.func.index_var(format!("i{axis}"))).collect();
        let spec = BufferSpec::dense(shape);
        let buffer = self.func.buffer(op, dtype, spec, BufferScope::Local);
        let body = body(self, buffer);
        let results = vec![StageId::new(self.stages.len())];
        let statement = Arc::new(ExternStatement { body, inputs: inputs.to_vec(), results });
        self.define_at(buffer, op, axes, StageKind::Extern { statement, position: 0 })
    }

    /// Tensors side by side along `axis`; their other extents and data types are equal.
    pub fn concat(&mut self, op: &str, axis: usize, parts: &[StageId]) -> StageId {
        let first = parts.first().copied().expect("an operator with at least one input");
        let mut shape = self.shape(first).to_vec();
        let mut offset = 0;
        let parts = parts
            .iter()
            .map(|&stage| {
                let part = ConcatPart { stage, offset };
                offset += self.shape(stage)[axis];
                part
            })
            .collect();
        shape[axis] = offset;
        let dtype = self.dtype(first);
        self.push(op, &shape, dtype, op, |_, _| StageKind::Concat { axis, parts })
    }

    /// Says what a reduction is as a whole.
    pub fn set_anchor(&mut self, stage: StageId, anchor: Anchor) {
        self.stages[stage].anchor = anchor;
    }

    /// Has a stage stored even if it could be computed where it is read: a table that takes many
    /// steps to compute and is read over and over. One that depends on its index alone becomes a
    /// constant where its extents are known.
    pub fn set_stored(&mut self, stage: StageId) {
        self.stages[stage].is_stored = true;
    }

    /// Lets a reduction to an extreme pass over NaNs, which takes a third of the operations: whoever
    /// reads it must find them again.
    pub fn set_ignores_nan(&mut self, stage: StageId) {
        self.stages[stage].ignores_nan = true;
    }

    /// The element of a stage at an index.
    pub fn at(&self, stage: StageId, index: &[PrimExpr]) -> PrimExpr {
        self.func.load(self.stages[stage].buffer, index.iter().cloned())
    }

    /// An axis of a reduction.
    pub(super) fn reduce_axis(&mut self, var: VarId, extent: &PrimExpr) -> ReduceAxis {
        if extent.as_int().is_none() {
            self.symbolic.insert(var, extent.clone());
        }
        ReduceAxis { var, extent: extent.as_int().unwrap_or(Buffer::SYMBOLIC) }
    }

    /// The extent of an axis of a reduction.
    pub(super) fn extent_of(&self, axis: &ReduceAxis) -> PrimExpr {
        self.symbolic.get(&axis.var).cloned().unwrap_or(PrimExpr::index(axis.extent))
    }

    /// The extents of a stage, by the function's dimensions.
    pub fn extents(&self, stage: StageId) -> Vec<PrimExpr> {
        self.func.buffers[self.stages[stage].buffer].extents()
    }

    /// The extents of a stage; [`Buffer::SYMBOLIC`] where one is not constant.
    pub fn shape(&self, stage: StageId) -> &[i64] {
        self.func.buffers[self.stages[stage].buffer].shape()
    }

    /// The element type of a stage.
    pub fn dtype(&self, stage: StageId) -> DType {
        self.func.buffers[self.stages[stage].buffer].dtype
    }

    /// The element of a stage of which all elements are one constant.
    pub fn constant_value(&self, stage: StageId) -> Option<&PrimExpr> {
        match &self.stages[stage].kind {
            StageKind::Compute(value @ (PrimExpr::Int { .. } | PrimExpr::Float { .. })) => {
                Some(value)
            }
            StageKind::Compute(_)
            | StageKind::Placeholder
            | StageKind::Reduce { .. }
            | StageKind::Concat { .. }
            | StageKind::Joint { .. }
            | StageKind::Extern { .. } => None,
        }
    }

    /// The stage that a buffer belongs to.
    pub fn stage_of(&self, buffer: BufferId) -> Option<StageId> {
        self.by_buffer[buffer].expand()
    }

    /// The stages that are computed together with a stage, itself among them.
    pub fn computed_with(&self, stage: StageId) -> Vec<StageId> {
        match &self.stages[stage].kind {
            StageKind::Joint { reduction, .. } => reduction.results.clone(),
            StageKind::Extern { statement, .. } => statement.results.clone(),
            StageKind::Placeholder
            | StageKind::Compute(_)
            | StageKind::Reduce { .. }
            | StageKind::Concat { .. } => vec![stage],
        }
    }

    /// The stages a stage reads.
    pub fn reads(&self, stage: StageId) -> Vec<StageId> {
        let mut reads = Vec::new();
        let mut expr = |expr: &PrimExpr| {
            expr.walk(&mut |e| {
                if let PrimExpr::Load { buffer, .. } = e
                    && let Some(stage) = self.stage_of(*buffer)
                    && !reads.contains(&stage)
                {
                    reads.push(stage);
                }
            });
        };
        match &self.stages[stage].kind {
            StageKind::Placeholder => {}
            StageKind::Compute(body) => expr(body),
            StageKind::Reduce { combiner: _, init, axes: _, value } => {
                expr(init);
                expr(value);
            }
            StageKind::Concat { axis: _, parts } => {
                for part in parts {
                    if !reads.contains(&part.stage) {
                        reads.push(part.stage);
                    }
                }
            }
            StageKind::Joint { reduction, position: _ } => {
                reduction.values.iter().chain(&reduction.reducer.identity).for_each(expr);
            }
            StageKind::Extern { statement, position: _ } => {
                reads.extend(statement.inputs.iter().copied());
            }
        }
        reads
    }

    /// Stages from the last to the first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = StageId> + use<> {
        (0..self.stages.len()).map(StageId::new)
    }
}

/// The neutral element of a combiner.
///
/// # Panics
///
/// If the operator is none that reductions use: `Add`, `Mul`, `Min` or `Max`.
pub fn identity(combiner: BinaryOp, dtype: DType) -> PrimExpr {
    let bound = |high: bool| match dtype.int_range() {
        Some((low, top)) => {
            let value = if high { top } else { low };
            // u64::MAX keeps its bits.
            PrimExpr::int(value as i64, dtype)
        }
        None if dtype == DType::Bool => PrimExpr::int(i64::from(high), dtype),
        None => PrimExpr::float(if high { f64::INFINITY } else { f64::NEG_INFINITY }, dtype),
    };
    match combiner {
        BinaryOp::Add => PrimExpr::zero(PrimType::scalar(dtype)),
        BinaryOp::Mul => PrimExpr::int(1, dtype),
        BinaryOp::Min => bound(true),
        BinaryOp::Max => bound(false),
        _ => unreachable!("reductions combine by sum, product, minimum or maximum"),
    }
}

/// Two values combined; the minimum or maximum of a float and a NaN, on either side, is a NaN.
#[inline(never)]
pub fn combined(combiner: BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    let is_extreme = matches!(combiner, BinaryOp::Min | BinaryOp::Max);
    let plain = PrimExpr::binary(combiner, a.clone(), b);
    if !is_extreme || !a.dtype().is_float() {
        return plain;
    }
    // The right operand wins if unordered, so a NaN there is kept; one on the left is kept by
    // comparing it with itself.
    PrimExpr::select(a.clone().not_equal(a.clone()), a, plain)
}
