//! Reductions of rows with what is computed of the rows and of them: norms, written out.

use cranelift_entity::SecondaryMap;

use super::graph::Graph;
use super::partition::Groups;
use crate::graph::{ExprId, Function};
use crate::ir::Dim;
use crate::ops::OpPattern;
use crate::ops::nn::{LOG_SOFTMAX, SOFTMAX, SoftmaxAttrs};
use crate::ops::reduce::ReduceAttrs;
use crate::transform::calls::op_of;

/// Shortest rows, in elements, that are worth loops of their own.
pub(super) const MIN_ROW: i64 = 8;

/// What the members of a group are about: tensors of rows, and of one number for each row.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Rows {
    /// The axes before that of a row.
    outer: Vec<Dim>,
    /// Elements of a row, if some member has whole rows.
    row: Option<Dim>,
    /// Whether a member reduces rows.
    pub(super) reduces: bool,
}

/// Joins groups of which each element depends on its own row alone, if rows are reduced in one of
/// them and all that reads the result of the first is in the second.
pub(super) fn join(groups: &mut Groups, function: &Function, graph: &Graph, max_depth: usize) {
    let mut members = groups.members(graph);
    let mut rows: SecondaryMap<ExprId, Option<Rows>> = SecondaryMap::new();
    let roots: Vec<ExprId> = graph.ids().filter(|&id| groups.root(id) == id).collect();
    let mut any = false;
    for &root in &roots {
        rows[root] = rows_of(function, graph, &members[root]);
        any |= rows[root].as_ref().is_some_and(|rows| rows.reduces);
    }
    if !any {
        return;
    }
    for root in roots.into_iter().rev() {
        // Those it reads, of which any may be the last that keeps another one apart.
        while groups.root(root) == root
            && let Some(reader) = rows[root].clone()
            && let Some((operand, both)) = members[root].iter().find_map(|&member| {
                function.expr(member).operands().find_map(|operand| {
                    let joined = rows[operand].as_ref()?.with(&reader)?;
                    let joined = joined.are_worth_joining().then_some(joined)?;
                    let is_alone = groups.root(operand) == operand
                        && operand != root
                        && !graph.is_used_outside(operand)
                        && graph.uses(operand).iter().all(|used| groups.root(used.user) == root)
                        && members[operand].len() + members[root].len() <= max_depth;
                    is_alone.then_some((operand, joined))
                })
            })
        {
            groups.merge(operand, root);
            rows[root] = Some(both);
            let joined = std::mem::take(&mut members[operand]);
            members[root].extend(joined);
        }
    }
}

impl Rows {
    /// Those of both, if they are about the same rows.
    fn with(&self, other: &Rows) -> Option<Rows> {
        let row = match (&self.row, &other.row) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.clone().or(b.clone()),
        };
        let reduces = self.reduces || other.reduces;
        (self.outer == other.outer).then(|| Rows { outer: self.outer.clone(), row, reduces })
    }

    fn are_worth_joining(&self) -> bool {
        let row = self.row.as_ref().and_then(Dim::as_const);
        // One row alone is no loop.
        let several = |dim: &Dim| dim.as_const() != Some(1);
        self.reduces && row.is_none_or(|extent| extent >= MIN_ROW) && self.outer.iter().any(several)
    }
}

/// What the members are about, if each of them computes rows of the same tensors.
pub(super) fn rows_of(function: &Function, graph: &Graph, members: &[ExprId]) -> Option<Rows> {
    let mut found: Option<Rows> = None;
    for &member in members {
        let (op, call) = op_of(function.expr(member))?;
        let shape = &function.ty(member).as_tensor()?.shape;
        let last = shape.rank().checked_sub(1)?;
        let is_softmax = op.is(&SOFTMAX) || op.is(&LOG_SOFTMAX);
        let (row, reduces) = match graph.pattern(member) {
            OpPattern::ElemWise | OpPattern::Broadcast => (shape[last].clone(), false),
            OpPattern::CommReduce => {
                let attrs: ReduceAttrs = call.attrs.parse().ok()?;
                let reduced = &function.ty(call.args.first().copied()??).as_tensor()?.shape;
                let is_last = matches!(*attrs.axis, [axis] if reduced.axis(axis) == Some(last));
                (is_last && attrs.keepdims).then(|| (reduced[last].clone(), true))?
            }
            OpPattern::OutElemWiseFusable if is_softmax => {
                let attrs: SoftmaxAttrs = call.attrs.parse().ok()?;
                (shape.axis(attrs.axis) == Some(last)).then(|| (shape[last].clone(), true))?
            }
            OpPattern::Injective
            | OpPattern::OutElemWiseFusable
            | OpPattern::Tuple
            | OpPattern::Opaque => return None,
        };
        let outer: Vec<Dim> = shape.iter().take(last).cloned().collect();
        let row = (reduces || row.as_const() != Some(1)).then_some(row);
        let own = Rows { outer, row, reduces };
        found = Some(match found {
            None => own,
            Some(all) => all.with(&own)?,
        });
    }
    found
}
