//! Kernels that are made by a rule: a schedule of primitives as a whole.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{KernelParam, Machine, versions_agree};
use crate::executor::{Kernel, Loops, Scheduled};
use crate::ir::BufferSpec;
use crate::pass::panic_message;
use crate::schedule::{AnyRule, Schedule, ScheduleError, ScheduleRule, Task, Trace, registered};
use crate::target::Target;
use crate::te::{ComputeDag, StageId, StageKind, lower_to_blocks};
use crate::tir::{BufferId, ParamKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};
use crate::tuned::{Tunable, Tuned, Workload};

/// A kernel that is to be made.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) dag: &'a ComputeDag,
    pub(crate) params: &'a [KernelParam],
    pub(crate) outputs: &'a [(StageId, BufferSpec)],
    /// Narrowest first.
    pub(crate) levels: &'a [Target],
    pub(crate) tuned: &'a Tuned,
}

/// The kernel by the first of the rules that takes it, those of other crates first; or what problems the
/// rules had that would have.
pub(super) fn kernel(request: &Request<'_>) -> Result<Kernel, Vec<String>> {
    let own: [&dyn AnyRule; 1] = [&super::winograd::WinogradConv];
    let mut missed = Vec::new();
    for rule in registered().into_iter().chain(own) {
        let kernel = catch_unwind(AssertUnwindSafe(|| rule.kernel(request)))
            .unwrap_or_else(|payload| Err(format!("panicked: {}", panic_message(&*payload))));
        match kernel {
            Ok(Some(kernel)) => return Ok(kernel),
            Ok(None) => {}
            Err(problem) => missed.push(format!("{}: {problem}", rule.name())),
        }
    }
    Err(missed)
}

/// The kernel by a rule; `None` if that does not take it, or if the kernel has several results.
///
/// # Errors
///
/// Why the rule cannot schedule it.
pub(crate) fn kernel_by_rule<R: ScheduleRule>(
    rule: &R,
    request: &Request<'_>,
) -> Result<Option<Kernel>, String> {
    let &Request { dag, params, outputs, levels, tuned } = request;
    let (Some(anchor), [(root, _)]) = (rule.anchor(dag), outputs) else { return Ok(None) };
    let mut dag = dag.clone();
    let between = name_epilogue(&mut dag, anchor, *root);
    let func = blocks(&dag, request)?;
    let is_constant = |param: &&KernelParam| param.1 == ParamKind::Constant;
    let constants: Vec<StageId> = params.iter().filter(is_constant).map(|param| param.0).collect();
    let epilogue = (anchor != *root).then(|| {
        let buffer = dag.stages[*root].buffer;
        dag.func.buffers[buffer].name.as_str()
    });
    let what = format!("{} of {}", rule.name(), workload(&dag, anchor, params));
    // The widest first, as it decides how constants are packed.
    let mut widest: Option<(R::Knobs, Tunable)> = None;
    let mut versions = Vec::with_capacity(levels.len());
    let mut traces = Vec::with_capacity(levels.len());
    let mut macs = 0;
    for level in levels.iter().rev() {
        let machine = Machine::of(level);
        let task = Task { dag: &dag, anchor, machine, constants: &constants, epilogue };
        let mut knobs = rule.knobs(&task, widest.as_ref().map(|(knobs, _)| knobs));
        let mut texts = BTreeSet::new();
        knobs.retain(|knobs| texts.insert(knobs.to_string()));
        if knobs.is_empty() {
            return Ok(None);
        }
        let workload = Workload { machine: machine.name(), what: what.clone() };
        let (at, tunable) = tuned.pick(workload, &knobs);
        let knobs = &knobs[at];
        let version = version(rule, &func, &task, &between, knobs).map_err(|e| e.to_string())?;
        versions.push(version.0);
        traces.push(version.1);
        if widest.is_none() {
            macs = rule.macs(&task);
            widest = Some((knobs.clone(), tunable));
        }
    }
    versions.reverse();
    traces.reverse();
    let Some((knobs, tunable)) = widest else { return Ok(None) };
    let loops = Loops {
        op: dag.stages[anchor].op.clone(),
        rule: rule.name(),
        knobs: knobs.to_string(),
        cycles: None,
        missed: None,
    };
    let kernel = Kernel {
        macs,
        loops: vec![loops],
        tunables: vec![tunable],
        scheduled: Some(Scheduled { from: func, traces }),
        ..Kernel::new(versions)
    };
    match versions_agree(&kernel) {
        true => Ok(Some(kernel)),
        false => Err("constants have another layout for each CPU level".to_owned()),
    }
}

