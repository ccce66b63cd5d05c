//! Lists of passes: gating and requirements.

use super::support::{Log, Noting, changing, failing, info, needs, noting};
use crate::ir::IRModule;
use crate::pass::{
    ModulePass, NamedPass, Origin, Pass, PassBody, PassContext, PassContextBuilder, PassEntry,
    PassErrorKind, PassInfo, PassRef, Preserves, Registry, Requirement, Result, RunToken,
    Sequential,
};

fn run(passes: impl IntoIterator<Item = PassRef>, cx: &PassContext) -> Result<IRModule> {
    Sequential::new(passes).run(IRModule::new(), cx)
}

/// A pass type with a static description, so that others can require it.
macro_rules! static_pass {
    ($name:ident, $text:literal, $required:expr) => {
        struct $name;

        impl PassBody for $name {
            fn info(&self) -> &PassInfo {
                static INFO: std::sync::LazyLock<PassInfo> =
                    std::sync::LazyLock::new(|| info($text, 0).requiring($required));
                &INFO
            }

            fn transform(
                &self,
                module: IRModule,
                cx: &PassContext,
                _: RunToken,
            ) -> Result<IRModule> {
                cx.count($text, 1);
                Ok(module)
            }
        }

        impl NamedPass for $name {
            const NAME: &'static str = $text;

            fn make_default() -> Option<PassRef> {
                Some(PassRef::new($name))
            }
        }
    };
}

static_pass!(R, "R", []);
static_pass!(Q, "Q", [Requirement::of::<R>()]);
static_pass!(Egg, "Egg", [Requirement::of::<Hen>()]);
static_pass!(Hen, "Hen", [Requirement::named("Egg")]);

fn registry() -> Registry {
    let here = |line| Origin::new("niello", file!(), line);
    Registry::of([
        PassEntry::of::<R>("", here(1)),
        PassEntry::of::<Q>("", here(2)),
        PassEntry::of::<Egg>("", here(3)),
    ])
}

#[test]
fn passes_of_one_type_make_a_list_as_they_are() {
    let list = Sequential::new([Q, Q]);
    assert_eq!(list.passes().len(), 2);
    assert_eq!(Sequential::new(vec![PassRef::new(Q)]).then(R).passes().len(), 2);
}

fn cx() -> PassContext {
    PassContext::builder().registry(registry()).build().unwrap()
}

/// Notes which passes run.
struct Names(Log);

impl crate::pass::PassInstrument for Names {
    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> crate::pass::HookResult {
        self.0.note(info.name());
        Ok(())
    }
}

fn watched(log: &Log) -> PassContext {
    PassContext::builder().registry(registry()).instrument(Names(log.clone())).build().unwrap()
}

#[test]
fn a_list_has_name_and_level() {
    let log = Log::default();
    let list = Sequential::with_info(
        info("sequential", 2),
        [noting(&log, info("A", 0)), noting(&log, info("B", 0))],
    );
    assert_eq!((list.info().name(), list.info().opt_level()), ("sequential", 2));
    assert_eq!(
        PassRef::new(list).to_string(),
        "Run Sequential pass: sequential at the optimization level 2. The passes will be executed are: [A B]"
    );
}

/// Whether a list runs a pass of a level under a context, which may name the pass.
fn runs(level: u8, cx: impl FnOnce(PassContextBuilder, &PassRef) -> PassContextBuilder) -> bool {
    let log = Log::default();
    let pass = noting(&log, info("P", level));
    let cx = cx(PassContext::builder(), &pass).build().unwrap();
    let module = IRModule::new();
    let after = Sequential::new([pass]).run(module.clone(), &cx).unwrap();
    assert!(after.same(&module));
    log.take() == "P"
}

#[test]
fn a_required_pass_within_the_level_runs() {
    assert!(runs(1, |cx, pass| cx.opt_level(2).require(&**pass)));
}

#[test]
fn a_pass_beyond_the_level_is_skipped() {
    assert!(!runs(3, |cx, _| cx.opt_level(2)));
}

#[test]
fn a_pass_of_the_level_itself_runs() {
    assert!(runs(2, |cx, _| cx.opt_level(2)));
}

#[test]
fn a_required_pass_beyond_the_level_runs() {
    assert!(runs(3, |cx, pass| cx.opt_level(0).require(&**pass)));
}

#[test]
fn a_disabled_pass_is_skipped_even_if_required() {
    assert!(!runs(0, |cx, pass| cx.opt_level(3).disable(&**pass).require(&**pass)));
}

#[test]
fn a_pass_that_is_run_directly_ignores_level_and_disabling() {
    let log = Log::default();
    let pass = noting(&log, info("P", 5));
    let cx = PassContext::builder().opt_level(0).disable(&*pass).build().unwrap();
    pass.run(IRModule::new(), &cx).unwrap();
    assert_eq!(log.take(), "P");
}

