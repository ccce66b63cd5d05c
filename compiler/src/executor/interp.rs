//! A plain interpreter of programs: the oracle of memory plans and generated code.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::{Part, Program, RegionKind, Value, ValueId, ValueKind};
use crate::diagnostics::Problem;
use crate::ir::{Constant, SharedBytes, TensorType};
use crate::tir::{self, ParamKind};

/// What elements hold before they are computed: no value that a model would compute by chance.
const UNDEFINED: u8 = 0xa5;

/// Runs the versions of a program's kernels for a CPU level, 0 being the narrowest; lowered or not.
/// Each value has memory of its own. Where runs have sizes of their own, this one has the greatest,
/// but for those that it computes; its results have room for the greatest.
///
/// # Errors
///
/// Number, types or shapes of the inputs are not the program's; there is no such level; or a kernel
/// does what it must not. The program must be well formed: see [`Program::verify`].
pub fn interpret(
    program: &Program,
    level: usize,
    inputs: &[Constant],
) -> Result<Vec<Constant>, Problem> {
    if inputs.len() != program.inputs.len() {
        return Err(Problem::new(format!(
            "the program has {} inputs, but {} were given",
            program.inputs.len(),
            inputs.len()
        )));
    }
    let mut sizes: Vec<i64> =
        program.sizes.iter().map(|size| i64::try_from(size.max).unwrap_or(i64::MAX)).collect();
    let (roots, offsets) = program.roots_and_offsets();
    // The bytes of each root in its layout.
    let mut memory: BTreeMap<ValueId, Vec<u8>> = BTreeMap::new();
    for (id, value) in &program.values {
        let bytes = match &value.kind {
            ValueKind::Input(position) => Some(input_bytes(value, &inputs[*position])?),
            ValueKind::Constant(constant) => Some(packed(value, constant)?),
            ValueKind::Computed | ValueKind::Variable => Some(undefined(value)?),
            // As in the first run.
            ValueKind::State => Some(vec![0; undefined(value)?.len()]),
            ValueKind::View(_) | ValueKind::Within { .. } => None,
        };
        memory.extend(bytes.map(|bytes| (id, bytes)));
    }
    let (sizes, memory) = (&mut sizes, &mut memory);
    Run { program, level, sizes, roots: &roots, offsets: &offsets, memory }
        .parts(&program.parts())?;
    let output = |&id: &ValueId| {
        let value = &program.values[id];
        let bytes = memory.get(&roots[id]).cloned().unwrap_or_default();
        Constant::new(tensor_type(value), SharedBytes::new(bytes))
            .map_err(|error| Problem::new(format!("output `{}`: {error}", value.name)))
    };
    program.outputs.iter().map(output).collect()
}

/// A run, and the memory of each root.
struct Run<'a> {
    program: &'a Program,
    level: usize,
    sizes: &'a mut [i64],
    roots: &'a SecondaryMap<ValueId, ValueId>,
    /// How many bytes into the memory of its root each value begins.
    offsets: &'a SecondaryMap<ValueId, u64>,
    memory: &'a mut BTreeMap<ValueId, Vec<u8>>,
}

