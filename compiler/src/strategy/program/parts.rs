//! Concatenations whose operands are computed where the result is, and slices that stay where they
//! are.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;

use crate::diagnostics::{Problem, Report};
use crate::executor::{Kernel, Moves, Program, Step, Value, ValueId, ValueKind};
use crate::ir::{BUFFER_ALIGNMENT, BufferSpec, DType};
use crate::memory::{self, Storage};
use crate::strategy;
use crate::target::Target;

/// Steps, times those that move elements, up to which each of these is looked at alone where all
/// together take more memory than before. A network of 1000 steps has some 50 of them; the limit
/// keeps builds of build scripts, which are not optimised, from taking seconds.
const MAX_EFFORT: usize = 1 << 16;

impl Program {
    /// Has steps store their results to where a concatenation would put them, and others read slices
    /// where they are, as far as the workspace then takes no more memory. Operands of a concatenation
    /// that need a place of their own are copied: inputs, outputs, constants, those that are in
    /// another layout or in another concatenation already. If these are more than half of them, one
    /// kernel goes on to copy all.
    ///
    /// The memory of values decides, as scratch memory is not known yet.
    ///
    /// # Errors
    ///
    /// A value takes more than 2^63 bytes, or the program that comes out is malformed: see
    /// [`Program::verify`].
    pub fn share_parts(&mut self, levels: &[Target]) -> Result<(), Report> {
        let steps = self.steps.iter().enumerate();
        let moving = steps.filter(|(_, step)| self.kernels[step.kernel].moves.is_some());
        let all: Choice = moving.map(|(number, _)| (number, Operands::All)).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut joining = Joining::of(self, levels);
        let bytes = workspace(self)?;
        let mut found = joining.joined(&all);
        if workspace(&found)? > bytes {
            found = joining.one_by_one(&all)?;
        }
        if found.count_parts() == 0 || workspace(&found)? > bytes {
            return Ok(());
        }
        found.merge_equal_kernels();
        found.verify()?;
        *self = found;
        Ok(())
    }
}

/// The steps whose results are to be parts, or to consist of parts.
type Choice = BTreeMap<usize, Operands>;

/// Which operands of a concatenation are computed in their place, of those for which it is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operands {
    All,
    /// The one that is computed last: of the others, the place would be in use for longer.
    Last,
}

/// Bytes of the workspace without scratch memory.
fn workspace(program: &Program) -> Result<u64, Problem> {
    let storage = Storage::of(program)?;
    Ok(memory::plan(program, &storage, &SecondaryMap::new())?.arena_bytes)
}

/// A program, and what decides which of its values can be parts of others.
struct Joining<'a> {
    program: &'a Program,
    levels: &'a [Target],
    /// The step that computes each value.
    made_by: SecondaryMap<ValueId, Option<usize>>,
    /// Values that are outputs, conditions or sizes of the run, or whose views are.
    is_kept: SecondaryMap<ValueId, bool>,
    is_output: SecondaryMap<ValueId, bool>,
    /// Kernels that copy from one layout to another.
    copies: IndexMap<(BufferSpec, BufferSpec, DType), Kernel>,
}

