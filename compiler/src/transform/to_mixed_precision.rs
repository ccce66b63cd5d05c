//! Floats of 16 bits where they are precise enough.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::calls::{cast, op_of};
use crate::diagnostics::Problem;
use crate::graph::{Call, Expr, ExprId, Function, FunctionBuilder, Rewriter, ScopeId};
use crate::ir::{Attrs, DType, IRModule, Type};
use crate::ops::Op;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// The type of 16 bits: `float16` or `bfloat16`.
    pub MIXED_PRECISION_TYPE: DType = "relay.ToMixedPrecision.mixed_precision_type",
        default = DType::F16;
    /// Whether results of the function keep their type.
    pub KEEP_ORIG_OUTPUT_DTYPE: bool = "relay.ToMixedPrecision.keep_orig_output_dtype",
        default = true;
    /// For operators by name, `always`, `follow` or `never`; others are as the pass has them.
    pub MIXED_PRECISION_OPS: BTreeMap<String, Conversion> = "relay.ToMixedPrecision.ops";
}

/// Whether an operator is computed in floats of 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversion {
    /// Whatever its operands are.
    Always,
    /// If all its operands are.
    Follow,
    /// Not at all.
    Never,
}

/// Heavy operators, whose sums are taken in `float32` in any case.
const ALWAYS: [&str; 5] = ["nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "nn.matmul"];

/// Operators that lose little: those that move elements, and simple functions of one or two.
const FOLLOW: [&str; 45] = [
    "abs",
    "add",
    "broadcast_to",
    "ceil",
    "clip",
    "concatenate",
    "divide",
    "expand_dims",
    "floor",
    "full",
    "gather",
    "gather_nd",
    "image.resize2d",
    "max",
    "maximum",
    "min",
    "minimum",
    "multiply",
    "negative",
    "nn.avg_pool1d",
    "nn.avg_pool2d",
    "nn.avg_pool3d",
    "nn.batch_norm",
    "nn.bias_add",
    "nn.dropout",
    "nn.global_avg_pool2d",
    "nn.global_max_pool2d",
    "nn.hardsigmoid",
    "nn.hardswish",
    "nn.leaky_relu",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
    "nn.pad",
    "nn.prelu",
    "nn.relu",
    "reshape",
    "sigmoid",
    "split",
    "squeeze",
    "strided_slice",
    "subtract",
    "take",
    "tanh",
    "transpose",
];

/// Converts `float32` to floats of 16 bits, operator by operator.
///
/// Convolutions and matrix products always are in the smaller type, simple operators if all their
/// operands that are no constants are, and others never; `relay.ToMixedPrecision.ops` says otherwise
/// for single operators. Values are cast once for all their readers in a scope.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn to_mixed_precision(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mixed = cx.get(&MIXED_PRECISION_TYPE);
    if !matches!(mixed, DType::F16 | DType::BF16) {
        let name = MIXED_PRECISION_TYPE.name();
        let problem = Problem::new(format!("{name} is {mixed}; it can be float16 or bfloat16"));
        return Err(problem.into());
    }
    let chosen = cx.get(&MIXED_PRECISION_OPS);
    if let Some(unknown) = chosen.keys().find(|name| Op::get(name).is_none()) {
        let name = MIXED_PRECISION_OPS.name();
        let problem = Problem::new(format!("{name} names `{unknown}`, which is no operator"));
        return Err(problem.into());
    }
    let conversion = |op: Op| {
        let by_default = || match op.name {
            name if ALWAYS.contains(&name) => Conversion::Always,
            name if FOLLOW.contains(&name) => Conversion::Follow,
            _ => Conversion::Never,
        };
        chosen.get(op.name).copied().unwrap_or_else(by_default)
    };
    let result = (!cx.get(&KEEP_ORIG_OUTPUT_DTYPE)).then(|| function.result());
    let mut converter = Converter {
        mixed,
        rewriter: Rewriter::new(function),
        twins: BTreeMap::new(),
        casts: BTreeMap::new(),
    };
    let mut converted = 0;
    while let Some(id) = converter.rewriter.next_expr()? {
        let old = converter.rewriter.old().clone();
        let twin = match old.expr(id) {
            Expr::TupleGet { tuple, index } => match converter.twins.get(tuple) {
                Some(&tuple) => Some(converter.rewriter.builder().tuple_get(tuple, *index)?),
                None => None,
            },
            Expr::Tuple(fields) if Some(id) == result => converter.tuple(fields),
            expr => match op_of(expr) {
                None => None,
                Some((op, call)) => {
                    let conversion = conversion(op);
                    let twin = converter.call(&old, id, op, call, conversion)?;
                    converted += u64::from(twin.is_some());
                    twin
                }
            },
        };
        let Some(twin) = twin else { continue };
        if Some(id) == result {
            converter.rewriter.replace(twin);
            continue;
        }
        // Readers that stay as they are read the value as it was: such a cast goes if there are none.
        let wide = back(converter.rewriter.builder(), twin, old.ty(id))?;
        converter.twins.insert(id, twin);
        converter.rewriter.replace(wide);
    }
    if converted == 0 {
        return Ok(converter.rewriter.old().clone());
    }
    cx.count("converted calls", converted);
    Ok(converter.rewriter.finish()?)
}

