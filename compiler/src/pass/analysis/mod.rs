//! Analyses: facts about functions and modules, computed on demand and cached as long as they hold.
//!
//! A handle of the IR always stands for the same code, so a result belongs to a handle:
//! [`PassContext::analysis`] finds it again for as long as the function or the module stays the
//! same, and a pass that leaves a function alone keeps all results about it. Only when a pass
//! replaces a function does it matter what the pass [preserves](super::Preserves): the results of
//! preserved analyses are carried over to the new function, all others are forgotten. A result that
//! was computed from others is carried over only together with them.
//!
//! A context that verifies computes the carried-over results again, and refuses a pass that
//! preserved an analysis whose result has changed.
//!
//! ```
//! use niello::analysis::UseCounts;
//! use niello::graph::{Function, Rewriter};
//! use niello::ir::IRModule;
//! use niello::pass::{Analyses, Analysis, PassContext, Result, function_pass};
//!
//! /// How many expressions are used more than once.
//! struct Shared;
//!
//! impl Analysis for Shared {
//!     const NAME: &'static str = "Shared";
//!     type Unit = Function;
//!     type Output = usize;
//!
//!     fn compute(function: &Function, analyses: &Analyses<'_>) -> usize {
//!         let uses = analyses.get::<UseCounts>(function);
//!         function.ids().filter(|&id| uses[id] > 1).count()
//!     }
//! }
//!
//! /// Notes how much is shared.
//! #[function_pass(opt_level = 0, preserves = all)]
//! fn count_shared(function: Function, _module: &IRModule, cx: &PassContext) -> Function {
//!     cx.count("shared", *cx.analysis::<Shared>(&function) as u64);
//!     function
//! }
//! # fn main() {}
//! ```

mod cache;
mod preserved;
mod steps;

use std::any::TypeId;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

pub(super) use cache::{AnalysisCache, Change, Update};
use cache::{Cached, Key};
pub(super) use preserved::Claim;
pub use preserved::{AnalysisSet, PreservedAnalyses};
pub use steps::{InvalidateAnalysis, RequireAnalysis};

use super::{Hook, InstrumentRef, PassContext, PassInstrument, PassKind, instrument};
use crate::graph::Function;
use crate::ir::{IRModule, Identity};
use crate::tir::PrimFunc;

/// A fact about a function or a module, computed from that unit alone.
///
/// An analysis of a function sees that function and other analyses of it; an analysis that needs
/// the surrounding functions is one of the module.
pub trait Analysis: Sized + 'static {
    /// The name in messages, and in a pass's `preserves`.
    const NAME: &'static str;

    /// Sets that a pass may preserve instead of naming the analysis; every analysis is also in the
    /// one of its unit, such as [`AnalysisSet::ON_FUNCTIONS`].
    const SETS: &'static [AnalysisSet] = &[];

    /// The unit that is analysed: [`Function`], [`PrimFunc`] or [`IRModule`].
    type Unit: AnalysisUnit;

    /// The result. Results are compared to find passes that claim to preserve an analysis and do
    /// not.
    type Output: PartialEq + Send + Sync + 'static;

    /// Computes the result. Results of other analyses are taken from `analyses`, so that this
    /// result is forgotten together with them.
    fn compute(unit: &Self::Unit, analyses: &Analyses<'_>) -> Self::Output;

    /// Whether a result still holds after a pass that preserves this much: by name, or by a set,
    /// unless the analysis has a rule of its own.
    fn survives(result: &Self::Output, preserved: &PreservedAnalyses) -> bool {
        let _ = result;
        preserved.keeps::<Self>()
    }
}

fn sets_of<A: Analysis>() -> impl Iterator<Item = AnalysisSet> {
    A::SETS.iter().copied().chain([<A::Unit as sealed::Unit>::SET])
}

/// A type that can be analysed: a function, a loop function or a module.
pub trait AnalysisUnit: sealed::Unit {}

mod sealed {
    use super::{AnalysisSet, Identity, PassKind};

    /// The access that the cache needs to a unit.
    pub trait Unit: 'static {
        const KIND: PassKind;
        const SET: AnalysisSet;

        #[expect(private_interfaces, reason = "the trait cannot be named outside")]
        fn unit_identity(&self) -> Identity;

        #[expect(private_interfaces, reason = "the trait cannot be named outside")]
        fn of<'a>(unit: &super::AnyUnit<'a>) -> Option<&'a Self>;
    }
}

/// A function or a module.
#[derive(Clone, Copy)]
enum AnyUnit<'a> {
    Function(&'a Function),
    PrimFunc(&'a PrimFunc),
    Module(&'a IRModule),
}

impl AnyUnit<'_> {
    /// Whether both are of one kind.
    fn is_like(&self, other: &AnyUnit<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    fn identity(&self) -> Identity {
        match self {
            AnyUnit::Function(function) => function.identity(),
            AnyUnit::PrimFunc(function) => function.identity(),
            AnyUnit::Module(module) => module.identity(),
        }
    }
}

macro_rules! unit {
    ($ty:ty, $kind:ident, $variant:ident, $set:ident) => {
        impl AnalysisUnit for $ty {}

        impl sealed::Unit for $ty {
            const KIND: PassKind = PassKind::$kind;
            const SET: AnalysisSet = AnalysisSet::$set;

            #[expect(private_interfaces, reason = "the trait cannot be named outside")]
            fn unit_identity(&self) -> Identity {
                self.identity()
            }

            #[expect(private_interfaces, reason = "the trait cannot be named outside")]
            fn of<'a>(unit: &AnyUnit<'a>) -> Option<&'a Self> {
                if let AnyUnit::$variant(unit) = unit { Some(unit) } else { None }
            }
        }
    };
}

