//! Random modules with every kind of expression and few operators, for tools on the graph IR.

use niello::graph::{ExprId, Function, FunctionBuilder, ScopeKind};
use niello::ir::{
    AttrValue, Attrs, Constant, DType, Definition, FuncType, GlobalVar, IRModule, Type,
};
use niello::ops::Op;

use super::Choices;

/// Steps in one scope, so that nested scopes do not grow without bound.
const MAX_STEPS: u32 = 12;
/// Nesting of scopes.
const MAX_DEPTH: usize = 3;

/// A module made from a list of choices: any list makes a valid one, a shorter list a smaller one.
/// With `junk`, unused expressions are inserted, and nothing else changes.
pub fn random_module(choices: &[u32], junk: bool) -> IRModule {
    let mut choices = Choices::new(choices);
    let mut module = IRModule::new();
    let helper = function(&mut choices, None, junk);
    let ty = helper.func_type();
    let global = GlobalVar::new("helper");
    let main = function(&mut choices, Some((global.clone(), ty)), junk);
    module.insert(GlobalVar::new("main"), Definition::Graph(main));
    module.insert(global, Definition::Graph(helper));
    module
}

struct Generator<'c, 'l> {
    choices: &'c mut Choices<'l>,
    builder: FunctionBuilder,
    /// Visible tensors.
    values: Vec<ExprId>,
    helper: Option<(GlobalVar, FuncType)>,
    junk: bool,
    depth: usize,
}

fn function(
    choices: &mut Choices<'_>,
    helper: Option<(GlobalVar, FuncType)>,
    junk: bool,
) -> Function {
    let mut builder = FunctionBuilder::new();
    let values = vec![
        builder.param("x", Type::tensor(&[2, 3], DType::F32)),
        builder.param("row.1", Type::tensor(&[3], DType::F32)),
        builder.param("go", Type::tensor(&[], DType::Bool)),
        builder.param("n", Type::tensor(&[], DType::I64)),
    ];
    let mut generator = Generator { choices, builder, values, helper, junk, depth: 0 };
    generator.steps();
    let first = generator.values[0];
    // The helper's result has the type of its first parameter, so that it can be called in a row.
    let result = match generator.helper {
        None => generator.same_type(first),
        Some(_) => {
            let fields: Vec<ExprId> = generator.values.iter().rev().take(4).copied().collect();
            generator.builder.tuple(&fields)
        }
    };
    generator.builder.finish(result)
}

fn op(name: &str) -> Op {
    Op::get(name).unwrap_or_else(|| panic!("`{name}` is an operator"))
}

impl Generator<'_, '_> {
    fn steps(&mut self) {
        let steps = 1 + self.choices.below(MAX_STEPS as usize);
        for _ in 0..steps {
            if self.choices.used_up() {
                return;
            }
            if self.junk {
                let value = self.values[0];
                self.builder.tuple(&[value]);
                self.builder.constant(Constant::from_i64(&[1], &[7]).expect("one element"));
            }
            self.step();
        }
    }

    fn value(&mut self) -> ExprId {
        let index = self.choices.below(self.values.len());
        // Later values are likelier, so that graphs are deep rather than wide.
        let index = self.values.len() - 1 - index * index / self.values.len();
        self.values[index]
    }

    /// Adds the call's result to the values, if it types.
    fn call(&mut self, name: &str, args: &[ExprId], attrs: Attrs) {
        if let Ok(id) = self.builder.call(op(name), args, attrs) {
            self.values.push(id);
        }
    }

    fn step(&mut self) {
        match self.choices.below(14) {
            0 | 1 => {
                let names =
                    ["nn.relu", "negative", "abs", "tanh", "sigmoid", "sqrt", "logical_not"];
                let name = names[self.choices.below(names.len())];
                let x = self.value();
                self.call(name, &[x], Attrs::new());
            }
            2..=4 => {
                let names = ["add", "subtract", "multiply", "maximum", "less", "logical_and"];
                let name = names[self.choices.below(names.len())];
                let (a, b) = (self.value(), self.value());
                self.call(name, &[a, b], Attrs::new());
            }
            5 => self.shape(),
            6 => {
                let value = self.constant();
                self.values.push(value);
            }
            7 => {
                let fields: Vec<ExprId> =
                    (0..=self.choices.below(3)).map(|_| self.value()).collect();
                let tuple = self.builder.tuple(&fields);
                let index = self.choices.below(fields.len()) as u32;
                if let Ok(field) = self.builder.tuple_get(tuple, index) {
                    self.values.push(field);
                }
            }
            8 => {
                let names = ["y", "y", "input.1", "type", ""];
                let name = names[self.choices.below(names.len())];
                let value = self.value();
                self.builder.bind(name, value);
            }
            9 | 10 if self.depth < MAX_DEPTH => self.choice(),
            11 if self.depth < MAX_DEPTH => self.repeat(),
            12 if self.depth < MAX_DEPTH => self.closure(),
            _ => self.call_helper(),
        }
    }

    fn constant(&mut self) -> ExprId {
        let values = [0.0, -0.5, 1.0, 3.25];
        let value = values[self.choices.below(values.len())];
        let constant = match self.choices.below(4) {
            0 => Constant::scalar(value, DType::F32),
            1 => Constant::from_f32(&[3], &[value as f32, 1.0, -2.0]).ok(),
            2 => Constant::scalar(value, DType::I64),
            _ => Constant::from_f32(&[20], &[value as f32; 20]).ok(),
        };
        self.builder.constant(constant.expect("the elements fit the type"))
    }

