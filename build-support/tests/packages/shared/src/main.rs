//! One of the models that share weights, without the other; and what it computes without sharing.

mod decode {
    niello_runtime::include_model!("decode");
}

mod alone {
    niello_runtime::include_model!("alone");
}

fn main() {
    let x = core::array::from_fn(|index| (index % 5) as f32);
    let mut shared = decode::Model::new();
    let shared = shared.run(&decode::Inputs { x: &x }).y;
    let mut alone = alone::Model::new();
    assert_eq!(shared, alone.run(&alone::Inputs { x: &x }).y);
    println!("{} {} {}", shared[1], decode::WEIGHT_BYTES, alone::WEIGHT_BYTES);
}
