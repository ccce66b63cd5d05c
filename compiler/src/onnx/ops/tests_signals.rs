//! Tests of signals, random numbers, n-grams and determinants. The numbers are ONNX Runtime 1.31.1's,
//! for inputs that are sine waves, unless the test says otherwise.

use super::tests_values::Input::{Floats, Ints, Longs, Truth, Wave};
use super::tests_values::{assert_close, run};
use crate::onnx::ModelAttr;

#[test]
fn spectra_of_frames() {
    let inputs = [Wave(&[1, 20, 1], 0.2), Longs(&[], &[6]), Wave(&[8], 0.4)];
    assert_close(&run(17, "STFT", &inputs, &[("onesided", 0.into())], &["y"]), STFT);
}

#[test]
fn transforms_along_an_axis_cut_or_filled_up() {
    let inputs = [Wave(&[1, 5, 3, 2], 0.2), Longs(&[], &[4])];
    let attrs = [("axis", 1.into()), ("inverse", 1.into())];
    assert_close(&run(17, "DFT", &inputs, &attrs, &["y"]), DFT_17);
    let inputs = [Wave(&[1, 2, 5, 1], 0.2), Longs(&[], &[7]), Longs(&[], &[-2])];
    assert_close(&run(20, "DFT", &inputs, &[("onesided", 1.into())], &["y"]), DFT_PAD);
}

/// A long transform is two short ones; here it is compared with its definition.
#[test]
fn a_long_transform_is_that_of_its_definition() {
    let length = 300;
    let wave = |i: usize| f64::from((i as f64 * 0.7 + 0.2).sin() as f32);
    let turn = |i: usize| 2.0 * std::f64::consts::PI * i as f64 / length as f64;
    let found = run(20, "DFT", &[Wave(&[1, 300, 1], 0.2)], &[("onesided", 1.into())], &["y"]);
    let expected = (0..=length / 2).flat_map(|k| {
        let sum = |f: fn(f64) -> f64| (0..length).map(|i| wave(i) * f(turn(i * k))).sum::<f64>();
        [sum(f64::cos), -sum(f64::sin)]
    });
    let expected: Vec<f64> = expected.collect();
    assert_eq!(found.len(), expected.len());
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4;
    assert!(found.iter().zip(&expected).all(close), "{found:?} for {expected:?}");

    // And back, from half of the spectrum.
    let half: Vec<f32> = found.iter().map(|&value| value as f32).collect();
    let attrs = [("onesided", 1.into()), ("inverse", 1.into())];
    let back = run(20, "DFT", &[Floats(&[1, 151, 2], &half)], &attrs, &["y"]);
    assert_eq!(back.len(), length);
    assert!(back.iter().enumerate().all(|(i, &value)| (value - wave(i)).abs() < 1e-5), "{back:?}");
}

#[test]
fn filters_and_windows() {
    let inputs = [
        Longs(&[], &[4]),
        Longs(&[], &[16]),
        Longs(&[], &[8000]),
        Floats(&[], &[100.0]),
        Floats(&[], &[3500.0]),
    ];
    assert_close(&run(17, "MelWeightMatrix", &inputs, &[], &["y"]), MEL);
    let symmetric = [("periodic", 0.into())];
    assert_close(&run(17, "HammingWindow", &[Longs(&[], &[5])], &symmetric, &["y"]), HAMMING1);
}

#[test]
fn counts_of_lists_by_weights() {
    let attrs = |mode: &'static str| -> Vec<(&'static str, ModelAttr)> {
        vec![
            ("mode", mode.into()),
            ("min_gram_length", 1.into()),
            ("max_gram_length", 2.into()),
            ("max_skip_count", 1.into()),
            ("ngram_counts", [0i64, 2].into()),
            ("ngram_indexes", [1i64, 0, 3, 5].into()),
            ("pool_int64s", [2i64, 3, 1, 2, 3, 3].into()),
            ("weights", vec![0.5f32, 1.0, 2.0, 3.0].into()),
        ]
    };
    let two = [Longs(&[2, 5], &[1, 2, 3, 1, 2, 3, 3, 2, 1, 3])];
    assert_close(&run(9, "TfIdfVectorizer", &two, &attrs("TFIDF"), &["y"]), TFIDF);
    let one = [Ints(&[1, 2, 3, 1, 2])];
    assert_close(&run(9, "TfIdfVectorizer", &one, &attrs("IDF"), &["y"]), IDF);
}

#[test]
fn determinants_by_elimination() {
    let cubes: Vec<f32> =
        (0..32).map(|i| ((f64::from(i) * 0.7 + 0.2).sin() as f32).powi(3)).collect();
    let found = run(11, "Det", &[Floats(&[2, 4, 4], &cubes)], &[], &["y"]);
    assert!(found.iter().zip(DETS).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}");
    // Rows that must be exchanged, and a matrix that has no inverse.
    let matrices = [0.0, 2.0, 3.0, 0.0, 1.0, 2.0, 2.0, 4.0];
    assert_close(&run(22, "Det", &[Floats(&[2, 2, 2], &matrices)], &[], &["y"]), &[-6.0, 0.0]);
}

#[test]
fn elements_that_are_known_without_repetition() {
    let x = [Floats(&[2, 3], &[3.0, 1.0, 3.0, 1.0, 1.0, 2.0])];
    let outputs = ["y", "first", "inverse", "counts"];
    assert_close(&run(11, "Unique", &x, &[("sorted", 0.into())], &outputs), UNIQUE);
}

