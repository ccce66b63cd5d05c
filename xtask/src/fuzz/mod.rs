//! `cargo xtask fuzz`: programs that look for the next mistake.

mod onnx;

use clap::Subcommand;

use crate::Result;

#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Compares random ONNX graphs with ONNX Runtime
    Onnx(onnx::Options),
}

pub(crate) fn run(kind: &Kind) -> Result {
    match kind {
        Kind::Onnx(options) => onnx::run(options),
    }
}
