//! What happens to kernels between the strategies and code: merging, borders, lowering, names.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::parallel;
use crate::diagnostics::{Problem, Report};
use crate::executor::{Kernel, KernelId, Program, Step, ValueId};
use crate::ir::Digest;
use crate::memory::{Storage, zero_border};
use crate::target::Target;
use crate::tir::{self, ParamKind, PrimFunc};

impl Program {
    /// Makes steps whose kernels differ in nothing but names call the same one.
    pub fn merge_equal_kernels(&mut self) {
        let mut first: BTreeMap<Digest, KernelId> = BTreeMap::new();
        let mut merged: PrimaryMap<KernelId, Kernel> = PrimaryMap::new();
        let mut renumbered: SecondaryMap<KernelId, Option<KernelId>> = SecondaryMap::new();
        for (id, kernel) in std::mem::take(&mut self.kernels) {
            let digest = kernel.func.structural_digest();
            let to = *first.entry(digest).or_insert_with(|| merged.push(kernel));
            renumbered[id] = Some(to);
        }
        for step in &mut self.steps {
            step.kernel = renumbered[step.kernel].unwrap_or(step.kernel);
        }
        self.kernels = merged;
    }

    /// Adds the steps that zero halo and padding lanes.
    ///
    /// Afterwards such a value has two steps: the one that computes it comes second.
    pub fn insert_border_steps(&mut self, storage: &Storage) {
        let mut borders: BTreeMap<Digest, KernelId> = BTreeMap::new();
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            let outputs: Vec<ValueId> = {
                let params = &self.kernels[step.kernel].func.params;
                let args = step.args.iter().zip(params);
                args.filter(|(_, param)| param.kind == ParamKind::Output)
                    .map(|(&arg, _)| arg)
                    .collect()
            };
            for output in outputs.into_iter().filter(|&output| storage.zeroed[output]) {
                let value = &self.values[output];
                let key = digest(|hasher| (&value.spec, value.dtype).hash(hasher));
                let kernel = *borders.entry(key).or_insert_with(|| {
                    let func = zero_border("zero_border", value.dtype, &value.spec);
                    self.kernels.push(Kernel { func, macs: 0 })
                });
                self.steps.push(Step { kernel, args: vec![output] });
            }
            self.steps.push(step);
        }
    }

    /// Lowers every kernel for the target; see [`tir::lower`].
    ///
    /// # Errors
    ///
    /// One problem for each kernel that cannot be lowered.
    pub fn lower_kernels(&mut self, target: &Target, jobs: usize) -> Result<(), Report> {
        let kernels: Vec<PrimFunc> = self.kernels.values().map(|k| k.func.clone()).collect();
        let lowered = parallel::map(&kernels, jobs, |func| tir::lower(func.clone(), target));
        let mut report = Report::new();
        for (kernel, result) in self.kernels.values_mut().zip(lowered) {
            match result {
                Ok(func) => kernel.func = func,
                Err(error) => report.push(Problem::new(error.to_string())),
            }
        }
        report.into_result(())
    }

    /// A digest of everything that decides the program's code and weights, names of kernels
    /// included.
    pub fn digest(&self) -> Digest {
        digest(|hasher| {
            for value in self.values.values() {
                (&value.spec, value.dtype).hash(hasher);
                value.kind.hash(hasher);
            }
            for kernel in self.kernels.values() {
                kernel.func.name.hash(hasher);
                kernel.func.structural_digest().hash(hasher);
            }
            for step in &self.steps {
                (step.kernel, &step.args).hash(hasher);
            }
            (&self.inputs, &self.outputs).hash(hasher);
        })
    }
}

/// The symbol of each kernel: the model's, then the kernel's name, made unique.
pub(super) fn symbols(program: &Program, symbol: &str) -> Vec<String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    program
        .kernels
        .values()
        .map(|kernel| {
            let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let name: String = kernel.func.name.chars().map(word).collect();
            // `run` begins the names of the functions that call the kernels.
            let is_free = |name: &str, taken: &BTreeSet<String>| {
                !taken.contains(name) && name != "weights" && !name.starts_with("run")
            };
            let mut unique = name.clone();
            let mut number = 0;
            while !is_free(&unique, &taken) {
                number += 1;
                unique = format!("kernel_{name}_{number}");
            }
            taken.insert(unique.clone());
            format!("{symbol}_{unique}")
        })
        .collect()
}

fn digest(feed: impl FnOnce(&mut DigestHasher)) -> Digest {
    let mut hasher = DigestHasher(blake3::Hasher::new());
    feed(&mut hasher);
    *hasher.0.finalize().as_bytes()
}

/// `Hash` into BLAKE3: collisions would make one kernel of two.
struct DigestHasher(blake3::Hasher);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.finalize();
        digest.as_bytes().iter().take(8).fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use crate::ir::BufferSpec;

    #[test]
    fn kernels_that_differ_in_names_alone_are_merged() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[8]);
        let y = b.add(x, x);
        let z = b.add(y, x);
        let other = b.input("other", &[9]);
        let w = b.add(other, other);
        b.output(z);
        b.output(w);
        let mut program = b.program;
        let digest = program.digest();
        program.merge_equal_kernels();
        program.verify().unwrap();
        assert_eq!(program.kernels.len(), 2);
        assert_eq!(program.steps[0].kernel, program.steps[1].kernel);
        assert_ne!(program.steps[0].kernel, program.steps[2].kernel);
        assert_ne!(program.digest(), digest);
    }

    #[test]
    fn equal_borders_are_one_kernel_called_before_the_value_is_computed() {
        let mut b = ProgramBuilder::default();
        let shape = [1, 16, 4, 4];
        let padded = BufferSpec::nchwc(&shape, 16, &[(1, 1), (1, 1)]);
        let x = b.input("x", &shape);
        let first = b.map("pack", &[x], padded.clone(), |x| x[0].clone());
        let second = b.map("pack", &[x], padded, |x| x[0].clone());
        let sum = b.map("sum", &[first, second], BufferSpec::dense(&shape), |x| {
            x[0].clone() + x[1].clone()
        });
        b.output(sum);
        let mut program = b.program;
        let storage = Storage::of(&program).unwrap();
        program.insert_border_steps(&storage);
        let calls: Vec<_> = program
            .steps
            .iter()
            .map(|step| {
                (program.kernels[step.kernel].func.name.as_str(), step.args.last().copied())
            })
            .collect();
        assert_eq!(
            calls,
            [
                ("zero_border", Some(first)),
                ("pack_0", Some(first)),
                ("zero_border", Some(second)),
                ("pack_1", Some(second)),
                ("sum_2", Some(sum))
            ]
        );
    }

    #[test]
    fn symbols_are_c_names_and_differ() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[8]);
        for _ in 0..4 {
            b.add(x, x);
        }
        let names = ["a.b", "a_b", "run", "weights"];
        for (kernel, name) in b.program.kernels.values_mut().zip(names) {
            kernel.func.make_mut().name = name.to_owned();
        }
        assert_eq!(
            symbols(&b.program, "m"),
            ["m_a_b", "m_kernel_a_b_1", "m_kernel_run_1", "m_kernel_weights_1"]
        );
    }
}
