//! Where a program on RISC-V begins, as `cortex-m-rt` has it for Arm's processors.

use core::arch::global_asm;

// The emulator puts the program's data into memory as it puts the code there; what is zero at first is not in the file.
global_asm!(
    ".section .init, \"ax\"",
    ".globl _start",
    "_start:",
    "la sp, _stack_start",
    // The floating-point unit, if there is one, is off at first.
    "li a0, 0x6000",
    "csrs mstatus, a0",
    "la a0, _sbss",
    "la a1, _ebss",
    "1: bgeu a0, a1, 2f",
    "sw zero, 0(a0)",
    "addi a0, a0, 4",
    "j 1b",
    "2: j main",
);

/// Where the memory behind the program's variables begins.
pub fn heap_start() -> *mut u32 {
    unsafe extern "C" {
        static mut _ebss: u32;
    }
    &raw mut _ebss
}
