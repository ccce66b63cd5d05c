//! Calls of one operator that read the same tensor, as one call with the weights of all.

use indexmap::IndexMap;

use super::calls::{call_with, op_of};
use crate::analysis::Uses;
use crate::graph::visit::Users;
use crate::graph::{ExprId, Function, FunctionBuilder, Rewriter, ScopeId};
use crate::ir::{Attrs, DType, Dim, TensorType};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs};
use crate::ops::tensor::{CONCATENATE, ConcatenateAttrs, STRIDED_SLICE, StridedSliceAttrs};
use crate::ops::{Op, OpPattern};
use crate::pass::{PassContext, Result};

/// A call that can be combined with others.
pub(super) struct Root {
    /// For each argument that differs between the calls, the axis along which they are put together.
    pub(super) joined: Vec<(usize, usize)>,
    /// The axis of the result that grows.
    pub(super) axis: usize,
}

/// What calls have in common that can be combined: argument, place, operator, attributes, data type
/// and the extents of the arguments that are put together, without those along which they are.
type Key = (ExprId, ScopeId, &'static str, Attrs, DType, Vec<(usize, Vec<Dim>)>);

/// A root with the calls behind it that work element by element, and the extent of the axis that
/// grows.
struct Branch {
    calls: Vec<ExprId>,
    extent: i64,
}

/// Combines the calls that `root` finds where at least so many read one tensor.
///
/// What follows element by element in all branches alike is combined as well; each branch is then a
/// slice of the last result.
pub(super) fn combine(
    function: Function,
    cx: &PassContext,
    min_num_branches: usize,
    root: impl Fn(&Function, ExprId) -> Result<Option<Root>>,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let uses = cx.analysis::<Uses>(&function);
    let live = function.live();
    let mut groups: IndexMap<Key, Vec<(ExprId, Root)>> = IndexMap::new();
    for (id, _) in function.iter().filter(|(id, _)| live[*id]) {
        if let Some(root) = root(&function, id)?
            && let Some(key) = key(&function, id, &root)
        {
            groups.entry(key).or_default().push((id, root));
        }
    }
    let plan = Plan::new(&function, &uses, groups, min_num_branches.max(2))?;
    if plan.groups.is_empty() {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function.clone());
    // Where each branch's last value is, by the call of the old function.
    let mut slices: IndexMap<ExprId, ExprId> = IndexMap::new();
    while let Some(id) = rewriter.next_call()? {
        if let Some(group) = plan.groups.get(&id) {
            for (old, new) in group.build(&function, &mut rewriter)? {
                slices.insert(old, new);
            }
            cx.count("combined", group.branches.len() as u64);
        }
        if let Some(&slice) = slices.get(&id) {
            rewriter.replace(slice);
        }
    }
    Ok(rewriter.finish()?)
}

fn tensor(function: &Function, id: ExprId) -> Option<&TensorType> {
    function.ty(id).as_tensor()
}

fn key(function: &Function, id: ExprId, root: &Root) -> Option<Key> {
    let (op, call) = op_of(function.expr(id))?;
    let x = call.args.first().copied()??;
    let mut shapes = Vec::new();
    for &(index, axis) in &root.joined {
        let mut dims = tensor(function, call.args.get(index).copied()??)?.shape.to_vec();
        if axis >= dims.len() {
            return None;
        }
        dims.remove(axis);
        shapes.push((index, dims));
    }
    let scope = function.data_of(id).scope;
    Some((x, scope, op.name, call.attrs.clone(), tensor(function, id)?.dtype, shapes))
}

struct Plan {
    /// By the first root, in the place of which the combined calls go.
    groups: IndexMap<ExprId, Group>,
}

struct Group {
    root: Root,
    branches: Vec<Branch>,
}

impl Plan {
    fn new(
        function: &Function,
        users: &Users,
        found: IndexMap<Key, Vec<(ExprId, Root)>>,
        min_num_branches: usize,
    ) -> Result<Plan> {
        let mut groups = IndexMap::new();
        for roots in found.into_values() {
            let Some(&(first, _)) = roots.first() else { continue };
            let mut branches = Vec::new();
            let mut kept = None;
            for (id, root) in roots {
                let Some((_, call)) = op_of(function.expr(id)) else { continue };
                let there = root.joined.iter().all(|&(index, _)| {
                    call.args[index].is_some_and(|arg| is_before(function, arg, first))
                });
                let extent =
                    tensor(function, id).and_then(|ty| ty.shape.get(root.axis)?.as_const());
                if let (true, Some(extent)) = (there, extent) {
                    branches.push(Branch { calls: vec![id], extent });
                    kept.get_or_insert(root);
                }
            }
            let Some(root) = kept.filter(|_| branches.len() >= min_num_branches) else { continue };
            let mut group = Group { root, branches };
            group.lengthen(function, users, first)?;
            groups.insert(first, group);
        }
        Ok(Plan { groups })
    }
}

/// Whether an expression can be used in the place of a call.
fn is_before(function: &Function, id: ExprId, place: ExprId) -> bool {
    id < place || function.expr(id).as_constant().is_some()
}

/// A call behind a branch that works element by element.
struct Follower<'a> {
    op: Op,
    attrs: &'a Attrs,
    args: &'a [Option<ExprId>],
    /// Which argument is the branch.
    branch: usize,
}

