//! Elements narrower than a byte: between their packed bytes and one byte for each.

use super::DType;

/// One byte for each of `count` packed elements: the code of the element in the low bits.
///
/// Bytes that are missing count as zero.
pub fn unpack_elements(dtype: DType, packed: &[u8], count: usize) -> Vec<u8> {
    let bits = dtype.bits();
    if bits >= 8 {
        return packed.to_vec();
    }
    let per_byte = (8 / bits) as usize;
    let mask = (1u8 << bits) - 1;
    let mut codes = Vec::with_capacity(packed.len().saturating_mul(per_byte));
    for byte in packed {
        codes.extend((0..8 / bits).map(|place| byte >> (place * bits) & mask));
    }
    codes.resize(count, 0);
    codes
}

/// The inverse of [`unpack_elements`]: the first element in the lowest bits of the first byte, and
/// zeros after the last. Only the low bits of each code count.
pub fn pack_elements(dtype: DType, codes: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    if bits >= 8 {
        return codes.to_vec();
    }
    let mask = (1u8 << bits) - 1;
    let pack = |codes: &[u8]| {
        let places = codes.iter().zip((0..8).step_by(bits as usize));
        places.fold(0, |byte, (code, place)| byte | (code & mask) << place)
    };
    codes.chunks((8 / bits) as usize).map(pack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_is_in_the_low_bits() {
        assert_eq!(pack_elements(DType::U4, &[1, 2, 0xf3]), [0x21, 0x03]);
        assert_eq!(unpack_elements(DType::U4, &[0x21, 0xf3], 3), [1, 2, 3]);
        assert_eq!(pack_elements(DType::I2, &[3, 0, 1, 2, 3]), [0b10_01_00_11, 0b11]);
        assert_eq!(unpack_elements(DType::I2, &[0b10_01_00_11, 0b11], 5), [3, 0, 1, 2, 3]);
        assert_eq!(unpack_elements(DType::F8E5M2, &[7, 8], 2), [7, 8]);
    }
}
