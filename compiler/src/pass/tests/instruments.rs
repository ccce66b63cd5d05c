//! Instruments: the order of hooks, and the effects of a failing hook.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::support::{Log, Noting, chain, failing, info, module, noting};
use crate::analysis::CallGraph;
use crate::ir::IRModule;
use crate::pass::{
    AnalysisInfo, AnalysisRef, Hook, HookResult, InstrumentRef, Pass, PassContext, PassError,
    PassErrorKind, PassInfo, PassInstrument, PassRef, PassTiming, Sequential,
};
use crate::transform::InferType;
use crate::transform::pipeline::{PipelineExtensions, pipeline};

fn context(instruments: impl IntoIterator<Item = Noting>) -> PassContext {
    let mut builder = PassContext::builder();
    for instrument in instruments {
        builder = builder.instrument(instrument);
    }
    builder.build().unwrap()
}

/// Runs passes directly, each through the funnel, in a scope.
fn run(cx: &PassContext, passes: &[PassRef]) -> crate::pass::Result<()> {
    cx.scope(|cx| passes.iter().try_for_each(|pass| pass.run(IRModule::new(), cx).map(drop)))
}

#[test]
fn hooks_are_called_in_order_of_registration() {
    let log = Log::default();
    let cx = context([Noting::new(1, &log), Noting::new(2, &log)]);
    run(&cx, &[noting(&log, info("P", 0)), noting(&log, info("P", 0))]).unwrap();
    let pass = "S1 S2 B1 B2 P A1 A2";
    assert_eq!(log.take(), format!("E1 E2 {pass} {pass} X1 X2"));
}

#[test]
fn all_instruments_are_asked_whether_a_pass_runs_and_all_must_agree() {
    let log = Log::default();
    let cx = context([Noting::new(1, &log).refusing(), Noting::new(2, &log)]);
    run(&cx, &[noting(&log, info("P", 0))]).unwrap();
    assert_eq!(log.take(), "E1 E2 S1 S2 X1 X2");
}

#[test]
fn instruments_are_not_asked_about_a_required_pass() {
    let log = Log::default();
    let pass = noting(&log, info("P", 0));
    let cx = PassContext::builder()
        .require(&*pass)
        .instrument(Noting::new(1, &log).refusing())
        .build()
        .unwrap();
    run(&cx, &[pass]).unwrap();
    assert_eq!(log.take(), "E1 B1 P A1 X1");
}

#[test]
fn a_failing_enter_hook_leaves_the_instruments_already_entered() {
    let log = Log::default();
    let cx =
        context([Noting::new(1, &log), Noting::new(2, &log).failing_in('E'), Noting::new(3, &log)]);
    let error = run(&cx, &[]).unwrap_err();
    assert_eq!(log.take(), "E1 E2 X1");
    assert_eq!(
        error.to_string(),
        "instrument `Noting` failed in enter_pass_ctx: instrument 2 fails in E"
    );
    assert!(cx.instruments().is_empty() && !PassContext::current().same(&cx));
}

#[test]
fn a_failing_enter_hook_leaves_others_last_first_and_collects_their_errors() {
    let log = Log::default();
    let cx = context([
        Noting::new(1, &log).failing_in('X'),
        Noting::new(2, &log),
        Noting::new(3, &log).failing_in('E'),
    ]);
    let error = run(&cx, &[]).unwrap_err();
    assert_eq!(log.take(), "E1 E2 E3 X2 X1");
    assert_eq!(error.secondary().len(), 1);
}

#[test]
fn overriding_with_an_instrument_that_fails_leaves_none() {
    let log = Log::default();
    let cx = context([Noting::new(1, &log)]);
    cx.scope(|cx| {
        let failing: InstrumentRef = Arc::new(Noting::new(2, &log).failing_in('E'));
        assert!(cx.override_instruments([failing]).is_err());
        assert!(cx.instruments().is_empty());
        Ok(())
    })
    .unwrap();
    assert_eq!(log.take(), "E1 X1 E2");
}

