//! A library with two models that share weights.

mod prefill {
    niello_runtime::include_model!("prefill");
}

mod decode {
    niello_runtime::include_model!("decode");
}

fn input<const LEN: usize>() -> [f32; LEN] {
    core::array::from_fn(|index| (index % 5) as f32)
}

/// A number of each model's result.
#[unsafe(no_mangle)]
pub extern "C" fn shared_result(model: u32) -> f32 {
    match model {
        0 => prefill::Model::new().run(&prefill::Inputs { x: &input() }).y[1],
        _ => decode::Model::new().run(&decode::Inputs { x: &input() }).y[1],
    }
}
