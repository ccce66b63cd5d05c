//! A model whose matrix products a C function computes, and one that uses a second device beside: the
//! code generators in `codegen` write what calls it and what is for the device, `build.rs` compiles
//! it.

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

/// A model that puts a part on another device, by niello alone.
mod devices {
    niello_runtime::include_model!("devices");
}

/// The same with products of one's own, and a code generator for the device.
mod two_devices {
    niello_runtime::include_model!("two_devices");
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

    let action = *devices::Model::new().run(&devices::Inputs { state: &STATE }).output;
    let mut model = two_devices::Model::new();
    let own = model.run(&two_devices::Inputs { state: &STATE }).output;
    println!("niello alone: {action:?}");
    println!("two devices:  {own:?}, of {} calls so far", own_calls());
}

#[cfg(test)]
mod tests {
    use super::{STATE, controller, devices, own, own_calls, two_devices};

    fn assert_close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
    }

    #[test]
    fn code_generators_compute_their_parts() {
        let expected = *controller::Model::new().run(&controller::Inputs { state: &STATE }).output;
        assert_eq!(own_calls(), 0);
        let mut model = own::Model::new();
        let found = model.run(&own::Inputs { state: &STATE }).output;
        assert_eq!(own_calls(), 2);
        assert_close(found, &expected);

        let expected = *devices::Model::new().run(&devices::Inputs { state: &STATE }).output;
        let mut model = two_devices::Model::new();
        assert_close(model.run(&two_devices::Inputs { state: &STATE }).output, &expected);
        assert_eq!(own_calls(), 4);
    }
}
