//! What must hold of a program before memory is planned and code is made.

use cranelift_entity::SecondaryMap;

use super::computed::Computed;
use super::{Program, Region, Step, Value, ValueId, ValueKind};
use crate::diagnostics::{Problem, Report};
use crate::ir::{BUFFER_ALIGNMENT, BufferSpec, DType};
use crate::tir::{Param, ParamKind, PrimFuncData};

impl Program {
    /// Checks that values, kernels and steps fit together.
    ///
    /// # Errors
    ///
    /// One problem for each thing that is wrong: a defect of the compiler or of a pass, not of the
    /// model.
    pub fn verify(&self) -> Result<(), Report> {
        let mut verifier = Verifier { program: self, report: Report::new() };
        verifier.values();
        verifier.kernels();
        verifier.steps();
        verifier.regions();
        verifier.counts();
        verifier.interface();
        verifier.report.into_result(())
    }
}

struct Verifier<'a> {
    program: &'a Program,
    report: Report,
}

impl Verifier<'_> {
    fn problem(&mut self, message: String) {
        self.report.push(Problem::defect(format!("malformed program: {message}")));
    }

    fn values(&mut self) {
        for (id, value) in &self.program.values {
            if let Err(problem) = value.physical_bytes() {
                self.problem(problem.message);
                continue;
            }
            match &value.kind {
                ValueKind::Input(position) => {
                    if self.program.inputs.get(*position) != Some(&id) || !value.spec.is_dense() {
                        self.problem(format!(
                            "{id} is to be input {position} in layout {}; an input is dense and in \
                             the list of inputs",
                            value.spec
                        ));
                    }
                }
                ValueKind::Constant(constant) => {
                    if constant.is_opaque() {
                        self.report.push(
                            Problem::new(format!(
                                "the elements of the constant `{}` are not known, only their digest",
                                value.name
                            ))
                            .help("read the text with the sidecar file that was written beside it"),
                        );
                    }
                    // A kernel may give the elements other axes, such as groups of channels.
                    let elements = constant.ty().num_elements();
                    let held = value.spec.num_elements().and_then(|held| u64::try_from(held).ok());
                    let fits = elements.is_some() && elements == held;
                    if !fits || constant.ty().dtype != value.dtype {
                        self.problem(format!(
                            "{id} is {} of {}, but its constant is {}",
                            value.spec,
                            value.dtype,
                            constant.ty()
                        ));
                    }
                }
                ValueKind::Computed | ValueKind::State => {}
                ValueKind::Variable if value.spec.is_dense() => {}
                ValueKind::Variable => {
                    self.problem(format!("{id} is a variable in layout {}", value.spec));
                }
                ValueKind::View(of) => self.view(id, value, *of),
                ValueKind::Within { whole, offset } => self.within(id, value, *whole, *offset),
            }
        }
    }

    fn view(&mut self, id: ValueId, value: &Value, of: ValueId) {
        if of >= id {
            return self.problem(format!("{id} views {of}, which does not come before it"));
        }
        let viewed = &self.program.values[of];
        let same_elements = viewed.spec.num_elements() == value.spec.num_elements()
            && viewed.dtype.bits() == value.dtype.bits();
        if !same_elements || !viewed.spec.is_dense() || !value.spec.is_dense() {
            self.problem(format!(
                "{id}, {} of {}, cannot view {of}, {} of {}",
                value.spec, value.dtype, viewed.spec, viewed.dtype
            ));
        }
    }

    fn within(&mut self, id: ValueId, value: &Value, whole: ValueId, offset: u64) {
        let Some(of) = self.program.values.get(whole) else {
            return self.problem(format!("{id} is within {whole}, which does not exist"));
        };
        let [part, all] = [value, of].map(|value| value.physical_bytes().unwrap_or(0));
        let fits = offset.checked_add(part).is_some_and(|end| end <= all);
        if !fits || !offset.is_multiple_of(BUFFER_ALIGNMENT as u64) {
            self.problem(format!(
                "{id}, {part} bytes, cannot be {offset} bytes behind the begin of {whole}, {all} bytes"
            ));
        }
    }

    /// All kernels have as many versions, and those of one kernel the same parameters.
    fn kernels(&mut self) {
        let program = self.program;
        let levels = program.kernels.values().next().map_or(1, |kernel| kernel.versions.len());
        for (id, kernel) in &program.kernels {
            if kernel.versions.len() != levels || levels == 0 {
                self.problem(format!(
                    "{id} has {} versions, the first kernel {levels}",
                    kernel.versions.len()
                ));
                continue;
            }
            let (first, others) = (kernel.signature(), &kernel.versions[1..]);
            if others.iter().any(|other| !is_same_signature(first, other)) {
                self.problem(format!(
                    "the versions of `{}` differ in their parameters",
                    first.name
                ));
            }
        }
    }

    fn steps(&mut self) {
        let program = self.program;
        // A view of what does not exist, or does not come before it, was reported above.
        let is_lost = |(id, value): (ValueId, &Value)| match value.kind {
            ValueKind::View(of) => of >= id,
            ValueKind::Within { whole, .. } => !program.values.is_valid(whole),
            ValueKind::Input(_)
            | ValueKind::Constant(_)
            | ValueKind::Computed
            | ValueKind::State
            | ValueKind::Variable => false,
        };
        if program.values.iter().any(is_lost) {
            return;
        }
        let roots = program.roots();
        for (id, value) in &program.values {
            let root = &program.values[roots[id]].kind;
            if matches!(value.kind, ValueKind::Within { .. }) && *root != ValueKind::Computed {
                let root = roots[id];
                self.problem(format!("{id} is within {root}, which no step computes"));
                return;
            }
        }
        let steps = program.steps.iter().enumerate();
        let steps: Vec<_> = steps.filter(|&(number, step)| self.step(number, step)).collect();
        let mut computed = Computed::of(program, steps.iter().map(|&(_, step)| step));
        for id in program.values.keys().filter(|&id| !computed.is_covered(id)) {
            self.problem(format!("steps do not compute each part of {id} once"));
        }
        for (number, step) in steps {
            self.arguments(number, step, &roots, &mut computed);
        }
        for &output in &program.outputs {
            if program.values.is_valid(output) && !computed.is_there(output) {
                self.problem(format!("no step computes the output {output}"));
            }
        }
    }

    /// Regions are nested, and what is computed in one is read in it alone.
    fn counts(&mut self) {
        for count in &self.program.counts {
            let value = self.program.values.get(count.value);
            let is_scalar =
                value.is_some_and(|v| v.dtype == DType::I64 && v.spec.shape().is_empty());
            let size = self.program.sizes.iter().nth(count.size);
            if !is_scalar || !size.is_some_and(|size| size.counted) {
                self.problem(format!(
                    "size {} is to be {}; such a size is a scalar of type int64",
                    count.size, count.value
                ));
            }
        }
    }

    fn regions(&mut self) {
        let program = self.program;
        for (at, region) in program.regions.iter().enumerate() {
            let Some(value) = program.values.get(region.condition) else {
                self.problem(format!("region {at} has a condition that does not exist"));
                continue;
            };
            let is_flag = value.dtype == DType::Bool && value.spec.is_dense();
            if !is_flag || value.spec.num_elements() != Some(1) {
                let (dtype, spec) = (value.dtype, &value.spec);
                self.problem(format!("region {at} has a condition that is {spec} of {dtype}"));
            }
            let is_nested = |before: &Region| {
                let (outer, inner) = (&before.steps, &region.steps);
                outer.end <= inner.start || (outer.start <= inner.start && inner.end <= outer.end)
            };
            let ends = !region.steps.is_empty() && region.steps.end <= program.steps.len();
            if !ends || !program.regions[..at].iter().all(is_nested) {
                let steps = &region.steps;
                self.problem(format!("region {at} of the steps {steps:?} crosses another one"));
            }
        }
        if program.regions.is_empty() || !self.report.is_empty() {
            return;
        }
        let roots = program.roots();
        let writes = |step: &Step, value: ValueId| {
            let params = &program.kernels[step.kernel].signature().params;
            let mut args = step.args.iter().zip(params);
            args.any(|(&arg, param)| param.kind == ParamKind::Output && arg == value)
        };
        for (at, region) in program.regions.iter().enumerate() {
            let condition = roots[region.condition];
            let is_made =
                matches!(program.values[condition].kind, ValueKind::Computed | ValueKind::Variable);
            let mut before = program.steps[..region.steps.start].iter();
            if is_made && !before.any(|step| writes(step, condition)) {
                self.problem(format!(
                    "region {at} has a condition that no step before it computes"
                ));
            }
        }
        let mut computed_in: SecondaryMap<ValueId, Vec<usize>> = SecondaryMap::new();
        for (number, step) in program.steps.iter().enumerate() {
            let around: Vec<usize> = program.regions_around(number).collect();
            let params = &program.kernels[step.kernel].signature().params;
            for (&arg, param) in step.args.iter().zip(params) {
                let root = roots[arg];
                let is_local = program.values[root].kind == ValueKind::Computed;
                if param.kind == ParamKind::Output && is_local {
                    computed_in[root].clone_from(&around);
                } else if !around.starts_with(&computed_in[root]) {
                    self.problem(format!("step {number} reads {arg} outside of its region"));
                }
            }
        }
        for &output in &program.outputs {
            if !computed_in[roots[output]].is_empty() {
                self.problem(format!("the output {output} is computed in a region"));
            }
        }
    }

    /// Whether kernel and values exist and their numbers agree.
    fn step(&mut self, number: usize, step: &Step) -> bool {
        let Some(kernel) = self.program.kernels.get(step.kernel) else {
            self.problem(format!("step {number} calls {}, which does not exist", step.kernel));
            return false;
        };
        if let Some(arg) = step.args.iter().find(|arg| !self.program.values.is_valid(**arg)) {
            self.problem(format!("step {number} uses {arg}, which does not exist"));
            return false;
        }
        let Some(func) = kernel.versions.first() else {
            self.problem(format!("step {number} calls {}, which has no code", step.kernel));
            return false;
        };
        if func.params.len() != step.args.len() {
            self.problem(format!(
                "step {number} calls `{}` with {} values; it has {} parameters",
                func.name,
                step.args.len(),
                func.params.len()
            ));
            return false;
        }
        if !func.dims.is_empty() && func.dims.len() != self.program.sizes.len() {
            self.problem(format!(
                "step {number} calls `{}`, which has {} dimensions; a run has {} sizes",
                func.name,
                func.dims.len(),
                self.program.sizes.len()
            ));
        }
        true
    }

    fn arguments(
        &mut self,
        number: usize,
        step: &Step,
        roots: &SecondaryMap<ValueId, ValueId>,
        computed: &mut Computed<'_>,
    ) {
        let program = self.program;
        let func = program.kernels[step.kernel].signature();
        for (position, (&arg, param)) in step.args.iter().zip(&func.params).enumerate() {
            let (value, root) = (&program.values[arg], roots[arg]);
            let place = format!("step {number}, parameter {position} of `{}`", func.name);
            let buffer = &func.buffers[param.buffer];
            if buffer.dtype != value.dtype || !is_same_layout(&buffer.spec, &value.spec) {
                self.problem(format!(
                    "{place} is {} of {}, but {arg} is {} of {}",
                    buffer.spec, buffer.dtype, value.spec, value.dtype
                ));
            }
            match param.kind {
                ParamKind::Input if !computed.is_there(arg) => {
                    self.problem(format!("{place}: {arg} is read before it is computed"));
                }
                ParamKind::Constant
                    if !matches!(program.values[root].kind, ValueKind::Constant(_)) =>
                {
                    self.problem(format!("{place} is a constant, but {arg} is none"));
                }
                ParamKind::Output
                    if !matches!(
                        value.kind,
                        ValueKind::Computed
                            | ValueKind::State
                            | ValueKind::Variable
                            | ValueKind::Within { .. }
                    ) =>
                {
                    self.problem(format!("{place} is an output, but {arg} is not computed"));
                }
                ParamKind::Input | ParamKind::Constant | ParamKind::Output => {}
            }
        }
        for (&arg, param) in step.args.iter().zip(&func.params) {
            if param.kind == ParamKind::Output {
                if computed.is_done(arg) {
                    self.problem(format!(
                        "step {number} computes {arg}, which is computed already"
                    ));
                }
                computed.store(arg);
            }
        }
    }

    fn interface(&mut self) {
        for (position, &input) in self.program.inputs.iter().enumerate() {
            let kind = self.program.values.get(input).map(|value| &value.kind);
            if kind != Some(&ValueKind::Input(position)) {
                self.problem(format!("input {position} is {input}, which is no such input"));
            }
        }
        for (position, &output) in self.program.outputs.iter().enumerate() {
            match self.program.values.get(output) {
                None => {
                    self.problem(format!("output {position} is {output}, which does not exist"))
                }
                Some(value) if !value.spec.is_dense() => self.problem(format!(
                    "output {position} is {output} in layout {}; an output is dense",
                    value.spec
                )),
                Some(value) if matches!(value.kind, ValueKind::Within { .. }) => self.problem(
                    format!("output {position} is {output}, which lies within another value"),
                ),
                Some(_) => {}
            }
        }
    }
}

