//! Which analyses still hold after a pass.

use std::collections::BTreeSet;

use super::{Analysis, sets_of};
use crate::pass::{Preserves, names};

/// A group of analyses that a pass can preserve at once, such as all that only look at shapes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AnalysisSet(&'static str);

impl AnalysisSet {
    /// All analyses of graph functions.
    pub const ON_FUNCTIONS: AnalysisSet = AnalysisSet("all on functions");
    /// All analyses of loop functions.
    pub const ON_PRIM_FUNCS: AnalysisSet = AnalysisSet("all on loop functions");
    /// All analyses of modules.
    pub const ON_MODULES: AnalysisSet = AnalysisSet("all on modules");

    /// A set of that name; each analysis lists the sets that it belongs to.
    pub const fn new(name: &'static str) -> AnalysisSet {
        AnalysisSet(name)
    }

    /// The set's name.
    pub fn name(&self) -> &'static str {
        self.0
    }
}

/// The analyses that still hold after a pass: none, all, named ones, whole sets, minus abandoned
/// ones.
///
/// An abandoned analysis does not hold, whatever set it is in, unless it is preserved again later.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PreservedAnalyses {
    all: bool,
    /// Canonical names.
    kept: BTreeSet<String>,
    sets: BTreeSet<AnalysisSet>,
    abandoned: BTreeSet<String>,
}

impl PreservedAnalyses {
    /// No analyses.
    pub fn none() -> PreservedAnalyses {
        PreservedAnalyses::default()
    }

    /// All analyses.
    pub fn all() -> PreservedAnalyses {
        PreservedAnalyses { all: true, ..PreservedAnalyses::default() }
    }

    /// Adds an analysis, even if it was abandoned before.
    pub fn preserve<A: Analysis>(&mut self) -> &mut Self {
        self.claim(&Claim::Preserve(A::NAME));
        self
    }

    /// Adds the analyses of a set, except for abandoned ones.
    pub fn preserve_set(&mut self, set: AnalysisSet) -> &mut Self {
        self.claim(&Claim::PreserveSet(set));
        self
    }

    /// Removes an analysis, whatever sets it is in.
    pub fn abandon<A: Analysis>(&mut self) -> &mut Self {
        self.claim(&Claim::Abandon(A::NAME));
        self
    }

    /// The analyses that two passes in succession both preserve.
    #[must_use]
    pub fn intersect(&self, other: &PreservedAnalyses) -> PreservedAnalyses {
        let abandoned: BTreeSet<String> = self.abandoned.union(&other.abandoned).cloned().collect();
        let kept = self.kept.union(&other.kept).filter(|name| {
            let by = |one: &PreservedAnalyses| one.all || one.kept.contains(*name);
            by(self) && by(other) && !abandoned.contains(*name)
        });
        let sets = self.sets.union(&other.sets).filter(|set| {
            let by = |one: &PreservedAnalyses| one.all || one.sets.contains(set);
            by(self) && by(other)
        });
        PreservedAnalyses {
            all: self.all && other.all,
            kept: kept.cloned().collect(),
            sets: sets.copied().collect(),
            abandoned,
        }
    }

    /// Whether the results of an analysis still hold.
    pub fn keeps<A: Analysis>(&self) -> bool {
        let name = names::canonical(A::NAME);
        !self.abandoned.contains(&name)
            && (self.all
                || self.kept.contains(&name)
                || sets_of::<A>().any(|set| self.sets.contains(&set)))
    }

    /// Whether the results of every analysis of a set still hold; not so if any analysis was
    /// abandoned.
    pub fn keeps_set(&self, set: AnalysisSet) -> bool {
        self.abandoned.is_empty() && (self.all || self.sets.contains(&set))
    }

    /// Whether the results of every analysis still hold.
    pub fn keeps_all(&self) -> bool {
        self.all && self.abandoned.is_empty()
    }

    pub(in crate::pass) fn claim(&mut self, claim: &Claim) {
        match claim {
            Claim::Preserve(name) => {
                let name = names::canonical(name);
                self.abandoned.remove(&name);
                self.kept.insert(name);
            }
            Claim::PreserveSet(set) => {
                self.sets.insert(*set);
            }
            Claim::Abandon(name) => {
                let name = names::canonical(name);
                self.kept.remove(&name);
                self.abandoned.insert(name);
            }
        }
    }
}

impl From<&Preserves> for PreservedAnalyses {
    fn from(preserves: &Preserves) -> PreservedAnalyses {
        match preserves {
            Preserves::All => PreservedAnalyses::all(),
            Preserves::Only(list) => PreservedAnalyses {
                kept: list.iter().map(|name| names::canonical(name)).collect(),
                ..PreservedAnalyses::none()
            },
        }
    }
}

/// What a pass claims about one analysis while it runs, beside its declaration.
#[derive(Clone, Copy, Debug)]
pub(in crate::pass) enum Claim {
    Preserve(&'static str),
    PreserveSet(AnalysisSet),
    Abandon(&'static str),
}

impl Claim {
    pub(in crate::pass) fn is_abandonment(&self) -> bool {
        matches!(self, Claim::Abandon(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Liveness, UseCounts};

    #[test]
    fn an_abandoned_analysis_beats_sets_until_it_is_preserved_again() {
        let mut some = PreservedAnalyses::none();
        some.preserve_set(AnalysisSet::ON_FUNCTIONS).abandon::<UseCounts>();
        assert!(some.keeps::<Liveness>() && !some.keeps::<UseCounts>());
        assert!(!some.keeps_set(AnalysisSet::ON_FUNCTIONS));
        some.preserve::<UseCounts>();
        assert!(some.keeps::<UseCounts>() && some.keeps_set(AnalysisSet::ON_FUNCTIONS));
        assert!(!some.keeps_set(AnalysisSet::ON_MODULES));
    }

    #[test]
    fn the_intersection_keeps_analyses_that_both_sides_keep() {
        let all = PreservedAnalyses::all();
        let mut one = PreservedAnalyses::none();
        one.preserve::<Liveness>();
        assert_eq!(all.intersect(&one), one);
        assert_eq!(one.intersect(&all), one);
        assert_eq!(all.intersect(&all), all);
        let mut not = PreservedAnalyses::all();
        not.abandon::<Liveness>();
        assert!(!not.intersect(&one).keeps::<Liveness>());
        assert!(not.intersect(&all).keeps::<UseCounts>());
        assert!(!not.intersect(&all).keeps_all());
        assert_eq!(one.intersect(&PreservedAnalyses::none()), PreservedAnalyses::none());
    }
}
