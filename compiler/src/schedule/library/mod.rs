//! Schedules of well-known computations, written with the primitives alone.
//!
//! Each takes a [`Schedule`](super::Schedule) whose function holds the computation's blocks, looks
//! at the target's registers, and applies primitives, so its trace can be printed and replayed on
//! other functions.

mod matmul;
mod matmul_int8;
mod winograd;

#[cfg(test)]
mod tests;

pub use matmul::{MatmulLoops, MatmulTiles, matmul};
pub use matmul_int8::{Int8Tiles, matmul_int8};
pub use winograd::{WinogradLoops, WinogradTiles, winograd};
