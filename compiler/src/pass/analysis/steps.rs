//! Passes that compute or forget an analysis, for use between other passes.

use std::fmt;
use std::marker::PhantomData;

use super::Analysis;
use crate::ir::IRModule;
use crate::pass::{
    Hook, InvalidPassName, PassBody, PassContext, PassInfo, Preserves, Result, RunToken,
};

/// Computes an analysis of the module; named `require<NAME>`.
pub struct RequireAnalysis<A> {
    info: PassInfo,
    analysis: PhantomData<fn() -> A>,
}

/// Forgets the results of an analysis for a module and its functions; named `invalidate<NAME>`.
pub struct InvalidateAnalysis<A> {
    info: PassInfo,
    analysis: PhantomData<fn() -> A>,
}

macro_rules! step {
    ($ty:ident, $verb:literal, $bound:path) => {
        impl<A: $bound> $ty<A> {
            /// The pass, of level 0.
            ///
            /// # Errors
            ///
            /// If the analysis has a name that a pass could not have.
            pub fn new() -> Result<$ty<A>, InvalidPassName> {
                let info = PassInfo::new(format!(concat!($verb, "<{}>"), A::NAME), 0)?;
                Ok($ty { info: info.preserving(Preserves::All), analysis: PhantomData })
            }
        }

        impl<A> fmt::Debug for $ty<A> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.info.name())
            }
        }
    };
}

step!(RequireAnalysis, "require", Analysis<Unit = IRModule>);
step!(InvalidateAnalysis, "invalidate", Analysis);

impl<A: Analysis<Unit = IRModule>> PassBody for RequireAnalysis<A> {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        cx.analysis::<A>(&module);
        Ok(module)
    }
}

impl<A: Analysis> PassBody for InvalidateAnalysis<A> {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        let forgotten = cx.cache().forget::<A>(&module);
        for analysis in &forgotten {
            cx.tell(&cx.instruments(), Hook::AnalysisInvalidated, |instrument| {
                instrument.analysis_invalidated(analysis)
            });
        }
        Ok(module)
    }
}
