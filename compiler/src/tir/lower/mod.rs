//! From a scheduled loop function to one that a code generator accepts.

mod phases;

pub use phases::{ADD_LOWER_PASS, pipeline};

use super::PrimFunc;
use crate::pass::{PassContext, PassRef, Result};
use crate::target::Target;

/// Lowers a function for one target under the [current](PassContext::current) context: see
/// [`Lowering`].
///
/// # Errors
///
/// As [`Lowering::new`] and [`Lowering::run`].
pub fn lower(func: PrimFunc, target: &Target) -> Result<PrimFunc> {
    let cx = PassContext::inherit().target(target.clone()).build()?;
    Lowering::new(&cx)?.run(func, &cx)
}

/// The passes that make of a scheduled function one with one physical index for each access,
/// explicit vectors no wider than the target's, no unrolled loops, and only data types and
/// operations that the target has. For any number of functions.
#[derive(Clone, Debug)]
pub struct Lowering(Vec<PassRef>);

impl Lowering {
    /// What of the [`pipeline`] runs under a context.
    ///
    /// # Errors
    ///
    /// As [`pipeline`] and [`Sequential::plan`](crate::pass::Sequential::plan).
    pub fn new(cx: &PassContext) -> Result<Lowering> {
        Ok(Lowering(pipeline(cx)?.plan(cx)?.passes().cloned().collect()))
    }

    /// Lowers a function for the target of the context, without telling the context's instruments.
    ///
    /// # Errors
    ///
    /// A pass does not support what is in the function, or fails; the error names both.
    pub fn run(&self, func: PrimFunc, cx: &PassContext) -> Result<PrimFunc> {
        self.0.iter().try_fold(func, |func, pass| pass.run_on_prim_func(func, cx))
    }
}

#[cfg(test)]
mod tests;
