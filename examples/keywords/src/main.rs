//! Hears words, with an 8-bit model that is part of this program.
//!
//! The sounds of the test set, which come from voices that the model has not been trained with, are features already;
//! three more are samples, as a microphone gives them. `examples/firmware` does the same on a microcontroller.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

use keywords::{FEATURES, SOUNDS, SPOKEN, TEST_SET, WORDS, features};

/// The compiled model: `Model`, `Inputs`, `Outputs`, and constants for its shapes.
mod spotter {
    niello_runtime::include_model!("keywords");
}

fn main() {
    let mut model = spotter::Model::new();
    let (known, labels) = TEST_SET.split_at(SOUNDS * FEATURES);
    let known = known.as_chunks().0.iter();
    let classes: Vec<u8> = known.map(|features| classify(&mut model, features)).collect();
    if std::env::args().any(|argument| argument == "--predictions") {
        classes.iter().for_each(|class| println!("{class}"));
        return;
    }
    let right = classes.iter().zip(labels).filter(|(class, label)| class == label).count();
    println!("accuracy: {:.2}%", 100.0 * right as f64 / SOUNDS as f64);
    for sound in SPOKEN.as_chunks().0 {
        let class = classify(&mut model, &features(sound));
        println!("heard: {}", WORDS[usize::from(class)]);
    }
}

/// The most probable class, a place in [`WORDS`].
fn classify(model: &mut spotter::Model, features: &[u8; FEATURES]) -> u8 {
    let outputs = model.run(&spotter::Inputs { features });
    let best = (0..).zip(outputs.probabilities).max_by(|a, b| a.1.total_cmp(b.1));
    best.expect("there are classes").0
}
