//! What `ConvertLayout` and `AlterOpLayout` share: calls in other layouts, and what follows them.

use std::collections::BTreeMap;

use super::calls::{along_axis, call, call_of, call_with, tensor};
use crate::graph::{Call, Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{AttrValue, Attrs, Layout, LayoutMap};
use crate::ops::elementwise::ADD;
use crate::ops::nn::{BATCH_NORM, BIAS_ADD, PAD, PadAttrs};
use crate::ops::tensor::{
    CONCATENATE, EXPAND_DIMS, ExpandDimsAttrs, LAYOUT_TRANSFORM, LayoutTransformAttrs,
};
use crate::ops::{Op, OpPattern};
use crate::pass::{PassContext, PassError, Result};

/// A call that takes the place of another one, which is given as operator, arguments and attributes.
///
/// Its arguments are in the layouts in which that one has them; its attributes may name others, which
/// are put to its arguments then.
pub(super) type Rule<'a> =
    &'a dyn Fn(&mut FunctionBuilder, Op, &[Option<ExprId>], &Attrs) -> Result<Option<Call>>;

/// Rewrites calls by a rule, and lets what is computed of their results keep their layouts.
///
/// A value is brought back to the layout that it had for users that do not follow, and for none else.
pub(super) fn relayout(function: Function, cx: &PassContext, rule: Rule<'_>) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut state = Relayout {
        rewriter: Rewriter::new(function),
        placed: BTreeMap::new(),
        moved: BTreeMap::new(),
    };
    while let Some(id) = state.rewriter.next_expr()? {
        let old = state.rewriter.old().clone();
        match old.expr(id) {
            Expr::Call(Call { callee: Callee::Op(op), args, attrs }) => {
                state.call(id, *op, args, attrs, rule, cx)?;
            }
            &Expr::TupleGet { tuple, index: 0 } => {
                if let Some(placed) = state.placed.get(&tuple).cloned() {
                    state.place(id, placed)?;
                }
            }
            _ => {}
        }
    }
    Ok(state.rewriter.finish()?)
}

/// A value of the old function that the new one has in another layout; of a tuple, its first field.
#[derive(Clone)]
struct Placed {
    value: ExprId,
    /// Letters for the dimensions that the old value has.
    from: Layout,
    to: Layout,
}

struct Relayout {
    rewriter: Rewriter,
    placed: BTreeMap<ExprId, Placed>,
    /// Values of the new function in other layouts, by the scope in which these were made.
    moved: BTreeMap<(ExprId, String, String, u32), ExprId>,
}

impl Relayout {
    fn call(
        &mut self,
        id: ExprId,
        op: Op,
        args: &[Option<ExprId>],
        attrs: &Attrs,
        rule: Rule<'_>,
        cx: &PassContext,
    ) -> Result<()> {
        if op.is(&LAYOUT_TRANSFORM) {
            return self.transformed_again(args, attrs);
        }
        let mapped: Vec<Option<ExprId>> =
            args.iter().map(|arg| arg.map(|arg| self.rewriter.mapped(arg))).collect();
        if let Some(new) = rule(self.rewriter.builder(), op, &mapped, attrs)? {
            match self.altered(id, op, args, attrs, &new)? {
                true => cx.count("altered", 1),
                false => cx.missed(id, "the operands do not fit the layout"),
            }
            return Ok(());
        }
        let first = args.iter().flatten().find_map(|arg| self.placed.get(arg).cloned());
        let Some(Placed { from, to, .. }) = first else { return Ok(()) };
        // A call in a layout that does not fit one of its operands is an error of its type.
        if let Some(value) = self.following(id, op, args, attrs, &from, &to)? {
            self.place(id, Placed { value, from, to })?;
            cx.count("followed", 1);
        }
        Ok(())
    }

    /// Puts a value in the place of the current expression: brought back, unless it is a tuple, whose
    /// other fields have no layout.
    fn place(&mut self, id: ExprId, placed: Placed) -> Result<()> {
        let Placed { value, from, to } = &placed;
        let fields = self.rewriter.built().ty(*value).as_tuple().map(<[_]>::len);
        let back = match fields {
            None => self.moved(*value, to, from)?,
            Some(fields) => {
                let b = self.rewriter.builder();
                let mut values: Vec<ExprId> = Vec::with_capacity(fields);
                for index in 0..fields as u32 {
                    values.push(b.tuple_get(*value, index)?);
                }
                values[0] = self.moved(values[0], to, from)?;
                self.rewriter.builder().tuple(&values)
            }
        };
        let mut placed = placed.clone();
        if fields.is_some() {
            placed.value = self.rewriter.builder().tuple_get(placed.value, 0)?;
        }
        self.placed.insert(id, placed);
        self.rewriter.replace(back);
        Ok(())
    }

