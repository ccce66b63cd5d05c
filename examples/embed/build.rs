//! Compiles the model into this crate, and tells it where its tokenizer is.

#![allow(clippy::print_stdout, reason = "Cargo reads what a build script prints")]

use std::path::{Path, PathBuf};

fn main() {
    let tokenizer = path("NIELLO_EMBED_TOKENIZER", "models/tokenizer.json");
    println!("cargo::rustc-env=NIELLO_EMBED_TOKENIZER={}", tokenizer.display());
    niello_build::configure(path("NIELLO_EMBED_MODEL", "models/embed.onnx"))
        .name("embed")
        .dim("batch", 1..=8)
        .dim("seq", 1..=64)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
}

/// The path that a variable of the environment names, which may begin at this package, or its own.
fn path(variable: &str, own: &str) -> PathBuf {
    println!("cargo::rerun-if-env-changed={variable}");
    let path = std::env::var_os(variable).unwrap_or_else(|| own.into());
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
