//! A program whose runtime is of another version than its build-support.

mod model {
    niello_runtime::include_model!("model");
}
