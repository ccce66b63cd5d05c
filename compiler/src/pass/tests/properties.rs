//! Properties of the pass infrastructure, on random nestings of contexts, lists, passes and
//! failures.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::support::{Log, chain, info, module};
use crate::graph::{module_hash, modules_equal};
use crate::ir::{Definition, IRModule};
use crate::pass::{
    HookResult, InstrumentRef, ModulePass, Pass, PassContext, PassError, PassInfo, PassInstrument,
    PassRef, Result, Sequential,
};

/// The way in which an action or a pass ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Well,
    Error,
    Panic,
}

impl End {
    fn strategy() -> impl Strategy<Value = End> {
        prop_oneof![6 => Just(End::Well), 1 => Just(End::Error), 1 => Just(End::Panic)]
    }

    /// Panics without a message on the test's output.
    fn happen(self) -> Result<()> {
        match self {
            End::Well => Ok(()),
            End::Error => Err(PassError::new("it fails")),
            End::Panic => resume_unwind(Box::new("it panics")),
        }
    }
}

/// A hook in which an instrument fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HookName {
    Enter,
    Exit,
    ShouldRun,
    Before,
    After,
    Failed,
}

/// Notes hooks, and fails in one of them.
struct Random {
    number: usize,
    log: Log,
    fails: Option<(HookName, End)>,
    allow: bool,
}

impl Random {
    fn hook(&self, hook: HookName, event: &str) -> HookResult {
        self.log.note(format!("{event}{}", self.number));
        match self.fails {
            Some((failing, end)) if failing == hook => Ok(end.happen()?),
            _ => Ok(()),
        }
    }
}

impl PassInstrument for Random {
    fn enter_pass_ctx(&self) -> HookResult {
        self.hook(HookName::Enter, "E")
    }
    fn exit_pass_ctx(&self) -> HookResult {
        self.hook(HookName::Exit, "X")
    }
    fn should_run(&self, _: &IRModule, _: &PassInfo) -> HookResult<bool> {
        self.hook(HookName::ShouldRun, "S")?;
        Ok(self.allow)
    }
    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.hook(HookName::Before, &format!("B:{}:", info.name()))
    }
    fn run_after_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.hook(HookName::After, &format!("A:{}:", info.name()))
    }
    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        self.hook(HookName::Failed, &format!("F:{}:", info.name()))
    }
}

type Fails = Option<(HookName, End)>;

fn fails() -> impl Strategy<Value = Fails> {
    use HookName::{After, Before, Enter, Exit, Failed, ShouldRun};
    let hook = prop_oneof![
        Just(Enter),
        Just(Exit),
        Just(ShouldRun),
        Just(Before),
        Just(After),
        Just(Failed)
    ];
    proptest::option::of((hook, prop_oneof![Just(End::Error), Just(End::Panic)]))
}

/// An action on contexts.
#[derive(Clone, Debug)]
enum Action {
    /// Runs a list of passes under the current context.
    Run(Tree),
    /// Enters one of the contexts around the actions, by closure or by guard.
    Scope { cx: usize, by_guard: bool, actions: Vec<Action> },
    /// Enters a context and forgets its guard.
    Forget(usize),
    /// Replaces the instruments of the current context.
    Override(usize),
    /// Ends the scope around it.
    End(End),
    /// Does the actions on a thread that is attached to the current context.
    Thread(Vec<Action>),
}

/// A list of passes, nested at random.
#[derive(Clone, Debug)]
enum Tree {
    Pass { name: usize, end: End },
    List(Vec<Tree>),
}

const CONTEXTS: usize = 3;

fn tree(ends: impl Strategy<Value = End> + Clone + 'static) -> impl Strategy<Value = Tree> {
    let leaf = (0usize..5, ends).prop_map(|(name, end)| Tree::Pass { name, end });
    leaf.prop_recursive(3, 12, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_map(Tree::List)
    })
}

