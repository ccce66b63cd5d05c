//! The example of passes in a user's crate: its output, compared with the model computed by hand.

use std::process::Command;

const HIDDEN: [[f32; 4]; 4] = [
    [0.91, -0.37, 1.24, 0.08],
    [-0.63, 0.52, 0.19, -1.11],
    [0.34, 1.42, -0.77, 0.26],
    [-1.05, -0.29, 0.68, 0.93],
];
const HIDDEN_BIAS: [f32; 4] = [0.12, -0.31, 0.05, 0.22];
const OUTPUT: [[f32; 4]; 2] = [[0.71, -1.16, 0.43, 0.59], [-0.84, 0.33, 1.07, -0.22]];
const OUTPUT_BIAS: [f32; 2] = [-0.14, 0.27];

/// One layer, with each weight given by `weight`.
fn layer<const N: usize>(
    weights: [[f32; 4]; N],
    bias: [f32; N],
    input: [f32; 4],
    weight: fn(f32) -> f32,
    activation: fn(f32) -> f32,
) -> [f32; N] {
    std::array::from_fn(|row| {
        let products = weights[row].iter().zip(input).map(|(&w, x)| weight(w) * x);
        activation(products.sum::<f32>() + weight(bias[row]))
    })
}

fn model(state: [f32; 4], weight: fn(f32) -> f32, activation: fn(f32) -> f32) -> [f32; 2] {
    let hidden = layer(HIDDEN, HIDDEN_BIAS, state, weight, activation);
    layer(OUTPUT, OUTPUT_BIAS, hidden, weight, activation)
}

#[test]
fn the_passes_change_the_model_as_they_say() {
    let output = Command::new(env!("CARGO_BIN_EXE_custom-pass")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("TanhToClip: tanh 2 -> 0\n"), "{printed}");

    let rounded = |weight: f32| (weight * 64.0).round() / 64.0;
    for state in [[0.0; 4], [0.5, -0.25, 0.125, 1.0], [-2.0, 1.5, 3.0, -0.75]] {
        let trained = model(state, |weight| weight, f32::tanh);
        let on_chip = model(state, rounded, |x| x.clamp(-0.875, 0.875));
        let line = format!("{state:?}: {trained:.3?} trained, {on_chip:.3?} on the chip\n");
        assert!(printed.contains(&line), "{line} is not in\n{printed}");
    }
}