/// Whether the functions can be called in each other's place, on the same memory.
fn is_same_signature(a: &PrimFuncData, b: &PrimFuncData) -> bool {
    let params = |func: &PrimFuncData| -> Vec<(ParamKind, DType, BufferSpec)> {
        let param = |param: &Param| {
            let buffer = &func.buffers[param.buffer];
            (param.kind, buffer.dtype, buffer.spec.clone())
        };
        func.params.iter().map(param).collect()
    };
    a.name == b.name
        && a.dims.len() == b.dims.len()
        && a.inplace == b.inplace
        && params(a) == params(b)
}

/// Whether every element of one is where the other has it: a kernel may see a dense value under
/// another shape.
fn is_same_layout(a: &BufferSpec, b: &BufferSpec) -> bool {
    a == b || (a.is_dense() && b.is_dense() && a.num_elements() == b.num_elements())
}

#[cfg(test)]
mod tests {
    use super::super::testing::ProgramBuilder;
    use super::*;
    use crate::executor::Kernel;
    use crate::ir::{Constant, TensorType};

    fn errors(program: &Program) -> String {
        program.verify().unwrap_err().to_string()
    }

    fn two_steps() -> (ProgramBuilder, [ValueId; 3]) {
        let mut builder = ProgramBuilder::default();
        let x = builder.input("x", &[4]);
        let y = builder.add(x, x);
        let z = builder.add(y, x);
        builder.output(z);
        (builder, [x, y, z])
    }

