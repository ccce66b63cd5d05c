//! Offsets for buffers that share one arena: several greedy orders, the best result kept.
//!
//! Which order of placing is best depends on the model, and the problem is NP-hard; but a handful of
//! simple orders, tried in turn, come within a few per cent of the lower bound on real networks.
//! [`place`] stops as soon as one of them reaches it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::tokens;
use crate::ir::BUFFER_ALIGNMENT;

/// Offsets and sizes are multiples of this many bytes.
pub const ALIGNMENT: u64 = BUFFER_ALIGNMENT as u64;

/// Pairs of buffers that are alive together which one call of [`place`] may look at.
///
/// A network of 1000 values has some 10,000 such pairs, so every order is tried on it. The limit
/// keeps 100,000 values under a second in the unoptimised builds that Cargo makes of build scripts.
const EFFORT: u64 = 2_000_000;

/// Rounds in which the buffers at the top of the best arena so far are placed first instead.
const REORDERINGS: usize = 32;

/// A buffer to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaBuffer {
    /// Size; 0 takes no place.
    pub bytes: u64,
    /// The step that writes it first.
    pub first: u32,
    /// The last step that reads or writes it, at least `first`. The buffer is occupied during both
    /// steps and all between.
    pub last: u32,
    /// The device that computes it. All are in one arena; blocks are of one device.
    pub device: u32,
}

impl ArenaBuffer {
    fn overlaps_in_time(&self, other: &ArenaBuffer) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Where each buffer is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arena {
    /// One offset for each buffer, a multiple of [`ALIGNMENT`].
    pub offsets: Vec<u64>,
    /// Size of the arena, a multiple of [`ALIGNMENT`].
    pub bytes: u64,
    /// Most bytes that are alive in one step, each buffer rounded up to [`ALIGNMENT`]: no arena can
    /// be smaller.
    pub peak_live_bytes: u64,
}

/// The buffers together exceed 2^63 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaTooLarge;

impl fmt::Display for ArenaTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the intermediate tensors take more than 2^63 bytes")
    }
}

impl std::error::Error for ArenaTooLarge {}

/// Places buffers so that two that are alive in the same step never overlap.
///
/// The result depends on nothing but the arguments.
///
/// # Errors
///
/// The buffers together exceed 2^63 bytes.
pub fn place(buffers: &[ArenaBuffer]) -> Result<Arena, ArenaTooLarge> {
    let sizes = sizes(buffers)?;
    let peak_live_bytes = peak(buffers, &sizes);
    let mut search = Search { buffers, sizes, peak_live_bytes, effort: EFFORT, best: None };
    search.by_time(false);
    search.by_time(true);
    search.by_orders();
    search.by_reordering();
    search.by_tokens()?;
    let (bytes, offsets) = search.best.unwrap_or_default();
    Ok(Arena { offsets, bytes, peak_live_bytes })
}

/// Most bytes of buffers that are alive in one step, each rounded up to [`ALIGNMENT`].
///
/// # Errors
///
/// The buffers together exceed 2^63 bytes.
pub fn peak_live_bytes(buffers: &[ArenaBuffer]) -> Result<u64, ArenaTooLarge> {
    Ok(peak(buffers, &sizes(buffers)?))
}

/// The sizes rounded up.
fn sizes(buffers: &[ArenaBuffer]) -> Result<Vec<u64>, ArenaTooLarge> {
    let mut sizes = Vec::with_capacity(buffers.len());
    let mut sum = 0u64;
    for buffer in buffers {
        let size = buffer.bytes.checked_next_multiple_of(ALIGNMENT).ok_or(ArenaTooLarge)?;
        sum = sum.checked_add(size).filter(|&sum| sum < 1 << 63).ok_or(ArenaTooLarge)?;
        sizes.push(size);
    }
    Ok(sizes)
}

/// Most bytes alive in one step.
fn peak(buffers: &[ArenaBuffer], sizes: &[u64]) -> u64 {
    // Bytes that become alive and that die, by step.
    let mut changes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (buffer, size) in buffers.iter().zip(sizes) {
        changes.entry(u64::from(buffer.first)).or_default().0 += size;
        changes.entry(u64::from(buffer.last) + 1).or_default().1 += size;
    }
    let (mut live, mut peak) = (0, 0);
    for (born, died) in changes.into_values() {
        live = live + born - died;
        peak = peak.max(live);
    }
    peak
}

/// How a gap is chosen.
#[derive(Clone, Copy)]
enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

/// The best arena so far and what may still be spent on a better one.
struct Search<'a> {
    buffers: &'a [ArenaBuffer],
    /// Sizes rounded up.
    sizes: Vec<u64>,
    peak_live_bytes: u64,
    effort: u64,
    best: Option<(u64, Vec<u64>)>,
}

