//! Rows of batches whose sizes a run tells, one behind the other.

use std::collections::BTreeMap;

use super::calls::{call_with, op_of};
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

/// Fewest elements of a matrix that is worth it: a smaller one stays in the nearest cache.
const MIN_ELEMENTS: u64 = 4096;

/// Makes the axes before the last of an operand of `nn.matmul` one, if all its rows are multiplied by
/// one matrix and a run has its own size along an axis behind the first.
///
/// Such a tensor lies in memory as if it had its greatest extents, so that rows of one batch are far
/// from those of the next, and the matrix would be read for each batch anew, whose rows may be few.
/// What is computed of the product row by row follows; `reshape` brings back the axes for the rest.
#[function_pass(opt_level = 1, required = [InferType])]
pub fn flatten_rows(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rows = Rows {
        rewriter: Rewriter::new(function),
        computed: BTreeMap::new(),
        made: BTreeMap::new(),
    };
    while let Some(id) = rows.rewriter.next_expr()? {
        let old = rows.rewriter.old().clone();
        let scope = old.data_of(id).scope.as_u32();
        let flat = match old.expr(id) {
            &Expr::TupleGet { tuple, index } => rows.field(tuple, index, scope)?,
            expr => match op_of(expr) {
                Some((op, call)) if op.is(&MATMUL) => rows.product(call, scope)?,
                Some((op, call)) => rows.following(op, call, scope)?,
                None => None,
            },
        };
        let Some(flat) = flat else { continue };
        let Some(back) = rows.back(id, &flat)? else { continue };
        rows.computed.insert((id, scope), flat);
        if let Some(back) = back {
            rows.rewriter.replace(back);
            cx.count("calls", 1);
        }
    }
    Ok(rows.rewriter.finish()?)
}

/// A value of the new function whose first axis is what the old one has so many axes for.
#[derive(Clone)]
struct Flat {
    value: ExprId,
    /// The extents of these axes.
    lead: Vec<Dim>,
}

impl Flat {
    /// The axis of the flat value that one of the old value's is, counted from either end.
    fn axis(&self, axis: i64, rank: usize) -> Option<i64> {
        let axis = normalize_axis(axis, rank)?;
        Some((axis.checked_sub(self.lead.len())? + 1) as i64)
    }

    /// A flat value's shape.
    fn shape(&self, old: &Shape) -> Option<Vec<Dim>> {
        let rest = old.strip_prefix(self.lead.as_slice())?;
        let rows = Shape::new(self.lead.iter().cloned()).num_elements();
        Some([&[rows], rest].concat())
    }
}

struct Rows {
    rewriter: Rewriter,
    /// Values of the old function that are computed flat, by the scope in which they are.
    computed: BTreeMap<(ExprId, u32), Flat>,
    /// Flat copies of others, by how many axes became one.
    made: BTreeMap<(ExprId, usize, u32), ExprId>,
}

impl Rows {
    /// The type of a value of the old function, if it is a tensor.
    fn ty(&self, id: ExprId) -> Option<&TensorType> {
        self.rewriter.old().ty(id).as_tensor()
    }

