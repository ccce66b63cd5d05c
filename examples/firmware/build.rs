//! Compiles the model into this crate, and tells the linker what memory there is.

use std::path::Path;
use std::{env, fs};

fn main() {
    niello_build::compile("../digits/models/digits.onnx");

    let folder = env::var("OUT_DIR").expect("Cargo sets it");
    fs::copy("memory.x", Path::new(&folder).join("memory.x")).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-search={folder}");
    println!("cargo::rerun-if-changed=memory.x");
}
