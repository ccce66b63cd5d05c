//! Compiles the models into this crate, and tells the linker what memory there is.

use std::path::Path;
use std::{env, fs};

use niello_build::configure;

fn main() {
    // What the smallest device has to spare. A model that grows beyond it is an error here.
    let digits = configure("../digits/models/digits.onnx")
        // Winograd's convolutions take fewer multiplications, but more memory.
        .disable_pass("ApplyWinograd")
        .max_workspace_bytes(25_000)
        .max_weight_bytes(80_000);
    let keywords = configure("../keywords/models/keywords.onnx")
        .max_workspace_bytes(10_000)
        .max_weight_bytes(16_000)
        .max_code_bytes(50_000)
        .max_macs(1_000_000);
    for model in [digits, keywords] {
        model.try_compile().unwrap_or_else(|errors| errors.exit());
    }

    let target = env::var("TARGET").expect("Cargo sets it");
    let memory = match target.split('-').next() {
        Some("thumbv6m") => "memory/microbit.x",
        Some("riscv32imac" | "riscv32imafc") => "memory/virt.x",
        _ => "memory/mps2.x",
    };
    let folder = env::var("OUT_DIR").expect("Cargo sets it");
    fs::copy(memory, Path::new(&folder).join("memory.x")).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-search={folder}");
    println!("cargo::rerun-if-changed={memory}");
}
