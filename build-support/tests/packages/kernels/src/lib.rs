//! Both models, in Rust and for C.

mod one {
    niello_runtime::include_model!("one");
}

mod two {
    niello_runtime::include_model!("two");
}

/// The first element of each model's result for a row of one number.
pub fn results(x: f32) -> [f32; 2] {
    let first = one::Model::new().run(&one::Inputs { x: &[x; 3] }).y[0];
    let second = two::Model::new().run(&two::Inputs { x: &[x; 3] }).y[0];
    [first, second]
}

/// As [`results`], one of them.
#[unsafe(no_mangle)]
pub extern "C" fn kernels_result(x: f32, model: u32) -> f32 {
    results(x)[model as usize % 2]
}
