//! Analyses: which results are kept, carried over and forgotten.

use std::sync::Arc;

use super::support::{Log, chain, info, module};
use crate::graph::Function;
use crate::ir::{Attrs, Definition, GlobalVar, IRModule};
use crate::pass::{
    Analyses, Analysis, AnalysisInfo, AnalysisRef, AnalysisSet, FunctionPass, HookResult,
    InvalidateAnalysis, ModulePass, Pass, PassContext, PassErrorKind, PassInfo, PassInstrument,
    PassRef, PreservedAnalyses, Preserves, RequireAnalysis, Sequential,
};

/// The length of a function.
struct A;
/// The same as `A`, but in an [`AnalysisSet`] of its own.
struct B;
/// Twice `A`.
struct D;
/// Twice `D`.
struct E;
/// The length of all functions together.
struct Total;

const LENGTHS: AnalysisSet = AnalysisSet::new("lengths");

macro_rules! analysis {
    ($ty:ident, $unit:ty, $sets:expr, |$unit_name:ident, $analyses:ident| $compute:expr) => {
        impl Analysis for $ty {
            const NAME: &'static str = stringify!($ty);
            const SETS: &'static [AnalysisSet] = $sets;
            type Unit = $unit;
            type Output = usize;

            fn compute($unit_name: &$unit, $analyses: &Analyses<'_>) -> usize {
                let _ = $analyses;
                $compute
            }
        }
    };
}

analysis!(A, Function, &[], |function, analyses| function.len());
analysis!(B, Function, &[LENGTHS], |function, analyses| function.len());
analysis!(D, Function, &[], |function, analyses| 2 * *analyses.get::<A>(function));
analysis!(E, Function, &[], |function, analyses| 2 * *analyses.get::<D>(function));
analysis!(Total, IRModule, &[], |module, analyses| {
    module.functions().map(|(_, function)| *analyses.get::<A>(function)).sum()
});

/// Another handle for the same code, as after a pass whose changes do not affect lengths.
fn renewed(function: Function, times: i64) -> Function {
    function.with_attrs(Attrs::new().with("renewed", times))
}

/// A function pass that renews the function `f`.
fn renewing(preserves: Preserves) -> PassRef {
    renewing_and(preserves, |_| {})
}

fn renewing_and(
    preserves: Preserves,
    say: impl Fn(&PassContext) + Send + Sync + 'static,
) -> PassRef {
    let info = info("Renew", 0).preserving(preserves);
    let renew = move |function: Function, module: &IRModule, cx: &PassContext| {
        let f = module.function("f").unwrap();
        if !function.same(f) {
            return function;
        }
        say(cx);
        renewed(function, 1)
    };
    PassRef::new(FunctionPass::new(info, renew))
}

/// A module of `f`, three long, and `g`, two long.
fn two() -> IRModule {
    module([("f", chain(2)), ("g", chain(1))])
}

fn f(module: &IRModule) -> &Function {
    module.function("f").unwrap()
}

/// The names of the analyses whose results for `f` are cached.
fn known(module: &IRModule, cx: &PassContext) -> String {
    let f = f(module);
    let known = [
        ("A", cx.cached_analysis::<A>(f).is_some()),
        ("B", cx.cached_analysis::<B>(f).is_some()),
        ("D", cx.cached_analysis::<D>(f).is_some()),
        ("E", cx.cached_analysis::<E>(f).is_some()),
    ];
    known.into_iter().filter(|(_, known)| *known).map(|(name, _)| name).collect()
}

fn verifying() -> PassContext {
    PassContext::builder().verify_each(true).build().unwrap()
}

#[test]
fn preserved_analyses_stay_and_others_are_forgotten() {
    let cx = verifying();
    let before = two();
    assert_eq!((*cx.analysis::<A>(f(&before)), *cx.analysis::<B>(f(&before))), (3, 3));
    let after = renewing(Preserves::only([A::NAME])).run(before, &cx).unwrap();
    assert_eq!(known(&after, &cx), "A");
}

#[test]
fn results_stay_with_a_handle_that_the_caller_still_holds() {
    let cx = verifying();
    let before = two();
    let (a, d) = (cx.analysis::<A>(f(&before)), cx.analysis::<D>(f(&before)));
    let after = renewing(Preserves::only([A::NAME])).run(before.clone(), &cx).unwrap();
    assert_eq!((known(&before, &cx).as_str(), known(&after, &cx).as_str()), ("AD", "A"));
    assert!(Arc::ptr_eq(&cx.cached_analysis::<A>(f(&before)).unwrap(), &a));
    assert!(Arc::ptr_eq(&cx.cached_analysis::<D>(f(&before)).unwrap(), &d));
    // The next pass from the old handle finds them, too.
    let again = renewing(Preserves::only([A::NAME, D::NAME])).run(before, &cx).unwrap();
    assert_eq!(known(&again, &cx), "AD");
}