fn action() -> impl Strategy<Value = Action> {
    let leaf = prop_oneof![
        4 => tree(End::strategy().boxed()).prop_map(Action::Run),
        1 => (0..CONTEXTS).prop_map(Action::Forget),
        1 => (0usize..3).prop_map(Action::Override),
        1 => End::strategy().prop_map(Action::End),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let actions = proptest::collection::vec(inner, 0..4);
        prop_oneof![
            4 => (0..CONTEXTS, any::<bool>(), actions.clone())
                .prop_map(|(cx, by_guard, actions)| Action::Scope { cx, by_guard, actions }),
            1 => actions.prop_map(Action::Thread),
        ]
    })
}

impl Tree {
    /// The pass adds a definition that depends on the number of earlier ones, and ends as its leaf
    /// says.
    fn pass(&self, log: &Log) -> PassRef {
        match self {
            Tree::List(trees) => Sequential::new(trees.iter().map(|tree| tree.pass(log))).into(),
            Tree::Pass { name, end } => {
                let (name, end, log) = (format!("P{name}"), *end, log.clone());
                let body = move |mut module: IRModule, cx: &PassContext| {
                    log.note(format!("P:{name}"));
                    // The current context is the innermost entered one, not the one that the pass
                    // was handed.
                    log.note(format!("L{}", PassContext::current().opt_level()));
                    assert!(!PassContext::current().same(cx) || cx.opt_level() < 10);
                    end.happen()?;
                    let global = module.fresh_global(&name);
                    module.insert(global, Definition::Graph(chain(module.len() % 3)));
                    Ok::<_, PassError>(module)
                };
                let name = if let Tree::Pass { name, .. } = self { *name } else { 0 };
                ModulePass::new(info(&format!("P{name}"), 0), body).into()
            }
        }
    }

    fn flattened(&self) -> Vec<Tree> {
        match self {
            Tree::Pass { .. } => vec![self.clone()],
            Tree::List(trees) => trees.iter().flat_map(Tree::flattened).collect(),
        }
    }
}

struct World {
    contexts: Vec<PassContext>,
    log: Log,
}

impl World {
    fn instrument(&self, number: usize, fails: Fails, allow: bool) -> InstrumentRef {
        Arc::new(Random { number, log: self.log.clone(), fails, allow })
    }

    fn perform_all(&self, actions: &[Action]) -> Result<()> {
        actions.iter().try_for_each(|action| self.perform(action))
    }

    /// Performs an action, and checks the stack and the module afterwards.
    fn perform(&self, action: &Action) -> Result<()> {
        let (depth, current) = (PassContext::depth(), PassContext::current());
        let balanced = || {
            // The stack is as deep as before the action, whatever failed.
            assert_eq!(PassContext::depth(), depth);
            assert!(PassContext::current().same(&current));
        };
        match action {
            Action::End(end) => end.happen(),
            Action::Forget(cx) => {
                std::mem::forget(self.contexts[*cx].enter()?);
                Ok(())
            }
            Action::Override(count) => {
                let list = (0..*count).map(|number| self.instrument(10 + number, None, true));
                current.override_instruments(list)
            }
            Action::Run(tree) => {
                let module = module([("main", chain(1))]);
                let hash = module_hash(&module);
                let _ = tree.pass(&self.log).run(module.clone(), &current);
                // The caller's module is unchanged, whether the passes succeed, fail or are
                // skipped.
                assert_eq!((module.len(), module_hash(&module)), (1, hash));
                balanced();
                Ok(())
            }
            Action::Scope { cx, by_guard: false, actions } => {
                let body = || {
                    self.contexts[*cx].scope(|cx| {
                        assert!(PassContext::current().same(cx));
                        self.perform_all(actions)
                    })
                };
                let ended = catch_unwind(AssertUnwindSafe(body));
                balanced();
                // A panic stops here or goes on, as an error does.
                ended.unwrap_or(Ok(()))
            }
            Action::Scope { cx, by_guard: true, actions } => {
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    let outer = PassContext::default();
                    // Guards that are forgotten in a scope are left with the scope.
                    outer.scope(|_| {
                        let guard = self.contexts[*cx].enter()?;
                        let result = self.perform_all(actions);
                        drop(guard);
                        result
                    })
                }));
                balanced();
                ended.unwrap_or(Ok(()))
            }
            Action::Thread(actions) => {
                let ended = std::thread::scope(|scope| {
                    let thread = scope.spawn(|| {
                        assert_eq!(PassContext::depth(), 0);
                        {
                            let _attached = current.attach();
                            assert!(PassContext::current().same(&current));
                            let _ = catch_unwind(AssertUnwindSafe(|| self.perform_all(actions)));
                        }
                        assert_eq!(PassContext::depth(), 0);
                        crate::pass::take_deferred_errors();
                    });
                    thread.join().is_ok()
                });
                assert!(ended, "the thread found a wrong stack");
                balanced();
                Ok(())
            }
        }
    }
}

