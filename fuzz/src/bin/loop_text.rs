//! The text of loop functions. What is valid prints, reads back, and prints the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use niello::tir::{parse, print_with_errors, verify};

fuzz_target!(init: niello_fuzz::limit_memory(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    niello_fuzz::run(|| {
        let Ok(func) = parse(text) else { return };
        if let Err(errors) = verify(&func) {
            return drop(print_with_errors(&func, &errors));
        }
        let printed = func.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again.to_string(), printed);
        assert_eq!(verify(&again), Ok(()), "{printed}");
    });
});
