//! Operators that a code generator lacks, in terms of those that it has.

use super::calls::{call, call_with, cast, op_of, tensor};
use super::canonicalize_ops::bias_add;
use super::simplify_inference::by_statistics;
use crate::graph::{ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, Constant, IRModule};
use crate::ops::Op;
use crate::ops::elementwise::{ADD, DIVIDE, EXP, LOG, NEGATIVE, RSQRT, SIGMOID, SQRT, SUBTRACT};
use crate::ops::nn::{BIAS_ADD, DENSE, LOG_SOFTMAX, MATMUL, MatmulAttrs, SOFTMAX, SoftmaxAttrs};
use crate::ops::reduce::{MAX, ReduceAttrs, SUM};
use crate::pass::{FunctionPass, PassBody, PassContext, PassError, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Names of the operators that are expressed by others, such as `["nn.softmax"]`.
    pub LACKING: Vec<String> = "relay.Legalize.lacking";
}

/// Expresses the operators of `relay.Legalize.lacking` by others.
///
/// There are rules for normalisations by an argument's own statistics, softmax, `nn.dense`,
/// `nn.bias_add`, `sigmoid` and `rsqrt`; a call of any other operator of the list is an error. Which
/// operators a rule leads to is no matter: those that are lacking, too, are expressed in turn. Values
/// are rounded otherwise.
#[function_pass(opt_level = 1, required = [InferType])]
pub fn legalize(mut function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    let mut lacking = Vec::new();
    for name in cx.get(&LACKING).iter() {
        lacking.push(Op::get(name).ok_or_else(|| format!("`{name}` is no operator"))?);
    }
    let rule = |b: &mut FunctionBuilder, op: Op, args: &[Option<ExprId>], attrs: &Attrs| {
        if !lacking.contains(&op) {
            return Ok(None);
        }
        let found = expressed(b, op, args, attrs)?;
        found.map(Some).ok_or_else(|| {
            PassError::new(format!(
                "`{op}` is lacking, and no rule expresses it by other operators; `Legalize::by` \
                 takes a rule"
            ))
        })
    };
    // No rule leads back to its own operator.
    loop {
        let after = rewrite(function.clone(), cx, rule)?;
        if after.same(&function) {
            return Ok(function);
        }
        function = after;
    }
}

impl Legalize {
    /// The pass with a rule of the caller's, which is given every call of an operator: the operator,
    /// the rewritten arguments and the attributes. It makes another value of the same type, or
    /// leaves the call as it is. It is not given the calls that it makes.
    pub fn by(
        rule: impl Fn(&mut FunctionBuilder, Op, &[Option<ExprId>], &Attrs) -> Result<Option<ExprId>>
        + Send
        + Sync
        + 'static,
    ) -> FunctionPass {
        let info = Legalize.info().clone();
        FunctionPass::new(info, move |function: Function, _: &IRModule, cx: &PassContext| {
            rewrite(function, cx, &rule)
        })
    }
}

fn rewrite(
    function: Function,
    cx: &PassContext,
    rule: impl Fn(&mut FunctionBuilder, Op, &[Option<ExprId>], &Attrs) -> Result<Option<ExprId>>,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, call)) = op_of(old.expr(id)) else { continue };
        let args = rewriter.args(call);
        let Some(new) = rule(rewriter.builder(), op, &args, &call.attrs)? else { continue };
        let (ty, expected) = (rewriter.builder().ty(new), old.ty(id));
        if ty != expected {
            return Err(PassError::new(format!(
                "`{op}` was expressed by a value of type {ty}, but its type is {expected}"
            )));
        }
        rewriter.replace(new);
        cx.count("expressed", 1);
    }
    Ok(rewriter.finish()?)
}

/// The value of a call by other operators, if there is a rule.
fn expressed(
    b: &mut FunctionBuilder,
    op: Op,
    args: &[Option<ExprId>],
    attrs: &Attrs,
) -> Result<Option<ExprId>> {
    if let Some(y) = by_statistics(b, op, args, attrs, true)? {
        return Ok(Some(y));
    }
    let y = match *args {
        [Some(x), Some(bias)] if op.is(&BIAS_ADD) => bias_add(b, x, bias, attrs)?,
        [Some(x), Some(weight)] if op.is(&DENSE) => {
            let attrs = MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() };
            call_with(b, &MATMUL, &[x, weight], &attrs)?
        }
        [Some(x)] if op.is(&SOFTMAX) || op.is(&LOG_SOFTMAX) => {
            softmax(b, x, &attrs.parse()?, op.is(&LOG_SOFTMAX))?
        }
        [Some(x)] if op.is(&SIGMOID) => {
            let negative = call(b, &NEGATIVE, &[x])?;
            let exp = call(b, &EXP, &[negative])?;
            let one = one(b, x)?;
            let sum = call(b, &ADD, &[one, exp])?;
            call(b, &DIVIDE, &[one, sum])?
        }
        [Some(x)] if op.is(&RSQRT) => {
            let (one, root) = (one(b, x)?, call(b, &SQRT, &[x])?);
            call(b, &DIVIDE, &[one, root])?
        }
        _ => return Ok(None),
    };
    Ok(Some(y))
}

