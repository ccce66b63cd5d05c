//! Which values of a program share memory, and whose memory it is: decided before anything is placed.

use cranelift_entity::{EntityRef, SecondaryMap};

use crate::diagnostics::Problem;
use crate::executor::{Program, RegionKind, Step, Value, ValueId, ValueKind};
use crate::tir::ParamKind;

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

/// Who shares memory with whom.
///
/// - A computed output of the model is written straight into the caller's memory; an output that is
///   an input, a constant or the same memory as an earlier output is copied at the end.
/// - Views share the memory of what they view, and parts of values lie in the memory of these.
/// - An output of a kernel takes the place of an input that dies there, where the kernel allows it
///   and the layouts are equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Storage {
    /// For each value the one whose memory it is: itself unless it is a view or within another one.
    pub roots: SecondaryMap<ValueId, ValueId>,
    /// For each value how many bytes into that memory it begins.
    pub offsets: SecondaryMap<ValueId, u64>,
    /// For the values that a step computes into the caller's memory, the position of the output.
    pub direct: SecondaryMap<ValueId, Option<usize>>,
    /// For each value whose place is taken by others or that takes another's, the first of them.
    pub groups: SecondaryMap<ValueId, Option<ValueId>>,
    /// Values whose halo must be zeroed before the step that computes them.
    pub zeroed: SecondaryMap<ValueId, bool>,
    /// Outputs that no step writes to the caller's memory.
    pub copies: Vec<OutputCopy>,
}

impl Storage {
    /// Decides for a program, which must be well formed: see [`Program::verify`].
    ///
    /// # Errors
    ///
    /// The size of an output overflows.
    pub fn of(program: &Program) -> Result<Storage, Problem> {
        let (roots, offsets) = program.roots_and_offsets();
        let direct = direct_outputs(program, &roots);
        let mut copies = Vec::new();
        for (output, &from) in program.outputs.iter().enumerate() {
            let bytes = program.values[from].physical_bytes()?;
            if bytes != 0 && direct[roots[from]] != Some(output) {
                copies.push(OutputCopy { from, output, bytes });
            }
        }
        let groups = share_places(program, &roots, &direct, &lives(program, &roots));
        let mut zeroed = SecondaryMap::new();
        for id in program.steps.iter().flat_map(|step| program.stored_by(step)) {
            // What takes the place of a value of the same layout finds its zeros there.
            zeroed[id] =
                program.values[id].spec.has_halo() && groups[id].is_none_or(|group| group == id);
        }
        Ok(Storage { roots, offsets, direct, groups, zeroed, copies })
    }
}

/// The steps in which a value's memory is in use.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// For the values that a step computes into the caller's memory, the position of the output.
pub(super) fn direct_outputs(
    program: &Program,
    roots: &SecondaryMap<ValueId, ValueId>,
) -> SecondaryMap<ValueId, Option<usize>> {
    let mut direct: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    for (position, &output) in program.outputs.iter().enumerate() {
        let root = roots[output];
        let value = &program.values[root];
        let is_own = matches!(value.kind, ValueKind::Computed | ValueKind::Variable);
        if is_own && value.spec.is_dense() && direct[root].is_none() {
            direct[root] = Some(position);
        }
    }
    direct
}

/// When the memory of each value, with its views, is in use; `None` if no step uses it. Of what is
/// there before a loop and read in it, each time through the loop finds what it was.
pub(super) fn lives(
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
    for region in program.regions.iter().rev() {
        let (first, end) = (step_number(region.steps.start), step_number(region.steps.end));
        let condition = &mut lives[roots[region.condition]];
        let condition = condition.get_or_insert(Life { first, last: first });
        condition.last = condition.last.max(first);
        if region.kind == RegionKind::While {
            condition.last = condition.last.max(end);
            for life in lives.values_mut().flatten() {
                if life.first < first && (first..end).contains(&life.last) {
                    life.last = end;
                }
            }
        }
    }
    lives
}

/// A program of more than 2^32 steps would not fit in memory.
pub(super) fn step_number(step: usize) -> u32 {
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
        let func = program.kernels[call.kernel].signature();
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
                && [root, to].iter().all(|&id| program.values[id].kind == ValueKind::Computed)
                && direct[root].is_none()
                && direct[to].is_none()
                && groups[to].is_none()
                && !taken.contains(&root)
                && program.device(to) == program.device(root)
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
    /// The first and the last step of a run in which each value's memory is in use; `None` if no step
    /// uses it. What is kept from run to run is in use all the time.
    pub(crate) fn steps_of_use(&self) -> SecondaryMap<ValueId, Option<[u32; 2]>> {
        let roots = self.roots();
        let lives = lives(self, &roots);
        let mut steps = SecondaryMap::new();
        for id in self.values.keys() {
            let root = roots[id];
            steps[id] = lives[root].map(|Life { first, last }| match self.values[root].kind {
                ValueKind::State => [0, step_number(self.steps.len().saturating_sub(1))],
                _ => [first, last],
            });
        }
        steps
    }

    /// For each value the one whose memory it is: itself unless it is a view or within another one.
    pub(crate) fn roots(&self) -> SecondaryMap<ValueId, ValueId> {
        self.roots_and_offsets().0
    }

    /// The same, and how many bytes into that memory each value begins.
    pub(crate) fn roots_and_offsets(
        &self,
    ) -> (SecondaryMap<ValueId, ValueId>, SecondaryMap<ValueId, u64>) {
        let mut roots = SecondaryMap::with_default(ValueId::new(0));
        let mut offsets: SecondaryMap<ValueId, u64> = SecondaryMap::new();
        let mut is_known: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        for id in self.values.keys() {
            // Values that lie in one another, from the inside out. Those of a circle, which is
            // malformed, end somewhere.
            let mut inside = Vec::new();
            let mut at = id;
            while !is_known[at] {
                is_known[at] = true;
                roots[at] = at;
                let Some((whole, _)) = self.lies_in(at) else { break };
                inside.push(at);
                at = whole;
            }
            for at in inside.into_iter().rev() {
                if let Some((whole, offset)) = self.lies_in(at) {
                    roots[at] = roots[whole];
                    offsets[at] = offsets[whole].saturating_add(offset);
                }
            }
        }
        (roots, offsets)
    }

    /// The value in whose memory a value lies if it has none of its own, and at how many bytes.
    pub(crate) fn lies_in(&self, id: ValueId) -> Option<(ValueId, u64)> {
        match self.values[id].kind {
            ValueKind::View(of) => Some((of, 0)),
            ValueKind::Within { whole, offset } => Some((whole, offset)),
            ValueKind::Input(_)
            | ValueKind::Constant(_)
            | ValueKind::Computed
            | ValueKind::Variable
            | ValueKind::State => None,
        }
    }

    /// The values that a step stores to.
    pub(crate) fn stored_by(&self, step: &Step) -> impl Iterator<Item = ValueId> {
        let params = &self.kernels[step.kernel].signature().params;
        let results = step.args.iter().zip(params).filter(|(_, p)| p.kind == ParamKind::Output);
        results.map(|(&arg, _)| arg)
    }
}
