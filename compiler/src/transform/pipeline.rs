//! The one ordered list of graph passes. The context's level decides which of them run.

use indexmap::IndexSet;

use super::{
    ApplyWinograd, CanonicalizeOps, CompileTrees, Conv1dToConv2d, Conv3dToConv2d,
    DeadCodeElimination, EliminateCommonSubexpr, FakeQuantizationToInteger, FlattenRows,
    FoldConstant, FoldExplicitPadding, FoldScaleAxis, FoldSpaceToDepth, FuseOps,
    GroupConv2dToMatmul, InferType, OutlinePrimitives, PlanDevices, PlanLayouts,
    PromoteLowPrecision, RemoveUnusedFunctions, SimplifyExpr, SimplifyInference,
    StridesOptimization,
};
use crate::diagnostics::{Problem, Report, suggest};
use crate::pass::{PassInfo, PassRef, Result, Sequential, same_name};

/// Name of the pipeline as a pass.
const NAME: &str = "GraphPipeline";

/// The passes that turn an imported module into one of kernels and calls of them, in order.
fn passes() -> Vec<PassRef> {
    vec![
        InferType.into(),
        RemoveUnusedFunctions.into(),
        SimplifyInference.into(),
        // Before weights that are stored quantised become what they stand for.
        FakeQuantizationToInteger.into(),
        FoldConstant.into(),
        EliminateCommonSubexpr.into(),
        SimplifyExpr.into(),
        FoldExplicitPadding.into(),
        FoldScaleAxis.into(),
        FoldSpaceToDepth.into(),
        PlanDevices.into(),
        CanonicalizeOps.into(),
        StridesOptimization.into(),
        Conv1dToConv2d.into(),
        Conv3dToConv2d.into(),
        GroupConv2dToMatmul.into(),
        FlattenRows.into(),
        // Folds calls that scale folding and the new shapes of weights have left.
        FoldConstant.into(),
        // After the passes that fold into convolutions, because this one puts casts around them.
        PromoteLowPrecision.into(),
        ApplyWinograd.into(),
        CompileTrees.into(),
        DeadCodeElimination.into(),
        FuseOps.into(),
        OutlinePrimitives.into(),
        PlanLayouts.into(),
    ]
}

/// The passes of the pipeline after which results are rounded otherwise, as scales move into weights
/// or another algorithm takes other sums, or of integers. Without them, what kernels are fused of does
/// not change a bit of what floats of 32 and 64 bits become.
pub fn changing_arithmetic() -> [PassRef; 7] {
    [
        SimplifyInference.into(),
        StridesOptimization.into(),
        FakeQuantizationToInteger.into(),
        FoldScaleAxis.into(),
        FoldSpaceToDepth.into(),
        ApplyWinograd.into(),
        CompileTrees.into(),
    ]
}

/// Passes that a caller adds to the pipeline, with their places.
#[derive(Clone, Default, Debug)]
pub struct PipelineExtensions {
    start: Vec<PassRef>,
    before: Vec<(String, PassRef)>,
    after: Vec<(String, PassRef)>,
    end: Vec<PassRef>,
}

impl PipelineExtensions {
    /// No additional passes.
    pub fn new() -> PipelineExtensions {
        PipelineExtensions::default()
    }

    /// Whether there are no additional passes.
    pub fn is_empty(&self) -> bool {
        let PipelineExtensions { start, before, after, end } = self;
        start.is_empty() && before.is_empty() && after.is_empty() && end.is_empty()
    }

    /// Adds a pass at the start, after those added there before.
    pub fn at_start(&mut self, pass: impl Into<PassRef>) {
        self.start.push(pass.into());
    }

    /// Adds a pass right before the first pass of that name, after those added there before.
    pub fn before(&mut self, name: &str, pass: impl Into<PassRef>) {
        self.before.push((name.to_owned(), pass.into()));
    }

    /// Adds a pass right after the last pass of that name, after those added there before.
    pub fn after(&mut self, name: &str, pass: impl Into<PassRef>) {
        self.after.push((name.to_owned(), pass.into()));
    }

    /// Adds a pass at the end, after those added there before: it sees kernels, not operators.
    pub fn at_end(&mut self, pass: impl Into<PassRef>) {
        self.end.push(pass.into());
    }
}

