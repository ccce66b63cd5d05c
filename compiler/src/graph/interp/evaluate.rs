//! The evaluator: a stack of scopes in evaluation, and the values of the calls that they belong to.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use super::call::call_op;
use super::plan::Plan;
use super::symbols::Symbols;
use super::value::{Callable, ClosureData, FunctionValue};
use super::{Tensor, Value};
use crate::arith::Symbol;
use crate::graph::{Call, Callee, Closure, Expr, ExprId, If, ScopeId, While};
use crate::ir::{Definition, GlobalVar, IRModule, Span};

/// Number of evaluated expressions after which a program is assumed to run for ever.
pub const DEFAULT_STEP_LIMIT: u64 = 100_000_000;

/// Calls that may be open at a time. Each holds the values of a function; an endless recursion
/// becomes an error before memory runs out.
const MAX_OPEN_CALLS: usize = 100_000;

/// The error of an evaluation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// The function in which it arose.
    pub global: GlobalVar,
    /// The expression in which it arose, if it was one.
    pub expr: Option<ExprId>,
    /// The operator of that expression, if it is a call.
    pub op: Option<&'static str>,
    /// The origin of the expression.
    pub span: Span,
    /// The message: lower case, no final full stop.
    pub message: String,
}

impl fmt::Display for InterpError {
    /// `@main, nn.relu at 3:5: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InterpError { global, expr: _, op, span, message } = self;
        write!(f, "{global}")?;
        if let Some(op) = op {
            write!(f, ", {op}")?;
        }
        if *span != Span::Unknown {
            write!(f, " at {span}")?;
        }
        write!(f, ": {message}")
    }
}

impl std::error::Error for InterpError {}

/// The outcome of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The function's result.
    pub value: Value,
    /// The number of evaluated expressions.
    pub steps: u64,
    /// The greatest number of values held at a time.
    pub peak_values: usize,
}

/// Evaluates a function of a module.
///
/// # Errors
///
/// If there is no such function, an argument is not of its parameter's type, or an operator cannot
/// be evaluated.
pub fn evaluate(module: &IRModule, global: &str, args: &[Value]) -> Result<Value, InterpError> {
    Ok(Interpreter::new(module).run(global, args)?.value)
}

/// Evaluates functions of a module; see [`evaluate`].
pub struct Interpreter<'a> {
    module: &'a IRModule,
    step_limit: u64,
    plans: IndexMap<GlobalVar, Arc<Plan>>,
}

impl<'a> Interpreter<'a> {
    /// An interpreter of a module that verifies.
    pub fn new(module: &'a IRModule) -> Interpreter<'a> {
        Interpreter { module, step_limit: DEFAULT_STEP_LIMIT, plans: IndexMap::new() }
    }

    /// Sets the number of evaluated expressions after which an evaluation is an error.
    #[must_use]
    pub fn step_limit(mut self, steps: u64) -> Interpreter<'a> {
        self.step_limit = steps;
        self
    }

    /// Evaluates a function, named without the `@`.
    ///
    /// # Errors
    ///
    /// As [`evaluate`]; also if the step limit is reached.
    pub fn run(&mut self, global: &str, args: &[Value]) -> Result<Evaluation, InterpError> {
        let global = GlobalVar::new(global);
        let mut machine = Machine {
            interpreter: self,
            activations: Vec::new(),
            frames: Vec::new(),
            steps: 0,
            values: 0,
            peak_values: 0,
        };
        let result = machine.call_global(&global, args.to_vec()).and_then(|()| machine.run());
        match result {
            Ok(value) => {
                let Machine { steps, peak_values, .. } = machine;
                Ok(Evaluation { value, steps, peak_values })
            }
            Err(message) => Err(machine.error(global, message)),
        }
    }

    fn plan(&mut self, global: &GlobalVar) -> Result<Arc<Plan>, String> {
        if let Some(plan) = self.plans.get(global) {
            return Ok(plan.clone());
        }
        let function = match self.module.get(global) {
            Some(Definition::Graph(function)) => function.clone(),
            Some(Definition::Extern(_)) => {
                return Err(format!("{global} is defined elsewhere, and cannot be interpreted"));
            }
            Some(Definition::Prim(_)) => {
                return Err(format!("{global} is a function of the loop IR"));
            }
            None => return Err(format!("the module does not define {global}")),
        };
        let plan = Arc::new(Plan::new(global.clone(), function));
        self.plans.insert(global.clone(), plan.clone());
        Ok(plan)
    }
}

