//! Passes over loop functions, one file each; `lower` names them in order.

mod compact_buffer_allocation;
mod flatten_buffer;
mod loop_partition;
mod lower_blocks;
mod lower_intrin;
mod lower_mul_add;
mod plan_buffer_allocation;
#[cfg(test)]
mod random_tests;
mod remove_no_op;
mod renormalize_split_pattern;
mod simplify;
mod unroll_loop;
mod unsupported_dtype_legalize;
mod vectorize_loop;

pub use compact_buffer_allocation::{CompactBufferAllocation, compact_buffer_allocation};
pub use flatten_buffer::{FlattenBuffer, flatten_buffer};
pub use loop_partition::{LOOP_PARTITION, LoopPartition, LoopPartitionConfig, loop_partition};
pub use lower_blocks::{LowerBlocks, lower_blocks};
pub use lower_intrin::{LowerIntrin, lower_intrin};
pub use lower_mul_add::{LowerMulAdd, lower_mul_add};
pub use plan_buffer_allocation::{PlanBufferAllocation, plan_buffer_allocation};
pub use remove_no_op::{RemoveNoOp, remove_no_op};
pub use renormalize_split_pattern::{RenormalizeSplitPattern, renormalize_split_pattern};
pub use simplify::{Simplify, simplify};
pub use unroll_loop::{UnrollLoop, unroll_loop};
pub use unsupported_dtype_legalize::{UnsupportedDtypeLegalize, unsupported_dtype_legalize};
pub use vectorize_loop::{VectorizeLoop, vectorize_loop};