/// The pipeline, with the caller's passes.
///
/// # Errors
///
/// All names that no pass of the pipeline has.
pub fn pipeline(extensions: &PipelineExtensions) -> Result<Sequential> {
    let base = passes();
    let mut report = Report::new();
    for (name, _) in extensions.before.iter().chain(&extensions.after) {
        if !base.iter().any(|pass| same_name(pass.info().name(), name)) {
            let names: IndexSet<&str> = base.iter().map(|pass| pass.info().name()).collect();
            let problem = Problem::new(format!("no pass of the pipeline is named `{name}`"));
            report.push(match suggest(name, names.iter().copied()) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help(format!(
                    "it has {}",
                    names.iter().copied().collect::<Vec<_>>().join(", ")
                )),
            });
        }
    }
    report.into_result(())?;

    let at = |list: &[(String, PassRef)], pass: &PassRef| -> Vec<PassRef> {
        list.iter()
            .filter(|(name, _)| same_name(pass.info().name(), name))
            .map(|(_, added)| added.clone())
            .collect()
    };
    let same = |a: &PassRef, b: &PassRef| a.info().name() == b.info().name();
    let mut passes = extensions.start.clone();
    for (index, pass) in base.iter().enumerate() {
        if !base[..index].iter().any(|earlier| same(earlier, pass)) {
            passes.extend(at(&extensions.before, pass));
        }
        passes.push(pass.clone());
        if !base[index + 1..].iter().any(|later| same(later, pass)) {
            passes.extend(at(&extensions.after, pass));
        }
    }
    passes.extend(extensions.end.iter().cloned());
    let info = PassInfo::new(NAME, 0)?.describing("Everything between a model and its kernels.");
    Ok(Sequential::with_info(info, passes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::IRModule;
    use crate::pass::{ModulePass, PassContext};

    fn named(name: &str) -> PassRef {
        let info = PassInfo::new(name, 0).unwrap();
        PassRef::new(ModulePass::new(info, |module: IRModule, _: &PassContext| module))
    }

    fn names(extensions: &PipelineExtensions) -> Vec<String> {
        let pipeline = pipeline(extensions).unwrap();
        pipeline.passes().iter().map(|pass| pass.info().name().to_owned()).collect()
    }

    #[test]
    fn extensions_go_where_they_are_asked_for() {
        let plain = names(&PipelineExtensions::new());
        let mut extensions = PipelineExtensions::new();
        extensions.at_start(named("S"));
        extensions.before("fold-constant", named("B1"));
        extensions.before("FoldConstant", named("B2"));
        extensions.after("FoldConstant", named("A"));
        extensions.at_end(named("E"));
        let extended = names(&extensions);
        let position = |name: &str| extended.iter().position(|other| other == name).unwrap();
        let first = position("FoldConstant");
        let last = extended.iter().rposition(|name| name == "FoldConstant").unwrap();
        assert_eq!((position("S"), position("E")), (0, extended.len() - 1));
        assert_eq!((position("B1"), position("B2")), (first - 2, first - 1));
        assert_eq!(position("A"), last + 1);
        assert_eq!(extended.len(), plain.len() + 5);
    }

    #[test]
    fn unknown_places_are_errors() {
        let mut extensions = PipelineExtensions::new();
        extensions.after("FoldConstnat", named("A"));
        extensions.before("Vectorize", named("B"));
        let error = pipeline(&extensions).unwrap_err().to_string();
        assert!(error.contains("`FoldConstnat`; help: did you mean `FoldConstant`?"), "{error}");
        assert!(
            error.contains("no pass of the pipeline is named `Vectorize`; help: it has InferType"),
            "{error}"
        );
    }

    #[test]
    fn levels_decide_which_passes_run() {
        let plan = |level| {
            let cx = PassContext::builder().opt_level(level).build().unwrap();
            pipeline(&PipelineExtensions::new()).unwrap().plan(&cx).unwrap().to_string()
        };
        assert!(!plan(0).contains("FoldConstant") && plan(0).contains("FuseOps"));
        assert!(plan(2).contains("FoldConstant") && !plan(2).contains("FoldScaleAxis"));
        assert!(plan(3).contains("FoldScaleAxis (module, level 3), after InferType"));
    }
}
