//! What happens to kernels between the strategies and code: merging, borders, lowering, names.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use cranelift_entity::{PrimaryMap, SecondaryMap};

use crate::codegen::ExternalCode;
use crate::executor::{Kernel, KernelId, Program, Step, Value, ValueId};
use crate::ir::{Blake3, Digest};
use crate::memory::{Storage, zero_border};
use crate::target::Target;
use crate::tir::border::{fill_behind, padding};
use crate::tir::{ParamKind, PrimExpr, PrimFunc, PrimFuncData};

impl Program {
    /// Makes steps whose kernels differ in nothing but names call the same one.
    pub fn merge_equal_kernels(&mut self) {
        let mut first: BTreeMap<Vec<Digest>, KernelId> = BTreeMap::new();
        let mut merged: PrimaryMap<KernelId, Kernel> = PrimaryMap::new();
        let mut renumbered: SecondaryMap<KernelId, Option<KernelId>> = SecondaryMap::new();
        for (id, kernel) in std::mem::take(&mut self.kernels) {
            let digests: Vec<Digest> =
                kernel.versions.iter().map(PrimFunc::structural_digest).collect();
            let to = *first.entry(digests).or_insert_with(|| merged.push(kernel));
            renumbered[id] = Some(to);
        }
        for step in &mut self.steps {
            step.kernel = renumbered[step.kernel].unwrap_or(step.kernel);
        }
        self.kernels = merged;
    }

    /// Adds the steps that zero halos.
    ///
    /// Afterwards such a value has two steps: the one that computes it comes second.
    pub fn insert_border_steps(&mut self, storage: &Storage) {
        let levels = self.kernels.values().next().map_or(1, |kernel| kernel.versions.len());
        let mut borders: BTreeMap<Digest, KernelId> = BTreeMap::new();
        let mut all: Vec<Vec<Step>> = Vec::with_capacity(self.steps.len());
        for step in std::mem::take(&mut self.steps) {
            let mut steps = Vec::new();
            let outputs: Vec<ValueId> = {
                let params = &self.kernels[step.kernel].signature().params;
                let args = step.args.iter().zip(params);
                args.filter(|(_, param)| param.kind == ParamKind::Output)
                    .map(|(&arg, _)| arg)
                    .collect()
            };
            for &output in outputs.iter().filter(|&&output| storage.zeroed[output]) {
                let value = &self.values[output];
                let key = digest(|hasher| (&value.spec, value.dtype, &value.run_time).hash(hasher));
                let kernel = *borders.entry(key).or_insert_with(|| {
                    let func = zero_border("zero_border", value.dtype, &value.spec);
                    let mut kernel = Kernel::new(vec![func; levels]);
                    let axes: Vec<_> =
                        value.run_time.iter().map(|axis| (0, axis.clone())).collect();
                    self.sizes.limit(&mut kernel, &axes);
                    self.kernels.push(kernel)
                });
                steps.push(Step { kernel, args: vec![output] });
            }
            steps.push(step);
            for output in outputs {
                steps.extend(self.zero_behind(output, levels, &mut borders));
            }
            all.push(steps);
        }
        self.replace_steps(all);
    }

    /// The step that zeroes what lies behind a value where its axes end before the greatest sizes
    /// do, if somebody reads that as its halo.
    fn zero_behind(
        &mut self,
        value: ValueId,
        levels: usize,
        borders: &mut BTreeMap<Digest, KernelId>,
    ) -> Option<Step> {
        let Value { spec, dtype, run_time, .. } = &self.values[value];
        if run_time.iter().all(|open| spec.halo()[open.axis].after == 0) {
            return None;
        }
        let key = digest(|hasher| ("behind", spec, dtype, run_time).hash(hasher));
        let kernel = match borders.get(&key) {
            Some(&kernel) => kernel,
            None => {
                let mut func = PrimFuncData::new("zero_behind");
                let buffer = func.output("border", *dtype, spec.clone());
                let dims = self.sizes.declare(&mut func);
                let ends: Vec<(usize, PrimExpr)> = (run_time.iter())
                    .filter_map(|open| Some((open.axis, self.sizes.extent(&open.extent, &dims)?)))
                    .collect();
                func.body = fill_behind(&mut func, buffer, &padding(*dtype, 0), &ends);
                let versions = vec![PrimFunc::new(func); levels];
                self.kernels.push(Kernel::new(versions))
            }
        };
        borders.insert(key, kernel);
        Some(Step { kernel, args: vec![value] })
    }

