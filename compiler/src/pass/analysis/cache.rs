//! The cache of analysis results, by analysis and unit.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Analyses, Analysis, AnalysisInfo, AnyUnit, PreservedAnalyses, sealed};
use crate::ir::{Definition, GlobalVar, IRModule, Identity};
use crate::pass::PassContext;

/// The key of a cached result: an analysis and the address of a function or a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) unit: usize,
    pub(super) analysis: TypeId,
}

/// A cached result, with what decides how long the cache keeps it.
#[derive(Clone)]
pub(super) struct Cached {
    /// The unit itself, held so that no other unit gets the address in the key.
    unit: Identity,
    result: Arc<dyn Any + Send + Sync>,
    /// The results from which this one was computed.
    asked: Vec<Key>,
    info: AnalysisInfo,
    survives: fn(&dyn Any, &PreservedAnalyses) -> bool,
    holds: fn(&dyn Any, &AnyUnit<'_>, &PassContext) -> bool,
    /// The order of insertion: a result has a greater number than those from which it was computed.
    number: u64,
}

impl Cached {
    pub(super) fn of<A: Analysis>(
        unit: Identity,
        result: Arc<A::Output>,
        asked: Vec<Key>,
    ) -> Cached {
        Cached {
            unit,
            result,
            asked,
            info: AnalysisInfo::of::<A>(),
            survives: |result, preserved| {
                result.downcast_ref().is_some_and(|result| A::survives(result, preserved))
            },
            holds: |result, unit, cx| {
                let Some(unit) = <A::Unit as sealed::Unit>::of(unit) else { return true };
                let again = Analyses { cx, kept: false, frame: None, asked: RefCell::default() };
                result.downcast_ref() == Some(&A::compute(unit, &again))
            },
            number: 0,
        }
    }

    fn result<A: Analysis>(&self) -> Option<Arc<A::Output>> {
        self.result.clone().downcast().ok()
    }
}

/// The cached results of a context's analyses.
#[derive(Default)]
pub(in crate::pass) struct AnalysisCache(Mutex<Results>);

#[derive(Default)]
struct Results {
    by_key: BTreeMap<Key, Cached>,
    next_number: u64,
    /// The number of results after the last removal of those whose unit is gone.
    swept: usize,
}

impl fmt::Debug for AnalysisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().by_key.values().map(|cached| cached.info)).finish()
    }
}

/// A point in time, to tell earlier results from later ones.
#[derive(Clone, Copy, Debug)]
pub(in crate::pass) struct Moment(u64);

/// A module before and after a pass.
pub(in crate::pass) struct Change<'a> {
    pub(in crate::pass) before: &'a IRModule,
    pub(in crate::pass) after: &'a IRModule,
    /// When the pass began.
    pub(in crate::pass) since: Moment,
}

/// An analysis that a pass preserved although its result has changed.
pub(in crate::pass) struct FalseClaim {
    pub(in crate::pass) analysis: &'static str,
    /// The function that was analysed; `None` for the module.
    pub(in crate::pass) function: Option<GlobalVar>,
}

/// The changes to the cached results after a module changed.
#[derive(Default)]
pub(in crate::pass) struct Update {
    /// The analyses whose results were forgotten.
    pub(in crate::pass) invalidated: Vec<AnalysisInfo>,
    /// The analyses whose results were carried over and are wrong; empty without verification.
    pub(in crate::pass) false_claims: Vec<FalseClaim>,
}

/// The function or module that takes the place of another.
struct Successor<'a> {
    unit: AnyUnit<'a>,
    global: Option<&'a GlobalVar>,
}

