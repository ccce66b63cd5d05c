//! Prints what the model does, and which run of the build script made it.

mod late {
    niello_runtime::include_model!("late");
}

fn main() {
    println!("{:?}", late::Model::new().run(&late::Inputs { x: &[1.0, 2.0] }).y);
    println!("{}", env!("RUNS"));
}
