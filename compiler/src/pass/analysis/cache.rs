//! Results of analyses, by what they are about.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Analyses, Analysis, AnalysisInfo, AnyUnit, PreservedAnalyses, sealed};
use crate::ir::{Definition, GlobalVar, IRModule, Identity};
use crate::pass::PassContext;

/// Which analysis of which unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) unit: usize,
    pub(super) analysis: TypeId,
}

/// A result, and what decides how long it is kept.
pub(super) struct Cached {
    /// Keeps the address in the key from being another unit's.
    unit: Identity,
    result: Arc<dyn Any + Send + Sync>,
    /// Results it was computed from.
    asked: Vec<Key>,
    info: AnalysisInfo,
    survives: fn(&dyn Any, &PreservedAnalyses) -> bool,
    holds: fn(&dyn Any, &AnyUnit<'_>, &PassContext) -> bool,
    /// Results are numbered as they are found: after all that they were computed from.
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

/// Results of analyses.
#[derive(Default)]
pub(in crate::pass) struct AnalysisCache(Mutex<Results>);

#[derive(Default)]
struct Results {
    by_key: BTreeMap<Key, Cached>,
    next_number: u64,
    /// How many there were after the last look for those of units that are gone.
    swept: usize,
}

impl fmt::Debug for AnalysisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().by_key.values().map(|cached| cached.info)).finish()
    }
}

/// A point in time, before which some results were found.
#[derive(Clone, Copy, Debug)]
pub(in crate::pass) struct Moment(u64);

/// What a pass made of a module.
pub(in crate::pass) struct Change<'a> {
    pub(in crate::pass) before: &'a IRModule,
    pub(in crate::pass) after: &'a IRModule,
    /// When the pass began.
    pub(in crate::pass) since: Moment,
}

/// An analysis that a pass preserved, but whose result is another one now.
pub(in crate::pass) struct FalseClaim {
    pub(in crate::pass) analysis: &'static str,
    /// The function it is about; `None` if that is the module.
    pub(in crate::pass) function: Option<GlobalVar>,
}

/// What happened to the results when a module changed.
#[derive(Default)]
pub(in crate::pass) struct Update {
    /// What was forgotten.
    pub(in crate::pass) invalidated: Vec<AnalysisInfo>,
    /// What was carried over and does not hold, if that was looked at.
    pub(in crate::pass) false_claims: Vec<FalseClaim>,
}

/// What takes the place of a unit.
struct Successor<'a> {
    unit: AnyUnit<'a>,
    global: Option<&'a GlobalVar>,
}

impl AnalysisCache {
    fn lock(&self) -> MutexGuard<'_, Results> {
        // Nothing that can panic runs while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get<A: Analysis>(&self, key: Key) -> Option<Arc<A::Output>> {
        self.lock().by_key.get(&key)?.result::<A>()
    }

    /// Keeps a result, unless another thread was faster; returns the one that is kept.
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

    /// Forgets what an analysis knows of a module and its functions, and what was computed from
    /// that.
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

    /// Carries over what a pass preserved from the functions and the module there were to those
    /// that took their places, and forgets the rest; if `verify`, computes again what it carried
    /// over.
    ///
    /// `preserved` says for a global, or for the module, what is preserved.
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
        let Change { before, after, since } = *change;
        let present: BTreeSet<usize> =
            units_of(after).map(|unit| unit.identity().address()).collect();
        let successors = successors(before, after, &present);
        let mut keys: Vec<(u64, Key)> =
            results.by_key.iter().map(|(key, cached)| (cached.number, *key)).collect();
        keys.sort_unstable();

        let mut claims: BTreeMap<usize, PreservedAnalyses> = BTreeMap::new();
        // Where each result went; those that are not there are gone. What a result was computed
        // from has a smaller number, so that it was dealt with before.
        let mut places: BTreeMap<Key, Key> = BTreeMap::new();
        let mut carried = Vec::new();
        for (number, key) in keys {
            let Some(successor) = successors.get(&key.unit) else {
                // The pass's own, for something that it did not return.
                let own = number >= since.0 && !present.contains(&key.unit);
                if own {
                    results.by_key.remove(&key);
                } else {
                    places.insert(key, key);
                }
                continue;
            };
            let Some(mut cached) = results.by_key.remove(&key) else { continue };
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
            // What the pass has already found out about the new function is as good.
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

/// For each unit that is no longer there, what took its place, if anything did.
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
