//! Contexts: the stack, threads, options.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::support::{Log, Noting};
use crate::pass::{PassContext, PassErrorKind, PassInstrument, list_configs, take_deferred_errors};
use crate::target::Target;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UnrollLoopConfig {
    auto_max_step: i64,
    auto_max_depth: i64,
    explicit_unroll: bool,
}

impl Default for UnrollLoopConfig {
    fn default() -> UnrollLoopConfig {
        UnrollLoopConfig { auto_max_step: 0, auto_max_depth: 8, explicit_unroll: true }
    }
}

crate::register_pass_config_option! {
    /// How loops are unrolled.
    UNROLL: UnrollLoopConfig = "test.UnrollLoop";
    /// Whether pointers are distinct.
    NOALIAS: bool = "test.noalias", default = true;
    /// One of two options with the same name.
    _TWICE: u32 = "test.twice";
    /// The other option with that name.
    _TWICE_MORE: u32 = "test.twice";
}

#[test]
fn contexts_nest_and_inherit_nothing() {
    assert_eq!(PassContext::current().opt_level(), 2);
    let outer = PassContext::builder().opt_level(1).config(&NOALIAS, false).build().unwrap();
    outer
        .scope(|_| {
            assert_eq!(PassContext::current().opt_level(), 1);
            PassContext::default().scope(|_| {
                let current = PassContext::current();
                assert_eq!((current.opt_level(), current.get(&NOALIAS)), (2, true));
                Ok(())
            })?;
            let inherited = PassContext::inherit().build()?;
            assert_eq!((inherited.opt_level(), inherited.get(&NOALIAS)), (1, false));
            assert_eq!(PassContext::current().opt_level(), 1);
            Ok(())
        })
        .unwrap();
    assert_eq!((PassContext::current().opt_level(), PassContext::depth()), (2, 0));
}

#[test]
fn a_context_knows_its_target() {
    let mut target = Target::host();
    target.features.insert("a feature".to_owned());
    let cx = PassContext::builder().target(target.clone()).build().unwrap();
    assert_eq!((cx.target(), PassContext::default().target()), (&target, &Target::host()));
    cx.scope(|cx| {
        assert_eq!(PassContext::current().target(), &target);
        assert_eq!(PassContext::inherit().build()?.target(), &target);
        assert_eq!(PassContext::default().target(), &Target::host());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _attached = cx.attach();
                PassContext::current().target().clone()
            });
            assert_eq!(worker.join().unwrap(), target);
        });
        // A pass that is run within a function pass has a context of its own, for the same machine.
        assert_eq!(cx.fresh_within_function().target(), &target);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_thread_begins_with_its_own_default_context() {
    let cx = PassContext::builder().opt_level(3).build().unwrap();
    cx.scope(|cx| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(PassContext::current().opt_level(), 2);
                let _attached = cx.attach();
                assert!(PassContext::current().same(cx));
            });
        });
        Ok(())
    })
    .unwrap();
}

#[test]
fn contexts_are_left_innermost_first() {
    let (a, b) = (PassContext::default(), PassContext::default());
    let outer = a.enter().unwrap();
    let inner = b.enter().unwrap();
    let error = outer.exit().unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::NotInnermost));
    assert!(PassContext::current().same(&b));
    inner.exit().unwrap();
    // The outer scope ended as soon as it was the innermost.
    assert_eq!(PassContext::depth(), 0);
}

#[test]
fn a_scope_ends_scopes_whose_guard_was_forgotten() {
    let log = Log::default();
    let inner = PassContext::builder().instrument(Noting::new(2, &log)).build().unwrap();
    let outer = PassContext::builder().instrument(Noting::new(1, &log)).build().unwrap();
    outer
        .scope(|_| {
            std::mem::forget(inner.enter()?);
            Ok(())
        })
        .unwrap();
    assert_eq!((log.take().as_str(), PassContext::depth()), ("E1 E2 X2 X1", 0));
}

#[test]
fn enter_and_exit_hooks_see_the_outer_context() {
    struct Look(Log);
    impl PassInstrument for Look {
        fn enter_pass_ctx(&self) -> crate::pass::HookResult {
            self.0.note(format!("E{}", PassContext::current().opt_level()));
            Ok(())
        }
        fn exit_pass_ctx(&self) -> crate::pass::HookResult {
            self.0.note(format!("X{}", PassContext::current().opt_level()));
            Ok(())
        }
    }
    let log = Log::default();
    let cx = PassContext::builder().opt_level(3).instrument(Look(log.clone())).build().unwrap();
    cx.scope(|_| Ok(())).unwrap();
    assert_eq!(log.take(), "E2 X2");
}

#[test]
fn every_wrong_option_is_reported_at_once() {
    let error = PassContext::builder()
        .config_value("test.noalais", true)
        .config_value("test.UnrollLoop", serde_json::json!({ "auto_max_stp": 1 }))
        .config_value("test.noalias", "x")
        .build()
        .unwrap_err();
    let PassErrorKind::Invalid(report) = error.kind() else { panic!("{error}") };
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].starts_with(
            "option `test.UnrollLoop` takes UnrollLoopConfig: unknown field `auto_max_stp`"
        ),
        "{}",
        lines[0]
    );
    assert!(lines[0].ends_with("help: did you mean `auto_max_step`?"), "{}", lines[0]);
    assert!(
        lines[1]
            .starts_with("there is no option `test.noalais`; help: did you mean `test.noalias`?"),
        "{}",
        lines[1]
    );
    assert!(
        lines[2].starts_with("option `test.noalias` takes bool: invalid type: string \"x\""),
        "{}",
        lines[2]
    );
    // A number is no boolean.
    assert!(PassContext::builder().config_value("test.noalias", 1).build().is_err());
    assert!(
        PassContext::builder()
            .config_value("test.noalias", serde_json::Value::Null)
            .build()
            .is_err()
    );
}

