//! The attribute is for functions and impl blocks.

use niello::pass::module_pass;

#[module_pass(opt_level = 1)]
struct S;

#[module_pass(opt_level = 1)]
enum E {}

#[module_pass(opt_level = 1)]
const C: u8 = 1;

#[module_pass(opt_level = 1)]
impl Default for S {
    fn default() -> S {
        S
    }
}

fn main() {}
