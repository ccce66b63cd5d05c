//! Physical positions of logical indices, as expressions.

use super::{Buffer, PrimExpr};
use crate::ir::DType;

impl Buffer {
    /// The position, in elements, of a logical index: affine in the indices wherever blocks can be
    /// told apart, after simplification.
    pub fn address(&self, indices: &[PrimExpr]) -> PrimExpr {
        if let Some(extents) = &self.symbolic {
            // Row by row. The verifier reports a missing index.
            let mut axes = indices.iter().zip(extents);
            let wide = |index: &PrimExpr| index.clone().cast(DType::I64);
            let first = axes.next().map_or(PrimExpr::index(0), |(index, _)| wide(index));
            return axes.fold(first, |row, (index, extent)| row * extent + wide(index));
        }
        let spec = &self.spec;
        let mut inside: Vec<Option<i64>> = vec![None; spec.shape().len()];
        let mut position = PrimExpr::index(spec.offset());
        for (dim, stride) in spec.dims().iter().zip(spec.strides()) {
            // The verifier reports a missing index.
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

impl PrimExpr {
    /// The position `offset` elements behind this one.
    pub(crate) fn behind(&self, offset: &PrimExpr) -> PrimExpr {
        if offset.is_const(0) {
            return self.clone();
        }
        self.clone().cast(DType::I64) + offset.clone().cast(DType::I64)
    }
}
