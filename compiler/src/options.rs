//! What a caller may ask of one compilation.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{RangeFrom, RangeFull, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use niello_runtime::CpuLevel;

use crate::diagnostics::Problem;
use crate::executor::aot::{KernelCache, SharedWeights};
use crate::onnx::InputValue;
use crate::target::{Target, TargetError};
use crate::tuned::Tuned;

/// Optimisation level of `niello-build` and of the command; a bare `PassContext` has 2.
pub const DEFAULT_OPT_LEVEL: u8 = 3;

/// Highest optimisation level there is.
pub const MAX_OPT_LEVEL: u8 = 4;

/// In the place of a CPU's name: code for every CPU level, of which the program chooses at run
/// time.
pub const PORTABLE: &str = "portable";

/// The value of an environment variable that is a number of bytes, or of KiB, MiB or GiB with the
/// letter `K`, `M` or `G` behind it.
///
/// # Errors
///
/// It is no such number, or more than 64 bits hold.
pub(crate) fn bytes_of_variable(variable: &str, text: &str) -> Result<u64, Problem> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit =
        units.iter().find(|(letter, _)| text.ends_with([*letter, letter.to_ascii_lowercase()]));
    let (digits, shift) = match unit {
        Some(&(_, shift)) => (&text[..text.len() - 1], shift),
        None => (text, 0),
    };
    let bytes = digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| {
        Problem::new(format!("{variable} is `{text}`, which is no number of bytes"))
            .help("write it as 500M or 2G")
    })
}

/// The code generator that turns loop IR into objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Backend {
    /// C, through the C compiler that is installed for the target.
    #[default]
    C,
    /// LLVM, in this process.
    #[cfg(feature = "llvm")]
    Llvm,
}

impl Backend {
    /// Every backend of this build of niello.
    pub const ALL: &[Backend] = &[
        Backend::C,
        #[cfg(feature = "llvm")]
        Backend::Llvm,
    ];

    /// The name in options and environment variables.
    pub fn name(self) -> &'static str {
        match self {
            Backend::C => "c",
            #[cfg(feature = "llvm")]
            Backend::Llvm => "llvm",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text that was meant to name a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownBackend(pub String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Backend::ALL.iter().map(|backend| backend.name()).collect();
        let Self(name) = self;
        if name == "llvm" {
            return f.write_str(
                "this build of niello has no LLVM backend: it is in builds with the feature `llvm`, \
                 which need LLVM 19 with its headers (Debian and Ubuntu: `apt install llvm-19-dev`)",
            );
        }
        write!(f, "`{name}` is not a backend of this build; it has {}", known.join(", "))
    }
}

impl std::error::Error for UnknownBackend {}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(s: &str) -> Result<Self, UnknownBackend> {
        Backend::ALL
            .iter()
            .copied()
            .find(|backend| backend.name() == s)
            .ok_or_else(|| UnknownBackend(s.to_owned()))
    }
}

/// How the kernels of a model are called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Executor {
    /// By one function; values are at offsets of one workspace.
    #[default]
    Aot,
    /// Call by call, as TVM's graph executor; values are in blocks that one value has at a time.
    Graph,
}

impl Executor {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Executor::Aot => "aot",
            Executor::Graph => "graph",
        }
    }
}

/// What happens to denormal numbers, the floats next to zero, while a model runs.
///
/// Processors take some hundred times as long for an operation on such a number, and activations
/// that fade out end as many of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Denormals {
    /// They count as zeros. A run sets the processor's mode and restores it; on targets without
    /// such a mode, as WebAssembly and RISC-V, they are kept.
    #[default]
    Flush,
    /// They are computed with as IEEE 754 has it.
    Keep,
}

impl Denormals {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Denormals::Flush => "flush",
            Denormals::Keep => "keep",
        }
    }
}

/// Most threads that can share an inference of a model.
///
/// How many do is found out when the program runs: no more than it may use processors, as its
/// affinity and the limits of its control group say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Threads {
    /// As many; none counts as one.
    Most(usize),
    /// As many as there are processors, up to [`Threads::AUTO`].
    #[default]
    Auto,
}