impl Search<'_> {
    fn is_done(&self) -> bool {
        self.effort == 0 || self.best.as_ref().is_some_and(|best| best.0 == self.peak_live_bytes)
    }

    fn offer(&mut self, offsets: Vec<u64>) {
        let ends = offsets.iter().zip(&self.sizes).map(|(offset, size)| offset + size);
        let bytes = ends.max().unwrap_or(0);
        if self.best.as_ref().is_none_or(|best| bytes < best.0) {
            self.best = Some((bytes, offsets));
        }
    }

    /// Allocates and frees in the order of the steps, or backwards, as a heap would: n log n
    /// whatever the lifetimes are.
    fn by_time(&mut self, backwards: bool) {
        let span = |index: usize| {
            let buffer = &self.buffers[index];
            match backwards {
                false => (i64::from(buffer.first), i64::from(buffer.last)),
                true => (-i64::from(buffer.last), -i64::from(buffer.first)),
            }
        };
        let mut order: Vec<usize> = (0..self.buffers.len()).collect();
        order.sort_by_key(|&index| (span(index).0, Reverse(self.sizes[index]), index));
        let mut by_end = order.clone();
        by_end.sort_by_key(|&index| (span(index).1, index));
        let mut ended = by_end.into_iter().peekable();

        let mut heap = Heap::default();
        let mut offsets = vec![0; self.buffers.len()];
        for index in order {
            while let Some(over) = ended.next_if(|&over| span(over).1 < span(index).0) {
                heap.free(offsets[over], self.sizes[over]);
            }
            offsets[index] = heap.allocate(self.sizes[index]);
        }
        self.offer(offsets);
    }

    /// Places in the order of size, of size × lifetime, of lifetime, and of the bytes alive beside
    /// the buffer.
    fn by_orders(&mut self) {
        let life = |buffer: &ArenaBuffer| u128::from(buffer.last - buffer.first) + 1;
        let pressure = self.pressure();
        type Key<'a> = &'a dyn Fn(usize) -> (u128, u128);
        let keys: [Key<'_>; 4] = [
            &|i| (u128::from(self.sizes[i]), life(&self.buffers[i])),
            &|i| (u128::from(self.sizes[i]) * life(&self.buffers[i]), 0),
            &|i| (life(&self.buffers[i]), u128::from(self.sizes[i])),
            &|i| (u128::from(pressure[i]), u128::from(self.sizes[i])),
        ];
        let orders = keys.map(|key| {
            let mut order: Vec<usize> = (0..self.buffers.len()).collect();
            order.sort_by_cached_key(|&i| (Reverse(key(i)), self.buffers[i].first, i));
            order
        });
        for order in &orders {
            for fit in [Fit::First, Fit::Best] {
                if self.is_done() {
                    return;
                }
                self.by_order(order, fit);
            }
        }
    }

    /// For each buffer the most bytes alive in one of its steps, from both ends: exact for short
    /// lifetimes, which are nearly all.
    fn pressure(&self) -> Vec<u64> {
        let mut born: BTreeMap<u32, u64> = BTreeMap::new();
        let mut died: BTreeMap<u32, u64> = BTreeMap::new();
        for (buffer, size) in self.buffers.iter().zip(&self.sizes) {
            *born.entry(buffer.first).or_default() += size;
            *died.entry(buffer.last).or_default() += size;
        }
        let mut live = 0;
        let mut alive: BTreeMap<u32, u64> = BTreeMap::new();
        let steps: BTreeSet<u32> = born.keys().chain(died.keys()).copied().collect();
        for step in steps {
            live += born.get(&step).copied().unwrap_or(0);
            alive.insert(step, live);
            live -= died.get(&step).copied().unwrap_or(0);
        }
        self.buffers.iter().map(|buffer| alive[&buffer.first].max(alive[&buffer.last])).collect()
    }

    /// Places the buffers that reach the top of the best arena before all others, and tries again.
    fn by_reordering(&mut self) {
        let Some((_, offsets)) = &self.best else { return };
        let mut order: Vec<usize> = (0..self.buffers.len()).collect();
        order.sort_by_key(|&i| (offsets[i], Reverse(self.sizes[i]), i));
        for _ in 0..REORDERINGS {
            if self.is_done() {
                return;
            }
            let Some(offsets) = self.by_order(&order, Fit::First) else { return };
            let top = |&i: &usize| offsets[i] + self.sizes[i];
            let Some(highest) = order.iter().map(top).max() else { return };
            // A stable sort: what is not at the top keeps its order.
            order.sort_by_key(|i| top(i) != highest);
        }
    }

    /// Gives each buffer a block of its own or of one that is over: rarely better than offsets, so
    /// nothing is better than [`place`] in that way.
    fn by_tokens(&mut self) -> Result<(), ArenaTooLarge> {
        if self.best.as_ref().is_some_and(|best| best.0 == self.peak_live_bytes) {
            return Ok(());
        }
        let plan = tokens::of_buffers(self.buffers);
        let (offsets, _) = plan.offsets()?;
        self.offer(plan.storage.iter().map(|tokens| offsets[tokens[0]]).collect());
        Ok(())
    }

    /// Places in the given order; `None` when the effort is spent.
    fn by_order(&mut self, order: &[usize], fit: Fit) -> Option<Vec<u64>> {
        let mut offsets = vec![0; self.buffers.len()];
        let mut placed = Placed::new(self.buffers);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for &index in order {
            let size = self.sizes[index];
            if size == 0 {
                continue;
            }
            taken.clear();
            placed.for_each_alive_with(&self.buffers[index], |other| {
                taken.push((offsets[other], offsets[other] + self.sizes[other]));
            });
            self.effort = self.effort.saturating_sub(taken.len() as u64 + 1);
            if self.effort == 0 {
                return None;
            }
            taken.sort_unstable();
            offsets[index] = lowest_gap(&taken, size, fit);
            placed.insert(index);
        }
        self.offer(offsets.clone());
        Some(offsets)
    }
}

