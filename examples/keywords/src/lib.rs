//! What all programs that hear words have in common: the words, the sounds of the test, and the front end.
//!
//! The front end tells how loud ten bands of the mel scale are in frames of 32 ms, each frame 20 ms after the last. All of
//! it is integer arithmetic: the program that makes features for training and every microcontroller compute the same
//! bytes, and none needs a floating-point unit. It needs no standard library either: `examples/firmware` includes this
//! file.

/// What a sound may be, in the order of the model's probabilities; see `train/dataset.py`.
pub const WORDS: [&str; 8] = ["yes", "no", "up", "down", "stop", "go", "another word", "silence"];

/// Sounds of the test set.
pub const SOUNDS: usize = 240;

/// Features sound by sound, and then a label for each sound.
pub static TEST_SET: &[u8; SOUNDS * (FEATURES + 1)] = include_bytes!("../data/keywords-test.bin");

/// Three more sounds, sample by sample.
pub static SPOKEN: &[u8; 3 * SOUND] = include_bytes!("../data/spoken.pcm");

/// Samples in a second.
const RATE: usize = 8000;

/// Bytes of a second of sound: samples of 16 bits, the low byte first.
pub const SOUND: usize = 2 * RATE;

/// Samples of a frame, and points of its Fourier transform.
const FRAME: usize = 256;

/// Samples from the begin of one frame to that of the next.
const HOP: usize = 160;

const FRAMES: usize = (RATE - FRAME) / HOP + 1;

const BANDS: usize = 10;

/// Bytes for a second of sound: frame by frame, a byte for each band.
pub const FEATURES: usize = FRAMES * BANDS;

/// Where bands begin, are loudest and end, in points of the transform, which are 31.25 Hz apart: 12 places from
/// 62.5 Hz to 3906.25 Hz, as far apart as 1127 ln(1 + Hz / 700) says. Band `n` is a triangle on places `n` to `n + 2`.
const EDGES: [usize; BANDS + 2] = [2, 6, 11, 17, 25, 33, 43, 54, 68, 84, 103, 125];

/// What is added to a loudness, so that the byte 0 is about the noise of a sample's lowest bit.
const FLOOR: i32 = 40;

/// Sines of all angles, in steps of a part of a turn, as fractions of 32,767.
static SINES: [i16; FRAME] = sines();

const fn sines() -> [i16; FRAME] {
    let mut sines = [0; FRAME];
    let mut at = 0;
    while at < FRAME {
        // The sine of the same height within a quarter of a turn to either side of 0, where few terms are enough.
        let quarter = FRAME as i32 / 4;
        let turned = (at as i32 + quarter) % FRAME as i32 - quarter;
        let steps = if turned > quarter { 2 * quarter - turned } else { turned };
        let angle = steps as f64 * core::f64::consts::TAU / FRAME as f64;
        let (mut sum, mut term, mut power) = (angle, angle, 1);
        while power < 15 {
            term *= -angle * angle / ((power + 1) * (power + 2)) as f64;
            sum += term;
            power += 2;
        }
        let rounds = if sum < 0.0 { -0.5 } else { 0.5 };
        sines[at] = (sum * 32767.0 + rounds) as i16;
        at += 1;
    }
    sines
}

/// Sine and cosine of so many steps, fewer than [`FRAME`].
fn wave(steps: usize) -> (i32, i32) {
    (i32::from(SINES[steps]), i32::from(SINES[(steps + FRAME / 4) % FRAME]))
}

/// What the model takes of a second of sound.
pub fn features(sound: &[u8; SOUND]) -> [u8; FEATURES] {
    let mut features = [0; FEATURES];
    for (at, bands) in features.chunks_exact_mut(BANDS).enumerate() {
        let bytes = &sound[2 * at * HOP..][..2 * FRAME];
        frame(|at| i16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]), bands);
    }
    features
}

/// How loud each band of a frame is, in eighths of a doubling of its energy.
fn frame(sample: impl Fn(usize) -> i16, bands: &mut [u8]) {
    // Quiet frames are made louder, as rounding would hide them.
    let loudest = (0..FRAME).map(|at| sample(at).unsigned_abs()).max().unwrap_or(0);
    if loudest == 0 {
        return;
    }
    let doublings = loudest.min(i16::MAX as u16).leading_zeros() - 1;
    let mut points = [(0, 0); FRAME];
    for (at, point) in points.iter_mut().enumerate() {
        // Hann's window; half as loud, so that no sum of the transform is beyond 16 bits.
        let window = (32767 - wave(at).1) / 2;
        point.0 = (((i32::from(sample(at)) << doublings) * window) >> 16) as i16;
    }
    transform(&mut points);
    for (band, loudness) in bands.iter_mut().enumerate() {
        let [begin, peak, end] = [EDGES[band], EDGES[band + 1], EDGES[band + 2]];
        let weighted = |at: usize, weight: usize| {
            let (re, im) = (i32::from(points[at].0), i32::from(points[at].1));
            (re * re + im * im) as u64 * weight as u64
        };
        let rising: u64 = (begin..peak).map(|at| weighted(at, at - begin)).sum();
        let falling: u64 = (peak..end).map(|at| weighted(at, end - at)).sum();
        let energy = rising / (peak - begin) as u64 + falling / (end - peak) as u64;
        let logarithm = eighths(energy) - 16 * doublings as i32;
        *loudness = (logarithm + FLOOR).clamp(0, 255) as u8;
    }
}