    /// A change of layout that undoes this pass's, or a part of it.
    fn transformed_again(&mut self, args: &[Option<ExprId>], attrs: &Attrs) -> Result<()> {
        let LayoutTransformAttrs { src_layout, dst_layout } = attrs.parse()?;
        let &[Some(arg)] = args else { return Ok(()) };
        let Some(Placed { value, from, to }) = self.placed.get(&arg).cloned() else {
            return Ok(());
        };
        if from.to_string() == src_layout {
            let value = self.moved(value, &to, &parsed(&dst_layout)?)?;
            self.rewriter.replace(value);
        }
        Ok(())
    }

    /// Puts a rule's call in the place of the current one; not if its layouts do not fit.
    fn altered(
        &mut self,
        id: ExprId,
        op: Op,
        old_args: &[Option<ExprId>],
        old_attrs: &Attrs,
        call: &Call,
    ) -> Result<bool> {
        let Callee::Op(new_op) = call.callee else {
            return Err(PassError::new(format!("`{op}` must be altered to a call of an operator")));
        };
        let mut args = call.args.clone();
        let mut result = None;
        for (index, name) in new_op.layouts.iter().enumerate() {
            let Some(&Some(arg)) = args.get(index) else { continue };
            let before = op.layouts.get(index).and_then(|name| old_attrs.get(name));
            let Some((from, to)) = layouts(before, call.attrs.get(name))? else { continue };
            let old = old_args.get(index).copied().flatten();
            let unchanged = old.filter(|&old| self.rewriter.mapped(old) == arg);
            let Some(moved) = self.operand(unchanged, arg, &from, &to)? else { return Ok(false) };
            args[index] = Some(moved);
            if index == 0 {
                result = Some((from, to));
            }
        }
        let b = self.rewriter.builder();
        let Some((from, to)) = result else {
            let new = b.call_optional(new_op, args, call.attrs.clone())?;
            let (ty, expected) = (b.ty(new).clone(), self.rewriter.old().ty(id));
            if ty != *expected {
                return Err(PassError::new(format!(
                    "`{op}` was altered to a call of type {ty}, but its type is {expected}"
                )));
            }
            self.rewriter.replace(new);
            return Ok(true);
        };
        let Ok(value) = b.call_optional(new_op, args, call.attrs.clone()) else {
            return Ok(false);
        };
        if !self.fits(id, value, &from, &to)? {
            return Ok(false);
        }
        self.place(id, Placed { value, from, to })?;
        Ok(true)
    }

