//! Classifies handwritten digits with a model that is part of this program.
//!
//! `build.rs` compiled `models/digits.onnx` to native code; nothing is loaded and nothing is interpreted here. The images
//! are in the program too, so it runs from any folder.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The compiled model: `Model`, `Inputs`, `Outputs`, and constants for its shapes.
mod digits {
    niello_runtime::include_model!("digits");
}

const IMAGES: usize = 360;
const PIXELS: usize = 8 * 8;

/// Pixels from 0 to 16, image by image, and then a label for each image; see `train/dataset.py`.
static TEST_SET: &[u8; IMAGES * (PIXELS + 1)] = include_bytes!("../data/digits-test.bin");

/// How often all images are classified to measure the latency: enough for a steady median.
const ROUNDS: usize = 50;

/// For how long at most, if the machine is slow.
const MOST: Duration = Duration::from_secs(1);

fn main() {
    let (pixels, labels) = TEST_SET.split_at(IMAGES * PIXELS);
    let images: Vec<[f32; PIXELS]> = pixels.chunks_exact(PIXELS).map(to_input).collect();

    let mut model = digits::Model::new();
    let classes: Vec<u8> = images.iter().map(|image| classify(&mut model, image)).collect();
    if std::env::args().any(|argument| argument == "--predictions") {
        classes.iter().for_each(|class| println!("{class}"));
        return;
    }

    let right = classes.iter().zip(labels).filter(|(class, label)| class == label).count();
    println!("accuracy: {:.2}%", 100.0 * right as f64 / IMAGES as f64);
    let median = median_latency(&mut model, &images);
    let (micros, level) = (median.as_secs_f64() * 1e6, digits::cpu_level());
    println!("latency: {micros:.1} µs per image (median, {level})");
}

/// What the model takes: pixels from 0 to 1.
fn to_input(pixels: &[u8]) -> [f32; PIXELS] {
    std::array::from_fn(|at| f32::from(pixels[at]) / 16.0)
}

/// The most probable class, 0 to 9.
fn classify(model: &mut digits::Model, image: &[f32; PIXELS]) -> u8 {
    let outputs = model.run(&digits::Inputs { image });
    let best = (0..10u8).max_by(|&a, &b| {
        let [a, b] = [a, b].map(|class| outputs.probabilities[usize::from(class)]);
        a.total_cmp(&b)
    });
    best.expect("there are ten classes")
}

fn median_latency(model: &mut digits::Model, images: &[[f32; PIXELS]]) -> Duration {
    let begin = Instant::now();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .flat_map(|_| images)
        .take_while(|_| begin.elapsed() < MOST)
        .map(|image| {
            let start = Instant::now();
            black_box(model.run(&digits::Inputs { image: black_box(image) }));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