/// The logarithm of a number below 2 to the power of 61 to the base 2, in eighths: straight lines between powers of 2.
fn eighths(number: u64) -> i32 {
    let power = number.max(1).ilog2();
    8 * power as i32 + ((number << 3 >> power) & 7) as i32
}

/// The discrete Fourier transform of points, divided by how many there are.
fn transform(points: &mut [(i16, i16); FRAME]) {
    for at in 0..FRAME {
        let reversed = at.reverse_bits() >> (usize::BITS - FRAME.ilog2());
        if at < reversed {
            points.swap(at, reversed);
        }
    }
    let mut half = 1;
    while half < FRAME {
        for part in points.chunks_exact_mut(2 * half) {
            let (first, second) = part.split_at_mut(half);
            for (at, (a, b)) in first.iter_mut().zip(second).enumerate() {
                let (sine, cosine) = wave(at * (FRAME / 2 / half));
                let (re, im) = (i32::from(b.0), i32::from(b.1));
                let turned_re = (re * cosine + im * sine) >> 15;
                let turned_im = (im * cosine - re * sine) >> 15;
                let (re, im) = (i32::from(a.0), i32::from(a.1));
                *a = (((re + turned_re) >> 1) as i16, ((im + turned_im) >> 1) as i16);
                *b = (((re - turned_re) >> 1) as i16, ((im - turned_im) >> 1) as i16);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    #[test]
    fn bands_are_as_wide_as_the_mel_scale_says() {
        let mel = |frequency: f64| 1127.0 * (1.0 + frequency / 700.0).ln();
        let step = RATE as f64 / FRAME as f64;
        let [first, last] = [EDGES[0], EDGES[BANDS + 1]].map(|edge| mel(edge as f64 * step));
        for (at, &edge) in EDGES.iter().enumerate() {
            let place = first + (last - first) * at as f64 / (BANDS + 1) as f64;
            let frequency = 700.0 * ((place / 1127.0).exp() - 1.0);
            assert_eq!(edge, (frequency / step).round() as usize);
        }
    }

    #[test]
    fn the_transform_is_that_of_floats() {
        let wave = |at: usize| 9000.0 * (0.3 * at as f64).sin() - 4000.0 * (1.7 * at as f64).cos();
        let mut points = [(0, 0); FRAME];
        for (at, point) in points.iter_mut().enumerate() {
            point.0 = wave(at) as i16;
        }
        transform(&mut points);
        for (number, &(re, im)) in points.iter().enumerate() {
            let turn = |at: usize| TAU * (at * number % FRAME) as f64 / FRAME as f64;
            let sum = |part: fn(f64) -> f64| -> f64 {
                (0..FRAME).map(|at| wave(at) * part(turn(at))).sum::<f64>() / FRAME as f64
            };
            let error = (f64::from(re) - sum(f64::cos)).hypot(f64::from(im) + sum(f64::sin));
            assert!(error < 6.0, "{number}: {re} {im}, {error}");
        }
    }

    #[test]
    fn a_tone_is_loudest_in_its_band_and_twice_as_loud_is_sixteen_steps_more() {
        let tone = |loudness: f64| {
            let mut sound = [0; SOUND];
            for (at, sample) in sound.chunks_exact_mut(2).enumerate() {
                let value = loudness * (TAU * 1000.0 * at as f64 / RATE as f64).sin();
                sample.copy_from_slice(&(value as i16).to_le_bytes());
            }
            features(&sound)
        };
        let [quiet, loud] = [tone(4000.0), tone(8000.0)];
        for (quiet, loud) in quiet.chunks_exact(BANDS).zip(loud.chunks_exact(BANDS)) {
            // 1000 Hz are point 32.
            assert_eq!((0..BANDS).max_by_key(|&band| loud[band]), Some(4));
            assert!(loud[4].abs_diff(quiet[4] + 16) <= 1, "{} {}", loud[4], quiet[4]);
        }
        assert_eq!(tone(0.0), [0; FEATURES]);
    }

    #[test]
    fn no_sound_is_too_loud() {
        let mut sound = [0; SOUND];
        for sample in sound.chunks_exact_mut(2) {
            sample.copy_from_slice(&i16::MIN.to_le_bytes());
        }
        features(&sound);
        for (at, sample) in sound.chunks_exact_mut(2).enumerate() {
            let value = if at / 4 % 2 == 0 { i16::MIN } else { i16::MAX };
            sample.copy_from_slice(&value.to_le_bytes());
        }
        assert!(features(&sound).iter().any(|&loudness| loudness > 200));
    }
}
