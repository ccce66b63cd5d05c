//! Rows of all batches, one behind the other.

use std::collections::BTreeMap;

use super::calls::{call_with, op_of, tensor};
use super::simplify_expr::moves::{RESHAPES, reshape};
use crate::graph::{Call, Expr, ExprId, Function, Rewriter};
use crate::ir::{AttrValue, Attrs, Dim, IRModule, Shape, TensorType, normalize_axis};
use crate::ops::nn::{BIAS_ADD, LAYER_NORM, LOG_SOFTMAX, MATMUL, MatmulAttrs, SOFTMAX};
use crate::ops::reduce::{MAX, MEAN, MIN, PROD, ReduceAttrs, SUM};
use crate::ops::tensor::{
    CONCATENATE, RESHAPE, ReshapeAttrs, SPLIT, STRIDED_SLICE, StridedSliceAttrs,
};
use crate::ops::{Op, OpPattern};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Fewest elements of a matrix for which rows are moved: a smaller one stays in the nearest cache.
const MIN_ELEMENTS: u64 = 4096;

/// Multiplies the rows of all batches at once where they share a matrix.
///
/// The axes of the rows become one. Else the matrix would be read for each batch anew, whose rows may be
/// few. A tensor with a size of each run along an axis behind the first lies in memory as if it had its
/// greatest extents, the rows of one batch far from those of the next. It is moved only for a matrix that
/// is worth it. What the operand is computed of row by row is flat before, and what is computed so of
/// the product behind it; `reshape` brings back the axes for the rest.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn flatten_rows(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let wanted = wanted(&function)?;
    if wanted.is_empty() {
        return Ok(function);
    }
    let rewriter = Rewriter::new(function);
    let mut rows = Rows { rewriter, wanted, computed: BTreeMap::new(), made: BTreeMap::new() };
    while let Some(id) = rows.rewriter.next_expr()? {
        let old = rows.rewriter.old().clone();
        let scope = old.data_of(id).scope.as_u32();
        let flat = match old.expr(id) {
            &Expr::TupleGet { tuple, index } => rows.field(tuple, index)?,
            expr => match op_of(expr) {
                Some((op, call)) if op.is(&MATMUL) => rows.product(op, call, scope)?,
                Some((op, call)) if RESHAPES.iter().any(|def| op.is(def)) => {
                    rows.reshaped_again(id, call)?;
                    None
                }
                Some((op, call)) => rows.row_wise(id, op, call, scope)?,
                None => None,
            },
        };
        if let Some(flat) = flat {
            rows.place(id, flat)?;
            cx.count("flat", 1);
        }
    }
    Ok(rows.rewriter.finish()?)
}

/// Values that are computed flat as they are operands of a product, or what these are computed of row
/// by row, with the extents of the axes that become one.
fn wanted(function: &Function) -> Result<BTreeMap<ExprId, Vec<Dim>>> {
    let mut wanted: BTreeMap<ExprId, Vec<Dim>> = BTreeMap::new();
    let live = function.live();
    for id in function.ids().rev().filter(|&id| live[id]) {
        let Some((op, call)) = op_of(function.expr(id)) else { continue };
        if let Some((lhs, lead)) = product(function, op, call)? {
            wanted.insert(lhs, lead);
        } else if let Some(lead) = wanted.get(&id).cloned()
            && let Some((operands, _)) = flat_call(function, op, call, &lead)?
        {
            for (arg, operand) in call.args.iter().zip(operands) {
                if let (&Some(arg), Some(Operand::Flat)) = (arg, operand) {
                    wanted.insert(arg, lead.clone());
                }
            }
        }
    }
    Ok(wanted)
}

/// The left operand of a product of several batches with one matrix, and the extents of its axes but
/// the last.
fn product(function: &Function, op: Op, call: &Call) -> Result<Option<(ExprId, Vec<Dim>)>> {
    if !op.is(&MATMUL) {
        return Ok(None);
    }
    let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return Ok(None) };
    let types = [lhs, rhs].map(|id| function.ty(id).as_tensor());
    let [Some(left), Some(right)] = types else { return Ok(None) };
    let MatmulAttrs { transpose_a, .. } = call.attrs.parse()?;
    let (Some((_, lead)), 2) = (left.shape.split_last(), right.shape.rank()) else {
        return Ok(None);
    };
    let mut batches = lead.iter().filter(|dim| dim.as_const() != Some(1)).skip(1).peekable();
    let are_several = batches.peek().is_some();
    let lie_apart = batches.any(|dim| dim.as_const().is_none());
    let is_worth_it = || right.num_elements().is_some_and(|elements| elements >= MIN_ELEMENTS);
    let is_flat = !transpose_a && are_several && (!lie_apart || is_worth_it());
    Ok(is_flat.then(|| (lhs, lead.to_vec())))
}

