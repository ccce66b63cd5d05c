//! Groups of passes that run function by function.

use std::sync::{LazyLock, Mutex};

use super::support::{chain, info, module};
use crate::graph::{Expr, Function};
use crate::ir::{GlobalVar, IRModule};
use crate::pass::{
    FunctionPass, HookResult, ModulePass, NamedPass, Origin, Pass, PassContext, PassEntry,
    PassInfo, PassInstrument, PassRef, PipelineText, Registry, Requirement, Result,
};

/// What ran, on which function.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Held by the tests, which have one log.
static TURN: Mutex<()> = Mutex::new(());

fn note(pass: &str, function: &Function) {
    let calls = function.iter().filter(|(_, data)| matches!(data.expr, Expr::Call(_))).count();
    LOG.lock().unwrap().push(format!("{pass}({})", if calls == 1 { "f" } else { "g" }));
}

macro_rules! function_pass {
    ($name:ident, $text:literal, $required:expr) => {
        struct $name;

        impl NamedPass for $name {
            const NAME: &'static str = $text;

            fn make_default() -> Option<PassRef> {
                static INFO: LazyLock<PassInfo> =
                    LazyLock::new(|| info($text, 0).requiring($required));
                let body = |function: Function, _: &IRModule, _: &PassContext| {
                    note($text, &function);
                    let count = function.attrs().iter().count();
                    function.with_attrs(crate::ir::Attrs::new().with($text, count as i64))
                };
                Some(PassRef::new(FunctionPass::new(INFO.clone(), body)))
            }
        }
    };
}

function_pass!(A, "a", []);
function_pass!(B, "b", []);
function_pass!(C, "c", []);
function_pass!(D, "d", []);
function_pass!(R, "r", []);
function_pass!(NeedsR, "needs_r", [Requirement::named("r")]);

struct M;

impl NamedPass for M {
    const NAME: &'static str = "m";

    fn make_default() -> Option<PassRef> {
        Some(PassRef::new(ModulePass::new(info("m", 0), |module: IRModule, _: &PassContext| {
            LOG.lock().unwrap().push("m".to_owned());
            module
        })))
    }
}

/// Notes the passes that it lets run but for one.
struct Without(&'static str);

impl PassInstrument for Without {
    fn should_run(&self, _: &IRModule, info: &PassInfo) -> HookResult<bool> {
        Ok(info.name() != self.0)
    }
}

fn events(pipeline: &str, cx: impl FnOnce(Registry) -> PassContext) -> String {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let here = |line| Origin::new("niello", file!(), line);
    let registry = Registry::of([
        PassEntry::of::<A>("", here(1)),
        PassEntry::of::<B>("", here(2)),
        PassEntry::of::<C>("", here(3)),
        PassEntry::of::<D>("", here(4)),
        PassEntry::of::<M>("", here(5)),
        PassEntry::of::<R>("", here(6)),
        PassEntry::of::<NeedsR>("", here(7)),
    ]);
    LOG.lock().unwrap().clear();
    let list = PipelineText::parse(pipeline).unwrap().build(&registry).unwrap();
    list.run(module([("f", chain(1)), ("g", chain(2))]), &cx(registry)).unwrap();
    LOG.lock().unwrap().join(" ")
}

fn plain(registry: Registry) -> PassContext {
    PassContext::builder().registry(registry).verify_each(true).build().unwrap()
}

#[test]
fn adjacent_groups_are_one_and_run_function_by_function() {
    assert_eq!(
        events("function(a),function(b,c),m,function(d)", plain),
        "a(f) b(f) c(f) a(g) b(g) c(g) m d(f) d(g)"
    );
    // So do groups next to each other that stand in other groups.
    assert_eq!(events("module(function(a)),module(function(b),m)", plain), "a(f) b(f) a(g) b(g) m");
    // Without a group, each pass goes through all functions.
    let one = |registry| PassContext::builder().registry(registry).jobs(1).build().unwrap();
    assert_eq!(events("a,b", one), "a(f) a(g) b(f) b(g)");
}

#[test]
fn requirements_and_instruments_hold_for_each_function() {
    assert_eq!(
        events("function(a,needs_r,b)", plain),
        "a(f) r(f) needs_r(f) b(f) a(g) r(g) needs_r(g) b(g)"
    );
    let without_b = |registry| {
        PassContext::builder().registry(registry).instrument(Without("b")).build().unwrap()
    };
    assert_eq!(events("function(a,b,c)", without_b), "a(f) c(f) a(g) c(g)");
}

#[test]
fn functions_that_are_left_alone_are_in_no_group() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let here = Origin::new("niello", file!(), 1);
    let registry = Registry::of([PassEntry::of::<A>("", here)]);
    let skipped = chain(1).with_attrs(crate::ir::Attrs::new().with("SkipOptimization", 1));
    let before = module([("f", skipped), ("g", chain(2))]);
    LOG.lock().unwrap().clear();
    let list = PipelineText::parse("function(a)")?.build(&registry)?;
    let after = list.run(before.clone(), &plain(registry))?;
    assert_eq!(LOG.lock().unwrap().join(" "), "a(g)");
    let same = |name: &str| {
        let global = GlobalVar::new(name);
        after.get(&global).unwrap().same(before.get(&global).unwrap())
    };
    assert!(same("f") && !same("g"));
    Ok(())
}
