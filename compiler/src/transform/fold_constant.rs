//! Constant folding.

use std::sync::Arc;

use crate::analysis::kernel_scopes;
use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Constant, DType, Dim, IRModule, SharedBytes, TensorType, Type};
use crate::ops::Op;
use crate::ops::nn::DROPOUT;
use crate::ops::qnn::DEQUANTIZE;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Largest constant, in bytes, that a fold may create if that is more than its arguments take.
///
/// Under it, folding is cheaper than the call that it removes. Over it, a broadcast of a scalar
/// would end up in the object file, element by element. Tests derive their sizes from it.
pub const MAX_GROWN_BYTES: u64 = 64 << 10;

/// Replaces calls whose arguments are constants by their values.
///
/// So are extents of tensors that are known, and fields of tuples. Nothing within a fused kernel is
/// touched.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn fold_constant(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let kernels = kernel_scopes(&function);
    let mut rewriter = Rewriter::new(function);
    let bound = bound_constants(rewriter.old());
    for id in bound {
        rewriter.unbind(id);
    }
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        if kernels[old.data_of(id).scope] {
            continue;
        }
        match old.expr(id) {
            &Expr::TupleGet { tuple, index } => {
                let tuple = rewriter.mapped(tuple);
                if let Expr::Tuple(fields) = rewriter.builder().expr(tuple) {
                    let field = fields[index as usize];
                    rewriter.replace(field);
                }
            }
            Expr::Call(call) => fold_call(&mut rewriter, cx, id, call)?,
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::Tuple(_)
            | Expr::If(_)
            | Expr::While(_)
            | Expr::Func(_) => {}
        }
    }
    Ok(rewriter.finish()?)
}

fn fold_call(rewriter: &mut Rewriter, cx: &PassContext, id: ExprId, call: &Call) -> Result<()> {
    let Callee::Op(op) = call.callee else { return Ok(()) };
    if call.args.iter().flatten().next().is_none() || op.is(&DROPOUT) {
        return Ok(());
    }
    let old = rewriter.old().clone();
    if let Some(constant) = known_extents(old.data_of(id).shape_value.as_ref(), old.ty(id)) {
        rewriter.unbind(id);
        rewriter.replace_with_constant(constant);
        return Ok(());
    }
    let Some(args) = rewriter.constant_args(call) else { return Ok(()) };
    if args.iter().flatten().any(Constant::is_opaque) {
        cx.missed(id, "the elements of an argument are not known, only their digest");
        return Ok(());
    }
    let grown = result_bytes(old.ty(id)).is_none_or(|bytes| {
        let given: u64 = args.iter().flatten().map(Constant::byte_len).sum();
        // Weights that are stored quantised are computed with as what they stand for.
        bytes > given.max(MAX_GROWN_BYTES) && !op.is(&DEQUANTIZE)
    });
    if grown {
        cx.missed(
            id,
            format!("the result is larger than {MAX_GROWN_BYTES} bytes and than the arguments"),
        );
        return Ok(());
    }
    match cx.evaluator().eval_call(op, &call.attrs, &args) {
        Ok(values) => {
            cx.count("folded calls", 1);
            rewriter.unbind(id);
            replace_with(rewriter, old.ty(id), op, values)
        }
        Err(error) => {
            // The call may never be reached: that it cannot be computed is told when it is.
            cx.missed(id, error);
            Ok(())
        }
    }
}

fn replace_with(rewriter: &mut Rewriter, ty: &Type, op: Op, values: Vec<Constant>) -> Result<()> {
    let found = values.len();
    let mut fields = values.into_iter();
    match (ty, fields.next()) {
        (Type::Tensor(_), Some(value)) if found == 1 => rewriter.replace_with_constant(value),
        (Type::Tuple(types), first) if types.len() == found => {
            let fields: Vec<ExprId> = first
                .into_iter()
                .chain(fields)
                .map(|field| rewriter.builder().constant(field))
                .collect();
            let tuple = rewriter.builder().tuple(&fields);
            rewriter.replace(tuple);
        }
        _ => return Err(format!("`{op}` was evaluated to {found} values, but it is {ty}").into()),
    }
    Ok(())
}

/// Bytes of a tensor, or of a tuple of tensors, if they are known.
fn result_bytes(ty: &Type) -> Option<u64> {
    match ty {
        Type::Tensor(tensor) => tensor.bytes(),
        Type::Tuple(fields) => {
            fields.iter().try_fold(0u64, |sum, field| sum.checked_add(field.as_tensor()?.bytes()?))
        }
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => None,
    }
}

