//! The front of tensor expressions: tensors, index variables and what is computed at an index.

use std::collections::BTreeMap;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::Arc;

use cranelift_entity::EntityRef;

use super::{
    CommReducer, ComputeDag, ExternStatement, JointReduction, ReduceAxis, StageId, StageKind,
    TeError, identity, lower_to_blocks,
};
use crate::ir::{BufferSpec, DType};
use crate::tir::{
    BinaryOp, Buffer, BufferId, BufferScope, ParamKind, PrimExpr, PrimFunc, PrimFuncData, PrimType,
    Stmt, VarId,
};

/// A variable: one of a tensor's axes, of a reduction, or a size. Scalar `int64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Var(VarId);

impl From<Var> for PrimExpr {
    fn from(var: Var) -> PrimExpr {
        PrimExpr::var(var.0, PrimType::INDEX)
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident),*) => {$(
        impl<E: Into<PrimExpr>> $trait<E> for Var {
            type Output = PrimExpr;
            fn $method(self, other: E) -> PrimExpr {
                PrimExpr::from(self).$method(other.into())
            }
        }
    )*};
}
arithmetic!(Add add, Sub sub, Mul mul, Div div);

/// A tensor of a [`Builder`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor {
    pub(super) stage: StageId,
    buffer: BufferId,
    dtype: DType,
}

impl Tensor {
    /// The element at an index, one expression for each axis.
    pub fn at(self, index: impl IntoIterator<Item = impl Into<PrimExpr>>) -> PrimExpr {
        PrimExpr::Load {
            buffer: self.buffer,
            dtype: self.dtype,
            indices: index.into_iter().map(Into::into).collect(),
        }
    }

    /// Type of the elements.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The stage of the dag that computes it.
    pub fn stage(self) -> StageId {
        self.stage
    }
}

/// A value combined over all of some axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Reduction {
    combiner: BinaryOp,
    value: PrimExpr,
    axes: Vec<VarId>,
}

fn reduction(
    combiner: BinaryOp,
    value: impl Into<PrimExpr>,
    axes: impl IntoIterator<Item = Var>,
) -> Reduction {
    let axes = axes.into_iter().map(|axis| axis.0).collect();
    Reduction { combiner, value: value.into(), axes }
}

/// A `float32` constant.
pub fn f32(value: f32) -> PrimExpr {
    PrimExpr::f32(value)
}

/// The sum over axes, 0 if there is nothing to add.
pub fn sum(value: impl Into<PrimExpr>, axes: impl IntoIterator<Item = Var>) -> Reduction {
    reduction(BinaryOp::Add, value, axes)
}

/// The product over axes, 1 if there is nothing to multiply.
pub fn prod(value: impl Into<PrimExpr>, axes: impl IntoIterator<Item = Var>) -> Reduction {
    reduction(BinaryOp::Mul, value, axes)
}

/// The greatest over axes; the least value of the data type if there is none.
pub fn max(value: impl Into<PrimExpr>, axes: impl IntoIterator<Item = Var>) -> Reduction {
    reduction(BinaryOp::Max, value, axes)
}

/// The least over axes; the greatest value of the data type if there is none.
pub fn min(value: impl Into<PrimExpr>, axes: impl IntoIterator<Item = Var>) -> Reduction {
    reduction(BinaryOp::Min, value, axes)
}

/// What is computed at an index: an expression, or a [`Reduction`].
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// An expression.
    Element(PrimExpr),
    /// A value combined over axes.
    Reduce(Reduction),
}

impl From<PrimExpr> for Body {
    fn from(value: PrimExpr) -> Body {
        Body::Element(value)
    }
}

impl From<Reduction> for Body {
    fn from(reduction: Reduction) -> Body {
        Body::Reduce(reduction)
    }
}

/// Tensor expressions in the making.
///
/// ```
/// use niello::ir::DType;
/// use niello::te;
///
/// let mut te = te::Builder::new("matmul");
/// let a = te.placeholder("A", [128, 64], DType::F32);
/// let b = te.placeholder("B", [64, 32], DType::F32);
/// let k = te.reduce_axis("k", 64);
/// let c = te.compute("C", [128, 32], |[i, j]| te::sum(a.at([i, k]) * b.at([k, j]), [k]));
/// let func = te.prim_func(&[a, b, c])?;
/// assert!(func.to_string().contains("vk: reduce(64)"));
/// # Ok::<(), te::TeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    dag: ComputeDag,
    /// Extents of reduction axes.
    extents: BTreeMap<VarId, PrimExpr>,
    /// Placeholders that are known when code is generated.
    constants: Vec<StageId>,
    problems: Vec<String>,
}

