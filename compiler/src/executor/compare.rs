//! Compiled kernels beside the reference interpreter, one after the other.

use cranelift_entity::SecondaryMap;

use super::{GraphExecutor, Program, ValueId};
use crate::diagnostics::{Problem, ProblemNode};
use crate::graph::interp::{Elements, Interpreter, Tensor, Tolerance, Value, compare};
use crate::graph::{Callee, Expr, ExprId, Function};
use crate::ir::{Constant, IRModule};
use crate::te::{held_constant, is_packed};

/// Compares what each kernel of a run computes with what the interpreter does of the same operands,
/// so that a kernel does not answer for those before it. Returns how many calls were compared.
///
/// `module` is the one that the program was made of, `inputs` are those of the run, and `tolerance`
/// says how near a tensor must be to the expected one.
///
/// # Errors
///
/// The first call whose results differ, with its node, its operators, the types of its operands and
/// results, and the largest error; or the interpreter cannot run a function.
pub fn compare_kernels(
    run: &mut GraphExecutor<'_>,
    module: &IRModule,
    inputs: &[Constant],
    tolerance: impl Fn(&Constant) -> Tolerance,
) -> Result<usize, Problem> {
    let Some(main) = module.function("main") else {
        return Err(Problem::new("the module has no function `main`"));
    };
    let computed_by = computed_by(run.program());
    let mut interpreter = Interpreter::new(module);
    // What compiled code computed of each expression.
    let mut held: SecondaryMap<ExprId, Option<Value>> = SecondaryMap::new();
    for (&param, input) in main.params().iter().zip(inputs) {
        held[param] = Some(value_of(input)?);
    }
    let live = main.live();
    let mut compared = 0;
    for id in main.ids().filter(|&id| live[id]) {
        let get = |id: ExprId| held[id].clone().ok_or_else(|| not_compared(main, id));
        let value = match main.expr(id) {
            Expr::Var(_) => get(id)?,
            Expr::Constant(constant) => value_of(constant)?,
            Expr::Tuple(fields) => {
                let fields = fields.iter().map(|&field| get(field));
                Value::tuple(fields.collect::<Result<Vec<_>, _>>()?)
            }
            Expr::TupleGet { tuple, index } => {
                let tuple = get(*tuple)?;
                let field = tuple.as_tuple().and_then(|fields| fields.get(*index as usize));
                field.cloned().ok_or_else(|| not_compared(main, id))?
            }
            Expr::GlobalVar(_) => continue,
            Expr::Call(call) => {
                let Callee::Expr(callee) = call.callee else { return Err(not_compared(main, id)) };
                let Expr::GlobalVar(global) = main.expr(callee) else {
                    return Err(not_compared(main, id));
                };
                let args = call.args.iter().flatten().map(|&arg| get(arg));
                let args = args.collect::<Result<Vec<_>, _>>()?;
                let expected = interpreter.run(global.name(), &args);
                let expected = expected.map_err(|error| Problem::new(error.to_string()))?.value;
                let values = &run.program().of_main[id];
                let last = values.iter().filter_map(|&value| computed_by[value]).max();
                run.run_to(last.map_or(0, |step| step + 1))?;
                let fields = expected.as_tuple().unwrap_or(std::slice::from_ref(&expected));
                let mut found = Vec::with_capacity(fields.len());
                for (&value, expected) in values.iter().zip(fields) {
                    let difference = |reason: &str| differs(module, main, id, reason);
                    found.push(result(run, value, expected, &tolerance, &difference)?);
                }
                compared += 1;
                match expected.as_tuple() {
                    Some(_) => Value::tuple(found),
                    None => found.pop().ok_or_else(|| not_compared(main, id))?,
                }
            }
            Expr::If(_) | Expr::While(_) | Expr::Func(_) => return Err(not_compared(main, id)),
        };
        held[id] = Some(value);
    }
    Ok(compared)
}

/// The problem of an expression that is no call of a kernel.
fn not_compared(main: &Function, id: ExprId) -> Problem {
    Problem::new(format!("an expression of type {} is computed by no kernel", main.ty(id)))
}

fn value_of(constant: &Constant) -> Result<Value, Problem> {
    let tensor = Tensor::from_constant(constant);
    tensor.map(Value::from).map_err(|error| Problem::new(error.to_string()))
}

