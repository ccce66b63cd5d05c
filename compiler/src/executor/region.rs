//! Branches and loops: steps that do not run exactly once in a run.

use std::ops::Range;

use super::{Program, ValueId};
use crate::diagnostics::Problem;

/// Steps that run as often as a condition says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// How often they run.
    pub kind: RegionKind,
    /// A boolean scalar, which is dense.
    pub condition: ValueId,
    /// Which: never none.
    pub steps: Range<usize>,
}

/// How often the steps of a region run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// Once, if the condition holds.
    If,
    /// Once, if it does not.
    Unless,
    /// As long as it holds, which is looked at before each time.
    While,
}

/// A step, or a region with what it consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<C = ValueId> {
    /// The step of that position.
    Step(usize),
    /// A region.
    Region {
        /// How often its parts run.
        kind: RegionKind,
        /// The condition, or where it is.
        condition: C,
        /// What runs, in order.
        parts: Vec<Part<C>>,
    },
}

impl Program {
    /// The steps as a tree of regions. The program must be well formed: see [`Program::verify`].
    pub fn parts(&self) -> Vec<Part> {
        let mut open: Vec<(&Region, Vec<Part>)> = Vec::new();
        let mut done: Vec<Part> = Vec::new();
        let mut regions = self.regions.iter().peekable();
        for step in 0..=self.steps.len() {
            while let Some((region, parts)) = open.pop_if(|(region, _)| region.steps.end <= step) {
                let Region { kind, condition, steps: _ } = *region;
                let list = open.last_mut().map_or(&mut done, |(_, parts)| parts);
                list.push(Part::Region { kind, condition, parts });
            }
            while let Some(region) = regions.next_if(|region| region.steps.start == step) {
                open.push((region, Vec::new()));
            }
            if step < self.steps.len() {
                open.last_mut().map_or(&mut done, |(_, parts)| parts).push(Part::Step(step));
            }
        }
        done
    }

    /// Checks that each step runs once, so that a call can be made for each.
    ///
    /// # Errors
    ///
    /// There are regions.
    pub fn check_one_by_one(&self) -> Result<(), Problem> {
        match self.regions.is_empty() {
            true => Ok(()),
            false => Err(Problem::new(
                "the model has loops or branches that run, so its calls cannot be made one by one",
            )
            .help("choose the executor `aot`, and do not compare or write values call by call")),
        }
    }

    /// The regions around a step, outermost first.
    pub(crate) fn regions_around(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        let around = move |(_, region): &(usize, &Region)| region.steps.contains(&step);
        self.regions.iter().enumerate().filter(around).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;

    #[test]
    fn regions_are_a_tree() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[2]);
        let mut y = x;
        for _ in 0..6 {
            y = b.add(y, x);
        }
        let region = |kind, steps| Region { kind, condition: x, steps };
        b.program.regions = vec![
            region(RegionKind::While, 1..5),
            region(RegionKind::If, 1..3),
            region(RegionKind::Unless, 3..4),
            region(RegionKind::If, 5..6),
        ];
        let inner = |kind, parts| Part::Region { kind, condition: x, parts };
        let [first, second, third, fourth, last] = [1, 2, 3, 4, 5].map(Part::Step);
        let branch = inner(RegionKind::If, vec![first, second]);
        let other = inner(RegionKind::Unless, vec![third]);
        let body = vec![branch, other, fourth];
        let expected =
            vec![Part::Step(0), inner(RegionKind::While, body), inner(RegionKind::If, vec![last])];
        assert_eq!(b.program.parts(), expected);
        assert_eq!(b.program.regions_around(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(b.program.regions_around(0).count(), 0);
    }
}
