//! Which code generator computes what.

use std::collections::BTreeMap;

use super::calls::op_of;
use super::external::{COMPILER, COMPOSITE, Closed, enclose, taken_scopes};
use crate::analysis::{Anf, devices};
use crate::diagnostics::Problem;
use crate::graph::{Function, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::ops::Op;
use crate::ops::tensor::DEVICE_COPY;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Code generators with the operators that they take, such as `["dsp", ["nn.dense"]]`; of
    /// several that take an operator, the first one gets it.
    pub EXTERNAL_TARGETS: Vec<(String, Vec<String>)> = "relay.AnnotateTarget.targets";
    /// Devices with the code generator that takes all calls there, such as `[2, "dsp"]`.
    pub EXTERNAL_DEVICES: Vec<(u32, String)> = "relay.AnnotateTarget.devices";
}

/// Gives calls to other code generators: each in a closure with the attribute `Compiler`.
///
/// `relay.AnnotateTarget.devices` says which of them takes what is computed on a device: see
/// [`devices`]. `relay.AnnotateTarget.targets` says which operators each of them takes elsewhere. A
/// function with the attribute `Composite` goes to the one whose name is before the first dot of the
/// pattern's, if it is listed. Kernels, and what has a code generator already, stay as they are, and
/// so does each `device_copy`.
#[function_pass(opt_level = 0, required = [InferType], clears = [Anf])]
pub fn annotate_target(
    function: Function,
    module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let targets = cx.get(&EXTERNAL_TARGETS);
    let mut of_op: BTreeMap<&str, &str> = BTreeMap::new();
    for (target, ops) in &targets {
        for op in ops {
            if Op::get(op).is_none() {
                let option = EXTERNAL_TARGETS.name();
                let problem = format!("{option}: `{target}` takes `{op}`, which is no operator");
                return Err(Problem::new(problem).into());
            }
            of_op.entry(op).or_insert(target);
        }
    }
    let of_device: BTreeMap<u32, String> = cx.get(&EXTERNAL_DEVICES).into_iter().collect();
    if function.attrs().flag("Primitive") || targets.is_empty() && of_device.is_empty() {
        return Ok(function);
    }
    let devices = devices(module, &function)?;
    let taken = taken_scopes(&function);
    let composites = Closed::of(&function, COMPOSITE);
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_call()? {
        if taken[function.data_of(id).scope] {
            continue;
        }
        let by_device = of_device.get(&devices[id]).map(String::as_str);
        let target = match op_of(function.expr(id)) {
            Some((op, _)) if op.is(&DEVICE_COPY) => None,
            _ if by_device.is_some() => by_device,
            Some((op, _)) => of_op.get(op.name).copied(),
            None => composites.called(id).and_then(|(pattern, _)| {
                let (owner, _) = pattern.split_once('.')?;
                targets.iter().map(|(target, _)| target.as_str()).find(|target| *target == owner)
            }),
        };
        let Some(target) = target else { continue };
        let attrs = Attrs::new().with(COMPILER, target);
        let new = enclose(&mut rewriter, &[id], None, Some(&composites), attrs)?;
        cx.count("annotated calls", 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}
