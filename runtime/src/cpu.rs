//! CPU levels: which of a model's versions runs on this machine.

#[cfg(all(target_arch = "x86_64", not(target_env = "sgx")))]
mod x86_64;

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(all(target_arch = "x86_64", not(target_env = "sgx")))]
use x86_64::detect;

/// A set of instructions that code may use.
///
/// A model can have a version of its code for each of several levels. They read the same weights,
/// and the widest that the machine can run is chosen at the first call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CpuLevel {
    /// What every machine has that the program was compiled for: SSE2 on x86-64, NEON on AArch64.
    Baseline,
    /// AVX2, FMA and what else x86-64 CPUs have had since Haswell and Zen.
    X86_64V3,
    /// The above, and AVX-512 with its extensions F, BW, CD, DQ and VL.
    X86_64V4,
    /// The above, and dot products of bytes (AVX512-VNNI).
    X86_64V4Vnni,
    /// The above, and matrix products of bytes (AMX-INT8), which a program has to ask its system for.
    X86_64V4Amx,
    /// AArch64 with arithmetic of `float16` (FEAT_FP16): Cortex-A76, Apple M1.
    Aarch64Fp16,
    /// The above, and dot products of bytes of one sign (FEAT_DotProd), which the same processors have.
    Aarch64Dotprod,
    /// The above, and those of bytes of two signs (FEAT_I8MM): Neoverse V1, Apple M2.
    Aarch64I8mm,
}

impl CpuLevel {
    /// Every level, those of an architecture narrowest first.
    pub const ALL: [CpuLevel; 8] = [
        CpuLevel::Baseline,
        CpuLevel::X86_64V3,
        CpuLevel::X86_64V4,
        CpuLevel::X86_64V4Vnni,
        CpuLevel::X86_64V4Amx,
        CpuLevel::Aarch64Fp16,
        CpuLevel::Aarch64Dotprod,
        CpuLevel::Aarch64I8mm,
    ];

    /// The name, as in `NIELLO_CPU_LEVEL`: that of compilers, if they have one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CpuLevel::Baseline => "baseline",
            CpuLevel::X86_64V3 => "x86-64-v3",
            CpuLevel::X86_64V4 => "x86-64-v4",
            CpuLevel::X86_64V4Vnni => "x86-64-v4-vnni",
            CpuLevel::X86_64V4Amx => "x86-64-v4-amx",
            CpuLevel::Aarch64Fp16 => "aarch64-fp16",
            CpuLevel::Aarch64Dotprod => "aarch64-dotprod",
            CpuLevel::Aarch64I8mm => "aarch64-i8mm",
        }
    }

    /// Whether a machine whose widest level is `best` can run this one, which may be another
    /// architecture's.
    fn runs_with(self, best: CpuLevel) -> bool {
        let is_aarch64 = |level| level >= CpuLevel::Aarch64Fp16;
        self == CpuLevel::Baseline || (self <= best && is_aarch64(self) == is_aarch64(best))
    }

    /// The level of a name; `avx2`, `avx512`, `avx512vnni`, `amx`, `fp16`, `dotprod` and `i8mm` are
    /// understood as well.
    #[must_use]
    pub fn from_name(name: &str) -> Option<CpuLevel> {
        match name {
            "avx2" => Some(CpuLevel::X86_64V3),
            "avx512" => Some(CpuLevel::X86_64V4),
            "avx512vnni" => Some(CpuLevel::X86_64V4Vnni),
            "amx" => Some(CpuLevel::X86_64V4Amx),
            "fp16" => Some(CpuLevel::Aarch64Fp16),
            "dotprod" => Some(CpuLevel::Aarch64Dotprod),
            "i8mm" => Some(CpuLevel::Aarch64I8mm),
            _ => CpuLevel::ALL.into_iter().find(|level| level.name() == name),
        }
    }
}