impl Builder {
    /// No tensors; `name` is the function's.
    pub fn new(name: &str) -> Builder {
        Builder {
            dag: ComputeDag::new(name),
            extents: BTreeMap::new(),
            constants: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn tensor(&self, stage: StageId) -> Tensor {
        let buffer = self.dag.stages[stage].buffer;
        Tensor { stage, buffer, dtype: self.dag.dtype(stage) }
    }

    /// A size that is known when the function is called: at least 0, as TVM's `size_var`. It is a
    /// dimension of the function, after the tensors and in the order of declaration; extents of
    /// tensors and of reductions may be sums, products, quotients, remainders and minima of sizes.
    ///
    /// ```
    /// use niello::ir::DType;
    /// use niello::te;
    ///
    /// let mut te = te::Builder::new("scale");
    /// let n = te.size_var("n");
    /// let x = te.placeholder("X", [n * 2, n.into()], DType::F32);
    /// let y = te.compute("Y", [n * 2, n.into()], |[i, j]| x.at([i, j]) * te::f32(2.0));
    /// let func = te.prim_func(&[x, y])?;
    /// assert!(func.to_string().contains("X: input float32[n * 2, n]"));
    /// # Ok::<(), te::TeError>(())
    /// ```
    pub fn size_var(&mut self, name: &str) -> Var {
        let var = self.dag.func.index_var(name);
        self.dag.func.dims.push(var);
        Var(var)
    }

    /// A tensor the caller hands over.
    pub fn placeholder<const N: usize>(
        &mut self,
        name: &str,
        shape: [impl Into<PrimExpr>; N],
        dtype: DType,
    ) -> Tensor {
        let extents = shape.into_iter().map(Into::into).collect();
        let stage = self.dag.placeholder_of(name, extents, dtype);
        self.tensor(stage)
    }

    /// A tensor the caller hands over in a layout: in blocks of channels, or with a border of
    /// zeros, which may be read.
    pub fn placeholder_in(&mut self, name: &str, layout: BufferSpec, dtype: DType) -> Tensor {
        let stage = self.dag.placeholder(name, layout.shape(), dtype);
        self.dag.func.buffers[self.dag.stages[stage].buffer].spec = layout;
        self.tensor(stage)
    }

    /// A tensor that is known when code is generated, such as weights: schedules may choose its
    /// layout.
    ///
    /// Its extents must be constant: [`prim_func`](Self::prim_func) says if one is not.
    pub fn constant<const N: usize>(
        &mut self,
        name: &str,
        shape: [impl Into<PrimExpr>; N],
        dtype: DType,
    ) -> Tensor {
        let tensor = self.placeholder(name, shape, dtype);
        self.need_constants(tensor);
        self.constants.push(tensor.stage);
        tensor
    }

    /// Notes a problem if an extent of a tensor is not constant.
    pub(super) fn need_constants(&mut self, tensor: Tensor) {
        if self.shape(tensor).contains(&Buffer::SYMBOLIC) {
            let name = &self.dag.func.buffers[tensor.buffer].name;
            self.problems.push(format!("the extents of `{name}` must be constant"));
        }
    }

    /// An axis of a reduction, from 0 to `extent` - 1.
    pub fn reduce_axis(&mut self, name: &str, extent: impl Into<PrimExpr>) -> Var {
        let var = self.dag.func.index_var(name);
        self.extents.insert(var, extent.into());
        Var(var)
    }

    /// A tensor whose element at an index is what `body` returns for it.
    pub fn compute<const N: usize, B: Into<Body>>(
        &mut self,
        name: &str,
        shape: [impl Into<PrimExpr>; N],
        body: impl FnOnce([Var; N]) -> B,
    ) -> Tensor {
        let axes = self.index_vars();
        let body = body(axes).into();
        let (dtype, kind) = match body {
            Body::Element(value) => (value.dtype(), StageKind::Compute(value)),
            Body::Reduce(Reduction { combiner, value, axes }) => {
                let dtype = value.dtype();
                let axes = axes.into_iter().map(|var| self.reduced(var, Some(&name))).collect();
                let init = identity(combiner, dtype);
                (dtype, StageKind::Reduce { combiner, init, axes, value })
            }
        };
        let extents = shape.into_iter().map(Into::into).collect();
        let axes = axes.map(|axis| axis.0).to_vec();
        let stage = self.dag.define(name, extents, dtype, axes, kind);
        self.tensor(stage)
    }

    /// An operation that combines tuples of `N` values over the axes of a reduction: it must be
    /// associative and commutative, and `identity` must change nothing. `dtypes` are the values'
    /// types.
    ///
    /// ```
    /// use niello::ir::DType;
    /// use niello::te;
    /// use niello::tir::PrimExpr;
    ///
    /// // The greatest element of each row, and the first place where it is.
    /// let mut te = te::Builder::new("argmax");
    /// let x = te.placeholder("X", [8, 100], DType::F32);
    /// let k = te.reduce_axis("k", 100);
    /// let argmax = te.comm_reducer(
    ///     [DType::I64, DType::F32],
    ///     [PrimExpr::index(i64::MAX), te::f32(f32::NEG_INFINITY)],
    ///     |[i, x], [j, y]| {
    ///         let is_first = x.clone().equal(y.clone()).and(i.clone().less(j.clone()));
    ///         let stays = x.clone().greater(y.clone()).or(is_first);
    ///         [PrimExpr::select(stays.clone(), i, j), PrimExpr::select(stays, x, y)]
    ///     },
    /// );
    /// let [at, greatest] =
    ///     te.compute_reduce(["at", "greatest"], [8], &argmax, [k], |[i]| [k.into(), x.at([i, k])]);
    /// te.prim_func(&[x, at, greatest])?;
    /// # Ok::<(), te::TeError>(())
    /// ```
    pub fn comm_reducer<const N: usize>(
        &mut self,
        dtypes: [DType; N],
        identity: [PrimExpr; N],
        combine: impl FnOnce([PrimExpr; N], [PrimExpr; N]) -> [PrimExpr; N],
    ) -> CommReducer {
        let func = &mut self.dag.func;
        let mut vars = |name: &str| -> [VarId; N] { dtypes.map(|dtype| func.var(name, dtype)) };
        let (lhs, rhs) = (vars("lhs"), vars("rhs"));
        let using = |vars: [VarId; N]| vars.map(|var| self.dag.func.var_expr(var));
        let result = combine(using(lhs), using(rhs));
        CommReducer {
            lhs: lhs.to_vec(),
            rhs: rhs.to_vec(),
            result: result.to_vec(),
            identity: identity.to_vec(),
        }
    }

    /// `N` tensors of one shape: what `reducer` makes, over all of `axes`, of the values that `body`
    /// returns for an index.
    pub fn compute_reduce<const N: usize, const R: usize>(
        &mut self,
        names: [&str; N],
        shape: [impl Into<PrimExpr>; R],
        reducer: &CommReducer,
        axes: impl IntoIterator<Item = Var>,
        body: impl FnOnce([Var; R]) -> [PrimExpr; N],
    ) -> [Tensor; N] {
        let extents: Vec<PrimExpr> = shape.into_iter().map(Into::into).collect();
        let index = self.index_vars();
        let values = body(index).to_vec();
        if reducer.result.len() != N {
            let count = reducer.result.len();
            self.problems.push(format!("{N} values are reduced by a reducer of {count}"));
        }
        let axes = axes.into_iter().map(|axis| self.reduced(axis.0, names.first())).collect();
        let first = self.dag.stages.len();
        let results: Vec<StageId> = (first..first + N).map(StageId::new).collect();
        let dtypes: Vec<DType> = values.iter().map(PrimExpr::dtype).collect();
        let reducer = reducer.clone();
        let reduction = Arc::new(JointReduction { reducer, axes, values, results });
        std::array::from_fn(|position| {
            let kind = StageKind::Joint { reduction: Arc::clone(&reduction), position };
            let axes = index.map(|axis| axis.0).to_vec();
            let (name, dtype) = (names[position], dtypes[position]);
            let stage = self.dag.define(name, extents.clone(), dtype, axes, kind);
            self.tensor(stage)
        })
    }

    /// Tensors that a statement computes: what has no expression, such as a sort. `body` is handed
    /// the function, for its builders of statements, the buffers of the inputs and those of the
    /// results; the statement stores every element of them.
    pub fn extern_op<const N: usize>(
        &mut self,
        results: [(&str, &[i64], DType); N],
        inputs: &[Tensor],
        body: impl FnOnce(&mut PrimFuncData, &[BufferId], [BufferId; N]) -> Stmt,
    ) -> [Tensor; N] {
        let first = self.dag.stages.len();
        let ids: Vec<StageId> = (first..first + N).map(StageId::new).collect();
        // The statement needs the buffers, and the stages need the statement.
        let buffers = results.map(|(name, shape, dtype)| {
            self.dag.func.buffer(name, dtype, BufferSpec::dense(shape), BufferScope::Local)
        });
        let read: Vec<BufferId> = inputs.iter().map(|tensor| tensor.buffer).collect();
        let body = body(&mut self.dag.func, &read, buffers);
        let statement = Arc::new(ExternStatement {
            body,
            inputs: inputs.iter().map(|tensor| tensor.stage).collect(),
            results: ids,
        });
        std::array::from_fn(|position| {
            let kind = StageKind::Extern { statement: Arc::clone(&statement), position };
            let (name, shape, _) = results[position];
            let axes = shape.iter().map(|_| self.dag.func.index_var("i")).collect();
            let stage = self.dag.define_at(buffers[position], name, axes, kind);
            self.tensor(stage)
        })
    }

    /// Has a tensor, if it is an output, stored in a layout. Its extents must be constant.
    pub fn set_layout(&mut self, tensor: Tensor, layout: BufferSpec) {
        self.dag.func.buffers[tensor.buffer].spec = layout;
    }

    /// The extents of a tensor, by the sizes.
    pub fn extents(&self, tensor: Tensor) -> Vec<PrimExpr> {
        self.dag.extents(tensor.stage)
    }

    /// The extents of a tensor; [`Buffer::SYMBOLIC`] where one is not constant.
    pub fn shape(&self, tensor: Tensor) -> &[i64] {
        self.dag.shape(tensor.stage)
    }

    fn index_vars<const N: usize>(&mut self) -> [Var; N] {
        let names = ["i", "j", "k", "l", "m", "n"];
        std::array::from_fn(|axis| {
            let axis = names.get(axis).map_or_else(|| format!("i{axis}"), |name| (*name).into());
            Var(self.dag.func.index_var(axis))
        })
    }

    /// The axis of a reduction that a variable is.
    fn reduced(&mut self, var: VarId, tensor: Option<&&str>) -> ReduceAxis {
        let extent = self.extents.get(&var).cloned();
        if extent.is_none() {
            let axis = &self.dag.func.vars[var].name;
            let tensor = tensor.copied().unwrap_or_default();
            self.problems.push(format!("`{axis}` of `{tensor}` is not a reduction axis"));
        }
        self.dag.reduce_axis(var, &extent.unwrap_or(PrimExpr::index(0)))
    }

    /// The stages, for those who schedule them by themselves.
    pub fn dag(&self) -> &ComputeDag {
        &self.dag
    }

    /// A function of `params` with a block for each tensor, in loops over its elements: what
    /// [`Schedule`](crate::schedule::Schedule) begins with. Placeholders among the parameters are
    /// inputs, or constants; computed tensors are outputs.
    ///
    /// # Errors
    ///
    /// A tensor that is needed is neither computed nor a parameter, or an expression uses a
    /// variable that is not an axis of its tensor.
    pub fn prim_func(&self, params: &[Tensor]) -> Result<PrimFunc, TeError> {
        if let Some(problem) = self.problems.first() {
            return Err(TeError(problem.clone()));
        }
        let params: Vec<(StageId, ParamKind)> = params
            .iter()
            .map(|tensor| {
                let is_input = self.dag.stages[tensor.stage].kind == StageKind::Placeholder;
                let kind = match (is_input, self.constants.contains(&tensor.stage)) {
                    (true, true) => ParamKind::Constant,
                    (true, false) => ParamKind::Input,
                    (false, _) => ParamKind::Output,
                };
                (tensor.stage, kind)
            })
            .collect();
        lower_to_blocks(&self.dag, &params)
    }
}
