//! A library with two models that share weights.

mod plain {
    niello_runtime::include_model!("plain");
}

mod biased {
    niello_runtime::include_model!("biased");
}

fn input<const LEN: usize>() -> [f32; LEN] {
    core::array::from_fn(|index| (index % 5) as f32)
}

/// A number of each model's result.
#[unsafe(no_mangle)]
pub extern "C" fn shared_result(model: u32) -> f32 {
    match model {
        0 => plain::Model::new().run(&plain::Inputs { x: &input() }).y[1],
        _ => biased::Model::new().run(&biased::Inputs { x: &input() }).y[1],
    }
}
