//! A model whose matrix products a C function computes: the code generator in `codegen` gives them
//! to it, `build.rs` compiles it.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

use std::ffi::c_long;

/// The model by niello alone.
mod controller {
    niello_runtime::include_model!("controller");
}

/// The model with products of one's own.
mod own {
    niello_runtime::include_model!("own");
}

unsafe extern "C" {
    /// How many products the C function has computed.
    safe fn own_calls() -> c_long;
}

/// A position and an angle, and how fast they change.
const STATE: [f32; 4] = [0.1, -0.4, 0.25, 0.9];

fn main() {
    let action = *controller::Model::new().run(&controller::Inputs { state: &STATE }).output;
    let mut model = own::Model::new();
    let own = model.run(&own::Inputs { state: &STATE }).output;
    println!("niello alone: {action:?}");
    println!("own products: {own:?}, of {} calls", own_calls());
}

#[cfg(test)]
mod tests {
    use super::{STATE, controller, own, own_calls};

    #[test]
    fn the_c_function_computes_the_products() {
        let expected = *controller::Model::new().run(&controller::Inputs { state: &STATE }).output;
        assert_eq!(own_calls(), 0);
        let mut model = own::Model::new();
        let found = model.run(&own::Inputs { state: &STATE }).output;
        assert_eq!(own_calls(), 2);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
    }
}