#[test]
fn requirements_are_transitive_and_come_first() {
    let log = Log::default();
    let p = noting(&Log::default(), info("P", 0).requiring(needs("Q")));
    run([p], &watched(&log)).unwrap();
    assert_eq!(log.take(), "sequential R Q P");
}

#[test]
fn a_requirement_runs_even_if_disabled() {
    let log = Log::default();
    let cx = PassContext::builder()
        .registry(registry())
        .disable_pass("Q")
        .instrument(Names(log.clone()))
        .build()
        .unwrap();
    run([noting(&Log::default(), info("P", 0).requiring(needs("Q")))], &cx).unwrap();
    assert_eq!(log.take(), "sequential R Q P");
}

#[test]
fn requirements_of_a_skipped_pass_do_not_run() {
    let log = Log::default();
    run([noting(&log, info("P", 3).requiring(needs("Q")))], &watched(&log)).unwrap();
    assert_eq!(log.take(), "sequential");
}

#[test]
fn requirements_of_a_skipped_pass_may_be_unknown() {
    let log = Log::default();
    run([noting(&log, info("P", 3).requiring(needs("NoSuchPass")))], &watched(&log)).unwrap();
    assert_eq!(log.take(), "sequential");
}

#[test]
fn a_nested_list_runs_passes_within_the_level() {
    let log = Log::default();
    let inner = Sequential::new([noting(&log, info("SimplifyExpr", 1))]);
    let cx = PassContext::builder().opt_level(1).build().unwrap();
    run([PassRef::new(inner)], &cx).unwrap();
    assert_eq!(log.take(), "SimplifyExpr");
}

#[test]
fn requirements_of_a_list_count_only_if_it_is_nested() {
    let log = Log::default();
    let list = || Sequential::with_info::<PassRef>(info("L", 0).requiring(needs("R")), []);
    list().run(IRModule::new(), &watched(&log)).unwrap();
    assert_eq!(log.take(), "L");
    run([PassRef::new(list())], &watched(&log)).unwrap();
    assert_eq!(log.take(), "sequential R L");
}

#[test]
fn a_list_that_an_instrument_skips_runs_none_of_its_passes() {
    let log = Log::default();
    let cx = PassContext::builder().instrument(OnlyNot("sequential")).build().unwrap();
    run([noting(&log, info("P", 0))], &cx).unwrap();
    assert_eq!(log.take(), "");
}

#[test]
fn a_pass_that_an_instrument_skipped_satisfies_no_requirement() {
    let log = Log::default();
    let cx = PassContext::builder()
        .registry(registry())
        .instrument(OnlyNot("R"))
        .instrument(Names(log.clone()))
        .build()
        .unwrap();
    run([PassRef::new(R), noting(&Log::default(), info("P", 0).requiring(needs("R")))], &cx)
        .unwrap();
    assert_eq!(log.take(), "sequential R P");
}

#[test]
fn a_requirement_that_still_holds_does_not_run_again() {
    let log = Log::default();
    let needing = |name| info(name, 0).requiring(needs("R"));
    let keep = noting(&Log::default(), needing("P1"));
    let change = changing(&Log::default(), needing("P1"));
    let preserve = changing(&Log::default(), needing("P1").preserving(Preserves::only([R::NAME])));
    let p2 = noting(&Log::default(), needing("P2"));
    for (p1, expected) in [
        (keep, "sequential R P1 P2"),
        (change, "sequential R P1 R P2"),
        (preserve, "sequential R P1 P2"),
    ] {
        run([p1, p2.clone()], &watched(&log)).unwrap();
        assert_eq!(log.take(), expected);
    }
}

#[test]
fn nested_lists_are_disabled_by_their_name() {
    let log = Log::default();
    let list = |name| PassRef::new(Sequential::new([noting(&log, info(name, 0))]));
    let cx = PassContext::builder().disable_pass("sequential").build().unwrap();
    run([list("A"), list("B")], &cx).unwrap();
    assert_eq!(log.take(), "");
    run([list("A"), list("B")], &PassContext::default()).unwrap();
    assert_eq!(log.take(), "A B");
}

#[test]
fn an_unknown_requirement_is_an_error_before_any_pass_runs() {
    let log = Log::default();
    let first = noting(&log, info("First", 0));
    let error = run([first, noting(&log, info("P", 0).requiring(needs("Qq")))], &cx()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(
            "pass sequential: there is no pass `Qq`, which `P` requires; did you mean `Q`?"
        ),
        "{message}"
    );
    assert!(message.contains("use my_passes as _;"), "{message}");
    assert_eq!(log.take(), "");
}

