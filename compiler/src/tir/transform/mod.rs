//! Passes over loop functions, one file each; `lower` names them in order.

mod annotate_no_alias;
mod compact_buffer_allocation;
mod flatten_buffer;
mod lower_blocks;
mod lower_intrin;
mod lower_mul_add;
mod plan_buffer_allocation;
mod remove_no_op;
mod simplify;
mod unroll_loop;
mod unsupported_dtype_legalize;
mod vectorize_loop;

pub use annotate_no_alias::{AnnotateNoAlias, NOALIAS, NOALIAS_ATTR, annotate_no_alias};
pub use compact_buffer_allocation::{CompactBufferAllocation, compact_buffer_allocation};
pub use flatten_buffer::{FlattenBuffer, flatten_buffer};
pub use lower_blocks::{LowerBlocks, lower_blocks};
pub use lower_intrin::{LowerIntrin, lower_intrin};
pub use lower_mul_add::{LowerMulAdd, lower_mul_add};
pub use plan_buffer_allocation::{PlanBufferAllocation, plan_buffer_allocation};
pub use remove_no_op::{RemoveNoOp, remove_no_op};
pub use simplify::{Simplify, simplify};
pub use unroll_loop::{
    PRAGMA_AUTO_UNROLL_MAX_STEP, PRAGMA_UNROLL_EXPLICIT, UNROLL_LOOP, UnrollLoop, UnrollLoopConfig,
    unroll_loop,
};
pub use unsupported_dtype_legalize::{UnsupportedDtypeLegalize, unsupported_dtype_legalize};
pub use vectorize_loop::{DISABLE_VECTORIZE, VectorizeLoop, vectorize_loop};
