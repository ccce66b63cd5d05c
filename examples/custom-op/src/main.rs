//! Models with operators that niello does not have: the crate in `ops` imports them, and has a
//! schedule for one.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

/// Attention with weights that may be less than one together.
mod attend {
    niello_runtime::include_model!("attend");
}

/// The nearest entries of a codebook.
mod codes {
    niello_runtime::include_model!("codes");
}

fn main() {
    let signal = signal();
    let mut model = attend::Model::new();
    let outputs = model.run(&attend::Inputs { signal: &signal });
    for (row, weights) in outputs.attention.chunks_exact(12).enumerate() {
        let together: f32 = weights.iter().sum();
        println!("row {row} attends to {:.1}%", 100.0 * together);
    }
    let frames = frames();
    let mut model = codes::Model::new();
    let outputs = model.run(&codes::Inputs { frames: &frames });
    println!("the frames are {:?} in the codebook", outputs.codes);
}

/// Twenty frames of twelve numbers.
fn frames() -> [f32; 20 * 12] {
    std::array::from_fn(|at| (at as f32 * 0.7).sin() + (at as f32 * 0.05).cos())
}

/// A sound of two tones, of which the second one fades.
fn signal() -> [f32; 8 * 16] {
    std::array::from_fn(|at| {
        let time = at as f32 / 16.0;
        (time * 3.0).sin() + (time * 11.0).cos() * (-time).exp()
    })
}

#[cfg(test)]
mod tests {
    use super::{attend, codes, frames, signal};

    #[test]
    fn the_operators_of_the_crate_compute_what_they_say() {
        let signal = signal();
        let mut model = attend::Model::new();
        let outputs = model.run(&attend::Inputs { signal: &signal });
        for (x, y) in signal.iter().zip(outputs.wave) {
            let expected = x + (0.5 * x).sin().powi(2) / 0.5;
            assert!((y - expected).abs() < 1e-6, "{y} for {x}, not {expected}");
        }
        let rows = outputs.scores.chunks_exact(12).zip(outputs.attention.chunks_exact(12));
        for (scores, attention) in rows {
            let sum: f64 = scores.iter().map(|&x| f64::from(x).exp()).sum();
            for (&x, &y) in scores.iter().zip(attention) {
                let expected = f64::from(x).exp() / (1.0 + sum);
                assert!((f64::from(y) - expected).abs() < 1e-6, "{y} for {x}, not {expected}");
            }
            assert!(attention.iter().sum::<f32>() < 1.0);
        }
    }

    #[test]
    fn codes_are_the_nearest_entries() {
        let frames = frames();
        let mut model = codes::Model::new();
        let outputs = model.run(&codes::Inputs { frames: &frames });
        for (row, &code) in outputs.distances.chunks_exact(50).zip(outputs.codes) {
            let nearest = row.iter().copied().fold(f32::INFINITY, f32::min);
            assert!(nearest > 0.0);
            assert_eq!(row.iter().position(|&x| x == nearest), usize::try_from(code).ok());
        }
    }
}
