//! Prints the model's output, and the run of the build script that made the model.

mod late {
    niello_runtime::include_model!("late");
}

fn main() {
    println!("{:?}", late::Model::new().run(&late::Inputs { x: &[1.0, 2.0] }).y);
    println!("{}", env!("RUNS"));
}