    #[test]
    fn a_chain_is_well_formed() {
        assert_eq!(two_steps().0.program.verify(), Ok(()));
    }

    #[test]
    fn values_are_computed_once_and_before_they_are_read() {
        let (builder, [_, y, z]) = two_steps();
        let mut program = builder.program.clone();
        program.steps.swap(0, 1);
        assert!(errors(&program).contains(&format!("{y} is read before it is computed")));

        let mut program = builder.program.clone();
        let last = program.steps[1].args.len() - 1;
        program.steps[1].args[last] = y;
        let report = errors(&program);
        assert!(report.contains(&format!("computes {y}, which is computed already")), "{report}");
        assert!(report.contains(&format!("no step computes the output {z}")), "{report}");

        let mut program = builder.program;
        let x = program.inputs[0];
        program.steps[1].args[last] = x;
        assert!(errors(&program).contains("is an output, but"));
    }

    #[test]
    fn arguments_have_the_layout_of_the_parameter() {
        let (mut builder, [_, y, _]) = two_steps();
        builder.program.values[y].spec = BufferSpec::dense(&[2, 2]);
        assert_eq!(builder.program.verify(), Ok(()), "both are dense");
        builder.program.values[y].spec = BufferSpec::dense(&[2, 3]);
        assert!(errors(&builder.program).contains("is [4] of float32, but value1 is [2, 3]"));
        builder.program.steps[0].args.pop();
        assert!(errors(&builder.program).contains("with 2 values; it has 3 parameters"));
    }

