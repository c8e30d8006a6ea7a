//! Growth by a few buckets, and shrinking by one.

use super::buckets::{Home, SplitPair};
use super::{Bucket, Record, SLOTS, Slot, Table, prefetch_record_at};
use crate::hash::TableHash;
use crate::prefetch::prefetch;

/// Maximum number of buckets to split together. They are adjacent, so that their memory can be read in parallel.
const SPLITS_MAX: usize = 32;
/// At most one bucket in this many is split at once, so that a table is hardly larger than necessary. Miri's tables are
/// small, so it gets a smaller number.
const SPLIT_OF_BUCKETS: usize = if cfg!(miri) { 16 } else { 32 };

impl<R: Record> Table<R> {
    /// Adds buckets, and moves into each its records from the bucket that is split.
    pub(super) fn grow(&mut self) {
        let first = self.buckets.len();
        let count = splits_at_once(first);
        (0..count).for_each(|_| self.buckets.push());
        if first == 0 {
            return;
        }
        let partings = (first..first + count).map(SplitPair::of);
        self.ask_for_splits(partings.clone());
        for parting in partings {
            match parting.bit_of_tag() {
                Some(bit) => self.split_by_tags(&parting, bit),
                None => self.split_by_keys(parting.lower),
            }
        }
    }

    /// Splits a bucket by a bit of its records' tags.
    fn split_by_tags(&mut self, parting: &SplitPair, bit: u32) {
        let numbers = [parting.lower, parting.upper];
        let parts = numbers.map(|number| self.buckets.at(number));
        // SAFETY: the table owns both buckets and is borrowed mutably; `split` owns the lower bucket's content from
        // here on.
        let mut split = unsafe { parts[0].read() };
        let (halves, mut used) = split.parted(bit);
        // SAFETY: as above; the upper bucket is empty.
        unsafe {
            parts[0].write(halves[0]);
            parts[1].write(halves[1]);
        }
        while let Some(next) = split.slots[SLOTS - 1].next() {
            self.buckets.chained -= 1;
            // SAFETY: a chain slot owns its box, and no bucket holds this slot any more.
            split = *unsafe { Box::from_raw(next.as_ptr()) };
            for slot in split.slots.into_iter().filter(|slot| slot.is_record()) {
                let half = slot.tag() >> bit & 1;
                if used[half] < SLOTS {
                    // SAFETY: as above; the bucket's slots from this one on are free.
                    unsafe { (*parts[half].as_ptr()).slots[used[half]] = slot };
                    used[half] += 1;
                } else {
                    self.put(numbers[half], slot);
                }
            }
        }
    }

    /// Splits a bucket with tags that have used up their window. The records get tags from the next window.
    fn split_by_keys(&mut self, lower: usize) {
        self.drain(lower, |table, slot| {
            // SAFETY: the slot held a live record, which goes back into the table at once.
            let Home { index, tag } = table.buckets.home_of(R::Hash::of(unsafe { R::key(slot.raw()) }).bits());
            table.put(index, slot.tagged(tag));
        });
    }

    /// Removes the last bucket, and puts its records into the bucket that it was split from.
    pub(super) fn merge(&mut self) {
        let parting = SplitPair::of(self.buckets.len() - 1);
        if parting.bit_of_tag().is_none() {
            self.drain(parting.lower, |table, slot| {
                table.put(parting.lower, slot.tagged(parting.tag_before(slot.tag(), parting.lower)));
            });
        }
        self.drain(parting.upper, |table, slot| {
            table.put(parting.lower, slot.tagged(parting.tag_before(slot.tag(), parting.upper)));
        });
        self.buckets.pop();
    }

    /// Empties a bucket's chain, frees its chained buckets, and passes each record to `visit`.
    pub(super) fn drain(&mut self, index: usize, mut visit: impl FnMut(&mut Self, Slot)) {
        // SAFETY: the table owns the bucket and is borrowed mutably; the local `bucket` owns the content from here on.
        let mut bucket = unsafe { self.buckets.at(index).replace(Bucket::EMPTY) };
        loop {
            bucket.slots.iter().filter(|s| s.is_record()).for_each(|s| visit(self, *s));
            let Some(next) = bucket.slots[SLOTS - 1].next() else { return };
            self.buckets.chained -= 1;
            // SAFETY: a chain slot owns its box, and the slot is dropped with `bucket` here.
            bucket = *unsafe { Box::from_raw(next.as_ptr()) };
        }
    }

    /// Prefetches memory for splits: the buckets, then their chains and, if the split reads keys, their records.
    fn ask_for_splits(&self, partings: impl Iterator<Item = SplitPair> + Clone) {
        for parting in partings.clone() {
            prefetch(self.buckets.at(parting.lower).as_ptr().cast());
            prefetch(self.buckets.at(parting.upper).as_ptr().cast());
        }
        for parting in partings.clone() {
            if let Some(chained) = self.bucket(parting.lower).slots[SLOTS - 1].next() {
                prefetch(chained.as_ptr().cast());
            }
        }
        for parting in partings.filter(|parting| parting.bit_of_tag().is_none()) {
            let mut next = Some(self.buckets.at(parting.lower));
            while let Some(bucket) = next {
                // SAFETY: the chain is the table's, and is not written to while the table is borrowed.
                let slots = unsafe { bucket.as_ref() }.slots;
                slots.iter().filter(|slot| slot.is_record()).for_each(|slot| prefetch_record_at(slot.raw()));
                next = slots[SLOTS - 1].next();
            }
        }
    }
}

/// Returns the number of buckets to add at once to a table of `buckets`. The table does not pass a power of two in one
/// step, so that the same bit of the hash splits all of them.
fn splits_at_once(buckets: usize) -> usize {
    let to_power_of_two = (buckets + 1).next_power_of_two() - buckets;
    (buckets / SPLIT_OF_BUCKETS).clamp(1, SPLITS_MAX).min(to_power_of_two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_grows_by_little_at_once_and_stops_at_powers_of_two() {
        let mut buckets = 0;
        let mut powers = (0..if cfg!(miri) { 12 } else { 20 }).map(|bits| 1 << bits).peekable();
        while let Some(&power) = powers.peek() {
            let count = splits_at_once(buckets);
            assert!((1..=SPLITS_MAX).contains(&count) && (count == 1 || count * SPLIT_OF_BUCKETS <= buckets));
            buckets += count;
            assert!(buckets <= power, "{buckets} buckets, {count} of them new");
            powers.next_if_eq(&buckets);
        }
    }
}
