//! Where each value of a program is: in the caller's memory, among the weights or in the arena.

use cranelift_entity::{EntityRef, SecondaryMap};

use super::arena::{self, ArenaBuffer};
use crate::diagnostics::Problem;
use crate::executor::{Program, Value, ValueId, ValueKind};
use crate::tir::ParamKind;

/// The memory of a value: shared with every view of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// Nowhere: no step uses it.
    #[default]
    Nowhere,
    /// The caller's input of that position.
    Input(usize),
    /// The caller's output of that position.
    Output(usize),
    /// Among the weights: the constant that the value is or is a view of.
    Weights(ValueId),
    /// At that offset of the workspace.
    Arena(u64),
}

/// What is copied, once all steps have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputCopy {
    /// The value.
    pub from: ValueId,
    /// The position among the model's outputs.
    pub output: usize,
    /// How much: never 0.
    pub bytes: u64,
}

/// The memory of one inference.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// Where each value is.
    pub places: SecondaryMap<ValueId, Place>,
    /// Size of the arena, a multiple of 64.
    pub arena_bytes: u64,
    /// Most bytes of the arena that are alive in one step: no arena can be smaller.
    pub peak_live_bytes: u64,
    /// Values whose halo and padding lanes must be zeroed before the step that computes them.
    pub zeroed: SecondaryMap<ValueId, bool>,
    /// Outputs that no step writes to the caller's memory.
    pub copies: Vec<OutputCopy>,
}

/// Plans the memory of a program.
///
/// - A computed output of the model is written straight into the caller's memory; an output that is
///   an input, a constant or the same memory as an earlier output is copied at the end.
/// - Views share the memory of what they view.
/// - An output of a kernel takes the place of an input that dies there, where the kernel allows it
///   and the layouts are equal.
/// - Everything else is placed by [`arena::place`].
///
/// # Errors
///
/// The sizes overflow. The program must be well formed: see [`Program::verify`].
pub fn plan(program: &Program) -> Result<MemoryPlan, Problem> {
    let roots = program.roots();
    let mut plan = MemoryPlan::default();
    let direct = direct_outputs(program, &roots);
    for (position, &output) in program.outputs.iter().enumerate() {
        let bytes = program.values[output].physical_bytes()?;
        if bytes != 0 && direct[roots[output]] != Some(position) {
            plan.copies.push(OutputCopy { from: output, output: position, bytes });
        }
    }

    let lives = lives(program, &roots);
    let groups = share_places(program, &roots, &direct, &lives);
    // One buffer for each group of values that take each other's place.
    let mut buffers: Vec<ArenaBuffer> = Vec::new();
    let mut buffer_of: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    for (id, value) in &program.values {
        let Some(Life { first, last }) = lives[id] else { continue };
        if value.kind != ValueKind::Computed || direct[id].is_some() {
            continue;
        }
        let bytes = value.physical_bytes()?;
        let group = groups[id].unwrap_or(id);
        let index = *buffer_of[group].get_or_insert_with(|| {
            buffers.push(ArenaBuffer { bytes, first, last });
            buffers.len() - 1
        });
        buffer_of[id] = Some(index);
        let buffer = &mut buffers[index];
        buffer.bytes = buffer.bytes.max(bytes);
        buffer.first = buffer.first.min(first);
        buffer.last = buffer.last.max(last);
    }
    let arena = arena::place(&buffers).map_err(|error| Problem::new(error.to_string()))?;
    plan.arena_bytes = arena.bytes;
    plan.peak_live_bytes = arena.peak_live_bytes;

    for id in program.values.keys() {
        let root = roots[id];
        plan.places[id] = match (&program.values[root].kind, buffer_of[root]) {
            (ValueKind::Input(position), _) => Place::Input(*position),
            (ValueKind::Constant(_), _) => Place::Weights(root),
            (ValueKind::Computed | ValueKind::View(_), Some(index)) => {
                Place::Arena(arena.offsets[index])
            }
            (ValueKind::Computed | ValueKind::View(_), None) => {
                direct[root].map_or(Place::Nowhere, Place::Output)
            }
        };
        let spec = &program.values[id].spec;
        // What takes the place of a value of the same layout finds its zeros there.
        plan.zeroed[id] = root == id
            && program.values[id].kind == ValueKind::Computed
            && (spec.has_halo() || spec.has_padding_lanes())
            && groups[id].is_none_or(|group| group == id);
    }
    Ok(plan)
}

