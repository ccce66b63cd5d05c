//! Which device computes what.

use cranelift_entity::{EntityRef, SecondaryMap};

use crate::diagnostics::Problem;
use crate::graph::{Call, Callee, Expr, ExprId, Function};
use crate::ir::IRModule;
use crate::ops::tensor::{DEVICE_COPY, DeviceCopyAttrs};

/// The processor, by the number that DLPack has for it.
pub const CPU: u32 = 1;

/// The attribute of a function that computes on another device than the processor what no
/// `device_copy` says more of: that device.
pub const DEVICE_TYPE: &str = "device_type";

/// The device that computes each expression of a function, which devices are spread through from
/// every `device_copy`, to what computes its argument and to what reads its result (after TVM's
/// `CollectDeviceInfo`). Parameters, constants and functions are where they are read first. What no
/// copy is connected with is on the function's own device: see [`DEVICE_TYPE`].
///
/// # Errors
///
/// A value passes from one device to another without a copy.
pub fn devices(
    module: &IRModule,
    function: &Function,
) -> Result<SecondaryMap<ExprId, u32>, Problem> {
    let own = function.attrs().int(DEVICE_TYPE).and_then(|own| u32::try_from(own).ok());
    let own = own.unwrap_or(CPU);
    let live = function.live();
    let ids = || function.ids().filter(|&id| live[id]);
    let mut groups = Groups((0..function.len()).map(ExprId::new).collect());
    let mut known = Vec::new();
    for id in ids().filter(|&id| !is_anywhere(function, id)) {
        let expr = function.expr(id);
        if let Some((arg, copy)) = copy_of(module, function, id) {
            known.push((id, copy.dst_dev_type));
            if !is_anywhere(function, arg) {
                known.push((arg, copy.src_dev_type));
            }
            continue;
        }
        let called = match expr {
            Expr::Call(Call { callee: Callee::Expr(callee), .. }) => {
                function.expr(*callee).scopes().next()
            }
            _ => None,
        };
        let results = expr.scopes().chain(called).map(|scope| function.scope(scope).result);
        for other in expr.operands().chain(results) {
            if !is_anywhere(function, other) {
                groups.join(id, other);
            }
        }
    }
    let mut of_group: SecondaryMap<ExprId, Option<u32>> = SecondaryMap::new();
    for (id, device) in known {
        let group = groups.of(id);
        let found = *of_group[group].get_or_insert(device);
        if found != device {
            return Err(Problem::new(format!(
                "a value passes from device {found} to device {device}, or back, without a \
                 `device_copy`"
            )));
        }
    }
    let mut devices: SecondaryMap<ExprId, u32> = SecondaryMap::with_default(own);
    let mut placed: SecondaryMap<ExprId, bool> = SecondaryMap::new();
    for id in ids().filter(|&id| !is_anywhere(function, id)) {
        devices[id] = of_group[groups.of(id)].unwrap_or(own);
        let reader = copy_of(module, function, id).map_or(devices[id], |copy| copy.1.src_dev_type);
        for operand in function.expr(id).operands().filter(|&id| is_anywhere(function, id)) {
            if !std::mem::replace(&mut placed[operand], true) {
                devices[operand] = reader;
            }
        }
    }
    Ok(devices)
}

/// What has no device of its own.
pub(crate) fn is_anywhere(function: &Function, id: ExprId) -> bool {
    match function.expr(id) {
        Expr::Var(_) | Expr::Constant(_) | Expr::GlobalVar(_) | Expr::Func(_) => true,
        Expr::Tuple(_) | Expr::TupleGet { .. } | Expr::Call(_) | Expr::If(_) | Expr::While(_) => {
            false
        }
    }
}

/// The argument and the attributes of a call of `device_copy`, or of a kernel that is one.
fn copy_of(
    module: &IRModule,
    function: &Function,
    id: ExprId,
) -> Option<(ExprId, DeviceCopyAttrs)> {
    let call = function.expr(id).as_call()?;
    let arg = *call.args.first()?.as_ref()?;
    let copy = match call.callee {
        Callee::Op(op) => op.is(&DEVICE_COPY).then_some(call)?,
        Callee::Expr(callee) => {
            let (inner, result) = match function.expr(callee) {
                Expr::GlobalVar(global) => {
                    let kernel = module.function(global.name())?;
                    (kernel, kernel.result())
                }
                Expr::Func(closure) => (function, function.scope(closure.scope).result),
                _ => return None,
            };
            let call = inner.expr(result).as_call()?;
            matches!(call.callee, Callee::Op(op) if op.is(&DEVICE_COPY)).then_some(call)?
        }
    };
    Some((arg, copy.attrs.parse().ok()?))
}

/// Expressions of one device: each has another one of its group, or itself.
struct Groups(Vec<ExprId>);

impl Groups {
    fn of(&mut self, mut id: ExprId) -> ExprId {
        while self.0[id.index()] != id {
            let next = self.0[self.0[id.index()].index()];
            self.0[id.index()] = next;
            id = next;
        }
        id
    }

    fn join(&mut self, a: ExprId, b: ExprId) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b).index()] = a.min(b);
    }
}