/// For each value the last step that computes it or a part of it; for one that is a view or lies
/// within another, and that no step computes, that of the other.
pub(super) fn computed_by(program: &Program) -> SecondaryMap<ValueId, Option<usize>> {
    let mut by: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    for (number, step) in program.steps.iter().enumerate() {
        // A halo is zeroed by a step before the one that computes the elements.
        for id in program.stored_by(step) {
            let mut at = Some(id);
            while let Some(id) = at {
                by[id] = Some(number);
                at = program.lies_in(id).map(|(whole, _)| whole);
            }
        }
    }
    let known = by.clone();
    for id in program.values.keys() {
        let mut at = id;
        while known[at].is_none()
            && let Some((whole, _)) = program.lies_in(at)
        {
            at = whole;
        }
        by[id] = known[at];
    }
    by
}

/// What the run computed of a tensor, if that is near enough to what is expected. `difference` makes
/// a problem of a reason.
fn result(
    run: &GraphExecutor<'_>,
    id: ValueId,
    expected: &Value,
    tolerance: &impl Fn(&Constant) -> Tolerance,
    difference: &dyn Fn(&str) -> Problem,
) -> Result<Value, Problem> {
    let tensor = expected.as_tensor().ok_or_else(|| difference("it computes no tensor"))?;
    let constant = tensor.to_constant().map_err(|error| Problem::new(error.to_string()))?;
    let Some(found) = run.value(id)? else { return Ok(expected.clone()) };
    let expected_as_held = held_constant(&constant);
    if let Err(reason) = compare(&found, &expected_as_held, tolerance(&constant)) {
        return Err(difference(&match largest_error(&found, &expected_as_held) {
            Some(error) => format!("{reason}; the largest error is {error:e}"),
            None => reason,
        }));
    }
    // Elements narrower than a byte have another type in memory.
    if is_packed(constant.ty().dtype) { Ok(expected.clone()) } else { value_of(&found) }
}

/// The greatest difference of two elements in one place, if there are numbers to compare.
fn largest_error(found: &Constant, expected: &Constant) -> Option<f64> {
    let tensors = (Tensor::from_constant(found).ok()?, Tensor::from_constant(expected).ok()?);
    let errors: Vec<f64> = match (tensors.0.elements(), tensors.1.elements()) {
        (Elements::Float(found), Elements::Float(expected)) => {
            found.iter().zip(expected).map(|(a, b)| (a - b).abs()).collect()
        }
        (Elements::Int(found), Elements::Int(expected)) => {
            found.iter().zip(expected).map(|(&a, &b)| a.abs_diff(b) as f64).collect()
        }
        (Elements::Float(_), Elements::Int(_)) | (Elements::Int(_), Elements::Float(_)) => {
            return None;
        }
    };
    errors.into_iter().filter(|error| !error.is_nan()).reduce(f64::max)
}

/// The problem of a call of a kernel that computes something else.
fn differs(module: &IRModule, main: &Function, id: ExprId, reason: &str) -> Problem {
    let Expr::Call(call) = main.expr(id) else { return not_compared(main, id) };
    let Callee::Expr(callee) = call.callee else { return not_compared(main, id) };
    let Expr::GlobalVar(global) = main.expr(callee) else { return not_compared(main, id) };
    let function = module.function(global.name());
    let mut operators = Vec::new();
    for (_, data) in function.into_iter().flat_map(Function::iter) {
        if let Expr::Call(call) = &data.expr
            && let Callee::Op(op) = call.callee
        {
            operators.push(op.name);
        }
    }
    let operators = operators.join(", ");
    let types = call.args.iter().flatten().map(|&arg| main.ty(arg).to_string());
    let types = types.collect::<Vec<_>>().join(", ");
    let problem = Problem::new(format!(
        "kernel `{}` ({operators}) of {types} -> {}: {reason}",
        global.name(),
        main.ty(id)
    ));
    // The last node that has an origin: what the kernel's result is called in the model.
    let spans =
        function.into_iter().flat_map(|function| function.ids().rev().map(|id| function.span(id)));
    match std::iter::once(main.span(id)).chain(spans).find_map(ProblemNode::of) {
        Some(node) => problem.at(node),
        None => problem,
    }
}
