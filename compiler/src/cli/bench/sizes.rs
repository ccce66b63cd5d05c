//! The sizes of the run that is measured, where each run has sizes of its own.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use crate::cli::code::{Named, parse_named, parse_size};
use crate::diagnostics::Problem;
use crate::options::{CompileOptions, DimSize};

/// `--size`.
#[derive(Args, Clone, Debug)]
pub(super) struct SizeArgs {
    /// Size of the run along a dimension that has bounds, as batch=4 for --dim batch=1..=32; may be
    /// given more than once [default: that of test data, or the greatest]
    #[arg(long = "size", value_name = "NAME=N", value_parser = parse, action = ArgAction::Append)]
    sizes: Vec<Named<u64>>,
}

fn parse(text: &str) -> Result<Named<u64>, String> {
    parse_named(text, "name=size", parse_size)
}

impl SizeArgs {
    /// The options that a model would have which is compiled for these sizes alone.
    ///
    /// # Errors
    ///
    /// A dimension has no bounds, or such that leave out its size.
    pub(super) fn fixed(&self, options: &CompileOptions) -> Result<CompileOptions, Problem> {
        let mut options = options.clone();
        for Named { name, value, .. } in &self.sizes {
            let Some(dim) = options.dims.get_mut(name) else {
                return Err(Problem::new(format!("`{name}` is no dimension with bounds"))
                    .help(format!("give it some: --dim {name}=1..={value}")));
            };
            if !dim.allows(*value) {
                return Err(Problem::new(format!("`{name}` is {dim} and cannot be {value}")));
            }
            *dim = DimSize::Fixed(*value);
        }
        Ok(options)
    }

    /// The same arguments, for a child process.
    pub(super) fn to_args(&self) -> impl Iterator<Item = OsString> {
        self.sizes.iter().map(|size| format!("--size={}", size.text).into())
    }
}