fn world(settings: &[(Vec<Fails>, bool)]) -> World {
    let mut world = World { contexts: Vec::new(), log: Log::default() };
    for (index, (fails, allow)) in settings.iter().enumerate() {
        let mut builder = PassContext::builder().opt_level(index as u8);
        for (number, fails) in fails.iter().enumerate() {
            let number = 100 * (index + 1) + number;
            builder = builder.shared_instrument(world.instrument(number, *fails, *allow));
        }
        world.contexts.push(builder.build().unwrap());
    }
    world
}

/// Instruments are left at most as often as they are entered, and equally often unless an enter or
/// exit hook failed.
fn entered_and_left(events: &str, settings: &[(Vec<Fails>, bool)]) -> Result<(), TestCaseError> {
    for number in 10..13 {
        let count = |letter: char| {
            let event = format!("{letter}{number}");
            events.split(' ').filter(|other| **other == event).count()
        };
        prop_assert!(count('X') <= count('E'), "{}", events);
    }
    for (index, (fails, _)) in settings.iter().enumerate() {
        let disturbed = fails
            .iter()
            .flatten()
            .any(|(hook, _)| matches!(hook, HookName::Enter | HookName::Exit));
        for number in 0..fails.len() {
            let count = |letter: char| {
                let event = format!("{letter}{}", 100 * (index + 1) + number);
                events.split(' ').filter(|other| **other == event).count()
            };
            prop_assert!(count('X') <= count('E'), "{}", events);
            prop_assert!(disturbed || count('X') == count('E'), "{}", events);
        }
    }
    Ok(())
}

