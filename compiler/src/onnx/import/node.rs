//! One node while it is imported: its inputs and attributes, and what it is built with.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Attributes;
use super::extents::SizeNames;
use super::graph::Shared;
use super::known::{KnownValues, is_small};
use crate::arith::{Facts, Symbol};
use crate::diagnostics::{Problem, Setting};
use crate::graph::{Expr, ExprId, FunctionBuilder, TypeError};
use crate::ir::{Attrs, Constant, DType, Dim, Shape, TensorType, Type};
use crate::onnx::external::ExternalData;
use crate::onnx::proto::NodeProto;
use crate::onnx::tensor::TensorError;
use crate::ops::elementwise::{CAST, CastAttrs};
use crate::ops::tensor::{RESHAPE, ReshapeAttrs};
use crate::ops::{Op, OpDef};
use crate::options::DimSize;

/// The values that a node defines, in order. An output that is not computed is left out at the end.
pub type Outputs = Vec<ExprId>;

/// Why a node cannot be imported; becomes a problem that names the node, its operator, the operator
/// set and the inputs with their types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeError {
    message: String,
    help: Option<String>,
    /// Extents that must be known.
    unknown: Vec<Dim>,
    /// Whether types do not fit, for which extents that are not known may be the cause.
    is_of_types: bool,
}

impl NodeError {
    /// An error of that message: one line, without a full stop.
    pub fn new(message: impl Into<String>) -> NodeError {
        NodeError { message: message.into(), help: None, unknown: Vec::new(), is_of_types: false }
    }

    /// Says what would fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> NodeError {
        self.help = Some(help.into());
        self
    }

    /// Says that extents must be known.
    #[must_use]
    pub(in crate::onnx) fn pin<'d>(mut self, dims: impl IntoIterator<Item = &'d Dim>) -> NodeError {
        self.unknown.extend(dims.into_iter().cloned());
        self
    }

    /// The problem, with a list of the node's inputs, whose extents are `dims`.
    pub(super) fn into_problem(self, inputs: &str, dims: &[Dim], sizes: &SizeNames) -> Problem {
        let problem = Problem::new(format!("{} ({inputs})", self.message));
        let unknown = || Some(format!("if an unknown size is the cause, {}", sizes.fix(dims)?));
        let help = self.help.or_else(|| sizes.fix(&self.unknown));
        match help.or_else(|| self.is_of_types.then(unknown).flatten()) {
            Some(help) => problem.help(help),
            None => problem,
        }
    }
}

impl From<TypeError> for NodeError {
    fn from(error: TypeError) -> NodeError {
        NodeError { is_of_types: true, ..NodeError::new(error.to_string()) }
    }
}

impl From<TensorError> for NodeError {
    fn from(error: TensorError) -> NodeError {
        NodeError::new(error.to_string())
    }
}

/// Bound of constants that are taken for whole numbers: `f32` tells all below it apart.
const MAX_WHOLE: f64 = (1u64 << f32::MANTISSA_DIGITS) as f64;

/// A node while it is imported: its attributes and inputs, and the calls of graph operators that its
/// outputs are built of.
pub struct Node<'a, 'b> {
    /// Its attributes. Those that are not read are an error of the node.
    pub attrs: Attributes<'a>,
    /// The version of the operator that is in effect: the newest that is not newer than the model's
    /// operator set.
    pub version: i64,
    pub(super) proto: &'a NodeProto,
    pub(super) inputs: Vec<Option<ExprId>>,
    pub(in crate::onnx) builder: &'b mut FunctionBuilder,
    pub(super) external: &'b mut ExternalData,
    pub(super) known: &'b mut KnownValues,
    pub(super) labels: &'b mut BTreeMap<String, Vec<String>>,
    pub(in crate::onnx) sizes: &'b mut SizeNames,
}