/// A call of a function or closure in evaluation: the values of its expressions.
struct Activation {
    plan: Arc<Plan>,
    /// The called scope: the function's body, or the closure's scope.
    region: ScopeId,
    /// By the slots of the region.
    values: Vec<Option<Value>>,
    /// The called closure, with its captured values.
    closure: Option<Arc<ClosureData>>,
    symbols: Symbols,
    /// Symbols that got their value from results, in order.
    defined: Vec<Symbol>,
}

/// The use of a scope's value.
enum Return {
    /// The value of a call, which ends.
    Call,
    /// The value of the current expression of the frame below.
    Branch,
    /// The condition of the loop of the frame below, in this state.
    LoopCond(Vec<Value>),
    /// The next state of the loop of the frame below.
    LoopBody,
}

/// A scope in evaluation.
struct Frame {
    activation: usize,
    scope: ScopeId,
    /// Index of the current expression in the scope's code.
    next: usize,
    returns: Return,
    /// The number of symbols defined when the scope started.
    defined: usize,
}

struct Machine<'i, 'a> {
    interpreter: &'i mut Interpreter<'a>,
    activations: Vec<Activation>,
    frames: Vec<Frame>,
    steps: u64,
    values: usize,
    peak_values: usize,
}

impl Machine<'_, '_> {
    /// Evaluates until the first call returns.
    fn run(&mut self) -> Result<Value, String> {
        loop {
            let Some(frame) = self.frames.last() else {
                return Err("there is nothing to evaluate".to_owned());
            };
            let activation = &self.activations[frame.activation];
            match activation.plan.code(frame.scope).get(frame.next) {
                Some(&id) => {
                    self.steps += 1;
                    if self.steps > self.interpreter.step_limit {
                        let limit = self.interpreter.step_limit;
                        return Err(format!("the evaluation takes more than {limit} steps"));
                    }
                    if let Some(value) = self.step(id)? {
                        self.deliver(value)?;
                    }
                }
                None => {
                    if let Some(result) = self.leave_scope()? {
                        return Ok(result);
                    }
                }
            }
        }
    }

    /// Evaluates an expression, or starts to; a value that comes later goes to
    /// [`deliver`](Self::deliver).
    fn step(&mut self, id: ExprId) -> Result<Option<Value>, String> {
        let index = self.activations.len() - 1;
        let plan = self.activations[index].plan.clone();
        let data = plan.function.data_of(id);
        match &data.expr {
            Expr::Var(_) | Expr::Constant(_) => self.get(id).map(Some),
            Expr::GlobalVar(global) => {
                Ok(Some(Value::Function(FunctionValue(Callable::Global(global.clone())))))
            }
            Expr::Tuple(fields) => self.get_all(fields).map(|fields| Some(Value::tuple(fields))),
            Expr::TupleGet { tuple, index } => match self.get(*tuple)? {
                Value::Tuple(fields) => match fields.get(*index as usize) {
                    Some(field) => Ok(Some(field.clone())),
                    None => Err(format!("there is no field {index}")),
                },
                Value::Tensor(_) | Value::Function(_) => Err("this has no fields".to_owned()),
            },
            Expr::Call(Call { callee, args, attrs }) => {
                let args: Vec<Option<Value>> = args
                    .iter()
                    .map(|arg| arg.map(|arg| self.get(arg)).transpose())
                    .collect::<Result<_, _>>()?;
                match callee {
                    Callee::Op(op) => {
                        let attrs = self.activations[index].symbols.bind_attrs(attrs)?;
                        call_op(*op, &attrs, &args, &data.ty).map(Some)
                    }
                    Callee::Expr(callee) => {
                        let callee = self.get(*callee)?;
                        let args: Option<Vec<Value>> = args.into_iter().collect();
                        let args = args.ok_or("an argument of a function is missing")?;
                        self.call(callee, args)?;
                        Ok(None)
                    }
                }
            }
            Expr::If(If { cond, then_scope, else_scope }) => {
                let taken = if self.condition(*cond)? { *then_scope } else { *else_scope };
                self.enter(index, taken, Return::Branch, Vec::new())?;
                Ok(None)
            }
            Expr::While(While { init, cond, body: _ }) => {
                let state = self.get_all(init)?;
                self.enter(index, *cond, Return::LoopCond(state.clone()), state)?;
                Ok(None)
            }
            Expr::Func(Closure { scope, recursive: _, attrs: _ }) => {
                let captures = plan.captures(*scope);
                let captured = captures
                    .iter()
                    .map(|&id| Ok((id, self.get(id)?)))
                    .collect::<Result<_, String>>()?;
                let symbols = self.activations[index].symbols.clone();
                let closure = ClosureData { plan: plan.clone(), func: id, captured, symbols };
                let closure = Callable::Closure(Arc::new(closure));
                Ok(Some(Value::Function(FunctionValue(closure))))
            }
        }
    }

