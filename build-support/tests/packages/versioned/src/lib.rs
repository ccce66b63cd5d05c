//! A package that one program depends on in two versions.

mod model {
    niello_runtime::include_model!("model");
}

/// Runs the model.
pub fn run(x: [f32; 2]) -> [f32; 2] {
    *model::Model::new().run(&model::Inputs { x: &x }).y
}