impl Threads {
    /// What memory is planned for by [`Threads::Auto`]: beyond, few models gain, and each worker
    /// takes scratch memory.
    pub const AUTO: usize = 16;

    /// What memory is planned for.
    pub fn most(self) -> usize {
        match self {
            Threads::Most(threads) => threads.max(1),
            Threads::Auto => Threads::AUTO,
        }
    }
}

impl From<usize> for Threads {
    fn from(threads: usize) -> Threads {
        Threads::Most(threads)
    }
}

/// `4` or `auto`.
impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Most(threads) => write!(f, "{threads}"),
            Threads::Auto => f.write_str("auto"),
        }
    }
}

/// Greatest number of threads that a text may ask for: as many as any machine has.
const MAX_THREADS: usize = u16::MAX as usize;

/// The text that was meant to be a number of threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotThreads(pub String);

impl fmt::Display for NotThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is neither a number from 1 to {} nor `auto`", self.0, MAX_THREADS)
    }
}

impl std::error::Error for NotThreads {}

/// A number from 1 on, or `auto`.
impl FromStr for Threads {
    type Err = NotThreads;

    fn from_str(text: &str) -> Result<Self, NotThreads> {
        if text == "auto" {
            return Ok(Threads::Auto);
        }
        let number = text.parse().ok().filter(|number| (1..=MAX_THREADS).contains(number));
        number.map(Threads::Most).ok_or_else(|| NotThreads(text.to_owned()))
    }
}

/// What is decided of a symbolic dimension before the model is compiled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DimSize {
    /// Its size.
    Fixed(u64),
    /// That each run has a size of its own, within bounds. Memory is planned for the greatest.
    RunTime {
        /// The least size; 0 if it may be empty.
        min: u64,
        /// The greatest size, at least the least one, and 1; [`DimSize::UNBOUNDED`] for none.
        max: u64,
    },
    /// The same from 1 to the last of these, which ascend. Products and convolutions have a version
    /// for each of them, beside the one for all sizes: a run of that size takes it.
    Buckets(Vec<u64>),
}

impl DimSize {
    /// The greatest size where none is given. No memory is planned for it, so units along such a
    /// dimension have nothing to do with each other, as the images of a batch.
    pub const UNBOUNDED: u64 = i32::MAX as u64;

    /// Whether it can be this size.
    pub fn allows(&self, size: u64) -> bool {
        match self {
            DimSize::Fixed(fixed) => *fixed == size,
            DimSize::RunTime { .. } | DimSize::Buckets(_) => {
                self.bounds().is_some_and(|bounds| bounds.contains(&size))
            }
        }
    }

    /// The bounds, if each run has a size of its own.
    pub fn bounds(&self) -> Option<RangeInclusive<u64>> {
        match self {
            DimSize::Fixed(_) => None,
            DimSize::RunTime { min, max } => Some(*min..=*max),
            DimSize::Buckets(sizes) => Some(1..=sizes.last().copied().unwrap_or(0)),
        }
    }

    /// The sizes that have versions of their own.
    pub fn buckets(&self) -> &[u64] {
        match self {
            DimSize::Buckets(sizes) => sizes,
            DimSize::Fixed(_) | DimSize::RunTime { .. } => &[],
        }
    }
}

impl From<u64> for DimSize {
    fn from(size: u64) -> DimSize {
        DimSize::Fixed(size)
    }
}

impl From<RangeInclusive<u64>> for DimSize {
    fn from(sizes: RangeInclusive<u64>) -> DimSize {
        DimSize::RunTime { min: *sizes.start(), max: *sizes.end() }
    }
}

impl From<RangeFrom<u64>> for DimSize {
    fn from(sizes: RangeFrom<u64>) -> DimSize {
        DimSize::RunTime { min: sizes.start, max: DimSize::UNBOUNDED }
    }
}

impl From<RangeFull> for DimSize {
    fn from(_: RangeFull) -> DimSize {
        DimSize::from(1..)
    }
}

impl<const N: usize> From<[u64; N]> for DimSize {
    fn from(sizes: [u64; N]) -> DimSize {
        DimSize::from(sizes.to_vec())
    }
}