impl Run<'_> {
    /// Runs parts in order. Calls itself for each region within another one.
    fn parts(&mut self, parts: &[Part]) -> Result<(), Problem> {
        for part in parts {
            match part {
                Part::Step(number) => self.step(*number)?,
                Part::Region { kind: RegionKind::If, condition, parts } => {
                    if self.holds(*condition) {
                        self.parts(parts)?;
                    }
                }
                Part::Region { kind: RegionKind::Unless, condition, parts } => {
                    if !self.holds(*condition) {
                        self.parts(parts)?;
                    }
                }
                Part::Region { kind: RegionKind::While, condition, parts } => {
                    while self.holds(*condition) {
                        self.parts(parts)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn holds(&self, condition: ValueId) -> bool {
        let bytes = self.memory.get(&self.roots[condition]);
        bytes.and_then(|bytes| bytes.first()).is_some_and(|&byte| byte != 0)
    }

    fn step(&mut self, number: usize) -> Result<(), Problem> {
        let step = &self.program.steps[number];
        let Some(func) = self.program.kernels[step.kernel].versions.get(self.level) else {
            let message = format!("the program has no code for the CPU level {}", self.level);
            return Err(Problem::new(message));
        };
        if let Some(symbol) = func.external_symbol() {
            let message = format!(
                "step {number}: `{symbol}` is a function of another code generator, which has no loops"
            );
            return Err(Problem::new(message));
        }
        let mut ranges = Vec::with_capacity(step.args.len());
        let mut buffers: Vec<Vec<u8>> = Vec::with_capacity(step.args.len());
        for &arg in &step.args {
            let value = &self.program.values[arg];
            let bytes = value.physical_bytes()?;
            let range = [self.offsets[arg], self.offsets[arg].saturating_add(bytes)];
            let [start, end] = range.map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            let memory = self.memory.get(&self.roots[arg]).and_then(|root| root.get(start..end));
            let outside = || Problem::new(format!("`{}` is outside of its memory", value.name));
            buffers.push(memory.ok_or_else(outside)?.to_vec());
            ranges.push(start..end);
        }
        tir::interpret(func, &mut buffers, &self.sizes[..func.dims.len()])
            .map_err(|error| Problem::new(format!("step {number}: {error}")))?;
        for (((arg, range), buffer), param) in
            step.args.iter().zip(ranges).zip(buffers).zip(&func.params)
        {
            if param.kind == ParamKind::Output
                && let Some(memory) = self.memory.get_mut(&self.roots[*arg])
            {
                memory[range].copy_from_slice(&buffer);
            }
        }
        for count in self.program.counted_by(step, self.roots) {
            let bytes = self.memory.get(&self.roots[count.value]).map(|bytes| bytes[..].try_into());
            if let Some(Ok(bytes)) = bytes {
                let greatest = self.program.sizes.max(count.size);
                self.sizes[count.size] = i64::from_le_bytes(bytes).clamp(0, greatest);
            }
        }
        Ok(())
    }
}

fn tensor_type(value: &Value) -> TensorType {
    TensorType::from_consts(value.spec.shape(), value.dtype)
}

fn input_bytes(value: &Value, input: &Constant) -> Result<Vec<u8>, Problem> {
    let expected = tensor_type(value);
    match input.to_bytes() {
        Some(bytes) if *input.ty() == expected => Ok(bytes.to_vec()),
        _ => Err(Problem::new(format!(
            "input `{}` is {expected}, but {} was given",
            value.name,
            input.ty()
        ))),
    }
}

fn packed(value: &Value, constant: &Constant) -> Result<Vec<u8>, Problem> {
    let problem = |what: String| Problem::new(format!("constant `{}`: {what}", value.name));
    let dense = constant.to_bytes().ok_or_else(|| problem("its elements are not known".into()))?;
    if value.spec.is_dense() {
        return Ok(dense.to_vec());
    }
    value.spec.pack(&dense, value.dtype).map_err(|error| problem(error.to_string()))
}

/// Memory whose elements are undefined, and whose halo and padding lanes are zero.
fn undefined(value: &Value) -> Result<Vec<u8>, Problem> {
    let bytes = usize::try_from(value.physical_bytes()?);
    let bytes = bytes.map_err(|_| Problem::new(format!("`{}` does not fit", value.name)))?;
    if value.spec.is_dense() {
        return Ok(vec![UNDEFINED; bytes]);
    }
    let elements = value.spec.num_elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let dense = vec![UNDEFINED; elements.saturating_mul(value.dtype.bytes().unwrap_or(1))];
    value.spec.pack(&dense, value.dtype).map_err(|error| Problem::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use crate::ir::BufferSpec;

    #[test]
    fn steps_run_on_layouts_views_and_constants() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[2, 2]);
        let w = b.constant("w", Constant::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap());
        b.program.values[w].spec = BufferSpec::packed(&[2, 2], &[(1, 1), (0, 1)]);
        let y = b.map("add", &[x, w], BufferSpec::dense(&[2, 2]), |x| x[0].clone() + x[1].clone());
        let view = b.view(y, &[4]);
        let z = b.add(view, view);
        b.output(z);
        b.output(y);
        let input = Constant::from_f32(&[2, 2], &[10.0, 20.0, 30.0, 40.0]).unwrap();
        let outputs = interpret(&b.program, 0, &[input]).unwrap();
        assert_eq!(outputs[0], Constant::from_f32(&[4], &[22.0, 44.0, 66.0, 88.0]).unwrap());
        assert_eq!(outputs[1], Constant::from_f32(&[2, 2], &[11.0, 22.0, 33.0, 44.0]).unwrap());
    }

    #[test]
    fn wrong_inputs_and_stores_into_a_border_are_errors() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[2]);
        let spec = BufferSpec::dense(&[2]).with_halo(0, 1, 0);
        let y = b.step("bad", &[x], spec, &[], |func, inputs, output| {
            let value = func.load(inputs[0], [0]);
            func.store(output, [-1], value)
        });
        let z = b.map("copy", &[y], BufferSpec::dense(&[2]), |x| x[0].clone());
        b.output(z);
        let input = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
        let problem = interpret(&b.program, 0, &[input]).unwrap_err();
        assert!(problem.message.starts_with("step 0: "), "{problem}");
        let wrong = Constant::from_f32(&[3], &[0.0; 3]).unwrap();
        assert!(interpret(&b.program, 0, &[wrong]).unwrap_err().message.contains("input `x`"));
        assert!(interpret(&b.program, 0, &[]).is_err());
    }
}
