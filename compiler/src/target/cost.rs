//! What computations cost on a target, for passes that choose between algorithms.

use super::Target;

/// Channels of one block of the layout that convolutions read and write images in: one for all
/// targets, as the CPU levels of a program share layouts and packed weights.
pub const CHANNEL_BLOCK: i64 = 16;

/// What the parts of a convolution cost, in nanoseconds of one core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConvCosts {
    /// Multiply-adds in a nanosecond.
    pub multiply_adds: f64,
    /// Bytes of weights in a nanosecond, of a model that does not stay in the caches.
    pub bandwidth: f64,
    /// How much of the time in which weights are read is not hidden behind the products.
    pub exposed: f64,
    /// To transform a tile of 16 channels for Winograd's algorithm F(2x2, 3x3): input and output.
    pub transform_f2: [f64; 2],
    /// The same for F(4x4, 3x3).
    pub transform_f4: [f64; 2],
}

impl ConvCosts {
    /// So many multiply-adds.
    pub fn products(&self, count: f64) -> f64 {
        count / self.multiply_adds
    }

    /// So many weights of `float32`, read once.
    pub fn streamed(&self, weights: f64) -> f64 {
        self.exposed * 4.0 * weights / self.bandwidth
    }
}

/// Measured on a server of 2023 with AVX-512: 95% of a peak of 180 GFLOP/s, and weights from the
/// third-level cache. They predicted the times of both algorithms there within some ten percent.
const AVX512: ConvCosts = ConvCosts {
    multiply_adds: 0.95 * 90.0,
    bandwidth: 29.0,
    exposed: 0.7,
    transform_f2: [26.0, 15.0],
    transform_f4: [78.0, 57.0],
};

impl Target {
    /// What convolutions cost. Only ratios matter to what goes by it, and those of narrower vectors
    /// have not been measured: every target has the figures of AVX-512.
    pub fn conv_costs(&self) -> ConvCosts {
        AVX512
    }
}
