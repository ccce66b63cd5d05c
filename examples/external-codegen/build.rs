//! Compiles the same model twice: as it is, and with the products of `own-products`.

// A crate that nothing names is not linked.
use own_products as _;

fn main() {
    niello_build::compile("models/controller.relay");

    niello_build::configure("models/controller.relay")
        .name("own")
        .external("own")
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
    println!("cargo::rerun-if-changed=c/product.c");
    cc::Build::new().file("c/product.c").compile("own_product");
}