impl Shared<'_> {
    /// A node as its handler sees it.
    pub(super) fn node<'a, 'b>(
        &'b mut self,
        proto: &'a NodeProto,
        version: i64,
        inputs: Vec<Option<ExprId>>,
        attrs: Attributes<'a>,
    ) -> Node<'a, 'b> {
        Node {
            attrs,
            version,
            proto,
            inputs,
            builder: &mut self.builder,
            external: self.external,
            known: &mut self.known,
            labels: &mut self.labels,
            sizes: &mut self.sizes,
        }
    }
}

impl Node<'_, '_> {
    /// Number of inputs that are named, those that are left out in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Whether an output is used or could be: it has a name.
    pub fn wants_output(&self, index: usize) -> bool {
        self.proto.output.get(index).is_some_and(|name| !name.is_empty())
    }

    /// Says what strings the classes of an output stand for.
    pub(in crate::onnx) fn set_labels(&mut self, output: usize, labels: &[&str]) {
        if let Some(name) = self.proto.output.get(output) {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            self.labels.insert(name.clone(), labels);
        }
    }

    /// A symbol that nothing has yet, for a size that a run computes: it goes by the node's output.
    pub(in crate::onnx) fn new_size(&mut self) -> String {
        let name = format!("{}_size", self.output_name(0));
        let other = |number: usize| format!("{name}_{number}");
        let names = std::iter::once(name.clone()).chain((2..).map(other));
        let name = names.into_iter().find(|name| !self.sizes.names.contains(name)).unwrap_or(name);
        self.sizes.counted.insert(Symbol::new(&name));
        self.sizes.names.insert(name.clone());
        name
    }

    /// What an option says of a size that a run computes. Options that no node takes are told.
    pub(in crate::onnx) fn take_asked_size(&mut self, name: &str) -> Option<DimSize> {
        self.sizes.asked.remove(name).map(|(size, _)| size)
    }

    /// What a size that a run computes has to be, if the rest of the model tells.
    pub(in crate::onnx) fn expected_size(&self, name: &str) -> Option<Dim> {
        self.sizes.expected.get(&Symbol::new(name)).cloned()
    }

    /// The name of an output; empty if it is not named.
    pub(in crate::onnx) fn output_name(&self, index: usize) -> &str {
        self.proto.output.get(index).map_or("", String::as_str)
    }

    /// Number of outputs that the node lists.
    pub fn output_count(&self) -> usize {
        self.proto.output.len()
    }

    /// An input that may be left out.
    pub fn optional(&self, index: usize) -> Option<ExprId> {
        self.inputs.get(index).copied().flatten()
    }

    /// An input that must be there.
    ///
    /// # Errors
    ///
    /// If it is left out.
    pub fn input(&self, index: usize) -> Result<ExprId, NodeError> {
        self.optional(index).ok_or_else(|| NodeError::new(format!("input {index} is missing")))
    }

