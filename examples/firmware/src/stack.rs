//! How much of the stack a program has used: what it has written over.

use cortex_m::register::msp;

/// What is not used holds this.
const UNUSED: u32 = 0xA5A5_A5A5;

/// Bytes below the stack pointer that are left alone: `paint` has its own frame there.
const FRAME: usize = 256;

/// Marks the memory between the program's variables and the stack as unused.
pub fn paint() {
    let mut at = cortex_m_rt::heap_start();
    let end = (msp::read() as usize - FRAME) as *mut u32;
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
        /// The end of the RAM, from where the stack grows down: see cortex-m-rt's `link.x`.
        static _stack_start: u32;
    }
    let mut at = cortex_m_rt::heap_start().cast_const();
    let top = &raw const _stack_start;
    // SAFETY: `paint` wrote this memory; the pointer stops at its end.
    while at < top && unsafe { at.read_volatile() } == UNUSED {
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
    top as usize - at as usize
}
