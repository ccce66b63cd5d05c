//! Copies from device to device.

use cranelift_entity::SecondaryMap;

use super::calls::{call_with, op_of};
use super::external::taken_scopes;
use crate::analysis::{Anf, CPU, DEVICE_TYPE, is_anywhere};
use crate::diagnostics::{Problem, ProblemNode};
use crate::graph::{Expr, ExprId, Function, Rewriter};
use crate::ir::IRModule;
use crate::ops::tensor::{DEVICE_COPY, DeviceCopyAttrs, ON_DEVICE, OnDeviceAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// The device that computes what no `on_device` says another one of; 1 is the processor.
    pub FALLBACK_DEVICE: u32 = "relay.fallback_device_type", default = CPU;
}

/// Copies values to the devices that read them, and drops every `on_device`.
///
/// Calls without a device are on `relay.fallback_device_type`; a field of a tuple is where the tuple
/// is, which is where it is read. Where a value is computed and where it is read are two devices,
/// there is a `device_copy`, for each use its own. None is made of a parameter or a constant, unless
/// an `on_device` says where it is. With no `on_device`, a function stays as it is.
/// (`RewriteAnnotatedOps` of TVM 0.7.)
#[function_pass(opt_level = 0, required = [InferType], clears = [Anf])]
pub fn plan_devices(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    let live = function.live();
    let ids = || function.ids().filter(|&id| live[id]);
    if !ids().any(|id| on_device(&function, id).is_some()) {
        return Ok(function);
    }
    let fallback = cx.get(&FALLBACK_DEVICE);
    let taken = taken_scopes(&function);
    let is_placed = |id: ExprId| {
        !is_anywhere(&function, id)
            && on_device(&function, id).is_none()
            && !taken[function.data_of(id).scope]
    };
    let devices = places(&function, fallback)?;
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        if on_device(&function, id).is_some() {
            let what = rewriter.mapped(annotated(&function, id));
            rewriter.replace(what);
            continue;
        }
        if !is_placed(id) || copy(&function, id).is_some() {
            continue;
        }
        let from = |operand: ExprId| devices[annotated(&function, operand)];
        let expr = function.expr(id);
        for scope in expr.scopes() {
            let inner = from(function.scope(scope).result).unwrap_or(devices[id].unwrap_or(CPU));
            if Some(inner) != devices[id] {
                let message = format!(
                    "what a branch or a loop computes on device {inner} is read on device {}",
                    devices[id].unwrap_or(CPU)
                );
                return Err(problem(&function, id, message)
                    .help("put `on_device` around the whole of it as well")
                    .into());
            }
        }
        if expr.operands().all(|operand| from(operand).is_none_or(|f| Some(f) == devices[id])) {
            continue;
        }
        let mut failed = None;
        let new = expr.map(
            |operand| {
                let value = rewriter.mapped(operand);
                let (Some(src_dev_type), Some(dst_dev_type)) = (from(operand), devices[id]) else {
                    return value;
                };
                if src_dev_type == dst_dev_type {
                    return value;
                }
                let attrs = DeviceCopyAttrs { src_dev_type, dst_dev_type };
                cx.count("copies between devices", 1);
                let copy = call_with(rewriter.builder(), &DEVICE_COPY, &[value], &attrs);
                copy.unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    value
                })
            },
            |scope| scope,
        );
        if let Some(error) = failed {
            return Err(error);
        }
        let new = rewriter.builder().push(new)?;
        rewriter.replace(new);
    }
    // Without copies nothing else would say which device it is.
    let mut all = ids().filter(|&id| is_placed(id)).map(|id| devices[id].unwrap_or(fallback));
    let first = all.next().unwrap_or(fallback);
    let own = if all.all(|device| device == first) { first } else { fallback };
    if own != CPU {
        rewriter.set_attrs(function.attrs().clone().with(DEVICE_TYPE, i64::from(own)));
    }
    Ok(rewriter.finish()?)
}

/// The device of an `on_device`.
fn on_device(function: &Function, id: ExprId) -> Option<u32> {
    let (_, call) = op_of(function.expr(id)).filter(|(op, _)| op.is(&ON_DEVICE))?;
    Some(call.attrs.parse::<OnDeviceAttrs>().ok()?.device_type)
}

/// The devices of a `device_copy`.
fn copy(function: &Function, id: ExprId) -> Option<DeviceCopyAttrs> {
    let (_, call) = op_of(function.expr(id)).filter(|(op, _)| op.is(&DEVICE_COPY))?;
    call.attrs.parse().ok()
}

/// What `on_device` is said of, if the expression is one: else the expression itself.
fn annotated(function: &Function, mut id: ExprId) -> ExprId {
    while on_device(function, id).is_some()
        && let Some(arg) = function.expr(id).operands().next()
    {
        id = arg;
    }
    id
}

fn problem(function: &Function, id: ExprId, message: String) -> Problem {
    let problem = Problem::new(message);
    match ProblemNode::of(function.span(id)) {
        Some(node) => problem.at(node),
        None => problem,
    }
}

