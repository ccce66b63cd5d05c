//! The order of steps.

use std::collections::{BTreeMap, BTreeSet};

use super::storage::direct_outputs;
use crate::diagnostics::Problem;
use crate::executor::{Program, ValueId, ValueKind};
use crate::tir::ParamKind;

/// Most steps of a program whose order is looked at: the choice takes time with each step that could
/// come next.
const MAX_STEPS: usize = 1 << 12;

/// What another order must save to be taken, as a part of the bytes that are alive at most: 1 in 16.
/// The order of the model has what was computed last at hand.
const LEAST_GAIN: u64 = 16;

/// Puts the steps of a program in an order in which fewer bytes are alive at a time, if there is one
/// that is found by taking, of the steps whose arguments are computed, the one after which the least
/// is alive, and of several the first. Programs with regions, states, [counts](Program::counts) or
/// values within others stay as they are.
///
/// # Errors
///
/// A value takes more than 2^63 bytes.
pub fn order_steps(program: &mut Program) -> Result<(), Problem> {
    let is_straight = program.regions.is_empty()
        && program.counts.is_empty()
        && program.values.values().all(|value| match value.kind {
            ValueKind::State | ValueKind::Variable | ValueKind::Within { .. } => false,
            ValueKind::Input(_)
            | ValueKind::Constant(_)
            | ValueKind::Computed
            | ValueKind::View(_) => true,
        });
    if !is_straight || program.steps.len() > MAX_STEPS {
        return Ok(());
    }
    let graph = Graph::of(program)?;
    let given: Vec<usize> = (0..graph.steps.len()).collect();
    let found = graph.sparing();
    let (before, after) = (graph.peak(&given), graph.peak(&found));
    if after < before - before / LEAST_GAIN {
        let mut steps: Vec<_> = std::mem::take(&mut program.steps).into_iter().map(Some).collect();
        program.steps = found.into_iter().filter_map(|step| steps[step].take()).collect();
    }
    Ok(())
}

/// The values in the workspace that each step reads and computes.
struct Graph {
    steps: Vec<Uses>,
    /// The size of each value, and how many steps read it.
    values: BTreeMap<ValueId, (u64, usize)>,
}

#[derive(Default)]
struct Uses {
    reads: BTreeSet<ValueId>,
    writes: BTreeSet<ValueId>,
}

impl Graph {
    fn of(program: &Program) -> Result<Graph, Problem> {
        let roots = program.roots();
        let direct = direct_outputs(program, &roots);
        let mut graph = Graph { steps: Vec::new(), values: BTreeMap::new() };
        for step in &program.steps {
            let params = &program.kernels[step.kernel].signature().params;
            let mut uses = Uses::default();
            for (&arg, param) in step.args.iter().zip(params) {
                let root = roots[arg];
                let value = &program.values[root];
                if value.kind != ValueKind::Computed {
                    continue;
                }
                if param.kind == ParamKind::Output {
                    uses.writes.insert(root);
                    let is_callers = direct[root].is_some();
                    let bytes = if is_callers { 0 } else { value.physical_bytes()? };
                    graph.values.insert(root, (bytes, 0));
                } else {
                    uses.reads.insert(root);
                }
            }
            for read in &uses.reads {
                graph.values.entry(*read).or_default().1 += 1;
            }
            graph.steps.push(uses);
        }
        for &output in &program.outputs {
            // Copied to the caller behind the last step.
            if let Some(value) = graph.values.get_mut(&roots[output]) {
                value.1 += 1;
            }
        }
        Ok(graph)
    }

    /// Bytes that a step allocates, and bytes of what it is the last to read.
    fn change(&self, step: usize, left: &BTreeMap<ValueId, usize>) -> (u64, u64) {
        let Uses { reads, writes } = &self.steps[step];
        let bytes = |value: &ValueId| self.values[value].0;
        let unread = writes.iter().filter(|value| self.values[*value].1 == 0);
        let last = reads.iter().filter(|value| left[*value] == 1);
        (writes.iter().map(bytes).sum(), unread.chain(last).map(bytes).sum())
    }

    fn left(&self) -> BTreeMap<ValueId, usize> {
        self.values.iter().map(|(&value, &(_, reads))| (value, reads)).collect()
    }

    /// The most bytes that are alive in one step.
    fn peak(&self, order: &[usize]) -> u64 {
        let mut left = self.left();
        let (mut alive, mut peak) = (0u64, 0u64);
        for &step in order {
            let (more, less) = self.change(step, &left);
            alive += more;
            peak = peak.max(alive);
            alive -= less;
            self.take(step, &mut left);
        }
        peak
    }

    fn take(&self, step: usize, left: &mut BTreeMap<ValueId, usize>) {
        for read in &self.steps[step].reads {
            left.entry(*read).and_modify(|left| *left -= 1);
        }
    }

    /// The order in which each step leaves the least alive.
    fn sparing(&self) -> Vec<usize> {
        let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        let mut missing: Vec<usize> = Vec::new();
        for (step, uses) in self.steps.iter().enumerate() {
            missing.push(uses.reads.len());
            for &read in &uses.reads {
                readers.entry(read).or_default().push(step);
            }
        }
        let mut ready: BTreeSet<usize> =
            (0..self.steps.len()).filter(|&step| missing[step] == 0).collect();
        let mut left = self.left();
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some(step) = ready.iter().copied().min_by_key(|&step| {
            let (more, less) = self.change(step, &left);
            i128::from(more) - i128::from(less)
        }) {
            ready.remove(&step);
            order.push(step);
            self.take(step, &mut left);
            for reader in self.steps[step].writes.iter().filter_map(|value| readers.get(value)) {
                for &reader in reader {
                    missing[reader] -= 1;
                    if missing[reader] == 0 {
                        ready.insert(reader);
                    }
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use crate::ir::BufferSpec;
    use crate::tir::Stmt;

    /// The names of what steps compute, in order.
    fn names(program: &Program) -> String {
        let value = |step: &crate::executor::Step| step.args.last().copied();
        let names = program.steps.iter().filter_map(value).map(|id| &program.values[id].name);
        names.cloned().collect::<Vec<_>>().join(" ")
    }

    fn step(b: &mut ProgramBuilder, name: &str, inputs: &[ValueId], elements: i64) -> ValueId {
        b.step(name, inputs, BufferSpec::dense(&[elements]), &[], |_, _, _| Stmt::nop())
    }

    #[test]
    fn large_values_are_read_before_others_are_computed() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[64]);
        let large: Vec<ValueId> = (0..3).map(|_| step(&mut b, "large", &[x], 1000)).collect();
        let view = b.view(large[2], &[10, 100]);
        let small: Vec<ValueId> =
            [large[0], large[1], view].map(|from| step(&mut b, "small", &[from], 10)).to_vec();
        let sum = step(&mut b, "sum", &small, 10);
        b.output(sum);
        order_steps(&mut b.program).unwrap();
        assert_eq!(names(&b.program), "large small large small large small sum");
        b.program.verify().unwrap();
        let again = b.program.clone();
        order_steps(&mut b.program).unwrap();
        assert_eq!(names(&again), names(&b.program));
    }

    #[test]
    fn the_order_stays_where_another_one_saves_little() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[64]);
        let a = step(&mut b, "a", &[x], 1000);
        let c = step(&mut b, "c", &[x], 10);
        let d = step(&mut b, "d", &[a], 10);
        let sum = step(&mut b, "sum", &[c, d], 10);
        b.output(sum);
        order_steps(&mut b.program).unwrap();
        assert_eq!(names(&b.program), "a c d sum");
    }
}