#[test]
fn a_failing_exit_hook_stops_later_exit_hooks() {
    let log = Log::default();
    let cx =
        context([Noting::new(1, &log), Noting::new(2, &log).failing_in('X'), Noting::new(3, &log)]);
    let error = run(&cx, &[]).unwrap_err();
    assert_eq!(log.take(), "E1 E2 E3 X1 X2");
    assert!(matches!(error.kind(), PassErrorKind::Instrument { hook: Hook::ExitPassCtx, .. }));
    assert!(cx.instruments().is_empty());
    assert_eq!(PassContext::depth(), 0);
}

#[test]
fn a_failing_pass_has_no_after_hook() {
    let log = Log::default();
    let error = run(&context([Noting::new(1, &log)]), &[failing(&log)]).unwrap_err();
    assert_eq!(log.take(), "E1 S1 B1 P X1");
    assert_eq!(error.to_string(), "pass Fails: it does not work");
}

/// The hooks called if the first of two instruments fails in a hook around a pass.
fn with_failing(hook: char) -> String {
    let log = Log::default();
    let pass = noting(&log, info("P", 0));
    let cx = context([Noting::new(1, &log).failing_in(hook), Noting::new(2, &log)]);
    let error = run(&cx, std::slice::from_ref(&pass)).unwrap_err();
    assert!(error.to_string().contains(&format!("instrument 1 fails in {hook}")), "{error}");
    assert_eq!(cx.instruments().len(), 2);
    log.take()
}

#[test]
fn a_failing_should_run_hook_is_the_error() {
    assert_eq!(with_failing('S'), "E1 E2 S1 X1 X2");
}

#[test]
fn a_failing_before_hook_is_the_error() {
    assert_eq!(with_failing('B'), "E1 E2 S1 S2 B1 X1 X2");
}

#[test]
fn a_failing_after_hook_is_the_error() {
    assert_eq!(with_failing('A'), "E1 E2 S1 S2 B1 B2 P A1 X1 X2");
}

#[test]
fn an_instrument_sees_context_and_pass() {
    struct Sees(Log);
    impl PassInstrument for Sees {
        fn enter_pass_ctx(&self) -> HookResult {
            self.0.note("E1");
            Ok(())
        }
        fn exit_pass_ctx(&self) -> HookResult {
            self.0.note("X1");
            Ok(())
        }
        fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
            self.0.note(format!("B1:{}", info.name()));
            Ok(())
        }
        fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
            self.0.note(format!("A1:{}", info.name()));
            Ok(())
        }
    }
    let log = Log::default();
    let cx = PassContext::builder().instrument(Sees(log.clone())).build().unwrap();
    run(&cx, &[InferType.into()]).unwrap();
    assert_eq!(log.take(), "E1 B1:InferType A1:InferType X1");
}

/// Lets passes run as a predicate of their name decides, and notes those that run.
struct Allows(Log, Box<dyn Fn(&str) -> bool + Send + Sync>);

impl PassInstrument for Allows {
    fn should_run(&self, _: &IRModule, info: &PassInfo) -> HookResult<bool> {
        Ok((self.1)(info.name()))
    }

    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.0.note(info.name());
        Ok(())
    }
}

#[test]
fn an_instrument_lets_passes_run_by_name() {
    let log = Log::default();
    let only = Allows(log.clone(), Box::new(|name| name.contains("InferType")));
    let cx = PassContext::builder().instrument(only).build().unwrap();
    let plain = Log::default();
    let passes = [
        noting(&plain, info("AnnotateSpans", 0)),
        noting(&plain, info("ToANormalForm", 1)),
        InferType.into(),
    ];
    run(&cx, &passes).unwrap();
    assert_eq!((log.take().as_str(), plain.take().as_str()), ("InferType", ""));
}