impl fmt::Display for CpuLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The widest level that models use on this machine.
///
/// The CPU and the system are asked once in a process. With the feature `std`, the environment
/// variable `NIELLO_CPU_LEVEL` can name a narrower level (`baseline`, `x86-64-v3`, `x86-64-v4`,
/// `x86-64-v4-vnni`, `x86-64-v4-amx`, `aarch64-fp16`, `aarch64-dotprod`, `aarch64-i8mm`) to measure or
/// to reproduce results. A name that is not known, or a level that the machine does not have, is told once on the
/// standard error, and has no other effect: a program never runs instructions that its machine lacks.
///
/// For the matrix products of AMX, Linux is asked to save the registers that they have; no other system
/// is, and one that refuses leaves the level at `x86-64-v4-vnni`.
///
/// An AArch64 processor tells its system alone what it has, so that without `std` its level is that
/// of the features the program was compiled with.
#[must_use]
pub fn cpu_level() -> CpuLevel {
    /// 0 as long as nobody has asked; else the level's place in `ALL`, from 1.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    let chosen = CHOSEN.load(Ordering::Relaxed);
    if let Some(level) = chosen.checked_sub(1).and_then(|at| CpuLevel::ALL.get(usize::from(at))) {
        return *level;
    }
    let (level, refused) = choose();
    let known = level as u8 + 1;
    #[cfg(target_has_atomic = "8")]
    let first = CHOSEN.compare_exchange(0, known, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    // Whoever comes second there finds the same.
    #[cfg(not(target_has_atomic = "8"))]
    let first = {
        CHOSEN.store(known, Ordering::Relaxed);
        true
    };
    if first && let Some(refused) = refused {
        tell(&refused);
    }
    level
}

/// The place of the widest of `levels`, narrowest first, that this machine can run.
///
/// The first one every machine can run that the program was made for; nothing is asked if there is
/// no other, unless the system has to be.
#[doc(hidden)]
#[must_use]
pub fn version(levels: &[CpuLevel]) -> usize {
    if levels.len() <= 1 && levels != [CpuLevel::X86_64V4Amx] {
        return 0;
    }
    let best = cpu_level();
    levels.iter().rposition(|level| level.runs_with(best)).unwrap_or(0)
}

/// Why `NIELLO_CPU_LEVEL` has no effect.
#[cfg(any(feature = "std", test))]
#[derive(PartialEq, Debug)]
enum Refused<'a> {
    Unknown(&'a str),
    Missing { asked: CpuLevel, best: CpuLevel },
}

#[cfg(any(feature = "std", test))]
impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unknown(name) => {
                write!(f, "NIELLO_CPU_LEVEL is `{name}`, which is no CPU level; they are")?;
                for (position, level) in CpuLevel::ALL.into_iter().enumerate() {
                    write!(f, "{} {level}", if position == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Refused::Missing { asked, best } => write!(
                f,
                "NIELLO_CPU_LEVEL is {asked}, which this machine cannot run; models use {best}"
            ),
        }
    }
}

/// The level that a name asks for on a machine that can run `best`.
#[cfg(any(feature = "std", test))]
fn asked_for(name: &str, best: CpuLevel) -> Result<CpuLevel, Refused<'_>> {
    match CpuLevel::from_name(name) {
        None => Err(Refused::Unknown(name)),
        Some(asked) if asked.runs_with(best) => Ok(asked),
        Some(asked) => Err(Refused::Missing { asked, best }),
    }
}

/// The level to use, and what is to be told of the environment.
#[cfg(feature = "std")]
fn choose() -> (CpuLevel, Option<std::string::String>) {
    use std::string::ToString;

    let best = detect();
    let Some(name) = std::env::var_os("NIELLO_CPU_LEVEL").filter(|name| !name.is_empty()) else {
        return (best, None);
    };
    match asked_for(&name.to_string_lossy(), best) {
        Ok(level) => (level, None),
        Err(refused) => (best, Some(refused.to_string())),
    }
}

