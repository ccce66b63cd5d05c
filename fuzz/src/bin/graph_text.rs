//! The text of modules. What is valid prints, reads back, and prints the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use niello::graph::{module_hash, modules_equal, parse_module, verify_module};

fuzz_target!(init: niello_fuzz::limit_memory(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    niello_fuzz::run(|| {
        let module = match parse_module(text) {
            Ok(module) => module,
            Err(errors) => return drop(errors.to_string()),
        };
        if let Err(errors) = verify_module(&module) {
            return drop(errors.to_string());
        }
        let printed = module.to_string();
        let again = parse_module(&printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        assert_eq!(again.to_string(), printed);
        if let Err(mismatch) = modules_equal(&module, &again) {
            panic!("{mismatch}\n{printed}");
        }
        assert_eq!(module_hash(&module), module_hash(&again), "{printed}");
        assert!(verify_module(&again).is_ok(), "{printed}");
    });
});