    #[test]
    fn versions_of_a_kernel_can_take_each_others_place() {
        let (builder, _) = two_steps();
        let kernels = |change: &dyn Fn(&mut Kernel)| {
            let mut program = builder.program.clone();
            for kernel in program.kernels.values_mut() {
                kernel.versions.push(kernel.signature().clone());
            }
            assert_eq!(program.verify(), Ok(()));
            change(program.kernels.values_mut().last().unwrap());
            errors(&program)
        };
        let found = kernels(&|kernel| {
            kernel.versions.pop();
        });
        assert!(found.contains("kernel1 has 1 versions, the first kernel 2"), "{found}");
        let found = kernels(&|kernel| {
            let wide = kernel.versions[1].make_mut();
            let buffer = wide.params[0].buffer;
            wide.buffers[buffer].spec = BufferSpec::dense(&[4]).with_halo(0, 1, 1);
        });
        assert!(found.contains("versions of `add_1` differ in their parameters"), "{found}");
        let found = kernels(&|kernel| kernel.versions[1].make_mut().inplace.clear());
        assert!(found.contains("differ in their parameters"), "{found}");
    }

    #[test]
    fn views_are_dense_and_as_large_as_what_they_view() {
        let (mut builder, [x, y, z]) = two_steps();
        let view = builder.view(y, &[2, 2]);
        builder.output(view);
        assert_eq!(builder.program.verify(), Ok(()));
        builder.program.values[view].spec = BufferSpec::dense(&[5]);
        assert!(errors(&builder.program).contains("cannot view"));
        builder.program.values[view].kind = ValueKind::View(view);
        assert!(errors(&builder.program).contains("does not come before it"));
        let _ = (x, z);
    }

