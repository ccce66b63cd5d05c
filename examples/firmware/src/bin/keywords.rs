//! Hears words on a microcontroller: from samples, by features in integers, to an 8-bit model.
//!
//! `cargo run --release --bin keywords` runs it on an emulated Cortex-M4 (`qemu-system-arm`), and prints what it needs;
//! `--target thumbv6m-none-eabi` on a Cortex-M0 with 16 KiB of RAM.

#![no_std]
#![no_main]

use firmware::{Outcome, best, println};

#[path = "../../../keywords/src/lib.rs"]
mod keywords;

use keywords::{FEATURES, SOUNDS, SPOKEN, TEST_SET, WORDS, features};

/// The compiled model.
mod spotter {
    niello_runtime::include_model!("keywords");
}

firmware::program!(hear);

fn hear() -> Outcome {
    static mut WORKSPACE: spotter::Workspace = spotter::Workspace::new();

    let workspace = &raw mut WORKSPACE;
    // SAFETY: this is called once, and nothing else names the workspace.
    let mut model = spotter::Model::with_workspace(unsafe { &mut *workspace });
    let mut word =
        |features: &[u8; FEATURES]| best(model.run(&spotter::Inputs { features }).probabilities);
    let (known, labels) = TEST_SET.split_at(SOUNDS * FEATURES);
    let known = known.as_chunks().0.iter().zip(labels);
    let right = known.filter(|&(features, &label)| word(features) == usize::from(label)).count();
    for sound in SPOKEN.as_chunks().0 {
        println!("heard: {}", WORDS[word(&features(sound))]);
    }
    Outcome {
        right,
        of: SOUNDS,
        workspace_bytes: spotter::WORKSPACE_BYTES,
        weight_bytes: spotter::WEIGHT_BYTES,
    }
}