/// The steps in which a value's memory is in use.
#[derive(Clone, Copy)]
struct Life {
    first: u32,
    last: u32,
}

/// For the values that a step computes into the caller's memory, the position of the output.
fn direct_outputs(
    program: &Program,
    roots: &SecondaryMap<ValueId, ValueId>,
) -> SecondaryMap<ValueId, Option<usize>> {
    let mut direct: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    for (position, &output) in program.outputs.iter().enumerate() {
        let root = roots[output];
        let value = &program.values[root];
        if value.kind == ValueKind::Computed && value.spec.is_dense() && direct[root].is_none() {
            direct[root] = Some(position);
        }
    }
    direct
}

/// When the memory of each value, with its views, is in use; `None` if no step uses it.
fn lives(
    program: &Program,
    roots: &SecondaryMap<ValueId, ValueId>,
) -> SecondaryMap<ValueId, Option<Life>> {
    let mut lives: SecondaryMap<ValueId, Option<Life>> = SecondaryMap::new();
    for (step, call) in program.steps.iter().enumerate() {
        let step = step_number(step);
        for &arg in &call.args {
            lives[roots[arg]].get_or_insert(Life { first: step, last: step }).last = step;
        }
    }
    lives
}

/// A program of more than 2^32 steps would not fit in memory.
fn step_number(step: usize) -> u32 {
    u32::try_from(step).unwrap_or(u32::MAX)
}

/// For each value whose place is taken by others or that takes another's, the first in the chain.
fn share_places(
    program: &Program,
    roots: &SecondaryMap<ValueId, ValueId>,
    direct: &SecondaryMap<ValueId, Option<usize>>,
    lives: &SecondaryMap<ValueId, Option<Life>>,
) -> SecondaryMap<ValueId, Option<ValueId>> {
    let mut groups: SecondaryMap<ValueId, Option<ValueId>> = SecondaryMap::new();
    for (step, call) in program.steps.iter().enumerate() {
        let func = &program.kernels[call.kernel].func;
        let mut taken: Vec<ValueId> = Vec::new();
        for &(output, input) in &func.inplace {
            let (Some(&to), Some(&from)) = (call.args.get(output), call.args.get(input)) else {
                continue;
            };
            let root = roots[from];
            // The kernel reads the memory through this parameter alone, or the other one could find
            // it overwritten.
            let aliases = call.args.iter().enumerate().any(|(position, &arg)| {
                roots[arg] == root
                    && !func.inplace.contains(&(output, position))
                    && func.params.get(position).is_none_or(|p| p.kind != ParamKind::Output)
            });
            let dies = lives[root].is_some_and(|life| life.last == step_number(step));
            let allowed = dies
                && !aliases
                && program.values[root].kind == ValueKind::Computed
                && direct[root].is_none()
                && direct[to].is_none()
                && groups[to].is_none()
                && !taken.contains(&root)
                && same_memory(&program.values[to], &program.values[from])
                && same_memory(&program.values[to], &program.values[root]);
            if allowed {
                let group = groups[root].unwrap_or(root);
                groups[root] = Some(group);
                groups[to] = Some(group);
                taken.push(root);
            }
        }
    }
    groups
}

/// Whether every element of one is where the other has it. Views are dense, so that a view and what
/// it views may differ in shape.
fn same_memory(a: &Value, b: &Value) -> bool {
    let dense = a.spec.is_dense() && b.spec.is_dense();
    a.dtype.bits() == b.dtype.bits()
        && (a.spec == b.spec || (dense && a.spec.num_elements() == b.spec.num_elements()))
}

impl Program {
    /// For each value the one whose memory it is: itself unless it is a view.
    pub(crate) fn roots(&self) -> SecondaryMap<ValueId, ValueId> {
        let mut roots = SecondaryMap::with_default(ValueId::new(0));
        for id in self.values.keys() {
            roots[id] = match self.values[id].kind {
                // Views come after what they view, so that no chain is walked twice.
                ValueKind::View(of) => roots[of],
                ValueKind::Input(_) | ValueKind::Constant(_) | ValueKind::Computed => id,
            };
        }
        roots
    }
}

#[cfg(test)]
mod tests;