    /// Every input; none may be left out.
    ///
    /// # Errors
    ///
    /// If one is left out.
    pub fn all_inputs(&self) -> Result<Vec<ExprId>, NodeError> {
        (0..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    /// What a handler makes of other inputs, at another version of its operator: for operators that
    /// are made of one that there is.
    pub(in crate::onnx) fn on_inputs<T>(
        &mut self,
        version: i64,
        inputs: Vec<Option<ExprId>>,
        handler: impl FnOnce(&mut Self) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let own = (self.version, std::mem::replace(&mut self.inputs, inputs));
        self.version = version;
        let result = handler(self);
        (self.version, self.inputs) = own;
        result
    }

    /// The type of a value, which must be a tensor.
    ///
    /// # Errors
    ///
    /// If it is a tuple, a sequence or the like.
    pub fn tensor(&self, value: ExprId) -> Result<TensorType, NodeError> {
        match self.builder.ty(value) {
            Type::Tensor(tensor) => Ok(tensor.clone()),
            ty @ (Type::Tuple(_) | Type::Func(_) | Type::Sequence(_) | Type::Optional(_)) => {
                Err(NodeError::new(format!("a tensor is expected, but this is {ty}")))
            }
        }
    }

    /// The shape of a value, which must be a tensor.
    ///
    /// # Errors
    ///
    /// If it is no tensor.
    pub fn shape(&self, value: ExprId) -> Result<Shape, NodeError> {
        Ok(self.tensor(value)?.shape)
    }

    /// Whether extents are equal. If they may be, and extents are found out, they are.
    pub fn is_same(&mut self, left: &[Dim], right: &[Dim]) -> bool {
        self.builder.is_same_shape(left, right)
    }

    /// What is known of the sizes of inputs.
    pub fn facts(&self) -> &Facts {
        self.builder.facts()
    }

    /// An axis of a value counted from either end, as an index.
    ///
    /// # Errors
    ///
    /// If it is out of range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, NodeError> {
        crate::ir::normalize_axis(axis, rank).ok_or_else(|| {
            NodeError::new(format!("axis {axis} is out of range for {rank} dimensions"))
        })
    }

    /// Axes counted from either end, as indices in the order given; none twice.
    ///
    /// # Errors
    ///
    /// If one is out of range, or listed twice.
    pub fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, NodeError> {
        let mut seen = vec![false; rank];
        let mut indices = Vec::with_capacity(axes.len());
        for &axis in axes {
            let index = self.axis(axis, rank)?;
            if std::mem::replace(&mut seen[index], true) {
                return Err(NodeError::new(format!("axis {axis} is listed twice in {axes:?}")));
            }
            indices.push(index);
        }
        Ok(indices)
    }

    /// The elements of an integer input as dimensions, if it is there: they must be known while
    /// compiling, but may be symbolic.
    ///
    /// # Errors
    ///
    /// If they are not known.
    pub fn dims_input(&mut self, index: usize) -> Result<Option<Vec<Dim>>, NodeError> {
        let Some(value) = self.optional(index) else { return Ok(None) };
        if let Some(dims) = &self.builder.data_of(value).shape_value {
            return Ok(Some(dims.to_vec()));
        }
        match self.known_value(value).and_then(|constant| constant.to_i64_vec()) {
            Some(values) => Ok(Some(values.into_iter().map(Dim::from).collect())),
            None => Err(self.not_known(index)),
        }
    }

    /// The value of a small tensor, if it depends on constants alone.
    pub(in crate::onnx) fn known_value(&mut self, value: ExprId) -> Option<Constant> {
        match self.builder.expr(value).as_constant() {
            Some(constant) => Some(constant.clone()),
            None => self.known.get(self.builder, value),
        }
    }

    /// The elements of an integer input as numbers, if it is there.
    ///
    /// # Errors
    ///
    /// If they are not known, or depend on the size of an input.
    pub fn ints_input(&mut self, index: usize) -> Result<Option<Vec<i64>>, NodeError> {
        let Some(dims) = self.dims_input(index)? else { return Ok(None) };
        let ints: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
        match ints {
            Some(ints) => Ok(Some(ints)),
            None => Err(self.not_known(index)),
        }
    }

    /// The one element of an integer input as a number, if the input is there.
    ///
    /// # Errors
    ///
    /// If it is not known, or has not one element.
    pub fn int_input(&mut self, index: usize) -> Result<Option<i64>, NodeError> {
        let Some(ints) = self.ints_input(index)? else { return Ok(None) };
        match ints.as_slice() {
            [int] => Ok(Some(*int)),
            ints => Err(not_one(index, ints.len())),
        }
    }

    /// The one element of an integer input, if it is there; it may depend on sizes of inputs.
    ///
    /// # Errors
    ///
    /// If it is not known, or has not one element.
    pub fn dim_input(&mut self, index: usize) -> Result<Option<Dim>, NodeError> {
        let Some(dims) = self.dims_input(index)? else { return Ok(None) };
        match dims.as_slice() {
            [dim] => Ok(Some(dim.clone())),
            dims => Err(not_one(index, dims.len())),
        }
    }

    /// The elements of a floating-point input, if it is there; they must be constant.
    ///
    /// # Errors
    ///
    /// If they are not known.
    pub fn floats_input(&mut self, index: usize) -> Result<Option<Vec<f64>>, NodeError> {
        let Some(value) = self.optional(index) else { return Ok(None) };
        let floats = self.known_value(value).and_then(|constant| constant.to_f64_vec());
        floats.map(Some).ok_or_else(|| self.not_known(index))
    }

    /// The one element of a numeric input, if it is there; it must be constant.
    ///
    /// # Errors
    ///
    /// If it is not known, or has not one element.
    pub fn number_input(&mut self, index: usize) -> Result<Option<f64>, NodeError> {
        let Some(value) = self.optional(index) else { return Ok(None) };
        if !self.tensor(value)?.dtype.is_float() {
            return Ok(self.int_input(index)?.map(|int| int as f64));
        }
        match self.floats_input(index)?.unwrap_or_default().as_slice() {
            [number] => Ok(Some(*number)),
            numbers => Err(not_one(index, numbers.len())),
        }
    }

    /// The one element of a numeric input, if it is known to be a whole number; that may depend on sizes
    /// of inputs.
    ///
    /// # Errors
    ///
    /// If the input is left out, or has not one element.
    pub(in crate::onnx) fn whole_number(&mut self, index: usize) -> Result<Option<Dim>, NodeError> {
        let value = self.input(index)?;
        if self.builder.data_of(value).shape_value.is_some() {
            return self.dim_input(index);
        }
        let numbers = self.known_value(value).and_then(|constant| constant.to_f64_vec());
        let Some(numbers) = numbers else { return Ok(None) };
        match numbers.as_slice() {
            [number] => {
                let is_exact = number.fract() == 0.0 && number.abs() < MAX_WHOLE;
                Ok(is_exact.then(|| Dim::from(*number as i64)))
            }
            numbers => Err(not_one(index, numbers.len())),
        }
    }

    /// The elements of an input that must be there, and known while compiling.
    ///
    /// # Errors
    ///
    /// If it is left out, or not known.
    pub fn constant_input(&mut self, index: usize) -> Result<Constant, NodeError> {
        let value = self.input(index)?;
        self.known_value(value).ok_or_else(|| self.not_known(index))
    }

    fn not_known(&self, index: usize) -> NodeError {
        let value = self.optional(index);
        if let Some(dims) = value.and_then(|value| self.builder.data_of(value).shape_value.as_ref())
        {
            let mut symbols = dims.iter().flat_map(Dim::symbols);
            let is_counted = symbols.any(|symbol| self.sizes.counted.contains(&symbol));
            let of = if is_counted { "what a run computes" } else { "the size of an input" };
            return NodeError::new(format!(
                "input {index} must be known while compiling, but it depends on {of}: {}",
                Shape::new(dims.iter().cloned())
            ))
            .pin(dims.iter());
        }
        let error = NodeError::new(format!(
            "input {index} must be known while compiling, but it is computed from the model's inputs"
        ));
        let fix = self.optional(index).and_then(|value| self.fix_inputs(value));
        let fix = fix.map_or_else(String::new, |fix| format!(", or {fix}"));
        error.help(format!("make it a constant when exporting the model{fix}"))
    }

    /// How to fix the model's inputs that a value is computed from. Only small ones are worth it: no
    /// one compiles an image into a model.
    pub(in crate::onnx) fn fix_inputs(&self, value: ExprId) -> Option<String> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut seen: BTreeSet<ExprId> = BTreeSet::new();
        let mut work = vec![value];
        while let Some(id) = work.pop() {
            if !seen.insert(id) {
                continue;
            }
            let expr = self.builder.expr(id);
            if let Expr::Var(name) = expr
                && is_small(self.builder.ty(id))
            {
                names.insert(name);
            }
            work.extend(expr.operands());
        }
        let settings = Setting::InputValue.of_all(names.iter().copied());
        (!names.is_empty()).then(|| format!("fix what it is computed from: {settings}"))
    }

