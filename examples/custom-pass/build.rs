//! Compiles the same model twice: as it is, and with the passes of `custom-passes`.

use std::sync::Arc;

use custom_passes::{CountCalls, RoundWeights, TANH_LIMIT, TanhToClip};

fn main() {
    niello_build::compile("models/controller.relay");

    let calls = Arc::new(CountCalls::default());
    let artifacts = niello_build::configure("models/controller.relay")
        .name("chip")
        .pass_before("FoldConstant", TanhToClip)
        .pass_before("FoldConstant", RoundWeights::to_multiples_of(1.0 / 64.0))
        .config(&TANH_LIMIT, 0.875)
        .instrument(calls.clone())
        .try_compile()
        .unwrap_or_else(|errors| errors.exit());
    let report = artifacts.bindings.with_file_name("calls.txt");
    std::fs::write(report, calls.report()).expect("OUT_DIR can be written");
}
