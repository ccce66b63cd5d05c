//! Properties and the order of passes.

use super::support::{Log, info, noting};
use crate::graph::FunctionBuilder;
use crate::ir::{Attrs, DType, IRModule, Type};
use crate::ops::Op;
use crate::pass::{
    IrProperty, NamedPass, Origin, Pass, PassBody, PassContext, PassEntry, PassErrorKind, PassInfo,
    PassInstrument, PassRef, Property, Registry, Requirement, Result, RunToken, Sequential,
};

/// A property that only passes can set.
struct Washed;
/// A property that a look at the module shows: the module is not empty.
struct Full;

impl IrProperty for Washed {
    const NAME: &'static str = "Washed";
}

impl IrProperty for Full {
    const NAME: &'static str = "Full";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(|module| !module.is_empty());
}

/// A registered pass that sets `Washed` and counts its runs.
macro_rules! provider {
    ($ty:ident, $info:expr) => {
        struct $ty;

        impl PassBody for $ty {
            fn info(&self) -> &PassInfo {
                static INFO: std::sync::LazyLock<PassInfo> = std::sync::LazyLock::new(|| $info);
                &INFO
            }

            fn transform(
                &self,
                module: IRModule,
                cx: &PassContext,
                _: RunToken,
            ) -> Result<IRModule> {
                cx.count("ran", 1);
                Ok(module)
            }
        }

        impl NamedPass for $ty {
            const NAME: &'static str = stringify!($ty);

            fn make_default() -> Option<PassRef> {
                Some(PassRef::new($ty))
            }
        }
    };
}

provider!(Wash, info("Wash", 4).setting([Property::of::<Washed>()]));
provider!(Bathe, info("Bathe", 0).setting([Property::named("washed")]));
provider!(
    Round,
    info("Round", 0).needing([Property::of::<Washed>()]).setting([Property::named("Dried")])
);
provider!(
    Trip,
    info("Trip", 0).needing([Property::named("Dried")]).setting([Property::of::<Washed>()])
);

fn cx_of(entries: impl IntoIterator<Item = PassEntry>) -> PassContext {
    PassContext::builder().registry(Registry::of(entries)).build().unwrap()
}

fn entry<P: NamedPass>() -> PassEntry {
    PassEntry::of::<P>("", Origin::new("niello", file!(), 1))
}

fn needs_washed(log: &Log) -> PassRef {
    noting(log, info("P", 0).needing([Property::of::<Washed>()]))
}

fn run(passes: impl IntoIterator<Item = PassRef>, cx: &PassContext) -> Result<IRModule> {
    Sequential::new(passes).run(IRModule::new(), cx)
}

#[test]
fn a_required_property_is_provided_by_the_one_pass_that_sets_it() {
    let log = Log::default();
    // One provider: it runs, whatever its level.
    let cx = cx_of([entry::<Wash>()]);
    run([needs_washed(&log)], &cx).unwrap();
    assert_eq!(cx.statistics()[&("Wash".to_owned(), "ran")], 1);
    let list = Sequential::new([needs_washed(&log)]);
    let plan = list.plan(&cx).unwrap().to_string();
    assert_eq!(plan, "P (module, level 0), after Wash (for Washed)\n");

    // Two providers: the caller has to choose.
    let cx = cx_of([entry::<Wash>(), entry::<Bathe>()]);
    let error = run([needs_washed(&log)], &cx).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pass sequential: `P` requires the property `Washed`, which several passes set: Bathe, Wash; put one of them before it"
    );
    run([PassRef::new(Bathe), needs_washed(&log)], &cx).unwrap();

    // No provider.
    let error = run([needs_washed(&log)], &cx_of([])).unwrap_err();
    assert!(
        matches!(error.kind(), PassErrorKind::UnmetProperty { providers, .. } if providers.is_empty())
    );
    assert!(error.to_string().ends_with("which no registered pass sets"), "{error}");
}

#[test]
fn a_property_that_is_set_is_not_provided_again_until_it_is_cleared() {
    let log = Log::default();
    let cx = cx_of([entry::<Wash>()]);
    let clears =
        super::support::changing(&log, info("Soil", 0).clearing([Property::of::<Washed>()]));
    let runs = |passes: Vec<PassRef>| {
        let cx = cx.clone();
        let before = cx.statistics().get(&("Wash".to_owned(), "ran")).copied().unwrap_or(0);
        run(passes, &cx).unwrap();
        cx.statistics().get(&("Wash".to_owned(), "ran")).copied().unwrap_or(0) - before
    };
    let p = || needs_washed(&log);
    assert_eq!(runs(vec![p(), p()]), 1);
    assert_eq!(runs(vec![p(), clears.clone(), p()]), 2);
    // Nested lists share the state of the list around them.
    assert_eq!(runs(vec![p(), Sequential::new([p()]).into(), p()]), 1);
    assert_eq!(runs(vec![Sequential::new([p(), clears]).into(), p()]), 2);
}

#[test]
fn a_property_that_can_be_seen_needs_no_provider() {
    let needs = || {
        let info = info("P", 0).needing([Property::of::<Full>()]);
        noting(&Log::default(), info)
    };
    let full = super::support::module([("f", super::support::chain(1))]);
    Sequential::new([needs()]).run(full, &cx_of([])).unwrap();
    let error = run([needs()], &cx_of([])).unwrap_err().to_string();
    assert!(error.contains("`Full`, which no registered pass sets"), "{error}");
}

