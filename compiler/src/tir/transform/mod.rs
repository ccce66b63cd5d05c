//! Passes over loop functions, one file each; `lower` names them in order.

mod flatten_buffer;
mod lower_blocks;
mod lower_intrin;
mod lower_mul_add;
mod remove_no_op;
mod simplify;
mod unroll_loop;
mod unsupported_dtype_legalize;
mod vectorize_loop;

pub use flatten_buffer::flatten_buffer;
pub use lower_blocks::lower_blocks;
pub use lower_intrin::lower_intrin;
pub use lower_mul_add::lower_mul_add;
pub use remove_no_op::remove_no_op;
pub use simplify::simplify;
pub use unroll_loop::unroll_loop;
pub use unsupported_dtype_legalize::unsupported_dtype_legalize;
pub use vectorize_loop::vectorize_loop;