#[test]
fn a_module_pass_preserves_analyses_of_functions() {
    let cx = verifying();
    let pass = ModulePass::new(
        info("M", 0).preserving(Preserves::only(["a"])),
        |mut module: IRModule, _: &PassContext| {
            let renewed = renewed(module.function("f").unwrap().clone(), 1);
            module.insert(GlobalVar::new("f"), Definition::Graph(renewed));
            module
        },
    );
    let before = two();
    cx.analysis::<A>(f(&before));
    cx.analysis::<B>(f(&before));
    let after = pass.run(before, &cx).unwrap();
    assert_eq!(known(&after, &cx), "A");
}

#[test]
fn a_result_is_forgotten_with_the_results_it_was_computed_from() {
    let cx = verifying();
    let before = two();
    assert_eq!(*cx.analysis::<E>(f(&before)), 12);
    assert_eq!(known(&before, &cx), "ADE");
    let after = renewing(Preserves::only([D::NAME, E::NAME])).run(before.clone(), &cx).unwrap();
    assert_eq!(known(&after, &cx), "");
    cx.analysis::<E>(f(&before));
    let all = Preserves::only([A::NAME, D::NAME, E::NAME]);
    let after = renewing(all).run(before, &cx).unwrap();
    assert_eq!(known(&after, &cx), "ADE");
}

#[test]
fn an_analysis_may_define_when_its_result_survives() {
    /// Survives exactly if the set of lengths is preserved.
    struct Custom;
    impl Analysis for Custom {
        const NAME: &'static str = "Custom";
        type Unit = Function;
        type Output = usize;

        fn compute(function: &Function, _: &Analyses<'_>) -> usize {
            function.len()
        }

        fn survives(_: &usize, preserved: &PreservedAnalyses) -> bool {
            preserved.keeps_set(LENGTHS)
        }
    }
    for (say, kept) in
        [(None, false), (Some(LENGTHS), true), (Some(AnalysisSet::ON_FUNCTIONS), false)]
    {
        let cx = verifying();
        let before = two();
        cx.analysis::<Custom>(f(&before));
        let pass = renewing_and(Preserves::only(["Custom"]), move |cx| {
            if let Some(set) = say {
                cx.preserve_set(set);
            }
        });
        let after = pass.run(before, &cx).unwrap();
        assert_eq!(cx.cached_analysis::<Custom>(f(&after)).is_some(), kept);
    }
}

#[test]
fn an_abandoned_analysis_is_forgotten_although_all_are_preserved() {
    let mut preserved = PreservedAnalyses::all();
    preserved.abandon::<A>();
    assert!(!preserved.keeps_all() && !preserved.keeps::<A>() && preserved.keeps::<B>());
    let cx = PassContext::default();
    let before = two();
    cx.analysis::<A>(f(&before));
    cx.analysis::<B>(f(&before));
    let pass = renewing_and(Preserves::All, |cx| cx.abandon::<A>());
    let after = pass.run(before, &cx).unwrap();
    assert_eq!(known(&after, &cx), "B");
}

#[test]
fn a_set_of_analyses_is_preserved_as_a_whole() {
    let cx = verifying();
    let before = two();
    cx.analysis::<A>(f(&before));
    cx.analysis::<B>(f(&before));
    let pass = renewing_and(Preserves::NONE, |cx| cx.preserve_set(LENGTHS));
    let after = pass.run(before, &cx).unwrap();
    assert_eq!(known(&after, &cx), "B");
    cx.analysis::<A>(f(&after));
    let pass = renewing_and(Preserves::NONE, |cx| cx.preserve_set(AnalysisSet::ON_FUNCTIONS));
    let again = pass.run(two(), &cx).unwrap();
    assert_eq!(known(&again, &cx), "", "nothing was known of that module");
}

#[test]
fn verification_finds_a_pass_that_preserves_all_and_changes_a_function() {
    let lies = FunctionPass::new(
        info("Lies", 0).preserving(Preserves::All),
        |function: Function, module: &IRModule, _: &PassContext| {
            if function.same(f(module)) { chain(5) } else { function }
        },
    );
    // Without verification the claim is not checked.
    lies.run(two(), &PassContext::default()).unwrap();
    let error = lies.run(two(), &verifying()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pass Lies: function @f was changed by `Lies`, which says that it preserves every analysis"
    );
    // The changed unit may also be the module.
    let lies = ModulePass::new(
        info("Lies", 0).preserving(Preserves::All),
        |mut module: IRModule, _: &PassContext| {
            module.remove(&GlobalVar::new("g"));
            module
        },
    );
    let error = lies.run(two(), &verifying()).unwrap_err().to_string();
    assert!(error.contains("the module was changed by `Lies`"), "{error}");
    // New handles for the same code are no change.
    let renews = FunctionPass::new(
        info("Renews", 0).preserving(Preserves::All),
        |function: Function, _: &IRModule, _: &PassContext| renewed(renewed(function, 1), 0),
    );
    let marked = module([("f", renewed(chain(2), 0))]);
    renews.run(marked, &verifying()).unwrap();
}

