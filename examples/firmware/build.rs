//! Compiles the model into this crate, and tells the linker what memory there is.

use std::path::Path;
use std::{env, fs};

fn main() {
    // What the smallest device has to spare. A model that grows beyond it is an error here.
    niello_build::configure("../digits/models/digits.onnx")
        .max_workspace_bytes(40_000)
        .max_weight_bytes(100_000)
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());

    let folder = env::var("OUT_DIR").expect("Cargo sets it");
    fs::copy("memory.x", Path::new(&folder).join("memory.x")).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-search={folder}");
    println!("cargo::rerun-if-changed=memory.x");
}