impl<'a> Follower<'a> {
    fn of(
        function: &'a Function,
        users: &Users,
        value: ExprId,
        axis: usize,
    ) -> Result<Option<Self>> {
        let &[user] = users.of(value) else { return Ok(None) };
        let scope = function.data_of(value).scope;
        let Some((op, call)) = op_of(function.expr(user)) else { return Ok(None) };
        let of_elements = op.pattern <= OpPattern::Broadcast
            && function.data_of(user).scope == scope
            && function.scope(scope).result != value
            && tensor(function, value).map(|ty| &ty.shape)
                == tensor(function, user).map(|ty| &ty.shape);
        if op.is(&BIAS_ADD) {
            let BiasAddAttrs { axis: of_bias } = call.attrs.parse()?;
            let rank = tensor(function, value).map_or(0, |ty| ty.shape.rank());
            if crate::ir::normalize_axis(of_bias, rank) != Some(axis) {
                return Ok(None);
            }
        } else if !call.attrs.is_empty() && call.args.len() > 1 {
            // An axis among the attributes may have another meaning for the whole.
            return Ok(None);
        }
        let Some(branch) = call.args.iter().position(|&arg| arg == Some(value)) else {
            return Ok(None);
        };
        Ok(of_elements.then_some(Follower { op, attrs: &call.attrs, args: &call.args, branch }))
    }
}

/// How the other operand of a follower goes into that of the whole.
#[derive(PartialEq, Eq)]
enum Operand {
    /// All branches have the same, which repeats along the axis that grows.
    Shared(ExprId),
    /// Put together along that axis; the others' extents.
    Joined(usize, Vec<Dim>),
}

impl Operand {
    fn of(
        function: &Function,
        follower: &Follower<'_>,
        arg: ExprId,
        rank: usize,
        axis: usize,
        extent: i64,
    ) -> Option<Operand> {
        let mut dims = tensor(function, arg)?.shape.to_vec();
        let missing = if follower.op.is(&BIAS_ADD) { axis } else { rank.checked_sub(dims.len())? };
        match axis.checked_sub(missing).and_then(|at| Some((at, dims.get(at)?.as_const()))) {
            Some((at, Some(of_axis))) if of_axis == extent && extent != 1 => {
                dims.remove(at);
                Some(Operand::Joined(at, dims))
            }
            // What repeats along the axis, or has no such axis.
            Some((_, Some(1))) | None => Some(Operand::Shared(arg)),
            Some(_) => None,
        }
    }
}