impl From<Vec<u64>> for DimSize {
    fn from(mut sizes: Vec<u64>) -> DimSize {
        sizes.sort_unstable();
        sizes.dedup();
        DimSize::Buckets(sizes)
    }
}

/// `8`, `1..=32`, `1..` or `32,128`.
impl fmt::Display for DimSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimSize::Fixed(size) => write!(f, "{size}"),
            DimSize::RunTime { min, max: DimSize::UNBOUNDED } => write!(f, "{min}.."),
            DimSize::Buckets(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
                f.write_str(&sizes.join(","))
            }
            DimSize::RunTime { min, max } => write!(f, "{min}..={max}"),
        }
    }
}

/// The text that was meant to be a size or a range of sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotADimSize(pub String);

impl fmt::Display for NotADimSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is neither a size, as 8, nor a range of sizes, as 1..=32 or 1.., nor sizes with \
             versions of their own, as 32,128",
            self.0
        )
    }
}

impl std::error::Error for NotADimSize {}

impl FromStr for DimSize {
    type Err = NotADimSize;

    fn from_str(text: &str) -> Result<Self, NotADimSize> {
        let number = |text: &str| text.trim().parse().map_err(|_| NotADimSize(text.to_owned()));
        let whole = |_: NotADimSize| NotADimSize(text.to_owned());
        if let Some((min, max)) = text.split_once("..=") {
            return number(min).and_then(|min| Ok((min..=number(max)?).into())).map_err(whole);
        }
        match text.strip_suffix("..") {
            Some("") => Ok((..).into()),
            Some(min) => number(min).map(|min| (min..).into()).map_err(whole),
            None if text.contains(',') => {
                let sizes: Result<Vec<u64>, NotADimSize> = text.split(',').map(number).collect();
                sizes.map(DimSize::from).map_err(whole)
            }
            None => number(text).map(DimSize::Fixed),
        }
    }
}

/// How far results may be from those of the model's operators one by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Numerics {
    /// Passes may change the arithmetic
    /// ([`changing_arithmetic`](crate::transform::pipeline::changing_arithmetic) lists them), and
    /// `float32` functions may be off by a few units in the last place.
    #[default]
    Default,
    /// As by default, but convolutions and products of `float16` by constant weights, and what is
    /// fused with them, are computed in `float16` where the processor has such arithmetic (AArch64 with
    /// FEAT_FP16): twice as many numbers to an instruction, and errors that grow with the length of
    /// sums, which may not exceed 65,504.
    Float16,
    /// Each operator is computed as the model has it, with functions that are off by at most about
    /// one unit in the last place; slower.
    Strict,
}

impl Numerics {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Default => "default",
            Numerics::Float16 => "float16",
            Numerics::Strict => "strict",
        }
    }
}

/// The most that a compiled model may take; what has no limit is `None`. A stub is not checked, and
/// code only where it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Bytes of the workspace.
    pub workspace_bytes: Option<u64>,
    /// Bytes of the weights as kernels read them, without those of another model.
    pub weight_bytes: Option<u64>,
    /// Bytes of machine code, all CPU levels together.
    pub code_bytes: Option<u64>,
    /// Multiply-accumulate operations of one inference, in which each loop makes one step.
    pub macs: Option<u64>,
}

