//! Tensor expressions of well-known computations, for schedules that are written by hand. Those of the
//! graph operators are in their definitions, `crate::ops`.

pub mod winograd;
