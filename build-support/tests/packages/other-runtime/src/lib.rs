//! A runtime of another version than the bindings'.

#[macro_export]
macro_rules! include_model {
    ($name:literal) => {
        ::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

pub mod __private {
    pub mod niello_build_0_0_needs_niello_runtime_0_0 {}
}
