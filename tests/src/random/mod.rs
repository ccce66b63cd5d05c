//! Random modules: small, valid and quick to evaluate.

mod control;
pub mod network;
pub mod schedule;

pub use control::random_module;

/// A list of numbers as answers to questions: any list answers all of them, a shorter one in a
/// simpler way, so that a failing list can be shrunk.
pub struct Choices<'a> {
    list: &'a [u32],
    next: usize,
}

impl<'a> Choices<'a> {
    /// A generator of answers from a list.
    pub fn new(list: &'a [u32]) -> Choices<'a> {
        Choices { list, next: 0 }
    }

    /// A number below `n`; zero when the list is used up.
    pub fn below(&mut self, n: usize) -> usize {
        let choice = self.list.get(self.next).copied().unwrap_or(0) as usize;
        self.next += 1;
        choice % n
    }

    /// One of some values; the first when the list is used up.
    pub fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    /// Whether the list is used up.
    pub fn used_up(&self) -> bool {
        self.next >= self.list.len()
    }
}