    /// A value of 32 elements, each half of which is computed by a step.
    fn two_halves() -> (ProgramBuilder, [ValueId; 3]) {
        let mut builder = ProgramBuilder::default();
        let x = builder.input("x", &[16]);
        let halves = [builder.add(x, x), builder.add(x, x)];
        let whole = builder.view(x, &[32]);
        builder.program.values[whole].kind = ValueKind::Computed;
        for (half, offset) in halves.into_iter().zip([0, 64]) {
            builder.program.values[half].kind = ValueKind::Within { whole, offset };
        }
        let sum = builder.add(whole, whole);
        builder.output(sum);
        (builder, [halves[0], halves[1], whole])
    }

    #[test]
    fn a_value_is_computed_when_its_parts_are() {
        let (mut builder, [_, second, whole]) = two_halves();
        assert_eq!(builder.program.verify(), Ok(()));
        let slice = builder.within(whole, 64, BufferSpec::dense(&[4]));
        let sum = builder.add(slice, second);
        builder.output(sum);
        assert_eq!(builder.program.verify(), Ok(()));
        let mut program = builder.program.clone();
        program.steps.swap(1, 2);
        assert!(errors(&program).contains(&format!("{whole} is read before it is computed")));
        program.steps.remove(2);
        assert!(errors(&program).contains(&format!("compute each part of {whole} once")));
        builder.output(slice);
        assert!(errors(&builder.program).contains("lies within another value"));
    }

    #[test]
    fn parts_are_within_what_is_computed() {
        let (builder, [first, second, whole]) = two_halves();
        let with = |kind: ValueKind| {
            let mut program = builder.program.clone();
            program.values[second].kind = kind;
            errors(&program)
        };
        let within = |whole, offset| ValueKind::Within { whole, offset };
        assert!(with(within(whole, 0)).contains(&format!("each part of {whole} once")));
        assert!(with(within(whole, 32)).contains("cannot be 32 bytes behind the begin"));
        assert!(with(within(whole, 128)).contains("cannot be 128 bytes behind the begin"));
        assert!(with(within(second, 0)).contains("which no step computes"));
        let x = builder.program.inputs[0];
        assert!(with(within(x, 0)).contains("which no step computes"));
        let lost = ValueId::from_u32(99);
        assert!(with(within(lost, 0)).contains("value99, which does not exist"));
        let _ = first;
    }

    #[test]
    fn a_constant_without_elements_is_refused() {
        let mut builder = ProgramBuilder::default();
        let constant = Constant::opaque(TensorType::from_consts(&[4], DType::F32), [7; 32]);
        let weight = builder.constant("w", constant);
        builder.output(weight);
        assert!(errors(&builder.program).contains("only their digest"));
    }
}
