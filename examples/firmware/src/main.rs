//! Classifies handwritten digits on a microcontroller: no heap, no operating system, no files.
//!
//! `cargo run --release` runs it on an emulated Cortex-M4 (`qemu-system-arm`), and prints what it needs.

#![no_std]
#![no_main]

mod stack;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use panic_semihosting as _;

/// The compiled model.
mod digits {
    niello_runtime::include_model!("digits");
}

const IMAGES: usize = 360;
const PIXELS: usize = 8 * 8;

/// Pixels from 0 to 16, image by image, and then a label for each image.
static TEST_SET: &[u8; IMAGES * (PIXELS + 1)] = include_bytes!("../../digits/data/digits-test.bin");

#[entry]
fn main() -> ! {
    // The macro makes it a mutable reference: `main` is called once.
    static mut WORKSPACE: digits::Workspace = digits::Workspace::new();

    stack::paint();
    let mut model = digits::Model::with_workspace(WORKSPACE);
    let (pixels, labels) = TEST_SET.split_at(IMAGES * PIXELS);
    let mut right = 0;
    for (pixels, &label) in pixels.chunks_exact(PIXELS).zip(labels) {
        let image = core::array::from_fn(|at| f32::from(pixels[at]) / 16.0);
        let outputs = model.run(&digits::Inputs { image: &image });
        let probability = |class: &usize| outputs.probabilities[*class];
        let best = (0..10).max_by(|a, b| probability(a).total_cmp(&probability(b)));
        right += usize::from(best == Some(usize::from(label)));
    }
    let stack = stack::used();

    let hundredths = right * 10_000 / IMAGES;
    hprintln!("accuracy: {}.{:02}%", hundredths / 100, hundredths % 100);
    hprintln!("workspace: {} bytes of RAM", digits::WORKSPACE_BYTES);
    hprintln!("weights: {} bytes of flash", digits::WEIGHT_BYTES);
    hprintln!("stack: {} bytes", stack);
    loop {
        debug::exit(debug::EXIT_SUCCESS);
    }
}
