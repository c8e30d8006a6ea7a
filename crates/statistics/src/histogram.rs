//! A histogram of command durations, with buckets that widen with the value.
//!
//! The first 16 values have a bucket each. Beyond, each doubling of the value plus 16 is divided into 16 buckets, so
//! that a value is at most a sixteenth below the greatest value of its bucket. One thread writes, with plain stores;
//! other threads may read slightly stale figures.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::Counter;

/// Buckets in a doubling, as a power of two.
const PARTS_BITS: u32 = 4;
const PARTS: usize = 1 << PARTS_BITS;
/// The greatest distinguishable value, as a power of two: minutes, in ticks of any processor.
const MAX_BITS: u32 = 41;
const BUCKETS: usize = (MAX_BITS - PARTS_BITS) as usize * PARTS;

/// Returns the bucket of a value. All values are shifted by 16, so that the first 16 need no special case.
#[inline(always)]
fn bucket_of(value: u64) -> usize {
    let moved = value.min((1 << MAX_BITS) - 1 - PARTS as u64) + PARTS as u64;
    let doubling = moved.ilog2() - PARTS_BITS;
    doubling as usize * PARTS + (moved >> doubling) as usize % PARTS
}

/// Returns the greatest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    (((PARTS + bucket % PARTS + 1) as u64) << (bucket / PARTS)) - 1 - PARTS as u64
}

/// A histogram that allocates its buckets at the first value.
#[derive(Default)]
pub struct Histogram(OnceLock<Box<Buckets>>);

/// The counters of a histogram take nearly five kilobytes. Most durations of a command are within a few doublings, so readers and resets
/// visit the counters of those only.
struct Buckets {
    counters: [Counter; BUCKETS],
    /// A bit for each doubling that may have counts. Set after an addition, so that a reset at the same time leaves no counts without a bit.
    doublings: AtomicU64,
}

const _: () = assert!(BUCKETS / PARTS <= u64::BITS as usize);

impl Buckets {
    fn new() -> Box<Buckets> {
        Box::new(Buckets { counters: std::array::from_fn(|_| Counter::default()), doublings: AtomicU64::new(0) })
    }

    /// Adds bits. Only the owning thread calls this.
    fn note(&self, doublings: u64) {
        let known = self.doublings.load(Ordering::Relaxed);
        if doublings & !known != 0 {
            self.doublings.store(known | doublings, Ordering::Release);
        }
    }
}

/// Returns the first buckets of the doublings in `bits`, ascending.
fn firsts_of(bits: u64) -> impl Iterator<Item = usize> {
    let rest = |bits: &u64| Some(bits & bits.wrapping_sub(1));
    let doublings = std::iter::successors(Some(bits), rest).take_while(|bits| *bits != 0);
    doublings.map(|bits| bits.trailing_zeros() as usize * PARTS)
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("used", &self.0.get().is_some()).finish()
    }
}

impl Histogram {
    /// Counts values. Only the owning thread calls this.
    pub fn record(&self, values: &[u64]) {
        let buckets = self.0.get_or_init(Buckets::new);
        let mut doublings = 0;
        for &value in values {
            let bucket = bucket_of(value);
            if let Some(counter) = buckets.counters.get(bucket) {
                counter.add(1);
                doublings |= 1 << (bucket / PARTS);
            }
        }
        buckets.note(doublings);
    }

    /// Undoes the count of a value.
    pub fn take_back(&self, value: u64) {
        if let Some(counter) = self.0.get().and_then(|buckets| buckets.counters.get(bucket_of(value))) {
            counter.take_back(1);
        }
    }

    /// Resets all buckets.
    pub fn reset(&self) {
        if let Some(buckets) = self.0.get() {
            let doublings = buckets.doublings.swap(0, Ordering::AcqRel);
            let counters = firsts_of(doublings).flat_map(|first| buckets.counters.iter().skip(first).take(PARTS));
            counters.for_each(Counter::reset);
        }
    }
}

/// The counts of a doubling, without those of the others.
struct Doubling {
    /// Index of its first bucket.
    first: usize,
    /// Sum of its counts; not zero.
    total: u64,
    counts: [u64; PARTS],
}

impl Doubling {
    /// Returns the greatest value and the count of each bucket.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().map(|(part, &count)| (last_of(self.first + part), count))
    }
}

/// The sum of several histograms. Counts are copied and added up as they are, because a branch for each bucket would be predicted badly.
#[derive(Default)]
pub struct Distribution {
    /// Zeros beside those of the histograms.
    zeros: u64,
    /// The doublings with counts, ascending.
    doublings: Vec<Doubling>,
}

