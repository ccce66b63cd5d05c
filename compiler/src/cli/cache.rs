//! `niello cache`: what the cache of compiled kernels holds.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::Failure;
use super::output::{Output, write_json};
use crate::diagnostics::Problem;
use crate::executor::aot::{CACHE_DIR_VARIABLE, CacheContents, KernelCache};

/// Show or empty the cache of compiled kernels.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// The cache's folder [default: that of NIELLO_CACHE_DIR]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write the same to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Action {
    /// How many functions it holds, and how large they are
    Stats,
    /// Remove them
    Clear,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let cache = match &args.dir {
        Some(folder) if !folder.is_dir() => {
            let message = format!("there is no cache {}: it is no folder", folder.display());
            return Err(Problem::new(message).into());
        }
        Some(folder) => Some(KernelCache::new(folder, u64::MAX)),
        None => KernelCache::from_environment()?,
    };
    let cache = cache.ok_or_else(|| {
        Problem::new(format!("there is no cache: {CACHE_DIR_VARIABLE} is not set"))
            .help("name its folder: --dir DIR; that of a build script is in its OUT_DIR")
    })?;
    let folder = cache.folder().display();
    let (done, contents) = match args.action {
        Action::Stats => ("holds", cache.contents()),
        Action::Clear => {
            let removed = cache.clear();
            let failed = |error| Problem::new(format!("cannot empty the cache {folder}: {error}"));
            ("is rid of", removed.map_err(failed)?)
        }
    };
    let CacheContents { functions, bytes } = contents;
    if let Some(path) = &args.json {
        write_json(
            path,
            &json!({"folder": cache.folder(), "functions": functions, "bytes": bytes}),
        )?;
    }
    let out = Output::beside(args.json.as_deref());
    out.line(&format!("the cache {folder} {done} {functions} functions, {bytes} bytes"));
    Ok(())
}
