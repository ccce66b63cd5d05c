//! Memory of one inference: which value is where.

pub mod arena;
mod border;
mod order;
mod plan;
mod storage;
pub mod tokens;

pub use border::zero_border;
pub use order::order_steps;
pub use plan::{MemoryPlan, Place, peak_live_bytes, plan, plan_blocks};
pub use storage::{OutputCopy, Storage};