/// The device of each expression, if it has one.
fn places(function: &Function, fallback: u32) -> Result<SecondaryMap<ExprId, Option<u32>>> {
    let live = function.live();
    let mut devices: SecondaryMap<ExprId, Option<u32>> = SecondaryMap::new();
    for id in function.ids().filter(|&id| live[id]) {
        let (of, device) = match (on_device(function, id), copy(function, id)) {
            (Some(device), _) => (annotated(function, id), device),
            (None, Some(copy)) => {
                if let Some(arg) = function.expr(id).operands().next() {
                    let arg = annotated(function, arg);
                    if !is_anywhere(function, arg) {
                        say(function, &mut devices, arg, copy.src_dev_type)?;
                    }
                }
                (id, copy.dst_dev_type)
            }
            (None, None) => continue,
        };
        say(function, &mut devices, of, device)?;
    }
    // Users come after what they use.
    for id in function.ids().rev().filter(|&id| live[id]) {
        let expr = function.expr(id);
        if is_anywhere(function, id) || on_device(function, id).is_some() {
            continue;
        }
        if matches!(expr, Expr::TupleGet { .. }) {
            continue;
        }
        let device = *devices[id].get_or_insert(fallback);
        for operand in expr.operands() {
            let of = annotated(function, operand);
            if matches!(function.expr(of), Expr::Tuple(_)) {
                devices[of].get_or_insert(device);
            }
        }
    }
    for id in function.ids().filter(|&id| live[id]) {
        if let Expr::TupleGet { tuple, .. } = function.expr(id) {
            let device = devices[annotated(function, *tuple)].unwrap_or(fallback);
            devices[id].get_or_insert(device);
        }
    }
    Ok(devices)
}

/// Notes the device of an expression.
fn say(
    function: &Function,
    devices: &mut SecondaryMap<ExprId, Option<u32>>,
    id: ExprId,
    device: u32,
) -> Result<()> {
    let before = *devices[id].get_or_insert(device);
    if before == device {
        return Ok(());
    }
    let message = format!(
        "a value is to be computed on device {before} and on device {device}; an expression can only \
         be annotated with one device"
    );
    Err(problem(function, id, message)
        .help("use `device_copy` where another device reads it")
        .into())
}

#[cfg(test)]
mod tests {
    use crate::analysis::devices;
    use crate::graph::parse_module;
    use crate::ir::IRModule;
    use crate::pass::Pass;
    use crate::transform::PlanDevices;
    use crate::transform::tests::support::verifying;

    fn planned(body: &str) -> Result<IRModule, String> {
        let tensor = "Tensor[(4), float32]";
        let text = format!("def @main(%x: {tensor}) -> {tensor} {{\n{body}\n}}");
        let module = parse_module(&text).unwrap();
        let cx = verifying().build().unwrap();
        PlanDevices.run(module, &cx).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_is_annotated_with_one_device() {
        let body = "%0 = exp(%x);
            add(on_device(%0, device_type=1), on_device(%0, device_type=2))";
        let error = planned(body).unwrap_err();
        let expected = "an expression can only be annotated with one device";
        assert!(error.contains(expected) && error.contains("device 1 and on device 2"), "{error}");
        let error = planned(
            "%0 = on_device(exp(%x), device_type=1);
            on_device(device_copy(%0, src_dev_type=3, dst_dev_type=2), device_type=2)",
        );
        assert!(error.unwrap_err().contains(expected));
    }

    #[test]
    fn what_a_branch_computes_is_where_the_choice_is() {
        let branch = "if (greater(sum(%x, axis=[0], keepdims=false), const(0.0, float32))) {
            on_device(exp(%x), device_type=2)
        } else {
            %x
        }";
        let error = planned(branch).unwrap_err();
        assert!(error.contains("computes on device 2 is read on device 1"), "{error}");
        planned(&format!("%0 = {branch};\non_device(%0, device_type=2)")).unwrap();
    }

    #[test]
    fn devices_spread_from_copies() {
        let module = planned(
            "%0 = log(%x);
            %1 = on_device(negative(%0), device_type=2);
            %2 = on_device(abs(%0), device_type=2);
            %3 = on_device(add(%1, %2), device_type=2);
            on_device(tan(%3), device_type=1)",
        );
        let module = module.unwrap();
        let main = module.function("main").unwrap();
        let devices = devices(&module, main).unwrap();
        let found: Vec<String> = main
            .iter()
            .filter_map(|(id, data)| {
                let (op, _) = super::op_of(&data.expr)?;
                Some(format!("{op} {}", devices[id]))
            })
            .collect();
        let expected =
            "log 1, device_copy 2, negative 2, device_copy 2, abs 2, add 2, device_copy 1, tan 1";
        assert_eq!(found.join(", "), expected);
        let x = main.ids().next().unwrap();
        assert_eq!(devices[x], 1);
    }

    #[test]
    fn a_value_that_is_read_elsewhere_without_a_copy_is_an_error() {
        let module = planned(
            "%0 = device_copy(exp(%x), src_dev_type=1, dst_dev_type=2);
            %1 = device_copy(log(%0), src_dev_type=3, dst_dev_type=1);
            tan(%1)",
        );
        let module = module.unwrap();
        let error = devices(&module, module.function("main").unwrap()).unwrap_err();
        assert!(error.message.contains("from device 2 to device 3"), "{}", error.message);
    }
}
