//! Ranges of activations, and the scales that cover them.

/// The least and the greatest number that a value has had.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// The least, at most 0.
    pub min: f64,
    /// The greatest, at least 0.
    pub max: f64,
}

/// Which number an unsigned byte stands for: `(byte - zero_point) * scale`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Affine {
    /// The difference of neighbours.
    pub scale: f32,
    /// The byte that stands for 0.
    pub zero_point: u8,
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

    /// The greatest magnitude.
    pub fn magnitude(self) -> f64 {
        self.max.max(-self.min)
    }

    /// What of the range is within a magnitude.
    #[must_use]
    pub fn within(self, magnitude: f64) -> Range {
        Range { min: self.min.max(-magnitude), max: self.max.min(magnitude) }
    }

    /// All bytes cover the range.
    pub fn asymmetric(self) -> Affine {
        let scale = scale(self.max - self.min, 255.0);
        let zero = (-self.min / f64::from(scale)).round_ties_even().clamp(0.0, 255.0);
        Affine { scale, zero_point: zero as u8 }
    }

    /// 0 is in the middle of the bytes, as with signed ones that have no zero point.
    pub fn symmetric(self) -> Affine {
        Affine { scale: scale(self.magnitude(), 127.0), zero_point: 128 }
    }
}