/// Everything that decides, beside the model itself, what a compilation leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileOptions {
    /// The model's name; `None` takes the file's stem.
    pub name: Option<String>,
    /// The package that the model is linked into: part of every symbol.
    pub package: String,
    /// That package's version: part of every symbol.
    pub version: String,
    /// Sizes of symbolic dimensions, or their bounds, by their name in the model.
    pub dims: BTreeMap<String, DimSize>,
    /// Whole shapes of inputs, by the input's name in the model.
    pub input_shapes: BTreeMap<String, Vec<u64>>,
    /// Inputs whose value never changes, by name: they become constants and are inputs no more.
    pub input_values: BTreeMap<String, InputValue>,
    /// Pairs of an input and an output, by name: the model keeps the output, and the next run has it
    /// as the input. Neither is seen by callers. A `*` in both stands for any text that makes names of
    /// tensors; an output that has more behind the input makes a state that grows.
    pub states: Vec<(String, String)>,
    /// Folders that links in the model's folder may lead to, where they stand for external data; a
    /// model that is itself a link may have its data beside the file that it is linked to.
    pub external_folders: Vec<PathBuf>,
    /// Optimisation level, at most [`MAX_OPT_LEVEL`].
    pub opt_level: u8,
    /// Names of passes that must not run.
    pub disabled_passes: Vec<String>,
    /// Options of passes by their names, see `niello passes --configs`; checked when the context is
    /// built.
    pub config: BTreeMap<String, serde_json::Value>,
    /// Code generators of other crates that are given what they take of the model, by name; of
    /// several that take an operator, the first one gets it.
    pub external: Vec<String>,
    /// What happens to denormal numbers during a run.
    pub denormals: Denormals,
    /// How far results may be from those of the operators one by one.
    pub numerics: Numerics,
    /// The code generator.
    pub backend: Backend,
    /// The least machine that the code runs on.
    pub target: Target,
    /// CPU levels that get code of their own, beside that for [`target`](Self::target); which one
    /// runs is chosen at run time. In any order; those that add nothing to the target are left out.
    pub levels: Vec<CpuLevel>,
    /// Most threads that share an inference, for which memory is planned; 1 is serial.
    pub threads: usize,
    /// Threads that the compilation itself may use.
    pub jobs: usize,
    /// The folder in which C files stand while they are compiled, and stay if the compiler fails on
    /// them; what was in it before is removed. `None` is a new one in the system's temporary
    /// folder.
    pub code_folder: Option<PathBuf>,
    /// Where compiled functions are looked for, and kept.
    pub kernel_cache: Option<KernelCache>,
    /// Another model of the program, compiled before, whose weights the code reads where they are
    /// equal to its own.
    pub weights_of: Option<SharedWeights>,
    /// Choices that were measured, which stand where a cost model would decide.
    pub tuned: Tuned,
    /// The most that the model may take.
    pub budget: Budget,
    /// Whether LLVM runs in a child process, if the system has such, so that its crash is an error.
    pub isolate: bool,
    /// Whether to stop before code is generated: the result has the model's interface, no weights
    /// and no objects.
    pub stub: bool,
    /// Whether to leave out the objects, and with them the work of the code generator: the result
    /// has everything else.
    pub without_objects: bool,
    /// Whether each call of a kernel gets a function of its own beside the model's: for profiles, and
    /// whenever the executor calls kernels one by one.
    pub single_calls: bool,
    /// What calls the kernels.
    pub executor: Executor,
}

impl CompileOptions {
    /// The options that `niello-build` and the command begin with, for `target`.
    pub fn new(target: Target) -> Self {
        CompileOptions {
            name: None,
            package: String::new(),
            version: String::new(),
            dims: BTreeMap::new(),
            input_shapes: BTreeMap::new(),
            input_values: BTreeMap::new(),
            states: Vec::new(),
            external_folders: Vec::new(),
            opt_level: DEFAULT_OPT_LEVEL,
            disabled_passes: Vec::new(),
            config: BTreeMap::new(),
            external: Vec::new(),
            denormals: Denormals::default(),
            numerics: Numerics::default(),
            backend: Backend::default(),
            target,
            levels: Vec::new(),
            threads: 1,
            jobs: 1,
            code_folder: None,
            kernel_cache: None,
            weights_of: None,
            tuned: Tuned::default(),
            budget: Budget::default(),
            isolate: false,
            stub: false,
            without_objects: false,
            single_calls: false,
            executor: Executor::default(),
        }
    }

    /// Compiles for a CPU by its name, and for no other level: see [`Target::with_cpu`].
    /// [`PORTABLE`] stands for the target as it is and for every wider level, the name of the
    /// narrowest level for the target as it is alone.
    ///
    /// # Errors
    ///
    /// The CPU is not known for the target's architecture.
    pub fn set_target_cpu(&mut self, cpu: &str) -> Result<(), TargetError> {
        if cpu == PORTABLE {
            self.levels = self.target.wider_levels();
            return Ok(());
        }
        if cpu != CpuLevel::Baseline.name() {
            self.target = self.target.clone().with_cpu(cpu)?;
        }
        self.levels.clear();
        Ok(())
    }

