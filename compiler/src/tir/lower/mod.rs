//! Lowering: from a scheduled loop function to one for the code generators.

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

/// The passes that turn a scheduled function into one with a single physical index for each access,
/// explicit vectors no wider than the target's, no unrolled loops, and only data types and
/// operations of the target. Reusable for any number of functions.
#[derive(Clone, Debug)]
pub struct Lowering(Vec<PassRef>);

impl Lowering {
    /// The enabled passes of the [`pipeline`] under a context.
    ///
    /// # Errors
    ///
    /// As [`pipeline`] and [`Sequential::plan`](crate::pass::Sequential::plan).
    pub fn new(cx: &PassContext) -> Result<Lowering> {
        Ok(Lowering(pipeline(cx)?.plan(cx)?.passes().cloned().collect()))
    }

    /// Lowers a function for the target of the context, without calling the context's instruments.
    ///
    /// # Errors
    ///
    /// A pass does not support a construct of the function, or fails; the error names both.
    pub fn run(&self, func: PrimFunc, cx: &PassContext) -> Result<PrimFunc> {
        self.0.iter().try_fold(func, |func, pass| pass.run_on_prim_func(func, cx))
    }
}

#[cfg(test)]
mod tests;
