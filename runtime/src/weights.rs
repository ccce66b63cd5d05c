//! Weights that are not linked into the binary: alignment and check.

use crate::WeightsError;

/// Alignment that kernels rely on.
const ALIGNMENT: usize = 64;

/// Gives a value the alignment that weights need.
///
/// ```
/// static WEIGHTS: &niello_runtime::Aligned<[u8]> = &niello_runtime::Aligned([1, 2, 3]);
/// assert_eq!(WEIGHTS.0.as_ptr() as usize % 64, 0);
/// ```
///
/// In a crate whose build script has written the file: `Aligned(*include_bytes!(..))`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct Aligned<T: ?Sized>(pub T);

/// The checksum by which a model knows its weights again.
///
/// It tells files apart that were mixed up, cut or damaged; it does not resist somebody who makes a
/// file on purpose. Four lanes of 64 bits, little-endian whatever the machine; each step is a
/// bijection of its lane, so a single wrong word is always found.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(bytes);
    sum.finish()
}

/// Odd, with bits all over: the fractional parts of the golden ratio and of the square roots of 2,
/// 3 and 5.
const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b];

/// A [`checksum`] of bytes that come in parts.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Checksum {
    lanes: [u64; 4],
    /// What came after the last whole block.
    rest: [u8; 32],
    len: u64,
}

impl Checksum {
    /// Of no bytes so far.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "there is one way to begin")]
    pub fn new() -> Checksum {
        Checksum { lanes: MULTIPLIERS, rest: [0; 32], len: 0 }
    }

    /// Goes on with these bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let held = (self.len % 32) as usize;
        self.len += bytes.len() as u64;
        if held > 0 {
            let taken = bytes.len().min(32 - held);
            self.rest[held..held + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if held + taken < 32 {
                return;
            }
            let rest = self.rest;
            self.step(&rest);
        }
        let mut blocks = bytes.chunks_exact(32);
        for block in &mut blocks {
            let mut whole = [0; 32];
            whole.copy_from_slice(block);
            self.step(&whole);
        }
        self.rest[..blocks.remainder().len()].copy_from_slice(blocks.remainder());
    }

    /// The sum of all bytes.
    #[must_use]
    pub fn finish(mut self) -> u64 {
        let mut last = self.rest;
        last[(self.len % 32) as usize..].fill(0);
        self.step(&last);
        let mut sum = self.len;
        for (lane, multiplier) in self.lanes.into_iter().zip(MULTIPLIERS) {
            sum = (sum ^ lane).wrapping_mul(multiplier);
            sum ^= sum >> 32;
        }
        sum
    }

    fn step(&mut self, block: &[u8; 32]) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let mut word = [0; 8];
            word.copy_from_slice(&block[8 * index..8 * index + 8]);
            let mixed = (*lane ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIERS[index]);
            *lane = mixed ^ (mixed >> 29);
        }
    }
}

/// Checks bytes that are to be a model's weights.
///
/// # Errors
///
/// Length, alignment or checksum differ, in this order.
#[doc(hidden)]
pub fn verify(weights: &[u8], length: usize, sum: u64) -> Result<(), WeightsError> {
    if weights.len() != length {
        return Err(WeightsError::Length { expected: length, found: weights.len() });
    }
    let offset = weights.as_ptr() as usize % ALIGNMENT;
    if offset != 0 && length != 0 {
        return Err(WeightsError::Alignment { offset });
    }
    match checksum(weights) {
        found if found == sum => Ok(()),
        found => Err(WeightsError::Checksum { expected: sum, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_tells_lengths_and_single_bits_apart() {
        let mut bytes = [0u8; 100];
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..=bytes.len() {
            assert!(seen.insert(checksum(&bytes[..length])), "{length} zeros");
        }
        for index in 0..bytes.len() {
            for bit in 0..8 {
                bytes[index] ^= 1 << bit;
                assert!(seen.insert(checksum(&bytes)), "bit {bit} of byte {index}");
                bytes[index] ^= 1 << bit;
            }
        }
    }

    /// Files on disk are checked by later builds of this crate, so the function may not change
    /// under the same version of the bindings. The values come from a second implementation.
    #[test]
    fn the_checksum_stays_what_it_is() {
        let bytes: [u8; 70] = core::array::from_fn(|index| (index * 7) as u8);
        assert_eq!(checksum(&[]), 0x26d7_00fc_161a_1252);
        assert_eq!(checksum(&bytes), 0xc2cf_9269_d2a2_d2a9);
        for size in 1..=bytes.len() {
            let mut sum = Checksum::new();
            bytes.chunks(size).for_each(|part| sum.update(part));
            assert_eq!(sum.finish(), 0xc2cf_9269_d2a2_d2a9, "parts of {size}");
        }
    }

    #[test]
    fn wrong_weights_are_refused_with_what_is_wrong() {
        let good = Aligned([1u8, 2, 3, 4, 5]);
        let sum = checksum(&good.0);
        assert_eq!(verify(&good.0, 5, sum), Ok(()));
        assert_eq!(
            verify(&good.0[..4], 5, sum),
            Err(WeightsError::Length { expected: 5, found: 4 })
        );
        assert_eq!(
            verify(&good.0[1..], 4, checksum(&good.0[1..])),
            Err(WeightsError::Alignment { offset: 1 })
        );
        let bad = Aligned([1u8, 2, 3, 4, 6]);
        let found = checksum(&bad.0);
        assert_eq!(verify(&bad.0, 5, sum), Err(WeightsError::Checksum { expected: sum, found }));
        assert_eq!(verify(&[], 0, checksum(&[])), Ok(()));
    }
}
