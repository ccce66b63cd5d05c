//! A model as a static sequence of kernel calls over buffers: what every executor starts from.

use std::collections::BTreeSet;

use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};

use super::{Count, Region, RunTimeAxis, RunTimeSizes, Units};
use crate::analysis::CPU;
use crate::codegen::ExternalCode;
use crate::diagnostics::Problem;
use crate::graph::ExprId;
use crate::ir::{BufferSpec, Constant, DType};
use crate::schedule::Trace;
use crate::tir::{ForKind, ParamKind, PrimFunc, Stmt};
use crate::tuned::Tunable;

/// A value of a program; prints as `value3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);
entity_impl!(ValueId, "value");

/// A kernel of a program; prints as `kernel3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(u32);
entity_impl!(KernelId, "kernel");

/// Where a value comes from.
#[derive(Clone, PartialEq, Hash, Debug)]
pub enum ValueKind {
    /// The model's input of that position: dense memory of the caller.
    Input(usize),
    /// A constant; it is stored packed as [`Value::spec`] says.
    Constant(Constant),
    /// Computed by a step.
    Computed,
    /// Kept from run to run, zeros at first: dense memory of its own, to which a step may store when
    /// no other step reads it any more.
    State,
    /// Computed by several steps, of which the last that ran counts: the state of a loop, or the
    /// result of a choice. Dense.
    Variable,
    /// The elements of an earlier value under another shape: the same memory. Both are dense.
    View(ValueId),
    /// A part of another value's memory. If steps compute the parts of a value, they compute all of
    /// it, and none computes the value itself; else the part can be read once the value is computed.
    Within {
        /// The other value, which is computed, itself or by its parts.
        whole: ValueId,
        /// Bytes before the part: a multiple of [`BUFFER_ALIGNMENT`](crate::ir::BUFFER_ALIGNMENT).
        offset: u64,
    },
}

/// A tensor that passes between kernels.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// For people: the name in the model or of the operator.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Logical extents and physical layout.
    pub spec: BufferSpec,
    /// Where it comes from.
    pub kind: ValueKind,
    /// The axes of which a run uses a part: the elements that lie first.
    pub run_time: Vec<RunTimeAxis>,
}

impl Value {
    /// Bytes from the start of the value's memory to its end, with halo and padding lanes.
    ///
    /// # Errors
    ///
    /// The layout is malformed or exceeds 2^63 bytes.
    pub fn physical_bytes(&self) -> Result<u64, Problem> {
        let problem = |what: &dyn std::fmt::Display| {
            Problem::new(format!("value `{}` of {}: {what}", self.name, self.dtype))
        };
        let elements = self.spec.physical_len().map_err(|error| problem(&error))?;
        u64::try_from(elements)
            .ok()
            .and_then(|elements| self.dtype.bytes_for(elements))
            .filter(|&bytes| bytes < 1 << 63)
            .ok_or_else(|| problem(&"it takes more than 2^63 bytes"))
    }
}

/// A call of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The kernel.
    pub kernel: KernelId,
    /// One value for each parameter of the kernel, in order: inputs and constants, then outputs.
    pub args: Vec<ValueId>,
}

/// A kernel: loop functions, and what executors and reports need to know of them.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// A function for each CPU level of the program, narrowest first: never empty. They have the
    /// same parameters in the same layouts, and results that differ by rounding alone. As their
    /// strategy made them, or lowered: see [`Program::lower_kernels`].
    pub versions: Vec<PrimFunc>,
    /// Multiply-accumulate operations of one call.
    pub macs: u64,
    /// How the tensors that it stores are computed, in order.
    pub loops: Vec<Loops>,
    /// The schedules of the versions, if a rule made them by primitives.
    pub scheduled: Option<Scheduled>,
    /// Where the version for the widest CPU level could have been made in another way.
    pub tunables: Vec<Tunable>,
    /// The same with their result in the memory of their first argument, of which they store what
    /// changes: none of a kernel that changes most of it. See [`Program::store_directly`].
    pub in_place: Vec<PrimFunc>,
    /// What it does if it computes nothing: see [`Program::share_parts`].
    pub moves: Option<Moves>,
}

/// How a rule made the versions of a kernel.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The function of blocks that each schedule begins with.
    pub from: PrimFunc,
    /// The steps, for each version.
    pub traces: Vec<Trace>,
}

/// What a kernel does that only moves elements, by the positions of its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moves {
    /// Puts parameters side by side.
    Concatenation {
        /// The axis.
        axis: usize,
        /// Each parameter and where it begins along the axis, in order.
        parts: Vec<(usize, i64)>,
    },
    /// Takes parts of a parameter.
    Slices {
        /// The parameter.
        from: usize,
        /// The axis of each result, and where the result begins along it.
        parts: Vec<(usize, i64)>,
    },
}

/// How the loops of a tensor were made that a kernel stores, for reports: those of the widest CPU
/// level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loops {
    /// The operator that computes the tensor.
    pub op: String,
    /// The rule that made the loops.
    pub rule: &'static str,
    /// What the rule chose, for people; empty if there was nothing to choose.
    pub knobs: String,
    /// Processor cycles that the rule's cost model expects, if it has one.
    pub cycles: Option<u64>,
    /// Why a faster kind of loops was not possible.
    pub missed: Option<String>,
}

