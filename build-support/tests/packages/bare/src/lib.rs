//! A model without `std` and without a heap.
#![no_std]

mod model {
    niello_runtime::include_model!("model");
}

/// Runs the model in a workspace of the caller's.
pub fn run(x: [f32; 2]) -> [f32; 2] {
    let mut workspace = model::Workspace::new();
    *model::Model::with_workspace(&mut workspace).run(&model::Inputs { x: &x }).y
}

#[test]
fn the_model_runs_without_std() {
    assert_eq!(run([1.0, 2.0]), [4.5, 8.25]);
}
