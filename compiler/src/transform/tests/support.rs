//! Small graphs, their text on one line, and their values.

use serde::Serialize;

use crate::graph::interp::{Tensor, Value};
use crate::graph::{Callee, Expr, ExprId, Function, FunctionBuilder};
use crate::ir::{Attrs, Constant, DType, IRModule, Type};
use crate::ops::Op;
use crate::pass::{Pass, PassBody, PassContext, PassContextBuilder};

/// A function under construction, with short names.
#[derive(Default)]
pub(crate) struct Net(pub(crate) FunctionBuilder);

impl Net {
    pub(crate) fn input(&mut self, name: &str, dims: &[i64]) -> ExprId {
        self.0.param(name, Type::tensor(dims, DType::F32))
    }

    pub(crate) fn op(&mut self, name: &str, args: &[ExprId]) -> ExprId {
        self.op_with(name, args, &())
    }

    pub(crate) fn op_with(
        &mut self,
        name: &str,
        args: &[ExprId],
        attrs: &impl Serialize,
    ) -> ExprId {
        let op = Op::get(name).unwrap_or_else(|| panic!("`{name}` is an operator"));
        let attrs = Attrs::from_struct(attrs).unwrap();
        self.0.call(op, args, attrs).unwrap()
    }

    pub(crate) fn scalar(&mut self, value: f64) -> ExprId {
        self.0.constant(Constant::scalar(value, DType::F32).unwrap())
    }

    /// Elements `first`, `first + 0.25`, `first + 0.5` and so on, back to `first` after nine.
    pub(crate) fn tensor(&mut self, dims: &[i64], first: f32) -> ExprId {
        let count: i64 = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|i| first + (i % 9) as f32 / 4.0).collect();
        self.0.constant(Constant::from_f32(dims, &values).unwrap())
    }

    pub(crate) fn finish(self, result: ExprId) -> Function {
        self.0.finish(result)
    }
}

/// The function after a pass, which is run in a module of its own.
pub(crate) fn after(pass: &impl PassBody, function: Function) -> Function {
    after_in(pass, function, &verifying().build().unwrap())
}

pub(crate) fn after_in(pass: &impl PassBody, function: Function, cx: &PassContext) -> Function {
    let module = pass.run(IRModule::from_function(function), cx).unwrap();
    module.function("main").unwrap().clone()
}

/// The result as one nested expression: `nn.relu(add(x, 2))`. Constant tensors are `c(3, 1, 1)`, a
/// kernel and its arguments `P{nn.relu(p0)}(x)`; shared expressions are repeated.
pub(crate) fn show(function: &Function) -> String {
    show_expr(function, function.result())
}

fn show_expr(function: &Function, id: ExprId) -> String {
    let list = |ids: Vec<ExprId>| {
        ids.into_iter().map(|id| show_expr(function, id)).collect::<Vec<_>>().join(", ")
    };
    match function.expr(id) {
        Expr::Var(name) => name.to_string(),
        Expr::GlobalVar(global) => global.to_string(),
        Expr::Constant(constant) => match constant.ty().shape.rank() {
            0 => constant
                .to_f64_vec()
                .map(|v| v[0].to_string())
                .or_else(|| constant.to_i64_vec().map(|v| v[0].to_string()))
                .unwrap(),
            _ => format!("c{}", constant.ty().shape),
        },
        Expr::Tuple(fields) => format!("({})", list(fields.clone())),
        Expr::TupleGet { tuple, index } => format!("{}.{index}", show_expr(function, *tuple)),
        Expr::Call(call) => {
            let args = list(call.args.iter().flatten().copied().collect());
            match &call.callee {
                Callee::Op(op) => format!("{op}({args})"),
                Callee::Expr(callee) => format!("{}({args})", show_expr(function, *callee)),
            }
        }
        Expr::Func(closure) => {
            format!("P{{{}}}", show_expr(function, function.scope(closure.scope).result))
        }
        Expr::If(_) => "if".to_owned(),
        Expr::While(_) => "while".to_owned(),
    }
}

/// How many live calls of that operator a function has.
pub(crate) fn count(function: &Function, op: &str) -> usize {
    let op = Op::get(op).unwrap_or_else(|| panic!("`{op}` is an operator"));
    let live = function.live();
    function.iter().filter(|(id, data)| live[*id] && data.expr.is_call_of(op.definition())).count()
}

/// A value as its tensors, tuples flattened.
pub(crate) fn tensors(value: &Value) -> Vec<&Tensor> {
    match value {
        Value::Tensor(tensor) => vec![tensor],
        Value::Tuple(fields) => fields.iter().flat_map(tensors).collect(),
        other => panic!("{other:?} is no tensor"),
    }
}

/// A context that verifies after each pass.
pub(crate) fn verifying() -> PassContextBuilder {
    PassContext::builder().verify_each(true)
}
