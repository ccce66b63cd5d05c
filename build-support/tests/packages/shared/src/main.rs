//! One of the models that share weights, without the other; and what it computes without sharing.

mod biased {
    niello_runtime::include_model!("biased");
}

mod alone {
    niello_runtime::include_model!("alone");
}

fn main() {
    let x = core::array::from_fn(|index| (index % 5) as f32);
    let mut shared = biased::Model::new();
    let shared = shared.run(&biased::Inputs { x: &x }).y;
    let mut alone = alone::Model::new();
    assert_eq!(shared, alone.run(&alone::Inputs { x: &x }).y);
    println!("{} {} {}", shared[1], biased::WEIGHT_BYTES, alone::WEIGHT_BYTES);
}
