//! ONNX import of arbitrary bytes. What is imported is a valid module.
#![no_main]

use libfuzzer_sys::fuzz_target;
use niello::graph::verify_module;
use niello::onnx::{ImportOptions, import, load_bytes};

fuzz_target!(init: niello_fuzz::limit_memory(), |data: &[u8]| {
    niello_fuzz::run(|| {
        let Ok(file) = load_bytes(data.to_vec()) else { return };
        let Ok(imported) = import(&file.proto, None, &ImportOptions::default()) else { return };
        if let Err(errors) = verify_module(&imported.module) {
            panic!("{errors}\n{}", imported.module);
        }
    });
});
