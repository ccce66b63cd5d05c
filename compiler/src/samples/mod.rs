//! Sample inputs from files, models that run on them, and what quantisation makes of both.

pub mod formats;
pub mod inputs;
pub mod quantize;
pub mod runner;
