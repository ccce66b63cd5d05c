//! The machine that code is generated for.

mod cost;
mod features;
mod registered;
mod triple;

use std::collections::BTreeSet;
use std::fmt;

pub use cost::{CHANNEL_BLOCK, ConvCosts};
pub use niello_runtime::CpuLevel;
pub use registered::{CpuDef, CpuEntry};

/// Order of the bytes of a number in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Endian {
    /// Lowest byte first.
    #[default]
    Little,
    /// Highest byte first.
    Big,
}

/// The machine that code is generated for, in rustc's words.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The triple: `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// The architecture as in `cfg(target_arch)`: `x86_64`, `aarch64` …
    pub arch: String,
    /// The operating system as in `cfg(target_os)`: `linux`, `macos`, `windows`, `none` …
    pub os: String,
    /// Features that code may use without asking, as in `cfg(target_feature)`: `avx2`, `fma`,
    /// `neon` …
    pub features: BTreeSet<String>,
    /// The CPU that was asked for by name, if any; its features are in `features`.
    pub cpu: Option<String>,
    /// Width in bits of the widest vectors that code may use, if they are to be narrower than the
    /// widest registers.
    pub vector_width: Option<u64>,
    /// Width of a pointer in bits.
    pub pointer_width: u32,
    /// Order of bytes.
    pub endian: Endian,
}

/// Why a target cannot be described.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// A variable that Cargo sets for build scripts is missing or not Unicode.
    MissingVariable(&'static str),
    /// A variable has a value of the wrong form: its name and its value.
    BadVariable(&'static str, String),
    /// The CPU is not one that is known for the architecture: CPU and architecture.
    UnknownCpu(String, String),
    /// A CPU of that name is registered at several places, which are named.
    AmbiguousCpu(String, String),
    /// No machine of that architecture is known.
    UnknownArch(String),
    /// `native` was asked for, but the code, whose triple is named, is not for this machine's
    /// architecture or system.
    NotNative(String),
    /// The feature is not one that is known for the architecture: feature and architecture.
    UnknownFeature(String, String),
    /// Vectors of that many bits cannot be had, as the target's widest have so many.
    BadVectorWidth {
        /// What was asked for.
        asked: u64,
        /// Bits of the widest registers; 0 if there are no vectors.
        widest: u64,
    },
    /// The triple's text is not understood: the triple, and what of it.
    UnknownTriple(String, String),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::MissingVariable(name) => {
                write!(
                    f,
                    "the environment variable {name} is not set; Cargo sets it for build scripts"
                )
            }
            TargetError::BadVariable(name, value) => {
                write!(
                    f,
                    "the environment variable {name} has the value `{value}`, which cannot be understood"
                )
            }
            TargetError::UnknownCpu(cpu, arch) => {
                let known: Vec<_> = known_cpus(arch).collect();
                write!(
                    f,
                    "`{cpu}` is not a CPU that is known for {arch}; known are portable, baseline, native"
                )?;
                for name in known {
                    write!(f, ", {name}")?;
                }
                Ok(())
            }
            TargetError::AmbiguousCpu(cpu, places) => {
                write!(f, "the CPU `{cpu}` is registered at {places}: which one is meant?")
            }
            TargetError::UnknownArch(arch) => {
                let mut known: Vec<_> = CPUS.iter().map(|(arch, _, _)| *arch).collect();
                known.dedup();
                write!(
                    f,
                    "`{arch}` is not an architecture that is known; known are {}",
                    known.join(", ")
                )
            }
            TargetError::NotNative(triple) => {
                write!(
                    f,
                    "the CPU `native` cannot be used, as the code is for {triple} and this machine \
                     is {}",
                    Target::host().triple
                )
            }
            TargetError::UnknownFeature(feature, arch) => {
                let known: Vec<_> = features::known(arch).collect();
                match known.is_empty() {
                    true => write!(
                        f,
                        "`{feature}` is not a CPU feature that is known for {arch}: none is"
                    ),
                    false => write!(
                        f,
                        "`{feature}` is not a CPU feature that is known for {arch}; known are {}",
                        known.join(", ")
                    ),
                }
            }
            TargetError::BadVectorWidth { asked, widest: 0 } => {
                write!(f, "vectors of {asked} bits were asked for, but the target has no vectors")
            }
            TargetError::BadVectorWidth { asked, widest } => {
                write!(
                    f,
                    "vectors of {asked} bits were asked for; the target has registers of {widest} \
                     bits, and a width is 64 bits or a multiple of it by a power of two"
                )
            }
            TargetError::UnknownTriple(triple, what) => {
                write!(f, "the target triple `{triple}` is not understood: {what}")
            }
        }
    }
}

