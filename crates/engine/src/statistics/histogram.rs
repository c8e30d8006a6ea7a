//! How long a command takes, as a distribution: counts in buckets that get wider with the value.
//!
//! The first 16 values have a bucket each; from there on every doubling, of the value and 16, is cut into 16, so that
//! no value is more than a sixteenth below the greatest of its bucket. One thread writes, with plain stores; others
//! read figures that may be a moment old.

use std::sync::OnceLock;

use crate::statistics::stats::Counter;

/// Parts of a doubling, as a power of two.
const PARTS_BITS: u32 = 4;
const PARTS: usize = 1 << PARTS_BITS;
/// The greatest value that is told from greater ones, as a power of two: minutes, in ticks of any processor.
const MAX_BITS: u32 = 41;
const BUCKETS: usize = (MAX_BITS - PARTS_BITS) as usize * PARTS;

/// The bucket of a value. All are moved up by the first 16, so that these need no case of their own.
#[inline(always)]
fn bucket_of(value: u64) -> usize {
    let moved = value.min((1 << MAX_BITS) - 1 - PARTS as u64) + PARTS as u64;
    let doubling = moved.ilog2() - PARTS_BITS;
    doubling as usize * PARTS + (moved >> doubling) as usize % PARTS
}

/// The greatest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    (((PARTS + bucket % PARTS + 1) as u64) << (bucket / PARTS)) - 1 - PARTS as u64
}

/// A histogram that takes no memory until the first value.
#[derive(Default)]
pub struct Histogram(OnceLock<Box<[Counter; BUCKETS]>>);

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("used", &self.0.get().is_some()).finish()
    }
}

impl Histogram {
    /// Counts values, from the thread that owns the histogram.
    pub fn record(&self, values: &[u64]) {
        let buckets = self.0.get_or_init(|| Box::new(std::array::from_fn(|_| Counter::default())));
        for &value in values {
            if let Some(counter) = buckets.get(bucket_of(value)) {
                counter.add(1);
            }
        }
    }

    /// Takes back that a value was counted, if it was.
    pub fn take_back(&self, value: u64) {
        if let Some(counter) = self.0.get().and_then(|buckets| buckets.get(bucket_of(value))) {
            counter.take_back(1);
        }
    }

    /// Starts over.
    pub fn reset(&self) {
        self.0.get().into_iter().flat_map(|buckets| buckets.iter()).for_each(Counter::reset);
    }
}

/// The values of several histograms together.
#[derive(Default)]
pub struct Distribution {
    /// The greatest value of each bucket that is not empty, ascending, and how many values are no greater.
    cumulative: Vec<(u64, u64)>,
}

impl Distribution {
    /// What these histograms hold now.
    pub fn of<'h>(all: impl Iterator<Item = &'h Histogram>) -> Distribution {
        let mut sums = vec![0; BUCKETS];
        for counter in all.filter_map(|h| h.0.get()).flat_map(|buckets| buckets.iter().enumerate()) {
            sums[counter.0] += counter.1.get();
        }
        let mut total = 0;
        let filled = sums.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let cumulative = filled.map(|(bucket, count)| {
            total += count;
            (last_of(bucket), total)
        });
        Distribution { cumulative: cumulative.collect() }
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.last().map_or(0, |&(_, total)| total)
    }

    /// The value that so many percent of all do not exceed; 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let at = self.cumulative.partition_point(|&(_, total)| total < rank);
        self.cumulative.get(at).or(self.cumulative.last()).map_or(0, |&(value, _)| value)
    }

    /// How many values do not exceed this one, up to a bucket's width.
    #[must_use]
    pub fn count_up_to(&self, value: u64) -> u64 {
        let at = self.cumulative.partition_point(|&(last, _)| last <= value);
        at.checked_sub(1).and_then(|at| self.cumulative.get(at)).map_or(0, |&(_, total)| total)
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
        assert_eq!((all.count_up_to(99), all.count_up_to(u64::MAX)), (0, 100));
        assert!((45..=50).contains(&all.count_up_to(5000)), "{}", all.count_up_to(5000));
        a.reset();
        assert_eq!(Distribution::of([&a].into_iter()).count(), 0);
        assert_eq!(Distribution::default().percentile(50.0), 0);
    }
}
