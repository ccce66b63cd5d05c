//! Groups of passes that run function by function: `function(…)` of a textual pipeline.

use super::progress::Progress;
use super::{
    PassBody, PassContext, PassInfo, PassKind, PassRef, Result, RunToken, Sequential,
    is_optimizable, sequential,
};
use crate::ir::{Definition, GlobalVar, IRModule};

/// The name of such a group.
pub(super) const NAME: &str = "function";

/// Runs all its passes on the first function, then on the next one, in the order of the module.
///
/// The working set is one function. A pass sees the functions before its own as the whole group has
/// left them; instruments see each pass once for each function.
pub(super) struct ByFunction(Sequential);

impl ByFunction {
    /// A group of passes of functions.
    pub(super) fn new(passes: Vec<PassRef>) -> ByFunction {
        let info = PassInfo::new(NAME, 0).expect("the name of groups is valid");
        ByFunction(Sequential::with_info(info.with_kind(PassKind::Sequential), passes))
    }
}

impl PassBody for ByFunction {
    fn info(&self) -> &PassInfo {
        self.0.info()
    }

    fn transform(&self, mut module: IRModule, cx: &PassContext, _: RunToken) -> Result<IRModule> {
        let plan = self.0.plan(cx)?;
        let progress = match cx.progress() {
            Some(outer) => outer.clone(),
            None => {
                plan.initialize(cx)?;
                Progress::default()
            }
        };
        let globals: Vec<GlobalVar> = module
            .functions()
            .filter(|(_, function)| is_optimizable(function.attrs()))
            .map(|(global, _)| global.clone())
            .collect();
        // What holds for every function that is still to come, and for all that are done.
        let (before, mut after) = (progress.fork(), None::<Progress>);
        for global in globals {
            if module.get(&global).and_then(Definition::as_graph).is_none() {
                continue;
            }
            let own = before.fork();
            let cx = cx.with_progress(own.clone()).only_for(global);
            module = sequential::run(&plan, module, &cx, &own)?;
            before.meet(&own);
            match &after {
                Some(after) => after.meet(&own),
                None => after = Some(own),
            }
        }
        if let Some(after) = after {
            progress.become_like(&after);
        }
        Ok(module)
    }

    fn members(&self) -> &[PassRef] {
        self.0.passes()
    }
}