    fn shape(&mut self) {
        let x = self.value();
        let Some(dims) = self.builder.ty(x).as_tensor().and_then(|ty| ty.shape.as_consts()) else {
            return;
        };
        let elements: u64 = dims.iter().product();
        match self.choices.below(4) {
            0 => {
                let newshape = AttrValue::List(vec![AttrValue::Int(elements as i64)]);
                self.call("reshape", &[x], Attrs::new().with("newshape", newshape));
            }
            1 => {
                let axes = (0..dims.len() as i64).rev().map(AttrValue::Int).collect();
                self.call("transpose", &[x], Attrs::new().with("axes", AttrValue::List(axes)));
            }
            2 => {
                let axis = AttrValue::List(vec![AttrValue::Int(0)]);
                self.call("expand_dims", &[x], Attrs::new().with("axis", axis));
            }
            _ => {
                let axis = AttrValue::List(vec![AttrValue::Int(-1)]);
                let attrs = Attrs::new().with("axis", axis).with("keepdims", self.depth == 0);
                self.call("sum", &[x], attrs);
            }
        }
    }

    /// A visible boolean scalar, for example the parameter.
    fn condition(&mut self) -> ExprId {
        let boolean = Type::tensor(&[], DType::Bool);
        let found = self.values.iter().rev().find(|&&id| *self.builder.ty(id) == boolean);
        found.copied().expect("a parameter is a boolean scalar")
    }

    /// A value of the type of `like`, mostly the latest.
    fn same_type(&mut self, like: ExprId) -> ExprId {
        let ty = self.builder.ty(like).clone();
        let found = self.values.iter().rev().find(|&&id| *self.builder.ty(id) == ty);
        found.copied().unwrap_or(like)
    }

    /// The steps of an open scope, whose values are visible until its end.
    fn inner(&mut self, like: ExprId) -> ExprId {
        let visible = self.values.len();
        self.depth += 1;
        self.steps();
        self.depth -= 1;
        let result = self.same_type(like);
        self.values.truncate(visible);
        result
    }

    fn choice(&mut self) {
        let (cond, like) = (self.condition(), self.value());
        let [then_scope, else_scope] = [(), ()].map(|()| {
            self.builder.open_scope(ScopeKind::Branch);
            let result = self.inner(like);
            self.builder.close_scope(result)
        });
        let choice = self.builder.if_else(cond, then_scope, else_scope);
        self.values.push(choice.expect("both branches yield the same type"));
    }

    /// A loop of three rounds over a counter and a value.
    fn repeat(&mut self) {
        let like = self.value();
        let ty = self.builder.ty(like).clone();
        let counter = Type::tensor(&[], DType::I64);
        let zero = self.builder.constant(int(0));
        let cond = self.builder.open_scope(ScopeKind::Loop);
        let i = self.builder.param("i", counter.clone());
        self.builder.param("s", ty.clone());
        let three = self.builder.constant(int(3));
        let less = self.builder.call(op("less"), &[i, three], Attrs::new()).expect("two scalars");
        self.builder.close_scope(less);
        let body = self.builder.open_scope(ScopeKind::Loop);
        let i = self.builder.param("i", counter);
        let s = self.builder.param("s", ty);
        let one = self.builder.constant(int(1));
        let next = self.builder.call(op("add"), &[i, one], Attrs::new()).expect("two scalars");
        self.values.push(s);
        let result = self.inner(s);
        self.values.pop();
        let state = self.builder.tuple(&[next, result]);
        self.builder.close_scope(state);
        let last = self.builder.while_loop(&[zero, like], cond, body).expect("the state fits");
        let last = self.builder.tuple_get(last, 1).expect("the state has two fields");
        self.values.push(last);
    }

    fn closure(&mut self) {
        let like = self.value();
        let ty = self.builder.ty(like).clone();
        let scope = self.builder.open_scope(ScopeKind::Closure);
        let p = self.builder.param("p", ty);
        self.values.push(p);
        let result = self.inner(p);
        self.values.pop();
        self.builder.close_scope(result);
        let attrs = match self.choices.below(2) {
            0 => Attrs::new(),
            _ => Attrs::new().with("Note", "a closure"),
        };
        let closure = self.builder.closure(scope, None, attrs).expect("it is not recursive");
        for _ in 0..=self.choices.below(2) {
            let arg = self.same_type(like);
            let call = self.builder.call_function(closure, &[arg]).expect("the argument fits");
            self.values.push(call);
        }
    }

    fn call_helper(&mut self) {
        let Some((global, ty)) = self.helper.clone() else { return };
        let args: Vec<Option<ExprId>> = ty
            .params
            .iter()
            .map(|param| {
                self.values.iter().rev().find(|&&id| self.builder.ty(id) == param).copied()
            })
            .collect();
        let args: Option<Vec<ExprId>> = args.into_iter().collect();
        let args = args.expect("the parameters have these types");
        let callee = self.builder.global(global, ty);
        let call = self.builder.call_function(callee, &args).expect("the arguments fit");
        self.values.push(call);
    }
}

fn int(value: i64) -> Constant {
    Constant::from_i64(&[], &[value]).expect("one element")
}
