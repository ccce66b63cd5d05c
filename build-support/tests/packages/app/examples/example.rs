//! An example that includes a model which the library does not have.

mod triple {
    niello_runtime::include_model!("triple");
}

fn main() {
    println!("{:?}", triple::Model::default().run(&triple::Inputs { x: &[10.0, 20.0] }).y);
}
