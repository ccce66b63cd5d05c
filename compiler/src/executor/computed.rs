//! What is computed of a program's values while its steps go on.

use cranelift_entity::SecondaryMap;

use super::{Program, Step, ValueId, ValueKind};

/// Which values can be read: all of a program that has come to one of its steps.
pub(super) struct Computed<'a> {
    program: &'a Program,
    is_there: SecondaryMap<ValueId, bool>,
    is_stored: SecondaryMap<ValueId, bool>,
    /// The parts that steps compute of each value, directly or by parts of these.
    parts: SecondaryMap<ValueId, Vec<ValueId>>,
    /// How many of them are to come.
    missing: SecondaryMap<ValueId, usize>,
}

impl Computed<'_> {
    /// Before the first of the steps, which are those of the program that are well formed. No value
    /// may lie within itself.
    pub(super) fn of<'a>(
        program: &'a Program,
        steps: impl Iterator<Item = &'a Step>,
    ) -> Computed<'a> {
        let mut computed = Computed {
            program,
            is_there: SecondaryMap::new(),
            is_stored: SecondaryMap::new(),
            parts: SecondaryMap::new(),
            missing: SecondaryMap::new(),
        };
        for (id, value) in &program.values {
            computed.is_there[id] = matches!(
                value.kind,
                ValueKind::Input(_) | ValueKind::Constant(_) | ValueKind::State
            );
        }
        let mut is_part: SecondaryMap<ValueId, bool> = SecondaryMap::new();
        for id in steps.flat_map(|step| program.stored_by(step)) {
            computed.is_stored[id] = true;
            let mut at = id;
            while let ValueKind::Within { whole, .. } = program.values[at].kind
                && !is_part[at]
            {
                is_part[at] = true;
                computed.parts[whole].push(at);
                computed.missing[whole] += 1;
                at = whole;
            }
        }
        computed
    }

    /// Whether steps compute all of a value, once.
    pub(super) fn is_covered(&self, id: ValueId) -> bool {
        let range = |&part: &ValueId| {
            let value = &self.program.values[part];
            let (_, offset) = self.program.lies_in(part)?;
            Some((offset, offset.checked_add(value.physical_bytes().ok()?)?))
        };
        let parts = &self.parts[id];
        let Some(mut ranges) = parts.iter().map(range).collect::<Option<Vec<_>>>() else {
            return false;
        };
        ranges.sort_unstable();
        let end = ranges.iter().try_fold(0, |end, range| (range.0 == end).then_some(range.1));
        let all = self.program.values[id].physical_bytes().ok();
        parts.is_empty() || (end == all && !self.is_stored[id])
    }

    /// Whether a value can be read.
    pub(super) fn is_there(&self, id: ValueId) -> bool {
        let mut at = id;
        loop {
            match (self.is_there[at], self.program.lies_in(at)) {
                (true, _) => return true,
                (false, Some((whole, _))) => at = whole,
                (false, None) => return false,
            }
        }
    }

    /// Whether a step has computed a value before, as far as that is done once.
    pub(super) fn is_done(&self, id: ValueId) -> bool {
        let kind = &self.program.values[id].kind;
        self.is_there[id] && matches!(kind, ValueKind::Computed | ValueKind::Within { .. })
    }

    /// A step stores to a value.
    pub(super) fn store(&mut self, id: ValueId) {
        let mut at = id;
        while !std::mem::replace(&mut self.is_there[at], true)
            && let ValueKind::Within { whole, .. } = self.program.values[at].kind
        {
            self.missing[whole] -= 1;
            if self.missing[whole] != 0 {
                break;
            }
            at = whole;
        }
    }
}
