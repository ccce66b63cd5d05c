//! Constant folding.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::SecondaryMap;

use crate::analysis::{effects, kernel_scopes};
use crate::graph::{Call, Callee, Expr, ExprId, Function, If, Rewriter, ScopeId};
use crate::ir::{
    Attrs, Constant, ConstantData, DType, Dim, IRModule, SharedBytes, TensorType, Type,
};
use crate::ops::elementwise::CAST;
use crate::ops::nn::DROPOUT;
use crate::ops::qnn::DEQUANTIZE;
use crate::ops::tensor::DEVICE_COPY;
use crate::ops::tensor::{
    BROADCAST_TO, EXPAND_DIMS, FULL, FullAttrs, RESHAPE, SQUEEZE, STRIDED_SLICE, TRANSPOSE,
    TRUNCATE,
};
use crate::ops::{Op, OpDef, OpPattern};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Largest constant, in bytes, that a fold may create if that is more than its arguments take.
///
/// Under it, folding is cheaper than the call that it removes. Over it, a broadcast of a scalar
/// would end up in the object file, element by element. Tests derive their sizes from it.
pub const MAX_GROWN_BYTES: u64 = 64 << 10;

/// Largest argument with one number in every place that is written out to fold a call, in bytes.
///
/// Reductions of larger ones are left to run time: a few bytes of a model can ask for any amount of
/// memory.
const MAX_WRITTEN_BYTES: u64 = 1 << 30;

/// Replaces calls whose arguments are constants by their values.
///
/// So are extents of tensors that are known, and fields of tuples; an `If` whose condition is known
/// becomes its branch, of which bindings of values with an effect stay. What has one number in every
/// place keeps being stored as that number. Nothing within a fused kernel is touched.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn fold_constant(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let kernels = kernel_scopes(&function);
    let mut choices = Choices::of(&function, &kernels);
    let effects = match choices.by_condition.is_empty() {
        true => SecondaryMap::new(),
        // Any call of a global may have one: what has none is dead code that other passes remove.
        false => effects(&function, &BTreeMap::new()),
    };
    let mut rewriter = Rewriter::new(function);
    let bound = bound_constants(rewriter.old());
    for id in bound {
        rewriter.unbind(id);
    }
    choices.decide_by_constants(&mut rewriter);
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
            Expr::If(_) => {
                if let Some(&branch) = choices.taken.get(&id) {
                    let kept = rewriter.bindings_of(branch, |value| effects[value]);
                    rewriter.insert_bindings(kept);
                    let branch = old.scope(branch);
                    if !effects[branch.result] {
                        rewriter.unbind(id);
                    }
                    let result = rewriter.mapped(branch.result);
                    rewriter.replace(result);
                }
            }
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::Tuple(_)
            | Expr::While(_)
            | Expr::Func(_) => {}
        }
        choices.decide(&mut rewriter, id);
    }
    Ok(rewriter.finish()?)
}

/// Operators that do something else than computing a value: how large it is, or where.
static KEPT: [&OpDef; 3] = [&DROPOUT, &DEVICE_COPY, &TRUNCATE];