/// An integer tensor whose elements are known as numbers, though its arguments may not be.
fn known_extents(value: Option<&Arc<[Dim]>>, ty: &Type) -> Option<Constant> {
    let ty: &TensorType = ty.as_tensor()?;
    let elements: Option<Vec<i64>> = value?.iter().map(Dim::as_const).collect();
    let mut bytes = Vec::new();
    for element in elements? {
        match ty.dtype {
            DType::I64 => bytes.extend(element.to_le_bytes()),
            DType::I32 => bytes.extend(i32::try_from(element).ok()?.to_le_bytes()),
            _ => return None,
        }
    }
    Constant::new(ty.clone(), SharedBytes::new(bytes)).ok()
}

/// Constants that are bound, which need no name.
fn bound_constants(function: &Function) -> Vec<ExprId> {
    function
        .scopes()
        .flat_map(|(_, scope)| &scope.bindings)
        .map(|binding| binding.value)
        .filter(|&value| function.expr(value).as_constant().is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ScopeKind;
    use crate::ir::Attrs;
    use crate::ops::nn::DropoutAttrs;
    use crate::ops::tensor::{ConcatenateAttrs, FullAttrs, ShapeOfAttrs, SplitAttrs};
    use crate::pass::{Pass, Sequential};
    use crate::transform::tests::support::{Net, after, after_in, show};
    use crate::transform::{FoldScaleAxis, SimplifyInference};

    #[test]
    fn case_1_what_is_constant_becomes_one() {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let c = net.tensor(&[2], 1.0);
        let two = net.scalar(2.0);
        let sum = net.op("add", &[c, c]);
        let product = net.op("multiply", &[sum, two]);
        let y = net.op("add", &[x, product]);
        let z = net.op("add", &[y, c]);
        let function = after(&FoldConstant, net.finish(z));
        assert_eq!(show(&function), "add(add(x, c(2)), c(2))");
        let folded = function.iter().find_map(|(_, data)| {
            data.expr.as_constant().filter(|c| c.to_f64_vec().unwrap() == [4.0, 5.0])
        });
        assert!(folded.is_some());
    }

    #[test]
    fn case_2_bound_constants_lose_their_names() {
        let mut net = Net::default();
        let x = net.input("x", &[]);
        let one = net.scalar(1.0);
        net.0.bind("t1", one);
        let two = net.op("add", &[one, one]);
        net.0.bind("t2", two);
        let sum = net.op("add", &[two, x]);
        net.0.bind("t3", sum);
        let function = after(&FoldConstant, net.finish(sum));
        assert_eq!(show(&function), "add(2, x)");
        let names: Vec<&str> =
            function.scope(function.body()).bindings.iter().map(|b| &*b.name).collect();
        assert_eq!(names, ["t3"]);
    }

    #[test]
    fn case_4_several_results_and_arguments() {
        let mut net = Net::default();
        let (a, b) = (net.tensor(&[2], 1.0), net.tensor(&[3], 2.0));
        let both = net.op_with("concatenate", &[a, b], &ConcatenateAttrs { axis: 0 });
        let attrs = SplitAttrs { axis: 0, sections: vec![1, 4] };
        let parts = net.op_with("split", &[both], &attrs);
        let last = net.0.tuple_get(parts, 1).unwrap();
        let function = after(&FoldConstant, net.finish(last));
        let constant = function.expr(function.result()).as_constant().unwrap();
        assert_eq!(constant.to_f64_vec().unwrap(), [1.25, 2.0, 2.25, 2.5]);
    }

    #[test]
    fn case_6_extents_need_no_constant_arguments() {
        for (dtype, expected) in [(DType::I64, [8, 9, 10]), (DType::I32, [8, 9, 10])] {
            let mut net = Net::default();
            let (x, y) = (net.input("x", &[8, 9, 10]), net.input("y", &[8, 9, 10]));
            let sum = net.op("add", &[x, y]);
            let attrs = ShapeOfAttrs { dtype };
            let shape = net.op_with("shape_of", &[sum], &attrs);
            let size = net.op_with("ndarray_size", &[sum], &attrs);
            let both = net.0.tuple(&[shape, size]);
            let function = after(&FoldConstant, net.finish(both));
            let Expr::Tuple(fields) = function.expr(function.result()) else { panic!("a tuple") };
            let value = |id| function.expr(id).as_constant().unwrap().to_i64_vec().unwrap();
            assert_eq!(value(fields[0]), expected);
            assert_eq!(value(fields[1]), [720]);
            assert_eq!(function.ty(fields[0]).as_tensor().unwrap().dtype, dtype);
        }
    }

    #[test]
    fn case_7_some_things_stay() {
        // Dropout is no computation.
        let mut net = Net::default();
        let c = net.tensor(&[2], 1.0);
        let dropout = net.op_with("nn.dropout", &[c], &DropoutAttrs { rate: 0.5 });
        let y = net.0.tuple_get(dropout, 0).unwrap();
        let function = net.finish(y);
        assert!(after(&FoldConstant, function.clone()).same(&function));
        // A kernel's body is the code generator's.
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        net.0.open_scope(ScopeKind::Closure);
        let c = net.tensor(&[2], 1.0);
        let sum = net.op("add", &[c, c]);
        let scope = net.0.close_scope(sum);
        let kernel = net.0.closure(scope, None, Attrs::new().with("Primitive", 1)).unwrap();
        let y = net.0.call_function(kernel, &[]).unwrap();
        let z = net.op("add", &[x, y]);
        let function = net.finish(z);
        assert!(after(&FoldConstant, function.clone()).same(&function));
    }

    #[test]
    fn what_would_grow_beyond_the_limit_stays_and_says_so() {
        let full = |elements: i64| {
            let mut net = Net::default();
            let c = net.scalar(1.5);
            let attrs = FullAttrs { shape: vec![Dim::from(elements)] };
            let y = net.op_with("full", &[c], &attrs);
            net.finish(y)
        };
        let limit = (MAX_GROWN_BYTES / 4) as i64;
        assert!(
            after(&FoldConstant, full(limit))
                .expr(crate::graph::ExprId::from_u32(0))
                .as_constant()
                .is_some()
        );
        let cx = PassContext::builder().remarks(true).build().unwrap();
        let larger = full(limit + 1);
        assert!(after_in(&FoldConstant, larger.clone(), &cx).same(&larger));
        assert!(
            cx.remarks()[0]
                .to_string()
                .starts_with("FoldConstant: @main: `full`: the result is larger")
        );
        // As large as an argument is no growth.
        let mut net = Net::default();
        let c = net.tensor(&[limit + 1], 1.0);
        let y = net.op("negative", &[c]);
        assert_eq!(show(&after(&FoldConstant, net.finish(y))), format!("c({})", limit + 1));
    }

    #[test]
    fn opaque_constants_stay() {
        let mut net = Net::default();
        let ty = TensorType::from_consts(&[2], DType::F32);
        let c = net.0.constant(Constant::opaque(ty, [0; 32]));
        let y = net.op("negative", &[c]);
        let function = net.finish(y);
        assert!(after(&FoldConstant, function.clone()).same(&function));
    }

    #[test]
    fn case_8_convolution_and_batch_norm_become_one() {
        use crate::ops::nn::{BatchNormAttrs, ConvAttrs};
        let mut net = Net::default();
        let x = net.input("x", &[1, 2, 4, 4]);
        let w = net.tensor(&[3, 2, 3, 3], -1.0);
        let conv = net.op_with("nn.conv2d", &[x, w], &ConvAttrs::of_rank(2));
        let params: Vec<ExprId> = (0..4).map(|i| net.tensor(&[3], i as f32 + 0.5)).collect();
        let bn = net.op_with(
            "nn.batch_norm",
            &[conv, params[0], params[1], params[2], params[3]],
            &BatchNormAttrs { axis: 1, epsilon: 1e-5 },
        );
        let bn = net.0.tuple_get(bn, 0).unwrap();
        let y = net.op("nn.relu", &[bn]);
        let list = Sequential::default()
            .then(InferType)
            .then(SimplifyInference)
            .then(FoldConstant)
            .then(FoldScaleAxis);
        let cx = PassContext::builder().opt_level(3).build().unwrap();
        let module = list.run(IRModule::from_function(net.finish(y)), &cx).unwrap();
        assert_eq!(
            show(module.function("main").unwrap()),
            "nn.relu(nn.conv2d(x, c(3, 2, 3, 3), c(3)))"
        );
    }
}
