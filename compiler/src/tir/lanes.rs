//! Single lanes of vector expressions.

use super::PrimExpr;

impl PrimExpr {
    /// The value of the first lane of an index whose lanes are consecutive, if it is constant.
    pub(crate) fn first_position(&self) -> Option<i64> {
        match self {
            PrimExpr::Ramp { base, stride, .. } if stride.is_const(1) => base.as_int(),
            PrimExpr::Int { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// One lane of a vector as a scalar expression; a scalar unchanged.
    pub fn lane_expr(&self, lane: u32) -> PrimExpr {
        if self.ty().is_scalar() {
            return self.clone();
        }
        match self {
            PrimExpr::Ramp { base, stride, lanes: _ } => {
                let distance = PrimExpr::int(i64::from(lane), base.dtype());
                (**base).clone() + (**stride).clone() * distance
            }
            PrimExpr::Broadcast { value, lanes: _ } => (**value).clone(),
            PrimExpr::Shuffle { vectors, lanes } => {
                let mut position = lanes.get(lane as usize).copied().unwrap_or(0);
                for vector in vectors {
                    let width = vector.ty().lanes;
                    if position < width {
                        return vector.lane_expr(position);
                    }
                    position -= width;
                }
                self.clone().lane(lane)
            }
            // Other parts of the body may use the whole value.
            PrimExpr::Let { var, value, body } => PrimExpr::Let {
                var: *var,
                value: value.clone(),
                body: Box::new(body.lane_expr(lane)),
            },
            PrimExpr::DotAdd { a, b, c } => {
                let group = a.ty().lanes / c.ty().lanes.max(1);
                let part = |vector: &PrimExpr| {
                    vector.clone().shuffle((lane * group..(lane + 1) * group).collect())
                };
                PrimExpr::dot_add(part(a), part(b), c.lane_expr(lane))
            }
            PrimExpr::Var { .. } => self.clone().lane(lane),
            PrimExpr::Int { .. }
            | PrimExpr::Float { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::Unary { .. }
            | PrimExpr::Binary { .. }
            | PrimExpr::Compare { .. }
            | PrimExpr::Select { .. }
            | PrimExpr::Cast { .. }
            | PrimExpr::Reinterpret { .. }
            | PrimExpr::Load { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::Call { .. } => {
                self.clone().map_children(&mut |child| child.lane_expr(lane))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferSpec, DType};
    use crate::tir::{PrimExpr, PrimFuncData, PrimType};

    #[test]
    fn every_lane_of_a_gather_has_its_own_address() {
        let mut func = PrimFuncData::new("f");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[64]));
        let var = func.index_var("i");
        let i = func.var_expr(var);
        let index = PrimExpr::ramp(i.clone(), 3, 4);
        let sum = func.load(x, [index]) * PrimExpr::f32(2.0);
        assert_eq!(sum.ty(), PrimType::vector(DType::F32, 4));
        assert_eq!(sum.lane_expr(2), func.load(x, [i + 6]) * PrimExpr::f32(2.0));
    }
}
