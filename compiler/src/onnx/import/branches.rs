//! `If`: a run computes one side of two.
//!
//! The sides may yield tensors of different extents, as one that finds nothing does. There is then room
//! for those of the greater, and the side that is computed says how much of it there is.

use super::control::{elements, flag, rewrite};
use super::functions::FlatNode;
use super::graph::{GraphImporter, Value};
use super::{Attributes, Node, NodeError};
use crate::graph::{ExprId, ScopeId, ScopeKind};
use crate::ir::{Dim, Type};

/// An axis along which a tensor of one side has other extents than that of the other.
struct OpenAxis {
    /// The position of the tensor among those of a side.
    tensor: usize,
    axis: usize,
    /// The number of the extents in [`Extents`].
    extents: usize,
}

/// Extents of both sides that differ, and the most of them there may be.
struct Extents {
    of_sides: [Dim; 2],
    most: i64,
}

impl<'a> GraphImporter<'a, '_, '_> {
    /// `If`-1, -11, -13, -16, -19 and later (more types). If the condition is known, one side is all there
    /// is.
    pub(super) fn import_if(
        &mut self,
        proto: &'a FlatNode<'_>,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        let branches = [attrs.graph("then_branch")?, attrs.graph("else_branch")?];
        let bodies = branches.map(|graph| self.body(graph, proto.opsets));
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let condition = node.input(0)?;
        if let Some(holds) = flag(&mut node, condition)? {
            return Ok(self.shared.run(&bodies[usize::from(!holds)], &[]));
        }
        let condition = node.reshape(condition, Vec::new())?;
        let around = node.builder.current_scope();
        let mut sides = Vec::with_capacity(2);
        let mut results = Vec::with_capacity(2);
        for body in bodies {
            self.shared.builder.open_scope(ScopeKind::Branch);
            let values = self.shared.run(&body, &[]);
            let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
            if values.contains(&Value::Unknown) {
                node.leave_loop(around);
                return Ok(vec![Value::Unknown; proto.output.len()]);
            }
            let tensors: Vec<ExprId> =
                values.iter().flat_map(|&value| elements(&node, value)).collect();
            let result = node.builder.tuple(&tensors);
            sides.push((node.builder.close_scope(result), tensors));
            results.push(values);
        }
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        check_sides(&node, condition, [&results[0], &results[1]])?;
        let (open, extents) = differences(&node, condition, [&sides[0].1, &sides[1].1])?;
        if !open.is_empty() {
            for (side, (scope, tensors)) in sides.iter().enumerate() {
                widen(&mut node, *scope, tensors, (&open, &extents), side)?;
            }
        }
        let choice = node.builder.if_else(condition, sides[0].0, sides[1].0)?;
        let field =
            |node: &mut Node<'_, '_>, number: usize| node.builder.tuple_get(choice, number as u32);
        let count = sides[0].1.len();
        let mut fields: Vec<ExprId> =
            (0..count).map(|number| field(&mut node, number)).collect::<Result<_, _>>()?;
        for number in 0..extents.len() {
            let size = field(&mut node, count + number)?;
            let size = node.size(size)?;
            for OpenAxis { tensor, axis, .. } in open.iter().filter(|axis| axis.extents == number) {
                fields[*tensor] = node.truncated(fields[*tensor], *axis, &size)?;
            }
        }
        let mut fields = fields.into_iter();
        let mut next = |node: &mut Node<'_, '_>, value: Value| match value {
            Value::Known(id) => Value::Known(match node.elements(id).map(<[ExprId]>::len) {
                Some(count) => node.sequence(&fields.by_ref().take(count).collect::<Vec<_>>()),
                None => fields.next().unwrap_or(id),
            }),
            Value::Absent | Value::Unknown => value,
        };
        Ok(results[0].iter().map(|&value| next(&mut node, value)).collect())
    }
}

/// What is not known as a condition is not.
fn depends(node: &Node<'_, '_>, condition: ExprId, what: &str) -> NodeError {
    let message = format!("the condition depends on the model's inputs, and so would {what}");
    NodeError::new(message).help(rewrite(node, [condition]))
}

