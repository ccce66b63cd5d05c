//! Operator fusion, by TVM's algorithm: which operators become one kernel.
//!
//! Every call of an operator becomes part of a closure with the attribute `Primitive`, called in
//! its place: a kernel. `graph.rs` records the uses of values and finds for each value the first
//! one that all paths from it lead to; `partition.rs` groups values along these paths. `rows.rs`,
//! `attention.rs` and `expansions.rs` then join groups that TVM keeps apart, as strategies compute them
//! row by row, and `positions.rs` such as are computed anywhere.

mod attention;
mod expansions;
mod graph;
mod partition;
mod positions;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::{Anf, Fused, Liveness};
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter, ScopeKind};
use crate::ir::{Attrs, Constant, DType, IRModule};
use crate::ops::Op;
use crate::ops::tensor::{EXPAND_DIMS, RESHAPE, SQUEEZE, STOP_FUSION};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;
use crate::transform::calls::op_of;
use graph::Graph;
use partition::Groups;

crate::register_pass_config_option! {
    /// Most operators in one kernel.
    pub MAX_DEPTH: usize = "relay.FuseOps.max_depth", default = 256;
    /// Whether constant tensors are part of the kernel that reads them, instead of its arguments.
    pub LINK_PARAMS: bool = "relay.FuseOps.link_params";
}

/// Groups operators into kernels: closures with the attribute `Primitive`.
///
/// Element-wise operators join the convolution, product or reduction whose result they take;
/// injective ones join each other and element-wise ones. Norms that are written out as reductions of
/// rows and what is made of these are one kernel, and so are two products with such stages between
/// them: attention; and a 1x1 convolution with a depthwise one of its result, if that is large. At level 0 each operator is a kernel of
/// its own. Constants of one element go into kernels, others are their arguments. No kernel goes on
/// beyond a call of `annotation.stop_fusion`.
#[function_pass(opt_level = 0, required = [InferType], sets = [Fused], clears = [Anf])]
pub fn fuse_ops(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let graph = Graph::new(&function, &cx.analysis::<Liveness>(&function));
    let mut groups = Groups::new(&graph, cx.opt_level(), cx.get(&MAX_DEPTH));
    if cx.opt_level() > 0 {
        rows::join(&mut groups, &function, &graph, cx.get(&MAX_DEPTH));
        attention::join(&mut groups, &function, &graph);
        expansions::join(&mut groups, &function, &graph, cx.get(&MAX_DEPTH));
        positions::join(&mut groups, &function, &graph);
    }
    let link_params = cx.get(&LINK_PARAMS);
    let members = groups.members(&graph);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        if let Some((op, call)) = op_of(rewriter.old().clone().expr(id))
            && op.is(&STOP_FUSION)
            && let &[Some(value)] = rewriter.args(call).as_slice()
        {
            rewriter.replace(value);
            continue;
        }
        let root = graph.contains(id) && groups.root(id) == id;
        let has_call = members[id].iter().any(|&member| graph.is_call(member));
        // Tuples, and fields of a kernel's result, are no kernels by themselves.
        if root && has_call {
            let kernel = Kernel { groups: &groups, members: &members[id], link_params };
            let call = kernel.build(&mut rewriter)?;
            cx.count("kernels", 1);
            rewriter.replace(call);
        }
    }
    Ok(rewriter.finish()?)
}

/// Whether a constant goes into the kernels that use it: one of one element, whatever its rank, of a type
/// that code generators print as a literal.
pub(super) fn is_simple(constant: &Constant) -> bool {
    let dtype = constant.ty().dtype;
    constant.ty().shape.iter().all(|dim| dim.as_const() == Some(1))
        && (matches!(dtype, DType::F32 | DType::F64 | DType::Bool)
            || dtype.is_int() && dtype.bits() >= 8)
        && !constant.is_opaque()
}

/// One group of operators.
struct Kernel<'a> {
    groups: &'a Groups,
    /// The expressions of the group, in order; the last one is the result.
    members: &'a [ExprId],
    link_params: bool,
}

impl Kernel<'_> {
    /// Pushes the closure and its call.
    fn build(&self, rewriter: &mut Rewriter) -> Result<ExprId> {
        let old = rewriter.old().clone();
        let root = self.members[self.members.len() - 1];
        let outside: Vec<ExprId> = self.outside(&old);
        let args: Vec<ExprId> = outside
            .iter()
            .filter(|&&id| !self.goes_in(&old, id))
            .map(|&id| rewriter.mapped(id))
            .collect();

        let b = rewriter.builder();
        // Of the size of the kernel, not of the function: there may be as many kernels as nodes.
        let mut inside: BTreeMap<ExprId, ExprId> = BTreeMap::new();
        b.open_scope(ScopeKind::Closure);
        let mut params = 0;
        for &id in &outside {
            b.set_span(old.span(id).clone());
            let new = match old.expr(id).as_constant() {
                Some(constant) if self.goes_in(&old, id) => b.constant(constant.clone()),
                _ => {
                    let name = format!("p{params}");
                    params += 1;
                    b.param(&name, old.ty(id).clone())
                }
            };
            inside.insert(id, new);
        }
        let mut attrs = Attrs::new().with("Primitive", 1);
        if self.is_reshape_only(&old) {
            attrs = attrs.with("relay.reshape_only", 1);
        }
        for &id in self.members {
            b.set_span(old.span(id).clone());
            let new = b.push(old.expr(id).map(|operand| inside[&operand], |scope| scope))?;
            inside.insert(id, new);
        }
        let scope = b.close_scope(inside[&root]);
        let closure = b.closure(scope, None, attrs)?;
        Ok(b.call_function(closure, &args)?)
    }

    /// The operands of members that are no members, in the order of first use.
    fn outside(&self, old: &Function) -> Vec<ExprId> {
        let root = self.groups.root(self.members[0]);
        let mut seen: BTreeSet<ExprId> = BTreeSet::new();
        let mut outside = Vec::new();
        for &member in self.members {
            for operand in old.expr(member).operands() {
                if self.groups.root(operand) != root && seen.insert(operand) {
                    outside.push(operand);
                }
            }
        }
        outside
    }

    fn goes_in(&self, old: &Function, id: ExprId) -> bool {
        let constant = old.expr(id).as_constant();
        constant.is_some_and(|constant| self.link_params || is_simple(constant))
    }

    fn is_reshape_only(&self, old: &Function) -> bool {
        self.members.iter().all(|&id| match old.expr(id) {
            Expr::Call(Call { callee: Callee::Op(op), .. }) => is_reshape(*op),
            _ => true,
        })
    }
}

/// Whether the result has the elements of the argument in the same order.
fn is_reshape(op: Op) -> bool {
    op.is(&RESHAPE) || op.is(&SQUEEZE) || op.is(&EXPAND_DIMS)
}

#[cfg(test)]
mod tests;
