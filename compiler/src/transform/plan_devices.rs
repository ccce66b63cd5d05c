//! Copies from device to device.

use cranelift_entity::{EntityRef, SecondaryMap};

use super::calls::{call_with, op_of};
use super::external::taken_scopes;
use crate::analysis::{Anf, CPU, DEVICE_TYPE, is_anywhere};
use crate::diagnostics::Problem;
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
    let places = Places::new(&function, fallback)?;
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        if on_device(&function, id).is_some() {
            let what = rewriter.mapped(places.what[id]);
            rewriter.replace(what);
        } else if is_placed(id) && copy(&function, id).is_none() {
            places.check_scopes(&function, id)?;
            if function.expr(id).operands().any(|operand| places.differ(operand, id).is_some()) {
                let new = places.with_copies(&function, id, &mut rewriter, cx)?;
                rewriter.replace(new);
            }
        }
    }
    // Without copies nothing else would say which device it is.
    let mut all = ids().filter(|&id| is_placed(id)).map(|id| places.device[id].unwrap_or(fallback));
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

/// Where expressions are computed.
struct Places {
    /// What `on_device` is said of, if the expression is one: else the expression itself.
    what: SecondaryMap<ExprId, ExprId>,
    /// The device, if there is one.
    device: SecondaryMap<ExprId, Option<u32>>,
}

impl Places {
    fn new(function: &Function, fallback: u32) -> Result<Places> {
        let live = function.live();
        let ids = || function.ids().filter(|&id| live[id]);
        let mut places = Places {
            what: SecondaryMap::with_default(ExprId::new(0)),
            device: SecondaryMap::new(),
        };
        for id in ids() {
            places.what[id] = id;
            let arg = function.expr(id).operands().next().map(|arg| places.what[arg]);
            if let (Some(device), Some(arg)) = (on_device(function, id), arg) {
                places.what[id] = arg;
                places.say(arg, device)?;
            } else if let (Some(copy), Some(arg)) = (copy(function, id), arg) {
                places.say(id, copy.dst_dev_type)?;
                if !is_anywhere(function, arg) {
                    places.say(arg, copy.src_dev_type)?;
                }
            }
        }
        // Users come after what they use.
        for id in function.ids().rev().filter(|&id| live[id]) {
            let follows = matches!(function.expr(id), Expr::TupleGet { .. });
            if follows || is_anywhere(function, id) || on_device(function, id).is_some() {
                continue;
            }
            let device = *places.device[id].get_or_insert(fallback);
            for operand in function.expr(id).operands().map(|operand| places.what[operand]) {
                if matches!(function.expr(operand), Expr::Tuple(_)) {
                    places.device[operand].get_or_insert(device);
                }
            }
        }
        for id in ids() {
            if let Expr::TupleGet { tuple, .. } = function.expr(id) {
                let device = places.device[places.what[*tuple]].unwrap_or(fallback);
                places.device[id].get_or_insert(device);
            }
        }
        Ok(places)
    }

    /// Notes the device of an expression.
    fn say(&mut self, id: ExprId, device: u32) -> Result<()> {
        let before = *self.device[id].get_or_insert(device);
        if before == device {
            return Ok(());
        }
        let message = format!(
            "a value is to be computed on device {before} and on device {device}; an expression can \
             only be annotated with one device"
        );
        let help = "use `device_copy` where another device reads it";
        Err(Problem::new(message).help(help).into())
    }

    /// The devices of a value and of what reads it, if both have one, and they are two.
    fn differ(&self, value: ExprId, reader: ExprId) -> Option<DeviceCopyAttrs> {
        let src_dev_type = self.device[self.what[value]]?;
        let dst_dev_type = self.device[reader]?;
        (src_dev_type != dst_dev_type).then_some(DeviceCopyAttrs { src_dev_type, dst_dev_type })
    }

    /// Checks that branches and loops compute what they yield where they are themselves.
    fn check_scopes(&self, function: &Function, id: ExprId) -> Result<()> {
        for scope in function.expr(id).scopes() {
            if let Some(devices) = self.differ(function.scope(scope).result, id) {
                let message = format!(
                    "what a branch or a loop computes on device {} is read on device {}",
                    devices.src_dev_type, devices.dst_dev_type
                );
                let help = "put `on_device` around the whole of it as well";
                return Err(Problem::new(message).help(help).into());
            }
        }
        Ok(())
    }

    /// Pushes an expression with copies of the operands that are on other devices.
    fn with_copies(
        &self,
        function: &Function,
        id: ExprId,
        rewriter: &mut Rewriter,
        cx: &PassContext,
    ) -> Result<ExprId> {
        let mut failed = None;
        let expr = function.expr(id).map(
            |operand| {
                let value = rewriter.mapped(operand);
                let Some(devices) = self.differ(operand, id) else { return value };
                cx.count("copies between devices", 1);
                let copy = call_with(rewriter.builder(), &DEVICE_COPY, &[value], &devices);
                copy.unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    value
                })
            },
            |scope| scope,
        );
        match failed {
            Some(error) => Err(error),
            None => Ok(rewriter.builder().push(expr)?),
        }
    }
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