#[test]
fn an_instrument_stops_the_second_run_of_a_pass() {
    let log = Log::default();
    let seen = AtomicUsize::new(0);
    let first =
        move |name: &str| name != "Q" && (name != "P" || seen.fetch_add(1, Ordering::Relaxed) == 0);
    let cx =
        PassContext::builder().instrument(Allows(log.clone(), Box::new(first))).build().unwrap();
    let pass = |name| noting(&Log::default(), info(name, 0));
    run(&cx, &[pass("P"), pass("Q"), pass("P")]).unwrap();
    assert_eq!(log.take(), "P");
}

#[test]
fn a_skipped_pass_is_announced_once_and_its_analyses_are_not_computed() {
    struct Skips(Log);
    impl PassInstrument for Skips {
        fn should_run(&self, _: &IRModule, info: &PassInfo) -> HookResult<bool> {
            Ok(info.name() != "P")
        }
        fn before_skipped_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
            self.0.note(format!("skip:{}", info.name()));
            Ok(())
        }
        fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
            self.0.note(format!("before:{}", info.name()));
            Ok(())
        }
        fn before_analysis(&self, info: &AnalysisInfo) -> HookResult {
            self.0.note(format!("analysis:{}", info.name));
            Ok(())
        }
    }
    let log = Log::default();
    let cx = PassContext::builder().instrument(Skips(log.clone())).build().unwrap();
    let analysing = info("P", 0).analysing([AnalysisRef::of::<CallGraph>()]);
    let module = IRModule::new();
    let list = Sequential::new([noting(&log, analysing)]);
    assert!(list.run(module.clone(), &cx).unwrap().same(&module));
    assert_eq!(log.take(), "before:sequential skip:P");
}

#[test]
fn before_and_after_hooks_are_equally_many_and_reset_outside_the_scope() {
    #[derive(Default)]
    struct Counters([AtomicUsize; 2]);
    impl Counters {
        fn values(&self) -> [usize; 2] {
            [0, 1].map(|index| self.0[index].load(Ordering::Relaxed))
        }
        fn reset(&self) -> HookResult {
            self.0.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
            Ok(())
        }
    }
    impl PassInstrument for Counters {
        fn enter_pass_ctx(&self) -> HookResult {
            self.reset()
        }
        fn exit_pass_ctx(&self) -> HookResult {
            self.reset()
        }
        fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            self.0[0].fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            self.0[1].fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
    let counters = Arc::new(Counters::default());
    let cx =
        PassContext::builder().opt_level(4).shared_instrument(counters.clone()).build().unwrap();
    let list = pipeline(&PipelineExtensions::new()).unwrap();
    cx.scope(|cx| {
        list.run(module([("main", chain(3))]), cx)?;
        let [before, after] = counters.values();
        assert!(before == after && before > list.passes().len() / 2, "{before} {after}");
        Ok(())
    })
    .unwrap();
    assert_eq!(counters.values(), [0, 0]);
}

#[test]
fn a_panicking_hook_is_an_error() {
    struct Panics;
    impl PassInstrument for Panics {
        fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            panic!("oh no")
        }
    }
    let cx = PassContext::builder().instrument(Panics).build().unwrap();
    let error = run(&cx, &[noting(&Log::default(), info("P", 0))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pass P: instrument `Panics` failed in run_before_pass: panicked: oh no"
    );
}

#[test]
fn the_instrument_whose_hook_fails_before_a_pass_hears_of_the_failure_like_those_before_it() {
    struct Counts {
        log: Log,
        number: u32,
        fails: bool,
    }
    impl PassInstrument for Counts {
        fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            self.log.note(format!("B{}", self.number));
            if self.fails { Err("it fails".into()) } else { Ok(()) }
        }
        fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
            self.log.note(format!("F{}", self.number));
            Ok(())
        }
    }
    let log = Log::default();
    let counts = |number, fails| Counts { log: log.clone(), number, fails };
    let cx = PassContext::builder()
        .instrument(counts(1, false))
        .instrument(counts(2, true))
        .instrument(counts(3, false))
        .build()
        .unwrap();
    run(&cx, &[noting(&log, info("P", 0))]).unwrap_err();
    assert_eq!(log.take(), "B1 B2 F1 F2");
}