    /// The options of a compilation for one size of each dimension that is open: the greatest, or the
    /// least where there is none.
    #[cfg(feature = "cli")]
    pub(crate) fn at_greatest(&self) -> CompileOptions {
        let mut options = self.clone();
        for size in options.dims.values_mut() {
            if let Some(bounds) = size.bounds() {
                let is_bounded = *bounds.end() != DimSize::UNBOUNDED;
                let one = if is_bounded { *bounds.end() } else { (*bounds.start()).max(1) };
                *size = DimSize::Fixed(one);
            }
        }
        options
    }

    /// The target and its wider levels, for each of which there is code: narrowest first.
    pub fn targets(&self) -> Vec<Target> {
        let wider = self.target.wider_levels();
        let asked = wider.into_iter().filter(|level| self.levels.contains(level));
        let wider = asked.filter_map(|level| self.target.with_level(level));
        std::iter::once(self.target.clone()).chain(wider).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_compiled_in_order_without_repetition() {
        let mut target = Target::host();
        target.arch = "x86_64".to_owned();
        target.os = "linux".to_owned();
        target.features = ["sse2".to_owned()].into();
        let mut options = CompileOptions::new(target);
        let levels = |options: &CompileOptions| -> Vec<CpuLevel> {
            options.targets().iter().map(Target::cpu_level).collect()
        };
        assert_eq!(levels(&options), [CpuLevel::Baseline]);
        options.set_target_cpu(PORTABLE).unwrap();
        assert_eq!(levels(&options), CpuLevel::ALL[..5]);
        options.set_target_cpu("baseline").unwrap();
        assert_eq!(levels(&options), [CpuLevel::Baseline]);
        options.levels = vec![CpuLevel::X86_64V4, CpuLevel::Baseline, CpuLevel::X86_64V4];
        assert_eq!(levels(&options), [CpuLevel::Baseline, CpuLevel::X86_64V4]);
        options.set_target_cpu("haswell").unwrap();
        assert_eq!(levels(&options), [CpuLevel::X86_64V3]);
        options.set_target_cpu(PORTABLE).unwrap();
        assert_eq!(levels(&options), CpuLevel::ALL[1..5]);
        let error = options.set_target_cpu("cray").unwrap_err().to_string();
        assert!(error.contains("`cray`") && error.contains("portable"), "{error}");
    }

    #[test]
    fn sizes_parse_back_and_what_is_none_lists_the_forms() {
        let forms = [8.into(), (1..=32).into(), (2..).into(), [32, 128].into(), DimSize::from(..)];
        for (size, text) in forms.into_iter().zip(["8", "1..=32", "2..", "32,128", "1.."]) {
            assert_eq!(size.to_string(), text);
            assert_eq!(text.parse(), Ok(size));
        }
        assert_eq!("..".parse(), Ok(DimSize::from(..)));
        assert_eq!("128, 32,32".parse(), Ok(DimSize::from([32, 128])));
        for text in ["", "a", "1..5", "..=5", "1..=", "a..", "1,,2", "1,a"] {
            let error = text.parse::<DimSize>().unwrap_err().to_string();
            assert!(error.contains("as 1..=32") && error.contains(text), "{error}");
        }
        assert!(DimSize::from([32, 128]).allows(77) && !DimSize::from([32, 128]).allows(129));
    }

    #[test]
    fn backends_parse_back_and_an_unknown_one_lists_the_others() {
        for &backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "cuda".parse::<Backend>().unwrap_err().to_string();
        assert!(error.starts_with("`cuda` is not a backend of this build; it has c"), "{error}");
    }

    #[cfg(not(feature = "llvm"))]
    #[test]
    fn a_build_without_llvm_says_how_to_get_one() {
        let error = "llvm".parse::<Backend>().unwrap_err().to_string();
        assert!(error.contains("feature `llvm`") && error.contains("llvm-19-dev"), "{error}");
    }
}