/// What followers of all branches have in common: operator, attributes, which operand the branch is,
/// type of the result, and the other operands.
type Alike<'a> = (Op, &'a Attrs, usize, DType, Vec<Option<Operand>>);

impl Group {
    /// Adds what follows in all branches alike.
    fn lengthen(&mut self, function: &Function, users: &Users, first: ExprId) -> Result<()> {
        let axis = self.root.axis;
        loop {
            let mut next = Vec::with_capacity(self.branches.len());
            let mut alike: Option<Alike<'_>> = None;
            for branch in &self.branches {
                let value = branch.calls[branch.calls.len() - 1];
                let Some(follower) = Follower::of(function, users, value, axis)? else {
                    return Ok(());
                };
                let user = users.of(value)[0];
                let Some(ty) = tensor(function, user) else { return Ok(()) };
                let mut operands = Vec::new();
                for (index, &arg) in follower.args.iter().enumerate() {
                    let operand = match arg {
                        Some(arg) if index != follower.branch => {
                            let rank = ty.shape.rank();
                            let of =
                                Operand::of(function, &follower, arg, rank, axis, branch.extent);
                            let known = of.filter(|_| is_before(function, arg, first));
                            let Some(known) = known else { return Ok(()) };
                            Some(known)
                        }
                        _ => None,
                    };
                    operands.push(operand);
                }
                let this = (follower.op, follower.attrs, follower.branch, ty.dtype, operands);
                match &alike {
                    None => alike = Some(this),
                    Some(other) if *other == this => {}
                    Some(_) => return Ok(()),
                }
                next.push(user);
            }
            for (branch, call) in self.branches.iter_mut().zip(next) {
                branch.calls.push(call);
            }
        }
    }

    /// Builds the whole, and each branch's slice of it, for the last call of the branch.
    fn build(&self, function: &Function, rewriter: &mut Rewriter) -> Result<Vec<(ExprId, ExprId)>> {
        let axis = self.root.axis;
        let mut whole: Option<ExprId> = None;
        for depth in 0..self.branches[0].calls.len() {
            let call =
                |branch: &Branch| op_of(function.expr(branch.calls[depth])).map(|(_, call)| call);
            let Some((op, first)) = op_of(function.expr(self.branches[0].calls[depth])) else {
                continue;
            };
            let mut args = Vec::with_capacity(first.args.len());
            for (index, arg) in first.args.iter().enumerate() {
                let Some(arg) = *arg else {
                    args.push(None);
                    continue;
                };
                let joined = if depth == 0 {
                    let found = self.root.joined.iter().find(|(joined, _)| *joined == index);
                    found.map(|&(_, axis)| axis)
                } else if Some(arg) == self.branches[0].calls.get(depth - 1).copied() {
                    args.push(whole);
                    continue;
                } else {
                    let rank = tensor(function, self.branches[0].calls[depth])
                        .map_or(0, |ty| ty.shape.rank());
                    let follower =
                        Follower { op, attrs: &first.attrs, args: &first.args, branch: 0 };
                    let of =
                        Operand::of(function, &follower, arg, rank, axis, self.branches[0].extent);
                    match of {
                        Some(Operand::Joined(at, _)) => Some(at),
                        _ => None,
                    }
                };
                let Some(axis) = joined else {
                    args.push(Some(moved(function, rewriter, arg)));
                    continue;
                };
                let mut tensors = Vec::with_capacity(self.branches.len());
                for branch in &self.branches {
                    if let Some(arg) = call(branch).and_then(|call| call.args[index]) {
                        tensors.push(moved(function, rewriter, arg));
                    }
                }
                let attrs = ConcatenateAttrs { axis: axis as i64 };
                args.push(Some(call_with(rewriter.builder(), &CONCATENATE, &tensors, &attrs)?));
            }
            whole = Some(rewriter.builder().call_optional(op, args, first.attrs.clone())?);
        }
        let Some(whole) = whole else { return Ok(Vec::new()) };
        let mut begin = 0;
        let mut slices = Vec::with_capacity(self.branches.len());
        for branch in &self.branches {
            let end = begin + branch.extent;
            let slice = slice(rewriter.builder(), whole, axis, [begin, end])?;
            slices.push((branch.calls[branch.calls.len() - 1], slice));
            begin = end;
        }
        Ok(slices)
    }
}

