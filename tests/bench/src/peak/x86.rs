//! The loops for x86-64. They are assembly, so that no compiler changes what is measured.

use std::arch::asm;

use super::Loop;

/// The instruction `$op` on each of the registers `$kind$n`, with the other operands `$kind$a` and `$kind$b`.
macro_rules! each {
    ($op:literal, $kind:literal, $a:literal, $b:literal, $($n:literal)*) => {
        concat!($($op, " ", $kind, $n, ", ", $kind, $a, ", ", $kind, $b, "\n"),*)
    };
}

/// A function that repeats `$body` on registers that are zero at first and two factors.
macro_rules! repeat {
    ($name:ident, $prepare:expr, $clear:expr, $body:expr) => {
        #[inline(never)]
        fn $name(iterations: u64) {
            let factors = [0.5f32, 0.25];
            // SAFETY: this is only called if the processor has the instructions; all registers that a call may change
            // are given as changed, and memory is only read at the pointer.
            unsafe {
                asm!(
                    $prepare,
                    $clear,
                    "2:",
                    $body,
                    "dec rcx",
                    "jnz 2b",
                    "vzeroupper",
                    inout("rcx") iterations.max(1) => _,
                    in("rsi") factors.as_ptr(),
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
    };
}

// Two instructions begin in each cycle and take four or five: 24 are enough to never wait for one.
repeat!(
    fma_512,
    "vbroadcastss zmm30, dword ptr [rsi]\nvbroadcastss zmm31, dword ptr [rsi + 4]",
    each!("vpxord", "zmm", "29", "29", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
    each!("vfmadd231ps", "zmm", "30", "31", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23)
);

repeat!(
    vnni_512,
    "vbroadcastss zmm30, dword ptr [rsi]\nvbroadcastss zmm31, dword ptr [rsi + 4]",
    each!("vpxord", "zmm", "29", "29", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
    each!("vpdpbusd", "zmm", "30", "31", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23)
);

repeat!(
    fma_256,
    "vbroadcastss ymm14, dword ptr [rsi]\nvbroadcastss ymm15, dword ptr [rsi + 4]",
    each!("vxorps", "ymm", "13", "13", 0 1 2 3 4 5 6 7 8 9 10 11),
    each!("vfmadd231ps", "ymm", "14", "15", 0 1 2 3 4 5 6 7 8 9 10 11)
);

/// Additions of a register, not of a number: some processors do those while they rename registers.
fn add_chain(iterations: u64) {
    // SAFETY: only the two registers change.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "add {sum}, {one}",
            ".endr",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) iterations.max(1) => _,
            sum = inout(reg) 0u64 => _,
            one = in(reg) 1u64,
            options(nomem, nostack),
        );
    }
}

pub(super) const FMA_512: Loop = Loop { run: fma_512, operations: 24 * 16 * 2, name: "AVX-512" };
pub(super) const FMA_256: Loop = Loop { run: fma_256, operations: 12 * 8 * 2, name: "AVX2" };
pub(super) const VNNI_512: Loop =
    Loop { run: vnni_512, operations: 24 * 64 * 2, name: "AVX-512 VNNI" };
pub(super) const ADD_CHAIN: Loop = Loop { run: add_chain, operations: 16, name: "additions" };