    /// The constant that an initializer or attribute tensor holds.
    ///
    /// # Errors
    ///
    /// If the tensor is damaged, or of a type that is not supported.
    pub fn read_constant(
        &mut self,
        tensor: &crate::onnx::proto::TensorProto,
    ) -> Result<Constant, NodeError> {
        Ok(super::super::constant_from_onnx(tensor, self.external)?)
    }

    /// Pushes a constant.
    pub fn constant(&mut self, constant: Constant) -> ExprId {
        self.builder.constant(constant)
    }

    /// Pushes a scalar constant.
    ///
    /// # Errors
    ///
    /// If there is no arithmetic on that type.
    pub fn scalar(&mut self, value: f64, dtype: DType) -> Result<ExprId, NodeError> {
        let constant = Constant::scalar(value, dtype)
            .ok_or_else(|| NodeError::new(format!("arithmetic on {dtype} is not supported")))?;
        Ok(self.builder.constant(constant))
    }

    /// Calls an operator without attributes.
    ///
    /// # Errors
    ///
    /// If the type relation of the operator does not hold.
    pub fn call(&mut self, op: &'static OpDef, args: &[ExprId]) -> Result<ExprId, NodeError> {
        Ok(self.builder.call(Op::new(op), args, Attrs::new())?)
    }