    /// A digest of everything that decides the program's code and weights, names of kernels
    /// included.
    pub fn digest(&self) -> Digest {
        digest(|hasher| {
            for value in self.values.values() {
                (&value.spec, value.dtype, &value.run_time).hash(hasher);
                value.kind.hash(hasher);
            }
            for kernel in self.kernels.values() {
                kernel.signature().name.hash(hasher);
                for version in &kernel.versions {
                    version.structural_digest().hash(hasher);
                }
            }
            for step in &self.steps {
                (step.kernel, &step.args).hash(hasher);
            }
            (&self.regions, &self.inputs, &self.outputs, &self.units, &self.counts).hash(hasher);
            for ExternalCode { symbol, source, needs } in &self.external {
                (symbol, source, needs).hash(hasher);
            }
        })
    }
}

/// A function of a model's code: a kernel, for one CPU level or for several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelFunction {
    /// The kernel, the first of those that share the function.
    pub kernel: KernelId,
    /// Place of the narrowest level that calls the function: its code may use that level's
    /// instructions and no others.
    pub level: usize,
    /// The name under which it links: `niello_kernel_<operators>_<digest>`, or what another code
    /// generator calls it.
    ///
    /// The digest is of all that decides the function's code, so that functions of one name are the
    /// same function, in whatever model.
    pub symbol: String,
}

/// The functions that a lowered program's kernels become, and which level calls which.
#[derive(Clone, Debug, Default)]
pub struct KernelFunctions {
    /// Kernel by kernel, narrowest level first.
    pub functions: Vec<KernelFunction>,
    /// For each kernel the place of its function in [`functions`](Self::functions), level by level.
    pub by_level: SecondaryMap<KernelId, Vec<usize>>,
}

impl KernelFunctions {
    /// Names the functions. `generator` is the digest of what turns them into code; see
    /// [`Generator::digest`](super::Generator::digest).
    ///
    /// Levels share a function where lowering has left no difference between their versions: what
    /// has neither vectors nor fused operations gains nothing from other instructions.
    pub fn of(program: &Program, generator: &Digest, levels: &[Target]) -> KernelFunctions {
        let mut result = KernelFunctions::default();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for (id, kernel) in &program.kernels {
            if let Some(symbol) = kernel.signature().external_symbol() {
                let at = *known.entry(symbol.to_owned()).or_insert_with_key(|symbol| {
                    let symbol = symbol.clone();
                    result.functions.push(KernelFunction { kernel: id, level: 0, symbol });
                    result.functions.len() - 1
                });
                result.by_level[id] = vec![at; levels.len()];
                continue;
            }
            let name = operators(&kernel.signature().name);
            let mut own: Vec<usize> = Vec::with_capacity(levels.len());
            let mut former: Option<Digest> = None;
            for (level, (version, target)) in kernel.versions.iter().zip(levels).enumerate() {
                let lowered = version.structural_digest();
                // Versions come narrowest first, so the one before is the likeliest to be equal.
                let shared = own.last().copied().filter(|_| former == Some(lowered));
                former = Some(lowered);
                own.push(shared.unwrap_or_else(|| {
                    let digest = digest(|hasher| (generator, target, lowered).hash(hasher));
                    let symbol = format!("niello_kernel_{name}_{}", hex(&digest[..16]));
                    *known.entry(symbol).or_insert_with_key(|symbol| {
                        let symbol = symbol.clone();
                        result.functions.push(KernelFunction { kernel: id, level, symbol });
                        result.functions.len() - 1
                    })
                }));
            }
            result.by_level[id] = own;
        }
        result
    }

    /// The symbol of the function that a level calls for a kernel.
    pub fn symbol(&self, kernel: KernelId, level: usize) -> &str {
        let function = self.by_level[kernel].get(level).and_then(|&at| self.functions.get(at));
        function.map_or("", |function| &function.symbol)
    }

    /// The lowered version that each function is generated from.
    pub fn versions<'a>(
        &'a self,
        program: &'a Program,
    ) -> impl Iterator<Item = (&'a KernelFunction, &'a PrimFunc)> {
        self.functions.iter().filter_map(|function| {
            let version = program.kernels[function.kernel].versions.get(function.level)?;
            Some((function, version))
        })
    }
}

/// Letters of a kernel's name that its symbol has: long chains of operators are cut.
const NAME_LETTERS: usize = 48;

