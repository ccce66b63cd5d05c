//! Tensors of elements narrower than a byte.
//!
//! The caller of a model hands over and receives such tensors packed, as ONNX stores them. Between
//! the kernels of a program each element has a byte: an integer as an 8-bit one, a `float4_e2m1` as
//! the `float8_e4m3fn` of the same value. Kernels at the borders of the program convert.

use super::{ComputeDag, StageId};
use crate::ir::{Constant, ConstantData, DType, SharedBytes, TensorType, unpack_elements};
use crate::tir::{BinaryOp, PrimExpr};

/// The data type in which a tensor of a data type is held within a program: itself unless its
/// elements are narrower than a byte.
pub fn held_as(dtype: DType) -> DType {
    match dtype {
        DType::I4 | DType::I2 => DType::I8,
        DType::U4 | DType::U2 => DType::U8,
        DType::F4E2M1 => DType::F8E4M3FN,
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F16
        | DType::BF16
        | DType::F32
        | DType::F64
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0 => dtype,
    }
}

/// Whether elements share bytes where the caller has them.
pub fn is_packed(dtype: DType) -> bool {
    dtype.bits() < 8
}

/// A constant in the data type in which it is held; one that is opaque is left as it is.
pub fn held_constant(constant: &Constant) -> Constant {
    let ty = constant.ty();
    let count = ty.num_elements().and_then(|count| usize::try_from(count).ok());
    let (true, Some(count)) = (is_packed(ty.dtype), count) else { return constant.clone() };
    let held = TensorType::new(ty.shape.clone(), held_as(ty.dtype));
    let byte = |code: &u8| held_code(*code, ty.dtype);
    let unpacked = match constant.data() {
        ConstantData::Splat(element) => {
            let element: Vec<u8> = element.iter().map(byte).collect();
            Constant::splat(held, &element)
        }
        ConstantData::Bytes(packed) => {
            let codes = unpack_elements(ty.dtype, packed, count);
            let bytes: Vec<u8> = codes.iter().map(byte).collect();
            Constant::new(held, SharedBytes::new(bytes))
        }
        ConstantData::Opaque => return constant.clone(),
    };
    unpacked.expect("there is one byte for each element")
}

/// The byte in which a code is held.
fn held_code(code: u8, dtype: DType) -> u8 {
    let bits = dtype.bits();
    let code = code & ((1 << bits) - 1);
    match dtype {
        DType::I4 | DType::I2 => ((code << (8 - bits)) as i8 >> (8 - bits)) as u8,
        DType::F4E2M1 => {
            let magnitude = match code & 7 {
                0 => 0,
                // A half: denormal in the narrower type.
                1 => 0x30,
                // The exponent's bias is greater by 6, and the mantissa has two more bits.
                normal => (normal << 2) + 0x30,
            };
            magnitude | (code & 8) << 4
        }
        _ => code,
    }
}

fn byte(value: i64) -> PrimExpr {
    PrimExpr::int(value, DType::U8)
}

fn shift(op: BinaryOp, value: PrimExpr, amount: PrimExpr) -> PrimExpr {
    PrimExpr::binary(op, value, amount)
}

/// As [`held_code`], of an expression whose other bits are zero.
fn held_expr(code: PrimExpr, dtype: DType) -> PrimExpr {
    match dtype {
        DType::I4 | DType::I2 => {
            let spare = PrimExpr::int(i64::from(8 - dtype.bits()), DType::I8);
            let high = shift(BinaryOp::Shl, code.cast(DType::I8), spare.clone());
            shift(BinaryOp::Shr, high, spare)
        }
        DType::F4E2M1 => {
            let magnitude = code.clone().and(byte(7));
            let normal = shift(BinaryOp::Shl, magnitude.clone(), byte(2)) + byte(0x30);
            let denormal = magnitude.clone() * byte(0x30);
            let held = PrimExpr::select(magnitude.less(byte(2)), denormal, normal);
            let sign = shift(BinaryOp::Shl, code.and(byte(8)), byte(4));
            held.or(sign).reinterpret(DType::F8E4M3FN)
        }
        _ => code,
    }
}

