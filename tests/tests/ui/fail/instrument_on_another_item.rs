//! An instrument is an inherent impl block.

use niello::pass::{PassInstrument, pass_instrument};

#[pass_instrument]
fn watch() {}

#[pass_instrument]
struct Watch;

struct Direct;

#[pass_instrument]
impl PassInstrument for Direct {}

fn main() {}
