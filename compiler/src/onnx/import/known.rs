//! Values that are known while importing: what shapes, axes and scales are computed from.

use std::collections::BTreeMap;

use crate::graph::interp::Tensor;
use crate::graph::{Call, Callee, Expr, ExprId, FunctionBuilder, MAX_SHAPE_VALUE};
use crate::ir::{Constant, Dim, TensorType, Type};
use crate::ops::OpPattern;

/// Values of expressions, each computed once; `None` for one that is not known.
#[derive(Default)]
pub(super) struct KnownValues {
    memo: BTreeMap<ExprId, Option<Vec<Tensor>>>,
}

impl KnownValues {
    /// The value of a small tensor, if it depends on constants alone.
    pub(super) fn get(&mut self, builder: &FunctionBuilder, value: ExprId) -> Option<Constant> {
        // Operands before users, without recursion: an expression stays on the stack until those
        // it uses are computed.
        let mut stack = vec![value];
        while let Some(&id) = stack.last() {
            if self.memo.contains_key(&id) {
                stack.pop();
                continue;
            }
            let pending = self.pending(builder, id);
            if pending.is_empty() {
                let computed = self.compute(builder, id);
                self.memo.insert(id, computed);
                stack.pop();
            } else {
                stack.extend(pending);
            }
        }
        self.memo.get(&value)?.as_ref()?.first()?.to_constant().ok()
    }

    /// Operands that must be computed first; none if the expression is a leaf, or not worth it.
    fn pending(&self, builder: &FunctionBuilder, id: ExprId) -> Vec<ExprId> {
        let data = builder.data_of(id);
        if data.shape_value.is_some() || !is_cheap(&data.expr) || !is_small(&data.ty) {
            return Vec::new();
        }
        let operands: Vec<ExprId> = data.expr.operands().collect();
        if operands.iter().any(|operand| self.memo.get(operand).is_some_and(Option::is_none)) {
            return Vec::new();
        }
        operands.into_iter().filter(|operand| !self.memo.contains_key(operand)).collect()
    }

    fn compute(&self, builder: &FunctionBuilder, id: ExprId) -> Option<Vec<Tensor>> {
        let data = builder.data_of(id);
        if !is_small(&data.ty) {
            return None;
        }
        if let (Some(dims), Type::Tensor(ty)) = (&data.shape_value, &data.ty)
            && let Some(tensor) = tensor_of_dims(ty, dims)
        {
            return Some(vec![tensor]);
        }
        match &data.expr {
            Expr::Constant(constant) => Some(vec![Tensor::from_constant(constant).ok()?]),
            Expr::TupleGet { tuple, index } => {
                let fields = self.memo.get(tuple)?.as_ref()?;
                Some(vec![fields.get(*index as usize)?.clone()])
            }
            Expr::Call(Call { callee: Callee::Op(op), args, attrs }) if is_cheap(&data.expr) => {
                let args: Option<Vec<Option<&Tensor>>> = args
                    .iter()
                    .map(|arg| match arg {
                        None => Some(None),
                        Some(arg) => self.memo.get(arg)?.as_ref()?.first().map(Some),
                    })
                    .collect();
                op.definition().evaluate(attrs, &args?).ok()
            }
            Expr::Call(_)
            | Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Tuple(_)
            | Expr::If(_)
            | Expr::While(_)
            | Expr::Func(_) => None,
        }
    }
}

/// Whether evaluating takes about as many steps as there are elements.
fn is_cheap(expr: &Expr) -> bool {
    match expr {
        Expr::Call(Call { callee: Callee::Op(op), .. }) => op.pattern <= OpPattern::CommReduce,
        Expr::TupleGet { .. } => true,
        Expr::Call(_)
        | Expr::Var(_)
        | Expr::GlobalVar(_)
        | Expr::Constant(_)
        | Expr::Tuple(_)
        | Expr::If(_)
        | Expr::While(_)
        | Expr::Func(_) => false,
    }
}

pub(super) fn is_small(ty: &Type) -> bool {
    let small = |ty: &Type| {
        ty.as_tensor().and_then(TensorType::num_elements).is_some_and(|n| n <= MAX_SHAPE_VALUE)
    };
    match ty {
        Type::Tensor(_) => small(ty),
        Type::Tuple(fields) => fields.iter().all(small),
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => false,
    }
}

/// A tensor of integers whose elements are known as dimensions, if all of these are numbers.
fn tensor_of_dims(ty: &TensorType, dims: &[Dim]) -> Option<Tensor> {
    let shape: Option<Vec<usize>> =
        ty.shape.as_consts()?.into_iter().map(|extent| usize::try_from(extent).ok()).collect();
    let values = dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>()?.into_iter();
    match ty.dtype.is_float() {
        true => Tensor::from_floats(ty.dtype, &shape?, values.map(|v| v as f64).collect()).ok(),
        false => Tensor::from_ints(ty.dtype, &shape?, values.map(i128::from).collect()).ok(),
    }
}
