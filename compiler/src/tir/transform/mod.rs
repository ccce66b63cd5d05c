//! Passes over loop functions, one file each; `lower` names them in order.

mod annotate_denormals;
mod annotate_no_alias;
mod bf16_compute_legalize;
mod bf16_storage_legalize;
mod common_subexpr_elim_tir;
mod compact_buffer_allocation;
mod convert_ssa;
mod flatten_buffer;
mod fp16_compute_legalize;
mod fp16_storage_legalize;
mod hoist_if_then_else;
mod inject_double_buffer;
mod instrument_bound_checkers;
mod legalize_register_access;
mod limit_loops;
mod loop_partition;
mod lower_blocks;
mod lower_intrin;
mod lower_mul_add;
mod narrow_data_type;
mod parallelize_loops;
mod plan_buffer_allocation;
#[cfg(test)]
mod random_tests;
mod remove_no_op;
mod renormalize_split_pattern;
mod rewrite_unsafe_select;
mod simplify;
mod specialize_buckets;
mod storage_rewrite;
mod unroll_loop;
mod unsupported_dtype_legalize;
mod vectorize_loop;
mod verify_memory;

pub use annotate_denormals::{
    AnnotateDenormals, FLUSH_DENORMALS, FLUSH_DENORMALS_ATTR, annotate_denormals,
};
pub use annotate_no_alias::{AnnotateNoAlias, NOALIAS, NOALIAS_ATTR, annotate_no_alias};
pub use bf16_compute_legalize::{Bf16ComputeLegalize, bf16_compute_legalize};
pub use bf16_storage_legalize::{Bf16StorageLegalize, bf16_storage_legalize};
pub use common_subexpr_elim_tir::{CommonSubexprElimTir, ENABLE_CSE_TIR, common_subexpr_elim_tir};
pub use compact_buffer_allocation::{CompactBufferAllocation, compact_buffer_allocation};
#[cfg(test)]
pub(crate) use convert_ssa::is_ssa;
pub use convert_ssa::{ConvertSsa, convert_ssa};
pub use flatten_buffer::{FlattenBuffer, flatten_buffer};
pub use fp16_compute_legalize::{Fp16ComputeLegalize, fp16_compute_legalize};
pub use fp16_storage_legalize::{Fp16StorageLegalize, fp16_storage_legalize};
pub use hoist_if_then_else::{HoistIfThenElse, hoist_if_then_else};
pub use inject_double_buffer::{
    INJECT_DOUBLE_BUFFER, InjectDoubleBuffer, InjectDoubleBufferConfig, inject_double_buffer,
};
pub(crate) use instrument_bound_checkers::is_bound_check;
pub use instrument_bound_checkers::{
    INSTRUMENT_BOUND_CHECKERS, InstrumentBoundCheckers, instrument_bound_checkers,
};
pub use legalize_register_access::{LegalizeRegisterAccess, legalize_register_access};
pub(crate) use limit_loops::limit_fill;
pub use limit_loops::{
    LimitLoops, RUN_TIME_LENGTHS_ATTR, RunTimeLength, RunTimeLengths, limit_loops,
};
pub use loop_partition::{LOOP_PARTITION, LoopPartition, LoopPartitionConfig, loop_partition};
pub use lower_blocks::{LowerBlocks, lower_blocks};
pub use lower_intrin::{LowerIntrin, STRICT_MATH, lower_intrin};
pub use lower_mul_add::{LowerMulAdd, lower_mul_add};
pub use narrow_data_type::{
    NARROW_DATA_TYPE, NarrowDataType, NarrowDataTypeConfig, narrow_data_type,
};
pub use parallelize_loops::{
    INDEPENDENT_LOOP, PARALLEL_MIN_SHARE, PARALLEL_MISSED_ATTR, PARALLEL_THREADS, ParallelizeLoops,
    parallelize_loops,
};
pub use plan_buffer_allocation::{PlanBufferAllocation, plan_buffer_allocation};
pub use remove_no_op::{RemoveNoOp, remove_no_op};
pub use renormalize_split_pattern::{RenormalizeSplitPattern, renormalize_split_pattern};
pub use rewrite_unsafe_select::{RewriteUnsafeSelect, rewrite_unsafe_select};
pub use simplify::{Simplify, simplify};
pub use specialize_buckets::{
    MOST_BUCKETS, SIZE_BUCKETS_ATTR, SizeBuckets, SpecializeBuckets, specialize_buckets,
};
pub use storage_rewrite::{DISABLE_STORAGE_REWRITE, StorageRewrite, storage_rewrite};
pub use unroll_loop::{
    PRAGMA_AUTO_UNROLL_MAX_STEP, PRAGMA_UNROLL_EXPLICIT, UNROLL_LOOP, UnrollLoop, UnrollLoopConfig,
    unroll_loop,
};
pub use unsupported_dtype_legalize::{
    FLOAT16_ARITHMETIC, UnsupportedDtypeLegalize, unsupported_dtype_legalize,
};
pub use vectorize_loop::{DISABLE_VECTORIZE, VectorizeLoop, vectorize_loop};
pub use verify_memory::{VerifyMemory, verify_memory};