/// A kernel's name, cut, with all but letters and digits replaced.
fn operators(name: &str) -> String {
    name.chars()
        .take(NAME_LETTERS)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn digest(feed: impl FnOnce(&mut DigestHasher)) -> Digest {
    let mut hasher = DigestHasher(Blake3::new());
    feed(&mut hasher);
    hasher.0.finalize()
}

/// `Hash` into BLAKE3: collisions would make one kernel of two.
pub(super) struct DigestHasher(Blake3);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.finalize();
        digest.iter().take(8).fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use crate::ir::BufferSpec;
    use crate::tir::{PrimExpr, Stmt};

    #[test]
    fn kernels_that_differ_only_in_names_are_merged() {
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
                (program.kernels[step.kernel].signature().name.as_str(), step.args.last().copied())
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
    fn levels_share_equal_functions() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[8]);
        let y = b.add(x, x);
        let z =
            b.map("scale", &[y], BufferSpec::dense(&[8]), |x| x[0].clone() * PrimExpr::f32(2.0));
        b.output(z);
        let mut program = b.program;
        let host = Target { arch: "x86_64".to_owned(), ..Target::host() };
        let levels = ["x86-64", "x86-64-v3", "x86-64-v4"].map(|cpu| host.clone().with_cpu(cpu));
        let levels = levels.map(Result::unwrap);
        // The second kernel differs from the first level to the second.
        for (id, kernel) in &mut program.kernels {
            let narrow = kernel.signature().clone();
            let mut wide = narrow.clone();
            if id.as_u32() == 1 {
                wide.make_mut().body = Stmt::nop();
            }
            kernel.versions = vec![narrow, wide.clone(), wide];
        }
        let functions = KernelFunctions::of(&program, &[0; 32], &levels);
        let made: Vec<_> = (functions.functions.iter())
            .map(|f| (f.symbol.rsplit_once('_').unwrap().0, f.level))
            .collect();
        let [add, scale] = ["niello_kernel_add_0", "niello_kernel_scale_1"];
        assert_eq!(made, [(add, 0), (scale, 0), (scale, 1)]);
        let [add, narrow, wide] = [0, 1, 2].map(|at: usize| functions.functions[at].symbol.clone());
        assert_ne!(narrow, wide);
        let called = |level| {
            let symbol = |kernel: KernelId| functions.symbol(kernel, level).to_owned();
            program.kernels.keys().map(symbol).collect::<Vec<_>>()
        };
        assert_eq!(called(0), [add.clone(), narrow]);
        assert_eq!(called(1), [add, wide]);
        assert_eq!(called(2), called(1));
    }

    #[test]
    fn symbols_are_c_names_of_what_is_computed_by_what() {
        let symbols = |name: &str, extent: i64, generator: u8, cpu: &str| {
            let mut b = ProgramBuilder::default();
            let x = b.input("x", &[extent]);
            b.add(x, x);
            b.program.kernels.values_mut().for_each(|kernel| {
                kernel.versions[0].make_mut().name = name.to_owned();
            });
            let target = Target { arch: "x86_64".to_owned(), ..Target::host() };
            let levels = [target.with_cpu(cpu).unwrap()];
            KernelFunctions::of(&b.program, &[generator; 32], &levels).functions[0].symbol.clone()
        };
        let symbol = symbols("a.b", 8, 0, "x86-64");
        assert!(symbol.starts_with("niello_kernel_a_b_"), "{symbol}");
        assert_eq!(symbol.len(), "niello_kernel_a_b_".len() + 32);
        assert_eq!(symbols("a_b", 8, 0, "x86-64"), symbol);
        for other in [
            symbols("a_c", 8, 0, "x86-64"),
            symbols("a_b", 9, 0, "x86-64"),
            symbols("a_b", 8, 1, "x86-64"),
            symbols("a_b", 8, 0, "x86-64-v3"),
        ] {
            assert_ne!(other, symbol);
        }
        let long = symbols(&"nn.conv2d_".repeat(40), 8, 0, "x86-64");
        assert!(long.len() < 100, "{long}");
    }

    #[test]
    fn kernels_that_lowering_makes_equal_are_one_function() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[8]);
        let y = b.add(x, x);
        b.add(y, x);
        for kernel in b.program.kernels.values_mut() {
            kernel.versions[0].make_mut().name = "add".to_owned();
        }
        let functions = KernelFunctions::of(&b.program, &[0; 32], &[Target::host()]);
        assert_eq!(functions.functions.len(), 1);
        assert!(functions.by_level.values().all(|own| *own == [0]));
    }
}
