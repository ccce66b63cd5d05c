//! A model on threads that the program has already: those of a rayon pool, and cores that serve it.
//!
//! Whatever runs the model, its results are the same, bit for bit.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

mod pool;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use executors::Cores;
use niello_runtime::{Parallel, Serial};
use pool::Rayon;

/// The compiled model.
mod digits {
    niello_runtime::include_model!("digits");
}

const IMAGES: usize = 360;
const PIXELS: usize = 8 * 8;

/// Pixels from 0 to 16, image by image, and then a label for each image.
static TEST_SET: &[u8; IMAGES * (PIXELS + 1)] = include_bytes!("../../digits/data/digits-test.bin");

/// The memory of a run, which needs no heap.
static WORKSPACE: Mutex<digits::Workspace> = Mutex::new(digits::Workspace::new());

/// The cores that serve: here they are threads.
static CORES: Cores = Cores::new(|| {});

fn main() {
    let serial = probabilities(&Serial);
    println!("one thread: {:.2}% are right", percent(&serial));

    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads can be started");
    report("a rayon pool", &probabilities(&Rayon(&pool)), &serial);

    serving(2, || report("cores", &probabilities(&CORES), &serial));
}

/// Says how many images an executor gets right, and whether it computes the same as one thread.
fn report(executor: &str, found: &[f32], serial: &[f32]) {
    let same = if bits(found).eq(bits(serial)) { "the same" } else { "other" };
    println!("{executor}: {:.2}% are right, {same} bits", percent(found));
}

fn bits(numbers: &[f32]) -> impl Iterator<Item = u32> {
    numbers.iter().map(|number| number.to_bits())
}

/// The outputs for all images, by an executor.
fn probabilities(executor: &dyn Parallel) -> Vec<f32> {
    let mut workspace = WORKSPACE.lock().expect("nobody has panicked with it");
    let mut model = digits::Model::with_workspace(&mut workspace);
    let images = TEST_SET[..IMAGES * PIXELS].chunks_exact(PIXELS);
    let mut all = Vec::new();
    for pixels in images {
        let image = std::array::from_fn(|at| f32::from(pixels[at]) / 16.0);
        let outputs = model.run_with(executor, &digits::Inputs { image: &image });
        all.extend_from_slice(outputs.probabilities);
    }
    all
}

/// How many of the images have the most probable class as their label.
fn percent(probabilities: &[f32]) -> f64 {
    let labels = &TEST_SET[IMAGES * PIXELS..];
    let best = |of_image: &[f32]| (0..10).max_by(|&a, &b| of_image[a].total_cmp(&of_image[b]));
    let found = probabilities.chunks_exact(10).map(best);
    let right = found.zip(labels).filter(|&(found, &label)| found == Some(usize::from(label)));
    100.0 * right.count() as f64 / IMAGES as f64
}

/// Does something while so many threads serve as cores.
fn serving<T>(cores: usize, what: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let idle = || {
        hint::spin_loop();
        !done.load(Ordering::Relaxed)
    };
    thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        for _ in 0..cores {
            scope.spawn(|| CORES.serve(idle));
        }
        while CORES.workers() <= cores {
            thread::yield_now();
        }
        what()
    })
}

/// Lets threads end, also if this one panics.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
