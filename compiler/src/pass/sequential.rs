//! Lists of passes: the only place that decides which of them run.

use std::fmt;

use super::{
    InvalidPassName, PassBody, PassContext, PassInfo, PassKind, PassRef, Result, RunToken, names,
    plan,
};
use crate::ir::IRModule;

/// The name of a list that was given none.
pub(super) const DEFAULT_NAME: &str = "sequential";

/// Runs passes in order: those that the context [enables](PassContext::pass_enabled), each after
/// the passes it requires.
///
/// A required pass runs whatever the context's level and lists say, and is not run again as long as
/// its result holds: until a pass that does not preserve it has changed the module.
#[derive(Clone, Debug)]
pub struct Sequential {
    info: PassInfo,
    passes: Vec<PassRef>,
}

impl Default for Sequential {
    fn default() -> Sequential {
        Sequential::new([])
    }
}

impl Sequential {
    /// A list of passes of level 0, named `sequential`.
    pub fn new(passes: impl IntoIterator<Item = PassRef>) -> Sequential {
        let info = PassInfo::new(DEFAULT_NAME, 0).expect("the default name is valid");
        Sequential {
            info: info.with_kind(PassKind::Sequential),
            passes: passes.into_iter().collect(),
        }
    }

    /// An empty list under a name of its own.
    ///
    /// # Errors
    ///
    /// If the name is not valid.
    pub fn named(name: &str, opt_level: u8) -> Result<Sequential, InvalidPassName> {
        Ok(Sequential::with_info(PassInfo::new(name, opt_level)?, []))
    }

    /// A list of passes with that information. What it requires counts where the list is itself
    /// part of another.
    pub fn with_info(info: PassInfo, passes: impl IntoIterator<Item = PassRef>) -> Sequential {
        Sequential {
            info: info.with_kind(PassKind::Sequential),
            passes: passes.into_iter().collect(),
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

    /// What runs under a context, in order.
    ///
    /// # Errors
    ///
    /// If an enabled pass requires one that is not known, or passes require each other.
    pub fn plan(&self, cx: &PassContext) -> Result<Plan> {
        let mut groups = Vec::new();
        for pass in self.passes.iter().filter(|pass| cx.pass_enabled(pass.info())) {
            let required = plan::requirements(pass, cx.registry())?;
            groups.push(PlanGroup { required, pass: pass.clone() });
        }
        Ok(Plan(groups))
    }
}

impl PassBody for Sequential {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, mut module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        // Planned as a whole first: an unknown requirement fails before anything has run.
        let mut holding = Holding::default();
        for PlanGroup { required, pass } in self.plan(cx)?.0 {
            for required in
                required.iter().filter(|pass| !pass.info().holds(&module)).collect::<Vec<_>>()
            {
                if !holding.contains(required.info()) {
                    let before = module.clone();
                    module = required.run_required(module, cx)?;
                    holding.ran(required.info(), before.same(&module));
                }
            }
            if pass.info().holds(&module) {
                continue;
            }
            let before = module.clone();
            module = pass.run(module, cx)?;
            holding.ran(pass.info(), before.same(&module));
        }
        Ok(module)
    }

    fn members(&self) -> &[PassRef] {
        &self.passes
    }
}

/// Passes whose results still hold, by canonical name.
#[derive(Default)]
struct Holding(Vec<String>);

impl Holding {
    fn contains(&self, info: &PassInfo) -> bool {
        self.0.contains(&names::canonical(info.name()))
    }

    fn ran(&mut self, info: &PassInfo, unchanged: bool) {
        if !unchanged {
            self.0.retain(|name| info.preserves().contains(name));
        }
        let name = names::canonical(info.name());
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }
}

/// An enabled pass, after what it requires.
#[derive(Clone, Debug)]
struct PlanGroup {
    required: Vec<PassRef>,
    pass: PassRef,
}

/// What a [`Sequential`] runs under a context; a requirement is left out when it is reached and
/// still holds.
#[derive(Clone, Debug)]
pub struct Plan(Vec<PlanGroup>);

impl fmt::Display for Plan {
    /// One pass a line, what lists contain indented: `FoldConstant (function, level 2), requires
    /// InferType`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PlanGroup { required, pass } in &self.0 {
            write!(
                f,
                "{} ({}, level {})",
                pass.info().name(),
                pass.info().kind(),
                pass.info().opt_level()
            )?;
            for (index, required) in required.iter().enumerate() {
                f.write_str(if index == 0 { ", after " } else { ", " })?;
                f.write_str(required.info().name())?;
            }
            f.write_str("\n")?;
            for member in pass.members() {
                writeln!(
                    f,
                    "  {} ({}, level {})",
                    member.info().name(),
                    member.info().kind(),
                    member.info().opt_level()
                )?;
            }
        }
        Ok(())
    }
}
