//! Tensors that a model keeps from run to run.
//!
//! An input that takes what an output was in the run before is no input of the compiled model, and
//! the output is none: the workspace keeps the tensor. It begins as zeros. After everything else, a
//! run copies the output to where the next one reads it.

use super::growing::States;
use super::interface::Interface;
use crate::diagnostics::{Problem, Report};
use crate::executor::{Program, TensorInfo, ValueId, ValueKind};
use crate::strategy::copy_value as copy;
use crate::target::Target;

impl Interface {
    /// Takes the inputs and outputs of states out of the interface; returns their positions.
    ///
    /// # Errors
    ///
    /// A tensor is not there, is in two states, or a pair differs in type or shape or has a size that
    /// each run has of its own, and does not grow.
    pub(super) fn keep(&mut self, states: &States) -> Result<Vec<[usize; 2]>, Report> {
        let mut report = Report::new();
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for (input, output) in &states.pairs {
            let mut problem = |what: String| {
                report.push(Problem::new(format!("state `{input}={output}`: {what}")));
            };
            let find = |of: &[TensorInfo], name: &str| of.iter().position(|info| info.name == name);
            let (Some(from), Some(to)) = (find(&self.inputs, input), find(&self.outputs, output))
            else {
                let known = |of: &[TensorInfo]| {
                    let names: Vec<String> = of.iter().map(|i| format!("`{}`", i.name)).collect();
                    names.join(", ")
                };
                problem(format!(
                    "it takes an input and an output; the inputs are {}, the outputs {}",
                    known(&self.inputs),
                    known(&self.outputs)
                ));
                continue;
            };
            let (a, b) = (&self.inputs[from], &self.outputs[to]);
            if pairs.iter().any(|pair| pair[0] == from || pair[1] == to) {
                problem("the input or the output is in another state already".to_owned());
            } else if (a.dtype, &a.shape) != (b.dtype, &b.shape) {
                let help = match a.shape.len() == b.shape.len() {
                    true => "; of one that grows, the length has bounds, not a size",
                    false => "",
                };
                problem(format!("the input is {}, the output {}{help}", a.ty_text(), b.ty_text()));
            } else if !states.growing.contains_key(input)
                && (!a.run_time.is_empty() || !b.run_time.is_empty())
            {
                problem(format!(
                    "the input is {}: its size has to be fixed, or the output to have more behind it",
                    a.ty_text()
                ));
            } else {
                pairs.push([from, to]);
            }
        }
        report.into_result(())?;
        self.states = pairs.iter().map(|&[input, _]| self.inputs[input].clone()).collect();
        without(&mut self.inputs, |at| pairs.iter().any(|pair| pair[0] == at));
        without(&mut self.outputs, |at| pairs.iter().any(|pair| pair[1] == at));
        Ok(pairs)
    }
}

/// Removes what is at some positions of a list.
fn without<T>(list: &mut Vec<T>, is_removed: impl Fn(usize) -> bool) {
    let mut positions = 0..;
    list.retain(|_| positions.next().is_some_and(|at| !is_removed(at)));
}

/// Has a program keep states, of which the positions of inputs and outputs are given.
pub(super) fn keep(program: &mut Program, states: &[[usize; 2]], levels: &[Target]) {
    let kept: Vec<[ValueId; 2]> = (states.iter())
        .map(|&[input, output]| [program.inputs[input], program.outputs[output]])
        .collect();
    without(&mut program.inputs, |at| states.iter().any(|pair| pair[0] == at));
    without(&mut program.outputs, |at| states.iter().any(|pair| pair[1] == at));
    for (position, &input) in program.inputs.iter().enumerate() {
        program.values[input].kind = ValueKind::Input(position);
    }
    for &[state, _] in &kept {
        program.values[state].kind = ValueKind::State;
    }
    // What a state was is copied before any of them changes, be it for another state or the caller.
    let roots = program.roots();
    let is_state =
        |program: &Program, value: ValueId| program.values[roots[value]].kind == ValueKind::State;
    for position in 0..program.outputs.len() {
        let output = program.outputs[position];
        if is_state(program, output) {
            program.outputs[position] = copy(program, output, None, levels);
        }
    }
    let mut changes = Vec::with_capacity(kept.len());
    for [state, from] in kept {
        let from = if is_state(program, from) { copy(program, from, None, levels) } else { from };
        changes.push((from, state));
    }
    for (from, state) in changes {
        copy(program, from, Some(state), levels);
    }
}
