//! Data races between iterations of a parallel loop.

use std::collections::{BTreeMap, BTreeSet};

use crate::tir::affine::Affine;
use crate::tir::{BufferId, PrimExpr, PrimFuncData, PrimType, VarId};

/// The accesses of the iterations of a parallel loop.
pub(super) struct Races {
    var: VarId,
    /// The number of iterations, if it is constant; more than 1.
    extent: Option<i64>,
    guards: usize,
    /// Buffers that belong to a single iteration.
    own: BTreeSet<BufferId>,
    /// Names of values that may differ between iterations.
    hidden: BTreeSet<VarId>,
    accesses: BTreeMap<(BufferId, Vec<Form>), Vec<Access>>,
}

/// The dependence of an index on variables, and on the lane as (stride, lanes).
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    factors: Vec<(VarId, i64)>,
    lanes: Option<(i64, u32)>,
}

/// An access that every iteration makes. Two accesses can only be shown to collide if their indices
/// have the same form and differ by constants.
struct Access {
    statement: usize,
    is_store: bool,
    constants: Vec<i64>,
}

impl Races {
    pub(super) fn new(var: VarId, extent: Option<i64>, guards: usize) -> Self {
        let (own, hidden) = (BTreeSet::new(), BTreeSet::new());
        Races { var, extent, guards, own, hidden, accesses: BTreeMap::new() }
    }

    /// Guards around the body of the loop.
    pub(super) fn guards(&self) -> usize {
        self.guards
    }

    pub(super) fn own(&mut self, buffer: BufferId) {
        self.own.insert(buffer);
    }

    pub(super) fn hide(&mut self, var: VarId) {
        self.hidden.insert(var);
    }

    /// Whether all iterations share the buffer.
    pub(super) fn is_shared(&self, buffer: BufferId) -> bool {
        !self.own.contains(&buffer)
    }

    /// Records an access that every iteration makes.
    pub(super) fn note(
        &mut self,
        statement: usize,
        buffer: BufferId,
        indices: &[PrimExpr],
        is_store: bool,
    ) {
        let read: Option<Vec<_>> = indices.iter().map(|index| self.read(index)).collect();
        if let (true, Some(read)) = (self.is_shared(buffer), read) {
            let (forms, constants) = read.into_iter().unzip();
            let access = Access { statement, is_store, constants };
            self.accesses.entry((buffer, forms)).or_default().push(access);
        }
    }

    /// The races found, each with the number of a statement.
    pub(super) fn find(&self, func: &PrimFuncData) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for ((buffer, forms), accesses) in &self.accesses {
            let name = &func.buffers[*buffer].name;
            let factors: Vec<i64> = forms.iter().map(|form| self.factor(form)).collect();
            for (position, one) in accesses.iter().enumerate() {
                for other in &accesses[position..] {
                    let (stored, read) = match (one.is_store, other.is_store) {
                        (true, true) => (other, None),
                        (true, false) => (one, Some(other)),
                        (false, true) => (other, Some(one)),
                        (false, false) => continue,
                    };
                    if !self.meet(&factors, &one.constants, &other.constants) {
                        continue;
                    }
                    found.push(match read {
                        None => {
                            (stored.statement, format!("store to the same element of `{name}`"))
                        }
                        Some(read) => (
                            read.statement,
                            format!("read an element of `{name}` that another one stores to"),
                        ),
                    });
                }
            }
        }
        found
    }

    /// Whether two accesses have the same indices in different iterations, while all other loop
    /// variables have the same values.
    fn meet(&self, factors: &[i64], one: &[i64], other: &[i64]) -> bool {
        // The distance between the iterations, once an index decides it.
        let mut distance = None;
        for ((factor, one), other) in factors.iter().zip(one).zip(other) {
            let Some(difference) = other.checked_sub(*one) else { return false };
            if *factor == 0 {
                if difference != 0 {
                    return false;
                }
                continue;
            }
            let steps = difference / factor;
            if steps * factor != difference || distance.is_some_and(|known| known != steps) {
                return false;
            }
            distance = Some(steps);
        }
        match (distance, self.extent) {
            (None, _) => true,
            (Some(0), _) => false,
            (Some(steps), Some(extent)) => steps.unsigned_abs() < extent.unsigned_abs(),
            // The loop may have too few iterations.
            (Some(_), None) => false,
        }
    }

    /// The form of an index and its constant; `None` if the index may depend on the loop in another
    /// way.
    fn read(&self, index: &PrimExpr) -> Option<(Form, i64)> {
        let (base, lanes) = match index {
            PrimExpr::Ramp { base, stride, lanes } => (&**base, Some((stride.as_int()?, *lanes))),
            PrimExpr::Broadcast { value, lanes } => (&**value, Some((0, *lanes))),
            index => (index, None),
        };
        if base.ty() != PrimType::INDEX {
            return None;
        }
        let affine = Affine::of(base);
        let known = |(atom, factor): &(PrimExpr, i64)| match atom {
            PrimExpr::Var { var, .. } if !self.hidden.contains(var) => Some((*var, *factor)),
            _ => None,
        };
        let mut factors = affine.terms.iter().map(known).collect::<Option<Vec<_>>>()?;
        factors.sort_unstable();
        Some((Form { factors, lanes }, affine.constant))
    }

    fn factor(&self, form: &Form) -> i64 {
        let found = form.factors.iter().find(|(var, _)| *var == self.var);
        found.map_or(0, |(_, factor)| *factor)
    }
}
