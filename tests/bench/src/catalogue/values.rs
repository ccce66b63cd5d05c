//! Numbers for inputs and weights, the same on each run.

/// A generator of numbers: xorshift with 64 bits of state, after Marsaglia.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number of about the normal distribution: the sum of four of the uniform one.
    fn normal(&mut self) -> f32 {
        let word = self.next();
        let sum: u64 = (0..4).map(|part| (word >> (16 * part)) & 0xffff).sum();
        // Each part has the mean 1/2 and the variance 1/12.
        (sum as f32 / 65536.0 - 2.0) * 3.0f32.sqrt()
    }

    /// Numbers of the normal distribution with that deviation.
    pub(super) fn normals(&mut self, count: usize, deviation: f32) -> Vec<f32> {
        (0..count).map(|_| self.normal() * deviation).collect()
    }
}

/// The extents as ONNX has them.
pub(super) fn dims(extents: &[usize]) -> Vec<i64> {
    extents.iter().map(|&extent| extent as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_their_mean_and_deviation() {
        let values = Random::new(1).normals(100_000, 2.0);
        let count = values.len() as f32;
        let mean = values.iter().sum::<f32>() / count;
        let variance = values.iter().map(|value| value * value).sum::<f32>() / count;
        assert!(mean.abs() < 0.05, "{mean}");
        assert!((variance.sqrt() - 2.0).abs() < 0.05, "{variance}");
    }
}
