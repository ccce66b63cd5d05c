//! Passes over loop functions, one file each; `lower` names them in order.

mod access;
mod convert_ssa;
mod flatten_buffer;
mod hoist_if_then_else;
mod inject_double_buffer;
mod instrument_bound_checkers;
mod lower_blocks;
mod lower_intrin;
mod lower_mul_add;
mod remove_no_op;
mod rewrite_unsafe_select;
mod simplify;
mod storage_rewrite;
#[cfg(test)]
mod tests;
mod unroll_loop;
mod unsupported_dtype_legalize;
mod vectorize_loop;

pub use convert_ssa::convert_ssa;
pub use flatten_buffer::flatten_buffer;
pub use hoist_if_then_else::hoist_if_then_else;
pub use inject_double_buffer::{InjectDoubleBufferConfig, inject_double_buffer};
pub use instrument_bound_checkers::instrument_bound_checkers;
pub use lower_blocks::lower_blocks;
pub use lower_intrin::lower_intrin;
pub use lower_mul_add::lower_mul_add;
pub use remove_no_op::remove_no_op;
pub use rewrite_unsafe_select::rewrite_unsafe_select;
pub use simplify::simplify;
pub use storage_rewrite::storage_rewrite;
pub use unroll_loop::unroll_loop;
pub use unsupported_dtype_legalize::unsupported_dtype_legalize;
pub use vectorize_loop::vectorize_loop;