#[test]
fn verification_finds_a_pass_that_preserves_one_analysis_wrongly() {
    let grows = FunctionPass::new(
        info("Grows", 0).preserving(Preserves::only([A::NAME, B::NAME])),
        |function: Function, module: &IRModule, _: &PassContext| {
            if function.same(f(module)) { chain(5) } else { function }
        },
    );
    let before = two();
    let cx = verifying();
    cx.analysis::<A>(f(&before));
    let error = grows.run(before.clone(), &cx).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            PassErrorKind::NotPreserved { analysis: Some("A"), function: Some(f), .. } if f.name() == "f"
        ),
        "{error}"
    );
    assert!(error.to_string().contains("preserves `A`: its result is another one now"), "{error}");
    // A result that was never computed cannot be wrong.
    grows.run(before, &verifying()).unwrap();
}

#[test]
fn a_function_pass_that_changes_one_function_keeps_analyses_of_the_others() {
    let cx = verifying();
    let before = two();
    let g = before.function("g").unwrap();
    cx.analysis::<A>(f(&before));
    let of_g = cx.analysis::<A>(g);
    let after = renewing(Preserves::NONE).run(before.clone(), &cx).unwrap();
    assert_eq!(known(&after, &cx), "");
    let again = cx.cached_analysis::<A>(after.function("g").unwrap()).unwrap();
    assert!(Arc::ptr_eq(&of_g, &again));
}

#[test]
fn what_was_computed_from_analyses_of_deleted_functions_is_forgotten() {
    let cx = verifying();
    let before = two();
    cx.analysis::<Total>(&before);
    let delete = ModulePass::new(
        info("Delete", 0).preserving(Preserves::only([A::NAME, Total::NAME])),
        |mut module: IRModule, _: &PassContext| {
            module.remove(&GlobalVar::new("f"));
            module
        },
    );
    let after = delete.run(before.clone(), &cx).unwrap();
    // The caller still has the function.
    assert!(cx.cached_analysis::<A>(f(&before)).is_some());
    // `Total` was computed from an analysis of `f`.
    assert!(cx.cached_analysis::<Total>(&after).is_none());
    assert_eq!(*cx.analysis::<Total>(&after), 2);
}

/// Notes passes and analyses.
struct Events(Log);

impl PassInstrument for Events {
    fn should_run(&self, _: &IRModule, info: &PassInfo) -> HookResult<bool> {
        self.0.note(format!("S({})", info.name()));
        Ok(true)
    }
    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.0.note(format!("B({})", info.name()));
        Ok(())
    }
    fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.0.note(format!("A({})", info.name()));
        Ok(())
    }
    fn before_analysis(&self, info: &AnalysisInfo) -> HookResult {
        self.0.note(format!("B[{}]", info.name));
        Ok(())
    }
    fn after_analysis(&self, info: &AnalysisInfo) -> HookResult {
        self.0.note(format!("A[{}]", info.name));
        Ok(())
    }
    fn analysis_invalidated(&self, info: &AnalysisInfo) -> HookResult {
        self.0.note(format!("I[{}]", info.name));
        Ok(())
    }
}

fn watched(log: &Log) -> PassContext {
    PassContext::builder().instrument(Events(log.clone())).build().unwrap()
}

#[test]
fn hooks_of_an_analysis_run_within_those_of_its_pass() {
    let log = Log::default();
    let cx = watched(&log);
    let asks = ModulePass::new(info("P", 0), |mut module: IRModule, cx: &PassContext| {
        assert_eq!(*cx.analysis::<D>(f(&module)), 6);
        module.insert(GlobalVar::new("f"), Definition::Graph(chain(0)));
        module
    });
    asks.run(two(), &cx).unwrap();
    assert_eq!(log.take(), "S(P) B(P) B[D] B[A] A[A] A[D] I[A] I[D] A(P)");
}