/// Before and after hooks nest like parentheses for each instrument, and every pass begun also
/// ends.
fn nests(events: &str, number: usize) -> Result<(), TestCaseError> {
    let mut open: Vec<&str> = Vec::new();
    for event in events.split(' ') {
        let mut parts = event.split(':');
        let (Some(kind), Some(name), Some(of)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if of != number.to_string() {
            continue;
        }
        match kind {
            "B" => open.push(name),
            "A" => prop_assert_eq!(open.pop(), Some(name), "{}", events),
            "F" => prop_assert_eq!(open.pop(), Some(name), "{}", events),
            _ => {}
        }
    }
    prop_assert!(open.is_empty(), "{:?} in {}", open, events);
    Ok(())
}

fn settings() -> impl Strategy<Value = Vec<(Vec<Fails>, bool)>> {
    let setting = (proptest::collection::vec(fails(), 0..3), proptest::bool::weighted(0.8));
    proptest::collection::vec(setting, CONTEXTS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_stack_of_contexts_is_restored_on_every_path(
        settings in settings(),
        actions in proptest::collection::vec(action(), 0..6),
    ) {
        let world = world(&settings);
        let before = PassContext::depth();
        let whole = PassContext::default();
        let _ = catch_unwind(AssertUnwindSafe(|| whole.scope(|_| world.perform_all(&actions))))
            .map_err(|payload| {
                // A failed assertion panics with a message; so do the panics that the test asks
                // for.
                if payload.downcast_ref::<&str>() != Some(&"it panics") {
                    resume_unwind(payload);
                }
            });
        prop_assert_eq!(PassContext::depth(), before);
        prop_assert!(!PassContext::current().same(&whole));
        crate::pass::take_deferred_errors();
        entered_and_left(&world.log.take(), &settings)?;
    }

    #[test]
    fn before_and_after_hooks_nest_like_parentheses(
        fails in proptest::collection::vec(fails(), 1..4),
        tree in tree(End::strategy().boxed()),
    ) {
        // An instrument that fails in a hook is not called for the end of that pass.
        let world = world(&[(fails.clone(), true)]);
        let _ = world.contexts[0].scope(|cx| tree.pass(&world.log).run(IRModule::new(), cx));
        let events = world.log.take();
        for (number, fails) in fails.iter().enumerate() {
            if fails.is_none() {
                nests(&events, 100 + number)?;
            }
        }
    }

    #[test]
    fn instruments_that_allow_everything_change_nothing(
        tree in tree(Just(End::Well).boxed()),
        count in 0usize..4,
    ) {
        let with = world(&[(vec![None; count], true)]);
        let without = world(&[(Vec::new(), true)]);
        let start = module([("main", chain(1))]);
        let run = |world: &World| {
            let cx = &world.contexts[0];
            cx.scope(|cx| tree.pass(&world.log).run(start.clone(), cx)).unwrap()
        };
        prop_assert!(modules_equal(&run(&with), &run(&without)).is_ok());
    }

    #[test]
    fn the_current_context_is_that_of_the_innermost_scope(
        tree in tree(Just(End::Well).boxed()),
        entered in 0usize..CONTEXTS,
        handed in 0usize..CONTEXTS,
    ) {
        let world = world(&vec![(Vec::new(), true); CONTEXTS]);
        world.contexts[entered]
            .scope(|_| tree.pass(&world.log).run(IRModule::new(), &world.contexts[handed]))
            .unwrap();
        let levels = world.log.take();
        let mut levels = levels.split(' ').filter(|event| event.starts_with('L'));
        let expected = format!("L{entered}");
        prop_assert!(levels.all(|level| level == expected));
    }

    #[test]
    fn nested_lists_run_like_one_flat_list(tree in tree(End::strategy().boxed())) {
        let run = |tree: &Tree| {
            let log = Log::default();
            let result = tree.pass(&log).run(module([("main", chain(1))]), &PassContext::default());
            (result, log.take())
        };
        let (nested, nested_events) = run(&tree);
        let (flat, flat_events) = run(&Tree::List(tree.flattened()));
        prop_assert_eq!(nested_events, flat_events);
        match (nested, flat) {
            (Ok(nested), Ok(flat)) => prop_assert!(modules_equal(&nested, &flat).is_ok()),
            (nested, flat) => prop_assert_eq!(nested.is_ok(), flat.is_ok()),
        }
    }

    #[test]
    fn idempotent_passes_twice_are_as_once(
        names in proptest::collection::vec(0usize..6, 0..6),
        level in 0u8..=4,
    ) {
        let once_only = |name: usize| {
            let own = format!("N{name}");
            let global = own.clone();
            let body = move |mut module: IRModule, _: &PassContext| {
                if module.function(&global).is_none() {
                    let global = crate::ir::GlobalVar::new(&global);
                    module.insert(global, Definition::Graph(chain(1)));
                }
                module
            };
            PassRef::new(ModulePass::new(info(&own, (name % 5) as u8), body))
        };
        let list = Sequential::new(names.into_iter().map(once_only));
        let cx = PassContext::builder().opt_level(level).build().unwrap();
        let once = list.run(IRModule::new(), &cx).unwrap();
        let twice = list.run(once.clone(), &cx).unwrap();
        prop_assert!(twice.same(&once));
    }
}
