//! Prints the CPU level that runs, and the output.

mod network {
    niello_runtime::include_model!("network");
}

mod narrow {
    niello_runtime::include_model!("narrow");
}

fn main() {
    let x: [f32; network::inputs::x::LEN] = std::array::from_fn(|i| (i % 7) as f32 - 3.0);
    let mut model = network::Model::new();
    let mut narrow = narrow::Model::new();
    println!("{} of {:?}", network::cpu_level(), network::CPU_LEVELS);
    println!("{:?}", model.run(&network::Inputs { x: &x }).y);
    println!("{} of {:?}", narrow::cpu_level(), narrow::CPU_LEVELS);
    println!("{:?}", narrow.run(&narrow::Inputs { x: &x }).y);
}
