//! How fast memory is read.

use std::hint::black_box;
use std::time::Instant;

use super::together;
use crate::measure::median;

/// Words of one cache line.
const LINE: usize = 8;

/// Lines between two looks at the time: 8 MiB.
const PART: usize = 1 << 17;

/// Memory to read, larger than the caches if the measure is to be that of DRAM.
pub(crate) struct Memory(Vec<[u64; LINE]>);

impl Memory {
    /// Memory of that size; it is written once, so that the system has given it.
    pub(crate) fn new(bytes: usize) -> Memory {
        Memory(vec![[1; LINE]; (bytes / size_of::<[u64; LINE]>()).max(1)])
    }

    /// Bytes in a second, by that many threads that each read a part once from its beginning to its end: the median of
    /// shorter parts.
    pub(crate) fn read(&self, threads: usize) -> f64 {
        let part = self.0.len().div_ceil(threads.max(1));
        together(threads, |thread| {
            let lines = self.0.chunks(part).nth(thread).unwrap_or_default();
            let rate = |lines: &[[u64; LINE]]| {
                let start = Instant::now();
                black_box(sum(black_box(lines)));
                size_of_val(lines) as f64 / start.elapsed().as_secs_f64()
            };
            median(&mut lines.chunks(PART).map(rate).collect::<Vec<f64>>()).unwrap_or(0.0)
        })
    }
}

fn sum(lines: &[[u64; LINE]]) -> [u64; LINE] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { sum_avx2(lines) };
    }
    sum_of_lines(lines)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(lines: &[[u64; LINE]]) -> [u64; LINE] {
    sum_of_lines(lines)
}

/// Word by word; the compiler makes vectors of it.
#[inline(always)]
fn sum_of_lines(lines: &[[u64; LINE]]) -> [u64; LINE] {
    let mut sums = [0u64; LINE];
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_memory_is_read() {
        let memory = Memory::new(6400);
        assert_eq!(sum(&memory.0), [100; LINE]);
        assert!(memory.read(1) > 0.0);
        assert!(memory.read(2) > 0.0);
    }
}