impl AnalysisCache {
    fn lock(&self) -> MutexGuard<'_, Results> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get<A: Analysis>(&self, key: Key) -> Option<Arc<A::Output>> {
        self.lock().by_key.get(&key)?.result::<A>()
    }

    /// Stores a result, unless another thread stored one first; returns the stored one.
    pub(super) fn insert<A: Analysis>(&self, key: Key, mut cached: Cached) -> Arc<A::Output> {
        let mut results = self.lock();
        if let Some(known) = results.by_key.get(&key).and_then(Cached::result::<A>) {
            return known;
        }
        if results.by_key.len() > 2 * results.swept + 64 {
            results.by_key.retain(|_, cached| cached.unit.is_alive());
            results.swept = results.by_key.len();
        }
        cached.number = results.next_number;
        results.next_number += 1;
        let result = cached.result::<A>().expect("it was made from a result of this type");
        results.by_key.insert(key, cached);
        result
    }

    pub(in crate::pass) fn now(&self) -> Moment {
        Moment(self.lock().next_number)
    }

    /// Forgets the results of an analysis for a module and its functions, and the results computed
    /// from these.
    pub(super) fn forget<A: Analysis>(&self, module: &IRModule) -> Vec<AnalysisInfo> {
        let mut results = self.lock();
        let units: BTreeSet<usize> =
            units_of(module).map(|unit| unit.identity().address()).collect();
        let mut keys: Vec<(u64, Key)> =
            results.by_key.iter().map(|(key, cached)| (cached.number, *key)).collect();
        keys.sort_unstable();
        let mut gone: BTreeSet<Key> = BTreeSet::new();
        let mut forgotten = Vec::new();
        for (_, key) in keys {
            let named = key.analysis == TypeId::of::<A>() && units.contains(&key.unit);
            let asked = results.by_key.get(&key).map_or(&[][..], |cached| &cached.asked);
            if (named || asked.iter().any(|asked| gone.contains(asked)))
                && let Some(cached) = results.by_key.remove(&key)
            {
                gone.insert(key);
                forgotten.push(cached.info);
            }
        }
        forgotten
    }

    /// Gives the results that a pass preserved for the old functions and module to those that
    /// replaced them, and forgets the other results; with `verify`, recomputes the moved ones and
    /// compares.
    ///
    /// `preserved` says which analyses the pass preserved for a global, or (`None`) for the module.
    pub(in crate::pass) fn update(
        &self,
        change: &Change<'_>,
        preserved: impl Fn(Option<&GlobalVar>) -> PreservedAnalyses,
        verify: Option<&PassContext>,
    ) -> Update {
        let mut update = Update::default();
        let mut results = self.lock();
        if results.by_key.is_empty() {
            return update;
        }
        // What belongs to functions that nobody holds any more.
        results.by_key.retain(|_, cached| cached.unit.is_alive());
        results.swept = results.by_key.len();
        let Change { before, after, since } = *change;
        let present: BTreeSet<usize> =
            units_of(after).map(|unit| unit.identity().address()).collect();
        let successors = successors(before, after, &present);
        let mut keys: Vec<(u64, Key)> =
            results.by_key.iter().map(|(key, cached)| (cached.number, *key)).collect();
        keys.sort_unstable();

        let mut claims: BTreeMap<usize, PreservedAnalyses> = BTreeMap::new();
        // The new key of each surviving result. A result comes after those from which it was
        // computed, because its number is greater, so their keys are here by then.
        let mut places: BTreeMap<Key, Key> = BTreeMap::new();
        let mut carried = Vec::new();
        for (number, key) in keys {
            let Some(successor) = successors.get(&key.unit) else {
                // A result that the pass computed for a function that it did not return.
                let own = number >= since.0 && !present.contains(&key.unit);
                if own {
                    results.by_key.remove(&key);
                } else {
                    places.insert(key, key);
                }
                continue;
            };
            // The result stays with the old handle as well, which the caller may still hold.
            let Some(mut cached) = results.by_key.get(&key).cloned() else { continue };
            let asked: Option<Vec<Key>> =
                cached.asked.iter().map(|asked| places.get(asked).copied()).collect();
            let claim = claims.entry(key.unit).or_insert_with(|| {
                let global = successor.as_ref().and_then(|successor| successor.global);
                preserved(global)
            });
            let survives = (cached.survives)(&*cached.result, claim);
            let (Some(successor), Some(asked), true) = (successor, asked, survives) else {
                update.invalidated.push(cached.info);
                continue;
            };
            cached.unit = successor.unit.identity();
            cached.asked = asked;
            let place = Key { unit: cached.unit.address(), ..key };
            places.insert(key, place);
            carried.push((cached.result.clone(), cached.holds, cached.info, successor));
            // If the pass has analysed the new function itself, that result stays.
            results.by_key.entry(place).or_insert(cached);
        }
        drop(results);
        if let Some(cx) = verify {
            let wrong = carried
                .into_iter()
                .filter(|(result, holds, _, successor)| !holds(&**result, &successor.unit, cx));
            update.false_claims = wrong
                .map(|(_, _, info, successor)| FalseClaim {
                    analysis: info.name,
                    function: successor.global.cloned(),
                })
                .collect();
        }
        update
    }
}

/// A module and the functions in it.
fn units_of(module: &IRModule) -> impl Iterator<Item = AnyUnit<'_>> {
    let functions = module.iter().filter_map(|(_, definition)| unit_of(definition));
    functions.chain([AnyUnit::Module(module)])
}

fn unit_of(definition: &Definition) -> Option<AnyUnit<'_>> {
    match definition {
        Definition::Graph(function) => Some(AnyUnit::Function(function)),
        Definition::Prim(function) => Some(AnyUnit::PrimFunc(function)),
        Definition::Extern(_) => None,
    }
}

/// Maps each function or module that is no longer there to its replacement, if it has one.
fn successors<'a>(
    before: &'a IRModule,
    after: &'a IRModule,
    present: &BTreeSet<usize>,
) -> BTreeMap<usize, Option<Successor<'a>>> {
    let mut successors = BTreeMap::new();
    for (global, old) in before.iter() {
        let Some(old) = unit_of(old) else { continue };
        let address = old.identity().address();
        if present.contains(&address) {
            continue;
        }
        let new = after.get(global).and_then(unit_of).filter(|new| new.is_like(&old));
        successors.insert(address, new.map(|unit| Successor { unit, global: Some(global) }));
    }
    if !before.same(after) {
        let new = Successor { unit: AnyUnit::Module(after), global: None };
        successors.insert(before.identity().address(), Some(new));
    }
    successors
}
