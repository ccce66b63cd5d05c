//! Ranges that leave out rare numbers, so that the others get finer steps.

use super::range::Range;

/// Which part of the numbers that an activation has had its bytes cover.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Calibration {
    /// All of them.
    #[default]
    MinMax,
    /// So many of a hundred.
    Percentile(f64),
    /// The part whose distribution, in bytes, says most of the whole one.
    Entropy,
}

impl Calibration {
    /// How many of a hundred numbers are covered unless it is given.
    pub const PERCENTILE: f64 = 99.99;
}

/// Bins on each side of 0, as many as TensorRT's and ONNX Runtime's calibration have.
const BINS: usize = 2048;

/// Steps on one side of 0 in which magnitudes are counted when entropies are compared.
const QUANTISED_BINS: usize = 128;

/// How many numbers a bin has on average where entropies are compared: fewer would tell more of
/// chance than of their distribution, and then bins are wider.
const NUMBERS_IN_BIN: u64 = 64;

/// What takes the place of an empty bin, so that its logarithm is finite.
const SMOOTHING: f64 = 1e-4;

/// How often an activation has had numbers of about the same size.
#[derive(Clone, Debug)]
pub struct Histogram {
    range: Range,
    /// From the negative greatest magnitude to the positive one.
    bins: Vec<u64>,
}

impl Histogram {
    /// No numbers yet. All that come are within `range`.
    pub fn new(range: Range) -> Histogram {
        Histogram { range, bins: vec![0; 2 * BINS] }
    }

    /// Counts numbers.
    pub fn add(&mut self, values: &[f64]) {
        let width = self.width();
        for value in values {
            let bin = (value / width).floor() + BINS as f64;
            // What is no number counts as 0, for a bin is needed; ranges have none.
            self.bins[(bin as usize).min(2 * BINS - 1)] += 1;
        }
    }

    /// The range to be covered; the same on both sides of 0 if it is symmetric.
    pub fn range(&self, calibration: Calibration, symmetric: bool) -> Range {
        if self.range == Range::ZERO {
            return self.range;
        }
        match calibration {
            Calibration::MinMax => self.range,
            Calibration::Percentile(percent) if symmetric => {
                let magnitudes = self.magnitudes();
                let bins = bins_of(&magnitudes, percent / 100.0);
                self.range.within(bins as f64 * self.width())
            }
            Calibration::Percentile(percent) => {
                // What is left out is shared by both ends.
                let part = 1.0 - (100.0 - percent) / 200.0;
                let above = bins_of(&self.bins, part) as f64 - BINS as f64;
                let reversed: Vec<u64> = self.bins.iter().rev().copied().collect();
                let below = BINS as f64 - bins_of(&reversed, part) as f64;
                let (min, max) = (below * self.width(), above * self.width());
                Range {
                    min: min.max(self.range.min).min(0.0),
                    max: max.min(self.range.max).max(0.0),
                }
            }
            Calibration::Entropy => {
                let magnitudes = self.magnitudes();
                // Those of 0 are in one bin, however many there are.
                let numbers: u64 = magnitudes[1..].iter().sum();
                let mut joined = 1;
                while BINS / joined > QUANTISED_BINS
                    && numbers < NUMBERS_IN_BIN * (BINS / joined) as u64
                {
                    joined *= 2;
                }
                let wider: Vec<u64> =
                    magnitudes.chunks(joined).map(|bins| bins.iter().sum()).collect();
                let bins = least_divergence(&wider) * joined;
                self.range.within(bins as f64 * self.width())
            }
        }
    }

    fn width(&self) -> f64 {
        let width = self.range.magnitude() / BINS as f64;
        if width > 0.0 { width } else { 1.0 }
    }

    /// How often each magnitude was there.
    fn magnitudes(&self) -> Vec<u64> {
        let (below, above) = self.bins.split_at(BINS);
        above.iter().zip(below.iter().rev()).map(|(above, below)| above + below).collect()
    }
}

/// How many bins have this part of all numbers.
fn bins_of(bins: &[u64], part: f64) -> usize {
    let all: u64 = bins.iter().sum();
    let needed = part * all as f64;
    let mut sum = 0;
    let found = bins.iter().position(|bin| {
        sum += bin;
        sum as f64 >= needed
    });
    found.map_or(bins.len(), |bin| bin + 1)
}