unit!(Function, Function, Function, ON_FUNCTIONS);
unit!(PrimFunc, PrimFunc, PrimFunc, ON_PRIM_FUNCS);
unit!(IRModule, Module, Module, ON_MODULES);

/// The description of an analysis without its result; for instruments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AnalysisInfo {
    /// The analysis's name.
    pub name: &'static str,
    /// The kind of unit that it analyses: a function, a loop function or a module.
    pub unit: PassKind,
}

impl AnalysisInfo {
    fn of<A: Analysis>() -> AnalysisInfo {
        AnalysisInfo { name: A::NAME, unit: <A::Unit as sealed::Unit>::KIND }
    }
}

/// An analysis of modules that a pass declares, so that it is computed before the pass begins.
#[derive(Clone, Copy)]
pub struct AnalysisRef {
    name: &'static str,
    compute: fn(&IRModule, &PassContext),
}

impl AnalysisRef {
    /// The analysis of that type.
    pub const fn of<A: Analysis<Unit = IRModule>>() -> AnalysisRef {
        AnalysisRef {
            name: A::NAME,
            compute: |module, cx| {
                cx.analysis::<A>(module);
            },
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn compute(&self, module: &IRModule, cx: &PassContext) {
        (self.compute)(module, cx);
    }
}

impl fmt::Debug for AnalysisRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnalysisRef({})", self.name)
    }
}

/// Gives results to an analysis that is being computed, and records which ones it used.
pub struct Analyses<'a> {
    cx: &'a PassContext,
    /// Whether results are cached and instruments called.
    kept: bool,
    /// The analysis that is being computed; `None` if a pass asks.
    frame: Option<Frame<'a>>,
    asked: RefCell<Vec<Key>>,
}

/// An analysis that is being computed, linked to the one that asked for it.
#[derive(Clone, Copy)]
struct Frame<'a> {
    key: Key,
    name: &'static str,
    outer: Option<&'a Frame<'a>>,
}

impl fmt::Debug for Analyses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Analyses").field(&self.frame.map(|frame| frame.name)).finish()
    }
}

impl Analyses<'_> {
    /// The cached result of an analysis of a unit, or else a new one.
    ///
    /// # Panics
    ///
    /// If the analysis asks for its own result, directly or not.
    pub fn get<A: Analysis>(&self, unit: &A::Unit) -> Arc<A::Output> {
        let identity = sealed::Unit::unit_identity(unit);
        let key = Key { unit: identity.address(), analysis: TypeId::of::<A>() };
        self.asked.borrow_mut().push(key);
        if let Some(known) = self.kept.then(|| self.cx.cache().get::<A>(key)).flatten() {
            return known;
        }
        let frame = Frame { key, name: A::NAME, outer: self.frame.as_ref() };
        frame.refuse_cycles();
        let inner = Analyses { frame: Some(frame), asked: RefCell::default(), ..*self };
        let info = AnalysisInfo::of::<A>();
        inner.tell(Hook::BeforeAnalysis, |instrument| instrument.before_analysis(&info));
        let result = Arc::new(A::compute(unit, &inner));
        inner.tell(Hook::AfterAnalysis, |instrument| instrument.after_analysis(&info));
        if !self.kept {
            return result;
        }
        let cached = Cached::of::<A>(identity, result, inner.asked.into_inner());
        self.cx.cache().insert::<A>(key, cached)
    }

    fn tell(&self, hook: Hook, body: impl Fn(&dyn PassInstrument) -> instrument::HookResult) {
        // Workers of a function pass have no instruments.
        if self.kept && !self.cx.is_in_function() {
            self.cx.tell(&self.cx.instruments(), hook, body);
        }
    }
}

impl Frame<'_> {
    fn refuse_cycles(&self) {
        let mut path = vec![self.name];
        let mut outer = self.outer;
        while let Some(frame) = outer {
            path.insert(0, frame.name);
            assert!(frame.key != self.key, "analyses need each other: {}", path.join(" → "));
            outer = frame.outer;
        }
    }
}

impl PassContext {
    /// The cached result of an analysis of a function or a module, or else a new one.
    ///
    /// # Panics
    ///
    /// If the analysis asks for its own result, directly or not.
    pub fn analysis<A: Analysis>(&self, unit: &A::Unit) -> Arc<A::Output> {
        Analyses { cx: self, kept: true, frame: None, asked: RefCell::default() }.get::<A>(unit)
    }

    /// The result of an analysis, if it is cached.
    pub fn cached_analysis<A: Analysis>(&self, unit: &A::Unit) -> Option<Arc<A::Output>> {
        let unit = sealed::Unit::unit_identity(unit).address();
        self.cache().get::<A>(Key { unit, analysis: TypeId::of::<A>() })
    }

    /// Declares while the pass runs that it preserves an analysis, of its function or of the
    /// module, in addition to those in its attribute.
    pub fn preserve<A: Analysis>(&self) {
        self.claim(Claim::Preserve(A::NAME));
    }

    /// As [`preserve`](Self::preserve), for every analysis of a set.
    pub fn preserve_set(&self, set: AnalysisSet) {
        self.claim(Claim::PreserveSet(set));
    }

    /// Declares while the pass runs that it does not preserve an analysis, of its function or of
    /// the module, whatever its attribute says.
    pub fn abandon<A: Analysis>(&self) {
        self.claim(Claim::Abandon(A::NAME));
    }

    /// Calls a hook from a place that cannot return an error: a failure becomes the error of the
    /// running pass.
    pub(super) fn tell(
        &self,
        instruments: &[InstrumentRef],
        hook: Hook,
        body: impl Fn(&dyn PassInstrument) -> instrument::HookResult,
    ) {
        for instrument in instruments {
            if let Err(error) = instrument::call(instrument, hook, &body) {
                self.fail_later(error);
            }
        }
    }
}