impl Kernel {
    /// A kernel of these versions, of which nothing else is known.
    pub fn new(versions: Vec<PrimFunc>) -> Kernel {
        Kernel {
            versions,
            macs: 0,
            loops: Vec::new(),
            scheduled: None,
            tunables: Vec::new(),
            in_place: Vec::new(),
            moves: None,
        }
    }

    /// The narrowest version: whose parameters and name are those of all.
    ///
    /// # Panics
    ///
    /// If there is no version.
    pub fn signature(&self) -> &PrimFunc {
        self.versions.first().expect("a kernel has a version for each CPU level")
    }
}

/// A model as a static sequence of kernel calls.
///
/// Steps are in an order in which every value is computed before it is read. A value is computed by
/// at most one step, but for states and variables.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Values.
    pub values: PrimaryMap<ValueId, Value>,
    /// Kernels, each used by at least one step.
    pub kernels: PrimaryMap<KernelId, Kernel>,
    /// The calls, in order.
    pub steps: Vec<Step>,
    /// The steps that do not run exactly once: properly nested, in the order of their first steps,
    /// what is around others before them.
    pub regions: Vec<Region>,
    /// The model's inputs, in its order; their kind is [`ValueKind::Input`].
    pub inputs: Vec<ValueId>,
    /// The model's outputs, in its order: dense values of any kind; one value may occur twice.
    pub outputs: Vec<ValueId>,
    /// What each run has a size of its own for: values have room for the greatest. Kernels that
    /// have dimensions have one for each of these, in order.
    pub sizes: RunTimeSizes,
    /// The sizes that a run computes, of those that some step needs.
    pub counts: Vec<Count>,
    /// If a run repeats the steps for each unit of a size, where the units are. Then `sizes` is
    /// empty.
    pub units: Option<Units>,
    /// What other code generators made, each function once.
    pub external: Vec<ExternalCode>,
    /// The values of each expression of `main` of the module that the program was made of, one for
    /// each field of a tuple; none of a constant.
    pub of_main: SecondaryMap<ExprId, Vec<ValueId>>,
    /// The devices of values that are not the processor's; see [`devices`](crate::analysis::devices).
    pub devices: SecondaryMap<ValueId, Option<u32>>,
}

impl Program {
    /// The device that computes a value.
    pub fn device(&self, value: ValueId) -> u32 {
        self.devices[value].unwrap_or(CPU)
    }

    /// Multiply-accumulate operations of all steps, each counted once, those in loops as well: how
    /// often these run is known to a run alone.
    pub fn macs(&self) -> u64 {
        self.steps.iter().map(|step| self.kernels[step.kernel].macs).sum()
    }

    /// How many values are parts of others.
    pub fn count_parts(&self) -> usize {
        let is_part = |value: &&Value| matches!(value.kind, ValueKind::Within { .. });
        self.values.values().filter(is_part).count()
    }

    /// The sizes that are known once a step is done. `roots` are [those](Self::roots) of the values.
    pub(crate) fn counted_by<'a>(
        &'a self,
        step: &'a Step,
        roots: &'a SecondaryMap<ValueId, ValueId>,
    ) -> impl Iterator<Item = Count> + 'a {
        let params = &self.kernels[step.kernel].signature().params;
        let results = step.args.iter().zip(params).filter(|(_, p)| p.kind == ParamKind::Output);
        let results: Vec<ValueId> = results.map(|(&arg, _)| roots[arg]).collect();
        self.counts.iter().copied().filter(move |count| results.contains(&roots[count.value]))
    }

    /// Puts others in the place of each step, and drops kernels that no step calls any longer.
    pub(crate) fn replace_steps(&mut self, others: Vec<Vec<Step>>) {
        let mut places = Vec::with_capacity(others.len() + 1);
        self.steps.clear();
        for steps in others {
            places.push(self.steps.len());
            self.steps.extend(steps);
        }
        places.push(self.steps.len());
        for region in &mut self.regions {
            region.steps = places[region.steps.start]..places[region.steps.end];
        }
        self.regions.retain(|region| !region.steps.is_empty());
        let mut used: SecondaryMap<KernelId, bool> = SecondaryMap::new();
        for step in &self.steps {
            used[step.kernel] = true;
        }
        let mut renumbered: SecondaryMap<KernelId, Option<KernelId>> = SecondaryMap::new();
        for (id, kernel) in std::mem::take(&mut self.kernels) {
            renumbered[id] = used[id].then(|| self.kernels.push(kernel));
        }
        for step in &mut self.steps {
            step.kernel = renumbered[step.kernel].unwrap_or(step.kernel);
        }
    }

    /// Functions of other code generators that whoever links the program provides, in order.
    pub fn external_symbols(&self) -> Vec<String> {
        let symbols: BTreeSet<&str> =
            self.external.iter().flat_map(ExternalCode::undefined).collect();
        symbols.into_iter().map(str::to_owned).collect()
    }

    /// Whether threads share a loop of some kernel.
    pub fn shares_loops(&self) -> bool {
        let mut found = false;
        for version in self.kernels.values().flat_map(|kernel| &kernel.versions) {
            version.body.walk(&mut |stmt| {
                found |= matches!(stmt, Stmt::For { kind: ForKind::Parallel, .. });
            });
        }
        found
    }
}
