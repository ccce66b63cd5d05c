//! Rounding to integers for targets without instructions for it.

use super::math::Math;
use crate::ir::DType;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

impl Math<'_> {
    /// `floor`, `ceil`, `trunc` or `round` (ties to even) of `float32` or `float64`.
    ///
    /// Adding and subtracting 2²³ (2⁵²) leaves the nearest integer of a smaller number; larger ones
    /// are integers already, and NaN compares as not smaller.
    pub(super) fn round(&mut self, intrinsic: Intrinsic, x: PrimExpr) -> PrimExpr {
        let dtype = x.dtype();
        let (int_dtype, threshold, sign) = match dtype {
            DType::F64 => (DType::I64, 4_503_599_627_370_496.0, i64::MIN),
            _ => (DType::I32, 8_388_608.0, i64::from(i32::MIN)),
        };
        let float = |value: f64| PrimExpr::float(value, dtype);
        let x = self.bind("x", x);
        let size = self.bind("size", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let nearest = self.bind("nearest", size.clone() + float(threshold) - float(threshold));
        let sign_bit = x
            .clone()
            .reinterpret(int_dtype)
            .and(PrimExpr::int(sign, int_dtype).broadcast_to(x.ty().lanes));
        let sign_bit = self.bind("sign", sign_bit);
        let with_sign = |value: PrimExpr| {
            PrimExpr::binary(BinaryOp::Or, value.reinterpret(int_dtype), sign_bit.clone())
                .reinterpret(dtype)
        };
        let rounded = match intrinsic {
            Intrinsic::Trunc => {
                let below = nearest.clone() - float(1.0);
                let towards_zero =
                    PrimExpr::select(nearest.clone().greater(size.clone()), below, nearest);
                with_sign(towards_zero)
            }
            Intrinsic::Floor => {
                let nearest = self.bind("nearest", with_sign(nearest));
                let below = nearest.clone() - float(1.0);
                PrimExpr::select(nearest.clone().greater(x.clone()), below, nearest)
            }
            Intrinsic::Ceil => {
                let nearest = self.bind("nearest", with_sign(nearest));
                let above = nearest.clone() + float(1.0);
                // −0.7 rounds to −1, and one more is −0, not 0.
                with_sign(PrimExpr::select(nearest.clone().less(x.clone()), above, nearest))
            }
            _ => with_sign(nearest),
        };
        PrimExpr::select(size.less(float(threshold)), rounded, x)
    }
}