/// What an operand of a call of flat values is.
enum Operand {
    Flat,
    /// The same for all rows, in this shape.
    Shared(Vec<Dim>),
}

impl Operand {
    /// An operand of a call whose operands have up to `rank` axes, of which the first are `lead`.
    fn of(ty: &TensorType, rank: usize, lead: &[Dim]) -> Option<Operand> {
        let Some(before) = (ty.shape.rank() + lead.len()).checked_sub(rank) else {
            return Some(Operand::Shared(ty.shape.to_vec()));
        };
        let (first, rest) = ty.shape.split_at_checked(before)?;
        let is_shared = || first.iter().all(|dim| dim.as_const() == Some(1));
        match first == lead {
            true => Some(Operand::Flat),
            false => is_shared().then(|| Operand::Shared(rest.to_vec())),
        }
    }
}

/// The operands, as far as they are there, and attributes of a call of flat values in the place of one
/// that computes each row by itself.
fn flat_call(
    function: &Function,
    op: Op,
    call: &Call,
    lead: &[Dim],
) -> Result<Option<(Vec<Option<Operand>>, Attrs)>> {
    let ty = |arg: ExprId| function.ty(arg).as_tensor();
    let ranks = call.args.iter().flatten().map(|&arg| ty(arg).map_or(0, |ty| ty.shape.rank()));
    let Some(rank) = ranks.max() else { return Ok(None) };
    let operand = |arg: &Option<ExprId>| match *arg {
        None => Some(None),
        Some(arg) => Operand::of(ty(arg)?, rank, lead).map(Some),
    };
    let operands: Option<Vec<_>> = call.args.iter().map(operand).collect();
    Ok(operands.zip(flat_attrs(op, &call.attrs, rank, lead.len())?))
}

/// The attributes of a call of flat values, whose operands had `rank` axes of which the first `lead`
/// became one, if it computes each row by itself.
fn flat_attrs(op: Op, attrs: &Attrs, rank: usize, lead: usize) -> Result<Option<Attrs>> {
    let flat_axis = |axis: i64| {
        let behind = normalize_axis(axis, rank)?.checked_sub(lead)?;
        Some(behind as i64 + 1)
    };
    let flat_axes = |axes: &[i64]| axes.iter().map(|&axis| flat_axis(axis)).collect();
    if [&SUM, &MEAN, &MAX, &MIN, &PROD].iter().any(|def| op.is(def)) {
        let ReduceAttrs { axis, keepdims } = attrs.parse()?;
        let axis: Option<Vec<i64>> = flat_axes(&axis);
        // None are all.
        let axis = axis.filter(|axis| !axis.is_empty());
        let attrs = axis.map(|axis| Attrs::from_struct(&ReduceAttrs { axis, keepdims }));
        return Ok(attrs.transpose()?);
    }
    if op.is(&STRIDED_SLICE) {
        let slice: StridedSliceAttrs = attrs.parse()?;
        let axes = flat_axes(&slice.axes);
        let attrs = axes.map(|axes| Attrs::from_struct(&StridedSliceAttrs { axes, ..slice }));
        return Ok(attrs.transpose()?);
    }
    let along_axis = [&SOFTMAX, &LOG_SOFTMAX, &LAYER_NORM, &BIAS_ADD, &CONCATENATE, &SPLIT];
    if along_axis.iter().any(|def| op.is(def)) {
        let Some(&AttrValue::Int(axis)) = attrs.get("axis") else { return Ok(None) };
        return Ok(flat_axis(axis).map(|axis| attrs.clone().with("axis", axis)));
    }
    let is_element_wise = matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast)
        && ["axis", "shape"].iter().all(|name| attrs.get(name).is_none());
    Ok(is_element_wise.then(|| attrs.clone()))
}

/// The shape of a flat value.
fn flat_shape(old: &Shape, lead: &[Dim]) -> Option<Vec<Dim>> {
    let rest = old.strip_prefix(lead)?;
    let rows = Shape::new(lead.iter().cloned()).num_elements();
    Some([&[rows], rest].concat())
}

/// A value of the new function whose first axis is what the old one has several for.
struct Flat {
    value: ExprId,
    /// The extents of these axes.
    lead: Vec<Dim>,
}

struct Rows {
    rewriter: Rewriter,
    wanted: BTreeMap<ExprId, Vec<Dim>>,
    /// Values of the old function that are computed flat.
    computed: BTreeMap<ExprId, Flat>,
    /// Flat copies of others, by how many axes became one and the scope in which they are.
    made: BTreeMap<(ExprId, usize, u32), ExprId>,
}

impl Rows {
    /// The type of a value of the old function, if it is a tensor.
    fn ty(&self, id: ExprId) -> Option<&TensorType> {
        self.rewriter.old().ty(id).as_tensor()
    }

