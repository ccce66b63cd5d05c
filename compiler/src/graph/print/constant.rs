//! Prints constants.

use std::fmt::Write;

use crate::graph::sidecar::DigestText;
use crate::ir::text::element_text;
use crate::ir::{Constant, ConstantData, TensorType};

/// Ranks above this print their elements as one flat list beside the whole type.
const MAX_NESTED_RANK: usize = 8;

/// Writes a constant; returns whether it was written by its digest alone.
pub(super) fn write_constant(out: &mut String, constant: &Constant, inline_elements: u64) -> bool {
    let ty = constant.ty();
    match constant.data() {
        ConstantData::Splat(element) => {
            let mask = u64::MAX >> (64 - ty.dtype.bits());
            let text = element_text(ty.dtype, little_endian(element) & mask);
            let _ = match ty.shape.rank() {
                0 => write!(out, "const({text}, {})", ty.dtype),
                _ => write!(out, "splat({text}, {ty})"),
            };
            false
        }
        ConstantData::Bytes(bytes) if ty.num_elements().is_some_and(|n| n <= inline_elements) => {
            write_elements(out, ty, bytes);
            false
        }
        ConstantData::Bytes(_) | ConstantData::Opaque => {
            let _ = write!(out, "const({ty}, {})", DigestText(constant.digest()));
            true
        }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The bits of one element of a dense tensor.
fn element(bytes: &[u8], bits: usize, index: usize) -> u64 {
    if bits >= 8 {
        return little_endian(&bytes[index * bits / 8..(index + 1) * bits / 8]);
    }
    let shift = index * bits % 8;
    u64::from(bytes[index * bits / 8] >> shift) & ((1 << bits) - 1)
}

fn write_elements(out: &mut String, ty: &TensorType, bytes: &[u8]) {
    let dims = ty.shape.as_consts().unwrap_or_default();
    let elements = ty.num_elements().unwrap_or(0);
    let bits = ty.dtype.bits() as usize;
    let nested = elements > 0 && dims.len() <= MAX_NESTED_RANK;
    // Brackets open before every element that starts a row of some dimension.
    let rows: Vec<u64> = if nested {
        let mut rows = Vec::with_capacity(dims.len());
        let mut row = 1u64;
        for &dim in dims.iter().rev() {
            row *= dim;
            rows.push(row);
        }
        rows
    } else {
        vec![elements.max(1)]
    };
    out.push_str("const(");
    if elements == 0 {
        out.push_str("[]");
    }
    for index in 0..elements {
        if index > 0 {
            out.push_str(", ");
        }
        let opened = rows.iter().filter(|&&row| index % row == 0).count();
        out.extend(std::iter::repeat_n('[', opened));
        out.push_str(&element_text(ty.dtype, element(bytes, bits, index as usize)));
        let closed = rows.iter().filter(|&&row| (index + 1) % row == 0).count();
        out.extend(std::iter::repeat_n(']', closed));
    }
    let _ = match nested {
        true => write!(out, ", {})", ty.dtype),
        false => write!(out, ", {ty})"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, SharedBytes};

    fn text(constant: &Constant) -> String {
        let mut out = String::new();
        write_constant(&mut out, constant, 16);
        out
    }

    #[test]
    fn shapes_show_as_brackets() {
        let matrix = Constant::from_i64(&[2, 1, 2], &[1, -2, 3, 4]).unwrap();
        assert_eq!(text(&matrix), "const([[[1, -2]], [[3, 4]]], int64)");
        assert_eq!(text(&Constant::scalar(0.5, DType::F16).unwrap()), "const(0.5, float16)");
        let empty = Constant::from_f32(&[0, 3], &[]).unwrap();
        assert_eq!(text(&empty), "const([], Tensor[(0, 3), float32])");
        let deep = Constant::from_i64(&[1; 9], &[7]).unwrap();
        assert_eq!(text(&deep), "const([7], Tensor[(1, 1, 1, 1, 1, 1, 1, 1, 1), int64])");
        let ty = TensorType::from_consts(&[3], DType::I4);
        let narrow = Constant::new(ty, SharedBytes::new(vec![0x2f, 0x08])).unwrap();
        assert_eq!(text(&narrow), "const([-1, 2, -8], int4)");
    }

    #[test]
    fn large_or_opaque_constants_print_as_their_digest() {
        let large = Constant::from_f32(&[17], &[0.25; 17]).unwrap();
        let shown = text(&large);
        assert!(shown.starts_with("const(Tensor[(17), float32], blake3:"), "{shown}");
        let opaque = Constant::opaque(TensorType::from_consts(&[1], DType::F32), [0xab; 32]);
        assert!(text(&opaque).ends_with("abab)"), "{}", text(&opaque));
    }
}