/// An argument in the new function, where a constant may not be yet.
fn moved(function: &Function, rewriter: &mut Rewriter, arg: ExprId) -> ExprId {
    match (rewriter.new_of(arg), function.expr(arg).as_constant()) {
        (None, Some(constant)) => rewriter.builder().constant(constant.clone()),
        _ => rewriter.mapped(arg),
    }
}

fn slice(
    b: &mut FunctionBuilder,
    whole: ExprId,
    axis: usize,
    [begin, end]: [i64; 2],
) -> Result<ExprId> {
    let attrs = StridedSliceAttrs {
        begin: vec![begin],
        end: vec![end],
        strides: vec![1],
        axes: vec![axis as i64],
    };
    call_with(b, &STRIDED_SLICE, &[whole], &attrs)
}

#[cfg(test)]
mod tests {
    use crate::graph::{ExprId, Function};
    use crate::ops::nn::{ConvAttrs, MatmulAttrs};
    use crate::pass::{PassBody, PassContext};
    use crate::transform::tests::support::{Net, after_in, count, show, verifying};
    use crate::transform::{
        CombineParallelBatchMatmul, CombineParallelConv2d, CombineParallelDense,
        MIN_CONV2D_BRANCHES,
    };

    fn conv(net: &mut Net, x: ExprId, outputs: i64, first: f32) -> ExprId {
        let w = net.tensor(&[outputs, 2, 1, 1], first);
        net.op_with("nn.conv2d", &[x, w], &ConvAttrs::of_rank(2))
    }

    fn combined(pass: &impl PassBody, function: Function) -> Function {
        after_in(pass, function, &verifying().build().unwrap())
    }

    /// Three branches with a bias and a relu, the last one with what `last` makes of it.
    fn branches(last: impl Fn(&mut Net, ExprId) -> ExprId) -> Function {
        let mut net = Net::default();
        let x = net.input("x", &[1, 2, 4, 4]);
        let mut fields = Vec::new();
        for (index, outputs) in [1, 2, 3].into_iter().enumerate() {
            let y = conv(&mut net, x, outputs, index as f32);
            let b = net.tensor(&[outputs, 1, 1], 1.0);
            let y = net.op("add", &[y, b]);
            fields.push(if index == 2 { last(&mut net, y) } else { net.op("nn.relu", &[y]) });
        }
        let all = net.0.tuple(&fields);
        net.finish(all)
    }

    #[test]
    fn what_follows_alike_is_combined_before_the_slices() {
        // A bias of one element may be that of every channel, or of one.
        let function = combined(&CombineParallelConv2d, branches(|net, y| net.op("nn.relu", &[y])));
        assert_eq!(count(&function, "nn.conv2d"), 1);
        assert_eq!(count(&function, "strided_slice"), 3);
        let mut net = Net::default();
        let x = net.input("x", &[1, 2, 4, 4]);
        let mut fields = Vec::new();
        for first in 0..3 {
            let y = conv(&mut net, x, 2, first as f32);
            let b = net.tensor(&[2, 1, 1], first as f32);
            let y = net.op("add", &[b, y]);
            fields.push(net.op("nn.relu", &[y]));
        }
        let all = net.0.tuple(&fields);
        let function = combined(&CombineParallelConv2d, net.finish(all));
        let whole = "nn.relu(add(concatenate(c(2, 1, 1), c(2, 1, 1), c(2, 1, 1)), \
                     nn.conv2d(x, concatenate(c(2, 2, 1, 1), c(2, 2, 1, 1), c(2, 2, 1, 1)))))";
        let slice = format!("strided_slice({whole})");
        assert_eq!(show(&function), format!("({slice}, {slice}, {slice})"));
        assert!(combined(&CombineParallelConv2d, function.clone()).same(&function));
    }

