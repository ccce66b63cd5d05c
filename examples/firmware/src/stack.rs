//! How much of the stack a program has used: what it has written over.

#[cfg(target_arch = "riscv32")]
use crate::riscv::heap_start;
#[cfg(target_arch = "arm")]
use cortex_m_rt::heap_start;

/// What is not used holds this.
const UNUSED: u32 = 0xA5A5_A5A5;

/// Bytes below a variable of `paint` that are left alone: its own frame is there.
const FRAME: usize = 256;

/// Marks the memory between the program's variables and the stack as unused.
///
/// It is never a part of its caller, whose frame would reach further down than the variable here.
#[inline(never)]
pub fn paint() {
    let mut at = heap_start();
    let here = 0_u32;
    let end = (&raw const here as usize - FRAME) as *mut u32;
    while at < end {
        // SAFETY: the memory is between the last variable and the stack, and there is no heap.
        unsafe {
            at.write_volatile(UNUSED);
            at = at.add(1);
        }
    }
}

/// Bytes that the stack has taken at most since [`paint`].
pub fn used() -> usize {
    unsafe extern "C" {
        /// The end of the RAM, from where the stack grows down: see cortex-m-rt's `link.x`, or `memory/virt.x`.
        static _stack_start: u32;
    }
    let mut at = heap_start().cast_const();
    let top = &raw const _stack_start;
    // SAFETY: `paint` wrote this memory; the pointer stops at its end.
    while at < top && unsafe { at.read_volatile() } == UNUSED {
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
    top as usize - at as usize
}