/// The stages as blocks, in the layouts in which parameters are handed over.
fn blocks(dag: &ComputeDag, request: &Request<'_>) -> Result<PrimFunc, String> {
    let mut dag = dag.clone();
    let mut kinds = Vec::with_capacity(request.params.len() + 1);
    let outputs = request.outputs.iter().map(|(stage, spec)| (*stage, ParamKind::Output, spec));
    let params = request.params.iter().map(|(stage, kind, spec)| (*stage, *kind, spec));
    for (stage, kind, spec) in params.chain(outputs) {
        let buffer = dag.stages[stage].buffer;
        dag.func.buffers[buffer].spec = spec.clone();
        kinds.push((stage, kind));
    }
    lower_to_blocks(&dag, &kinds).map_err(|error| error.0)
}

/// What the anchor reads and makes, in words.
fn workload(dag: &ComputeDag, anchor: StageId, params: &[KernelParam]) -> String {
    let shape = |stage: StageId| {
        let extents: Vec<String> = dag.shape(stage).iter().map(i64::to_string).collect();
        extents.join("x")
    };
    let mut own = BTreeSet::from([anchor]);
    for stage in dag.ids().rev() {
        if own.contains(&stage) {
            own.extend(dag.reads(stage));
        }
    }
    let is_own = |param: &&KernelParam| own.contains(&param.0);
    let read: Vec<String> = params.iter().filter(is_own).map(|param| shape(param.0)).collect();
    let (dtype, beside) = (dag.dtype(anchor), params.len() - read.len());
    let read = read.join(" and ");
    format!("{read} to {}, {dtype}, {beside} tensors beside", shape(anchor))
}

/// The function for one CPU level, and how it was made.
fn version<R: ScheduleRule>(
    rule: &R,
    func: &PrimFunc,
    task: &Task<'_>,
    between: &[String],
    knobs: &R::Knobs,
) -> Result<(PrimFunc, Trace), ScheduleError> {
    let mut s = Schedule::new(func.clone());
    for name in between {
        let block = s.get_block(name)?;
        s.compute_inline(block)?;
    }
    rule.apply(&mut s, task, knobs)?;
    let trace = s.trace().clone();
    let mut made = s.into_func().into_data();
    let spec = |func: &PrimFuncData, at: usize| func.buffers[func.params[at].buffer].spec.clone();
    for (at, param) in made.params.iter().enumerate() {
        if param.kind != ParamKind::Constant && spec(&made, at) != spec(func, at) {
            let name = &made.buffers[param.buffer].name;
            let message = format!("`{name}` is no constant, so its layout is not the rule's");
            return Err(ScheduleError { primitive: "transform_layout", message });
        }
    }
    made.inplace = inplace_pairs(&made);
    Ok((PrimFunc::new(made), trace))
}

/// Gives the stages behind the anchor names of their own, and returns those of all but the last one, in
/// order.
fn name_epilogue(dag: &mut ComputeDag, anchor: StageId, root: StageId) -> Vec<String> {
    let mut needed = BTreeSet::from([root]);
    let mut named = Vec::new();
    for stage in dag.ids().rev() {
        // What the anchor reads is its own.
        if !needed.contains(&stage) || stage == anchor {
            continue;
        }
        needed.extend(dag.reads(stage));
        if dag.stages[stage].kind == StageKind::Placeholder {
            continue;
        }
        let buffer = dag.stages[stage].buffer;
        let name = format!("{}_{stage}", dag.func.buffers[buffer].name);
        dag.func.buffers[buffer].name.clone_from(&name);
        if stage != root {
            named.push(name);
        }
    }
    named.reverse();
    named
}

/// Outputs that may take an input's place: the input has the same layout and is read nowhere but at
/// the index that is being written.
fn inplace_pairs(func: &PrimFuncData) -> Vec<(usize, usize)> {
    let Some(output) = func.params.iter().position(|param| param.kind == ParamKind::Output) else {
        return Vec::new();
    };
    let written = func.params[output].buffer;
    let mut stores: Vec<&[PrimExpr]> = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, indices, .. } = stmt
            && *buffer == written
        {
            stores.push(indices);
        }
    });
    let [at] = stores[..] else { return Vec::new() };
    let same = |buffer: BufferId| {
        func.buffers[buffer].spec == func.buffers[written].spec
            && func.buffers[buffer].dtype == func.buffers[written].dtype
    };
    let inputs = func.params.iter().enumerate().filter(|(_, param)| {
        param.kind == ParamKind::Input && same(param.buffer) && {
            let mut only_there = true;
            func.body.walk_exprs(&mut |expr| {
                if let PrimExpr::Load { buffer, indices, .. } = expr
                    && *buffer == param.buffer
                {
                    only_there &= indices == at;
                }
            });
            only_there
        }
    });
    inputs.map(|(position, _)| (output, position)).collect()
}
