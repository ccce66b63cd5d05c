//! `cargo xtask fuzz`: programs that look for the next mistake.

mod coverage;

use clap::Subcommand;

use crate::Result;

#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Runs the coverage-guided fuzz targets: importer, text parsers, pipelines, schedule traces
    Coverage(coverage::Options),
}

pub(crate) fn run(kind: &Kind) -> Result {
    match kind {
        Kind::Coverage(options) => coverage::run(options),
    }
}
