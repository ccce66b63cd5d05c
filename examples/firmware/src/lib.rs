//! What the programs have in common: where they begin, and how they tell what they found and what they needed.
//!
//! No heap, no operating system, no files. What is printed goes to the machine that emulates or debugs this one.

#![no_std]

#[cfg(target_arch = "riscv32")]
mod riscv;
mod stack;

pub use semihosting::println;

/// The place of the greatest of some probabilities.
pub fn best(probabilities: &[f32]) -> usize {
    let probability = |&place: &usize| probabilities[place];
    let places = 0..probabilities.len();
    places.max_by(|a, b| probability(a).total_cmp(&probability(b))).unwrap_or(0)
}

/// What a program has found, and what it needs.
pub struct Outcome {
    pub right: usize,
    pub of: usize,
    pub workspace_bytes: usize,
    pub weight_bytes: usize,
}

/// Makes a function that returns an [`Outcome`] the program of this processor: `main` is what is called first.
#[macro_export]
macro_rules! program {
    ($program:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn main() -> ! {
            $crate::run($program)
        }
    };
}

/// Runs a program, prints its outcome and the stack that it took, and ends the emulator.
pub fn run(program: fn() -> Outcome) -> ! {
    stack::paint();
    let outcome = program();
    let stack = stack::used();
    let hundredths = outcome.right * 10_000 / outcome.of;
    println!("accuracy: {}.{:02}%", hundredths / 100, hundredths % 100);
    println!("workspace: {} bytes of RAM", outcome.workspace_bytes);
    println!("weights: {} bytes of flash", outcome.weight_bytes);
    println!("stack: {} bytes", stack);
    semihosting::process::exit(0)
}