/// The inverse of [`held_expr`].
fn code_expr(held: PrimExpr, dtype: DType) -> PrimExpr {
    let mask = byte((1 << dtype.bits()) - 1);
    if dtype != DType::F4E2M1 {
        return held.cast(DType::U8).and(mask);
    }
    let bits = held.reinterpret(DType::U8);
    let magnitude = bits.clone().and(byte(0x7f));
    let normal = shift(BinaryOp::Shr, magnitude.clone() - byte(0x30), byte(2));
    let is_half = magnitude.clone().equal(byte(0x30));
    let small = PrimExpr::select(is_half, byte(1), byte(0));
    let code = PrimExpr::select(magnitude.less(byte(0x38)), small, normal);
    code.or(shift(BinaryOp::Shr, bits.and(byte(0x80)), byte(4)))
}

/// Bytes that a packed tensor takes.
pub fn packed_len(shape: &[i64], dtype: DType) -> i64 {
    let per_byte = i64::from(8 / dtype.bits().min(8));
    let count: i64 = shape.iter().product();
    count / per_byte + i64::from(count % per_byte != 0)
}

/// The tensor of packed bytes, as it is held.
pub fn unpack(dag: &mut ComputeDag, bytes: StageId, shape: &[i64], dtype: DType) -> StageId {
    let bits = i64::from(dtype.bits());
    let per_byte = 8 / bits;
    dag.compute("unpack", shape, held_as(dtype), |dag, index| {
        let position = flat(shape, index);
        let packed = dag.at(bytes, &[position.clone().floordiv(per_byte)]);
        let place = (position.floormod(per_byte) * bits).cast(DType::U8);
        held_expr(shift(BinaryOp::Shr, packed, place).and(byte((1 << bits) - 1)), dtype)
    })
}

/// The packed bytes of a tensor as it is held; what is left of the last byte is zero.
pub fn pack(dag: &mut ComputeDag, held: StageId, dtype: DType) -> StageId {
    let shape = dag.shape(held).to_vec();
    let count: i64 = shape.iter().product();
    let bits = i64::from(dtype.bits());
    let per_byte = 8 / bits;
    let len = packed_len(&shape, dtype);
    dag.compute("pack", &[len], DType::U8, |dag, index| {
        (0..per_byte).fold(byte(0), |packed, place| {
            let position = index[0].clone() * per_byte + place;
            let code = code_expr(dag.at(held, &unflat(&shape, &position)), dtype);
            let code = if count % per_byte == 0 {
                code
            } else {
                PrimExpr::select(position.less(count), code, byte(0))
            };
            packed.or(shift(BinaryOp::Shl, code, byte(place * bits)))
        })
    })
}

/// The position of an index in row-major order.
fn flat(shape: &[i64], index: &[PrimExpr]) -> PrimExpr {
    shape
        .iter()
        .zip(index)
        .fold(PrimExpr::index(0), |position, (&extent, i)| position * extent + i.clone())
}

/// The index of a position in row-major order.
fn unflat(shape: &[i64], position: &PrimExpr) -> Vec<PrimExpr> {
    let mut stride = 1;
    let mut index: Vec<PrimExpr> = shape
        .iter()
        .enumerate()
        .rev()
        .map(|(axis, &extent)| {
            let digit = position.clone().floordiv(stride);
            stride *= extent;
            if axis == 0 { digit } else { digit.floormod(extent) }
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::small_float::SmallFloat;

    #[test]
    fn constants_keep_their_values() {
        let [narrow, wide] =
            [DType::F4E2M1, DType::F8E4M3FN].map(|dtype| SmallFloat::of(dtype).unwrap());
        for code in 0..16u8 {
            let held = held_code(code, DType::F4E2M1);
            let (found, expected) = (wide.decode(held.into()), narrow.decode(code.into()));
            assert_eq!(found.to_bits(), expected.to_bits(), "{code:#x}");
        }
        let ty = |dtype| TensorType::from_consts(&[3], dtype);
        let packed = SharedBytes::new(vec![0x9f, 0x07]);
        let held = held_constant(&Constant::new(ty(DType::I4), packed).unwrap());
        assert_eq!(held.ty(), &ty(DType::I8));
        assert_eq!(held.to_i64_vec(), Some(vec![-1, -7, 7]));
        let splat = held_constant(&Constant::splat(ty(DType::U2), &[3]).unwrap());
        assert_eq!(splat.to_i64_vec(), Some(vec![3; 3]));
    }

    #[test]
    fn indices_and_positions_are_each_others_inverse() {
        let shape = [2, 3, 4];
        for position in 0..24 {
            let index = unflat(&shape, &PrimExpr::index(position));
            assert_eq!(flat(&shape, &index), PrimExpr::index(position));
        }
    }
}