struct Converter {
    mixed: DType,
    rewriter: Rewriter,
    /// The values of the smaller type, in the new function, of expressions of the old one.
    twins: BTreeMap<ExprId, ExprId>,
    /// Casts of values of the old function in each scope.
    casts: BTreeMap<(ExprId, ScopeId), ExprId>,
}

impl Converter {
    /// A call in the smaller type, if it is to be computed so.
    fn call(
        &mut self,
        old: &Function,
        id: ExprId,
        op: Op,
        call: &Call,
        conversion: Conversion,
    ) -> Result<Option<ExprId>> {
        let Some(expected) = narrowed(old.ty(id), self.mixed) else { return Ok(None) };
        let is_wide = |id: ExprId| old.ty(id).as_tensor().is_some_and(|ty| ty.dtype == DType::F32);
        let wide: Vec<ExprId> =
            call.args.iter().flatten().copied().filter(|&id| is_wide(id)).collect();
        let follows = || {
            let mut others =
                wide.iter().filter(|&&arg| old.expr(arg).as_constant().is_none()).peekable();
            others.peek().is_some() && others.all(|arg| self.twins.contains_key(arg))
        };
        let converts = match conversion {
            Conversion::Always => !wide.is_empty(),
            Conversion::Follow => follows(),
            Conversion::Never => false,
        };
        if !converts {
            return Ok(None);
        }
        let mut args = Vec::with_capacity(call.args.len());
        for &arg in &call.args {
            args.push(match arg {
                Some(arg) if is_wide(arg) => Some(self.narrow(arg, old.data_of(id).scope)?),
                Some(arg) => Some(self.rewriter.mapped(arg)),
                None => None,
            });
        }
        let b = self.rewriter.builder();
        // An operator may not take the smaller type.
        let attrs: Attrs = call.attrs.clone();
        let Ok(new) = b.call_optional(op, args, attrs) else { return Ok(None) };
        Ok((b.ty(new) == &expected).then_some(new))
    }

    /// A value of the old function in the smaller type.
    fn narrow(&mut self, old: ExprId, scope: ScopeId) -> Result<ExprId> {
        if let Some(&twin) = self.twins.get(&old).or_else(|| self.casts.get(&(old, scope))) {
            return Ok(twin);
        }
        let value = self.rewriter.mapped(old);
        let narrow = cast(self.rewriter.builder(), value, self.mixed)?;
        self.casts.insert((old, scope), narrow);
        Ok(narrow)
    }

    /// A tuple of values that are of the smaller type where there are such.
    fn tuple(&mut self, fields: &[ExprId]) -> Option<ExprId> {
        if !fields.iter().any(|field| self.twins.contains_key(field)) {
            return None;
        }
        let fields: Vec<ExprId> = fields
            .iter()
            .map(|field| self.twins.get(field).copied().unwrap_or(self.rewriter.mapped(*field)))
            .collect();
        Some(self.rewriter.builder().tuple(&fields))
    }
}

/// A type of `float32` tensors with another data type; `None` if there is another type among them.
fn narrowed(ty: &Type, mixed: DType) -> Option<Type> {
    match ty {
        Type::Tensor(ty) if ty.dtype == DType::F32 => {
            Some(crate::ir::TensorType::new(ty.shape.clone(), mixed).into())
        }
        Type::Tuple(fields) => {
            let fields: Option<Vec<Type>> = fields.iter().map(|ty| narrowed(ty, mixed)).collect();
            Some(Type::tuple(fields?))
        }
        _ => None,
    }
}

