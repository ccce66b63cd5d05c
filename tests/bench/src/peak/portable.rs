//! The loops for any processor, which the compiler turns into vectors as wide as it may assume.

use std::hint::black_box;

use super::Loop;

/// Sums that do not depend on each other: half of the vector registers of a baseline target.
#[cfg(target_arch = "aarch64")]
const SUMS: usize = 64;
#[cfg(not(target_arch = "aarch64"))]
const SUMS: usize = 32;

fn multiply_add(iterations: u64) {
    let (a, b) = (black_box(0.5f32), black_box(0.25f32));
    let mut sums = [0.0f32; SUMS];
    for _ in 0..iterations {
        for sum in &mut sums {
            // Where a fused one would be a call of a library it is no measure.
            *sum = if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                sum.mul_add(a, b)
            } else {
                *sum * a + b
            };
        }
    }
    black_box(sums);
}

pub(super) const MULTIPLY_ADD: Loop =
    Loop { run: multiply_add, operations: 2 * SUMS as u64, name: "portable" };

/// As that of x86-64.
#[cfg(target_arch = "aarch64")]
fn add_chain(iterations: u64) {
    // SAFETY: only the two registers change.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 16",
            "add {sum}, {sum}, {one}",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            n = inout(reg) iterations.max(1) => _,
            sum = inout(reg) 0u64 => _,
            one = in(reg) 1u64,
            options(nomem, nostack),
        );
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) const ADD_CHAIN: Loop = Loop { run: add_chain, operations: 16, name: "additions" };
