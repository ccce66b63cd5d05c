//! Ranges of activations, and the scales that cover them.

/// The least and the greatest number that a value has had.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// The least, at most 0.
    pub min: f64,
    /// The greatest, at least 0.
    pub max: f64,
}

/// The smallest scale: so that it is a normal number, and its reciprocal finite.
const MIN_SCALE: f32 = 1e-30;

/// A scale with which `most` is `steps`.
pub(super) fn scale(most: f64, steps: f64) -> f32 {
    let scale = (most / steps) as f32;
    // Where everything is zero any scale will do.
    if scale < MIN_SCALE { 1.0 } else { scale }
}

impl Range {
    /// The range of nothing: 0 is always exact, as padding and rectifiers need it.
    pub const ZERO: Range = Range { min: 0.0, max: 0.0 };

    /// Covers more numbers; `None` if one is not finite.
    #[must_use]
    pub fn cover(self, values: &[f64]) -> Option<Range> {
        values.iter().try_fold(self, |range, &value| {
            let covered = Range { min: range.min.min(value), max: range.max.max(value) };
            value.is_finite().then_some(covered)
        })
    }

    /// Scale and zero point with which unsigned bytes cover the range.
    pub fn asymmetric(self) -> (f32, u8) {
        let scale = scale(self.max - self.min, 255.0);
        let zero = (-self.min / f64::from(scale)).round_ties_even().clamp(0.0, 255.0);
        (scale, zero as u8)
    }
}
