//! Compiles models as they are, and with the code generators of `own-products`.

// A crate that nothing names is not linked.
use own_products as _;

fn main() {
    niello_build::compile("models/controller.relay");

    niello_build::configure("models/controller.relay")
        .name("own")
        .external("own")
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());

    niello_build::compile("models/devices.relay");

    niello_build::configure("models/devices.relay")
        .name("two_devices")
        .external("own")
        .external("vector")
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
    println!("cargo::rerun-if-changed=c/product.c");
    cc::Build::new().file("c/product.c").compile("own_product");
}