#[test]
fn analyses_of_the_module_are_computed_before_a_function_pass_begins() {
    let log = Log::default();
    let cx = watched(&log);
    let pass = FunctionPass::new(
        info("P", 0).analysing([AnalysisRef::of::<Total>()]),
        |function: Function, module: &IRModule, cx: &PassContext| {
            assert_eq!(cx.cached_analysis::<Total>(module).as_deref(), Some(&5));
            // Workers of a function pass do not call instruments.
            cx.analysis::<B>(&function);
            function
        },
    );
    let list = Sequential::default().then(pass);
    list.run(two(), &cx).unwrap();
    assert_eq!(
        log.take(),
        "S(sequential) B(sequential) S(P) B(P) B[Total] B[A] A[A] B[A] A[A] A[Total] A(P) A(sequential)"
    );
}

#[test]
fn an_analysis_that_needs_itself_is_an_error_that_names_the_cycle() {
    struct Hen;
    struct Egg;
    analysis!(Hen, Function, &[], |function, analyses| *analyses.get::<Egg>(function));
    analysis!(Egg, Function, &[], |function, analyses| *analyses.get::<Hen>(function));
    let asks = ModulePass::new(info("P", 0), |module: IRModule, cx: &PassContext| {
        cx.analysis::<Hen>(f(&module));
        module
    });
    let error = asks.apply(two()).unwrap_err().to_string();
    assert_eq!(error, "pass P: panicked: analyses need each other: Hen → Egg → Hen");
}

#[test]
fn a_hook_that_fails_around_an_analysis_fails_the_pass() {
    struct Fails;
    impl PassInstrument for Fails {
        fn after_analysis(&self, _: &AnalysisInfo) -> HookResult {
            Err("no".into())
        }
    }
    let cx = PassContext::builder().instrument(Fails).build().unwrap();
    let asks = ModulePass::new(info("P", 0), |module: IRModule, cx: &PassContext| {
        cx.analysis::<A>(f(&module));
        module
    });
    let error = asks.run(two(), &cx).unwrap_err().to_string();
    assert_eq!(error, "pass P: instrument `Fails` failed in after_analysis: no");
    ModulePass::new(info("Q", 0), |m: IRModule, _: &PassContext| m).run(two(), &cx).unwrap();
}

#[test]
fn results_are_kept_as_long_as_their_function() {
    let cx = PassContext::default();
    for _ in 0..1000 {
        // Each function is new, perhaps at the address of an earlier one.
        let length = 1 + fastrand_like();
        assert_eq!(*cx.analysis::<A>(&chain(length)), length + 1);
    }
    let mut function = chain(1);
    cx.analysis::<A>(&function);
    // The only handle is changed in place: the function still counts as another.
    function = renewed(function, 1);
    assert!(cx.cached_analysis::<A>(&function).is_none());
}

/// Some small numbers.
fn fastrand_like() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(7, Ordering::Relaxed) % 13
}

#[test]
fn a_failed_pass_keeps_analyses_of_its_input() {
    let cx = PassContext::default();
    let before = two();
    cx.analysis::<A>(f(&before));
    let fails = ModulePass::new(info("P", 0), |_: IRModule, cx: &PassContext| {
        cx.analysis::<A>(&chain(9));
        Err::<IRModule, _>("no")
    });
    assert!(fails.run(before.clone(), &cx).is_err());
    assert_eq!(known(&before, &cx), "A");
}

#[test]
fn steps_compute_and_forget_an_analysis() {
    let log = Log::default();
    let cx = watched(&log);
    let list = Sequential::default()
        .then(RequireAnalysis::<Total>::new().unwrap())
        .then(RequireAnalysis::<Total>::new().unwrap())
        .then(InvalidateAnalysis::<A>::new().unwrap())
        .then(RequireAnalysis::<Total>::new().unwrap());
    let module = module([("f", chain(2))]);
    assert!(list.run(module.clone(), &cx).unwrap().same(&module));
    let events = log.take();
    let analyses: Vec<&str> = events.split(' ').filter(|event| event.contains('[')).collect();
    let compute = ["B[Total]", "B[A]", "A[A]", "A[Total]"];
    assert_eq!(analyses, [&compute[..], &["I[A]", "I[Total]"], &compute[..]].concat());
    assert!(events.contains("B(require<Total>)") && events.contains("B(invalidate<A>)"));
}

#[test]
fn types_are_checked_again_only_in_changed_functions() {
    use crate::analysis::{References, Types};
    let log = Log::default();
    let cx = watched(&log);
    let list = Sequential::default()
        .then(RequireAnalysis::<Types>::new().unwrap())
        .then(renewing(Preserves::NONE))
        .then(RequireAnalysis::<Types>::new().unwrap());
    let after = list.run(two(), &cx).unwrap();
    assert!(cx.cached_analysis::<References>(f(&after)).is_some());
    let events = log.take();
    let computed = events.split(' ').filter(|event| *event == "B[References]").count();
    // Both functions, and then the changed `f` again.
    assert_eq!(computed, 3, "{events}");
}
