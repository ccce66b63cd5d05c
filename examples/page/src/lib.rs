//! Reads digits that are drawn on a web page.
//!
//! `cargo build --release` in this folder, then a web server for it, such as `python3 -m http.server`, and a browser at
//! the address that the server prints. Nothing is loaded but `index.html`, `page.js` and this module, into which
//! `build.rs` compiled the model; it needs `rustup target add wasm32-unknown-unknown` and `clang`.

#![no_std]

mod image;

use image::{Drawing, SIDE, to_input};

/// The compiled model.
mod digits {
    niello_runtime::include_model!("digits");
}

static mut DRAWING: Drawing = [[0; 4]; SIDE * SIDE];

static mut PROBABILITIES: [f32; 10] = [0.0; 10];

static mut WORKSPACE: digits::Workspace = digits::Workspace::new();

/// Where the page writes the drawing.
// SAFETY: nothing else that is linked has this name.
#[unsafe(no_mangle)]
pub extern "C" fn drawing() -> *mut Drawing {
    &raw mut DRAWING
}

/// Where the page finds the probability of each digit.
// SAFETY: nothing else that is linked has this name.
#[unsafe(no_mangle)]
pub extern "C" fn probabilities() -> *mut [f32; 10] {
    &raw mut PROBABILITIES
}

/// The most probable digit, or -1 if nothing is drawn.
// SAFETY: nothing else that is linked has this name.
#[unsafe(no_mangle)]
pub extern "C" fn classify() -> i32 {
    let workspace = &raw mut WORKSPACE;
    // SAFETY: there is one thread, which runs the page's script while it does not run this. No other function makes
    // references to these.
    let (drawing, probabilities, workspace) =
        unsafe { (&*drawing(), &mut *probabilities(), &mut *workspace) };
    let Some(image) = to_input(drawing) else { return -1 };
    let mut model = digits::Model::with_workspace(workspace);
    *probabilities = *model.run(&digits::Inputs { image: &image }).probabilities;
    let probability = |digit: &i32| probabilities[*digit as usize];
    (0..10).max_by(|a, b| probability(a).total_cmp(&probability(b))).unwrap_or(-1)
}

// Rust's test harness has a handler of its own.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
