//! Code generators: loop IR in, object code out.

pub mod c;
pub mod object;
