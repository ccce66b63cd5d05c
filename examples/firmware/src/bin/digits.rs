//! Classifies handwritten digits on a microcontroller.
//!
//! `cargo run --release` runs it on an emulated Cortex-M4 (`qemu-system-arm`), and prints what it needs.

#![no_std]
#![no_main]

use firmware::{Outcome, best};

/// The compiled model.
mod digits {
    niello_runtime::include_model!("digits");
}

const IMAGES: usize = 360;
const PIXELS: usize = 8 * 8;

/// Pixels from 0 to 16, image by image, and then a label for each image.
static TEST_SET: &[u8; IMAGES * (PIXELS + 1)] =
    include_bytes!("../../../digits/data/digits-test.bin");

firmware::program!(classify);

fn classify() -> Outcome {
    static mut WORKSPACE: digits::Workspace = digits::Workspace::new();

    let workspace = &raw mut WORKSPACE;
    // SAFETY: this is called once, and nothing else names the workspace.
    let mut model = digits::Model::with_workspace(unsafe { &mut *workspace });
    let (pixels, labels) = TEST_SET.split_at(IMAGES * PIXELS);
    let mut right = 0;
    for (pixels, &label) in pixels.chunks_exact(PIXELS).zip(labels) {
        let image = core::array::from_fn(|at| f32::from(pixels[at]) / 16.0);
        let outputs = model.run(&digits::Inputs { image: &image });
        right += usize::from(best(outputs.probabilities) == usize::from(label));
    }
    Outcome {
        right,
        of: IMAGES,
        workspace_bytes: digits::WORKSPACE_BYTES,
        weight_bytes: digits::WEIGHT_BYTES,
    }
}
