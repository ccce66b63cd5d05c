//! Rules: how kernels of models are scheduled whose main work is one computation, by niello itself
//! and by other crates.
//!
//! A rule looks for its anchor, the stage that it knows how to compute, among the stages of a
//! kernel; says in which ways it can be cut for a machine; and applies one of them to a
//! [`Schedule`] of these stages. Each kernel gets a version for each CPU level of the model, and a
//! rule is asked for each. Which way is taken decides the rule's own order, or what `niello tune`
//! measured; `niello compile --emit trace` writes what was done.

use std::fmt;

use super::{BlockRv, Schedule, ScheduleError};
use crate::diagnostics::Origin;
use crate::executor::Kernel;
use crate::strategy::{self, Machine, Request};
use crate::te::{ComputeDag, StageId};

/// A way to schedule kernels whose main work is one computation;
/// [`register_schedule_rule!`](crate::register_schedule_rule) makes it known.
///
/// What follows the anchor in its kernel, as a bias or an activation, is one block by then, the
/// [epilogue](Task::epilogue), which the rule moves to where the anchor's results are at hand. What the
/// anchor reads stands in blocks of its own, for the rule to inline or to place.
///
/// A rule that refuses, or whose primitives do, is no error: the kernel is made by the generic
/// loops, and its report says what the rule's problem was.
pub trait ScheduleRule: Sync {
    /// What is chosen for a machine and extents: sizes of tiles, orders of loops. Its text stands in
    /// reports and in files of tuned choices.
    type Knobs: Clone + fmt::Display;

    /// The name, for reports: `Winograd convolution`.
    fn name(&self) -> &'static str;

    /// The stage that it knows how to compute, if the kernel has one.
    fn anchor(&self, dag: &ComputeDag) -> Option<StageId>;

    /// The ways to cut the work, the best one first; none if the rule does not take it.
    ///
    /// Constants have one layout for all CPU levels, which those for the widest decide: `widest` is
    /// what was taken there, if this is for another level.
    fn knobs(&self, task: &Task<'_>, widest: Option<&Self::Knobs>) -> Vec<Self::Knobs>;

    /// Schedules the kernel. The layouts of constants may be transformed; those of other parameters
    /// are what other kernels store or read.
    ///
    /// # Errors
    ///
    /// A primitive does not fit.
    fn apply(
        &self,
        schedule: &mut Schedule,
        task: &Task<'_>,
        knobs: &Self::Knobs,
    ) -> Result<(), ScheduleError>;

    /// Multiply-accumulate operations of the anchor, for reports: terms of its sums, unless the rule
    /// says otherwise.
    fn macs(&self, task: &Task<'_>) -> u64 {
        let stage = &task.dag.stages[task.anchor];
        let terms = stage.kind.reduced().iter().map(|axis| axis.extent);
        let extents = task.dag.shape(task.anchor).iter().copied().chain(terms);
        extents.fold(1, |macs: u64, extent| macs.saturating_mul(extent.unsigned_abs()))
    }
}

/// A kernel that a rule is asked to schedule for a machine.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The stages of the kernel. Their buffers have the names of the blocks.
    pub dag: &'a ComputeDag,
    /// The stage that the rule has found.
    pub anchor: StageId,
    /// The machine that the loops are for.
    pub machine: Machine,
    pub(crate) constants: &'a [StageId],
    pub(crate) epilogue: Option<&'a str>,
}

impl Task<'_> {
    /// Extents of the anchor's result.
    pub fn shape(&self) -> &[i64] {
        self.dag.shape(self.anchor)
    }

    /// Whether a stage is a constant, whose layout the rule may choose.
    pub fn is_constant(&self, stage: StageId) -> bool {
        self.constants.contains(&stage)
    }

    /// The block of the anchor.
    ///
    /// # Errors
    ///
    /// It was inlined.
    pub fn block(&self, schedule: &mut Schedule) -> Result<BlockRv, ScheduleError> {
        let buffer = self.dag.stages[self.anchor].buffer;
        schedule.get_block(&self.dag.func.buffers[buffer].name)
    }

    /// The block that makes the kernel's result of the anchor's; `None` if these are the same.
    ///
    /// # Errors
    ///
    /// It was inlined.
    pub fn epilogue(&self, schedule: &mut Schedule) -> Result<Option<BlockRv>, ScheduleError> {
        self.epilogue.map(|name| schedule.get_block(name)).transpose()
    }
}

/// A rule of any crate; [`register_schedule_rule!`](crate::register_schedule_rule) makes one.
pub struct RuleEntry {
    rule: &'static dyn AnyRule,
    origin: Origin,
}

impl RuleEntry {
    #[doc(hidden)]
    pub const fn new(rule: &'static impl ScheduleRule, origin: Origin) -> RuleEntry {
        RuleEntry { rule, origin }
    }
}

inventory::collect!(RuleEntry);

/// A rule, whatever its knobs are.
pub(crate) trait AnyRule: Sync {
    fn name(&self) -> &'static str;

    /// The kernel; `None` if the rule does not take it.
    ///
    /// # Errors
    ///
    /// Why the rule cannot schedule it.
    fn kernel(&self, request: &Request<'_>) -> Result<Option<Kernel>, String>;
}

impl<R: ScheduleRule> AnyRule for R {
    fn name(&self) -> &'static str {
        ScheduleRule::name(self)
    }

    fn kernel(&self, request: &Request<'_>) -> Result<Option<Kernel>, String> {
        strategy::kernel_by_rule(self, request)
    }
}

/// The rules of other crates, by name, then by the place where they are registered.
pub(crate) fn registered() -> Vec<&'static dyn AnyRule> {
    let mut entries: Vec<&RuleEntry> = inventory::iter::<RuleEntry>().collect();
    entries.sort_by_cached_key(|entry| (entry.rule.name(), entry.origin.to_string()));
    entries.into_iter().map(|entry| entry.rule).collect()
}

/// Registers a [`ScheduleRule`](crate::schedule::ScheduleRule) of the calling crate, a struct without
/// fields or a static, which is asked before niello's own.
///
/// A crate that nothing names is not linked: `use my_rules as _;` in the build script names it.
#[macro_export]
macro_rules! register_schedule_rule {
    ($rule:path) => {
        $crate::pass::__private::inventory::submit! {
            $crate::schedule::RuleEntry::new(
                &$rule,
                $crate::diagnostics::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
            )
        }
    };
}