/// A value of the smaller type in the type that it had.
fn back(b: &mut FunctionBuilder, value: ExprId, ty: &Type) -> Result<ExprId> {
    match ty {
        Type::Tensor(ty) => cast(b, value, ty.dtype),
        Type::Tuple(types) => {
            let mut fields = Vec::with_capacity(types.len());
            for (index, ty) in types.iter().enumerate() {
                let field = b.tuple_get(value, index as u32)?;
                fields.push(back(b, field, ty)?);
            }
            Ok(b.tuple(&fields))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::support::{Net, after, after_in, count, show, verifying};

    fn network() -> Net {
        Net::default()
    }

    #[test]
    fn listed_operators_exist() {
        for name in ALWAYS.iter().chain(&FOLLOW) {
            assert!(Op::get(name).is_some(), "`{name}`");
        }
        assert!(FOLLOW.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn heavy_operators_convert_and_precise_ones_do_not() {
        let mut net = network();
        let (x, w) = (net.input("x", &[2, 3]), net.tensor(&[3, 3], 0.5));
        let y = net.op("nn.dense", &[x, w]);
        let y = net.op("nn.relu", &[y]);
        let y = net.op("exp", &[y]);
        let y = net.op("nn.relu", &[y]);
        let function = after(&ToMixedPrecision, net.finish(y));
        let dense = "nn.dense(cast(x), cast(c(3, 3)))";
        assert_eq!(show(&function), format!("nn.relu(exp(cast(nn.relu({dense}))))"));
    }

    #[test]
    fn operators_are_chosen_by_name_and_results_may_change() {
        let build = || {
            let mut net = network();
            let (x, w) = (net.input("x", &[2, 3]), net.tensor(&[3, 3], 0.5));
            let y = net.op("nn.dense", &[x, w]);
            let y = net.op("exp", &[y]);
            net.finish(y)
        };
        let with = |ops: &[(&str, Conversion)], keep: bool| {
            let ops = ops.iter().map(|&(name, conversion)| (name.to_owned(), conversion)).collect();
            let cx = verifying()
                .config(&MIXED_PRECISION_OPS, ops)
                .config(&KEEP_ORIG_OUTPUT_DTYPE, keep)
                .config(&MIXED_PRECISION_TYPE, DType::BF16)
                .build()
                .unwrap();
            after_in(&ToMixedPrecision, build(), &cx)
        };
        let never = with(&[("nn.dense", Conversion::Never)], true);
        assert_eq!(show(&never), "exp(nn.dense(x, c(3, 3)))");
        let follow = with(&[("exp", Conversion::Follow)], false);
        assert_eq!(show(&follow), "exp(nn.dense(cast(x), cast(c(3, 3))))");
        let ty = follow.func_type().ret.clone();
        assert_eq!(ty.as_tensor().unwrap().dtype, DType::BF16);
        let kept = with(&[("exp", Conversion::Always)], true);
        assert_eq!(show(&kept), "cast(exp(nn.dense(cast(x), cast(c(3, 3)))))");
    }

    #[test]
    fn values_are_cast_once_and_tuples_pass() {
        let mut net = network();
        let (x, w) = (net.input("x", &[2, 4]), net.tensor(&[4, 4], 0.5));
        let (a, b) = (net.op("nn.dense", &[x, w]), net.op("nn.dense", &[x, w]));
        let sum = net.op("add", &[a, b]);
        let split = crate::ops::tensor::SplitAttrs { axis: 1, sections: vec![2, 2] };
        let parts = net.op_with("split", &[sum], &split);
        let left = net.0.tuple_get(parts, 0).unwrap();
        let left = net.op("nn.relu", &[left]);
        let function = after(&ToMixedPrecision, net.finish(left));
        // `x` and the weights on the way in, and the result on the way out.
        assert_eq!(count(&function, "cast"), 3);
        assert!(after(&ToMixedPrecision, function.clone()).same(&function));
    }

    #[test]
    fn what_is_no_choice_is_an_error() {
        let mut net = network();
        let x = net.input("x", &[2]);
        let module = IRModule::from_function(net.finish(x));
        let run = |cx: PassContext| {
            use crate::pass::Pass;
            ToMixedPrecision.run(module.clone(), &cx).unwrap_err().to_string()
        };
        let cx = PassContext::builder().config(&MIXED_PRECISION_TYPE, DType::I8).build().unwrap();
        assert!(run(cx).contains("can be float16 or bfloat16"));
        let ops = BTreeMap::from([("nn.convolution".to_owned(), Conversion::Never)]);
        let cx = PassContext::builder().config(&MIXED_PRECISION_OPS, ops).build().unwrap();
        assert!(run(cx).contains("`nn.convolution`, which is no operator"));
    }
}