    /// A call with operands in another layout, if the operator can have them so.
    fn following(
        &mut self,
        id: ExprId,
        op: Op,
        args: &[Option<ExprId>],
        attrs: &Attrs,
        from: &Layout,
        to: &Layout,
    ) -> Result<Option<ExprId>> {
        if op.is(&BIAS_ADD) && on_axis(attrs, from, to, Layout::whole).is_none() {
            return self.bias_in_blocks(id, args, attrs, from, to);
        }
        // How many of the arguments are in the layout, and the attributes that go with it.
        let (count, attrs) = if let [name] = op.layouts {
            let Some((own, _)) = layouts(attrs.get(name), Some(&text(to)))? else {
                return Ok(None);
            };
            if own != *from {
                return Ok(None);
            }
            (1, with_layout(attrs, name, to))
        } else if op.is(&BATCH_NORM) || op.is(&BIAS_ADD) {
            let Some(attrs) = on_axis(attrs, from, to, Layout::whole) else { return Ok(None) };
            (1, attrs)
        } else if op.is(&CONCATENATE) {
            // Blocks of one tensor follow those of the one before.
            let outer = |to: &Layout, axis| to.dims().position(|dim| dim == (axis, None));
            let Some(attrs) = on_axis(attrs, from, to, outer) else { return Ok(None) };
            (args.len(), attrs)
        } else if op.is(&PAD) {
            let PadAttrs { pad_width, mode } = attrs.parse()?;
            let width = |(axis, _)| match from.whole(axis).and_then(|at| pad_width.get(at)) {
                Some(&width) if to.whole(axis).is_some() => Some(width),
                width => width.filter(|width| **width == [0, 0]).copied(),
            };
            let widths: Option<Vec<[i64; 2]>> = to.dims().map(width).collect();
            let Some(pad_width) = widths else { return Ok(None) };
            (1, Attrs::from_struct(&PadAttrs { pad_width, mode })?)
        } else if matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast)
            && op.layouts.is_empty()
            && ["axis", "shape"].iter().all(|name| attrs.get(name).is_none())
        {
            (args.len(), attrs.clone())
        } else {
            return Ok(None);
        };
        let mut given = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            given.push(match *arg {
                Some(arg) if index < count => {
                    let mapped = self.rewriter.mapped(arg);
                    let Some(moved) = self.operand(Some(arg), mapped, from, to)? else {
                        return Ok(None);
                    };
                    Some(moved)
                }
                arg => arg.map(|arg| self.rewriter.mapped(arg)),
            });
        }
        let Ok(value) = self.rewriter.builder().call_optional(op, given, attrs) else {
            return Ok(None);
        };
        Ok(self.fits(id, value, from, to)?.then_some(value))
    }

    /// `nn.bias_add` along an axis that has blocks: a sum with the bias in these.
    fn bias_in_blocks(
        &mut self,
        id: ExprId,
        args: &[Option<ExprId>],
        attrs: &Attrs,
        from: &Layout,
        to: &Layout,
    ) -> Result<Option<ExprId>> {
        let (&[Some(x), Some(bias)], Some(&AttrValue::Int(axis))) = (args, attrs.get("axis"))
        else {
            return Ok(None);
        };
        let rank = from.dims().len();
        let Some(axis) = crate::ir::normalize_axis(axis, rank) else { return Ok(None) };
        let (x_mapped, bias) = (self.rewriter.mapped(x), self.rewriter.mapped(bias));
        let bias = along_axis(self.rewriter.builder(), bias, axis, rank)?;
        let x = self.operand(Some(x), x_mapped, from, to)?;
        let (Some(x), Some(bias)) = (x, self.operand(None, bias, from, to)?) else {
            return Ok(None);
        };
        let sum = call(self.rewriter.builder(), &ADD, &[x, bias])?;
        Ok(self.fits(id, sum, from, to)?.then_some(sum))
    }

    /// Whether a value has the type of the old one in another layout.
    fn fits(&self, id: ExprId, value: ExprId, from: &Layout, to: &Layout) -> Result<bool> {
        let first = |ty: &crate::ir::Type| {
            let first = ty.as_tuple().and_then(|fields| fields.first()).unwrap_or(ty);
            first.as_tensor().cloned()
        };
        let (old, new) =
            (first(self.rewriter.old().ty(id)), first(self.rewriter.built().ty(value)));
        let (Some(old), Some(new)) = (old, new) else { return Ok(false) };
        let map = LayoutMap::new(from, to).map_err(|error| PassError::new(error.to_string()))?;
        Ok(old.dtype == new.dtype
            && map.shape(&old.shape).is_ok_and(|shape| shape[..] == new.shape[..]))
    }

    /// An operand in a layout: `value` of the new function, which is `old` of the old one. One that
    /// is broadcast gets the axes that it lacks. `None` if blocks do not divide it.
    fn operand(
        &mut self,
        old: Option<ExprId>,
        value: ExprId,
        from: &Layout,
        to: &Layout,
    ) -> Result<Option<ExprId>> {
        if let Some(placed) = old.and_then(|old| self.placed.get(&old))
            && placed.from == *from
            && placed.to == *to
        {
            return Ok(Some(placed.value));
        }
        if self.rewriter.built().ty(value).as_tensor().is_none() {
            return Ok(None);
        }
        let rank = tensor(self.rewriter.built(), value)?.shape.rank();
        let Some(missing) = from.dims().len().checked_sub(rank) else { return Ok(None) };
        if rank == 0 {
            return Ok(Some(value));
        }
        let expanded = self.expanded(value, 0..missing)?;
        // An axis of one element has no blocks, but their dimensions, of one element each.
        let shape = tensor(self.rewriter.built(), expanded)?.shape;
        let is_one =
            |letter: char| from.whole(letter).is_some_and(|axis| shape[axis].as_const() == Some(1));
        let present = to.filtered(|axis, block| block.is_none() || !is_one(axis));
        let map = LayoutMap::new(from, &present).map_err(|e| PassError::new(e.to_string()))?;
        if map.shape(&shape).is_err() {
            return Ok(None);
        }
        let moved = self.moved(expanded, from, &present)?;
        let blocks =
            to.dims().enumerate().filter(|(_, (axis, block))| block.is_some() && is_one(*axis));
        let blocks: Vec<usize> = blocks.map(|(at, _)| at).collect();
        self.expanded(moved, blocks).map(Some)
    }

    /// A value with axes of one element at these places.
    fn expanded(
        &mut self,
        value: ExprId,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<ExprId> {
        let axis: Vec<i64> = places.into_iter().map(|place| place as i64).collect();
        if axis.is_empty() {
            return Ok(value);
        }
        call_with(self.rewriter.builder(), &EXPAND_DIMS, &[value], &ExpandDimsAttrs { axis })
    }

    /// A value of the new function in another layout; what a change of layout was made of, if it
    /// leads back there.
    fn moved(&mut self, value: ExprId, from: &Layout, to: &Layout) -> Result<ExprId> {
        let (mut value, mut src_layout, dst_layout) = (value, from.to_string(), to.to_string());
        let b = self.rewriter.builder();
        if let Some(Call { args, attrs, .. }) = call_of(b, value, &LAYOUT_TRANSFORM)
            && let &[Some(inner)] = args.as_slice()
        {
            let before: LayoutTransformAttrs = attrs.parse()?;
            if before.dst_layout == src_layout {
                (value, src_layout) = (inner, before.src_layout);
            }
        }
        if src_layout == dst_layout {
            return Ok(value);
        }
        let scope = b.current_scope().as_u32();
        let key = (value, src_layout.clone(), dst_layout.clone(), scope);
        if let Some(&moved) = self.moved.get(&key) {
            return Ok(moved);
        }
        let attrs = LayoutTransformAttrs { src_layout, dst_layout };
        let moved = call_with(b, &LAYOUT_TRANSFORM, &[value], &attrs)?;
        self.moved.insert(key, moved);
        Ok(moved)
    }
}

