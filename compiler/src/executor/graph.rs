//! The graph executor: a compiled model that runs call by call, with every value between calls.

use std::ops::Range;

use super::compare::computed_by;
use super::{LoadedCall, LoadedModel, Program, ValueId};
use crate::diagnostics::Problem;
use crate::ir::{Constant, SharedBytes, TensorType};
use crate::memory::{MemoryPlan, Place};
use crate::tir::ParamKind;

/// One run of a loaded model, made kernel by kernel. After each call its results, and all that later
/// calls read, are where the memory plan says.
#[derive(Debug)]
pub struct GraphExecutor<'a> {
    call: LoadedCall<'a>,
    program: &'a Program,
    plan: &'a MemoryPlan,
    done: usize,
}

impl<'a> GraphExecutor<'a> {
    /// A run of `model` on copies of `inputs`, which has made no call yet. Program and plan are
    /// those that the model was made of.
    ///
    /// # Errors
    ///
    /// The model was compiled without [`single_calls`](crate::options::CompileOptions::single_calls),
    /// its runs have sizes of their own, or it has regions; the inputs are not of its types.
    pub fn new(
        model: &'a LoadedModel,
        program: &'a Program,
        plan: &'a MemoryPlan,
        inputs: &[Constant],
    ) -> Result<GraphExecutor<'a>, Problem> {
        if !program.sizes.is_empty() || program.units.is_some() {
            let message = "a model whose runs have sizes of their own has no values of one size";
            return Err(Problem::new(message).help("fix the sizes of its dimensions"));
        }
        program.check_one_by_one()?;
        let call = model.call(inputs)?;
        if call.calls() < program.steps.len() {
            return Err(Problem::new("the model was compiled without functions for single calls"));
        }
        Ok(GraphExecutor { call, program, plan, done: 0 })
    }

    /// The program whose calls are made.
    pub fn program(&self) -> &'a Program {
        self.program
    }

    /// Makes the calls of the program's first `steps` steps that were not made yet.
    ///
    /// # Errors
    ///
    /// A call fails, or there are fewer.
    pub fn run_to(&mut self, steps: usize) -> Result<(), Problem> {
        while self.done < steps {
            self.call.run_call(self.done)?;
            self.done += 1;
        }
        Ok(())
    }

    /// A value as it is now, dense whatever its layout is; `None` if it is a constant or no step
    /// uses it. What a value holds before it is computed, and after the last step that reads it, is
    /// not said.
    ///
    /// # Errors
    ///
    /// The layout is malformed.
    pub fn value(&self, id: ValueId) -> Result<Option<Constant>, Problem> {
        let value = &self.program.values[id];
        let problem = |what: &dyn std::fmt::Display| {
            Problem::new(format!("value `{}` cannot be read: {what}", value.name))
        };
        let bytes = usize::try_from(value.physical_bytes()?).map_err(|error| problem(&error))?;
        let range = |offset: u64| -> Result<Range<usize>, Problem> {
            let start = usize::try_from(offset).map_err(|error| problem(&error))?;
            Ok(start..start.saturating_add(bytes))
        };
        let memory = match self.plan.places[id] {
            Place::Input(position) => Some(self.call.input(position).to_vec()),
            Place::Output(position, offset) => {
                self.call.output(position).get(range(offset)?).map(<[u8]>::to_vec)
            }
            Place::Arena(offset) => self.call.workspace(range(offset)?),
            Place::Weights(_) | Place::Nowhere => return Ok(None),
        };
        let memory = memory.ok_or_else(|| problem(&"it is outside of the memory of a run"))?;
        let dense = match value.spec.is_dense() {
            true => memory,
            false => value.spec.unpack(&memory, value.dtype).map_err(|error| problem(&error))?,
        };
        let ty = TensorType::from_consts(value.spec.shape(), value.dtype);
        Constant::new(ty, SharedBytes::new(dense)).map(Some).map_err(|error| problem(&error))
    }

    /// Makes all calls, and returns what each computes under the names of kernel and call, in order.
    ///
    /// # Errors
    ///
    /// A call fails, or a layout is malformed.
    pub fn values(&mut self) -> Result<Vec<(String, Constant)>, Problem> {
        let computed_by = computed_by(self.program);
        let mut values = Vec::new();
        for (number, step) in self.program.steps.iter().enumerate() {
            self.run_to(number + 1)?;
            let func = self.program.kernels[step.kernel].signature();
            let results = step.args.iter().zip(&func.params).filter(|(arg, param)| {
                param.kind == ParamKind::Output && computed_by[**arg] == Some(number)
            });
            for (position, (&arg, _)) in results.enumerate() {
                let name = format!("{number:04}_{}_{position}", func.name);
                values.extend(self.value(arg)?.map(|value| (name, value)));
            }
        }
        Ok(values)
    }

    /// Makes the calls that are left, and returns the model's outputs.
    ///
    /// # Errors
    ///
    /// A call fails, or the model wrote outside of an output.
    pub fn finish(mut self) -> Result<Vec<Constant>, Problem> {
        self.run_to(self.call.calls())?;
        self.call.outputs()
    }
}