    #[test]
    fn what_differs_follows_the_slices() {
        let function = combined(&CombineParallelConv2d, branches(|net, y| net.op("tanh", &[y])));
        assert_eq!((count(&function, "nn.conv2d"), count(&function, "nn.relu")), (1, 2));
    }

    #[test]
    fn fewer_branches_than_asked_for_and_other_attributes_stay() {
        let build = |strides: [i64; 2]| {
            let mut net = Net::default();
            let x = net.input("x", &[1, 2, 4, 4]);
            let w = net.tensor(&[2, 2, 1, 1], 0.5);
            let fields = strides.map(|stride| {
                let strides = vec![stride; 2];
                net.op_with("nn.conv2d", &[x, w], &ConvAttrs { strides, ..ConvAttrs::of_rank(2) })
            });
            let both = net.0.tuple(&fields);
            net.finish(both)
        };
        let two = PassContext::builder().config(&MIN_CONV2D_BRANCHES, 2).build().unwrap();
        let convolutions = |function: Function, cx: &PassContext| {
            count(&after_in(&CombineParallelConv2d, function, cx), "nn.conv2d")
        };
        assert_eq!(convolutions(build([1, 1]), &verifying().build().unwrap()), 2);
        assert_eq!(convolutions(build([1, 1]), &two), 1);
        assert_eq!(convolutions(build([1, 2]), &two), 2);
    }

    #[test]
    fn weights_that_follow_from_an_earlier_branch_stay() {
        let mut net = Net::default();
        let (x, w) = (net.input("x", &[2, 2]), net.input("w", &[2, 2]));
        let y = net.op("nn.dense", &[x, w]);
        let z = net.op("nn.dense", &[x, y]);
        let last = net.op("nn.dense", &[x, z]);
        let function = net.finish(last);
        assert!(combined(&CombineParallelDense, function.clone()).same(&function));
    }

    #[test]
    fn products_are_combined_by_columns() {
        for (rank, transpose_b) in [(2, false), (2, true), (3, false), (3, true)] {
            let mut net = Net::default();
            let x = net.input("x", &[5, 2, 3]);
            let fields: Vec<ExprId> = [2, 3, 4]
                .into_iter()
                .map(|columns| {
                    let matrix = if transpose_b { [columns, 3] } else { [3, columns] };
                    let dims = [&[5][..], &matrix].concat();
                    let w = net.tensor(&dims[3 - rank..], 0.0);
                    let attrs = MatmulAttrs { transpose_b, ..MatmulAttrs::default() };
                    net.op_with("nn.matmul", &[x, w], &attrs)
                })
                .collect();
            let all = net.0.tuple(&fields);
            let function = net.finish(all);
            let products = |function: &Function| count(function, "nn.matmul");
            let (dense, batch) = (
                combined(&CombineParallelDense, function.clone()),
                combined(&CombineParallelBatchMatmul, function),
            );
            let expected = if rank == 2 { (1, 3) } else { (3, 1) };
            assert_eq!((products(&dense), products(&batch)), expected);
        }
    }

    #[test]
    fn thousands_of_branches_are_combined_on_a_small_stack() {
        let run = || {
            let mut net = Net::default();
            let x = net.input("x", &[1, 2]);
            let fields: Vec<ExprId> = (0..20_000)
                .map(|index| {
                    let w = net.tensor(&[2, 2], index as f32);
                    let y = net.op("nn.dense", &[x, w]);
                    net.op("nn.relu", &[y])
                })
                .collect();
            let all = net.0.tuple(&fields);
            let cx = PassContext::builder().build().unwrap();
            let function = after_in(&CombineParallelDense, net.finish(all), &cx);
            assert_eq!((count(&function, "nn.dense"), count(&function, "nn.relu")), (1, 1));
        };
        std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
    }
}
