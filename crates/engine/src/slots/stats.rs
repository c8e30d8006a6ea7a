//! Statistics for each slot: processor time, and bytes of requests and replies. They are counted while
//! `cluster-slot-stats-enabled` is on.
//!
//! Each thread has its own counters, allocated at its first command. Reading adds them up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::{SLOTS, Slot, SlotSet};
use statistics::ticks::to_microseconds;

/// Statistics of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlotFigures {
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
}

/// A thread's counters of one slot: the fields of [`SlotFigures`], with ticks instead of microseconds.
type Counted = [AtomicU64; 3];

/// The counters of all threads.
pub struct SlotStats {
    /// The counters of each thread.
    threads: Box<[OnceLock<Box<[Counted]>>]>,
}

impl SlotStats {
    /// Creates the statistics for a number of threads.
    #[must_use]
    pub(crate) fn new(threads: usize) -> SlotStats {
        SlotStats { threads: (0..threads).map(|_| OnceLock::new()).collect() }
    }

    /// Adds a command's figures to a slot's counters of this thread.
    pub(crate) fn note(&self, thread: usize, slot: Slot, ticks: u64, bytes_in: u64, bytes_out: u64) {
        let Some(own) = self.threads.get(thread) else { return };
        let counted = &own.get_or_init(|| (0..SLOTS).map(|_| Counted::default()).collect())[slot.index()];
        // No other thread writes these counters, so that the addition needs no atomic operation.
        for (sum, more) in counted.iter().zip([ticks, bytes_in, bytes_out]) {
            sum.store(sum.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    /// Returns the sums of a slot.
    pub(crate) fn of(&self, slot: Slot) -> SlotFigures {
        let mut sums = [0; 3];
        for counted in self.threads.iter().filter_map(OnceLock::get) {
            let own = &counted[slot.index()];
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own.load(Ordering::Relaxed));
        }
        let [ticks, bytes_in, bytes_out] = sums;
        // INFO commandstats rounds in this way, too.
        SlotFigures { cpu_us: to_microseconds(ticks).round() as u64, bytes_in, bytes_out }
    }

    /// Sets the counters of these slots to 0. The caller is alone behind the gate.
    pub(crate) fn forget(&self, slots: &SlotSet) {
        for counted in self.threads.iter().filter_map(OnceLock::get) {
            let of_slots = slots.iter().flat_map(|slot| &counted[slot.index()]);
            of_slots.for_each(|sum| sum.store(0, Ordering::Relaxed));
        }
    }

    /// Sets all counters to 0.
    pub(crate) fn reset(&self) {
        let all = self.threads.iter().filter_map(OnceLock::get).flat_map(|counted| counted.iter().flatten());
        all.for_each(|sum| sum.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_by_slot() {
        let stats = SlotStats::new(2);
        let [one, other] = [5, 16383].map(|number| Slot::new(number).unwrap());
        let us = |ticks: u64| to_microseconds(ticks).round() as u64;
        stats.note(0, one, 25_000_000, 10, 1);
        stats.note(1, one, 15_000_003, 20, 2);
        stats.note(1, other, 999_999, 0, 7);
        assert_eq!(stats.of(one), SlotFigures { cpu_us: us(40_000_003), bytes_in: 30, bytes_out: 3 });
        assert_eq!(stats.of(other), SlotFigures { cpu_us: us(999_999), bytes_in: 0, bytes_out: 7 });
        let mut lost = SlotSet::EMPTY;
        lost.insert(other);
        stats.forget(&lost);
        assert_eq!((stats.of(one).bytes_in, stats.of(other)), (30, SlotFigures::default()));
        stats.reset();
        assert_eq!(stats.of(one), SlotFigures::default());
    }
}
