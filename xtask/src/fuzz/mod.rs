//! `cargo xtask fuzz`: programs that look for the next mistake.

mod coverage;
mod onnx;

use clap::Subcommand;

use crate::Result;

#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Runs the coverage-guided fuzz targets: importer, text parsers, pipelines, schedule traces
    Coverage(coverage::Options),
    /// Compares random ONNX graphs with ONNX Runtime
    Onnx(onnx::Options),
}

pub(crate) fn run(kind: &Kind) -> Result {
    match kind {
        Kind::Coverage(options) => coverage::run(options),
        Kind::Onnx(options) => onnx::run(options),
    }
}
