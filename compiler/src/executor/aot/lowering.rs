//! Lowering of a program's kernels, for each CPU level.

use crate::diagnostics::{Problem, Report};
use crate::executor::Program;
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::parallel;
use crate::pass::{Pass, PassContext, PassError, Result};
use crate::target::Target;
use crate::tir::{ADD_LOWER_PASS, Lowering, ParamKind, PrimFunc, pipeline};

/// What is wrong with a function whose calls do not fit it any more.
const PARAMS_CHANGED: &str =
    "a pass of the lowering has changed the parameters, with which it is called";

/// What each parameter is to the caller.
fn kinds(func: &PrimFunc) -> Vec<ParamKind> {
    func.params.iter().map(|param| param.kind).collect()
}

impl Program {
    /// Lowers every version of every kernel for its level by [`pipeline`], under a context with
    /// that level as its target.
    ///
    /// If the context has instruments or verifies, the kernels of a level are one module, so that
    /// instruments see each pass once. Else each kernel is lowered by itself, in place.
    ///
    /// # Errors
    ///
    /// A pass of the user's own is not known; or one problem for each kernel that cannot be
    /// lowered, under a context with instruments for the first one.
    pub fn lower_kernels(&mut self, levels: &[Target], cx: &PassContext) -> Result<(), Report> {
        let contexts = levels.iter().map(|level| cx.for_target(level));
        let contexts: Vec<PassContext> = contexts.collect::<Result<_>>()?;
        if !cx.instruments().is_empty() || cx.verifies() {
            return contexts.iter().enumerate().try_for_each(|(at, cx)| self.lower_level(at, cx));
        }
        let lowerings: Vec<Lowering> = contexts.iter().map(Lowering::new).collect::<Result<_>>()?;
        let work: Vec<(&PrimFunc, &Lowering, &PassContext)> = self
            .kernels
            .values()
            .flat_map(|kernel| kernel.versions.iter().zip(&lowerings).zip(&contexts))
            .map(|((func, lowering), cx)| (func, lowering, cx))
            .collect();
        let lowered = parallel::map(&work, cx.jobs(), |&(func, lowering, cx)| {
            let apart = cx.apart();
            (lowering.run(func.clone(), &apart), apart)
        });
        let mut lowered = lowered.into_iter();
        let has_own_passes = !cx.get(&ADD_LOWER_PASS).is_empty();
        let mut report = Report::new();
        for kernel in self.kernels.values_mut() {
            // The versions of a kernel that cannot be lowered tend to have the same problem.
            let mut failed = None;
            for (version, (result, apart)) in kernel.versions.iter_mut().zip(&mut lowered) {
                cx.join(&apart);
                match result {
                    Ok(func) if kinds(&func) != kinds(version) => {
                        failed = failed.or(Some(PassError::new(PARAMS_CHANGED)));
                    }
                    Ok(func) => *version = func,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            let name = &kernel.signature().name;
            let message = failed.map(|error| format!("kernel `{name}`: {error}"));
            report.problems.extend(message.map(|message| match has_own_passes {
                true => Problem::new(message),
                false => Problem::defect(message),
            }));
        }
        report.into_result(())
    }

    /// Lowers the versions of all kernels for one level, as one module.
    fn lower_level(&mut self, level: usize, cx: &PassContext) -> Result<(), Report> {
        let mut module = IRModule::new();
        let mut versions: Vec<(GlobalVar, &mut PrimFunc)> = Vec::new();
        for kernel in self.kernels.values_mut() {
            let Some(version) = kernel.versions.get_mut(level) else { continue };
            let global = module.fresh_global(&version.name);
            module.insert(global.clone(), Definition::Prim(version.clone()));
            versions.push((global, version));
        }
        let passes = pipeline(cx)?;
        let module = cx.scope(|cx| passes.run(module, cx))?;
        for (global, version) in versions {
            match module.get(&global) {
                Some(Definition::Prim(func)) if kinds(func) == kinds(version) => {
                    *version = func.clone();
                }
                Some(Definition::Prim(_)) => {
                    return Err(Problem::new(format!("{global}: {PARAMS_CHANGED}")).into());
                }
                _ => {
                    let message =
                        format!("a pass of the lowering deletes {global}, which is called");
                    return Err(Problem::new(message).into());
                }
            }
        }
        Ok(())
    }
}