impl Distribution {
    /// Sums the present contents of these histograms.
    pub fn of<'h>(all: impl Iterator<Item = &'h Histogram> + Clone) -> Distribution {
        let used = all.filter_map(|histogram| histogram.0.get());
        let bits = used.clone().fold(0, |bits, buckets| bits | buckets.doublings.load(Ordering::Acquire));
        let mut doublings = Vec::with_capacity(bits.count_ones() as usize);
        for first in firsts_of(bits) {
            let mut counts = [0; PARTS];
            for counters in used.clone().filter_map(|buckets| buckets.counters.get(first..)?.first_chunk::<PARTS>()) {
                counts.iter_mut().zip(counters).for_each(|(sum, counter)| *sum += counter.get());
            }
            let total = counts.iter().sum();
            if total > 0 {
                doublings.push(Doubling { first, total, counts });
            }
        }
        Distribution { zeros: 0, doublings }
    }

    /// Adds this number of zeros.
    #[must_use]
    pub fn with_zeros(mut self, count: u64) -> Distribution {
        self.zeros += count;
        self
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.zeros + self.doublings.iter().map(|doubling| doubling.total).sum::<u64>()
    }

    /// Returns the greatest value of each non-empty bucket, ascending, with the number of values in the bucket.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let zeros =
            self.doublings.first().filter(|doubling| doubling.first == 0).map_or(0, |doubling| doubling.counts[0]);
        let beyond = self.doublings.iter().flat_map(Doubling::buckets).filter(|&(last, _)| last > 0);
        std::iter::once((0, self.zeros + zeros)).chain(beyond).filter(|&(_, count)| count > 0)
    }

    /// Returns the value that `percent` percent of all values don't exceed; 0 if there are no values.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let mut before = self.zeros;
        if before >= rank {
            return 0;
        }
        for doubling in &self.doublings {
            if before + doubling.total >= rank {
                let reached = |&(_, count): &(u64, u64)| {
                    before += count;
                    before >= rank
                };
                return doubling.buckets().find(reached).map_or(0, |(last, _)| last);
            }
            before += doubling.total;
        }
        self.counts().last().map_or(0, |(last, _)| last)
    }

    /// Returns the number of values up to this one, with the precision of a bucket.
    #[must_use]
    pub fn count_up_to(&self, value: u64) -> u64 {
        let mut count = self.zeros;
        for doubling in &self.doublings {
            if last_of(doubling.first + PARTS - 1) > value {
                let up_to = doubling.buckets().take_while(|&(last, _)| last <= value);
                return count + up_to.map(|(_, count)| count).sum::<u64>();
            }
            count += doubling.total;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bucket_that_ends_with_it_or_soon_after() {
        let values = (0..2000).chain((4..MAX_BITS - 1).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
        for value in values {
            let last = last_of(bucket_of(value));
            assert!(last >= value && (last - value) * PARTS as u64 <= value, "{value}: {last}");
            assert_eq!(bucket_of(last), bucket_of(value));
            assert_ne!(bucket_of(last + 1), bucket_of(value));
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_several_histograms() {
        let [a, b, unused] = <[Histogram; 3]>::default();
        (1..=50).for_each(|v| a.record(&[v * 100]));
        (51..=100).for_each(|v| b.record(&[v * 100]));
        let all = Distribution::of([&a, &b, &unused].into_iter());
        assert_eq!(all.count(), 100);
        for (percent, exact) in [(0.0, 100), (1.0, 100), (50.0, 5000), (99.0, 9900), (99.9, 10_000), (100.0, 10_000)] {
            let got = all.percentile(percent);
            assert!(got >= exact && got <= exact + exact / 16, "{percent}: {got}");
        }
        let counts: Vec<_> = all.counts().collect();
        assert_eq!((counts[0].0 >= 100, counts.iter().map(|(_, count)| count).sum::<u64>()), (true, 100));
        assert_eq!((all.count_up_to(99), all.count_up_to(u64::MAX)), (0, 100));
        assert!((45..=50).contains(&all.count_up_to(5000)), "{}", all.count_up_to(5000));
        let with_zeros = all.with_zeros(100);
        assert_eq!((with_zeros.count(), with_zeros.percentile(50.0), with_zeros.count_up_to(0)), (200, 0, 100));
        let more = with_zeros.with_zeros(50);
        assert_eq!((more.count(), more.count_up_to(0), more.with_zeros(0).count()), (250, 150, 250));
        for _ in 0..2 {
            a.reset();
            assert_eq!(Distribution::of([&a].into_iter()).count(), 0);
            a.reset();
            a.record(&[5]);
            assert_eq!(Distribution::of([&a].into_iter()).count(), 1);
        }
        assert_eq!(Distribution::default().percentile(50.0), 0);
    }
}