    /// Gives a value to the current expression of the innermost scope, and goes on to the next.
    fn deliver(&mut self, value: Value) -> Result<(), String> {
        let Some(frame) = self.frames.last_mut() else {
            return Err("a value belongs to no expression".to_owned());
        };
        let activation = &mut self.activations[frame.activation];
        let plan = activation.plan.clone();
        let Some(&id) = plan.code(frame.scope).get(frame.next) else {
            return Err("a value belongs to no expression".to_owned());
        };
        let ty = plan.function.ty(id);
        activation.symbols.check_result(ty, &value, &mut activation.defined)?;
        frame.next += 1;
        let index = frame.activation;
        self.set(index, id, value);
        for &dead in plan.dying_after(id) {
            self.clear(index, dead);
        }
        Ok(())
    }

    /// Ends the innermost scope, whose code is done. Returns the value of the first call.
    fn leave_scope(&mut self) -> Result<Option<Value>, String> {
        let Some(Frame { activation: index, scope, next: _, returns, defined }) = self.frames.pop()
        else {
            return Err("there is no scope to leave".to_owned());
        };
        let result_id = self.activations[index].plan.function.scope(scope).result;
        let result = self.get_in(index, result_id)?;
        let activation = &mut self.activations[index];
        activation.symbols.forget(activation.defined.drain(defined..));
        match returns {
            Return::Call => {
                if let Some(ended) = self.activations.pop() {
                    self.values -= ended.values.iter().flatten().count();
                }
                if self.frames.is_empty() {
                    return Ok(Some(result));
                }
                self.deliver(result)?;
            }
            Return::Branch => {
                self.drop_result(index, scope, result_id);
                self.deliver(result)?;
            }
            Return::LoopCond(state) => {
                self.drop_result(index, scope, result_id);
                match truth(&result)? {
                    false => self.deliver(Value::tuple(state))?,
                    true => {
                        let While { init: _, cond: _, body } = self.current_loop()?;
                        self.enter(index, body, Return::LoopBody, state)?;
                    }
                }
            }
            Return::LoopBody => {
                self.drop_result(index, scope, result_id);
                let Value::Tuple(state) = result else {
                    return Err("the next state of a loop is no tuple".to_owned());
                };
                let While { init: _, cond, body: _ } = self.current_loop()?;
                let state = state.to_vec();
                self.enter(index, cond, Return::LoopCond(state.clone()), state)?;
            }
        }
        Ok(None)
    }

    /// Drops the value of an ended scope's result, if the result belongs to that scope.
    fn drop_result(&mut self, index: usize, scope: ScopeId, result: ExprId) {
        if self.activations[index].plan.function.data_of(result).scope == scope {
            self.clear(index, result);
        }
    }

    /// The loop that is the current expression of the innermost scope.
    fn current_loop(&self) -> Result<While, String> {
        let current = self.current().map(|(plan, id)| plan.function.expr(id));
        match current {
            Some(Expr::While(current)) => Ok(current.clone()),
            _ => Err("a scope of a loop belongs to no loop".to_owned()),
        }
    }

    fn current(&self) -> Option<(&Plan, ExprId)> {
        let frame = self.frames.last()?;
        let plan = &self.activations.get(frame.activation)?.plan;
        plan.code(frame.scope).get(frame.next).map(|&id| (&**plan, id))
    }

    /// Starts to evaluate a scope of a call with these arguments.
    fn enter(
        &mut self,
        index: usize,
        scope: ScopeId,
        returns: Return,
        params: Vec<Value>,
    ) -> Result<(), String> {
        let activation = &self.activations[index];
        let plan = activation.plan.clone();
        let defined = activation.defined.len();
        let ids = &plan.function.scope(scope).params;
        if ids.len() != params.len() {
            return Err(format!("{} values for {} parameters", params.len(), ids.len()));
        }
        for (&id, value) in ids.iter().zip(params) {
            self.set(index, id, value);
        }
        self.frames.push(Frame { activation: index, scope, next: 0, returns, defined });
        Ok(())
    }

    fn call(&mut self, callee: Value, args: Vec<Value>) -> Result<(), String> {
        match callee {
            Value::Function(FunctionValue(Callable::Global(global))) => {
                self.call_global(&global, args)
            }
            Value::Function(FunctionValue(Callable::Closure(closure))) => {
                self.call_closure(&closure, args)
            }
            Value::Tensor(_) | Value::Tuple(_) => Err("only functions can be called".to_owned()),
        }
    }