/// The offset of a gap of at least `size` bytes between ranges in order of their starts.
fn lowest_gap(taken: &[(u64, u64)], size: u64, fit: Fit) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut end = 0;
    for &(from, to) in taken {
        if from >= end + size {
            match fit {
                Fit::First => return end,
                Fit::Best if best.is_none_or(|(gap, _)| from - end < gap) => {
                    best = Some((from - end, end));
                }
                Fit::Best => {}
            }
        }
        end = end.max(to);
    }
    best.map_or(end, |(_, offset)| offset)
}

/// The buffers placed so far, found by the steps in which they are alive.
struct Placed<'a> {
    buffers: &'a [ArenaBuffer],
    /// Buffers in order of their first step.
    by_first: Vec<usize>,
    rank: Vec<usize>,
    /// A binary tree over `by_first`, root at 1: one more than the latest last step of the placed
    /// buffers below a node, 0 if there is none.
    latest: Vec<u64>,
    stack: Vec<(usize, usize, usize)>,
}

impl<'a> Placed<'a> {
    fn new(buffers: &'a [ArenaBuffer]) -> Self {
        let mut by_first: Vec<usize> = (0..buffers.len()).collect();
        by_first.sort_by_key(|&index| (buffers[index].first, index));
        let mut rank = vec![0; buffers.len()];
        for (position, &index) in by_first.iter().enumerate() {
            rank[index] = position;
        }
        let latest = vec![0; 2 * buffers.len().next_power_of_two()];
        Placed { buffers, by_first, rank, latest, stack: Vec::new() }
    }

    fn insert(&mut self, index: usize) {
        let mut node = self.latest.len() / 2 + self.rank[index];
        let last = u64::from(self.buffers[index].last) + 1;
        while node > 0 {
            self.latest[node] = self.latest[node].max(last);
            node /= 2;
        }
    }

    /// Calls `visit` with each placed buffer that is alive in a step of `buffer`.
    fn for_each_alive_with(&mut self, buffer: &ArenaBuffer, mut visit: impl FnMut(usize)) {
        let leaves = self.latest.len() / 2;
        self.stack.push((1, 0, leaves));
        while let Some((node, from, to)) = self.stack.pop() {
            let starts_too_late = |&index: &usize| self.buffers[index].first > buffer.last;
            if self.latest[node] <= u64::from(buffer.first)
                || self.by_first.get(from).is_none_or(starts_too_late)
            {
                continue;
            }
            if node >= leaves {
                debug_assert!(self.buffers[self.by_first[from]].overlaps_in_time(buffer));
                visit(self.by_first[from]);
                continue;
            }
            let middle = from.midpoint(to);
            self.stack.push((2 * node + 1, middle, to));
            self.stack.push((2 * node, from, middle));
        }
    }
}