#[test]
fn a_provider_that_an_instrument_skips_is_an_error() {
    struct Stops;
    impl PassInstrument for Stops {
        fn should_run(&self, _: &IRModule, info: &PassInfo) -> crate::pass::HookResult<bool> {
            Ok(info.name() != "Bathe")
        }
    }
    let cx = PassContext::builder().registry(Registry::of([])).instrument(Stops).build().unwrap();
    let error = run([PassRef::new(Bathe), needs_washed(&Log::default())], &cx).unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::SkippedProvider { property: "Washed", .. }));
}

#[test]
fn providers_that_need_each_other_are_a_cycle() {
    let cx = cx_of([entry::<Round>(), entry::<Trip>()]);
    let error = run([needs_washed(&Log::default())], &cx).unwrap_err().to_string();
    assert!(error.ends_with("passes require each other: Trip → Round → Trip"), "{error}");
    assert!(cx.registry().verify().unwrap_err().to_string().contains("Round → Trip → Round"));
}

#[test]
fn verification_finds_a_pass_that_does_not_set_its_property() {
    let lies = noting(&Log::default(), info("Lies", 0).setting([Property::of::<Full>()]));
    lies.run(IRModule::new(), &PassContext::default()).unwrap();
    let cx = PassContext::builder().verify_each(true).build().unwrap();
    let error = lies.run(IRModule::new(), &cx).unwrap_err().to_string();
    assert_eq!(
        error,
        "pass Lies: the pass sets the property `Full`, but the module does not have it"
    );
}

fn ordered(name: &str, after: &[&'static str], before: &[&'static str]) -> PassRef {
    let named = |names: &[&'static str]| -> Vec<Requirement> {
        names.iter().map(|name| Requirement::named(name)).collect()
    };
    let info = info(name, 0).going_after(named(after)).going_before(named(before));
    noting(&Log::default(), info)
}

#[test]
fn passes_that_must_come_after_each_other_are_a_cycle() {
    let error =
        run([ordered("A", &["B"], &[]), ordered("B", &["A"], &[])], &cx_of([])).unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::OrderCycle(_)));
    assert_eq!(error.to_string(), "pass sequential: passes must come after each other: A → B → A");
    // A cycle through a third pass, with `before` in place of `after`.
    let list = [ordered("A", &["B"], &[]), ordered("B", &["C"], &[]), ordered("C", &[], &[])];
    let error = run(list, &cx_of([])).unwrap_err().to_string();
    assert!(error.ends_with("`A` must come after `B`"), "{error}");
    let list = [ordered("A", &["B"], &["C"]), ordered("B", &["C"], &[]), ordered("C", &[], &[])];
    let error = run(list, &cx_of([])).unwrap_err().to_string();
    assert!(error.ends_with("A → B → C → A"), "{error}");
}

#[test]
fn a_list_in_the_wrong_order_is_an_error() {
    let a = || ordered("A", &["B"], &[]);
    let b = || ordered("B", &[], &[]);
    let cx = cx_of([]);
    run([b(), a()], &cx).unwrap();
    // The order matters only in a list that has both passes.
    run([a()], &cx).unwrap();
    run([Sequential::new([b()]).into(), a()], &cx).unwrap();
    let error = run([a(), b()], &cx).unwrap_err().to_string();
    assert_eq!(error, "pass sequential: `A` must come after `B`");
    // The second `B` does not matter: `A` stands after the first.
    run([b(), a(), b()], &cx).unwrap();
    let error = run([b(), ordered("C", &[], &["B"])], &cx).unwrap_err().to_string();
    assert_eq!(error, "pass sequential: `C` must come before `B`");
}

#[test]
fn passes_that_conflict_are_not_in_one_list() {
    let never =
        noting(&Log::default(), info("Never", 0).conflicting_with([Requirement::named("B")]));
    let b = noting(&Log::default(), info("B", 3));
    // A pass that is not enabled conflicts with none.
    run([never.clone(), b.clone()], &cx_of([])).unwrap();
    let cx = PassContext::builder().opt_level(3).build().unwrap();
    let error = run([never, b], &cx).unwrap_err().to_string();
    assert_eq!(error, "pass sequential: `Never` cannot be in one list with `B`");
}

#[test]
fn niello_properties_are_seen_in_modules() {
    use crate::analysis::{Anf, Fused};
    use crate::transform::FuseOps;
    let relu = Op::get("nn.relu").unwrap();
    let build = |bound: bool| {
        let mut b = FunctionBuilder::new();
        let x = b.param("x", Type::tensor(&[4], DType::F32));
        let y = b.call(relu, &[x], Attrs::new()).unwrap();
        if bound {
            b.bind("y", y);
        }
        let z = b.call(relu, &[y], Attrs::new()).unwrap();
        IRModule::from_function(b.finish(z))
    };
    let holds = |property: Property, module: &IRModule| property.holds(module).unwrap();
    let (fused, anf) = (Property::of::<Fused>(), Property::of::<Anf>());
    assert!(!holds(anf, &build(false)) && holds(anf, &build(true)));
    assert!(!holds(fused, &build(false)));
    let cx = PassContext::builder().verify_each(true).build().unwrap();
    assert!(holds(fused, &FuseOps.run(build(false), &cx).unwrap()));
}