/// How many bins, from 0 on, are covered best: those for which the distribution with what is beyond
/// them in the last one is nearest, by Kullback and Leibler, to itself in [`QUANTISED_BINS`] steps.
///
/// The algorithm is that of Migacz, "8-bit Inference with TensorRT" (2017).
fn least_divergence(bins: &[u64]) -> usize {
    let mut best = (f64::INFINITY, bins.len());
    for count in QUANTISED_BINS..=bins.len() {
        let (covered, beyond) = bins.split_at(count);
        let mut reference: Vec<f64> = covered.iter().map(|&bin| bin as f64).collect();
        reference[count - 1] += beyond.iter().sum::<u64>() as f64;
        let mut quantised = vec![0.0; count];
        let merged = count / QUANTISED_BINS;
        for step in 0..QUANTISED_BINS {
            let start = step * merged;
            let end = if step + 1 == QUANTISED_BINS { count } else { start + merged };
            let sum: u64 = covered[start..end].iter().sum();
            // An empty bin stays one: its numbers are never there.
            let filled = reference[start..end].iter().filter(|&&bin| bin > 0.0).count();
            for at in start..end {
                if reference[at] > 0.0 {
                    quantised[at] = sum as f64 / filled as f64;
                }
            }
        }
        let divergence = divergence(&smooth(reference), &smooth(quantised));
        // Of equal ones the widest.
        if divergence <= best.0 {
            best = (divergence, count);
        }
    }
    best.1
}

/// A distribution whose empty bins have a little of what the others have.
fn smooth(mut bins: Vec<f64>) -> Vec<f64> {
    let filled = bins.iter().filter(|&&bin| bin > 0.0).count();
    if filled == 0 {
        return bins;
    }
    let taken = SMOOTHING * (bins.len() - filled) as f64 / filled as f64;
    for bin in &mut bins {
        *bin = if *bin > 0.0 { *bin - taken } else { SMOOTHING };
    }
    bins
}

/// The divergence of Kullback and Leibler of two distributions, which are made sums of 1.
fn divergence(p: &[f64], q: &[f64]) -> f64 {
    let (all_p, all_q) = (p.iter().sum::<f64>(), q.iter().sum::<f64>());
    let term = |(p, q): (&f64, &f64)| {
        let (p, q) = (p / all_p, q / all_q);
        if p <= 0.0 {
            0.0
        } else if q <= 0.0 {
            f64::INFINITY
        } else {
            p * (p / q).ln()
        }
    };
    p.iter().zip(q).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to 1, more of the small ones, and one that is far away.
    fn with_outlier(count: u32) -> Histogram {
        let number = |n| (f64::from(n) / f64::from(count)).powi(2);
        let mut values: Vec<f64> = (0..count).map(number).collect();
        values.push(50.0);
        let mut histogram = Histogram::new(Range::ZERO.cover(&values).unwrap());
        histogram.add(&values);
        histogram
    }

    #[test]
    fn all_numbers_are_covered_or_nearly_all() {
        let histogram = with_outlier(200_000);
        let range = |calibration| histogram.range(calibration, false);
        assert_eq!(range(Calibration::MinMax), Range { min: 0.0, max: 50.0 });
        assert_eq!(range(Calibration::Percentile(100.0)), Range { min: 0.0, max: 50.0 });
        let most = range(Calibration::Percentile(99.9));
        assert!(most.min == 0.0 && (1.0..1.05).contains(&most.max), "{most:?}");
        assert_eq!(histogram.range(Calibration::Percentile(99.9), true), most);
        let entropy = range(Calibration::Entropy);
        assert!(entropy.min == 0.0 && (1.0..7.0).contains(&entropy.max), "{entropy:?}");
    }

    #[test]
    fn few_numbers_have_no_distribution_to_speak_of() {
        let range = with_outlier(2000).range(Calibration::Entropy, false);
        assert_eq!(range, Range { min: 0.0, max: 50.0 });
    }

    #[test]
    fn both_ends_are_cut() {
        let mut values: Vec<f64> = (-1000..=3000).map(|n| f64::from(n) / 1000.0).collect();
        values.extend([-40.0, 40.0]);
        let mut histogram = Histogram::new(Range::ZERO.cover(&values).unwrap());
        histogram.add(&values);
        let cut = histogram.range(Calibration::Percentile(99.9), false);
        assert!((-1.05..=-0.95).contains(&cut.min) && (2.95..=3.05).contains(&cut.max), "{cut:?}");
        let cut = histogram.range(Calibration::Percentile(99.9), true);
        assert!((-3.05..=-2.95).contains(&cut.min) && (2.95..=3.05).contains(&cut.max), "{cut:?}");
    }

    #[test]
    fn nothing_and_zeros_have_the_range_of_nothing() {
        let mut histogram = Histogram::new(Range::ZERO);
        histogram.add(&[0.0; 4]);
        for calibration in
            [Calibration::MinMax, Calibration::Percentile(99.0), Calibration::Entropy]
        {
            assert_eq!(histogram.range(calibration, false), Range::ZERO);
        }
    }
}