#[test]
fn a_cycle_of_requirements_is_an_error_that_prints_the_cycle() {
    let error = run([PassRef::new(Hen)], &cx()).unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::RequirementCycle(_)));
    assert_eq!(error.to_string(), "pass sequential: passes require each other: Hen → Egg → Hen");
}

#[test]
fn an_instrument_cannot_stop_a_requirement() {
    let log = Log::default();
    let cx = PassContext::builder()
        .registry(registry())
        .instrument(Names(log.clone()))
        .instrument(OnlyNot("Q"))
        .build()
        .unwrap();
    run([noting(&Log::default(), info("P", 0).requiring(needs("Q")))], &cx).unwrap();
    assert_eq!(log.take(), "sequential R Q P");
    // As a member of a list it can be stopped.
    run([PassRef::new(Q)], &cx).unwrap();
    assert_eq!(log.take(), "sequential R");
}

/// Keeps the passes of one name from running.
struct OnlyNot(&'static str);

impl crate::pass::PassInstrument for OnlyNot {
    fn should_run(&self, _: &IRModule, info: &PassInfo) -> crate::pass::HookResult<bool> {
        Ok(info.name() != self.0)
    }
}

#[test]
fn a_failure_ends_the_list_and_leaves_the_callers_module() {
    let log = Log::default();
    let module = IRModule::new();
    let list =
        Sequential::new([changing(&log, info("A", 0)), failing(&log), noting(&log, info("C", 0))]);
    let cx = PassContext::builder().instrument(Noting::new(1, &log)).build().unwrap();
    let error = list.run(module.clone(), &cx).unwrap_err();
    assert_eq!(error.passes(), ["sequential", "Fails"]);
    assert_eq!(error.to_string(), "pass sequential > Fails: it does not work");
    assert!(module.is_empty());
    assert_eq!(log.take(), "S1 B1 S1 B1 A A1 S1 B1 P");
}

#[test]
fn a_pass_whose_effect_holds_already_does_not_run() {
    // A pass that declares that its effect holds is left out even where it is listed.
    let log = Log::default();
    let cx = watched(&log);
    run([PassRef::new(crate::pass::tests::macros::HoldsAlways)], &cx).unwrap();
    assert_eq!(log.take(), "sequential");
}

#[test]
fn plans_print_their_passes_and_why_each_runs() {
    let p = noting(&Log::default(), info("P", 1).requiring(needs("Q")));
    let off = noting(&Log::default(), info("Off", 4));
    let plan = Sequential::new([p, off]).plan(&cx()).unwrap();
    assert_eq!(plan.to_string(), "P (module, level 1), after R, Q\n");
    let inner = Sequential::named("Inner", 0).unwrap().then(R).then(Q);
    let plan = Sequential::default().then(inner).then(R).plan(&cx()).unwrap();
    assert_eq!(
        plan.to_string(),
        "Inner (sequential, level 0)\n  R (module, level 0)\n  Q (module, level 0), after R\nR (module, level 0)\n"
    );
}

#[test]
fn registries_look_up_names_and_report_duplicates_and_unknown_ones() {
    let registry = registry();
    assert_eq!(registry.get("transform.q").unwrap().info().name(), "Q");
    assert_eq!(registry.entry("q").unwrap().name(), "Q");
    let report = registry.verify().unwrap_err();
    assert!(
        report.to_string().contains("`Hen` requires")
            || report.to_string().contains("Egg → Hen → Egg"),
        "{report}"
    );
    let twice = Registry::of([
        PassEntry::of::<R>("", Origin::new("a", "a.rs", 1)),
        PassEntry::of::<R>("", Origin::new("b", "b.rs", 2)),
    ]);
    let error = twice.get("R").unwrap_err();
    assert_eq!(error.to_string(), "several passes are named `R`: a.rs:1 (in a) and b.rs:2 (in b)");
    assert!(twice.verify().is_err());
}

#[test]
fn a_pass_may_open_a_context_of_its_own() {
    // Hooks inside are those of the inner context's instruments alone.
    let (outer, inner) = (Log::default(), Log::default());
    let inner_log = inner.clone();
    let pass = ModulePass::new(info("Opens", 0), move |module: IRModule, _: &PassContext| {
        let cx = PassContext::builder().instrument(Names(inner_log.clone())).build()?;
        cx.scope(|cx| run([noting(&Log::default(), info("Inside", 0))], cx))?;
        Ok::<_, crate::pass::PassError>(module)
    });
    let cx = watched(&outer);
    cx.scope(|cx| {
        pass.run(IRModule::new(), cx)?;
        assert!(PassContext::current().same(cx));
        Ok(())
    })
    .unwrap();
    assert_eq!((outer.take().as_str(), inner.take().as_str()), ("Opens", "sequential Inside"));
}
