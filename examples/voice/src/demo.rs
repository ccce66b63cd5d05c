//! Sound that the program makes itself: two vowels in quiet noise.

use std::f64::consts::TAU;
use std::ops::Range;

use crate::RATE;

/// Length of the sound in seconds.
const LENGTH: f64 = 2.7;

/// A vowel: harmonics of a voice, of which a mouth lets some through.
#[derive(Clone, Copy)]
pub(crate) struct Vowel {
    /// When it begins, in seconds.
    pub(crate) begin: f64,
    /// When it ends.
    pub(crate) end: f64,
    /// Frequency of the voice, in Hz.
    pitch: f64,
    /// Frequencies that the mouth lets through, in Hz: the formants.
    formants: [f64; 3],
}

/// An "ah" of a low voice, and an "ee" of a higher one.
pub(crate) const VOWELS: [Vowel; 2] = [
    Vowel { begin: 0.5, end: 1.2, pitch: 120.0, formants: [700.0, 1200.0, 2600.0] },
    Vowel { begin: 1.7, end: 2.2, pitch: 210.0, formants: [300.0, 2200.0, 3000.0] },
];

impl Vowel {
    /// Which samples of the sound it is in.
    pub(crate) fn samples(&self) -> Range<usize> {
        samples(self.begin)..samples(self.end)
    }

    /// How loud the voice is at a frequency: half as loud 80 Hz beside a formant.
    fn loudness(&self, frequency: f64) -> f64 {
        let through = |formant: f64| 1.0 / (1.0 + ((frequency - formant) / 80.0).powi(2));
        0.1 * self.formants.into_iter().map(through).sum::<f64>()
    }

    /// The voice `seconds` after it began.
    fn at(&self, seconds: f64) -> f64 {
        let harmonics = (1..).map(|number| f64::from(number) * self.pitch);
        let heard = harmonics.take_while(|&frequency| frequency < 4000.0);
        heard.map(|frequency| self.loudness(frequency) * (TAU * frequency * seconds).sin()).sum()
    }
}

/// How many samples there are in some seconds.
fn samples(seconds: f64) -> usize {
    (seconds * f64::from(RATE)) as usize
}

/// White noise; the numbers that a generator draws are the same in each run.
pub(crate) fn noise(seconds: f64, loudness: f32) -> Vec<f32> {
    let mut state = 1_u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        loudness * (state as f32 / 2.0_f32.powi(31) - 1.0)
    };
    (0..samples(seconds)).map(|_| draw()).collect()
}

/// The vowels, with noise before, between and after them.
pub(crate) fn sound() -> Vec<f32> {
    let mut sound = noise(LENGTH, 0.002);
    for vowel in VOWELS {
        for (at, sample) in sound[vowel.samples()].iter_mut().enumerate() {
            *sample += vowel.at(at as f64 / f64::from(RATE)) as f32;
        }
    }
    sound
}