    fn call_global(&mut self, global: &GlobalVar, args: Vec<Value>) -> Result<(), String> {
        let plan = self.interpreter.plan(global)?;
        let params = plan.function.params().len();
        if params != args.len() {
            return Err(format!("{global} takes {params} arguments, but {} are given", args.len()));
        }
        let symbols = Symbols::of_arguments(&plan.function, &args).map_err(|message| match self
            .frames
            .is_empty()
        {
            true => message,
            false => format!("in a call of {global}: {message}"),
        })?;
        let mut symbols = symbols;
        // A kernel may have extents of what is around it that none of its arguments has.
        if plan.function.attrs().flag("Primitive")
            && let Some(caller) = self.frames.last()
        {
            symbols.add(&self.activations[caller.activation].symbols);
        }
        let body = plan.function.body();
        let index = self.activate(plan, body, symbols)?;
        self.enter(index, body, Return::Call, args)
    }

    fn call_closure(&mut self, closure: &Arc<ClosureData>, args: Vec<Value>) -> Result<(), String> {
        let ClosureData { plan, func, captured: _, symbols } = &**closure;
        let Expr::Func(Closure { scope, recursive, attrs: _ }) = plan.function.expr(*func) else {
            return Err("a closure is no function".to_owned());
        };
        let index = self.activate(plan.clone(), *scope, symbols.clone())?;
        self.activations[index].closure = Some(closure.clone());
        if let Some(recursive) = recursive {
            let itself = Value::Function(FunctionValue(Callable::Closure(closure.clone())));
            self.set(index, *recursive, itself);
        }
        self.enter(index, *scope, Return::Call, args)
    }

    fn activate(
        &mut self,
        plan: Arc<Plan>,
        region: ScopeId,
        symbols: Symbols,
    ) -> Result<usize, String> {
        if self.activations.len() >= MAX_OPEN_CALLS {
            return Err(format!("more than {MAX_OPEN_CALLS} calls are open: endless recursion?"));
        }
        let values = vec![None; plan.size(region)];
        let defined = Vec::new();
        self.activations.push(Activation { plan, region, values, closure: None, symbols, defined });
        Ok(self.activations.len() - 1)
    }

    /// The value of an evaluated expression; a constant's value is made on each use.
    fn get(&self, id: ExprId) -> Result<Value, String> {
        self.get_in(self.activations.len() - 1, id)
    }

    fn get_in(&self, index: usize, id: ExprId) -> Result<Value, String> {
        let activation = &self.activations[index];
        if let Expr::Constant(constant) = activation.plan.function.expr(id) {
            let tensor = Tensor::from_constant(constant).map_err(|error| error.to_string())?;
            return Ok(tensor.into());
        }
        let value = match activation.plan.slot(activation.region, id) {
            Some(slot) => activation.values[slot].clone(),
            None => activation.closure.as_ref().and_then(|closure| closure.get(id)),
        };
        value.ok_or_else(|| "a value is used before it is computed".to_owned())
    }

    fn get_all(&self, ids: &[ExprId]) -> Result<Vec<Value>, String> {
        ids.iter().map(|&id| self.get(id)).collect()
    }

    fn condition(&self, id: ExprId) -> Result<bool, String> {
        truth(&self.get(id)?)
    }

    fn set(&mut self, index: usize, id: ExprId, value: Value) {
        let activation = &mut self.activations[index];
        if !activation.plan.is_needed(id) {
            return;
        }
        if let Some(slot) = activation.plan.slot(activation.region, id)
            && activation.values[slot].replace(value).is_none()
        {
            self.values += 1;
            self.peak_values = self.peak_values.max(self.values);
        }
    }

    fn clear(&mut self, index: usize, id: ExprId) {
        let activation = &mut self.activations[index];
        if let Some(slot) = activation.plan.slot(activation.region, id)
            && activation.values[slot].take().is_some()
        {
            self.values -= 1;
        }
    }

    /// The error of the current expression; `first` is the function that the evaluation started
    /// with.
    fn error(&self, first: GlobalVar, message: String) -> InterpError {
        let Some((plan, id)) = self.current() else {
            return InterpError {
                global: first,
                expr: None,
                op: None,
                span: Span::Unknown,
                message,
            };
        };
        let op = match plan.function.expr(id).as_call().map(|call| &call.callee) {
            Some(Callee::Op(op)) => Some(op.definition().name),
            Some(Callee::Expr(_)) | None => None,
        };
        let span = plan.function.span(id).clone();
        InterpError { global: plan.global.clone(), expr: Some(id), op, span, message }
    }
}

fn truth(value: &Value) -> Result<bool, String> {
    match value.as_tensor().and_then(Tensor::ints) {
        Some([truth]) => Ok(*truth != 0),
        _ => Err("a condition is no boolean scalar".to_owned()),
    }
}