/// The text as a layout.
pub(super) fn parsed(text: &str) -> Result<Layout> {
    text.parse().map_err(|error| PassError::new(format!("{error}")))
}

/// The attributes with a layout, which goes without saying if it is the definition's.
pub(super) fn with_layout(attrs: &Attrs, name: &str, layout: &Layout) -> Attrs {
    match *layout == layout.default() {
        true => attrs.clone().without(name),
        false => attrs.clone().with(name, text(layout)),
    }
}

fn text(layout: &Layout) -> AttrValue {
    AttrValue::Str(layout.to_string().into())
}

/// The layouts of an operand before and after, from attributes of which at least one is there; `None`
/// if they are the same.
fn layouts(
    before: Option<&AttrValue>,
    after: Option<&AttrValue>,
) -> Result<Option<(Layout, Layout)>> {
    let read = |attribute: Option<&AttrValue>| match attribute {
        None => Ok(None),
        Some(AttrValue::Str(text)) => parsed(text).map(Some),
        Some(other) => Err(PassError::new(format!("{other} is no layout"))),
    };
    let (before, after) = match (read(before)?, read(after)?) {
        (None, None) => return Ok(None),
        (Some(before), None) => {
            let after = before.default();
            (before, after)
        }
        (None, Some(after)) => (after.default(), after),
        (Some(before), Some(after)) => (before, after),
    };
    Ok((before != after).then_some((before, after)))
}

/// The attributes of a call along an axis, with the dimension that `place` finds in the new layout.
fn on_axis(
    attrs: &Attrs,
    from: &Layout,
    to: &Layout,
    place: impl Fn(&Layout, char) -> Option<usize>,
) -> Option<Attrs> {
    let Some(&AttrValue::Int(axis)) = attrs.get("axis") else { return None };
    let axis = crate::ir::normalize_axis(axis, from.dims().len())?;
    let (letter, _) = from.dims().nth(axis)?;
    from.whole(letter)?;
    let place = place(to, letter)?;
    Some(attrs.clone().with("axis", AttrValue::Int(i64::try_from(place).ok()?)))
}