impl<'a> Joining<'a> {
    fn of(program: &'a Program, levels: &'a [Target]) -> Joining<'a> {
        let roots = program.roots();
        let mut made_by: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
        for (number, step) in program.steps.iter().enumerate() {
            program.stored_by(step).for_each(|id| made_by[id] = Some(number));
        }
        let mut is_output: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        let mut is_kept: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        for &output in &program.outputs {
            is_output[roots[output]] = true;
        }
        let conditions = program.regions.iter().map(|region| region.condition);
        for id in program.counts.iter().map(|count| count.value).chain(conditions) {
            is_kept[roots[id]] = true;
        }
        Joining { program, levels, made_by, is_kept, is_output, copies: IndexMap::new() }
    }

    /// The program with what of a choice is possible.
    fn joined(&mut self, choice: &Choice) -> Program {
        let (original, mut program) = (self.program, self.program.clone());
        let steps = original.steps.iter().enumerate().map(|(number, step)| {
            let operands = choice.get(&number);
            let others = operands.and_then(|&operands| self.join(&mut program, number, operands));
            others.unwrap_or_else(|| vec![step.clone()])
        });
        let steps = steps.collect();
        program.replace_steps(steps);
        program
    }

    /// The program with those of a choice, one after the other, with which no more bytes are alive
    /// at a time.
    fn one_by_one(&mut self, all: &Choice) -> Result<Program, Problem> {
        let live = |program: &Program| memory::peak_live_bytes(program, &Storage::of(program)?);
        let mut found = self.program.clone();
        if all.len().saturating_mul(self.program.steps.len()) > MAX_EFFORT {
            return Ok(found);
        }
        let mut chosen = Choice::new();
        let mut least = live(&found)?;
        for &number in all.keys() {
            for operands in [Operands::All, Operands::Last] {
                chosen.insert(number, operands);
                let program = self.joined(&chosen);
                let bytes = live(&program)?;
                if bytes <= least {
                    (found, least) = (program, bytes);
                    break;
                }
                chosen.remove(&number);
            }
        }
        Ok(found)
    }

    /// What takes the place of a step that moves elements, if its values can be parts.
    fn join(&mut self, to: &mut Program, number: usize, operands: Operands) -> Option<Vec<Step>> {
        let step = &self.program.steps[number];
        match self.program.kernels[step.kernel].moves.as_ref()? {
            Moves::Concatenation { axis, parts } => {
                self.concatenation(to, number, *axis, parts, operands)
            }
            Moves::Slices { from, parts } => {
                self.slices(to, step, step.args[*from], parts)?;
                Some(Vec::new())
            }
        }
    }

    /// Has operands of a concatenation computed in its result; returns the steps that copy the others.
    fn concatenation(
        &mut self,
        to: &mut Program,
        number: usize,
        axis: usize,
        parts: &[(usize, i64)],
        operands: Operands,
    ) -> Option<Vec<Step>> {
        let step = &self.program.steps[number];
        let &whole = step.args.last()?;
        if !self.is_movable(to, whole) {
            return None;
        }
        let Value { spec, dtype, .. } = to.values[whole].clone();
        let extent = *spec.shape().get(axis)?;
        let ends = parts.iter().skip(1).map(|&(_, start)| start).chain([extent]);
        let mut places = Vec::with_capacity(parts.len());
        for (&(position, start), end) in parts.iter().zip(ends) {
            let (part, offset) = part(&spec, dtype, axis, start, end)?;
            places.push((step.args[position], part, offset));
        }
        let mut joined: Vec<Option<ValueId>> = Vec::with_capacity(places.len());
        for (operand, part, _) in &places {
            let own = self.owner(to, *operand, part, number, whole);
            joined.push(own.filter(|own| !joined.contains(&Some(*own))));
        }
        if operands == Operands::Last {
            let last = joined.iter().flatten().max_by_key(|&&id| self.made_by[id]).copied();
            joined.iter_mut().filter(|own| **own != last).for_each(|own| *own = None);
        }
        if 2 * joined.iter().flatten().count() < joined.len() {
            return None;
        }
        let mut steps = Vec::new();
        for ((operand, spec, offset), own) in places.into_iter().zip(joined) {
            let kind = ValueKind::Within { whole, offset };
            if let Some(own) = own {
                to.values[own].kind = kind;
                continue;
            }
            let mut from = operand;
            if let ValueKind::Constant(constant) = &to.values[operand].kind {
                // Its kernel had it packed in a layout of its own.
                let (kind, spec) =
                    (ValueKind::Constant(constant.clone()), BufferSpec::dense(spec.shape()));
                from = to.values.push(Value { kind, spec, ..to.values[operand].clone() });
            }
            let name = to.values[from].name.clone();
            let kernel = to.kernels.push(self.copy(&to.values[from].spec, &spec, dtype));
            let part = to.values.push(Value { name, dtype, spec, kind, run_time: Vec::new() });
            to.devices[part] = to.devices[whole];
            steps.push(Step { kernel, args: vec![from, part] });
        }
        Some(steps)
    }

    /// The value, which an operand is or views, that can be computed as part of a concatenation.
    fn owner(
        &self,
        to: &Program,
        operand: ValueId,
        part: &BufferSpec,
        number: usize,
        whole: ValueId,
    ) -> Option<ValueId> {
        let mut own = operand;
        while let ValueKind::View(of) = to.values[own].kind {
            own = of;
        }
        let is_same_memory = own == operand || (to.values[own].spec.is_dense() && part.is_dense());
        let regions = |step: usize| self.program.regions_around(step);
        let is_possible = self.is_movable(to, own)
            && !self.is_output[own]
            && is_same_memory
            && to.values[operand].spec == *part
            && to.device(own) == to.device(whole)
            && self.made_by[own].is_some_and(|maker| regions(maker).eq(regions(number)));
        is_possible.then_some(own)
    }

    /// Has slices be parts of what they are slices of.
    fn slices(
        &self,
        to: &mut Program,
        step: &Step,
        from: ValueId,
        parts: &[(usize, i64)],
    ) -> Option<()> {
        let Value { spec, dtype, run_time, .. } = to.values[from].clone();
        let mut root = from;
        while let Some((whole, _)) = to.lies_in(root) {
            root = whole;
        }
        if to.values[root].kind != ValueKind::Computed || !run_time.is_empty() {
            return None;
        }
        let results: Vec<ValueId> = self.program.stored_by(step).collect();
        let mut places = Vec::with_capacity(results.len());
        for (&result, &(axis, start)) in results.iter().zip(parts) {
            let value = &to.values[result];
            let end = start.checked_add(*value.spec.shape().get(axis)?)?;
            let (part, offset) = part(&spec, dtype, axis, start, end)?;
            let is_possible = self.is_movable(to, result)
                && !self.is_output[result]
                && value.spec == part
                && to.device(result) == to.device(from);
            places.push(is_possible.then_some((result, offset))?);
        }
        for (result, offset) in places {
            to.values[result].kind = ValueKind::Within { whole: from, offset };
        }
        Some(())
    }

    /// Whether a value is computed to memory of its own, and would be as well elsewhere.
    fn is_movable(&self, program: &Program, id: ValueId) -> bool {
        let value = &program.values[id];
        value.kind == ValueKind::Computed && value.run_time.is_empty() && !self.is_kept[id]
    }

    /// A kernel that copies from one layout to another.
    fn copy(&mut self, from: &BufferSpec, to: &BufferSpec, dtype: DType) -> Kernel {
        let name = format!("copy_part_{}", self.copies.len());
        let copy = || strategy::copy(&name, [from, to], dtype, self.levels);
        self.copies.entry((from.clone(), to.clone(), dtype)).or_insert_with(copy).clone()
    }
}

/// The layout of a part of a tensor along an axis and the bytes before it, if it can be a value.
fn part(
    spec: &BufferSpec,
    dtype: DType,
    axis: usize,
    start: i64,
    end: i64,
) -> Option<(BufferSpec, u64)> {
    let (part, elements) = spec.part(axis, start..end)?;
    let offset = dtype.bytes_for(u64::try_from(elements).ok()?)?;
    let is_aligned = offset.is_multiple_of(BUFFER_ALIGNMENT as u64);
    (is_aligned && part.num_elements() != Some(0)).then_some((part, offset))
}
