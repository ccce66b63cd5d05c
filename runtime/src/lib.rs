//! What a model compiled by niello needs at run time.
#![no_std]

pub mod abi;
