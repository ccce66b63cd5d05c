//! A controller as it was trained, and as a chip without `tanh` would run it.
//!
//! `build.rs` compiled one model twice, the second time with passes of the crate in `passes`.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

/// The model as it is.
mod controller {
    niello_runtime::include_model!("controller");
}

/// The model after the passes.
mod chip {
    niello_runtime::include_model!("chip");
}

const STATES: [[f32; 4]; 3] =
    [[0.0, 0.0, 0.0, 0.0], [0.5, -0.25, 0.125, 1.0], [-2.0, 1.5, 3.0, -0.75]];

fn main() {
    println!("what the passes changed:");
    print!("{}", include_str!(concat!(env!("OUT_DIR"), "/calls.txt")));
    println!("what the models answer:");
    let (mut controller, mut chip) = (controller::Model::new(), chip::Model::new());
    for state in &STATES {
        let trained = controller.run(&controller::Inputs { state });
        let on_chip = chip.run(&chip::Inputs { state });
        println!("{state:?}: {:.3?} trained, {:.3?} on the chip", trained.output, on_chip.output);
    }
}