    /// A product with one matrix.
    fn product(&mut self, op: Op, call: &Call, scope: u32) -> Result<Option<Flat>> {
        let Some((lhs, lead)) = product(self.rewriter.old(), op, call)? else { return Ok(None) };
        let mut args = self.rewriter.args(call);
        args[0] = Some(self.flat(lhs, &lead, scope)?);
        let value = self.rewriter.builder().call_optional(op, args, call.attrs.clone())?;
        Ok(Some(Flat { value, lead }))
    }

    /// A call that computes each row by itself, of flat values or because it is wanted so.
    fn row_wise(&mut self, id: ExprId, op: Op, call: &Call, scope: u32) -> Result<Option<Flat>> {
        let old = self.rewriter.old();
        // In a loop, what comes from outside would have the loop's own values moved in each turn.
        let beside = |arg: &&ExprId| old.data_of(**arg).scope == old.data_of(id).scope;
        let computed = |arg: &ExprId| self.computed.get(arg).map(|flat| &flat.lead);
        let mut args = call.args.iter().flatten().filter(beside);
        let lead = args.find_map(computed).or(self.wanted.get(&id));
        let Some(lead) = lead.cloned() else { return Ok(None) };
        let Some((operands, attrs)) = flat_call(self.rewriter.old(), op, call, &lead)? else {
            return Ok(None);
        };
        let mut args = self.rewriter.args(call);
        for ((arg, old), operand) in args.iter_mut().zip(&call.args).zip(operands) {
            let (Some(arg), &Some(old), Some(operand)) = (arg, old, operand) else { continue };
            *arg = match operand {
                Operand::Flat => self.flat(old, &lead, scope)?,
                Operand::Shared(shape) => self.reshaped(*arg, shape)?,
            };
        }
        let value = self.rewriter.builder().call_optional(op, args, attrs).ok();
        Ok(value.map(|value| Flat { value, lead }))
    }

    /// A field of a tuple whose fields are flat.
    fn field(&mut self, tuple: ExprId, index: u32) -> Result<Option<Flat>> {
        let Some(Flat { value, lead }) = self.computed.get(&tuple) else { return Ok(None) };
        let (value, lead) = (*value, lead.clone());
        let value = self.rewriter.builder().tuple_get(value, index)?;
        Ok(Some(Flat { value, lead }))
    }

    /// Has the current expression computed flat, and brings back its axes for those that need them;
    /// of a tuple, for those of its fields.
    fn place(&mut self, id: ExprId, flat: Flat) -> Result<()> {
        let old = self.rewriter.old().ty(id).as_tensor().map(|ty| ty.shape.clone());
        if let Some(shape) = old {
            let found = tensor(self.rewriter.built(), flat.value)?.shape;
            // What is known of several axes need not be known of one.
            if flat_shape(&shape, &flat.lead).as_deref() != Some(&*found) {
                return Ok(());
            }
            let back = self.reshaped(flat.value, shape.to_vec())?;
            self.rewriter.replace(back);
        }
        self.computed.insert(id, flat);
        Ok(())
    }

    /// A value that is brought back and reshaped then.
    fn reshaped_again(&mut self, id: ExprId, call: &Call) -> Result<()> {
        let &[Some(arg)] = call.args.as_slice() else { return Ok(()) };
        let (Some(flat), Some(ty)) = (self.computed.get(&arg), self.ty(id)) else {
            return Ok(());
        };
        let (value, shape) = (flat.value, ty.shape.to_vec());
        let value = self.reshaped(value, shape)?;
        self.rewriter.replace(value);
        Ok(())
    }

    /// A value with its first axes as one.
    fn flat(&mut self, id: ExprId, lead: &[Dim], scope: u32) -> Result<ExprId> {
        if let Some(flat) = self.computed.get(&id)
            && flat.lead == lead
        {
            return Ok(flat.value);
        }
        let key = (id, lead.len(), scope);
        if let Some(&made) = self.made.get(&key) {
            return Ok(made);
        }
        let shape = self.ty(id).and_then(|ty| flat_shape(&ty.shape, lead));
        let shape = shape.ok_or("a tensor lacks axes of what it is an operand of")?;
        let value = self.rewriter.mapped(id);
        let made = self.reshaped(value, shape)?;
        self.made.insert(key, made);
        Ok(made)
    }

    /// A value of the new function in a shape.
    fn reshaped(&mut self, value: ExprId, newshape: Vec<Dim>) -> Result<ExprId> {
        let b = self.rewriter.builder();
        let ty = TensorType { shape: Shape::new(newshape.iter().cloned()), ..tensor(b, value)? };
        match reshape(b, value, &ty)? {
            Some(made) => Ok(made),
            None => call_with(b, &RESHAPE, &[value], &ReshapeAttrs { newshape }),
        }
    }
}