impl std::error::Error for TargetError {}

/// Features that each level adds to the one before it.
const X86_64_V1: &[&str] = &["fxsr", "sse", "sse2"];
const X86_64_V2: &[&str] = &["cmpxchg16b", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"];
const X86_64_V3: &[&str] =
    &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"];
const X86_64_V4: &[&str] = &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"];
const AVX512_VNNI: &[&str] = &["avx512vnni"];
const AMX: &[&str] = &["amx-int8", "amx-tile"];
const NEON: &[&str] = &["neon"];
const DOTPROD: &[&str] = &["dotprod"];
const FP16: &[&str] = &["fp16"];
const I8MM: &[&str] = &["i8mm"];
const BF16: &[&str] = &["bf16"];
const SIMD128: &[&str] = &["simd128"];
const VFP4: &[&str] = &["vfp4"];
const V: &[&str] = &["v"];

/// Architecture, CPU in the words of C compilers and of rustc, groups of features.
///
/// Only features that decide which kernels can be used are listed.
const CPUS: &[(&str, &str, &[&[&str]])] = &[
    ("x86_64", "x86-64", &[X86_64_V1]),
    ("x86_64", "x86-64-v2", &[X86_64_V1, X86_64_V2]),
    ("x86_64", "x86-64-v3", &[X86_64_V1, X86_64_V2, X86_64_V3]),
    ("x86_64", "x86-64-v4", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4]),
    ("x86_64", "x86-64-v4-vnni", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI]),
    ("x86_64", "x86-64-v4-amx", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI, AMX]),
    ("x86_64", "haswell", &[X86_64_V1, X86_64_V2, X86_64_V3]),
    ("x86_64", "skylake", &[X86_64_V1, X86_64_V2, X86_64_V3]),
    ("x86_64", "skylake-avx512", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4]),
    ("x86_64", "cascadelake", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI]),
    ("x86_64", "icelake-server", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI]),
    ("x86_64", "sapphirerapids", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI, AMX]),
    ("x86_64", "znver2", &[X86_64_V1, X86_64_V2, X86_64_V3]),
    ("x86_64", "znver3", &[X86_64_V1, X86_64_V2, X86_64_V3]),
    ("x86_64", "znver4", &[X86_64_V1, X86_64_V2, X86_64_V3, X86_64_V4, AVX512_VNNI]),
    ("aarch64", "generic", &[NEON]),
    ("aarch64", "cortex-a53", &[NEON]),
    ("aarch64", "cortex-a72", &[NEON]),
    ("aarch64", "aarch64-fp16", &[NEON, FP16]),
    ("aarch64", "aarch64-dotprod", &[NEON, FP16, DOTPROD]),
    ("aarch64", "aarch64-i8mm", &[NEON, FP16, DOTPROD, I8MM]),
    ("aarch64", "cortex-a76", &[NEON, DOTPROD, FP16]),
    ("aarch64", "neoverse-n1", &[NEON, DOTPROD, FP16]),
    ("aarch64", "neoverse-v1", &[NEON, DOTPROD, FP16, I8MM, BF16]),
    ("aarch64", "apple-m1", &[NEON, DOTPROD, FP16]),
    ("aarch64", "apple-m2", &[NEON, DOTPROD, FP16, I8MM, BF16]),
    ("arm", "generic", &[]),
    ("arm", "cortex-a7", &[NEON, VFP4]),
    ("arm", "cortex-a9", &[NEON]),
    ("arm", "cortex-a15", &[NEON, VFP4]),
    ("arm", "cortex-m0", &[]),
    ("arm", "cortex-m0plus", &[]),
    ("arm", "cortex-m3", &[]),
    ("arm", "cortex-m4", &[]),
    ("arm", "cortex-m7", &[]),
    ("arm", "cortex-m33", &[]),
    ("riscv64", "generic", &[]),
    ("riscv64", "rv64gcv", &[V]),
    ("wasm32", "generic", &[]),
    ("wasm32", "simd128", &[SIMD128]),
];

