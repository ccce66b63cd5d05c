//! Physical positions of logical indices, as expressions.

use super::{Buffer, PrimExpr};
use crate::ir::DType;

impl Buffer {
    /// The position, in elements, of a logical index: affine in the indices wherever blocks can be
    /// told apart, after simplification.
    pub fn address(&self, indices: &[PrimExpr]) -> PrimExpr {
        let spec = &self.spec;
        let mut inside: Vec<Option<i64>> = vec![None; spec.shape().len()];
        let mut position = PrimExpr::index(spec.offset());
        for (dim, stride) in spec.dims().iter().zip(spec.strides()) {
            // A missing index is the verifier's to report.
            let Some(index) = indices.get(dim.axis) else { continue };
            // A position may need more bits than the index of an axis.
            let mut digit = index.clone().cast(DType::I64) + spec.halo()[dim.axis].before;
            if let Some(outer) = inside[dim.axis] {
                digit = digit.floormod(outer);
            }
            position = position + digit.floordiv(dim.step) * stride;
            inside[dim.axis] = Some(dim.step);
        }
        position
    }
}
