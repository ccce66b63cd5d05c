//! A model with operators that niello does not have: the crate in `ops` imports them.

#![allow(clippy::print_stdout, reason = "its output is what this program is for")]

/// The model.
mod attend {
    niello_runtime::include_model!("attend");
}

fn main() {
    let signal = signal();
    let mut model = attend::Model::new();
    let outputs = model.run(&attend::Inputs { signal: &signal });
    for (row, weights) in outputs.attention.chunks_exact(12).enumerate() {
        let together: f32 = weights.iter().sum();
        println!("row {row} attends to {:.1}%", 100.0 * together);
    }
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
    use super::{attend, signal};

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
}