#[test]
fn a_map_of_option_fields_may_leave_fields_out() {
    let cx = PassContext::builder()
        .config_value("test.UnrollLoop", serde_json::json!({ "auto_max_step": 16 }))
        .build()
        .unwrap();
    assert_eq!(cx.get(&UNROLL), UnrollLoopConfig { auto_max_step: 16, ..Default::default() });
    assert!(cx.get(&NOALIAS));
}

#[test]
fn options_are_listed_with_their_types() {
    let entry = list_configs().into_iter().find(|entry| entry.name == "test.noalias").unwrap();
    assert_eq!((entry.type_name(), entry.default_json().as_str()), ("bool".to_owned(), "true"));
    assert_eq!(entry.doc.trim(), "Whether pointers are distinct.");
    assert!(entry.origin.file.ends_with("contexts.rs"));
    assert!(list_configs().is_sorted_by_key(|entry| entry.name));
}

#[test]
fn unknown_names_in_lists_are_errors() {
    let error = PassContext::builder()
        .disable_pass("HoldsAlwyas")
        .require_pass("NoSuchThing")
        .build()
        .unwrap_err()
        .to_string();
    assert!(
        error
            .contains("disabled_pass: there is no pass `HoldsAlwyas`; did you mean `HoldsAlways`?"),
        "{error}"
    );
    assert!(error.contains("required_pass: there is no pass `NoSuchThing`"), "{error}");
}

#[test]
fn a_panic_in_a_scope_leaves_the_stack_right() {
    let log = Log::default();
    let cx = PassContext::builder().instrument(Noting::new(1, &log)).build().unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cx.scope(|_| -> crate::pass::Result<()> { panic!("oh no") })
    }));
    assert!(result.is_err());
    assert_eq!((log.take().as_str(), PassContext::depth()), ("E1 X1", 0));
}

#[test]
fn errors_of_dropped_guards_are_kept() {
    let log = Log::default();
    let cx =
        PassContext::builder().instrument(Noting::new(1, &log).failing_in('X')).build().unwrap();
    drop(cx.enter().unwrap());
    let errors = take_deferred_errors();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("failed in exit_pass_ctx"));
    assert!(take_deferred_errors().is_empty());
}

#[test]
fn a_context_that_is_entered_twice_leaves_each_instrument_as_often() {
    let log = Log::default();
    let cx = PassContext::builder().instrument(Noting::new(1, &log)).build().unwrap();
    cx.scope(|cx| {
        cx.scope(|cx| cx.override_instruments([Arc::new(Noting::new(2, &log)) as _]))?;
        assert_eq!(log.take(), "E1 E1 X1 E2 X2");
        Ok(())
    })
    .unwrap();
    assert_eq!(log.take(), "X1");
}

#[test]
fn an_option_registered_twice_is_reported_with_both_places() {
    let error = PassContext::builder().config_value("test.twice", 1).build().unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("the option `test.twice` is registered in two places: "),
        "{message}"
    );
    assert_eq!(message.matches("contexts.rs:").count(), 2, "{message}");
    let report = crate::pass::Registry::global().verify().unwrap_err().to_string();
    assert!(report.contains("the option `test.twice` is registered in two places"), "{report}");
}

#[test]
fn levels_go_from_0_to_4() {
    assert!(PassContext::builder().opt_level(crate::pass::MAX_OPT_LEVEL).build().is_ok());
    let error = PassContext::builder().opt_level(5).build().unwrap_err();
    assert_eq!(error.to_string(), "the level 5 is beyond the highest, 4");
}

#[test]
fn options_come_from_a_map() {
    let serde_json::Value::Object(map) = serde_json::json!({
        "test.noalias": false,
        "test.UnrollLoop": { "auto_max_depth": 3 },
    }) else {
        unreachable!("it is written as a map")
    };
    let cx = PassContext::builder().config_values(map).build().unwrap();
    assert!(!cx.get(&NOALIAS));
    assert_eq!(cx.get(&UNROLL), UnrollLoopConfig { auto_max_depth: 3, ..Default::default() });
}

#[test]
fn a_future_runs_under_its_context_on_any_thread() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let cx = PassContext::builder().opt_level(3).build().unwrap();
    let mut polls = 0;
    let future = cx.wrap(std::future::poll_fn(move |_| {
        polls += 1;
        let level = PassContext::current().opt_level();
        if polls < 3 { Poll::Pending } else { Poll::Ready(level) }
    }));
    std::thread::spawn(move || {
        let mut future = pin!(future);
        let mut task = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(future.as_mut().poll(&mut task).is_pending());
            assert_eq!(PassContext::depth(), 0);
        }
        assert_eq!(future.as_mut().poll(&mut task), Poll::Ready(3));
    })
    .join()
    .unwrap();
}

#[test]
fn instruments_are_shared_by_clones_of_a_context() {
    let cx = PassContext::default();
    cx.clone().override_instruments([Arc::new(Noting::new(1, &Log::default())) as _]).unwrap();
    assert_eq!(cx.instruments().len(), 1);
}