fn fold_call(rewriter: &mut Rewriter, cx: &PassContext, id: ExprId, call: &Call) -> Result<()> {
    let Callee::Op(op) = call.callee else { return Ok(()) };
    if call.args.iter().flatten().next().is_none() || KEPT.iter().any(|kept| op.is(kept)) {
        return Ok(());
    }
    let old = rewriter.old().clone();
    if let Some(constant) = known_extents(old.data_of(id).shape_value.as_ref(), old.ty(id)) {
        rewriter.unbind(id);
        rewriter.replace_with_constant(constant);
        return Ok(());
    }
    if let Some(uniform) = fold_uniform(rewriter, cx, id, op, call)? {
        cx.count("folded calls", 1);
        rewriter.unbind(id);
        rewriter.replace(uniform);
        return Ok(());
    }
    let Some(args) = rewriter.constant_args(call) else { return Ok(()) };
    if args.iter().flatten().any(Constant::is_opaque) {
        cx.missed(id, "the elements of an argument are not known, only their digest");
        return Ok(());
    }
    let is_splat = |c: &&Constant| matches!(c.data(), ConstantData::Splat(_));
    if args.iter().flatten().filter(is_splat).any(|c| c.byte_len() > MAX_WRITTEN_BYTES) {
        cx.missed(id, format!("an argument takes more than {MAX_WRITTEN_BYTES} bytes"));
        return Ok(());
    }
    let grown = result_bytes(old.ty(id)).is_none_or(|bytes| {
        let given: u64 = args.iter().flatten().map(Constant::stored_len).sum();
        // Weights that are stored in fewer bits are computed with as what they stand for.
        let widens = op.is(&DEQUANTIZE) || op.is(&CAST);
        bytes > given.max(MAX_GROWN_BYTES) && !widens
    });
    if grown {
        cx.missed(
            id,
            format!("the result is larger than {MAX_GROWN_BYTES} bytes and than the arguments"),
        );
        return Ok(());
    }
    if let Some(same) = same_bytes(op, &args, old.ty(id)) {
        cx.count("folded calls", 1);
        rewriter.unbind(id);
        rewriter.replace_with_constant(same);
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

/// The constant under another shape, if that is all the operator does: weights share their bytes.
fn same_bytes(op: Op, args: &[Option<Constant>], ty: &Type) -> Option<Constant> {
    if ![&RESHAPE, &EXPAND_DIMS, &SQUEEZE].into_iter().any(|def| op.is(def)) {
        return None;
    }
    let ConstantData::Bytes(bytes) = args.first()?.as_ref()?.data() else { return None };
    Constant::new(ty.as_tensor()?.clone(), bytes.clone()).ok()
}

/// A call whose arguments each have one element in every place, and whose result therefore has: as a
/// splat if that is small, else as a call of `full`, which takes no room in the object file.
fn fold_uniform(
    rewriter: &mut Rewriter,
    cx: &PassContext,
    id: ExprId,
    op: Op,
    call: &Call,
) -> Result<Option<ExprId>> {
    let moves = [&BROADCAST_TO, &RESHAPE, &EXPAND_DIMS, &SQUEEZE, &TRANSPOSE, &STRIDED_SLICE]
        .into_iter()
        .any(|def| op.is(def));
    let by_element = matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast);
    if op.is(&FULL) || !(moves || by_element) {
        return Ok(None);
    }
    let old = rewriter.old().clone();
    let Some(ty) = old.ty(id).as_tensor().filter(|ty| ty.bytes().is_some()) else {
        return Ok(None);
    };
    let given = rewriter.args(call);
    let mut elements = Vec::with_capacity(given.len());
    for arg in &given {
        elements.push(match arg.map(|arg| element_everywhere(rewriter, arg)) {
            None => None,
            Some(None) => return Ok(None),
            Some(element) => element,
        });
    }
    let is_large = |arg: &ExprId| {
        let ty = rewriter.built().ty(*arg).as_tensor();
        ty.is_none_or(|ty| ty.num_elements() != Some(1))
    };
    if !given.iter().flatten().any(is_large) {
        return Ok(None);
    }
    let element = if moves {
        elements.into_iter().flatten().next()
    } else {
        match cx.evaluator().eval_call(op, &call.attrs, &elements) {
            Ok(values) => values.into_iter().next().filter(|c| c.ty().num_elements() == Some(1)),
            Err(error) => {
                cx.missed(id, error);
                None
            }
        }
    };
    let Some(element) = element.filter(|element| element.ty().dtype == ty.dtype) else {
        return Ok(None);
    };
    let Some(bytes) = element.to_bytes() else { return Ok(None) };
    let b = rewriter.builder();
    if ty.bytes().is_some_and(|bytes| bytes <= MAX_GROWN_BYTES) {
        let splat = Constant::splat(ty.clone(), &bytes).map_err(|error| error.to_string())?;
        return Ok(Some(b.constant(splat)));
    }
    let scalar = Constant::splat(TensorType::scalar(ty.dtype), &bytes);
    let scalar = b.constant(scalar.map_err(|error| error.to_string())?);
    let attrs = Attrs::from_struct(&FullAttrs { shape: ty.shape.to_vec() })?;
    Ok(Some(b.call(Op::new(&FULL), &[scalar], attrs)?))
}

/// The one element that a value of the new function has in every place, if that can be seen from how
/// it is stored: as a tensor of as many axes, each of extent one.
fn element_everywhere(rewriter: &Rewriter, value: ExprId) -> Option<Constant> {
    let b = rewriter.built();
    let rank = b.ty(value).as_tensor()?.shape.rank();
    let constant = match b.expr(value) {
        Expr::Constant(constant) => constant,
        Expr::Call(Call { callee: Callee::Op(op), args, attrs: _ }) if op.is(&FULL) => {
            b.expr((*args.first()?)?).as_constant()?
        }
        _ => return None,
    };
    let dtype = constant.ty().dtype;
    let element: SharedBytes = match constant.data() {
        ConstantData::Splat(element) => SharedBytes::new(element.clone()),
        ConstantData::Bytes(bytes) if constant.ty().num_elements() == Some(1) => bytes.clone(),
        ConstantData::Bytes(_) | ConstantData::Opaque => return None,
    };
    Constant::splat(TensorType::from_consts(&vec![1; rank], dtype), &element).ok()
}

/// The `If`s of a function, and which branch of each is taken.
struct Choices {
    /// Those of each condition, with the first expression within their branches.
    by_condition: BTreeMap<ExprId, Vec<(ExprId, Option<ExprId>)>>,
    /// The branches that are known to be taken.
    taken: BTreeMap<ExprId, ScopeId>,
}

impl Choices {
    fn of(function: &Function, kernels: &SecondaryMap<ScopeId, bool>) -> Choices {
        let mut first: BTreeMap<u32, ExprId> = BTreeMap::new();
        let mut by_condition: BTreeMap<ExprId, Vec<_>> = BTreeMap::new();
        for (id, data) in function.iter() {
            first.entry(data.scope.as_u32()).or_insert(id);
            if let Expr::If(choice) = &data.expr
                && !kernels[data.scope]
            {
                let of = |scope: ScopeId| first.get(&scope.as_u32()).copied();
                let within = of(choice.then_scope).into_iter().chain(of(choice.else_scope)).min();
                by_condition.entry(choice.cond).or_default().push((id, within));
            }
        }
        Choices { by_condition, taken: BTreeMap::new() }
    }

    /// Takes the branches of conditions that are constants from the start.
    fn decide_by_constants(&mut self, rewriter: &mut Rewriter) {
        let old = rewriter.old().clone();
        let conditions: Vec<ExprId> = self.by_condition.keys().copied().collect();
        for condition in conditions {
            if let Some(holds) = old.expr(condition).as_constant().and_then(truth) {
                for (choice, _) in self.by_condition.remove(&condition).unwrap_or_default() {
                    self.take(rewriter, choice, holds);
                }
            }
        }
    }

    /// Takes the branches of a condition that has just become a constant. A branch of which a part
    /// was passed before is left to another run.
    fn decide(&mut self, rewriter: &mut Rewriter, condition: ExprId) {
        if !self.by_condition.contains_key(&condition) {
            return;
        }
        let Some(new) = rewriter.new_of(condition) else { return };
        let Some(holds) = rewriter.built().expr(new).as_constant().and_then(truth) else {
            return;
        };
        for (choice, first) in self.by_condition.remove(&condition).unwrap_or_default() {
            if first.is_none_or(|first| first > condition) {
                self.take(rewriter, choice, holds);
            }
        }
    }

    fn take(&mut self, rewriter: &mut Rewriter, choice: ExprId, holds: bool) {
        let old = rewriter.old().clone();
        if let Expr::If(If { cond: _, then_scope, else_scope }) = *old.expr(choice) {
            let branch = if holds { then_scope } else { else_scope };
            rewriter.dissolve(branch);
            self.taken.insert(choice, branch);
        }
    }
}

/// The value of a condition.
fn truth(condition: &Constant) -> Option<bool> {
    match condition.to_i64_vec()?[..] {
        [value] => Some(value != 0),
        _ => None,
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
    use crate::ops::elementwise::CastAttrs;
    use crate::ops::nn::DropoutAttrs;
    use crate::ops::tensor::{ConcatenateAttrs, ShapeOfAttrs, SplitAttrs};
    use crate::pass::{Pass, Sequential};
    use crate::transform::tests::support::{Net, after, after_in, show};
    use crate::transform::{FoldScaleAxis, SimplifyInference};

    #[test]
    fn expressions_of_constants_become_constants() {
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
    fn bound_constants_lose_their_names() {
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
    fn calls_with_several_results_or_arguments_are_folded() {
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
    fn extents_need_no_constant_arguments() {
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
    fn dropout_and_kernels_are_not_folded() {
        // Dropout is left to SimplifyInference.
        let mut net = Net::default();
        let c = net.tensor(&[2], 1.0);
        let dropout = net.op_with("nn.dropout", &[c], &DropoutAttrs { rate: 0.5 });
        let y = net.0.tuple_get(dropout, 0).unwrap();
        let function = net.finish(y);
        assert!(after(&FoldConstant, function.clone()).same(&function));
        // The body of a kernel is left to the code generator.
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
    fn calls_that_would_grow_beyond_the_limit_stay_with_a_remark() {
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
        // A result as large as an argument is no growth.
        let mut net = Net::default();
        let c = net.tensor(&[limit + 1], 1.0);
        let y = net.op("negative", &[c]);
        assert_eq!(show(&after(&FoldConstant, net.finish(y))), format!("c({})", limit + 1));
    }

    #[test]
    fn weights_in_fewer_bits_become_what_they_stand_for_however_large() {
        let count = MAX_GROWN_BYTES as i64;
        let ty = TensorType::from_consts(&[count], DType::I8);
        let bytes: Vec<u8> = (0..count).map(|i| (i % 100) as u8).collect();
        let mut net = Net::default();
        let narrow = net.0.constant(Constant::new(ty, SharedBytes::new(bytes)).unwrap());
        let y = net.op_with("cast", &[narrow], &CastAttrs::to(DType::F32));
        assert_eq!(show(&after(&FoldConstant, net.finish(y))), format!("c({count})"));
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
    fn convolution_and_batch_norm_become_one_convolution() {
        use crate::ops::nn::{BatchNormAttrs, ConvAttrs};
        let mut net = Net::default();
        let x = net.input("x", &[1, 2, 4, 4]);
        let w = net.tensor(&[3, 2, 3, 3], -1.0);
        let conv = net.op_with("nn.conv2d", &[x, w], &ConvAttrs::of_rank(2));
        let params: Vec<ExprId> = (0..4).map(|i| net.tensor(&[3], i as f32 + 0.5)).collect();
        let bn = net.op_with(
            "nn.batch_norm",
            &[conv, params[0], params[1], params[2], params[3]],
            &BatchNormAttrs::new(1, 1e-5),
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
