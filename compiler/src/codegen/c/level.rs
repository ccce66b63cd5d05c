//! The choice among a model's CPU levels in C, for programs without the Rust runtime.

use std::fmt::Write;

use niello_runtime::CpuLevel;

/// What CPUID and XGETBV must say of a level: its condition in C, beside those of narrower levels.
fn condition(level: CpuLevel) -> &'static str {
    match level {
        CpuLevel::X86_64V3 => {
            "        /* SSE3, SSSE3, FMA, CX16, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C; BMI1, AVX2,
           BMI2; LZCNT; and the system saves XMM and YMM registers. */
        level_ok = level_ok && (leaf_1 & 0x38d83201) == 0x38d83201
            && (leaf_7 & 0x128) == 0x128 && (extended & 0x20) && (xcr0 & 0x6) == 0x6;
"
        }
        CpuLevel::X86_64V4 => {
            "        /* AVX-512 F, DQ, CD, BW, VL; and the system saves mask and ZMM registers. */
        level_ok = level_ok && (leaf_7 & 0xd0030000) == 0xd0030000 && (xcr0 & 0xe0) == 0xe0;
"
        }
        CpuLevel::X86_64V4Vnni => {
            "        /* AVX512-VNNI. */
        level_ok = level_ok && (leaf_7_ecx & 0x800);
"
        }
        // Nothing more than the program itself needs.
        _ => "",
    }
}

/// A function `static unsigned <name>(void)` that returns the place of the widest of `levels`,
/// narrowest first, that the machine can run. It asks the CPU once, and needs no header.
pub fn level_function(name: &str, levels: &[CpuLevel]) -> String {
    let names: Vec<&str> = levels.iter().map(|level| level.name()).collect();
    let mut text = format!(
        "/* Which of the model's CPU levels this machine can run: {}. */\n\
         static inline unsigned {name}(void) {{\n",
        names.join(", ")
    );
    if levels.len() > 1 {
        text.push_str(
            "\
#if defined(__x86_64__) && defined(__GNUC__)
    static unsigned known; /* one more than the level */
    unsigned a, b, c, d, level = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (level)
        return level - 1;
    __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(c), \"=d\"(d) : \"a\"(0), \"c\"(0));
    if (a >= 7) {
        unsigned leaf_1, leaf_7, leaf_7_ecx, extended, xcr0 = 0, level_ok = 1;
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(leaf_1), \"=d\"(d) : \"a\"(1), \"c\"(0));
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(leaf_7), \"=c\"(leaf_7_ecx), \"=d\"(d)
                         : \"a\"(7), \"c\"(0));
        __asm__ volatile(\"cpuid\" : \"=a\"(a), \"=b\"(b), \"=c\"(extended), \"=d\"(d)
                         : \"a\"(0x80000001), \"c\"(0));
        if (leaf_1 >> 27 & 1)
            __asm__ volatile(\"xgetbv\" : \"=a\"(xcr0), \"=d\"(d) : \"c\"(0));
",
        );
        for level in CpuLevel::ALL {
            text.push_str(condition(level));
            if let Some(place) = levels.iter().position(|other| *other == level).filter(|&p| p > 0)
            {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "        if (level_ok)\n            level = {place};");
            }
        }
        text.push_str(
            "        (void)leaf_7_ecx;
    }
    __atomic_store_n(&known, level + 1, __ATOMIC_RELAXED);
    return level;
#endif
",
        );
    }
    text.push_str("    return 0;\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::testing::LoadedFunction;

    /// The runtime's detection is another implementation, in Rust.
    #[test]
    fn c_and_rust_agree_on_this_machines_level() {
        let best = niello_runtime::cpu_level();
        for levels in [
            &CpuLevel::ALL[..],
            &[CpuLevel::X86_64V3, CpuLevel::X86_64V4],
            &[CpuLevel::Baseline, CpuLevel::X86_64V4],
            &[CpuLevel::X86_64V4, CpuLevel::X86_64V4Vnni],
            &[CpuLevel::X86_64V4],
        ] {
            let text = level_function("level", levels);
            let found = LoadedFunction::call(&text, "level");
            let expected = levels.iter().rposition(|level| *level <= best).unwrap_or(0);
            assert_eq!(found as usize, expected, "{levels:?}\n{text}");
        }
    }
}