/// The level to use; there is no environment.
#[cfg(not(feature = "std"))]
fn choose() -> (CpuLevel, Option<core::convert::Infallible>) {
    (detect(), None)
}

#[cfg(feature = "std")]
fn tell(refused: &str) {
    use std::io::Write as _;

    // Nobody may be listening; the model runs all the same.
    let _ = std::writeln!(std::io::stderr(), "niello: {refused}");
}

#[cfg(not(feature = "std"))]
fn tell(refused: &core::convert::Infallible) {
    match *refused {}
}

/// Whether this machine has a feature of AArch64: as the system says, or as the program needs.
#[cfg(target_arch = "aarch64")]
macro_rules! has {
    ($feature:tt) => {{
        #[cfg(feature = "std")]
        let has = std::arch::is_aarch64_feature_detected!($feature);
        #[cfg(not(feature = "std"))]
        let has = cfg!(target_feature = $feature);
        has
    }};
}

/// What this machine can run.
#[cfg(target_arch = "aarch64")]
fn detect() -> CpuLevel {
    match (has!("fp16"), has!("dotprod"), has!("i8mm")) {
        (true, true, true) => CpuLevel::Aarch64I8mm,
        (true, true, false) => CpuLevel::Aarch64Dotprod,
        (true, false, _) => CpuLevel::Aarch64Fp16,
        (false, ..) => CpuLevel::Baseline,
    }
}

/// What this machine can run: elsewhere there is one level, and an enclave may not ask its CPU.
#[cfg(not(any(all(target_arch = "x86_64", not(target_env = "sgx")), target_arch = "aarch64")))]
fn detect() -> CpuLevel {
    CpuLevel::Baseline
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_name_can_ask_for_less_but_not_for_more() {
        for best in [CpuLevel::X86_64V4Amx, CpuLevel::Aarch64I8mm] {
            let [own, other]: [Vec<CpuLevel>; 2] = [true, false].map(|is_own| {
                let levels = CpuLevel::ALL.into_iter();
                levels.filter(|level| asked_for(level.name(), best).is_ok() == is_own).collect()
            });
            let arm = &CpuLevel::ALL[5..];
            let x86 = &CpuLevel::ALL[1..5];
            let (widest, others) =
                if best == CpuLevel::X86_64V4Amx { (x86, arm) } else { (arm, x86) };
            assert_eq!(own, [&[CpuLevel::Baseline], widest].concat());
            assert_eq!(other, others);
        }
        assert!(
            CpuLevel::ALL.iter().all(|level| CpuLevel::from_name(level.name()) == Some(*level))
        );
        assert_eq!(asked_for("avx2", CpuLevel::X86_64V3), Ok(CpuLevel::X86_64V3));
        let missing = asked_for("avx512", CpuLevel::X86_64V3).unwrap_err().to_string();
        assert_eq!(
            missing,
            "NIELLO_CPU_LEVEL is x86-64-v4, which this machine cannot run; models use x86-64-v3"
        );
        let unknown = asked_for("sse9", CpuLevel::X86_64V4).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "NIELLO_CPU_LEVEL is `sse9`, which is no CPU level; they are baseline, x86-64-v3, \
             x86-64-v4, x86-64-v4-vnni, x86-64-v4-amx, aarch64-fp16, aarch64-dotprod, aarch64-i8mm"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the processor, which Miri has not")]
    fn the_widest_version_that_runs_is_chosen() {
        let best = cpu_level();
        assert_eq!(cpu_level(), best, "the answer does not change");
        let place = version(&CpuLevel::ALL);
        assert_eq!(CpuLevel::ALL[place], best);
        assert_eq!(version(&[CpuLevel::X86_64V4]), 0, "a single version is all there is");
        let narrow = [CpuLevel::X86_64V3, CpuLevel::X86_64V4];
        let expected = usize::from(CpuLevel::X86_64V4.runs_with(best));
        assert_eq!(version(&narrow), expected);
    }
}