/// Checks that both sides of a condition that is not known give the same kinds of values.
fn check_sides(
    node: &Node<'_, '_>,
    condition: ExprId,
    [yes, no]: [&[Value]; 2],
) -> Result<(), NodeError> {
    if yes.len() != no.len() {
        let (yes, no) = (yes.len(), no.len());
        return Err(NodeError::new(format!("one branch has {yes} outputs and the other {no}")));
    }
    for (&yes, &no) in yes.iter().zip(no) {
        if (yes == Value::Absent) != (no == Value::Absent) {
            return Err(depends(node, condition, "whether an optional value has an element"));
        }
        let (yes, no) = (elements(node, yes), elements(node, no));
        if yes.len() != no.len() {
            let (yes, no) = (yes.len(), no.len());
            return Err(depends(
                node,
                condition,
                &format!("the length of a sequence: {yes} or {no}"),
            ));
        }
    }
    Ok(())
}

/// The axes along which tensors of both sides differ, and their extents there.
///
/// # Errors
///
/// Tensors that differ in more than extents, or in one without a bound.
fn differences(
    node: &Node<'_, '_>,
    condition: ExprId,
    [yes, no]: [&[ExprId]; 2],
) -> Result<(Vec<OpenAxis>, Vec<Extents>), NodeError> {
    let (mut open, mut extents) = (Vec::new(), Vec::<Extents>::new());
    for (tensor, (&yes, &no)) in yes.iter().zip(no).enumerate() {
        let types = [node.tensor(yes)?, node.tensor(no)?];
        let [yes, no] = &types;
        let mut is_alike = yes.dtype == no.dtype && yes.shape.rank() == no.shape.rank();
        for (axis, (yes, no)) in yes.shape.iter().zip(no.shape.iter()).enumerate() {
            if yes == no || !is_alike {
                continue;
            }
            let of_sides = [yes.clone(), no.clone()];
            let most = [yes, no].map(|extent| node.facts().bounds_of(extent).upper);
            let [Some(yes), Some(no)] = most else {
                is_alike = false;
                continue;
            };
            let known = extents.iter().position(|known| known.of_sides == of_sides);
            let number = known.unwrap_or(extents.len());
            if known.is_none() {
                extents.push(Extents { of_sides, most: yes.max(no) });
            }
            open.push(OpenAxis { tensor, axis, extents: number });
        }
        if !is_alike {
            let [yes, no] = types.map(Type::from);
            return Err(depends(node, condition, &format!("the type of a value: {yes} or {no}")));
        }
    }
    Ok((open, extents))
}

/// Has the tensors of a side the greatest extents, and its own behind them.
fn widen(
    node: &mut Node<'_, '_>,
    scope: ScopeId,
    tensors: &[ExprId],
    (open, extents): (&[OpenAxis], &[Extents]),
    side: usize,
) -> Result<(), NodeError> {
    node.builder.reopen_scope(scope);
    let mut results = tensors.to_vec();
    for OpenAxis { tensor, axis, extents: number } in open {
        let wide = extended(node, results[*tensor], *axis, extents[*number].most)?;
        results[*tensor] = wide;
    }
    for Extents { of_sides, .. } in extents {
        results.push(node.size_scalar(&of_sides[side])?);
    }
    let result = node.builder.tuple(&results);
    node.builder.close_scope(result);
    Ok(())
}

/// A tensor of so many elements along an axis, of which those that it has are the first.
fn extended(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: usize,
    most: i64,
) -> Result<ExprId, NodeError> {
    let ty = node.tensor(x)?;
    let mut rest = ty.shape.to_vec();
    rest[axis] = match ty.shape[axis].as_const() {
        Some(extent) if extent == most => return Ok(x),
        Some(extent) => Dim::from(most - extent),
        None => Dim::from(most),
    };
    let rest = node.full(0.0, ty.dtype, rest)?;
    let both = node.concatenate(&[x, rest], axis)?;
    node.slice(both, axis, 0, most)
}
