//! Tells the compiler which machine it runs on: parts of a triple are no configuration of the language.

#![allow(clippy::print_stdout, reason = "Cargo reads what a build script prints")]

fn main() {
    let target = std::env::var("TARGET").expect("Cargo sets it");
    println!("cargo::rustc-env=NIELLO_HOST={target}");
    println!("cargo::rerun-if-changed=build.rs");
}