/// A seed decides, an element's place too, and both moments are as they should be.
#[test]
fn random_numbers_are_those_of_their_seed() {
    let shape = || ("shape", [40i64, 50].into());
    let draw = |op: &str, seed: f32| run(22, op, &[], &[shape(), ("seed", seed.into())], &["y"]);
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, square / values.len() as f64)
    };
    for (op, expected) in [("RandomUniform", (0.5, 1.0f64 / 12.0)), ("RandomNormal", (0.0, 1.0))] {
        let values = draw(op, 3.0);
        assert_eq!(values, draw(op, 3.0));
        assert_ne!(values, draw(op, 4.0));
        let (mean, variance) = moments(&values);
        assert!((mean - expected.0).abs() < 0.05 * expected.1.sqrt().max(1.0), "{op}: {mean}");
        assert!((variance / expected.1 - 1.0).abs() < 0.1, "{op}: {variance}");
        let neighbours = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
        assert!(neighbours.sum::<f64>().abs() / (2000.0 * variance) < 0.06, "{op}");
    }
    // Without a seed, the names of the outputs tell nodes apart.
    let named = |name: &str| run(22, "RandomUniform", &[], &[shape()], &[name]);
    assert_ne!(named("a"), named("b"));
    assert_eq!(named("a"), named("a"));
}

#[test]
fn draws_by_probabilities() {
    let seed = || ("seed", 5.0f32.into());
    let x = [Floats(&[1, 4], &[0.0, 1.0, 0.0, 1.0])];
    assert_eq!(run(15, "Bernoulli", &x, &[seed()], &["y"]), [0.0, 1.0, 0.0, 1.0]);
    // The logarithms of 1, 3 and as good as nothing.
    let x = [Floats(&[1, 3], &[0.0, 1.098_612_3, -40.0])];
    let drawn = run(7, "Multinomial", &x, &[seed(), ("sample_size", 1000.into())], &["y"]);
    let count = |class: f64| drawn.iter().filter(|&&index| index == class).count();
    assert_eq!(count(0.0) + count(1.0), 1000);
    assert!((200..300).contains(&count(0.0)), "{}", count(0.0));
}

#[test]
fn dropout_in_training_scales_what_it_keeps() {
    let inputs = [Floats(&[1000], &[1.0; 1000]), Floats(&[], &[0.25]), Truth(true)];
    let found = run(13, "Dropout", &inputs, &[("seed", 1.into())], &["y", "mask"]);
    let (values, mask) = found.split_at(1000);
    assert!(values.iter().zip(mask).all(|(value, kept)| (value - kept * 4.0 / 3.0).abs() < 1e-6));
    let count = mask.iter().sum::<f64>();
    assert!((700.0..800.0).contains(&count), "{count}");
}

const DETS: &[f64] = &[0.02582274, 0.0258227];
const STFT: &[f64] = &[
    4.267478,
    0.0,
    0.5508408,
    -0.03452434,
    -1.849903,
    0.1542994,
    -0.3796342,
    0.0211435,
    -0.2911607,
    1.992644e-07,
    -0.3796342,
    -0.02114335,
    -1.849903,
    -0.1542991,
    0.5508405,
    0.03452411,
    -3.086083,
    0.0,
    -0.5861382,
    -0.3439696,
    0.7653146,
    1.537295,
    -0.06234521,
    0.2106546,
    -0.1121496,
    -1.299948e-07,
    -0.06234524,
    -0.2106546,
    0.7653146,
    -1.537295,
    -0.5861379,
    0.3439696,
    -1.241506,
    0.0,
    0.02388042,
    0.371794,
    1.099495,
    -1.66165,
    0.4407649,
    -0.227695,
    0.4011258,
    -7.180173e-08,
    0.440765,
    0.2276948,
    1.099496,
    1.66165,
    0.02388047,
    -0.3717938,
];
const DFT_17: &[f64] = &[
    0.05324353,
    0.1964378,
    0.2472442,
    0.1817679,
    0.03080325,
    -0.1346486,
    0.2984678,
    -0.1310598,
    0.512839,
    0.05992785,
    -0.1241363,
    0.1514314,
    0.4132897,
    0.2574529,
    -0.01946799,
    -0.2872328,
    -0.4199075,
    -0.3550932,
    -0.5663317,
    0.4604961,
    0.2589583,
    0.7912422,
    0.6543605,
    -0.1915257,
];
const DFT_PAD: &[f64] = &[
    2.868395,
    -9.536743e-07,
    -0.3343635,
    -1.849261,
    -0.3232953,
    0.1426952,
    -0.08119683,
    -0.1478015,
    -2.656735,
    9.536743e-07,
    -0.6923604,
    1.941515,
    0.3604959,
    -0.005380839,
    -0.1941935,
    0.3517339,
];
const MEL: &[f64] = &[
    1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0,
    0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
];
const HAMMING1: &[f64] = &[0.0869565, 0.5434783, 1.0, 0.5434783, 0.0869565];
const TFIDF: &[f64] = &[1.0, 1.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.5, 0.0, 0.0, 0.0, 3.0];
const IDF: &[f64] = &[1.0, 0.5, 0.0, 2.0, 0.0, 0.0];
const UNIQUE: &[f64] = &[3.0, 1.0, 2.0, 0.0, 1.0, 5.0, 0.0, 1.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0];
