//! Growing and shrinking by one bucket.

use super::buckets::{Home, Parting};
use super::{Bucket, Record, SLOTS, Slot, Table};
use crate::hash::hash;
use crate::prefetch::prefetch;

impl<R: Record> Table<R> {
    /// Adds a bucket, and moves to it what belongs there of the one that is split for it.
    pub(super) fn split(&mut self) {
        self.buckets.push();
        let added = self.buckets.len() - 1;
        if added == 0 {
            return;
        }
        let parting = Parting::of(added);
        self.prefetch_splits(&parting);
        match parting.bit_of_tag() {
            Some(bit) => self.split_by_tags(&parting, bit),
            None => self.split_by_keys(parting.lower),
        }
    }

    /// Splits a bucket by a bit that its records' tags have.
    fn split_by_tags(&mut self, parting: &Parting, bit: u32) {
        let (lower, upper) = (self.buckets.at(parting.lower), self.buckets.at(parting.upper));
        // SAFETY: both buckets are the table's, which is borrowed mutably; what is in the lower one is owned by `split`
        // from here on.
        let mut split = unsafe { lower.read() };
        let halves = split.parted(bit);
        // SAFETY: as above; the upper bucket is empty.
        unsafe {
            lower.write(halves[0]);
            upper.write(halves[1]);
        }
        while let Some(next) = split.slots[SLOTS - 1].next() {
            self.chained -= 1;
            // SAFETY: a chain slot owns its box, and this one is nowhere any more.
            split = *unsafe { Box::from_raw(next.as_ptr()) };
            for slot in split.slots.into_iter().filter(|slot| slot.is_record()) {
                self.put(if slot.tag() >> bit & 1 == 0 { parting.lower } else { parting.upper }, slot);
            }
        }
    }

    /// Splits a bucket whose records' tags have used up their window: they get the next one's bits.
    fn split_by_keys(&mut self, lower: usize) {
        self.drain(lower, |table, slot| {
            // SAFETY: the slot held a live record, which goes back into the table at once.
            let Home { index, tag } = table.buckets.home_of(hash(unsafe { R::key(slot.raw()) }));
            table.put(index, slot.tagged(tag));
        });
    }

    /// Takes the last bucket away, and puts what it holds into the one that it was split from.
    pub(super) fn merge(&mut self) {
        let parting = Parting::of(self.buckets.len() - 1);
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

    /// Takes every record out of a bucket's chain, frees the chain, and hands each to `visit`.
    pub(super) fn drain(&mut self, index: usize, mut visit: impl FnMut(&mut Self, Slot)) {
        // SAFETY: the bucket is the table's, which is borrowed mutably; what it owned is owned by `bucket` from here on.
        let mut bucket = unsafe { self.buckets.at(index).replace(Bucket::EMPTY) };
        loop {
            bucket.slots.iter().filter(|s| s.is_record()).for_each(|s| visit(self, *s));
            let Some(next) = bucket.slots[SLOTS - 1].next() else { return };
            self.chained -= 1;
            // SAFETY: a chain slot owns its box, and the slot is dropped with `bucket` here.
            bucket = *unsafe { Box::from_raw(next.as_ptr()) };
        }
    }

    /// Asks the processor for what the next splits will read, a step ahead for each: a bucket, then the next of its chain.
    /// Its records, too, where their keys will be read.
    fn prefetch_splits(&self, parting: &Parting) {
        let next = parting.lower + 1;
        if next + 2 >= self.buckets.len() {
            return;
        }
        if parting.bit_of_tag().is_none() {
            self.bucket(next).slots.iter().filter(|s| s.is_record()).for_each(|s| prefetch(s.raw().as_ptr()));
        }
        if let Some(chained) = self.bucket(next).slots[SLOTS - 1].next() {
            prefetch(chained.as_ptr().cast());
        }
        prefetch(self.buckets.at(next + 1).as_ptr().cast());
    }
}
