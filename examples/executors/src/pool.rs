//! A rayon pool as the threads of a model.

use niello_runtime::Parallel;
use rayon::ThreadPool;

/// The threads of a rayon pool, and the one that runs the model.
///
/// That one may be a thread of the pool. While it waits for others at the end of a loop, rayon then
/// lets it do other work of the pool, with denormal numbers flushed to zero as the model has it:
/// programs that mind run models on other threads, which block instead.
pub(crate) struct Rayon<'a>(pub(crate) &'a ThreadPool);

impl Parallel for Rayon<'_> {
    fn workers(&self) -> usize {
        let is_one_of_them = self.0.current_thread_index().is_some();
        self.0.current_num_threads() + usize::from(!is_one_of_them)
    }

    fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
        // This thread begins at once, whether or not others are free.
        self.0.in_place_scope(|scope| {
            for _ in 1..times {
                scope.spawn(|_| task());
            }
            task();
        });
    }
}