    /// A product with one matrix.
    fn product(&mut self, call: &Call, scope: u32) -> Result<Option<Flat>> {
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return Ok(None) };
        let (Some(left), Some(right)) = (self.ty(lhs), self.ty(rhs)) else { return Ok(None) };
        let MatmulAttrs { transpose_a, .. } = call.attrs.parse()?;
        let lead = left.shape.split_last().map_or(&[][..], |(_, lead)| lead);
        let is_one = |dim: &Dim| dim.as_const() == Some(1);
        let rows_lie_apart = lead.iter().skip_while(|dim| is_one(dim)).skip(1);
        let rows_lie_apart = rows_lie_apart.into_iter().any(|dim| dim.as_const().is_none());
        let is_matrix = right.shape.rank() == 2
            && right.num_elements().is_some_and(|elements| elements >= MIN_ELEMENTS);
        if transpose_a || !is_matrix || !rows_lie_apart {
            return Ok(None);
        }
        let lead = lead.to_vec();
        let value = self.flat(lhs, &lead, scope)?;
        let args = [Some(value), Some(self.rewriter.mapped(rhs))];
        let (op, attrs) = (Op::new(&MATMUL), call.attrs.clone());
        let value = self.rewriter.builder().call_optional(op, args.to_vec(), attrs)?;
        Ok(Some(Flat { value, lead }))
    }

    /// A call whose results in a row are of no more than its arguments' there, if one of these is computed
    /// flat.
    fn following(&mut self, op: Op, call: &Call, scope: u32) -> Result<Option<Flat>> {
        let computed = |arg: &ExprId| self.computed.get(&(*arg, scope)).cloned();
        let Some(flat) = call.args.iter().flatten().find_map(computed) else { return Ok(None) };
        let ranks = call.args.iter().flatten().map(|&arg| self.ty(arg).map(|ty| ty.shape.rank()));
        let Some(rank) = ranks.max().flatten() else { return Ok(None) };
        let Some(attrs) = row_wise(op, &call.attrs, rank, &flat)? else { return Ok(None) };
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            let Some(arg) = *arg else {
                args.push(None);
                continue;
            };
            let Some(operand) = self.operand(arg, rank, &flat, scope)? else { return Ok(None) };
            args.push(Some(operand));
        }
        let value = self.rewriter.builder().call_optional(op, args, attrs).ok();
        Ok(value.map(|value| Flat { value, ..flat }))
    }

    /// A field of a tuple that is computed of flat values.
    fn field(&mut self, tuple: ExprId, index: u32, scope: u32) -> Result<Option<Flat>> {
        let Some(flat) = self.computed.get(&(tuple, scope)).cloned() else { return Ok(None) };
        let value = self.rewriter.builder().tuple_get(flat.value, index)?;
        Ok(Some(Flat { value, ..flat }))
    }

    /// An operand beside flat ones of so many axes: flat, or the same for all rows.
    fn operand(
        &mut self,
        arg: ExprId,
        rank: usize,
        flat: &Flat,
        scope: u32,
    ) -> Result<Option<ExprId>> {
        let Some(ty) = self.ty(arg) else { return Ok(None) };
        let behind = rank - flat.lead.len();
        let Some(before) = ty.shape.rank().checked_sub(behind) else {
            return Ok(Some(self.rewriter.mapped(arg)));
        };
        let (lead, rest) = ty.shape.split_at(before);
        if *lead == *flat.lead {
            return self.flat(arg, &flat.lead, scope).map(Some);
        }
        if lead.iter().any(|dim| dim.as_const() != Some(1)) {
            return Ok(None);
        }
        let (value, newshape) = (self.rewriter.mapped(arg), rest.to_vec());
        if lead.is_empty() {
            return Ok(Some(value));
        }
        call_with(self.rewriter.builder(), &RESHAPE, &[value], &ReshapeAttrs { newshape }).map(Some)
    }

    /// A value with its first axes as one.
    fn flat(&mut self, id: ExprId, lead: &[Dim], scope: u32) -> Result<ExprId> {
        if let Some(flat) = self.computed.get(&(id, scope))
            && flat.lead == lead
        {
            return Ok(flat.value);
        }
        let key = (id, lead.len(), scope);
        if let Some(&made) = self.made.get(&key) {
            return Ok(made);
        }
        let flat = Flat { value: self.rewriter.mapped(id), lead: lead.to_vec() };
        let shape = self.ty(id).and_then(|ty| flat.shape(&ty.shape));
        let newshape = shape.ok_or("a tensor lacks axes of the product it is an operand of")?;
        let attrs = ReshapeAttrs { newshape };
        let made = call_with(self.rewriter.builder(), &RESHAPE, &[flat.value], &attrs)?;
        self.made.insert(key, made);
        Ok(made)
    }

    /// What a flat value is with the axes that the old one has, or that it is a tuple, whose fields
    /// get theirs; `None` if it is not the old value in other axes.
    fn back(&mut self, id: ExprId, flat: &Flat) -> Result<Option<Option<ExprId>>> {
        let (old, new) = (self.rewriter.old().ty(id), self.rewriter.built().ty(flat.value));
        let (Some(old), Some(new)) = (old.as_tensor(), new.as_tensor()) else {
            return Ok(Some(None));
        };
        if flat.shape(&old.shape).as_deref() != Some(&*new.shape) {
            return Ok(None);
        }
        let attrs = ReshapeAttrs { newshape: old.shape.to_vec() };
        let back = call_with(self.rewriter.builder(), &RESHAPE, &[flat.value], &attrs)?;
        Ok(Some(Some(back)))
    }
}

/// The attributes of a call of flat values, whose operands had so many axes, if it computes each row by
/// itself.
fn row_wise(op: Op, attrs: &Attrs, rank: usize, flat: &Flat) -> Result<Option<Attrs>> {
    let axes = |axes: &[i64]| axes.iter().map(|&axis| flat.axis(axis, rank)).collect();
    if [&SUM, &MEAN, &MAX, &MIN, &PROD].iter().any(|def| op.is(def)) {
        let ReduceAttrs { axis, keepdims } = attrs.parse()?;
        let axis: Option<Vec<i64>> = axes(&axis);
        let axis = axis.filter(|axis| !axis.is_empty());
        return Ok(axis
            .map(|axis| Attrs::from_struct(&ReduceAttrs { axis, keepdims }))
            .transpose()?);
    }
    if op.is(&STRIDED_SLICE) {
        let slice: StridedSliceAttrs = attrs.parse()?;
        let axes = axes(&slice.axes);
        let slice = axes.map(|axes| Attrs::from_struct(&StridedSliceAttrs { axes, ..slice }));
        return Ok(slice.transpose()?);
    }
    let along_axis = [&SOFTMAX, &LOG_SOFTMAX, &LAYER_NORM, &BIAS_ADD, &CONCATENATE, &SPLIT];
    if along_axis.iter().any(|def| op.is(def)) {
        let Some(&AttrValue::Int(axis)) = attrs.get("axis") else { return Ok(None) };
        return Ok(flat.axis(axis, rank).map(|axis| attrs.clone().with("axis", axis)));
    }
    let is_element_wise = matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast)
        && ["axis", "shape"].iter().all(|name| attrs.get(name).is_none());
    Ok(is_element_wise.then(|| attrs.clone()))
}