/// The number one in the type of a value.
fn one(b: &mut FunctionBuilder, x: ExprId) -> Result<ExprId> {
    let dtype = tensor(b, x)?.dtype;
    let one = Constant::scalar(1.0, dtype);
    Ok(b.constant(one.ok_or_else(|| PassError::new(format!("{dtype} has no number one")))?))
}

fn softmax(
    b: &mut FunctionBuilder,
    x: ExprId,
    SoftmaxAttrs { axis }: &SoftmaxAttrs,
    log: bool,
) -> Result<ExprId> {
    let dtype = tensor(b, x)?.dtype;
    let x = cast(b, x, dtype.accumulator())?;
    let over = ReduceAttrs { axis: vec![*axis], keepdims: true };
    let greatest = call_with(b, &MAX, &[x], &over)?;
    let shifted = call(b, &SUBTRACT, &[x, greatest])?;
    let exp = call(b, &EXP, &[shifted])?;
    let sum = call_with(b, &SUM, &[exp], &over)?;
    let y = if log {
        let log = call(b, &LOG, &[sum])?;
        call(b, &SUBTRACT, &[shifted, log])?
    } else {
        call(b, &DIVIDE, &[exp, sum])?
    };
    cast(b, y, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::{MULTIPLY, RELU};
    use crate::pass::Pass;
    use crate::transform::tests::support::{Net, after, show, verifying};

    fn net(op: &str) -> (Net, ExprId) {
        let mut net = Net::default();
        let x = net.input("x", &[2, 3]);
        let y = net.op(op, &[x]);
        (net, y)
    }

    #[test]
    fn a_rule_of_the_callers_sees_every_call_and_not_its_own() {
        let (mut net, y) = net("nn.relu");
        let z = net.op("nn.relu", &[y]);
        let twice = Legalize::by(|b, op, args, _| match args {
            &[Some(x)] if op.is(&RELU) => {
                let y = call(b, &RELU, &[x])?;
                call(b, &MULTIPLY, &[y, y]).map(Some)
            }
            _ => Ok(None),
        });
        let function = after(&twice, net.finish(z));
        let inner = "multiply(nn.relu(x), nn.relu(x))";
        assert_eq!(show(&function), format!("multiply(nn.relu({inner}), nn.relu({inner}))"));
    }

    #[test]
    fn a_rule_that_changes_nothing_is_called_and_leaves_the_handle() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (net, y) = net("nn.relu");
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let none = Legalize::by(move |_, _, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        });
        let function = net.finish(y);
        assert!(after(&none, function.clone()).same(&function));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn operators_without_a_rule_and_other_types_are_errors() {
        let run = |pass: &dyn Pass, op: &str, lacking: &[&str]| {
            let (net, y) = net(op);
            let names: Vec<String> = lacking.iter().map(|&name| name.to_owned()).collect();
            let cx = verifying().config(&LACKING, names).build().unwrap();
            pass.run(IRModule::from_function(net.finish(y)), &cx).unwrap_err().to_string()
        };
        let error = run(&Legalize, "tanh", &["tanh"]);
        assert!(error.contains("`tanh` is lacking, and no rule expresses it"), "{error}");
        let error = run(&Legalize, "tanh", &["tahn"]);
        assert!(error.contains("`tahn` is no operator"), "{error}");
        let wrong = Legalize::by(|b, _, args, _| match args {
            &[Some(x)] => {
                let over = ReduceAttrs { axis: vec![0], keepdims: false };
                call_with(b, &SUM, &[x], &over).map(Some)
            }
            _ => Ok(None),
        });
        let error = run(&wrong, "tanh", &[]);
        let expected = "`tanh` was expressed by a value of type Tensor[(3), float32], \
                        but its type is Tensor[(2, 3), float32]";
        assert!(error.contains(expected), "{error}");
    }
}