    /// Calls an operator with attributes.
    ///
    /// # Errors
    ///
    /// If the type relation of the operator does not hold.
    pub fn call_with(
        &mut self,
        op: &'static OpDef,
        args: &[ExprId],
        attrs: &impl Serialize,
    ) -> Result<ExprId, NodeError> {
        let args = args.iter().copied().map(Some).collect();
        self.call_optional(op, args, attrs)
    }

    /// Calls an operator, some of whose arguments may be absent.
    ///
    /// # Errors
    ///
    /// If the type relation of the operator does not hold.
    pub fn call_optional(
        &mut self,
        op: &'static OpDef,
        args: Vec<Option<ExprId>>,
        attrs: &impl Serialize,
    ) -> Result<ExprId, NodeError> {
        let attrs = Attrs::from_struct(attrs).map_err(|error| NodeError::new(error.to_string()))?;
        Ok(self.builder.call_optional(Op::new(op), args, attrs)?)
    }

    /// A field of a tuple.
    ///
    /// # Errors
    ///
    /// If it is no tuple, or too short.
    pub fn field(&mut self, tuple: ExprId, index: u32) -> Result<ExprId, NodeError> {
        Ok(self.builder.tuple_get(tuple, index)?)
    }

    /// The elements of a value, if it is a sequence.
    pub(in crate::onnx) fn elements(&self, value: ExprId) -> Option<&[ExprId]> {
        self.builder.expr(value).as_tuple()
    }

    /// A sequence. Calls take its elements, and never the sequence itself.
    pub(in crate::onnx) fn sequence(&mut self, elements: &[ExprId]) -> ExprId {
        self.builder.tuple(elements)
    }

    /// Converts a value, unless it is of that type already.
    ///
    /// # Errors
    ///
    /// If the value is no tensor.
    pub fn cast(&mut self, value: ExprId, dtype: DType) -> Result<ExprId, NodeError> {
        if self.tensor(value)?.dtype == dtype {
            return Ok(value);
        }
        self.call_with(&CAST, &[value], &CastAttrs::to(dtype))
    }

    /// Reshapes a value, unless it has that shape already.
    ///
    /// # Errors
    ///
    /// If the number of elements is another one.
    pub fn reshape(&mut self, value: ExprId, dims: Vec<Dim>) -> Result<ExprId, NodeError> {
        if self.shape(value)?[..] == dims[..] {
            return Ok(value);
        }
        self.call_with(&RESHAPE, &[value], &ReshapeAttrs { newshape: dims })
    }
}

fn not_one(index: usize, found: usize) -> NodeError {
    NodeError::new(format!("input {index} must have one element, but it has {found}"))
}