/// Free ranges below an end that grows when none of them fits.
#[derive(Default)]
struct Heap {
    /// Size of each free range by its offset.
    by_offset: BTreeMap<u64, u64>,
    /// The same as (size, offset).
    by_size: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Heap {
    fn allocate(&mut self, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        if let Some(&(free, offset)) = self.by_size.range((size, 0)..).next() {
            self.remove(offset, free);
            if free > size {
                self.insert(offset + size, free - size);
            }
            return offset;
        }
        // The end grows by no more than is missing after the free range that touches it.
        let last = self.by_offset.last_key_value().map(|(&offset, &free)| (offset, free));
        let offset = match last {
            Some((offset, free)) if offset + free == self.end => {
                self.remove(offset, free);
                offset
            }
            _ => self.end,
        };
        self.end = offset + size;
        offset
    }

    fn free(&mut self, offset: u64, size: u64) {
        if size == 0 {
            return;
        }
        let (mut offset, mut size) = (offset, size);
        if let Some((&before, &free)) = self.by_offset.range(..offset).next_back()
            && before + free == offset
        {
            self.remove(before, free);
            (offset, size) = (before, size + free);
        }
        if let Some(&free) = self.by_offset.get(&(offset + size)) {
            self.remove(offset + size, free);
            size += free;
        }
        self.insert(offset, size);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        self.by_offset.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn buffer(bytes: u64, first: u32, last: u32) -> ArenaBuffer {
        ArenaBuffer { bytes, first, last, device: 0 }
    }

    fn buffers() -> impl Strategy<Value = Vec<ArenaBuffer>> {
        let one = (0u64..2000, 0u32..40, 0u32..8)
            .prop_map(|(bytes, first, length)| buffer(bytes, first, first + length));
        vec(one, 0..60)
    }

    proptest! {
        #[test]
        fn buffers_alive_together_do_not_overlap(buffers in buffers()) {
            let arena = place(&buffers).unwrap();
            let range = |i: usize| arena.offsets[i]..arena.offsets[i] + buffers[i].bytes;
            for i in 0..buffers.len() {
                prop_assert_eq!(arena.offsets[i] % ALIGNMENT, 0);
                prop_assert!(range(i).end <= arena.bytes);
                for j in 0..i {
                    let together = buffers[i].first <= buffers[j].last
                        && buffers[j].first <= buffers[i].last;
                    let disjoint = range(i).end <= range(j).start
                        || range(j).end <= range(i).start
                        || range(i).is_empty()
                        || range(j).is_empty();
                    prop_assert!(disjoint || !together, "{i} and {j}: {arena:?}");
                }
            }
        }

        #[test]
        fn the_peak_is_the_largest_sum_of_one_step(buffers in buffers()) {
            let arena = place(&buffers).unwrap();
            let live = |step: u32| -> u64 {
                let alive = buffers.iter().filter(|b| b.first <= step && step <= b.last);
                alive.map(|b| b.bytes.next_multiple_of(ALIGNMENT)).sum()
            };
            prop_assert_eq!(arena.peak_live_bytes, (0..50).map(live).max().unwrap());
            prop_assert!(arena.bytes >= arena.peak_live_bytes);
        }
    }

    #[test]
    fn a_chain_takes_two_places() {
        let chain: Vec<_> = (0..20).map(|i| buffer(64 * u64::from(i % 5 + 1), i, i + 1)).collect();
        let arena = place(&chain).unwrap();
        assert_eq!((arena.bytes, arena.peak_live_bytes), (64 * 9, 64 * 9));
    }

    #[test]
    fn an_order_by_time_alone_would_waste_memory() {
        // A heap puts the small long-lived buffer beside the first large one and the second large
        // one above both; placing the largest first leaves no gap.
        let buffers = [buffer(640, 0, 1), buffer(64, 1, 9), buffer(1280, 2, 3), buffer(640, 3, 4)];
        let arena = place(&buffers).unwrap();
        assert_eq!(arena.bytes, arena.peak_live_bytes);
    }

    #[test]
    fn no_buffers_take_no_memory() {
        assert_eq!(place(&[]).unwrap(), Arena::default());
        let arena = place(&[buffer(0, 3, 4), buffer(0, 3, 3)]).unwrap();
        assert_eq!((arena.bytes, arena.offsets), (0, vec![0, 0]));
    }

    #[test]
    fn sizes_that_cannot_be_added_are_an_error() {
        assert_eq!(place(&[buffer(u64::MAX, 0, 0)]), Err(ArenaTooLarge));
        assert_eq!(place(&[buffer(1 << 62, 0, 0); 2]), Err(ArenaTooLarge));
        assert!(place(&[buffer(1 << 62, 0, 0)]).is_ok());
    }

    #[test]
    fn a_hundred_thousand_buffers_are_placed_whatever_their_lifetimes() {
        let n = 100_000u32;
        let chain: Vec<_> = (0..n).map(|i| buffer(64 + u64::from(i % 7) * 64, i, i + 1)).collect();
        let arena = place(&chain).unwrap();
        assert!(arena.bytes as f64 <= 1.3 * arena.peak_live_bytes as f64);
        // All alive together: no order is better than another, and none may be quadratic.
        let crowd: Vec<_> = (0..n).map(|i| buffer(64, i, n)).collect();
        let arena = place(&crowd).unwrap();
        assert_eq!(arena.bytes, arena.peak_live_bytes);
        let comb: Vec<_> = (0..n).map(|i| buffer(64 + u64::from(i % 3), i, 2 * n - i)).collect();
        assert!(place(&comb).is_ok());
    }
}
