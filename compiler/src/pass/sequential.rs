//! Lists of passes; only here it is decided which passes of a list run.

use super::plan::{Plan, Role, Step};
use super::progress::Progress;
use super::run::Asked;
use super::{
    InvalidPassName, PassBody, PassContext, PassInfo, PassKind, PassRef, Result, RunToken,
};
use crate::ir::IRModule;

/// The name of a list without a name of its own.
pub(super) const DEFAULT_NAME: &str = "sequential";

/// Runs passes in order: those that the context [enables](PassContext::pass_enabled), each after
/// the passes it requires.
///
/// A required pass runs whatever the context's level and lists say. It is not run again while its
/// result holds, that is until a pass that does not preserve the result has changed the module.
#[derive(Clone, Debug)]
pub struct Sequential {
    info: PassInfo,
    passes: Vec<PassRef>,
}

impl Default for Sequential {
    fn default() -> Sequential {
        Sequential::new::<PassRef>([])
    }
}

impl Sequential {
    /// A list of passes of level 0, named `sequential`.
    ///
    /// Passes of one type are listed as they are; others become [`PassRef`]s, or are added one by
    /// one by [`then`](Self::then).
    pub fn new<P: Into<PassRef>>(passes: impl IntoIterator<Item = P>) -> Sequential {
        let info = PassInfo::new(DEFAULT_NAME, 0).expect("the default name is valid");
        Sequential {
            info: info.with_kind(PassKind::Sequential),
            passes: passes.into_iter().map(Into::into).collect(),
        }
    }

    /// An empty list under a name of its own.
    ///
    /// # Errors
    ///
    /// If the name is not valid.
    pub fn named(name: &str, opt_level: u8) -> Result<Sequential, InvalidPassName> {
        Ok(Sequential::with_info::<PassRef>(PassInfo::new(name, opt_level)?, []))
    }

    /// A list of passes with that description. Requirements of the list itself count only if it is
    /// part of another list.
    pub fn with_info<P: Into<PassRef>>(
        info: PassInfo,
        passes: impl IntoIterator<Item = P>,
    ) -> Sequential {
        Sequential {
            info: info.with_kind(PassKind::Sequential),
            passes: passes.into_iter().map(Into::into).collect(),
        }
    }

    /// Adds a pass at the end.
    #[must_use]
    pub fn then(mut self, pass: impl Into<PassRef>) -> Sequential {
        self.passes.push(pass.into());
        self
    }

    /// The passes, in order.
    pub fn passes(&self) -> &[PassRef] {
        &self.passes
    }

    /// The passes that run under a context, in order; `niello opt --print-pipeline` prints this
    /// plan.
    ///
    /// # Errors
    ///
    /// If an enabled pass requires an unknown pass, or a property that no pass or more than one
    /// sets; if passes require each other; or if a pass is in a place that another forbids.
    pub fn plan(&self, cx: &PassContext) -> Result<Plan> {
        let properties = cx.progress().map(Progress::properties).unwrap_or_default();
        Plan::new(&self.passes, cx, properties)
    }
}

impl PassBody for Sequential {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        // The whole list is planned first, so that an unknown requirement fails before any pass has
        // run.
        let plan = self.plan(cx)?;
        let progress = match cx.progress() {
            Some(outer) => outer.clone(),
            None => {
                plan.initialize(cx)?;
                Progress::default()
            }
        };
        run(&plan, module, &cx.with_progress(progress.clone()), &progress)
    }

    fn members(&self) -> &[PassRef] {
        &self.passes
    }
}

/// Runs the steps of a plan, but for requirements whose result holds.
pub(super) fn run(
    plan: &Plan,
    mut module: IRModule,
    cx: &PassContext,
    progress: &Progress,
) -> Result<IRModule> {
    for Step { pass, role, .. } in plan.steps() {
        let info = pass.info();
        let asked = match role {
            Role::Listed => Asked::ByList,
            Role::Required if progress.holds(info) => continue,
            Role::Provider(property) if progress.has(property, &module) => continue,
            Role::Required | Role::Provider(_) => Asked::AsRequirement,
        };
        if info.holds(&module) {
            progress.ran(info, false);
            continue;
        }
        if let Some(unmet) = info.requires().iter().find(|p| !progress.has(p, &module)) {
            return Err(plan.unmet(unmet, info));
        }
        let before = module.clone();
        let ran = pass.run_asked(module, cx, asked)?;
        module = ran.module;
        if !ran.skipped {
            progress.ran(info, !module.same(&before));
        }
    }
    Ok(module)
}
