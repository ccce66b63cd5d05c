//! CPU features in the words of C compilers and of LLVM.

/// The name of one of rustc's x86 features; `None` for what does not matter to code.
pub(super) fn x86_feature(feature: &str) -> Option<&str> {
    Some(match feature {
        // Not code generation, or implied by the architecture.
        "cmpxchg16b" => "cx16",
        "bmi1" => "bmi",
        "amx-int8" | "amx-tile" | "lzcnt" | "movbe" | "popcnt" | "xsave" | "fxsr" | "bmi2"
        | "f16c" | "fma" | "sse" | "sse2" | "sse3" | "ssse3" | "sse4.1" | "sse4.2" | "avx"
        | "avx2" | "avx512f" | "avx512bw" | "avx512cd" | "avx512dq" | "avx512vl" | "avx512vnni"
        | "avxvnni" => feature,
        _ => return None,
    })
}

/// LLVM's name of one of rustc's features for 64-bit Arm; `None` for what does not matter to code.
#[cfg(feature = "llvm")]
pub(super) fn aarch64_feature(feature: &str) -> Option<&str> {
    Some(match feature {
        "fp16" => "fullfp16",
        "neon" | "dotprod" | "i8mm" | "bf16" => feature,
        _ => return None,
    })
}