/// Names of the CPUs of an architecture, in the table's order, then those of other crates.
fn known_cpus(arch: &str) -> impl Iterator<Item = &'static str> {
    let own = CPUS.iter().filter(move |row| row.0 == arch).map(|row| row.1);
    own.chain(registered::names(arch))
}

impl Target {
    /// This machine's kind, with the features that this build of niello itself may use: what code
    /// that runs on every machine of the kind may use.
    pub fn host() -> Self {
        let arch = std::env::consts::ARCH;
        let os = std::env::consts::OS;
        let triple = env!("NIELLO_HOST");
        // A triple says more than the architecture: 32-bit x86 has SSE2, or not.
        let features = match Target::from_triple(triple) {
            Ok(target) => target.features,
            Err(_) => baseline_features(arch, os),
        };
        Target {
            triple: triple.to_owned(),
            arch: arch.to_owned(),
            os: os.to_owned(),
            features,
            cpu: None,
            vector_width: None,
            pointer_width: usize::BITS,
            endian: if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little },
        }
    }

    /// The machine that Cargo builds for, from the variables it sets for build scripts.
    ///
    /// `read` returns a variable's value; a caller that must report what it has read does so there.
    ///
    /// # Errors
    ///
    /// A variable that Cargo always sets is missing or malformed: this is not a build script.
    pub fn from_cargo_env(
        mut read: impl FnMut(&'static str) -> Option<String>,
    ) -> Result<Self, TargetError> {
        let mut required = |name| read(name).ok_or(TargetError::MissingVariable(name));
        let triple = required("TARGET")?;
        let arch = required("CARGO_CFG_TARGET_ARCH")?;
        let os = required("CARGO_CFG_TARGET_OS")?;
        let width = required("CARGO_CFG_TARGET_POINTER_WIDTH")?;
        let endian = required("CARGO_CFG_TARGET_ENDIAN")?;
        // Cargo leaves the variable out where a target has no features at all.
        let features = read("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
        Ok(Target {
            triple,
            arch,
            os,
            features: features.split(',').filter(|f| !f.is_empty()).map(str::to_owned).collect(),
            // The features of a `-C target-cpu` are in CARGO_CFG_TARGET_FEATURE already.
            cpu: None,
            vector_width: None,
            pointer_width: width.parse().map_err(|_| {
                TargetError::BadVariable("CARGO_CFG_TARGET_POINTER_WIDTH", width.clone())
            })?,
            endian: match endian.as_str() {
                "little" => Endian::Little,
                "big" => Endian::Big,
                _ => return Err(TargetError::BadVariable("CARGO_CFG_TARGET_ENDIAN", endian)),
            },
        })
    }

    /// The same machine with the CPU `cpu`, whose features replace the ones so far; `native` is the
    /// CPU that this program runs on.
    ///
    /// # Errors
    ///
    /// The CPU is not known for the architecture, or `native` is asked for another kind of machine;
    /// a CPU that is [registered](crate::register_cpu) has no such feature, or is not the only one.
    pub fn with_cpu(mut self, cpu: &str) -> Result<Self, TargetError> {
        if let Some(def) = registered::find(&self.arch, cpu)? {
            self.features.clear();
            self.cpu = Some(cpu.to_owned());
            return def.features.iter().try_fold(self, |own, name| own.with_feature(name, true));
        }
        self.features = if cpu == "native" {
            if !self.is_host_kind() {
                return Err(TargetError::NotNative(self.triple));
            }
            native_features()
        } else {
            let row = CPUS.iter().find(|row| row.0 == self.arch && row.1 == cpu);
            let (_, _, groups) =
                row.ok_or_else(|| TargetError::UnknownCpu(cpu.to_owned(), self.arch.clone()))?;
            groups.iter().flat_map(|group| group.iter()).map(|f| (*f).to_owned()).collect()
        };
        self.cpu = Some(cpu.to_owned());
        Ok(self)
    }

    /// A machine by its architecture and, behind a space, its CPU, as in `x86_64 x86-64-v3`; the
    /// least CPU of the architecture unless one is given. The rest is as on this machine.
    ///
    /// # Errors
    ///
    /// The architecture is not known or has no such CPU, or `native` is asked for another
    /// architecture.
    pub fn of_machine(text: &str) -> Result<Self, TargetError> {
        let (arch, cpu) = match text.trim().split_once(' ') {
            Some((arch, cpu)) => (arch, Some(cpu.trim())),
            None => (text.trim(), None),
        };
        let Some(least) = known_cpus(arch).next() else {
            return Err(TargetError::UnknownArch(arch.to_owned()));
        };
        let host = Target::host();
        let triple = host.triple.replacen(&host.arch, arch, 1);
        Target { triple, arch: arch.to_owned(), ..host }.with_cpu(cpu.unwrap_or(least))
    }

    /// The widest CPU level all of which code for this target may use.
    pub fn cpu_level(&self) -> CpuLevel {
        let has_all = |features: &[&str]| features.iter().all(|feature| self.has_feature(feature));
        let has_v4 = has_all(X86_64_V3) && has_all(X86_64_V4);
        match self.arch.as_str() {
            "x86_64" if has_v4 && has_all(AVX512_VNNI) && has_all(AMX) => CpuLevel::X86_64V4Amx,
            "x86_64" if has_v4 && has_all(AVX512_VNNI) => CpuLevel::X86_64V4Vnni,
            "x86_64" if has_v4 => CpuLevel::X86_64V4,
            "x86_64" if has_all(X86_64_V3) => CpuLevel::X86_64V3,
            "aarch64" if has_all(NEON) && has_all(FP16) => {
                match (has_all(DOTPROD), has_all(I8MM)) {
                    (true, true) => CpuLevel::Aarch64I8mm,
                    (true, false) => CpuLevel::Aarch64Dotprod,
                    (false, _) => CpuLevel::Aarch64Fp16,
                }
            }
            _ => CpuLevel::Baseline,
        }
    }

    /// The same machine with all that a CPU level has beside its own features; `None` if it has no
    /// such level.
    pub fn with_level(&self, level: CpuLevel) -> Option<Target> {
        let (_, cpu, groups) =
            CPUS.iter().find(|row| row.0 == self.arch && row.1 == level.name())?;
        let mut target = self.clone();
        target.features.extend(groups.iter().flat_map(|group| group.iter()).map(|f| (*f).into()));
        target.cpu = Some((*cpu).to_owned());
        Some(target)
    }

    /// The CPU levels beyond this machine's own features that a program can find at run time,
    /// narrowest first.
    pub fn wider_levels(&self) -> Vec<CpuLevel> {
        // Without an operating system nobody may have switched the wide registers on, and kernels
        // of operating systems that go without floats have no use for them.
        if self.os == "none" || (self.arch == "x86_64" && !self.has_feature("sse2")) {
            return Vec::new();
        }
        let adds = |target: Target| {
            // Of an instruction that this system lets nobody use.
            if target.cpu_level() == CpuLevel::X86_64V4Amx && !target.has_matrix_add() {
                return false;
            }
            let has_halves = target.has_fp16_arithmetic() && !self.has_fp16_arithmetic();
            target.vector_bits() > self.vector_bits()
                || target.differs_for_bytes(self)
                || has_halves
        };
        let wider = |level: &CpuLevel| {
            *level > self.cpu_level() && self.with_level(*level).is_some_and(adds)
        };
        CpuLevel::ALL.into_iter().filter(wider).collect()
    }

    /// Whether it has other instructions for dot products of bytes than another machine.
    fn differs_for_bytes(&self, other: &Target) -> bool {
        let has_dot_add = |target: &Target| [4, 8, 16].map(|lanes| target.has_dot_add(lanes));
        has_dot_add(self) != has_dot_add(other)
            || self.has_matrix_add() != other.has_matrix_add()
            || self.has_dot_add_of_signs() != other.has_dot_add_of_signs()
    }

    /// Whether code may use `feature` without asking.
    pub fn has_feature(&self, feature: &str) -> bool {
        self.features.contains(feature)
    }

    /// Width in bits of the widest vectors that code uses: of the widest registers that pay off,
    /// unless [`vector_width`](field@Self::vector_width) is less; 0 if there are none.
    pub fn vector_bits(&self) -> u64 {
        let widest = self.register_bits();
        self.vector_width.map_or(widest, |width| width.min(widest))
    }

    /// Width in bits of the widest vector registers that pay off, or 0 if there are none.
    fn register_bits(&self) -> u64 {
        let has = |feature| self.has_feature(feature);
        match self.arch.as_str() {
            "x86" | "x86_64" if has("avx512f") && has("avx512bw") && has("avx512vl") => 512,
            // AVX alone has no integer instructions of this width.
            "x86" | "x86_64" if has("avx2") => 256,
            "x86" | "x86_64" if has("sse2") => 128,
            "aarch64" | "arm" if has("neon") => 128,
            "wasm32" | "wasm64" if has("simd128") => 128,
            // Registers may be wider; no program needs to ask for so much.
            "riscv64" if has("v") => 128,
            _ => 0,
        }
    }

    /// Whether `a * b + c` rounded once is an instruction for `float32` and `float64`.
    pub fn has_fma(&self) -> bool {
        match self.arch.as_str() {
            "x86" | "x86_64" => self.has_feature("fma"),
            "aarch64" => self.has_feature("neon"),
            "arm" => self.has_feature("neon") && self.has_feature("vfp4"),
            // rustc's stable features leave out that of floats.
            "riscv64" => self.triple.starts_with("riscv64gc"),
            "powerpc64" | "s390x" => true,
            _ => false,
        }
    }

    /// Whether there is a mode in which denormal `float32` and `float64` count as zeros.
    pub fn can_flush_denormals(&self) -> bool {
        match self.arch.as_str() {
            "x86" | "x86_64" => self.has_feature("sse2"),
            "aarch64" => self.has_feature("neon"),
            _ => false,
        }
    }

    /// Whether multiplying a `float32` by a power of two, rounded once, is an instruction.
    pub fn has_ldexp(&self) -> bool {
        let has = |feature| self.has_feature(feature);
        matches!(self.arch.as_str(), "x86" | "x86_64") && has("avx512f") && has("avx512vl")
    }

    /// Whether `float16` is converted to `float32` and back by an instruction.
    pub fn has_fp16_conversion(&self) -> bool {
        match self.arch.as_str() {
            "x86" | "x86_64" => self.has_feature("f16c"),
            "aarch64" => self.has_feature("neon"),
            _ => false,
        }
    }

    /// Whether there is arithmetic of `float16`, in twice as many lanes as of `float32`.
    ///
    /// That of x86 (AVX512-FP16) is not used: its vectors are wider than a block of channels.
    pub fn has_fp16_arithmetic(&self) -> bool {
        self.arch == "aarch64" && self.has_feature("neon") && self.has_feature("fp16")
    }

    /// Whether products of `uint8` and `int8`, four of which are added to each of so many `int32`,
    /// are an instruction, or a few around one.
    pub fn has_dot_add(&self, lanes: u32) -> bool {
        let has = |feature| self.has_feature(feature);
        match (self.arch.as_str(), lanes) {
            ("x86" | "x86_64", 16) => has("avx512vnni") && self.vector_bits() >= 512,
            ("x86" | "x86_64", 4 | 8) => has("avxvnni") || (has("avx512vnni") && has("avx512vl")),
            ("aarch64", 4) => has("dotprod"),
            _ => false,
        }
    }

    /// Whether an instruction for dot products of bytes takes unsigned and signed ones at once; that of
    /// AArch64 without FEAT_I8MM takes those of one sign.
    pub fn has_dot_add_of_signs(&self) -> bool {
        self.arch != "aarch64" || self.has_feature("i8mm")
    }

    /// Whether the product of a matrix of `uint8` and one of `int8`, up to 16 rows of 64 terms by 16
    /// columns, is added to `int32` by an instruction. Only code that the system has let use the
    /// registers may: see [`CpuLevel::X86_64V4Amx`].
    pub fn has_matrix_add(&self) -> bool {
        let is_wide = self.has_dot_add(16) && self.pointer_width == 64;
        self.arch == "x86_64" && self.os == "linux" && is_wide && self.has_feature("amx-int8")
    }

    /// Whether products of `int16`, two of which are added to each of so many `int32`, are an
    /// instruction, or two: with all that twice there is a dot product of bytes.
    pub fn has_pair_add(&self, lanes: u32) -> bool {
        let feature = match (self.arch.as_str(), lanes) {
            ("x86" | "x86_64", 4) => "sse2",
            ("x86" | "x86_64", 8) => "avx2",
            ("x86" | "x86_64", 16) if self.vector_bits() >= 512 => "avx512bw",
            ("aarch64", 4) => "neon",
            _ => return false,
        };
        self.has_feature(feature)
    }

    /// Whether products of any `int16`, two of which are added to each of so many `int32`, are an
    /// instruction.
    pub fn has_word_dot_add(&self, lanes: u32) -> bool {
        self.arch != "aarch64" && self.has_pair_add(lanes)
    }

    /// Whether rounding a float to an integer, in any direction, is an instruction.
    pub fn has_rounding(&self) -> bool {
        match self.arch.as_str() {
            "x86" | "x86_64" => self.has_feature("sse4.1"),
            "aarch64" => self.has_feature("neon"),
            _ => false,
        }
    }

    /// Whether code for this target can run on this machine, as far as kind and system go.
    pub fn is_host_kind(&self) -> bool {
        let is_same_system = self.arch == std::env::consts::ARCH && self.os == std::env::consts::OS;
        is_same_system && self.pointer_width == usize::BITS
    }
}

/// The CPU levels that differ from the one before them in instructions for bytes alone.
pub(crate) const LEVELS_FOR_BYTES: [CpuLevel; 4] = [
    CpuLevel::X86_64V4Vnni,
    CpuLevel::X86_64V4Amx,
    CpuLevel::Aarch64Dotprod,
    CpuLevel::Aarch64I8mm,
];

/// The CPU level that differs from the one before it in arithmetic of `float16` alone.
pub(crate) const LEVEL_FOR_HALVES: CpuLevel = CpuLevel::Aarch64Fp16;

/// The least features of an architecture's hosted targets.
fn baseline_features(arch: &str, os: &str) -> BTreeSet<String> {
    let groups: &[&[&str]] = match arch {
        "x86_64" => &[X86_64_V1],
        // Of Macs, the first such processor is the M1.
        "aarch64" if os == "macos" => &[NEON, DOTPROD, FP16],
        "aarch64" => &[NEON],
        _ => &[],
    };
    groups.iter().flat_map(|group| group.iter()).map(|f| (*f).to_owned()).collect()
}

/// Detects each feature by its name with one of std's macros.
#[allow(unused_macros, reason = "only the architectures below have something to detect")]
macro_rules! detected {
    ($detect:ident: $($feature:tt)*) => {
        [$(($feature, std::arch::$detect!($feature))),*]
    };
}

/// Features of the CPU that this program runs on.
#[cfg(target_arch = "x86_64")]
fn native_features() -> BTreeSet<String> {
    let found = detected!(is_x86_feature_detected:
        "avx" "avx2" "avx512bw" "avx512cd" "avx512dq" "avx512f" "avx512vl" "avx512vnni"
        "avxvnni" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr" "lzcnt" "movbe" "popcnt" "sse" "sse2" "sse3"
        "sse4.1" "sse4.2" "ssse3" "xsave");
    let mut features: BTreeSet<String> =
        found.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect();
    // The system has to be asked as well.
    if niello_runtime::cpu_level() == CpuLevel::X86_64V4Amx {
        features.extend(AMX.iter().map(|name| (*name).to_owned()));
    }
    features
}

/// Features of the CPU that this program runs on.
#[cfg(target_arch = "aarch64")]
fn native_features() -> BTreeSet<String> {
    let found = detected!(is_aarch64_feature_detected: "bf16" "dotprod" "fp16" "i8mm" "neon");
    found.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

/// Features of the CPU that this program runs on.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn native_features() -> BTreeSet<String> {
    Target::host().features
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &'static str) -> Option<String> {
        let value = match name {
            "TARGET" => "aarch64-unknown-linux-gnu",
            "CARGO_CFG_TARGET_ARCH" => "aarch64",
            "CARGO_CFG_TARGET_OS" => "linux",
            "CARGO_CFG_TARGET_POINTER_WIDTH" => "64",
            "CARGO_CFG_TARGET_ENDIAN" => "little",
            "CARGO_CFG_TARGET_FEATURE" => "neon,dotprod",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn cargos_variables_describe_the_target() {
        let target = Target::from_cargo_env(variables).unwrap();
        assert_eq!((target.arch.as_str(), target.pointer_width), ("aarch64", 64));
        assert!(target.has_feature("dotprod") && !target.has_feature("i8mm"));

        let without = |name| variables(name).filter(|_| name != "CARGO_CFG_TARGET_FEATURE");
        assert!(Target::from_cargo_env(without).unwrap().features.is_empty());

        let error = Target::from_cargo_env(|name| variables(name).filter(|_| name != "TARGET"));
        assert_eq!(error, Err(TargetError::MissingVariable("TARGET")));
        let bad = |name| variables(name).map(|v| if v == "64" { "wide".to_owned() } else { v });
        assert!(
            matches!(Target::from_cargo_env(bad), Err(TargetError::BadVariable(_, v)) if v == "wide")
        );
    }

    #[test]
    fn a_cpu_replaces_the_features() {
        let mut target = Target::host();
        target.arch = "x86_64".to_owned();
        target.features = ["sse2".to_owned()].into();
        let v3 = target.clone().with_cpu("x86-64-v3").unwrap();
        assert!(v3.has_feature("fma") && v3.has_feature("sse2") && !v3.has_feature("avx512f"));
        let error = v3.with_cpu("pentium").unwrap_err().to_string();
        assert!(error.contains("`pentium`") && error.contains("x86-64-v4"), "{error}");
    }

    #[test]
    fn vectors_and_multiply_adds_are_those_of_the_cpu() {
        for (triple, cpu, bits, has_fma) in [
            ("armv7-unknown-linux-gnueabihf", "generic", 0, false),
            ("armv7-unknown-linux-gnueabihf", "cortex-a9", 128, false),
            ("armv7-unknown-linux-gnueabihf", "cortex-a7", 128, true),
            ("thumbv7em-none-eabihf", "cortex-m7", 0, false),
            ("riscv64gc-unknown-linux-gnu", "generic", 0, true),
            ("riscv64gc-unknown-linux-gnu", "rv64gcv", 128, true),
        ] {
            let target = Target::from_triple(triple).unwrap().with_cpu(cpu).unwrap();
            assert_eq!((target.vector_bits(), target.has_fma()), (bits, has_fma), "{cpu}");
            assert_eq!(target.wider_levels(), [], "no program can ask for more");
        }
    }

    #[test]
    fn levels_add_features_to_the_targets() {
        let linux = Target {
            triple: "x86_64-unknown-linux-gnu".to_owned(),
            arch: "x86_64".to_owned(),
            os: "linux".to_owned(),
            features: baseline_features("x86_64", "linux"),
            ..Target::host()
        };
        assert_eq!(linux.cpu_level(), CpuLevel::Baseline);
        assert_eq!(linux.wider_levels(), CpuLevel::ALL[1..5]);
        let mut custom = linux.clone();
        custom.features.extend(["avx", "avx2", "fma", "sha"].map(str::to_owned));
        // It lacks BMI, so it is no x86-64-v3, but AVX2 is what a version of its own would be for.
        assert_eq!(custom.wider_levels(), CpuLevel::ALL[2..5]);
        let wide = custom.with_level(CpuLevel::X86_64V4).unwrap();
        assert_eq!((wide.cpu_level(), wide.vector_bits()), (CpuLevel::X86_64V4, 512));
        assert!(wide.has_feature("sha"), "what every machine has stays");
        assert_eq!(wide.wider_levels(), [CpuLevel::X86_64V4Vnni, CpuLevel::X86_64V4Amx]);

        let bare = Target { os: "none".to_owned(), ..linux.clone() };
        assert_eq!(bare.wider_levels(), []);
        let arm = Target::from_triple("aarch64-unknown-linux-gnu").unwrap();
        assert_eq!(arm.with_level(CpuLevel::X86_64V3), None);
        assert_eq!(arm.cpu_level(), CpuLevel::Baseline);
        assert_eq!(arm.wider_levels(), CpuLevel::ALL[5..]);
        let fp16 = arm.clone().with_level(CpuLevel::Aarch64Fp16).unwrap();
        assert!(fp16.has_fp16_arithmetic() && !arm.has_fp16_arithmetic());
        let mac = Target::from_triple("aarch64-apple-darwin").unwrap();
        assert_eq!(mac.cpu_level(), CpuLevel::Aarch64Dotprod);
        assert_eq!(mac.wider_levels(), [CpuLevel::Aarch64I8mm]);
    }

    #[test]
    fn native_has_at_least_the_baseline_and_only_of_this_architecture() {
        let host = Target::host();
        let native = host.clone().with_cpu("native").unwrap();
        assert!(native.features.is_superset(&baseline_features(&host.arch, &host.os)));
        for triple in ["riscv64gc-unknown-linux-gnu", "x86_64-unknown-none", "i686-pc-windows-gnu"]
        {
            let foreign = Target::from_triple(triple).unwrap();
            assert_eq!(foreign.with_cpu("native"), Err(TargetError::NotNative(triple.to_owned())));
        }
    }
}
