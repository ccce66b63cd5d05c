//! The choice among a model's CPU levels in C, for programs without the Rust runtime.

use std::fmt::Write;

use niello_runtime::CpuLevel;

/// How a kind of machine is asked.
struct Kind {
    /// The condition of the preprocessor that holds there.
    guard: &'static str,
    /// What declares and fills the variables that conditions use, and opens a block with `level_ok`.
    before: &'static str,
    /// The levels, narrowest first, each with its condition in C, beside those of narrower ones.
    levels: &'static [(CpuLevel, &'static str)],
    after: &'static str,
}

/// By CPUID and XGETBV.
const X86_64: Kind = Kind {
    guard: "defined(__x86_64__) && defined(__GNUC__)",
    before: "    unsigned a, b, c, d;
    __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(c), \"=d\"(d) : \"a\"(0), \"c\"(0));
    if (a >= 7) {
        unsigned leaf_1, leaf_7, leaf_7_ecx, leaf_7_edx, extended, xcr0 = 0, level_ok = 1;
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(leaf_1), \"=d\"(d) : \"a\"(1), \"c\"(0));
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(leaf_7), \"=c\"(leaf_7_ecx), \"=d\"(leaf_7_edx)
                         : \"a\"(7), \"c\"(0));
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(extended), \"=d\"(d)
                         : \"a\"(0x80000001), \"c\"(0));
        if (leaf_1 >> 27 & 1)
            __asm__ volatile(\"xgetbv\" : \"=a\"(xcr0), \"=d\"(d) : \"c\"(0));
",
    levels: &[
        (
            CpuLevel::X86_64V3,
            "        /* SSE3, SSSE3, FMA, CX16, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C; BMI1, AVX2,
           BMI2; LZCNT; and the system saves XMM and YMM registers. */
        level_ok = level_ok && (leaf_1 & 0x38d83201) == 0x38d83201
            && (leaf_7 & 0x128) == 0x128 && (extended & 0x20) && (xcr0 & 0x6) == 0x6;
",
        ),
        (
            CpuLevel::X86_64V4,
            "        /* AVX-512 F, DQ, CD, BW, VL; and the system saves mask and ZMM registers. */
        level_ok = level_ok && (leaf_7 & 0xd0030000) == 0xd0030000 && (xcr0 & 0xe0) == 0xe0;
",
        ),
        (
            CpuLevel::X86_64V4Vnni,
            "        /* AVX512-VNNI. */
        level_ok = level_ok && (leaf_7_ecx & 0x800);
",
        ),
        (
            CpuLevel::X86_64V4Amx,
            "        /* AMX-TILE, AMX-INT8; and Linux, asked to, saves their registers. */
        level_ok = level_ok && (leaf_7_edx & 0x3000000) == 0x3000000 && (xcr0 & 0x60000) == 0x60000;
#if defined(__linux__) && defined(__LP64__)
        if (level_ok) {
            long refused = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
            __asm__ volatile(\"syscall\" : \"+a\"(refused) : \"D\"(0x1023L), \"S\"(18L)
                             : \"rcx\", \"r11\", \"memory\");
            level_ok = !refused;
        }
#else
        level_ok = 0;
#endif
",
        ),
    ],
    after: "        (void)leaf_7_ecx;\n        (void)leaf_7_edx;\n",
};

/// By what Linux and Apple's systems say of the processor. Their functions have names of their own
/// here, as the program may include the headers that declare them.
const AARCH64: Kind = Kind {
    guard: "defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))",
    before: "    {
        unsigned fp16 = 0, dotprod = 0, i8mm = 0, level_ok = 1;
#if defined(__linux__)
        extern unsigned long niello_getauxval(unsigned long) __asm__(\"getauxval\");
        fp16 = niello_getauxval(16) >> 10 & 1;
        dotprod = niello_getauxval(16) >> 20 & 1;
        i8mm = niello_getauxval(26) >> 13 & 1;
#else
        extern int niello_sysctl(const char *, void *, unsigned long *, void *, unsigned long)
            __asm__(\"_sysctlbyname\");
        unsigned long bytes = sizeof(unsigned);
        if (niello_sysctl(\"hw.optional.arm.FEAT_FP16\", &fp16, &bytes, 0, 0))
            fp16 = 0;
        bytes = sizeof(unsigned);
        if (niello_sysctl(\"hw.optional.arm.FEAT_DotProd\", &dotprod, &bytes, 0, 0))
            dotprod = 0;
        bytes = sizeof(unsigned);
        if (niello_sysctl(\"hw.optional.arm.FEAT_I8MM\", &i8mm, &bytes, 0, 0))
            i8mm = 0;
#endif
",
    levels: &[
        (
            CpuLevel::Aarch64Fp16,
            "        /* FEAT_FP16. */
        level_ok = level_ok && fp16;
",
        ),
        (
            CpuLevel::Aarch64Dotprod,
            "        /* FEAT_DotProd. */
        level_ok = level_ok && dotprod;
",
        ),
        (
            CpuLevel::Aarch64I8mm,
            "        /* FEAT_I8MM. */
        level_ok = level_ok && i8mm;
",
        ),
    ],
    after: "",
};

/// A function `static unsigned <name>(void)` that returns the place of the widest of `levels`,
/// narrowest first, that the machine can run. It asks the CPU once, and needs no header. Of a single level
/// it asks the system alone, if that has to be.
pub fn level_function(name: &str, levels: &[CpuLevel]) -> String {
    let names: Vec<&str> = levels.iter().map(|level| level.name()).collect();
    let mut text = format!(
        "/* Which of the model's CPU levels this machine can run: {}. */\n\
         static inline unsigned {name}(void) {{\n",
        names.join(", ")
    );
    // The first one runs everywhere, if the system lets it.
    let known = usize::from(levels.first() != Some(&CpuLevel::X86_64V4Amx));
    let asked = levels.get(known..).unwrap_or_default();
    for kind in [X86_64, AARCH64] {
        let Some(last) = kind.levels.iter().rposition(|(level, _)| asked.contains(level)) else {
            continue;
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "#if {}
    static unsigned known; /* one more than the level */
    unsigned level = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (level)
        return level - 1;
{}",
            kind.guard, kind.before
        );
        for (level, condition) in &kind.levels[..=last] {
            text.push_str(condition);
            if let Some(place) = levels.iter().position(|other| other == level) {
                let _ = writeln!(text, "        if (level_ok)\n            level = {place};");
            }
        }
        let _ = write!(
            text,
            "{}    }}
    __atomic_store_n(&known, level + 1, __ATOMIC_RELAXED);
    return level;
#endif
",
            kind.after
        );
    }
    text.push_str("    return 0;\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::testing::LoadedFunction;
    use crate::target::Target;

    /// Rust's standard library has another implementation.
    #[test]
    fn c_and_rust_agree_on_this_machines_level() {
        let native = Target::host().with_cpu("native").unwrap();
        let runs = |level: &CpuLevel| {
            let target = Target::host().with_level(*level);
            target.is_some_and(|target| target.features.is_subset(&native.features))
        };
        for levels in [
            &CpuLevel::ALL[..],
            &[CpuLevel::X86_64V3, CpuLevel::X86_64V4],
            &[CpuLevel::Baseline, CpuLevel::X86_64V4],
            &[CpuLevel::X86_64V4, CpuLevel::X86_64V4Vnni],
            &[CpuLevel::X86_64V4Vnni, CpuLevel::X86_64V4Amx],
            &[CpuLevel::X86_64V4Amx],
            &[CpuLevel::Baseline, CpuLevel::Aarch64I8mm],
            &[CpuLevel::X86_64V4],
        ] {
            let text = level_function("level", levels);
            let found = LoadedFunction::call(&text, "level");
            let expected = levels.iter().rposition(runs).unwrap_or(0);
            assert_eq!(found as usize, expected, "{levels:?}\n{text}");
        }
    }
}
