//! Memory of one inference: which value is where.

pub mod arena;
mod border;
mod plan;

pub use border::zero_border;
pub use plan::{MemoryPlan, Place, plan};
