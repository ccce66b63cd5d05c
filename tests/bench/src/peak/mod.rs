//! The processor's limits, which kernels are compared with.
//!
//! Each function measures for about as long as it is told and returns a rate, so that it can take turns with what it
//! is compared with: the clock of a shared machine changes from one second to the next.

mod portable;
mod stream;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use stream::Memory;

use crate::measure::median;

/// A loop of independent operations.
#[derive(Clone, Copy)]
struct Loop {
    /// Runs that many iterations.
    run: fn(u64),
    /// Operations of one iteration; a multiplication and an addition are two.
    operations: u64,
    /// The name of its instruction set.
    name: &'static str,
}

/// Iterations between two looks at the time: some hundred thousand cycles.
const CHUNK: u64 = 10_000;

impl Loop {
    /// Operations in a second of this thread: the median of short parts of the time. `before` runs before each part.
    fn rate(self, length: Duration, before: impl Fn()) -> f64 {
        let begin = Instant::now();
        let mut rates = Vec::new();
        loop {
            before();
            let start = Instant::now();
            (self.run)(CHUNK);
            rates.push((CHUNK * self.operations) as f64 / start.elapsed().as_secs_f64());
            if begin.elapsed() >= length {
                return median(&mut rates).unwrap_or(0.0);
            }
        }
    }
}

/// The sum of what `work` returns on that many threads that begin together.
fn together(threads: usize, work: impl Fn(usize) -> f64 + Sync) -> f64 {
    if threads <= 1 {
        return work(0);
    }
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let begun: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(thread)
                })
            })
            .collect();
        begun.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

/// Fused multiply-adds of `f32` on the widest vectors: floating-point operations in a second.
pub(crate) fn fma(threads: usize, length: Duration) -> f64 {
    let work = fma_loop();
    together(threads, |_| work.rate(length, || ()))
}

/// The name of the loop that [`fma`] measures.
pub(crate) fn fma_name() -> &'static str {
    fma_loop().name
}

/// Products of 8-bit integers that are added to 32-bit ones: operations in a second, if the processor has instructions
/// for it that the harness knows (AVX-512 VNNI).
pub(crate) fn int8(threads: usize, length: Duration) -> Option<f64> {
    let work = int8_loop()?;
    Some(together(threads, |_| work.rate(length, || ())))
}

/// Cycles in a second, by a chain of additions that each wait for the one before; unknown on architectures without
/// such a chain here.
///
/// In turns with [`fma`]: processors slow down where vectors are wide, and stay slow for some time after.
pub(crate) fn clock(length: Duration) -> Option<f64> {
    let vectors = fma_loop();
    clock_loop().map(|chain| chain.rate(length, || (vectors.run)(CHUNK)))
}

/// Floating-point operations that [`fma`] should reach in a cycle, where all processors are alike.
pub(crate) fn expected_per_cycle() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if fma_loop().name == x86::FMA_512.name {
        return Some(64.0);
    }
    None
}

fn fma_loop() -> Loop {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return x86::FMA_512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return x86::FMA_256;
        }
    }
    portable::MULTIPLY_ADD
}

fn int8_loop() -> Option<Loop> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vnni") {
        return Some(x86::VNNI_512);
    }
    None
}

fn clock_loop() -> Option<Loop> {
    #[cfg(target_arch = "x86_64")]
    return Some(x86::ADD_CHAIN);
    #[cfg(target_arch = "aarch64")]
    return Some(portable::ADD_CHAIN);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_micros(50);

    #[test]
    fn every_loop_of_this_machine_has_a_rate() {
        assert!(fma(1, MOMENT) > 0.0);
        assert!(fma(2, MOMENT) > 0.0);
        assert!(int8(1, MOMENT).is_none_or(|rate| rate > 0.0));
        assert!(clock(MOMENT).is_none_or(|rate| rate > 0.0));
        assert!(portable::MULTIPLY_ADD.rate(MOMENT, || ()) > 0.0);
    }

    #[test]
    fn threads_add_up() {
        assert_eq!(together(3, |thread| thread as f64), 3.0);
        assert_eq!(together(1, |_| 5.0), 5.0);
    }
}