#[test]
fn overriding_instruments_takes_effect_with_the_next_pass() {
    struct Overrides(Log);
    impl PassInstrument for Overrides {
        fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            self.0.note("B");
            Ok(PassContext::current().override_instruments([])?)
        }
        fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
            self.0.note("A");
            Ok(())
        }
    }
    let log = Log::default();
    let cx = PassContext::builder().instrument(Overrides(log.clone())).build().unwrap();
    let pass = noting(&log, info("P", 0));
    run(&cx, &[pass.clone(), pass]).unwrap();
    assert_eq!(log.take(), "B P A P");
}

#[test]
fn a_hook_may_run_a_pass() {
    struct Runs(Log);
    impl PassInstrument for Runs {
        fn run_before_pass(&self, module: &IRModule, info_: &PassInfo) -> HookResult {
            self.0.note(format!("B:{}", info_.name()));
            if info_.name() == "P" {
                let inner = noting(&self.0, info("Inner", 0));
                inner.run(module.clone(), &PassContext::current())?;
            }
            Ok(())
        }
    }
    let log = Log::default();
    let cx = PassContext::builder().instrument(Runs(log.clone())).build().unwrap();
    run(&cx, &[noting(&log, info("P", 0))]).unwrap();
    assert_eq!(log.take(), "B:P B:Inner Inner P");
}

#[test]
fn timing_lists_passes_until_it_is_replaced() {
    let log = Log::default();
    let passes = || ["A", "B", "C"].map(|name| noting(&log, info(name, 0)));
    let timing = Arc::new(PassTiming::default());
    let cx = PassContext::current();
    cx.override_instruments([timing.clone() as InstrumentRef]).unwrap();
    Sequential::new(passes()).apply(IRModule::new()).unwrap();
    let profile = timing.render().unwrap();
    let names: Vec<&str> = profile.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(names, ["sequential", "\tA", "\tB", "\tC"]);
    assert!(profile.lines().next().unwrap().contains("(100.00%; 100.00%)"), "{profile}");
    cx.override_instruments([]).unwrap();
    Sequential::new(passes()).apply(IRModule::new()).unwrap();
    assert_eq!(timing.render().unwrap(), "");
}

#[test]
fn a_profile_is_usable_after_a_failing_pass() {
    let log = Log::default();
    let timings = [Arc::new(PassTiming::default()), Arc::new(PassTiming::default())];
    let cx = PassContext::builder()
        .shared_instrument(timings[0].clone())
        .shared_instrument(timings[1].clone())
        .build()
        .unwrap();
    assert!(cx.scope(|cx| Sequential::new([failing(&log)]).run(IRModule::new(), cx)).is_err());
    cx.scope(|cx| {
        noting(&log, info("P", 0)).run(IRModule::new(), cx)?;
        for timing in &timings {
            assert!(timing.render()?.starts_with("P: "));
            assert_eq!(timing.render()?.lines().count(), 1);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn two_timings_in_one_context_count_each_pass_once() {
    let log = Log::default();
    let timings = [Arc::new(PassTiming::default()), Arc::new(PassTiming::default())];
    let cx = PassContext::builder()
        .shared_instrument(timings[0].clone())
        .shared_instrument(timings[1].clone())
        .build()
        .unwrap();
    cx.scope(|cx| {
        noting(&log, info("P", 0)).run(IRModule::new(), cx)?;
        for timing in &timings {
            assert!(timing.render()?.starts_with("P: "));
            assert_eq!(timing.render()?.lines().count(), 1);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_profile_is_not_rendered_within_a_pass() {
    let timing = Arc::new(PassTiming::default());
    let cx = PassContext::builder().shared_instrument(timing.clone()).build().unwrap();
    let asks =
        crate::pass::ModulePass::new(info("Asks", 0), move |module: IRModule, _: &PassContext| {
            timing.render().map(|_| module)
        });
    let error = asks.run(IRModule::new(), &cx).unwrap_err();
    assert!(error.to_string().contains("while still in a pass"), "{error}");
}
